// SPDX-License-Identifier: Apache-2.0
// The eyes of a model: pixels to rows that take the place of token embeddings.
//
// One interpreter for every family of VisionSpec. Hidden states are f32 whatever the weights are;
// products round their input to the weights' dtype, as in Model. A picture's rows do not depend on
// the pictures that are encoded with it; they stay in the memory of the tower's backend. One thread
// drives a tower.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/block_products.h"
#include "kernels/ops.h"
#include "methods/see.h"
#include "runner/vision_spec.h"
#include "runner/visual_rows.h"
#include "runner/weights.h"

namespace kvgauge {

// What a picture or a video became.
struct VisualFeatures {
  VisualLayout layout;
  // Those of the layout, of the text model's width; with as many for each of VisionSpec::deepstack.
  VisualRows rows;
  // Where a stage took rows out: the place in the layout of each row that is left, in the order of
  // the prompt; SeenRow::kNowhere: none. Empty: rows are those of the layout.
  std::vector<int32_t> places = {};
  bool gone = false;  // a stage took all of it out

  int64_t count() const {
    if (gone) return 0;
    return places.empty() ? layout.rows : std::ssize(places);
  }
};

// What a stage of SeeNeeds::frames leaves of the visuals of a prompt, in their order. Frames are
// those of a video, and pictures that are frames: visual i is one of the video `video_of[i]`, or of
// none where that is negative. Frames of one video are asked about together as far as they stand
// one behind the other and are alike in shape. A visual that stays whole is the one that came.
// `memory`: of the backend that has their rows. Too little room there is an error.
Result<std::vector<std::shared_ptr<const VisualFeatures>>> JoinFrames(
    const See& see, std::span<const std::shared_ptr<const VisualFeatures>> visuals,
    std::span<const int32_t> video_of, MemoryOps& memory);

// What a stage that reduces pictures may know of such eyes.
EyesShape ShapeOfEyes(const VisionSpec& spec);

// Hidden states of the blocks, for tests and for stages that choose among rows.
struct VisionTrace {
  // [0]: what enters the first block; [i]: the output of block i. Each [rows, width], the rows of
  // all pictures one after the other: tile after tile with its class token first, or patches in
  // the order of the pixels.
  std::vector<std::vector<float>> hidden;
};

struct VisionOptions {
  // The dtype of stored weights and of the inputs of products; unset: the checkpoint's.
  std::optional<DType> dtype;
  // Set: no weights are read; a tower of the config's shape is drawn from this seed.
  std::optional<uint64_t> random_seed;
  // Keeps what SeeNeeds::behind asks for as well, where there is such a block.
  bool behind = false;
  // The rows that matrices are multiplied by. A tower has no kInt8.
  ProductRows product_rows = ProductRows::kRounded;
};

// The tensors that a tower and its projector need under the names that `source` has them by; an
// error where it mixes spellings of one part.
Result<std::vector<TensorSpec>> ExpectedVisionTensors(const VisionSpec& spec,
                                                      const WeightSource& source);
// The same under the names that the hub's files have.
std::vector<TensorSpec> ExpectedVisionTensors(const VisionSpec& spec);
// The weights of a tower and its projector, as they will be held.
int64_t VisionWeightBytes(const VisionSpec& spec, DType dtype);
// Whether a checkpoint's tensor is one of the eyes', needed or not; all others are the text
// model's.
bool IsVisionTensor(const VisionSpec& spec, std::string_view name);
// Checks names, shapes and types without reading the weights: missing, misshapen and unknown
// tensors of the eyes, and mixed spellings, are errors that name the tensor and its file.
Status CheckVisionWeights(const VisionSpec& spec, const WeightSource& source);

struct VisionWeights;  // as the tower uses them

class VisionTower {
 public:
  // `directory` holds config.json and, unless random, the weights. A model without eyes, what
  // CheckVisionWeights refuses and non-finite weights are errors.
  static Result<std::unique_ptr<VisionTower>> Load(const std::string& directory,
                                                   const VisionOptions& options, Ops& ops);
  static Result<std::unique_ptr<VisionTower>> Load(VisionSpec spec, const WeightSource& source,
                                                   DType dtype, Ops& ops, bool behind = false,
                                                   ProductRows rows = ProductRows::kRounded);
  ~VisionTower();

  const VisionSpec& spec() const { return spec_; }
  DType dtype() const { return dtype_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  // Working memory that passes left, for those to come.
  int64_t scratch_bytes() const;
  void DropScratch();
  MemoryOps& memory() const { return *ops_->memory; }

  // The rows of each picture or video, all of one modality. Pixels that the tower cannot take are
  // an error, and then nothing is encoded. `trace`: see there.
  // `see` reduces each picture; what it needs must be there (ShapeOfEyes, VisionOptions::behind).
  // `seeds`: one for each picture, or none.
  Result<std::vector<VisualFeatures>> Encode(std::span<const PixelValues> pictures,
                                             Modality modality, VisionTrace* trace = nullptr,
                                             const See* see = nullptr,
                                             std::span<const uint64_t> seeds = {});

  // The most rows of hidden states that run as one batch; a larger picture runs alone.
  static constexpr int64_t kBatchRows = 8192;

 private:
  VisionTower(VisionSpec spec, DType dtype, Ops& ops);

  VisionSpec spec_;
  DType dtype_;
  Ops* ops_;
  int64_t weight_bytes_ = 0;
  std::unique_ptr<VisionWeights> weights_;
};

// A bound of VisionTower::scratch_bytes, known from headers: of batches of up to so many rows of
// hidden states. `sees`: a stage looks at the tower. What a pass gives back when it ends (pages of
// a block's keys and values, rows for later text layers) is not counted: no prompt is read
// meanwhile.
int64_t VisionScratchBytes(const VisionSpec& spec, DType dtype, int64_t rows, bool sees);

}  // namespace kvgauge
