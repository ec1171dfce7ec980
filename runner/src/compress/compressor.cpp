// SPDX-License-Identifier: Apache-2.0
#include "runner/compressor.h"

#include <algorithm>
#include <limits>

#include "core/guarded.h"
#include "core/strings.h"
#include "methods/calibration.h"
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
        step_(model.config(), needs_, ops_),
        reads_(pipeline_.read.get(), shape_, ops_),
        recorder_(model, method, budget_, shape_) {
    for (int64_t i = 0; i < shape_.layers && pipeline_.reduce != nullptr; ++i) {
      reduce_states_.push_back(pipeline_.reduce->Begin());
    }
    if (ages()) question_ = std::make_unique<QuestionRows>(model.config(), ops_);
  }

  Status Compress(const PromptState& state, const PromptScores* scores, KvCache& cache);
  bool ContinueFrom(const Impl& other, KvCache& cache);
  Status AfterStep();
  LayerHook* question_hook() { return question_.get(); }
  Status AfterRows();
  Status CheckSteps() const { return recorder_.CheckSteps(*cache_); }
  CompressionRecord Record() const {
    return recorder_.Record(*cache_, reads_, head_budget_.entries);
  }
  PhaseSeconds& seconds() { return recorder_.seconds(); }

  bool wants_log_sum_exp() const override { return step_.wants_log_sum_exp(); }
  bool repeatable() const override { return !reads_.chooses(); }
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
  bool ages() const { return may_act() && pipeline_.score->ages(); }
  Status ReduceInStep();
  Status ReducePrompt(const PromptState& state, const PromptScores* scores);
  // `step` as in ReduceInput.
  Status ReduceLayer(CacheView& view, Tensor scores, int64_t step);
  Status StoreLayers(const PromptState& state);
  void BeginReads();
  Status Seal(During during);
  void Protect(const CacheView& view, Tensor scores) const;
  Status CheckAllocation() const;

  const Model& model_;
  const Method& method_;
  const Budget budget_;
  const ModelShape shape_;
  Ops& ops_;
  const Needs needs_;
  Pipeline pipeline_;
  StepCapture step_;
  std::unique_ptr<QuestionRows> question_;  // where scores age
  KvCache* cache_ = nullptr;
  const Prompt* prompt_ = nullptr;
  uint64_t seed_ = 0;

  std::vector<std::unique_ptr<Reducer::State>> reduce_states_;  // [layers]
  Allocation allocated_;
  HeadBudget head_budget_;
  int64_t growth_ = 0;  // of each head's allocation since, as of the newest step
  bool stored_ = false;
  ViewMemory step_memory_;
  TokenMarks marks_;
  Status hooked_;  // what failed in the middle of a pass: the step's result
  double attend_start_s_ = 0;
  StepReads reads_;
  Recorder recorder_;
};

// +inf for what is never given up.
void Compressor::Impl::Protect(const CacheView& view, Tensor scores) const {
  const int64_t most = std::min(std::max(head_budget_.sinks, head_budget_.recent), view.width());
  if (most == 0) return;
  const std::vector<float> infinite(static_cast<size_t>(most),
                                    std::numeric_limits<float>::infinity());
  const auto set = [&](int64_t head, int64_t begin, int64_t end) {
    if (begin >= end) return;
    const std::span<const float> source(infinite.data(), static_cast<size_t>(end - begin));
    ops_.memory->Copy(View(source, {end - begin}), scores[head].Slice(begin, end));
  };
  for (int64_t head = 0; head < shape_.kv_heads; ++head) {
    const int64_t length = view.lengths()[static_cast<size_t>(head)];
    set(head, 0, std::min(head_budget_.sinks, length));
    set(head, std::max<int64_t>(length - head_budget_.recent, 0), length);
  }
}

Status Compressor::Impl::CheckAllocation() const {
  for (size_t layer = 0; layer < allocated_.size(); ++layer) {
    for (size_t head = 0; head < allocated_[layer].size(); ++head) {
      const int64_t entries = allocated_[layer][head];
      if (entries < 0 || entries > cache_->tokens()) {
        return Unsupported(StrCat("allocate.", method_.allocate->spec->id, " gave ", entries,
                                  " entries to layer ", layer, ", KV head ", head,
                                  "; expected 0 .. ", cache_->tokens()));
      }
    }
  }
  return {};
}

