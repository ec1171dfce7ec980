// SPDX-License-Identifier: Apache-2.0
// Edit similarity.
#include "metrics/sequence.h"
#include "metrics/text.h"

namespace kvgauge::metrics::edit {
namespace {

double EditSimilarity(TextView prediction, TextView answer) {
  const size_t longest = std::max(prediction.size(), answer.size());
  if (longest == 0) return 1;
  return 1 - static_cast<double>(EditDistance(prediction, answer)) / static_cast<double>(longest);
}

}  // namespace

KVG_REGISTER_METRIC(edit_similarity, {"edit_similarity", 1,
                                      "1 - Levenshtein distance / longer length, in characters",
                                      "definition", BestOf(EditSimilarity)});
}  // namespace kvgauge::metrics::edit
