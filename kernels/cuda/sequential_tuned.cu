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
// A block is (key head, HEADS of its value heads, 16 value columns). Four of its warps hold the state, one a
// scheduler: a thread 16 rows of one column of each head, so that a key it has loaded serves all heads, and a
// sum over the rows never leaves the warp. The other four copy and prepare the next 16 tokens (a stage), each a
// quad. They meet once a stage.
#include "common.cuh"

constexpr int HEADS = GDN_BLOCK_HEADS;
constexpr int COLUMNS = 16;
constexpr int PIECES = COLUMNS / 4;  // of 16 bytes
constexpr int QUAD = 4;
constexpr int STAGE_QUADS = 4;
constexpr int ROW_GROUPS = 8;  // lanes that share a column
constexpr int ROWS = D / ROW_GROUPS;
constexpr int WARP_COLUMNS = 32 / ROW_GROUPS;
constexpr int STATE_WARPS = COLUMNS / WARP_COLUMNS;
constexpr int THREADS = 32 * (STATE_WARPS + STAGE_QUADS);
constexpr int COPY_ROWS = THREADS / PIECES;  // of the state that the block copies at once
constexpr int COPIES = HEADS * D / COPY_ROWS;  // of 16 bytes, that a thread makes

// Coefficients of a quad and head, offsets in floats. A row of ATTEND or SOLVE belongs to the later token.
constexpr int SOLVE = 0;    // (1,0) (2,0) (2,1) . (3,0) (3,1) (3,2) .: -beta_i (g_{j+1} .. g_i) k_i . k_j
constexpr int TO_END = 8;   // [4]: g_{j+1} .. g_3, then G_3
constexpr int ATTEND = 12;  // [4][4]: D^-0.5 (g_{j+1} .. g_i) q_i . k_j, zero for j > i
constexpr int OWN = 28;     // [4][4]: -beta_i G_i of X_i; D^-0.5 G_i of Y_i; beta_i; unused
constexpr int COEFFICIENTS = 44;

struct Quad {
    float key[QUAD][D];
    float query[QUAD][D];
    float value[QUAD][HEADS][COLUMNS];
    float coefficient[HEADS][COEFFICIENTS];
    float gate[QUAD][HEADS];
    float beta[QUAD][HEADS];
};
// In floats, from a quad's start.
constexpr int QUERY_AT = QUAD * D;
constexpr int VALUE_AT = 2 * QUAD * D;
constexpr int COEFFICIENT_AT = VALUE_AT + QUAD * HEADS * COLUMNS;
constexpr int QUAD_FLOATS = sizeof(Quad) / 4;

// The state passes through the second stage's place, so that global memory sees rows of 64 bytes. 16 bytes
// between every four rows put the words that a warp moves at once into different banks.
constexpr int SLICE = D * COLUMNS + D / 4 * 4;
__device__ __forceinline__ int slice_at(int row, int column) {
    return row * COLUMNS + row / 4 * 4 + column;
}

union Shared {
    Quad quads[2 * STAGE_QUADS];
    struct {
        Quad first[STAGE_QUADS];
        float state[HEADS][SLICE];
    };
};

// What a thread of a state warp works on, and where it finds that: offsets into a quad, in floats.
struct Place {
    int row_group;    // rows 4 (row_group + ROW_GROUPS n) .. + 3
    int column;       // of the block's
    int token;        // of the quad: X and Y that the thread owns are of this token
    int key;          // its first rows of token 0's key
    int query[QUAD];  // its first rows of the queries of tokens t ^ token
    int value;        // its token's v of the first head
    int own;          // the first head's coefficients, plus its token's row of ATTEND or OWN
    int owner[QUAD];  // the lane that owns X of a token
};
__device__ __forceinline__ Place place_of(int warp, int lane) {
    // Neighbouring lanes have the same rows: a load of keys by half a warp is then one pass over the banks.
    Place place;
    place.row_group = lane / WARP_COLUMNS;
    place.column = warp * WARP_COLUMNS + lane % WARP_COLUMNS;
    place.token = place.row_group % QUAD;
    place.key = 4 * place.row_group;
#pragma unroll
    for (int t = 0; t < QUAD; ++t) {
        place.query[t] = QUERY_AT + (t ^ place.token) * D + place.key;
        place.owner[t] = lane % WARP_COLUMNS + t * WARP_COLUMNS;
    }
    place.value = VALUE_AT + place.token * HEADS * COLUMNS + place.column;
    place.own = COEFFICIENT_AT + 4 * place.token;
    return place;
}

