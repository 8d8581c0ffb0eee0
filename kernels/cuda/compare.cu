// How many 32-bit words of two arrays differ, and where first: found[0] grows by the count, found[1] falls to the
// least index. Bits are compared, so that NaN equals itself and 0 differs from -0.
extern "C" __global__ void __launch_bounds__(256)
gdn_compare(const unsigned* __restrict__ one, const unsigned* __restrict__ other, long long words,
            unsigned long long* __restrict__ found) {
    unsigned long long differing = 0, first = ~0ull;
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += threads) {
        if (one[i] != other[i]) {
            if (!differing++) first = i;
        }
    }
    if (differing) {
        atomicAdd(found, differing);
        atomicMin(found + 1, first);
    }
}
