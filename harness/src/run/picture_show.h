// SPDX-License-Identifier: Apache-2.0
// Gives samples the rows of their pictures: the tower of the model at hand, the features that stay
// for all its groups, and the stage of a group that takes rows out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "runner/vision.h"
#include "src/run/picture_features.h"
#include "src/run/run_plan.h"
#include "src/run/run_record.h"
#include "src/run/sample_visuals.h"

namespace kvgauge {

// Not thread-safe. The tower is loaded when the first sample shows pictures.
class PictureShow {
 public:
  // The plan outlives it.
  explicit PictureShow(const RunPlan& plan) : plan_(plan) {}

  // Precedes Show. The group outlives its samples.
  void BeginGroup(const PlanGroup& group);
  // The weights of the model are given up or others are loaded: so is its tower.
  void DropTower() { tower_.reset(); }
  // What is kept for samples to come.
  void DropFeatures() { features_.reset(); }
  // No more pictures are shown.
  void DropAll() {
    tower_.reset();
    features_.reset();
  }

  // Gives each sample of the group the rows of its pictures, which it then no longer holds; a
  // sample that was shown before stays as it is. A faulty picture is the error of its samples
  // (RunSample::shown), an error of Show one of the run. `eyes`: of the source that built the
  // samples; `ops`: of the loaded model.
  Status Show(std::span<const std::shared_ptr<RunSample>> samples, const SampleEyes* eyes,
              Ops& ops);

  // The sample gives the rows up, however long its cells wait to be recorded.
  static void Hide(RunSample& sample);
  // How many bytes of rows samples are read ahead for.
  int64_t MostBytesAhead() const;

  // Whether a stage of the group takes rows of the pictures out.
  bool reduces() const { return see_ != nullptr; }
  // Whether samples of such a group also get the whole rows, for fidelity.
  bool shows_whole() const { return reduces() && plan_.config->fidelity_steps > 0; }
  // Bytes of the tower and the features that are kept and that none of the samples shows; 0 before
  // a picture was shown.
  int64_t BytesBeside(std::span<const std::shared_ptr<RunSample>> samples) const;
  // What the memory of a run on the samples is planned with.
  void Count(std::span<const std::shared_ptr<RunSample>> samples, EngineOptions& options) const;

 private:
  Status NeedTower(const SampleEyes& eyes, Ops& ops);
  Status ShowTogether(std::span<const std::shared_ptr<RunSample>> samples, const SampleEyes* eyes,
                      Ops& ops);
  void ShowWhole(RunSample& sample);
  void TakeUnseen(std::span<const std::shared_ptr<const VisualFeatures>> features,
                  RunSample& sample) const;

  const RunPlan& plan_;
  const PlanGroup* group_ = nullptr;
  std::unique_ptr<See> see_;  // of the group
  SeeKey key_;
  std::unique_ptr<VisionTower> tower_;
  bool tower_behind_ = false;  // with the block behind the features
  std::unique_ptr<PictureFeatures> features_;
  size_t features_of_ = 0;  // which model
};

}  // namespace kvgauge
