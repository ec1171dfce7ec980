// SPDX-License-Identifier: Apache-2.0
// A config that is accepted can be computed with, whatever the JSON.
#include <cmath>
#include <string_view>

#include "core/check.h"
#include "core/json.h"
#include "core/log.h"
#include "runner/config.h"
#include "runner/vision_spec.h"

namespace {

void CheckRope(const kvgauge::RopeConfig& rope) {
  for (const int64_t length : {int64_t{1}, int64_t{4097}, int64_t{1} << 20}) {
    const kvgauge::RopeFrequencies frequencies = kvgauge::ComputeRope(rope, length);
    KVG_CHECK(std::isfinite(frequencies.attention_factor) && frequencies.attention_factor > 0,
              "the attention factor is a positive number");
    for (const double f : frequencies.inverse) {
      KVG_CHECK(std::isfinite(f) && f >= 0, "frequencies are numbers from 0");
    }
  }
}

void CheckEyes(const kvgauge::VisionSpec& spec) {
  const kvgauge::TowerSpec& tower = spec.tower;
  KVG_CHECK(tower.width > 0 && tower.heads > 0 && tower.width % tower.heads == 0 && tower.ffn > 0 &&
                tower.patch > 0 && tower.frames > 0 && spec.hidden_size > 0 && spec.merge > 0,
            "sizes of eyes are positive");
  KVG_CHECK(!spec.feature_layers.empty() && tower.run_layers <= tower.layers,
            "a hidden state is read");
  for (const int64_t layer : spec.feature_layers) {
    KVG_CHECK(layer >= 0 && layer <= tower.run_layers, "only of blocks that run");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvgauge::SetLogLevel(kvgauge::LogLevel::kError);
  const auto json = kvgauge::ParseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!json.ok()) return 0;
  const auto eyes = kvgauge::ReadVision(*json, "fuzz");
  if (!eyes.ok()) {
    KVG_CHECK(eyes.error().message.starts_with("fuzz"), "a message without its origin");
  } else if (eyes->has_value()) {
    CheckEyes(**eyes);
  }
  const auto parsed = kvgauge::ParseModelConfig(*json, "fuzz");
  if (!parsed.ok()) {
    KVG_CHECK(parsed.error().message.starts_with("fuzz"), "a message without its origin");
    return 0;
  }
  const kvgauge::ModelConfig& config = *parsed;
  KVG_CHECK(config.layer_count() > 0 && config.hidden_size > 0 && config.vocab_size > 0 &&
                config.ffn_size > 0 && config.embedding_size > 0,
            "sizes are positive");
  KVG_CHECK(config.kv_heads > 0 && config.query_heads % config.kv_heads == 0,
            "query heads fall into groups");
  KVG_CHECK(config.key_dim > 0 && config.value_dim > 0, "heads have dimensions");
  KVG_CHECK(config.KvBytesPerToken(kvgauge::DType::kF32) > 0, "bytes per token do not overflow");
  KVG_CHECK(
      std::isfinite(config.attention_scale) && config.attention_scale > 0 && config.norm_eps > 0,
      "scales are positive numbers");
  for (const kvgauge::LayerConfig& layer : config.layers) {
    KVG_CHECK(layer.window >= 0 && (!layer.moe || config.moe), "layers are possible");
    KVG_CHECK(!layer.local_rope || config.local_rope, "a layer's rope is there");
  }
  for (const float factor :
       {config.embedding_multiplier, config.residual_multiplier, config.logit_multiplier}) {
    KVG_CHECK(std::isfinite(factor) && factor > 0, "multipliers are positive numbers");
  }
  KVG_CHECK(config.parallel || !config.shared_norm, "only what is side by side shares a norm");
  KVG_CHECK(config.input_norms || config.output_norms, "layers have norms");
  for (const int64_t id : config.eos_ids) {
    KVG_CHECK(0 <= id && id < config.vocab_size, "end tokens are in the vocabulary");
  }
  if (config.moe) {
    const kvgauge::MoeConfig& moe = *config.moe;
    KVG_CHECK(moe.groups > 0 && moe.experts % moe.groups == 0 && moe.top_groups <= moe.groups &&
                  moe.experts_per_token <= moe.experts / moe.groups * moe.top_groups &&
                  moe.shared_ffn_size >= 0 && (!moe.shared_gate || moe.shared_ffn_size > 0),
              "experts can be chosen");
  }
  if (config.rope) {
    KVG_CHECK(config.rope->rotary_dim <= config.key_dim, "no more than the head is rotated");
    CheckRope(*config.rope);
  }
  if (config.local_rope) {
    KVG_CHECK(config.rope && config.local_rope->rotary_dim == config.rope->rotary_dim &&
                  config.local_rope->layout == config.rope->layout,
              "both ropes turn the same dims");
    CheckRope(*config.local_rope);
  }
  return 0;
}
