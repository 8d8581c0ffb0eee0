// The second kernel of the tensor-core recurrence: the walk over the chunks, from the state and back to it.
#include "tensor_scan.cuh"

// Two blocks as a cluster share the two SMs of a TPC. That leaves whole TPCs to the preparation, which would slow a scan
// beside it on the same TPC.
#if __CUDA_ARCH__ >= 900
#define IN_PAIRS __cluster_dims__(2, 1, 1)
#else
#define IN_PAIRS
#endif
static_assert(D / COLUMNS == 2, "a head is a pair of blocks");

extern "C" __global__ void __launch_bounds__(THREADS, 1) IN_PAIRS
gdn_tensor_scan(const float* __restrict__ qkv, const Chunk* __restrict__ scratch, float* __restrict__ state,
                float* __restrict__ out, int first_token, int tokens, int chunks) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    init_barriers(shared, FETCHERS);
    const Task task = block_task(qkv, scratch, state, out, first_token, tokens, chunks);
    const int warp = threadIdx.x / 32;
    // A condition from one lane is known to be the same in all, so that addresses may go to uniform registers.
    if (__shfl_sync(~0u, warp, 0) < PAIRS) {
        take_registers<232>();
        walk_state(shared, task);
    } else {
        leave_registers<136>();
        walk_output<false>(shared, task, warp / PAIRS - 1);
    }
}
