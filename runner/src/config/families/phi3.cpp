// SPDX-License-Identifier: Apache-2.0
// Phi-3 mini and medium, Phi-3.5-mini, Phi-4, Phi-4-mini. Phi-3-small is another architecture.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadPhi3(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.qkv = "qkv_proj";
  config.tensor_names.gate_up = "gate_up_proj";
  ReadSizes(reader, "intermediate_size", 4096, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {32000}, .pad = 32000}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadRope(reader, {.head_dim = config.key_dim, .partial = true, .phi3 = true}, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 0);
  for (LayerConfig& layer : config.layers) layer.window = window;
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("lm_head_bias", false);
  reader.Neutral("full_attn_mod", int64_t{1});
  reader.Neutral("interpolate_factor", int64_t{1});
  reader.Ignore({"resid_pdrop", "embd_pdrop"});
}

}  // namespace

KVG_MODEL_FAMILY(phi3, {.title = "Phi-3, Phi-3.5, Phi-4-mini",
                        .notes = "fused projections; longrope",
                        .read = ReadPhi3})

}  // namespace kvgauge
