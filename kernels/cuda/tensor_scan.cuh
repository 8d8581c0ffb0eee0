// The walk over the chunks.
//
// A block is (value head, 64 value columns). Warps w, w + 4 and so on share 16 columns: the first, a state warp, holds
// S^T of its columns in registers and walks the chain from state to state; the others, output warps, fetch what comes
// next and finish what the first leaves, a chunk each in turn. Per chunk, with S the state before it:
//   state warp:  X = S^T k, Y = S^T q, R = v - exp(gamma) X, Delta = T diag(beta) R,
//                S = exp(gamma_C) S + sum_t k_t (exp(gamma_C - gamma_t) Delta_t)^T
//   output warp: out = D^-0.5 (exp(gamma) Y + P Delta)
// All products are of split operands (split.cuh). Columns are the rows of every product's A, so the sums of one
// product are, lane by lane, the A of the next, and the state is summed outside of the tensor cores, in FP32.
#pragma once
#include "pipeline.cuh"
#include "tensor_products.cuh"

#ifdef GDN_WGMMA
constexpr int STAGES = 4, BUFFERS = 2;
#else
constexpr int STAGES = 2, BUFFERS = 1;  // what fits 99 KB
#endif
constexpr int PAIRS = 4;                // of a state warp and the output warps of its columns
constexpr int OUTPUT_GROUPS = BUFFERS;  // output warps of the same columns, which take turns from chunk to chunk
constexpr int THREADS = 32 * PAIRS * (1 + OUTPUT_GROUPS);
constexpr int COLUMNS = 16 * PAIRS;
#ifdef GDN_WGMMA
constexpr int FETCHERS = 1;  // threads of an output group that fetch
#else
constexpr int FETCHERS = 32 * PAIRS;
#endif
constexpr int REFRESH = 8;  // chunks between which the largest element of the state is bounded, not sought

// 16 columns by 32 tokens of a lane: token 8 n + 2 quarter + e % 2 of column group + e / 2 * 8.
using Tokens = float[CHUNK / 8][4];
using SharedTokens = float4[CHUNK / 8][32];

struct Shared {
    Rows rows[STAGES];
    StateFactors state_factors[STAGES];
    OutputFactors output_factors[STAGES];
    SharedTokens tokens[BUFFERS][PAIRS];  // to the state warp v, from it Delta in the same place
    SharedTokens query[BUFFERS][PAIRS];   // from the state warp Y
    float largest_value[BUFFERS][PAIRS];  // of the 16 columns of v
    float down[BUFFERS][PAIRS][2];        // what undoes the scales of Y and Delta
    Barrier full[STAGES], free[STAGES];   // of rows and factors
    Barrier value_full[BUFFERS][PAIRS], delta_full[BUFFERS][PAIRS];
};

__device__ __forceinline__ void split_tokens(const Tokens& x, float scale, Fragment (&high)[2], Fragment (&low)[2]) {
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; e += 2)
            split(x[n][e] * scale, x[n][e + 1] * scale, high[n / 2][n % 2 * 2 + e / 2], low[n / 2][n % 2 * 2 + e / 2]);
}

__device__ __forceinline__ float largest_of(const Tokens& x) {
    float largest = 0.0f;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(x[n][e]));
    return warp_largest(largest);
}

// The factors of a lane's tokens.
__device__ __forceinline__ void load_factors(float2 (&to)[CHUNK / 8], const float* from, int quarter) {
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) to[n] = *reinterpret_cast<const float2*>(from + 8 * n + 2 * quarter);
}

struct Lanes {  // a lane's share of a Triangle
    uint4 high[BLOCKS], low[BLOCKS];
    __device__ __forceinline__ void load(const Triangle& from, int lane) {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            high[block] = from.high[block][lane];
            low[block] = from.low[block][lane];
        }
    }
};

// sum = triangle times x, for x split.
__device__ __forceinline__ void multiply_triangle(Tokens& sum, const Lanes& triangle, const Fragment (&x_high)[2],
                                                  const Fragment (&x_low)[2]) {
    Tokens main = {}, correction = {};
#pragma unroll
    for (int block = BLOCKS - 1; block >= 0; --block) {
        const int row = block_row(block), column = block_column(block);
        const uint4 high = triangle.high[block], low = triangle.low[block];
        multiply_add(correction[2 * row], x_low[column], high.x, high.y);
        multiply_add(correction[2 * row + 1], x_low[column], high.z, high.w);
        multiply_add(main[2 * row], x_high[column], high.x, high.y);
        multiply_add(main[2 * row + 1], x_high[column], high.z, high.w);
        multiply_add(correction[2 * row], x_high[column], low.x, low.y);
        multiply_add(correction[2 * row + 1], x_high[column], low.z, low.w);
    }
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[n][e] = main[n][e] + correction[n][e];
}

