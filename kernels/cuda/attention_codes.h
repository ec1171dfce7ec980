// SPDX-License-Identifier: Apache-2.0
// Device functions: pages of codes as operands of tensor cores. Codes are expanded to 16-bit
// numbers in shared memory, where they lie as those of a 16-bit page do (page_layout.h), and are
// multiplied as such.
//
// Keys take two pages, the second of which has what the first rounds away. Those whose ranges run
// over entries are expanded as distances from the middle of a range; what the middles add to a
// score is summed in f32. So what a score moves by does not depend on how loud a constant a channel
// carries.
#pragma once

#include "cuda/attention_values.h"

namespace kvgauge::cuda {

// Where a block's expanded pages lie.
struct ExpandedPages {
  Uint4* keys;  // [kKeyParts] pages
  Uint4* values;
  Float2* key_ranges;
  Float2* value_ranges;
};
KVG_DEVICE ExpandedPages PagesOf(unsigned char* shared, const SharedPlan& plan) {
  return {reinterpret_cast<Uint4*>(shared + plan.keys),
          reinterpret_cast<Uint4*>(shared + plan.values),
          reinterpret_cast<Float2*>(shared + plan.key_ranges),
          reinterpret_cast<Float2*>(shared + plan.value_ranges)};
}

KVG_DEVICE bool KeysAsCodes(const SegmentView& segment, int page) {
  return segment.narrow_codes && page * kPageEntries < segment.keys.coded_entries;
}
KVG_DEVICE bool ValuesAsCodes(const SegmentView& segment, int page) {
  return segment.narrow_codes && page * kPageEntries < segment.values.coded_entries;
}
// Whether a page's keys are expanded to f32, and so met by expanded queries.
template <DType type>
KVG_DEVICE bool KeysAsNumbers(const SegmentView& segment, int page) {
  return !KeysAsTheyLie<type>(segment, page) && !KeysAsCodes(segment, page);
}

// A number is scale * (code - middle) + offset. How many such ranges a page has, and whose is
// whose.
KVG_DEVICE int RangeCount(const CodecView& c) { return c.range_of_dims ? c.dim : c.scales; }
KVG_DEVICE int RangeIndex(const CodecView& c, int entry, int dim) {
  return c.range_of_dims ? dim : ScaleIndex(c, entry, dim);
}
KVG_DEVICE bool RunsOverEntries(const CodecView& c) { return c.range_of_dims || !c.by_token; }

// Ranges of a page as {scale, offset}. By all threads.
KVG_DEVICE void ExpandRanges(const CodecView& c, const uint8_t* codes, Float2* ranges) {
  const float middle = c.middle;
  for (int i = Thread(); i < RangeCount(c); i += BlockThreads()) {
    if (c.range_of_dims && !c.fixed_range) {
      ranges[i] = {FixedScale(c, i), 0.0f};
      continue;
    }
    const CodeRangeOf range = c.fixed_range ? FixedRange(c, i) : StoredRange(c, codes, i);
    const float zero = c.fixed_range || c.has_zeros ? range.zero : 0.0f;
    ranges[i] = {range.scale, middle == 0.0f ? zero : Fma(range.scale, middle, zero)};
  }
}

// What the middles of ranges add to the scores of these 16 entries is summed apart.
KVG_DEVICE bool MiddlesApart(const CodecView& c, int coded_entries, int page, int sixteenth) {
  return RunsOverEntries(c) && page * kPageEntries + sixteenth * 16 + 16 <= coded_entries;
}

// What codes count.
enum class CodeKind { kSteps, kLevels, kFloat8 };
KVG_DEVICE CodeKind KindOf(const CodecView& c) {
  if (c.kind == KvCodecKind::kFp8E4M3 || c.kind == KvCodecKind::kFp8E5M2) return CodeKind::kFloat8;
  return c.has_levels ? CodeKind::kLevels : CodeKind::kSteps;
}
struct CodeNumbers {
  const float* levels;
  Float8Form float8;
  float less;
};
KVG_DEVICE CodeNumbers NumbersOf(const CodecView& c) {
  return {c.levels, FormOfFloat8(c.kind), static_cast<float>(c.shift) + c.middle};
}
template <CodeKind kind>
KVG_DEVICE float NumberOf(const CodeNumbers& numbers, uint32_t code) {
  if constexpr (kind == CodeKind::kFloat8) {
    return FromFloat8(numbers.float8, static_cast<int>(code));
  } else if constexpr (kind == CodeKind::kLevels) {
    return numbers.levels[code];
  } else {
    // The code in the last bits of 2^23, which is faster than a conversion.
    return (FloatOf(0x4b000000u | code) - 8388608.0f) - numbers.less;
  }
}

// A string of 8 codes: the first four places and the last four.
struct CodeBits {
  uint32_t near, far;
};
KVG_DEVICE CodeBits LoadString(const uint8_t* at, int bits) {
  if (bits == 4) {
    const uint32_t both = *reinterpret_cast<const uint32_t*>(at);
    return {both & 0xffffu, both >> 16};
  }
  if (bits == 2) {
    const uint32_t both = *reinterpret_cast<const uint16_t*>(at);
    return {both & 0xffu, both >> 8};
  }
  if (bits == 8) {
    const Uint2 both = *reinterpret_cast<const Uint2*>(at);
    return {both.x, both.y};
  }
  uint64_t all = 0;
  for (int b = 0; b < bits; ++b) all |= static_cast<uint64_t>(at[b]) << 8 * b;
  return {static_cast<uint32_t>(all & ((uint64_t{1} << 4 * bits) - 1)),
          static_cast<uint32_t>(all >> 4 * bits)};
}

// Eight numbers to where they are multiplied; of keys also what is rounded away, a page behind.
template <DType type, bool keys>
KVG_DEVICE void StoreOperand(const float (&v)[8], int64_t page_size, Uint4* to) {
  uint32_t near[4], rest[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    near[p] = Pack<type>(v[2 * p], v[2 * p + 1]);
    if constexpr (keys) {
      const Float2 rounded = Unpacked<type>(near[p]);
      rest[p] = Pack<type>(v[2 * p] - rounded.x, v[2 * p + 1] - rounded.y);
    }
  }
  to[0] = {near[0], near[1], near[2], near[3]};
  if constexpr (keys) to[page_size] = {rest[0], rest[1], rest[2], rest[3]};
}

// Numbers of a string that are decoded one by one.
template <DType type, bool keys>
KVG_DEVICE_CALL void DecodeString(const SegmentView& segment, int page, const CodeString& string,
                                  const Float2* ranges, int64_t page_size, Uint4* to) {
  const SideView& side = keys ? segment.keys : segment.values;
  const CodecView& c = *side.codec;
  float v[8];
  for (int j = 0; j < 8; ++j) {
    const int entry = string.EntryOf(j), dim = string.DimOf(j);
    v[j] = dim < c.dim ? NumberOf(segment, keys, page, entry, dim) : 0.0f;
    if (keys && dim < c.dim && c.range_table &&
        MiddlesApart(c, side.coded_entries, page, entry / 16)) {
      v[j] = v[j] - ranges[RangeIndex(c, entry, dim)].y;
    }
  }
  StoreOperand<type, keys>(v, page_size, to);
}

// A string, expanded. `first`: of its ranges, one for each entry, for each dim, or one.
enum class RangesAlong { kEntries, kDims, kNeither };
template <DType type, bool keys, CodeKind kind, RangesAlong along>
KVG_DEVICE void ExpandString(const CodeBits& codes, int bits, const CodeNumbers& numbers,
                             const Float2* first, bool apart, int64_t page_size, Uint4* to) {
  const uint32_t mask = (1u << bits) - 1u;
  float v[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const uint32_t code = (j % 2 == 0 ? codes.near : codes.far) >> j / 2 * bits & mask;
    const int entry = keys ? j / 4 * 8 : j / 4 * 16 + j / 2 % 2 * 8;
    const int dim = keys ? j / 2 % 2 * 8 : 0;
    // Two neighbours have ranges that lie side by side, or one.
    Float2 range;
    if constexpr (along == (keys ? RangesAlong::kDims : RangesAlong::kEntries)) {
      const auto pair = reinterpret_cast<const Float4*>(first)[(keys ? dim : entry) / 2];
      range = j % 2 == 0 ? Float2{pair.x, pair.y} : Float2{pair.z, pair.w};
    } else {
      range = first[along == RangesAlong::kEntries ? entry : 0];
    }
    const float distance = range.x * NumberOf<kind>(numbers, code);
    v[j] = apart ? distance : distance + range.y;
  }
  StoreOperand<type, keys>(v, page_size, to);
}

// Keys or values of a page to where tensor cores look for them. By all threads: a warp takes 16
// entries and 16 dims of keys at a time, or 16 dims of values.
template <DType type, bool keys, CodeKind kind>
KVG_DEVICE_CALL void ExpandCodes(const SegmentView& segment, int page, const Float2* ranges,
                                 Uint4* operands) {
  const SideView& side = keys ? segment.keys : segment.values;
  const CodecView& c = *side.codec;
  const uint8_t* const codes = side.coded[page].codes;
  const int bits = c.bits, dims = c.dim, group = c.group, chunks = c.width / 16, lane = Lane();
  const int coded = side.coded_entries - page * kPageEntries;
  const bool table = c.range_table, by_dim = c.range_of_dims, by_entry = !RunsOverEntries(c);
  const CodeNumbers numbers = NumbersOf(c);
  const int blocks = (segment.stored.value_dim + 7) / 8;
  const int warps = BlockThreads() / kWarp, parts = chunks * kSixteenths;
  const int64_t page_size = parts * kWarp;
  // A part of keys is 4 chunk + sixteenth, one of values 4 dims16 + 2 of its 8 + half of the
  // entries.
#pragma unroll 1
  for (int part = WarpIndex(); part < parts; part += warps) {
    const int outer = part / kSixteenths, quarter = part % kSixteenths;
    const int entry = keys ? quarter * 16 + lane / 4 : lane % 4 * 2 + quarter % 2 * 32;
    const int dim = keys ? outer * 16 + lane % 4 * 2 : outer * 16 + quarter / 2 * 8 + lane / 4;
    const int string = keys ? (quarter * kWarp + lane) * chunks + outer
                            : (outer * kWarp + lane) * kSixteenths + quarter;
    const int block = outer * 2 + quarter / 2;  // of values
    Uint4* const to =
        operands + (keys ? quarter * chunks + outer : block * 2 + quarter % 2) * kWarp + lane;
    if (!keys && block >= blocks) continue;
    if (!table || entry + (keys ? 8 : 25) >= coded || dim + (keys ? 9 : 0) >= dims) {
      DecodeString<type, keys>(segment, page, CodeString(c, string), ranges, page_size, to);
      continue;
    }
    const CodeBits eight = LoadString(codes + string * bits, bits);
    const bool apart = keys && MiddlesApart(c, side.coded_entries, page, quarter);
    if (by_entry) {
      const int row = (keys ? outer * 16 : block * 8) / group * kPageEntries;
      ExpandString<type, keys, kind, RangesAlong::kEntries>(
          eight, bits, numbers, ranges + row + entry, apart, page_size, to);
    } else {
      const int row = by_dim ? 0 : (keys ? quarter * 16 : quarter % 2 * 32) / group * dims;
      constexpr RangesAlong kAlong = keys ? RangesAlong::kDims : RangesAlong::kNeither;
      ExpandString<type, keys, kind, kAlong>(eight, bits, numbers, ranges + row + dim, apart,
                                             page_size, to);
    }
  }
}
template <DType type, bool keys>
KVG_DEVICE void ExpandSide(const SegmentView& segment, int page, const Float2* ranges,
                           Uint4* operands) {
  switch (KindOf(*(keys ? segment.keys : segment.values).codec)) {
    case CodeKind::kFloat8:
      return ExpandCodes<type, keys, CodeKind::kFloat8>(segment, page, ranges, operands);
    case CodeKind::kLevels:
      return ExpandCodes<type, keys, CodeKind::kLevels>(segment, page, ranges, operands);
    default:
      return ExpandCodes<type, keys, CodeKind::kSteps>(segment, page, ranges, operands);
  }
}

// Whichever of a page's keys and values are codes. By all threads; before and behind it they wait.
template <DType type>
KVG_DEVICE void ExpandPage(const SegmentView& segment, int page, bool keys, bool values,
                           const ExpandedPages& expanded) {
  if (!keys && !values) return;
  SyncBlock();  // who read them before is done
  if (keys && segment.keys.codec->range_table) {
    ExpandRanges(*segment.keys.codec, segment.keys.coded[page].codes, expanded.key_ranges);
  }
  if (values && segment.values.codec->range_table) {
    ExpandRanges(*segment.values.codec, segment.values.coded[page].codes, expanded.value_ranges);
  }
  SyncBlock();
  if (keys) ExpandSide<type, true>(segment, page, expanded.key_ranges, expanded.keys);
  if (values) ExpandSide<type, false>(segment, page, expanded.value_ranges, expanded.values);
  SyncBlock();
}

// scores of this warp's sixteenth of a page += what the middles of ranges add to them.
template <DType type, int tiles>
KVG_DEVICE void AddMiddles(const CodecView& c, const Float2* ranges, const Uint4* queries,
                           int sixteenth, int first_tile, int tile_step,
                           float (&scores)[tiles][2][4]) {
  const int chunks = c.width / 16;
  const int first = c.range_of_dims ? 0 : sixteenth * 16 / c.group * c.dim;
  float sums[tiles][2] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    float offset[4];  // of dims 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int dim = chunk * 16 + Lane() % 4 * 2 + i / 2 * 8 + i % 2;
      offset[i] = dim < c.dim ? ranges[first + dim].y : 0.0f;
    }
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      if (m % tile_step != first_tile) continue;
      const Uint4 q = queries[(m * chunks + chunk) * kWarp + Lane()];
      const auto add = [&](uint32_t near, uint32_t far, float& sum) {
        const Float2 a = Unpacked<type>(near), b = Unpacked<type>(far);
        sum =
            Fma(b.y, offset[3], Fma(b.x, offset[2], Fma(a.y, offset[1], Fma(a.x, offset[0], sum))));
      };
      add(q.x, q.z, sums[m][0]);
      add(q.y, q.w, sums[m][1]);
    }
  }
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    if (m % tile_step != first_tile) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = QuadSum(sums[m][h]);
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        scores[m][0][j] = scores[m][0][j] + sum;
        scores[m][1][j] = scores[m][1][j] + sum;
      }
    }
  }
}

