// SPDX-License-Identifier: Apache-2.0
// Architectures side by side: what a sequence's cache and states take, of config files without
// weights.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/result.h"
#include "runner/config.h"
#include "src/cli/commands.h"

namespace kvgauge {

// How a model holds what it has read: "GQA 4:1, Mamba in 28 of 32 layers".
std::string ArchitectureText(const ModelConfig& config);

// "qwen2.5-7b" of "qwen2.5-7b" and of "configs/models/qwen2.5-7b.json".
std::string ShapeNameOf(const std::string& model);

// Bytes of a token's latents in all layers, as method mla_latent holds them; 0 without MLA.
int64_t LatentBytesPerToken(const ModelConfig& config, DType dtype);

// `inspect --shapes`: the config files of a directory, the shipped ones unless `options.model`
// names another. With `options.times` beside what was measured of some.
Status ListShapes(const InspectOptions& options);

}  // namespace kvgauge
