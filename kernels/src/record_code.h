// SPDX-License-Identifier: Apache-2.0
// Coding and decoding of records, for the cpu and for devices: one f32 operation after the other,
// each rounded once, so that all backends have the same codes. What the standard library is needed
// for comes from `Math`. Angles and what is made of them go through double.
#pragma once

#include "src/record_view.h"

namespace kvgauge::record {

// Numbers of an entry, as rows lie.
struct RecordRows {
  const float* first;  // entry 0 of the page
  int64_t stride;
  KVG_RECORD const float* Entry(int e) const { return first + e * stride; }
};

KVG_RECORD void PutField(uint8_t* bytes, int64_t bit, int count, uint32_t value) {
  for (int b = 0; b < count; ++b) {
    const int64_t at = bit + b;
    bytes[at >> 3] =
        static_cast<uint8_t>((bytes[at >> 3] & ~(1u << (at & 7))) | (value >> b & 1u) << (at & 7));
  }
}
KVG_RECORD uint32_t FieldAt(const uint8_t* bytes, int64_t bit, int count) {
  uint32_t value = static_cast<uint32_t>(bytes[bit >> 3]) >> (bit & 7);
  int have = 8 - static_cast<int>(bit & 7);
  for (int64_t at = (bit >> 3) + 1; have < count; ++at, have += 8) {
    value |= static_cast<uint32_t>(bytes[at]) << have;
  }
  return value & ((1u << count) - 1u);
}
KVG_RECORD void PutHalf(uint8_t* bytes, uint16_t half) {
  bytes[0] = static_cast<uint8_t>(half);
  bytes[1] = static_cast<uint8_t>(half >> 8);
}
KVG_RECORD uint16_t HalfAt(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

KVG_RECORD float Size(float v) { return v < 0.0f ? -v : v; }

// e4m3: nearest, ties to even, saturating.
template <class Math>
KVG_RECORD uint8_t ByteOf(float v) {
  const float all = Size(v), size = all < 448.0f ? all : 448.0f;
  const auto sign = static_cast<int>(Math::Bits(v) >> 31) << 7;
  if (size < 0x1p-6f)
    return static_cast<uint8_t>(sign | static_cast<int>(Math::Even(size * 0x1p9f)));
  const int exponent = static_cast<int>(Math::Bits(size) >> 23) - 127;
  const float parts = size * Math::Float(static_cast<uint32_t>(130 - exponent) << 23);
  return static_cast<uint8_t>(sign |
                              (((exponent + 7) << 3) + static_cast<int>(Math::Even(parts)) - 8));
}
template <class Math>
KVG_RECORD float OfByte(int code) {
  const int magnitude = code & 127;
  const float size = magnitude < 8 ? static_cast<float>(magnitude) / 0x1p9f
                                   : Math::Float((static_cast<uint32_t>(magnitude) << 20) +
                                                 (static_cast<uint32_t>(120) << 23));
  return (code & 0x80) != 0 ? -size : size;
}

// Sixteen interleaved chains, joined by halves.
template <class TermOf>
KVG_RECORD float SumOfTerms(int n, TermOf term_of) {
  float chains[16] = {};
  for (int i = 0; i < n; ++i) chains[i % 16] = chains[i % 16] + term_of(i);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) chains[i] = chains[i] + chains[i + half];
  }
  return chains[0];
}

// ---- kClusters ----

