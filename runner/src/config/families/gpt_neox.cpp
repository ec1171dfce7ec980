// SPDX-License-Identifier: Apache-2.0
// Pythia, GPT-NeoX-20B, Dolly.
#include <utility>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// Keys that later files carry for the same numbers.
void ReadSpellings(ConfigReader& reader) {
  for (const auto& [key, other] :
       {std::pair{"rope_theta", "rotary_emb_base"}, {"partial_rotary_factor", "rotary_pct"}}) {
    if (!reader.Has(key)) continue;
    const double value = reader.Real(key, 0.0, 0, 1e15);
    if (!reader.Has(other) || reader.Real(other, value, 0, 1e15) != value) {
      reader.Fail(key, StrCat("the same as key '", other, "'"));
    }
  }
}

void ReadGptNeox(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = GptNeoxNames();
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadGptNeoxParts(reader, config);
  CheckLayerTypes(reader, config);
  reader.Ignore({"classifier_dropout"});
}

}  // namespace

TensorNames GptNeoxNames() {
  return {.body = "gpt_neox.",
          .embedding = "embed_in",
          .final_norm = "final_layer_norm",
          .head = "embed_out",
          .attention = "attention",
          .qkv = "query_key_value",
          .qkv_by_group = true,
          .output = "dense",
          .up = "dense_h_to_4h",
          .down = "dense_4h_to_h"};
}

void ReadGptNeoxParts(ConfigReader& reader, ModelConfig& config) {
  ReadEvenHeads(reader, "num_attention_heads", config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_eps");
  ReadActivation(reader, "hidden_act", "gelu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {2}}, config);
  config.norm = NormKind::kLayer;
  config.parallel = reader.Bool("use_parallel_residual", true);
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", true);
  config.mlp_bias = true;
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadSpellings(reader);
  ReadRope(reader,
           {.head_dim = config.key_dim,
            .partial = true,
            .part = 0.25,
            .part_key = "rotary_pct",
            .theta_key = "rotary_emb_base"},
           config);
}

KVG_MODEL_FAMILY(gpt_neox, {.title = "Pythia, GPT-NeoX",
                            .notes = "attention and MLP side by side; a quarter of each head turns",
                            .read = ReadGptNeox})

}  // namespace kvgauge
