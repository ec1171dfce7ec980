// SPDX-License-Identifier: Apache-2.0
#include "src/bench/published.h"

#include "runner/config.h"

namespace kvgauge {
namespace {

constexpr int64_t k16 = 16384, k128 = 131072;

// What others measured on their models and machines, and what we aim at.
constexpr Published kClaims[] = {
    {"snapkv", Quantity::kDecodeTimes, 3.6, k16, "SnapKV, arXiv:2404.14469, abstract"},
    {"snapkv", Quantity::kCacheTimes, 8.2, k16, "SnapKV, arXiv:2404.14469, abstract"},
    {"kivi_2bit", Quantity::kPeakTimes, 2.6, 0, "KIVI, arXiv:2402.02750, abstract"},
    {"kivi_2bit", Quantity::kCacheTimes, 4, 0, "KIVI, arXiv:2402.02750: batches 4 times as large"},
    {"mla_latent", Quantity::kEntryBytes, 1152, 0,
     "DeepSeek-V2, arXiv:2405.04434: 512 + 64 numbers of 16 bits"},
    {"snapkv", Quantity::kDecodeTimes, 10, k128, "our aim at 1024 entries"},
    {"h2o", Quantity::kDecodeTimes, 10, k128, "our aim at 1024 entries"},
    {"streaming_llm", Quantity::kDecodeTimes, 10, k128, "our aim at 1024 entries"},
};

}  // namespace

std::string_view Describe(Quantity quantity) {
  switch (quantity) {
    case Quantity::kDecodeTimes:
      return "full / its time a token";
    case Quantity::kCacheTimes:
      return "full / its resident bytes";
    case Quantity::kPeakTimes:
      return "full / its peak, with weights";
    case Quantity::kEntryBytes:
      return "bytes a token and layer";
  }
  return "";
}

std::span<const Published> PublishedClaims() { return kClaims; }

bool Concerns(const Published& claim, std::string_view method, const ModelConfig& config) {
  if (method != claim.method) return false;
  if (claim.quantity != Quantity::kEntryBytes) return true;
  return config.mla && config.mla->kv_lora_rank == 512 && config.mla->rope_dim == 64;
}

}  // namespace kvgauge
