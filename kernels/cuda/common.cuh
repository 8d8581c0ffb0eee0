// What every kernel shares: the compile-time shape, the layout of the arrays, copies into shared memory.
//
// NVRTC defines: GDN_KEY_HEADS (HK), GDN_VALUE_HEADS (HV), GDN_TILED (1: value head h reads key head h % HK;
// 0: h / (HV / HK)), and for kernels that hold several value heads a block, GDN_BLOCK_HEADS.
#pragma once

constexpr int D = 128;
constexpr int KEY_HEADS = GDN_KEY_HEADS;
constexpr int VALUE_HEADS = GDN_VALUE_HEADS;
constexpr int GROUP = VALUE_HEADS / KEY_HEADS;
constexpr int ROW = (2 * KEY_HEADS + VALUE_HEADS) * D;  // floats in a token's row of qkv
constexpr float OUT_SCALE = 0.08838834764831845f;       // D^-0.5

// The j-th of the GROUP value heads that read a key head.
__device__ __forceinline__ int value_head(int key_head, int j) {
    return GDN_TILED ? key_head + j * KEY_HEADS : key_head * GROUP + j;
}

// From one of the value heads of a key head to the next, in heads.
constexpr int HEAD_STEP = GDN_TILED ? KEY_HEADS : 1;

// Offsets of a token's rows. 64 bits: T * ROW passes 2^31 from 209,716 tokens of the default shape on.
__device__ __forceinline__ size_t query_at(size_t token, int key_head) {
    return token * ROW + key_head * D;
}
__device__ __forceinline__ size_t key_at(size_t token, int key_head) {
    return token * ROW + (KEY_HEADS + key_head) * D;
}
__device__ __forceinline__ size_t value_at(size_t token, int head) {
    return token * ROW + (2 * KEY_HEADS + head) * D;
}
__device__ __forceinline__ size_t gate_at(size_t token, int head) {  // and of beta
    return token * VALUE_HEADS + head;
}
__device__ __forceinline__ size_t out_at(size_t token, int head) {
    return gate_at(token, head) * D;
}
__device__ __forceinline__ size_t state_at(int row, int head) {
    return (static_cast<size_t>(row) * VALUE_HEADS + head) * D;
}

// Copies of 16 or 4 bytes from global to shared memory, zeros where `valid` is false. Asynchronous from sm_80
// on: done for the calling thread after copies_committed() and copies_arrived().
template <int BYTES>
__device__ __forceinline__ void copy_async(float* to, const float* from, bool valid) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = valid ? BYTES : 0;
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(from), "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address), "l"(from), "r"(bytes));
#else
    for (int i = 0; i < BYTES / 4; ++i) to[i] = valid ? from[i] : 0.0f;
#endif
}
__device__ __forceinline__ void copies_committed() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;\n");
#endif
}
__device__ __forceinline__ void copies_arrived() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
#endif
}

// The product of four pairs, added to a sum one after the other.
__device__ __forceinline__ float dot4(float4 a, float4 b, float sum) {
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    return fmaf(a.w, b.w, sum);
}
__device__ __forceinline__ float4 load4(const float* at) {
    return *reinterpret_cast<const float4*>(at);
}
