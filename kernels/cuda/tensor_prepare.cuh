// What does not need the state: of one chunk and key head, by 128 threads.
//
// Together they split k and q and form k.k and q.k; then a warp takes one value head: it sums the gates, forms A
// and P, and inverts I + A by blocks of 16 x 16.
#pragma once
#include "gates.cuh"
#include "tensor.cuh"

constexpr int PREPARE_WARPS = 4;
constexpr int PREPARE_THREADS = 32 * PREPARE_WARPS;
constexpr int HALF = CHUNK / 2;
constexpr int STRIDE = HALF + 4;

// A warp's room for the inversion of I + A, A in blocks of 16 x 16.
struct Inversion {
    float diagonal[2][HALF * STRIDE + 4];  // the two blocks on the diagonal, transposed; then their inverses
    float below[HALF][STRIDE];             // the block below, then that of the inverse
};

// What the heads of a chunk share.
struct Products {
    float4 sum[2][BLOCKS][2][32];  // k.k, then q.k, scaled: a lane's sums of a block
};
using Down = float[2][CHUNK];  // 2^k_t and 2^q_t

// Split the rows of k and q into shared memory, and into a copy where one is wanted; a warp takes 8 of each, a lane
// 16 elements of a row, as 4 in each quarter of it.
__device__ __forceinline__ void split_rows(Rows& rows, Down& down, Rows* copy, const float* qkv, int key_head,
                                           int first, int tokens) {
    constexpr int TAKES = 4;  // of 4 rows: two of the warp's rows of k, then two of q
    const int warp = threadIdx.x / 32 % PREPARE_WARPS, lane = threadIdx.x % 32;
    // Rows r and r + 4 in half a warp: their pieces lie in different banks.
    const int my_row = warp * 8 + lane / 16 + lane / 8 % 2 * 4;
    float4 x[TAKES][4];
#pragma unroll
    for (int take = 0; take < TAKES; ++take) {
        const int token = first + my_row + take % 2 * 2;
        const size_t at = take / 2 ? query_at(token, key_head) : key_at(token, key_head);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            x[take][i] = token < tokens ? load4(qkv + at + (i * 8 + lane % 8) * 4) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float largest[TAKES] = {};
#pragma unroll
    for (int take = 0; take < TAKES; ++take)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float4 y = x[take][i];
            largest[take] = fmaxf(largest[take], fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(y.z), fabsf(y.w))));
        }
#pragma unroll
    for (int step = 1; step < 8; step *= 2)
#pragma unroll
        for (int take = 0; take < TAKES; ++take)
            largest[take] = fmaxf(largest[take], __shfl_xor_sync(~0u, largest[take], step));
#pragma unroll
    for (int take = 0; take < TAKES; ++take) {
        const int which = take / 2, row = my_row + take % 2 * 2;
        const Scale scale = scale_to<ROWS_EXPONENT>(largest[take]);
        if (lane % 8 == 0) down[which][row] = scale.down;
        char* const here = reinterpret_cast<char*>(&rows);
        char* const there = reinterpret_cast<char*>(copy);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float4 y = x[take][i];
            uint2 high, low;
            split(y.x * scale.up, y.y * scale.up, high.x, low.x);
            split(y.z * scale.up, y.w * scale.up, high.y, low.y);
            const int at = piece_at(which * CHUNK + row, i * 4 + lane % 8 / 2) + lane % 2 * 8;
            *reinterpret_cast<uint2*>(here + at) = high;
            *reinterpret_cast<uint2*>(here + at + LOW_BYTES) = low;
            if (copy) {
                *reinterpret_cast<uint2*>(there + at) = high;
                *reinterpret_cast<uint2*>(there + at + LOW_BYTES) = low;
            }
        }
    }
}

// Lower triangles of k.k and q.k by blocks of 16 x 16: a warp takes the 16 rows of one of the two. The products may lie
// where the rows are: in between all threads have to meet.
template <class Meet>
__device__ __forceinline__ void multiply_rows(const Rows& of, Products& products, const Meet& meet) {
    const int warp = threadIdx.x / 32 % PREPARE_WARPS, lane = threadIdx.x % 32;
    const int which = warp / 2, upper = warp % 2 == 0;
    const unsigned rows = shared_address(&of);
    const int matrix = lane / 8, in_matrix = lane % 8;
    float main[4][4] = {}, correction[4][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
        const int a_row = warp * HALF + matrix % 2 * 8 + in_matrix;
        const unsigned a_at = rows + piece_at(a_row, step * 2 + matrix / 2);
        unsigned a_high[4], a_low[4];
        load_matrices(a_high, a_at);
        load_matrices(a_low, a_at + LOW_BYTES);
#pragma unroll
        for (int column = 0; column < 2; ++column) {
            const int b_row = column * HALF + matrix / 2 * 8 + in_matrix;
            const unsigned b_at = rows + piece_at(b_row, step * 2 + matrix % 2);
            unsigned b_high[4], b_low[4];
            load_matrices(b_high, b_at);
            load_matrices(b_low, b_at + LOW_BYTES);
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                multiply_add(main[column * 2 + n], a_high, b_high[2 * n], b_high[2 * n + 1]);
                multiply_add(correction[column * 2 + n], a_high, b_low[2 * n], b_low[2 * n + 1]);
                multiply_add(correction[column * 2 + n], a_low, b_high[2 * n], b_high[2 * n + 1]);
            }
        }
    }
    meet();
