// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/architectures.h"

#include <algorithm>

namespace kvgauge {
namespace {

constexpr GgufName kLlama[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufName kLlama4[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.#.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.#.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.#.down_proj"},
    {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
    {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
    {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"},
};

// Phi-3.5-MoE's too.
constexpr GgufName kMixtral[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.#.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.#.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.#.w2"},
};

constexpr GgufName kQwenMoe[] = {
    {"ffn_norm", "post_attention_layernorm"},     {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"}, {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
};

constexpr GgufName kGptOss[] = {
    {"attn_sinks.weight", "self_attn.sinks"}, {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},           {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"}, {"ffn_down_exps", "mlp.experts.#.down_proj"},
};

// Without the second, OLMo 2's, OLMo 3's and EXAONE 4's too.
constexpr GgufName kGemma[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// What it has beside kGemma. Its experts are stacked, gates in front of what they open or apart
// from it.
constexpr GgufName kGemma4[] = {
    {"layer_output_scale.weight", "layer_scalar"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_up_exps", "experts.#.gate_proj", "experts.#.up_proj"},
    {"ffn_gate_exps", "experts.#.gate_proj"},
    {"ffn_up_exps", "experts.#.up_proj"},
    {"ffn_down_exps", "experts.#.down_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
};

constexpr GgufName kPhi3[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// Llama's, whose second norm has the name of one behind attention: GLM 4.5's and Seed-OSS's.
constexpr GgufName kLlamaBehind[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// DeepSeek's attention, and MiniCPM3's.
constexpr GgufName kLatent[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},  // that of earlier files, not in parts
};
constexpr GgufMade kLatentMade[] = {
    {"self_attn.kv_b_proj", {"attn_k_b", "attn_v_b"}, GgufOrder::kLatent},
};

// DeepSeek's experts, and dots.llm1's and GLM 4.5's.
constexpr GgufName kRouted[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

constexpr GgufName kQwenShared[] = {
    {.file = "ffn_gate_inp_shexp", .checkpoint = "mlp.shared_expert_gate", .form = GgufForm::kRow},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};

constexpr GgufName kQwen3Next[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_up_exps", "mlp.experts.#.gate_proj", "mlp.experts.#.up_proj"},
    {"ffn_gate_exps", "mlp.experts.#.gate_proj"},
    {"ffn_up_exps", "mlp.experts.#.up_proj"},
    {"ffn_down_exps", "mlp.experts.#.down_proj"},
    {.file = "ffn_gate_inp_shexp", .checkpoint = "mlp.shared_expert_gate", .form = GgufForm::kRow},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ssm_in", "linear_attn.in_proj_qkvz"},  // that of earlier files, not in parts
    {"ssm_ba", "linear_attn.in_proj_ba"},
};
constexpr GgufMade kQwen3NextMade[] = {
    {"linear_attn.in_proj_qkvz", {"attn_qkv", "attn_gate"}, GgufOrder::kDelta},
};

constexpr GgufName kGlm[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kGlm4[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};

// Falcon's too.
constexpr GgufName kBloom[] = {
    {"attn_output", "self_attention.dense"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
constexpr GgufName kBloomTop[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"output_norm", "transformer.ln_f"},
};
constexpr GgufMade kBloomMade[] = {
    {"self_attention.query_key_value", {"attn_qkv"}, GgufOrder::kByGroup},
};
constexpr GgufName kFalconNorms[] = {
    {"attn_norm", "ln_mlp"},
    {"attn_norm_2", "ln_attn"},
};

constexpr GgufName kGptNeox[] = {
    {"attn_output", "attention.dense"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
constexpr GgufName kGptNeoxTop[] = {
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
};
constexpr GgufMade kGptNeoxMade[] = {
    {"attention.query_key_value", {"attn_qkv"}, GgufOrder::kByGroup},
};

constexpr GgufName kInternlm2[] = {
    {"attn_norm", "attention_norm"}, {"attn_output", "attention.wo"},
    {"ffn_norm", "ffn_norm"},        {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},   {"ffn_down", "feed_forward.w2"},
};
constexpr GgufName kInternlm2Top[] = {
    {"token_embd", "model.tok_embeddings"},
    {"output", "output"},
};
constexpr GgufMade kInternlm2Made[] = {
    {"attention.wqkv", {"attn_q", "attn_k", "attn_v"}, GgufOrder::kByGroup},
};

constexpr GgufName kMpt[] = {
    {"attn_norm", "norm_1"}, {"attn_qkv", "attn.Wqkv"}, {"attn_output", "attn.out_proj"},
    {"ffn_norm", "norm_2"},  {"ffn_up", "ffn.up_proj"}, {"ffn_down", "ffn.down_proj"},
};
constexpr GgufName kMptTop[] = {
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.norm_f"},
};

constexpr GgufName kPhi[] = {
    {"attn_output", "self_attn.dense"},
    {"ffn_up", "mlp.fc1"},
    {"ffn_down", "mlp.fc2"},
};
// That of Phi-2, Jamba and Falcon-H1.
constexpr GgufName kFinalTop[] = {
    {"output_norm", "model.final_layernorm"},
};

constexpr GgufName kStarcoder2[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
};

constexpr GgufName kStablelm[] = {
    {"attn_q_norm", "self_attn.q_layernorm.norms.#"},
    {"attn_k_norm", "self_attn.k_layernorm.norms.#"},
};

// Models that are nothing but Mamba, and Nemotron-H.
constexpr GgufName kBackboneTop[] = {
    {"token_embd", "backbone.embeddings"},
    {"output_norm", "backbone.norm_f"},
};

constexpr GgufName kMambaNorm[] = {{"attn_norm", "norm"}};

// Mamba's states, and Jamba's, which norms what it projects. '@' is what a checkpoint calls them.
constexpr GgufName kMamba[] = {
    {"ssm_in", "@.in_proj"},
    {.file = "ssm_conv1d", .checkpoint = "@.conv1d", .form = GgufForm::kConvolution},
    {"ssm_x", "@.x_proj"},
    {"ssm_dt", "@.dt_proj"},
    {.file = "ssm_a", .checkpoint = "@.A_log", .form = GgufForm::kLogarithm, .whole = true},
    {.file = "ssm_d", .checkpoint = "@.D", .form = GgufForm::kFlat, .whole = true},
    {"ssm_out", "@.out_proj"},
    {"ssm_dt_norm", "@.dt_layernorm"},
    {"ssm_b_norm", "@.b_layernorm"},
    {"ssm_c_norm", "@.c_layernorm"},
};

// Mamba-2's states, and what Qwen3-Next's are called as well.
constexpr GgufName kMamba2[] = {
    {"ssm_in", "@.in_proj"},
    {.file = "ssm_conv1d", .checkpoint = "@.conv1d", .form = GgufForm::kConvolution},
    {"ssm_dt.bias", "@.dt_bias"},
    {.file = "ssm_a", .checkpoint = "@.A_log", .form = GgufForm::kLogarithm, .whole = true},
    {.file = "ssm_d", .checkpoint = "@.D", .form = GgufForm::kFlat, .whole = true},
    {.file = "ssm_norm", .checkpoint = "@.norm", .form = GgufForm::kFlat},
    {"ssm_out", "@.out_proj"},
};

constexpr GgufName kJamba[] = {
    {"ffn_norm", "pre_ff_layernorm"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
    {"ffn_gate_inp", "feed_forward.router"},
    {"ffn_gate_exps", "feed_forward.experts.#.gate_proj"},
    {"ffn_up_exps", "feed_forward.experts.#.up_proj"},
    {"ffn_down_exps", "feed_forward.experts.#.down_proj"},
};

constexpr GgufName kFalconH1[] = {
    // The converter leaves out this one's ending.
    {.file = "ffn_norm", .checkpoint = "pre_ff_layernorm.weight", .whole = true},
    {"ffn_norm.weight", "pre_ff_layernorm.weight"},
    {"ffn_gate", "feed_forward.gate_proj"},
    {"ffn_up", "feed_forward.up_proj"},
    {"ffn_down", "feed_forward.down_proj"},
};

constexpr GgufName kGraniteHybrid[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_down", "shared_mlp.output_linear"},
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.#.gate_proj"},
    {"ffn_up_exps", "block_sparse_moe.experts.#.up_proj"},
    {"ffn_down_exps", "block_sparse_moe.experts.#.down_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
};
constexpr GgufMade kGraniteHybridMade[] = {
    {"shared_mlp.input_linear", {"ffn_gate", "ffn_up"}, GgufOrder::kStacked},
    {"shared_mlp.input_linear", {"ffn_gate_shexp", "ffn_up_shexp"}, GgufOrder::kStacked},
};

constexpr GgufName kNemotronH[] = {
    {"attn_norm", "norm"},
    {"attn_q", "mixer.q_proj"},
    {"attn_k", "mixer.k_proj"},
    {"attn_v", "mixer.v_proj"},
    {"attn_output", "mixer.o_proj"},
    {"ffn_up", "mixer.up_proj"},
    {"ffn_down", "mixer.down_proj"},
    {"ffn_gate_inp", "mixer.gate"},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
    {"ffn_up_exps", "mixer.experts.#.up_proj"},
    {"ffn_down_exps", "mixer.experts.#.down_proj"},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
};

bool HasTensor(const GgufHeader& header, std::string_view name) {
  const auto found = std::ranges::lower_bound(header.tensors, name, {}, &GgufTensor::name);
  return found != header.tensors.end() && found->name == name;
}

// Falcon 40B and 180B.
bool HasTwoNorms(const GgufHeader& header) { return HasTensor(header, "blk.0.attn_norm_2.weight"); }

// DeepSeek-V3 and its kin choose experts by sigmoids, V2 by a softmax.
bool ChoosesBySigmoid(const GgufHeader& header) {
  constexpr int64_t kSigmoid = 2;
  const GgufValue* value = header.Find("deepseek2.expert_gating_func");
  return value != nullptr && value->Int() == kSigmoid;
}

bool Slides(const GgufHeader& header) {
  const GgufValue* value = header.Find("olmo2.attention.sliding_window");
  return value != nullptr && value->Int().value_or(0) > 0;
}

bool NormsItsParts(const GgufHeader& header) {
  const GgufValue* value = header.Find("mamba.ssm.dt_b_c_rms");
  return value != nullptr && value->Bool().value_or(false);
}

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "bloom",
     .model_type = "bloom",
     .layer = kBloom,
     .made = kBloomMade,
     .top = kBloomTop,
     .layers = "transformer.h."},
    {.name = "chatglm", .model_type = "glm", .layer = kGlm},
    {.name = "cohere2", .model_type = "cohere2", .layer = kLlama},
    {.name = "command-r", .model_type = "cohere", .layer = kLlama},
    {.name = "deepseek2",
     .model_type = "deepseek_v3",
     .mixture = true,
     .layer = kLatent,
     .more = kRouted,
     .made = kLatentMade,
     .fits = ChoosesBySigmoid},
    {.name = "deepseek2",
     .model_type = "deepseek_v2",
     .mixture = true,
     .layer = kLatent,
     .more = kRouted,
     .made = kLatentMade},
    {.name = "dots1", .model_type = "dots1", .mixture = true, .layer = kLlama, .more = kRouted},
    {.name = "ernie4_5", .model_type = "ernie4_5", .layer = kLlama},
    {.name = "exaone4", .model_type = "exaone4", .layer = kGemma},
    {.name = "falcon",
     .model_type = "falcon",
     .layer = kFalconNorms,
     .more = kBloom,
     .made = kBloomMade,
     .top = kBloomTop,
     .layers = "transformer.h.",
     .fits = HasTwoNorms},
    {.name = "falcon",
     .model_type = "falcon",
     .layer = kBloom,
     .made = kBloomMade,
     .top = kBloomTop,
     .layers = "transformer.h."},
    {.name = "falcon-h1",
     .model_type = "falcon_h1",
     .layer = kFalconH1,
     .more = kMamba2,
     .top = kFinalTop,
     .state = "mamba"},
    {.name = "gemma", .model_type = "gemma", .norms_plus_one = true, .layer = kLlama},
    {.name = "gemma2", .model_type = "gemma2", .norms_plus_one = true, .layer = kGemma},
    {.name = "gemma3", .model_type = "gemma3_text", .norms_plus_one = true, .layer = kGemma},
    {.name = "gemma4", .model_type = "gemma4_text", .layer = kGemma, .more = kGemma4},
    {.name = "gemma4",
     .model_type = "gemma4_text",
     .mixture = true,
     .layer = kGemma,
     .more = kGemma4},
    {.name = "glm4", .model_type = "glm4", .layer = kGlm4, .more = kGlm},
    {.name = "glm4moe",
     .model_type = "glm4_moe",
     .mixture = true,
     .layer = kLlamaBehind,
     .more = kRouted},
    {.name = "gpt-oss", .model_type = "gpt_oss", .mixture = true, .layer = kGptOss},
    {.name = "gptneox",
     .model_type = "gpt_neox",
     .layer = kGptNeox,
     .made = kGptNeoxMade,
     .top = kGptNeoxTop,
     .layers = "gpt_neox.layers."},
    {.name = "granite", .model_type = "granite", .paired = true, .layer = kLlama},
    {.name = "granitehybrid",
     .model_type = "granitemoehybrid",
     .paired = true,
     .layer = kGraniteHybrid,
     .more = kMamba2,
     .made = kGraniteHybridMade,
     .state = "mamba"},
    {.name = "granitehybrid",
     .model_type = "granitemoehybrid",
     .mixture = true,
     .paired = true,
     .layer = kGraniteHybrid,
     .more = kMamba2,
     .made = kGraniteHybridMade,
     .state = "mamba"},
    {.name = "internlm2",
     .model_type = "internlm2",
     .paired = true,
     .layer = kInternlm2,
     .made = kInternlm2Made,
     .top = kInternlm2Top},
    {.name = "jamba",
     .model_type = "jamba",
     .mixture = true,
     .layer = kJamba,
     .more = kMamba,
     .top = kFinalTop,
     .state = "mamba"},
    {.name = "llama", .model_type = "llama", .paired = true, .layer = kLlama},
    {.name = "llama", .model_type = "mixtral", .mixture = true, .paired = true, .layer = kMixtral},
    {.name = "llama4", .model_type = "llama4_text", .mixture = true, .layer = kLlama4},
    {.name = "mamba",
     .model_type = "falcon_mamba",
     .layer = kMambaNorm,
     .more = kMamba,
     .top = kBackboneTop,
     .layers = "backbone.layers.",
     .state = "mixer",
     .fits = NormsItsParts},
    {.name = "mamba",
     .model_type = "mamba",
     .layer = kMambaNorm,
     .more = kMamba,
     .top = kBackboneTop,
     .layers = "backbone.layers.",
     .state = "mixer"},
    {.name = "mamba2",
     .model_type = "mamba2",
     .layer = kMambaNorm,
     .more = kMamba2,
     .top = kBackboneTop,
     .layers = "backbone.layers.",
     .state = "mixer"},
    {.name = "minicpm", .model_type = "minicpm", .paired = true, .layer = kLlama},
    {.name = "minicpm3", .model_type = "minicpm3", .layer = kLatent, .made = kLatentMade},
    {.name = "mpt",
     .model_type = "mpt",
     .layer = kMpt,
     .top = kMptTop,
     .layers = "transformer.blocks."},
    {.name = "nemotron_h",
     .model_type = "nemotron_h",
     .layer = kNemotronH,
     .more = kMamba2,
     .top = kBackboneTop,
     .layers = "backbone.layers.",
     .state = "mixer"},
    {.name = "nemotron_h_moe",
     .model_type = "nemotron_h",
     .mixture = true,
     .layer = kNemotronH,
     .more = kMamba2,
     .top = kBackboneTop,
     .layers = "backbone.layers.",
     .state = "mixer"},
    {.name = "olmo2", .model_type = "olmo3", .layer = kGemma, .fits = Slides},
    {.name = "olmo2", .model_type = "olmo2", .layer = kGemma},
    {.name = "olmoe", .model_type = "olmoe", .mixture = true, .layer = kQwenMoe},
    {.name = "phi2", .model_type = "phi", .layer = kPhi, .top = kFinalTop},
    {.name = "phi3", .model_type = "phi3", .layer = kPhi3},
    {.name = "phimoe", .model_type = "phimoe", .mixture = true, .layer = kMixtral},
    {.name = "qwen2", .model_type = "qwen2", .layer = kLlama},
    {.name = "qwen2moe",
     .model_type = "qwen2_moe",
     .mixture = true,
     .layer = kQwenMoe,
     .more = kQwenShared},
    {.name = "qwen3", .model_type = "qwen3", .layer = kLlama},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .mixture = true, .layer = kQwenMoe},
    {.name = "qwen3next",
     .model_type = "qwen3_next",
     .mixture = true,
     .norms_plus_one = true,
     .layer = kQwen3Next,
     .more = kMamba2,
     .made = kQwen3NextMade,
     .state = "linear_attn"},
    {.name = "seed_oss", .model_type = "seed_oss", .layer = kLlamaBehind},
    {.name = "smollm3", .model_type = "smollm3", .paired = true, .layer = kLlama},
    {.name = "stablelm", .model_type = "stablelm", .layer = kStablelm, .more = kLlama},
    {.name = "starcoder2", .model_type = "starcoder2", .layer = kStarcoder2},
};

}  // namespace

std::span<const GgufArchitecture> GgufArchitectures() { return kArchitectures; }

}  // namespace kvgauge
