// SPDX-License-Identifier: Apache-2.0
// Attention over pages of 2, 3 or 4 bit codes, keys with ranges of channels and values with ranges
// of entries, as integers. Nothing is expanded: codes go from memory to registers, are spread to
// bytes, and are multiplied by tensor cores.
//
// A row times its scales becomes 16-bit integers in units of its largest number: 8 rows make the 16
// of a left operand, their high bytes rows g and their low bytes, signed too, rows g + 8. So a lane
// holds both sums of what it holds of a row. Integer sums are exact: their order is free, and a
// row's bits depend on the row alone. A row's zeros, and what its rounded numbers times the middle
// of codes are, go into a constant.
//
// A warp takes a page and 8 rows from keys to weighted values, all in registers: the lane that has
// a row's scores has its weights as they are multiplied. A block's warps take the pages of a span,
// which are merged in order in the end.
#include <cmath>

#include "cuda/attention_kernels.h"
#include "cuda/attention_values.h"

namespace kvgauge::cuda {
namespace {

constexpr int kPagesAtOnce = kSpanPages;  // one for each warp
constexpr int kRowsAtOnce = 8;

struct FixedArrays {
  const SpanUnit* units;
  int64_t first_unit;
  RowState* states;
  float* values;
  int value_stride, tile_rows;
  FixedPlan shared;
};

// What rounded numbers count, and what they are found with.
struct FixedUnit {
  float unit, inverse;
};
constexpr float kLargest = 127 * 256 + 127;
// Adding this rounds to an integer in the low bits, plus 128: the second byte is then the high one,
// and the first has its sign turned.
constexpr float kRounding = 0x1.8p23f + 128.0f;
constexpr uint32_t kRoundingBits = 0x4b400080u;

KVG_DEVICE FixedUnit UnitOf(float largest) {
  // What is too small to have an inverse is nothing.
  const bool nothing = largest < 1e-30f;
  return {nothing ? 0.0f : largest * (1.0f / kLargest), nothing ? 0.0f : kLargest / largest};
}

// A NaN is less than any number.
KVG_DEVICE float Larger(float a, float b) {
#ifdef __CUDACC__
  return fmaxf(a, b);
#else
  return std::fmax(a, b);
#endif
}
KVG_DEVICE float LargerSize(float a, float b) { return Larger(Abs(a), Abs(b)); }
KVG_DEVICE float QuadSize(float v) {
  v = LargerSize(v, ShuffleXor(v, 1));
  return LargerSize(v, ShuffleXor(v, 2));
}

// What is asked of a codec over and over, where the compiler sees that no store changes it.
struct FixedCodec {
  float middle, away;  // from a range's beginning, from code 0
  int zeros;           // begin so far behind the scales; 0: there are none

  KVG_MEMBER explicit FixedCodec(const CodecView& c)
      : middle(c.middle),
        away(static_cast<float>(c.shift) + c.middle),
        zeros(c.has_zeros ? c.scales : 0) {}
};
// Two ranges that follow each other. `zeros`: null: there are none.
struct RangePair {
  Float2 scale, offset;

