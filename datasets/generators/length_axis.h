// SPDX-License-Identifier: Apache-2.0
// The parameters that generators which work to a length in tokens have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "generators/generator.h"
#include "generators/length_control.h"

namespace kvgauge {

// A generator's setup derives from it.
struct LengthAxis {
  std::vector<int64_t> lengths;  // tokens; empty: the generator's own units count
  TokenCounter counter;          // usable only if there are lengths
  int64_t new_tokens = 0;        // of an answer
  uint64_t seed = 0;
};

enum class Lengths {
  kRequired,
  kOptional,  // an empty "lengths" stands for sizes in the generator's own units
};

// Reads "lengths", and "max_new_tokens" of the task, which is `new_tokens` otherwise. Lengths need
// the codec of `options`; `owner` begins the messages.
Result<LengthAxis> ReadLengthAxis(std::string_view owner, const Params& params, const Json& task,
                                  const TaskOptions& options, Lengths lengths, int64_t new_tokens);

// The samples `make(setup, index)` for index 0, 1, ..., of which there are `total`.
template <class Setup>
std::unique_ptr<SampleStream> StreamOf(Setup setup, int64_t total, const TaskOptions& options,
                                       Result<Sample> (*make)(const Setup& setup, int64_t index)) {
  return MakeStream(total, options,
                    [setup = std::move(setup), make](int64_t index) { return make(setup, index); });
}

}  // namespace kvgauge
