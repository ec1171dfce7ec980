// SPDX-License-Identifier: Apache-2.0
// Which tensors eyes need, under which names, of which shapes. The loader reads exactly these;
// random weights draw exactly these.
#pragma once

#include <string>
#include <vector>

#include "runner/vision.h"
#include "src/model/model_tensors.h"
#include "src/vision/family.h"

namespace kvgauge {

struct VisionBlockTensors {
  NormSpec attention_norm, mlp_norm;
  LinearSpec qkv, output, up, down;
  NormSpec q_norm, k_norm;              // over all heads; weights only
  NormSpec attention_scale, mlp_scale;  // of what a branch adds; weights only
};

// Norm, linear, linear, as far as a projector has them.
struct MergerTensors {
  NormSpec norm;
  LinearSpec first, second;
};

struct VisionTensors {
  LinearSpec patch;  // its bias, where there is one, joins the places
  TensorSpec patch_bias, class_token, places;
  NormSpec pre_norm, post_norm;
  std::vector<VisionBlockTensors> blocks;
  MergerTensors projector;
  std::vector<MergerTensors> deepstack;
  TensorSpec newline;
};

// The prefixes of one checkpoint.
struct VisionSpelling {
  std::string tower, projector, newline;
};
// The first of each part's: what the hub's files have.
VisionSpelling FirstSpelling(const VisionSpec& spec);
// What a checkpoint has; an error where it has several of one part.
Result<VisionSpelling> SpellingOf(const VisionSpec& spec, const WeightSource& source);

// With `blocks` blocks.
VisionTensors DescribeVision(const VisionSpec& spec, const VisionSpelling& spelling,
                             int64_t blocks);
// Every tensor once, in the order of the forward pass.
std::vector<TensorSpec> ListVisionTensors(const VisionTensors& tensors);

}  // namespace kvgauge
