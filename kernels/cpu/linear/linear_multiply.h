// SPDX-License-Identifier: Apache-2.0
// LinearKernels over the `Panels` of an instruction set. Included by one file per instruction set,
// after its panel_<isa>.h; in an unnamed namespace for the reason given in panel.h.
#pragma once

#include "cpu/linear/block_coded.h"
#include "cpu/linear/block_panel.h"
#include "cpu/linear/linear_finish.h"
#include "cpu/linear/linear_kernels.h"
#include "cpu/linear/linear_transpose.h"
#include "cpu/linear/panel.h"
#include "cpu/linear/rounded_rows.h"

namespace kvgauge {
namespace {

// How far ahead of a panel that is read once memory is asked for.
constexpr int64_t kPrefetchBytes = 4096;
// From here on a 16-bit panel block is widened to f32 once rather than in every register tile.
// AVX-512 converts at full rate beside the products on some processors, so only where there are
// enough rows to pay for it on any.
template <class V>
constexpr int64_t WidenRows() {
  return V::kLanes == 16 ? 33 : kPanelTileRows + 1;
}

template <class Format>
constexpr bool IsWidening() {
  return sizeof(typename Format::A) == 4 && sizeof(typename Format::B) == 2;
}

// Tiles of more rows do not wait for their panel: what they fetch ahead would only be in the way.
constexpr int64_t kRowsThatWait = 64;

// Bytes of a panel that all rows are multiplied by before the next ones. Where few rows wait for
// memory, short blocks of tiles stay near, and leave less to be read late where a thread begins.
template <class Format>
constexpr int64_t BlockBytes(const PanelProduct& p) {
  if constexpr (requires { Format::kWaitingBlockBytes; }) {
    if (p.rows <= kRowsThatWait && p.sums == nullptr) return Format::kWaitingBlockBytes;
  }
  return Format::kBlockBytes;
}

// LinearKernels::grouped_k of a format.
template <class Format>
constexpr int64_t GroupedK() {
  if constexpr (requires { Format::kGroupedK; }) return Format::kGroupedK;
  return 0;
}

// block[k][64] f32 of `steps` steps.
template <class Format>
inline void WidenBlock(const uint16_t* panel, int64_t panel_stride, int64_t steps, float* block) {
  using V = typename Format::Vec;
  for (int64_t s = 0; s < steps; ++s) {
    const uint16_t* from = panel + s * panel_stride;
    V::Prefetch(from + kPrefetchBytes / 2);
    V::Prefetch(from + kPrefetchBytes / 2 + 32);
    float* to = block + s * Format::kStepK * kPanelColumns;
    for (int64_t c = 0; c < kPanelColumns; c += V::kLanes) {
      if constexpr (Format::kStepK == 1) {
        V::Store(to + c, V::LoadF16(from + c));
      } else {
        V::Store(to + c, V::LoadFirst(from + 2 * c));
        V::Store(to + kPanelColumns + c, V::LoadSecond(from + 2 * c));
      }
    }
  }
}

template <class Panels, class Format>
void Multiply(const PanelProduct& p) {
  [[maybe_unused]] const typename Panels::ThreadScope scope;
  using A = typename Format::A;
  using B = typename Format::B;
  using V = typename Panels::Vec;
  constexpr int64_t kStepBytes = kPanelColumns * Format::kStepK * int64_t{sizeof(B)};
  const int64_t steps = (p.k + Format::kStepK - 1) / Format::kStepK;
  const bool dense = p.panel_stride == kPanelColumns * Format::kStepK;
  const bool widen = IsWidening<Format>() && p.rows >= WidenRows<V>();
  const bool once = p.rows <= Format::kOnePassRows;
  // A panel that is read once is one block, and what is read next is not far.
  static_assert(Format::kBlockBytes <= kWidenedFloats * int64_t{sizeof(float)});
  constexpr int64_t kWideStepBytes = kPanelColumns * Format::kStepK * int64_t{sizeof(float)};
  const int64_t block =
      once ? steps : BlockBytes<Format>(p) / (widen ? kWideStepBytes : kStepBytes);
  const int64_t ahead = once ? kPrefetchBytes : block * kStepBytes;
  // Nothing to do but to store, once: the sums run in the output itself. Not if they were to be
  // reloaded from there: output rows are often a power of two apart and compete for cache sets.
  const bool plain = steps <= block && p.alpha == 1.0f && p.bias == nullptr && !p.add &&
                     p.columns == kPanelColumns && p.sums == nullptr;
  float* const own = p.sums != nullptr ? p.sums : p.scratch + kWidenedFloats;
  float* const sums = plain ? p.out : own;
  const int64_t sums_stride = plain ? p.out_stride : kPanelColumns;
  PanelOperands<Format> q{.a = static_cast<const A*>(p.a),
                          .a_stride = p.a_stride,
                          .panel = static_cast<const B*>(p.panel),
                          .panel_stride = p.panel_stride,
                          .acc = sums,
                          .acc_stride = sums_stride};
  const int64_t begin = p.begin / Format::kStepK;
  q.a += p.begin;
  q.panel += begin * q.panel_stride;
  for (int64_t done = begin; done == 0 || done < steps; done += q.steps) {
    q.steps = steps - done < block ? steps - done : block;
    q.resume = done > 0;
    if constexpr (IsWidening<Format>()) {
      if (widen) {
        WidenBlock<Format>(q.panel, q.panel_stride, q.steps, p.scratch);
        using Wide = typename Panels::F32;
        PanelRows<Wide>({.a = q.a,
                         .a_stride = q.a_stride,
                         .panel = p.scratch,
                         .panel_stride = kPanelColumns,
                         .steps = q.steps * Format::kStepK,
                         .acc = sums,
                         .acc_stride = sums_stride,
                         .resume = q.resume},
                        p.rows);
      }
    }
    if (!widen) {
      q.prefetch =
          dense && q.panel != nullptr ? reinterpret_cast<const char*>(q.panel) + ahead : nullptr;
      if (GroupedK<Format>() > 0 && (p.sums != nullptr || p.rows > kRowsThatWait)) {
        q.prefetch = p.next;
      }
      PanelRows<Format>(q, p.rows);
    }
    q.a += q.steps * Format::kStepK;
    q.panel += q.steps * q.panel_stride;
    if (steps == 0) break;
  }
  if (!plain && p.last) Finish<V>(p, sums);
}

// Conversions of a row: whole vectors in place, the rest through a padded copy, so that every
// element takes the same instructions.
template <class V, void (*kStore)(uint16_t*, typename V::F)>
void Narrow(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) kStore(to + i, V::Load(from + i));
  if (i == count) return;
  float tail[V::kLanes] = {};
  uint16_t bits[V::kLanes];
  std::memcpy(tail, from + i, static_cast<size_t>(count - i) * sizeof(float));
  kStore(bits, V::Load(tail));
  std::memcpy(to + i, bits, static_cast<size_t>(count - i) * sizeof(uint16_t));
}

template <class V, typename V::F (*kLoad)(const uint16_t*)>
void Widen(const uint16_t* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::Store(to + i, kLoad(from + i));
  if (i == count) return;
  uint16_t bits[V::kLanes] = {};
  float tail[V::kLanes];
  std::memcpy(bits, from + i, static_cast<size_t>(count - i) * sizeof(uint16_t));
  V::Store(tail, kLoad(bits));
  std::memcpy(to + i, tail, static_cast<size_t>(count - i) * sizeof(float));
}

// What a format of blocks has by the type that its numbers are rounded to.
#define KVG_BLOCK_KERNELS(kernel, of, format)                                                   \
  {                                                                                             \
    kernel<of, DType::kF32, BlockFormat::format>, kernel<of, DType::kF16, BlockFormat::format>, \
        kernel<of, DType::kBF16, BlockFormat::format>                                           \
  }
#define KVG_ALL_BLOCK_KERNELS(kernel, of)                                        \
  {                                                                              \
    KVG_BLOCK_KERNELS(kernel, of, kQ80), KVG_BLOCK_KERNELS(kernel, of, kQ40),    \
        KVG_BLOCK_KERNELS(kernel, of, kQ4K), KVG_BLOCK_KERNELS(kernel, of, kQ6K) \
  }

template <class Panels>
const LinearKernels& LinearKernelsOf() {
  using V = typename Panels::Vec;
  static constexpr LinearKernels kKernels = {
      .multiply = {Multiply<Panels, typename Panels::F32>, Multiply<Panels, typename Panels::F16>,
                   Multiply<Panels, typename Panels::Bf16>},
      .multiply_blocks = KVG_ALL_BLOCK_KERNELS(MultiplyBlocks, Panels),
      .multiply_coded = {MultiplyCoded<V, BlockFormat::kQ80>, MultiplyCoded<V, BlockFormat::kQ40>,
                         MultiplyCoded<V, BlockFormat::kQ4K>, MultiplyCoded<V, BlockFormat::kQ6K>},
      .code_block = CodeBlock<V>,
      .largest_bits = LargestBits,
      .span_bits = BitsOfSpan,
      .round_codes = {RoundCodes<V, DType::kF32>, RoundCodes<V, DType::kF16>,
                      RoundCodes<V, DType::kBF16>},
      .floats_of_blocks = KVG_ALL_BLOCK_KERNELS(FloatsOfBlocks, V),
      .bf16_left = sizeof(typename Panels::Bf16::A) == 2,
      .grouped_k = GroupedK<typename Panels::Bf16>(),
      .blocks_by_column = kTakesColumns<Panels>,
      .transpose = Transpose<V>,
      .transpose_rows = TransposeRowsOf<V>(),
      .f16_to_f32 = Widen<V, V::LoadF16>,
      .bf16_to_f32 = Widen<V, V::LoadBf16>,
      .f32_to_f16 = Narrow<V, V::StoreF16>,
      .f32_to_bf16 = Narrow<V, V::StoreBf16>,
  };
  return kKernels;
}

#undef KVG_ALL_BLOCK_KERNELS
#undef KVG_BLOCK_KERNELS

template <class Set>
void ForBlockFormats(Set set) {
  set.template operator()<BlockFormat::kQ80>();
  set.template operator()<BlockFormat::kQ40>();
  set.template operator()<BlockFormat::kQ4K>();
  set.template operator()<BlockFormat::kQ6K>();
}

// The next two turn the kernels of one instruction set into those of another whose vectors are the
// same: the rest need not be compiled again.
template <class Panels>
void SetBf16Products(LinearKernels& kernels) {
  constexpr auto kBf16 = static_cast<size_t>(DType::kBF16);
  kernels.multiply[kBf16] = Multiply<Panels, typename Panels::Bf16>;
  ForBlockFormats([&]<BlockFormat kFormat>() {
    kernels.multiply_blocks[static_cast<size_t>(kFormat)][kBf16] =
        MultiplyBlocks<Panels, DType::kBF16, kFormat>;
  });
  kernels.bf16_left = sizeof(typename Panels::Bf16::A) == 2;
  kernels.grouped_k = GroupedK<typename Panels::Bf16>();
  kernels.blocks_by_column = kTakesColumns<Panels>;
}

template <class V>
void SetCodedProducts(LinearKernels& kernels) {
  ForBlockFormats([&]<BlockFormat kFormat>() {
    kernels.multiply_coded[static_cast<size_t>(kFormat)] = MultiplyCoded<V, kFormat>;
  });
}

}  // namespace
}  // namespace kvgauge
