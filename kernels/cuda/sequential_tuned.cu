// The recurrence of sequential.cu, four tokens (a quad) at a time, in exact algebra: one reduction over the
// state's rows per quad instead of two per token, and 3.25 operations per state element and token, not 4.
//
// With S the state before a quad, g_i = exp(gate_i), G_i = g_0 .. g_i and i, j = 0 .. 3:
//   X_i = S^T k_i, Y_i = S^T q_i                    all from the same S
//   d_i = beta_i (v_i - G_i X_i - sum_{j<i} (g_{j+1} .. g_i) (k_i . k_j) d_j)
//   out_i = D^-0.5 (G_i Y_i + sum_{j<=i} (g_{j+1} .. g_i) (q_i . k_j) d_j)
//   S = G_3 S + sum_j k_j (g_{j+1} .. g_3) d_j^T
// Decays between tokens are products, never quotients: exp(-inf) = 0 and gates above 0 are right. What does
// not depend on S (the coefficients) is prepared ahead, by one warp a quad, for all the block's columns.
// Tokens past the last are zeros with gate 0, which leave S as it is. Every sum has a fixed order.
//
// A block is (key head, HEADS of its value heads, 16 value columns), a warp 128 rows of a few columns of one
// head, so a sum over the rows never leaves the warp. Tokens come 16 (a stage) at a time, double-buffered.
#include "common.cuh"

// The state's rows that a thread holds of two columns: 8, or 16 with half the threads.
#ifndef GDN_TUNED_ROWS
#define GDN_TUNED_ROWS 8
#endif

constexpr int HEADS = GDN_BLOCK_HEADS;
constexpr int COLUMNS = 16;
constexpr int PIECES = COLUMNS / 4;  // of 16 bytes
constexpr int QUAD = 4;
constexpr int STAGE_QUADS = 4;
constexpr int STAGE_TOKENS = QUAD * STAGE_QUADS;
constexpr int ROWS = GDN_TUNED_ROWS;
constexpr int THREAD_COLUMNS = 2;
constexpr int ROW_GROUPS = D / ROWS;            // lanes that share a column
constexpr int COLUMN_GROUPS = 32 / ROW_GROUPS;  // of a warp
constexpr int WARP_COLUMNS = COLUMN_GROUPS * THREAD_COLUMNS;
constexpr int HEAD_WARPS = COLUMNS / WARP_COLUMNS;
constexpr int WARPS = HEADS * HEAD_WARPS;
constexpr int THREADS = 32 * WARPS;
constexpr int STATE_PIECES = HEADS * D * PIECES / THREADS;  // that a thread copies
constexpr int BLOCKS_PER_SM = HEADS < 3 && __CUDA_ARCH__ >= 800 ? 2 : 1;  // before sm_80 one fills an SM
// After the reduction a set of eight lanes owns X and Y of the four tokens, a lane one of them: of both
// columns, or with 16 row groups two sets of a column each.
constexpr int SETS = ROW_GROUPS / (2 * QUAD);
constexpr int OWN_COLUMNS = THREAD_COLUMNS / SETS;
static_assert(SETS == 1 || SETS == 2, "8 or 16 row groups");

// Coefficients of a quad and head, offsets in floats. A row of ATTEND or SOLVE belongs to the later token.
constexpr int ATTEND = 0;       // [4][4]: D^-0.5 (g_{j+1} .. g_i) q_i . k_j, zero for j > i
constexpr int OWN_DECAY = 16;   // [2][4]: -beta_i G_i of X_i; D^-0.5 G_i of Y_i
constexpr int TO_END = 24;      // [4]: g_{j+1} .. g_3
constexpr int WHOLE = 28;       // [4]: G_3, four times
constexpr int SOLVE = 32;       // [4][4]: -beta_i (g_{j+1} .. g_i) k_i . k_j for j < i
constexpr int COEFFICIENTS = 48;

