// SPDX-License-Identifier: Apache-2.0
// A metric: (prediction, answers) -> a score in [0, 1], as the reference package computes it,
// its quirks included. Every metric has an id, a version and a golden file made by that package.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct MetricInput {
  std::string prediction;
  std::vector<std::string> answers;
  std::vector<std::string> all_classes;
  std::string language = "en";
};

struct MetricSpec {
  std::string name;  // "qa_f1", "rouge_l", "edit_similarity", ...
  int version = 1;   // raised whenever a score would move
  std::string description;
  std::string reference;  // the package and version it is equal to
  // Files it needs (WordNet, a dictionary) are looked for in its own documented places; their
  // absence is an error that says how to get them.
  std::function<Result<double>(const MetricInput& input)> score;
};

// Stateless and safe to call from several threads.
const MetricSpec* FindMetric(const std::string& name);
std::vector<const MetricSpec*> ListMetrics();  // sorted by name

struct MetricRegistrar {
  explicit MetricRegistrar(MetricSpec spec);
};
#define KVG_REGISTER_METRIC(tag, ...) \
  static const ::kvgauge::MetricRegistrar kvg_metric_registrar_##tag(__VA_ARGS__)

}  // namespace kvgauge
