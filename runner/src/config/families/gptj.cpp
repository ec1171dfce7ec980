// SPDX-License-Identifier: Apache-2.0
// GPT-J, CodeGen-like checkpoints that are saved as such.
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGptj(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = {.body = "transformer.",
                         .embedding = "wte",
                         .layers = "h",
                         .final_norm = "ln_f",
                         .input_norm = "ln_1",
                         .attention = "attn",
                         .output = "out_proj",
                         .up = "fc_in",
                         .down = "fc_out"};
  ReadSizes(reader, {.hidden = "n_embd", .layers = "n_layer", .max_position = "n_positions"}, 2048,
            config);
  config.ffn_size = reader.Int("n_inner", 4 * config.hidden_size, 1, kMostFfn);
  ReadEvenHeads(reader, "n_head", config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadActivation(reader, "activation_function", "gelu_new", config);
  ReadTokenIds(reader, {.bos = 50256, .eos = {50256}}, config);
  config.norm = NormKind::kLayer;
  config.parallel = config.shared_norm = true;
  config.gated_mlp = false;
  config.mlp_bias = config.head_bias = true;
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  RopeConfig rope = {.layout = RopeLayout::kInterleaved, .max_position = config.max_position};
  rope.rotary_dim = reader.Int("rotary_dim", 64, 2, kMostHeadDim);
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > config.key_dim) {
    reader.Fail("rotary_dim",
                StrCat("an even number up to the dims of a head (", config.key_dim, ")"));
    rope.rotary_dim = 2;
  }
  config.rope = rope;
  CheckLayerTypes(reader, config);
  reader.Neutral("rotary", true);
  reader.Neutral("scale_attn_weights", true);
  reader.Ignore({"resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_activation",
                 "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                 "summary_use_proj", "n_ctx"});
}

}  // namespace

KVG_MODEL_FAMILY(gptj, {.title = "GPT-J",
                        .notes = "attention and MLP side by side under one norm; a part of each "
                                 "head turns, by pairs of neighbours",
                        .read = ReadGptj})

}  // namespace kvgauge
