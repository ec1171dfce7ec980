// SPDX-License-Identifier: Apache-2.0
// LooGLE's cloze: several masked names in one answer, scored over all masks of the set.
#include "core/json.h"
#include "metrics/text.h"
#include "src/python_literal.h"

namespace kvgauge::metrics::cloze {
namespace {

constexpr const char* kReference =
    "LooGLE automatic_metrics.py, commit 6734382; an output that is no plain literal fits nothing";

bool Equal(const std::string& got, const std::string& want) { return got == want; }

bool ShareAWord(const std::string& got, const std::string& want) {
  const std::vector<Text> words = SplitSpace(Decode(got));
  for (const Text& word : SplitSpace(Decode(want))) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
  }
  return false;
}

using Fits = bool (*)(const std::string& got, const std::string& want);

// Masks that fit, and masks. The answer is a JSON object of texts; the prediction a dictionary as
// Python writes it.
Result<std::vector<double>> Masks(const MetricInput& input, Fits fits) {
  const Result<Json> answer =
      input.answers.size() == 1 ? ParseJson(input.answers[0], "answer") : Json();
  if (!answer.ok() || !answer->is_object() || answer->empty()) {
    return BadInput("a cloze has one answer, a JSON object such as {\"<mask-0>\": \"Bob\"}");
  }
  std::vector<double> parts = {0, static_cast<double>(answer->size())};
  const Result<Json> prediction = ParsePythonLiteral(input.prediction);
  if (!prediction.ok() || !prediction->is_object()) return parts;
  for (const auto& [mask, want] : answer->items()) {
    if (!want.is_string())
      return BadInput("a cloze's answer maps masks to texts; the value of \"" + mask +
                      "\" is not a text");
    const auto got = prediction->find(mask);
    if (got == prediction->end() || !got->is_string()) continue;
    if (fits(got->get<std::string>(), want.get<std::string>())) ++parts[0];
  }
  return parts;
}

double Share(const std::vector<double>& sums) { return sums[1] > 0 ? sums[0] / sums[1] : 0; }

MetricSpec Cloze(const char* name, const char* description, Fits fits) {
  return {name,
          1,
          description,
          kReference,
          [fits](const MetricInput& input) -> Result<double> {
            KVG_ASSIGN(const std::vector<double> parts, Masks(input, fits));
            return Share(parts);
          },
          [fits](const MetricInput& input) { return Masks(input, fits); },
          Share};
}

}  // namespace

KVG_REGISTER_METRIC(loogle_cloze_exact,
                    Cloze("loogle_cloze_exact", "share of all masks whose text is right", Equal));
KVG_REGISTER_METRIC(loogle_cloze_partial,
                    Cloze("loogle_cloze_partial", "share of all masks with a word in common",
                          ShareAWord));

}  // namespace kvgauge::metrics::cloze
