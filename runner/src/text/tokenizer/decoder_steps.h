// SPDX-License-Identifier: Apache-2.0
// The stages a running decode is made of.
#pragma once

#include <memory>
#include <string>

#include "src/text/tokenizer/decoder.h"

namespace kvgauge {

// `fused`: the input is one text in stretches, not tokens.
std::unique_ptr<DecodeStep> MakeDecodeStep(const DecoderStep& step, bool fused);
// Gathers stretches into one token, for steps that must see it whole.
std::unique_ptr<DecodeStep> MakeGatherStep();
std::unique_ptr<DecodeStep> MakeJoinStep();
std::unique_ptr<DecodeStep> MakeCleanUpStep();

// What clean_up_tokenization_spaces does to a whole text.
std::string CleanUpSpaces(std::string text);

}  // namespace kvgauge
