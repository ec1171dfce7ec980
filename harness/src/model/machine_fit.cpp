// SPDX-License-Identifier: Apache-2.0
#include "src/model/machine_fit.h"

#include <algorithm>

#include "core/json.h"
#include "core/memory.h"
#include "core/strings.h"

namespace kvgauge {

MachineFit FitMemory(const ModelConfig& config, int64_t weight_bytes, int64_t kv_bytes,
                     const std::string& place, int64_t memory_bytes) {
  MachineFit fit = {.place = place,
                    .memory_bytes = memory_bytes,
                    .weight_bytes = weight_bytes,
                    .full_cache_tokens = 0,
                    .why_not = ""};
  const int64_t left = memory_bytes - weight_bytes - config.StateBytes();
  if (left < kv_bytes) {
    fit.why_not = StrCat("its weights take ", HumanBytes(weight_bytes));
    return fit;
  }
  if (kv_bytes > 0) fit.full_cache_tokens = std::min(left / kv_bytes, config.max_position);
  return fit;
}

MachineFit FitMachine(const ModelConfig& config, int64_t weight_bytes, int64_t kv_bytes,
                      const std::string& backend, const Result<std::unique_ptr<Ops>>& ops) {
  if (!ops.ok()) {
    return {.place = backend,
            .memory_bytes = 0,
            .weight_bytes = weight_bytes,
            .full_cache_tokens = 0,
            .why_not = ops.error().message};
  }
  const int64_t of_device = (*ops)->memory->FreeBytes();
  return FitMemory(config, weight_bytes, kv_bytes, of_device > 0 ? backend : "this machine",
                   of_device > 0 ? of_device : UsableMemoryBytes());
}

std::string TextOf(const MachineFit& fit, const ModelConfig& config) {
  if (fit.memory_bytes == 0) return StrCat("no: ", fit.why_not);
  const std::string memory = StrCat(fit.place, " has ", HumanBytes(fit.memory_bytes));
  if (!fit.why_not.empty()) return StrCat("no: ", fit.why_not, ", and ", memory);
  std::string text = StrCat("yes: ", memory, ", weights take ", HumanBytes(fit.weight_bytes));
  if (fit.full_cache_tokens == 0) return text;
  const bool all = fit.full_cache_tokens == config.max_position;
  return StrCat(text, ", and beside them is room for ", all ? "all " : "",
                WithCommas(fit.full_cache_tokens), all ? " positions" : " tokens",
                " of the full cache");
}

Json JsonOf(const MachineFit& fit) {
  return {{"place", fit.place},
          {"memory_bytes", fit.memory_bytes},
          {"runs", fit.why_not.empty()},
          {"full_cache_tokens", fit.full_cache_tokens},
          {"why_not", fit.why_not.empty() ? Json(nullptr) : Json(fit.why_not)}};
}

}  // namespace kvgauge
