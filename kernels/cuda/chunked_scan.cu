// The second kernel of the chunked recurrence (the seed's gdn_chunk_scan_kernel): the walk over the chunks.
//
// A block is (key head, up to 3 of its value heads, 16 value columns) with 4 pairs of warps, and a pair owns 4 columns
// of each head. Per chunk, with S the state before it, the first and the second warp of a pair take
//   X = S^T k                Y = S^T q           a lane 8 tokens, 2 columns a head, a quarter of D
//   R = v - exp(gamma) X     exp(gamma) Y        a lane 4 tokens, 1 column a head, once the quarters have met
//   Delta = T diag(beta) R   out = D^-0.5 (exp(gamma) Y + P Delta)   the same; P Delta from P T diag(beta) and R
//   S = exp(gamma_C) S + sum_t k_t (exp(gamma_C - gamma_t) Delta_t)^T   64 rows each, a lane 4 of 2 columns a head
// S is in registers for the last and in shared memory for the first. Every sum has a fixed order. Copies of the next
// chunk run behind the products.
//
// The order within a product matters: an FMA reads one register of each bank a clock, so one of its three operands has
// to be that of the FMA before.
#include "chunked.cuh"

constexpr int HEADS = GDN_BLOCK_HEADS;
constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;
constexpr int COLUMNS = 16;
constexpr int OWN = 2 * HEADS;         // columns of a lane: two neighbours of each head
constexpr int TOKENS = CHUNK / BLOCK;  // of a lane, one in each block of 8
constexpr int HALF = D / 2;
// With fewer heads two blocks share an SM, except where it has only 100 KB of shared memory: half the registers, so
// fewer loads in flight each.
constexpr bool SMALL_SM = __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200;
constexpr int BLOCKS_PER_SM = HEADS < 3 && !SMALL_SM ? 2 : 1;
constexpr int UNROLL_STATE = BLOCKS_PER_SM == 2 ? 1 : 2, UNROLL_UPDATE = BLOCKS_PER_SM == 2 ? 1 : 4;

// 16-byte steps are added to rows, and between the halves of a row of S^T, so that what a warp reads at once lies in
// different banks.
constexpr int STRIDE = D + 4;
constexpr int HALF_STRIDE = HALF + 4;
constexpr int CHUNK_STRIDE = CHUNK + 4;

// A pair's, by the columns of even and of odd lanes. R and Delta take the place of S once X and Y are there.
union Room {
    float state[2][OWN][2][HALF_STRIDE];  // S^T
    struct {
        float residual[2][OWN][CHUNK_STRIDE];  // R^T
        float delta[2][OWN][CHUNK_STRIDE];     // (exp(gamma_C - gamma_t) Delta_t)^T
    };
};

struct Shared {
    float key[2][CHUNK][STRIDE];
    float query[CHUNK][STRIDE];
    Prepared prepared[HEADS];
    Room room[WARPS / 2];
};

// Where a lane stands.
struct Lane {
    int pair, which;    // of the block; of the pair
    int side, quarter;  // its columns: pair * 4 + side * 2 and the next; in the end the `quarter`-th of the two
    int place;          // its tokens: place + 8 i
    int row;            // in the update: rows which * 64 + row to row + 3
    int key_head, head, column;  // the first of its heads, the others HEAD_STEP further; the first of its two columns
};

// Tokens place + 8 i of one column of each head.
using Tile = float[TOKENS][HEADS];

__device__ __forceinline__ float element(float4 x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

// What a warp copies of the next chunk: every eighth row of keys and queries, a part of what the preparation left.
struct Copies {
    const float* key;       // this lane's 16 bytes of the warp's first row
    const float* prepared;  // this thread's first 16 bytes
    int token;              // the chunk's first

    __device__ __forceinline__ void rows(float (&to)[CHUNK][STRIDE], const float* from, int tokens) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < CHUNK; i += WARPS)
            copy_async<16>(&to[i + warp][lane * 4], from + static_cast<size_t>(i) * ROW, token + i + warp < tokens);
    }
    __device__ __forceinline__ void keys(float (&to)[CHUNK][STRIDE], int tokens) const { rows(to, key, tokens); }
    __device__ __forceinline__ void queries(float (&to)[CHUNK][STRIDE], int tokens) const {
        rows(to, key - KEY_HEADS * D, tokens);
    }
    __device__ __forceinline__ void factors(Prepared (&to)[HEADS]) const {
        constexpr int PARTS = sizeof(Prepared) / 16;
        const int thread = threadIdx.x;
#pragma unroll
        for (int j = 0; j < HEADS; ++j)
#pragma unroll
            for (int i = 0; i < PARTS; i += THREADS)
                if (i + THREADS <= PARTS || i + thread < PARTS)
                    copy_async<16>(reinterpret_cast<float*>(&to[j]) + (i + thread) * 4,
                                   prepared + (j * HEAD_STEP * PARTS + i) * 4, true);
    }
    __device__ __forceinline__ void advance() {
        key += static_cast<size_t>(CHUNK) * ROW;
        prepared += VALUE_HEADS * (sizeof(Prepared) / 4);
        token += CHUNK;
    }
};