template <class Math>
KVG_RECORD void CodeClusters(const RecordView& view, const float* x, uint8_t* record) {
  const float top = static_cast<float>((1 << view.bits) - 1);
  const int64_t codes = int64_t{8} * 2 * view.stages;
  for (int g = 0; g < view.stages; ++g) {
    float low = 0.0f, high = 0.0f;
    bool any = false;
    for (int d = 0; d < view.dim; ++d) {
      if (static_cast<int>(view.table[d]) != g) continue;
      low = any && low < x[d] ? low : x[d];
      high = any && high > x[d] ? high : x[d];
      any = true;
    }
    low = low * view.clip + 0.0f;
    high = high * view.clip + 0.0f;
    const float found = (high - low) / top, step = found > 1e-5f ? found : 1e-5f;
    for (int d = 0; d < view.dim; ++d) {
      if (static_cast<int>(view.table[d]) != g) continue;
      const float ratio = (x[d] - low) / step;
      const float within = ratio < 0.0f ? 0.0f : (ratio > top ? top : ratio);
      PutField(record, codes + int64_t{d} * view.bits, view.bits,
               static_cast<uint32_t>(Math::Even(within)));
    }
    record[g] = ByteOf<Math>(step);
    record[view.stages + g] = ByteOf<Math>(low);
  }
}
template <class Math>
KVG_RECORD float NumberOfClusters(const RecordView& view, const uint8_t* record, int d) {
  const auto g = static_cast<int>(view.table[d]);
  const uint32_t code =
      FieldAt(record, int64_t{16} * view.stages + int64_t{d} * view.bits, view.bits);
  const float product = OfByte<Math>(record[g]) * static_cast<float>(code);
  return product + OfByte<Math>(record[view.stages + g]);
}

// ---- kPolarPairs ----

// The dims of a pair.
KVG_RECORD int FirstOfPair(const RecordView& view, int pair) {
  return view.apart == 1 ? 2 * pair : pair;
}
KVG_RECORD int PairOf(const RecordView& view, int d) {
  return view.apart == 1 ? d / 2 : d % view.apart;
}
KVG_RECORD bool SecondOfPair(const RecordView& view, int d) {
  return view.apart == 1 ? d % 2 == 1 : d >= view.apart;
}

struct Polar {
  float radius, angle;
};
template <class Math>
KVG_RECORD Polar PolarOf(const RecordView& view, const float* x, int pair) {
  const int d = FirstOfPair(view, pair);
  const float a = x[d], b = x[d + view.apart];
  return {Math::Root(a * a + b * b), Math::Angle(b, a)};
}

KVG_RECORD uint8_t* PairRange(const RecordView& view, uint8_t* page, int group, int pair) {
  return page + (static_cast<int64_t>(group) * (view.dim / 2) + pair) * 8;
}

// Least and step of radius and angle of a pair over the entries of a group.
template <class Math>
KVG_RECORD void PutPairRange(const RecordView& view, RecordRows rows, int group, int pair,
                             uint8_t* page) {
  Polar least = {}, most = {};
  for (int e = group * view.group; e < (group + 1) * view.group; ++e) {
    const Polar p = PolarOf<Math>(view, rows.Entry(e), pair);
    const bool first = e == group * view.group;
    least.radius = first || p.radius < least.radius ? p.radius : least.radius;
    most.radius = first || p.radius > most.radius ? p.radius : most.radius;
    least.angle = first || p.angle < least.angle ? p.angle : least.angle;
    most.angle = first || p.angle > most.angle ? p.angle : most.angle;
  }
  const float steps = static_cast<float>(1 << view.bits);
  uint8_t* const to = PairRange(view, page, group, pair);
  PutHalf(to, Math::ToHalf(least.radius));
  PutHalf(to + 2, Math::ToHalf((most.radius - least.radius) / steps));
  PutHalf(to + 4, Math::ToHalf(least.angle));
  PutHalf(to + 6, Math::ToHalf((most.angle - least.angle) / steps));
}

