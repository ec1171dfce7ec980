// SPDX-License-Identifier: Apache-2.0
// Rows times pages of 2, 3 or 4 bit codes (codec_layout.h), as templates over a vector type; see
// attention_tiles.h. Codes become numbers by a table in registers, right before they are
// multiplied; scales and zeros are folded into the rows, so no number is ever decoded to memory.
#pragma once

#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/codec/codec_layout.h"

namespace kvgauge {

template <class V>
void Fold(const FoldArgs& args) {
  using F = typename V::F;
  const F middle = V::Set(args.middle);
  for (int i = 0; i < args.groups * args.rows; ++i) {
    const int group = i / args.rows, r = i % args.rows;
    const int64_t scales_at = group * args.scale_stride;
    const float* in = args.a + r * args.a_stride;
    float* out =
        static_cast<float*>(args.folded) + group * args.group_stride + r * args.folded_stride;
    F sum = V::Set(0.0f);
    for (int c = 0; c < args.steps; c += V::kLanes) {
      const F scale = V::LoadF16(args.scales + scales_at + c), x = V::Load(in + c);
      F zero = V::Mul(scale, middle);
      if (args.zeros != nullptr) zero = V::Add(zero, V::LoadF16(args.zeros + scales_at + c));
      sum = V::Fma(x, zero, sum);
      V::Store(out + c, V::Mul(x, scale));
    }
    args.constants[i] = V::SumLanes(sum);
  }
}

// Four vectors of every step, and what is fetched while the first rows are multiplied.
struct CodedStrip {
  int first_vector;
  LineShare lines;
};

// Calls tile.Multiply<rows>(args, strip, row) for all strips and for tiles of at most kMost rows.
// steps: of a tile.
template <int kMost, class Tile>
[[gnu::always_inline]] inline void ForCodedTiles(const CodedProductArgs& args, int steps,
                                                 Tile tile) {
  const int tiles = (args.rows + kMost - 1) / kMost;
  const unsigned strips = static_cast<unsigned>(args.vectors) / 4;
  const unsigned lines = static_cast<unsigned>(args.next_bytes) / 64, share = lines / strips;
  const unsigned per_step = share / static_cast<unsigned>(steps);
  CodedStrip strip = {0, {args.next, share - per_step * static_cast<unsigned>(steps), per_step}};
  for (; strip.first_vector < args.vectors; strip.first_vector += 4) {
    if (strip.first_vector + 4 == args.vectors) strip.lines.first += lines - share * strips;
    int row = 0;
    for (int t = 0; t < tiles; ++t) {
      const int left = args.rows - row, parts = tiles - t;
      const int rows = parts == 1 ? left : (left + parts - 1) / parts;
      if (rows == 1) tile.template Multiply<1>(args, strip, row);
      if (rows == 2) tile.template Multiply<2>(args, strip, row);
      if constexpr (kMost > 2) {
        if (rows == 3) tile.template Multiply<3>(args, strip, row);
        if (rows == 4) tile.template Multiply<4>(args, strip, row);
      }
      row += rows;
    }
    strip.lines.next += share * 64;
  }
}

// kRows rows times a strip. One output element is one chain over the steps, then its constant.
template <class V, int kBits, int kRows>
[[gnu::noinline]] void CodedTile(const CodedProductArgs& args, const CodedStrip& strip, int row) {
  using F = typename V::F;
  using U = typename V::U;
  constexpr int kParts = kCodeLanes / V::kLanes;
  constexpr int kVectors = V::kTileVectors / kParts > 0 ? V::kTileVectors / kParts : 1;
  constexpr int kField = kBits == 3 ? 2 : kBits;
  constexpr int kSlots = 16 / kField;  // of a block
  const typename V::Table table = V::LoadTable(args.table);
  ByteFeed<V> feed(row == 0 ? strip.lines : LineShare{});

  for (int v0 = 0; v0 < 4; v0 += kVectors) {
    const int first_vector = strip.first_vector + v0;
    float* out = args.out + row * args.out_stride + first_vector * kCodeLanes;
    const float* a[kVectors];
    const float* constants[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int group = (first_vector + v) / args.group_vectors;
      a[v] = static_cast<const float*>(args.a) + group * args.group_stride + row * args.a_stride;
      constants[v] = args.constants + group * args.rows + row;
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
    int slot = first_vector;
    for (int pair = 0; pair < args.pairs; ++pair, slot += args.vectors) {
      const auto* block = args.codes + slot / kSlots * kCodeBlockBytes;
      const auto* tops = args.top_codes + slot / 16 * kCodeBlockBytes;
      const int shift = slot % kSlots * kField, top_shift = slot % 16;
      feed.Step();
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
          U odd = word >> (16 + v * kField);
          if constexpr (kBits == 3) odd = V::JoinLow2(odd, top >> (16 + v));
          const F first = V::template Lookup<kBits>(table, codes);
          const F second = V::template Lookup<kBits>(table, odd);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const float* x = a[v] + r * args.a_stride + 2 * pair;
            sum[r][v][p] = V::Fma(V::Set(x[0]), first, sum[r][v][p]);
            sum[r][v][p] = V::Fma(V::Set(x[1]), second, sum[r][v][p]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F constant = V::Set(constants[v][r]);
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          V::Store(out + r * args.out_stride + v * kCodeLanes + p * V::kLanes,
                   V::Add(sum[r][v][p], constant));
        }
      }
    }
  }
}

template <class V, int kBits>
struct CodedTiles {
  template <int kRows>
  [[gnu::always_inline]] void Multiply(const CodedProductArgs& args, const CodedStrip& strip,
                                       int row) const {
    CodedTile<V, kBits, kRows>(args, strip, row);
  }
};

template <class V, int kBits>
void CodedProduct(const CodedProductArgs& args) {
  constexpr int kParts = kCodeLanes / V::kLanes, kMost = V::kTileRows;
  constexpr int kVectors = V::kTileVectors / kParts > 0 ? V::kTileVectors / kParts : 1;
  ForCodedTiles<(kMost < 4 ? kMost : 4)>(args, args.pairs * (4 / kVectors), CodedTiles<V, kBits>());
}

}  // namespace kvgauge
