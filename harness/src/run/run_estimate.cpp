// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_estimate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/strings.h"
#include "core/threads.h"
#include "runner/chunk_prefill.h"
#include "runner/engine.h"
#include "runner/vision.h"
#include "src/latency/latency_phase.h"
#include "src/run/picture_features.h"
#include "src/run/sample_source.h"

namespace kvgauge {

// A sample of a group.
struct PlannedSample {
  std::string id;
  int64_t prompt = 0, steps = 0, compressed = 0;
  int64_t visual_bytes = 0;  // of the rows of its pictures
  SampleLength length;
  std::string faulty;  // why it cannot be shown to the model; "": it can
};

// What looking at the pictures of samples takes.
struct PlannedEyes {
  std::optional<VisionSpec> spec;  // of the tower; none: there are none
  int64_t tower_bytes = 0;
  int64_t tower_rows = 0, most_tower_rows = 0;  // of all samples, and of the largest picture
  int64_t feature_bytes = 0;                    // of all samples
  int64_t pixel_bytes = 0;                      // likewise
};

namespace {

// Asks the engine's plan about contenders whose weights are not loaded.
class MemoryPlanner {
 public:
  MemoryPlanner(const RunPlan& plan, const PlanGroup& group, const PlannedEyes& eyes)
      : caches_(plan.models[group.model].config.OfCaches()),
        model_(Planned(plan.models[group.model], caches_, plan.ops.get())) {
    options_.compress_at = group.compress_at;
    options_.chunk_tokens = plan.config->chunk_tokens;
    options_.max_pool_lanes = kPoolLanes;
    options_.draws = plan.config->sampling.draws;
    options_.max_memory_bytes = plan.config->max_memory_bytes;
    options_.fidelity_steps = plan.config->fidelity_steps;
    options_.vision_bytes = eyes.tower_bytes;
    kept_bytes_ =
        std::min(eyes.feature_bytes, KeptFeatureBytes(plan.config->max_memory_bytes, *plan.ops));
    options_.pixel_bytes = std::min(eyes.pixel_bytes, kPixelBytesInFlight);
    if (eyes.spec) options_.pixel_bytes += Scratch(plan, group, eyes);
    // A prefill that changes the model is held against the model as it was.
    const std::vector<PlanPrefill>& prefills = plan.models[group.model].prefills;
    const bool changes = prefills[0].weights != prefills[group.prefill].weights;
    if (options_.fidelity_steps > 0 && changes) original_ = model_;
    const std::optional<StageChoice>& see = prefills[group.prefill].see;
    whole_beside_ = options_.fidelity_steps > 0 && see;
    joins_frames_ = see && static_cast<const See&>(*MakeStage(*see)).sees().frames;
    for (const size_t contender : group.contenders) {
      const RunContender& spec = plan.config->contenders[contender];
      const PlannedContender planned = {
          .method = &spec.method,
          .budget = spec.budget,
          .model = &model_,
          .original = original_.config != nullptr ? &original_ : nullptr};
      // What cannot act then is left out of the run.
      const bool acts = CheckMoment(spec.method, group.compress_at, plan.config->chunk_tokens).ok();
      (acts ? contenders_ : idle_).push_back(planned);
    }
    if (contenders_.empty()) contenders_.swap(idle_);
  }
  MemoryPlanner(const MemoryPlanner&) = delete;
  MemoryPlanner& operator=(const MemoryPlanner&) = delete;