template <class Math>
KVG_RECORD uint32_t StepOf(const RecordView& view, float v, const uint8_t* range) {
  const float least = Math::FromHalf(HalfAt(range)), step = Math::FromHalf(HalfAt(range + 2));
  if (step == 0.0f) return 0;
  const float ratio = (v - least) / step, top = static_cast<float>((1 << view.bits) - 1);
  return ratio < 0.0f ? 0u : static_cast<uint32_t>(ratio > top ? top : ratio);
}
template <class Math>
KVG_RECORD void CodePairs(const RecordView& view, const float* x, int entry, uint8_t* page,
                          uint8_t* record) {
  for (int pair = 0; pair < view.dim / 2; ++pair) {
    const Polar p = PolarOf<Math>(view, x, pair);
    const uint8_t* range = PairRange(view, page, entry / view.group, pair);
    const int64_t at = int64_t{2} * pair * view.bits;
    PutField(record, at, view.bits, StepOf<Math>(view, p.radius, range));
    PutField(record, at + view.bits, view.bits, StepOf<Math>(view, p.angle, range + 4));
  }
}
// What a code stands for: the middle of its step.
template <class Math>
KVG_RECORD float MiddleOf(uint32_t code, const uint8_t* range) {
  const float least = Math::FromHalf(HalfAt(range)), step = Math::FromHalf(HalfAt(range + 2));
  const float product = (static_cast<float>(code) + 0.5f) * step;
  return product + least;
}
template <class Math>
KVG_RECORD float NumberOfPairs(const RecordView& view, const uint8_t* page, const uint8_t* record,
                               int entry, int d) {
  const int pair = PairOf(view, d);
  const uint8_t* range = PairRange(view, const_cast<uint8_t*>(page), entry / view.group, pair);
  const int64_t at = int64_t{2} * pair * view.bits;
  const float radius = MiddleOf<Math>(FieldAt(record, at, view.bits), range);
  const float angle = MiddleOf<Math>(FieldAt(record, at + view.bits, view.bits), range + 4);
  return radius * (SecondOfPair(view, d) ? Math::Sine(angle) : Math::Cosine(angle));
}

// ---- kPolarTree ----

struct TreeLevel {
  float cosines[4], sines[4];
  float edges[3];  // tangents
};
// Best levels for the angles of levels 2, 3 and 4, whose density goes with sin(2 t)^1, 3 and 7; and
// of 16 equal sectors.
KVG_RECORD TreeLevel LevelOfTree(int level) {
  if (level == 2) {
    return {{0.95240794f, 0.80567618f, 0.59235623f, 0.30482637f},
            {0.30482637f, 0.59235623f, 0.80567618f, 0.95240794f},
            {0.51031836f, 1.0f, 1.95956110f}};
  }
  if (level == 3) {
    return {{0.91052275f, 0.78109112f, 0.62441706f, 0.41345898f},
            {0.41345898f, 0.62441706f, 0.78109112f, 0.91052275f},
            {0.61354193f, 1.0f, 1.62988045f}};
  }
  return {{0.86571758f, 0.76102191f, 0.64872618f, 0.50053278f},
          {0.50053278f, 0.64872618f, 0.76102191f, 0.86571758f},
          {0.70648003f, 1.0f, 1.41546818f}};
}
KVG_RECORD float SectorCosine(uint32_t code) {
  const float quarter[4] = {0.98078528f, 0.83146961f, 0.55557023f, 0.19509032f};
  const uint32_t half = code & 7u;
  const float size = half < 4 ? quarter[half] : quarter[7 - half];
  return (code & 8u) != 0 ? (half < 4 ? -size : size) : (half < 4 ? size : -size);
}
KVG_RECORD float SectorSine(uint32_t code) { return SectorCosine((code + 12u) & 15u); }
KVG_RECORD uint32_t SectorOf(float a, float b) {
  const float x = Size(a), y = Size(b);
  uint32_t part = 0;  // of a quarter, from the first axis on
  part += y > 0.41421356f * x ? 1u : 0u;
  part += y > x ? 1u : 0u;
  part += y > 2.41421356f * x ? 1u : 0u;
  if (b >= 0.0f) return a >= 0.0f ? part : 7u - part;
  return a < 0.0f ? 8u + part : 15u - part;
}

// Where the first code of a level is in a block, in bits; 1 has codes of 4 bits.
KVG_RECORD int LevelBit(int level) {
  return level == 1 ? 0 : level == 2 ? 32 : level == 3 ? 40 : 44;
}