  KVG_MEMBER RangePair(const uint16_t* scales, const uint16_t* zeros, float middle)
      : scale(Unpacked<DType::kF16>(*reinterpret_cast<const uint32_t*>(scales))) {
    Float2 zero = {0.0f, 0.0f};
    if (zeros != nullptr) {
      zero = Unpacked<DType::kF16>(*reinterpret_cast<const uint32_t*>(zeros));
    }
    offset = {Fma(scale.x, middle, zero.x), Fma(scale.y, middle, zero.y)};
  }
};

// Four pairs of numbers that become half of a left operand, as bytes of codes meet them.
template <int bits, bool keys>
KVG_DEVICE void PackFixed(const uint32_t (&rounded)[8], uint32_t (&planes)[4]) {
  const auto pack = [&](int a, int b, int c, int d, uint32_t& high, uint32_t& low) {
    const uint32_t near = PermuteBytes(rounded[a], rounded[b], 0x5140);
    const uint32_t far = PermuteBytes(rounded[c], rounded[d], 0x5140);
    low = PermuteBytes(near, far, 0x5410) ^ 0x80808080u;
    high = PermuteBytes(near, far, 0x7632);
  };
  if constexpr (bits == 2) {
    pack(0, 1, 4, 5, planes[0], planes[1]);
    pack(2, 3, 6, 7, planes[2], planes[3]);
  } else if constexpr (bits == 4 && !keys) {
    pack(0, 4, 1, 5, planes[0], planes[1]);
    pack(2, 6, 3, 7, planes[2], planes[3]);
  } else {
    pack(0, 2, 1, 3, planes[0], planes[1]);
    pack(4, 6, 5, 7, planes[2], planes[3]);
  }
}

// Four strings of codes (codec_view.h) as bytes. 3 and 4 bits: [2 string], places 0, 1, 4, 5, and
// places 2, 3, 6, 7; 4 bits of values: places 0, 2, 4, 6, and places 1, 3, 5, 7. 2 bits: [2 string
// + place], for strings 0 and 2: places p and 4 + p of it and of the next.
template <int bits, bool keys>
KVG_DEVICE void LoadBytes(const uint8_t* strings, uint32_t (&bytes)[8]) {
  if constexpr (bits == 4) {
    const Uint4 four = *reinterpret_cast<const Uint4*>(strings);
    const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t even = words[s] & 0x0f0f0f0fu, odd = words[s] >> 4 & 0x0f0f0f0fu;
      bytes[2 * s] = keys ? PermuteBytes(even, odd, 0x6240) : even;
      bytes[2 * s + 1] = keys ? PermuteBytes(even, odd, 0x7351) : odd;
    }
  } else if constexpr (bits == 2) {
    const Uint2 four = *reinterpret_cast<const Uint2*>(strings);
    const uint32_t words[2] = {four.x, four.y};
#pragma unroll
    for (int i = 0; i < 8; ++i) bytes[i] = words[i / 4] >> i % 4 * 2 & 0x03030303u;
  } else {
    const auto* const words = reinterpret_cast<const uint32_t*>(strings);
    const uint32_t a = words[0], b = words[1], c = words[2];
    const uint32_t four[4] = {a, a >> 24 | b << 8, b >> 16 | c << 16, c >> 8};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      // Places 0 to 3 in the lower half, 4 to 7 in the upper.
      const uint32_t halves = (four[s] & 0xffffu) | (four[s] << 4 & 0xffff0000u);
      bytes[2 * s] = (halves & 0x00070007u) | (halves << 5 & 0x07000700u);
      bytes[2 * s + 1] = (halves >> 6 & 0x00070007u) | (halves >> 1 & 0x07000700u);
    }
  }
}

// The sum that both bytes of a row's numbers make.
KVG_DEVICE float Joined(int32_t high, int32_t low) { return static_cast<float>(high * 256 + low); }

// What is added to a row's products: `sum` of the row times zeros, less the `count` rounded numbers
// of each of a row's four lanes times the middle of codes.
KVG_DEVICE float ConstantOf(const FixedCodec& c, float largest, float unit, float sum,
                            uint32_t rounded, int count) {
  auto total = static_cast<int32_t>(rounded - kRoundingBits * static_cast<uint32_t>(count));
  total = total + ShuffleXor(total, 1);
  total = total + ShuffleXor(total, 2);
  const float constant = Fma(static_cast<float>(total), -c.away * unit, QuadSum(sum));
  // A NaN that `largest` has lost is in the sum.
  return largest < FloatOf(0x7f800000u) ? constant : FloatOf(0x7fc00000u);
}

