// SPDX-License-Identifier: Apache-2.0
#include "cpu/codec/codec_records.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "src/record_code.h"

namespace kvgauge {
namespace {

struct HostMath {
  static uint32_t Bits(float v) { return std::bit_cast<uint32_t>(v); }
  static float Float(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint16_t ToHalf(float v) { return F32ToF16(std::clamp(v, -65504.0f, 65504.0f)); }
  static float FromHalf(uint16_t bits) { return F16ToF32(bits); }
  static float Root(float v) { return std::sqrt(v); }
  static float Even(float v) { return std::nearbyint(v); }
  static int Ones(uint32_t bits) { return std::popcount(bits); }
  static float Angle(float y, float x) {
    const double angle = std::atan2(double{y}, double{x});
    return static_cast<float>(angle < 0 ? angle + 2 * std::numbers::pi : angle);
  }
  static float Cosine(float v) { return static_cast<float>(std::cos(double{v})); }
  static float Sine(float v) { return static_cast<float>(std::sin(double{v})); }
};

void Put(const CodedLayout& layout, float* tile, int entry, int d, float v) {
  if (layout.side == KvSide::kKeys) {
    tile[int64_t{d} * kCodePageEntries + entry] = v;
  } else {
    tile[int64_t{entry} * layout.width + d] = v;
  }
}

// Each pair has few angles in a group of entries, so their sines are looked up.
void DecodePairs(const RecordView& view, const CodedLayout& layout, uint8_t* page, float* tile) {
  constexpr int kMostTabled = 5;  // bits
  const int codes = 1 << view.bits;
  float cosines[1 << kMostTabled], sines[1 << kMostTabled], radii[1 << kMostTabled];
  for (int group = 0; group < kRecordPage / view.group; ++group) {
    for (int pair = 0; pair < view.dim / 2; ++pair) {
      const uint8_t* range = record::PairRange(view, page, group, pair);
      for (int code = 0; code < codes; ++code) {
        const auto step = static_cast<uint32_t>(code);
        const float angle = record::MiddleOf<HostMath>(step, range + 4);
        radii[code] = record::MiddleOf<HostMath>(step, range);
        cosines[code] = HostMath::Cosine(angle);
        sines[code] = HostMath::Sine(angle);
      }
      const int d = record::FirstOfPair(view, pair);
      const int64_t at = int64_t{2} * pair * view.bits;
      for (int e = group * view.group; e < (group + 1) * view.group; ++e) {
        const uint8_t* one = record::RecordAt(view, page, e);
        const float radius = radii[record::FieldAt(one, at, view.bits)];
        const uint32_t angle = record::FieldAt(one, at + view.bits, view.bits);
        Put(layout, tile, e, d, radius * cosines[angle]);
        Put(layout, tile, e, d + view.apart, radius * sines[angle]);
      }
    }
  }
}

// From the root of each block down.
void DecodeTrees(const RecordView& view, const CodedLayout& layout, uint8_t* page, float* tile) {
  const int blocks = view.dim / kTreeBlock;
  const record::TreeLevel levels[] = {record::LevelOfTree(2), record::LevelOfTree(3),
                                      record::LevelOfTree(4)};
  float cosines[16], sines[16];
  for (uint32_t code = 0; code < 16; ++code) {
    cosines[code] = record::SectorCosine(code);
    sines[code] = record::SectorSine(code);
  }
  for (int e = 0; e < kRecordPage; ++e) {
    const uint8_t* one = record::RecordAt(view, page, e);
    for (int block = 0; block < blocks; ++block) {
      const uint8_t* codes = one + 2 * blocks;
      const int64_t bit = int64_t{block} * kTreeBits;
      float radii[kTreeBlock] = {F16ToF32(record::HalfAt(one + 2 * block))};
      // The codes of a block: four bits for each pair, and two for each angle above them.
      const uint32_t sectors[] = {record::FieldAt(codes, bit, 16),
                                  record::FieldAt(codes, bit + 16, 16)};
      const int above = record::LevelBit(2);
      const uint32_t angles = record::FieldAt(codes, bit + above, kTreeBits - above);
      for (int level = 4, count = 1; level >= 2; --level, count *= 2) {
        for (int i = count - 1; i >= 0; --i) {
          const uint32_t code = angles >> (record::LevelBit(level) - above + 2 * i) & 3u;
          const float radius = radii[i];
          radii[2 * i] = radius * levels[level - 2].cosines[code];
          radii[2 * i + 1] = radius * levels[level - 2].sines[code];
        }
      }
      for (int i = kTreeBlock / 2 - 1; i >= 0; --i) {
        const uint32_t code = sectors[i / 4] >> (4 * (i % 4)) & 15u;
        const int d = block * kTreeBlock + 2 * i;
        Put(layout, tile, e, d, radii[i] * cosines[code]);
        Put(layout, tile, e, d + 1, radii[i] * sines[code]);
      }
    }
  }
}

// A dim's codes stand for few numbers in a group of entries.
void DecodeSized(const RecordView& view, const CodedLayout& layout, uint8_t* page, float* tile) {
  for (int d = 0; d < view.dim; ++d) {
    const int64_t bit = record::SizedBit(view, d);
    const bool sign = d < view.stages, levels = !sign && view.bits == 0;
    const int count = sign ? 1 : (levels ? 8 : view.bits);
    const uint32_t three = levels ? record::ThreeOf(view, d) : 1;
    for (int group = 0; group < kRecordPage / view.group; ++group) {
      uint8_t* const sizes = record::SizesOf(view, page, group);
      float numbers[1 << 4];
      if (d < SizedDims(view)) {
        const float size = F16ToF32(record::HalfAt(sizes + 2 * d));
        numbers[0] = -size;
        numbers[1] = sign ? size : 0.0f;
        numbers[2] = size;
      } else {
        const uint8_t* step = record::StepOfSized(view, sizes, d);
        const float scale = F16ToF32(record::HalfAt(step)),
                    zero = F16ToF32(record::HalfAt(step + 2));
        for (int code = 0; code < 1 << view.bits; ++code) {
          const float product = scale * static_cast<float>(code);
          numbers[code] = product + zero;
        }
      }
      for (int e = group * view.group; e < (group + 1) * view.group; ++e) {
        const uint32_t field = record::FieldAt(record::RecordAt(view, page, e), bit, count);
        Put(layout, tile, e, d, numbers[levels ? field / three % 3 : field]);
      }
    }
  }
}

using Eight [[gnu::vector_size(16)]] = int16_t;

// Eight signs, a byte of bits that are 1 for -1, after the Hadamard transform.
constexpr auto kTurnedSigns = [] {
  std::array<std::array<int16_t, 8>, 256> turned = {};
  for (unsigned bits = 0; bits < 256; ++bits) {
    for (unsigned d = 0; d < 8; ++d) {
      int sum = 0;
      for (unsigned i = 0; i < 8; ++i) {
        sum += ((bits >> i & 1) + static_cast<unsigned>(std::popcount(i & d))) % 2 == 0 ? 1 : -1;
      }
      turned[bits][d] = static_cast<int16_t>(sum);
    }
  }
  return turned;
}();

// The signs of an entry are turned together. Their sums are integers, so their order is free.
void DecodeSketches(const RecordView& view, const CodedLayout& layout, uint8_t* page, float* tile) {
  const int bytes = view.dim / 8, block = record::SketchBlock(view.dim) / 8;
  const float factor = record::SketchFactor<HostMath>(view.dim);
  Eight turned[kMostRecordDims / 8];
  float levels[kMostRecordLevels];
  for (int e = 0; e < kRecordPage; ++e) {
    const uint8_t* one = record::RecordAt(view, page, e);
    const uint8_t *codes = one + 4, *signs = codes + record::SignBit(view, 0) / 8;
    for (int b = 0; b < bytes; ++b) {
      std::memcpy(&turned[b], kTurnedSigns[signs[b]].data(), sizeof turned[b]);
    }
    for (int span = 1; span < block; span *= 2) {
      for (int b = 0; b < bytes; ++b) {
        if ((b % block & span) != 0) continue;
        const Eight first = turned[b], second = turned[b + span];
        turned[b] = first + second;
        turned[b + span] = first - second;
      }
    }
    const float scale = F16ToF32(record::HalfAt(one));
    const float length = F16ToF32(record::HalfAt(one + 2)) * factor;
    for (int code = 0; code < 1 << view.bits; ++code) levels[code] = scale * view.levels[code];
    const uint32_t mask = (1u << view.bits) - 1u;
    for (int b = 0; b < bytes; ++b) {
      uint32_t eight = record::FieldAt(codes, int64_t{8} * b * view.bits, 8 * view.bits);
      for (int i = 0; i < 8; ++i, eight >>= view.bits) {
        const float sketched = length * static_cast<float>(turned[b][i]);
        Put(layout, tile, e, 8 * b + i, levels[eight & mask] + sketched);
      }
    }
  }
}

// A whole entry to where it lies in the tile.
void PutEntry(const CodedLayout& layout, float* tile, int entry, const float* numbers, int dim) {
  for (int d = 0; d < dim; ++d) Put(layout, tile, entry, d, numbers[d]);
}

void DecodeClusters(const RecordView& view, const CodedLayout& layout, uint8_t* page, float* tile) {
  int group[kMostRecordDims];
  for (int d = 0; d < view.dim; ++d) group[d] = static_cast<int>(view.table[d]);
  // A group has a dim at least, so there are no more of them.
  float steps[kMostRecordDims], lows[kMostRecordDims], numbers[kMostRecordDims];
  for (int e = 0; e < kRecordPage; ++e) {
    const uint8_t* one = record::RecordAt(view, page, e);
    for (int g = 0; g < view.stages; ++g) {
      steps[g] = record::OfByte<HostMath>(one[g]);
      lows[g] = record::OfByte<HostMath>(one[view.stages + g]);
    }
    const uint8_t* codes = one + ScaleBytesOf(view);
    for (int d = 0; d < view.dim; ++d) {
      const uint32_t code = record::FieldAt(codes, int64_t{d} * view.bits, view.bits);
      const float product = steps[group[d]] * static_cast<float>(code);
      numbers[d] = product + lows[group[d]];
    }
    PutEntry(layout, tile, e, numbers, view.dim);
  }
}

// Adds a word to `sum`: its first numbers of all pairs and then its second ones.
void AddCommuting(const RecordView& view, int stage, uint32_t code, float* sum) {
  const int half = view.bits / 2, pairs = view.dim / 2;
  const float* const of_stage = view.table + ((int64_t{stage} << half) * view.dim);
  const float* const a = of_stage + int64_t{code >> half} * view.dim;
  const float* const b = of_stage + int64_t{code & ((1u << half) - 1u)} * view.dim;
  for (int pair = 0; pair < pairs; ++pair) {
    sum[pair] = sum[pair] + (a[pair] - b[pairs + pair]);
    sum[pairs + pair] = sum[pairs + pair] + (b[pair] + a[pairs + pair]);
  }
}

// Word after word of an entry, so that a code is read once and words are added whole.
void DecodeVectors(const RecordView& view, const CodedLayout& layout, uint8_t* page, float* tile) {
  const int width = view.group, pairs = view.dim / 2;
  float sum[kMostRecordDims], numbers[kMostRecordDims];
  for (int e = 0; e < kRecordPage; ++e) {
    const uint8_t* one = record::RecordAt(view, page, e);
    const uint8_t* codes = one + ScaleBytesOf(view);
    std::fill_n(sum, view.dim, 0.0f);
    for (int stage = 0; stage < view.stages; ++stage) {
      for (int run = 0; run < view.runs; ++run) {
        const uint32_t code =
            record::FieldAt(codes, record::VectorBit(view, stage, run), view.bits);
        if (view.commuting) {
          AddCommuting(view, stage, code, sum);
          continue;
        }
        const int64_t word = ((int64_t{stage} * view.runs + run) << view.bits) + code;
        const float* const from = view.table + word * width;
        float* const to = sum + int64_t{run} * width;
        for (int d = 0; d < width; ++d) to[d] = to[d] + from[d];
      }
    }
    if (view.scaled) {
      const float scale = F16ToF32(record::HalfAt(one));
      for (int d = 0; d < view.dim; ++d) sum[d] = scale * sum[d];
    }
    if (!view.commuting) {
      PutEntry(layout, tile, e, sum, view.dim);
      continue;
    }
    for (int pair = 0; pair < pairs; ++pair) {
      const int d = record::FirstOfPair(view, pair);
      numbers[d] = sum[pair];
      numbers[d + view.apart] = sum[pairs + pair];
    }
    PutEntry(layout, tile, e, numbers, view.dim);
  }
}

// All words of a stage, [codes][dim].
void CommutingWords(const RecordView& view, int stage, float* words) {
  const int half = view.bits / 2, pairs = view.dim / 2;
  const float* const of_stage = view.table + ((int64_t{stage} << half) * view.dim);
  for (uint32_t code = 0; code < 1u << view.bits; ++code, words += view.dim) {
    const float* const a = of_stage + int64_t{code >> half} * view.dim;
    const float* const b = of_stage + int64_t{code & ((1u << half) - 1u)} * view.dim;
    for (int pair = 0; pair < pairs; ++pair) {
      const int d = record::FirstOfPair(view, pair);
      words[d] = a[pair] - b[pairs + pair];
      words[d + view.apart] = b[pair] + a[pairs + pair];
    }
  }
}

// Entries side by side, so that each word is compared with all of them at once.
void EncodeVectors(const CodecKernels& k, const RecordView& view, const float* x, int64_t stride,
                   int begin, int end, uint8_t* page) {
  const int width = view.group, count = 1 << view.bits, entries = end - begin;
  std::vector<float> rest(static_cast<size_t>(view.dim) * kRecordPage, 0.0f);
  float one[kMostRecordDims];
  for (int e = 0; e < entries; ++e) {
    record::ScaleVectors<HostMath>(view, x + e * stride, record::RecordAt(view, page, begin + e),
                                   one);
    for (int d = 0; d < view.dim; ++d) rest[size_t{kRecordPage} * d + e] = one[d];
  }
  std::vector<float> made(view.commuting ? static_cast<size_t>(count) * width : 0);
  int32_t nearest[kRecordPage];
  for (int run = 0; run < view.runs; ++run) {
    float* const mine = rest.data() + int64_t{run} * width * kRecordPage;
    for (int stage = 0; stage < view.stages; ++stage) {
      const float* words = made.data();
      if (view.commuting) {
        CommutingWords(view, stage, made.data());
      } else {
        words = view.table + ((int64_t{stage} * view.runs + run) << view.bits) * width;
      }
      k.nearest_words(mine, words, count, width, nearest);
      for (int e = 0; e < entries; ++e) {
        uint8_t* const codes = record::RecordAt(view, page, begin + e) + ScaleBytesOf(view);
        record::PutField(codes, record::VectorBit(view, stage, run), view.bits,
                         static_cast<uint32_t>(nearest[e]));
      }
      for (int d = 0; d < width; ++d) {
        float* const of_dim = mine + int64_t{d} * kRecordPage;
        for (int e = 0; e < entries; ++e) {
          of_dim[e] = of_dim[e] - words[int64_t{nearest[e]} * width + d];
        }
      }
    }
  }
}

}  // namespace

void EncodeRecords(const CodecKernels& k, const RecordView& view, const float* x, int64_t stride,
                   int begin, int end, uint8_t* page) {
  constexpr int kFewEntries = 4;  // which are done sooner one by one
  if (view.kind == KvCodecKind::kVectors && end - begin > kFewEntries) {
    return EncodeVectors(k, view, x, stride, begin, end, page);
  }
  float rest[kMostRecordDims];
  const auto entry = [&](int e) { return x + (e - begin) * stride; };
  if (view.kind == KvCodecKind::kPolarPairs) {
    for (int group = begin / view.group; group < end / view.group; ++group) {
      const record::RecordRows rows = {x - begin * stride, stride};
      for (int pair = 0; pair < view.dim / 2; ++pair) {
        record::PutPairRange<HostMath>(view, rows, group, pair, page);
      }
    }
  }
  if (view.kind == KvCodecKind::kMeanSizes) {
    const record::RecordRows rows = {x - begin * stride, stride};
    for (int group = begin / view.group; group < end / view.group; ++group) {
      for (int d = 0; d < view.dim; ++d) record::PutSizes<HostMath>(view, rows, group, d, page);
    }
  }
  for (int e = begin; e < end; ++e) record::CodeRecord<HostMath>(view, entry(e), e, page, rest);
}

void DecodeRecords(const RecordView& view, const CodedLayout& layout, const void* page,
                   float* tile) {
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(page));
  if (layout.side == KvSide::kValues && layout.width > layout.dim) {
    std::fill_n(tile, int64_t{kCodePageEntries} * layout.width, 0.0f);
  }
  if (view.kind == KvCodecKind::kPolarPairs && view.bits <= 5) {
    return DecodePairs(view, layout, bytes, tile);
  }
  if (view.kind == KvCodecKind::kPolarTree) return DecodeTrees(view, layout, bytes, tile);
  if (view.kind == KvCodecKind::kMeanSizes) return DecodeSized(view, layout, bytes, tile);
  if (view.kind == KvCodecKind::kSketched && view.dim % 8 == 0) {
    return DecodeSketches(view, layout, bytes, tile);
  }
  if (view.kind == KvCodecKind::kClusters) return DecodeClusters(view, layout, bytes, tile);
  if (view.kind == KvCodecKind::kVectors) return DecodeVectors(view, layout, bytes, tile);
  for (int e = 0; e < kRecordPage; ++e) {
    for (int d = 0; d < view.dim; ++d) {
      Put(layout, tile, e, d, record::RecordNumber<HostMath>(view, bytes, e, d));
    }
  }
}

}  // namespace kvgauge