Status Compressor::Impl::ReducePrompt(const PromptState& state, const PromptScores* scores) {
  const bool after_prefill = pipeline_.trigger->AfterPrefill();
  ViewSource source = Source();
  source.prefill = state.capture;
  std::vector<std::unique_ptr<CacheView>> views;
  std::vector<LayerView*> view_pointers;
  std::vector<Buffer> memory;
  std::vector<Tensor> own;  // [layers] scores, protected entries +inf
  int64_t width = 0;
  {
    std::span<const Tensor> shared;
    if (scores != nullptr) {
      KVG_ASSIGN(shared, scores->Of(method_));
      seconds().score += scores->seconds(method_);
    }
    const Stopwatch watch(ops_, seconds().score);
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      views.push_back(std::make_unique<CacheView>(source, layer));
      view_pointers.push_back(views.back().get());
      CacheView& view = *views.back();
      width = std::max(width, view.width());
      if (!after_prefill && !ages()) continue;
      memory.push_back(ops_.memory->Allocate(shape_.kv_heads * view.width() * 4));
      own.push_back(memory.back().As(DType::kF32, {shape_.kv_heads, view.width()}));
      if (shared.empty()) {
        KVG_CHECK(!ProbesPrompt(method_), "scores of a probe come with those of the prompt");
        pipeline_.score->Score(view, own.back());
      } else {
        ops_.memory->Copy(shared[static_cast<size_t>(layer)], own.back());
      }
      if (ages()) KVG_TRY(cache_->KeepScores(layer, own.back()));
      Protect(view, own.back());
    }
  }
  {
    const Stopwatch watch(ops_, seconds().select);
    const bool scored = after_prefill && pipeline_.allocate->needs_scores();
    KVG_ASSIGN(allocated_,
               pipeline_.allocate->Allocate(
                   {.shape = &shape_,
                    .length = width,
                    .per_head = head_budget_.entries,
                    .protected_entries = head_budget_.sinks + head_budget_.recent,
                    .window = pipeline_.score->needs().window,
                    .scores = scored ? std::span<const Tensor>(own) : std::span<const Tensor>(),
                    .views = view_pointers}));
    KVG_TRY(CheckAllocation());
  }
  if (!after_prefill) return {};
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    KVG_TRY(ReduceLayer(*views[index], own[index], 0));
    views[index].reset();
  }
  recorder_.CountCompression();
  return {};
}

Status Compressor::Impl::ReduceLayer(CacheView& view, Tensor scores, int64_t step) {
  const auto layer = static_cast<size_t>(view.layer());
  const During during = step > 0 ? During::kStep : During::kPrompt;
  std::vector<HeadPlan> plan;
  {
    const Stopwatch watch(ops_, seconds().select, during);
    std::vector<int64_t> allocated = allocated_[layer];
    for (size_t head = 0; head < allocated.size(); ++head) {
      allocated[head] = std::min(allocated[head] + growth_, view.lengths()[head]);
    }
    plan = pipeline_.reduce->Reduce(view, {.scores = scores, .allocated = allocated, .step = step},
                                    reduce_states_[layer].get());
  }
  const Stopwatch watch(ops_, seconds().compact, during);
  if (!recorder_.AddPlan(view, plan)) return {};
  if (step > 0 && ops_.device != Device::kHost) {
    const Tensor outcome = recorder_.OutcomeOf(view.layer(), *cache_);
    KVG_ASSIGN(const bool done, cache_->ReduceOnDevice(view.layer(), plan, outcome));
    if (done) return {};
  }
  recorder_.AddMerged(view.layer(), plan);
  return cache_->Reduce(view.layer(), plan);
}

Status Compressor::Impl::StoreLayers(const PromptState& state) {
  if (stored_) return Seal(During::kPrompt);
  const Stopwatch watch(ops_, seconds().quantise);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    KVG_ASSIGN(StorePlan plan, pipeline_.store->Plan(shape_, layer));
    if (plan.IsPlain()) continue;
    recorder_.AddStore(plan);
    ViewSource source = Source();
    source.prefill = state.capture;
    CacheView view(source, layer);
    pipeline_.store->Calibrate(view, plan);
    KVG_TRY(cache_->Store(layer, plan));
  }
  stored_ = true;
  return {};
}

void Compressor::Impl::BeginReads() {
  if (!reads_.chooses()) return;
  const Stopwatch watch(ops_, seconds().score);
  reads_.Begin(Source());
}

Status Compressor::Impl::Compress(const PromptState& state, const PromptScores* scores,
                                  KvCache& cache) {
  cache_ = &cache;
  seed_ = state.seed;
  prompt_ = state.prompt;
  const Prompt* counted = state.counts_modalities ? state.prompt : nullptr;
  recorder_.Begin(cache, counted, state.capture);
  head_budget_ = HeadBudgetFor(method_, shape_, budget_, cache.tokens());
  growth_ = 0;
  const Status done = Guarded([&]() -> Status {
    if (pipeline_.score != nullptr) KVG_TRY(ReducePrompt(state, scores));
    KVG_TRY(StoreLayers(state));
    BeginReads();
    return {};
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  recorder_.RecordCompressed(cache, counted, reads_.index_bytes());
  return {};
}

bool Compressor::Impl::ContinueFrom(const Impl& other, KvCache& cache) {
  for (const auto& state : other.reduce_states_) {
    if (state != nullptr) return false;
  }
  cache_ = &cache;
  seed_ = other.seed_;
  prompt_ = other.prompt_;
  allocated_ = other.allocated_;
  head_budget_ = other.head_budget_;
  stored_ = other.stored_;
  recorder_.ContinueFrom(other.recorder_);
  BeginReads();
  return true;
}

void Compressor::Impl::BeforeAttend(int64_t layer, const Tensor& q) {
  KVG_CHECK(q.shape[0] == 1, "the hook is for decode steps");
  // A pass that found no memory is begun again.
  if (layer == 0) reads_.BeginStep();
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    reads_.Choose(StepSource(), *cache_, layer, q, seconds().score);
    return {};
  });
  attend_start_s_ = NowSeconds();
}

