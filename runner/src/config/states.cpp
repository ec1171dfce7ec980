// SPDX-License-Identifier: Apache-2.0
#include "src/config/states.h"

#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {

void ReadStateLayers(ConfigReader& reader, std::string_view state, int64_t interval,
                     ModelConfig& config) {
  const std::vector<std::string> said = reader.Texts("layer_types");
  if (reader.Has("layer_types") && said.size() != config.layers.size()) {
    return reader.Fail("layer_types",
                       StrCat(config.layers.size(), " entries, one per layer, not ", said.size()));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    // Whatever a family calls such layers, later files call them linear attention.
    layer.state = said.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0
                               : said[i] == state || said[i] == "linear_attention";
    layer.attends = !layer.state;
    if (layer.state || said.empty() || said[i] == "full_attention" || said[i] == "attention") {
      continue;
    }
    reader.Fail("layer_types",
                StrCat("only ", Quoted(state), " and full attention, not ", Quoted(said[i])));
  }
  if (reader.ok() && config.cache_count() == 0) {
    reader.Fail(said.empty() ? "num_hidden_layers" : "layer_types",
                "at least one layer that attends: without one this hybrid has no cache");
  }
}

void ReadStatesAlone(bool mlp, ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    layer.state = true;
    layer.attends = false;
    layer.mlp = mlp;
  }
  config.query_heads = config.kv_heads = 1;  // of no width
}

void ReadMixedMlp(ModelConfig& config) {
  ReadStatesAlone(/*mlp=*/true, config);
  config.activation = Activation::kRelu;
  config.squared_activation = true;
  config.gated_mlp = false;
  config.mlp_mixes = true;
}

