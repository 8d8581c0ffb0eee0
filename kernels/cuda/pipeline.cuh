// Hand-over between the warps of a block: barriers in shared memory, and copies that arrive at them.
#pragma once
#include "split.cuh"

// A barrier counts arrivals; each full count is a phase, and a waiter names the parity of the phase it waits for.
using Barrier = unsigned long long;

__device__ __forceinline__ void barrier_init(Barrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_wait(Barrier& barrier, int phase) {
    const unsigned address = shared_address(&barrier);
    unsigned done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
#else
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
#endif
                     : "=r"(done)
                     : "r"(address), "r"(phase & 1)
                     : "memory");
    } while (!done);
}
__device__ __forceinline__ void arrive(Barrier& barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
// What the warp did before comes before what a waiter does after.
#ifdef GDN_LANES_ARRIVE  // for racecheck, which does not see that one lane arrives for all
constexpr int WARP_ARRIVALS = 32;
__device__ __forceinline__ void warp_arrive(Barrier& barrier) { arrive(barrier); }
#else
constexpr int WARP_ARRIVALS = 1;
__device__ __forceinline__ void warp_arrive(Barrier& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barrier);
}
#endif

#ifdef GDN_WGMMA
// Lane 0 of a warp announces the bytes of a phase, which is its arrival, and copies them.
__device__ __forceinline__ void expect_bytes(Barrier& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, Barrier& barrier) {
    // From a shuffle by the one lane: ptxas 12.9 and 13.0 else lose the upper half on the way to uniform registers.
    const size_t address = reinterpret_cast<size_t>(from);
    const unsigned lower = __shfl_sync(1, static_cast<unsigned>(address), 0);
    const unsigned upper = __shfl_sync(1, static_cast<unsigned>(address >> 32), 0);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(static_cast<size_t>(upper) << 32 | lower), "r"(bytes), "r"(shared_address(&barrier))
                 : "memory");
}
#endif
// The calling thread's copies so far arrive at the barrier once they are done.
__device__ __forceinline__ void copies_arrive_at(Barrier& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
