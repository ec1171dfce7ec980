// SPDX-License-Identifier: Apache-2.0
#include "runner/engine.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/rng.h"
#include "kernels/devices.h"
#include "src/engine/engine_run.h"

namespace kvgauge {
namespace {

CachePools::Limits Limits(int64_t device_bytes) {
  CachePools::Limits limits;
  limits.device_bytes = device_bytes;
  return limits;
}

bool StagesAlike(const StageChoice* a, const StageChoice* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return StageKey(*a) == StageKey(*b);
}

}  // namespace

uint64_t SampleSeed(uint64_t run_seed, const std::string& sample_id) {
  uint64_t stream = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : sample_id) stream = (stream ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return Rng(run_seed, stream).NextU64();
}

uint64_t DrawStream(uint64_t sample_seed, int64_t turn, int64_t draw) {
  if (turn == 0 && draw == 0) return sample_seed;
  constexpr int kDrawBits = 32;
  const auto number = static_cast<uint64_t>(turn) << kDrawBits | static_cast<uint64_t>(draw);
  return Rng(sample_seed, number).NextU64();
}

void SampleVisuals::Append(std::shared_ptr<const VisualRows> rows, int64_t first, int64_t count) {
  if (count > 0) parts.push_back({std::move(rows), first, count});
}

int64_t SampleVisuals::count() const {
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.count;
  return rows;
}

void SampleVisuals::ShowIn(Prompt& prompt) const {
  prompt.embeddings.clear();
  for (const Part& part : parts) {
    RowTable& table = prompt.embeddings.emplace_back();
    for (const Tensor& whole : part.rows->tables()) {
      const Tensor rows = whole.Slice(part.first, part.first + part.count);
      if (table.rows.empty()) {
        table.rows = rows;
      } else {
        table.deepstack.push_back(rows);
      }
    }
  }
}

void HeldRows::Add(const SampleVisuals* visuals) {
  if (visuals == nullptr) return;
  for (const SampleVisuals::Part& part : visuals->parts) rows_.insert(part.rows.get());
}

int64_t HeldRows::bytes() const {
  int64_t bytes = 0;
  for (const VisualRows* rows : rows_) bytes += rows->bytes();
  return bytes;
}

void AppendTokens(const ModelConfig& config, const EngineSample& sample,
                  std::span<const int32_t> ids, std::span<const VisualSpan> spans, Prompt& prompt) {
  if (!spans.empty()) sample.visuals->ShowIn(prompt);
  prompt.Append(ids, spans, config.rope && !config.rope->sections.empty());
}

std::vector<float> HostRow(Ops& ops, const Tensor& rows, int64_t row) {
  std::vector<float> host(static_cast<size_t>(rows.shape[1]));
  ops.memory->Copy(rows[row], View(host, {rows.shape[1]}));
  return host;
}

std::span<const float> HostLogits(Ops& ops, const Tensor& row, std::vector<float>* copy) {
  const auto size = static_cast<size_t>(row.shape[0]);
  if (row.device == Device::kHost) return {row.f32(), size};
  copy->resize(size);
  ops.memory->Copy(row, View(*copy, {row.shape[0]}));
  return *copy;
}

EngineRun::EngineRun(std::span<const Contender> contenders, const EngineOptions& options,
                     std::span<const EngineSample> samples, const MemoryPlan& plan,
                     const Engine::OnResult& on_result)
    : contenders_(contenders),
      options_(options),
      samples_(samples),
      pool_lanes_(plan.pool_lanes),
      bounded_(plan.cache_limit_bytes > 0),
      on_result_(on_result),
      pools_(plan.cache_limit_bytes > 0 ? BoundedPools(contenders[0].model->ops(), plan)
                                        : contenders[0].model->pools()) {}

CachePools& EngineRun::BoundedPools(Ops& ops, const MemoryPlan& plan) {
  if (plan.device_limits.empty()) {
    return bounded_pools_.emplace(ops, Limits(plan.cache_limit_bytes));
  }
  return bounded_pools_.emplace(DevicesOf(ops), plan.device_limits);
}

void EngineRun::PlanJobs() {
  std::vector<SampleLength> lengths;
  for (const EngineSample& sample : samples_) {
    lengths.push_back(LengthOf(sample, options_.compress_at));
  }
  for (size_t i = 0; i < contenders_.size(); ++i) {
    const Contender& contender = contenders_[i];
    const ModelShape shape = contender.model->shape();
    if (Status fits = CheckRunningEntries(*contender.method, shape); !fits.ok()) {
      refused_.emplace_back(static_cast<int64_t>(i), fits.error().Wrap(contender.method->id));
      continue;
    }
    const bool latents = KeepsModelLatents(*contender.method, shape);
    const auto chosen = [](const std::optional<StageChoice>& stage) {
      return stage ? &*stage : nullptr;
    };
    const StageChoice* attend = chosen(contender.method->attend);
    const StageChoice* reuse = chosen(contender.method->reuse);
    const StageChoice* thin = chosen(contender.method->thin);
    const bool chunks =
        options_.compress_at == CompressAt::kChunk && ReducesPrompts(*contender.method);
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return !chunks && !g.chunks && g.model == contender.model && g.latents == latents &&
             StagesAlike(g.attend, attend) && StagesAlike(g.reuse, reuse) &&
             StagesAlike(g.thin, thin);
    });
    if (group == groups_.end()) {
      groups_.push_back({.model = contender.model,
                         .latents = latents,
                         .attend = attend,
                         .reuse = reuse,
                         .thin = thin,
                         .chunks = chunks});
      group = groups_.end() - 1;
      if (reuse != nullptr) {
        group->store = std::make_shared<ReuseStore>(pools_, StoredTokens(lengths));
      }
    }
    group->contenders.push_back(static_cast<int64_t>(i));
    group->needs |= contender.method->needs();
    if (std::find(models_.begin(), models_.end(), contender.model) == models_.end()) {
      models_.push_back(contender.model);
    }
  }
  for (size_t sample = 0; sample < samples_.size(); ++sample) {
    const bool split = AsksApart(options_.compress_at);
    const size_t turns = split ? samples_[sample].turns.size() : 1;
    const std::vector<int64_t>& draws = samples_[sample].draws;
    for (size_t contender = 0; contender < contenders_.size(); ++contender) {
      for (const int64_t draw : draws) {
        Cell& cell = CellOf(static_cast<int64_t>(sample), {static_cast<int64_t>(contender), draw});
        cell.result.sample = static_cast<int64_t>(sample);
        cell.result.contender = static_cast<int64_t>(contender);
        cell.result.draw = draw;
        cell.result.turns.resize(samples_[sample].turns.size());
        cell.turns_left = static_cast<int64_t>(turns);
      }
    }
    for (size_t turn = 0; turn < turns; ++turn) {
      for (const Group& group : groups_) {
        jobs_.push_back({static_cast<int64_t>(sample), static_cast<int64_t>(turn), &group, draws});
      }
    }
  }
}

