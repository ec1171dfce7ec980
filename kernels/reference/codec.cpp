// SPDX-License-Identifier: Apache-2.0
// Coding is f32 arithmetic here as everywhere: the contract fixes each rounding, so that all
// backends give the same codes. The correction, of which only its size is fixed, is in double.
//
// A page: the codes as one string of bits, code (entry, dim) at (entry * dim count + dim) * bits,
// lowest first; then the scales and the zeros, f16, [group][64 entries] or [group][dim].
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "core/rng.h"
#include "kernels/attention.h"
#include "kernels/kv_codec.h"
#include "reference/records.h"
#include "reference/reference.h"

namespace kvgauge {
namespace {

constexpr float kLargestF16 = 65504.0f;
constexpr float kSmallestNormal = 0x1p-126f;
constexpr float kUp = 0.5f;  // before a number is cut off
constexpr int kRounds = 3;

uint16_t ToF16(double v) {
  return F32ToF16(std::clamp(static_cast<float>(v), -kLargestF16, kLargestF16));
}

// A sign and `exponent_bits`, then the mantissa; no infinities, no NaN.
struct Float8 {
  int mantissa_bits, bias, last;  // `last`: the code of the largest number
  double Value(int code) const {
    const int ones = 1 << mantissa_bits, exponent = code >> mantissa_bits, mantissa = code % ones;
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                         : std::ldexp(ones + mantissa, exponent - bias - mantissa_bits);
  }
};
constexpr Float8 kE4M3 = {3, 7, 126}, kE5M2 = {2, 15, 123};

// The nearest number, even mantissa on a tie, by looking at all of them.
uint8_t ToFloat8(const Float8& form, float v) {
  const double size = std::min(std::abs(double{v}), form.Value(form.last));
  int best = 0;
  for (int code = 1; code <= form.last; ++code) {
    const double was = std::abs(form.Value(best) - size), is = std::abs(form.Value(code) - size);
    if (is < was || (is == was && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(v) ? 0x80 : 0));
}

float FromFloat8(const Float8& form, int code) {
  const double size = form.Value(code & 0x7f);
  return static_cast<float>(code & 0x80 ? -size : size);
}

// The same of four bits.
int ToFloat4(std::span<const float> levels, float v) {
  const float size = std::min(std::abs(v), levels[7]);
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    const double was = std::abs(double{levels[best]} - size);
    const double is = std::abs(double{levels[code]} - size);
    if (is < was || (is == was && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(v) ? 8 : 0);
}

// Sixteen interleaved chains, joined by halves.
template <class TermOf>
float SumOf(int64_t n, TermOf term_of) {
  std::array<float, 16> chains = {};
  for (int64_t i = 0; i < n; ++i) chains[i % 16] += term_of(i);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

// The numbers of one group, what becomes of them, and their scale and zero as stored.
struct Group {
  std::vector<float> numbers;
  std::vector<float> others;  // that have part in its range
  std::vector<int64_t> dims;
  std::vector<int> codes;
  float scale = 0, zero = 0;
};

class Page {
 public:
  Page(const KvCodec& codec, void* memory)
      : c_(codec),
        form_(FormOf(codec)),
        float8_(codec.kind == KvCodecKind::kFp8E5M2 ? kE5M2 : kE4M3),
        data_(static_cast<uint8_t*>(memory)),
        bits_(form_.bits),
        group_(form_.group),
        by_token_(form_.by_token),
        fixed_(codec.kind == KvCodecKind::kCodebook && !by_token_) {
    if (group_ == 0) group_ = by_token_ ? c_.dim : 1;
  }

  // Bytes before the scales, and scales in a page.
  int64_t CodeBytes() const { return kKvPageEntries * c_.dim * bits_ / 8; }
  int64_t Scales() const {
    if (form_.scale == ScaleType::kNone) return 0;
    return by_token_ ? (c_.dim + group_ - 1) / group_ * kKvPageEntries
                     : kKvPageEntries / group_ * c_.dim;
  }
  bool HasZeros() const { return form_.zeros; }
  int64_t Bytes() const {
    return CodeBytes() + Scales() * (SizeOf(form_.scale) + (HasZeros() ? 2 : 0));
  }

  // x(entry, dim) for the entries [begin, end) of the page, and for those of the pages `apart`
  // entries away that have one range with it.
  template <class NumberAt>
  void Encode(int64_t begin, int64_t end, const std::vector<int64_t>& apart, NumberAt x) {
    ForGroups(begin, end, [&](const std::vector<std::array<int64_t, 2>>& places) {
      Group g;
      for (const auto& [entry, dim] : places) {
        g.numbers.push_back(x(entry, dim));
        for (const int64_t other : apart) g.others.push_back(x(entry + other, dim));
      }
      if (fixed_) SetFixedRange(places[0][1], &g);
      for (const auto& place : places) g.dims.push_back(place[1]);
      Code(&g);
      for (size_t i = 0; i < places.size(); ++i) PutCode(places[i][0], places[i][1], g.codes[i]);
      if (Scales() > 0) PutScale(places[0][0], places[0][1], g);
    });
  }

  float Decode(int64_t entry, int64_t dim) const {
    const int code = CodeAt(entry, dim);
    Group g;
    if (fixed_) {
      SetFixedRange(dim, &g);
    } else if (form_.scale == ScaleType::kNone) {
      g.scale = FixedScale(dim);
    } else {
      g.scale = ScaleAt(ScaleIndex(entry, dim));
      if (HasZeros()) g.zero = ZeroAt(ScaleIndex(entry, dim));
    }
    const float product = g.scale * NumberOf(code);
    return fixed_ || HasZeros() ? product + g.zero : product;
  }

 private:
  template <class Body>
  void ForGroups(int64_t begin, int64_t end, Body body) const {
    const int64_t entries = by_token_ ? 1 : group_, dims = by_token_ ? group_ : 1;
    for (int64_t e = begin; e < end; e += entries) {
      for (int64_t d = 0; d < c_.dim; d += dims) {
        std::vector<std::array<int64_t, 2>> places;
        for (int64_t i = e; i < e + entries; ++i) {
          for (int64_t j = d; j < std::min(d + dims, c_.dim); ++j) places.push_back({i, j});
        }
        body(places);
      }
    }
  }

  void SetFixedRange(int64_t dim, Group* g) const {
    const float low = 0.5f * c_.channel_low.f32()[dim], high = 0.5f * c_.channel_high.f32()[dim];
    g->scale = high - low;
    g->zero = low + high;
  }

  // Fills codes, scale and zero. Scales are rounded before anything is divided by them, but in the
  // two block formats.
  void Code(Group* g) const {
    std::vector<float> ranged = g->numbers;
    ranged.insert(ranged.end(), g->others.begin(), g->others.end());
    const auto [low_at, high_at] = std::minmax_element(ranged.begin(), ranged.end());
    const float low = *low_at + 0.0f, high = *high_at + 0.0f, largest = std::max(high, -low);
    const auto for_all = [&](auto code_of) {
      for (const float v : g->numbers) g->codes.push_back(code_of(v));
    };
    const auto stored = [](float v) { return F16ToF32(ToF16(v)); };
    const auto inverse_of = [](float d) {
      return std::abs(d) >= kSmallestNormal ? 1.0f / d : 0.0f;
    };
    const auto signed_largest = [&] {
      float found = 0;
      for (const float v : g->numbers) {
        if (std::abs(v) > std::abs(found)) found = v;
      }
      return found;
    };
    const int most = (1 << bits_) - 1;
    switch (c_.kind) {
      case KvCodecKind::kQ8_0: {
        const float d = largest / 127.0f, inverse = inverse_of(d);
        g->scale = stored(d);
        return for_all([&](float v) { return static_cast<int>(std::round(v * inverse)) + 128; });
      }
      case KvCodecKind::kQ4_0:
      case KvCodecKind::kQ5_0: {
        const auto middle = static_cast<float>(form_.offset);
        const float d = signed_largest() / -middle, inverse = inverse_of(d);
        g->scale = stored(d);
        return for_all([&](float v) {
          return std::min(most, static_cast<int>(v * inverse + (middle + 0.5f)));
        });
      }
      case KvCodecKind::kQ4_1:
      case KvCodecKind::kQ5_1: {
        const float d = (high - low) / static_cast<float>(most), inverse = inverse_of(d);
        g->scale = stored(d);
        g->zero = stored(low);
        return for_all([&](float v) {
          const float steps = (v - low) * inverse;
          return std::min(most, static_cast<int>(steps + kUp));
        });
      }
      case KvCodecKind::kIq4Nl:
        return CodeUneven(signed_largest(), g);
      case KvCodecKind::kMxFp4:
        g->scale = std::ldexp(1.0f, PowerOf(largest) - 127);
        return for_all([&](float v) { return ToFloat4(form_.levels, v / g->scale); });
      case KvCodecKind::kNvFp4: {
        const float part = largest / 6.0f / FixedScale(0);
        g->scale = FromFloat8(kE4M3, ToFloat8(kE4M3, part)) * FixedScale(0);
        return for_all([&](float v) {
          return ToFloat4(form_.levels, g->scale == 0 ? 0.0f * v : v / g->scale);
        });
      }
      case KvCodecKind::kFp8E4M3:
      case KvCodecKind::kFp8E5M2: {
        const bool found = form_.scale != ScaleType::kNone;
        if (found) g->scale = largest / static_cast<float>(float8_.Value(float8_.last));
        for (size_t i = 0; i < g->numbers.size(); ++i) {
          const float scale = found ? g->scale : FixedScale(g->dims[i]), v = g->numbers[i];
          g->codes.push_back(ToFloat8(float8_, scale == 0 ? 0.0f * v : v / scale));
        }
        return;
      }
      case KvCodecKind::kCodebook:
        return CodeLevels(low, high, g);
      default:
        break;
    }
    const float top = static_cast<float>((1 << bits_) - 1);
    const float middle = static_cast<float>(1 << (bits_ - 1));
    const float first = low * c_.clip + 0.0f, last = high * c_.clip + 0.0f;
    if (c_.exact_scale) {
      const float d = (last - first) / top, inverse = inverse_of(d);
      g->scale = stored(d);
      g->zero = stored(first);
      return for_all([&](float v) {
        const float steps = (v - first) * inverse;
        return static_cast<int>(std::nearbyint(std::clamp(steps, 0.0f, top)));
      });
    }
    g->scale = stored(c_.symmetric ? largest / (middle - 1) : (last - first) / top);
    g->zero = c_.symmetric ? 0.0f : stored(first);
    for_all([&](float v) {
      const float ratio = g->scale == 0 ? 0.0f : (v - g->zero) / g->scale;
      const float shift = c_.symmetric ? middle : 0.0f;
      const float code = std::nearbyint(std::clamp(ratio, -shift, top - shift)) + shift;
      return static_cast<int>(code);
    });
  }

  // The biased exponent of e8m0: the largest number's, less that of 4, the largest power of e2m1.
  static int PowerOf(float largest) {
    if (largest == 0) return 0;
    return std::clamp(std::ilogb(largest) - 2 + 127, 0, 254);
  }

  // Codes by the scale that maps the largest number to the first level; stored is the scale that is
  // best for these codes, numbers weighed by their squares.
  void CodeUneven(float signed_largest, Group* g) const {
    const float d = signed_largest / form_.levels[0];
    const float inverse = std::abs(d) >= kSmallestNormal ? 1.0f / d : 0.0f;
    std::vector<float> scaled;
    for (const float v : g->numbers) {
      scaled.push_back(v * inverse);
      int code = 0;  // of two the higher
      while (code < 15 && scaled.back() >= 0.5f * (form_.levels[code] + form_.levels[code + 1])) {
        ++code;
      }
      g->codes.push_back(code);
    }
    const auto count = static_cast<int64_t>(g->numbers.size());
    const auto weighed = [&](int64_t i) {
      return scaled[i] * scaled[i] * form_.levels[g->codes[i]];
    };
    const float met = SumOf(count, [&](int64_t i) { return weighed(i) * scaled[i]; });
    const float own =
        SumOf(count, [&](int64_t i) { return weighed(i) * form_.levels[g->codes[i]]; });
    g->scale = F16ToF32(ToF16(own > 0 ? met / own * d : d));
  }

  void CodeLevels(float low, float high, Group* g) const {
    const auto count = static_cast<int64_t>(g->numbers.size());
    if (c_.range == CodeRange::kRms) {
      const float sum = SumOf(count, [&](int64_t i) { return g->numbers[i] * g->numbers[i]; });
      g->scale = F16ToF32(ToF16(std::sqrt(sum / static_cast<float>(count))));
    } else if (c_.range == CodeRange::kLargest) {
      g->scale = F16ToF32(ToF16(std::max(high, -low)));
    } else if (!fixed_) {
      g->scale = F16ToF32(ToF16(0.5f * high - 0.5f * low));
      g->zero = F16ToF32(ToF16(0.5f * low + 0.5f * high));
    }
    const float* levels = c_.levels.f32();
    const auto edge = [&](int code) {
      return c_.table.empty() ? 0.5f * (levels[code] + levels[code + 1]) : c_.table.f32()[code];
    };
    for (const float v : g->numbers) {
      const float u = g->scale == 0 ? 0.0f : (v - g->zero) / g->scale;
      int code = 0;
      while (code + 1 < 1 << bits_ && u > edge(code)) ++code;
      g->codes.push_back(code);
    }
  }

  int64_t ScaleIndex(int64_t entry, int64_t dim) const {
    return by_token_ ? dim / group_ * kKvPageEntries + entry : entry / group_ * c_.dim + dim;
  }
  float FixedScale(int64_t dim) const {
    if (c_.fixed_scale.empty()) return 1.0f;
    return c_.fixed_scale.f32()[c_.fixed_scale.Numel() == 1 ? 0 : dim];
  }
  float NumberOf(int code) const {
    if (form_.float8) return FromFloat8(float8_, code);
    return form_.levels.empty() ? static_cast<float>(code - form_.offset) : form_.levels[code];
  }
  template <class Number>
  Number StoredAt(int64_t index) const {
    Number number;
    std::memcpy(&number, data_ + CodeBytes() + SizeOf(form_.scale) * index, sizeof number);
    return number;
  }
  float ScaleAt(int64_t index) const {
    switch (form_.scale) {
      case ScaleType::kF16:
        return F16ToF32(StoredAt<uint16_t>(index));
      case ScaleType::kF32:
        return StoredAt<float>(index);
      case ScaleType::kE4M3:
        return FromFloat8(kE4M3, StoredAt<uint8_t>(index)) * FixedScale(0);
      case ScaleType::kE8M0:
        return std::ldexp(1.0f, StoredAt<uint8_t>(index) - 127);
      case ScaleType::kNone:
        break;
    }
    return 1.0f;
  }
  float ZeroAt(int64_t index) const { return F16ToF32(StoredAt<uint16_t>(Scales() + index)); }

  void PutScale(int64_t entry, int64_t dim, const Group& g) {
    const int64_t index = ScaleIndex(entry, dim);
    const auto put = [&](int64_t at, auto number) {
      std::memcpy(data_ + CodeBytes() + SizeOf(form_.scale) * at, &number, sizeof number);
    };
    switch (form_.scale) {
      case ScaleType::kF16:
        put(index, ToF16(g.scale));
        break;
      case ScaleType::kF32:
        put(index, g.scale);
        break;
      case ScaleType::kE4M3:
        put(index, ToFloat8(kE4M3, g.scale / FixedScale(0)));
        break;
      case ScaleType::kE8M0:
        put(index, static_cast<uint8_t>(std::ilogb(g.scale) + 127));
        break;
      case ScaleType::kNone:
        break;
    }
    if (HasZeros()) put(Scales() + index, ToF16(g.zero));
  }

  int CodeAt(int64_t entry, int64_t dim) const {
    int code = 0;
    for (int b = 0; b < bits_; ++b) {
      const int64_t bit = (entry * c_.dim + dim) * bits_ + b;
      code |= (data_[bit / 8] >> (bit % 8) & 1) << b;
    }
    return code;
  }
  void PutCode(int64_t entry, int64_t dim, int code) {
    for (int b = 0; b < bits_; ++b) {
      const int64_t bit = (entry * c_.dim + dim) * bits_ + b;
      const int keep = data_[bit / 8] & ~(1 << (bit % 8));
      data_[bit / 8] = static_cast<uint8_t>(keep | (code >> b & 1) << (bit % 8));
    }
  }

  const KvCodec& c_;
  const CodeForm form_;
  const Float8& float8_;
  uint8_t* data_;
  const int bits_;
  int64_t group_;
  const bool by_token_, fixed_;
};

// Place (dim * 64 + entry) to value, of one page.
using Outliers = std::map<int64_t, uint16_t>;

Outliers ReadOutliers(const void* block) {
  Outliers outliers;
  if (block == nullptr) return outliers;
  const auto* from = static_cast<const uint8_t*>(block);
  uint32_t count;
  std::memcpy(&count, from, sizeof count);
  for (uint32_t i = 0; i < count; ++i) {
    std::array<uint16_t, 2> pair;
    std::memcpy(pair.data(), from + 4 + 4 * i, sizeof pair);
    outliers[pair[0]] = pair[1];
  }
  return outliers;
}

void WriteOutliers(const Outliers& outliers, void* block) {
  auto* to = static_cast<uint8_t*>(block);
  const auto count = static_cast<uint32_t>(outliers.size());
  std::memcpy(to, &count, sizeof count);
  to += 4;
  for (const auto& [place, value] : outliers) {
    const std::array<uint16_t, 2> pair = {static_cast<uint16_t>(place), value};
    std::memcpy(to, pair.data(), sizeof pair);
    to += 4;
  }
}

using Rows = std::vector<std::vector<double>>;

double DotOf(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void Orthonormalize(Rows* rows) {
  for (size_t r = 0; r < rows->size(); ++r) {
    std::vector<double>& row = (*rows)[r];
    const double before = std::sqrt(DotOf(row, row));
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t q = 0; q < r; ++q) {
        const double share = DotOf((*rows)[q], row);
        for (size_t i = 0; i < row.size(); ++i) row[i] -= share * (*rows)[q][i];
      }
    }
    const double after = std::sqrt(DotOf(row, row));
    for (double& v : row) v = after > 1e-5 * before ? v / after : 0.0;
  }
}

class ReferenceCodec final : public CodecOps {
 public:
  int64_t PageBytes(const KvCodec& codec) const override {
    if (IsRecord(codec.kind)) return ReferenceRecordPageBytes(codec);
    return Page(codec, nullptr).Bytes();
  }
  int64_t OutlierCount(const void* block) const override {
    return static_cast<int64_t>(ReadOutliers(block).size());
  }

 private:
  void DoEncode(const KvCodec& codec, const Tensor& rows, int64_t first_entry, const KvPages& pages,
                const AllocateBlock& allocate) override {
    const int64_t n = rows.shape[0], dim = codec.dim, rank = codec.rank;
    const auto number = [&](int64_t row, int64_t d) {
      return rows.f32()[row * rows.stride[0] + d];
    };
    const bool channels = codec.kind == KvCodecKind::kAffine && codec.axis == CodeAxis::kChannel;
    const int64_t run = codec.range_pages == 0 ? n : codec.range_pages * kKvPageEntries;
    const std::vector<Taken> taken = FindAllOutliers(codec, n, number);
    const auto coded = [&](int64_t row, int64_t d) {
      if (taken.empty()) return number(row, d);
      const std::map<int64_t, float>& replaced = taken[row / kKvPageEntries].replaced;
      const auto other = replaced.find(d * kKvPageEntries + row % kKvPageEntries);
      return other != replaced.end() ? other->second : number(row, d);
    };
    uint16_t* basis = nullptr;
    std::vector<uint16_t*> latents;
    Rows error(static_cast<size_t>(n));  // [n][dim]
    if (rank > 0) {
      basis = static_cast<uint16_t*>(
          allocate(Block::kBasis, first_entry / kKvPageEntries, rank * dim * 2));
    }
    for (int64_t row = 0; row < n;) {
      const int64_t p = (first_entry + row) / kKvPageEntries;
      const int64_t begin = first_entry + row - p * kKvPageEntries;
      const int64_t end = std::min(kKvPageEntries, begin + n - row);
      const auto in_page = [&](int64_t entry, int64_t d) { return number(row + entry - begin, d); };
      if (IsRecord(codec.kind)) {
        std::vector<std::vector<float>> some;
        for (int64_t e = begin; e < end; ++e) {
          for (int64_t d = 0; d < dim; ++d) {
            if (d == 0) some.emplace_back();
            some.back().push_back(in_page(e, d));
          }
        }
        EncodeReferenceRecords(codec, some, begin, pages.codes[p]);
        row += end - begin;
        continue;
      }
      Page page(codec, pages.codes[p]);
      const Outliers outliers = taken.empty() ? Outliers() : taken[row / kKvPageEntries].outliers;
      std::vector<int64_t> apart;  // of the other pages that have one range with this
      const int64_t first = row / run * run, last = channels ? std::min(first + run, n) : first;
      for (int64_t other = first; run > kKvPageEntries && other < last; other += kKvPageEntries) {
        if (other != row) apart.push_back(other - row);
      }
      page.Encode(begin, end, apart,
                  [&](int64_t entry, int64_t d) { return coded(row + entry - begin, d); });
      if (rank > 0) {
        latents.push_back(
            static_cast<uint16_t*>(allocate(Block::kLatents, p, kKvPageEntries * rank * 2)));
        for (int64_t e = begin; e < end; ++e) {
          std::vector<double>& left = error[row + e - begin];
          for (int64_t d = 0; d < dim; ++d) {
            const bool kept = outliers.contains(d * kKvPageEntries + e);
            left.push_back(kept ? 0.0 : double{in_page(e, d)} - page.Decode(e, d));
          }
        }
      }
      if (!outliers.empty()) {
        const auto count = static_cast<int64_t>(outliers.size());
        WriteOutliers(outliers, allocate(Block::kOutliers, p, OutlierBytes(count)));
      }
      row += end - begin;
    }
    if (rank > 0) Fit(error, rank, latents, basis);
  }

  // What is kept of a page, and what is coded in its place.
  struct Taken {
    Outliers outliers;
    std::map<int64_t, float> replaced;
  };
  // Page by page of the call's rows; nothing where the codec keeps none.
  template <class NumberAt>
  static std::vector<Taken> FindAllOutliers(const KvCodec& codec, int64_t n, NumberAt number) {
    std::vector<Taken> pages;
    for (int64_t row = 0; codec.has_outliers() && row < n; row += kKvPageEntries) {
      Taken& page = pages.emplace_back();
      page.outliers = FindOutliers(
          codec, [&](int64_t entry, int64_t d) { return number(row + entry, d); }, &page.replaced);
    }
    return pages;
  }

  // replaced: what is coded in the place of an outlier.
  template <class NumberAt>
  static Outliers FindOutliers(const KvCodec& codec, NumberAt x,
                               std::map<int64_t, float>* replaced) {
    Outliers outliers;
    if (codec.kind == KvCodecKind::kCodebook && codec.axis == CodeAxis::kChannel) {
      for (int64_t d = 0; d < codec.dim; ++d) {
        for (int64_t e = 0; e < kKvPageEntries; ++e) {
          const float v = x(e, d);
          if (v < codec.channel_low.f32()[d] || v > codec.channel_high.f32()[d]) {
            outliers[d * kKvPageEntries + e] = ToF16(v);
          }
        }
      }
      return outliers;
    }
    const bool by_token = codec.axis == CodeAxis::kToken;
    const int64_t vectors = by_token ? kKvPageEntries : codec.dim;
    const int64_t n = by_token ? codec.dim : kKvPageEntries;
    const auto side =
        static_cast<int64_t>(std::floor(codec.outlier_share * static_cast<double>(n) / 2 + 0.5));
    for (int64_t v = 0; v < vectors; ++v) {
      const auto at = [&](int64_t i) { return by_token ? x(v, i) : x(i, v); };
      const auto place = [&](int64_t i) {
        return by_token ? i * kKvPageEntries + v : v * kKvPageEntries + i;
      };
      std::vector<int64_t> order(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return at(a) < at(b); });
      std::vector<bool> taken(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) taken[order[i]] = i < side || i >= n - side;
      const float sum = SumOf(n, [&](int64_t i) { return taken[i] ? 0.0f : at(i); });
      const auto rest = std::count(taken.begin(), taken.end(), false);
      for (int64_t i = 0; i < n; ++i) {
        if (!taken[i]) continue;
        outliers[place(i)] = ToF16(at(i));
        (*replaced)[place(i)] = rest > 0 ? sum / static_cast<float>(rest) : 0.0f;
      }
    }
    return outliers;
  }

  // Power iteration; latents [64, rank] of each page, basis [rank, dim].
  static void Fit(const Rows& error, int64_t rank, const std::vector<uint16_t*>& latents,
                  uint16_t* basis) {
    const size_t n = error.size(), dim = error[0].size();
    Rows b(static_cast<size_t>(rank), std::vector<double>(dim));
    Rows a(static_cast<size_t>(rank), std::vector<double>(n));
    Rng rng(1, 0);
    for (auto& row : b) {
      for (double& v : row) v = rng.NextGaussian();
    }
    for (int round = 0; round < kRounds; ++round) {
      Orthonormalize(&b);
      for (size_t r = 0; r < a.size(); ++r) {
        for (size_t i = 0; i < n; ++i) a[r][i] = DotOf(error[i], b[r]);
      }
      Orthonormalize(&a);
      for (size_t r = 0; r < a.size(); ++r) {
        for (size_t d = 0; d < dim; ++d) {
          b[r][d] = 0;
          for (size_t i = 0; i < n; ++i) b[r][d] += a[r][i] * error[i][d];
        }
      }
    }
    for (size_t r = 0; r < a.size(); ++r) {
      for (size_t i = 0; i < n; ++i) {
        latents[i / kKvPageEntries][i % kKvPageEntries * a.size() + r] = ToF16(a[r][i]);
      }
      for (size_t d = 0; d < dim; ++d) basis[r * dim + d] = ToF16(b[r][d]);
    }
  }

  void DoDecode(const KvCodec& codec, const KvPages& pages, int64_t first_entry,
                Tensor rows) override {
    int64_t read = -1;
    Outliers outliers;
    for (int64_t i = 0; i < rows.shape[0]; ++i) {
      const int64_t p = (first_entry + i) / kKvPageEntries, e = (first_entry + i) % kKvPageEntries;
      if (IsRecord(codec.kind)) {
        const std::vector<float> row = DecodeReferenceRecord(codec, pages.codes[p], e);
        std::copy(row.begin(), row.end(), rows.f32() + i * rows.stride[0]);
        continue;
      }
      if (p != read && pages.outliers != nullptr) outliers = ReadOutliers(pages.outliers[p]);
      read = p;
      const Page page(codec, pages.codes[p]);
      for (int64_t d = 0; d < codec.dim; ++d) {
        float value = page.Decode(e, d);
        for (int64_t r = 0; r < codec.rank; ++r) {
          const auto* latents = static_cast<const uint16_t*>(pages.latents[p]);
          const auto* basis = static_cast<const uint16_t*>(pages.bases[p]);
          value += F16ToF32(latents[e * codec.rank + r]) * F16ToF32(basis[r * codec.dim + d]);
        }
        const auto outlier = outliers.find(d * kKvPageEntries + e);
        rows.f32()[i * rows.stride[0] + d] =
            outlier != outliers.end() ? F16ToF32(outlier->second) : value;
      }
    }
  }
};

}  // namespace

std::unique_ptr<CodecOps> MakeReferenceCodec() { return std::make_unique<ReferenceCodec>(); }

}  // namespace kvgauge
