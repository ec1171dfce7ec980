// SPDX-License-Identifier: Apache-2.0
// What the readers of DeepSeek-V2 and V3 share.
#pragma once

#include "src/config/common.h"

namespace kvgauge {

// Sizes where no file says them. A value_dim of 0 is the hidden size by the heads.
struct LatentDefaults {
  int64_t q_lora_rank = 1536, kv_lora_rank = 512, nope_dim = 128, rope_dim = 64, value_dim = 128;
};

// Sizes of heads and latents.
void ReadLatentAttention(ConfigReader& reader, const LatentDefaults& defaults, ModelConfig& config);

// The scale of attention. Precondition: heads and rope are read.
void ReadLatentScale(ConfigReader& reader, ModelConfig& config);

// How pairs side by side turn, and the scale of attention. Precondition: heads are read.
void ReadLatentRope(ConfigReader& reader, ModelConfig& config);

// Sizes of experts, shared ones, and which layers are mixtures; dense_layers where no file says
// it.
MoeConfig ReadDeepseekExperts(ConfigReader& reader, const ExpertKeys& keys, int64_t shared,
                              int64_t dense_layers, ModelConfig& config);

}  // namespace kvgauge