template <class Math>
KVG_RECORD void CodeTree(const RecordView& view, const float* x, uint8_t* record) {
  const int blocks = view.dim / kTreeBlock;
  uint8_t* const codes = record + 2 * blocks;
  for (int block = 0; block < blocks; ++block) {
    const int64_t bit = int64_t{block} * kTreeBits;
    float radii[kTreeBlock / 2];
    for (int i = 0; i < kTreeBlock / 2; ++i) {
      const float a = x[block * kTreeBlock + 2 * i], b = x[block * kTreeBlock + 2 * i + 1];
      PutField(codes, bit + 4 * i, 4, SectorOf(a, b));
      radii[i] = Math::Root(a * a + b * b);
    }
    for (int level = 2, count = 4; level <= 4; ++level, count /= 2) {
      const TreeLevel of = LevelOfTree(level);
      for (int i = 0; i < count; ++i) {
        const float a = radii[2 * i], b = radii[2 * i + 1];
        uint32_t code = 0;
        for (int k = 0; k < 3; ++k) code += b > of.edges[k] * a ? 1u : 0u;
        PutField(codes, bit + LevelBit(level) + 2 * i, 2, code);
        radii[i] = Math::Root(a * a + b * b);
      }
    }
    PutHalf(record + 2 * block, Math::ToHalf(radii[0]));
  }
}
template <class Math>
KVG_RECORD float NumberOfTree(const RecordView& view, const uint8_t* record, int d) {
  const int block = d / kTreeBlock, i = d % kTreeBlock;
  const uint8_t* const codes = record + 2 * (view.dim / kTreeBlock);
  const int64_t bit = int64_t{block} * kTreeBits;
  float value = Math::FromHalf(HalfAt(record + 2 * block));
  for (int level = 4; level >= 2; --level) {
    const TreeLevel of = LevelOfTree(level);
    const uint32_t code = FieldAt(codes, bit + LevelBit(level) + 2 * (i >> level), 2);
    value = value * ((i >> (level - 1) & 1) != 0 ? of.sines[code] : of.cosines[code]);
  }
  const uint32_t code = FieldAt(codes, bit + 4 * (i / 2), 4);
  return value * (i % 2 != 0 ? SectorSine(code) : SectorCosine(code));
}

// ---- kVectors ----

KVG_RECORD float WordNumber(const RecordView& view, int stage, int run, uint32_t code, int d) {
  if (!view.commuting) {
    const int64_t word = ((int64_t{stage} * view.runs + run) << view.bits) + code;
    return view.table[word * view.group + d];
  }
  const int half = view.bits / 2, pairs = view.dim / 2, pair = PairOf(view, d);
  const uint32_t a = code >> half, b = code & ((1u << half) - 1u);
  const float* of_stage = view.table + ((int64_t{stage} << half) * view.dim);
  const float* x = of_stage + int64_t{SecondOfPair(view, d) ? b : a} * view.dim;
  const float* y = of_stage + int64_t{SecondOfPair(view, d) ? a : b} * view.dim + pairs;
  return SecondOfPair(view, d) ? x[pair] + y[pair] : x[pair] - y[pair];
}

KVG_RECORD int64_t VectorBit(const RecordView& view, int stage, int run) {
  return (int64_t{stage} * view.runs + run) * view.bits;
}

// Writes the scale; rest: [dim], what codewords are to add up to.
template <class Math>
KVG_RECORD void ScaleVectors(const RecordView& view, const float* x, uint8_t* record, float* rest) {
  float scale = 1.0f;
  if (view.scaled) {
    const float sum = SumOfTerms(view.dim, [&](int i) { return x[i] * x[i]; });
    const uint16_t half = Math::ToHalf(Math::Root(sum / static_cast<float>(view.dim)));
    PutHalf(record, half);
    scale = Math::FromHalf(half);
  }
  for (int d = 0; d < view.dim; ++d) rest[d] = scale == 0.0f ? 0.0f : x[d] / scale;
}

