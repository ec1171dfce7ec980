// SPDX-License-Identifier: Apache-2.0
#include "runner/compressor.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "core/clock.h"
#include "core/json.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "src/compressor_parts.h"
#include "src/guarded.h"
#include "src/view.h"

namespace kvgauge {
namespace {

// Seconds of a stretch of work, device work included.
class Stopwatch {
 public:
  Stopwatch(Ops& ops, double& seconds) : ops_(ops), seconds_(seconds), start_s_(NowSeconds()) {}
  ~Stopwatch() {
    ops_.memory->Synchronize();
    seconds_ += NowSeconds() - start_s_;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Ops& ops_;
  double& seconds_;
  double start_s_;
};

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

std::string StageKey(const StageChoice& choice) {
  std::string key = choice.spec->id;
  key += choice.params.ToJson().dump();
  if (choice.calibration != nullptr) key += choice.calibration->digest;
  return key;
}

}  // namespace

PromptScores PromptScores::Compute(const Model& model, const PromptState& state,
                                   std::span<const Method* const> methods) {
  PromptScores scores;
  struct Job {
    std::unique_ptr<Stage> stage;
    Scored* scored;
  };
  std::vector<Job> jobs;
  for (const Method* method : methods) {
    if (!method->score) continue;
    const auto [at, is_new] = scores.scored_.try_emplace(StageKey(*method->score));
    if (is_new) jobs.push_back({MakeStage(*method->score), &at->second});
  }
  const ModelShape shape = model.shape();
  Ops& ops = model.ops();
  const ViewSource source = {.model = &model,
                             .shape = &shape,
                             .cache = state.cache,
                             .prefill = state.capture,
                             .seed = state.seed};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    CacheView view(source, layer);
    for (Job& job : jobs) {
      if (!job.scored->status.ok()) continue;
      const Stopwatch watch(ops, job.scored->seconds);
      const int64_t size = std::max<int64_t>(shape.kv_heads * view.width(), 1);
      job.scored->status = Guarded([&]() -> Status {
        job.scored->memory.push_back(ops.memory->Allocate(size * 4));
        job.scored->layers.push_back(
            job.scored->memory.back().As(DType::kF32, {shape.kv_heads, view.width()}));
        static_cast<const Scorer&>(*job.stage).Score(view, job.scored->layers.back());
        return {};
      });
    }
  }
  return scores;
}

Result<std::span<const Tensor>> PromptScores::Of(const Method& method) const {
  const Scored& scored = scored_.at(StageKey(*method.score));
  if (!scored.status.ok()) return scored.status.error();
  return std::span<const Tensor>(scored.layers);
}

double PromptScores::seconds(const Method& method) const {
  return method.score ? scored_.at(StageKey(*method.score)).seconds : 0;
}

int64_t PromptScores::bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, scored] : scored_) {
    for (const Buffer& buffer : scored.memory) bytes += buffer.size_bytes();
  }
  return bytes;
}

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
  }

  Status Compress(const PromptState& state, const PromptScores* scores, KvCache& cache);
  bool ContinueFrom(const Impl& other, KvCache& cache);
  Status AfterStep();
  Status AfterRows() {
    return Guarded([&] { return Seal(); });
  }
  CompressionRecord Record() const;
  PhaseSeconds& seconds() { return record_.seconds; }

  bool wants_log_sum_exp() const override { return step_.wants_log_sum_exp(); }
  bool repeatable() const override { return pipeline_.read == nullptr && !step_.wanted(); }
  void BeforeAttend(int64_t layer, const Tensor& q) override;
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

 private:
  ViewSource Source() const {
    return {.model = &model_, .shape = &shape_, .cache = cache_, .seed = seed_};
  }
  // Whether the trigger may reduce while decoding; and whether scores are kept for that.
  bool may_act() const { return pipeline_.trigger != nullptr && pipeline_.trigger->in_decode(); }
  bool ages() const { return may_act() && pipeline_.score->ages(); }
  Status Act();
  // What the tokens since the last allotment add to it: a budget is of all tokens seen.
  int64_t Growth() const {
    return AllowanceFor(method_, shape_, budget_, cache_->tokens()).entries - allowance_.entries;
  }
  Status ReducePrompt(const PromptState& state, const PromptScores* scores);
  // `step` as in ReduceInput.
  Status ReduceLayer(CacheView& view, Tensor scores, int64_t step);
  Status StoreLayers(const PromptState& state);
  void BeginReaders();
  void BeginReader(int64_t layer);
  Status Seal();
  void Look(int64_t layer, const Tensor& q);
  double ChooseReads(int64_t layer, const Tensor& q, double held);
  void Protect(const CacheView& view, Tensor scores) const;
  Status CheckAllotment() const;
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
  KvCache* cache_ = nullptr;
  uint64_t seed_ = 0;

  std::vector<std::unique_ptr<Reducer::State>> reduce_states_;  // [layers]
  std::vector<std::unique_ptr<Reader::State>> read_states_;     // [layers]
  std::vector<std::vector<int64_t>> indexed_;  // [layers][kv_heads] entries the reader has seen
  Allotment allotted_;
  Allowance allowance_;
  bool stored_ = false;
  bool codes_ = false;
  bool stores_otherwise_ = false;  // a plan that is more than the plain store
  bool dropped_ = false, weighted_ = false, read_less_ = false;
  double reads_ = 0, held_ = 0;  // summed over steps, layers, query heads
  double step_reads_ = 0, step_held_ = 0;
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
  const int64_t most = std::min(std::max(allowance_.sinks, allowance_.recent), view.width());
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
    set(head, 0, std::min(allowance_.sinks, length));
    set(head, std::max<int64_t>(length - allowance_.recent, 0), length);
  }
}

