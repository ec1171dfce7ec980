// SPDX-License-Identifier: Apache-2.0
#include "src/config/cohere.h"

#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadCohere(ConfigReader& reader, ModelConfig& config) {
  ReadCohereParts(reader, config);
  config.qk_norm = reader.Bool("use_qk_norm", false);
  config.qk_norm_kind = QkNorm::kLayerHeads;
  ReadRope(reader, {.head_dim = config.key_dim, .layout = RopeLayout::kInterleaved, .theta = 5e5},
           config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(cohere, {.title = "Command R, Command R+, Aya",
                          .notes = "attention and MLP side by side under one LayerNorm without "
                                   "bias; pairs of neighbours turn; scaled logits",
                          .read = ReadCohere})

}  // namespace kvgauge
