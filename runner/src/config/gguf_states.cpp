// SPDX-License-Identifier: Apache-2.0
// The keys of families with layers of constant state.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/gguf_metadata.h"

namespace kvgauge {
namespace {

// The numbers that all of them have.
struct StateSizes {
  int64_t columns = 0, heads = 0, keys = 0, groups = 1, width = 0;  // of the convolution
};
StateSizes TakeStateSizes(GgufMetadata& data) {
  StateSizes sizes;
  const auto positive = [&](std::string_view key) {
    const int64_t value = data.Int(key).value_or(0);
    if (value < 1) data.Fail(key, "a number above 0");
    return std::max<int64_t>(value, 1);
  };
  sizes.columns = positive("ssm.inner_size");
  sizes.heads = positive("ssm.time_step_rank");
  sizes.keys = positive("ssm.state_size");
  sizes.width = positive("ssm.conv_kernel");
  sizes.groups = data.Int("ssm.group_count").value_or(1);
  return sizes;
}

// Which layers hold KV heads: the others have 0 of them.
std::vector<int64_t> TakeKvHeads(GgufMetadata& data) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  std::vector<int64_t> heads = data.LayerInts(kKey, GgufStoredLayers(data));
  heads.resize(static_cast<size_t>(GgufLayers(data)));
  const int64_t most = *std::ranges::max_element(heads);
  const bool one =
      std::ranges::all_of(heads, [&](int64_t count) { return count == 0 || count == most; });
  if (most < 1 || !one) data.Fail(kKey, "0, or one number in all layers that attend");
  data.Set("num_key_value_heads", most);
  return heads;
}

// How many times the residual's width the columns of all heads are.
void SetExpansion(GgufMetadata& data, std::string_view key, const StateSizes& sizes) {
  const int64_t hidden = data.Int("embedding_length").value_or(0);
  if (hidden < 1 || sizes.columns % hidden != 0) {
    return data.Fail("ssm.inner_size", StrCat("a multiple of embedding_length (", hidden, ")"));
  }
  data.Set(key, sizes.columns / hidden);
}

// Mamba, Mamba-2 and Falcon Mamba attend to nothing, and have no MLP.
void SetMambaParts(GgufMetadata& data, const StateSizes& sizes) {
  data.Int("feed_forward_length");
  data.Drop("num_attention_heads");
  data.Drop("num_key_value_heads");
  data.Rename("rms_norm_eps", "layer_norm_epsilon");
  data.Set("state_size", sizes.keys);
  data.Set("conv_kernel", sizes.width);
  data.Set("use_bias", data.HasInLayers("ssm_in.bias"));
  data.Set("use_conv_bias", data.HasInLayers("ssm_conv1d.bias"));
}

void SetMamba(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  SetMambaParts(data, sizes);
  data.Set("intermediate_size", sizes.columns);
  data.Set("time_step_rank", sizes.heads);
  data.Bool("ssm.dt_b_c_rms");  // says which of the two it is
  if (data.type() == "mamba") SetExpansion(data, "expand", sizes);
}

void SetMamba2(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  SetMambaParts(data, sizes);
  SetExpansion(data, "expand", sizes);
  data.Set("num_heads", sizes.heads);
  data.Set("head_dim", sizes.columns / sizes.heads);
  data.Set("n_groups", sizes.groups);
}

// Mamba-2 in a hybrid, under the names that Bamba, Granite 4 and Falcon-H1 have.
void SetHybridState(GgufMetadata& data, const StateSizes& sizes) {
  data.Set("mamba_n_heads", sizes.heads);
  data.Set("mamba_d_head", sizes.columns / sizes.heads);
  data.Set("mamba_n_groups", sizes.groups);
  data.Set("mamba_d_state", sizes.keys);
  data.Set("mamba_d_conv", sizes.width);
  data.Set("mamba_conv_bias", data.HasInLayers("ssm_conv1d.bias"));
  data.Set("mamba_proj_bias", data.HasInLayers("ssm_in.bias"));
}

// `turns`: not where no layer turns, whatever a file says of it.
void SetHeadWidth(GgufMetadata& data, bool turns = false) {
  const std::optional<int64_t> width = HeadWidthOf(data);
  if (!width) return data.Fail("attention.head_count", "heads that share the width");
  data.Set("head_dim", *width);
  if (const auto values = data.Int("attention.value_length"); values && *values != *width) {
    data.Refuse("attention.value_length", "another width than that of keys");
  }
  const auto turning = data.Int("rope.dimension_count");
  if (turns && turning && *turning != *width) {
    data.Refuse("rope.dimension_count", "a part of each head that does not turn");
  }
}

// Its multipliers are in the weights.
void SetFalconH1(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  SetHybridState(data, sizes);
  SetHeadWidth(data, /*turns=*/true);
  data.Set("mamba_d_ssm", sizes.columns);
  data.SetIf("intermediate_size", data.Int("feed_forward_length"));
  data.Set("projectors_bias", data.HasInLayers("ssm_out.bias"));
  data.Set("mamba_rms_norm", data.HasInLayers("ssm_norm.weight"));
  data.Set("mamba_norm_before_gate", false);
  SetScaling(data);
}

void SetGraniteHybrid(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  SetHybridState(data, sizes);
  SetExpansion(data, "mamba_expand", sizes);
  SetHeadWidth(data);
  Json types = Json::array();
  for (const int64_t heads : TakeKvHeads(data)) types.push_back(heads > 0 ? "attention" : "mamba");
  data.Set("layer_types", std::move(types));
  // Where its layers turn it is a Bamba, whose queries and keys files have in an order of their
  // own.
  if (data.Bool("rope.scaling.finetuned").value_or(true)) {
    data.Refuse("rope.scaling.finetuned", "a Bamba, whose layers turn, expected false");
  }
  data.Set("position_embedding_type", "nope");
  const auto width = data.Int("feed_forward_length");
  const auto shared = data.Int("expert_shared_feed_forward_length");
  const auto experts = data.Int("expert_count");
  data.Set("num_local_experts", experts.value_or(0));
  if (data.file().architecture->mixture) {
    data.SetIf("intermediate_size", width);
    data.SetIf("shared_intermediate_size", shared);
  } else {
    data.SetIf("shared_intermediate_size", data.RowsInLayers("ffn_up.weight"));
  }
  data.SetIf("embedding_multiplier", data.Real("embedding_scale"));
  data.SetIf("residual_multiplier", data.Real("residual_scale"));
  data.SetIf("attention_multiplier", data.Real("attention.scale"));
  data.SetIf("logits_scaling", data.Real("logit_scale"));
  data.Set("attention_bias", data.HasInLayers("attn_q.bias"));
}

// The period and the first of layers that have something, as Jamba's config says it.
void SetTurns(GgufMetadata& data, const std::string& what, std::string_view key,
              const std::vector<bool>& has) {
  const auto first = std::ranges::find(has, true) - has.begin();
  const auto layers = std::ssize(has);
  int64_t period = layers;
  for (int64_t i = first + 1; i < layers; ++i) {
    if (!has[static_cast<size_t>(i)]) continue;
    period = i - first;
    break;
  }
  // One layer alone may be that of any period that brings no second.
  period = std::max<int64_t>(period, first + 1);
  for (int64_t i = 0; i < layers; ++i) {
    if (has[static_cast<size_t>(i)] == (i % period == first)) continue;
    return data.Fail(key,
                     StrCat(what, " in every so many-th layer, and not as layer ", i, " says"));
  }
  data.Set(StrCat(what, "_layer_period"), period);
  data.Set(StrCat(what, "_layer_offset"), static_cast<int64_t>(first));
}

void SetJamba(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  SetExpansion(data, "mamba_expand", sizes);
  SetHeadWidth(data);
  data.Set("mamba_d_state", sizes.keys);
  data.Set("mamba_d_conv", sizes.width);
  data.Set("mamba_dt_rank", sizes.heads);
  data.Set("mamba_conv_bias", data.HasInLayers("ssm_conv1d.bias"));
  data.Set("mamba_proj_bias", data.HasInLayers("ssm_in.bias"));
  data.SetIf("intermediate_size", data.Int("feed_forward_length"));
  data.SetIf("num_experts", data.Int("expert_count"));
  std::vector<bool> attends, mixture;
  for (const int64_t heads : TakeKvHeads(data)) {
    const std::string router = StrCat("blk.", std::ssize(attends), ".ffn_gate_inp.weight");
    mixture.push_back(data.file().FindTensor(router) != nullptr);
    attends.push_back(heads > 0);
  }
  SetTurns(data, "attn", "attention.head_count_kv", attends);
  if (std::ranges::find(mixture, true) != mixture.end()) {
    SetTurns(data, "expert", "expert_count", mixture);
  } else {
    data.Set("num_experts", 1);
  }
}

// A letter for each layer: what it has says which of the four it is.
void SetNemotronH(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  SetHeadWidth(data);
  const std::vector<int64_t> heads = TakeKvHeads(data);
  std::vector<int64_t> widths = data.LayerInts("feed_forward_length", GgufStoredLayers(data));
  widths.resize(heads.size());
  const bool mixture = data.file().architecture->mixture;
  std::string pattern;
  for (size_t i = 0; i < heads.size(); ++i) {
    pattern += heads[i] > 0 ? '*' : widths[i] == 0 ? 'M' : mixture ? 'E' : '-';
  }
  data.Set("hybrid_override_pattern", pattern);
  data.SetIf("intermediate_size", data.RowsInLayers("ffn_up.weight"));
  data.Set("mamba_num_heads", sizes.heads);
  data.Set("mamba_head_dim", sizes.columns / sizes.heads);
  data.Set("n_groups", sizes.groups);
  data.Set("ssm_state_size", sizes.keys);
  data.Set("conv_kernel", sizes.width);
  data.Set("use_conv_bias", data.HasInLayers("ssm_conv1d.bias"));
  data.Set("use_bias", data.HasInLayers("ssm_in.bias"));
  data.Rename("rms_norm_eps", "layer_norm_epsilon");
  data.SetIf("layer_norm_epsilon", data.Real("attention.layer_norm_epsilon"));
  data.SetIf("moe_latent_size", data.Int("moe_latent_size"));
  if (!mixture) return;
  data.SetIf("n_routed_experts", data.Int("expert_count"));
  data.SetIf("n_shared_experts", data.Int("expert_shared_count"));
  data.SetIf("moe_intermediate_size", data.Int("expert_feed_forward_length"));
  data.SetIf("moe_shared_expert_intermediate_size", data.Int("expert_shared_feed_forward_length"));
  data.Set("routed_scaling_factor", data.Real("expert_weights_scale").value_or(1.0));
  data.Set("norm_topk_prob", data.Bool("expert_weights_norm").value_or(false));
  data.Set("n_group", data.Int("expert_group_count").value_or(1));
  data.Set("topk_group", data.Int("expert_group_used_count").value_or(1));
}

// Gated delta nets around layers of gated attention, a part of whose heads turns.
void SetQwen3Next(GgufMetadata& data) {
  const StateSizes sizes = TakeStateSizes(data);
  data.Set("linear_conv_kernel_dim", sizes.width);
  data.Set("linear_key_head_dim", sizes.keys);
  data.Set("linear_value_head_dim", sizes.columns / sizes.heads);
  data.Set("linear_num_key_heads", sizes.groups);
  data.Set("linear_num_value_heads", sizes.heads);
  constexpr std::string_view kStates = "attention.recurrent_layers";
  const auto interval = data.Int("full_attention_interval");
  if (data.file().Find(kStates) != nullptr) {
    Json types = Json::array();
    std::vector<bool> states = data.LayerFlags(kStates, GgufStoredLayers(data));
    states.resize(static_cast<size_t>(GgufLayers(data)));
    for (const bool state : states) {
      types.push_back(state ? "linear_attention" : "full_attention");
    }
    data.Set("layer_types", std::move(types));
  } else {
    data.SetIf("full_attention_interval", interval);
  }
  const std::optional<int64_t> width = HeadWidthOf(data);
  const auto turning = data.Int("rope.dimension_count");
  if (!width || *width < 1 || !turning) {
    return data.Fail("rope.dimension_count", "how much of a head turns, beside its width");
  }
  data.Set("head_dim", *width);
  data.Int("attention.value_length");
  data.Set("partial_rotary_factor", static_cast<double>(*turning) / static_cast<double>(*width));
  data.SetIf("intermediate_size", data.Int("feed_forward_length"));
  data.SetIf("num_experts", data.Int("expert_count"));
  data.SetIf("moe_intermediate_size", data.Int("expert_feed_forward_length"));
  const auto shared = data.Int("expert_shared_feed_forward_length");
  data.SetIf("shared_expert_intermediate_size",
             shared ? shared : data.RowsInLayers("ffn_gate_shexp.weight"));
  data.Set("norm_topk_prob", true);
  data.Set("attention_bias", data.HasInLayers("attn_q.bias"));
  SetScaling(data);
}

struct StateFamily {
  std::string_view model_type;
  void (*set)(GgufMetadata& data);
};
constexpr StateFamily kStateFamilies[] = {
    {"falcon_h1", SetFalconH1},
    {"falcon_mamba", SetMamba},
    {"granitemoehybrid", SetGraniteHybrid},
    {"jamba", SetJamba},
    {"mamba", SetMamba},
    {"mamba2", SetMamba2},
    {"nemotron_h", SetNemotronH},
    {"qwen3_next", SetQwen3Next},
};

}  // namespace

bool SetStateFamily(GgufMetadata& data) {
  const auto* const found =
      std::ranges::find(kStateFamilies, data.type(), &StateFamily::model_type);
  if (found == std::end(kStateFamilies)) return false;
  found->set(data);
  return true;
}

}  // namespace kvgauge
