// SPDX-License-Identifier: Apache-2.0
// The pictures of samples as a model sees them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "datasets/sample.h"
#include "images/decode.h"
#include "images/preprocess.h"
#include "runner/config.h"
#include "runner/visual_prompt.h"

namespace kvgauge {

// Counts what the pictures of samples become for one model, from their headers: nothing is decoded.
// The model's configuration is read when the first picture comes, so text tasks never need it.
class SampleEyes {
 public:
  // Both outlive it. `model`: the checkpoint's directory, or a file in it.
  SampleEyes(std::string model, const ModelConfig& config)
      : model_(std::move(model)), config_(config) {}

  // Reads what the sample's pictures need of the model, once. Pictures for a text model are an
  // error.
  Status Open(const Sample& sample);
  // One for each picture, in order. Opens. A picture whose header cannot be read is an error that
  // names the sample and the picture.
  Result<std::vector<ShownVisual>> Look(const Sample& sample);

  // Pixels of the sample that was looked at last, before the tower sees them.
  int64_t pixel_bytes() const { return pixel_bytes_; }
  // Rows of hidden states that its pictures run as: of all, and of the largest.
  int64_t tower_rows() const { return tower_rows_; }
  int64_t most_tower_rows() const { return most_tower_rows_; }
  // Once open: null before.
  const VisionSpec* spec() const { return spec_ ? &*spec_ : nullptr; }
  const Preprocessor* preprocessor() const { return preprocessor_ ? &*preprocessor_ : nullptr; }

 private:
  std::string model_;
  const ModelConfig& config_;
  std::optional<VisionSpec> spec_;
  std::optional<Preprocessor> preprocessor_;
  int64_t pixel_bytes_ = 0, tower_rows_ = 0, most_tower_rows_ = 0;
  std::unordered_map<std::string, ImageSize> sizes_;  // by the picture's hash
};

// How the model's pictures are made: what of its files can move a score. Part of the signature of
// tasks with pictures.
Result<Json> PicturesProtocol(const std::string& model);

// What of a sample is pictures.
struct VisualCounts {
  // Frames: of its videos, whether the model is shown them as pictures or as the times of a video.
  int64_t images = 0, frames = 0;
  int64_t tokens = 0;  // of the prompts, all questions together

  bool operator==(const VisualCounts&) const = default;
};
// `shown`: one for each of the pictures.
VisualCounts CountVisuals(std::span<const Picture> pictures, std::span<const ShownVisual> shown);
// Rows of the prompts, all questions together.
int64_t CountVisualRows(std::span<const ShownVisual> shown);
// Bytes of so many rows of pictures, as SampleVisuals holds them.
int64_t VisualRowBytes(const VisionSpec& spec, int64_t rows);

}  // namespace kvgauge
