// SPDX-License-Identifier: Apache-2.0
// A record here is a string of fields, lowest bit first, in the order in which they are named
// below; scales are fields of 8 or 16 bits. Records stand one behind the other, behind the ranges
// of kPolarPairs and the sizes of kMeanSizes.
#include "reference/records.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>

#include "kernels/attention.h"

namespace kvgauge {
namespace {

using Numbers = std::vector<float>;

constexpr double kTurn = 2 * std::numbers::pi;

// A string of fields.
class Fields {
 public:
  explicit Fields(uint8_t* bytes) : bytes_(bytes) {}
  void Put(int count, int value) {
    for (int b = 0; b < count; ++b, ++at_) {
      const int64_t shift = at_ % 8;
      const int kept = bytes_[at_ / 8] & ~(1 << shift);
      bytes_[at_ / 8] = static_cast<uint8_t>(kept | (value >> b & 1) << shift);
    }
  }
  int Take(int count) {
    int value = 0;
    for (int b = 0; b < count; ++b, ++at_) value |= (bytes_[at_ / 8] >> (at_ % 8) & 1) << b;
    return value;
  }
  void PutHalf(float v) { Put(16, F32ToF16(std::clamp(v, -65504.0f, 65504.0f))); }
  float TakeHalf() { return F16ToF32(static_cast<uint16_t>(Take(16))); }

