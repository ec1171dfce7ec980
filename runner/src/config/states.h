// SPDX-License-Identifier: Apache-2.0
// Parts that readers of families with layers of constant state share.
#pragma once

#include <string_view>

#include "src/config/common.h"

namespace kvgauge {

// Which layers keep a state instead of a cache: those that layer_types calls `state`, else all but
// every `interval`-th; the others are full attention, of which there must be one.
void ReadStateLayers(ConfigReader& reader, std::string_view state, int64_t interval,
                     ModelConfig& config);

// All layers keep a state, and none of them attends: a model without a cache.
void ReadStatesAlone(bool mlp, ModelConfig& config);

// RWKV: an MLP of squared ReLUs whose rows are mixed with those before them, in every layer.
void ReadMixedMlp(ModelConfig& config);

// RWKV as flash-linear-attention lays it out, but for what attention is elsewhere: names, sizes,
// norms and the MLP, `ratio` times as wide as the residual where a file does not say. What it gives
// is the epsilon of norms, before it is rounded.
double ReadLaidOutRwkv(ConfigReader& reader, double ratio, ModelConfig& config);

// flash-linear-attention: columns of a head under a key that says how many times the hidden size
// all heads have together.
int64_t ReadExpandedDim(ConfigReader& reader, std::string_view key, double fallback, int64_t heads,
                        const ModelConfig& config);

// Qwen's hybrids but for their MLP: gated delta nets, stored as `kind` says, and in every
// full_attention_interval-th layer gated attention of which a quarter of each head turns.
void ReadQwenHybrid(ConfigReader& reader, StateConfig::Kind kind, int64_t kv_heads,
                    RopeRules::Sections sections, ModelConfig& config);

// Mamba-2's, under the names that Bamba, Granite 4 and Falcon-H1 have for them, and what absent
// keys mean. Precondition: the hidden size is read.
struct Mamba2Keys {
  std::string_view heads = "mamba_n_heads", head_dim = "mamba_d_head", groups = "mamba_n_groups";
  std::string_view state = "mamba_d_state", conv = "mamba_d_conv", conv_bias = "mamba_conv_bias";
  std::string_view bias = "mamba_proj_bias", expand = "mamba_expand", chunk = "mamba_chunk_size";
  std::string_view width = "";  // of all heads' columns, where the hidden size does not say
  bool heads_say = false;       // how many columns there are, whatever `expand` says
  int64_t default_width = 0, default_head_dim = 0;  // 0: what the others make it
  int64_t default_state = 256, default_groups = 1;
};
StateConfig ReadMamba2(ConfigReader& reader, const Mamba2Keys& keys, const ModelConfig& config);

// Mamba-1's. `width` columns; rank "auto" is a sixteenth of the hidden size.
struct Mamba1Keys {
  std::string_view state = "mamba_d_state", conv = "mamba_d_conv", conv_bias = "mamba_conv_bias";
  std::string_view bias = "mamba_proj_bias", rank = "mamba_dt_rank";
};
StateConfig ReadMamba1(ConfigReader& reader, const Mamba1Keys& keys, int64_t width,
                       const ModelConfig& config);
// The files of models that are nothing but Mamba: names, sizes, norms, tokens.
void ReadMambaParts(ConfigReader& reader, bool tied, int64_t default_bos, int64_t default_eos,
                    int64_t default_pad, ModelConfig& config);
// Mamba-1 alone, of so many columns.
StateConfig ReadMamba1Alone(ConfigReader& reader, int64_t width, const ModelConfig& config);

}  // namespace kvgauge
