// SPDX-License-Identifier: Apache-2.0
#include "src/latency/run_latency.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/model/visual_input.h"
#include "src/run/picture_features.h"
#include "src/run/sample_source.h"

namespace kvgauge {
namespace {

constexpr int64_t kPromptSamples = 8;

// The first samples of a group's task, and how many of their tokens most questions have.
struct LatencyPrompts {
  std::vector<LatencyTokens> samples;
  int64_t question_tokens = 0;
};

// Looks at the pictures of samples once.
class PromptEyes {
 public:
  // `sees`: the stages that take rows of pictures out.
  PromptEyes(const RunPlan& plan, const RunModel& model, const std::vector<StageChoice>& sees,
             Ops& ops)
      : plan_(plan), model_(model), ops_(ops) {
    for (const StageChoice& see : sees) {
      stages_.push_back(MakeStage(see));
      const auto* stage = static_cast<const See*>(stages_.back().get());
      keys_.push_back({stage, StageKey(see)});
      behind_ = behind_ || stage->sees().behind;
    }
  }

  Status Show(const SampleEyes& eyes, const Sample& sample, LatencyTokens& prompt) {
    if (sample.pictures.empty()) return {};
    if (tower_ == nullptr) {
      KVG_ASSIGN(tower_,
                 LoadTower({.model = model_.path, .dtype = model_.dtype, .weights = model_.weights},
                           ops_, behind_));
      features_.emplace(*eyes.preprocessor(),
                        KeptFeatureBytes(plan_.config->max_memory_bytes, ops_));
    }
    std::vector<PictureRequest> requests;
    for (const Picture& picture : sample.pictures) {
      requests.push_back({&picture, std::ssize(sample.pictures)});
    }
    std::vector<std::shared_ptr<const PictureFeature>> own;
    for (FeatureResult& feature : features_->Get(requests, *tower_)) {
      if (!feature.ok()) return feature.error().Wrap(StrCat("sample ", sample.id));
      prompt.vision_s += (*feature)->seconds;
      own.push_back(*std::move(feature));
    }
    KVG_ASSIGN(const std::vector<std::shared_ptr<const VisualFeatures>> whole,
               FeaturesLeft(nullptr, sample.pictures, own, *tower_));
    prompt.visuals = JoinRows(whole, tower_->spec().hidden_size);
    for (const auto& feature : own) prompt.pictures.push_back({feature->features.count()});
    for (const SeeKey& key : keys_) {
      std::vector<std::shared_ptr<const PictureFeature>> seen;
      for (FeatureResult& feature : features_->Get(requests, *tower_, key)) {
        if (!feature.ok()) return feature.error().Wrap(StrCat("sample ", sample.id));
        seen.push_back(*std::move(feature));
      }
      KVG_ASSIGN(const std::vector<std::shared_ptr<const VisualFeatures>> left,
                 FeaturesLeft(key.stage, sample.pictures, seen, *tower_));
      for (size_t i = 0; i < left.size(); ++i) {
        prompt.pictures[i].left.push_back({left[i], seen[i]->seconds});
      }
    }
    return {};
  }