#pragma unroll
    for (int column = 0; column < 2; ++column) {
        if (column == 1 && upper) continue;
        const int block = upper ? 0 : 1 + column;
        // In the order of a Triangle: rows group and group + 8, then columns.
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float sum[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int n = column * 2 + i / 2, e = row * 2 + i % 2;
                sum[i] = main[n][e] + correction[n][e];
            }
            products.sum[which][block][row][lane] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        }
    }
}

// The elements of a lower triangular matrix that a lane of a Triangle holds.
struct Elements {
    float of[BLOCKS][8];
};
__device__ __forceinline__ int element_row(int block, int i, int lane) {
    return block_row(block) * HALF + lane / 4 + i / 4 * 8;
}
__device__ __forceinline__ int element_column(int block, int i, int lane) {
    return block_column(block) * HALF + lane % 4 * 2 + i / 2 % 2 * 8 + i % 2;
}

// Write the elements, split; returns the factor that undoes their scale.
__device__ __forceinline__ float write_triangle(const Elements& x, Triangle& to, int lane) {
    float largest = 0.0f;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
        for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x.of[block][i]));
    const Scale scale = scale_to<13>(warp_largest(largest));
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
        unsigned high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            split(x.of[block][2 * i] * scale.up, x.of[block][2 * i + 1] * scale.up, high[i], low[i]);
        to.high[block][lane] = make_uint4(high[0], high[1], high[2], high[3]);
        to.low[block][lane] = make_uint4(low[0], low[1], low[2], low[3]);
    }
    return scale.down;
}

// P, and A into the room for its inversion.
__device__ __forceinline__ Elements form_products(const Products& products, const Down& down,
                                                  const Gates& gates, Inversion& a, int lane) {
    // A lane's rows are group + 8 i, its columns 2 quarter + 8 i and the next.
    float2 row_sum[4], column_sum[4][2];
    float row_key[4], row_query[4], column_key[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * i, column = lane % 4 * 2 + 8 * i;
        row_sum[i] = gates.sum[row];
        row_key[i] = gates.beta[row] * down[0][row];
        row_query[i] = down[1][row];
        const float4 two = *reinterpret_cast<const float4*>(&gates.sum[column]);
        column_sum[i][0] = make_float2(two.x, two.y);
        column_sum[i][1] = make_float2(two.z, two.w);
        const float2 of_two = *reinterpret_cast<const float2*>(&down[0][column]);
        column_key[i][0] = of_two.x;
        column_key[i][1] = of_two.y;
    }
    Elements p;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float keys[4], queries[4];
            *reinterpret_cast<float4*>(keys) = products.sum[0][block][half][lane];
            *reinterpret_cast<float4*>(queries) = products.sum[1][block][half][lane];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int i = half * 4 + e, r = block_row(block) * 2 + half, c = block_column(block) * 2 + e / 2;
                const int row = element_row(block, i, lane), column = element_column(block, i, lane);
                const float decay = decay_between(row_sum[r], column_sum[c][e % 2]) * column_key[c][e % 2];
                p.of[block][i] = column <= row ? decay * row_query[r] * queries[e] : 0.0f;
                const float strict = column < row ? decay * row_key[r] * keys[e] : 0.0f;
                if (block == 1)
                    a.below[row % HALF][column] = strict;
                else
                    a.diagonal[block / 2][column % HALF * STRIDE + row % HALF] = strict;
            }
        }
    }
    return p;
}