  // With the bound of the run.
  Result<MemoryPlan> Within(const SampleLength& length, int64_t visual_bytes) const {
    const int64_t rows = Rows(visual_bytes);
    return PlanMemory(contenders_, Held({length}), Beside(options_, rows), 0, rows);
  }
  // What the largest of the contenders with a prefill for itself holds beside weights and working
  // memory while it reads; 0: there are none.
  int64_t OwnPrefillBytes(const std::vector<SampleLength>& lengths) const {
    EngineOptions options = options_;
    options.max_memory_bytes = 0;
    options.fidelity_steps = 0;
    int64_t bytes = 0;
    for (const PlannedContender& contender : contenders_) {
      if (lengths.empty() || options.compress_at != CompressAt::kChunk) break;
      if (!ReducesPrompts(*contender.method)) continue;
      const Result<MemoryPlan> one = PlanMemory({&contender, 1}, lengths, options, 0, 0);
      if (one.ok()) bytes = std::max(bytes, one->snapshot_bytes);
    }
    return bytes;
  }
  // Without one: at most, with so many cells in all; and with one contender at a time.
  // `visual_bytes`: of the samples that are held together.
  void AddTo(GroupEstimate& estimate, const std::vector<SampleLength>& lengths,
             int64_t visual_bytes) const {
    const std::vector<SampleLength> held = Held(lengths);
    const int64_t rows = Rows(visual_bytes);
    EngineOptions options = Beside(options_, rows);
    options.max_memory_bytes = 0;
    const Result<MemoryPlan> all = PlanMemory(contenders_, held, options, 0, rows);
    if (!all.ok() || lengths.empty()) return;
    std::vector<int64_t> lane_bytes;
    for (const PlannedContender& contender : contenders_) {
      const Result<MemoryPlan> one = PlanMemory({&contender, 1}, held, options, 0, rows);
      lane_bytes.push_back(one.ok() ? one->lane_bytes : all->lane_bytes);
    }
    std::sort(lane_bytes.rbegin(), lane_bytes.rend());
    const int64_t together = std::min(kPoolLanes, estimate.cells);
    const int64_t bare = all->weight_bytes + all->working_bytes + all->snapshot_bytes;
    estimate.least_bytes = bare + all->lane_bytes;
    estimate.memory_bytes = bare;
    for (int64_t i = 0; i < together; ++i) {
      // The largest contenders first, those of several samples beside each other.
      estimate.memory_bytes += lane_bytes[static_cast<size_t>(i) % lane_bytes.size()];
    }
    if (options_.max_memory_bytes > 0) {
      estimate.memory_bytes = std::min(estimate.memory_bytes, options_.max_memory_bytes);
    }
  }

 private:
  // What is left of pictures is known when the tower has run, so prompts count as they are before
  // it, twice where fidelity is held against the whole ones.
  std::vector<SampleLength> Held(std::vector<SampleLength> lengths) const {
    for (SampleLength& length : lengths) length.whole = whole_beside_ ? length.total : 0;
    return lengths;
  }
  // Working memory of the tower, for the largest batch that it has.
  static int64_t Scratch(const RunPlan& plan, const PlanGroup& group, const PlannedEyes& eyes) {
    const PlanModel& model = plan.models[group.model];
    const int64_t rows =
        std::min(eyes.tower_rows, std::max<int64_t>(VisionTower::kBatchRows, eyes.most_tower_rows));
    return VisionScratchBytes(*eyes.spec, model.dtype, rows,
                              model.prefills[group.prefill].see.has_value());
  }
  int64_t Rows(int64_t visual_bytes) const {
    return whole_beside_ ? 2 * visual_bytes : visual_bytes;
  }

  // What is kept of pictures is what the samples show, as far as it goes; frames that were joined
  // are rows of their own.
  EngineOptions Beside(EngineOptions options, int64_t rows) const {
    options.vision_bytes += joins_frames_ ? kept_bytes_ : std::max<int64_t>(kept_bytes_ - rows, 0);
    return options;
  }

  static PlannedModel Planned(const PlanModel& of, const ModelConfig& caches, Ops* ops) {
    return {.config = &of.config,
            .caches = &caches,
            .shape = of.shape,
            .checkpoint_shape = of.shape,
            .weight_bytes = of.weight_bytes,
            .ops = ops,
            .product_rows = of.product_rows,
            .shares = of.shares};
  }

  EngineOptions options_;
  const ModelConfig caches_;
  const PlannedModel model_;
  PlannedModel original_;
  bool whole_beside_ = false;  // the full cache's prompt is another
  bool joins_frames_ = false;
  int64_t kept_bytes_ = 0;  // of features, at most
  std::vector<PlannedContender> contenders_, idle_;
};

// How many rows of a layer a token of a prompt is, on average of all layers.
double MeanPasses(const ModelConfig& config) {
  if (config.blocks) {
    const auto blocks = static_cast<double>(config.block_layer_count());
    const auto layers = static_cast<double>(config.layer_count());
    const auto rows = static_cast<double>(config.blocks->rows());
    return (blocks + (layers - blocks) * rows) /
           (layers * static_cast<double>(config.blocks->tokens));
  }
  int64_t passed = 0;
  for (int64_t layer = 0; layer < config.layer_count();) {
    const bool later = config.ReadsLater(layer);
    const int64_t end = later ? config.PassedEnd(layer) : layer + 1;
    passed += (end - layer) * (later ? config.prompt_passes : 1);
    layer = end;
  }
  return static_cast<double>(passed) / static_cast<double>(config.layer_count());
}

// The simple model of time: two operations for each weight and token, so many of them a second and
// processor in prefills; a decode step of a contender reads its cache and takes half that rate.
class SimpleTimes {
 public:
  explicit SimpleTimes(const PlanModel& model)
      : token_s_(2.0 * static_cast<double>(ParameterCount(model.config)) /
                 (kPrefillRate * AvailableProcessors())),
        passes_(MeanPasses(model.config)) {}
  double Of(int64_t prompt_tokens, int64_t steps) const {
    return token_s_ * passes_ * static_cast<double>(prompt_tokens) +
           2 * token_s_ * static_cast<double>(steps);
  }

