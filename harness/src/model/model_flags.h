// SPDX-License-Identifier: Apache-2.0
// From flags to a loaded model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "kernels/ops.h"
#include "runner/model.h"
#include "src/cli/commands.h"
#include "src/model/shipped_files.h"

namespace kvgauge {

// A model with the backend it runs on; the model holds a pointer into ops.
struct LoadedModel {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

Result<ModelOptions> ParseModelOptions(const ModelFlags& flags);
// What a result's key says of its numbers: "bf16", and what products take in another form.
std::string NumbersOf(const ModelFlags& flags, DType dtype);
// They are those of one device, or of several if the command takes them.
Result<std::unique_ptr<Ops>> MakeOpsFor(const ModelFlags& flags);
// `prepare` sees the weights before the model is made of them.
Result<LoadedModel> LoadModel(const ModelFlags& flags, const Prepare* prepare = nullptr);
// The shape of the model that the flags name, before the model is loaded.
ModelShape ShapeFor(const ModelFlags& flags, const ModelConfig& config,
                    const ModelOptions& options);

// One JSON array of token ids, each in [0, vocab_size).
Result<std::vector<int32_t>> ReadIdsFile(const std::string& path, int64_t vocab_size);

// The same of a value that was read before; `origin` begins every message.
Result<std::vector<int32_t>> IdsFromJson(const Json& json, int64_t vocab_size,
                                         const std::string& origin);

// The fingerprint of a checkpoint, before its weights are read (ModelFingerprint).
Result<std::string> FingerprintOf(const ModelFlags& flags);

}  // namespace kvgauge
