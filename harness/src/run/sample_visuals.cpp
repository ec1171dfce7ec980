// SPDX-License-Identifier: Apache-2.0
#include "src/run/sample_visuals.h"

#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/model/visual_input.h"

namespace kvgauge {
namespace {

std::string DirectoryOf(const std::string& model) {
  if (DirectoryExists(model)) return model;
  return std::filesystem::path(model).parent_path().string();
}

Result<ImageSize> SizeOfPicture(const Picture& picture) {
  KVG_ASSIGN(const std::string bytes, picture.load());
  return ReadImageSize(bytes, picture.name);
}

int64_t PixelBytes(const PixelValues& shape, const TowerSpec& tower) {
  int64_t numbers = int64_t{3} * shape.tiles * shape.height * shape.width;
  if (shape.grid[0] != 0) {
    const int64_t patches = int64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
    numbers = patches * 3 * tower.frames * tower.patch * tower.patch;
  }
  return numbers * 4;
}

}  // namespace

Status SampleEyes::Open(const Sample& sample) {
  if (sample.pictures.empty() || preprocessor_) return {};
  KVG_ASSIGN(spec_, ReadVisionConfig(model_));
  if (!spec_ || config_.vision_family.empty()) {
    return BadInput(StrCat(config_.path, ": ", config_.family,
                           " is a text model, but the task shows pictures; expected a "
                           "vision-language model"));
  }
  KVG_ASSIGN(preprocessor_, ReadPicturePreprocessor(DirectoryOf(model_)));
  return {};
}

Result<std::vector<ShownVisual>> SampleEyes::Look(const Sample& sample) {
  KVG_TRY(Open(sample));
  const std::string in_sample = StrCat("sample ", sample.id);
  std::vector<ShownVisual> shown;
  pixel_bytes_ = tower_rows_ = most_tower_rows_ = 0;
  for (const Picture& picture : sample.pictures) {
    auto known = sizes_.find(picture.hash);
    if (known == sizes_.end()) {
      const Result<ImageSize> size = SizeOfPicture(picture);
      if (!size.ok()) return size.error().Wrap(in_sample);
      known = sizes_.emplace(picture.hash, *size).first;
    }
    const ImageSize& size = known->second;
    const Result<PixelValues> shape =
        ShapeOfPixels(*preprocessor_, size.height, size.width, std::ssize(sample.pictures));
    if (!shape.ok()) return shape.error().Wrap(picture.name).Wrap(in_sample);
    Result<VisualLayout> layout = LayOutVisual(*spec_, *shape, Modality::kImage);
    if (!layout.ok()) return layout.error().Wrap(picture.name).Wrap(in_sample);
    pixel_bytes_ += PixelBytes(*shape, spec_->tower);
    const int64_t rows = TowerRows(*spec_, *shape);
    tower_rows_ += rows;
    most_tower_rows_ = std::max(most_tower_rows_, rows);
    shown.push_back({.modality = Modality::kImage, .layout = *std::move(layout)});
  }
  return shown;
}

Result<Json> PicturesProtocol(const std::string& model) {
  const std::string path = DirectoryOf(model) + "/preprocessor_config.json";
  KVG_ASSIGN(const Json config, ReadJsonFile(path));
  return Json{{"preprocessor", Sha256Hex(CanonicalJson(config))}, {"source", "original"}};
}

VisualCounts CountVisuals(std::span<const Picture> pictures, std::span<const ShownVisual> shown) {
  KVG_CHECK(pictures.size() == shown.size(), "not every picture is shown");
  VisualCounts counts;
  counts.tokens = CountVisualRows(shown);
  for (size_t i = 0; i < shown.size(); ++i) {
    const ShownVisual& visual = shown[i];
    if (visual.modality != Modality::kVideo) {
      (pictures[i].frame < 0 ? counts.images : counts.frames) += 1;
      continue;
    }
    for (const VisualBlock& block : visual.layout.blocks) {
      if (block.kind == VisualBlock::Kind::kVideo) counts.frames += block.grid[0];
    }
  }
  return counts;
}

int64_t CountVisualRows(std::span<const ShownVisual> shown) {
  int64_t rows = 0;
  for (const ShownVisual& visual : shown) rows += visual.layout.rows;
  return rows;
}

int64_t VisualRowBytes(const VisionSpec& spec, int64_t rows) {
  return rows * spec.hidden_size * (1 + std::ssize(spec.deepstack)) * 4;
}

}  // namespace kvgauge
