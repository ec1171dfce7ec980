// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/guarded.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/tensors.h"
#include "methods/trained_thin.h"
#include "src/compress/chunk_checks.h"
#include "src/compress/compressor_impl.h"

namespace kvgauge {

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
  for (int64_t head = 0; head < view.shape().kv_heads; ++head) {
    const int64_t length = view.lengths()[static_cast<size_t>(head)];
    if (cache_->reorders(view.layer())) {
      const std::vector<int32_t> positions = cache_->Positions(view.layer(), head);
      std::vector<int64_t> order(positions.size());
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(),
                [&](int64_t a, int64_t b) { return positions[a] < positions[b]; });
      for (int64_t i = 0; i < length; ++i) {
        if (i < head_budget_.sinks || i >= length - head_budget_.recent) {
          set(head, order[i], order[i] + 1);
        }
      }
      continue;
    }
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
  ViewMemory stage_memory(std::numeric_limits<int64_t>::max());
  const bool keeps = looks_again();
  int64_t width = 0;
  bool even = true;  // as any cache before its first reduction
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
      KVG_TRY(CheckEvenHeads(view, method_, *pipeline_.score));
      for (const int64_t length : view.lengths()) even &= length == views[0]->width();
      width = std::max(width, view.width());
      if (!after_prefill && !ages()) continue;
      memory.push_back(view.ops().memory->Allocate(view.shape().kv_heads * view.width() * 4));
      own.push_back(memory.back().As(DType::kF32, {view.shape().kv_heads, view.width()}));
      const LentMemory lent(view, stage_memory, keeps);
      if (shared.empty()) {
        KVG_CHECK(!ProbesPrompt(method_), "scores of a probe come with those of the prompt");
        pipeline_.score->Score(view, own.back());
      } else {
        ops_.memory->Copy(shared[static_cast<size_t>(layer)], own.back());
      }
      if (ages()) KVG_TRY(KeepNumbers(view, own.back()));
      if (!pipeline_.score->needs().gates.empty()) {
        KVG_TRY(CheckGates(*method_.score, view, own.back()));
      }
      Protect(view, own.back());
    }
  }
  if (!after_prefill && pipeline_.allocate->needs_scores()) {
    // The first reduction allocates.
    allocated_.clear();
    for (const auto& view : views) {
      allocated_.emplace_back(view->lengths().size(), std::min(head_budget_.entries, width));
    }
    return {};
  }
  {
    const Stopwatch watch(ops_, seconds().select);
    std::vector<Buffer> wide_memory;
    std::vector<Tensor> wide;
    const bool scored = pipeline_.allocate->needs_scores();
    for (size_t layer = 0; scored && !even && layer < own.size(); ++layer) {
      wide.push_back(ScoresAtWidth(*views[layer], own[layer], width, wide_memory.emplace_back()));
    }
    const std::span<const Tensor> compared = wide.empty() ? own : wide;
    KVG_ASSIGN(allocated_, pipeline_.allocate->Allocate(
                               {.shape = &shape_,
                                .length = width,
                                .per_head = head_budget_.entries,
                                .protected_entries = head_budget_.sinks + head_budget_.recent,
                                .window = pipeline_.score->needs().window,
                                .scores = scored ? compared : std::span<const Tensor>(),
                                .views = view_pointers}));
    KVG_TRY(CheckAllocation());
  }
  if (!after_prefill) return {};
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    {
      const LentMemory lent(*views[index], stage_memory, keeps);
      KVG_TRY(ReduceLayer(*views[index], own[index], 0));
    }
    views[index].reset();
  }
  recorder_.CountCompression();
  return CheckKept();
}

Status Compressor::Impl::CheckGates(const StageChoice& choice, CacheView& view,
                                    const Tensor& scores) const {
  const Tensor sums = view.Scratch(DType::kF32, {view.shape().kv_heads});
  view.ops().rows->ReduceRows(scores, Reduction::kSumAbs, sums);
  const std::vector<float> fetched = Fetch(ops_, sums);
  // Heads are exchanged with rows by a product, so one that is no number leaves none of its row.
  if (std::ranges::all_of(fetched, [](float sum) { return std::isfinite(sum); })) return {};
  return GatesGaveNoNumbers(choice, view.layer());
}