// Products of 8 rows with the keys of a page: of this lane's row, entries 8 n + 2 t and the next.
// queries: as PackQueries leaves them, of the first half of their 16 rows or one word on.
template <DType type, int bits, int quads>
KVG_DEVICE void MultiplyFixedKeys(const CodecView& c, const uint8_t* page, const uint32_t* queries,
                                  float (&scores)[8][2]) {
  const FixedCodec codec(c);
  const int dims = c.dim, chunks = dims / 16, lane = Lane(), sixteenths = c.group / 16;
  const auto* scales = reinterpret_cast<const uint16_t*>(page + CodeBytes(c)) + lane % 4 * 2;
#pragma unroll 1
  for (int first = 0; first < kSixteenths; first += sixteenths, scales += dims) {
    const uint16_t* const zeros = codec.zeros == 0 ? nullptr : scales + codec.zeros;
    float products[quads * 16], most = 0.0f, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < quads * 16; i += 2) {
      products[i] = products[i + 1] = 0.0f;
      const int chunk = i / 4;
      if (quads > 2 && chunk >= chunks) continue;
      const int dim = chunk * 16 + i % 4 * 4;
      const Float2 q = Unpacked<type>(queries[(chunk * kWarp + lane) * 4 + i % 4]);
      const RangePair range(scales + dim, zeros == nullptr ? nullptr : zeros + dim, codec.middle);
      products[i] = q.x * range.scale.x;
      products[i + 1] = q.y * range.scale.y;
      most = LargerSize(LargerSize(most, products[i]), products[i + 1]);
      sum = Fma(q.y, range.offset.y, Fma(q.x, range.offset.x, sum));
    }
    most = QuadSize(most);
    const FixedUnit fixed = UnitOf(most);
    uint32_t planes[quads * 2][4], total = 0;
#pragma unroll
    for (int step = 0; step < quads * 2; ++step) {
      uint32_t rounded[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        rounded[i] = BitsOf(Fma(products[step * 8 + i], fixed.inverse, kRounding));
        total += rounded[i];
      }
      PackFixed<bits, true>(rounded, planes[step]);
    }
    const float constant = ConstantOf(codec, most, fixed.unit, sum, total, quads * 16);
#pragma unroll
    for (int s = 0; s < kSixteenths; ++s) {
      if (s < first || s >= first + sixteenths) continue;
      const uint8_t* const strings = page + (s * kWarp + lane) * chunks * bits;
      int32_t sums[2][4] = {};
#pragma unroll
      for (int quad = 0; quad < quads; ++quad) {
        if (quads > 2 && quad * 4 >= chunks) continue;
        uint32_t bytes[8];
        LoadBytes<bits, true>(strings + quad * 4 * bits, bytes);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          // Bytes 4 step + 2 n and on are neighbours where there are 2 bits.
          const int step = n / 2, block = n % 2;
          const int near = bits == 2 ? step * 4 + block * 2 : step * 4 + block;
          const uint32_t codes[2] = {bytes[near], bytes[bits == 2 ? near + 1 : near + 2]};
          MultiplyAddBytes(sums[block], planes[quad * 2 + step], codes);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t(&both)[4] = sums[i / 2];
        scores[s * 2 + i / 2][i % 2] =
            Fma(Joined(both[i % 2], both[2 + i % 2]), fixed.unit, constant);
      }
    }
  }
}

