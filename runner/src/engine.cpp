// SPDX-License-Identifier: Apache-2.0
#include "runner/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <map>
#include <utility>

#include "core/clock.h"
#include "core/rng.h"
#include "core/strings.h"
#include "runner/generate.h"
#include "src/compressor_parts.h"
#include "src/engine_parts.h"

namespace kvgauge {
namespace {

CachePools::Limits Limits(int64_t device_bytes) {
  CachePools::Limits limits;
  limits.device_bytes = device_bytes;
  return limits;
}

// Over the whole row, in doubles.
double LogProbability(std::span<const float> logits, int32_t id) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  return logits[static_cast<size_t>(id)] - most - std::log(sum);
}

bool Contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

uint64_t SampleSeed(uint64_t run_seed, const std::string& sample_id) {
  uint64_t stream = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : sample_id) stream = (stream ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return Rng(run_seed, stream).NextU64();
}

void AppendToken(Prompt& prompt, int32_t id) {
  const auto position = static_cast<int32_t>(prompt.size());
  prompt.positions.push_back({.token_id = id, .rope_position = {position, position, position}});
}

std::vector<float> HostRow(Ops& ops, const Tensor& rows, int64_t row) {
  std::vector<float> host(static_cast<size_t>(rows.shape[1]));
  ops.memory->Copy(rows[row], View(host, {rows.shape[1]}));
  return host;
}

// One call of Run.
class EngineRun {
 public:
  EngineRun(std::span<const EngineRow> rows, const EngineOptions& options,
            std::span<const EngineSample> samples, const MemoryPlan& plan,
            const Engine::OnResult& on_result)
      : rows_(rows),
        options_(options),
        samples_(samples),
        pool_rows_(plan.pool_rows),
        bounded_(plan.cache_limit_bytes > 0),
        on_result_(on_result),
        pools_(rows[0].model->ops(), Limits(plan.cache_limit_bytes)) {}

  Status Run();

 private:
  struct Cell {
    CellResult result;
    int64_t turns_left = 0;
    int64_t recorded_turn = -1;  // whose record the result holds
  };
  // One sequence of the pool: a row on one prompt (kPrompt) or on all turns of a sample.
  struct Lane {
    int64_t row = 0;
    std::shared_ptr<Snapshot> snapshot;
    int64_t turn = 0;
    Prompt prompt;  // what the cache has seen, and what it is to see next
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<Compressor> compressor;
    // kContext with several questions: the compressed context.
    std::unique_ptr<KvCache> base_cache;
    std::unique_ptr<Compressor> base;
    std::unique_ptr<PrefillCapture> capture;  // kTurn: of the turn's prompt
    bool asking = false;                      // rows of a question are still to be fed
    std::optional<Sampler> sampler;
    TurnResult answer;
    Status status;                 // of the work between passes
    std::optional<int32_t> token;  // chosen there
    bool done = false;
  };
  // Rows that share prefills: those of one model with the same kind of cache.
  struct Group {
    Model* model = nullptr;
    bool latents = false;
    std::vector<int64_t> rows = {};
    Needs needs = {};
  };
  struct Job {  // a prefill to come
    int64_t sample, turn;
    const Group* group;
  };

  void PlanJobs();
  int64_t PlannedLength(int64_t sample, int64_t turn) const;
  Status StartPrefill();
  Status FinishPrefill(const Tensor& logits, int64_t row);
  // Every row that waits for the prompt has this as its result.
  Status FailPrefill(std::shared_ptr<Snapshot> failed, const Status& status);
  struct Original {
    std::unique_ptr<KvCache> cache;
    std::vector<float> logits;
  };
  Status PrefillOriginal(Model& model, Original& original);
  void MeasureSnapshot();
  void MeasureAgainst(const FidelityLead& lead);
  Status Admit();
  Lane& AddLane(int64_t row);
  Status StartLane(Lane& lane);
  Status ForkAndCompress(Lane& lane) const;
  Status Pass(Model& model);
  Status Step(Model& model, std::span<const SequenceStep> steps, std::span<Lane* const> stepped);
  // A sequence's own work between two passes, which touches nothing else.
  void FinishStep(Lane& lane, const Tensor& logits, int64_t logit_row) const;
  Status FinishRows(Lane& lane, const Tensor& logits, int64_t logit_row);
  int32_t ChooseToken(Lane& lane, std::span<const float> logits) const;
  Status TakeToken(Lane& lane, int32_t id);
  // body(i) for all i < count, side by side where that cannot decide who is refused memory.
  void ForLanes(int64_t count, double cost_ns, const std::function<void(int64_t)>& body) const;
  Status EndTurn(Lane& lane, bool stopped);
  Status AskNext(Lane& lane);
  Status EndCell(int64_t sample, int64_t row);
  Status FailLane(Lane& lane, const Status& status);

