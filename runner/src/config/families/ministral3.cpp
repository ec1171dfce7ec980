// SPDX-License-Identifier: Apache-2.0
// Ministral 3: Mistral under YaRN, whose queries grow with their positions.
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

constexpr std::string_view kGrowthKey = "llama_4_scaling_beta";

void ReadMinistral3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 262144, config);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 11}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  const bool later = reader.Has("rope_parameters");
  const std::string_view key = later ? "rope_parameters" : "rope_scaling";
  const Json* block = reader.Take(key);
  if (block == nullptr || !block->is_object()) {
    return reader.Fail(key, "the scaling that this family is trained with");
  }
  // Some writers repeat the length of the model beside it.
  ReadRope(reader,
           {.head_dim = config.key_dim, .own_keys = {kGrowthKey, "max_position_embeddings"}},
           config);
  ConfigReader growth(*block, reader.origin(), StrCat(reader.NameOfKey(key), "."));
  const double scale = growth.Real(kGrowthKey, 0.0, 0.0, 1e3);
  if (!growth.ok()) return reader.Fail(growth.fault());
  if (scale > 0) {
    if (config.rope->kind != RopeKind::kYarn) {
      return reader.Fail(key, "rope_type yarn where it has llama_4_scaling_beta");
    }
    config.query_growth =
        QueryGrowth{.scale = scale,
                    .every = static_cast<double>(config.rope->original_max_position),
                    .everywhere = true};
  }
  const int64_t window = ReadWindow(reader, "sliding_window", 0);
  for (LayerConfig& layer : config.layers) layer.window = window;
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
}

}  // namespace

KVG_MODEL_FAMILY(ministral3, {.title = "Ministral 3",
                              .notes = "as mistral, under YaRN; queries grow with their positions",
                              .read = ReadMinistral3})

}  // namespace kvgauge
