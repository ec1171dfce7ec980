// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadOlmoe(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.eos = {50279}, .pad = 1}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.qk_norm = true;
  config.qk_norm_kind = QkNorm::kWidth;
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  for (LayerConfig& layer : config.layers) layer.moe = true;
  MoeConfig moe = ReadExpertSizes(
      reader, {.default_experts = 64, .default_per_token = 8, .ffn = "intermediate_size"}, config);
  ReadRenormalize(reader, moe);
  config.moe = moe;
  CheckLayerTypes(reader, config);
  if (reader.Has("clip_qkv")) {
    reader.Fail("clip_qkv", "null: no published model of this family clips queries and keys");
  }
  reader.Ignore({"router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(olmoe, {.title = "OLMoE",
                         .notes = "mixture of experts; queries and keys normed over all heads",
                         .read = ReadOlmoe})

}  // namespace kvgauge
