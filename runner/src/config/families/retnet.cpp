// SPDX-License-Identifier: Apache-2.0
// RetNet, as flash-linear-attention lays it out: a model without a cache.
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadRetNet(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.embedding = "embeddings";
  names.input_norm = "attn_norm";
  names.mlp_norm = "mlp_norm";
  names.state = "attn";
  ReadSizes(reader, SizeKeys{}, 2048, config);
  // Without a width: two thirds of a multiple of the hidden size, up to whole blocks of 256.
  const double ratio = reader.Real("hidden_ratio", 2.0, 0.01, 1024.0);
  const auto wide = static_cast<int64_t>(static_cast<double>(config.hidden_size) * ratio * 2 / 3);
  config.ffn_size = reader.Int("intermediate_size", (wide + 255) / 256 * 256, 1, kMostFfn);
  ReadNormEps(reader, 1e-6, config, "norm_eps");
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  reader.Neutral("hidden_act", std::string_view("swish"));
  reader.Refuse("attn", "layers of attention between those of states are not run, expected null");
  reader.Refuse("feature_map", "queries and keys are not mapped, expected null");
  reader.Neutral("use_short_conv", false);
  reader.Neutral("use_output_gate", true);
  reader.Neutral("elementwise_affine", true);
  ReadStatesAlone(/*mlp=*/true, config);
  StateConfig state = {.kind = StateConfig::Kind::kRetention};
  state.heads = state.key_heads = reader.Int("num_heads", 8, 1, kMostHeads);
  if (reader.Int("num_kv_heads", state.heads, 1, kMostHeads) != state.heads) {
    reader.Fail("num_kv_heads", StrCat("as many as num_heads (", state.heads, ")"));
  }
  state.key_dim = ReadExpandedDim(reader, "expand_k", 1.0, state.heads, config);
  state.value_dim = ReadExpandedDim(reader, "expand_v", 2.0, state.heads, config);
  if (reader.ok() && state.key_dim % 2 != 0) {
    reader.Fail("num_heads", "heads of an even width, whose pairs turn");
  }
  state.conv_width = 1;  // nothing is convolved
  state.least_step = state.most_step = 1.0;
  state.norm_gates = reader.Bool("fuse_norm", true);
  config.state = state;
  // How it is computed, and trained.
  reader.Ignore({"attn_mode", "conv_size", "fuse_swiglu", "fuse_cross_entropy",
                 "fuse_linear_cross_entropy", "use_l2warp"});
}

}  // namespace

KVG_MODEL_FAMILY(retnet, {.title = "RetNet",
                          .notes = "no cache: every layer keeps a state of constant size, whose "
                                   "heads decay at rates of their own; method full alone, as a "
                                   "baseline",
                          .read = ReadRetNet})

}  // namespace kvgauge
