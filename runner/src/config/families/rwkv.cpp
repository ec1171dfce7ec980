// SPDX-License-Identifier: Apache-2.0
// RWKV-4: a model without a cache.
#include <algorithm>

#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadRwkv(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.body = "rwkv.";
  names.embedding = "embeddings";
  names.embedding_norm = "blocks.0.pre_ln";
  names.layers = "blocks";
  names.input_norm = "ln1";
  names.mlp_norm = "ln2";
  names.final_norm = "ln_out";
  names.head = "head";
  names.state = "attention";
  names.mlp = "feed_forward";
  names.down = "value";
  // Nothing in it knows a position: this is how much it was trained on.
  ReadSizes(reader, SizeKeys{.max_position = "context_length"}, 1024, config);
  const int64_t hidden = config.hidden_size;
  config.ffn_size = reader.Int("intermediate_size", 4 * hidden, 1, kMostFfn);
  if (reader.Int("attention_hidden_size", hidden, 1, kMostHidden) != hidden) {
    reader.Fail("attention_hidden_size", StrCat("the hidden size (", hidden, ")"));
  }
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadTokenIds(reader, {.bos = 0, .eos = {0}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  // 0 or less: never.
  const int64_t every = reader.Int("rescale_every", 6, -kMostLayers, kMostLayers);
  config.halve_every = std::max<int64_t>(every, 0);
  config.norm = NormKind::kLayer;
  config.embedding_norm = true;
  ReadMixedMlp(config);
  config.mlp_weighed = true;
  StateConfig state = {.kind = StateConfig::Kind::kRwkv4};
  state.heads = hidden;
  state.key_heads = state.value_dim = 1;
  state.key_dim = 3;  // a sum, its weight, and what both are multiples of
  state.conv_width = 2;
  state.mixed_columns = state.mlp_columns = hidden;
  config.state = state;
}

}  // namespace

KVG_MODEL_FAMILY(rwkv, {.title = "RWKV-4",
                        .notes = "no cache: every layer keeps averages in time of constant size; "
                                 "method full alone, as a baseline",
                        .read = ReadRwkv})

}  // namespace kvgauge
