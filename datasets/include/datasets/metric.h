// SPDX-License-Identifier: Apache-2.0
// A metric: (prediction, answers) -> a score in [0, 1], as the reference package computes it,
// its quirks included. Every metric has an id, a version and a golden file made by that package.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct MetricInput {
  std::string prediction = {};
  std::vector<std::string> answers = {};
  std::vector<std::string> all_classes = {};
  std::string language = "en";
  std::string kind = {};   // of the question, where one conversation mixes several; Question::kind
  std::string group = {};  // of the questions that count together, MetricSpec::of_group
};

struct MetricSpec {
  std::string name;  // "qa_f1", "rouge_l", "edit_similarity", ...
  int version = 1;   // raised whenever a score would move
  std::string description;
  std::string reference;  // the package and version it is equal to
  // Files it needs (WordNet, a dictionary) are looked for in its own documented places; their
  // absence is an error that says how to get them.
  std::function<Result<double>(const MetricInput& input)> score;
  // Only where the score of a set is not the mean of its samples' scores (corpus BLEU): what one
  // sample adds to a sum of vectors, all of one size, and the score of that sum. Both or neither.
  std::function<Result<std::vector<double>>(const MetricInput& input)> parts = {};
  std::function<double(const std::vector<double>& sums)> combine = {};
  bool lower_is_better = false;
  // Only where several questions count together (all rotations of one, both of a picture): their
  // score, of those of each. The score of a set is the mean over groups. Not with `parts`.
  std::function<double(const std::vector<double>& scores)> of_group = {};
  // Only with `of_group`, where a part of a line's id names its group (HallusionBench's figures);
  // else the line says which it is. An error where the id has no such part.
  std::function<Result<std::string>(const std::string& id)> group_of = {};
  // Only where a sample has no score of its own, because words are weighed by all of the set
  // (CIDEr). `score` is an error then: a run keeps answers, and `kvgauge score` reads them.
  std::function<double(std::span<const MetricInput> set)> of_set = {};
  // Only where files that can be left out move scores: what these stand on now, "" without the
  // files. A part of what a run is known by, and of what `kvgauge score` prints.
  std::function<Result<std::string>()> basis = {};
  // Only where equal answers are spelled in several ways: one spelling of them, for votes.
  std::function<std::string(const std::string& answer)> canonical = {};
};

// The score of a set of samples: the mean, or what the metric makes of the sums. Sums are taken in
// the order of Add, so the same order gives the same bits.
class SetScore {
 public:
  explicit SetScore(const MetricSpec& metric) : metric_(&metric) {}

  // The sample's own score; 0 of a metric with `of_set`. After an error the set is as it was
  // before.
  Result<double> Add(const MetricInput& input);
  int64_t count() const { return count_; }
  // `scale` times the score, 0 for an empty set. A mean is scaled before it is divided, as the
  // published code that rounds percentages does: the last digit can depend on it.
  double Value(double scale = 1) const;

 private:
  const MetricSpec* metric_;
  int64_t count_ = 0;
  double sum_ = 0;
  std::vector<double> sums_;
  std::map<std::string, std::vector<double>> groups_;  // of MetricInput::group, with of_group
  std::vector<MetricInput> set_;                       // with of_set
};

// Stateless and safe to call from several threads.
const MetricSpec* FindMetric(const std::string& name);
std::vector<const MetricSpec*> ListMetrics();  // sorted by name
// The metric's direction, of kPerplexityMetric too. False of an id that is not known.
bool LowerIsBetter(const std::string& metric);

struct MetricRegistrar {
  explicit MetricRegistrar(MetricSpec spec);
};
#define KVG_REGISTER_METRIC(tag, ...) \
  static const ::kvgauge::MetricRegistrar kvg_metric_registrar_##tag(__VA_ARGS__)

}  // namespace kvgauge
