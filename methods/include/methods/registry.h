// SPDX-License-Identifier: Apache-2.0
// All stages of the program. Each registers itself from its own file; read-only once main starts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "methods/attend.h"
#include "methods/calibration_table.h"
#include "methods/reuse.h"
#include "methods/see.h"
#include "methods/stages.h"
#include "methods/thin.h"

namespace kvgauge {

class Calibrator;

enum class StageKind {
  kPrepare,
  kSee,
  kAttend,
  kReuse,
  kThin,
  kScore,
  kAllocate,
  kReduce,
  kStore,
  kRead,
  kTrigger
};

std::string_view NameOf(StageKind kind);  // "prepare", "score", ...

struct StageSpec {
  StageKind kind = StageKind::kScore;
  std::string id = {};     // the file's stem
  int version = 1;         // raised whenever its output would change; part of every cell's key
  std::string paper = {};  // "arXiv:2404.14469", or empty for a plain building block
  std::string summary = {};
  // every known difference from the reference implementation
  std::vector<std::string> departures = {};
  std::string bytes = {};  // formula of the bytes it adds to the cache, or empty
  std::vector<ParamSpec> params = {};
  std::function<std::unique_ptr<Stage>(const Params&)> make = {};
  // All that it takes of heads is what the view or the shape of a layer says, so that layers may
  // have heads of several sizes (ModelShape::heads).
  bool goes_by_layer = false;
  // Set if the stage can learn from text (methods/calibration.h): makes the calibrator for texts of
  // these lengths in tokens; and the parameters on which its result depends. Such a stage has a
  // parameter "calibration", the side-file.
  std::unique_ptr<Calibrator> (*calibrate)(const Params&, const ModelShape&,
                                           std::span<const int64_t> lengths) = nullptr;
  std::vector<std::string> calibrated_params = {};
  // Set if a side-file can be made of weights that authors publish: from the tensors of their file,
  // by name. Such a stage has that parameter, too.
  std::function<Result<CalibrationTables>(const CalibrationTables& published)> import = {};
  // In its place, where the side-file also depends on the model's own weights. Matrices are only
  // read.
  std::function<Result<CalibrationTables>(const CalibrationTables& published, WeightView& weights)>
      import_with = {};
  bool imports() const { return import != nullptr || import_with != nullptr; }
  // The SHA-256 of the plugin that it came from (methods/plugin.h), part of every cell's key.
  // LoadPlugin sets it; empty: a stage of the program itself.
  std::string plugin = {};
};

inline constexpr const char* kCalibrationParam = "calibration";
ParamSpec CalibrationParam();

std::string NameOf(const StageSpec& spec);  // "score.snapkv"

// Why this is no complete stage of an id that is still free; empty: it may be registered.
std::string FaultOf(const StageSpec& spec);

// A stage that FaultOf finds wanting aborts at the start.
struct StageRegistrar {
  explicit StageRegistrar(StageSpec spec);
};

// Makes a stage of type T from its parameters.
template <class T>
std::function<std::unique_ptr<Stage>(const Params&)> Make() {
  return [](const Params& params) { return std::make_unique<T>(params); };
}

// Sorted by kind, then id.
std::vector<const StageSpec*> AllStages();
// An unknown id is an error that suggests similar ones.
Result<const StageSpec*> FindStage(StageKind kind, std::string_view id);

}  // namespace kvgauge

// In namespace kvgauge, in an unnamed one. The sources of a plugin are compiled with KVG_PLUGIN:
// the stage is registered by LoadPlugin then, and not while the shared object is being loaded.
#ifdef KVG_PLUGIN
#include "methods/plugin.h"
#define KVG_REGISTER_STAGE(...)                                              \
  const ::kvgauge::PluginStage KVG_CONCAT_(kvg_plugin_stage_, __COUNTER__) { \
    []() -> ::kvgauge::StageSpec { return __VA_ARGS__; }                     \
  }
#else
#define KVG_REGISTER_STAGE(...) \
  const StageRegistrar KVG_CONCAT_(kvg_stage_registrar_, __COUNTER__) { __VA_ARGS__ }
#endif
