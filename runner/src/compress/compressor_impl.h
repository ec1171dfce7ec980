// SPDX-License-Identifier: Apache-2.0
// A compressor at work: prompts and decode steps are in compressor.cpp, prompts that are read in
// chunks in compressor_chunks.cpp, and what a saved cache has with it in compressor_saved.cpp.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "methods/repeating_reader.h"
#include "runner/compressor.h"
#include "src/compress/carried_sums.h"
#include "src/compress/method_account.h"
#include "src/compress/question_rows.h"
#include "src/compress/reads.h"
#include "src/compress/stopwatch.h"
#include "src/compress/view.h"

namespace kvgauge {

class Compressor::Impl final : public LayerHook {
 public:
  Impl(const Model& model, const Method& method, const Budget& budget)
      : model_(model),
        method_(method),
        budget_(budget),
        shape_(model.shape()),
        ops_(model.ops()),
        needs_(method.needs()),
        pipeline_(MakePipeline(method)),
        step_(model.cache_config(), StepNeeds(), model.devices()),
        step_memory_(KeptStepBytes()),
        reads_(pipeline_.read.get(), method_.place, shape_, model.devices()),
        recorder_(model, method, budget_, shape_),
        carried_(shape_, needs_, model.devices()) {
    for (int64_t i = 0; i < shape_.layers && pipeline_.reduce != nullptr; ++i) {
      reduce_states_.push_back(pipeline_.reduce->Begin());
      if (pipeline_.decode_reduce != nullptr) {
        step_states_.push_back(pipeline_.decode_reduce->Begin());
      }
    }
    if (ages())
      question_ =
          std::make_unique<QuestionRows>(model.cache_config(), shape_, needs_, model.devices());
    if (step_.slides()) last_rows_ = std::make_unique<LastRows>(step_, question_.get());
    KVG_CHECK(!reads_.asks() || (question_ == nullptr && last_rows_ == nullptr),
              "a reader that asks goes with no score of decoded rows");
  }

  Status Compress(const PromptState& state, const PromptScores* scores, KvCache& cache);
  void BeginChunk(PrefillCapture& capture) const { carried_.GiveTo(capture); }
  Status CompressChunk(const PromptState& state, int64_t prompt_tokens, KvCache& cache);
  void ReadFrom(const Prompt& prompt) { prompt_ = &prompt; }
  bool ContinueFrom(const Impl& other, KvCache& cache, bool in_turns);
  Status AfterStep();
  LayerHook* question_hook() {
    if (reads_.asks()) {
      row_reads_.Begin(StepSource(), *cache_);
      return &row_reads_;
    }
    if (last_rows_ == nullptr) return question_.get();
    last_rows_->Begin(*cache_);
    return last_rows_.get();
  }
  int64_t most_question_rows() const {
    return question_ != nullptr ? QuestionRows::kMostRows : Model::kChunkRows;
  }
  Status AfterRows();
  Status CheckSteps() const { return recorder_.CheckSteps(*cache_); }
  CompressionRecord Record() const {
    return recorder_.Record(*cache_, reads_, head_budget_.entries);
  }
  int64_t reader_bytes() const { return reads_.index_bytes() + step_.bytes_of_last(); }
  PhaseSeconds& seconds() { return recorder_.seconds(); }
  Status SaveState(std::string& out);
  Status GoOn(const Prompt& prompt, std::string_view state, KvCache& cache);

  bool wants_log_sum_exp() const override { return step_.wants_log_sum_exp() || reads_.joins(); }
  bool repeatable() const override {
    return (!reads_.chooses() || reads_.repeating()) && !wants_residuals() && !wants_inputs() &&
           !wants_guesses() && !places();
  }
  void BeginPass(int64_t first, int64_t end, bool again) override {
    reads_.BeginPass(first, end, again);
  }
  bool wants_residuals() const override { return step_.wants_residuals(); }
  void LayerResidual(int64_t layer, const Tensor& x) override;
  bool wants_inputs() const override { return may_act() && step_.wants_inputs(); }
  void LayerInput(int64_t layer, const Tensor& x) override;
  bool wants_guesses() const override { return step_.wants_guesses(); }
  void LayerGuess(int64_t layer, const Tensor& q) override;
  void BeforeAttend(int64_t layer, const Tensor& q) override;
  Tensor ColumnSumsOfRows(int64_t layer) override;
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

