// SPDX-License-Identifier: Apache-2.0
// RWKV-7, as flash-linear-attention lays it out: a model without a cache.
#include <algorithm>

#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// One number for all layers, or a list of one each; heads of other widths are not run.
void CheckValueDims(ConfigReader& reader, const ModelConfig& config) {
  const std::vector<int64_t> dims = reader.IntOrInts("value_dim", 1, kMostHidden);
  const bool same =
      std::ranges::all_of(dims, [&](int64_t dim) { return dim == config.hidden_size; });
  if (!same || (dims.size() > 1 && dims.size() != config.layers.size())) {
    reader.Fail("value_dim", StrCat("the hidden size (", config.hidden_size, "), or a list of ",
                                    config.layers.size(), " of these"));
  }
}

void ReadRwkv7(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.embedding = "embeddings";
  names.embedding_norm = "layers.0.pre_norm";
  names.input_norm = "attn_norm";
  names.mlp_norm = "ffn_norm";
  names.state = "attn";
  names.mlp = "ffn";
  names.down = "value";
  // Nothing in it knows a position: this is how much it was trained on.
  ReadSizes(reader, SizeKeys{}, 2048, config);
  const int64_t hidden = config.hidden_size;
  // Without a width: a multiple of the hidden size, up to whole blocks of 32.
  const double ratio = reader.Real("hidden_ratio", 4.0, 0.01, 1024.0);
  const auto wide = static_cast<int64_t>(static_cast<double>(hidden) * ratio);
  config.ffn_size = reader.Int("intermediate_size", (wide + 31) / 32 * 32, 1, kMostFfn);
  const double eps = reader.Real("norm_eps", 1e-5, 1e-30, 0.5);
  config.norm_eps = static_cast<float>(eps);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.norm = NormKind::kLayer;
  config.norm_bias = reader.Bool("norm_bias", true);
  config.embedding_norm = reader.Bool("norm_first", true);
  reader.Neutral("hidden_act", std::string_view("sqrelu"));
  reader.Refuse("attn", "layers of attention between those of states are not run, expected null");
  ReadMixedMlp(config);
  StateConfig state = {.kind = StateConfig::Kind::kRwkv7};
  // A head's width says how many there are, whatever num_heads says.
  state.key_dim = state.value_dim = reader.Int("head_dim", 64, 1, kMostHeadDim);
  reader.Ignore({"num_heads"});
  if (reader.ok() && hidden % state.key_dim != 0) {
    reader.Fail("head_dim", StrCat("a divisor of the hidden size (", hidden, ")"));
  }
  state.heads = state.key_heads = std::max<int64_t>(hidden / state.key_dim, 1);
  state.conv_width = 2;
  state.mixed_columns = state.mlp_columns = hidden;
  state.decay_rank = reader.Int("decay_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.write_rank = reader.Int("a_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.gate_rank = reader.Int("gate_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.value_rank = reader.Int("v_low_rank_dim", std::nullopt, 1, kMostHidden);
  state.part_norm_eps = static_cast<float>(static_cast<double>(state.value_dim) * eps);
  config.state = state;
  CheckValueDims(reader, config);
  // How it is computed, and trained.
  reader.Ignore(
      {"attn_mode", "fuse_norm", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp"});
}

}  // namespace

KVG_MODEL_FAMILY(rwkv7, {.title = "RWKV-7",
                         .notes = "no cache: every layer keeps a state of constant size, whose "
                                  "rows decay by themselves; method full alone, as a baseline",
                         .read = ReadRwkv7})

}  // namespace kvgauge
