// SPDX-License-Identifier: Apache-2.0
// MiniCPM 1B and 2B, in the files of the authors' code.
#include <cmath>
#include <iterator>

#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadMinicpm(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  config.embedding_multiplier = ReadMultiplier(reader, "scale_emb", 1.0);
  config.residual_multiplier = ReadMultiplier(reader, "scale_depth", 1.0) /
                               std::sqrt(static_cast<float>(std::ssize(config.layers)));
  config.logit_multiplier =
      ReadMultiplier(reader, "dim_model_base", 1.0) / static_cast<float>(config.hidden_size);
  CheckLayerTypes(reader, config);
  reader.Neutral("num_experts", int64_t{0});
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Refuse("sparse_config", "attention that reads some blocks only is not implemented");
}

}  // namespace

KVG_MODEL_FAMILY(minicpm, {.title = "MiniCPM 1B, 2B",
                           .notes = "multipliers of embeddings, of what layers add and of logits",
                           .read = ReadMinicpm})

}  // namespace kvgauge
