// The recurrence token by token (the seed's gdn_rec_kh_kernel).
//
// A block is (key head, 32 value columns) with 128 threads: thread (row group, column) holds 32 state rows of
// one column for each of the block's value heads. Tokens come eight at a time through double-buffered copies.
// The four row groups' partial sums are added in a fixed order, so the bits are the same on every run.
#include "common.cuh"

constexpr int HEADS = GDN_BLOCK_HEADS;
constexpr int COLUMNS = 32;
constexpr int ROW_GROUPS = 4;
constexpr int ROWS = D / ROW_GROUPS;
constexpr int THREADS = COLUMNS * ROW_GROUPS;
constexpr int BATCH = 8;

struct Batch {
    float key[BATCH][D];
    float query[BATCH][D];
    float value[BATCH][HEADS][COLUMNS];
    float gate[BATCH][HEADS];
    float beta[BATCH][HEADS];
};

__device__ __forceinline__ float in_order(const float (&part)[ROW_GROUPS][HEADS][COLUMNS], int j, int column) {
    return ((part[0][j][column] + part[1][j][column]) + part[2][j][column]) + part[3][j][column];
}

extern "C" __global__ void __launch_bounds__(THREADS)
gdn_sequential(const float* __restrict__ qkv, const float* __restrict__ gate, const float* __restrict__ beta,
               float* __restrict__ state, float* __restrict__ out, int tokens) {
    __shared__ __align__(16) Batch stage[2];
    __shared__ float key_part[2][ROW_GROUPS][HEADS][COLUMNS];
    __shared__ float out_part[BATCH][ROW_GROUPS][HEADS][COLUMNS];

    const int thread = threadIdx.x, column = thread % COLUMNS, group = thread / COLUMNS;
    constexpr int COLUMN_BLOCKS = D / COLUMNS, HEAD_BLOCKS = GROUP / HEADS;
    const int first_column = blockIdx.x % COLUMN_BLOCKS * COLUMNS;
    const int first_head = blockIdx.x / COLUMN_BLOCKS % HEAD_BLOCKS * HEADS;
    const int key_head = blockIdx.x / (COLUMN_BLOCKS * HEAD_BLOCKS);

    const auto load = [&](int first_token) {
        Batch& to = stage[first_token / BATCH % 2];
        for (int i = thread; i < BATCH * D / 4; i += THREADS) {
            const int t = i / (D / 4), at = i % (D / 4) * 4;
            const bool valid = first_token + t < tokens;
            const size_t token = valid ? first_token + t : 0;
            copy_async<16>(&to.key[t][at], qkv + key_at(token, key_head) + at, valid);
            copy_async<16>(&to.query[t][at], qkv + query_at(token, key_head) + at, valid);
        }
        for (int i = thread; i < BATCH * HEADS * COLUMNS / 4; i += THREADS) {
            const int t = i / (HEADS * COLUMNS / 4), j = i / (COLUMNS / 4) % HEADS, at = i % (COLUMNS / 4) * 4;
            const bool valid = first_token + t < tokens;
            const size_t token = valid ? first_token + t : 0;
            const int head = value_head(key_head, first_head + j);
            copy_async<16>(&to.value[t][j][at], qkv + value_at(token, head) + first_column + at, valid);
        }
        if (thread < BATCH * HEADS) {
            const int t = thread / HEADS, j = thread % HEADS;
            const bool valid = first_token + t < tokens;
            const size_t at = gate_at(valid ? first_token + t : 0, value_head(key_head, first_head + j));
            copy_async<4>(&to.gate[t][j], gate + at, valid);
            copy_async<4>(&to.beta[t][j], beta + at, valid);
        }
        copies_committed();
    };

    // One address and constant steps from it: 32 x HEADS addresses would take the registers of the state.
    float* const slice = state + state_at(group * ROWS, value_head(key_head, first_head)) + first_column + column;
    float s[HEADS][ROWS];
#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            s[j][r] = slice[(r * VALUE_HEADS + j * HEAD_STEP) * D];

    load(0);
#pragma unroll 1
    for (int first = 0; first < tokens; first += BATCH) {
        copies_arrived();
        __syncthreads();
        if (first + BATCH < tokens) load(first + BATCH);
        const Batch& in = stage[first / BATCH % 2];
        const int count = min(BATCH, tokens - first);

#pragma unroll 1
        for (int t = 0; t < count; ++t) {
            float part[HEADS] = {};
#pragma unroll
            for (int j = 0; j < HEADS; ++j) {
                const float decay = expf(in.gate[t][j]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) s[j][r] *= decay;
            }
#pragma unroll
            for (int r = 0; r < ROWS; r += 4) {
                const float4 k = load4(&in.key[t][group * ROWS + r]);
#pragma unroll
                for (int j = 0; j < HEADS; ++j)
                    part[j] = dot4(make_float4(s[j][r], s[j][r + 1], s[j][r + 2], s[j][r + 3]), k, part[j]);
            }
#pragma unroll
            for (int j = 0; j < HEADS; ++j) key_part[t % 2][group][j][column] = part[j];
            __syncthreads();

            float delta[HEADS], sum[HEADS] = {};
#pragma unroll
            for (int j = 0; j < HEADS; ++j)
                delta[j] = in.beta[t][j] * (in.value[t][j][column] - in_order(key_part[t % 2], j, column));
#pragma unroll
            for (int r = 0; r < ROWS; r += 4) {
                const float4 k = load4(&in.key[t][group * ROWS + r]);
                const float4 q = load4(&in.query[t][group * ROWS + r]);
#pragma unroll
                for (int j = 0; j < HEADS; ++j) {
                    s[j][r] = fmaf(k.x, delta[j], s[j][r]);
                    s[j][r + 1] = fmaf(k.y, delta[j], s[j][r + 1]);
                    s[j][r + 2] = fmaf(k.z, delta[j], s[j][r + 2]);
                    s[j][r + 3] = fmaf(k.w, delta[j], s[j][r + 3]);
                    sum[j] = dot4(make_float4(s[j][r], s[j][r + 1], s[j][r + 2], s[j][r + 3]), q, sum[j]);
                }
            }
#pragma unroll
            for (int j = 0; j < HEADS; ++j) out_part[t][group][j][column] = sum[j];
        }

        // A row group writes the outputs of every fourth token; the others' sums must have been stored.
        __syncthreads();
#pragma unroll 1
        for (int t = group; t < count; t += ROW_GROUPS)
#pragma unroll
            for (int j = 0; j < HEADS; ++j)
                out[out_at(first + t, value_head(key_head, first_head + j)) + first_column + column] =
                    OUT_SCALE * in_order(out_part[t], j, column);
    }

#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            slice[(r * VALUE_HEADS + j * HEAD_STEP) * D] = s[j][r];
}