// The length of the sequence that job (sample, turn) begins, answers included. It is the same for
// every contender, as some rotary scalings depend on it.
int64_t EngineRun::PlannedLength(const EngineSample& sample, int64_t turn) const {
  auto length = static_cast<int64_t>(sample.context.size());
  const auto size = [](const EngineTurn& t) {
    return static_cast<int64_t>(t.ids.size()) + t.max_new_tokens;
  };
  if (AsksApart(options_.compress_at)) {
    return length + size(sample.turns[static_cast<size_t>(turn)]);
  }
  for (const EngineTurn& t : sample.turns) length += size(t);
  return length;
}

void EngineRun::ForLanes(int64_t count, double cost_ns,
                         const std::function<void(int64_t)>& body) const {
  if (!bounded_) return contenders_[0].model->ops().tasks->ForEach(count, cost_ns, body);
  for (int64_t i = 0; i < count; ++i) body(i);
}

// One pass over the weights of `model`: every lane's newest token, what fits of the questions, and
// a chunk of the prefill. Chunks are cut alike whatever the company.
Status EngineRun::Pass(Model& model) {
  std::vector<SequenceStep> steps;
  std::vector<Lane*> stepped;  // null: the prefill
  int64_t chunked = 0;
  for (Lane& lane : lanes_) {
    if (lane.snapshot->model != &model || lane.done) continue;
    const int64_t begin = lane.cache->tokens();
    // A turn that is compressed again is captured instead.
    const bool aged = lane.asking && lane.capture == nullptr;
    const int64_t most = aged ? lane.compressor->most_question_rows() : Model::kChunkRows;
    const int64_t end = PassEnd(model.config(), lane.prompt, begin, most);
    if (lane.asking && chunked > 0 && chunked + end - begin > Model::kChunkRows) continue;
    LayerHook* hook = aged          ? lane.compressor->question_hook()
                      : lane.asking ? lane.capture.get()
                                    : lane.compressor->hook();
    chunked += lane.asking ? end - begin : 0;
    steps.push_back({.cache = lane.cache.get(),
                     .prompt = &lane.prompt,
                     .begin = begin,
                     .end = end,
                     .logits = end == lane.prompt.size() ? LogitRows::kLast : LogitRows::kNone,
                     .hook = hook});
    stepped.push_back(&lane);
  }
  constexpr double kAppend_ns = 5000;
  ForLanes(std::ssize(steps), kAppend_ns, [&](int64_t i) {
    const SequenceStep& step = steps[static_cast<size_t>(i)];
    stepped[static_cast<size_t>(i)]->status = step.cache->Append(step.end - step.begin);
  });
  size_t kept = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!stepped[i]->status.ok()) {
      KVG_TRY(FailLane(*stepped[i], stepped[i]->status));
      continue;
    }
    steps[kept] = steps[i];
    stepped[kept++] = stepped[i];
  }
  steps.resize(kept);
  stepped.resize(kept);
  const bool prefills = prefilling_ != nullptr && prefilling_->model == &model && chunked == 0;
  const bool alone = prefills && prefilling_->alone();
  if (prefills && !alone) {
    Snapshot& snapshot = *prefilling_;
    const int64_t begin = snapshot.cache->tokens();
    const int64_t end = PassEnd(model.config(), snapshot.prompt, begin, Model::kChunkRows);
    const Status room = snapshot.cache->Append(end - begin);
    if (!room.ok()) {
      KVG_TRY(FailPrefill(std::move(prefilling_), room));
    } else {
      steps.push_back(
          {.cache = snapshot.cache.get(),
           .prompt = &snapshot.prompt,
           .begin = begin,
           .end = end,
           .logits = end == snapshot.prompt.size() ? LogitRows::kLast : LogitRows::kNone,
           .hook = snapshot.capture.get()});
      stepped.push_back(nullptr);
    }
  }
  if (!steps.empty()) KVG_TRY(Step(model, steps, stepped));
  if (alone) KVG_TRY(StepAlone(model));
  lanes_.remove_if([](const Lane& lane) { return lane.done; });
  return {};
}

