// SPDX-License-Identifier: Apache-2.0
// The words of an English sentence, as Penn Treebank's rules part them: NLTK's, and those of an
// older NLTK that the package pywsd keeps.
#pragma once

#include <vector>

#include "metrics/text.h"

namespace kvgauge::metrics::nltk {

// NLTK 3.10.4's NLTKWordTokenizer, which word_tokenize calls for each sentence.
std::vector<Text> NltkWords(TextView sentence);
// pywsd 1.2.5's TreebankWordTokenizer.
std::vector<Text> PywsdWords(TextView sentence);

}  // namespace kvgauge::metrics::nltk
