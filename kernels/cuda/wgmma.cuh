// Products of a warpgroup (sm_90a): A from registers, B from shared memory, in the swizzled order of Rows.
#pragma once

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Registers of a thread move from the warps that leave them to those that take them, by whole warpgroups.
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void leave_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Matrix descriptor (PTX ISA, "Matrix descriptor format"): rows of 128 bytes, 128-byte swizzle, 8 rows to the next
// 1024 bytes. The lower word has the address / 16, so that moving it is one addition; the upper one is constant.
constexpr unsigned SWIZZLED_ROWS = 1024 >> 4 | 1 << 30;
__device__ __forceinline__ unsigned descriptor(const void* at) {
    return shared_address(at) >> 4 | 1 << 16;
}

// d (64 x 64) = a (64 x 16) b + (accumulate ? d : 0). b^T is the 64 rows of a Rows by 16 of their elements; with
// ACROSS, b is 16 rows by the 64 elements of a half.
template <bool ACROSS>
__device__ __forceinline__ void wgmma(float (&d)[32], const unsigned (&a)[4], unsigned b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 b;\nmov.b64 b, {%36, %38};\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, b, p, 1, 1, %39;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate), "n"(SWIZZLED_ROWS), "n"(static_cast<int>(ACROSS)));
}
