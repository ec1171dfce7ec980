// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_executor.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "core/clock.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/devices.h"
#include "src/cli/print.h"
#include "src/latency/run_latency.h"
#include "src/run/machine_facts.h"
#include "src/run/pending_sample.h"
#include "src/run/picture_show.h"
#include "src/run/recorded_rows.h"
#include "src/run/run_conclusions.h"
#include "src/run/run_history.h"
#include "src/run/run_record.h"
#include "src/run/sample_source.h"

namespace kvgauge {
namespace {

// Samples that are read ahead together: so many, or so many tokens.
constexpr size_t kWindowSamples = 64;
constexpr int64_t kWindowTokens = int64_t{1} << 20;

// The text of an answer as it grows, for stop texts.
struct GrowingAnswer {
  std::unique_ptr<TextStream> stream;
  std::string text;
};

class Executor {
 public:
  Executor(const RunPlan& plan, const RunSettings& settings, ResultStore& store,
           RunProgress& progress, const InterruptGuard& interrupt)
      : plan_(plan),
        settings_(settings),
        store_(store),
        progress_(progress),
        interrupt_(interrupt),
        pictures_(plan),
        recorder_(store, [this](const FinishedCell& cell, const SampleRow& row,
                                WriteOutcome outcome) { Count(cell, row, outcome); }) {}

  Result<RunOutcome> Run();

 private:
  Status Start();
  Status Event(const std::string& kind, const std::string& message);
  Status RunGroup(size_t number);
  // Fills a window of samples with something to run; false at the end of the task.
  Result<bool> ReadWindow(SampleSource& source, std::vector<Pending>& window);
  // The task ended before it had given what the configuration asks for.
  void TellOfFewer();
  Status FindPending(const Sample& sample, Pending& pending);
  Status Build(SampleSource& source, Sample sample, int64_t position, Pending& pending);
  Status SkipUnfit(Pending& pending);
  Status RunWindow(std::vector<Pending>& window);
  // `least`: what does not fit would not fit with less beside it.
  Status RunAlike(const CellBlock& block, const Samples& all, bool least = false);
  Status RunHalves(const CellBlock& block, const Samples& left);
  // Asks what the answers lead to, and hands the cells on.
  Status Conclude(std::vector<FinishedCell> cells);
  Status NeedModel();
  bool LeavesToAnother(const Error& why);
  Status TellDevices();
  // Records a sample that could not be shown to the model as failed, for all of the block.
  Status FailSample(const std::shared_ptr<RunSample>& sample, const CellBlock& block,
                    const Error& why);
  // Records the cells of one contender with a status of the sample's.
  Status PutWithout(const std::shared_ptr<RunSample>& sample, size_t contender,
                    const std::vector<int64_t>& draws, const Status& status, bool skipped);
  // Gives the samples the rows of their pictures, and takes out those whose pictures are faulty.
  Status NeedVisuals(const CellBlock& block, Samples& samples);
  // The first of several shards measures times, and no worker: another may be at work beside it.
  bool MeasuresTimes() const {
    return plan_.config->latency != nullptr && settings_.choice.shard == 0 &&
           settings_.work == nullptr;
  }
  // Whether a sample of the group is this worker's.
  bool Claims(int64_t position);
  // How many samples of the group are read ahead together.
  size_t WindowSamples() const;
  void TellWorkers(const std::vector<RunProgress::Work>& groups, int64_t free_bytes);
  size_t LatencyGroups() const { return MeasuresTimes() ? CountLatencyGroups(plan_) : 0; }
  // Tells of cells of a sample of the window, which counts once, however many blocks it has.
  void Begin(const RunSample& sample, int64_t cells) {
    if (!begun_.insert(sample.position).second) return progress_.SkipCells(cells);
    progress_.BeginSample(cells);
  }
  void Count(const FinishedCell& cell, const SampleRow& row, WriteOutcome outcome);
  // Whether no stop text has come yet.
  bool GoOn(const EngineToken& token);

  const RunContender& SpecOf(size_t contender) const {
    return plan_.config->contenders[group_->contenders[contender]];
  }
  const RunTask& Entry() const { return plan_.config->tasks[group_->task]; }
  const RunSampling& Sampling() const { return plan_.config->sampling; }
  const PlanPrefill& PrefillOf() const { return ModelOf().prefills[group_->prefill]; }
  const PlanModel& ModelOf() const { return plan_.models[group_->model]; }

