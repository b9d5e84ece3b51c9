#include "run/options.h"

namespace emu {
Options& options()
{
    static Options chosen;
    return chosen;
}
} // namespace emu
