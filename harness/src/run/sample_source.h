// SPDX-License-Identifier: Apache-2.0
// The samples of a group as the engine is fed them: questions through a template, or windows of a
// running text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "datasets/task.h"
#include "runner/engine.h"
#include "src/run/run_plan.h"
#include "src/run/sample_visuals.h"

namespace kvgauge {

// Where the answer to a sample stands.
struct SamplePlace {
  std::string excerpt;
  std::vector<std::pair<int64_t, int64_t>> tokens;  // ranges in the context
};

// In a fixed order. Not thread-safe.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // The next sample, or nothing at the end; cheap, so that what is recorded can be passed over.
  virtual Result<std::optional<Sample>> Next() = 0;
  // Malformed records that were left out so far.
  virtual int64_t skipped() const = 0;
  // What the model needs to be shown the sample, read once. An error is one of the run, since no
  // sample like it could be shown.
  virtual Status Open(const Sample& /*sample*/) { return {}; }
  // Tokens of the sample that Next gave last; its pictures are counted, not decoded. Opens. Once
  // that is done, an error of a sample with pictures is its own: others can be built.
  virtual Result<EngineSample> Build(const Sample& sample) = 0;
  // What the pictures of the sample that was built last became, in order.
  virtual std::span<const ShownVisual> shown() const { return {}; }
  // How pictures become pixels; null before a sample with pictures was opened.
  virtual const SampleEyes* eyes() const { return nullptr; }
  virtual Result<SamplePlace> Place(const Sample& sample, const EngineSample& tokens) = 0;
};

// Errors of a source name the configuration's file and the task where they do not already.
Error OfTask(const RunPlan& plan, const Task& task, const Error& error);

// The plan outlives the source.
Result<std::unique_ptr<SampleSource>> OpenSource(const RunPlan& plan, const PlanGroup& group,
                                                 const SampleChoice& choice);

}  // namespace kvgauge