// Rows of the chunk times S. The lane sums a quarter of D for twice the tokens and twice the columns, its own first;
// what it has of the others goes to the lanes 8 and 16 further.
__device__ __forceinline__ void multiply_state(Tile& result, const float (*rows)[STRIDE],
                                               const float (&state)[OWN][2][HALF_STRIDE], const Lane& lane) {
    const int half = lane.place / 4;
    const float *row[2], *column[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        row[i] = rows[lane.place % 4 + 4 * (i ^ half)] + half * HALF + lane.quarter * 4;
        column[i] = state[i ^ lane.quarter][half] + lane.quarter * 4;
    }
    float sum[2][TOKENS][OWN] = {};
#pragma unroll UNROLL_STATE
    for (int at = 0; at < HALF; at += 8) {
        float4 b[OWN];
#pragma unroll
        for (int c = 0; c < OWN; ++c) b[c] = load4(column[c % 2] + c / 2 * 4 * HALF_STRIDE + at);
#pragma unroll
        for (int i = 0; i < 2 * TOKENS; ++i) {
            const float4 a = load4(row[i / TOKENS] + i % TOKENS * BLOCK * STRIDE + at);
            float(&to)[OWN] = sum[i / TOKENS][i % TOKENS];
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int n = 0; n < OWN; ++n) {
                    const int c = k % 2 ? OWN - 1 - n : n;
                    to[c] = fmaf(element(a, k), element(b[c], k), to[c]);
                }
        }
    }
#pragma unroll
    for (int i = 0; i < TOKENS; ++i)
#pragma unroll
        for (int j = 0; j < HEADS; ++j) {
            float two[2];
#pragma unroll
            for (int c = 0; c < 2; ++c)
                two[c] = sum[0][i][2 * j + c] + __shfl_xor_sync(~0u, sum[1][i][2 * j + c], 8);
            result[i][j] = two[0] + __shfl_xor_sync(~0u, two[1], 16);
        }
}

// A lower triangular matrix of each head times R, by blocks of 8 rows, without the pieces above the diagonal.
__device__ __forceinline__ void multiply_triangle(Tile& sum, const Prepared (&prepared)[HEADS],
                                                  const float (&right)[OWN][CHUNK_STRIDE], const Lane& lane) {
#pragma unroll
    for (int piece = 0; piece < CHUNK / 4; ++piece) {
#pragma unroll
        for (int j = 0; j < HEADS; ++j) {
            const float4 r = load4(&right[2 * j + lane.quarter][piece * 4]);
#pragma unroll
            for (int i = piece / 2; i < TOKENS; ++i)
                sum[i][j] = dot4(load4(prepared[j].product[lane.which][piece_at(i, piece)][lane.place]), r, sum[i][j]);
        }
    }
}

// Four rows of the lane's columns, from or to memory.
template <class Move>
__device__ __forceinline__ void each_pair(float (&s)[OWN][4], float* state, const Lane& lane, const Move& move) {
#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const size_t at = state_at(lane.which * HALF + lane.row + r, lane.head + j * HEAD_STEP) + lane.column;
            move(*reinterpret_cast<float2*>(state + at), s[2 * j][r], s[2 * j + 1][r]);
        }
}
__device__ __forceinline__ void share_state(Room& room, const float (&s)[OWN][4], const Lane& lane) {
#pragma unroll
    for (int c = 0; c < OWN; ++c)
        *reinterpret_cast<float4*>(&room.state[lane.side][c][lane.which][lane.row]) =
            make_float4(s[c][0], s[c][1], s[c][2], s[c][3]);
}

// s = exp(gamma_C) s
__device__ __forceinline__ void decay_state(float (&s)[OWN][4], const Prepared (&prepared)[HEADS]) {
#pragma unroll
    for (int c = 0; c < OWN; ++c)
#pragma unroll
        for (int r = 0; r < 4; ++r) s[c][r] *= -prepared[c / 2].read[0][CHUNK - 1];
}

// s = s + keys times Delta
__device__ __forceinline__ void update_state(float (&s)[OWN][4], const float* key,
                                             const float (&delta)[OWN][CHUNK_STRIDE]) {
#pragma unroll UNROLL_UPDATE
    for (int t = 0; t < CHUNK; t += 4) {
        float4 d[OWN];
#pragma unroll
        for (int c = 0; c < OWN; ++c) d[c] = load4(&delta[c][t]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float4 rows = load4(key + (t + k) * STRIDE);
#pragma unroll
            for (int c = 0; c < OWN; ++c)
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    const int r = c % 2 ? 3 - n : n;
                    s[c][r] = fmaf(element(rows, r), element(d[c], k), s[c][r]);
                }
        }
    }
}

// Call `one(i, j)` for those of the lane's tokens that there are, of `left`.
template <class One>
__device__ __forceinline__ void each_token(int left, const Lane& lane, const One& one) {
#pragma unroll
    for (int i = 0; i < TOKENS; ++i)
#pragma unroll
        for (int j = 0; j < HEADS; ++j)
            if (lane.place + i * BLOCK < left) one(i, j);
}

