// The second kernel of the chunked recurrence (the seed's gdn_chunk_scan_kernel): the walk over the chunks.
//
// A block is (key head, up to 3 of its value heads, 16 value columns) with 256 threads. Its slice of the state
// stays in registers. Per chunk, with S the state before it:
//   X = S^T k, Y = S^T q   all threads, a thread two tokens of one column
//   R = v - exp(gamma) X, Delta = T diag(beta) R, out = D^-0.5 (exp(gamma) Y + P Delta)   the same split
//   S = exp(gamma_C) S + sum_t k_t (exp(gamma_C - gamma_t) Delta_t)^T   a thread 4 rows x 2 columns
// Every sum has a fixed order. Copies of what comes next run behind the products.
#include "chunked.cuh"

constexpr int HEADS = GDN_BLOCK_HEADS;
constexpr int THREADS = 256;
constexpr int COLUMNS = 16;
// One 16-byte step is added to each row, so that what a warp reads at once lies in different banks.
constexpr int STRIDE = D + 4;
constexpr int CHUNK_STRIDE = CHUNK + 4;
constexpr int DELTA_STRIDE = HEADS * COLUMNS + 4;
// With fewer heads two blocks share an SM: half the registers, so fewer loads in flight each.
constexpr int BLOCKS_PER_SM = HEADS < 3 ? 2 : 1;
constexpr int UNROLL = HEADS < 3 ? 1 : 4;

struct Shared {
    float key[2][CHUNK][STRIDE];
    union {
        float query[CHUNK][STRIDE];
        float attend[HEADS][CHUNK][CHUNK_STRIDE];  // P; after Y the queries are not needed
    };
    union {
        float state[HEADS][COLUMNS][STRIDE];  // S^T, for X and Y
        struct {
            float residual[HEADS][COLUMNS][CHUNK_STRIDE];  // R^T
            float delta[HEADS][COLUMNS][CHUNK_STRIDE];     // Delta^T
        };
    };
    union {
        float solve[HEADS][CHUNK][CHUNK_STRIDE];  // T diag(beta)
        float delta_to_end[CHUNK][DELTA_STRIDE];  // exp(gamma_C - gamma_t) Delta_t
    };
    float decay[HEADS][CHUNK];
};

// Copy HEADS matrices of 32 x 32 from the scratch of a chunk into padded rows.
__device__ __forceinline__ void load_square(float (&to)[HEADS][CHUNK][CHUNK_STRIDE], const Prepared* from,
                                            const int (&head)[HEADS], bool attend) {
    const int row = threadIdx.x / 8, at = threadIdx.x % 8 * 4;
#pragma unroll
    for (int j = 0; j < HEADS; ++j) {
        const Prepared& one = from[head[j]];
        copy_async<16>(&to[j][row][at], attend ? &one.attend[row][at] : &one.solve[row][at], true);
    }
}

// sum[i][j] = row token[i] of a lower triangular matrix times the column of a right side; token 0 is in the
// first half of the chunk, token 1 in the second.
__device__ __forceinline__ void triangular(const float (&matrix)[HEADS][CHUNK][CHUNK_STRIDE],
                                           const float (&right)[HEADS][COLUMNS][CHUNK_STRIDE], int token, int column,
                                           float (&sum)[2][HEADS]) {
#pragma unroll
    for (int j = 0; j < HEADS; ++j) sum[0][j] = sum[1][j] = 0.0f;
#pragma unroll 2
    for (int i = 0; i < HALF; i += 4)
#pragma unroll
        for (int j = 0; j < HEADS; ++j) {
            const float4 r = load4(&right[j][column][i]);
            sum[0][j] = dot4(load4(&matrix[j][token][i]), r, sum[0][j]);
            sum[1][j] = dot4(load4(&matrix[j][token + HALF][i]), r, sum[1][j]);
        }
#pragma unroll 2
    for (int i = HALF; i < CHUNK; i += 4)
#pragma unroll
        for (int j = 0; j < HEADS; ++j)
            sum[1][j] = dot4(load4(&matrix[j][token + HALF][i]), load4(&right[j][column][i]), sum[1][j]);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
gdn_chunked_scan(const float* __restrict__ qkv, const Prepared* __restrict__ scratch, float* __restrict__ state,
                 float* __restrict__ out, int first_token, int tokens) {
    extern __shared__ __align__(16) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);

    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    constexpr int COLUMN_BLOCKS = D / COLUMNS, HEAD_BLOCKS = GROUP / HEADS;
    const int first_column = blockIdx.x % COLUMN_BLOCKS * COLUMNS;
    const int first_head = blockIdx.x / COLUMN_BLOCKS % HEAD_BLOCKS * HEADS;
    const int key_head = blockIdx.x / (COLUMN_BLOCKS * HEAD_BLOCKS);
    // In the products over tokens: tokens t and t + 16 of one column. A warp is 8 columns x 4 tokens.
    const int column = warp % 2 * 8 + lane % 8, token = warp / 2 * 4 + lane / 8;
    // In the update: rows row..row+3 of columns pair, pair+1. A warp is 8 row groups x 4 column pairs.
    const int row = (warp % 4 * 8 + lane % 8) * 4, pair = (warp / 4 * 4 + lane / 8) * 2;

    int head[HEADS];
#pragma unroll
    for (int j = 0; j < HEADS; ++j) head[j] = value_head(key_head, first_head + j);

    const auto load_rows = [&](float (&to)[CHUNK][STRIDE], int first, bool keys) {
#pragma unroll
        for (int i = warp; i < CHUNK; i += THREADS / 32) {
            const bool valid = first + i < tokens;
            const size_t from = valid ? first + i : 0;
            const size_t at = keys ? key_at(from, key_head) : query_at(from, key_head);
            copy_async<16>(&to[i][lane * 4], qkv + at + lane * 4, valid);
        }
    };

    float s[HEADS][4][2];
    const auto share_state = [&] {
#pragma unroll
        for (int j = 0; j < HEADS; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c)
                *reinterpret_cast<float4*>(&shared.state[j][pair + c][row]) =
                    make_float4(s[j][0][c], s[j][1][c], s[j][2][c], s[j][3][c]);
    };

    load_rows(shared.key[0], first_token, true);
    load_rows(shared.query, first_token, false);
    copies_committed();
#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const float2 two = *reinterpret_cast<const float2*>(state + state_at(row + r, head[j]) + first_column + pair);
            s[j][r][0] = two.x;
            s[j][r][1] = two.y;
        }
    share_state();

    const int last_token = min(tokens, first_token + GDN_SUPER_BLOCK);
    for (int first = first_token, chunk = 0; first < last_token; first += CHUNK, ++chunk) {
        const float(&key)[CHUNK][STRIDE] = shared.key[chunk % 2];
        const Prepared* from = scratch + chunk * VALUE_HEADS;

        copies_arrived();
        __syncthreads();
        if (first + CHUNK < last_token) load_rows(shared.key[(chunk + 1) % 2], first + CHUNK, true);
        load_square(shared.solve, from, head, false);
        if (thread < HEADS * CHUNK / 4) {
            const int j = thread / (CHUNK / 4), at = thread % (CHUNK / 4) * 4;
            copy_async<16>(&shared.decay[j][at], &from[value_head(key_head, first_head + j)].decay[at], true);
        }
        copies_committed();
        float value[2][HEADS];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int t = first + token + i * HALF;
#pragma unroll
            for (int j = 0; j < HEADS; ++j)
                value[i][j] = t < tokens ? qkv[value_at(t, head[j]) + first_column + column] : 0.0f;
        }

        float x[2][HEADS] = {}, y[2][HEADS] = {};
