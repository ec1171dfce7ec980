// SPDX-License-Identifier: Apache-2.0
// A prefill that goes layer by layer, as rows leave between layers (methods/thin.h): all rows pass
// the layers below the first gap, those that go on pass the layers up to the next one, and so on.
//
// Rows have the bits that a prefill of whole chunks gives them as long as none has left. A stage
// that rewrites the prompt does so before anything is computed. One thread.
//
// Where the stage condenses (methods/condensing_thin.h) the prompt goes chunk by chunk instead.
// Where it encodes (methods/encoding_thin.h) the model's encoder reads the rows that leave, before
// any other is read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "methods/merging_thin.h"
#include "methods/method.h"
#include "runner/capture.h"
#include "runner/model.h"

namespace kvgauge {

class CondensedPrefill;
class EncodingThin;
class RewritingThin;

class ThinPrefill {
 public:
  // A prefill of the whole prompt into an empty cache. `capture` is of that cache, with the needs
  // of the stage. All outlive the prefill. Where the stage closes up, tokens of the prompt and of
  // the cache stand elsewhere for rotation afterwards; where it rewrites, the prompt has others.
  // For stages that condense: `context` tokens do not belong to the question; 0: nobody says, and
  // what is left behind the last whole chunk is the question. `passages`: where chunks begin,
  // ascending; empty: chunks of as many tokens as the stage says.
  ThinPrefill(Model& model, const StageChoice& thin, Prompt& prompt, KvCache& cache,
              PrefillCapture& capture, uint64_t seed, int64_t context = 0,
              std::span<const int64_t> passages = {});
  ~ThinPrefill();

  bool done() const { return done_; }
  bool closes_up() const { return thin_.closes_up(); }
  // Runs up to Model::kChunkRows rows through some layers, and lets rows go behind the last of
  // them. Logits of the last row when it is done, [1, vocab], valid until the model runs again;
  // otherwise empty. After an error the prefill is not to be used. Precondition: not done.
  Result<Tensor> Next();

  // Bytes beside the cache and the captures, for the plan of a run.
  static int64_t PlannedBytes(const StageChoice& thin, const ModelConfig& config, int64_t rows);

 private:
  int64_t rows() const { return std::ssize(places_); }
  bool last_stretch() const { return stretch_ == std::ssize(gaps_); }
  // What goes on: rows of the present ones, ascending, and what the made ones among them hold.
  struct Chosen {
    std::vector<int32_t> rows;
    std::vector<int32_t> made;  // places among `rows`
    Buffer values;              // [made, hidden_size] f32
  };
  bool WantsInputs() const { return merging_ != nullptr && merging_->wants_inputs(); }
  bool WantsNormed() const { return merging_ != nullptr && merging_->wants_normed(); }
  Tensor Inputs() const;  // [prompt, hidden_size]
  Tensor Normed() const;  // [rows, hidden_size]
  // The next of the rows that an encoder reads; true: there are no more.
  Result<bool> EncodeRows();
  Status LetRowsGo();
  void CloseUp();
  Result<Chosen> ChooseRows();

  Model& model_;
  const StageChoice& choice_;
  std::unique_ptr<Stage> stage_;
  const Thin& thin_;
  const MergingThin* merging_;                   // the same, where it makes rows; else null
  const RewritingThin* rewriting_;               // the same, where it rewrites; else null
  const EncodingThin* encoding_;                 // the same, where an encoder reads rows; else null
  std::unique_ptr<CondensedPrefill> condensed_;  // where it condenses, in the place of all below
  Prompt& prompt_;
  KvCache& cache_;
  PrefillCapture& capture_;
  const ModelShape shape_;
  const uint64_t seed_;
  std::vector<int64_t> gaps_;    // layers that fewer rows reach
  std::vector<int32_t> places_;  // of the rows that are left
  Buffer inputs_;                // [prompt, hidden_size] f32: what the first layer read; or empty
  Buffer normed_;                // [prompt, hidden_size] f32: `hidden_` by the last norm; or empty
  Buffer memory_;                // of `hidden_`
  Tensor hidden_;                // [rows, hidden_size]: what the next layer reads
  int64_t stretch_ = 0;          // of layers, between two gaps
  int64_t first_layer_ = 0;      // of the stretch
  int64_t next_row_ = 0;         // that the stretch has not passed, or the encoder
  bool forgotten_ = false;       // the cache holds rows that a stage had read by themselves
  bool done_ = false;
};

}  // namespace kvgauge