// Weights, laid out as the scores above, times the values of a page: of this lane's row, dims 2 t
// and the next of every 8, to `to`.
template <int bits>
KVG_DEVICE void MultiplyFixedValues(const CodecView& c, const uint8_t* page,
                                    const float (&weights)[8][2], float* to) {
  const FixedCodec codec(c);
  const int lane = Lane(), blocks = c.width / 16, of_group = (c.group + 15) / 16;
  const auto* scales = reinterpret_cast<const uint16_t*>(page + CodeBytes(c)) + lane % 4 * 2;
#pragma unroll 1
  for (int first = 0; first < blocks; first += of_group, scales += kPageEntries) {
    const uint16_t* const zeros = codec.zeros == 0 ? nullptr : scales + codec.zeros;
    float products[16], most = 0.0f, sum = 0.0f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const RangePair range(scales + n * 8, zeros == nullptr ? nullptr : zeros + n * 8,
                            codec.middle);
      products[2 * n] = weights[n][0] * range.scale.x;
      products[2 * n + 1] = weights[n][1] * range.scale.y;
      most = LargerSize(LargerSize(most, products[2 * n]), products[2 * n + 1]);
      sum = Fma(weights[n][1], range.offset.y, Fma(weights[n][0], range.offset.x, sum));
    }
    most = QuadSize(most);
    const FixedUnit fixed = UnitOf(most);
    uint32_t planes[2][4], total = 0;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t rounded[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        // Which block of 8 entries: two steps take turns in the four of 32 where there are 2 bits.
        const int n = bits == 2 ? i / 4 * 4 + step * 2 + i / 2 % 2 : step * 4 + i / 2;
        rounded[i] = BitsOf(Fma(products[2 * n + i % 2], fixed.inverse, kRounding));
        total += rounded[i];
      }
      PackFixed<bits, false>(rounded, planes[step]);
    }
    const float constant = ConstantOf(codec, most, fixed.unit, sum, total, 16);
    const int end = Least(first + of_group, blocks);
#pragma unroll 2
    for (int block = first; block < end; ++block) {
      uint32_t bytes[8];
      LoadBytes<bits, false>(page + (block * kWarp + lane) * 4 * bits, bytes);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int32_t sums[4] = {};
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const uint32_t codes[2] = {bytes[half * 4 + step * 2], bytes[half * 4 + step * 2 + 1]};
          MultiplyAddBytes(sums, planes[step], codes);
        }
        *reinterpret_cast<Float2*>(to + block * 16 + half * 8 + lane % 4 * 2) = {
            Fma(Joined(sums[0], sums[2]), fixed.unit, constant),
            Fma(Joined(sums[1], sums[3]), fixed.unit, constant)};
      }
    }
  }
}

// A page and the rows of `tile`, at most 8: their states and weighted values.
template <DType type, int quads>
KVG_DEVICE void TakeFixedPage(const AttendCall& call, const SegmentView& segment,
                              const RowTile& tile, bool all_seen, int page, const uint32_t* queries,
                              RowState* states, float* values, int value_stride) {
  const CodecView &key_codec = *segment.keys.codec, &value_codec = *segment.values.codec;
  const uint8_t* const keys = segment.keys.coded[page].codes;
  float scores[8][2];
  if (key_codec.bits == 4) {
    MultiplyFixedKeys<type, 4, quads>(key_codec, keys, queries, scores);
  } else if (key_codec.bits == 2) {
    MultiplyFixedKeys<type, 2, quads>(key_codec, keys, queries, scores);
  } else {
    MultiplyFixedKeys<type, 3, quads>(key_codec, keys, queries, scores);
  }
  float max = kNothing;  // of numbers: a NaN will be in the sum
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
    float(&near)[2] = scores[2 * s];
    float(&far)[2] = scores[2 * s + 1];
    // Rows g + 8 are none.
    float own[1][2][4] = {{{near[0], near[1], 0.0f, 0.0f}, {far[0], far[1], 0.0f, 0.0f}}};
    FinishScores(call, segment, tile, 0, all_seen, page, s, own);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      near[i] = own[0][0][i];
      far[i] = own[0][1][i];
      max = Larger(Larger(max, near[i]), far[i]);
    }
  }
  max = QuadMax(max);
  const Rebase rebase = {max == kNothing ? 0.0f : max, 1.0f, 0.0f};
  float sum = 0.0f, weighted = 0.0f;
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
    float(&near)[2] = scores[2 * s];
    float(&far)[2] = scores[2 * s + 1];
    if (call.entropy) {
      Weigh<true>(rebase, near[0], near[1], far[0], far[1], sum, weighted);
    } else {
      Weigh<false>(rebase, near[0], near[1], far[0], far[1], sum, weighted);
    }
    if (segment.value_scale == nullptr) continue;
    float own[2][4] = {{near[0], near[1], 0.0f, 0.0f}, {far[0], far[1], 0.0f, 0.0f}};
    ScaleByValues(segment, page, s, own);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      near[i] = own[0][i];
      far[i] = own[1][i];
    }
  }
  sum = QuadSum(sum);
  weighted = QuadSum(weighted);
  if (Lane() % 4 == 0) states[Lane() / 4] = {max, sum, weighted, 0.0f};
  const uint8_t* const codes = segment.values.coded[page].codes;
  float* const to = values + Lane() / 4 * value_stride;
  if (value_codec.bits == 4) {
    MultiplyFixedValues<4>(value_codec, codes, scores, to);
  } else if (value_codec.bits == 2) {
    MultiplyFixedValues<2>(value_codec, codes, scores, to);
  } else {
    MultiplyFixedValues<3>(value_codec, codes, scores, to);
  }
}