// Where the thread's row r of its column lies in a head's slice.
__device__ __forceinline__ int element_at(const Place& place, int r) {
    return slice_at(4 * place.row_group, place.column) + slice_at(r / 4 * 4 * ROW_GROUPS + r % 4, 0);
}

// All groups of copies of the calling thread but the latest have arrived.
__device__ __forceinline__ void earlier_copies_arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;\n" ::: "memory");
#endif
}

// All threads of the block, which come here from different places: barrier.sync, since bar.sync and __syncthreads()
// promise that they all execute the same instruction.
__device__ __forceinline__ void stage_barrier() {
    asm volatile("barrier.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// N lanes hold N sums each; lane n * bit gets the total of the n-th. Two lanes at a time give each other half
// of their sums and add what they get to the other half, until one sum is left. Where a lane holds the sum of
// lane n * bit at n ^ (its own n), it always gives the upper half: then nothing needs to be SELECTed.
template <bool SELECT, int N>
__device__ __forceinline__ float keep_one(const float (&sums)[N], int bit, int lane) {
    if constexpr (N == 1) {
        return sums[0];
    } else {
        float kept[N / 2];
        const bool upper = SELECT && lane & (N / 2 * bit);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float low = sums[i], high = sums[N / 2 + i], give = upper ? low : high;
            kept[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffff, give, N / 2 * bit);
        }
        return keep_one<SELECT>(kept, bit, lane);
    }
}

// One warp computes the coefficients of a quad for all heads, a lane one or two of each head's.
__device__ __forceinline__ void prepare(Quad& quad, int lane) {
    float4 k[QUAD], q[QUAD];
#pragma unroll
    for (int i = 0; i < QUAD; ++i) {
        k[i] = load4(&quad.key[i][lane * 4]);
        q[i] = load4(&quad.query[i][lane * 4]);
    }
    // Entry (i, j) is q_i . k_j up to the diagonal and k_j . k_i above it; lanes 4 i + j and + 16 get it.
    float products[QUAD * QUAD];
#pragma unroll
    for (int i = 0; i < QUAD; ++i)
#pragma unroll
        for (int j = 0; j < QUAD; ++j) products[i * QUAD + j] = dot4(j <= i ? q[i] : k[i], k[j], 0.0f);
    const float half = keep_one<true>(products, 1, lane), dot = half + __shfl_xor_sync(0xffffffff, half, 16);

    // Lane i HEADS + j computes the decay of token i of head j, for all lanes to read.
    float decay = 0.0f, beta = 0.0f;
    if (lane < QUAD * HEADS) {
        decay = expf(quad.gate[lane / HEADS][lane % HEADS]);
        beta = quad.beta[lane / HEADS][lane % HEADS];
    }

    // Lanes 0 .. 15 have the pairs; then four each -beta_i G_i, D^-0.5 G_i, TO_END, beta_i.
    // A coefficient is dot or 1, times the decays after token `from` up to `to`, times a factor.
    const int i = lane / QUAD % QUAD, j = lane % QUAD, kind = max(lane / QUAD - 3, 0);
    const bool pair = kind == 0, solve = pair && j > i, end = kind == 3, whole = end && j == QUAD - 1;
    const int from = pair ? min(i, j) : kind == 4 || (end && !whole) ? j : -1;
    const int to = pair ? max(i, j) : end ? QUAD - 1 : j;
    const bool minus_beta = solve || kind == 1;
    const float factor = kind < 3 ? OUT_SCALE : 1.0f, base = pair ? dot : 1.0f;
    const int at = solve  ? SOLVE + (j == 3 ? 4 : j - 1) + i
                   : pair ? ATTEND + lane
                   : end  ? TO_END + j
                          : OWN + j * 4 + min(kind - 1, 2);
#pragma unroll
    for (int head = 0; head < HEADS; ++head) {
        float product = 1.0f;
#pragma unroll
        for (int t = 0; t < QUAD; ++t) {
            const float one_decay = __shfl_sync(0xffffffff, decay, t * HEADS + head);
            product *= t > from && t <= to ? one_decay : 1.0f;
        }
        const float token_beta = __shfl_sync(0xffffffff, beta, to * HEADS + head);
        float* const table = quad.coefficient[head];
        table[at] = (minus_beta ? -token_beta : kind == 4 ? token_beta : factor) * product * base;
        if (solve) table[ATTEND + lane] = 0.0f;
    }
}

// What a thread carries from quad to quad: its rows of the state and of the quad's keys, and its part of X.
struct Carried {
    float s[HEADS][ROWS];
    float4 key[ROWS / 4][QUAD];
    float x[HEADS][QUAD];
};

// sums[h][t] += four rows of the state, from r on, times those of the t-th vector.
__device__ __forceinline__ void add_rows(const float (&s)[HEADS][ROWS], int r, const float4 (&rows)[QUAD],
                                         float (&sums)[HEADS][QUAD]) {
#pragma unroll
    for (int t = 0; t < QUAD; ++t)
#pragma unroll
        for (int h = 0; h < HEADS; ++h)
            sums[h][t] = dot4(make_float4(s[h][r], s[h][r + 1], s[h][r + 2], s[h][r + 3]), rows[t], sums[h][t]);
}

// The same for a quad's keys, which stay in registers until the update.
__device__ __forceinline__ void add_key_rows(const float* quad, const Place& place, int r, Carried& carried) {
    float4(&key)[QUAD] = carried.key[r / 4];
#pragma unroll
    for (int t = 0; t < QUAD; ++t) key[t] = load4(quad + place.key + t * D + r * ROW_GROUPS);
    add_rows(carried.s, r, key, carried.x);
}

// The sum over the column's lanes for the lane's own token; two sets of four lanes get the same.
template <bool SELECT>
__device__ __forceinline__ float column_sum(const float (&sums)[QUAD], int lane) {
    const float half = keep_one<SELECT>(sums, WARP_COLUMNS, lane);
    return half + __shfl_xor_sync(0xffffffff, half, 4 * WARP_COLUMNS);
}

// Every lane collects beta_i (v_i - G_i X_i) of its column from their owners and solves for d.
__device__ __forceinline__ void solve(const float* table, const Place& place, float own, float (&d)[QUAD]) {
#pragma unroll
    for (int t = 0; t < QUAD; ++t) d[t] = __shfl_sync(0xffffffff, own, place.owner[t]);
    const float4 low = load4(table + SOLVE), high = load4(table + SOLVE + 4);
    d[1] = fmaf(low.x, d[0], d[1]);
    d[2] = fmaf(low.z, d[1], fmaf(low.y, d[0], d[2]));
    d[3] = fmaf(high.z, d[2], fmaf(high.y, d[1], fmaf(high.x, d[0], d[3])));
}

// Four rows, from r on, of S = G_3 S + sum_j k_j d_j^T, with the decays in d.
__device__ __forceinline__ void update(Carried& carried, int r, const float (&whole)[HEADS],
                                       const float (&d)[HEADS][QUAD]) {
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        float* const s = &carried.s[h][r];
#pragma unroll
        for (int i = 0; i < 4; ++i) s[i] *= whole[h];
#pragma unroll
        for (int t = 0; t < QUAD; ++t) {
            const float4 key = carried.key[r / 4][t];
            s[0] = fmaf(key.x, d[h][t], s[0]);
            s[1] = fmaf(key.y, d[h][t], s[1]);
            s[2] = fmaf(key.z, d[h][t], s[2]);
            s[3] = fmaf(key.w, d[h][t], s[3]);
        }
    }
}