// What a block works on.
struct Task {
    const float* qkv;
    const Chunk* scratch;
    float* state;
    float* out;
    int first_token, tokens, chunks;  // the first token of the first chunk; the tokens of the call
    int head, key_head, column;       // the lane's column; its other one is 8 further
    int lane, quarter, pair;
};

__device__ __forceinline__ void load_values(Tokens& to, const Task& task, int chunk) {
    const int first = task.first_token + chunk * CHUNK + 2 * task.quarter;
    const float* const from = task.qkv + value_at(first, task.head) + task.column;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int t = 8 * n + e % 2;
            to[n][e] = first + t < task.tokens ? from[t * ROW + e / 2 * 8] : 0.0f;
        }
}

// Bring a chunk's values into L2; each output warp of a group takes a quarter of its tokens.
__device__ __forceinline__ void prefetch_values(const Task& task, int chunk) {
    const int token = task.first_token + chunk * CHUNK + task.pair * (CHUNK / PAIRS) + task.lane / 2;
    if (task.lane < 2 * CHUNK / PAIRS && token < task.tokens) {
        const int first_column = task.column / COLUMNS * COLUMNS;
        const float* const at = task.qkv + value_at(token, task.head) + first_column + task.lane % 2 * 32;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
}

__device__ __forceinline__ void put_tokens(SharedTokens& to, const Tokens& x, int lane) {
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) to[n][lane] = make_float4(x[n][0], x[n][1], x[n][2], x[n][3]);
}
__device__ __forceinline__ void get_tokens(Tokens& x, const SharedTokens& from, int lane) {
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) {
        const float4 four = from[n][lane];
        x[n][0] = four.x, x[n][1] = four.y, x[n][2] = four.z, x[n][3] = four.w;
    }
}

