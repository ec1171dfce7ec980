// SPDX-License-Identifier: Apache-2.0
#include "methods/layouts/basis_coded.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr int64_t kGroupUnit = 8, kScaleBits = 32;
constexpr int kBitChoices[] = {1, 2, 3, 4, 6, 8};

// What a group of coordinates loses: the sum of variances where it is given up; else of even steps
// over six standard deviations of its loudest one.
double LossOf(std::span<const float> variances, int bits) {
  double sum = 0, most = 0;
  for (const float v : variances) {
    sum += std::max(v, 0.0f);
    most = std::max(most, double{v});
  }
  if (bits == 0) return sum;
  const double step = 6 * std::sqrt(most) / ((1 << bits) - 1);
  return std::min(sum, static_cast<double>(variances.size()) * step * step / 12);
}

}  // namespace

Status CheckBasisCoded(std::string_view name, const BasisCoded::Side& side, int64_t width) {
  const auto is = [](const Tensor& t, int64_t m, int64_t n) {
    return t.rank == 2 && t.dtype == DType::kF32 && t.shape[0] == m && t.shape[1] == n;
  };
  if (!is(side.mean, 1, width) || !is(side.basis, width, width)) {
    return BadInput(StrCat(name, ": mean ", side.mean.DebugString(), " and basis ",
                           side.basis.DebugString(), " must be f32 [1, ", width, "] and [", width,
                           ", ", width, "]"));
  }
  int64_t sum = 0;
  for (const BasisCoded::Group& group : side.groups) {
    if (group.size < 1 || group.bits < 0 || group.bits > BasisCoded::kMostStepBits) {
      return BadInput(StrCat(name, ": a group of ", group.size, " coordinates with ", group.bits,
                             " bits; right are at least 1, with 0 to ", BasisCoded::kMostStepBits));
    }
    sum += group.size;
  }
  if (sum == width) return {};
  return BadInput(
      StrCat(name, ": groups have ", sum, " coordinates together; entries have ", width));
}

Status BasisCoded::Check(const StoreUse& use) const {
  const ModelShape& shape = *use.shape;
  if (shape.latent_dim > 0) {
    return BadInput(
        "codes keys and values of heads, and this model keeps latents; take a store "
        "that says mla_latent");
  }
  if (sinks < 0 || recent < 0) {
    return BadInput(StrCat("sinks ", sinks, ", recent ", recent, ": must not be negative"));
  }
  if (keys.mean.empty() && values.mean.empty()) return {};
  KVG_TRY(CheckBasisCoded("keys", keys, shape.kv_heads * shape.key_dim));
  return CheckBasisCoded("values", values, shape.kv_heads * shape.value_dim);
}

std::vector<BasisCoded::Group> BestGroups(const std::vector<float>& variances, int64_t budget) {
  const auto n = std::ssize(variances);
  const int64_t places = (n + kGroupUnit - 1) / kGroupUnit, unit = kGroupUnit;
  // Bits are counted in units that divide what every group takes.
  const int64_t most = budget / unit;
  struct Choice {
    double loss = std::numeric_limits<double>::infinity();
    int64_t size = 0;
    int bits = 0;
  };
  // best[p][b]: of the coordinates from place p on, in b units.
  std::vector<std::vector<Choice>> best(static_cast<size_t>(places + 1),
                                        std::vector<Choice>(static_cast<size_t>(most + 1)));
  for (Choice& none : best[static_cast<size_t>(places)]) none.loss = 0;
  for (int64_t p = places - 1; p >= 0; --p) {
    const int64_t begin = p * unit;
    for (int64_t size = unit; size <= 128; size *= 2) {
      const int64_t end = std::min(begin + size, n), next = std::min(p + size / unit, places);
      const std::span<const float> some(variances.data() + begin, static_cast<size_t>(end - begin));
      const auto consider = [&](int bits) {
        const int64_t asked = bits == 0 ? 0 : (end - begin) * bits + kScaleBits;
        const int64_t units = (asked + unit - 1) / unit;
        const double loss = LossOf(some, bits);
        for (int64_t b = units; b <= most; ++b) {
          const double all =
              loss + best[static_cast<size_t>(next)][static_cast<size_t>(b - units)].loss;
          Choice& held = best[static_cast<size_t>(p)][static_cast<size_t>(b)];
          if (all < held.loss) held = {all, end - begin, bits};
        }
      };
      consider(0);
      for (const int bits : kBitChoices) consider(bits);
      if (end == n) break;
    }
  }
  std::vector<BasisCoded::Group> groups;
  int64_t left = most;
  for (int64_t begin = 0; begin < n;) {
    const Choice& choice = best[static_cast<size_t>(begin / unit)][static_cast<size_t>(left)];
    groups.push_back({choice.size, choice.bits});
    if (choice.bits > 0) left -= (choice.size * choice.bits + kScaleBits + unit - 1) / unit;
    begin += choice.size;
  }
  return groups;
}

}  // namespace kvgauge
