// The first kernel of the chunked recurrence (the seed's gdn_chunk_prep_kernel): what does not need the state.
//
// A block is (chunk, key head) with 128 threads. Together they form k.k and q.k of the chunk; then a warp takes
// one value head: it sums the gates, forms A and P, inverts I + A by forward substitution, and multiplies P with the
// inverse, a lane a column.
#include "chunked.cuh"
#include "gates.cuh"

constexpr int THREADS = 128;
constexpr int STRIDE = D + 4;  // one 16-byte step, so that eight rows lie in different banks
constexpr int PRODUCT_STRIDE = CHUNK + 4;

struct Shared {
    union {
        float rows[2 * CHUNK][STRIDE];                       // k, then q
        float room[THREADS / 32][2][CHUNK][PRODUCT_STRIDE];  // a warp's: A and P
    };
    float product[2 * CHUNK][PRODUCT_STRIDE];  // k.k, then q.k
    Gates gates[THREADS / 32];
};

// k.k and q.k, 64 x 32 sums over D: 4 x 4 a thread, without the quarter above the diagonal.
__device__ __forceinline__ void multiply_rows(Shared& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Neighbours share a row of b and lanes two apart one of a: half a warp then reads 8 places, at once.
    const int row = warp * 4 + lane / 16 * 2 + lane % 2, column = lane / 2 % 8;
    float sum[4][4] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        float4 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = load4(&shared.rows[row + 16 * i][d]);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = load4(&shared.rows[column + 8 * i][d]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < (i % 2 ? 4 : 2); ++j) sum[i][j] = dot4(a[i], b[j], sum[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) shared.product[row + 16 * i][column + 8 * j] = sum[i][j];
}

// A and P, a lane a column.
__device__ __forceinline__ void form_products(const Shared& shared, const Gates& gates,
                                              float (&room)[2][CHUNK][PRODUCT_STRIDE], int lane) {
    const float2 mine = gates.sum[lane];
#pragma unroll 8
    for (int t = 0; t < CHUNK; ++t) {
        const float decay = lane <= t ? decay_between(gates.sum[t], mine) : 0.0f;
        room[0][t][lane] = lane < t ? gates.beta[t] * decay * shared.product[t][lane] : 0.0f;
        room[1][t][lane] = lane <= t ? decay * shared.product[CHUNK + t][lane] : 0.0f;
    }
    __syncwarp();
}

// A lane's column of T = (I + A)^-1, by forward substitution.
__device__ __forceinline__ void invert(const float (&lower)[CHUNK][PRODUCT_STRIDE], float (&column)[CHUNK], int lane) {
#pragma unroll
    for (int t = 0; t < CHUNK; ++t) {
        float sum[4] = {t == lane ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < t; i += 4) {
            const float4 a = load4(&lower[t][i]);
            sum[0] = fmaf(-a.x, column[i], sum[0]);
            if (i + 1 < t) sum[1] = fmaf(-a.y, column[i + 1], sum[1]);
            if (i + 2 < t) sum[2] = fmaf(-a.z, column[i + 2], sum[2]);
            if (i + 3 < t) sum[3] = fmaf(-a.w, column[i + 3], sum[3]);
        }
        column[t] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

// A lane's column of P T, times a factor.
__device__ __forceinline__ void multiply(const float (&p)[CHUNK][PRODUCT_STRIDE], const float (&column)[CHUNK],
                                         float factor, float (&to)[CHUNK][PRODUCT_STRIDE], int lane) {
#pragma unroll
    for (int t = 0; t < CHUNK; ++t) {
        float sum[2] = {};
#pragma unroll
        for (int i = 0; i <= t; i += 4) {
            const float4 a = load4(&p[t][i]);
            sum[0] = fmaf(a.x, column[i], sum[0]);
            if (i + 1 <= t) sum[1] = fmaf(a.y, column[i + 1], sum[1]);
            if (i + 2 <= t) sum[0] = fmaf(a.z, column[i + 2], sum[0]);
            if (i + 3 <= t) sum[1] = fmaf(a.w, column[i + 3], sum[1]);
        }
        to[t][lane] = (sum[0] + sum[1]) * factor;
    }
}

// Copy the lower triangle of what the lanes of a warp have written.
__device__ __forceinline__ void write_triangle(const float (&from)[CHUNK][PRODUCT_STRIDE], Triangle& to, int lane) {
    constexpr int AT_ONCE = 32 / BLOCK;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PIECES; i += AT_ONCE) {
        const int at = i + lane / BLOCK;
        const int block = (at >= piece_at(1, 0)) + (at >= piece_at(2, 0)) + (at >= piece_at(3, 0));
        const int row = block * BLOCK + lane % BLOCK, piece = at - piece_at(block, 0);
        *reinterpret_cast<float4*>(to[at][lane % BLOCK]) = load4(&from[row][piece * 4]);
    }
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
gdn_chunked_prepare(const float* __restrict__ qkv, const float* __restrict__ gate,
                    const float* __restrict__ beta, Prepared* __restrict__ scratch, int first_token, int tokens) {
    __shared__ __align__(16) Shared shared;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int chunk = blockIdx.x / KEY_HEADS, key_head = blockIdx.x % KEY_HEADS;
    const int first = first_token + chunk * CHUNK;

#pragma unroll
    for (int i = warp; i < 2 * CHUNK; i += THREADS / 32) {
        const bool valid = first + i % CHUNK < tokens;
        const size_t token = valid ? first + i % CHUNK : 0;
        const size_t at = i < CHUNK ? key_at(token, key_head) : query_at(token, key_head);
        copy_async<16>(&shared.rows[i][lane * 4], qkv + at + lane * 4, valid);
    }
    copies_committed();
    Gates& gates = shared.gates[warp];
    const auto sum_gates_of = [&](int head) {
        const int token = first + lane;
        const size_t at = gate_at(token, head);
        const bool valid = token < tokens;
        sum_gates(gates, valid ? gate[at] : 0.0f, valid ? beta[at] : 0.0f, lane);
    };
    if (warp < GROUP) sum_gates_of(value_head(key_head, warp));
    copies_arrived();
    __syncthreads();
    multiply_rows(shared);
    __syncthreads();

    for (int j = warp; j < GROUP; j += THREADS / 32) {
        const int head = value_head(key_head, j);
        if (j != warp) sum_gates_of(head);
        Prepared& to = scratch[static_cast<size_t>(chunk) * VALUE_HEADS + head];
        const float2 sum = gates.sum[lane];
        const float decay = expf(sum.x + sum.y);
        to.read[0][lane] = -decay;
        to.read[1][lane] = OUT_SCALE * decay;
        to.write[lane] = decay_between(gates.sum[CHUNK - 1], sum);

        float column[CHUNK];
        float(&room)[2][CHUNK][PRODUCT_STRIDE] = shared.room[warp];
        form_products(shared, gates, room, lane);
        invert(room[0], column, lane);
        __syncwarp();
#pragma unroll
        for (int t = 0; t < CHUNK; ++t) room[0][t][lane] = column[t] * gates.beta[lane];
        write_triangle(room[0], to.product[0], lane);
        multiply(room[1], column, OUT_SCALE * gates.beta[lane], room[0], lane);
        write_triangle(room[0], to.product[1], lane);
    }
}
