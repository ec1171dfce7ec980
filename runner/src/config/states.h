// SPDX-License-Identifier: Apache-2.0
// Parts that readers of families with layers of constant state share.
#pragma once

#include <string_view>

#include "src/config/common.h"

namespace kvgauge {

// Which layers keep a state: those that layer_types calls `state`, else all but every
// `interval`-th; the others are full attention. A model without a cache is a fault, since every
// method is about one.
void ReadStateLayers(ConfigReader& reader, std::string_view state, int64_t interval,
                     ModelConfig& config);

// Qwen's hybrids but for their MLP: gated delta nets, stored as `kind` says, and in every
// full_attention_interval-th layer gated attention of which a quarter of each head turns.
void ReadQwenHybrid(ConfigReader& reader, StateConfig::Kind kind, int64_t kv_heads,
                    RopeRules::Sections sections, ModelConfig& config);

// Mamba-2's, under the names that Bamba and Granite 4 have for them. Precondition: the hidden size
// is read.
StateConfig ReadMamba2(ConfigReader& reader, const ModelConfig& config);

}  // namespace kvgauge
