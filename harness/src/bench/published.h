// SPDX-License-Identifier: Apache-2.0
// What papers say of their methods' speed and memory, to stand beside what was measured.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvgauge {

struct ModelConfig;

enum class Quantity {
  kDecodeTimes,  // full cache's time a token over the method's
  kCacheTimes,   // full cache's resident bytes over the method's
  kPeakTimes,    // the same of peak bytes, weights included
  kEntryBytes,   // resident bytes a token and layer
};
std::string_view Describe(Quantity quantity);

struct Published {
  const char* method;
  Quantity quantity;
  double value;
  int64_t context_tokens;  // 0: any, told at the longest
  const char* source;
};
// All that concern a method; what holds for one shape only is left out on others.
bool Concerns(const Published& claim, std::string_view method, const ModelConfig& config);
std::span<const Published> PublishedClaims();

}  // namespace kvgauge
