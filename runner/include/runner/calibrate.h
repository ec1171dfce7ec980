// SPDX-License-Identifier: Apache-2.0
// Calibrations: made by running a model over texts, and read back from their side-files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "methods/calibration.h"
#include "methods/method.h"
#include "runner/model.h"

namespace kvgauge {

// Prefills each text alone, as often as the stage's calibrator requires, and shows the calibrator
// every layer. Earlier stages have already changed the model. `on_text` is called after each
// prefill. The result is equal for equal model, texts and backend. Precondition:
// choice.spec->calibrate, CheckMethod; no text is empty.
Result<Calibration::Tables> Calibrate(
    Model& model, const StageChoice& choice, std::span<const std::vector<int32_t>> texts,
    const std::function<void(int pass, int64_t text)>& on_text = nullptr);

// The tensors of a file that authors publish, by name, as f32: .safetensors; .tsv, whose rows of
// numbers are the table "values"; or .json of MInference's best patterns, a table of each pattern.
Result<Calibration::Tables> ReadPublished(const std::string& path);

// Keys of a side-file's metadata.
inline constexpr const char* kCalibrationFormat = "kvgauge_calibration";  // "1"
inline constexpr const char* kCalibrationStage = "stage";
inline constexpr const char* kCalibrationStageVersion = "stage_version";
inline constexpr const char* kCalibrationParams = "params";
inline constexpr const char* kCalibrationModel = "model";
inline constexpr const char* kCalibrationModelName = "model_name";

// Reads a side-file whole: a safetensors file of f32 tables whose metadata says what it is.
Result<std::shared_ptr<const Calibration>> ReadCalibration(const std::string& path);

}  // namespace kvgauge
