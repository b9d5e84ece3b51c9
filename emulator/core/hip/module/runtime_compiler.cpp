// hipRTC's functions, which ROCm's runtime exports, too. They compile on the host: calls go to
// libhiprtc, which ROCm has as a library of its own.
#include "standalone/report.h"

#include <dlfcn.h>

namespace emu {
namespace {
constexpr uintptr_t INTERNAL_ERROR = 11; // HIPRTC_ERROR_INTERNAL_ERROR
constexpr const char* NAMES[]      = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"};

// Numbers and pointers, which calls pass alike. The longest of these functions has eight.
using Word     = uintptr_t;
using Function = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word);

// Null if the library is missing, or takes the function from here itself.
Function compiler_function(const char* name, Function ours)
{
    static void* const library = [] {
        void* found = nullptr;
        for(const char* const file : NAMES)
            found = found ? found : dlopen(file, RTLD_NOW | RTLD_LOCAL);
        return found;
    }();
    const auto found = library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    return found == ours ? nullptr : found;
}
} // namespace
} // namespace emu

#define FORWARD(name, missing)                                                                                        \
    HIP_API emu::Word name(emu::Word a, emu::Word b, emu::Word c, emu::Word d, emu::Word e, emu::Word f, emu::Word g, \
                           emu::Word h)                                                                               \
    {                                                                                                                 \
        const auto function = emu::compiler_function(#name, name);                                                    \
        if(function)                                                                                                  \
            return function(a, b, c, d, e, f, g, h);                                                                  \
        emu::report_absent(#name);                                                                                    \
        return missing;                                                                                               \
    }

FORWARD(hiprtcAddNameExpression, emu::INTERNAL_ERROR)
FORWARD(hiprtcCompileProgram, emu::INTERNAL_ERROR)
FORWARD(hiprtcCreateProgram, emu::INTERNAL_ERROR)
FORWARD(hiprtcDestroyProgram, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetBitcode, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetBitcodeSize, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetCode, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetCodeSize, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetErrorString, reinterpret_cast<emu::Word>("libhiprtc, which compiles, is missing"))
FORWARD(hiprtcGetLoweredName, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetProgramLog, emu::INTERNAL_ERROR)
FORWARD(hiprtcGetProgramLogSize, emu::INTERNAL_ERROR)
FORWARD(hiprtcLinkAddData, emu::INTERNAL_ERROR)
FORWARD(hiprtcLinkAddFile, emu::INTERNAL_ERROR)
FORWARD(hiprtcLinkComplete, emu::INTERNAL_ERROR)
FORWARD(hiprtcLinkCreate, emu::INTERNAL_ERROR)
FORWARD(hiprtcLinkDestroy, emu::INTERNAL_ERROR)
FORWARD(hiprtcVersion, emu::INTERNAL_ERROR)