  const EngineSample& SampleOf(const Lane& lane) const {
    return samples_[static_cast<size_t>(lane.snapshot->sample)];
  }
  const EngineTurn& TurnOf(const Lane& lane) const {
    return SampleOf(lane).turns[static_cast<size_t>(lane.turn)];
  }
  Cell& CellOf(int64_t sample, int64_t row) { return cells_[{sample, row}]; }

  std::span<const EngineRow> rows_;
  const EngineOptions& options_;
  std::span<const EngineSample> samples_;
  int64_t pool_rows_;
  bool bounded_;  // the pool of caches may refuse
  const Engine::OnResult& on_result_;
  CachePools pools_;

  std::vector<Group> groups_;   // in the order of the rows
  std::vector<Model*> models_;  // likewise
  std::deque<Job> jobs_;
  std::shared_ptr<Snapshot> prefilling_;
  std::shared_ptr<Snapshot> ready_;
  std::list<Lane> lanes_;
  std::map<std::pair<int64_t, int64_t>, Cell> cells_;  // unfinished, by (sample, row)
};

void EngineRun::PlanJobs() {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const EngineRow& row = rows_[i];
    const bool latents = KeepsModelLatents(*row.method, row.model->shape());
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.model == row.model && g.latents == latents;
    });
    if (group == groups_.end()) {
      groups_.push_back({.model = row.model, .latents = latents});
      group = groups_.end() - 1;
    }
    group->rows.push_back(static_cast<int64_t>(i));
    group->needs |= row.method->needs();
    if (std::find(models_.begin(), models_.end(), row.model) == models_.end()) {
      models_.push_back(row.model);
    }
  }
  for (size_t sample = 0; sample < samples_.size(); ++sample) {
    const bool split = options_.compress_at == CompressAt::kPrompt;
    const size_t turns = split ? samples_[sample].turns.size() : 1;
    for (size_t row = 0; row < rows_.size(); ++row) {
      Cell& cell = CellOf(static_cast<int64_t>(sample), static_cast<int64_t>(row));
      cell.result.sample = static_cast<int64_t>(sample);
      cell.result.row = static_cast<int64_t>(row);
      cell.result.turns.resize(samples_[sample].turns.size());
      cell.turns_left = static_cast<int64_t>(turns);
    }
    for (size_t turn = 0; turn < turns; ++turn) {
      for (const Group& group : groups_) {
        jobs_.push_back({static_cast<int64_t>(sample), static_cast<int64_t>(turn), &group});
      }
    }
  }
}

// Of the sequence that job (sample, turn) begins, answers included. The same for every row, as
// some rotary scalings depend on it.
int64_t EngineRun::PlannedLength(int64_t sample, int64_t turn) const {
  const EngineSample& s = samples_[static_cast<size_t>(sample)];
  auto length = static_cast<int64_t>(s.context.size());
  const auto size = [](const EngineTurn& t) {
    return static_cast<int64_t>(t.ids.size()) + t.max_new_tokens;
  };
  if (options_.compress_at == CompressAt::kPrompt) {
    return length + size(s.turns[static_cast<size_t>(turn)]);
  }
  for (const EngineTurn& t : s.turns) length += size(t);
  return length;
}

