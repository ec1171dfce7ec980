// SPDX-License-Identifier: Apache-2.0
#include "runner/compressor.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/guarded.h"
#include "core/json.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "src/compress/question_rows.h"
#include "src/compress/stopwatch.h"
#include "src/compress/view.h"

namespace kvgauge {
namespace {

// Entries that `list` folds into others.
int64_t CountMerged(Ops& ops, const MergeList& list) {
  if (list.empty()) return 0;
  std::vector<int32_t> to(static_cast<size_t>(list.to.shape[0]));
  ops.memory->Copy(list.to, View(to, {static_cast<int64_t>(to.size())}));
  return static_cast<int64_t>(
      std::count_if(to.begin(), to.end(), [](int32_t entry) { return entry >= 0; }));
}

bool KeepsAll(const LayerView& view, std::span<const HeadPlan> plan) {
  for (size_t head = 0; head < plan.size(); ++head) {
    if (plan[head].keep.Numel() != view.lengths()[head] || !plan[head].keys.empty() ||
        !plan[head].values.empty() || !plan[head].log_weight.empty()) {
      return false;
    }
  }
  return true;
}

}  // namespace

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
        step_(model.config(), needs_, ops_) {
    const size_t layers = static_cast<size_t>(shape_.layers);
    record_.merged.resize(layers);
    for (size_t i = 0; i < layers && pipeline_.reduce != nullptr; ++i) {
      reduce_states_.push_back(pipeline_.reduce->Begin());
    }
    if (ages()) question_ = std::make_unique<QuestionRows>(model.config(), ops_);
  }

  Status Compress(const PromptState& state, const PromptScores* scores, KvCache& cache);
  bool ContinueFrom(const Impl& other, KvCache& cache);
  Status AfterStep();
  LayerHook* question_hook() { return question_.get(); }
  Status AfterRows();
  Status CheckSteps() const;
  CompressionRecord Record() const;
  PhaseSeconds& seconds() { return record_.seconds; }

  bool wants_log_sum_exp() const override { return step_.wants_log_sum_exp(); }
  bool repeatable() const override { return pipeline_.read == nullptr; }
  void BeforeAttend(int64_t layer, const Tensor& q) override;
  Tensor ColumnSumsOfRows(int64_t layer) override;
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

 private:
  ViewSource Source() const {
    return {.model = &model_, .shape = &shape_, .cache = cache_, .prompt = prompt_, .seed = seed_};
  }
  // Of a view that is gone when the next one is made.
  ViewSource StepSource() {
    ViewSource source = Source();
    source.memory = &step_memory_;
    source.marks = &marks_;
    return source;
  }
  // Whether the trigger may reduce while decoding; and whether scores are kept for that.
  bool may_act() const { return pipeline_.trigger != nullptr && pipeline_.trigger->in_decode(); }
  bool ages() const { return may_act() && pipeline_.score->ages(); }
  Status Act();
  Status ReducePrompt(const PromptState& state, const PromptScores* scores);
  // `step` as in ReduceInput.
  Status ReduceLayer(CacheView& view, Tensor scores, int64_t step);
  // What the device found of plans that it executed by itself, [layers, kv_heads] rows of KvKept.
  Result<bool> ReduceUnseen(int64_t layer, std::span<const HeadPlan> plan);
  std::vector<int32_t> Kept() const;
  void AddMerged(std::vector<int64_t>& merged) const;
  Status StoreLayers(const PromptState& state);
  void BeginReaders();
  void BeginReader(int64_t layer);
  Status Seal(During during);
  void Look(int64_t layer, const Tensor& q);
  bool ChooseReads(int64_t layer, const Tensor& q);
  Tensor ReadCounts(size_t which) const {
    return read_counts_[which].As(DType::kI64, {shape_.layers, shape_.query_heads});
  }
  double Reads() const;
  void Protect(const CacheView& view, Tensor scores) const;
  Status CheckAllocation() const;
  std::vector<std::vector<int64_t>> Entries() const;
  void TakeStock();

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
  std::vector<std::unique_ptr<Reader::State>> read_states_;     // [layers]
  std::vector<std::vector<int64_t>> indexed_;  // [layers][kv_heads] entries the reader has seen
  std::vector<bool> chosen_;                   // [layers] of this step: not everything is read
  Allocation allocated_;
  HeadBudget head_budget_;
  int64_t growth_ = 0;  // of each head's allocation since, as of the newest step
  bool stored_ = false;
  bool codes_ = false;
  bool stores_otherwise_ = false;  // a plan that is more than the plain store
  bool dropped_ = false, weighted_ = false;
  // Entries summed over steps, layers, query heads: all that were held, and those of layers that
  // were read whole. What readers chose is counted where they chose it: until the last step, and
  // with this one.
  double whole_ = 0, held_ = 0;
  double step_whole_ = 0, step_held_ = 0;
  Buffer read_counts_[2];  // [layers, query_heads] i64
  Buffer kept_;            // of ReduceUnseen, once there was one
  bool step_chosen_ = false;
  ViewMemory step_memory_;
  TokenMarks marks_;
  Status hooked_;  // what failed in the middle of a pass: the step's result
  double attend_start_s_ = 0;
  CompressionRecord record_;
};

