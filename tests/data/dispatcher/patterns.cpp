/* Prints for each pattern whether a kernel fits, or the error. main(pattern...) */
#include "ckpm_dispatcher.hpp"

#include <cstdio>

int main(int count, char** words)
{
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    const ckpm::Kernel kernel{"a kernel", {{"dtype", "bf16"}, {"mask", "no"}}};
    for(int at = 1; at < count; ++at)
        try
        {
            std::printf("%s\n", ckpm::Pattern(words[at]).fits(kernel) ? "fits" : "differs");
        }
        catch(const ckpm::Error& error)
        {
            std::printf("error: %s\n", error.what());
        }
    return 0;
}