Status EngineRun::StartPrefill() {
  if (prefilling_ != nullptr || ready_ != nullptr || jobs_.empty()) return {};
  const Job job = jobs_.front();
  const bool begins = job.turn == 0 && job.group == groups_.data();
  if (begins && options_.begin && !options_.begin(job.sample)) {
    jobs_.clear();
    cells_.erase(cells_.lower_bound({job.sample, 0}), cells_.end());
    return {};
  }
  jobs_.pop_front();
  const EngineSample& sample = samples_[static_cast<size_t>(job.sample)];
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->sample = job.sample;
  snapshot->turn = job.turn;
  snapshot->model = job.group->model;
  snapshot->seed = SampleSeed(options_.seed, sample.id);
  std::vector<int32_t> ids = sample.context;
  if (options_.compress_at != CompressAt::kContext) {
    const std::vector<int32_t>& question = sample.turns[static_cast<size_t>(job.turn)].ids;
    ids.insert(ids.end(), question.begin(), question.end());
  }
  snapshot->prompt = Prompt::FromTokens(ids);
  snapshot->waiting.assign(job.group->rows.begin(), job.group->rows.end());
  prefilling_ = std::move(snapshot);
  const Status begun = Guarded([&]() -> Status {
    Snapshot& s = *prefilling_;
    s.cache = std::make_unique<KvCache>(
        s.model->NewCache(PlannedLength(job.sample, job.turn), pools_, job.group->latents));
    s.capture = std::make_unique<PrefillCapture>(s.model->config(), *s.cache, job.group->needs,
                                                 s.prompt.size(), s.model->ops());
    return {};
  });
  return begun.ok() ? begun : FailPrefill(std::move(prefilling_), begun);
}

Status EngineRun::FailPrefill(std::shared_ptr<Snapshot> failed, const Status& status) {
  for (const int64_t row : failed->waiting) {
    CellOf(failed->sample, row).result.status = status;
    KVG_TRY(EndCell(failed->sample, row));
  }
  return {};
}

Status EngineRun::FinishPrefill(const Tensor& logits, int64_t row) {
  ready_ = std::move(prefilling_);
  Snapshot& snapshot = *ready_;
  snapshot.logits = HostRow(snapshot.model->ops(), logits, row);
  std::vector<const Method*> methods;
  for (const int64_t waiting : snapshot.waiting) {
    methods.push_back(rows_[static_cast<size_t>(waiting)].method);
  }
  Status scored = snapshot.capture->status();
  if (scored.ok()) {
    scored = Guarded([&]() -> Status {
      snapshot.scores = PromptScores::Compute(*snapshot.model, snapshot.state(), methods);
      return {};
    });
  }
  if (!scored.ok()) return FailPrefill(std::move(ready_), scored);
  if (options_.fidelity_steps > 0 && snapshot.turn == 0) MeasureSnapshot();
  return {};
}

// The snapshot's prompt under the full cache of another model, outside the lockstep: only fidelity
// asks for it.
Status EngineRun::PrefillOriginal(Model& model, Original& original) {
  const Snapshot& snapshot = *ready_;
  return Guarded([&]() -> Status {
    original.cache = std::make_unique<KvCache>(
        model.NewCache(PlannedLength(snapshot.sample, snapshot.turn), pools_));
    return Prefill(model, snapshot.prompt, *original.cache, Model::kChunkRows, false,
                   [&](const Tensor& rows) -> Status {
                     original.logits = HostRow(model.ops(), rows, rows.shape[0] - 1);
                     return {};
                   });
  });
}

void EngineRun::MeasureSnapshot() {
  std::vector<Model*> leads;
  for (const int64_t row : ready_->waiting) {
    Model* lead = OriginalOf(rows_[static_cast<size_t>(row)]);
    if (std::find(leads.begin(), leads.end(), lead) == leads.end()) leads.push_back(lead);
  }
  for (Model* lead : leads) {
    if (lead == ready_->model) {
      MeasureAgainst({lead, ready_->cache.get(), ready_->logits});
      continue;
    }
    Original original;
    // Without it the rows have no fidelity, and the run goes on.
    if (!PrefillOriginal(*lead, original).ok()) continue;
    MeasureAgainst({lead, original.cache.get(), original.logits});
  }
}

