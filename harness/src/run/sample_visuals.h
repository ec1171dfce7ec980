// SPDX-License-Identifier: Apache-2.0
// The pictures of samples as a model sees them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/result.h"
#include "datasets/sample.h"
#include "images/preprocess.h"
#include "runner/config.h"
#include "src/model/visual_input.h"

namespace kvgauge {

// Decodes and preprocesses the pictures of samples for one model. Its configuration is read when
// the first picture comes, so text tasks never need it.
class SampleEyes {
 public:
  // Both outlive it. `model`: the checkpoint's directory, or a file in it.
  SampleEyes(std::string model, const ModelConfig& config)
      : model_(std::move(model)), config_(config) {}

  // Empty for a sample without pictures. Pictures for a text model are an error, and so is a
  // picture that cannot be read: it names the picture.
  Result<VisualInput> Look(const Sample& sample);

 private:
  std::string model_;
  const ModelConfig& config_;
  std::optional<VisionSpec> spec_;
  std::optional<Preprocessor> preprocessor_;
};

// How the model's pictures are made: what of its files can move a score. Part of the signature of
// tasks with pictures.
Result<Json> PicturesProtocol(const std::string& model);

}  // namespace kvgauge
