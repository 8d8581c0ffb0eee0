// What the two kernels of the tensor-core recurrence share: the chunk and its scratch.
#pragma once
#include "common.cuh"
#include "split.cuh"

constexpr int CHUNK = 32;

// The keys of a chunk and then its queries, split. Each row is scaled by a power of two of its own, so that its
// largest element is in [8, 16). 128 bytes of 64 elements lie together, and the 16-byte pieces of row r are
// swapped by an exclusive or with r % 8: the order that both ldmatrix and wgmma read without bank conflicts.
constexpr int ROWS_EXPONENT = 3;
struct Rows {
    unsigned short high[2][2 * CHUNK][64];  // elements 0 to 63, then 64 to 127
    unsigned short low[2][2 * CHUNK][64];
};
constexpr int HALF_BYTES = 2 * CHUNK * 128;  // from one half to the other
constexpr int LOW_BYTES = 2 * HALF_BYTES;    // from high to low

// Byte of a 16-byte piece (0 to 15) of a row, in the high or the low part.
__device__ __forceinline__ int piece_at(int row, int piece) {
    return piece / 8 * HALF_BYTES + row * 128 + (piece % 8 ^ row % 8) * 16;
}

// A lower triangular 32 x 32 matrix, split and scaled, as fragments B of its transpose: blocks of 16 x 16 (upper
// left, lower left, lower right), a lane's four pairs of each. The pairs of block (r, c) are at row
// 16 r + group + 8 (i / 2), columns 16 c + 2 quarter + 8 (i % 2) and the next.
constexpr int BLOCKS = 3;
struct Triangle {
    uint4 high[BLOCKS][32];
    uint4 low[BLOCKS][32];
};
__device__ __forceinline__ int block_row(int block) { return block > 0; }
__device__ __forceinline__ int block_column(int block) { return block > 1; }

// What the preparation leaves for one (chunk, value head). 2^x stands for what undoes the scale of an operand.
struct alignas(16) StateFactors {
    Triangle solve;       // T diag(beta), T = (I + A)^-1
    float read[CHUNK];    // -exp(gamma_t) 2^k_t: what S^T k_t is multiplied with
    float write[CHUNK];   // exp(gamma_C - gamma_t) 2^k_t: what Delta_t is multiplied with for the state
    float decay;          // exp(gamma_C)
    float growth;         // bound: no element of the state grows by more than this times the largest of R
    float reach;          // bound: no element of exp(gamma) S^T k is larger than this times the largest of S
    float solve_down;     // 2^solve
};
struct alignas(16) OutputFactors {
    Triangle attend;      // P[t][i] = exp(gamma_t - gamma_i) q_t . k_i for i <= t
    float query[CHUNK];   // D^-0.5 exp(gamma_t) 2^q_t: what S^T q_t is multiplied with
    float attend_down;    // D^-0.5 2^attend
};

// What the preparation leaves for one chunk, and the chunks one after another.
struct alignas(128) Chunk {
    Rows rows[KEY_HEADS];
    StateFactors state[VALUE_HEADS];
    OutputFactors output[VALUE_HEADS];
};