void EngineRun::MeasureAgainst(const FidelityLead& lead) {
  const Snapshot& snapshot = *ready_;
  const EngineSample& sample = samples_[static_cast<size_t>(snapshot.sample)];
  const EngineTurn& turn = sample.turns[0];
  std::span<const int32_t> question;
  if (options_.compress_at == CompressAt::kContext) question = turn.ids;
  std::vector<int64_t> followers;
  for (const int64_t row : snapshot.waiting) {
    if (OriginalOf(rows_[static_cast<size_t>(row)]) == lead.model) followers.push_back(row);
  }
  // The full cache rides with every batch.
  const auto batch = static_cast<size_t>(std::max<int64_t>(pool_rows_ - 1, 1));
  for (size_t begin = 0; begin < followers.size(); begin += batch) {
    const size_t end = std::min(begin + batch, followers.size());
    std::vector<FidelityJob> jobs;
    for (size_t i = begin; i < end; ++i) {
      jobs.push_back({.row = &rows_[static_cast<size_t>(followers[i])]});
    }
    MeasureFidelity(lead, snapshot, question, sample.stop_ids,
                    std::min(options_.fidelity_steps, turn.max_new_tokens), options_.valid_vocab,
                    jobs);
    for (size_t i = begin; i < end; ++i) {
      CellResult& result = CellOf(snapshot.sample, followers[i]).result;
      if (jobs[i - begin].status.ok()) result.fidelity = std::move(jobs[i - begin].result);
    }
  }
}

void EngineRun::ForLanes(int64_t count, double cost_ns,
                         const std::function<void(int64_t)>& body) const {
  if (!bounded_) return rows_[0].model->ops().tasks->ForEach(count, cost_ns, body);
  for (int64_t i = 0; i < count; ++i) body(i);
}

Status EngineRun::Admit() {
  if (ready_ == nullptr) return {};
  constexpr double kCompression_ns = 1e6;
  while (!ready_->waiting.empty() && static_cast<int64_t>(lanes_.size()) < pool_rows_) {
    // A bounded pool takes one at a time: the next may fit when this one has given back.
    std::vector<Lane*> starting;
    while (!ready_->waiting.empty() && static_cast<int64_t>(lanes_.size()) < pool_rows_ &&
           (starting.empty() || !bounded_)) {
      starting.push_back(&AddLane(ready_->waiting.front()));
      ready_->waiting.pop_front();
    }
    ForLanes(std::ssize(starting), kCompression_ns, [&](int64_t i) {
      Lane& lane = *starting[static_cast<size_t>(i)];
      lane.status = ForkAndCompress(lane);
      if (lane.status.ok() && options_.compress_at != CompressAt::kContext) {
        lane.token = ChooseToken(lane, ready_->logits);
      }
    });
    for (Lane* lane : starting) KVG_TRY(StartLane(*lane));
    lanes_.remove_if([](const Lane& lane) { return lane.done; });
  }
  if (!ready_->waiting.empty()) return {};
  // Lanes that come back to the context may have to compress it anew.
  if (options_.compress_at != CompressAt::kContext) {
    ready_->cache.reset();
    ready_->capture.reset();
    ready_->scores.reset();
  }
  ready_.reset();
  return {};
}

Status EngineRun::ForkAndCompress(Lane& lane) const {
  Snapshot& snapshot = *lane.snapshot;
  const EngineRow& row = rows_[static_cast<size_t>(lane.row)];
  return Guarded([&]() -> Status {
    lane.cache = std::make_unique<KvCache>(snapshot.cache->Fork());
    lane.compressor = std::make_unique<Compressor>(*row.model, *row.method, row.budget);
    lane.compressor->seconds().prefill = snapshot.prefill_s;
    return lane.compressor->Compress(snapshot.state(), &*snapshot.scores, *lane.cache);
  });
}

EngineRun::Lane& EngineRun::AddLane(int64_t row) {
  lanes_.emplace_back();
  Lane& lane = lanes_.back();
  lane.row = row;
  lane.snapshot = ready_;
  lane.turn = ready_->turn;
  lane.prompt = ready_->prompt;
  // The stream is the sample's: rows draw alike.
  lane.sampler.emplace(options_.sampling, ready_->seed, options_.valid_vocab);
  return lane;
}

// Once it is compressed.
Status EngineRun::StartLane(Lane& lane) {
  if (!lane.status.ok()) return FailLane(lane, lane.status);
  if (lane.token) return TakeToken(lane, *std::exchange(lane.token, {}));

  const std::vector<EngineTurn>& turns = SampleOf(lane).turns;
  const bool returns = std::any_of(turns.begin() + 1, turns.end(),
                                   [](const EngineTurn& turn) { return !turn.continues; });
  if (returns) {
    lane.base_cache = std::move(lane.cache);
    lane.base = std::move(lane.compressor);
    lane.turn = -1;
    return AskNext(lane);
  }
  for (const int32_t id : TurnOf(lane).ids) AppendToken(lane.prompt, id);
  lane.asking = true;
  return {};
}

