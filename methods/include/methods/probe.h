// SPDX-License-Identifier: Apache-2.0
// A second look at a prompt: tokens that run behind it on a fork of its cache, to see which entries
// they attend to. The fork is thrown away; its time is the method's own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// Rows of a probe attend over the whole prompt and the probe's rows before them. What is measured
// is their attention over some entries alone, as if there were no others: the first `sinks`, those
// of tokens [begin, end), and the probe's own up to the row. sinks <= begin <= end <= the prompt.
struct Probe {
  std::vector<int32_t> ids;  // negative ones, those of pictures, are left out
  int64_t sinks = 0;
  int64_t begin = 0, end = 0;
  // A row counts by one over the length of what it brings to the layer's attention.
  bool over_input_length = false;
};

// The ids of a text, without special tokens. Fails where the tokenizer does.
using TextEncoder = std::function<Result<std::vector<int32_t>>(std::string_view)>;

// What a scorer makes probes from.
struct ProbeInput {
  std::span<const int32_t> prompt;  // the tokens of the prompt; -1 where pictures are shown
  TextEncoder encode;
  // What the stage's draft model answers: Scorer::AnswerTokens of them at most.
  std::span<const int32_t> answer = {};
};

}  // namespace kvgauge
