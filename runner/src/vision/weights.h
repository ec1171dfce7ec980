// SPDX-License-Identifier: Apache-2.0
// The weights of eyes as the forward pass uses them, and its working memory.
#pragma once

#include <array>
#include <vector>

#include "runner/vision.h"
#include "src/model/weights_set.h"

namespace kvgauge {

struct VisionBlock {
  Norm attention_norm, mlp_norm, q_norm, k_norm, attention_scale, mlp_scale;
  Linear qkv, output, up, down;
};

struct MergerWeights {
  Norm norm;
  Linear first, second;
};

enum class VisionSlot {
  kPatches,   // [rows, 3 * frames * patch * patch]
  kResidual,  // [rows, width]
  kNormed,
  kProjected,  // q, k and v
  kAttended,
  kLogSumExp,  // [heads, rows]
  kReceived,   // [heads * rows]
  kSeen,       // rows of the tower's width on their way to a stage, or back
  kBranch,
  kUp,
  kActivated,
  kIndex,
  kPositions,
  kFrequencies,
  kCos,
  kSin,
  kFeatures,  // [rows without class tokens, width * layers that are read]
  kMerged,
  kInner,
  kOutput,  // [rows of the text model, hidden_size]
  kOrdered,
  kCount,
};

struct VisionWeights {
  Linear patch;
  // What is added to the rows of a tile before the first block: places, the class token and the
  // bias of the patches. [rows of a tile, width]; empty: nothing, or it depends on the picture.
  Buffer tile_memory;
  Tensor tile_rows;
  std::vector<float> places;      // kInterpolated: [place_side * place_side, width]
  std::vector<float> patch_bias;  // kInterpolated: [width], or empty
  Norm pre_norm, post_norm;
  std::vector<VisionBlock> blocks;
  MergerWeights projector;
  std::vector<MergerWeights> deepstack;
  Buffer newline_memory;
  Tensor newline;  // [hidden_size], or empty

  std::array<Buffer, static_cast<size_t>(VisionSlot::kCount)> scratch;
};

}  // namespace kvgauge