// Puts the next question behind the answer, or behind the context alone.
Status EngineRun::AskNext(Lane& lane) {
  ++lane.turn;
  const EngineTurn& turn = TurnOf(lane);
  if (lane.base != nullptr && (lane.turn == 0 || !turn.continues)) {
    const EngineRow& row = rows_[static_cast<size_t>(lane.row)];
    lane.prompt.positions.resize(static_cast<size_t>(lane.snapshot->prompt.size()));
    const Status forked = Guarded([&]() -> Status {
      lane.cache = std::make_unique<KvCache>(lane.base_cache->Fork());
      lane.compressor = std::make_unique<Compressor>(*row.model, *row.method, row.budget);
      if (lane.compressor->ContinueFrom(*lane.base, *lane.cache)) return {};
      return ForkAndCompress(lane);
    });
    if (!forked.ok()) return FailLane(lane, forked);
  }
  for (const int32_t id : turn.ids) AppendToken(lane.prompt, id);
  lane.asking = true;
  if (options_.compress_at == CompressAt::kTurn) {
    const Model& model = *lane.snapshot->model;
    const Status begun = Guarded([&]() -> Status {
      lane.capture = std::make_unique<PrefillCapture>(
          model.config(), *lane.cache, rows_[static_cast<size_t>(lane.row)].method->needs(),
          lane.prompt.size() - lane.cache->tokens(), model.ops());
      return {};
    });
    if (!begun.ok()) return FailLane(lane, begun);
  }
  return {};
}

// The next token; no stop is chosen before min_new_tokens.
int32_t EngineRun::ChooseToken(Lane& lane, std::span<const float> logits) const {
  const EngineTurn& turn = TurnOf(lane);
  if (!turn.forced.empty()) {
    const int32_t id = turn.forced[lane.answer.ids.size()];
    lane.answer.log_probs.push_back(LogProbability(logits, id));
    return id;
  }
  std::vector<float> masked;
  if (static_cast<int64_t>(lane.answer.ids.size()) < turn.min_new_tokens) {
    masked.assign(logits.begin(), logits.end());
    for (const int32_t stop : SampleOf(lane).stop_ids) {
      const auto at = static_cast<size_t>(stop);
      if (at < masked.size()) masked[at] = -std::numeric_limits<float>::infinity();
    }
    logits = masked;
  }
  return lane.sampler->Next(logits);
}

Status EngineRun::TakeToken(Lane& lane, int32_t id) {
  const bool forced = !TurnOf(lane).forced.empty();
  if (!forced && Contains(SampleOf(lane).stop_ids, id)) return EndTurn(lane, true);
  lane.answer.ids.push_back(id);
  AppendToken(lane.prompt, id);
  const bool go_on =
      forced || !options_.on_token ||
      options_.on_token({lane.snapshot->sample, lane.row, lane.turn, lane.answer.ids});
  if (!go_on) return EndTurn(lane, true);
  if (static_cast<int64_t>(lane.answer.ids.size()) < TurnOf(lane).max_new_tokens) return {};
  return EndTurn(lane, false);
}

Status EngineRun::EndTurn(Lane& lane, bool stopped) {
  lane.answer.stopped = stopped;
  Cell& cell = CellOf(lane.snapshot->sample, lane.row);
  cell.result.turns[static_cast<size_t>(lane.turn)] = std::exchange(lane.answer, {});
  const bool last = options_.compress_at == CompressAt::kPrompt ||
                    lane.turn + 1 == static_cast<int64_t>(SampleOf(lane).turns.size());
  if (!last) return AskNext(lane);
  lane.done = true;
  // Prompts of one sample may end in any order: the record is that of the last one.
  if (lane.turn > cell.recorded_turn) {
    cell.recorded_turn = lane.turn;
    const Status looked = Guarded([&]() -> Status {
      cell.result.record = lane.compressor->Record();
      if (options_.inspect) options_.inspect(cell.result, *lane.cache);
      return {};
    });
    if (cell.result.status.ok()) cell.result.status = looked;
  }
  return EndCell(lane.snapshot->sample, lane.row);
}

Status EngineRun::EndCell(int64_t sample, int64_t row) {
  Cell& cell = CellOf(sample, row);
  if (--cell.turns_left > 0) return {};
  CellResult result = std::move(cell.result);
  cells_.erase({sample, row});
  return on_result_(std::move(result));
}

