// SPDX-License-Identifier: Apache-2.0
// What RULER's tasks share: the rule for lengths and the shape of a sample.
//
// A length counts the prompt with its answer prefix and the new tokens, without BOS;
// "reserve_tokens" stands for the chat template, which the data do not know.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/length_control.h"
#include "generators/prose.h"

namespace kvgauge {

struct RulerText {
  std::string context;
  Question question;
  std::vector<Mark> marks;
};

struct RulerSetup : LengthAxis {
  std::string owner;
  int64_t samples = 0;  // per length
  int64_t reserve = 0;
  std::shared_ptr<Haystack> prose;  // to fill with; null: lengths are whole units, as upstream's

  int64_t total() const { return samples * static_cast<int64_t>(lengths.size()); }
  int64_t length_of(int64_t index) const { return lengths[static_cast<size_t>(index / samples)]; }
  // Tokens the text of sample `index` may have.
  int64_t budget(int64_t index) const { return length_of(index) - new_tokens - reserve; }
};

// "lengths", "samples", "reserve_tokens" and "fill".
std::vector<ParamSpec> RulerParams(std::vector<ParamSpec> more);
Result<RulerSetup> ReadRulerSetup(std::string_view owner, const Params& params, const Json& task,
                                  const TaskOptions& options, int64_t new_tokens);

// Behind `frame`, a line of its own, as much prose as is needed.
Tail ProseTail(const RulerSetup& setup, int64_t index, std::string frame);
// The grass, whose last line may be a part of it.
Tail GrassTail(const RulerSetup& setup);

// The text with as many units as fit, and where lengths are to be filled `tail` behind its context.
Result<Sample> FitRulerSample(const RulerSetup& setup, int64_t index, int64_t least, int64_t most,
                              Tail tail, const std::function<RulerText(int64_t units)>& build);
std::string WholeText(const RulerText& text);
// For texts that were fitted elsewhere; `tokens` is exact.
Sample RulerSample(const RulerSetup& setup, int64_t index, RulerText text, int64_t tokens);

inline constexpr std::string_view kGrass =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

}  // namespace kvgauge