// Finished scores of a page. Reached by all threads of a block, after ExpandPage where its keys are
// codes; scores of tiles that other warps take are not written. `room`: 2 * kChunk * 64 floats for
// expanded keys. plain: all keys are 16-bit pages that are multiplied as they lie, at `keys`.
template <DType type, int tiles, bool plain = false>
KVG_DEVICE void ScorePage(const AttendCall& call, const SegmentView& segment, const RowTile& tile,
                          bool all_seen, int page, const void* keys, const Uint4* queries16,
                          const float* queries32, float* room, const ExpandedPages& expanded,
                          float (&scores)[tiles][2][4]) {
  const int sixteenth = WarpIndex() % kSixteenths, first_tile = WarpIndex() / kSixteenths;
  const int tile_step = BlockThreads() / kWarp / kSixteenths;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[m][0][i] = scores[m][1][i] = 0.0f;
  }
  bool done = false;
  if constexpr (type != DType::kF32) {
    const bool coded = !plain && KeysAsCodes(segment, page);
    done = plain || coded || KeysAsTheyLie<type>(segment, page);
    if (done && first_tile < tiles) {
      const int chunks = (call.key_dim + 15) / 16;
      const void* const from = coded ? expanded.keys : plain ? keys : segment.keys.pages[page];
      MultiplyKeys<type>(from, chunks, queries16, sixteenth, first_tile, tile_step, scores);
      if (coded) {
        MultiplyKeys<type>(expanded.keys + chunks * kSixteenths * kWarp, chunks, queries16,
                           sixteenth, first_tile, tile_step, scores);
      }
      if (coded && segment.keys.codec->range_table &&
          MiddlesApart(*segment.keys.codec, segment.keys.coded_entries, page, sixteenth)) {
        AddMiddles<type>(*segment.keys.codec, expanded.key_ranges, queries16, sixteenth, first_tile,
                         tile_step, scores);
      }
    }
  }
  if constexpr (!plain) {
    const int dims = done ? 0 : ExpandedDims(call, segment);
    for (int begin = 0; begin < dims; begin += kChunk) {
      const int count = Least(kChunk, dims - begin);
      SyncBlock();  // who read `room` before is done
      ExpandKeys(call, segment, page, begin, count, room, room + kChunk * kPageEntries);
      SyncBlock();
      if (first_tile < tiles) {
        MultiplyNumbers(room, count, queries32 + begin * tiles * 16, sixteenth, first_tile,
                        tile_step, scores);
      }
    }
  }
  FinishScores(call, segment, tile, 0, all_seen, page, sixteenth, scores);
}

}  // namespace kvgauge::cuda
