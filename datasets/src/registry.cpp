// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

// Function statics: registrars run before main in no known order.
std::map<std::string, SourceSpec>& Sources() {
  static std::map<std::string, SourceSpec> sources;
  return sources;
}

std::map<std::string, MetricSpec>& Metrics() {
  static std::map<std::string, MetricSpec> metrics;
  return metrics;
}

template <class Spec>
const Spec* Find(const std::map<std::string, Spec>& specs, const std::string& name) {
  const auto found = specs.find(name);
  return found == specs.end() ? nullptr : &found->second;
}

template <class Spec>
std::vector<const Spec*> List(const std::map<std::string, Spec>& specs) {
  std::vector<const Spec*> list;
  list.reserve(specs.size());
  for (const auto& [name, spec] : specs) list.push_back(&spec);
  return list;
}

template <class Spec>
void Register(std::map<std::string, Spec>& specs, Spec spec) {
  const std::string name = spec.name;
  const bool fresh = specs.emplace(name, std::move(spec)).second;
  KVG_CHECK(fresh, StrCat("registered twice: ", name));
}

}  // namespace

SourceRegistrar::SourceRegistrar(SourceSpec spec) { Register(Sources(), std::move(spec)); }
MetricRegistrar::MetricRegistrar(MetricSpec spec) {
  KVG_CHECK(static_cast<bool>(spec.parts) == static_cast<bool>(spec.combine), spec.name);
  Register(Metrics(), std::move(spec));
}

const SourceSpec* FindSource(const std::string& name) { return Find(Sources(), name); }
const MetricSpec* FindMetric(const std::string& name) { return Find(Metrics(), name); }
std::vector<const SourceSpec*> ListSources() { return List(Sources()); }
std::vector<const MetricSpec*> ListMetrics() { return List(Metrics()); }

}  // namespace kvgauge
