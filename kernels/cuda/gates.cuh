// The running sum of the gates of a chunk, kept so that differences of two sums have full accuracy.
#pragma once

constexpr float LEAST_GATE = -200.0f;  // exp of it is 0 in FP32; keeps -inf - (-inf) out of the differences

struct alignas(16) Gates {  // of 32 tokens, one for each lane of a warp
    float2 sum[32];  // the running sum, in FP64, as a pair of floats: the small gates after one of -200 are
    float beta[32];  // not swallowed by it
};

// Fill in the sums; lane t brings the gate and beta of token t.
__device__ __forceinline__ void sum_gates(Gates& gates, float gate, float beta, int lane) {
    double sum = gate < LEAST_GATE ? LEAST_GATE : gate;  // not fmaxf: a NaN must stay one
    for (int step = 1; step < 32; step *= 2) {
        const double before = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += before;
    }
    const float high = static_cast<float>(sum);
    gates.sum[lane] = make_float2(high, static_cast<float>(sum - high));
    gates.beta[lane] = beta;
    __syncwarp();
}

// exp(gamma_later - gamma_earlier)
__device__ __forceinline__ float decay_between(float2 later, float2 earlier) {
    return expf((later.x - earlier.x) + (later.y - earlier.y));
}
