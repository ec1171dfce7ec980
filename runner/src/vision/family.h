// SPDX-License-Identifier: Apache-2.0
// A family of models that see: what one model_type of config.json means.
//
// Each family is one file in src/vision/families, named after its model_type, that ends in
// KVG_VISION_FAMILY. The build lists the files of that folder, so adding one edits no list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runner/vision_spec.h"
#include "src/config/config_reader.h"

namespace kvgauge {

// Names under a part's prefix. "#" stands for the number of a block. Weights and biases add
// ".weight" and ".bias"; names with a dot at the end are the tensor itself, without it.
struct TowerNames {
  std::string_view patch;
  std::string_view class_token = "", places = "";
  std::string_view pre_norm = "", post_norm = "";
  std::string_view attention_norm, mlp_norm;
  std::vector<std::string_view> qkv;
  std::string_view q_norm = "", k_norm = "";
  std::string_view output;
  std::vector<std::string_view> up;
  std::string_view down;
  std::string_view attention_scale = "", mlp_scale = "";
  bool leading_one = false;  // the class token and the places begin with dimensions of 1
};

struct ProjectorNames {
  std::string_view norm = "", first, second = "";
  std::string_view deepstack = "";  // before these three, "#" for the place in the list
  std::string_view deepstack_norm = "", deepstack_first = "", deepstack_second = "";
};

// The parts of a checkpoint that belong to the eyes, each with the prefixes that it is stored
// under; a file uses one of them.
struct VisionNames {
  std::vector<std::string_view> tower_prefixes;
  TowerNames tower;
  std::vector<std::string_view> projector_prefixes;  // empty: the tower's
  ProjectorNames projector;
  std::vector<std::string_view> newline = {};  // whole names
};

struct VisionFamily {
  std::string_view title;
  // Fills every field that differs from VisionSpec's defaults. `top` is the whole config.
  void (*read)(ConfigReader& top, ConfigReader& tower, VisionSpec& spec);
  // `spec`: as `read` left it.
  const VisionNames& (*names)(const VisionSpec& spec);
};

// Null when the model_type is no family that sees.
const VisionFamily* FindVisionFamily(std::string_view model_type);

}  // namespace kvgauge

// KVG_VISION_FAMILY(model_type, {.title = ..., .read = ...}) in namespace kvgauge; `model_type` is
// the file's stem.
#define KVG_VISION_FAMILY(model_type, ...) \
  VisionFamily VisionFamilyOf_##model_type() { return __VA_ARGS__; }