 private:
  static constexpr double kPrefillRate = 20e9;
  const double token_s_, passes_;
};

// Counts the sample that was built last; returns the bytes of its rows of pictures.
int64_t AddEyes(const RunPlan& plan, const PlanGroup& group, const SampleSource& source,
                PlannedEyes& eyes) {
  const int64_t rows = CountVisualRows(source.shown());
  if (rows == 0) return 0;
  const VisionSpec& spec = *source.eyes()->spec();
  if (eyes.tower_bytes == 0) {
    eyes.tower_bytes = VisionWeightBytes(spec, plan.models[group.model].dtype);
  }
  const int64_t bytes = VisualRowBytes(spec, rows);
  if (!eyes.spec) eyes.spec = spec;
  eyes.tower_rows += source.eyes()->tower_rows();
  eyes.most_tower_rows = std::max(eyes.most_tower_rows, source.eyes()->most_tower_rows());
  eyes.feature_bytes += bytes;
  eyes.pixel_bytes += source.eyes()->pixel_bytes();
  return bytes;
}

// What the run will find when it comes to those samples, as the executor does it.
std::vector<ReasonTally::Line> Unfit(const RunPlan& plan, const PlanGroup& group,
                                     const MemoryPlanner& memory,
                                     const std::vector<PlannedSample>& samples,
                                     const std::vector<std::vector<size_t>>& pending) {
  const ModelShape& shape = plan.models[group.model].shape;
  std::map<std::pair<size_t, int64_t>, Status> budgets;  // by contender and length
  std::map<std::pair<SampleLength, int64_t>, Status> rooms;
  ReasonTally tally;
  for (size_t i = 0; i < samples.size(); ++i) {
    const PlannedSample& sample = samples[i];
    for (const size_t contender : pending[i]) {
      if (!sample.faulty.empty()) {
        tally.Add(SampleStatus::kFailed, sample.faulty);
        continue;
      }
      const auto [fits, fresh] = budgets.try_emplace({contender, sample.compressed});
      if (fresh) {
        const RunContender& spec = plan.config->contenders[group.contenders[contender]];
        fits->second = CheckMoment(spec.method, group.compress_at, plan.config->chunk_tokens);
        if (fits->second.ok()) {
          fits->second = CheckMethod(spec.method, shape, spec.budget, sample.compressed);
        }
      }
      if (!fits->second.ok()) {
        tally.Add(SampleStatus::kSkipped, fits->second.error().message);
        continue;
      }
      const auto [room, first] = rooms.try_emplace({sample.length, sample.visual_bytes});
      if (first) {
        const Result<MemoryPlan> within = memory.Within(sample.length, sample.visual_bytes);
        if (!within.ok()) room->second = within.error();
      }
      if (!room->second.ok()) tally.Add(SampleStatus::kFailed, room->second.error().message);
    }
  }
  return tally.Lines();
}

}  // namespace

struct GroupEstimator::Samples {
  std::vector<PlannedSample> samples;
  int64_t skipped_records = 0;
  PlannedEyes eyes;
};

GroupEstimator::GroupEstimator(const RunPlan& plan, const SampleChoice& choice, PendingOf pending,
                               RateOf rate)
    : plan_(plan), choice_(choice), pending_(std::move(pending)), rate_(std::move(rate)) {}
GroupEstimator::~GroupEstimator() = default;

Result<const GroupEstimator::Samples*> GroupEstimator::Read(const PlanGroup& group) {
  std::unique_ptr<Samples>& known = read_[{group.model, group.task, group.compress_at, group.seed}];
  if (known != nullptr) return known.get();
  auto read = std::make_unique<Samples>();
  KVG_ASSIGN(const std::unique_ptr<SampleSource> source, OpenSource(plan_, group, choice_));
  for (int64_t position = 0;; ++position) {
    KVG_ASSIGN(const std::optional<Sample> sample, source->Next());
    if (!sample) break;
    if (!choice_.Has(position)) continue;
    KVG_TRY(source->Open(*sample));
    const Result<EngineSample> made = source->Build(*sample);
    PlannedSample planned;
    planned.id = sample->id;
    if (!made.ok()) {
      if (sample->pictures.empty()) return made.error();
      planned.faulty = made.error().message;
      read->samples.push_back(std::move(planned));
      continue;
    }
    const EngineSample& built = *made;
    planned.visual_bytes = AddEyes(plan_, group, *source, read->eyes);
    planned.prompt = std::ssize(built.context);
    for (const EngineTurn& turn : built.turns) {
      planned.prompt += std::ssize(turn.ids);
      planned.steps += turn.max_new_tokens;
    }
    planned.compressed = CompressedTokens(built, group.compress_at);
    planned.length = LengthOf(built, group.compress_at);
    read->samples.push_back(std::move(planned));
  }
  read->skipped_records = source->skipped();
  known = std::move(read);
  return known.get();
}

Result<GroupEstimate> GroupEstimator::Estimate(const PlanGroup& group) {
  const SimpleTimes times(plan_.models[group.model]);
  GroupEstimate estimate;
  KVG_ASSIGN(const Samples* const read, Read(group));
  const std::vector<PlannedSample>& samples = read->samples;
  estimate.skipped_records = read->skipped_records;
  const RunSampling& sampling = plan_.config->sampling;
  const std::vector<int64_t> draws = sampling.Numbers();
  std::vector<std::string> ids;
  std::set<SampleLength> lengths;
  const int64_t most_visual = WindowVisualBytes(plan_.config->max_memory_bytes, *plan_.ops);
  int64_t visual_bytes = 0;
  for (const PlannedSample& sample : samples) {
    for (const int64_t draw : draws) ids.push_back(sampling.NameOf(sample.id, draw));
    if (!sample.faulty.empty()) continue;
    lengths.insert(sample.length);
    // Samples join those that are held while these are within the bound.
    if (visual_bytes < most_visual) visual_bytes += sample.visual_bytes;
    estimate.longest_prompt = std::max(estimate.longest_prompt, sample.prompt);
  }
  estimate.samples = std::ssize(samples);
  estimate.cells = std::ssize(ids) * std::ssize(group.contenders);
  int64_t open_cells = 0;
  // Contenders to be run on each sample, once for each draw.
  std::vector<std::vector<size_t>> pending(samples.size());
  for (size_t contender = 0; contender < group.cells.size(); ++contender) {
    KVG_ASSIGN(const std::vector<std::string> left, pending_(group.cells[contender], ids));
    open_cells += std::ssize(left);
    size_t next = 0;
    for (size_t i = 0; i < ids.size() && next < left.size(); ++i) {
      if (ids[i] != left[next]) continue;
      pending[i / draws.size()].push_back(contender);
      ++next;
    }
  }
  estimate.done = estimate.cells - open_cells;
  const std::vector<size_t> own = OwnPrefills(plan_, group);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (pending[i].empty()) continue;
    estimate.seconds += times.Of(samples[i].prompt, samples[i].steps * std::ssize(pending[i]));
    // What reads the prompt for itself, and whether anybody shares one then.
    int64_t alone = 0;
    const std::set<size_t> rows(pending[i].begin(), pending[i].end());
    for (const size_t contender : rows) {
      alone += std::find(own.begin(), own.end(), contender) != own.end();
    }
    const int64_t more = alone - (alone == std::ssize(rows) ? 1 : 0);
    estimate.own_prefills += alone;
    estimate.own_seconds += times.Of(samples[i].prompt * more, 0);
  }
  estimate.seconds += estimate.own_seconds;
  if (const std::optional<double> known = rate_(group)) {
    estimate.measured = true;
    estimate.seconds = *known * static_cast<double>(open_cells);
  }
  estimate.own_rows = std::ssize(own);
  const MemoryPlanner memory(plan_, group, read->eyes);
  estimate.own_bytes = memory.OwnPrefillBytes({lengths.begin(), lengths.end()});
  memory.AddTo(estimate, {lengths.begin(), lengths.end()}, visual_bytes);
  estimate.unfit = Unfit(plan_, group, memory, samples, pending);
  return estimate;
}