// Take the state over the four tokens of a quad, and keys and X from this quad's to the next one's. That way the
// chain from X to d, which is all latency, stands beside Y of the same quad, and Y's reduction beside the update.
__device__ __forceinline__ void advance(const float* quad, const float* next, const Place& place, int lane,
                                        Carried& carried, float* to, bool store, bool stage_ends) {
    float own[HEADS], decay[HEADS], d[HEADS][QUAD], attended[HEADS], whole[HEADS], y[HEADS][QUAD] = {};
#pragma unroll
    for (int h = 0; h < HEADS; ++h) own[h] = column_sum<true>(carried.x[h], lane);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        const float4 factors = load4(quad + place.own + h * COEFFICIENTS + OWN);
        own[h] = fmaf(factors.x, own[h], factors.z * quad[place.value + h * COLUMNS]);
        decay[h] = factors.y;
    }
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        const float* const table = quad + COEFFICIENT_AT + h * COEFFICIENTS;
        solve(table, place, own[h], d[h]);
        const float4 attend = load4(quad + place.own + h * COEFFICIENTS + ATTEND), to_end = load4(table + TO_END);
        attended[h] = dot4(attend, make_float4(d[h][0], d[h][1], d[h][2], d[h][3]), 0.0f);
        d[h][0] *= to_end.x, d[h][1] *= to_end.y, d[h][2] *= to_end.z;
        whole[h] = to_end.w;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
        float4 query[QUAD];
