// SPDX-License-Identifier: Apache-2.0
// Porter's stemmer with NLTK's extensions, its default mode.
#pragma once

#include "metrics/text.h"

namespace kvgauge::metrics {

// `word` in lower case.
Text PorterStem(TextView word);

}  // namespace kvgauge::metrics