// R and Delta by the first warp of a pair, out by the second. `mine` is X or Y.
__device__ __forceinline__ void finish(Tile& mine, const Tile& value, const Prepared (&prepared)[HEADS], Room& room,
                                       float* out, int left, const Lane& lane) {
#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int i = 0; i < TOKENS; ++i) {
            const int t = lane.place + i * BLOCK;
            mine[i][j] = fmaf(prepared[j].read[lane.which][t], mine[i][j], value[i][j]);
        }
    if (lane.which == 0)
        each_token(CHUNK, lane, [&](int i, int j) {
            room.residual[lane.side][2 * j + lane.quarter][lane.place + i * BLOCK] = mine[i][j];
        });
    __syncthreads();
    Tile sum = {};
    multiply_triangle(sum, prepared, room.residual[lane.side], lane);
    float write[TOKENS][HEADS];
#pragma unroll
    for (int j = 0; j < HEADS; ++j)
#pragma unroll
        for (int i = 0; i < TOKENS; ++i) write[i][j] = prepared[j].write[lane.place + i * BLOCK];
    if (lane.which == 0)
        each_token(CHUNK, lane, [&](int i, int j) {
            room.delta[lane.side][2 * j + lane.quarter][lane.place + i * BLOCK] = write[i][j] * sum[i][j];
        });
    else
        each_token(left, lane, [&](int i, int j) {
            out[(i * BLOCK * VALUE_HEADS + j * HEAD_STEP) * D] = mine[i][j] + sum[i][j];
        });
}

__device__ __forceinline__ Lane lane_of(int block) {
    constexpr int COLUMN_BLOCKS = D / COLUMNS, HEAD_BLOCKS = GROUP / HEADS;
    const int warp = threadIdx.x / 32, index = threadIdx.x % 32;
    Lane lane;
    lane.pair = warp / 2;
    lane.which = warp % 2;
    lane.side = index % 2;
    lane.quarter = index / 16;
    lane.place = index / 2 % BLOCK;
    lane.row = index / 2 * 4;
    lane.key_head = block / (COLUMN_BLOCKS * HEAD_BLOCKS);
    lane.head = value_head(lane.key_head, block / COLUMN_BLOCKS % HEAD_BLOCKS * HEADS);
    lane.column = block % COLUMN_BLOCKS * COLUMNS + lane.pair * 4 + lane.side * 2;
    return lane;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
gdn_chunked_scan(const float* __restrict__ qkv, const Prepared* __restrict__ scratch, float* __restrict__ state,
                 float* __restrict__ out, int first_token, int tokens) {
    extern __shared__ __align__(16) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Lane lane = lane_of(blockIdx.x);
    Room& room = shared.room[lane.pair];

    Copies next = {qkv + key_at(first_token + threadIdx.x / 32, lane.key_head) + threadIdx.x % 32 * 4,
                   reinterpret_cast<const float*>(scratch + lane.head) + threadIdx.x * 4, first_token};
    next.keys(shared.key[0], tokens);
    next.queries(shared.query, tokens);
    next.factors(shared.prepared);
    copies_committed();
    float s[OWN][4];
    each_pair(s, state, lane, [](const float2& from, float& a, float& b) {
        a = from.x;
        b = from.y;
    });
    share_state(room, s, lane);

    const float* value_from = qkv + value_at(first_token + lane.place, lane.head) + lane.column + lane.quarter;
    const int last_token = min(tokens, first_token + GDN_SUPER_BLOCK);
    for (int first = first_token, chunk = 0; first < last_token; first += CHUNK, ++chunk) {
        const bool more = first + CHUNK < last_token;
        const float(&key)[CHUNK][STRIDE] = shared.key[chunk % 2];
        next.advance();
        copies_arrived();
        __syncthreads();
        if (more) next.keys(shared.key[(chunk + 1) % 2], tokens);
        Tile value = {}, mine;
        each_token(lane.which == 0 ? tokens - first : 0, lane, [&](int i, int j) {
            value[i][j] = value_from[static_cast<size_t>(i) * BLOCK * ROW + j * HEAD_STEP * D];
        });
        multiply_state(mine, lane.which ? shared.query : key, room.state[lane.side], lane);
        __syncthreads();
        if (more) next.queries(shared.query, tokens);
        float* const out_to = out + out_at(first + lane.place, lane.head) + lane.column + lane.quarter;
        finish(mine, value, shared.prepared, room, out_to, tokens - first, lane);
        decay_state(s, shared.prepared);
        __syncthreads();
        if (more) next.factors(shared.prepared);
        copies_committed();
        update_state(s, &key[0][lane.which * HALF + lane.row], room.delta[lane.side]);
        __syncthreads();
        share_state(room, s, lane);
        value_from += static_cast<size_t>(CHUNK) * ROW;
    }
    each_pair(s, state, lane, [](float2& to, float a, float b) { to = make_float2(a, b); });
}
