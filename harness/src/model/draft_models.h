// SPDX-License-Identifier: Apache-2.0
// Checkpoints that draft answers for a stage (methods/draft_model.h): found, checked, loaded.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/method.h"
#include "runner/config.h"

namespace kvgauge {

class Tokenizer;

// What is known of a checkpoint before it is loaded; reads no weight.
Result<std::shared_ptr<const DraftModel>> LookAtDraftModel(const std::string& directory);
// Refuses one whose tokens are not those of the measured model in `directory`. `tokenizer`: as
// below.
Status CheckDraftModel(const DraftModel& draft, const std::string& directory,
                       const ModelConfig& config, const Tokenizer* tokenizer);

// Looks at the checkpoints that stages name, as they are or beside configs/; reads no weight.
Status AttachDraftModels(Method& method);

// Refuses drafts whose tokens are not those of the measured model, which lies in `directory`.
// `tokenizer`: its own, if it was read; null: it is read where a stage drafts.
Status CheckDraftModels(const Method& method, const std::string& directory,
                        const ModelConfig& config, const Tokenizer* tokenizer);

// Loads those of all methods, each once. They run on `ops`, which outlives them.
Result<Drafters> LoadDrafters(std::span<const Method* const> methods, Ops& ops);

}  // namespace kvgauge