std::vector<std::vector<int64_t>> Compressor::Impl::Entries() const {
  std::vector<std::vector<int64_t>> entries(static_cast<size_t>(shape_.layers));
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < cache_->kv_heads(); ++head) {
      entries[static_cast<size_t>(layer)].push_back(cache_->length(layer, head));
    }
  }
  return entries;
}

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
      record_.seconds.score += scores->seconds(method_);
    }
    const Stopwatch watch(ops_, record_.seconds.score);
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      views.push_back(std::make_unique<CacheView>(source, layer));
      view_pointers.push_back(views.back().get());
      CacheView& view = *views.back();
      width = std::max(width, view.width());
      if (!after_prefill && !ages()) continue;
      memory.push_back(ops_.memory->Allocate(shape_.kv_heads * view.width() * 4));
      own.push_back(memory.back().As(DType::kF32, {shape_.kv_heads, view.width()}));
      if (shared.empty()) {
        pipeline_.score->Score(view, own.back());
      } else {
        ops_.memory->Copy(shared[static_cast<size_t>(layer)], own.back());
      }
      if (ages()) KVG_TRY(cache_->KeepScores(layer, own.back()));
      Protect(view, own.back());
    }
  }
  {
    const Stopwatch watch(ops_, record_.seconds.select);
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
  ++record_.compressions;
  return {};
}

Status Compressor::Impl::ReduceLayer(CacheView& view, Tensor scores, int64_t step) {
  const auto layer = static_cast<size_t>(view.layer());
  const During during = step > 0 ? During::kStep : During::kPrompt;
  std::vector<HeadPlan> plan;
  {
    const Stopwatch watch(ops_, record_.seconds.select, during);
    std::vector<int64_t> allocated = allocated_[layer];
    for (size_t head = 0; head < allocated.size(); ++head) {
      allocated[head] = std::min(allocated[head] + growth_, view.lengths()[head]);
    }
    plan = pipeline_.reduce->Reduce(view, {.scores = scores, .allocated = allocated, .step = step},
                                    reduce_states_[layer].get());
  }
  const Stopwatch watch(ops_, record_.seconds.compact, during);
  if (KeepsAll(view, plan)) return {};
  for (size_t head = 0; head < plan.size(); ++head) {
    dropped_ |= plan[head].keep.Numel() < view.lengths()[head];
    weighted_ |= !plan[head].log_weight.empty();
  }
  if (step > 0 && ops_.device != Device::kHost) {
    KVG_ASSIGN(const bool done, ReduceUnseen(view.layer(), plan));
    if (done) return {};
  }
  for (size_t head = 0; head < plan.size(); ++head) {
    record_.merged[layer] +=
        std::max(CountMerged(ops_, plan[head].keys), CountMerged(ops_, plan[head].values));
  }
  return cache_->Reduce(view.layer(), plan);
}

