// SPDX-License-Identifier: Apache-2.0
#include "src/run/picture_show.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "src/model/visual_input.h"
#include "src/run/picture_record.h"

namespace kvgauge {
namespace {

// Samples whose pictures go through the tower together, as far as their rows are no more.
constexpr int64_t kRowsTogether = VisionTower::kBatchRows;

}  // namespace

void PictureShow::BeginGroup(const PlanGroup& group) {
  group_ = &group;
  see_.reset();
  key_ = {};
  const PlanPrefill& prefill = plan_.models[group.model].prefills[group.prefill];
  if (!prefill.see) return;
  std::unique_ptr<Stage> stage = MakeStage(*prefill.see);
  see_.reset(static_cast<See*>(stage.release()));
  key_ = {see_.get(), StageKey(*prefill.see)};
}

int64_t PictureShow::BytesBeside(std::span<const std::shared_ptr<RunSample>> samples) const {
  if (tower_ == nullptr) return 0;
  HeldRows shown;
  for (const auto& sample : samples) {
    shown.Add(sample->tokens.visuals.get());
    if (sample->tokens.whole != nullptr) shown.Add(sample->tokens.whole->visuals.get());
  }
  return tower_->weight_bytes() + (features_ == nullptr ? 0 : features_->BytesBeside(shown));
}

void PictureShow::Count(std::span<const std::shared_ptr<RunSample>> samples,
                        EngineOptions& options) const {
  options.vision_bytes = BytesBeside(samples);
  if (options.vision_bytes == 0) return;
  for (const auto& sample : samples) options.pixel_bytes += sample->pixel_bytes;
  options.pixel_bytes = std::min(options.pixel_bytes, kPixelBytesInFlight);
}

Status PictureShow::Show(std::span<const std::shared_ptr<RunSample>> samples,
                         const SampleEyes* eyes, Ops& ops) {
  for (size_t begin = 0; begin < samples.size();) {
    size_t end = begin;
    for (int64_t rows = 0; end < samples.size() && (end == begin || rows < kRowsTogether); ++end) {
      rows += samples[end]->visuals.tokens;
    }
    KVG_TRY(ShowTogether(samples.subspan(begin, end - begin), eyes, ops));
    begin = end;
  }
  // Prompts have the room.
  if (tower_ != nullptr) tower_->DropScratch();
  for (const auto& sample : samples) sample->sample.pictures.clear();
  return {};
}

void PictureShow::Hide(RunSample& sample) {
  sample.tokens.visuals = nullptr;
  sample.tokens.whole = nullptr;
}

int64_t PictureShow::MostBytesAhead() const {
  return WindowVisualBytes(plan_.config->max_memory_bytes, *plan_.ops);
}

Status PictureShow::ShowTogether(std::span<const std::shared_ptr<RunSample>> samples,
                                 const SampleEyes* eyes, Ops& ops) {
  std::vector<PictureRequest> requests;
  for (const auto& sample : samples) {
    for (const Picture& picture : sample->sample.pictures) {
      requests.push_back({&picture, std::ssize(sample->sample.pictures)});
    }
  }
  std::vector<FeatureResult> features;
  if (!requests.empty()) {
    KVG_TRY(NeedTower(*eyes, ops));
    features = features_->Get(requests, *tower_, key_);
  }
  size_t at = 0;
  for (const auto& sample : samples) {
    Status& status = sample->shown;
    std::vector<std::shared_ptr<const PictureFeature>> own;
    double vision_s = 0;
    for (size_t i = 0; i < sample->sample.pictures.size(); ++i, ++at) {
      if (!features[at].ok()) {
        if (status.ok()) status = features[at].error().Wrap(StrCat("sample ", sample->sample.id));
        continue;
      }
      vision_s += (*features[at])->seconds;
      own.push_back(*features[at]);
    }
    if (!status.ok() || own.empty()) continue;
    const Result<std::vector<std::shared_ptr<const VisualFeatures>>> left =
        FeaturesLeft(see_.get(), sample->sample.pictures, own, *tower_);
    if (!left.ok()) {
      status = left.error().Wrap(StrCat("sample ", sample->sample.id));
      continue;
    }
    sample->tokens.visuals = JoinRows(*left, tower_->spec().hidden_size);
    sample->vision_s = vision_s;
    std::vector<SeenPicture> seen;
    for (const auto& feature : own) {
      seen.push_back({&feature->features.layout, feature->thumbnail});
    }
    sample->sight = MakeSight(sample->sample, seen);
    if (see_ == nullptr) continue;
    if (shows_whole()) ShowWhole(*sample);
    TakeUnseen(*left, *sample);
  }
  return {};
}

// What the full cache sees, whose rows the run has from its own group as far as it could keep them.
void PictureShow::ShowWhole(RunSample& sample) {
  std::vector<PictureRequest> requests;
  for (const Picture& picture : sample.sample.pictures) {
    requests.push_back({&picture, std::ssize(sample.sample.pictures)});
  }
  std::vector<std::shared_ptr<const PictureFeature>> own;
  for (FeatureResult& feature : features_->Get(requests, *tower_)) {
    if (!feature.ok()) return;  // then the sample has no fidelity
    own.push_back(*std::move(feature));
  }
  const auto all = FeaturesLeft(nullptr, sample.sample.pictures, own, *tower_);
  if (!all.ok()) return;
  auto whole = std::make_shared<EngineSample>(sample.tokens);
  whole->visuals = JoinRows(*all, tower_->spec().hidden_size);
  sample.tokens.whole = std::move(whole);
}

Status PictureShow::NeedTower(const SampleEyes& eyes, Ops& ops) {
  if (features_ == nullptr || features_of_ != group_->model) {
    features_ = std::make_unique<PictureFeatures>(
        *eyes.preprocessor(), KeptFeatureBytes(plan_.config->max_memory_bytes, ops));
    features_of_ = group_->model;
  }
  const bool behind = see_ != nullptr && see_->sees().behind;
  if (tower_ != nullptr && (tower_behind_ || !behind)) return {};
  tower_behind_ = behind;
  const RunModel& model = *plan_.models[group_->model].spec;
  KVG_ASSIGN(tower_,
             LoadTower({.model = model.path, .dtype = model.dtype, .weights = model.weights}, ops,
                       behind));
  return {};
}

// What a stage took out of the pictures leaves the prompts.
void PictureShow::TakeUnseen(std::span<const std::shared_ptr<const VisualFeatures>> features,
                             RunSample& sample) const {
  std::vector<SeenVisual> seen;
  for (const auto& feature : features) {
    seen.push_back({feature->layout.rows, feature->places, feature->gone});
  }
  EngineSample& tokens = sample.tokens;
  const int64_t context = std::ssize(tokens.context);
  const std::vector<int64_t> now = ShowLess(seen, tokens.context, tokens.context_spans);
  sample.unseen = context - std::ssize(tokens.context);
  sample.unseen_compressed = sample.unseen;
  for (auto& [begin, end] : sample.answer) {
    begin = now[static_cast<size_t>(begin)];
    end = now[static_cast<size_t>(end)];
  }
  std::erase_if(sample.answer, [](const auto& range) { return range.first == range.second; });
  for (size_t i = 0; i < tokens.turns.size(); ++i) {
    EngineTurn& turn = tokens.turns[i];
    const int64_t before = std::ssize(turn.ids);
    ShowLess(seen, turn.ids, turn.spans);
    const int64_t taken = before - std::ssize(turn.ids);
    sample.unseen += taken;
    if (i == 0 && group_->compress_at != CompressAt::kContext) sample.unseen_compressed += taken;
  }
  sample.reduced = true;
}

}  // namespace kvgauge
