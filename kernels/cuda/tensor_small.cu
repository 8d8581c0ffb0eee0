// The tensor-core recurrence in one launch, for as few chunks as there are groups of output warps: each group prepares
// one chunk in its place in shared memory, of the block's head alone, while the state is on its way.
#include "tensor_prepare.cuh"
#include "tensor_scan.cuh"

static_assert(32 * PAIRS == PREPARE_THREADS, "a group of output warps prepares");

// A group's room, in stages that hold no chunk.
struct Preparation {
    Products products;
    Down down;
    Inversion inversion;
    Gates gates;
};
static_assert(sizeof(Preparation) <= sizeof(Rows) && 2 * OUTPUT_GROUPS <= STAGES, "room for each group");

// A barrier of a group's 128 threads.
__device__ __forceinline__ void group_barrier(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

__device__ __forceinline__ void prepare_chunk(Shared& shared, const Task& task, const float* gate, const float* beta,
                                              int group) {
    Preparation& room = *reinterpret_cast<Preparation*>(&shared.rows[OUTPUT_GROUPS + group]);
    const int first = group * CHUNK, token = first + task.lane;
    float my_gate = 0.0f, my_beta = 0.0f;
    if (task.pair == 0 && token < task.tokens) {
        my_gate = gate[gate_at(token, task.head)];
        my_beta = beta[gate_at(token, task.head)];
    }
    split_rows(shared.rows[group], room.down, nullptr, task.qkv, task.key_head, first, task.tokens);
    group_barrier(group);
    multiply_rows(shared.rows[group], room.products, [] {});
    group_barrier(group);
    if (task.pair == 0)
        prepare_head(room.products, room.down, room.inversion, room.gates, my_gate, my_beta,
                     shared.state_factors[group], shared.output_factors[group]);
#ifdef GDN_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads what these threads wrote
#endif
    arrive(shared.full[group]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gdn_tensor_small(const float* __restrict__ qkv, const float* __restrict__ gate, const float* __restrict__ beta,
                 float* __restrict__ state, float* __restrict__ out, int tokens) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    init_barriers(shared, PREPARE_THREADS);
    const int chunks = (tokens + CHUNK - 1) / CHUNK, warp = threadIdx.x / 32;
    const Task task = block_task(qkv, nullptr, state, out, 0, tokens, chunks);
    if (__shfl_sync(~0u, warp, 0) < PAIRS) {
        take_registers<232>();
        walk_state(shared, task);
    } else {
        leave_registers<136>();
        const int group = warp / PAIRS - 1;
        if (group < chunks) prepare_chunk(shared, task, gate, beta, group);
        walk_output<true>(shared, task, group);
    }
}