Result<bool> Compressor::Impl::ReduceUnseen(int64_t layer, std::span<const HeadPlan> plan) {
  const int64_t heads = cache_->kv_heads();
  if (kept_.size_bytes() == 0) {
    kept_ = ops_.memory->Allocate(shape_.layers * heads * kKvKeptNumbers * SizeOf(DType::kI32));
  }
  return cache_->ReduceUnseen(layer, plan,
                              kept_.As(DType::kI32, {shape_.layers, heads, kKvKeptNumbers})[layer]);
}

std::vector<int32_t> Compressor::Impl::Kept() const {
  std::vector<int32_t> kept(static_cast<size_t>(kept_.size_bytes() / SizeOf(DType::kI32)));
  const int64_t size = std::ssize(kept);
  if (size > 0) ops_.memory->Copy(kept_.As(DType::kI32, {size}), View(kept, {size}));
  return kept;
}

void Compressor::Impl::AddMerged(std::vector<int64_t>& merged) const {
  const std::vector<int32_t> kept = Kept();
  for (size_t layer = 0; layer < merged.size() && !kept.empty(); ++layer) {
    const size_t row = kept.size() / merged.size();
    for (size_t i = 0; i < row; i += kKvKeptNumbers) {
      merged[layer] += kept[layer * row + i + static_cast<size_t>(KvKept::kMerged)];
    }
  }
}

// Devices are not asked in a step, so what is wrong with its plan is known when there is time.
Status Compressor::Impl::CheckSteps() const {
  const std::vector<int32_t> kept = Kept();
  for (size_t i = 0; i < kept.size(); i += kKvKeptNumbers) {
    const auto number = [&](KvKept what) { return kept[i + static_cast<size_t>(what)]; };
    if (number(KvKept::kRefused) == 0) continue;
    const int64_t heads = cache_->kv_heads(), at = static_cast<int64_t>(i) / kKvKeptNumbers;
    return BadInput(StrCat(method_.id, ": layer ", at / heads, ": plan for KV head ", at % heads,
                           " of a decode step: entry ", number(KvKept::kEntry), " after entry ",
                           number(KvKept::kBefore), " of ", number(KvKept::kLength),
                           "; kept entries ascend and are held (a device says so at the end)"));
  }
  return {};
}

Status Compressor::Impl::StoreLayers(const PromptState& state) {
  if (stored_) return Seal(During::kPrompt);
  const Stopwatch watch(ops_, record_.seconds.quantise);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    KVG_ASSIGN(StorePlan plan, pipeline_.store->Plan(shape_, layer));
    if (plan.IsPlain()) continue;
    stores_otherwise_ = true;
    codes_ |= plan.layout->traits().seals;
    ViewSource source = Source();
    source.prefill = state.capture;
    CacheView view(source, layer);
    pipeline_.store->Calibrate(view, plan);
    KVG_TRY(cache_->Store(layer, plan));
  }
  stored_ = true;
  return {};
}

void Compressor::Impl::BeginReaders() {
  if (pipeline_.read == nullptr) return;
  const Stopwatch watch(ops_, record_.seconds.score);
  read_states_.resize(static_cast<size_t>(shape_.layers));
  indexed_.resize(static_cast<size_t>(shape_.layers));
  chosen_.assign(static_cast<size_t>(shape_.layers), false);
  for (Buffer& counts : read_counts_) {
    if (counts.size_bytes() > 0) continue;
    counts = ops_.memory->Allocate(shape_.layers * shape_.query_heads * SizeOf(DType::kI64));
  }
  for (int64_t layer = 0; layer < shape_.layers; ++layer) BeginReader(layer);
}

void Compressor::Impl::BeginReader(int64_t layer) {
  const auto index = static_cast<size_t>(layer);
  CacheView view(Source(), layer);
  read_states_[index] = pipeline_.read->Begin(view);
  indexed_[index].assign(view.lengths().begin(), view.lengths().end());
}

