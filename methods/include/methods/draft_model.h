// SPDX-License-Identifier: Apache-2.0
// Another model that answers prompts for a stage: a smaller one of the same vocabulary, or the
// measured model itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "methods/model_shape.h"

namespace kvgauge {

// The parameter of a stage that has prompts answered (Scorer::AnswerTokens): the directory of a
// checkpoint, or kOwnDraft.
inline constexpr const char* kDraftModelParam = "draft_model";
inline constexpr const char* kOwnDraft = "self";  // the measured model with its full cache
ParamSpec DraftModelParam();

// Facts about a checkpoint whose weights are not read yet. Immutable, shared by all copies of a
// method.
struct DraftModel {
  std::string directory;    // where it was found
  std::string fingerprint;  // of config and weights; stands for the directory in a cell's key
  int64_t weight_bytes = 0;
  ModelShape shape;
};

// A model that is loaded. Its answers depend on the prompt alone.
struct Drafter {
  // The greedy answer behind a prompt: at most `most` tokens, the one that ends it included.
  std::function<Result<std::vector<int32_t>>(std::span<const int32_t> prompt, int64_t most)> answer;
};
// By directory, as DraftModel has it.
using Drafters = std::map<std::string, Drafter>;

}  // namespace kvgauge