Status Compressor::Impl::CheckKept() const {
  if (method_.takes_budget) return {};
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < cache_->kv_heads(layer); ++head) {
      const int64_t kept = cache_->length(layer, head);
      if (kept > std::min(cache_->tokens(), head_budget_.sinks + head_budget_.recent)) return {};
      if (kept == cache_->tokens()) return {};  // all of it is protected
    }
  }
  return Unsupported(StrCat("reduce.", method_.reduce->spec->id, " keeps nothing of ",
                            cache_->tokens(), " tokens but ", head_budget_.sinks, " first and ",
                            head_budget_.recent, " last entries of each head; lower reduce.least"));
}

Status Compressor::Impl::ReduceLayer(CacheView& view, Tensor scores, int64_t step) {
  const auto layer = static_cast<size_t>(view.layer());
  const During during = step > 0 ? During::kStep : During::kPrompt;
  std::vector<HeadPlan> plan;
  {
    const Stopwatch watch(ops_, seconds().select, during);
    std::vector<int64_t> allocated = allocated_[layer];
    for (size_t head = 0; head < allocated.size(); ++head) {
      allocated[head] = std::min(allocated[head] + growth(), view.lengths()[head]);
    }
    const bool other = step > 0 && pipeline_.decode_reduce != nullptr;
    plan = (other ? pipeline_.decode_reduce : pipeline_.reduce)
               ->Reduce(view, {.scores = scores, .allocated = allocated, .step = step},
                        (other ? step_states_ : reduce_states_)[layer].get());
  }
  const Stopwatch watch(ops_, seconds().compact, during);
  if (carries_ != nullptr) carried_.Take(*carries_, view.layer(), plan);
  if (step == 0 && pipeline_.store->classifies()) KeepClassScores(view, scores, plan);
  if (!recorder_.AddPlan(view, plan)) return {};
  const Status absorbed = reads_.Absorb(view, plan);
  if (!absorbed.ok()) {
    return absorbed.error().Wrap(StrCat("read.", method_.read->spec->id));
  }
  if (step > 0 && ops_.device != Device::kHost) {
    const Tensor outcome = recorder_.OutcomeOf(view.layer(), *cache_);
    KVG_ASSIGN(const bool done, cache_->ReduceOnDevice(view.layer(), plan, outcome));
    if (done) return {};
  }
  recorder_.AddMerged(view.layer(), plan);
  return cache_->Reduce(view.layer(), plan);
}

void Compressor::Impl::KeepClassScores(CacheView& view, const Tensor& scores,
                                       std::span<const HeadPlan> plan) {
  class_scores_.resize(static_cast<size_t>(shape_.layers));
  class_memory_.resize(static_cast<size_t>(shape_.layers));
  const auto kept_of = [](const HeadPlan& one) { return one.keep.empty() ? 0 : one.keep.shape[0]; };
  int64_t width = 0;
  for (const HeadPlan& one : plan) width = std::max(width, kept_of(one));
  const auto layer = static_cast<size_t>(view.layer());
  if (width == 0) return;
  class_memory_[layer] = view.ops().memory->Allocate(view.shape().kv_heads * width * 4);
  const Tensor kept = class_memory_[layer].As(DType::kF32, {view.shape().kv_heads, width});
  view.ops().rows->Fill(0.0f, kept);
  for (int64_t head = 0; head < view.shape().kv_heads; ++head) {
    const HeadPlan& one = plan[static_cast<size_t>(head)];
    const int64_t count = kept_of(one);
    if (count == 0) continue;
    view.ops().select->Gather(AsColumn(scores[head]), one.keep,
                              AsColumn(kept[head].Slice(0, count)));
  }
  class_scores_[layer] = kept;
}

// scores: [kv_heads, width], or empty.
Status Compressor::Impl::Classify(CacheView& view, const Tensor& scores) {
  const int64_t layer = view.layer(), width = view.width();
  if (width == 0) return {};
  std::vector<int64_t> classed;
  for (int64_t head = 0; head < view.shape().kv_heads; ++head) {
    classed.push_back(cache_->InClasses(layer, head));
  }
  const std::vector<int32_t> none(static_cast<size_t>(view.shape().kv_heads * width), -1);
  const Tensor classes = view.Scratch(DType::kI32, {view.shape().kv_heads, width});
  ops_.memory->Copy(View(none, {view.shape().kv_heads, width}), classes);
  pipeline_.store->Classify(view, {.scores = scores, .classed = classed}, classes);
  return cache_->Classify(layer, classes);
}