Tensor Compressor::Impl::ColumnSumsOfRows(int64_t layer) {
  Tensor left;
  if (!hooked_.ok()) return left;
  hooked_ = Guarded([&]() -> Status {
    left = step_.AttentionOf(layer, *cache_);
    return {};
  });
  return left;
}

void Compressor::Impl::AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                                   const Tensor& out) {
  // On a device it has only been submitted: there it counts with the rest of the pass.
  if (ops_.device == Device::kHost) seconds().attend += NowSeconds() - attend_start_s_;
  if (!hooked_.ok()) return;
  if (step_.wanted()) step_.Keep(layer, q, log_sum_exp);
  if (!reads_.corrects(layer)) return;
  hooked_ = Guarded([&]() -> Status {
    const Stopwatch watch(ops_, seconds().score, During::kStep);
    reads_.Correct(StepSource(), layer, out[0]);
    return {};
  });
}

Status Compressor::Impl::AfterStep() {
  recorder_.CountStep();
  reads_.EndPass();
  const Status done = Guarded([&]() -> Status {
    KVG_TRY(hooked_);
    reads_.KeepCounts();
    if (may_act()) KVG_TRY(ReduceInStep());
    return Seal(During::kStep);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

Status Compressor::Impl::AfterRows() {
  const Status done = Guarded([&]() -> Status {
    if (question_ != nullptr) {
      const Stopwatch watch(ops_, seconds().score, During::kStep);
      KVG_TRY(question_->Age(StepSource(), *pipeline_.score, *cache_));
    }
    return Seal(During::kStep);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

// Ages the scores, and reduces the layers for which the trigger says so.
Status Compressor::Impl::ReduceInStep() {
  bool reduced = false;
  growth_ = GrowthOf(method_, shape_, budget_, recorder_.prompt_tokens(), cache_->tokens());
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    ViewSource source = StepSource();
    source.step = step_.wanted() ? &step_ : nullptr;
    CacheView view(source, layer);
    Tensor scores;
    if (ages()) {
      const Stopwatch watch(ops_, seconds().score, During::kStep);
      scores = view.Scratch(DType::kF32, {shape_.kv_heads, view.width()});
      cache_->ReadScores(layer, scores);
      pipeline_.score->Age(view, scores);
      KVG_TRY(cache_->KeepScores(layer, scores));
    }
    const auto& allocated = allocated_[static_cast<size_t>(layer)];
    int64_t excess = std::numeric_limits<int64_t>::min();
    for (size_t head = 0; head < allocated.size(); ++head) {
      excess = std::max(excess, view.lengths()[head] - allocated[head] - growth_);
    }
    if (!pipeline_.trigger->AfterStep(recorder_.steps(), excess)) continue;
    if (!ages()) {
      const Stopwatch watch(ops_, seconds().score, During::kStep);
      scores = view.Scratch(DType::kF32, {shape_.kv_heads, view.width()});
      pipeline_.score->Score(view, scores);
    }
    Protect(view, scores);
    KVG_TRY(ReduceLayer(view, scores, recorder_.steps()));
    if (reads_.chooses()) reads_.BeginLayer(Source(), layer);
    reduced = true;
  }
  if (reduced) recorder_.CountCompression();
  return {};
}

Status Compressor::Impl::Seal(During during) {
  if (!recorder_.stores_otherwise()) return {};
  const Stopwatch watch(ops_, seconds().quantise, during);
  return cache_->Seal();
}

Compressor::Compressor(const Model& model, const Method& method, const Budget& budget)
    : impl_(std::make_unique<Impl>(model, method, budget)) {}
Compressor::~Compressor() = default;

Status Compressor::Compress(const PromptState& state, const PromptScores* scores, KvCache& cache) {
  return impl_->Compress(state, scores, cache);
}
bool Compressor::ContinueFrom(const Compressor& other, KvCache& cache) {
  return impl_->ContinueFrom(*other.impl_, cache);
}
LayerHook* Compressor::hook() { return impl_.get(); }
Status Compressor::AfterStep() { return impl_->AfterStep(); }
LayerHook* Compressor::question_hook() { return impl_->question_hook(); }
int64_t Compressor::most_question_rows() const {
  return impl_->question_hook() != nullptr ? QuestionRows::kMostRows : Model::kChunkRows;
}
Status Compressor::AfterRows() { return impl_->AfterRows(); }
Status Compressor::CheckSteps() const { return impl_->CheckSteps(); }
CompressionRecord Compressor::Record() const { return impl_->Record(); }
PhaseSeconds& Compressor::seconds() { return impl_->seconds(); }

}  // namespace kvgauge
