// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadMixtral(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.mixture = "block_sparse_moe";
  config.tensor_names.expert_gate = "w1";
  config.tensor_names.expert_up = "w3";
  config.tensor_names.expert_down = "w2";
  ReadSizes(reader, "intermediate_size", 4096 * 32, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadRope(reader, {.head_dim = config.key_dim, .theta = 1e6}, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 0);
  for (LayerConfig& layer : config.layers) {
    layer.window = window;
    layer.moe = true;
  }
  CheckLayerTypes(reader, config);
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "num_local_experts",
                                   .default_experts = 8,
                                   .default_per_token = 2,
                                   .ffn = "intermediate_size"},
                                  config);
  moe.renormalize = true;
  if (moe.experts_per_token == 1) {
    reader.Fail("num_experts_per_tok", "at least 2: their weights are made to sum to 1");
  }
  config.moe = moe;
  reader.Ignore({"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"});
}

}  // namespace

KVG_MODEL_FAMILY(mixtral, {.title = "Mixtral", .notes = "mixture of experts", .read = ReadMixtral})

}  // namespace kvgauge
