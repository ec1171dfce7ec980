// SPDX-License-Identifier: Apache-2.0
// A worker that runs a model with a method: every pass is one over the weights for all sequences,
// every sequence has a compressor of its own. A sequence's tokens do not depend on who else is
// there, nor on whether its cache was dropped, moved, shared or kept meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "methods/method.h"
#include "runner/capture.h"
#include "runner/compressor.h"
#include "runner/kv_cache.h"
#include "runner/model.h"
#include "runner/prompt.h"
#include "src/serve/serve_loop.h"

namespace kvgauge {

struct ServeModelOptions {
  const Method* method = nullptr;
  Budget budget = {};
  uint64_t seed = 1;  // of the tokens that prompts are made of, and of random choices
  // What every cache is planned for at least, beside its own prompt and answer: where caches go
  // from one request to another, they must have been planned alike.
  int64_t planned_tokens = 0;
  bool shares = false;         // keeps prompts for TakePrompt
  std::string directory = {};  // of caches that go to disk; empty: the system's temporary one
};

// Whether a method leaves entries and weights as they are, so that a cache depends on its tokens
// alone.
bool LeavesCacheAlone(const Method& method, const ModelShape& shape);
// Whether a prompt is read layer by layer, whole, between the passes of the others.
bool ReadsPromptApart(const Method& method);
// The tokens of a prompt's end that must be read whatever is known of its beginning; negative: all
// of them.
int64_t UnsharedTokens(const Method& method);

class ServeModel final : public ServeWorker {
 public:
  // All outlive it. Precondition: CheckMethod holds for every prompt of the trace.
  ServeModel(Model& model, const Trace& trace, const ServeModelOptions& options, CachePools& pools);
  ~ServeModel() override;

  double now_s() override;
  Status Start(int64_t request, std::span<const TokenRun> runs, const Payload& payload,
               int64_t tokens, bool kept) override;
  std::vector<Status> Pass(std::span<const ServeStep> steps) override;
  Payload TakePrompt(int64_t request) override;
  Payload TakeWhole(int64_t request) override;
  Result<Payload> Cut(const Payload& payload, int64_t tokens) override;
  void Drop(int64_t request) override;
  Result<int64_t> Save(int64_t request) override;
  Status Restore(int64_t request) override;
  Result<int64_t> Finish(int64_t request, bool keep) override;
  Status MoveKeptToDisk(int64_t request) override;
  void DropKept(int64_t request) override;

  // [requests of the trace]
  const std::vector<std::vector<int32_t>>& answers() const { return answers_; }
  // The prompt that a request had: seeded tokens, and answers before it.
  std::vector<int32_t> PromptOf(std::span<const TokenRun> runs) const;
  // Over the sequences that ended well.
  int64_t not_engaged() const { return not_engaged_; }
  const std::string& not_engaged_because() const { return because_; }
  double mean_resident_bytes() const { return resident_sum_ / std::max<int64_t>(finished_, 1); }
  // The most that caches, what readers know of them and the captures of a prompt have held
  // together, as seen where sequences begin to decode, where they go, and now and then between.
  int64_t peak_bytes() const;

 private:
  struct Sequence {
    Prompt prompt;
    int64_t prompt_tokens = 0;
    int64_t fed = 0;  // tokens of the answer
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<PrefillCapture> capture;
    std::unique_ptr<Compressor> compressor;
    Payload read;       // the prompt's cache before it was compressed
    std::string saved;  // on the host
  };
  struct KeptCache {
    std::string bytes;
    std::string path;  // where it is on disk
    int64_t planned = 0;
  };

  KvCache NewCache(int64_t request, int64_t prompt_tokens);
  Status Begin(Sequence& s, int64_t request);
  // Appends, and what the model is to do.
  Status Prepare(const ServeStep& step, SequenceStep* out);
  void Forward(std::span<const ServeStep> steps, std::span<const SequenceStep> passed,
               std::span<Status*> results);
  // The prompt of a method that reads it layer by layer.
  Status ReadApart(const ServeStep& step);
  template <class Prefill>
  Result<int32_t> Finished(Prefill&& prefill);
  Status EndPrompt(int64_t request, int32_t best);
  Status EndStep(const ServeStep& step, int32_t best);
  uint64_t SeedOf(int64_t request) const;
  // What is held now counts, and `more` beside it.
  void CountHeld(int64_t more = 0);

  Model& model_;
  const Trace& trace_;
  const ServeModelOptions options_;
  CachePools& pools_;
  const bool latents_;
  const bool unchanged_;
  std::map<int64_t, Sequence> sequences_;
  std::map<int64_t, KeptCache> kept_;
  std::vector<std::vector<int32_t>> answers_;
  std::string folder_;  // made when it is needed
  int64_t finished_ = 0, not_engaged_ = 0;
  double resident_sum_ = 0;
  std::string because_;
  int64_t counted_peak_bytes_ = 0;  // by CountHeld
  int64_t passes_ = 0;
};

}  // namespace kvgauge
