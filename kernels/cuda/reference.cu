// The recurrence token by token in FP64: the truth that the others are measured against.
//
// A block is (value head, 16 value columns) with 256 threads: a thread holds 8 state rows of one column, and 16
// neighbouring lanes share a column.
#include "common.cuh"

constexpr int COLUMNS = 16;
constexpr int LANES = 16;
constexpr int ROWS = D / LANES;

__device__ __forceinline__ double across_lanes(double sum) {
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

extern "C" __global__ void __launch_bounds__(COLUMNS* LANES)
gdn_reference(const float* __restrict__ qkv, const float* __restrict__ gate, const float* __restrict__ beta,
              double* __restrict__ state, double* __restrict__ out, int tokens) {
    const int head = blockIdx.x / (D / COLUMNS);
    const int column = blockIdx.x % (D / COLUMNS) * COLUMNS + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const int key_head = GDN_TILED ? head % KEY_HEADS : head / GROUP;

    double s[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) s[r] = state[state_at(lane * ROWS + r, head) + column];
    for (int t = 0; t < tokens; ++t) {
        const float* k = qkv + key_at(t, key_head) + lane * ROWS;
        const float* q = qkv + query_at(t, key_head) + lane * ROWS;
        const size_t at = static_cast<size_t>(t) * VALUE_HEADS + head;
        const double decay = exp(static_cast<double>(gate[at]));
        double part = 0.0, sum = 0.0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            s[r] *= decay;
            part = fma(s[r], static_cast<double>(k[r]), part);
        }
        const double delta = beta[at] * (qkv[value_at(t, head) + column] - across_lanes(part));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            s[r] = fma(static_cast<double>(k[r]), delta, s[r]);
            sum = fma(s[r], static_cast<double>(q[r]), sum);
        }
        sum = across_lanes(sum);
        if (lane == 0) out[out_at(t, head) + column] = sum * 0.08838834764831845;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) state[state_at(lane * ROWS + r, head) + column] = s[r];
}
