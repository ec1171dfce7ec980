// SPDX-License-Identifier: Apache-2.0
#include "src/config/states.h"

#include <algorithm>

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
    layer.state = said.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0 : said[i] == state;
    if (layer.state || said.empty() || said[i] == "full_attention" || said[i] == "attention") {
      continue;
    }
    reader.Fail("layer_types",
                StrCat("only ", Quoted(state), " and full attention, not ", Quoted(said[i])));
  }
  if (reader.ok() && config.cache_count() == 0) {
    reader.Fail(said.empty() ? "num_hidden_layers" : "layer_types",
                "at least one layer that attends: without one there is no cache to compress");
  }
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

StateConfig ReadMamba2(ConfigReader& reader, const ModelConfig& config) {
  StateConfig state;
  state.kind = StateConfig::Kind::kMamba2;
  state.heads = reader.Int("mamba_n_heads", 128, 1, kMostHeads);
  state.key_heads = reader.Int("mamba_n_groups", 1, 1, kMostHeads);
  state.key_dim = reader.Int("mamba_d_state", 256, 1, kMostHeadDim);
  state.conv_width = reader.Int("mamba_d_conv", 4, 1, 64);
  const int64_t width = config.hidden_size * reader.Int("mamba_expand", 2, 1, 64);
  const Json* head = reader.Take("mamba_d_head");
  const bool chosen = head == nullptr || (head->is_string() && *head == "auto");
  state.value_dim = chosen ? std::max<int64_t>(width / state.heads, 1)
                           : reader.Int("mamba_d_head", std::nullopt, 1, kMostHeadDim);
  if (reader.ok() && state.width() != width) {
    reader.Fail("mamba_n_heads", StrCat("heads of mamba_d_head that together have the ", width,
                                        " columns of mamba_expand * hidden_size"));
  }
  if (reader.ok() && state.heads % state.key_heads != 0) {
    reader.Fail("mamba_n_groups", StrCat("a divisor of the number of heads (", state.heads, ")"));
  }
  state.conv_bias = reader.Bool("mamba_conv_bias", true);
  state.input_bias = state.output_bias = reader.Bool("mamba_proj_bias", false);
  ReadStepLimit(reader, state);
  // How steps begin to be trained, and how a prompt is cut.
  reader.Ignore({"mamba_chunk_size", "time_step_min", "time_step_max"});
  return state;
}

void ReadQwenHybrid(ConfigReader& reader, StateConfig::Kind kind, int64_t kv_heads,
                    RopeRules::Sections sections, ModelConfig& config) {
  config.tensor_names.ahead = "mtp.";
  ReadSizes(reader, "intermediate_size", 32768, config);
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