__device__ __forceinline__ void walk_state(Shared& shared, const Task& task) {
    const int lane = task.lane, pair = task.pair;
    float* const slice = task.state + state_at(2 * task.quarter, task.head) + task.column;
    const auto at = [&](int j, int e) { return (8 * j + e % 2) * VALUE_HEADS * D + e / 2 * 8; };
    float s[2 * STEPS][4], largest = 0.0f;
#pragma unroll
    for (int j = 0; j < 2 * STEPS; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[j][e] = slice[at(j, e)];
#pragma unroll
    for (int j = 0; j < 2 * STEPS; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(s[j][e]));
    float bound = warp_largest(largest);  // no element of the state is larger
    Scale scale = scale_to<14>(bound);
#pragma unroll
    for (int j = 0; j < 2 * STEPS; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[j][e] *= scale.up;

    // The left half of the state (rows 0 to 63) goes ahead of the right one: it is updated and split for the next
    // chunk while the update of the right half runs, and the right half is split while the products with it run.
    Fragment high[STEPS], low[STEPS];
    const auto split_steps = [&](int first_step) {
#pragma unroll
        for (int step = first_step; step < first_step + STEPS / 2; ++step)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int j = 2 * step + i / 2, e = i % 2 * 2;
                split(s[j][e], s[j][e + 1], high[step][i], low[step][i]);
            }
    };
    split_steps(0);
#pragma unroll 1
    for (int chunk = 0; chunk < task.chunks; ++chunk) {
        const int stage = chunk % STAGES, buffer = chunk % BUFFERS;
        const Rows& rows = shared.rows[stage];
        const StateFactors& factors = shared.state_factors[stage];

        RowsProduct product;
        barrier_wait(shared.full[stage], chunk / STAGES);
        product.add<0, STEPS / 2>(high, low, rows);
        split_steps(STEPS / 2);
        product.add<STEPS / 2, STEPS / 2>(high, low, rows);
        product.finish();
        const float decay = factors.decay, growth = factors.growth, solve_down = factors.solve_down;
        float2 read[CHUNK / 8], write[CHUNK / 8];
        load_factors(read, factors.read, task.quarter);
        load_factors(write, factors.write, task.quarter);
        Lanes solve;
        solve.load(factors.solve, lane);
        Tokens value;
        barrier_wait(shared.value_full[buffer][pair], chunk / BUFFERS);
        get_tokens(value, shared.tokens[buffer][pair], lane);
        // A bound on R before there is one, so that its scale is known: |R| <= |v| + exp(gamma) |S^T k|.
        const Scale residual_scale =
            scale_to<14>(fmaf(factors.reach, bound, shared.largest_value[buffer][pair]));
        products_done<0>();
        if (chunk % REFRESH == REFRESH - 1) {
            unsigned largest_pair = 0;
#pragma unroll
            for (int step = 0; step < STEPS; ++step)
#pragma unroll
                for (int i = 0; i < 4; ++i) largest_pair = larger_pair(largest_pair, high[step][i]);
            bound = warp_largest(largest_of_pair(largest_pair)) * scale.down;
        }

        Tokens residual;
#pragma unroll
        for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float factor = (e % 2 ? read[n].y : read[n].x) * scale.down;
                residual[n][e] = fmaf(factor, product.sum[n * 4 + e], value[n][e]);
            }
        Fragment x_high[2], x_low[2];
        split_tokens(residual, residual_scale.up, x_high, x_low);
        Tokens delta;
        multiply_triangle(delta, solve, x_high, x_low);

#pragma unroll
        for (int n = 0; n < CHUNK / 8; ++n) {
            const float* const y = &product.sum[16 + n * 4];
            shared.query[buffer][pair][n][lane] = make_float4(y[0], y[1], y[2], y[3]);
        }
        // The next state's scale, from a bound on its elements.
        bound = fmaf(decay, bound, growth * largest_of(residual));
        const Scale next = scale_to<14>(bound);
        const float delta_down = residual_scale.down * solve_down;
        const float keep = decay * scale.down * next.up;
#pragma unroll
        for (int n = 0; n < CHUNK / 8; ++n) {
            const float first = write[n].x * (delta_down * next.up), second = write[n].y * (delta_down * next.up);
            split(delta[n][0] * first, delta[n][1] * second, x_high[n / 2][n % 2 * 2], x_low[n / 2][n % 2 * 2]);
            split(delta[n][2] * first, delta[n][3] * second, x_high[n / 2][n % 2 * 2 + 1],
                  x_low[n / 2][n % 2 * 2 + 1]);
        }
        float left[32], right[32];
        multiply_keys(left, x_high, x_low, rows, 0);
        multiply_keys(right, x_high, x_low, rows, 1);
        put_tokens(shared.tokens[buffer][pair], delta, lane);
        if (lane == 0) {
            shared.down[buffer][pair][0] = scale.down;
            shared.down[buffer][pair][1] = delta_down;
        }
        warp_arrive(shared.delta_full[buffer][pair]);

        products_done<1>();
#pragma unroll
        for (int i = 0; i < 32; ++i) s[i / 4][i % 4] = fmaf(s[i / 4][i % 4], keep, left[i]);
        split_steps(0);
        products_done<0>();
        warp_arrive(shared.free[stage]);
#pragma unroll
        for (int i = 0; i < 32; ++i) s[STEPS + i / 4][i % 4] = fmaf(s[STEPS + i / 4][i % 4], keep, right[i]);
        scale = next;
    }
#pragma unroll
    for (int j = 0; j < 2 * STEPS; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) slice[at(j, e)] = s[j][e] * scale.down;
}

template <class T>
__device__ __forceinline__ void fetch_part(T& to, const T& from, Barrier& full) {
#ifdef GDN_WGMMA
    copy_bulk(&to, &from, sizeof(T), full);
#else
#pragma unroll
    for (int i = threadIdx.x % (32 * PAIRS); i < static_cast<int>(sizeof(T)) / 16; i += 32 * PAIRS)
        copy_async<16>(reinterpret_cast<float*>(&to) + i * 4, reinterpret_cast<const float*>(&from) + i * 4, true);
#endif
}
// Fetch a chunk's rows and factors; all warps of an output group call it.
__device__ __forceinline__ void fetch(Shared& shared, const Task& task, int chunk) {
    const int stage = chunk % STAGES;
    const Chunk& from = task.scratch[chunk];
    Barrier& full = shared.full[stage];
#ifdef GDN_WGMMA
    if (threadIdx.x % (32 * PAIRS) >= FETCHERS) return;
    expect_bytes(full, sizeof(Rows) + sizeof(StateFactors) + sizeof(OutputFactors));
#endif
    fetch_part(shared.rows[stage], from.rows[task.key_head], full);
    fetch_part(shared.state_factors[stage], from.state[task.head], full);
    fetch_part(shared.output_factors[stage], from.output[task.head], full);
#ifndef GDN_WGMMA
    copies_arrive_at(full);
#endif
}

