// SPDX-License-Identifier: Apache-2.0
// One reader per family, each in the file of that name. They fill every field that differs from
// ModelConfig's defaults and take every key the family may have.
#pragma once

#include "runner/config.h"
#include "src/config/config_reader.h"

namespace kvgauge {

void ReadLlama(ConfigReader& reader, ModelConfig& config);
void ReadMistral(ConfigReader& reader, ModelConfig& config);
void ReadQwen2(ConfigReader& reader, ModelConfig& config);
void ReadQwen3(ConfigReader& reader, ModelConfig& config);
void ReadPhi3(ConfigReader& reader, ModelConfig& config);
void ReadGemma2(ConfigReader& reader, ModelConfig& config);
void ReadOpt(ConfigReader& reader, ModelConfig& config);
void ReadDeepseekV2(ConfigReader& reader, ModelConfig& config);

}  // namespace kvgauge