Status EngineRun::FailLane(Lane& lane, const Status& status) {
  lane.done = true;
  CellResult& result = CellOf(lane.snapshot->sample, lane.row).result;
  if (result.status.ok()) result.status = status;
  return EndCell(lane.snapshot->sample, lane.row);
}

void EngineRun::FinishStep(Lane& lane, const Tensor& logits, int64_t logit_row) const {
  lane.status = lane.compressor->AfterStep();
  if (!lane.status.ok()) return;
  if (logits.device == Device::kHost) {
    const Tensor row = logits[logit_row];
    lane.token = ChooseToken(lane, {row.f32(), static_cast<size_t>(row.shape[0])});
  } else {
    lane.token = ChooseToken(lane, HostRow(lane.snapshot->model->ops(), logits, logit_row));
  }
}

Status EngineRun::FinishRows(Lane& lane, const Tensor& logits, int64_t logit_row) {
  Status after = lane.compressor->AfterRows();
  if (after.ok() && lane.cache->tokens() < lane.prompt.size()) return {};
  lane.asking = false;
  if (after.ok() && lane.capture != nullptr) {
    after = Guarded([&]() -> Status {
      KVG_TRY(lane.capture->status());
      return lane.compressor->Compress({lane.cache.get(), lane.capture.get(), lane.snapshot->seed},
                                       nullptr, *lane.cache);
    });
    lane.capture.reset();
  }
  if (!after.ok()) return FailLane(lane, after);
  Ops& ops = lane.snapshot->model->ops();
  return TakeToken(lane, ChooseToken(lane, HostRow(ops, logits, logit_row)));
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
    const int64_t end = std::min(begin + Model::kChunkRows, lane.prompt.size());
    if (lane.asking && chunked > 0 && chunked + end - begin > Model::kChunkRows) continue;
    LayerHook* hook = lane.asking ? lane.capture.get() : lane.compressor->hook();
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
  if (prefilling_ != nullptr && prefilling_->model == &model && chunked == 0) {
    Snapshot& snapshot = *prefilling_;
    const int64_t begin = snapshot.cache->tokens();
    const int64_t end = std::min(begin + Model::kChunkRows, snapshot.prompt.size());
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
  for (const Lane* lane : stepped) before_s.push_back(lane != nullptr ? hooked_s(*lane) : 0);
  const double start_s = NowSeconds();
  Tensor logits;
  const Status ran = Guarded([&]() -> Status {
    logits = model.Forward(steps);
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
  std::vector<int64_t> logit_rows;
  int64_t logit_row = 0;
  for (const SequenceStep& step : steps) {
    logit_rows.push_back(logit_row);
    logit_row += step.logits == LogitRows::kLast;
  }
  constexpr double kStep_ns = 20000;
  ForLanes(std::ssize(steps), kStep_ns, [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    Lane* lane = stepped[index];
    if (lane == nullptr) return;
    lane->compressor->seconds().other += pass_s - (hooked_s(*lane) - before_s[index]);
    if (!lane->asking) FinishStep(*lane, logits, logit_rows[index]);
  });
  for (size_t i = 0; i < steps.size(); ++i) {
    if (Lane* lane = stepped[i]; lane == nullptr) {
      prefilling_->prefill_s += pass_s;
      if (steps[i].logits == LogitRows::kLast) KVG_TRY(FinishPrefill(logits, logit_rows[i]));
    } else if (lane->asking) {
      KVG_TRY(FinishRows(*lane, logits, logit_rows[i]));
    } else if (!lane->status.ok()) {
      KVG_TRY(FailLane(*lane, lane->status));
    } else {
      KVG_TRY(TakeToken(*lane, *std::exchange(lane->token, {})));
    }
  }
  return {};
}

Status EngineRun::Run() {
  PlanJobs();
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

Engine::Engine(std::vector<EngineRow> rows, const EngineOptions& options)
    : rows_(std::move(rows)), options_(options) {
  KVG_CHECK(!rows_.empty(), "an engine without rows");
}

Status Engine::Run(std::span<const EngineSample> samples, const OnResult& on_result) {
  KVG_ASSIGN(const MemoryPlan plan, PlanMemory(samples));
  return EngineRun(rows_, options_, samples, plan, on_result).Run();
}

}  // namespace kvgauge
