// SPDX-License-Identifier: Apache-2.0
// BLOOM and BLOOMZ.
#include <optional>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// The name under which the file has a number; where it has it twice, both say the same.
std::string_view NameIn(ConfigReader& reader, std::string_view own, std::string_view other,
                        int64_t most) {
  if (!reader.Has(other)) return own;
  if (!reader.Has(own)) return other;
  if (const int64_t said = reader.Int(own, std::nullopt, 1, most);
      said != reader.Int(other, std::nullopt, 1, most)) {
    reader.Fail(other, StrCat(said, ", as key '", own, "' says"));
  }
  return own;
}

void ReadBloom(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = BloomNames();
  config.tensor_names.embedding_norm = "word_embeddings_layernorm";
  // seq_length is what the model was trained on.
  ReadSizes(reader,
            {.hidden = NameIn(reader, "hidden_size", "n_embed", kMostHidden),
             .layers = NameIn(reader, "n_layer", "num_hidden_layers", kMostLayers),
             .max_position = "seq_length"},
            2048, config);
  config.ffn_size = 4 * config.hidden_size;
  ReadEvenHeads(reader, NameIn(reader, "n_head", "num_attention_heads", kMostHeads), config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.norm = NormKind::kLayer;
  config.embedding_norm = true;
  config.activation = Activation::kGeluTanh;
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.distance_slopes = DistanceSlopes(config.query_heads, 8);
  CheckLayerTypes(reader, config);
  reader.Neutral("apply_residual_connection_post_layernorm", false);
  // How sums were split among the machines of training, where that is asked for at all.
  reader.Ignore({"pretraining_tp", "slow_but_exact", "attention_softmax_in_fp32",
                 "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "skip_bias_add",
                 "skip_bias_add_qkv", "unk_token_id"});
}

}  // namespace

KVG_MODEL_FAMILY(bloom, {.title = "BLOOM, BLOOMZ",
                         .notes = "scores count how far a key is (ALiBi); a norm of what is looked "
                                  "up; LayerNorms and biases",
                         .read = ReadBloom})

}  // namespace kvgauge
