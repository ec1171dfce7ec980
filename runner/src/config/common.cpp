// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

struct ActivationRow {
  std::string_view name;
  Activation activation;
};
// gelu_new, gelu_fast and gelu_pytorch_tanh are three spellings of one tanh approximation.
constexpr ActivationRow kActivations[] = {
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
};

std::vector<std::string> ActivationNames() {
  std::vector<std::string> names;
  for (const ActivationRow& row : kActivations) names.emplace_back(row.name);
  return names;
}

std::optional<DType> ReadDtypeKey(ConfigReader& reader, std::string_view key) {
  if (reader.Take(key) == nullptr) return std::nullopt;
  std::string name = reader.Text(key, "");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32" || name == "float") return DType::kF32;
  if (name == "float16" || name == "half") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  reader.Fail(key, "float32, float16 or bfloat16");
  return std::nullopt;
}

// A model with another head would load without its head, or with one that is not a vocabulary.
void ReadArchitectures(ConfigReader& reader) {
  const std::vector<std::string> names = reader.Texts("architectures");
  if (names.empty()) return;
  for (const std::string& name : names) {
    if (name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration") ||
        name.ends_with("ForCausalContextLM")) {
      return;
    }
  }
  reader.Fail("architectures",
              "a model with a language-model head (...ForCausalLM, ...ForConditionalGeneration)");
}

}  // namespace

void ReadGeneralKeys(ConfigReader& reader, ModelConfig& config) {
  const std::optional<DType> v5 = ReadDtypeKey(reader, "dtype");
  const std::optional<DType> v4 = ReadDtypeKey(reader, "torch_dtype");
  if (v5 && v4 && *v5 != *v4) {
    reader.Fail("torch_dtype", "the same as key 'dtype'; implementations differ in which one wins");
  }
  config.stored_dtype = v5 ? *v5 : v4.value_or(DType::kF32);
  ReadArchitectures(reader);
  IgnoreGeneralKeys(reader);
}

void IgnoreGeneralKeys(ConfigReader& reader) {
  // That of the whole checkpoint is read apart (ReadQuantization).
  if (reader.at_top()) {
    reader.Ignore({"quantization_config"});
  } else {
    reader.Refuse("quantization_config", "expected at the top of the config, for all its parts");
  }
  reader.Refuse("cross_attention_hidden_size", "cross attention is not supported");
  reader.Neutral("is_encoder_decoder", false);
  reader.Neutral("add_cross_attention", false);
  reader.Neutral("tie_encoder_decoder", false);
  if (const Json* pruned = reader.Take("pruned_heads"); pruned != nullptr && !pruned->empty()) {
    reader.Fail("pruned_heads", "no pruned heads");
  }

  // Origin and bookkeeping.
  reader.Ignore({"model_type", "_name_or_path", "name_or_path", "_commit_hash", "auto_map",
                 "transformers_version", "transformers_weights", "transformers.js_config",
                 "tokenizer_class", "task_specific_params", "finetuning_task", "id2label",
                 "label2id", "num_labels", "problem_type", "unsloth_version", "unsloth_fixed",
                 "is_llama_config", "is_composition"});
  // How to run, not what to compute.
  reader.Ignore({"use_cache", "cache_implementation", "return_dict", "use_return_dict",
                 "output_attentions", "output_hidden_states", "torchscript", "use_bfloat16",
                 "tf_legacy_loss", "is_decoder", "chunk_size_feed_forward",
                 "keys_to_ignore_at_inference", "_attn_implementation", "attn_implementation",
                 "_attn_implementation_autoset", "_attn_implementation_internal",
                 "_experts_implementation", "_flash_attn_2_enabled", "gradient_checkpointing"});
  // Training only.
  reader.Ignore({"initializer_range", "attention_dropout", "hidden_dropout", "dropout"});
  // Other special tokens, and sampling settings of old files: generation is set by the run.
  reader.Ignore({"sep_token_id",
                 "decoder_start_token_id",
                 "prefix",
                 "max_length",
                 "min_length",
                 "max_new_tokens",
                 "do_sample",
                 "early_stopping",
                 "num_beams",
                 "num_beam_groups",
                 "diversity_penalty",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "min_p",
                 "repetition_penalty",
                 "length_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "num_return_sequences",
                 "output_scores",
                 "return_dict_in_generate",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "remove_invalid_values",
                 "suppress_tokens",
                 "exponential_decay_length_penalty",
                 "begin_suppress_tokens"});
}

