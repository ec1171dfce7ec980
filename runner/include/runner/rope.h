// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: every published scaling, as one function from a config to frequencies.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/rows.h"

namespace kvgauge {

// Where a token stands for rotation: time, height, width. They are equal for text.
using RopePosition = std::array<int32_t, 3>;

// kNone is a rope that does not turn, that of layers without positions among layers with some.
enum class RopeKind {
  kDefault,
  kLinear,
  kDynamic,
  kLlama3,
  kYarn,
  kLongrope,
  kProportional,
  kNone
};

std::string_view NameOf(RopeKind kind);

// A kind uses only the fields that name it.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  RopeLayout layout = RopeLayout::kHalf;
  int64_t rotary_dim = 0;  // first dims of the head that are rotated; even
  double theta = 10000.0;
  int64_t max_position = 0;           // max_position_embeddings; dynamic
  int64_t original_max_position = 0;  // llama3, yarn, longrope
  // How far the context is stretched. For longrope it only enters the attention factor.
  double factor = 1.0;
  std::optional<double> attention_factor = std::nullopt;  // yarn, longrope; absent: from factor
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
  // proportional: so many dims turn, by the first frequencies of all rotary_dim; the others do not
  int64_t turned_dim = 0;
  // longrope; rotary_dim / 2 entries each
  std::vector<double> short_factor = {};
  std::vector<double> long_factor = {};
  // Positions of three axes (time, height, width), any kind: how many frequencies turn with each,
  // rotary_dim / 2 in all; empty: positions have one axis. Contiguous sections follow each other;
  // interleaved ones take turns from frequency 0 on (t, h, w, t, h, w ..), and where height or
  // width has no more, time goes on.
  std::vector<int64_t> sections = {};
  bool interleaved = false;

  bool operator==(const RopeConfig&) const = default;
};

struct RopeFrequencies {
  std::vector<double> inverse;    // [rotary_dim / 2]
  double attention_factor = 1.0;  // multiplies cos and sin
  // [rotary_dim / 2] which axis of a position each frequency turns with; empty: all with the first.
  std::vector<int32_t> axis = {};

  bool operator==(const RopeFrequencies&) const = default;
};

struct Prompt;

// Where the tokens of a sequence stand for rotation, if that is not their place in it. Immutable;
// caches of one prompt share it.
class RopePlaces {
 public:
  RopePlaces(std::vector<RopePosition> first, int32_t next)
      : first_(std::move(first)), next_(next) {}
  // Null where each position of the prompt stands at its own place.
  static std::shared_ptr<const RopePlaces> Of(const Prompt& prompt);

  // A token's place; those past the prompt follow each other.
  RopePosition At(int64_t token) const {
    const auto held = static_cast<int64_t>(first_.size());
    if (token < held) return first_[static_cast<size_t>(token)];
    const auto place = static_cast<int32_t>(next_ + token - held);
    return {place, place, place};
  }
  const std::vector<RopePosition>& first() const { return first_; }
  int32_t next() const { return next_; }

  bool operator==(const RopePlaces&) const = default;

 private:
  std::vector<RopePosition> first_;  // of the prompt's tokens
  int32_t next_;                     // of the token behind them
};

// Precondition: a config as ParseModelConfig makes it (finite numbers, full factor lists).
// `total_length` is the longest sequence that will be run with these frequencies: dynamic and
// longrope depend on it and are fixed from the planned length before prefill (docs/formats/
// model-configs.md says how this differs from implementations that switch while generating).
RopeFrequencies ComputeRope(const RopeConfig& config, int64_t total_length);

// True when ComputeRope gives something else for another length.
bool RopeDependsOnLength(const RopeConfig& config);

// YaRN's magnitude correction, 0.1 * mscale * ln(factor) + 1 for a factor above 1, else 1. Also
// what DeepSeek multiplies its attention scale with, twice.
double YarnMagnitude(double factor, double mscale);

}  // namespace kvgauge
