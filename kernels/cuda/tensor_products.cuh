// The two products of the scan with a chunk's rows: on warpgroups with GDN_WGMMA (sm_90a), else on warps (sm_80).
//
// With wgmma a product runs on behind what follows it, until products_done<n> leaves at most n commits pending;
// on warps it is there at once, and the waits are empty.
#pragma once
#include "tensor.cuh"
#ifdef GDN_WGMMA
#include "wgmma.cuh"
#endif

constexpr int STEPS = D / 16;  // a product over the rows of the state goes in steps of 16
using Fragment = unsigned[4];

#ifdef GDN_WGMMA
template <int PENDING>
__device__ __forceinline__ void products_done() {
    wgmma_wait<PENDING>();
}

// sum = S^T rows^T, in steps; sum[n * 4 + e] is that of row 8 n + 2 quarter + e % 2.
struct RowsProduct {
    float sum[32];
    template <int FIRST, int COUNT>
    __device__ __forceinline__ void add(const Fragment (&high)[STEPS], const Fragment (&low)[STEPS],
                                        const Rows& rows) {
        const unsigned first = descriptor(&rows);
        wgmma_fence();
#pragma unroll
        for (int step = FIRST; step < FIRST + COUNT; ++step) {
            const unsigned b = first + (step / 4 * HALF_BYTES + step % 4 * 32) / 16;
            wgmma<false>(sum, low[step], b, step > 0);
            wgmma<false>(sum, high[step], b, 1);
            wgmma<false>(sum, high[step], b + LOW_BYTES / 16, 1);
        }
    }
    __device__ __forceinline__ void finish() { wgmma_commit(); }
};

// sum = x keys, for elements 64 half to 64 half + 63 of the keys.
__device__ __forceinline__ void multiply_keys(float (&sum)[32], const Fragment (&high)[2], const Fragment (&low)[2],
                                              const Rows& rows, int half) {
    const unsigned first = descriptor(&rows) + half * HALF_BYTES / 16;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < CHUNK / 16; ++step) {
        const unsigned b = first + step * 16 * 128 / 16;
        wgmma<true>(sum, low[step], b, step > 0);
        wgmma<true>(sum, high[step], b, 1);
        wgmma<true>(sum, high[step], b + LOW_BYTES / 16, 1);
    }
    wgmma_commit();
}
#else
template <int PENDING>
__device__ __forceinline__ void products_done() {}

template <int COUNT>
__device__ __forceinline__ void take_registers() {}
template <int COUNT>
__device__ __forceinline__ void leave_registers() {}

struct RowsProduct {
    float sum[32], correction[32];
    __device__ __forceinline__ RowsProduct() {
#pragma unroll
        for (int i = 0; i < 32; ++i) sum[i] = correction[i] = 0.0f;
    }
    template <int FIRST, int COUNT>
    __device__ __forceinline__ void add(const Fragment (&high)[STEPS], const Fragment (&low)[STEPS],
                                        const Rows& rows) {
        const int lane = threadIdx.x % 32;
        const unsigned first = shared_address(&rows);
#pragma unroll
        for (int step = FIRST; step < FIRST + COUNT; ++step) {
            const auto at = [&](int pair) {
                return first + piece_at(pair * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2);
            };
            unsigned b[4][4];
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) load_matrices(b[pair], at(pair));
#pragma unroll
            for (int n = 0; n < 8; ++n)
                multiply_add(&correction[n * 4], low[step], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < 8; ++n)
                multiply_add(&sum[n * 4], high[step], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) load_matrices(b[pair], at(pair) + LOW_BYTES);
#pragma unroll
            for (int n = 0; n < 8; ++n)
                multiply_add(&correction[n * 4], high[step], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int i = 0; i < 32; ++i) sum[i] += correction[i];
    }
};

__device__ __forceinline__ void multiply_keys(float (&sum)[32], const Fragment (&high)[2], const Fragment (&low)[2],
                                              const Rows& rows, int half) {
    const int lane = threadIdx.x % 32;
    const unsigned first = shared_address(&rows);
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i] = 0.0f;
#pragma unroll
    for (int step = 0; step < CHUNK / 16; ++step) {
        const int row = step * 16 + lane / 8 % 2 * 8 + lane % 8;
        unsigned b[4][4];
#pragma unroll
        for (int pair = 0; pair < 4; ++pair)
            load_transposed(b[pair], first + piece_at(row, half * 8 + pair * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < 8; ++n) multiply_add(&sum[n * 4], low[step], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < 8; ++n)
            multiply_add(&sum[n * 4], high[step], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
#pragma unroll
        for (int pair = 0; pair < 4; ++pair)
            load_transposed(b[pair], first + piece_at(row, half * 8 + pair * 2 + lane / 16) + LOW_BYTES);
#pragma unroll
        for (int n = 0; n < 8; ++n)
            multiply_add(&sum[n * 4], high[step], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
}
#endif