 private:
  ViewSource Source() const {
    return {.model = &model_, .shape = &shape_, .cache = cache_, .prompt = prompt_, .seed = seed_};
  }
  // The source of a view that is gone when the next one is made.
  ViewSource StepSource() {
    ViewSource source = Source();
    source.memory = &step_memory_;
    source.marks = &marks_;
    return source;
  }
  // Whether the trigger may reduce while decoding; and whether scores are kept for that.
  bool may_act() const { return pipeline_.trigger != nullptr && pipeline_.trigger->in_decode(); }
  bool ages() const { return may_act() && pipeline_.StepScore().ages(); }
  // Whether a stage looks at attention that the score has looked at.
  bool looks_again() const {
    const auto looks = [](const Stage* stage) {
      if (stage == nullptr) return false;
      const Needs needs = stage->needs();
      return needs.most_window() > 0 || needs.step_window > 0 || needs.step_attention;
    };
    const Allocator& in_steps = pipeline_.StepAllocate();
    return pipeline_.allocate->shares_window() || in_steps.shares_window() ||
           looks(pipeline_.allocate.get()) || looks(&in_steps) || looks(pipeline_.reduce.get()) ||
           looks(pipeline_.decode_reduce.get()) || looks(pipeline_.store.get());
  }
  // A device takes a step at once if all memory is there: that of a reader's estimates, or of the
  // keys of a head, may be large.
  int64_t KeptStepBytes() const {
    const bool at_once = dynamic_cast<const RepeatingReader*>(pipeline_.read.get()) != nullptr;
    return at_once && ops_.device != Device::kHost ? ViewMemory::kMostKeptOnDevice
                                                   : ViewMemory::kChunkBytes;
  }
  // What steps capture: gates have weights, which are held only where scores go on in decode.
  Needs StepNeeds() const {
    Needs needs = needs_;
    if (!may_act()) needs.gates.clear();
    return needs;
  }
  // Whether entries really lie on the host: attention then fetches them.
  bool places() const {
    return ops_.device != Device::kHost && method_.place.any() && !method_.place.attends;
  }
  // By how much the allocation has grown since it was made.
  int64_t growth() const { return growth_ - allocated_growth_; }
  ViewSource DecodeSource(ViewSource source) {
    source.step = step_.wanted() || step_.wants_guesses() ? &step_ : nullptr;
    return source;
  }
  Status KeepNumbers(CacheView& view, const Tensor& scores);
  Status CheckStepGates(CacheView& view);
  Status CheckStepGate(CacheView& view, const Gate& gate);
  // The numbers of the layer's entries, aged; empty where scores do not age.
  Result<Tensor> AgeLayer(CacheView& view);
  // What is kept of them: [numbers, kv_heads, width], or without the first dim where it is one.
  Tensor NumbersOf(CacheView& view);
  // All that lasts from step to step, either way.
  Status Fields(StateFields& fields);
  Status FieldsOfLayer(StateFields& fields, int64_t layer);
  // Whether a cache that was read is one that the method can go on with.
  Status CheckGoesOn() const;
  // By how much some head of the layer is over what it may hold.
  int64_t ExcessOf(const CacheView& view) const;
  // [kv_heads, width], protected entries +inf. `numbers`: as aged, or empty.
  Tensor ScoreInStep(CacheView& view, const Tensor& numbers);
  Status ReduceInStep();
  Result<bool> ReduceAgain();
  Status ReducePrompt(const PromptState& state, const PromptScores* scores);
  Status ReduceChunk(const PromptState& state, int64_t prompt_tokens);
  // out: [kv_heads, entries without those of the rows behind the chunk], zero on entry.
  void ScoreAsked(const PromptState& asked, int64_t layer, const Tensor& out) const;
  // `step` as in ReduceInput.
  Status ReduceLayer(CacheView& view, Tensor scores, int64_t step);
  // The scores of what a plan keeps, for a store that puts entries into classes.
  void KeepClassScores(CacheView& view, const Tensor& scores, std::span<const HeadPlan> plan);
  Status Classify(CacheView& view, const Tensor& scores);
  Status ClassifyPrompt(const PromptState& state, int64_t layer);
  Status ClassifyInStep();
  Status StoreLayers(const PromptState& state);
  void CountWeights();                             // those that the method has beside the model's
  Status KeepForReads();                           // as the reader reads
  void BeginReads(const PrefillCapture* capture);  // null: there are no signals of a prompt
  Status Seal(During during);
  Status Place(During during);
  void Protect(const CacheView& view, Tensor scores) const;
  Status CheckAllocation() const;
  // Trained gates may give what is no number. `choice`: of the scorer that has them.
  Status CheckGates(const StageChoice& choice, CacheView& view, const Tensor& scores) const;
  // A threshold that keeps nothing but what is protected.
  Status CheckKept() const;

  const Model& model_;
  const Method& method_;
  const Budget budget_;
  const ModelShape shape_;
  Ops& ops_;  // of the first device: for copies and waits, which are alike on all
  const Needs needs_;
  Pipeline pipeline_;
  StepCapture step_;
  std::unique_ptr<QuestionRows> question_;  // where scores age
  std::unique_ptr<LastRows> last_rows_;     // where a score looks back in decode
  KvCache* cache_ = nullptr;
  const Prompt* prompt_ = nullptr;
  uint64_t seed_ = 0;

  std::vector<std::unique_ptr<Reducer::State>> reduce_states_;  // [layers]
  std::vector<std::unique_ptr<Reducer::State>> step_states_;    // of another reducer in decode
  Allocation allocated_;
  HeadBudget head_budget_;
  int64_t growth_ = 0;  // of each head's allocation since the prompt, as of the newest step
  int64_t allocated_growth_ = 0;  // what of it the allocation has
  bool stored_ = false;
  std::vector<Buffer> class_memory_;  // [layers] of scores of the prompt's kept entries
  std::vector<Tensor> class_scores_;  // [layers] of [kv_heads, longest head]
  ViewMemory step_memory_;
  TokenMarks marks_;
  Status hooked_;  // what failed in the middle of a pass: the step's result
  double attend_start_s_ = 0;
  StepReads reads_;
  Recorder recorder_;
  RowReads row_reads_{reads_, recorder_.seconds().score};  // where the reader asks for these rows
  CarriedSums carried_;                                    // from chunk to chunk of a prompt
  const PrefillCapture* carries_ = nullptr;  // of the chunk that is being compressed, with others
};

}  // namespace kvgauge
