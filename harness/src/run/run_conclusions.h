// SPDX-License-Identifier: Apache-2.0
// The second prompts of samples whose first answers are reasoning (datasets/sample.h).
#pragma once

#include <span>

#include "core/result.h"
#include "datasets/task.h"
#include "runner/engine.h"
#include "src/run/run_record.h"
#include "src/run/sample_source.h"

namespace kvgauge {

// Fills the conclusions of cells that ended well. A second prompt is a row's own, short and without
// the context: the full cache answers those of all rows as one run. It is what a method made of the
// context that is measured. What cannot be asked is that cell's failure.
Status AskConclusions(const Task& task, const Tokenizer& tokenizer, Model& model,
                      const EngineOptions& options, SampleSource& source,
                      std::span<FinishedCell> cells);

}  // namespace kvgauge