#pragma unroll
        for (int t = 0; t < QUAD; ++t) query[t] = load4(quad + place.query[t] + r * ROW_GROUPS);
        add_rows(carried.s, r, query, y);
    }

    // The next stage is there, and nobody reads this one any more.
    if (stage_ends) stage_barrier();

#pragma unroll
    for (int h = 0; h < HEADS; ++h) own[h] = column_sum<false>(y[h], lane);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        const float sum = fmaf(decay[h], own[h], attended[h]);
        if (store) to[h * HEAD_STEP * D] = sum;
#pragma unroll
        for (int t = 0; t < QUAD; ++t) carried.x[h][t] = 0.0f;
    }
    // After the last quad the next one is whatever lies there; its X is not used.
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
        update(carried, r, whole, d);
        add_key_rows(next, place, r, carried);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gdn_sequential_tuned(const float* __restrict__ qkv, const float* __restrict__ gate,
                     const float* __restrict__ beta, float* __restrict__ state, float* __restrict__ out,
                     int tokens) {
    __shared__ __align__(16) Shared shared;

    // The warp comes from a shuffle, so that branches on it are known to be uniform.
    const int thread = threadIdx.x, warp = __shfl_sync(0xffffffff, thread / 32, 0), lane = thread % 32;
    constexpr int COLUMN_BLOCKS = D / COLUMNS, HEAD_BLOCKS = GROUP / HEADS;
    const int first_column = blockIdx.x % COLUMN_BLOCKS * COLUMNS;
    const int first_head = blockIdx.x / COLUMN_BLOCKS % HEAD_BLOCKS * HEADS;
    const int key_head = blockIdx.x / (COLUMN_BLOCKS * HEAD_BLOCKS);
    const int quads = (tokens + QUAD - 1) / QUAD;
    // One warp copies the quad that starts at a token.
    const auto load_quad = [&](Quad& to, int first) {
#pragma unroll
        for (int t = 0; t < QUAD; ++t) {
            const bool valid = first + t < tokens;
            const size_t token = valid ? first + t : 0;
            copy_async<16>(&to.key[t][lane * 4], qkv + key_at(token, key_head) + lane * 4, valid);
            copy_async<16>(&to.query[t][lane * 4], qkv + query_at(token, key_head) + lane * 4, valid);
        }
#pragma unroll
        for (int i = lane; i < QUAD * HEADS * PIECES; i += 32) {
            const int t = i / (HEADS * PIECES), j = i / PIECES % HEADS, at = i % PIECES * 4;
            const bool valid = first + t < tokens;
            const size_t from = value_at(valid ? first + t : 0, value_head(key_head, first_head + j));
            copy_async<16>(&to.value[t][j][at], qkv + from + first_column + at, valid);
        }
        if (lane < QUAD * HEADS) {
            const int t = lane / HEADS, j = lane % HEADS;
            const bool valid = first + t < tokens;
            const size_t from = gate_at(valid ? first + t : 0, value_head(key_head, first_head + j));
            copy_async<4>(&to.gate[t][j], gate + from, valid);
            copy_async<4>(&to.beta[t][j], beta + from, valid);
        }
        copies_committed();
    };
    // Where the n-th piece of the state that a thread copies lies in global and in shared memory.
    const int copy_row = thread / PIECES, copy_column = thread % PIECES * 4;
    float* const slice = state + state_at(copy_row, value_head(key_head, first_head)) + first_column + copy_column;
    const auto outside = [&](int n) {
        return slice + state_at(n * COPY_ROWS % D, n * COPY_ROWS / D * HEAD_STEP);
    };
    const auto inside = [&](int n) {
        const int at = slice_at(copy_row, copy_column) + slice_at(n * COPY_ROWS % D, 0);
        return &shared.state[n * COPY_ROWS / D][at];
    };

    // The first tokens' coefficients are computed while the state is on its way.
    const bool has_state = warp < STATE_WARPS;
    const int own_quad = warp - STATE_WARPS;  // of each stage, that a warp without state prepares
    const bool prepares = !has_state && own_quad * QUAD < tokens;
    if (prepares) load_quad(shared.first[own_quad], own_quad * QUAD);
#pragma unroll
    for (int n = 0; n < COPIES; ++n) copy_async<16>(inside(n), outside(n), true);
    copies_committed();
    if (prepares) {
        earlier_copies_arrived();
        __syncwarp();
        prepare(shared.first[own_quad], lane);
    }
    copies_arrived();
    __syncthreads();

    if (has_state) {
        const Place place = place_of(warp, lane);
        Carried carried = {};
#pragma unroll
        for (int h = 0; h < HEADS; ++h)
#pragma unroll
            for (int r = 0; r < ROWS; ++r) carried.s[h][r] = shared.state[h][element_at(place, r)];
        stage_barrier();  // the second stage may take the state's place

        float* to = out + out_at(place.token, value_head(key_head, first_head)) + first_column + place.column;
        int left = place.row_group < QUAD ? tokens - place.token : 0;  // of two lanes with the same, one stores
        const float* const start = &shared.quads[0].key[0][0];
        const float* quad = start;
#pragma unroll
        for (int r = 0; r < ROWS; r += 4) add_key_rows(quad, place, r, carried);
#pragma unroll 1
        for (int n = 1; n <= quads; ++n) {
            const float* const next = start + n % (2 * STAGE_QUADS) * QUAD_FLOATS;
            advance(quad, next, place, lane, carried, to, left > 0, n % STAGE_QUADS == 0);
            left -= QUAD;
            to += QUAD * VALUE_HEADS * D;
            quad = next;
        }

        stage_barrier();
#pragma unroll
        for (int h = 0; h < HEADS; ++h)
#pragma unroll
            for (int r = 0; r < ROWS; ++r) shared.state[h][element_at(place, r)] = carried.s[h][r];
    } else {
        stage_barrier();
#pragma unroll 1
        for (int n = STAGE_QUADS; n <= quads; n += STAGE_QUADS) {
            const int first = (n + own_quad) * QUAD;
            if (first < tokens) {
                Quad& quad = shared.quads[n % (2 * STAGE_QUADS) + own_quad];
                load_quad(quad, first);
                copies_arrived();
                __syncwarp();
                prepare(quad, lane);
            }
            stage_barrier();
        }
        stage_barrier();
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < COPIES; ++n) *reinterpret_cast<float4*>(outside(n)) = load4(inside(n));
}
