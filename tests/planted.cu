// What makes a recurrence slower by a known share: a kernel in front notes the time, and one behind waits.

extern "C" __global__ void planted_begin(unsigned long long* began) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(*began));
}

// Wait for 1 / share of what has passed since the time was noted.
extern "C" __global__ void planted_wait(const unsigned long long* began, unsigned long long share) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    const unsigned long long wait = (start - *began) / share;
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < wait);
}
