// SPDX-License-Identifier: Apache-2.0
// Whether a model runs where a command is given, and what is left for its cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/json_fwd.h"
#include "core/result.h"
#include "kernels/ops.h"
#include "runner/config.h"

namespace kvgauge {

struct MachineFit {
  std::string place;         // the memory that is meant: the machine's, or a device's
  int64_t memory_bytes = 0;  // 0: the backend is not here
  int64_t weight_bytes = 0;  // as they are held
  // Entries that one sequence may have beside the weights; at most the positions of the model.
  int64_t full_cache_tokens = 0;
  std::string why_not;  // empty: it runs
};

// `kv_bytes`: of one token of the full cache.
MachineFit FitMachine(const ModelConfig& config, int64_t weight_bytes, int64_t kv_bytes,
                      const std::string& backend, const Result<std::unique_ptr<Ops>>& ops);
// The same for `memory_bytes` at `place`.
MachineFit FitMemory(const ModelConfig& config, int64_t weight_bytes, int64_t kv_bytes,
                     const std::string& place, int64_t memory_bytes);
std::string TextOf(const MachineFit& fit, const ModelConfig& config);
Json JsonOf(const MachineFit& fit);

}  // namespace kvgauge