void ReadSizes(ConfigReader& reader, std::string_view ffn_key, int64_t default_max_position,
               ModelConfig& config) {
  ReadSizes(reader, SizeKeys{}, default_max_position, config);
  config.ffn_size = reader.Int(ffn_key, std::nullopt, 1, kMostFfn);
}

void ReadSizes(ConfigReader& reader, const SizeKeys& keys, int64_t default_max_position,
               ModelConfig& config) {
  config.vocab_size = reader.Int("vocab_size", std::nullopt, 1, kMostVocab);
  config.hidden_size = reader.Int(keys.hidden, std::nullopt, 1, kMostHidden);
  config.embedding_size = config.hidden_size;
  const int64_t layers = reader.Int(keys.layers, keys.default_layers, 1, kMostLayers);
  config.layers.assign(static_cast<size_t>(layers), LayerConfig{});
  config.max_position = reader.Int(keys.max_position, default_max_position, 1, kMostPosition);
}

void ReadEvenHeads(ConfigReader& reader, std::string_view key, ModelConfig& config) {
  config.query_heads = config.kv_heads = reader.Int(key, std::nullopt, 1, kMostHeads);
  if (config.hidden_size % config.query_heads != 0) {
    reader.Fail(key, StrCat("a divisor of the hidden size (", config.hidden_size, ")"));
  }
  const int64_t dim = std::max<int64_t>(config.hidden_size / config.query_heads, 1);
  config.key_dim = config.value_dim = dim;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
}

void SetKvHeads(ConfigReader& reader, std::string_view key, int64_t kv_heads, ModelConfig& config) {
  if (config.query_heads % kv_heads != 0) {
    reader.Fail(key, StrCat("a divisor of num_attention_heads (", config.query_heads, ")"));
    return;
  }
  config.kv_heads = kv_heads;
}

