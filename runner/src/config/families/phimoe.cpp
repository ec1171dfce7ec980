// SPDX-License-Identifier: Apache-2.0
// Phi-3.5-MoE, Phi-mini-MoE, Phi-tiny-MoE.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadPhimoe(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.mixture = "block_sparse_moe";
  config.tensor_names.expert_gate = "w1";
  config.tensor_names.expert_up = "w3";
  config.tensor_names.expert_down = "w2";
  ReadSizes(reader, "intermediate_size", 4096 * 32, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-5, config);
  config.norm = NormKind::kLayer;
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.head_bias = reader.Bool("lm_head_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .mscales = true, .theta = 1e6}, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 0);
  for (LayerConfig& layer : config.layers) {
    layer.window = window;
    layer.moe = true;
  }
  CheckLayerTypes(reader, config);
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "num_local_experts",
                                   .default_experts = 16,
                                   .default_per_token = 2,
                                   .ffn = "intermediate_size"},
                                  config);
  if (moe.experts_per_token != 2) {
    reader.Fail("num_experts_per_tok", "2: this family's router takes two, one after the other");
  }
  moe.in_turn = true;
  moe.tolerance = 2 * reader.Real("router_jitter_noise", 0.01, 0.0, 1e6);
  config.moe = moe;
  reader.Neutral("mlp_bias", false);
  // Jitter of inputs is for training alone.
  reader.Ignore({"router_aux_loss_coef", "output_router_logits", "input_jitter_noise"});
}

}  // namespace

KVG_MODEL_FAMILY(phimoe,
                 {.title = "Phi-3.5-MoE, Phi-mini-MoE, Phi-tiny-MoE",
                  .notes = "mixture of experts, two taken one after the other (SparseMixer-2); "
                           "LayerNorms and biases; longrope",
                  .read = ReadPhimoe})

}  // namespace kvgauge
