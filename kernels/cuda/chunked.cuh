// What the two kernels of the chunked recurrence share: the chunk and its scratch.
#pragma once
#include "common.cuh"

constexpr int CHUNK = 32;

// What the preparation leaves for one (chunk, value head): 8,320 bytes.
struct Prepared {
    float solve[CHUNK][CHUNK];   // T diag(beta), T = (I + A)^-1; lower triangular
    float attend[CHUNK][CHUNK];  // P[t][i] = exp(gamma_t - gamma_i) q_t . k_i for i <= t
    float decay[CHUNK];          // exp(gamma_t)
};

// exp(gamma_C - gamma_t) is needed as well and cannot be had from gamma in FP32 after a strongly negative gate.
// It lies in the upper right quadrant of P, which is zero by construction and which no product reads.
constexpr int HALF = CHUNK / 2;
__device__ __forceinline__ int decay_to_end_row(int token) { return token / HALF; }
__device__ __forceinline__ int decay_to_end_column(int token) { return HALF + token % HALF; }
