// SPDX-License-Identifier: Apache-2.0
// Where weights come from. One small interface: safetensors now, other containers later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/tensor.h"

namespace kvgauge {

// A host view of one tensor and whatever keeps its memory alive (a file map, a buffer). Foreign
// files promise no alignment: read elements with care for that, or through Ops, which take care.
struct WeightTensor {
  Tensor view;
  std::shared_ptr<const void> owner;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Every tensor name, sorted.
  virtual std::vector<std::string> Names() const = 0;
  virtual bool Contains(const std::string& name) const = 0;
  // An error names the tensor and its file.
  virtual Result<WeightTensor> Get(const std::string& name) const = 0;
  // For messages: the file that holds the tensor, or what makes it.
  virtual std::string OriginOf(const std::string& name) const = 0;
  // Hex digest over names, dtypes, shapes and content; what a score's signature carries.
  virtual std::string Fingerprint() const = 0;
};

// Opens `directory`/model.safetensors, or the shards that model.safetensors.index.json lists.
// Headers are checked whole before anything is read: a header that lies about sizes, overlaps,
// repeats names or claims more than the file holds is an error, never an allocation.
Result<std::unique_ptr<WeightSource>> OpenSafetensors(const std::string& directory);

// One safetensors file by itself.
Result<std::unique_ptr<WeightSource>> OpenSafetensorsFile(const std::string& path);

// What a model needs, and how a random stand-in is drawn.
struct TensorSpec {
  enum class Init { kNormal, kOnes, kZeros };

  std::string name;
  std::vector<int64_t> shape;
  Init init = Init::kNormal;
  float stddev = 0.02f;
};

// Seeded weights for shapes without a checkpoint. Each tensor depends on (seed, name, shape) alone
// and is made when asked for.
std::unique_ptr<WeightSource> MakeRandomWeights(std::vector<TensorSpec> specs, uint64_t seed,
                                                DType dtype);

}  // namespace kvgauge