 private:
  const RunPlan& plan_;
  const RunModel& model_;
  Ops& ops_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<SeeKey> keys_;
  bool behind_ = false;  // a stage looks at the block behind the features
  std::unique_ptr<VisionTower> tower_;
  std::optional<PictureFeatures> features_;
};

Result<LatencyPrompts> ReadPrompts(const RunPlan& plan, const PlanGroup& group,
                                   const std::vector<StageChoice>& sees, Ops& ops) {
  PromptEyes eyes(plan, *plan.models[group.model].spec, sees, ops);
  KVG_ASSIGN(const std::unique_ptr<SampleSource> source,
             OpenSource(plan, group, {.limit = kPromptSamples}));
  LatencyPrompts prompts;
  std::vector<int64_t> questions;
  while (true) {
    KVG_ASSIGN(const std::optional<Sample> sample, source->Next());
    if (!sample) break;
    KVG_ASSIGN(EngineSample built, source->Build(*sample));
    LatencyTokens prompt(std::move(built.context));
    prompt.spans = std::move(built.context_spans);
    const EngineTurn& turn = built.turns[0];
    for (VisualSpan span : turn.spans) {
      span.first += prompt.size();
      prompt.spans.push_back(span);
    }
    prompt.ids.insert(prompt.ids.end(), turn.ids.begin(), turn.ids.end());
    // A picture that cannot be read has failed its sample before.
    if (!sample->pictures.empty() && !eyes.Show(*source->eyes(), *sample, prompt).ok()) continue;
    prompts.samples.push_back(std::move(prompt));
    questions.push_back(std::ssize(turn.ids));
  }
  if (prompts.samples.empty()) {
    return BadInput(StrCat(plan.config->path, ": the latency phase found no sample of ", group.name,
                           " whose pictures can be read"));
  }
  std::sort(questions.begin(), questions.end());
  if (group.compress_at == CompressAt::kContext) {
    prompts.question_tokens = questions[questions.size() / 2];
  }
  return prompts;
}

// The contenders of one model that compress at one place, each under its cell of the first task.
struct PlaceLines {
  const PlanGroup* first = nullptr;
  std::map<size_t, LatencyLine> lines;  // by contender
  std::vector<StageChoice> sees;        // of the lines, each once
};

// Its number among them, where it is new as the last.
size_t NumberOf(const StageChoice& see, std::vector<StageChoice>& sees) {
  for (size_t i = 0; i < sees.size(); ++i) {
    if (StageKey(sees[i]) == StageKey(see)) return i;
  }
  sees.push_back(see);
  return sees.size() - 1;
}

// The first prefill that runs on the same loaded model.
size_t FirstOnWeights(const PlanModel& model, size_t prefill) {
  size_t first = 0;
  while (model.prefills[first].weights != model.prefills[prefill].weights) ++first;
  return first;
}

Result<PlaceLines> LinesAt(const RunPlan& plan, size_t model, CompressAt at, ResultStore& store,
                           std::map<size_t, LoadedModel>& models) {
  PlaceLines found;
  for (const PlanGroup& group : plan.groups) {
    if (group.model != model || group.compress_at != at) continue;
    if (found.first == nullptr) found.first = &group;
    for (size_t i = 0; i < group.contenders.size(); ++i) {
      const size_t contender = group.contenders[i];
      if (found.lines.count(contender) > 0) continue;
      const size_t prefill = FirstOnWeights(plan.models[model], group.prefill);
      if (models.count(prefill) == 0) {
        KVG_ASSIGN(models[prefill], LoadPlanned(plan, model, prefill));
      }
      const RunContender& spec = plan.config->contenders[contender];
      KVG_ASSIGN(const int64_t cell, store.AddCell(group.cells[i]));
      found.lines[contender] = {.name = spec.Name(),
                                .method = &spec.method,
                                .budget = spec.budget,
                                .model = models[prefill].model.get(),
                                .full_cache = spec.full_cache(),
                                .cell = cell};
      if (spec.method.see) found.lines[contender].see = NumberOf(*spec.method.see, found.sees);
    }
  }
  return found;
}

}  // namespace

size_t CountLatencyGroups(const RunPlan& plan) {
  std::set<std::pair<size_t, CompressAt>> places;
  for (const PlanGroup& group : plan.groups) places.insert({group.model, group.compress_at});
  return places.size();
}

Result<LatencyOutcome> RunLatencyPhase(const RunPlan& plan, ResultStore& store, int64_t run,
                                       RunProgress& progress, const InterruptGuard& interrupt) {
  const RunConfig& config = *plan.config;
  KVG_ASSIGN(LatencyOptions options,
             ParseLatencyOptions(*config.latency, StrCat(config.path, ".latency")));
  options.max_memory_bytes = config.max_memory_bytes;
  LatencyOutcome total;
  size_t number = plan.groups.size();
  for (size_t m = 0; m < plan.models.size() && !total.cancelled; ++m) {
    std::map<size_t, LoadedModel> models;  // by prefill
    for (const CompressAt at : config.compress_at) {
      if (total.cancelled) break;
      KVG_ASSIGN(const PlaceLines found, LinesAt(plan, m, at, store, models));
      if (found.first == nullptr) continue;
      KVG_ASSIGN(LatencyPrompts prompts,
                 ReadPrompts(plan, *found.first, found.sees, models.begin()->second.model->ops()));
      options.question_tokens = prompts.question_tokens;
      options.chunk_tokens = at == CompressAt::kChunk ? config.chunk_tokens : 0;
      std::vector<LatencyLine> ordered;
      std::vector<std::string> names;
      for (const auto& [contender, line] : found.lines) {
        ordered.push_back(line);
        names.push_back(line.name);
      }
      progress.BeginMeasurements(
          ++number, plan.groups.size() + CountLatencyGroups(plan),
          StrCat(plan.models[m].spec->name, ", latency, compressed at ", config.PlaceName(at)),
          names);
      LatencyHooks hooks;
      hooks.cancelled = [&] { return interrupt.signal() != 0; };
      hooks.on_event = [&](const LatencyEvent& event) {
        progress.EndMeasurement(event.done, event.planned, !event.status.ok());
        if (!event.status.ok()) {
          progress.Note(StrCat("latency: ", event.line->name, " at ", event.context_tokens,
                               " tokens: ", event.status.error().message));
        }
      };
      KVG_ASSIGN(const LatencyOutcome outcome,
                 RecordLatency(ordered, SamplePrompts(std::move(prompts.samples)), options, hooks,
                               store, run));
      progress.EndGroup();
      total.measured += outcome.measured;
      total.had += outcome.had;
      total.disturbed += outcome.disturbed;
      total.failed += outcome.failed;
      total.cancelled = outcome.cancelled;
    }
  }
  return total;
}

}  // namespace kvgauge
