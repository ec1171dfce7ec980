// SPDX-License-Identifier: Apache-2.0
#include "methods/registry.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/near_names.h"
#include "core/strings.h"
#include "methods/draft_model.h"
#include "methods/token_tagger.h"

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

ParamSpec DraftModelParam() {
  return ChoiceParam(kDraftModelParam, "", {},
                     "directory of a smaller checkpoint with the same tokenizer; self: the model "
                     "that is measured, with its full cache");
}

ParamSpec TaggerParam() {
  return ChoiceParam(kTaggerParam, "", {},
                     "directory of the trained encoder: a token classifier of two classes (BERT or "
                     "XLM-RoBERTa) with its own tokenizer");
}

std::string TokenTagger::Mark(int64_t index) { return StrCat("[NEW", index, "]"); }

std::string_view NameOf(StageKind kind) {
  switch (kind) {
    case StageKind::kPrepare:
      return "prepare";
    case StageKind::kSee:
      return "see";
    case StageKind::kAttend:
      return "attend";
    case StageKind::kReuse:
      return "reuse";
    case StageKind::kThin:
      return "thin";
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

std::string FaultOf(const StageSpec& spec) {
  const std::string name = NameOf(spec);
  if (spec.id.empty() || spec.make == nullptr) return StrCat("incomplete stage: ", name);
  const bool takes_file =
      std::any_of(spec.params.begin(), spec.params.end(),
                  [](const ParamSpec& param) { return param.name == kCalibrationParam; });
  if ((spec.calibrate != nullptr || spec.imports()) != takes_file) {
    return StrCat("a parameter \"calibration\" and what makes one go together: ", name);
  }
  const auto found = Stages().find(Key(spec.kind, spec.id));
  if (found == Stages().end()) return "";
  return StrCat("registered twice: ", name,
                found->second.plugin.empty() ? "; the program has a stage of that id"
                                             : "; another plugin has a stage of that id");
}

StageRegistrar::StageRegistrar(StageSpec spec) {
  const std::string fault = FaultOf(spec);
  KVG_CHECK(fault.empty(), fault);
  Key key(spec.kind, spec.id);
  Stages().emplace(std::move(key), std::move(spec));
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
                         DidYouMeanOneOf(id, known),
                         "; 'kvgauge methods --stages' lists all, and --plugin FILE adds others"));
}

}  // namespace kvgauge