Result<std::vector<LatencyEstimate>> EstimateLatency(const RunPlan& plan, ResultStore* store) {
  const RunConfig& config = *plan.config;
  std::vector<LatencyEstimate> estimates;
  if (config.latency == nullptr) return estimates;
  KVG_ASSIGN(const LatencyOptions options,
             ParseLatencyOptions(*config.latency, StrCat(config.path, ".latency")));
  std::map<std::string, int64_t> ids;  // of recorded cells
  if (store != nullptr) {
    KVG_ASSIGN(const std::vector<StoredCell> cells, store->Cells());
    for (const StoredCell& cell : cells) ids[cell.cell.Key()] = cell.id;
  }
  for (size_t m = 0; m < plan.models.size(); ++m) {
    const SimpleTimes times(plan.models[m]);
    for (const CompressAt at : config.compress_at) {
      // Contenders of the first task that has them, as the phase takes them.
      std::map<size_t, std::string> keys;
      for (const PlanGroup& group : plan.groups) {
        if (group.model != m || group.compress_at != at) continue;
        for (size_t i = 0; i < group.contenders.size(); ++i) {
          keys.try_emplace(group.contenders[i], group.cells[i].Key());
        }
      }
      if (keys.empty()) continue;
      LatencyEstimate& estimate = estimates.emplace_back();
      estimate.model = m;
      estimate.compress_at = at;
      estimate.contenders = std::ssize(keys);
      for (const int64_t context : options.contexts) {
        estimate.longest_prompt = std::max(estimate.longest_prompt, context);
        std::vector<int64_t> missing;
        size_t full = 0;
        for (const auto& [contender, key] : keys) {
          if (config.contenders[contender].full_cache()) full = missing.size();
          int64_t there = 0;
          if (const auto id = ids.find(key); id != ids.end()) {
            KVG_ASSIGN(const std::vector<LatencyRow> rows, store->Latency(id->second));
            there = std::count_if(rows.begin(), rows.end(), [&](const LatencyRow& latency) {
              return latency.context_tokens == context;
            });
          }
          estimate.done += std::min(there, options.repetitions);
          missing.push_back(std::max<int64_t>(options.repetitions - there, 0));
        }
        const int64_t measurements = PlannedMeasurements(missing, full);
        const int64_t warm_ups =
            measurements == 0
                ? 0
                : 1 + std::count_if(missing.begin(), missing.end(),
                                    [](int64_t repetitions) { return repetitions > 0; });
        estimate.measurements += measurements;
        estimate.seconds +=
            static_cast<double>(measurements) * times.Of(context, options.decode_steps) +
            static_cast<double>(warm_ups) * times.Of(context, 0);
      }
    }
  }
  return estimates;
}