// Through the weights together. Where working memory runs out, halves go one after the other, to
// the same bits; a sequence that finds no room alone has that as its result.
Status EngineRun::Step(Model& model, std::span<const SequenceStep> steps,
                       std::span<Lane* const> stepped) {
  const auto hooked_s = [](const Lane& lane) {
    return lane.compressor->seconds().attend + lane.compressor->seconds().score;
  };
  std::vector<double> before_s;
  before_s.reserve(stepped.size());
  for (const Lane* lane : stepped) before_s.push_back(lane != nullptr ? hooked_s(*lane) : 0);
  std::vector<int64_t> logit_rows;
  logit_rows.reserve(steps.size());
  int64_t logit_row = 0;
  for (const SequenceStep& step : steps) {
    logit_rows.push_back(logit_row);
    logit_row += step.logits == LogitRows::kLast;
  }
  const double start_s = NowSeconds();
  Passed passed;
  const Status ran = Guarded([&]() -> Status {
    passed.logits = model.Forward(steps);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].logits != LogitRows::kLast) continue;
      const Tensor row = passed.logits[logit_rows[i]];
      if (const Lane* lane = stepped[i]; lane != nullptr) {
        HoldStops(lane->snapshot->sample, lane->turn, std::ssize(lane->answer.ids), row);
      } else {
        KeepLogits(*prefilling_, passed.logits, logit_rows[i]);
      }
    }
    if (options_.sampling.greedy()) {
      passed.best = model.BestTokens(passed.logits, options_.valid_vocab);
    }
    model.ops().memory->Synchronize();
    return {};
  });
  if (!ran.ok() && steps.size() > 1) {
    const size_t half = steps.size() / 2;
    KVG_TRY(Step(model, steps.first(half), stepped.first(half)));
    return Step(model, steps.subspan(half), stepped.subspan(half));
  }
  if (!ran.ok()) {
    return stepped[0] != nullptr ? FailLane(*stepped[0], ran)
                                 : FailPrefill(std::move(prefilling_), ran);
  }
  const double pass_s = NowSeconds() - start_s;
  constexpr double kStep_ns = 20000;
  ForLanes(std::ssize(steps), kStep_ns, [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    Lane* lane = stepped[index];
    if (lane == nullptr) return;
    lane->compressor->seconds().other += pass_s - (hooked_s(*lane) - before_s[index]);
    if (!lane->asking) FinishStep(*lane, passed, logit_rows[index]);
  });
  for (size_t i = 0; i < steps.size(); ++i) {
    if (Lane* lane = stepped[i]; lane == nullptr) {
      prefilling_->prefill_s += pass_s;
      if (steps[i].logits == LogitRows::kLast) {
        KVG_TRY(FinishPrefill(passed.BestOf(logit_rows[i])));
      }
    } else if (lane->asking) {
      KVG_TRY(FinishRows(*lane, passed, logit_rows[i]));
    } else if (!lane->status.ok()) {
      KVG_TRY(FailLane(*lane, lane->status));
    } else {
      KVG_TRY(TakeToken(*lane, *std::exchange(lane->token, {})));
    }
  }
  return {};
}