// The pages of one row become one state: a lane for each page finds what its page counts, relative
// to the largest score of all, and values are added page by page. By a warp.
KVG_DEVICE void MergePages(const RowState* states, const float* values, int value_stride,
                           int out_stride, RowState* state_out, float* out) {
  static_assert(kPagesAtOnce == 8);
  const auto of_pages = [](float v, auto fold) {
#pragma unroll
    for (int mask = 1; mask < kPagesAtOnce; mask *= 2) v = fold(v, ShuffleXor(v, mask));
    return v;
  };
  const auto add = [](float a, float b) { return a + b; };
  const RowState own = states[Lane() % kPagesAtOnce * kRowsAtOnce];
  const float max = of_pages(own.max, [](float a, float b) { return Most(a, b); });
  const bool counts = own.sum != 0.0f;  // else the page has nothing that the row sees
  const Rebase rebase = RebaseTo(own.max, max);
  const float share = rebase.scale;
  const RowState state = {
      max, of_pages(counts ? own.sum * share : 0.0f, add),
      of_pages(counts ? Fma(own.sum, rebase.shift, own.weighted) * share : 0.0f, add), 0.0f};
  const uint32_t pages = Ballot(counts);
#pragma unroll 1
  for (int begin = 0; begin < out_stride; begin += 2 * kWarp) {
    const int dim = begin + Lane() * 2;
    Float2 sums = {0.0f, 0.0f};
#pragma unroll
    for (int page = 0; page < kPagesAtOnce; ++page) {
      const float counted = Shuffle(share, page);
      if ((pages >> page & 1u) == 0 || dim >= out_stride) continue;
      const Float2 v =
          *reinterpret_cast<const Float2*>(values + page * kRowsAtOnce * value_stride + dim);
      sums = {Fma(v.x, counted, sums.x), Fma(v.y, counted, sums.y)};
    }
    if (dim < out_stride) *reinterpret_cast<Float2*>(out + dim) = sums;
  }
  if (Lane() == 0) *state_out = state;
}