void ReadHeads(ConfigReader& reader, const HeadDefaults& defaults, ModelConfig& config) {
  config.query_heads = reader.Int("num_attention_heads", std::nullopt, 1, kMostHeads);
  // Absent takes the class default, null always means one per query head.
  const bool absent = reader.PresenceOf("num_key_value_heads") == ConfigReader::Presence::kAbsent;
  const int64_t fallback =
      absent ? defaults.kv_heads.value_or(config.query_heads) : config.query_heads;
  config.kv_heads = reader.Int("num_key_value_heads", fallback, 1, kMostHeads);
  if (config.query_heads % config.kv_heads != 0) {
    reader.Fail("num_key_value_heads",
                StrCat("a divisor of num_attention_heads (", config.query_heads,
                       reader.Has("num_key_value_heads")
                           ? ")"
                           : StrCat("); the family's default is ", config.kv_heads)));
  }
  int64_t head_dim = defaults.head_dim.value_or(0);
  if (!reader.Has("head_dim") && head_dim == 0) {
    if (config.hidden_size % config.query_heads != 0) {
      reader.Fail("hidden_size", StrCat("a multiple of num_attention_heads (", config.query_heads,
                                        ") where head_dim is not given"));
    }
    head_dim = config.hidden_size / config.query_heads;
    if (head_dim == 0) head_dim = 1;  // the fault is already kept
  }
  head_dim = reader.Int("head_dim", head_dim, 1, kMostHeadDim);
  config.key_dim = head_dim;
  config.value_dim = head_dim;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

void ReadTokenIds(ConfigReader& reader, const TokenDefaults& defaults, ModelConfig& config) {
  const auto absent = [&](std::string_view key) {
    return reader.PresenceOf(key) == ConfigReader::Presence::kAbsent;
  };
  const int64_t last = config.vocab_size - 1;
  // A class default may lie past a small vocabulary; then there is no such token.
  const auto known = [&](int64_t id) { return id <= last ? id : -1; };
  // -1 is a common way to write "none".
  config.bos_id =
      reader.Int("bos_token_id", absent("bos_token_id") ? known(defaults.bos) : -1, -1, last);
  // Padding is never fed to the model, and some files name an id past the vocabulary.
  config.pad_id =
      reader.Int("pad_token_id", absent("pad_token_id") ? known(defaults.pad) : -1, -1, kMostVocab);
  config.eos_ids.clear();
  if (absent("eos_token_id")) {
    for (const int64_t id : defaults.eos) {
      if (known(id) >= 0) config.eos_ids.push_back(id);
    }
  } else {
    config.eos_ids = reader.IntOrInts("eos_token_id", 0, last);
  }
}

void ReadNormEps(ConfigReader& reader, double fallback, ModelConfig& config, std::string_view key) {
  config.norm_eps = static_cast<float>(reader.Real(key, fallback, 1e-30, 0.5));
}

float ReadMultiplier(ConfigReader& reader, std::string_view key, double fallback) {
  return static_cast<float>(reader.Real(key, fallback, 1e-6, 1e6));
}

MoeConfig ReadExpertSizes(ConfigReader& reader, const ExpertKeys& keys, const ModelConfig& config) {
  MoeConfig moe;
  const int64_t later = keys.experts_later.empty()
                            ? keys.default_experts
                            : reader.Int(keys.experts_later, keys.default_experts, 1, kMostExperts);
  moe.experts = reader.Int(keys.experts, later, 1, kMostExperts);
  if (!keys.experts_later.empty() && reader.Has(keys.experts_later) && moe.experts != later) {
    reader.Fail(keys.experts_later, StrCat("the same as key '", keys.experts, "'"));
  }
  const auto layers = static_cast<int64_t>(config.layers.size());
  if (moe.experts * layers > kMostExpertsOfAllLayers) {
    reader.Fail(keys.experts, StrCat("at most ", kMostExpertsOfAllLayers / layers, " in each of ",
                                     layers, " layers"));
  }
  moe.experts_per_token =
      reader.Int("num_experts_per_tok", keys.default_per_token, 1, kMostExperts);
  if (moe.experts_per_token > moe.experts) {
    reader.Fail("num_experts_per_tok", StrCat("at most ", keys.experts, " (", moe.experts, ")"));
  }
  moe.expert_ffn_size = reader.Int(keys.ffn, keys.default_ffn, 1, kMostFfn);
  return moe;
}

void ReadExpertGroups(ConfigReader& reader, std::string_view experts_key, MoeConfig& moe) {
  const int64_t groups = reader.Int("n_group", moe.groups, 1, kMostExperts);
  const int64_t top_groups = reader.Int("topk_group", moe.top_groups, 1, kMostExperts);
  if (moe.experts % groups != 0) {
    reader.Fail("n_group", StrCat("a divisor of ", experts_key, " (", moe.experts, ")"));
  }
  if (top_groups > groups) {
    reader.Fail("topk_group", StrCat("at most n_group (", groups, ")"));
  }
  if (moe.experts_per_token > moe.experts / groups * top_groups) {
    reader.Fail("num_experts_per_tok", StrCat("at most the ", moe.experts / groups * top_groups,
                                              " experts of topk_group groups"));
  }
  moe.groups = groups;
  moe.top_groups = top_groups;
}

void RenormalizeExperts(ConfigReader& reader, MoeConfig& moe, std::string_view per_token_key) {
  moe.renormalize = true;
  if (moe.experts_per_token == 1) {
    reader.Fail(per_token_key,
                "at least 2 where the weights of a token's experts are made to sum to 1");
  }
}

void ReadRenormalize(ConfigReader& reader, MoeConfig& moe) {
  moe.renormalize = reader.Bool("norm_topk_prob", moe.renormalize);
  if (moe.renormalize) RenormalizeExperts(reader, moe);
}

void ReadSparseLayers(ConfigReader& reader, ModelConfig& config) {
  const int64_t step = reader.Int("decoder_sparse_step", 1, 1, kMostLayers);
  const std::vector<int64_t> dense =
      reader.IntOrInts("mlp_only_layers", 0, std::ssize(config.layers) - 1);
  for (int64_t i = 0; i < std::ssize(config.layers); ++i) {
    const bool only_mlp = std::find(dense.begin(), dense.end(), i) != dense.end();
    config.layers[static_cast<size_t>(i)].moe = !only_mlp && (i + 1) % step == 0;
  }
}

void RefuseQwenWindows(ConfigReader& reader, ModelConfig& config) {
  if (reader.Bool("use_sliding_window", false)) {
    reader.Fail("use_sliding_window",
                "false: implementations disagree on which layers of this family slide");
  }
  reader.Ignore({"sliding_window", "max_window_layers"});
  CheckLayerTypes(reader, config);
}

std::vector<bool> ReadStillLayers(ConfigReader& reader, const ModelConfig& config,
                                  bool may_be_empty) {
  const auto layers = std::ssize(config.layers);
  const int64_t interval = reader.Int("no_rope_layer_interval", 4, 1, kMostLayers);
  // Despite its name 1 is a layer that turns.
  const std::vector<int64_t> turns = reader.IntOrInts("no_rope_layers", 0, 1);
  const bool listed = may_be_empty ? !turns.empty() : reader.Has("no_rope_layers");
  if (listed && std::ssize(turns) != layers) {
    reader.Fail("no_rope_layers", StrCat(layers, " entries, one per layer"));
  }
  std::vector<bool> still;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    still.push_back(listed ? at < turns.size() && turns[at] == 0 : (i + 1) % interval == 0);
  }
  return still;
}

