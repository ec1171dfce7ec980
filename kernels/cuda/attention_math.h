// SPDX-License-Identifier: Apache-2.0
// Device functions that fix the arithmetic of attention, shared by all its kernels.
#pragma once

#include "cuda/attention_view.h"
#include "cuda/device/mma.h"

// A function of kernels that is called, not copied into them: what is rare, or long. A file whose
// kernels must not call anything defines it as KVG_DEVICE.
#if defined(KVG_DEVICE_CALL)
#elif defined(__CUDACC__)
#define KVG_DEVICE_CALL inline __device__ __noinline__
#else
#define KVG_DEVICE_CALL inline
#endif

namespace kvgauge::cuda {

inline constexpr float kNothing = -__builtin_huge_valf();
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;

// 2^x for x <= 0 and a little above; 1 at 0, 0 at -inf. Subnormal results are 0.
KVG_DEVICE float PowerOfTwo(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = Exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
#endif
}

// A line that is wanted soon.
KVG_DEVICE void Prefetch(const void* line) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
#else
  static_cast<void>(line);
#endif
}

// An 8x8 matrix of 16-bit numbers, two of a row to a lane, transposed.
KVG_DEVICE uint32_t Transposed(uint32_t pair) {
#ifdef __CUDACC__
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
#else
  const int column = Lane() / 4, row = Lane() % 4 * 2;
  const uint32_t low = Shuffle(pair, row * 4 + column / 2);
  const uint32_t high = Shuffle(pair, row * 4 + 4 + column / 2);
  const int shift = column % 2 * 16;
  return (low >> shift & 0xffff) | (high >> shift & 0xffff) << 16;
#endif
}

template <DType type>
KVG_DEVICE uint32_t Pack(float low, float high) {
  if constexpr (type == DType::kBF16) {
    return PackBf16x2(low, high);
  } else {
    return PackHalf2(low, high);
  }
}
template <DType type>
KVG_DEVICE Float2 Unpacked(uint32_t pair) {
  if constexpr (type == DType::kBF16) {
    return {FloatOf(pair << 16), FloatOf(pair & 0xffff0000u)};
  } else {
    return {HalfToFloat(static_cast<uint16_t>(pair)),
            HalfToFloat(static_cast<uint16_t>(pair >> 16))};
  }
}
template <DType type>
KVG_DEVICE void MultiplyAdd(float (&c)[4], const Uint4& a, uint32_t b0, uint32_t b1) {
  const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[2] = {b0, b1};
  if constexpr (type == DType::kBF16) {
    MultiplyAddBf16(c, left, right);
  } else {
    MultiplyAddF16(c, left, right);
  }
}

KVG_DEVICE float RoundTo(DType type, float v) {
  if (type == DType::kF16) return HalfToFloat(FloatToHalf(v));
  if (type == DType::kBF16) return Bf16ToFloat(FloatToBf16(v));
  return v;
}

// What a raw product becomes, in this order: times AttendCall::factor, times the entry's scale,
// capped, plus the entry's bias. In log 2.
KVG_DEVICE_CALL float Capped(float cap, float score) { return cap * Tanh(score); }

// One row's running maximum moves.
struct Rebase {
  float max;    // to subtract: 0 while nothing was seen
  float scale;  // of what was summed before
  float shift;  // old maximum - new
};
KVG_DEVICE Rebase RebaseTo(float old_max, float new_max) {
  const float base = new_max == kNothing ? 0.0f : new_max;
  return {base, PowerOfTwo(old_max - base), old_max == kNothing ? 0.0f : old_max - base};
}

// Four scores of one row, of one lane, of one sixteenth: they become weights.
template <bool entropy>
KVG_DEVICE void Weigh(const Rebase& rebase, float& s0, float& s1, float& s2, float& s3, float& sum,
                      float& weighted) {
  const float d0 = s0 - rebase.max, d1 = s1 - rebase.max, d2 = s2 - rebase.max,
              d3 = s3 - rebase.max;
  s0 = PowerOfTwo(d0);
  s1 = PowerOfTwo(d1);
  s2 = PowerOfTwo(d2);
  s3 = PowerOfTwo(d3);
  if constexpr (entropy) {
    const auto term = [](float p, float d) { return p > 0.0f ? p * d : 0.0f; };
    weighted = Fma(Fma(sum, rebase.shift, weighted), rebase.scale,
                   (term(s0, d0) + term(s1, d1)) + (term(s2, d2) + term(s3, d3)));
  }
  sum = Fma(sum, rebase.scale, (s0 + s1) + (s2 + s3));
}

KVG_DEVICE float QuadSum(float v) {
  v = v + ShuffleXor(v, 1);
  return v + ShuffleXor(v, 2);
}
KVG_DEVICE float QuadMax(float v) {
  v = Most(v, ShuffleXor(v, 1));
  return Most(v, ShuffleXor(v, 2));
}

// `part` merges into `state`. Values: value = Fma(value, before, part's value * after).
struct MergeShares {
  float before, after;
};
// What of it follows from the maxima alone.
struct MergeStep {
  Rebase before, after;
  RowState part;
  float max;  // of the state then
};
KVG_DEVICE MergeStep StepOf(float max_before, const RowState& part) {
  const float max = Most(max_before, part.max);
  return {RebaseTo(max_before, max), RebaseTo(part.max, max), part, max};
}
KVG_DEVICE MergeShares Merge(RowState& state, const MergeStep& step) {
  const Rebase &a = step.before, &b = step.after;
  state.weighted = Fma(Fma(state.sum, a.shift, state.weighted), a.scale,
                       Fma(step.part.sum, b.shift, step.part.weighted) * b.scale);
  state.sum = Fma(state.sum, a.scale, step.part.sum * b.scale);
  state.max = step.max;
  return {a.scale, b.scale};
}
KVG_DEVICE MergeShares Merge(RowState& state, const RowState& part) {
  return Merge(state, StepOf(state.max, part));
}
KVG_DEVICE float Merged(float value, float part, const MergeShares& shares) {
  return Fma(value, shares.before, part * shares.after);
}

// Adding 0 turns -0 into +0: entries a row does not see may decide the sign of a zero sum.
KVG_DEVICE float Normalized(float value, const RowState& state) {
  return state.sum == 0.0f ? 0.0f : value * (1.0f / state.sum) + 0.0f;
}
KVG_DEVICE float LogSumExp(const RowState& state) {
  return state.sum == 0.0f ? kNothing : (state.max + Log2(state.sum)) * kLn2;
}
KVG_DEVICE float Entropy(const RowState& state) {
  if (state.sum == 0.0f) return 0.0f;
  const float entropy = (Log2(state.sum) - state.weighted / state.sum) * kLn2;
  return entropy > 0.0f ? entropy : entropy * 0.0f;
}

}  // namespace kvgauge::cuda