Status Compressor::Impl::ClassifyPrompt(const PromptState& state, int64_t layer) {
  ViewSource source = Source();
  source.prefill = state.capture;
  CacheView view(source, layer);
  const auto at = static_cast<size_t>(layer);
  return Classify(view, at < class_scores_.size() ? class_scores_[at] : Tensor());
}

// By the scores of this step, where they go on in decode.
Status Compressor::Impl::ClassifyInStep() {
  if (!pipeline_.store->classifies()) return {};
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    if (!cache_->ClassesAreDue(layer)) continue;
    CacheView view(DecodeSource(StepSource()), layer);
    const Tensor scores = may_act() ? ScoreInStep(view, {}) : Tensor();
    const Stopwatch watch(ops_, seconds().quantise, During::kStep);
    KVG_TRY(Classify(view, scores));
    if (reads_.chooses()) reads_.BeginLayer(Source(), layer);
  }
  return {};
}

Status Compressor::Impl::StoreLayers(const PromptState& state) {
  if (stored_) {
    for (int64_t layer = 0; layer < shape_.layers && pipeline_.store->classifies(); ++layer) {
      if (cache_->ClassesAreDue(layer)) KVG_TRY(ClassifyPrompt(state, layer));
    }
    class_memory_.clear();
    class_scores_.clear();
    return Seal(During::kPrompt);
  }
  const Stopwatch watch(ops_, seconds().quantise);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    KVG_ASSIGN(StorePlan plan, pipeline_.store->Plan(shape_.OfLayer(layer), layer));
    if (plan.IsPlain()) continue;
    recorder_.AddStore(plan);
    ViewSource source = Source();
    source.prefill = state.capture;
    CacheView view(source, layer);
    pipeline_.store->Calibrate(view, plan);
    KVG_TRY(cache_->Store(layer, plan));
    if (pipeline_.store->classifies()) KVG_TRY(ClassifyPrompt(state, layer));
  }
  class_memory_.clear();
  class_scores_.clear();
  stored_ = true;
  return {};
}

// Sparse prefills look into pages themselves.
Status Compressor::Impl::KeepForReads() {
  if (pipeline_.read == nullptr || method_.attend) return {};
  const Stopwatch watch(ops_, seconds().score);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    int64_t longest = 0;
    for (int64_t head = 0; head < cache_->kv_heads(layer); ++head) {
      longest = std::max(longest, cache_->length(layer, head));
    }
    if (pipeline_.read->ReadsFew(layer, longest)) KVG_TRY(cache_->KeepByEntry(layer));
  }
  return {};
}

void Compressor::Impl::BeginReads(const PrefillCapture* capture) {
  if (!reads_.chooses()) return;
  const Stopwatch watch(ops_, seconds().score);
  ViewSource source = Source();
  source.prefill = capture;
  reads_.Begin(source);
}

void Compressor::Impl::CountWeights() {
  int64_t weights = 0;
  for (const auto* gates : {&needs_.gates, &needs_.step_gates}) {
    for (const GateNeed& need : *gates) weights += need.gate->PlannedBytes(shape_);
  }
  weights += TrainedBytes(pipeline_.thin.get(), shape_);
  const bool drafted = method_.score && method_.score->draft != nullptr;
  if (method_.thin && method_.thin->tagger != nullptr) {
    weights += method_.thin->tagger->weight_bytes;
  }
  recorder_.AddWeights(weights + reads_.weight_bytes() +
                       (drafted ? method_.score->draft->weight_bytes : 0));
}