// `rest` has room for an entry.
template <class Math>
KVG_RECORD void CodeVectors(const RecordView& view, const float* x, uint8_t* record, float* rest) {
  const int width = view.group;
  uint8_t* const codes = record + ScaleBytesOf(view);
  ScaleVectors<Math>(view, x, record, rest);
  for (int run = 0; run < view.runs; ++run) {
    float* const mine = rest + run * width;
    for (int stage = 0; stage < view.stages; ++stage) {
      uint32_t best = 0;
      float least = 0.0f;
      for (uint32_t code = 0; code < 1u << view.bits; ++code) {
        float distance = 0.0f;
        for (int d = 0; d < width; ++d) {
          const float off = mine[d] - WordNumber(view, stage, run, code, d);
          distance = distance + off * off;
        }
        if (code != 0 && !(distance < least)) continue;
        best = code;
        least = distance;
      }
      for (int d = 0; d < width; ++d) mine[d] = mine[d] - WordNumber(view, stage, run, best, d);
      PutField(codes, VectorBit(view, stage, run), view.bits, best);
    }
  }
}

template <class Math>
KVG_RECORD float NumberOfVectors(const RecordView& view, const uint8_t* record, int d) {
  const uint8_t* const codes = record + (view.scaled ? 2 : 0);
  const int run = d / view.group;
  float sum = 0.0f;
  for (int stage = 0; stage < view.stages; ++stage) {
    const uint32_t code = FieldAt(codes, VectorBit(view, stage, run), view.bits);
    sum = sum + WordNumber(view, stage, run, code, d % view.group);
  }
  return view.scaled ? Math::FromHalf(HalfAt(record)) * sum : sum;
}

// ---- kSketched ----

// The dims of a block of the Hadamard transform: the largest power of two that divides all.
KVG_RECORD int SketchBlock(int dim) { return dim & -dim; }
// sqrt(pi / 2 / (dim * block)).
template <class Math>
KVG_RECORD float SketchFactor(int dim) {
  return Math::Root(1.57079633f / static_cast<float>(dim * SketchBlock(dim)));
}
KVG_RECORD int64_t SignBit(const RecordView& view, int d) {
  return int64_t{view.dim} * view.bits + d;
}

template <class Math>
KVG_RECORD void CodeSketched(const RecordView& view, const float* x, uint8_t* record, float* rest) {
  const float sum = SumOfTerms(view.dim, [&](int i) { return x[i] * x[i]; });
  const uint16_t half = Math::ToHalf(Math::Root(sum / static_cast<float>(view.dim)));
  const float scale = Math::FromHalf(half);
  uint8_t* const codes = record + 4;
  for (int d = 0; d < view.dim; ++d) {
    const float u = scale == 0.0f ? 0.0f : x[d] / scale;
    int code = 0;
    while (code + 1 < 1 << view.bits && u > 0.5f * (view.levels[code] + view.levels[code + 1])) {
      ++code;
    }
    PutField(codes, int64_t{d} * view.bits, view.bits, static_cast<uint32_t>(code));
    const float level = scale * view.levels[code];
    rest[d] = x[d] - level;
  }
  const float left = SumOfTerms(view.dim, [&](int i) { return rest[i] * rest[i]; });
  PutHalf(record, half);
  PutHalf(record + 2, Math::ToHalf(Math::Root(left)));
  const int block = SketchBlock(view.dim);
  for (int span = 1; span < block; span *= 2) {
    for (int d = 0; d < view.dim; ++d) {
      if ((d % block & span) != 0) continue;
      const float a = rest[d], b = rest[d + span];
      rest[d] = a + b;
      rest[d + span] = a - b;
    }
  }
  for (int d = 0; d < view.dim; ++d) {
    PutField(codes, SignBit(view, d), 1, rest[d] < 0.0f ? 1u : 0u);
  }
}

