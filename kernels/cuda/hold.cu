// Hold the stream until the host has enqueued all that follows, so that events and kernels run back to back.
//
// release and late lie in pinned host memory. A host that never releases is not waited for: after limit_ns the
// kernel ends and says so in late.
extern "C" __global__ void __launch_bounds__(1)
gdn_hold(const volatile int* release, volatile int* late, unsigned long long limit_ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    while (!*release) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > limit_ns) {
            *late = 1;
            __threadfence_system();
            return;
        }
    }
}