Status Compressor::Impl::Compress(const PromptState& state, const PromptScores* scores,
                                  KvCache& cache) {
  cache_ = &cache;
  seed_ = state.seed;
  prompt_ = state.prompt;
  record_.prompt_tokens = cache.tokens();
  record_.entries_before = Entries();
  head_budget_ = HeadBudgetFor(method_, shape_, budget_, cache.tokens());
  growth_ = 0;
  const Status done = Guarded([&]() -> Status {
    if (pipeline_.score != nullptr) KVG_TRY(ReducePrompt(state, scores));
    KVG_TRY(StoreLayers(state));
    BeginReaders();
    return {};
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  TakeStock();
  return {};
}

void Compressor::Impl::TakeStock() {
  record_.entries_after = Entries();
  record_.full_bytes = FullCacheBytes(model_.checkpoint_shape(), cache_->tokens());
  record_.nominal_bytes = NominalBytes(method_, shape_, budget_, cache_->tokens());
  record_.bytes = cache_->Bytes();
  record_.bits.clear();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    int64_t entries = 0;
    for (const int64_t held : record_.entries_after[static_cast<size_t>(layer)]) entries += held;
    // Heads that share an entry have a key and a value of it each.
    const int64_t sharing = shape_.kv_heads / cache_->kv_heads();
    const auto numbers =
        static_cast<double>(entries * sharing * (shape_.key_dim + shape_.value_dim));
    const auto payload = static_cast<double>(cache_->Bytes(layer).payload);
    record_.bits.push_back(entries > 0 ? 8.0 * payload / numbers : 0.0);
  }
  record_.reader_bytes = 0;
  for (const auto& state : read_states_) record_.reader_bytes += state->bytes();
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
  stores_otherwise_ = other.stores_otherwise_;
  codes_ = other.codes_;
  dropped_ = other.dropped_;
  weighted_ = other.weighted_;
  record_ = other.record_;
  other.AddMerged(record_.merged);
  BeginReaders();
  return true;
}

void Compressor::Impl::BeforeAttend(int64_t layer, const Tensor& q) {
  KVG_CHECK(q.shape[0] == 1, "the hook is for decode steps");
  // A pass that found no memory is begun again.
  if (layer == 0) step_whole_ = step_held_ = 0;
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    Look(layer, q);
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

void Compressor::Impl::Look(int64_t layer, const Tensor& q) {
  const int64_t readers = shape_.query_heads / cache_->kv_heads();  // of a KV head
  double held = 0;
  for (int64_t head = 0; head < cache_->kv_heads(); ++head) {
    held += static_cast<double>(cache_->length(layer, head) * readers);
  }
  step_held_ += held;
  if (pipeline_.read == nullptr || !ChooseReads(layer, q[0])) step_whole_ += held;
}

// False where all is read.
bool Compressor::Impl::ChooseReads(int64_t layer, const Tensor& q) {
  const Stopwatch watch(ops_, record_.seconds.score, During::kStep);
  const auto index = static_cast<size_t>(layer);
  CacheView view(StepSource(), layer);
  pipeline_.read->Append(view, indexed_[index], *read_states_[index]);
  indexed_[index].assign(view.lengths().begin(), view.lengths().end());
  const Tensor words = view.Scratch(DType::kI64, {shape_.query_heads, (view.width() + 63) / 64});
  chosen_[index] = pipeline_.read->Select(view, *read_states_[index], q, words);
  if (!chosen_[index]) return false;
  cache_->SetRead(layer, words);
  ops_.select->CountBits(words, ReadCounts(0)[layer], ReadCounts(1)[layer]);
  step_chosen_ = true;
  return true;
}

double Compressor::Impl::Reads() const {
  double reads = whole_;
  if (read_counts_[0].size_bytes() == 0) return reads;
  std::vector<int64_t> counts(static_cast<size_t>(shape_.layers * shape_.query_heads));
  ops_.memory->Copy(ReadCounts(0),
                    Tensor(counts.data(), DType::kI64, {shape_.layers, shape_.query_heads}));
  for (const int64_t count : counts) reads += static_cast<double>(count);
  return reads;
}

void Compressor::Impl::AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                                   const Tensor& out) {
  // On a device it has only been submitted: there it counts with the rest of the pass.
  if (ops_.device == Device::kHost) record_.seconds.attend += NowSeconds() - attend_start_s_;
  if (!hooked_.ok()) return;
  if (step_.wanted()) step_.Keep(layer, q, log_sum_exp);
  const auto index = static_cast<size_t>(layer);
  if (pipeline_.read == nullptr || !pipeline_.read->corrects() || !chosen_[index]) return;
  hooked_ = Guarded([&]() -> Status {
    const Stopwatch watch(ops_, record_.seconds.score, During::kStep);
    CacheView view(StepSource(), layer);
    pipeline_.read->Correct(view, *read_states_[index], out[0]);
    return {};
  });
}

Status Compressor::Impl::AfterStep() {
  ++record_.steps;
  whole_ += step_whole_;
  held_ += step_held_;
  const Status done = Guarded([&]() -> Status {
    KVG_TRY(hooked_);
    if (step_chosen_) ops_.memory->Copy(ReadCounts(1), ReadCounts(0));
    step_chosen_ = false;
    if (may_act()) KVG_TRY(Act());
    return Seal(During::kStep);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

Status Compressor::Impl::AfterRows() {
  const Status done = Guarded([&]() -> Status {
    if (question_ != nullptr) {
      const Stopwatch watch(ops_, record_.seconds.score, During::kStep);
      KVG_TRY(question_->Age(StepSource(), *pipeline_.score, *cache_));
    }
    return Seal(During::kStep);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

// Ages the scores, and reduces the layers for which the trigger says so.
Status Compressor::Impl::Act() {
  bool reduced = false;
  growth_ = GrowthOf(method_, shape_, budget_, record_.prompt_tokens, cache_->tokens());
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    ViewSource source = StepSource();
    source.step = step_.wanted() ? &step_ : nullptr;
    CacheView view(source, layer);
    Tensor scores;
    if (ages()) {
      const Stopwatch watch(ops_, record_.seconds.score, During::kStep);
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
    if (!pipeline_.trigger->AfterStep(record_.steps, excess)) continue;
    if (!ages()) {
      const Stopwatch watch(ops_, record_.seconds.score, During::kStep);
      scores = view.Scratch(DType::kF32, {shape_.kv_heads, view.width()});
      pipeline_.score->Score(view, scores);
    }
    Protect(view, scores);
    KVG_TRY(ReduceLayer(view, scores, record_.steps));
    if (pipeline_.read != nullptr) BeginReader(layer);
    reduced = true;
  }
  record_.compressions += reduced;
  return {};
}

Status Compressor::Impl::Seal(During during) {
  if (!stores_otherwise_) return {};
  const Stopwatch watch(ops_, record_.seconds.quantise, during);
  return cache_->Seal();
}

CompressionRecord Compressor::Impl::Record() const {
  CompressionRecord record = record_;
  AddMerged(record.merged);
  const double reads = Reads();
  const bool read_less = reads < held_;
  if (record.steps > 0) {
    record.reads_per_step =
        reads / static_cast<double>(record.steps * shape_.layers * shape_.query_heads);
    record.read_share = held_ > 0 ? reads / held_ : 0;
  }
  int64_t merged = 0;
  for (const int64_t count : record.merged) merged += count;
  const KvBytes now = cache_->Bytes();
  int64_t entries = 0;
  for (const auto& layer : Entries()) {
    for (const int64_t held : layer) entries += held;
  }
  // The model's own latents are other entries than those of the full cache, whatever their bytes.
  const bool coded = now.payload != entries * shape_.EntryBytes() || now.scales > 0 ||
                     (entries > 0 && cache_->mla_latent());
  record.final_bytes = now;
  const std::string unsealed = StrCat("store.", method_.store->spec->id, " changed no entry of ",
                                      record.prompt_tokens, " tokens");
  const bool wants_fewer = method_.takes_budget && head_budget_.entries < record.prompt_tokens;
  if (dropped_ || weighted_ || merged > 0 || read_less || coded) {
    record.engagement = Engagement::kEngaged;
    if (codes_ && !coded) record.reason = unsealed;
  } else if (stores_otherwise_) {
    record.reason = unsealed;
  } else if (pipeline_.read != nullptr) {
    record.reason = StrCat("read.", method_.read->spec->id,
                           record.steps == 0 ? " saw no decode step" : " read every entry");
  } else if (wants_fewer) {
    record.reason = StrCat("nothing was given up of ", record.prompt_tokens, " tokens for ",
                           head_budget_.entries, " entries a head");
  } else {
    record.engagement = Engagement::kIdentity;
  }
  return record;
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
