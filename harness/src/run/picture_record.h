// SPDX-License-Identifier: Apache-2.0
// What is recorded of the pictures of a sample, for people to look at: small copies of what the
// model's tower saw, and which of their rows a cache holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/image.h"
#include "core/result.h"
#include "datasets/sample.h"
#include "images/preprocess.h"
#include "reports/store_rows.h"
#include "runner/engine.h"
#include "runner/kv_cache.h"
#include "runner/vision_spec.h"

namespace kvgauge {

// The longer side of a small copy, at most.
inline constexpr int32_t kThumbnailSide = 128;

// Small copies are made while a run has the pictures decoded: a store then shows what was run,
// whatever becomes of the data. `hash`: of the picture's content.
Result<std::shared_ptr<const PictureRow>> MakeThumbnail(const Image& image, const SeenPart& part,
                                                        const std::string& hash);

// A picture as it was seen.
struct SeenPicture {
  const VisualLayout* layout = nullptr;
  std::shared_ptr<const PictureRow> thumbnail;
};
// What the sample's first prompt shows. `seen`: one for each of its pictures. Pictures of later
// questions are left out, because nothing tells where their rows stood once a cell has ended. Those
// of the first one are left out too where each question is asked by itself.
std::shared_ptr<const SightRow> MakeSight(const Sample& sample, std::span<const SeenPicture> seen);

// For each position of the first prompt the cell of the sight's grids that it shows; -1: none, as
// of text, of ends of lines, and behind the last picture, where the list ends.
std::vector<int64_t> CellsOfPositions(const EngineSample& tokens, const SightRow& sight);
// SampleRow::patches of a cache at the end of a cell. `tokens`: as the engine ran them; `sight` was
// made of the same sample.
std::string KeptPatches(const KvCache& cache, const EngineSample& tokens, const SightRow& sight);

}  // namespace kvgauge
