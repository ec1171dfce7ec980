// SPDX-License-Identifier: Apache-2.0
// What the metrics of questions about pictures share: VLMEvalKit's normal form of an answer.
#pragma once

#include <optional>
#include <vector>

#include "metrics/text.h"

namespace kvgauge::metrics {

// Each sign is taken out of the whole text where it touches a blank anywhere, or where thousands
// are written with commas; else it becomes a blank. Full stops go, 32 at most, but before digits.
Text WithoutSigns(TextView given);

// Which number words become digits.
enum class NumberWords {
  kToTen,     // "none" is 0
  kToNinety,  // "none" stays
};
// Lower-case words without signs and articles, numbers as digits, contractions with apostrophes.
Text NormalAnswer(TextView given, NumberWords numbers = NumberWords::kToTen);

// VLMEvalKit's letter of an answer without a judge; 'Z' is a refusal.
std::optional<char32_t> OptionLetterOf(TextView prediction, const std::vector<Text>& letters);

// The word yes or no where only one of them is there, else "unknown".
Text YesOrNoOf(TextView prediction);

}  // namespace kvgauge::metrics