// quads: of 64 dims of keys. Above 2 more blocks would not find the shared memory.
template <DType type, int quads>
KVG_KERNEL(kPagesAtOnce* kWarp, quads > 2 ? 2 : 3)
FixedSpanKernel(AttendCall call, AttendTables tables, FixedArrays arrays) {
  KVG_DYNAMIC_SHARED(unsigned char, shared);
  auto* const queries = reinterpret_cast<Uint4*>(shared);
  auto* const states = reinterpret_cast<RowState*>(shared + arrays.shared.states);
  auto* const values = reinterpret_cast<float*>(shared + arrays.shared.values);
  const int value_stride = arrays.shared.value_stride;
  const SpanUnit unit = arrays.units[BlockX()];
  const SegmentView& segment = tables.segments[unit.segment];
  const RowTile tile = tables.tiles[unit.tile];
  const int64_t first_row = (unit.place - arrays.first_unit) * arrays.tile_rows;
  const int chunks = (call.key_dim + 15) / 16, warp = WarpIndex();
  const int page = unit.span * kSpanPages + warp;
  RowTile part = tile;
  for (int r = 0; r < tile.count; r += 16) {
    part.r0 = tile.r0 + r;
    part.count = Least(16, tile.count - r);
    PackQueries<type, 1>(call, part, queries + r / 16 * chunks * kWarp);
  }
  for (int r = 0; r < tile.count; r += kRowsAtOnce) {
    SyncBlock();
    part.r0 = tile.r0 + r;
    part.count = Least(kRowsAtOnce, tile.count - r);
    const bool is_page = page < Least((unit.span + 1) * kSpanPages, segment.fixed_pages);
    PageSight sight = {false, false};
    if (is_page) sight = SightOf(call, segment, part, part.count, page);
    if (sight.any) {
      const auto* const own = reinterpret_cast<const uint32_t*>(queries + r / 16 * chunks * kWarp);
      TakeFixedPage<type, quads>(call, segment, part, sight.all, page, own + r / 8 % 2,
                                 states + warp * kRowsAtOnce,
                                 values + warp * kRowsAtOnce * value_stride, value_stride);
    } else if (Lane() < kRowsAtOnce) {
      states[warp * kRowsAtOnce + Lane()] = {kNothing, 0.0f, 0.0f, 0.0f};
    }
    SyncBlock();
    if (warp >= part.count) continue;
    const int64_t row = first_row + r + warp;
    MergePages(states + warp, values + warp * value_stride, value_stride, arrays.value_stride,
               arrays.states + row, arrays.values + row * arrays.value_stride);
  }
}

}  // namespace

FixedPlan FixedShared(int key_dim, int value_dim, int row_tiles) {
  constexpr int kStates = kPagesAtOnce * kRowsAtOnce;
  FixedPlan plan = {};
  plan.states = (key_dim + 15) / 16 * 512 * row_tiles;
  plan.values = plan.states + kStates * static_cast<int>(sizeof(RowState));
  // 8 rows of a page are written at once: each begins 8 banks behind the one before.
  plan.value_stride = (value_dim + 31) / 32 * 32 + 8;
  plan.total = plan.values + kStates * plan.value_stride * 4;
  return plan;
}

void FixedSpans(const AttendCall& call, const AttendTables& tables, const SpanShape& shape,
                const SpanUnit* units, int64_t count, int64_t first_unit, RowState* states,
                float* values, Stream stream) {
  const FixedPlan plan = FixedShared(call.key_dim, call.value_dim, shape.row_tiles);
  const FixedArrays arrays = {
      units, first_unit, states, values, shape.value_stride, shape.row_tiles * 16, plan};
  const LaunchShape launch = {
      .grid_x = count, .threads = kPagesAtOnce * kWarp, .shared_bytes = plan.total};
  const int quads = (call.key_dim + 63) / 64;
  const auto run = [&](auto one, auto two, auto four) {
    if (quads == 1) {
      KVG_LAUNCH(one, launch, stream, call, tables, arrays);
    } else if (quads == 2) {
      KVG_LAUNCH(two, launch, stream, call, tables, arrays);
    } else {
      KVG_LAUNCH(four, launch, stream, call, tables, arrays);
    }
  };
  if (shape.dtype == DType::kF16) {
    return run(&FixedSpanKernel<DType::kF16, 1>, &FixedSpanKernel<DType::kF16, 2>,
               &FixedSpanKernel<DType::kF16, 4>);
  }
  run(&FixedSpanKernel<DType::kBF16, 1>, &FixedSpanKernel<DType::kBF16, 2>,
      &FixedSpanKernel<DType::kBF16, 4>);
}

}  // namespace kvgauge::cuda
