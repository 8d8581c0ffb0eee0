// The first kernel of the tensor-core recurrence: what does not need the state. A block is (chunk, key head).
#include "tensor_prepare.cuh"

// On sm_90 five do better than the six that fit, when the scan runs beside; 100 KB an SM hold two.
constexpr int BLOCKS_PER_SM = __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 ? 5 : __CUDA_ARCH__ == 800 ? 4 : 2;

struct Shared {
    union {
        Rows rows;
        struct {
            Products products;
            Inversion inversion[PREPARE_WARPS];
        };
    };
    float down[2][CHUNK];
    Gates gates[PREPARE_WARPS];
};

extern "C" __global__ void __launch_bounds__(PREPARE_THREADS, BLOCKS_PER_SM)
gdn_tensor_prepare(const float* __restrict__ qkv, const float* __restrict__ gate, const float* __restrict__ beta,
                   Chunk* __restrict__ scratch, int first_token, int tokens) {
    __shared__ __align__(128) Shared shared;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int key_head = blockIdx.x % KEY_HEADS, first = first_token + blockIdx.x / KEY_HEADS * CHUNK;
    Chunk& to = scratch[blockIdx.x / KEY_HEADS];
    const auto load = [&](const float* from, int j) {
        const size_t at = gate_at(first + lane, value_head(key_head, j));
        return first + lane < tokens && j < GROUP ? from[at] : 0.0f;
    };
    split_rows(shared.rows, shared.down, &to.rows[key_head], qkv, key_head, first, tokens);
    __syncthreads();
    float my_gate = load(gate, warp), my_beta = load(beta, warp);
    multiply_rows(shared.rows, shared.products, [] { __syncthreads(); });
    __syncthreads();
    for (int j = warp; j < GROUP; j += PREPARE_WARPS) {
        const int head = value_head(key_head, j);
        prepare_head(shared.products, shared.down, shared.inversion[warp], shared.gates[warp], my_gate, my_beta,
                     to.state[head], to.output[head]);
        my_gate = load(gate, j + PREPARE_WARPS);
        my_beta = load(beta, j + PREPARE_WARPS);
    }
}
