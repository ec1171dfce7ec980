// SPDX-License-Identifier: Apache-2.0
// Rows times pages of 2, 3 or 4 bit codes (codec_layout.h), as templates over a vector type; see
// attention_tiles.h. Codes become numbers by a table in registers, right before they are
// multiplied; scales and zeros are folded into the rows, so no number is ever decoded to memory.
#pragma once

#include <type_traits>

#include "cpu/attention_kernels.h"
#include "cpu/codec_layout.h"

namespace kvgauge {

// T: float, or uint16_t for bf16.
template <class V, class T>
void Fold(const FoldArgs& args) {
  using F = typename V::F;
  const F middle = V::Set(args.middle);
  for (int r = 0; r < args.rows; ++r) {
    const float* in = args.a + r * args.a_stride;
    T* out = static_cast<T*>(args.folded) + r * args.folded_stride;
    F sum = V::Set(0.0f);
    for (int c = 0; c < args.steps; c += V::kLanes) {
      const F scale = V::LoadF16(args.scales + c), x = V::Load(in + c);
      F zero = V::Mul(scale, middle);
      if (args.zeros != nullptr) zero = V::Add(zero, V::LoadF16(args.zeros + c));
      sum = V::Fma(x, zero, sum);
      if constexpr (std::is_same_v<T, float>) {
        V::Store(out + c, V::Mul(x, scale));
      } else {
        V::StoreBf16Normal(out + c, V::Mul(x, scale));
      }
    }
    args.constants[r] = V::SumLanes(sum);
  }
}

// What codes become: numbers of one step, or bf16 pairs of two.
template <class V, bool kPairs>
struct CodeStep {
  using A = float;
  using Table = typename V::Table;
  static Table TableOf(const CodedProductArgs& args) { return V::LoadTable(args.table); }
};

template <class V>
struct CodeStep<V, true> {
  using A = uint16_t;
  using Table = typename V::Pairs;
  static Table TableOf(const CodedProductArgs& args) { return V::LoadPairs(args.bf16_table); }
};

// kRows rows times vectors [first_vector, first_vector + 4) of every step. One output element is
// one chain over the steps, then its constant.
//
// What comes next is fetched a little with every step: all at once would hold up the loads here
// until memory has answered.
template <class V, int kBits, bool kPairs, int kRows>
[[gnu::noinline]] void CodedTile(const CodedProductArgs& args, int row) {
  using F = typename V::F;
  using U = typename V::U;
  using Step = CodeStep<V, kPairs>;
  using A = typename Step::A;
  constexpr int kParts = kCodeLanes / V::kLanes;
  constexpr int kVectors = V::kTileVectors / kParts > 0 ? V::kTileVectors / kParts : 1;
  constexpr int kField = kBits == 3 ? 2 : kBits;
  constexpr int kSlots = 16 / kField;  // of a block
  const auto table = Step::TableOf(args);
  const char* next = args.next;
  const char* const next_end = next + (row == 0 ? args.next_bytes : 0);
  const int64_t fetch = (args.next_bytes + 64 * args.pairs - 1) / (64 * args.pairs) * 64;

  for (int v0 = 0; v0 < 4; v0 += kVectors) {
    float* out = args.out + row * args.out_stride + v0 * kCodeLanes;
    const A* a[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      a[v] = static_cast<const A*>(args.a[v0 + v]) + row * args.a_stride;
    }
    F sum[kRows][kVectors][kParts];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          sum[r][v][p] = args.accumulate
                             ? V::Load(out + r * args.out_stride + v * kCodeLanes + p * V::kLanes)
                             : V::Set(0.0f);
        }
      }
    }
    int slot = args.first_vector + v0;
    for (int pair = 0; pair < args.pairs; ++pair, slot += args.vectors) {
      const auto* block = static_cast<const char*>(args.codes) + slot / kSlots * kCodeBlockBytes;
      const auto* tops = static_cast<const char*>(args.top_codes) + slot / 16 * kCodeBlockBytes;
      const int shift = slot % kSlots * kField, top_shift = slot % 16;
      for (int64_t i = 0; i < fetch && next < next_end; i += 64, next += 64) {
        __builtin_prefetch(next, 0, 2);
      }
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) {
        U word = V::LoadU(block + p * 4 * V::kLanes);
        if (kBits != 4 || kVectors < 4) word = word >> shift;
        U top = {};
        if constexpr (kBits == 3) {
          // The top bit of slot 0 stands at bit 2, where it joins the others.
          top = V::LoadU(tops + p * 4 * V::kLanes);
          top = top_shift >= 2 ? top >> (top_shift - 2) : top << (2 - top_shift);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          U codes = word >> (v * kField);
          if constexpr (kBits == 3) codes = V::JoinLow2(codes, top >> v);
          if constexpr (kPairs) {
            const typename V::Pairs numbers = V::LookupPairs(table, codes);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              const A* x = a[v] + r * args.a_stride + 2 * pair;
              sum[r][v][p] = V::DotPairs(sum[r][v][p], V::SetPairs(x), numbers);
            }
          } else {
            U odd = word >> (16 + v * kField);
            if constexpr (kBits == 3) odd = V::JoinLow2(odd, top >> (16 + v));
            const F first = V::template Lookup<kBits>(table, codes);
            const F second = V::template Lookup<kBits>(table, odd);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              const A* x = a[v] + r * args.a_stride + 2 * pair;
              sum[r][v][p] = V::Fma(V::Set(x[0]), first, sum[r][v][p]);
              sum[r][v][p] = V::Fma(V::Set(x[1]), second, sum[r][v][p]);
            }
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F constant = V::Set(args.constants[v0 + v][row + r]);
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          V::Store(out + r * args.out_stride + v * kCodeLanes + p * V::kLanes,
                   V::Add(sum[r][v][p], constant));
        }
      }
    }
  }
}

template <class V, int kBits, bool kPairs>
void CodedProduct(const CodedProductArgs& args) {
  constexpr int kMost = V::kTileRows < 4 ? V::kTileRows : 4;
  const int tiles = (args.rows + kMost - 1) / kMost;
  int row = 0;
  for (int t = 0; t < tiles; ++t) {
    const int rows = (args.rows - row + tiles - t - 1) / (tiles - t);
    if (rows == 1) CodedTile<V, kBits, kPairs, 1>(args, row);
    if (rows == 2) CodedTile<V, kBits, kPairs, 2>(args, row);
    if constexpr (kMost > 2) {
      if (rows == 3) CodedTile<V, kBits, kPairs, 3>(args, row);
      if (rows == 4) CodedTile<V, kBits, kPairs, 4>(args, row);
    }
    row += rows;
  }
}

}  // namespace kvgauge
