// SPDX-License-Identifier: Apache-2.0
// What the engine's two passes, free-running and teacher-forced, share.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/chunk_prefill.h"
#include "runner/engine.h"
#include "runner/reuse_prefill.h"
#include "runner/sparse_prefill.h"
#include "runner/thin_prefill.h"

namespace kvgauge {

// A finished prefill and what still has to start from it.
struct Snapshot {
  // A contender's answer in one of its draws.
  struct Start {
    int64_t contender = 0, draw = 0;
  };

  int64_t sample = 0;
  int64_t turn = 0;  // kPrompt: the turn whose prompt this is
  Model* model = nullptr;
  Prompt prompt;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<PrefillCapture> capture;
  std::unique_ptr<ThinPrefill> thin;      // while it is prefilled, where rows leave
  std::unique_ptr<SparsePrefill> sparse;  // while it is prefilled, where rows see some entries
  std::unique_ptr<ReusePrefill> reuse;    // the same where it is put together of caches
  std::optional<ReuseFacts> reused;       // what came of that
  // That of the one contender that reads the prompt in chunks: `cache` is then its own, compressed.
  std::unique_ptr<Compressor> compressor;
  bool forked = false;                   // several draws go on from forks of those two
  std::unique_ptr<ChunkPrefill> chunks;  // while it is prefilled
  std::unique_ptr<KvCache> unread;       // as `cache` was before, to read the prompt again
  bool partial = false;                  // whether entries may be missing
  bool moved = false;                    // whether tokens stand elsewhere than in a whole prefill
  int32_t best = -1;                     // after the last row
  std::vector<float> logits;             // of it; empty unless they were asked for
  int32_t draft_from = -1;               // `best`, however answers are sampled, where one drafts
  int64_t valid_vocab = 0;
  double prefill_s = 0;
  uint64_t seed = 0;
  std::optional<PromptScores> scores;
  std::vector<int64_t> contenders;  // all that start from it
  std::deque<Start> waiting;
  int64_t chunk_tokens = 0;  // where it is read in chunks

  bool alone() const {
    return thin != nullptr || sparse != nullptr || reuse != nullptr || chunks != nullptr;
  }
  // Runs the next part of a prefill that goes alone; `done` says whether it was the last.
  Result<Tensor> NextAlone(bool& done) {
    const auto next = [&](auto& prefill) {
      Result<Tensor> rows = prefill.Next();
      done = prefill.done();
      return rows;
    };
    if (reuse != nullptr) return next(*reuse);
    if (thin != nullptr) return next(*thin);
    return sparse != nullptr ? next(*sparse) : next(*chunks);
  }
  PromptState state() const {
    PromptState state = {cache.get(), capture.get(), seed, &prompt};
    state.next = draft_from;
    state.valid_vocab = valid_vocab;
    return state;
  }
};

// The model against whose full cache a contender's fidelity is measured.
inline Model* OriginalOf(const Contender& contender) {
  return contender.original != nullptr ? contender.original : contender.model;
}

// Puts tokens of a sample, with the pictures among them, behind a prompt.
void AppendTokens(const ModelConfig& config, const EngineSample& sample,
                  std::span<const int32_t> ids, std::span<const VisualSpan> spans, Prompt& prompt);

uint64_t SampleSeed(uint64_t run_seed, const std::string& sample_id);
// The random numbers of one answer. Contenders draw alike.
uint64_t DrawStream(uint64_t sample_seed, int64_t turn, int64_t draw);

// How many tokens the store of a method holds that reuses caches of texts.
int64_t StoredTokens(std::span<const SampleLength> lengths);

// One row of a device tensor [rows, n] on the host.
std::vector<float> HostRow(Ops& ops, const Tensor& rows, int64_t row);
// A row [n] where the host can read it: `copy` holds what lies on a device.
std::span<const float> HostLogits(Ops& ops, const Tensor& row, std::vector<float>* copy);

// A prompt under the full cache that others are held against.
struct FidelityLead {
  Model* model = nullptr;
  const KvCache* cache = nullptr;
  std::span<const float> logits = {};  // of the last row
  // Where it is another prompt than the snapshot's: that, and with what `asked` has beyond it.
  const Prompt* prompt = nullptr;
  const Prompt* asked = nullptr;
};

// The teacher-forced pass of some contenders on one snapshot: each contender's fork is fed what the
// lead's full cache answers to itself. What `asked` has beyond the snapshot's prompt is fed first
// (kContext), then up to options.fidelity_steps tokens. A contender that fails gets its error.
struct FidelityJob {
  const Contender* contender = nullptr;
  Status status = {};
  Fidelity result = {};
};
void MeasureFidelity(const FidelityLead& lead, const Snapshot& snapshot, const Prompt& asked,
                     std::span<const int32_t> stop_ids, int64_t steps, int64_t valid_vocab,
                     std::span<FidelityJob> jobs);

}  // namespace kvgauge
