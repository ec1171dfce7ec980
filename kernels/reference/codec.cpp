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
#include "reference/reference.h"

namespace kvgauge {
namespace {

constexpr float kLargestF16 = 65504.0f;
constexpr float kSmallestNormal = 0x1p-126f;
constexpr int kRounds = 3;

uint16_t ToF16(double v) {
  return F32ToF16(std::clamp(static_cast<float>(v), -kLargestF16, kLargestF16));
}

// The nearest number, even mantissa on a tie, by looking at all of them.
uint8_t ToFloat8(float v) {
  const auto value_of = [](int code) {
    const int exponent = code >> 3, mantissa = code & 7;
    return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  };
  const double size = std::min(std::abs(double{v}), 448.0);
  int best = 0;
  for (int code = 1; code < 127; ++code) {
    const double was = std::abs(value_of(best) - size), is = std::abs(value_of(code) - size);
    if (is < was || (is == was && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(v) ? 0x80 : 0));
}

float FromFloat8(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>(code & 0x80 ? -size : size);
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
  std::vector<int> codes;
  float scale = 0, zero = 0;
};

class Page {
 public:
  Page(const KvCodec& codec, void* memory) : c_(codec), data_(static_cast<uint8_t*>(memory)) {
    switch (c_.kind) {
      case KvCodecKind::kQ8_0:
      case KvCodecKind::kFp8E4M3:
        bits_ = 8;
        break;
      case KvCodecKind::kQ4_0:
        bits_ = 4;
        break;
      default:
        bits_ = c_.bits;
    }
    const bool sized = c_.kind == KvCodecKind::kAffine || c_.kind == KvCodecKind::kCodebook;
    group_ = sized ? c_.group : 32;
    by_token_ = !sized || c_.axis == CodeAxis::kToken;
    fixed_ = c_.kind == KvCodecKind::kCodebook && !by_token_;
    if (fixed_) group_ = 1;
    if (c_.kind == KvCodecKind::kFp8E4M3) group_ = c_.dim;
  }

  // Bytes before the scales, and scales in a page.
  int64_t CodeBytes() const { return kKvPageEntries * c_.dim * bits_ / 8; }
  int64_t Scales() const {
    if (fixed_ || c_.kind == KvCodecKind::kFp8E4M3) return 0;
    return by_token_ ? (c_.dim + group_ - 1) / group_ * kKvPageEntries
                     : kKvPageEntries / group_ * c_.dim;
  }
  bool HasZeros() const {
    return (c_.kind == KvCodecKind::kAffine && !c_.symmetric) ||
           (c_.kind == KvCodecKind::kCodebook && c_.range == CodeRange::kExtremes);
  }
  int64_t Bytes() const { return CodeBytes() + Scales() * (HasZeros() ? 4 : 2); }

  // x(entry, dim) for the entries [begin, end) of the page.
  template <class NumberAt>
  void Encode(int64_t begin, int64_t end, NumberAt x) {
    ForGroups(begin, end, [&](const std::vector<std::array<int64_t, 2>>& places) {
      Group g;
      for (const auto& [entry, dim] : places) g.numbers.push_back(x(entry, dim));
      if (fixed_) SetFixedRange(places[0][1], &g);
      Code(&g);
      for (size_t i = 0; i < places.size(); ++i) PutCode(places[i][0], places[i][1], g.codes[i]);
      if (Scales() > 0) PutScale(places[0][0], places[0][1], g);
    });
  }

  float Decode(int64_t entry, int64_t dim) const {
    const int code = CodeAt(entry, dim);
    if (c_.kind == KvCodecKind::kFp8E4M3) return FromFloat8(code);
    Group g;
    if (fixed_) {
      SetFixedRange(dim, &g);
    } else {
      g.scale = F16ToF32(Half(ScaleIndex(entry, dim)));
      if (HasZeros()) g.zero = F16ToF32(Half(Scales() + ScaleIndex(entry, dim)));
    }
    const int shift = c_.symmetric || !(c_.kind == KvCodecKind::kAffine) ? 1 << (bits_ - 1) : 0;
    const float number = c_.kind == KvCodecKind::kCodebook ? c_.levels.f32()[code]
                                                           : static_cast<float>(code - shift);
    const float product = g.scale * number;
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
    const auto [low_at, high_at] = std::minmax_element(g->numbers.begin(), g->numbers.end());
    const float low = *low_at + 0.0f, high = *high_at + 0.0f, largest = std::max(high, -low);
    const auto for_all = [&](auto code_of) {
      for (const float v : g->numbers) g->codes.push_back(code_of(v));
    };
    const auto stored = [](float v) { return F16ToF32(ToF16(v)); };
    switch (c_.kind) {
      case KvCodecKind::kQ8_0: {
        const float d = largest / 127.0f, inverse = d >= kSmallestNormal ? 1.0f / d : 0.0f;
        g->scale = stored(d);
        return for_all([&](float v) { return static_cast<int>(std::round(v * inverse)) + 128; });
      }
      case KvCodecKind::kQ4_0: {
        float signed_largest = 0;
        for (const float v : g->numbers) {
          if (std::abs(v) > std::abs(signed_largest)) signed_largest = v;
        }
        const float d = signed_largest / -8.0f;
        const float inverse = std::abs(d) >= kSmallestNormal ? 1.0f / d : 0.0f;
        g->scale = stored(d);
        return for_all([&](float v) { return std::min(15, static_cast<int>(v * inverse + 8.5f)); });
      }
      case KvCodecKind::kFp8E4M3:
        return for_all([](float v) { return int{ToFloat8(v)}; });
      case KvCodecKind::kCodebook:
        return CodeLevels(low, high, g);
      default:
        break;
    }
    const float top = static_cast<float>((1 << bits_) - 1);
    const float middle = static_cast<float>(1 << (bits_ - 1));
    g->scale = stored(c_.symmetric ? largest / (middle - 1) : (high - low) / top);
    g->zero = c_.symmetric ? 0.0f : stored(low);
    for_all([&](float v) {
      const float ratio = g->scale == 0 ? 0.0f : (v - g->zero) / g->scale;
      const float shift = c_.symmetric ? middle : 0.0f;
      const float code = std::nearbyint(std::clamp(ratio, -shift, top - shift)) + shift;
      return static_cast<int>(code);
    });
  }

  void CodeLevels(float low, float high, Group* g) const {
    const auto count = static_cast<int64_t>(g->numbers.size());
    if (c_.range == CodeRange::kRms) {
      const float sum = SumOf(count, [&](int64_t i) { return g->numbers[i] * g->numbers[i]; });
      g->scale = F16ToF32(ToF16(std::sqrt(sum / static_cast<float>(count))));
    } else if (!fixed_) {
      g->scale = F16ToF32(ToF16(0.5f * high - 0.5f * low));
      g->zero = F16ToF32(ToF16(0.5f * low + 0.5f * high));
    }
    const float* levels = c_.levels.f32();
    for (const float v : g->numbers) {
      const float u = g->scale == 0 ? 0.0f : (v - g->zero) / g->scale;
      int code = 0;
      while (code + 1 < 1 << bits_ && u > 0.5f * (levels[code] + levels[code + 1])) ++code;
      g->codes.push_back(code);
    }
  }

  int64_t ScaleIndex(int64_t entry, int64_t dim) const {
    return by_token_ ? dim / group_ * kKvPageEntries + entry : entry / group_ * c_.dim + dim;
  }
  uint16_t Half(int64_t index) const {
    uint16_t half;
    std::memcpy(&half, data_ + CodeBytes() + 2 * index, sizeof half);
    return half;
  }
  void PutScale(int64_t entry, int64_t dim, const Group& g) {
    const int64_t index = ScaleIndex(entry, dim);
    const uint16_t scale = ToF16(g.scale), zero = ToF16(g.zero);
    std::memcpy(data_ + CodeBytes() + 2 * index, &scale, sizeof scale);
    if (HasZeros()) std::memcpy(data_ + CodeBytes() + 2 * (Scales() + index), &zero, sizeof zero);
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
  uint8_t* data_;
  int bits_ = 0;
  int64_t group_ = 0;
  bool by_token_ = true, fixed_ = false;
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
  int64_t PageBytes(const KvCodec& codec) const override { return Page(codec, nullptr).Bytes(); }
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
      Page page(codec, pages.codes[p]);
      Outliers outliers;
      std::map<int64_t, float> replaced;
      if (codec.has_outliers()) outliers = FindOutliers(codec, in_page, &replaced);
      page.Encode(begin, end, [&](int64_t entry, int64_t d) {
        const auto other = replaced.find(d * kKvPageEntries + entry);
        return other != replaced.end() ? other->second : in_page(entry, d);
      });
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
