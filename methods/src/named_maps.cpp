// SPDX-License-Identifier: Apache-2.0
#include "methods/named_maps.h"

#include <vector>

#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr float kTorchEpsilon = 1e-5f;  // of a layer norm

}  // namespace

NamedMaps::NamedMaps(const GateTables& tables, const GateTables::Dims& dims, Ops& ops) : ops_(ops) {
  for (const auto& [name, shape] : dims) {
    const std::vector<float> values = tables.Read(name, shape);
    if (shape.size() == 2) {
      const Tensor rows = View(values, {shape[0], shape[1]});
      maps_[name] = ops.linear->Pack({&rows, 1}, DType::kF32);
      continue;
    }
    Vector& vector = vectors_[name];
    vector.count = std::ssize(values);
    vector.memory = ops.memory->Allocate(vector.count * 4);
    ops.memory->Copy(View(values, {vector.count}), Of(name));
  }
}

void NamedMaps::Norm(const std::string& name, const Tensor& x, const Tensor& out) const {
  ops_.rows->LayerNorm(x, Of(name + ".weight"), Of(name + ".bias"), kTorchEpsilon, out);
}

void NamedMaps::Map(const std::string& name, const Tensor& x, MatMulMode mode,
                    const Tensor& out) const {
  ops_.linear->MatMul(x, *maps_.at(name + ".weight"), Of(name + ".bias"), mode, out);
}

void NamedMaps::MapGelu(const std::string& name, const Tensor& x, const Tensor& out) const {
  Map(name, x, MatMulMode::kSet, out);
  ops_.rows->Activate(out, Activation::kGelu, out);
}

Tensor NamedMaps::Of(const std::string& name) const {
  const auto found = vectors_.find(name);
  if (found == vectors_.end()) return {};
  return found->second.memory.As(DType::kF32, {found->second.count});
}

Result<Calibration::Tables> TablesUnder(std::string_view beginning,
                                        const Calibration::Tables& published) {
  Calibration::Tables tables;
  for (const auto& [name, table] : published) {
    if (name.starts_with(beginning)) tables[name.substr(beginning.size())] = table;
  }
  if (!tables.empty()) return tables;
  return BadInput(StrCat("has no tensor whose name begins with '", beginning, "'"));
}

}  // namespace kvgauge