double ReadLaidOutRwkv(ConfigReader& reader, double ratio, ModelConfig& config) {
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
  // Without a width: a multiple of the hidden size, up to whole blocks of 32.
  const double times = reader.Real("hidden_ratio", ratio, 0.01, 1024.0);
  const auto wide = static_cast<int64_t>(static_cast<double>(config.hidden_size) * times);
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
  // How it is computed, and trained.
  reader.Ignore(
      {"attn_mode", "fuse_norm", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp"});
  return eps;
}

int64_t ReadExpandedDim(ConfigReader& reader, std::string_view key, double fallback, int64_t heads,
                        const ModelConfig& config) {
  const double exact =
      reader.Real(key, fallback, 1e-3, 1e3) * static_cast<double>(config.hidden_size);
  const auto columns = static_cast<int64_t>(std::lround(exact));
  if (columns < heads || columns % heads != 0 ||
      std::abs(exact - static_cast<double>(columns)) > 1e-6) {
    reader.Fail(key, StrCat("what times hidden_size (", config.hidden_size, ") is a multiple of ",
                            heads, " heads"));
  }
  return std::max(columns / heads, int64_t{1});
}

namespace {

// [least, most]; writers spell infinity in several ways, and JSON in none.
void ReadStepLimit(ConfigReader& reader, StateConfig& state) {
  const Json* limit = reader.Take("time_step_limit");
  if (limit == nullptr) return;
  const auto infinite = [](const Json& json) {
    const Json& said = json.is_object() && json.contains("__float__") ? json["__float__"] : json;
    return said.is_string() && (said == "Infinity" || said == "inf");
  };
  const bool pair = limit->is_array() && limit->size() == 2 && (*limit)[0].is_number() &&
                    ((*limit)[1].is_number() || infinite((*limit)[1]));
  if (!pair) {
    return reader.Fail("time_step_limit", "two numbers, of which the second may be \"Infinity\"");
  }
  state.least_step = (*limit)[0].get<double>();
  if ((*limit)[1].is_number()) state.most_step = (*limit)[1].get<double>();
  const bool bounded = (*limit)[1].is_number();
  if (state.least_step < 0 || state.least_step > 1e6 ||
      (bounded && (state.most_step <= state.least_step || state.most_step > 1e6))) {
    reader.Fail("time_step_limit", "0 <= the first < the second <= 1000000");
  }
}

}  // namespace

StateConfig ReadMamba2(ConfigReader& reader, const Mamba2Keys& keys, const ModelConfig& config) {
  StateConfig state;
  state.kind = StateConfig::Kind::kMamba2;
  state.heads = reader.Int(keys.heads, 128, 1, kMostHeads);
  state.key_heads = reader.Int(keys.groups, keys.default_groups, 1, kMostHeads);
  // By group, as the authors' code norms; transformers before 5.24 norms all of a row at once.
  state.norm_groups = state.key_heads;
  state.key_dim = reader.Int(keys.state, keys.default_state, 1, kMostHeadDim);
  state.conv_width = reader.Int(keys.conv, 4, 1, 64);
  int64_t width = config.hidden_size * reader.Int(keys.expand, 2, 1, 64);
  std::string of = StrCat(keys.expand, " * hidden_size");
  if (!keys.width.empty()) {
    // null is what the others make it.
    const bool null = reader.PresenceOf(keys.width) == ConfigReader::Presence::kNull;
    const int64_t own = reader.Int(keys.width, null ? width : keys.default_width, 1, kMostFfn);
    if (!null) {
      width = own;
      of = keys.width;
    }
  }
  const Json* head = reader.Take(keys.head_dim);
  const bool automatic = head != nullptr && head->is_string() && *head == "auto";
  if (automatic || (head == nullptr && keys.default_head_dim == 0)) {
    state.value_dim = std::max<int64_t>(width / state.heads, 1);
  } else {
    state.value_dim = reader.Int(keys.head_dim, keys.default_head_dim, 1, kMostHeadDim);
  }
  if (reader.ok() && !keys.heads_say && state.width() != width) {
    reader.Fail(keys.heads, StrCat("heads of ", keys.head_dim, " that together have the ", width,
                                   " columns of ", of));
  }
  if (reader.ok() && state.heads % state.key_heads != 0) {
    reader.Fail(keys.groups, StrCat("a divisor of the number of heads (", state.heads, ")"));
  }
  state.conv_bias = reader.Bool(keys.conv_bias, true);
  state.input_bias = state.output_bias = reader.Bool(keys.bias, false);
  ReadStepLimit(reader, state);
  // How steps begin to be trained, and how a prompt is cut.
  reader.Ignore({keys.chunk, "time_step_min", "time_step_max"});
  return state;
}

StateConfig ReadMamba1(ConfigReader& reader, const Mamba1Keys& keys, int64_t width,
                       const ModelConfig& config) {
  StateConfig state;
  state.kind = StateConfig::Kind::kMamba1;
  state.heads = width;
  state.key_heads = state.value_dim = 1;
  state.key_dim = reader.Int(keys.state, 16, 1, kMostHeadDim);
  state.conv_width = reader.Int(keys.conv, 4, 1, 64);
  const Json* rank = reader.Take(keys.rank);
  const bool automatic = rank == nullptr || (rank->is_string() && *rank == "auto");
  state.step_rank = automatic ? (config.hidden_size + 15) / 16
                              : reader.Int(keys.rank, std::nullopt, 1, kMostHidden);
  state.conv_bias = reader.Bool(keys.conv_bias, true);
  state.input_bias = state.output_bias = reader.Bool(keys.bias, false);
  return state;
}

void ReadMambaParts(ConfigReader& reader, bool tied, int64_t default_bos, int64_t default_eos,
                    int64_t default_pad, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.body = "backbone.";
  names.embedding = "embeddings";
  names.final_norm = "norm_f";
  names.input_norm = "norm";
  names.state = "mixer";
  // Nothing in it knows a position.
  ReadSizes(reader, SizeKeys{}, int64_t{1} << 20, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = default_bos, .eos = {default_eos}, .pad = default_pad}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", tied);
  ReadStatesAlone(/*mlp=*/false, config);
  reader.Neutral("rms_norm", true);
  // The residual is f32 whatever it says; the others are the authors' own files', or say how
  // weights begin to be trained.
  reader.Ignore({"residual_in_fp32", "fused_add_norm", "rescale_prenorm_residual", "d_model",
                 "d_inner", "n_layer", "ssm_cfg", "pad_vocab_size_multiple", "time_step_floor",
                 "time_step_init_scheme", "time_step_scale"});
}

StateConfig ReadMamba1Alone(ConfigReader& reader, int64_t width, const ModelConfig& config) {
  reader.Ignore({"time_step_min", "time_step_max"});
  return ReadMamba1(reader,
                    {.state = "state_size",
                     .conv = "conv_kernel",
                     .conv_bias = "use_conv_bias",
                     .bias = "use_bias",
                     .rank = "time_step_rank"},
                    width, config);
}

void ReadQwenHybrid(ConfigReader& reader, StateConfig::Kind kind, int64_t kv_heads,
                    RopeRules::Sections sections, ModelConfig& config) {
  config.tensor_names.ahead = "mtp.";
  ReadSizes(reader, SizeKeys{}, 32768, config);
  ReadHeads(reader, {.kv_heads = kv_heads, .head_dim = 256}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.norm = NormKind::kRmsOffsetOne;
  config.qk_norm = true;
  config.attention_gate = true;
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  ReadRope(reader,
           {.head_dim = config.key_dim, .partial = true, .part = 0.25, .sections = sections},
           config);
  const int64_t interval = reader.Int("full_attention_interval", 4, 1, kMostLayers);
  ReadStateLayers(reader, "linear_attention", interval, config);
  StateConfig state = {.kind = kind};
  state.conv_width = reader.Int("linear_conv_kernel_dim", 4, 1, 64);
  state.key_dim = reader.Int("linear_key_head_dim", 128, 1, kMostHeadDim);
  state.value_dim = reader.Int("linear_value_head_dim", 128, 1, kMostHeadDim);
  state.key_heads = reader.Int("linear_num_key_heads", 16, 1, kMostHeads);
  state.heads = reader.Int("linear_num_value_heads", 32, 1, kMostHeads);
  if (reader.ok() && state.heads % state.key_heads != 0) {
    reader.Fail("linear_num_value_heads",
                StrCat("a multiple of linear_num_key_heads (", state.key_heads, ")"));
  }
  config.state = state;
}

}  // namespace kvgauge
