// What the two kernels of the chunked recurrence share: the chunk and its scratch.
#pragma once
#include "common.cuh"

constexpr int CHUNK = 32;

// A lower triangular 32 x 32 matrix by pieces of 4 columns. Eight rows are a block; block i has the 2 (i + 1) pieces
// that are not zero, and eight rows of a piece lie together: what a warp reads at once lies in different banks.
constexpr int BLOCK = 8, BLOCKS = CHUNK / BLOCK;
constexpr int PIECES = BLOCKS * (BLOCKS + 1);
using Triangle = float[PIECES][BLOCK][4];
__device__ __forceinline__ constexpr int piece_at(int block, int piece) { return block * (block + 1) + piece; }

// What the preparation leaves for one (chunk, value head), with T = (I + A)^-1 and
// P[t][i] = exp(gamma_t - gamma_i) q_t . k_i for i <= t: 5,504 bytes.
struct alignas(16) Prepared {
    Triangle product[2];    // T diag(beta), and D^-0.5 P T diag(beta)
    float read[2][CHUNK];   // -exp(gamma_t), and D^-0.5 exp(gamma_t)
    float write[CHUNK];     // exp(gamma_C - gamma_t)
};
