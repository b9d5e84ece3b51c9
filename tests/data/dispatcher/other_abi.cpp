/* Opens a folder as a library of another C ABI than batch prefill's. main(folder) */
#include "ckpm_dispatcher.hpp"

/* Every function is compiled for every C ABI. */
template class ckpm::Library<ckpm::BatchPrefill>;
template class ckpm::Library<ckpm::Forward>;
template class ckpm::Library<ckpm::AppendKv>;
template class ckpm::Registry<ckpm::AppendKv>;

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
