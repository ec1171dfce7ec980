// SPDX-License-Identifier: Apache-2.0
#include "src/config/family.h"
#include "src/config/granite.h"

namespace kvgauge {
namespace {

void ReadGraniteMoe(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, SizeKeys{}, 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  ReadGraniteMultipliers(reader, config);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  ReadGraniteExperts(reader, 0, config);
  reader.Ignore({"output_router_logits", "router_aux_loss_coef"});
}

}  // namespace

KVG_MODEL_FAMILY(granitemoe, {.title = "Granite 3 MoE",
                              .notes = "multipliers as granite; mixture of experts",
                              .read = ReadGraniteMoe})

}  // namespace kvgauge
