// Fixed work that only the multipliers bound: chains of multiply-adds in registers, eight a thread.
//
// 16 * steps FLOP a thread. out is written only if a sum is one that none can be, so that nothing is left out.
extern "C" __global__ void __launch_bounds__(256)
gdn_canary_fma(float* __restrict__ out, float factor, int steps) {
    float sum[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = threadIdx.x + i;
    for (int step = 0; step < steps; step += 8) {
#pragma unroll
        for (int unrolled = 0; unrolled < 8; ++unrolled)
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] = fmaf(sum[i], factor, 1.0f);
    }
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) total += sum[i];
    if (total == -1.0f) out[0] = total;
}