Status Compressor::Impl::Compress(const PromptState& state, const PromptScores* scores,
                                  KvCache& cache) {
  cache_ = &cache;
  seed_ = state.seed;
  prompt_ = state.prompt;
  const Prompt* counted = state.counts_modalities ? state.prompt : nullptr;
  recorder_.Begin(cache, counted, state.capture);
  CountWeights();
  head_budget_ = HeadBudgetFor(method_, model_.checkpoint_shape(), budget_, cache.tokens());
  growth_ = allocated_growth_ = 0;
  const Status done = Guarded([&]() -> Status {
    if (step_.slides() && state.capture != nullptr) {
      step_.KeepPrompt(*state.capture, cache.tokens());
    }
    if (pipeline_.score != nullptr) KVG_TRY(ReducePrompt(state, scores));
    KVG_TRY(StoreLayers(state));
    KVG_TRY(KeepForReads());
    BeginReads(state.capture);
    return Place(During::kPrompt);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  recorder_.RecordCompressed(cache, counted, reader_bytes());
  return {};
}

bool Compressor::Impl::ContinueFrom(const Impl& other, KvCache& cache, bool in_turns) {
  // What the reader found out about the prompt's rows cannot be found anew.
  const Needs needs = pipeline_.read != nullptr ? pipeline_.read->needs() : Needs();
  if (needs.most_window() > 0 || needs.column_sums || needs.surprise ||
      !needs.query_moments.empty()) {
    return false;
  }
  for (const auto& state : other.reduce_states_) {
    if (state != nullptr) return false;
  }
  for (const auto& state : other.step_states_) {
    if (state != nullptr) return false;
  }
  cache_ = &cache;
  seed_ = other.seed_;
  prompt_ = other.prompt_;
  allocated_ = other.allocated_;
  head_budget_ = other.head_budget_;
  stored_ = other.stored_;
  step_.ContinueFrom(other.step_);
  marks_ = TokenMarks();  // of other tokens, perhaps
  hooked_ = Status();
  growth_ = other.growth_;
  allocated_growth_ = other.allocated_growth_;
  recorder_.ContinueFrom(other.recorder_);
  if (!in_turns || !reads_.ContinueInTurns(other.reads_)) {
    reads_.CopyAbsorbed(other.reads_);
    BeginReads(nullptr);
  }
  if (in_turns) reads_.CountFrom(other.reads_);
  return true;
}

void Compressor::Impl::BeforeAttend(int64_t layer, const Tensor& q) {
  KVG_CHECK(q.shape[0] == 1, "the hook is for decode steps");
  // A pass that found no memory is begun again.
  if (layer == 0) reads_.BeginStep();
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    reads_.Choose(DecodeSource(StepSource()), *cache_, layer, q, seconds().score);
    return {};
  });
  attend_start_s_ = NowSeconds();
}

void Compressor::Impl::LayerResidual(int64_t layer, const Tensor& x) {
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    const Stopwatch watch(ops_, seconds().score, During::kStep);
    step_.KeepResidual(layer, x);
    return {};
  });
}

void Compressor::Impl::LayerInput(int64_t layer, const Tensor& x) {
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    const Stopwatch watch(ops_, seconds().score, During::kStep);
    step_.KeepInput(layer, x);
    return {};
  });
}

void Compressor::Impl::LayerGuess(int64_t layer, const Tensor& q) {
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    const Stopwatch watch(ops_, seconds().score, During::kStep);
    step_.KeepGuess(layer, q);
    return {};
  });
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
    reads_.Correct(StepSource(), layer, q, log_sum_exp, out[0]);
    return {};
  });
}