Status CheckSomethingRuns(const RunPlan& plan, const SampleChoice& choice) {
  bool any = false;
  int64_t most = 0;
  std::optional<Error> closest;
  int64_t closest_tokens = 0;
  for (const PlanGroup& group : plan.groups) {
    KVG_ASSIGN(const std::unique_ptr<SampleSource> source, OpenSource(plan, group, choice));
    int64_t position = 0;
    for (;; ++position) {
      KVG_ASSIGN(const std::optional<Sample> sample, source->Next());
      if (!sample) break;
      if (!choice.Has(position)) continue;
      any = true;
      if (plan.config->max_memory_bytes == 0) return {};
      KVG_TRY(source->Open(*sample));
      const Result<EngineSample> built = source->Build(*sample);
      if (!built.ok()) {
        if (sample->pictures.empty()) return built.error();
        continue;
      }
      const SampleLength length = LengthOf(*built, group.compress_at);
      PlannedEyes eyes;
      const int64_t visual_bytes = AddEyes(plan, group, *source, eyes);
      const Result<MemoryPlan> within =
          MemoryPlanner(plan, group, eyes).Within(length, visual_bytes);
      if (within.ok()) return {};
      if (closest && closest_tokens <= length.total) continue;
      closest = within.error().Wrap(StrCat("no sample fits; of the shortest, of ", group.name));
      closest_tokens = length.total;
    }
    most = std::max(most, position);
  }
  if (closest) return BadInput(closest->message);
  // A shard may be without samples; a choice by position may not.
  if (any || choice.positions.empty() || choice.shards > 1) return {};
  return BadInput(StrCat("--samples: no task has a sample at these positions; the largest has ",
                         most, ", expected positions from 0 to ", most - 1));
}

}  // namespace kvgauge
