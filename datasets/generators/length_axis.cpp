// SPDX-License-Identifier: Apache-2.0
#include "generators/length_axis.h"

namespace kvgauge {

Result<LengthAxis> ReadLengthAxis(std::string_view owner, const Params& params, const Json& task,
                                  const TaskOptions& options, Lengths lengths, int64_t new_tokens) {
  LengthAxis axis;
  if (lengths == Lengths::kRequired || !params.Text("lengths").empty()) {
    KVG_ASSIGN(axis.lengths, ParseInts(params, "lengths", owner, 1, 100'000'000));
    KVG_ASSIGN(axis.counter, TokenCounter::Create(options.codec, owner));
  }
  axis.new_tokens = NewTokens(task, new_tokens);
  axis.seed = options.seed;
  return axis;
}

}  // namespace kvgauge
