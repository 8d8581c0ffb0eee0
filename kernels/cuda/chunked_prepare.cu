// The first kernel of the chunked recurrence (the seed's gdn_chunk_prep_kernel): what does not need the state.
//
// A block is (chunk, key head) with 128 threads. Together they form k.k and q.k of the chunk; then a warp takes
// one value head: it sums the gates, forms A and P, and inverts I + A by forward substitution, a lane a column.
#include "chunked.cuh"
#include "gates.cuh"

constexpr int THREADS = 128;
constexpr int STRIDE = D + 4;            // one 16-byte step, so that eight rows lie in different banks
constexpr int PRODUCT_STRIDE = CHUNK + 4;

struct Shared {
    union {
        float rows[2 * CHUNK][STRIDE];                  // k, then q
        float lower[THREADS / 32][CHUNK][PRODUCT_STRIDE];  // A, a warp each
    };
    float product[2 * CHUNK][PRODUCT_STRIDE];           // k.k, then q.k
    Gates gates[THREADS / 32];
};

// Write P and the decays of one value head, and leave A in shared memory.
__device__ __forceinline__ void form_products(const Shared& shared, const Gates& gates,
                                              float (&lower)[CHUNK][PRODUCT_STRIDE], Prepared& to, int lane) {
    const float2 mine = gates.sum[lane];
    to.decay[lane] = expf(mine.x + mine.y);
    const float to_end = decay_between(gates.sum[CHUNK - 1], mine);
#pragma unroll 8
    for (int t = 0; t < CHUNK; ++t) {
        const float decay = lane <= t ? decay_between(gates.sum[t], mine) : 0.0f;
        lower[t][lane] = lane < t ? gates.beta[t] * decay * shared.product[t][lane] : 0.0f;
        float p = lane <= t ? decay * shared.product[CHUNK + t][lane] : 0.0f;
        const float kept = __shfl_sync(~0u, to_end, t % 2 * HALF + lane % HALF);
        if (t < 2 && lane >= HALF) p = kept;
        to.attend[t][lane] = p;
    }
    __syncwarp();
}

// Column `lane` of T diag(beta), T = (I + A)^-1, by forward substitution.
__device__ __forceinline__ void invert(const float (&lower)[CHUNK][PRODUCT_STRIDE], float beta, Prepared& to,
                                       int lane) {
    float column[CHUNK];
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
        to.solve[t][lane] = column[t] * beta;
    }
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
    copies_arrived();
    __syncthreads();

    {  // 64 x 32 products over D, 4 x 4 a thread
        const int row = thread / 8, column = thread % 8;
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
                for (int j = 0; j < 4; ++j) sum[i][j] = dot4(a[i], b[j], sum[i][j]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) shared.product[row + 16 * i][column + 8 * j] = sum[i][j];
    }
    __syncthreads();

    for (int j = warp; j < GROUP; j += THREADS / 32) {
        const int head = value_head(key_head, j), token = first + lane;
        const size_t at = static_cast<size_t>(token) * VALUE_HEADS + head;
        const float raw = token < tokens ? gate[at] : 0.0f;
        Gates& gates = shared.gates[warp];
        sum_gates(gates, raw, token < tokens ? beta[at] : 0.0f, lane);
        Prepared& to = scratch[static_cast<size_t>(chunk) * VALUE_HEADS + head];
        form_products(shared, gates, shared.lower[warp], to, lane);
        invert(shared.lower[warp], gates.beta[lane], to, lane);
        __syncwarp();
    }
}
