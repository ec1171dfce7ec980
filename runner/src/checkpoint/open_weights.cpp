// SPDX-License-Identifier: Apache-2.0
#include "runner/weights.h"
#include "src/checkpoint/gguf/file.h"

namespace kvgauge {

Result<WeightInfo> WeightSource::Describe(const std::string& name) const {
  KVG_ASSIGN(const WeightTensor stored, Get(name));
  const Tensor& view = stored.view;
  return WeightInfo{view.dtype, {view.shape.begin(), view.shape.begin() + view.rank}};
}

Result<std::unique_ptr<WeightSource>> OpenWeights(const std::string& path, DType dtype) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(path));
  return gguf ? OpenGgufWeights(*gguf, dtype) : OpenSafetensors(path);
}

}  // namespace kvgauge
