/* Opens a folder as a library of another C ABI than batch prefill's. main(folder) */
#include "ckpm_dispatcher.hpp"

#include <cstdio>

int main(int count, char** words)
{
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    try
    {
        ckpm::Library<ckpm::Forward> library(words[count - 1]);
        std::printf("opened\n");
        return 0;
    }
    catch(const ckpm::Error& error)
    {
        std::printf("error: %s\n", error.what());
        return 2;
    }
}