struct Stage {
    float key[STAGE_TOKENS][D];
    float query[STAGE_TOKENS][D];
    float value[STAGE_TOKENS][HEADS][COLUMNS];
    float gate[STAGE_TOKENS][HEADS];
    float beta[STAGE_TOKENS][HEADS];
    float coefficient[STAGE_QUADS][HEADS][COEFFICIENTS];
};

// The state passes through the second stage's place, so that global memory sees rows of 64 bytes. 16 bytes
// between every four rows put the words that a warp moves at once into different banks.
constexpr int SLICE = D * COLUMNS + D / 4 * 4;
__device__ __forceinline__ int slice_at(int row, int column) {
    return row * COLUMNS + row / 4 * 4 + column;
}

struct Shared {
    Stage first;
    union {
        Stage second;
        float state[HEADS][SLICE];
    };
};

// A thread's part of the block's work.
struct Place {
    int head;          // of the block's
    int row_group;     // rows 4 (row_group + ROW_GROUPS n) .. + 3
    int first_column;  // of those that the thread holds
    int flip;          // the c-th of them is first_column + (c ^ flip): its own ones come first
    int token;         // of the quad: what it owns is of this token,
    bool query;        // Y or else X
    int set_lane;      // the lane that owns X of token 0 in this lane's set
};
__device__ __forceinline__ Place place_of(int warp, int lane) {
    // Neighbouring lanes have the same rows: a load of keys by half a warp is then one pass over the banks.
    const int group = lane / COLUMN_GROUPS, column_group = lane % COLUMN_GROUPS, set = group / (2 * QUAD);
    const int first_column = warp % HEAD_WARPS * WARP_COLUMNS + column_group * THREAD_COLUMNS;
    return {warp / HEAD_WARPS, group, first_column, set * OWN_COLUMNS, group % QUAD, group / QUAD % 2 != 0,
            column_group + set * 2 * QUAD * COLUMN_GROUPS};
}

// Where the thread's element (column c, row r) of the state lies in its head's slice.
__device__ __forceinline__ int element_at(const Place& place, int c, int r) {
    const int row = 4 * (place.row_group + r / 4 * ROW_GROUPS) + r % 4;
    return slice_at(row, place.first_column + (c ^ place.flip));
}

// All groups of copies of the calling thread but the latest have arrived.
__device__ __forceinline__ void earlier_copies_arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;\n" ::: "memory");
#endif
}

// N lanes hold N sums each; lane n * bit gets the total of the n-th. Two lanes at a time give each other half
// of their sums and add what they get to the other half, until one sum is left.
template <int N>
__device__ __forceinline__ float keep_one(const float (&sums)[N], int bit, int lane) {
    if constexpr (N == 1) {
        return sums[0];
    } else {
        float kept[N / 2];
        const bool upper = lane & (N / 2 * bit);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float low = sums[i], high = sums[N / 2 + i], give = upper ? low : high;
            kept[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffff, give, N / 2 * bit);
        }
        return keep_one(kept, bit, lane);
    }
}