Status Compressor::Impl::AfterStep() {
  recorder_.CountStep();
  reads_.EndPass();
  const Status done = Guarded([&]() -> Status {
    KVG_TRY(hooked_);
    reads_.KeepCounts();
    if (step_.slides()) step_.KeepLast(cache_->tokens() - 1);
    if (may_act()) KVG_TRY(ReduceInStep());
    KVG_TRY(ClassifyInStep());
    KVG_TRY(Seal(During::kStep));
    return Place(During::kStep);
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
    if (reads_.asks()) KVG_TRY(row_reads_.status());
    KVG_TRY(Seal(During::kStep));
    return Place(During::kStep);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

// What builds up over decode steps, as the prompt leaves it. scores: of the prompt's score.
Status Compressor::Impl::KeepNumbers(CacheView& view, const Tensor& scores) {
  const Scorer& scorer = pipeline_.StepScore();
  if (pipeline_.decode_score == nullptr && scorer.numbers() == 1) {
    return cache_->KeepScores(view.layer(), scores);
  }
  const Tensor numbers =
      view.Scratch(DType::kF32, {scorer.numbers(), view.shape().kv_heads, view.width()});
  scorer.Start(view, numbers);
  return cache_->KeepScores(view.layer(), scorer.numbers() == 1 ? numbers[0] : numbers);
}

Tensor Compressor::Impl::NumbersOf(CacheView& view) {
  const int64_t count = pipeline_.StepScore().numbers();
  Tensor numbers = view.Scratch(DType::kF32, {count, view.shape().kv_heads, view.width()});
  if (count == 1) numbers = numbers[0];
  cache_->ReadScores(view.layer(), numbers);
  return numbers;
}

Status Compressor::Impl::CheckStepGates(CacheView& view) {
  for (const GateNeed& need : pipeline_.StepScore().needs().step_gates) {
    if (need.gate->rows_of() == view.layer()) KVG_TRY(CheckStepGate(view, *need.gate));
  }
  return {};
}

// A device says it at the end.
Status Compressor::Impl::CheckStepGate(CacheView& view, const Gate& gate) {
  const Tensor scores = view.GateScores(gate);
  if (ops_.device != Device::kHost) {
    recorder_.AddStepGates(view, scores);
    return {};
  }
  return CheckGates(*(method_.decode_score ? method_.decode_score : method_.score), view, scores);
}

Result<Tensor> Compressor::Impl::AgeLayer(CacheView& view) {
  if (!ages()) return Tensor();
  const Stopwatch watch(ops_, seconds().score, During::kStep);
  const Tensor numbers = NumbersOf(view);
  pipeline_.StepScore().Age(view, numbers);
  for (const GateNeed& need : pipeline_.StepScore().needs().gates) {
    KVG_TRY(CheckStepGate(view, *need.gate));
  }
  KVG_TRY(cache_->KeepScores(view.layer(), numbers));
  return numbers;
}

int64_t Compressor::Impl::ExcessOf(const CacheView& view) const {
  if (!method_.takes_budget) return std::numeric_limits<int64_t>::max();
  const auto& allocated = allocated_[static_cast<size_t>(view.layer())];
  int64_t excess = std::numeric_limits<int64_t>::min();
  for (size_t head = 0; head < allocated.size(); ++head) {
    excess = std::max(excess, view.lengths()[head] - allocated[head] - growth());
  }
  return excess;
}

Tensor Compressor::Impl::ScoreInStep(CacheView& view, const Tensor& numbers) {
  const Stopwatch watch(ops_, seconds().score, During::kStep);
  const Scorer& scorer = pipeline_.StepScore();
  Tensor scores = numbers.empty() && scorer.ages() ? NumbersOf(view) : numbers;
  if (!scorer.ages() || scorer.numbers() > 1) {
    const Tensor kept = scores;
    scores = view.Scratch(DType::kF32, {view.shape().kv_heads, view.width()});
    scorer.ages() ? scorer.Rank(view, kept, scores) : scorer.Score(view, scores);
  }
  Protect(view, scores);
  return scores;
}

// Ages the scores, and reduces the layers for which the trigger says so.
Status Compressor::Impl::ReduceInStep() {
  bool reduced = false;
  int64_t most = std::numeric_limits<int64_t>::min();
  growth_ = GrowthOf(method_, model_.checkpoint_shape(), budget_, recorder_.prompt_tokens(),
                     cache_->tokens());
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    CacheView view(DecodeSource(StepSource()), layer);
    KVG_TRY(CheckStepGates(view));
    KVG_ASSIGN(const Tensor numbers, AgeLayer(view));
    const int64_t excess = ExcessOf(view);
    most = std::max(most, excess);
    if (pipeline_.AllocatesInDecode() || !pipeline_.StepReduce().evicts()) continue;
    if (!pipeline_.trigger->AfterStep(recorder_.steps(), excess)) continue;
    KVG_TRY(ReduceLayer(view, ScoreInStep(view, numbers), recorder_.steps()));
    if (reads_.chooses()) reads_.BeginLayer(Source(), layer);
    reduced = true;
  }
  if (pipeline_.AllocatesInDecode() && pipeline_.StepReduce().evicts() &&
      pipeline_.trigger->AfterStep(recorder_.steps(), most)) {
    KVG_ASSIGN(reduced, ReduceAgain());
  }
  if (reduced) recorder_.CountCompression();
  return {};
}

// Gives heads entries anew, by the scores of all layers, and reduces all of them.
Result<bool> Compressor::Impl::ReduceAgain() {
  std::vector<std::unique_ptr<CacheView>> views;
  std::vector<LayerView*> view_pointers;
  std::vector<Tensor> scores;  // [layers]
  std::vector<Buffer> memory;
  ViewMemory stage_memory(std::numeric_limits<int64_t>::max());
  const bool keeps = looks_again();
  int64_t width = 0;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    views.push_back(std::make_unique<CacheView>(DecodeSource(Source()), layer));
    view_pointers.push_back(views.back().get());
    width = std::max(width, views.back()->width());
  }
  for (const auto& view : views) {
    const LentMemory lent(*view, stage_memory, keeps);
    scores.push_back(ScoresAtWidth(*view, ScoreInStep(*view, {}), width, memory.emplace_back()));
  }
  {
    const Stopwatch watch(ops_, seconds().select, During::kStep);
    const Allocator& allocator = pipeline_.StepAllocate();
    KVG_ASSIGN(allocated_, allocator.Allocate(
                               {.shape = &shape_,
                                .length = width,
                                .per_head = std::min(width, head_budget_.entries + growth_),
                                .protected_entries = head_budget_.sinks + head_budget_.recent,
                                .window = pipeline_.StepScore().needs().step_window,
                                .scores = allocator.needs_scores() ? std::span<const Tensor>(scores)
                                                                   : std::span<const Tensor>(),
                                .views = view_pointers}));
    KVG_TRY(CheckAllocation());
    allocated_growth_ = growth_;
  }
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    {
      const LentMemory lent(*views[index], stage_memory, keeps);
      KVG_TRY(ReduceLayer(*views[index], Columns(scores[index], 0, views[index]->width()),
                          recorder_.steps()));
    }
    views[index].reset();
    if (reads_.chooses()) reads_.BeginLayer(Source(), layer);
  }
  return true;
}