void ReadDraftLayers(ConfigReader& reader, ModelConfig& config) {
  config.draft_layers = reader.Int("num_nextn_predict_layers", 0, 0, kMostLayers);
}

void ReadLlamaParts(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
}

TensorNames BloomNames() {
  return {.body = "transformer.",
          .embedding = "word_embeddings",
          .layers = "h",
          .final_norm = "ln_f",
          .attention = "self_attention",
          .qkv = "query_key_value",
          .qkv_by_group = true,
          .output = "dense",
          .up = "dense_h_to_4h",
          .down = "dense_4h_to_h"};
}

void ReadActivation(ConfigReader& reader, std::string_view key, std::string_view fallback,
                    ModelConfig& config) {
  const std::string name = reader.Text(key, fallback);
  if (const std::optional<Activation> activation = ActivationFromName(name)) {
    config.activation = *activation;
    return;
  }
  const std::vector<std::string> names = ActivationNames();
  reader.Fail(key, StrCat("one of ", Join(names, ", "), DidYouMean(name, names)));
}

std::optional<Activation> ActivationFromName(std::string_view name) {
  for (const ActivationRow& row : kActivations) {
    if (row.name == name) return row.activation;
  }
  return std::nullopt;
}

std::vector<float> DistanceSlopes(int64_t heads, double most) {
  const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  const auto add = [&](int64_t first, int64_t step) {
    for (int64_t i = first; i < all && std::ssize(slopes) < heads; i += step) {
      const double exponent = most * static_cast<double>(i + 1) / static_cast<double>(all);
      slopes.push_back(static_cast<float>(std::exp2(-exponent)));
    }
  };
  if (all == heads) {
    add(0, 1);
  } else {
    add(1, 2);
    add(0, 2);
  }
  return slopes;
}

int64_t ReadWindow(ConfigReader& reader, std::string_view key, int64_t fallback) {
  if (reader.PresenceOf(key) == ConfigReader::Presence::kNull) fallback = 0;
  if (const Json* value = reader.Take(key); value != nullptr && *value == 0) {
    reader.Fail(key, "a positive window, or null for full attention");
    return 0;
  }
  return reader.Int(key, fallback, 1, kMostPosition);
}

std::optional<std::vector<bool>> ReadLayerTypes(ConfigReader& reader, const ModelConfig& config) {
  if (reader.Take("layer_types") == nullptr) return std::nullopt;
  std::vector<bool> sliding;
  for (const std::string& name : reader.Texts("layer_types")) {
    if (name != "full_attention" && name != "sliding_attention") {
      reader.Fail("layer_types",
                  StrCat("only 'full_attention' and 'sliding_attention', not ", Quoted(name)));
    }
    sliding.push_back(name == "sliding_attention");
  }
  if (sliding.size() != config.layers.size()) {
    reader.Fail("layer_types",
                StrCat(config.layers.size(), " entries, one per layer, not ", sliding.size()));
    sliding.resize(config.layers.size());
  }
  return sliding;
}

void CheckLayerTypes(ConfigReader& reader, const ModelConfig& config) {
  const std::optional<std::vector<bool>> sliding = ReadLayerTypes(reader, config);
  if (!sliding) return;
  for (size_t i = 0; i < sliding->size(); ++i) {
    if ((*sliding)[i] == (config.layers[i].window > 0)) continue;
    reader.Fail("layer_types",
                StrCat("'", config.layers[i].window > 0 ? "sliding" : "full",
                       "_attention' for layer ", i, ", which is what this family runs"));
    return;
  }
}

void ReadQwenWindows(ConfigReader& reader, ModelConfig& config) {
  const bool use_window = reader.Bool("use_sliding_window", false);
  const int64_t given = ReadWindow(reader, "sliding_window", 4096);
  const int64_t first = reader.Int("max_window_layers", 28, 0, kMostPosition);
  const int64_t window = use_window ? given : 0;
  const std::optional<std::vector<bool>> sliding = ReadLayerTypes(reader, config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool slides = sliding ? (*sliding)[i] : static_cast<int64_t>(i) >= first;
    if (slides) config.layers[i].window = window;
    if (slides && sliding && window == 0) {
      reader.Fail("layer_types",
                  StrCat("'full_attention' for layer ", i,
                         ", since use_sliding_window and sliding_window give no window"));
    }
  }
}

}  // namespace kvgauge
