// SPDX-License-Identifier: Apache-2.0
// NExT-QA's score of an open answer.
#pragma once

#include "metrics/nltk_lemmas.h"

namespace kvgauge::metrics::wups {

// Over the lemmas that `language` finds; without it over words between white space. WordNet is
// WordNet::Shared().
Result<double> NextQaScore(const MetricInput& input, const nltk::Language* language);

}  // namespace kvgauge::metrics::wups