Status Compressor::Impl::Seal(During during) {
  if (!recorder_.stores_otherwise()) return {};
  const Stopwatch watch(ops_, seconds().quantise, during);
  return cache_->Seal();
}

Status Compressor::Impl::Place(During during) {
  if (!places()) return {};
  const Stopwatch watch(ops_, seconds().compact, during);
  return cache_->Place(method_.place);
}

Compressor::Compressor(const Model& model, const Method& method, const Budget& budget)
    : impl_(std::make_unique<Impl>(model, method, budget)) {}
Compressor::~Compressor() = default;

Status Compressor::Compress(const PromptState& state, const PromptScores* scores, KvCache& cache) {
  return impl_->Compress(state, scores, cache);
}
void Compressor::BeginChunk(PrefillCapture& capture) { impl_->BeginChunk(capture); }
Status Compressor::CompressChunk(const PromptState& state, int64_t prompt_tokens, KvCache& cache) {
  return impl_->CompressChunk(state, prompt_tokens, cache);
}
void Compressor::ReadFrom(const Prompt& prompt) { impl_->ReadFrom(prompt); }
bool Compressor::ContinueFrom(const Compressor& other, KvCache& cache) {
  return impl_->ContinueFrom(*other.impl_, cache, false);
}
bool Compressor::ContinueInTurns(const Compressor& other, KvCache& cache) {
  return impl_->ContinueFrom(*other.impl_, cache, true);
}
LayerHook* Compressor::hook() { return impl_.get(); }
Status Compressor::AfterStep() { return impl_->AfterStep(); }
LayerHook* Compressor::question_hook() { return impl_->question_hook(); }
int64_t Compressor::most_question_rows() const { return impl_->most_question_rows(); }
Status Compressor::AfterRows() { return impl_->AfterRows(); }
Status Compressor::CheckSteps() const { return impl_->CheckSteps(); }
CompressionRecord Compressor::Record() const { return impl_->Record(); }
int64_t Compressor::reader_bytes() const { return impl_->reader_bytes(); }
PhaseSeconds& Compressor::seconds() { return impl_->seconds(); }

}  // namespace kvgauge
