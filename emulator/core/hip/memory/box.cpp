// Lines, rectangles and boxes of memory: what hipMemcpy3D, hipMemset2D and their kin do, now or as
// a node.
#include "hip/call.h"
#include "hip/graph/graph.h"
#include "hip/memory/memory.h"

namespace emu {
namespace {
unsigned char* row_of(const hipPitchedPtr& pointer, const hipPos& at, size_t y, size_t z)
{
    return static_cast<unsigned char*>(pointer.ptr) + pointer.pitch * (pointer.ysize * (at.z + z) + at.y + y) + at.x;
}
} // namespace

void copy_box(const hipMemcpy3DParms& box)
{
    require(!box.srcArray && !box.dstArray, hipErrorNotSupported, "arrays");
    const auto [width, height, depth] = box.extent;
    if(width == 0 || height == 0 || depth == 0)
        return;
    require(box.srcPtr.ptr && box.dstPtr.ptr, hipErrorInvalidValue, "null pointer");
    const bool one_row = height == 1 && depth == 1;
    require(one_row || (width <= box.srcPtr.pitch && width <= box.dstPtr.pitch), hipErrorInvalidValue,
            "the rows are wider than their pitch");
    const size_t to_rows = box.dstPtr.ysize, from_rows = box.srcPtr.ysize;
    require(depth == 1 || (height <= to_rows && height <= from_rows), hipErrorInvalidValue,
            "more rows than a slice has");
    for(size_t z = 0; z < depth; ++z)
        for(size_t y = 0; y < height; ++y)
            copy_memory(row_of(box.dstPtr, box.dstPos, y, z), row_of(box.srcPtr, box.srcPos, y, z), width, box.kind);
}

void fill_rows(const hipMemsetParams& rows)
{
    require(rows.dst, hipErrorInvalidValue, "null pointer");
    require(rows.height <= 1 || rows.width * rows.elementSize <= rows.pitch, hipErrorInvalidValue,
            "the rows are wider than their pitch");
    for(size_t y = 0; y < rows.height; ++y)
        set_memory(static_cast<unsigned char*>(rows.dst) + rows.pitch * y, rows.value, rows.elementSize, rows.width);
}

hipMemcpy3DParms rectangle(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                           hipMemcpyKind kind)
{
    return {nullptr,
            {},
            {const_cast<void*>(from), from_pitch, width, height},
            nullptr,
            {},
            {to, to_pitch, width, height},
            {width, height, 1},
            kind};
}

hipMemcpy3DParms line(void* to, const void* from, size_t bytes, hipMemcpyKind kind)
{
    return rectangle(to, bytes, from, bytes, bytes, 1, kind);
}
} // namespace emu
