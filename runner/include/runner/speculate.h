// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: a compressed cache drafts some tokens, and the full cache of the same model
// checks them in one pass over the weights.
//
// The tokens are those that the full cache gives alone, whatever the draft says: a row of a check
// has the bits of a decode step, and a token counts only if the full cache's row before it chose
// it. Draft and judge read the prompt once and share what of its entries the draft leaves as they
// are. Rejected entries are forgotten in both: the judge is cut back, and the draft goes on from a
// fork that was taken before the first of them, so that what a method evicted, coded or scored
// because of them is undone as well. Entries of accepted tokens are those that the draft computed.
// A draft may also read another prompt, such as a shorter one, or be another model; then the two
// share nothing but the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "runner/capture.h"
#include "runner/compressor.h"
#include "runner/model.h"

namespace kvgauge {

struct SpeculationResult {
  std::vector<int32_t> tokens;
  int64_t checks = 0;  // passes of the judge
  int64_t draft_steps = 0;
  // [gamma] how many tokens were drafted as the first, second ... of a check, and how many of these
  // were accepted.
  std::vector<int64_t> drafted_at, accepted_at;
  double draft_s = 0, check_s = 0, other_s = 0;  // other: forks, and what is forgotten
  int64_t judge_bytes = 0, draft_bytes = 0;      // resident at the end, each as if alone
  CompressionRecord record;                      // of the draft

  int64_t drafted() const;
  int64_t accepted() const;
  // The share of drafted tokens that were accepted; 0 without any.
  double acceptance() const;
  // Tokens of the answer for each check; the first token is the prompt's.
  double tokens_per_check() const;
  double seconds() const { return draft_s + check_s + other_s; }
};

// Whether the method may draft on that model: the judge's prefill must be its own, and with more
// than one token a check its stages must be able to go back.
Status CheckDraft(const Method& draft, const ModelShape& shape, const Budget& budget,
                  int64_t prompt_tokens);

// What drafts in the place of the judge's own model behind the judge's own prompt.
struct OtherDraft {
  Model* model = nullptr;  // null: the judge's; of the same vocabulary, on the same Ops
  Prompt prompt = {};      // what it reads; empty: the judge's

  bool apart() const { return model != nullptr || prompt.size() > 0; }
};

// One prompt. Not thread-safe; it drives the models.
class Speculation {
 public:
  // Precondition: CheckDraft holds. Model and method outlive it. `most_tokens`: of an answer.
  // `seed`: of the method's random choices. `valid_vocab`: as of Model::BestTokens. The draft's
  // model outlives it, too; CheckDraft holds on its shape and prompt.
  Speculation(Model& model, const Method& draft, const Budget& budget, Prompt prompt,
              int64_t most_tokens, uint64_t seed = 0, int64_t valid_vocab = 0,
              OtherDraft other = {});
  ~Speculation();

  // Reads the prompt and compresses it for the draft. Once, before all else.
  Status Read();
  // An answer of `tokens` tokens with up to `gamma` drafted for each check; 0: the full cache
  // alone, token by token. Each call begins behind the prompt.
  Result<SpeculationResult> Answer(int64_t gamma, int64_t tokens);

  double prefill_s() const { return prefill_s_; }
  // The draft's own prefill, where it is apart; otherwise 0.
  double draft_prefill_s() const { return draft_prefill_s_; }
  double compress_s() const { return compress_s_; }
  // What both hold behind the prompt; entries that they share count once.
  int64_t held_bytes() const { return held_bytes_; }
  int64_t judge_bytes() const { return judge_->Bytes().resident(); }
  int64_t draft_bytes() const { return draft_->Bytes().resident(); }

 private:
  class Run;

  // Reads a prompt into an empty cache; the token behind it.
  Result<int32_t> ReadInto(Model& model, const Prompt& prompt, KvCache& cache,
                           PrefillCapture& capture) const;

  Model& model_;
  const OtherDraft other_;
  Model& draft_model_;
  const Method& method_;
  const Budget budget_;
  const Prompt prompt_;
  const Prompt& draft_prompt_;
  const int64_t most_tokens_;
  const uint64_t seed_;
  const int64_t valid_vocab_;
  CachePools pools_;
  std::unique_ptr<KvCache> judge_, draft_;  // behind the prompt
  std::unique_ptr<Compressor> compressor_;  // of the draft
  int32_t first_ = -1;                      // token of the answer
  double prefill_s_ = 0, draft_prefill_s_ = 0, compress_s_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace kvgauge
