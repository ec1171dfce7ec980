// SPDX-License-Identifier: Apache-2.0
#include "src/config/context_encoder.h"

#include <utility>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::string_view kEncoderKey = "encoder_config";

Status ReadEncoder(const Json& json, const std::string& origin, ModelConfig& encoder) {
  ConfigReader reader(json, origin, StrCat(kEncoderKey, "."));
  encoder.path = origin;
  ReadLlamaParts(reader, encoder);
  // Its rows would see those before them alone.
  reader.Neutral("is_decoder", false);
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Neutral("rope_interleaved", false);
  reader.Ignore({"architectures", "dtype", "torch_dtype", "is_encoder"});
  IgnoreGeneralKeys(reader);
  return reader.Finish();
}

}  // namespace

void ReadContextEncoder(ConfigReader& reader, ModelConfig& config) {
  const int64_t layers = config.layer_count();
  const int64_t crossing = reader.Int("num_cross_attn_layers", 0, 0, layers);
  const bool crosses = reader.Bool("do_cross_attention", false) && crossing > 0;
  // The decoder itself in the place of an encoder, rows of several of its layers, and questions
  // that are read with each chunk.
  reader.Neutral("encoder_is_model", false);
  reader.Neutral("num_cross_attn_hidden_states", int64_t{1});
  reader.Neutral("encode_mode", std::string_view("context_only"));
  // Training only.
  reader.Ignore({"train_encoder", "train_batch_mode", "offload_hidden_states", "lm_loss_cof",
                 "kl_loss_cof", "kl_loss_mode"});
  const int64_t width = reader.Int("encoder_hidden_size", config.hidden_size, 1, kMostHidden);
  if (!crosses) {
    return reader.Refuse(kEncoderKey,
                         "expected null, as no layer attends to an encoder's rows "
                         "(do_cross_attention, num_cross_attn_layers)");
  }
  const Json* json = reader.Take(kEncoderKey);
  if (json == nullptr || !json->is_object()) {
    return reader.Fail(kEncoderKey, "the config of the encoder, as layers attend to its rows");
  }
  auto encoder = std::make_shared<ModelConfig>();
  const Status read = ReadEncoder(*json, reader.origin(), *encoder);
  if (!read.ok()) return reader.Fail(read.error());
  if (encoder->hidden_size != width) {
    return reader.Fail("encoder_hidden_size",
                       StrCat("encoder_config.hidden_size (", encoder->hidden_size, ")"));
  }
  for (int64_t layer = layers - crossing; layer < layers; ++layer) {
    config.layers[static_cast<size_t>(layer)].crosses = true;
  }
  config.encoder = std::move(encoder);
}

}  // namespace kvgauge
