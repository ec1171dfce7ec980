// SPDX-License-Identifier: Apache-2.0
// A worker that runs nothing: the time of a pass is what a machine of given rates would take.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "src/serve/serve_loop.h"

namespace kvgauge {

struct MachineRates {
  double bytes_per_s = 1e10;
  double operations_per_s = 2e11;  // a multiplication and an addition are two
};

struct PassCost {
  double weight_bytes = 0;        // that every pass reads
  double operations_per_row = 0;  // products alone
  // What a row attends over, once its prompt was read and before.
  std::function<int64_t(int64_t prompt, int64_t total)> held_bytes;
  std::function<int64_t(int64_t tokens)> full_bytes;
};

class ServeEstimate final : public ServeWorker {
 public:
  ServeEstimate(const PassCost& cost, const MachineRates& rates) : cost_(cost), rates_(rates) {}

  double now_s() override { return now_s_; }
  Status Start(int64_t request, std::span<const TokenRun> runs, const Payload& payload,
               int64_t tokens, bool kept) override;
  std::vector<Status> Pass(std::span<const ServeStep> steps) override;
  // Any payload stands for a cache.
  Payload TakePrompt(int64_t request) override;
  Payload TakeWhole(int64_t request) override;
  Result<Payload> Cut(const Payload& payload, int64_t tokens) override;
  void Drop(int64_t request) override;
  Result<int64_t> Save(int64_t request) override;
  Status Restore(int64_t request) override;
  Result<int64_t> Finish(int64_t request, bool keep) override;
  Status MoveKeptToDisk(int64_t /*request*/) override { return {}; }
  void DropKept(int64_t /*request*/) override {}

 private:
  struct Sequence {
    int64_t prompt = 0, tokens = 0;
  };
  int64_t HeldBy(const Sequence& s) const {
    return s.tokens < s.prompt ? cost_.full_bytes(s.tokens) : cost_.held_bytes(s.prompt, s.tokens);
  }

  const PassCost cost_;
  const MachineRates rates_;
  std::map<int64_t, Sequence> sequences_;
  double now_s_ = 0;
};

}  // namespace kvgauge
