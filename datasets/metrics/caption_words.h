// SPDX-License-Identifier: Apache-2.0
// The words of a caption, as pycocoevalcap counts them: those of Stanford's PTBTokenizer in lower
// case, without its punctuation. Equal to it on captions as people and models write them; rare
// forms (smileys, fractions with signs of their own, markup) may part otherwise.
#pragma once

#include <vector>

#include "metrics/text.h"

namespace kvgauge::metrics {

std::vector<Text> CaptionWords(TextView caption);

}  // namespace kvgauge::metrics