 private:
  uint8_t* bytes_;
  int64_t at_ = 0;
};

float Half(float v) { return F16ToF32(F32ToF16(std::clamp(v, -65504.0f, 65504.0f))); }

double OfE4M3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code >= 128 ? -size : size;
}
// The nearest, by looking at all of them; of two the even one.
int ToE4M3(float v) {
  const double size = std::min(std::abs(double{v}), 448.0);
  int best = 0;
  for (int code = 1; code < 127; ++code) {
    const double was = std::abs(OfE4M3(best) - size), is = std::abs(OfE4M3(code) - size);
    if (is < was || (is == was && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(v) ? 128 : 0);
}

float SumOf(const Numbers& terms) {
  std::array<float, 16> chains = {};
  for (size_t i = 0; i < terms.size(); ++i) chains[i % 16] += terms[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}
float SquaresOf(const Numbers& x) {
  Numbers squares;
  for (const float v : x) squares.push_back(v * v);
  return SumOf(squares);
}

int64_t RecordBytes(const KvCodec& codec) {
  const int64_t codes = (EntryCodeBits(codec) + 7) / 8;
  switch (codec.kind) {
    case KvCodecKind::kClusters:
      return codes + 2 * codec.stages;
    case KvCodecKind::kPolarTree:
      return codes + codec.dim / 8;
    case KvCodecKind::kVectors:
      return codes + (codec.range == CodeRange::kRms ? 2 : 0);
    case KvCodecKind::kSketched:
      return codes + 4;
    default:
      return codes;
  }
}
// kMeanSizes: dims that have a mean size; the others have a scale and a zero.
int64_t SizedDims(const KvCodec& codec) { return codec.bits == 0 ? codec.dim : codec.stages; }
int64_t HeaderBytes(const KvCodec& codec) {
  if (codec.kind == KvCodecKind::kMeanSizes) {
    const int64_t sized = SizedDims(codec);
    return kKvPageEntries / codec.group * (2 * sized + 4 * (codec.dim - sized));
  }
  if (codec.kind != KvCodecKind::kPolarPairs) return 0;
  return kKvPageEntries / codec.group * (codec.dim / 2) * 4 * 2;
}
uint8_t* RecordOfEntry(const KvCodec& codec, const void* page, int64_t entry) {
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(page));
  return bytes + HeaderBytes(codec) + entry * RecordBytes(codec);
}

// Groups in the order of their numbers, each the dims it has.
std::map<int, std::vector<size_t>> GroupsOf(const KvCodec& codec) {
  std::map<int, std::vector<size_t>> groups;
  for (int g = 0; g < codec.stages; ++g) groups[g] = {};
  for (int64_t d = 0; d < codec.dim; ++d) {
    groups[static_cast<int>(codec.table.f32()[d])].push_back(static_cast<size_t>(d));
  }
  return groups;
}

void CodeGroups(const KvCodec& codec, const Numbers& x, Fields out) {
  const float top = static_cast<float>((1 << codec.bits) - 1);
  Numbers steps, lows;
  std::vector<int> codes(x.size());
  for (const auto& [number, dims] : GroupsOf(codec)) {
    float low = 0, high = 0;
    for (size_t i = 0; i < dims.size(); ++i) {
      low = i == 0 ? x[dims[i]] : std::min(low, x[dims[i]]);
      high = i == 0 ? x[dims[i]] : std::max(high, x[dims[i]]);
    }
    low = low * codec.clip + 0.0f;
    high = high * codec.clip + 0.0f;
    const float step = std::max((high - low) / top, 1e-5f);
    for (const size_t d : dims) {
      codes[d] = static_cast<int>(std::nearbyint(std::clamp((x[d] - low) / step, 0.0f, top)));
    }
    steps.push_back(step);
    lows.push_back(low);
  }
  for (const float step : steps) out.Put(8, ToE4M3(step));
  for (const float low : lows) out.Put(8, ToE4M3(low));
  for (const int code : codes) out.Put(codec.bits, code);
}
Numbers ReadGroups(const KvCodec& codec, Fields in) {
  Numbers steps, lows, x;
  for (int64_t g = 0; g < codec.stages; ++g)
    steps.push_back(static_cast<float>(OfE4M3(in.Take(8))));
  for (int64_t g = 0; g < codec.stages; ++g) lows.push_back(static_cast<float>(OfE4M3(in.Take(8))));
  for (int64_t d = 0; d < codec.dim; ++d) {
    const auto g = static_cast<size_t>(codec.table.f32()[d]);
    const float product = steps[g] * static_cast<float>(in.Take(codec.bits));
    x.push_back(product + lows[g]);
  }
  return x;
}

struct PolarNumber {
  float radius, angle;
};
std::vector<PolarNumber> PairsOf(const KvCodec& codec, const Numbers& x) {
  std::vector<PolarNumber> pairs;
  for (int64_t p = 0; p < codec.dim / 2; ++p) {
    const int64_t d = codec.apart == 1 ? 2 * p : p;
    const float a = x[static_cast<size_t>(d)], b = x[static_cast<size_t>(d + codec.apart)];
    double angle = std::atan2(double{b}, double{a});
    if (angle < 0) angle += kTurn;
    pairs.push_back({std::sqrt(a * a + b * b), static_cast<float>(angle)});
  }
  return pairs;
}
// Least and step of the radius of a pair in a group of entries, then those of its angle.
Fields RangesOf(const KvCodec& codec, const void* page, int64_t group, int64_t pair) {
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(page));
  return Fields(bytes + (group * (codec.dim / 2) + pair) * 8);
}
int StepOf(float v, float least, float step, int bits) {
  if (step == 0) return 0;
  return static_cast<int>(
      std::clamp(std::floor((v - least) / step), 0.0f, static_cast<float>((1 << bits) - 1)));
}

void CodePairGroup(const KvCodec& codec, const std::vector<Numbers>& rows, int64_t entry,
                   void* page) {
  std::vector<std::vector<PolarNumber>> polar;
  for (const Numbers& row : rows) polar.push_back(PairsOf(codec, row));
  std::vector<Fields> records;
  for (size_t e = 0; e < rows.size(); ++e) {
    records.emplace_back(RecordOfEntry(codec, page, entry + static_cast<int64_t>(e)));
  }
  const float steps = static_cast<float>(1 << codec.bits);
  for (int64_t p = 0; p < codec.dim / 2; ++p) {
    const auto at = static_cast<size_t>(p);
    PolarNumber least = polar[0][at], most = least;
    for (const auto& pairs : polar) {
      least = {std::min(least.radius, pairs[at].radius), std::min(least.angle, pairs[at].angle)};
      most = {std::max(most.radius, pairs[at].radius), std::max(most.angle, pairs[at].angle)};
    }
    const float radius = Half(least.radius),
                radius_step = Half((most.radius - least.radius) / steps);
    const float angle = Half(least.angle), angle_step = Half((most.angle - least.angle) / steps);
    Fields ranges = RangesOf(codec, page, entry / codec.group, p);
    for (const float v : {radius, radius_step, angle, angle_step}) ranges.PutHalf(v);
    for (size_t e = 0; e < rows.size(); ++e) {
      records[e].Put(codec.bits, StepOf(polar[e][at].radius, radius, radius_step, codec.bits));
      records[e].Put(codec.bits, StepOf(polar[e][at].angle, angle, angle_step, codec.bits));
    }
  }
}
Numbers ReadPairs(const KvCodec& codec, const void* page, int64_t entry) {
  Fields in(RecordOfEntry(codec, page, entry));
  Numbers x(static_cast<size_t>(codec.dim));
  for (int64_t p = 0; p < codec.dim / 2; ++p) {
    Fields ranges = RangesOf(codec, page, entry / codec.group, p);
    const auto middle = [&] {
      const float least = ranges.TakeHalf(), step = ranges.TakeHalf();
      const float product = (static_cast<float>(in.Take(codec.bits)) + 0.5f) * step;
      return product + least;
    };
    const float radius = middle(), angle = middle();
    const int64_t d = codec.apart == 1 ? 2 * p : p;
    x[static_cast<size_t>(d)] = radius * static_cast<float>(std::cos(double{angle}));
    x[static_cast<size_t>(d + codec.apart)] = radius * static_cast<float>(std::sin(double{angle}));
  }
  return x;
}

// Levels of the angles from the second level on, ascending, and what ends them.
struct Angles {
  std::array<float, 4> cosines;
  std::array<float, 3> tangents;
};
constexpr std::array<Angles, 3> kTreeAngles = {
    {{{0.95240794f, 0.80567618f, 0.59235623f, 0.30482637f}, {0.51031836f, 1.0f, 1.95956110f}},
     {{0.91052275f, 0.78109112f, 0.62441706f, 0.41345898f}, {0.61354193f, 1.0f, 1.62988045f}},
     {{0.86571758f, 0.76102191f, 0.64872618f, 0.50053278f}, {0.70648003f, 1.0f, 1.41546818f}}}};

// The middle of one of 16 equal sectors.
float SectorCosineOf(int sector) {
  return static_cast<float>(std::round(std::cos((sector + 0.5) * kTurn / 16) * 1e8) / 1e8);
}
int SectorOfAngle(float a, float b) {
  const float x = std::abs(a), y = std::abs(b);
  int part = 0;
  for (const float tangent : {0.41421356f, 1.0f, 2.41421356f}) part += y > tangent * x ? 1 : 0;
  const bool left = a < 0, below = b < 0;
  if (below) return left ? 8 + part : 15 - part;
  return left ? 7 - part : part;
}

void CodeTrees(const Numbers& x, Fields out) {
  std::vector<std::vector<std::array<int, 2>>> fields;  // [block] of bits and a code
  Numbers tops;
  for (size_t block = 0; block < x.size(); block += 16) {
    std::vector<std::array<int, 2>> of_block;
    Numbers radii(x.begin() + static_cast<int64_t>(block),
                  x.begin() + static_cast<int64_t>(block) + 16);
    for (int level = 1; level <= 4; ++level) {
      Numbers next;
      for (size_t i = 0; i < radii.size(); i += 2) {
        const float a = radii[i], b = radii[i + 1];
        int code = 0;
        if (level == 1) {
          code = SectorOfAngle(a, b);
        } else {
          for (const float tangent : kTreeAngles[static_cast<size_t>(level - 2)].tangents) {
            code += b > tangent * a ? 1 : 0;
          }
        }
        of_block.push_back({level == 1 ? 4 : 2, code});
        next.push_back(std::sqrt(a * a + b * b));
      }
      radii = next;
    }
    tops.push_back(radii[0]);
    fields.push_back(of_block);
  }
  for (const float top : tops) out.PutHalf(top);
  for (const auto& of_block : fields) {
    for (const auto& [bits, code] : of_block) out.Put(bits, code);
  }
}
Numbers ReadTrees(const KvCodec& codec, Fields in) {
  Numbers tops, x;
  for (int64_t block = 0; block < codec.dim / 16; ++block) tops.push_back(in.TakeHalf());
  for (const float top : tops) {
    std::array<std::vector<int>, 4> codes;
    for (size_t level = 0; level < 4; ++level) {
      for (int i = 0; i < 8 >> level; ++i) codes[level].push_back(in.Take(level == 0 ? 4 : 2));
    }
    Numbers radii = {top};
    for (size_t level = 4; level-- > 0;) {
      Numbers below;
      for (size_t i = 0; i < radii.size(); ++i) {
        const int code = codes[level][i];
        if (level == 0) {
          below.push_back(radii[i] * SectorCosineOf(code));
          below.push_back(radii[i] * SectorCosineOf((code + 12) % 16));
        } else {
          const auto& cosines = kTreeAngles[level - 1].cosines;
          below.push_back(radii[i] * cosines[static_cast<size_t>(code)]);
          below.push_back(radii[i] * cosines[static_cast<size_t>(3 - code)]);  // the sine
        }
      }
      radii = below;
    }
    x.insert(x.end(), radii.begin(), radii.end());
  }
  return x;
}

// A codeword of a run.
Numbers WordOf(const KvCodec& codec, int64_t stage, int64_t run, int code) {
  const float* table = codec.table.f32();
  const int64_t width = codec.group;
  Numbers word;
  if (!codec.commuting) {
    const int64_t at = ((stage * (codec.dim / width) + run) * (1 << codec.bits) + code) * width;
    word.assign(table + at, table + at + width);
    return word;
  }
  const int64_t halves = int64_t{1} << codec.bits / 2, pairs = codec.dim / 2;
  const auto part = [&](int64_t which, int64_t half, int64_t pair) {
    return table[((stage * halves + which) * 2 + half) * pairs + pair];
  };
  const int64_t a = code / halves, b = code % halves;
  word.resize(static_cast<size_t>(codec.dim));
  for (int64_t p = 0; p < pairs; ++p) {
    const int64_t d = codec.apart == 1 ? 2 * p : p;
    word[static_cast<size_t>(d)] = part(a, 0, p) - part(b, 1, p);
    word[static_cast<size_t>(d + codec.apart)] = part(b, 0, p) + part(a, 1, p);
  }
  return word;
}

void CodeVectorsOf(const KvCodec& codec, const Numbers& x, Fields out) {
  Numbers rest = x;
  if (codec.range == CodeRange::kRms) {
    const float scale = Half(std::sqrt(SquaresOf(x) / static_cast<float>(codec.dim)));
    out.PutHalf(scale);
    for (float& v : rest) v = scale == 0 ? 0.0f : v / scale;
  }
  for (int64_t stage = 0; stage < codec.stages; ++stage) {
    for (int64_t run = 0; run < codec.dim / codec.group; ++run) {
      float* mine = rest.data() + run * codec.group;
      int best = 0;
      float least = 0;
      for (int code = 0; code < 1 << codec.bits; ++code) {
        const Numbers word = WordOf(codec, stage, run, code);
        float distance = 0;
        for (size_t i = 0; i < word.size(); ++i) {
          const float off = mine[i] - word[i];
          distance += off * off;
        }
        if (code == 0 || distance < least) best = code, least = distance;
      }
      const Numbers word = WordOf(codec, stage, run, best);
      for (size_t i = 0; i < word.size(); ++i) mine[i] -= word[i];
      out.Put(codec.bits, best);
    }
  }
}
Numbers ReadVectors(const KvCodec& codec, Fields in) {
  const bool scaled = codec.range == CodeRange::kRms;
  const float scale = scaled ? in.TakeHalf() : 1.0f;
  Numbers x(static_cast<size_t>(codec.dim));
  for (int64_t stage = 0; stage < codec.stages; ++stage) {
    for (int64_t run = 0; run < codec.dim / codec.group; ++run) {
      const Numbers word = WordOf(codec, stage, run, in.Take(codec.bits));
      for (size_t i = 0; i < word.size(); ++i) {
        x[static_cast<size_t>(run * codec.group) + i] += word[i];
      }
    }
  }
  for (float& v : x) v = scaled ? scale * v : v;
  return x;
}

Fields SizesOf(const KvCodec& codec, const void* page, int64_t entry) {
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(page));
  const int64_t groups = kKvPageEntries / codec.group;
  return Fields(bytes + entry / codec.group * (HeaderBytes(codec) / groups));
}

void CodeSizedGroup(const KvCodec& codec, const std::vector<Numbers>& rows, int64_t entry,
                    void* page) {
  Fields header = SizesOf(codec, page, entry);
  std::vector<std::vector<int>> codes(rows.size());
  const int most = (1 << codec.bits) - 1;
  for (int64_t d = 0; d < codec.dim; ++d) {
    Numbers of_dim, sizes;
    for (const Numbers& row : rows) of_dim.push_back(row[static_cast<size_t>(d)]);
    for (const float v : of_dim) sizes.push_back(std::abs(v));
    if (d < SizedDims(codec)) {
      const float size = Half(SumOf(sizes) / static_cast<float>(codec.group));
      header.PutHalf(size);
      for (size_t e = 0; e < rows.size(); ++e) {
        const float v = of_dim[e];
        const int level = (std::abs(v) > 0.5f * size) ? (v > 0 ? 2 : 0) : 1;
        codes[e].push_back(d < codec.stages ? (v >= 0 ? 1 : 0) : level);
      }
      continue;
    }
    const auto [low, high] = std::minmax_element(of_dim.begin(), of_dim.end());
    const float zero = Half(*low + 0.0f);
    const float scale = Half(((*high + 0.0f) - (*low + 0.0f)) / static_cast<float>(most));
    header.PutHalf(scale);
    header.PutHalf(zero);
    for (size_t e = 0; e < rows.size(); ++e) {
      const float ratio = scale == 0 ? 0.0f : (of_dim[e] - zero) / scale;
      const float code = std::nearbyint(std::clamp(ratio, 0.0f, static_cast<float>(most)));
      codes[e].push_back(static_cast<int>(code));
    }
  }
  for (size_t e = 0; e < rows.size(); ++e) {
    Fields out(RecordOfEntry(codec, page, entry + static_cast<int64_t>(e)));
    int five = 0, power = 1;
    for (int64_t d = 0; d < codec.dim; ++d) {
      const int code = codes[e][static_cast<size_t>(d)];
      if (d < codec.stages || codec.bits > 0) {
        out.Put(d < codec.stages ? 1 : codec.bits, code);
        continue;
      }
      five += code * power;
      power *= 3;
      if (power < 243 && d + 1 < codec.dim) continue;
      out.Put(8, five);
      five = 0;
      power = 1;
    }
  }
}
Numbers ReadSized(const KvCodec& codec, const void* page, int64_t entry) {
  Fields header = SizesOf(codec, page, entry), in(RecordOfEntry(codec, page, entry));
  Numbers x;
  int five = 0, left = 0;
  for (int64_t d = 0; d < codec.dim; ++d) {
    const float size = header.TakeHalf();
    if (d < codec.stages) {
      x.push_back(in.Take(1) != 0 ? size : -size);
    } else if (codec.bits > 0) {
      const float zero = header.TakeHalf(),
                  product = size * static_cast<float>(in.Take(codec.bits));
      x.push_back(product + zero);
    } else {
      if (left == 0) {
        five = in.Take(8);
        left = 5;
      }
      const int level = five % 3;
      five /= 3;
      --left;
      x.push_back(level == 0 ? -size : (level == 1 ? 0.0f : size));
    }
  }
  return x;
}

// Entry (i, j) of Sylvester's matrix, in blocks: + or - 1, or 0 between blocks.
int SylvesterAt(int64_t dim, int64_t i, int64_t j) {
  const int64_t block = dim & -dim;
  if (i / block != j / block) return 0;
  return __builtin_parityll(static_cast<uint64_t>(i % block & j % block)) != 0 ? -1 : 1;
}

void CodeSketch(const KvCodec& codec, const Numbers& x, Fields out) {
  const float scale = Half(std::sqrt(SquaresOf(x) / static_cast<float>(codec.dim)));
  const float* levels = codec.levels.f32();
  std::vector<int> codes;
  Numbers rest;
  for (const float v : x) {
    const float u = scale == 0 ? 0.0f : v / scale;
    int code = 0;
    while (code + 1 < 1 << codec.bits && u > 0.5f * (levels[code] + levels[code + 1])) ++code;
    codes.push_back(code);
    const float level = scale * levels[code];
    rest.push_back(v - level);
  }
  out.PutHalf(scale);
  out.PutHalf(std::sqrt(SquaresOf(rest)));
  for (const int code : codes) out.Put(codec.bits, code);
  // Sums of pairs of sums, nearest dims first.
  Numbers sums = rest;
  const auto dim = static_cast<size_t>(codec.dim), block = dim & (~dim + 1);
  for (size_t span = 1; span < block; span *= 2) {
    Numbers next(dim);
    for (size_t d = 0; d < dim; ++d) {
      next[d] = (d & span) == 0 ? sums[d] + sums[d + span] : sums[d - span] - sums[d];
    }
    sums = next;
  }
  for (const float sum : sums) out.Put(1, sum < 0 ? 1 : 0);
}
Numbers ReadSketch(const KvCodec& codec, Fields in) {
  const float scale = in.TakeHalf(), length = in.TakeHalf();
  Numbers x;
  for (int64_t d = 0; d < codec.dim; ++d) {
    x.push_back(scale * codec.levels.f32()[in.Take(codec.bits)]);
  }
  std::vector<int> signs;
  for (int64_t d = 0; d < codec.dim; ++d) signs.push_back(in.Take(1) != 0 ? -1 : 1);
  const int64_t block = codec.dim & -codec.dim;
  const float factor = std::sqrt(1.57079633f / static_cast<float>(codec.dim * block));
  for (int64_t d = 0; d < codec.dim; ++d) {
    int sum = 0;
    for (int64_t j = 0; j < codec.dim; ++j) {
      sum += signs[static_cast<size_t>(j)] * SylvesterAt(codec.dim, j, d);
    }
    const float product = length * factor * static_cast<float>(sum);
    x[static_cast<size_t>(d)] += product;
  }
  return x;
}

}  // namespace