// One warp computes the coefficients of a quad for all heads, a lane one or two of each head's.
__device__ __forceinline__ void prepare(Stage& stage, int quad, int lane) {
    const int first = quad * QUAD;
    float4 k[QUAD], q[QUAD];
#pragma unroll
    for (int i = 0; i < QUAD; ++i) {
        k[i] = load4(&stage.key[first + i][lane * 4]);
        q[i] = load4(&stage.query[first + i][lane * 4]);
    }
    // Entry (i, j) is q_i . k_j up to the diagonal and k_j . k_i above it; lanes 4 i + j and + 16 get it.
    float products[QUAD * QUAD];
#pragma unroll
    for (int i = 0; i < QUAD; ++i)
#pragma unroll
        for (int j = 0; j < QUAD; ++j) products[i * QUAD + j] = dot4(j <= i ? q[i] : k[i], k[j], 0.0f);
    const float half = keep_one(products, 1, lane), dot = half + __shfl_xor_sync(0xffffffff, half, 16);

    // Lane i HEADS + j computes the decay of token i of head j, for all lanes to read.
    float decay = 0.0f, beta = 0.0f;
    if (lane < QUAD * HEADS) {
        decay = expf(stage.gate[first + lane / HEADS][lane % HEADS]);
        beta = stage.beta[first + lane / HEADS][lane % HEADS];
    }

    // A lane's coefficient: dot or 1, the decays after token `from` up to `to`, and -beta or D^-0.5 or 1.
    const int i = lane / QUAD % QUAD, j = lane % QUAD;
    const bool pair = lane < OWN_DECAY, solve = pair && j > i;
    const bool to_end = lane >= TO_END && lane < WHOLE;
    const int from = pair ? min(i, j) : to_end ? j : -1;
    const int to = pair ? max(i, j) : lane < TO_END ? j : QUAD - 1;
    const bool minus_beta = solve || (lane >= OWN_DECAY && lane < OWN_DECAY + QUAD);
    const float factor = lane < TO_END ? OUT_SCALE : 1.0f, base = pair ? dot : 1.0f;
    const int at = solve ? SOLVE + j * QUAD + i : lane;
#pragma unroll
    for (int head = 0; head < HEADS; ++head) {
        float product = 1.0f;
#pragma unroll
        for (int t = 0; t < QUAD; ++t) {
            const float one_decay = __shfl_sync(0xffffffff, decay, t * HEADS + head);
            product *= t > from && t <= to ? one_decay : 1.0f;
        }
        const float token_beta = __shfl_sync(0xffffffff, beta, to * HEADS + head);
        float* const table = stage.coefficient[quad][head];
        table[at] = (minus_beta ? -token_beta : factor) * product * base;
        if (solve) table[ATTEND + lane] = 0.0f;
    }
}