Status EngineRun::RefuseContenders() {
  for (const auto& [contender, status] : refused_) {
    for (size_t sample = 0; sample < samples_.size(); ++sample) {
      for (const int64_t draw : samples_[sample].draws) {
        const Snapshot::Start start = {contender, draw};
        Cell& cell = CellOf(static_cast<int64_t>(sample), start);
        cell.result.status = status;
        cell.turns_left = 1;
        KVG_TRY(EndCell(static_cast<int64_t>(sample), start));
      }
    }
  }
  return {};
}

Status EngineRun::Run() {
  PlanJobs();
  KVG_TRY(RefuseContenders());
  while (true) {
    KVG_TRY(Admit());
    KVG_TRY(StartPrefill());
    if (lanes_.empty() && prefilling_ == nullptr) {
      if (ready_ == nullptr && jobs_.empty()) return {};
      continue;
    }
    for (Model* model : models_) KVG_TRY(Pass(*model));
  }
}

Engine::Engine(std::vector<Contender> contenders, const EngineOptions& options)
    : contenders_(std::move(contenders)), options_(options) {
  KVG_CHECK(!contenders_.empty(), "an engine without contenders");
}

Status Engine::Run(std::span<const EngineSample> samples, const OnResult& on_result) {
  KVG_ASSIGN(const MemoryPlan plan, PlanMemory(samples));
  return EngineRun(contenders_, options_, samples, plan, on_result).Run();
}

}  // namespace kvgauge
