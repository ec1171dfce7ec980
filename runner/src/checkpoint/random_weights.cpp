// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/rng.h"
#include "core/strings.h"
#include "runner/weights.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

// FNV-1a: which numbers a tensor gets follows from its name, not from its place in the list.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// SplitMix64 as a function of the counter (Steele, Lea, Flood, OOPSLA 2014).
uint64_t Mix(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The sum of four 16-bit uniforms, centred and scaled to variance 1: close to a normal up to two
// standard deviations, never beyond 3.47. Cheap, and exact integers until the last product.
float ApproximateNormal(uint64_t bits) {
  const int64_t sum = static_cast<int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                           (bits >> 32 & 0xffff) + (bits >> 48));
  constexpr int64_t kMean = 2 * 0xffff;
  constexpr double kScale = 1.0 / 37837.22723720648;  // sqrt(4 * (65536^2 - 1) / 12)
  return static_cast<float>(static_cast<double>(sum - kMean) * kScale);
}

template <class T, class Convert>
void Fill(const TensorSpec& spec, uint64_t key, int64_t count, T* out, const Convert& convert) {
  if (spec.init != TensorSpec::Init::kNormal) {
    const T value = convert(spec.init == TensorSpec::Init::kOnes ? 1.0f : 0.0f);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; ++i) out[i] = value;
    return;
  }
  const float stddev = spec.stddev;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) {
    out[i] = convert(stddev * ApproximateNormal(Mix(key, static_cast<uint64_t>(i))));
  }
}

class RandomSource final : public WeightSource {
 public:
  RandomSource(std::vector<TensorSpec> specs, uint64_t seed, DType dtype)
      : origin_(StrCat("random:", seed)), seed_(seed), dtype_(dtype) {
    KVG_CHECK(IsFloat(dtype), "random weights are floats");
    for (TensorSpec& spec : specs) {
      KVG_CHECK(spec.shape.size() <= kMaxRank, "tensor spec is deeper than a view can be");
      for (const int64_t size : spec.shape) KVG_CHECK(size >= 0, "negative size in a tensor spec");
      const std::string name = spec.name;
      KVG_CHECK(specs_.emplace(name, std::move(spec)).second,
                StrCat("tensor ", name, " is specified twice"));
    }
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    names.reserve(specs_.size());
    for (const auto& [name, spec] : specs_) names.push_back(name);
    return names;
  }

  bool Contains(const std::string& name) const override { return specs_.contains(name); }

  Result<WeightTensor> Get(const std::string& name) const override {
    const auto found = specs_.find(name);
    if (found == specs_.end()) return NoSuchTensor(origin_, name, Names());
    const TensorSpec& spec = found->second;
    int64_t bytes = SizeOf(dtype_);
    for (const int64_t size : spec.shape) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) {
        return ResourceError(StrCat(origin_, ": tensor ", Quoted(name), " is too large"));
      }
    }
    const auto buffer = std::make_shared<Buffer>(HostBuffer(bytes));
    const int64_t count = bytes / SizeOf(dtype_);
    const uint64_t key = Rng(seed_, HashName(name)).NextU64();
    switch (dtype_) {
      case DType::kF32:
        Fill(spec, key, count, static_cast<float*>(buffer->data()), [](float v) { return v; });
        break;
      case DType::kBF16:
        Fill(spec, key, count, static_cast<uint16_t*>(buffer->data()),
             [](float v) { return F32ToBf16(v); });
        break;
      default:
        Fill(spec, key, count, static_cast<uint16_t*>(buffer->data()),
             [](float v) { return F32ToF16(v); });
        break;
    }
    return WeightTensor{ContiguousView(buffer->data(), dtype_, spec.shape), buffer};
  }

  std::string OriginOf(const std::string&) const override { return origin_; }

  // The content follows from the specs, the seed and this generator, so those are hashed.
  std::string Fingerprint() const override {
    FingerprintBuilder builder("random 1");
    builder.AddNumber(seed_);
    for (const auto& [name, spec] : specs_) {
      builder.AddTensor(name, NameOf(dtype_), spec.shape);
      builder.AddNumber(static_cast<uint64_t>(spec.init));
      builder.AddNumber(std::bit_cast<uint32_t>(spec.stddev));
    }
    return builder.Finish();
  }

 private:
  std::string origin_;
  uint64_t seed_;
  DType dtype_;
  std::map<std::string, TensorSpec> specs_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeRandomWeights(std::vector<TensorSpec> specs, uint64_t seed,
                                                DType dtype) {
  return std::make_unique<RandomSource>(std::move(specs), seed, dtype);
}

}  // namespace kvgauge
