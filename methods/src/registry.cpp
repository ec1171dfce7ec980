// SPDX-License-Identifier: Apache-2.0
#include "methods/registry.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/near_names.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

using Key = std::pair<StageKind, std::string>;

// A function static: registrars run before main in no known order.
std::map<Key, StageSpec>& Stages() {
  static std::map<Key, StageSpec> stages;
  return stages;
}

}  // namespace

ParamSpec CalibrationParam() {
  return ChoiceParam(kCalibrationParam, "", {},
                     "side-file that `kvgauge calibrate` made on this model; none: does without");
}

std::string_view NameOf(StageKind kind) {
  switch (kind) {
    case StageKind::kPrepare:
      return "prepare";
    case StageKind::kScore:
      return "score";
    case StageKind::kAllocate:
      return "allocate";
    case StageKind::kReduce:
      return "reduce";
    case StageKind::kStore:
      return "store";
    case StageKind::kRead:
      return "read";
    case StageKind::kTrigger:
      return "trigger";
  }
  return "";
}

std::string NameOf(const StageSpec& spec) { return StrCat(NameOf(spec.kind), ".", spec.id); }

StageRegistrar::StageRegistrar(StageSpec spec) {
  Key key(spec.kind, spec.id);
  const std::string name = NameOf(spec);
  KVG_CHECK(!spec.id.empty() && spec.make != nullptr, StrCat("incomplete stage: ", name));
  const bool takes_file =
      std::any_of(spec.params.begin(), spec.params.end(),
                  [](const ParamSpec& param) { return param.name == kCalibrationParam; });
  KVG_CHECK((spec.calibrate != nullptr) == takes_file,
            StrCat("a parameter \"calibration\" and what makes one go together: ", name));
  const bool fresh = Stages().emplace(std::move(key), std::move(spec)).second;
  KVG_CHECK(fresh, StrCat("registered twice: ", name));
}

std::vector<const StageSpec*> AllStages() {
  std::vector<const StageSpec*> list;
  for (const auto& [key, spec] : Stages()) list.push_back(&spec);
  return list;
}

Result<const StageSpec*> FindStage(StageKind kind, std::string_view id) {
  const auto found = Stages().find(Key(kind, std::string(id)));
  if (found != Stages().end()) return &found->second;
  std::vector<std::string> known;
  for (const auto& [key, spec] : Stages()) {
    if (key.first == kind) known.push_back(key.second);
  }
  return BadInput(StrCat("unknown ", NameOf(kind), " stage ", Quoted(id),
                         DidYouMeanOneOf(id, known), "; 'kvgauge methods --stages' lists all"));
}

}  // namespace kvgauge
