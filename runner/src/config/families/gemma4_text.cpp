// SPDX-License-Identifier: Apache-2.0
// Gemma 4's text part.
#include "core/json.h"
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/gemma.h"

namespace kvgauge {
namespace {

struct FullHeads {
  int64_t dim = 512;
  int64_t kv_heads = 0;
};

// Later files list what full layers have otherwise, by layer; one says what all say.
std::optional<FullHeads> ReadListedHeads(ConfigReader& reader, const ModelConfig& config) {
  constexpr std::string_view kKey = "per_layer_config";
  const Json* listed = reader.Take(kKey);
  if (listed == nullptr) return std::nullopt;
  const FullHeads even = {.dim = config.key_dim, .kv_heads = config.kv_heads};
  std::optional<FullHeads> full;
  size_t known = 0;
  for (size_t i = 0; listed->is_object() && i < config.layers.size(); ++i) {
    const auto of = listed->find(std::to_string(i));
    const bool named = of != listed->end();
    if (named && (config.layers[i].window > 0 || !of->is_object())) break;
    if (config.layers[i].window > 0) continue;
    FullHeads own = even;
    if (named) {
      ++known;
      ConfigReader layer(*of, reader.origin(), reader.NameOfKey(StrCat(kKey, ".", i, ".")));
      own.dim = layer.Int("head_dim", own.dim, 1, kMostHeadDim);
      own.kv_heads = layer.Int("num_key_value_heads", own.kv_heads, 1, kMostHeads);
      if (const Status status = layer.Finish(); !status.ok()) reader.Fail(status.error());
    }
    if (full && (full->dim != own.dim || full->kv_heads != own.kv_heads)) {
      reader.Fail(kKey, StrCat("full layers with the same heads, not others in layer ", i));
    }
    full = own;
  }
  if (!listed->is_object() || known != listed->size()) {
    reader.Fail(kKey, "an object of full layers, by number");
  }
  return full.value_or(even);
}

FullHeads ReadFullHeadSizes(ConfigReader& reader, bool keys_alone, const ModelConfig& config) {
  const std::optional<FullHeads> listed = ReadListedHeads(reader, config);
  const FullHeads absent = listed.value_or(FullHeads{.kv_heads = config.kv_heads});
  FullHeads full;
  full.dim = reader.Int("global_head_dim", absent.dim, 1, kMostHeadDim);
  full.kv_heads = reader.Int("num_global_key_value_heads", absent.kv_heads, 1, kMostHeads);
  // Without shared projections transformers leaves the number alone.
  if (!keys_alone) full.kv_heads = config.kv_heads;
  if (listed && (full.dim != listed->dim || full.kv_heads != listed->kv_heads)) {
    reader.Fail("per_layer_config", StrCat("heads of ", full.dim, " numbers, ", full.kv_heads,
                                           " of them, as the other keys say"));
  }
  return full;
}

// Full layers have heads of their own size, and may make values of what is projected to keys.
void ReadFullHeads(ConfigReader& reader, ModelConfig& config) {
  const bool keys_alone = reader.Bool("attention_k_eq_v", false);
  const auto [dim, kv_heads] = ReadFullHeadSizes(reader, keys_alone, config);
  if (config.query_heads % kv_heads != 0) {
    reader.Fail("num_global_key_value_heads",
                StrCat("a divisor of num_attention_heads (", config.query_heads, ")"));
  }
  const HeadSizes heads = {.kv_heads = kv_heads, .key_dim = dim, .value_dim = dim};
  const bool even = kv_heads == config.kv_heads && dim == config.key_dim;
  for (LayerConfig& layer : config.layers) {
    layer.local_rope = layer.window > 0;
    if (layer.local_rope) continue;
    if (!even) layer.heads = heads;
    layer.values_are_keys = keys_alone;
  }
  static const Json kRopes = Json::parse(R"({
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                       "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})");
  const RopeRules full = {.head_dim = dim, .partial = true, .proportional = true};
  ReadRopesByKind(reader, full, {.head_dim = config.key_dim}, kRopes, config);
}

void ReadGemma4Experts(ConfigReader& reader, ModelConfig& config) {
  const bool mixes = reader.Bool("enable_moe_block", false);
  if (!mixes) return reader.Ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
  MoeConfig moe;
  moe.experts = reader.Int("num_experts", std::nullopt, 1, kMostExperts);
  moe.experts_per_token = reader.Int("top_k_experts", std::nullopt, 1, kMostExperts);
  moe.expert_ffn_size = reader.Int("moe_intermediate_size", std::nullopt, 1, kMostFfn);
  if (reader.ok() && moe.experts_per_token > moe.experts) {
    reader.Fail("top_k_experts", StrCat("at most num_experts (", moe.experts, ")"));
  }
  RenormalizeExperts(reader, moe, "top_k_experts");
  moe.beside_mlp = true;
  config.moe = moe;
  for (LayerConfig& layer : config.layers) layer.moe = true;
  config.tensor_names.mixture = "";
  config.tensor_names.router = "router.proj";
}

void ReadGemma4(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 131072, config);
  ReadHeads(reader, {.kv_heads = 4, .head_dim = 256}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadGemmaActivation(reader, config);
  ReadTokenIds(reader, {.bos = 2, .eos = {1}, .pad = 0}, config);
  config.tensor_names.mlp_norm = "pre_feedforward_layernorm";
  config.output_norms = true;
  config.scale_embedding = true;
  config.qk_norm = config.value_norm = true;
  config.layer_scales = true;
  config.attention_scale = 1.0f;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.logit_softcap = ReadGemmaCap(reader, "final_logit_softcapping", 0.0);
  // Between the pieces of a picture only, which the text part does not see.
  if (reader.Text("use_bidirectional_attention", "vision") != "vision") {
    reader.Fail("use_bidirectional_attention", "null or vision: rows of text see earlier ones");
  }
  const int64_t layers = config.layer_count();
  std::vector<bool> sliding;
  for (int64_t i = 1; i <= layers; ++i) sliding.push_back(i % 6 != 0 && i < layers);
  ReadGemmaWindows(reader, sliding, config, 512);
  // Whatever layer_types says, as transformers has it.
  if (!config.layers.empty()) config.layers.back().window = 0;
  ReadFullHeads(reader, config);
  ReadGemma4Experts(reader, config);
  constexpr std::string_view kColumns = "hidden_size_per_layer_input";
  const bool none = reader.PresenceOf(kColumns) == ConfigReader::Presence::kNull;
  const int64_t columns = reader.Int(kColumns, none ? 0 : 256, 0, kMostHidden);
  const int64_t rows = reader.Int("vocab_size_per_layer_input", 262144, 1, kMostVocab);
  if (columns > 0) config.layer_embeddings = LayerEmbeddings{.vocab = rows, .columns = columns};
  const int64_t shared = reader.Int("num_kv_shared_layers", 0, 0, kMostLayers);
  // No published model has embeddings of layers without that, and stages that let rows go know
  // shared caches alone.
  if (columns > 0 && shared == 0) {
    reader.Fail("num_kv_shared_layers",
                StrCat("at least 1 where hidden_size_per_layer_input is above 0 (", columns, ")"));
  }
  ShareGemmaCaches(reader, shared, config);
  if (!reader.Bool("use_double_wide_mlp", false)) return;
  for (LayerConfig& layer : config.layers) {
    if (layer.reads >= 0) layer.ffn_size = 2 * config.ffn_size;
  }
}

}  // namespace

KVG_MODEL_FAMILY(gemma4_text,
                 {.title = "Gemma 4 (text)",
                  .notes = "heads of full layers have a size of their own, whose values may be "
                           "their keys; embeddings of every layer; experts beside a dense MLP; "
                           "the last layers may read the caches of earlier ones",
                  .read = ReadGemma4})

}  // namespace kvgauge