// With PREPARED the chunks, fewer than stages, are there.
template <bool PREPARED>
__device__ __forceinline__ void walk_output(Shared& shared, const Task& task, int group) {
    const int lane = task.lane, pair = task.pair;
    for (int chunk = 0; chunk < STAGES - 1; ++chunk)
        if (!PREPARED && group == 0 && chunk < task.chunks) fetch(shared, task, chunk);
    Tokens value;
    const auto hand_over_values = [&](int buffer) {
        const float largest = largest_of(value);
        put_tokens(shared.tokens[buffer][pair], value, lane);
        if (lane == 0) shared.largest_value[buffer][pair] = largest;
        warp_arrive(shared.value_full[buffer][pair]);
    };
    load_values(value, task, group);
    hand_over_values(group);

#pragma unroll 1
    for (int chunk = group; chunk < task.chunks; chunk += OUTPUT_GROUPS) {
        const int stage = chunk % STAGES, buffer = chunk % BUFFERS;
        const OutputFactors& factors = shared.output_factors[stage];
        load_values(value, task, chunk + BUFFERS);
        prefetch_values(task, chunk + 2 * BUFFERS);
        if (const int next = chunk + STAGES - 1; !PREPARED && next < task.chunks) {
            if (next >= STAGES) barrier_wait(shared.free[next % STAGES], next / STAGES - 1);
            fetch(shared, task, next);
        }
        barrier_wait(shared.full[stage], chunk / STAGES);
        float2 query[CHUNK / 8];
        load_factors(query, factors.query, task.quarter);
        const float attend_down = factors.attend_down;
        Lanes attend;
        attend.load(factors.attend, lane);
        warp_arrive(shared.free[stage]);

        barrier_wait(shared.delta_full[buffer][pair], chunk / BUFFERS);
        Tokens y, delta, inside;
        get_tokens(y, shared.query[buffer][pair], lane);
        get_tokens(delta, shared.tokens[buffer][pair], lane);
        const float state_down = shared.down[buffer][pair][0], delta_down = shared.down[buffer][pair][1];
        __syncwarp();  // all lanes have read what the values replace
        hand_over_values(buffer);

        const Scale scale = scale_to<13>(largest_of(delta));
        Fragment x_high[2], x_low[2];
        split_tokens(delta, scale.up, x_high, x_low);
        multiply_triangle(inside, attend, x_high, x_low);
        const float inside_down = scale.down * delta_down * attend_down;
        const int first = task.first_token + chunk * CHUNK + 2 * task.quarter;
        float* const to = task.out + out_at(first, task.head) + task.column;
#pragma unroll
        for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int t = 8 * n + e % 2;
                const float factor = (e % 2 ? query[n].y : query[n].x) * state_down;
                if (first + t < task.tokens)
                    to[t * VALUE_HEADS * D + e / 2 * 8] = fmaf(factor, y[n][e], inside[n][e] * inside_down);
            }
    }
}

// `fillers` threads fill a stage and arrive at its barrier.
__device__ __forceinline__ void init_barriers(Shared& shared, int fillers) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(shared.full[i], fillers);
            barrier_init(shared.free[i], 2 * PAIRS * WARP_ARRIVALS);
        }
        for (int i = 0; i < BUFFERS; ++i)
            for (int pair = 0; pair < PAIRS; ++pair) {
                barrier_init(shared.value_full[i][pair], WARP_ARRIVALS);
                barrier_init(shared.delta_full[i][pair], WARP_ARRIVALS);
            }
#ifdef GDN_WGMMA
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
}

__device__ __forceinline__ Task block_task(const float* qkv, const Chunk* scratch, float* state, float* out,
                                           int first_token, int tokens, int chunks) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    constexpr int COLUMN_BLOCKS = D / COLUMNS;
    Task task;
    task.qkv = qkv, task.scratch = scratch, task.state = state, task.out = out;
    task.first_token = first_token, task.tokens = tokens, task.chunks = chunks;
    const int head = blockIdx.x / COLUMN_BLOCKS;  // key head by key head
    task.key_head = head / GROUP;
    task.head = value_head(task.key_head, head - task.key_head * GROUP);
    task.lane = lane, task.quarter = lane % 4, task.pair = warp % PAIRS;
    // Opaque: where ptxas sees through to a division by a power of two, it keeps parts of it, and spills.
    asm volatile("" : "+r"(task.head));
    task.column = blockIdx.x % COLUMN_BLOCKS * COLUMNS + task.pair * 16 + lane / 4;
    return task;
}