// Bit i: whether i & d has an odd number of ones, i of 0 .. 31.
KVG_RECORD uint32_t OddOnes(uint32_t d) {
  uint32_t odd = 0;
  odd ^= (d & 1u) != 0 ? 0xaaaaaaaau : 0u;
  odd ^= (d & 2u) != 0 ? 0xccccccccu : 0u;
  odd ^= (d & 4u) != 0 ? 0xf0f0f0f0u : 0u;
  odd ^= (d & 8u) != 0 ? 0xff00ff00u : 0u;
  odd ^= (d & 16u) != 0 ? 0xffff0000u : 0u;
  return odd;
}
template <class Math>
KVG_RECORD float NumberOfSketched(const RecordView& view, const uint8_t* record, int d) {
  const uint8_t* const codes = record + 4;
  const int block = SketchBlock(view.dim), begin = d / block * block;
  const auto place = static_cast<uint32_t>(d - begin);
  int differ = 0;
  for (int i = 0; i < block; i += 32) {
    const int count = block - i < 32 ? block - i : 32;
    uint32_t odd = OddOnes(place);
    if ((Math::Ones(static_cast<uint32_t>(i) & place) & 1) != 0) odd = ~odd;
    uint32_t signs = 0;
    for (int k = 0; k < count; k += 8) {
      const int some = count - k < 8 ? count - k : 8;
      signs |= FieldAt(codes, SignBit(view, begin + i + k), some) << k;
    }
    const uint32_t kept = count == 32 ? ~0u : (1u << count) - 1u;
    differ += Math::Ones((signs ^ odd) & kept);
  }
  const float length = Math::FromHalf(HalfAt(record + 2)) * SketchFactor<Math>(view.dim);
  const float sketched = length * static_cast<float>(block - 2 * differ);
  const uint32_t code = FieldAt(codes, int64_t{d} * view.bits, view.bits);
  const float level = Math::FromHalf(HalfAt(record)) * view.levels[code];
  return level + sketched;
}

// ---- kMeanSizes ----

KVG_RECORD uint8_t* SizesOf(const RecordView& view, uint8_t* page, int group) {
  return page + static_cast<int64_t>(group) * SizesBytes(view);
}
// The scale of a dim without a mean size, its zero behind it.
KVG_RECORD uint8_t* StepOfSized(const RecordView& view, uint8_t* sizes, int d) {
  return sizes + 2 * SizedDims(view) + 4 * (d - SizedDims(view));
}
// Where the code of a dim begins in a record, and a power of three for one of three levels.
KVG_RECORD int64_t SizedBit(const RecordView& view, int d) {
  if (d < view.stages) return d;
  const int i = d - view.stages;
  return view.stages + (view.bits > 0 ? int64_t{i} * view.bits : int64_t{i / 5} * 8);
}
KVG_RECORD uint32_t ThreeOf(const RecordView& view, int d) {
  const uint32_t powers[5] = {1, 3, 9, 27, 81};
  return powers[(d - view.stages) % 5];
}

