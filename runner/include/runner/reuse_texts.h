// SPDX-License-Identifier: Apache-2.0
// How a prompt divides into texts that were read before, and how many tokens a stage puts between
// them (methods/linked_reuse.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "methods/linked_reuse.h"
#include "methods/method.h"
#include "methods/reuse.h"

namespace kvgauge {

// Where texts begin, and where the last one ends: n + 1 places of n texts that follow each other
// from the prompt's first token on. Empty: there is none. `context` and `passages` are those of
// ReusePrefill. The prompt's last row belongs to no text unless `context` ends there and tokens of
// the stage follow.
std::vector<int64_t> TextEdges(const Reuse& stage, int64_t prompt_tokens, int64_t context,
                               std::span<const int64_t> passages);

// Whether the stage can put its tokens between so many texts of a model with that vocabulary.
// `owner` names the stage in the message.
Status CheckLinks(std::string_view owner, const Reuse& stage, int64_t texts, int64_t vocab_size);

// How many tokens it puts there; none where there are more texts than it has tokens for.
int64_t LinkTokens(const StageChoice& reuse, int64_t prompt_tokens, int64_t context,
                   std::span<const int64_t> passages);
// The prompt with these tokens, as the model reads it: edges are those of TextEdges.
std::vector<int32_t> LinkedIds(const LinkedReuse& stage, std::span<const int32_t> ids,
                               std::span<const int64_t> edges);
// What the model reads of a prompt behind which a cache stands: the prompt, and what the method put
// between its texts.
std::vector<int32_t> IdsRead(const Method& method, std::span<const int32_t> ids, int64_t context,
                             std::span<const int64_t> passages);
// The most that a method puts into any prompt, for the plan of a run.
int64_t MostLinkTokens(const Method& method);

}  // namespace kvgauge