int64_t ReferenceRecordPageBytes(const KvCodec& codec) {
  return HeaderBytes(codec) + kKvPageEntries * RecordBytes(codec);
}

void EncodeReferenceRecords(const KvCodec& codec, const std::vector<Numbers>& rows, int64_t begin,
                            void* page) {
  const auto count = static_cast<int64_t>(rows.size());
  if (codec.kind == KvCodecKind::kPolarPairs) {
    for (int64_t e = 0; e < count; e += codec.group) {
      CodePairGroup(codec, {rows.begin() + e, rows.begin() + e + codec.group}, begin + e, page);
    }
    return;
  }
  if (codec.kind == KvCodecKind::kMeanSizes) {
    for (int64_t e = 0; e < count; e += codec.group) {
      CodeSizedGroup(codec, {rows.begin() + e, rows.begin() + e + codec.group}, begin + e, page);
    }
    return;
  }
  for (int64_t e = 0; e < count; ++e) {
    const Numbers& row = rows[static_cast<size_t>(e)];
    const Fields out(RecordOfEntry(codec, page, begin + e));
    switch (codec.kind) {
      case KvCodecKind::kClusters:
        CodeGroups(codec, row, out);
        break;
      case KvCodecKind::kPolarTree:
        CodeTrees(row, out);
        break;
      case KvCodecKind::kVectors:
        CodeVectorsOf(codec, row, out);
        break;
      default:
        CodeSketch(codec, row, out);
        break;
    }
  }
}

std::vector<float> DecodeReferenceRecord(const KvCodec& codec, const void* page, int64_t entry) {
  const Fields in(RecordOfEntry(codec, page, entry));
  switch (codec.kind) {
    case KvCodecKind::kClusters:
      return ReadGroups(codec, in);
    case KvCodecKind::kPolarPairs:
      return ReadPairs(codec, page, entry);
    case KvCodecKind::kPolarTree:
      return ReadTrees(codec, in);
    case KvCodecKind::kVectors:
      return ReadVectors(codec, in);
    case KvCodecKind::kMeanSizes:
      return ReadSized(codec, page, entry);
    default:
      return ReadSketch(codec, in);
  }
}

}  // namespace kvgauge