  const RunPlan& plan_;
  const RunSettings& settings_;
  ResultStore& store_;
  RunProgress& progress_;
  const InterruptGuard& interrupt_;

  int64_t run_ = 0;
  RunOutcome outcome_;
  ReasonTally reasons_;
  std::mutex count_mutex_;  // outcome_ and reasons_, which the recorder counts in

  const PlanGroup* group_ = nullptr;
  int64_t group_number_ = 0;
  int64_t claimed_ = -1;        // the last position that this worker claimed
  bool leaves_rest_ = false;    // of the group, to other workers
  std::vector<int64_t> cells_;  // ids of the group's contenders
  std::unique_ptr<GroupScoring> scoring_;
  SampleSource* source_ = nullptr;                     // of the group
  int64_t position_ = 0;                               // of the next sample of the stream
  int64_t chosen_ = 0;                                 // of those before, what this call runs
  bool beyond_said_ = false;                           // of this group
  std::map<std::pair<size_t, int64_t>, Status> fits_;  // by contender and length of the prefill

  std::pair<size_t, std::string> loaded_ = {};  // model and weights of a prefill
  LoadedModel model_;
  PictureShow pictures_;     // of the samples that have any
  ShownSamples shown_;       // of the window
  std::set<int64_t> begun_;  // positions in the window
  LoadedModel original_;     // of a prefill that changes the model, where fidelity is asked for

  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, GrowingAnswer> growing_;
  CellRecorder recorder_;  // last: its thread sees all of the above
};

Status Executor::Event(const std::string& kind, const std::string& message) {
  const auto lock = recorder_.LockStore();
  return store_.AddEvent(run_, {.at = UtcNow(), .kind = kind, .message = message});
}

Status Executor::Start() {
  KVG_ASSIGN(const std::unique_ptr<Ops> ops,
             MakeLayeredOps(plan_.config->backend, MakeThreadSettings(plan_.config->threads)));
  RunRow run;
  run.key = RandomKey();
  run.machine.facts =
      CanonicalJson(MachineFacts(*ops, MakeThreadSettings(plan_.config->threads).threads));
  run.command = RepairUtf8(settings_.command);
  run.config = plan_.config->canonical;
  run.version = settings_.build.version;
  run.revision = settings_.build.revision;
  run.started_at = UtcNow();
  KVG_ASSIGN(const std::vector<StoredRun> before, store_.Runs());
  const bool resumed = settings_.work != nullptr
                           ? settings_.work->resumed()
                           : std::any_of(before.begin(), before.end(), [&](const StoredRun& other) {
                               return other.run.config == run.config;
                             });
  KVG_ASSIGN(const std::vector<std::string> others, RecordsOfOtherInputs(plan_, store_));
  for (const std::string& text : others) progress_.Note(text);
  KVG_ASSIGN(std::vector<RunProgress::Work> groups, WorkLeft(plan_, settings_.choice, store_));
  if (settings_.work != nullptr) TellWorkers(groups, ops->memory->FreeBytes());
  groups.resize(groups.size() + LatencyGroups());  // whose times are unknown
  progress_.PlanRun(std::move(groups));
  KVG_ASSIGN(run_, store_.AddRun(run));
  outcome_.run_key = run.key;
  const Json environment = ThreadEnvironment();
  if (!environment.empty()) KVG_TRY(Event("environment", CanonicalJson(environment)));
  return Event(resumed ? "resumed" : "started",
               StrCat(plan_.config->name, ": ", Counted(std::ssize(plan_.groups), "group"), ", ",
                      Counted(std::ssize(plan_.config->contenders), "row")));
}

void Executor::TellWorkers(const std::vector<RunProgress::Work>& groups, int64_t free_bytes) {
  int64_t samples = 0, cells = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const RunTask& task = plan_.config->tasks[plan_.groups[i].task];
    const int64_t count = settings_.choice.Count(task.samples);
    samples = count < 0 || samples < 0 ? -1 : samples + count;
    cells = groups[i].cells < 0 || cells < 0 ? -1 : cells + groups[i].cells;
  }
  settings_.work->Begin(samples, cells, free_bytes);
}

bool Executor::Claims(int64_t position) {
  if (settings_.work == nullptr) return true;
  while (claimed_ < position) claimed_ = settings_.work->Claim(group_number_);
  return claimed_ == position;
}

size_t Executor::WindowSamples() const {
  if (settings_.work == nullptr) return kWindowSamples;
  const int64_t count = settings_.choice.Count(Entry().samples);
  return static_cast<size_t>(settings_.work->Together(chosen_, count));
}

void Executor::Count(const FinishedCell& cell, const SampleRow& row, WriteOutcome outcome) {
  const bool failed = row.status == SampleStatus::kFailed;
  {
    const std::lock_guard lock(count_mutex_);
    outcome_.cells += outcome != WriteOutcome::kKept;
    outcome_.failed += row.status == SampleStatus::kFailed;
    outcome_.skipped += row.status == SampleStatus::kSkipped;
    outcome_.succeeded += row.status == SampleStatus::kOk;
    if (row.status != SampleStatus::kOk) reasons_.Add(row.status, row.reason);
  }
  progress_.EndCell(cell.contender, cell.contender == 0 && SpecOf(0).full_cache(),
                    row.score ? &*row.score : nullptr, failed);
}

Status Executor::Build(SampleSource& source, Sample sample, int64_t position, Pending& pending) {
  auto built = std::make_shared<RunSample>();
  built->position = position;
  built->facts = FactsJson(sample);
  pending.sample = built;
  KVG_TRY(source.Open(sample));
  Status made = [&]() -> Status {
    KVG_ASSIGN(built->tokens, source.Build(sample));
    built->visuals = CountVisuals(sample.pictures, source.shown());
    if (built->visuals.tokens > 0) built->pixel_bytes = source.eyes()->pixel_bytes();
    KVG_ASSIGN(SamplePlace place, source.Place(sample, built->tokens));
    built->excerpt = std::move(place.excerpt);
    built->answer = std::move(place.tokens);
    return {};
  }();
  built->sample = std::move(sample);
  built->sample.context = std::string();
  if (made.ok()) return {};
  // A picture that cannot be read fails its sample; a text that cannot be built is the task's.
  if (built->sample.pictures.empty()) return made;
  built->tokens = {};
  progress_.BeginSample(pending.cells());
  for (const CellBlock& block : pending.blocks) KVG_TRY(FailSample(built, block, made.error()));
  pending.blocks.clear();
  pending.sample = nullptr;
  return {};
}

// Which contenders lack which draws of the sample. What is recorded under its name must be the same
// sample: a data file that changed since would be mixed with what it was.
Status Executor::FindPending(const Sample& sample, Pending& pending) {
  const auto lock = recorder_.LockStore();
  for (size_t contender = 0; contender < cells_.size(); ++contender) {
    std::vector<int64_t> missing;
    for (const int64_t draw : Sampling().Numbers()) {
      KVG_ASSIGN(const std::optional<ResultStore::Recorded> recorded,
                 store_.FindSample(cells_[contender], Sampling().NameOf(sample.id, draw)));
      if (!recorded || (settings_.retry && recorded->status != SampleStatus::kOk)) {
        missing.push_back(draw);
      }
      if (!recorded || recorded->hash == sample.hash) continue;
      return OtherContent(store_.path(), Entry().task, sample, recorded->hash);
    }
    if (missing.empty()) continue;
    const auto alike = std::ranges::find(pending.blocks, missing, &CellBlock::draws);
    if (alike == pending.blocks.end()) {
      pending.blocks.push_back({{contender}, std::move(missing)});
    } else {
      alike->contenders.push_back(contender);
    }
  }
  return {};
}

void Executor::TellOfFewer() {
  const RunTask& entry = Entry();
  if (entry.samples < 0 || chosen_ >= settings_.choice.Count(entry.samples)) return;
  const SourceSpec* source = FindSource(entry.task.source);
  const bool can_make_more =
      source != nullptr && std::any_of(source->params.begin(), source->params.end(),
                                       [](const auto& param) { return param.name == "samples"; });
  progress_.Note(StrCat(entry.task.name, ": there are ", Counted(position_, "sample"), " of the ",
                        entry.samples, " asked for",
                        can_make_more ? "; \"source\": {\"samples\": ...} makes more" : ""));
}

Result<bool> Executor::ReadWindow(SampleSource& source, std::vector<Pending>& window) {
  window.clear();
  int64_t tokens = 0, visual_bytes = 0;
  const int64_t most_visual = pictures_.MostBytesAhead();
  bool more = true;
  while (more && window.size() < WindowSamples() && tokens < kWindowTokens &&
         visual_bytes < most_visual) {
    if (interrupt_.signal() != 0) return true;
    KVG_ASSIGN(std::optional<Sample> sample, source.Next());
    if (!sample) {
      progress_.SetSamples(chosen_);
      TellOfFewer();
      more = false;
      break;
    }
    const int64_t position = position_++;
    if (!settings_.choice.Has(position)) continue;
    ++chosen_;
    if (!Claims(position)) continue;
    Pending pending;
    KVG_TRY(FindPending(*sample, pending));
    if (pending.blocks.empty()) {
      ++outcome_.had;
      progress_.SkipSample();
      continue;
    }
    KVG_TRY(Build(source, std::move(*sample), position, pending));
    if (pending.sample == nullptr) continue;
    KVG_TRY(SkipUnfit(pending));
    if (pending.blocks.empty()) {
      progress_.BeginSample(0);
      continue;
    }
    int64_t prompt = std::ssize(pending.sample->tokens.context);
    for (const EngineTurn& turn : pending.sample->tokens.turns) prompt += std::ssize(turn.ids);
    tokens += prompt;
    if (const int64_t rows = pending.sample->visuals.tokens; rows > 0) {
      const int64_t prompts = pictures_.shows_whole() ? 2 : 1;
      visual_bytes += prompts * VisualRowBytes(*source.eyes()->spec(), rows);
    }
    if (const std::string beyond = ModelOf().BeyondPositions(prompt);
        !beyond.empty() && !std::exchange(beyond_said_, true)) {
      progress_.Note(StrCat(Entry().task.name, ": ", beyond));
    }
    window.push_back(std::move(pending));
  }
  return more;
}

// Contenders whose budget cannot hold on a prompt of this length are recorded as skipped, with the
// reason.
Status Executor::SkipUnfit(Pending& pending) {
  const int64_t length = CompressedTokens(pending.sample->tokens, group_->compress_at);
  for (CellBlock& block : pending.blocks) {
    std::vector<size_t> fitting;
    for (const size_t contender : block.contenders) {
      const RunContender& spec = SpecOf(contender);
      const auto [known, fresh] = fits_.try_emplace({contender, length});
      if (fresh) {
        known->second = CheckMoment(spec.method, group_->compress_at, plan_.config->chunk_tokens);
        if (known->second.ok()) {
          known->second = CheckMethod(spec.method, ModelOf().shape, spec.budget, length);
        }
      }
      if (known->second.ok()) {
        fitting.push_back(contender);
        continue;
      }
      KVG_TRY(PutWithout(pending.sample, contender, block.draws, known->second, true));
      progress_.SkipCells(std::ssize(block.draws));
    }
    block.contenders = std::move(fitting);
  }
  std::erase_if(pending.blocks, [](const CellBlock& block) { return block.contenders.empty(); });
  return {};
}

// Where the layers of the model lie, if on several devices, and what multiplies on them.
Status Executor::TellDevices() {
  const std::vector<Ops*> devices = DevicesOf(*model_.ops);
  const std::string products = ManyRowsText(devices);
  if (!products.empty()) KVG_TRY(Event("products", products));
  if (devices.size() == 1) return {};
  const std::string text = StrCat(ModelOf().spec->name, ": ",
                                  DivisionText(devices, model_.model->shares(), ModelOf().shares));
  progress_.Note(text);
  return Event("layers", text);
}

Status Executor::NeedModel() {
  const std::pair<size_t, std::string> wanted = {group_->model, PrefillOf().weights};
  if (model_.model != nullptr && loaded_ == wanted) return {};
  pictures_.DropTower();
  model_ = {};
  original_ = {};
  KVG_ASSIGN(model_, LoadPlanned(plan_, group_->model, group_->prefill));
  KVG_TRY(TellDevices());
  // The full cache's prefill comes first; others are held against it where fidelity is asked for.
  if (plan_.config->fidelity_steps > 0 && ModelOf().prefills[0].weights != wanted.second) {
    KVG_ASSIGN(original_, LoadPlanned(plan_, group_->model, 0));
  }
  loaded_ = wanted;
  return {};
}

Status Executor::PutWithout(const std::shared_ptr<RunSample>& sample, size_t contender,
                            const std::vector<int64_t>& draws, const Status& status, bool skipped) {
  for (const int64_t draw : draws) {
    FinishedCell cell = {.scoring = scoring_.get(),
                         .sample = sample,
                         .cell = cells_[contender],
                         .run = run_,
                         .contender = contender,
                         .skipped = skipped,
                         .result = {},
                         .kept = {}};
    cell.result.draw = draw;
    cell.result.status = status;
    KVG_TRY(recorder_.Put(std::move(cell)));
  }
  return {};
}

Status Executor::FailSample(const std::shared_ptr<RunSample>& sample, const CellBlock& block,
                            const Error& why) {
  for (const size_t contender : block.contenders) {
    KVG_TRY(PutWithout(sample, contender, block.draws, why, false));
  }
  return {};
}

Status Executor::NeedVisuals(const CellBlock& block, Samples& samples) {
  KVG_TRY(pictures_.Show(samples, source_->eyes(), *model_.ops));
  for (const auto& sample : samples) {
    if (sample->shown.ok() || LeavesToAnother(sample->shown.error())) continue;
    Begin(*sample, block.cells());
    KVG_TRY(FailSample(sample, block, sample->shown.error()));
  }
  std::erase_if(samples, [](const auto& sample) { return !sample->shown.ok(); });
  return {};
}

bool Executor::GoOn(const EngineToken& token) {
  GrowingAnswer& answer = growing_[{token.sample, token.contender, token.draw, token.turn}];
  if (answer.stream == nullptr) {
    answer.stream = std::make_unique<TextStream>(*ModelOf().tokenizer);
  }
  answer.text += answer.stream->Push(token.answer.back());
  return std::none_of(Entry().task.stop.texts.begin(), Entry().task.stop.texts.end(),
                      [&](const std::string& stop) {
                        return !stop.empty() && answer.text.find(stop) != std::string::npos;
                      });
}

// A worker that cannot run a sample claims no more of the group: failing takes no time, so that it
// would take all samples from the devices that can run them.
bool Executor::LeavesToAnother(const Error& why) {
  if (settings_.work == nullptr || why.code != ErrorCode::kResource) return false;
  leaves_rest_ = settings_.work->LeaveToAnother(plan_.config->max_memory_bytes);
  return leaves_rest_;
}

// Samples that miss the same draws of the same contenders are one run of the engine.
Status Executor::RunWindow(std::vector<Pending>& window) {
  begun_.clear();
  std::vector<CellBlock> kinds;
  for (const Pending& pending : window) {
    for (const CellBlock& block : pending.blocks) {
      if (std::ranges::find(kinds, block) == kinds.end()) kinds.push_back(block);
    }
  }
  for (const CellBlock& kind : kinds) {
    Samples samples;
    for (const Pending& pending : window) {
      const bool has = std::ranges::find(pending.blocks, kind) != pending.blocks.end();
      if (has) samples.push_back(pending.sample);
    }
    if (interrupt_.signal() != 0) return {};
    KVG_TRY(RunAlike(kind, samples));
  }
  shown_.GiveUp();
  return {};
}

// What does not fit together goes on in halves, with nothing kept beside them, down to one sample.
Status Executor::RunHalves(const CellBlock& block, const Samples& left) {
  const std::ptrdiff_t half = (std::ssize(left) + 1) / 2;
  for (auto begin = left.begin(); begin != left.end() && interrupt_.signal() == 0;) {
    const auto end = begin + std::min(half, left.end() - begin);
    shown_.GiveUp();
    pictures_.DropFeatures();
    KVG_TRY(RunAlike(block, {begin, end}, end - begin == 1));
    begin = end;
  }
  return {};
}

Status Executor::RunAlike(const CellBlock& block, const Samples& all, bool least) {
  Samples samples = shown_.Of(all);
  const std::vector<size_t>& contenders = block.contenders;
  if (const Status loaded = NeedModel(); !loaded.ok()) {
    model_ = {};  // with another beside it that is not there
    return LeavesToAnother(loaded.error()) ? Status() : loaded;
  }
  KVG_TRY(NeedVisuals(block, samples));
  if (samples.empty()) return {};
  Model& model = *model_.model;
  std::vector<Contender> engine_contenders;
  for (const size_t contender : contenders) {
    engine_contenders.push_back({.method = &SpecOf(contender).method,
                                 .budget = SpecOf(contender).budget,
                                 .model = &model,
                                 .original = original_.model.get()});
  }
  // What `inspect` saw of cells that have not ended yet.
  std::map<std::tuple<int64_t, int64_t, int64_t>, KeptEntries> looked;
  EngineOptions options;
  options.compress_at = group_->compress_at;
  options.chunk_tokens = plan_.config->chunk_tokens;
  options.seed = static_cast<uint64_t>(group_->seed);
  options.sampling = {.temperature = static_cast<float>(Sampling().temperature),
                      .top_p = static_cast<float>(Sampling().top_p)};
  options.valid_vocab = std::min(ModelOf().tokenizer->VocabSize(), model.config().vocab_size);
  options.max_pool_lanes = kPoolLanes;
  options.max_memory_bytes = plan_.config->max_memory_bytes;
  options.fidelity_steps = plan_.config->fidelity_steps;
  pictures_.Count(samples, options);
  options.begin = [&](int64_t sample) {
    if (interrupt_.signal() != 0) return false;
    ++outcome_.prefills;
    Begin(*samples[static_cast<size_t>(sample)], block.cells());
    return true;
  };
  options.inspect = [&](const CellResult& result, const KvCache& cache, Compressor&) {
    looked[{result.sample, result.contender, result.draw}] =
        FindKeptEntries(cache, model.checkpoint_shape(),
                        *samples[static_cast<size_t>(result.sample)], LinkTokensOf(result));
  };
  if (!Entry().task.stop.texts.empty()) {
    options.on_token = [&](const EngineToken& token) { return GoOn(token); };
  }
  std::vector<FinishedCell> unconcluded;
  const auto put = [&](CellResult result) {
    const auto contender = static_cast<size_t>(result.contender);
    FinishedCell cell = {.scoring = scoring_.get(),
                         .sample = samples[static_cast<size_t>(result.sample)],
                         .cell = cells_[contenders[contender]],
                         .run = run_,
                         .contender = contenders[contender],
                         .result = {},
                         .kept = {}};
    const auto found = looked.find({result.sample, result.contender, result.draw});
    if (found != looked.end()) {
      cell.kept = std::move(found->second);
      looked.erase(found);
    }
    growing_.erase(growing_.lower_bound({result.sample, result.contender, result.draw, 0}),
                   growing_.lower_bound({result.sample, result.contender, result.draw + 1, 0}));
    cell.result = std::move(result);
    if (cell.result.status.ok() && HasConclusion(cell.sample->sample)) {
      unconcluded.push_back(std::move(cell));
      return Status();
    }
    return recorder_.Put(std::move(cell));
  };
  Engine engine(engine_contenders, options);
  growing_.clear();

  std::vector<EngineSample> tokens;
  for (const auto& sample : samples) {
    tokens.push_back(sample->tokens);
    tokens.back().draws = block.draws;
  }
  if (!engine.PlanMemory(tokens).ok()) {
    // A text that cannot be run at all is found alone, and the others go on together.
    const bool halves = !least && options.vision_bytes > 0;
    Samples possible;
    for (size_t i = 0; i < samples.size() && !halves; ++i) {
      const Result<MemoryPlan> alone = engine.PlanMemory({&tokens[i], 1});
      if (alone.ok()) possible.push_back(samples[i]);
      if (alone.ok() || LeavesToAnother(alone.error())) continue;
      Begin(*samples[i], block.cells());
      KVG_TRY(FailSample(samples[i], block, alone.error()));
    }
    if (!halves && possible.size() < samples.size()) return RunAlike(block, possible);
    samples = SamplesOf(all, samples);  // whose rows must not stay
    tokens.clear();
    return RunHalves(block, samples);
  }
  KVG_TRY(engine.Run(tokens, put));
  return Conclude(std::move(unconcluded));
}

Status Executor::Conclude(std::vector<FinishedCell> cells) {
  if (cells.empty()) return {};
  EngineOptions options;
  options.seed = static_cast<uint64_t>(group_->seed);
  options.valid_vocab =
      std::min(ModelOf().tokenizer->VocabSize(), model_.model->config().vocab_size);
  options.max_pool_lanes = kPoolLanes;
  options.max_memory_bytes = plan_.config->max_memory_bytes;
  KVG_TRY(
      AskConclusions(Entry().task, *ModelOf().tokenizer, *model_.model, options, *source_, cells));
  for (FinishedCell& cell : cells) KVG_TRY(recorder_.Put(std::move(cell)));
  return {};
}

Status Executor::RunGroup(size_t number) {
  group_ = &plan_.groups[number];
  const RunTask& entry = Entry();
  std::vector<std::string> names;
  cells_.clear();
  fits_.clear();
  for (size_t contender = 0; contender < group_->contenders.size(); ++contender) {
    names.push_back(SpecOf(contender).Name());
    const auto lock = recorder_.LockStore();
    KVG_ASSIGN(const int64_t cell, store_.AddCell(group_->cells[contender]));
    cells_.push_back(cell);
  }
  progress_.BeginGroup(number + 1, plan_.groups.size() + LatencyGroups(), group_->name, names,
                       settings_.choice.Count(entry.samples),
                       entry.task.metric == kPerplexityMetric ? 1 : 100, Sampling().draws);
  pictures_.BeginGroup(*group_);
  const MetricSpec* metric = FindMetric(entry.task.metric);
  if (metric != nullptr && metric->of_set) metric = nullptr;  // of all answers, later
  scoring_ = std::make_unique<GroupScoring>(
      GroupScoring{&entry.task, metric, ModelOf().tokenizer.get(), Sampling().sampled()});
  KVG_ASSIGN(const std::unique_ptr<SampleSource> source,
             OpenSource(plan_, *group_, settings_.choice));
  source_ = source.get();
  group_number_ = static_cast<int64_t>(number);
  position_ = 0;
  chosen_ = 0;
  claimed_ = -1;
  leaves_rest_ = false;
  beyond_said_ = false;
  const double start_s = NowSeconds();
  const int64_t cells_before = [&] {
    const std::lock_guard lock(count_mutex_);
    return outcome_.cells;
  }();
  std::vector<Pending> window;
  bool more = true;
  while (more && !leaves_rest_ && interrupt_.signal() == 0) {
    KVG_ASSIGN(more, ReadWindow(*source, window));
    KVG_TRY(RunWindow(window));
  }
  KVG_TRY(recorder_.Flush());  // the group's scoring goes with it
  progress_.EndGroup();
  if (source->skipped() > 0) {
    const std::string& task = plan_.config->tasks[group_->task].task.name;
    LogWarning(StrCat(task, ": malformed records left out: ", source->skipped()));
    KVG_TRY(Event(
        "skipped_records",
        CanonicalJson({{"group", group_->name}, {"task", task}, {"records", source->skipped()}})));
  }
  const int64_t ran = outcome_.cells - cells_before;
  if (ran == 0) return {};
  return Event("note",
               CanonicalJson(
                   {{"group", group_->name}, {"cells", ran}, {"seconds", NowSeconds() - start_s}}));
}

Result<RunOutcome> Executor::Run() {
  const double start_s = NowSeconds(), start_processor_s = ReadCpuUse().process_s;
  KVG_TRY(Start());
  Status status;
  for (size_t i = 0; i < plan_.groups.size() && status.ok() && interrupt_.signal() == 0; ++i) {
    status = RunGroup(i);
  }
  const Status flushed = recorder_.Flush();
  if (status.ok()) status = flushed;
  if (status.ok() && MeasuresTimes() && interrupt_.signal() == 0) {
    pictures_.DropAll();
    model_ = {};
    const auto latency = RunLatencyPhase(plan_, store_, run_, progress_, interrupt_);
    if (latency.ok()) {
      outcome_.latencies = latency->measured;
      outcome_.latencies_failed = latency->failed;
    } else {
      status = latency.error();
    }
  }
  outcome_.seconds = NowSeconds() - start_s;
  outcome_.processor_s = ReadCpuUse().process_s - start_processor_s;
  outcome_.recording_s = recorder_.seconds();
  outcome_.signal = interrupt_.signal();
  outcome_.reasons = reasons_.Lines();
  if (!status.ok()) {
    // The disk may be the reason; then the event is lost as well.
    static_cast<void>(Event("failed", status.error().message).ok());
    return status.error();
  }
  const std::string spent =
      StrCat(Counted(outcome_.cells, "cell"), " in ", ClockTime(outcome_.seconds));
  if (outcome_.signal != 0) {
    KVG_TRY(Event("interrupted", StrCat("signal ", outcome_.signal, " after ", spent)));
    return outcome_;
  }
  KVG_TRY(Event("finished", spent));
  KVG_TRY(store_.FinishRun(run_, UtcNow()));
  return outcome_;
}

}  // namespace

Result<RunOutcome> ExecuteRun(const RunPlan& plan, const RunSettings& settings, ResultStore& store,
                              RunProgress& progress, const InterruptGuard& interrupt) {
  return Executor(plan, settings, store, progress, interrupt).Run();
}

}  // namespace kvgauge
