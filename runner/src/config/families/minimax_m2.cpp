// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// The first files say how many dims of a head turn, later ones which part.
double ReadTurningPart(ConfigReader& reader, const ModelConfig& config) {
  const int64_t dim = reader.Int("rotary_dim", config.key_dim, 2, kMostHeadDim);
  if (dim > config.key_dim) {
    reader.Fail("rotary_dim", StrCat("at most head_dim (", config.key_dim, ")"));
    return 1.0;
  }
  return static_cast<double>(dim) / static_cast<double>(config.key_dim);
}

void ReadMinimaxM2(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.mixture = "block_sparse_moe";
  names.correction = "e_score_correction_bias";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  ReadSizes(reader, SizeKeys{}, 196608, config);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 200034, .eos = {200020}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qk_norm = true;
  config.qk_norm_kind = QkNorm::kWidth;
  const double part = ReadTurningPart(reader, config);
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .part = part, .theta = 5000000.0},
           config);
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "num_local_experts",
                                   .default_experts = 256,
                                   .default_per_token = 8,
                                   .ffn = "intermediate_size",
                                   .default_ffn = 1536},
                                  config);
  moe.sigmoid = true;
  RenormalizeExperts(reader, moe);
  config.moe = moe;
  for (LayerConfig& layer : config.layers) layer.moe = true;
  CheckLayerTypes(reader, config);
  reader.Refuse("sliding_window", "this family has full attention only, expected null");
  for (const int64_t type : reader.IntOrInts("attn_type_list", 0, 1)) {
    if (type != 1) reader.Fail("attn_type_list", "1 in each layer: others are no attention");
  }
  reader.Neutral("use_qk_norm", true);
  reader.Neutral("qk_norm_type", std::string_view("per_layer"));
  reader.Neutral("use_routing_bias", true);
  reader.Neutral("scoring_func", std::string_view("sigmoid"));
  reader.Neutral("shared_intermediate_size", int64_t{0});
  // Layers that predict further tokens are in no published file.
  reader.Ignore({"use_mtp", "num_mtp_modules", "mtp_transformer_layers", "mlp_intermediate_size",
                 "shared_moe_mode", "router_jitter_noise", "router_aux_loss_coef",
                 "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(minimax_m2,
                 {.title = "MiniMax-M2",
                  .notes = "mixture of experts chosen by corrected sigmoids; queries and keys "
                           "normed over all heads; half of each head turns",
                  .read = ReadMinimaxM2})

}  // namespace kvgauge
