// SPDX-License-Identifier: Apache-2.0
// Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano: a layer is one thing alone, under one norm.
#include <algorithm>

#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// What a layer may be: its letter, and what later files call it.
struct NemotronLayer {
  char letter;
  std::string_view name, other_name;
};
constexpr NemotronLayer kNemotronLayers[] = {{'M', "mamba", "linear_attention"},
                                             {'*', "attention", "full_attention"},
                                             {'-', "mlp", "mlp"},
                                             {'E', "moe", "moe"}};
constexpr std::string_view kPatternKey = "hybrid_override_pattern";
constexpr std::string_view kBlocksKey = "layers_block_type";

// A letter for each layer. At least one: the fault is kept where the file says nothing.
std::string ReadNemotronPattern(ConfigReader& reader) {
  std::string listed;
  for (const std::string& type : reader.Texts(kBlocksKey)) {
    const auto* const layer = std::ranges::find_if(kNemotronLayers, [&](const NemotronLayer& row) {
      return row.name == type || row.other_name == type;
    });
    if (layer == std::end(kNemotronLayers)) {
      reader.Fail(kBlocksKey, StrCat("mamba, attention, mlp or moe, not ", Quoted(type)));
      break;
    }
    listed += layer->letter;
  }
  std::string pattern = reader.Text(kPatternKey, listed);
  if (!listed.empty() && pattern != listed) {
    reader.Fail(kPatternKey, StrCat("the layers of ", kBlocksKey, " (", listed, ")"));
  }
  const bool known = std::ranges::all_of(pattern, [](char letter) {
    return std::ranges::find(kNemotronLayers, letter, &NemotronLayer::letter) !=
           std::end(kNemotronLayers);
  });
  if (!known) reader.Fail(kPatternKey, "M (Mamba-2), * (attention), - (MLP) and E (experts) alone");
  if (pattern.find('*') == std::string::npos || pattern.find('M') == std::string::npos) {
    reader.Fail(kPatternKey,
                "at least one layer that attends (*), without which there is no cache, and one of "
                "Mamba-2 (M)");
  }
  if (std::ssize(pattern) > kMostLayers) {
    reader.Fail(kPatternKey, StrCat("at most ", kMostLayers, " layers"));
  }
  return reader.ok() ? pattern : "M";
}

// Experts without gates, beside one that all tokens share.
void ReadNemotronExperts(ConfigReader& reader, ModelConfig& config) {
  if (std::ranges::none_of(config.layers, &LayerConfig::moe)) {
    reader.Ignore({"n_routed_experts", "n_shared_experts", "num_experts_per_tok",
                   "moe_intermediate_size", "moe_shared_expert_intermediate_size",
                   "moe_latent_size", "n_group", "topk_group", "norm_topk_prob",
                   "routed_scaling_factor"});
    return;
  }
  reader.Refuse("moe_latent_size",
                "experts that work in a space of their own are not run, expected null");
  // Implementations disagree on what another number of them is.
  reader.Neutral("n_shared_experts", int64_t{1});
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "n_routed_experts",
                                   .default_experts = 8,
                                   .default_per_token = 2,
                                   .default_ffn = 7688},
                                  config);
  moe.shared_experts = 1;
  moe.shared_ffn_size = reader.Int("moe_shared_expert_intermediate_size", 7688, 1, kMostFfn);
  moe.sigmoid = true;
  ReadExpertGroups(reader, "n_routed_experts", moe);
  moe.scaling = reader.Real("routed_scaling_factor", 1.0, 1e-6, 1e6);
  moe.renormalize = true;
  ReadRenormalize(reader, moe);
  config.moe = moe;
}

void ReadNemotronState(ConfigReader& reader, ModelConfig& config) {
  StateConfig state = ReadMamba2(reader,
                                 {.heads = "mamba_num_heads",
                                  .head_dim = "mamba_head_dim",
                                  .groups = "n_groups",
                                  .state = "ssm_state_size",
                                  .conv = "conv_kernel",
                                  .conv_bias = "use_conv_bias",
                                  .bias = "use_bias",
                                  .expand = "expand",
                                  .chunk = "chunk_size",
                                  .heads_say = true,
                                  .default_head_dim = 64,
                                  .default_state = 128,
                                  .default_groups = 8},
                                 config);
  reader.Neutral("mamba_hidden_act", std::string_view("silu"));
  state.activation = Activation::kSilu;
  reader.Neutral("mamba_proj_bias", false);
  config.state = state;
  // States are f32 whatever a file says; the others say how weights begin to be trained.
  reader.Ignore({"mamba_ssm_cache_dtype", "time_step_floor", "time_step_rank", "use_mamba_kernels",
                 "residual_in_fp32", "rescale_prenorm_residual"});
}

void ReadNemotronH(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.body = "backbone.";
  names.embedding = "embeddings";
  names.final_norm = "norm_f";
  names.input_norm = names.mlp_norm = "norm";
  names.attention = names.state = names.mlp = names.mixture = "mixer";
  names.ahead = "mtp.";
  const std::string pattern = ReadNemotronPattern(reader);
  ReadSizes(reader, SizeKeys{.default_layers = std::ssize(pattern)}, 4096, config);
  config.ffn_size = reader.Int("intermediate_size", 21504, 1, kMostFfn);
  if (reader.ok() && std::ssize(pattern) != config.layer_count()) {
    reader.Fail("num_hidden_layers",
                StrCat(pattern.size(), ", as ", kPatternKey, " or ", kBlocksKey, " has it"));
  }
  for (size_t i = 0; i < std::min(pattern.size(), config.layers.size()); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.attends = pattern[i] == '*';
    layer.state = pattern[i] == 'M';
    layer.moe = pattern[i] == 'E';
    layer.mlp = !layer.mixes();
  }
  // Earlier files have this key instead of head_dim, or beside it.
  const int64_t head_dim = reader.Int("attention_head_dim", 128, 1, kMostHeadDim);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = head_dim}, config);
  if (reader.Has("attention_head_dim") && config.key_dim != head_dim) {
    reader.Fail("attention_head_dim", StrCat("the same as head_dim (", config.key_dim, ")"));
  }
  ReadNormEps(reader, 1e-5, config, "layer_norm_epsilon");
  for (const std::string_view key : {"rms_norm_eps", "norm_eps"}) {
    const double eps = reader.Real(key, config.norm_eps, 1e-30, 0.5);
    if (static_cast<float>(eps) != config.norm_eps) {
      reader.Fail(key, StrCat("the same as layer_norm_epsilon (", config.norm_eps, ")"));
    }
  }
  reader.Neutral("mlp_hidden_act", std::string_view("relu2"));
  config.activation = Activation::kRelu;
  config.squared_activation = true;
  config.gated_mlp = false;
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 0}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Refuse("sliding_window", "this family has full attention only, expected null");
  ReadNemotronState(reader, config);
  ReadNemotronExperts(reader, config);
  // No layer turns, whatever a file says of it; tensors that predict further tokens are left alone.
  reader.Ignore({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
                 "num_nextn_predict_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
                 "moe_shared_expert_overlap", "num_logits_to_keep", "output_router_logits",
                 "router_aux_loss_coef"});
}

}  // namespace

KVG_MODEL_FAMILY(nemotron_h,
                 {.title = "Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano",
                  .notes = "each layer is one thing alone: a Mamba-2 state of constant size, "
                           "attention that does not turn, an MLP with a squared ReLU, or such "
                           "experts chosen by corrected sigmoids",
                  .read = ReadNemotronH})

}  // namespace kvgauge