Status Compressor::Impl::CheckAllotment() const {
  for (size_t layer = 0; layer < allotted_.size(); ++layer) {
    for (size_t head = 0; head < allotted_[layer].size(); ++head) {
      const int64_t entries = allotted_[layer][head];
      if (entries < 0 || entries > cache_->tokens()) {
        return Unsupported(StrCat("allocate.", method_.allocate->spec->id, " gave ", entries,
                                  " entries to layer ", layer, ", KV head ", head,
                                  "; right is 0 .. ", cache_->tokens()));
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
    KVG_ASSIGN(allotted_,
               pipeline_.allocate->Allocate(
                   {.shape = &shape_,
                    .length = width,
                    .per_head = allowance_.entries,
                    .protected_entries = allowance_.sinks + allowance_.recent,
                    .scores = scored ? std::span<const Tensor>(own) : std::span<const Tensor>(),
                    .views = view_pointers}));
    KVG_TRY(CheckAllotment());
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
  std::vector<HeadPlan> plan;
  {
    const Stopwatch watch(ops_, record_.seconds.select);
    std::vector<int64_t> allotted = allotted_[layer];
    for (size_t head = 0; head < allotted.size(); ++head) {
      allotted[head] = std::min(allotted[head] + Growth(), view.lengths()[head]);
    }
    plan = pipeline_.reduce->Reduce(view, {.scores = scores, .allotted = allotted, .step = step},
                                    reduce_states_[layer].get());
  }
  const Stopwatch watch(ops_, record_.seconds.compact);
  if (KeepsAll(view, plan)) return {};
  for (size_t head = 0; head < plan.size(); ++head) {
    dropped_ |= plan[head].keep.Numel() < view.lengths()[head];
    weighted_ |= !plan[head].log_weight.empty();
    record_.merged[layer] +=
        std::max(CountMerged(ops_, plan[head].keys), CountMerged(ops_, plan[head].values));
  }
  return cache_->Reduce(view.layer(), plan);
}

Status Compressor::Impl::StoreLayers(const PromptState& state) {
  if (stored_) return Seal();
  const Stopwatch watch(ops_, record_.seconds.quantise);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    KVG_ASSIGN(StorePlan plan, pipeline_.store->Plan(shape_, layer));
    if (!IsMoreThanPlain(plan)) continue;
    stores_otherwise_ = true;
    codes_ |= plan.keys.coded() || plan.values.coded();
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
  record_.prompt_tokens = cache.tokens();
  record_.entries_before = Entries();
  allowance_ = AllowanceFor(method_, shape_, budget_, cache.tokens());
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
  allotted_ = other.allotted_;
  allowance_ = other.allowance_;
  stored_ = other.stored_;
  stores_otherwise_ = other.stores_otherwise_;
  codes_ = other.codes_;
  dropped_ = other.dropped_;
  weighted_ = other.weighted_;
  record_ = other.record_;
  BeginReaders();
  return true;
}

void Compressor::Impl::BeforeAttend(int64_t layer, const Tensor& q) {
  KVG_CHECK(q.shape[0] == 1, "the hook is for decode steps");
  // A pass that found no memory is begun again.
  if (layer == 0) step_reads_ = step_held_ = 0;
  if (!hooked_.ok()) return;
  hooked_ = Guarded([&]() -> Status {
    Look(layer, q);
    return {};
  });
  attend_start_s_ = NowSeconds();
}

void Compressor::Impl::Look(int64_t layer, const Tensor& q) {
  const int64_t readers = shape_.query_heads / cache_->kv_heads();  // of a KV head
  double held = 0;
  for (int64_t head = 0; head < cache_->kv_heads(); ++head) {
    held += static_cast<double>(cache_->length(layer, head) * readers);
  }
  const double reads = pipeline_.read != nullptr ? ChooseReads(layer, q[0], held) : held;
  read_less_ |= reads < held;
  step_reads_ += reads;
  step_held_ += held;
}

// How many entries the query heads read of the `held`.
double Compressor::Impl::ChooseReads(int64_t layer, const Tensor& q, double held) {
  const Stopwatch watch(ops_, record_.seconds.score);
  const auto index = static_cast<size_t>(layer);
  CacheView view(Source(), layer);
  pipeline_.read->Append(view, indexed_[index], *read_states_[index]);
  indexed_[index].assign(view.lengths().begin(), view.lengths().end());
  const int64_t count = (view.width() + 63) / 64;
  const Tensor words = view.Scratch(DType::kI64, {shape_.query_heads, count});
  if (!pipeline_.read->Select(view, *read_states_[index], q, words)) return held;
  cache_->SetRead(layer, words);
  std::vector<int64_t> bits(static_cast<size_t>(words.Numel()));
  const Tensor host(bits.data(), DType::kI64, {shape_.query_heads, count});
  ops_.memory->Copy(words, host);
  int64_t reads = 0;
  for (const int64_t word : bits) reads += std::popcount(static_cast<uint64_t>(word));
  return static_cast<double>(reads);
}

void Compressor::Impl::AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                                   const Tensor&) {
  // On a device it has only been submitted: there it counts with the rest of the pass.
  if (ops_.device == Device::kHost) record_.seconds.attend += NowSeconds() - attend_start_s_;
  if (step_.wanted() && hooked_.ok()) step_.Keep(layer, q, log_sum_exp);
}

Status Compressor::Impl::AfterStep() {
  ++record_.steps;
  reads_ += step_reads_;
  held_ += step_held_;
  const Status done = Guarded([&]() -> Status {
    KVG_TRY(hooked_);
    if (may_act()) KVG_TRY(Act());
    return Seal();
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  return {};
}

// Ages the scores, and reduces the layers for which the trigger says so.
Status Compressor::Impl::Act() {
  bool reduced = false;
  const int64_t growth = Growth();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    ViewSource source = Source();
    source.step = step_.wanted() ? &step_ : nullptr;
    CacheView view(source, layer);
    Tensor scores;
    if (ages()) {
      const Stopwatch watch(ops_, record_.seconds.score);
      scores = view.Scratch(DType::kF32, {shape_.kv_heads, view.width()});
      cache_->ReadScores(layer, scores);
      pipeline_.score->Age(view, scores);
      KVG_TRY(cache_->KeepScores(layer, scores));
    }
    const auto& allotted = allotted_[static_cast<size_t>(layer)];
    int64_t excess = std::numeric_limits<int64_t>::min();
    for (size_t head = 0; head < allotted.size(); ++head) {
      excess = std::max(excess, view.lengths()[head] - allotted[head] - growth);
    }
    if (!pipeline_.trigger->AfterStep(record_.steps, excess)) continue;
    if (!ages()) {
      const Stopwatch watch(ops_, record_.seconds.score);
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

Status Compressor::Impl::Seal() {
  if (!stores_otherwise_) return {};
  const Stopwatch watch(ops_, record_.seconds.quantise);
  return cache_->Seal();
}

CompressionRecord Compressor::Impl::Record() const {
  CompressionRecord record = record_;
  if (record.steps > 0) {
    record.reads_per_step =
        reads_ / static_cast<double>(record.steps * shape_.layers * shape_.query_heads);
    record.read_share = held_ > 0 ? reads_ / held_ : 0;
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
  const bool wants_fewer = method_.takes_budget && allowance_.entries < record.prompt_tokens;
  if (dropped_ || weighted_ || merged > 0 || read_less_ || coded) {
    record.engagement = Engagement::kEngaged;
    if (codes_ && !coded) record.reason = unsealed;
  } else if (stores_otherwise_) {
    record.reason = unsealed;
  } else if (pipeline_.read != nullptr) {
    record.reason = StrCat("read.", method_.read->spec->id,
                           record.steps == 0 ? " saw no decode step" : " read every entry");
  } else if (wants_fewer) {
    record.reason = StrCat("nothing was given up of ", record.prompt_tokens, " tokens for ",
                           allowance_.entries, " entries a head");
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
Status Compressor::AfterRows() { return impl_->AfterRows(); }
CompressionRecord Compressor::Record() const { return impl_->Record(); }
PhaseSeconds& Compressor::seconds() { return impl_->seconds(); }

}  // namespace kvgauge