// What the entries of a group share of one dim.
template <class Math>
KVG_RECORD void PutSizes(const RecordView& view, RecordRows rows, int group, int d, uint8_t* page) {
  const int begin = group * view.group;
  uint8_t* const sizes = SizesOf(view, page, group);
  if (d < SizedDims(view)) {
    const float sum = SumOfTerms(view.group, [&](int i) { return Size(rows.Entry(begin + i)[d]); });
    return PutHalf(sizes + 2 * d, Math::ToHalf(sum / static_cast<float>(view.group)));
  }
  float low = rows.Entry(begin)[d], high = low;
  for (int e = begin + 1; e < begin + view.group; ++e) {
    const float v = rows.Entry(e)[d];
    low = v < low ? v : low;
    high = high < v ? v : high;
  }
  low = low + 0.0f;
  high = high + 0.0f;
  uint8_t* const step = StepOfSized(view, sizes, d);
  PutHalf(step, Math::ToHalf((high - low) / static_cast<float>((1 << view.bits) - 1)));
  PutHalf(step + 2, Math::ToHalf(low));
}
// Fields are 0 before.
template <class Math>
KVG_RECORD void CodeSized(const RecordView& view, const float* x, int entry, uint8_t* page,
                          uint8_t* record) {
  uint8_t* const sizes = SizesOf(view, page, entry / view.group);
  for (int d = 0; d < view.dim; ++d) {
    const int64_t bit = SizedBit(view, d);
    if (d < view.stages) {
      PutField(record, bit, 1, x[d] >= 0.0f ? 1u : 0u);
    } else if (view.bits == 0) {
      const float edge = 0.5f * Math::FromHalf(HalfAt(sizes + 2 * d));
      const uint32_t level = x[d] > edge ? 2u : (x[d] < -edge ? 0u : 1u);
      PutField(record, bit, 8, FieldAt(record, bit, 8) + level * ThreeOf(view, d));
    } else {
      const uint8_t* step = StepOfSized(view, sizes, d);
      const float scale = Math::FromHalf(HalfAt(step)), zero = Math::FromHalf(HalfAt(step + 2));
      const float ratio = scale == 0.0f ? 0.0f : (x[d] - zero) / scale;
      const float top = static_cast<float>((1 << view.bits) - 1);
      const float within = ratio < 0.0f ? 0.0f : (ratio > top ? top : ratio);
      PutField(record, bit, view.bits, static_cast<uint32_t>(Math::Even(within)));
    }
  }
}
template <class Math>
KVG_RECORD float NumberOfSized(const RecordView& view, const uint8_t* page, const uint8_t* record,
                               int entry, int d) {
  uint8_t* const sizes = SizesOf(view, const_cast<uint8_t*>(page), entry / view.group);
  const int64_t bit = SizedBit(view, d);
  if (d >= SizedDims(view)) {
    const uint8_t* step = StepOfSized(view, sizes, d);
    const float product =
        Math::FromHalf(HalfAt(step)) * static_cast<float>(FieldAt(record, bit, view.bits));
    return product + Math::FromHalf(HalfAt(step + 2));
  }
  const float size = Math::FromHalf(HalfAt(sizes + 2 * d));
  if (d < view.stages) return FieldAt(record, bit, 1) != 0 ? size : -size;
  const uint32_t level = FieldAt(record, bit, 8) / ThreeOf(view, d) % 3u;
  return level == 1u ? 0.0f : (level == 2u ? size : -size);
}

// ---- All of them ----

KVG_RECORD uint8_t* RecordAt(const RecordView& view, uint8_t* page, int entry) {
  return page + view.header_bytes + static_cast<int64_t>(entry) * view.record_bytes;
}

// kPolarPairs: ranges come first, PutPairRange for each group and pair; kMeanSizes: PutSizes for
// each group and dim.
template <class Math>
KVG_RECORD void CodeRecord(const RecordView& view, const float* x, int entry, uint8_t* page,
                           float* rest) {
  uint8_t* const record = RecordAt(view, page, entry);
  for (int i = 0; i < view.record_bytes; ++i) record[i] = 0;
  switch (view.kind) {
    case KvCodecKind::kClusters:
      return CodeClusters<Math>(view, x, record);
    case KvCodecKind::kPolarPairs:
      return CodePairs<Math>(view, x, entry, page, record);
    case KvCodecKind::kPolarTree:
      return CodeTree<Math>(view, x, record);
    case KvCodecKind::kVectors:
      return CodeVectors<Math>(view, x, record, rest);
    case KvCodecKind::kMeanSizes:
      return CodeSized<Math>(view, x, entry, page, record);
    default:
      return CodeSketched<Math>(view, x, record, rest);
  }
}

template <class Math>
KVG_RECORD float RecordNumber(const RecordView& view, const uint8_t* page, int entry, int d) {
  const uint8_t* const record = RecordAt(view, const_cast<uint8_t*>(page), entry);
  switch (view.kind) {
    case KvCodecKind::kClusters:
      return NumberOfClusters<Math>(view, record, d);
    case KvCodecKind::kPolarPairs:
      return NumberOfPairs<Math>(view, page, record, entry, d);
    case KvCodecKind::kPolarTree:
      return NumberOfTree<Math>(view, record, d);
    case KvCodecKind::kVectors:
      return NumberOfVectors<Math>(view, record, d);
    case KvCodecKind::kMeanSizes:
      return NumberOfSized<Math>(view, page, record, entry, d);
    default:
      return NumberOfSketched<Math>(view, record, d);
  }
}

}  // namespace kvgauge::record
