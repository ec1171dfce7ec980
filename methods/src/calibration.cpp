// SPDX-License-Identifier: Apache-2.0
#include "methods/calibration.h"

#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "methods/directions.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

std::string ShapeText(std::span<const int64_t> shape) {
  std::vector<std::string> dims;
  for (const int64_t d : shape) dims.push_back(StrCat(d));
  return StrCat("[", Join(dims, ", "), "]");
}

std::string Short(std::string_view fingerprint) { return std::string(fingerprint.substr(0, 12)); }

// "" where the stage has no such parameter.
std::string DirectoryIn(const StageChoice& choice, std::string_view name) {
  const std::vector<ParamSpec>& params = choice.spec->params;
  const bool has = std::ranges::find(params, name, &ParamSpec::name) != params.end();
  return has ? choice.params.Text(name) : "";
}

// Tables whose name says what they hold, whatever the stage: directions are orthonormal, and what
// lies along them is no negative number. Whether a table has the model's shape is for the stage.
Status CheckDirections(const Calibration& calibration) {
  for (const auto& entry : calibration.tables) {
    const std::string& name = entry.first;
    const auto& table = entry.second;
    const auto named = [&](std::string_view what) { return name.find(what) != std::string::npos; };
    const std::string owner = StrCat(calibration.path, ": table '", name, "'");
    const size_t rank = table.shape.size();
    if ((named("directions") || named(".basis.")) && rank >= 2 &&
        table.shape[rank - 2] == table.shape[rank - 1]) {
      KVG_TRY(CheckOrthogonal(owner, table.values, table.shape[rank - 1]));
    }
    if (!named(".energy") && !named(".variances.")) continue;
    for (size_t i = 0; i < table.values.size(); ++i) {
      if (table.values[i] >= 0) continue;
      return BadInput(
          StrCat(owner, ": number ", i, " is ", table.values[i], "; expected 0 or more"));
    }
  }
  return {};
}

}  // namespace

Result<Tensor> Calibration::Find(std::string_view name, std::span<const int64_t> shape) const {
  const auto found = tables.find(name);
  if (found == tables.end()) {
    return BadInput(StrCat(path, ": has no table '", name, "'; this model needs one of shape ",
                           ShapeText(shape)));
  }
  const Table& table = found->second;
  if (!std::equal(shape.begin(), shape.end(), table.shape.begin(), table.shape.end())) {
    return BadInput(StrCat(path, ": table '", name, "' has shape ", ShapeText(table.shape),
                           ", this model needs ", ShapeText(shape)));
  }
  Tensor view = View(table.values, {static_cast<int64_t>(table.values.size())});
  return shape.size() == 2 ? view.Reshape({shape[0], shape[1]}) : view;
}

std::string CalibratedParams(const StageChoice& choice) {
  const Json all = choice.params.ToJson();
  Json some = Json::object();
  for (const std::string& name : choice.spec->calibrated_params) some[name] = all[name];
  return CanonicalJson(some);
}

std::string CalibrationPath(const StageChoice& choice) {
  const bool takes_file = choice.spec->calibrate != nullptr || choice.spec->imports();
  return takes_file ? choice.params.Text(kCalibrationParam) : "";
}

std::string DraftModelPath(const StageChoice& choice) {
  std::string named = DirectoryIn(choice, kDraftModelParam);
  return named == kOwnDraft ? "" : named;
}

std::string TaggerPath(const StageChoice& choice) { return DirectoryIn(choice, kTaggerParam); }

Status AttachCalibration(StageChoice& choice, std::shared_ptr<const Calibration> calibration) {
  const StageSpec& spec = *choice.spec;
  const std::string owner = NameOf(spec);
  if (calibration->stage != owner) {
    return BadInput(StrCat(calibration->path, ": was made for ", calibration->stage, ", not for ",
                           owner, "; make one with `kvgauge calibrate`"));
  }
  if (calibration->stage_version != spec.version) {
    return BadInput(StrCat(calibration->path, ": was made for version ", calibration->stage_version,
                           " of ", owner, ", this is version ", spec.version,
                           "; make it again with `kvgauge calibrate`"));
  }
  const std::string params = CalibratedParams(choice);
  if (calibration->params != params) {
    return BadInput(StrCat(calibration->path, ": was made for ", owner, " with ",
                           calibration->params, ", the method has ", params,
                           "; make one with these values, or set those"));
  }
  const Status directions = CheckDirections(*calibration);
  if (!directions.ok()) return directions.error().Wrap(owner);
  choice.calibration = std::move(calibration);
  return {};
}

Status CheckCalibrations(const Method& method, std::string_view model) {
  for (const StageChoice* choice : method.stages()) {
    if (choice->calibration == nullptr || choice->calibration->model == model) continue;
    const Calibration& calibration = *choice->calibration;
    return BadInput(StrCat("method ", method.id, ": ", NameOf(*choice->spec), ": ",
                           calibration.path, " was made on model ", calibration.model_name, " (",
                           Short(calibration.model), "), and this model is ", Short(model),
                           "; make one on it with `kvgauge calibrate`"));
  }
  return {};
}

}  // namespace kvgauge
