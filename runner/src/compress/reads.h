// SPDX-License-Identifier: Apache-2.0
// What is read of a cache in decode steps: a reader's choices, and how many entries they were.
//
// Entries are summed over steps, layers and query heads. What a reader chose is counted where it
// chose it, on the device, until somebody asks.
#pragma once

#include <memory>
#include <vector>

#include "methods/absorbing_reader.h"
#include "methods/biasing_reader.h"
#include "methods/copied_reader.h"
#include "methods/question_reader.h"
#include "methods/repeating_reader.h"
#include "src/compress/tier_counts.h"
#include "src/compress/view.h"

namespace kvgauge {

class StepReads {
 public:
  // `reader` may be null: everything is read. It outlives this.
  StepReads(const Reader* reader, const Placement& place, const ModelShape& shape,
            const LayerDevices& devices);

  bool chooses() const { return reader_ != nullptr; }
  // Whether what it chooses is submitted alike in most steps.
  bool repeating() const { return repeating_ != nullptr; }
  // Indexes all entries anew, of all layers or of one. What a reader absorbed stays.
  void Begin(const ViewSource& source);
  void BeginLayer(const ViewSource& source, int64_t layer);
  // Entries of a layer are about to leave, as the plan says; the view has them still. An error
  // names no stage.
  Status Absorb(LayerView& view, std::span<const HeadPlan> plan);

  // Goes on from what `other` indexed of a cache that this one's is a fork of; false if that cannot
  // be. The two then take turns: each step of one of them is done before the other's begins.
  bool ContinueInTurns(const StepReads& other);
  // What the other absorbed, for a fork of its sequence that goes on by itself. The rest of an
  // index is made by Begin.
  void CopyAbsorbed(const StepReads& other);
  // What was read so far is as of the other.
  void CountFrom(const StepReads& other);

  // As LayerHook::BeginPass.
  void BeginPass(int64_t first, int64_t end, bool again);
  // A step begins, perhaps once more: one that found no memory is repeated.
  void BeginStep();
  // Before attention: what this query reads of the layer, q [1, query_heads, key_dim]. `seconds`
  // grows by what the choice takes.
  void Choose(const ViewSource& source, KvCache& cache, int64_t layer, const Tensor& q,
              double& seconds);
  // The same for rows of a question, q [rows, query_heads, key_dim], where the reader asks for
  // them: what they read counts in no step. The question ends behind `question_end` tokens.
  bool asks() const { return asked_ != nullptr; }
  void ChooseForRows(const ViewSource& source, KvCache& cache, int64_t layer, const Tensor& q,
                     int64_t question_end, double& seconds);
  bool rows_chose() const { return rows_chose_; }  // whether such rows ever read less than all
  // After attention over what was chosen: out [query_heads, value_dim].
  bool corrects(int64_t layer) const;
  // q as of Choose; log_sum_exp: [query_heads, 1], needed where it joins().
  void Correct(const ViewSource& source, int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
               const Tensor& out);
  bool joins() const { return joining_ != nullptr; }
  // The pass is done: what it chose counts; and what it chose on the device.
  void EndPass();
  void KeepCounts();

  // What the reader knows of a layer, for a reader that saves(): to be saved, or into what Begin
  // has just made of the same entries.
  Status Fields(const ViewSource& source, int64_t layer, StateFields& fields);

  double read() const;  // waits for the device
  double held() const { return held_; }
  const TierCounts& tiers() const { return tiers_; }
  int64_t index_bytes() const;
  // What the reader's weights take, which all sequences share.
  int64_t weight_bytes() const {
    return absorbing_ != nullptr ? absorbing_->WeightBytes(shape_) : 0;
  }

 private:
  void AllocateCounts();
  // By `copied_`, all layers' states of the other.
  void CopyStates(const StepReads& other);
  bool ChooseEntries(const ViewSource& source, KvCache& cache, int64_t layer, const Tensor& q);
  // Lets a reader that asks choose by these rows. words: as of its Choose.
  bool ChooseOnce(CacheView& view, KvCache& cache, const Tensor& q, bool anew, const Tensor& words);
  // What came since the last time is shown to the reader.
  void Show(CacheView& view);

  const Reader* reader_;
  const JoiningReader* joining_;  // the same, or null
  const BiasingReader* biasing_;  // likewise
  const AbsorbingReader* absorbing_;
  const CopiedReader* copied_;
  const QuestionReader* asked_;
  const bool takes_turns_;
  const RepeatingReader* repeating_;  // or null
  const ModelShape& shape_;
  const LayerDevices devices_;
  std::vector<std::shared_ptr<Reader::State>> states_;  // [layers]
  std::vector<std::vector<int64_t>> indexed_;  // [layers][kv_heads] entries the reader has seen
  // The same before the step's entries were shown, which may be shown again; empty: none were.
  std::vector<std::vector<int64_t>> indexed_before_;
  std::vector<bool> chosen_;  // [layers] of this step: not everything is read
  // All that were held, and those of layers that were read whole.
  double whole_ = 0, held_ = 0;
  std::vector<double> step_whole_, step_held_;  // [layers]; a layer may come twice in a step
  LayerNumbers counts_[2];  // [query_heads] i64 until the last step, and with this one
  bool step_chosen_ = false;
  bool rows_chose_ = false;
  int64_t question_begin_ = 0, question_end_ = -1;  // of the newest question whose rows chose
  TierCounts tiers_;
};

}  // namespace kvgauge
