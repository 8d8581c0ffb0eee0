// FP32 numbers as sums of two FP16 numbers, and products of such sums on the tensor cores.
//
// x = high + low with 22 bits, given a power-of-two scale that brings the largest x of an array to about 2^13. A
// product of two arrays is then high*high + high*low + low*high, summed in FP32; low*low is below its rounding.
// (Error-compensated products, as in Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores
// while surpassing the FP32 theoretical peak performance", 2022.)
#pragma once

// Two FP32 numbers as pairs of FP16; the first is in the lower half, as the tensor cores want it.
__device__ __forceinline__ void split(float first, float second, unsigned& high, unsigned& low) {
    float high_first, high_second;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(second), "f"(first));
    asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
        : "=f"(high_first), "=f"(high_second)
        : "r"(high));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(second - high_second), "f"(first - high_first));
}

// The larger of two pairs of FP16 by magnitude, element by element.
__device__ __forceinline__ unsigned larger_pair(unsigned so_far, unsigned pair) {
    unsigned larger;
    asm("max.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(so_far), "r"(pair & 0x7fff7fff));
    return larger;
}
__device__ __forceinline__ float largest_of_pair(unsigned pair) {
    float first, second;
    asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
        : "=f"(first), "=f"(second)
        : "r"(pair));
    return fmaxf(first, second);
}

// The largest of 32 numbers that are not negative, in every lane. Bits of such floats are ordered as they are.
__device__ __forceinline__ float warp_largest(float mine) {
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(mine)));
}

// A power of two and its inverse.
struct Scale {
    float up, down;
};
// The one that brings `largest` into [2^EXPONENT, 2^(EXPONENT + 1)); for what is below 2^-77, that of 2^-77.
template <int EXPONENT>
__device__ __forceinline__ Scale scale_to(float largest) {
    const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23 & 255), 50);
    return {__uint_as_float((254 + EXPONENT - exponent) << 23), __uint_as_float((exponent - EXPONENT) << 23)};
}

// Fragments of mma.m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"), for lane = 4 * group + quarter:
// A 16 x 16: rows group, group + 8; columns 2 * quarter, + 1, + 8, + 9. B 16 x 8: the same of its transpose.
// C 16 x 8: rows group, group + 8; columns 2 * quarter, + 1. So sums C, split, are the A of the next product.
__device__ __forceinline__ void multiply_add(float* sum, const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of FP16 from shared memory; lane 8i + r gives the address of row r of matrix i.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ unsigned shared_address(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