// Replace A by (I + A)^-1: both diagonal blocks column by column, half a warp each, then the block below as
// -inverse(lower right) below inverse(upper left).
__device__ __forceinline__ void invert(Inversion& a, int lane) {
    const int column = lane % HALF, half = lane / HALF;
    float x[HALF];
#pragma unroll
    for (int row = 0; row < HALF; ++row) x[row] = row == column ? 1.0f : 0.0f;
#pragma unroll
    for (int t = 0; t < HALF - 1; ++t) {
        float factor[HALF];
#pragma unroll
        for (int row = (t + 1) / 4 * 4; row < HALF; row += 4)
            *reinterpret_cast<float4*>(&factor[row]) = load4(&a.diagonal[half][t * STRIDE + row]);
#pragma unroll
        for (int row = t + 1; row < HALF; ++row) x[row] = fmaf(-factor[row], x[t], x[row]);
    }
    __syncwarp();
    // The inverses' rows; both halves take the upper left one's column, for the product from the right.
    float left[HALF], middle[HALF / 2];
#pragma unroll
    for (int row = 0; row < HALF; ++row) {
        a.diagonal[half][row * STRIDE + column] = x[row];
        left[row] = __shfl_sync(~0u, x[row], column);
    }
#pragma unroll
    for (int i = 0; i < HALF / 2; ++i) {
        const float* const row = a.below[half * (HALF / 2) + i];
        float sum[2] = {};
#pragma unroll
        for (int at = 0; at < HALF; at += 4) {
            const float4 factor = load4(row + at);
            sum[0] = fmaf(factor.x, left[at], sum[0]);
            sum[1] = fmaf(factor.y, left[at + 1], sum[1]);
            sum[0] = fmaf(factor.z, left[at + 2], sum[0]);
            sum[1] = fmaf(factor.w, left[at + 3], sum[1]);
        }
        middle[i] = sum[0] + sum[1];
    }
    float both[HALF];
#pragma unroll
    for (int i = 0; i < HALF / 2; ++i) {
        const float other = __shfl_xor_sync(~0u, middle[i], HALF);
        both[i] = half ? other : middle[i];
        both[i + HALF / 2] = half ? middle[i] : other;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < HALF / 2; ++i) {
        const int row = half * (HALF / 2) + i;
        float sum[2] = {};
#pragma unroll
        for (int at = 0; at < HALF; at += 4) {
            const float4 factor = load4(&a.diagonal[1][row * STRIDE + at]);
            sum[0] = fmaf(-factor.x, both[at], sum[0]);
            sum[1] = fmaf(-factor.y, both[at + 1], sum[1]);
            sum[0] = fmaf(-factor.z, both[at + 2], sum[0]);
            sum[1] = fmaf(-factor.w, both[at + 3], sum[1]);
        }
        a.below[row][column] = sum[0] + sum[1];
    }
    __syncwarp();
}

// T diag(beta), from the inverted blocks.
__device__ __forceinline__ Elements solved(const Inversion& inverse, const Gates& gates, int lane) {
    Elements x;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = element_row(block, i, lane), column = element_column(block, i, lane);
            const float t = block == 1 ? inverse.below[row % HALF][column]
                                       : inverse.diagonal[block / 2][row % HALF * STRIDE + column % HALF];
            x.of[block][i] = t * gates.beta[column];
        }
    return x;
}

// sum over t of write_t 16 (sum over i of |x[t][i]|): the state's growth for residuals of at most 1.
__device__ __forceinline__ float bound_growth(const Elements& x, float write, int lane) {
    float bound = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows group + 8 i
        float sum = 0.0f;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
            if (block_row(block) == i / 2)
#pragma unroll
                for (int e = 0; e < 4; ++e) sum += fabsf(x.of[block][i % 2 * 4 + e]);
        bound = fmaf(__shfl_sync(~0u, write, lane / 4 + 8 * i), sum, bound);
    }
    for (int step = 1; step < 32; step *= 2) bound += __shfl_xor_sync(~0u, bound, step);
    return bound * (2 << ROWS_EXPONENT);
}

// All of one value head; lane t brings the gate and beta of token t.
__device__ __forceinline__ void prepare_head(const Products& products, const Down& down, Inversion& room,
                                             Gates& gates, float gate, float beta, StateFactors& state,
                                             OutputFactors& output) {
    const int lane = threadIdx.x % 32;
    sum_gates(gates, gate, beta, lane);
    const Elements p = form_products(products, down, gates, room, lane);
    const float attend_down = write_triangle(p, output.attend, lane);
    __syncwarp();
    invert(room, lane);
    const Elements t = solved(room, gates, lane);
    const float solve_down = write_triangle(t, state.solve, lane);

    const float2 sum = gates.sum[lane];
    const float decay = expf(sum.x + sum.y), read = decay * down[0][lane];
    const float write = decay_between(gates.sum[CHUNK - 1], sum) * down[0][lane];
    const float growth = bound_growth(t, write, lane);
    const float reach = D * (2 << ROWS_EXPONENT) * warp_largest(read);
    state.read[lane] = -read;
    state.write[lane] = write;
    output.query[lane] = OUT_SCALE * decay * down[1][lane];
    if (lane == CHUNK - 1) {
        state.decay = decay;
        state.growth = growth;
        state.reach = reach;
        state.solve_down = solve_down;
        // Copied in pieces of 16 bytes, so all of the last one is written.
        *reinterpret_cast<float4*>(&output.attend_down) = make_float4(OUT_SCALE * attend_down, 0.0f, 0.0f, 0.0f);
    }
    __syncwarp();
}
