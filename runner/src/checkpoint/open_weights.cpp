// SPDX-License-Identifier: Apache-2.0
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/config.h"
#include "runner/weights.h"
#include "src/checkpoint/gguf/file.h"
#include "src/checkpoint/pickled/file.h"
#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/safetensors.h"
#include "src/config/quantization.h"

namespace kvgauge {

Result<RawTensor> WeightSource::GetStored(const std::string& name) const {
  return Unsupported(
      StrCat(OriginOf(name), ": tensor ", Quoted(name, 120), " is made and not stored"));
}

Result<std::optional<WeightBlocks>> WeightSource::GetBlocks(const std::string&) const {
  return std::optional<WeightBlocks>();
}

Result<WeightInfo> WeightSource::Describe(const std::string& name) const {
  KVG_ASSIGN(const WeightTensor stored, Get(name));
  const Tensor& view = stored.view;
  return WeightInfo{view.dtype, {view.shape.begin(), view.shape.begin() + view.rank}};
}

namespace {

// Directories of the hub may have both, of the same numbers: safetensors are preferred.
Result<std::unique_ptr<WeightSource>> OpenPlain(const std::string& directory) {
  if (HasStored(directory, kSafetensors)) return OpenStored(directory, kSafetensors);
  if (HasStored(directory, kPickled)) return OpenStored(directory, kPickled);
  if (!DirectoryExists(directory)) return OpenSafetensors(directory);  // says so
  return BadInput(StrCat(directory, ": no weights are here, expected ", kSafetensors.single, ", ",
                         kSafetensors.index, ", ", kPickled.single, ", ", kPickled.index,
                         " or a GGUF file"));
}

// Families whose checkpoints have the experts of a layer in one tensor.
std::optional<StackedForm> StackedFormOf(const Json& config) {
  const std::string type = config.is_object() ? config.value("model_type", "") : "";
  if (type == "gpt_oss") return StackedForm{.order = GateOrder::kTurns};
  if (type == "llama4" || type == "llama4_text") return StackedForm{};
  if (type == "qwen3_5_moe" || type == "qwen3_5_moe_text") return StackedForm{.rows = true};
  if (type == "gemma4" || type == "gemma4_text") {
    return StackedForm{.rows = true, .scope = ".experts."};
  }
  if (type == "granitemoe" || type == "granitemoeshared" || type == "granitemoehybrid") {
    return StackedForm{.rows = true,
                       .scope = ".block_sparse_moe.",
                       .gate_up = "input_linear.weight",
                       .down = "output_linear.weight"};
  }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenWeights(const std::string& path, DType dtype) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(path));
  if (gguf) return OpenGgufWeights(*gguf, dtype);
  KVG_ASSIGN(std::unique_ptr<WeightSource> plain, OpenPlain(path));
  const std::string config = path + "/config.json";
  if (!FileExists(config)) return plain;
  KVG_ASSIGN(const Json json, ReadConfigDocument(config));
  KVG_ASSIGN(const std::optional<QuantizationConfig> quantization, ReadQuantization(json, config));
  if (!quantization) {
    const std::optional<StackedForm> form = StackedFormOf(json);
    return form ? OpenStackedExperts(std::move(plain), *form, dtype) : std::move(plain);
  }
  return OpenQuantized(std::move(plain), *quantization, dtype);
}

}  // namespace kvgauge