#pragma unroll UNROLL
        for (int d = 0; d < D; d += 4) {
            float4 b[HEADS];
#pragma unroll
            for (int j = 0; j < HEADS; ++j) b[j] = load4(&shared.state[j][column][d]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float4 k = load4(&key[token + i * HALF][d]), q = load4(&shared.query[token + i * HALF][d]);
#pragma unroll
                for (int j = 0; j < HEADS; ++j) {
                    x[i][j] = dot4(k, b[j], x[i][j]);
                    y[i][j] = dot4(q, b[j], y[i][j]);
                }
            }
        }
        copies_arrived();
        __syncthreads();
        load_square(shared.attend, from, head, true);
        copies_committed();
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < HEADS; ++j) {
                const float decay = shared.decay[j][token + i * HALF];
                shared.residual[j][column][token + i * HALF] = fmaf(-decay, x[i][j], value[i][j]);
                y[i][j] *= decay;
            }
        __syncthreads();

        float delta[2][HEADS], inside[2][HEADS];
        triangular(shared.solve, shared.residual, token, column, delta);
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < HEADS; ++j) shared.delta[j][column][token + i * HALF] = delta[i][j];
        copies_arrived();
        __syncthreads();

        triangular(shared.attend, shared.delta, token, column, inside);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int t = token + i * HALF;
#pragma unroll
            for (int j = 0; j < HEADS; ++j) {
                const float to_end = shared.attend[j][decay_to_end_row(t)][decay_to_end_column(t)];
                shared.delta_to_end[t][j * COLUMNS + column] = to_end * delta[i][j];
                if (first + t < tokens)
                    out[out_at(first + t, head[j]) + first_column + column] = OUT_SCALE * (y[i][j] + inside[i][j]);
            }
        }
        __syncthreads();
        if (first + CHUNK < last_token) load_rows(shared.query, first + CHUNK, false);
        copies_committed();

#pragma unroll
        for (int j = 0; j < HEADS; ++j) {
            const float decay = shared.decay[j][CHUNK - 1];
#pragma unroll
            for (int r = 0; r < 4; ++r)
#pragma unroll
                for (int c = 0; c < 2; ++c) s[j][r][c] *= decay;
        }
#pragma unroll UNROLL
        for (int t = 0; t < CHUNK; ++t) {
            const float4 k = load4(&key[t][row]);
#pragma unroll
            for (int j = 0; j < HEADS; ++j) {
                const float2 d = *reinterpret_cast<const float2*>(&shared.delta_to_end[t][j * COLUMNS + pair]);
                s[j][0][0] = fmaf(k.x, d.x, s[j][0][0]);
                s[j][0][1] = fmaf(k.x, d.y, s[j][0][1]);
                s[j][1][0] = fmaf(k.y, d.x, s[j][1][0]);
                s[j][1][1] = fmaf(k.y, d.y, s[j][1][1]);
                s[j][2][0] = fmaf(k.z, d.x, s[j][2][0]);
                s[j][2][1] = fmaf(k.z, d.y, s[j][2][1]);
                s[j][3][0] = fmaf(k.w, d.x, s[j][3][0]);
                s[j][3][1] = fmaf(k.w, d.y, s[j][3][1]);
            }
        }
        share_state();
    }

#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r)
            *reinterpret_cast<float2*>(state + state_at(row + r, head[j]) + first_column + pair) =
                make_float2(s[j][r][0], s[j][r][1]);
}
