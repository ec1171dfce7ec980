// SPDX-License-Identifier: Apache-2.0
// A model family: what one model_type of config.json means.
//
// Each family is one file in src/config/families, named after its model_type, that ends in
// KVG_MODEL_FAMILY. The build lists the files of that folder, so adding one edits no list.
#pragma once

#include <string_view>

#include "runner/config.h"
#include "src/config/config_reader.h"

namespace kvgauge {

struct FamilySpec {
  std::string_view title;       // "Qwen2, Qwen2.5"
  std::string_view notes = "";  // what is peculiar to it, for docs/families.md
  // Where it cannot be the file's stem.
  std::string_view model_type = "";
  // Fills every field that differs from ModelConfig's defaults and takes every key that the
  // family's config may have. General keys (ReadGeneralKeys) are read before.
  void (*read)(ConfigReader& reader, ModelConfig& config);
};

}  // namespace kvgauge

// KVG_MODEL_FAMILY(model_type, {.title = ..., .read = ...}) in namespace kvgauge; `model_type` is
// the file's stem.
#define KVG_MODEL_FAMILY(model_type, ...) \
  FamilySpec FamilyOf_##model_type() { return __VA_ARGS__; }
