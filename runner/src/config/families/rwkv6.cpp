// SPDX-License-Identifier: Apache-2.0
// RWKV-6 (Finch), as flash-linear-attention lays it out: a model without a cache.
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadRwkv6(ConfigReader& reader, ModelConfig& config) {
  const double eps = ReadLaidOutRwkv(reader, 3.5, config);
  config.mlp_weighed = true;
  StateConfig state = {.kind = StateConfig::Kind::kRwkv6};
  state.heads = state.key_heads = reader.Int("num_heads", 4, 1, kMostHeads);
  state.key_dim = ReadExpandedDim(reader, "expand_k", 0.5, state.heads, config);
  state.value_dim = ReadExpandedDim(reader, "expand_v", 1.0, state.heads, config);
  state.conv_width = 2;
  state.mixed_columns = state.mlp_columns = config.hidden_size;
  state.mix_rank = reader.Int("proj_low_rank_dim", 32, 1, kMostHidden);
  state.decay_rank = reader.Int("gate_low_rank_dim", 64, 1, kMostHidden);
  state.part_norm_eps = static_cast<float>(eps);
  config.state = state;
}

}  // namespace

KVG_MODEL_FAMILY(rwkv6, {.title = "RWKV-6",
                         .notes = "no cache: every layer keeps a state of constant size, whose "
                                  "rows decay as each token says; method full alone, as a baseline",
                         .read = ReadRwkv6})

}  // namespace kvgauge
