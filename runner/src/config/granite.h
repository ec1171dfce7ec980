// SPDX-License-Identifier: Apache-2.0
// What the families of Granite share.
#pragma once

#include "src/config/common.h"

namespace kvgauge {

// Multipliers of embeddings, of what layers add, of attention and of logits.
void ReadGraniteMultipliers(ConfigReader& reader, ModelConfig& config);

// What those with experts have in common, but for experts and how positions turn.
void ReadGraniteSparse(ConfigReader& reader, ModelConfig& config);

// Experts of every layer, whose projections are stored together, beside a shared MLP where
// `shared_ffn_size` is above 0.
void ReadGraniteExperts(ConfigReader& reader, int64_t shared_ffn_size, ModelConfig& config);

}  // namespace kvgauge
