// SPDX-License-Identifier: Apache-2.0
// GoldFinch: layers of Finch-C2, and above them layers that attend to keys and values made anew of
// one compressed row for each token. The keys are those of its code's configuration (`model:`).
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// What its code has whatever a file says.
constexpr int64_t kMixRank = 32, kDecayRank = 64, kLeastValueRank = 64, kValueShare = 16;

// Sizes of which 0 means that the code has one for them.
int64_t SizeOr(ConfigReader& reader, std::string_view key, int64_t usual, int64_t most) {
  const int64_t said = reader.Int(key, 0, -1, most);
  return said > 0 ? said : usual;
}

void ReadGoldFinch(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.body = "";
  names.embedding = "emb";
  names.embedding_norm = "blocks.0.ln0";
  names.layers = "blocks";
  names.input_norm = "ln1";
  names.mlp_norm = "ln2";
  names.final_norm = "ln_out";
  names.head = "head";
  names.state = names.attention = "att";
  names.mlp = "ffn";
  names.down = "value";
  // Nothing in it knows a position: this is how much it was trained on.
  ReadSizes(reader, SizeKeys{.hidden = "n_embd", .layers = "n_layer", .max_position = "ctx_len"},
            1024, config);
  const int64_t hidden = config.hidden_size, layers = config.layer_count();
  const auto wide = static_cast<int64_t>(static_cast<double>(hidden) * 3.5 / 32) * 32;
  config.ffn_size = SizeOr(reader, "dim_ffn", wide, kMostFfn);
  if (SizeOr(reader, "dim_att", hidden, kMostHidden) != hidden) {
    reader.Fail("dim_att", StrCat("0 or n_embd (", hidden, "): keys are added to what is as wide"));
  }
  // The tokenizer has 0 for the end of a text.
  ReadTokenIds(reader, {.bos = 0, .eos = {0}}, config);
  reader.Neutral("tie_word_embeddings", false);
  config.norm = NormKind::kLayer;
  config.norm_eps = 1e-5f;
  config.embedding_norm = true;
  ReadMixedMlp(config);
  config.mlp_weighed = true;
  reader.Neutral("tmix", std::string_view("x060c2"));
  reader.Neutral("tmix2", std::string_view("gold"));
  reader.Neutral("cmix", std::string_view("x060"));
  reader.Neutral("cmix2", std::string_view("x060"));
  reader.Neutral("parallel", int64_t{0});
  reader.Neutral("use_one_minus_w", int64_t{1});
  reader.Neutral("use_v2", int64_t{1});
  for (const char* key : {"rope", "brope", "alibi"}) {
    reader.Refuse(key, "keys that turn, or count distances, are not run, expected null");
  }

  const int64_t dim = reader.Int("head_size", 64, 1, kMostHeadDim);
  if (reader.ok() && hidden % dim != 0) {
    reader.Fail("head_size", StrCat("a divisor of n_embd (", hidden, ")"));
  }
  StateConfig state = {.kind = StateConfig::Kind::kFinchC2};
  state.heads = state.key_heads = std::max<int64_t>(hidden / dim, 1);
  state.key_dim = state.value_dim = dim;
  state.conv_width = 2;
  state.mixed_columns = state.mlp_columns = hidden;
  state.mix_rank = kMixRank;
  state.decay_rank = state.value_rank = kDecayRank;
  state.part_norm_eps = config.norm_eps;
  config.state = state;

  const double ratio = reader.Real("inv_other_layer_ratio", 3.0, 1.0, kMostLayers);
  const auto below = static_cast<int64_t>(static_cast<double>(layers) * (ratio - 1) / ratio);
  if (reader.ok() && (below < 1 || below >= layers)) {
    reader.Fail("inv_other_layer_ratio",
                StrCat("one that leaves layers of both kinds among ", layers));
    return;
  }
  for (int64_t i = below; i < layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.attends = layer.rows_alone = true;
    if (i > below) layer.reads = below;
  }
  const double narrower = reader.Real("kv_cache_compression_ratio", 16.0, 1.0, kMostHidden);
  config.made_keys = MadeKeysConfig{.head_dim = dim,
                                    .mix_rank = kMixRank,
                                    .rank = std::max(hidden / kValueShare, kLeastValueRank)};
  config.query_heads = state.heads;
  config.kv_heads = 1;
  config.key_dim = static_cast<int64_t>(static_cast<double>(hidden) / narrower);
  config.value_dim = 0;
  if (reader.ok() && config.key_dim < 1) {
    reader.Fail("kv_cache_compression_ratio", StrCat("no more than n_embd (", hidden, ")"));
  }
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  // How it is trained.
  reader.Ignore({"dropout", "head_size_divisor", "__type__"});
}

}  // namespace

KVG_MODEL_FAMILY(goldfinch, {.title = "GoldFinch",
                             .notes = "layers of RWKV-6 (Finch-C2) below layers that make keys and "
                                      "values anew of one compressed row for each token: the cache "
                                      "holds these rows, once for all layers; method full alone",
                             .read = ReadGoldFinch})

}  // namespace kvgauge
