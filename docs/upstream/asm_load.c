// A load by inline assembly, whose register the compiler takes for written as soon as the
// assembly's text has ended.
//
//   clang --target=amdgcn-amd-amdhsa -mcpu=gfx942 -O3 -S asm_load.c -o -
//
// The kernel copies 32 floats a lane, and needs more registers for something else between the loads
// and their wait. -DONE_ASM waits in the same assembly as the loads: then no register can be
// touched in between.

typedef float Float4 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(1))) Float4* Pointer;

enum
{
    LOADS  = 8,
    OTHERS = 8
};

static inline void load(Float4* value, Pointer from)
{
#ifdef ONE_ASM
    asm volatile("global_load_dwordx4 %0, %1, off\n\ts_waitcnt vmcnt(0)"
                 : "+v"(*value)
                 : "v"(from)
                 : "memory");
#else
    asm volatile("global_load_dwordx4 %0, %1, off" : "+v"(*value) : "v"(from) : "memory");
#endif
}

static inline void wait(Float4* values)
{
    asm volatile("s_waitcnt vmcnt(0)" : : : "memory");
    for(int i = 0; i < LOADS; ++i)
        asm volatile("" : "+v"(values[i])); // what is used later depends on the wait
}

__attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(64, 64), amdgpu_waves_per_eu(8, 8))) void
test_kernel(Pointer in, Pointer out)
{
    const int lane       = __builtin_amdgcn_workitem_id_x();
    Float4 loaded[LOADS] = {0}, other[OTHERS];
#pragma unroll
    for(int i = 0; i < LOADS; ++i)
        load(&loaded[i], in + i * 64 + lane);
#pragma unroll
    for(int i = 0; i < OTHERS; ++i)
        other[i] = (Float4)(lane + i);
    asm volatile(""
                 : "+v"(other[0]),
                   "+v"(other[1]),
                   "+v"(other[2]),
                   "+v"(other[3]),
                   "+v"(other[4]),
                   "+v"(other[5]),
                   "+v"(other[6]),
                   "+v"(other[7]));
    wait(loaded);
#pragma unroll
    for(int i = 0; i < LOADS; ++i)
        out[i * 64 + lane] = loaded[i];
#pragma unroll
    for(int i = 0; i < OTHERS; ++i)
        out[(LOADS + i) * 64 + lane] = other[i];
}