// X and Y of a quad: sums over the rows of a thread, then over the lanes that share its columns. Leaves the
// keys in registers, and in `own` the sums that the lane owns.
__device__ __forceinline__ void dot_products(const Stage& stage, int first, const Place& place, int lane,
                                             const float (&s)[THREAD_COLUMNS][ROWS], float (&key)[QUAD][ROWS],
                                             float (&own)[OWN_COLUMNS]) {
    float sums[THREAD_COLUMNS][2 * QUAD] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
        const int row = 4 * place.row_group + r * ROW_GROUPS;
#pragma unroll
        for (int t = 0; t < QUAD; ++t) {
            const float4 k = load4(&stage.key[first + t][row]), q = load4(&stage.query[first + t][row]);
            key[t][r] = k.x, key[t][r + 1] = k.y, key[t][r + 2] = k.z, key[t][r + 3] = k.w;
#pragma unroll
            for (int c = 0; c < THREAD_COLUMNS; ++c) {
                const float4 column = make_float4(s[c][r], s[c][r + 1], s[c][r + 2], s[c][r + 3]);
                float &x = sums[c][t], &y = sums[c][QUAD + t];
                x = dot4(column, k, x);
                y = dot4(column, q, y);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < OWN_COLUMNS; ++c) {
        // Lanes of two sets have the columns they own first (`flip`), so each gives its second ones away.
        if (SETS == 2)
#pragma unroll
            for (int i = 0; i < 2 * QUAD; ++i)
                sums[c][i] += __shfl_xor_sync(0xffffffff, sums[THREAD_COLUMNS - OWN_COLUMNS + c][i],
                                              2 * QUAD * COLUMN_GROUPS);
        own[c] = keep_one(sums[c], COLUMN_GROUPS, lane);
    }
}

// Take the state over the four tokens of a quad. `to` is where the lane's own token and columns go in out.
__device__ __forceinline__ void advance(const Stage& stage, int quad, const Place& place, int lane,
                                        float (&s)[THREAD_COLUMNS][ROWS], float* to, bool store) {
    const int first = quad * QUAD;
    const float* const table = stage.coefficient[quad][place.head];
    float key[QUAD][ROWS], own[OWN_COLUMNS];
    dot_products(stage, first, place, lane, s, key, own);

    // The lane's own term: beta_i (v_i - G_i X_i), or D^-0.5 G_i Y_i.
    const float beta = place.query ? 0.0f : stage.beta[first + place.token][place.head];
    const float decay = table[OWN_DECAY + place.query * QUAD + place.token];
    const float* const value = &stage.value[first + place.token][place.head][place.first_column + place.flip];
#pragma unroll
    for (int c = 0; c < OWN_COLUMNS; ++c) own[c] = fmaf(decay, own[c], beta * value[c]);

    // Every lane collects those of X for all its columns and solves for d.
    const float4 solve2 = load4(&table[SOLVE + 2 * QUAD]), solve3 = load4(&table[SOLVE + 3 * QUAD]);
    const float solve1 = table[SOLVE + QUAD];
    float d[THREAD_COLUMNS][QUAD];
#pragma unroll
    for (int c = 0; c < THREAD_COLUMNS; ++c) {
        const int owner = place.set_lane ^ (c / OWN_COLUMNS * 2 * QUAD * COLUMN_GROUPS);
#pragma unroll
        for (int t = 0; t < QUAD; ++t)
            d[c][t] = __shfl_sync(0xffffffff, own[c % OWN_COLUMNS], owner + t * COLUMN_GROUPS);
        d[c][1] = fmaf(solve1, d[c][0], d[c][1]);
        d[c][2] = fmaf(solve2.y, d[c][1], fmaf(solve2.x, d[c][0], d[c][2]));
        d[c][3] = fmaf(solve3.z, d[c][2], fmaf(solve3.y, d[c][1], fmaf(solve3.x, d[c][0], d[c][3])));
    }

    const float4 attend = load4(&table[ATTEND + place.token * QUAD]);
#pragma unroll
    for (int c = 0; c < OWN_COLUMNS; ++c) {
        const float sum = dot4(attend, make_float4(d[c][0], d[c][1], d[c][2], d[c][3]), own[c]);
        if (store) to[c] = sum;
    }

    const float4 to_end = load4(&table[TO_END]);
    const float whole = table[WHOLE];
#pragma unroll
    for (int c = 0; c < THREAD_COLUMNS; ++c) {
        const float d0 = to_end.x * d[c][0], d1 = to_end.y * d[c][1], d2 = to_end.z * d[c][2];
        const float d3 = to_end.w * d[c][3];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float sum = fmaf(key[1][r], d1, fmaf(key[0][r], d0, whole * s[c][r]));
            s[c][r] = fmaf(key[3][r], d3, fmaf(key[2][r], d2, sum));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
gdn_sequential_tuned(const float* __restrict__ qkv, const float* __restrict__ gate,
                     const float* __restrict__ beta, float* __restrict__ state, float* __restrict__ out,
                     int tokens) {
    __shared__ __align__(16) Shared shared;

    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    constexpr int COLUMN_BLOCKS = D / COLUMNS, HEAD_BLOCKS = GROUP / HEADS;
    const int first_column = blockIdx.x % COLUMN_BLOCKS * COLUMNS;
    const int first_head = blockIdx.x / COLUMN_BLOCKS % HEAD_BLOCKS * HEADS;
    const int key_head = blockIdx.x / (COLUMN_BLOCKS * HEAD_BLOCKS);
    const Place place = place_of(warp, lane);

    // Quads of the stage that starts at a token; those without tokens are neither copied nor computed.
    const auto quads_at = [&](int first) { return min(STAGE_QUADS, (tokens - first + QUAD - 1) >> 2); };

    const auto load_tokens = [&](Stage& to, int first) {
        const int count = quads_at(first) * QUAD;
#pragma unroll 1
        for (int i = warp; i < 2 * count; i += WARPS) {  // a warp a row
            const int t = i / 2;
            const bool valid = first + t < tokens, query = i % 2 != 0;
            const size_t token = valid ? first + t : 0;
            const size_t from = query ? query_at(token, key_head) : key_at(token, key_head);
            copy_async<16>((query ? to.query[t] : to.key[t]) + lane * 4, qkv + from + lane * 4, valid);
        }
#pragma unroll 1
        for (int i = THREADS - 1 - thread; i < count * HEADS * PIECES; i += THREADS) {  // few have rows, too
            const int t = i / (HEADS * PIECES), j = i / PIECES % HEADS, at = i % PIECES * 4;
            const bool valid = first + t < tokens;
            const size_t from = value_at(valid ? first + t : 0, value_head(key_head, first_head + j));
            copy_async<16>(&to.value[t][j][at], qkv + from + first_column + at, valid);
        }
#pragma unroll 1
        for (int i = thread; i < count * HEADS; i += THREADS) {
            const int t = i / HEADS, j = i % HEADS;
            const bool valid = first + t < tokens;
            const size_t from = static_cast<size_t>(valid ? first + t : 0) * VALUE_HEADS +
                                value_head(key_head, first_head + j);
            copy_async<4>(&to.gate[t][j], gate + from, valid);
            copy_async<4>(&to.beta[t][j], beta + from, valid);
        }
        copies_committed();
    };
    const auto prepare_stage = [&](Stage& to, int first) {
#pragma unroll 1
        for (int quad = warp; quad < quads_at(first); quad += WARPS) prepare(to, quad, lane);
    };
    // Where the n-th piece of the state that a thread copies lies in global and in shared memory.
    const auto outside = [&](int n) {
        const int i = n * THREADS + thread, row = i / PIECES % D, head = first_head + i / (D * PIECES);
        return state + state_at(row, value_head(key_head, head)) + first_column + i % PIECES * 4;
    };
    const auto inside = [&](int n) {
        const int i = n * THREADS + thread;
        return &shared.state[i / (D * PIECES)][slice_at(i / PIECES % D, i % PIECES * 4)];
    };

    // The first tokens' coefficients are computed while the state is on its way.
    load_tokens(shared.first, 0);
#pragma unroll
    for (int n = 0; n < STATE_PIECES; ++n) copy_async<16>(inside(n), outside(n), true);
    copies_committed();
    earlier_copies_arrived();
    __syncthreads();
    prepare_stage(shared.first, 0);
    copies_arrived();
    __syncthreads();
    float s[THREAD_COLUMNS][ROWS];
#pragma unroll
    for (int c = 0; c < THREAD_COLUMNS; ++c)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) s[c][r] = shared.state[place.head][element_at(place, c, r)];

    float* to = out + out_at(place.token, value_head(key_head, first_head + place.head)) + first_column +
                place.first_column + place.flip;
#pragma unroll 1
    for (int first = 0; first < tokens; first += STAGE_TOKENS) {
        const bool odd = first / STAGE_TOKENS % 2 != 0, more = first + STAGE_TOKENS < tokens;
        Stage& stage = odd ? shared.second : shared.first;
        Stage& next = odd ? shared.first : shared.second;
        const int quads = quads_at(first);

        // The stage's coefficients are there, and nobody reads the place of the next stage any more.
        __syncthreads();
        if (more) load_tokens(next, first + STAGE_TOKENS);
#pragma unroll 1
        for (int quad = 0; quad < quads; ++quad) {
            if (more && quad == STAGE_QUADS / 2) {
                copies_arrived();
                __syncthreads();
                prepare_stage(next, first + STAGE_TOKENS);
            }
            const bool exists = first + quad * QUAD + place.token < tokens;
            advance(stage, quad, place, lane, s, to, place.query && exists);
            to += QUAD * VALUE_HEADS * D;
        }
    }

    __syncthreads();
#pragma unroll
    for (int c = 0; c < THREAD_COLUMNS; ++c)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) shared.state[place.head][element_at(place, c, r)] = s[c][r];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < STATE_PIECES; ++n) *reinterpret_cast<float4*>(outside(n)) = load4(inside(n));
}
