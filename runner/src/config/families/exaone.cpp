// SPDX-License-Identifier: Apache-2.0
// EXAONE 3.0, 3.5 and Deep, in the files of the authors' code: Llama under GPT-2's names.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadExaone(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = {.body = "transformer.",
                         .embedding = "wte",
                         .layers = "h",
                         .final_norm = "ln_f",
                         .input_norm = "ln_1",
                         .mlp_norm = "ln_2",
                         .attention = "attn.attention",
                         .output = "out_proj",
                         .gate = "c_fc_0",
                         .up = "c_fc_1",
                         .down = "c_proj"};
  ReadSizes(reader, {.layers = "num_layers"}, 2048, config);
  config.ffn_size = reader.Int("intermediate_size", 4 * config.hidden_size, 1, kMostFfn);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadActivation(reader, "activation_function", "silu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  reader.Ignore({"embed_dropout"});
}

}  // namespace

KVG_MODEL_FAMILY(exaone, {.title = "EXAONE 3.0, EXAONE 3.5, EXAONE Deep",
                          .notes = "as llama, under other names",
                          .read = ReadExaone})

}  // namespace kvgauge
