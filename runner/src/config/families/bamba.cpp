// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadBamba(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.final_norm = "final_layernorm";
  config.tensor_names.mlp_norm = "pre_ff_layernorm";
  config.tensor_names.mlp = "feed_forward";
  config.tensor_names.state = "mamba";
  ReadSizes(reader, "intermediate_size", 262144, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 0}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .part = 0.5}, config);
  const std::vector<int64_t> attending =
      reader.IntOrInts("attn_layer_indices", 0, std::ssize(config.layers) - 1);
  for (int64_t i = 0; i < std::ssize(config.layers); ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.attends = std::ranges::find(attending, i) != attending.end();
    layer.state = !layer.attends;
  }
  if (reader.ok() && attending.empty()) {
    reader.Fail("attn_layer_indices",
                "at least one layer that attends: without one this hybrid has no cache");
  }
  config.state = ReadMamba2(reader, {}, config);
  reader.Ignore({"num_logits_to_keep", "z_loss_coefficient"});
}

}  // namespace

KVG_MODEL_FAMILY(bamba, {.title = "Bamba",
                         .notes = "Mamba-2 layers, which keep a state of constant size, around a "
                                  "few that attend; half of each head turns",
                         .read = ReadBamba})

}  // namespace kvgauge
