// SPDX-License-Identifier: Apache-2.0
// The text part of a vision-language checkpoint: an ordinary config inside another one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "runner/config.h"

namespace kvgauge {

// Whether the config's model_type is that of a vision-language model.
bool HasTextPart(const Json& json);
std::vector<std::string> VisionFamilyNames();

// What the text part's reader needs: the nested text_config, or the flat keys of old Qwen2-VL
// files, with the class's defaults for what the file leaves out. Keys of the tower and its
// projector are left to the tower's own reader.
struct TextPart {
  Json json;
  std::string scope;  // "text_config.", or "" where the keys are flat
  // Where the file does not say whether the head is tied.
  bool tied_by_default = false;
  std::string vision_family;
  VisualIds ids;
};
Result<TextPart> ReadTextPart(const Json& json, const std::string& origin);

// A vocabulary that is given twice is given alike.
Status CheckTextPart(const Json& json, const std::string& origin, const ModelConfig& config);

}  // namespace kvgauge
