// The usual case of an instruction: all lanes on, no modifier, no check. Handlers have short ways
// for it beside the general one, which alone is built with -DEMU_PLAIN: the two must agree bit by
// bit, and their speeds are compared (emulator/tests/test_plain_core.py,
// bench/emulated.py).
#pragma once

#include "isa/wave.h"

namespace emu {
#ifdef EMU_PLAIN
inline constexpr bool FAST = false;
#else
inline constexpr bool FAST = true;
#endif

// Before a loop over lanes that may write the row it reads: no lane depends on another.
#ifdef __clang__
#define EMU_LANES_ALONE _Pragma("clang loop vectorize(assume_safety)")
#else
#define EMU_LANES_ALONE _Pragma("GCC ivdep")
#endif

// For pieces of hot loops that GCC would call: what they share then stays in vector registers.
#define EMU_INLINE [[gnu::always_inline]] inline

// Whether an access by all lanes needs nothing but its data moved: no check looks on, and it lands
// at once.
inline bool unwatched(const Wave& w)
{
    return FAST && w.exec() == ALL_LANES && w.twin == nullptr && !w.group->late && !w.group->aligned &&
           !w.group->doubts && w.group->shadow == nullptr && w.group->recorder == nullptr && w.group->races == nullptr;
}
} // namespace emu
