// SPDX-License-Identifier: Apache-2.0
// MPT 7B and 30B, with what was made of them.
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// Keys of attn_config. transformers counts with an alibi_bias_max of 8 whatever the file says; the
// authors' code reads it, and a published model for long contexts has 16.
void ReadMptAttention(ConfigReader& reader, ModelConfig& config) {
  reader.Neutral("alibi", true);
  config.distance_slopes =
      DistanceSlopes(config.query_heads, reader.Real("alibi_bias_max", 8.0, 1.0, 1024.0));
  config.qkv_limit = static_cast<float>(reader.Real("clip_qkv", 0.0, 0.0, 1e6));
  if (reader.Has("softmax_scale")) {
    config.attention_scale = ReadMultiplier(reader, "softmax_scale", 1.0);
  }
  reader.Neutral("attn_type", std::string_view("multihead_attention"));
  reader.Neutral("prefix_lm", false);
  reader.Neutral("qk_ln", false);
  reader.Neutral("qk_gn", false);
  reader.Neutral("rope", false);
  reader.Neutral("sliding_window_size", int64_t{-1});
  reader.Neutral("attn_uses_sequence_id", false);
  reader.Ignore({"attn_impl", "attn_pdrop", "model_type", "dtype", "torch_dtype",
                 "transformers_version", "architectures", "id2label", "label2id"});
  IgnoreGeneralKeys(reader);
}

void ReadMpt(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names = {.body = "transformer.",
                         .embedding = "wte",
                         .layers = "blocks",
                         .final_norm = "norm_f",
                         .input_norm = "norm_1",
                         .mlp_norm = "norm_2",
                         .attention = "attn",
                         .qkv = "Wqkv",
                         .output = "out_proj",
                         .mlp = "ffn"};
  ReadSizes(reader, {.hidden = "d_model", .layers = "n_layers", .max_position = "max_seq_len"},
            2048, config);
  config.ffn_size = 4 * config.hidden_size;
  if (reader.Int("expansion_ratio", 4, 1, 1024) != 4) {
    reader.Fail("expansion_ratio", "4: the reference's MLP has no other width");
  }
  ReadEvenHeads(reader, "n_heads", config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadTokenIds(reader, {}, config);
  config.norm = NormKind::kLayer;
  config.norm_bias = false;
  config.activation = Activation::kGelu;
  config.gated_mlp = false;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  const Json empty = Json::object();
  const Json* found = reader.Take("attn_config");
  if (found != nullptr && !found->is_object()) {
    return reader.Fail("attn_config", "an object");
  }
  ConfigReader attention(found == nullptr ? empty : *found, reader.origin(),
                         StrCat(reader.NameOfKey("attn_config"), "."));
  ReadMptAttention(attention, config);
  if (const Status status = attention.Finish(); !status.ok()) reader.Fail(status.error());
  CheckLayerTypes(reader, config);
  reader.Neutral("no_bias", true);
  if (reader.Has("logit_scale")) reader.Fail("logit_scale", "null: the reference does not scale");
  // Its table is there in no file: distances stand for it.
  reader.Ignore({"learned_pos_emb", "norm_type", "emb_pdrop", "resid_pdrop", "embedding_fraction",
                 "init_config", "init_device", "verbose", "tokenizer_name", "ffn_config", "fc_type",
                 "use_pad_tok_in_ffn"});
}

}  // namespace

KVG_MODEL_FAMILY(mpt, {.title = "MPT 7B, MPT 30B",
                       .notes = "scores count how far a key is (ALiBi); LayerNorms without bias; "
                                "queries, keys and values may be clipped",
                       .read = ReadMpt})

}  // namespace kvgauge
