// When it is on each SM, in cycles and in nanoseconds: two stamps tell the SM clock between them.
//
// One warp per block, as many blocks as SMs. stamps holds (cycles, nanoseconds) for each SM by its number, zeros
// before; where two blocks share an SM, either's stamp is right.
extern "C" __global__ void __launch_bounds__(32)
gdn_stamp(unsigned long long* __restrict__ stamps, int most) {
    if (threadIdx.x) return;
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    // The timer steps by up to a microsecond on some cards: the stamp is taken at a step.
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now == start);
    const unsigned long long cycles = clock64();
    if (sm < static_cast<unsigned>(most)) {
        stamps[2 * sm] = cycles;
        stamps[2 * sm + 1] = now;
    }
}
