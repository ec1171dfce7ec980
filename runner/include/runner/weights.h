// SPDX-License-Identifier: Apache-2.0
// Where weights come from: one small interface, whatever the container.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "kernels/tensor.h"
#include "kernels/weight_blocks.h"

namespace kvgauge {

// A host view of one tensor and whatever keeps its memory alive (a file map, a buffer). Foreign
// files promise no alignment: read elements with care for that, or through Ops, which take care.
struct WeightTensor {
  Tensor view;
  std::shared_ptr<const void> owner;
};

// What a tensor is, without its numbers.
struct WeightInfo {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::optional<BlockFormat> blocks = std::nullopt;  // set: GetBlocks gives it in these
};

// A tensor as its file has it, of any type that the format has.
struct RawTensor {
  std::string_view type;  // as safetensors names it: "F8_E4M3"
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;  // without alignment
  std::shared_ptr<const void> owner;
};

// The rows of a matrix in blocks of few bits, and what keeps them alive.
struct WeightBlocks {
  StoredRows rows;  // with a format
  std::shared_ptr<const void> owner;
};

// Thread-safe: every call is const and may run beside others.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Every tensor name, sorted; without those that a model need not have.
  virtual std::vector<std::string> Names() const = 0;
  virtual bool Contains(const std::string& name) const = 0;
  // An error names the tensor and its file. One value (shape []) is viewed as [1]; of more than
  // kMaxRank dimensions the last ones are viewed as one. Types that
  // DType lacks (F64, F8_*, BOOL ...) may be in a file, but are kUnsupported here.
  virtual Result<WeightTensor> Get(const std::string& name) const = 0;
  // The bytes of a tensor, for readers of types that DType lacks. Where tensors are made and not
  // stored this is kUnsupported.
  virtual Result<RawTensor> GetStored(const std::string& name) const;
  // A matrix whose file has it in blocks that a product can read as they are; nothing where it has
  // not, and Get makes it.
  virtual Result<std::optional<WeightBlocks>> GetBlocks(const std::string& name) const;
  // What Get would give, without making it.
  virtual Result<WeightInfo> Describe(const std::string& name) const;
  // The tensor will not be read again soon: memory that a file's pages take of it may go.
  virtual void Release(const std::string& /*name*/) const {}
  // For messages: the file that holds the tensor, or what makes it.
  virtual std::string OriginOf(const std::string& name) const = 0;
  // Hex SHA-256 over names, dtypes, shapes and content, in name order, so that it is the same for
  // one file and for any division into shards. What a score's signature carries. Content counts
  // whole below 1 MiB per tensor; of a larger one its size, its first and last 16 KiB and 32 evenly
  // spaced samples of 4 KiB. So it tells checkpoints apart, and sees any change that touches a
  // tensor broadly, as training and merging do; it is no proof against an edit of a few values.
  virtual std::string Fingerprint() const = 0;
};

// Opens the weights of a checkpoint: a GGUF file, the one that a directory holds, safetensors
// (OpenSafetensors), or where there are none pytorch_model.bin or its shards, which are read and
// never run. They may be quantised as the directory's config.json says. Tensors of few bits become
// `dtype`, one by one when they are asked for; floats stay as they are stored.
Result<std::unique_ptr<WeightSource>> OpenWeights(const std::string& path, DType dtype);

// Opens `directory`/model.safetensors, or the shards that model.safetensors.index.json lists; both
// at once are an error. Tensors that the index does not list are not there, with a warning.
// Headers are checked whole before anything is read: a header that lies about sizes, overlaps,
// repeats names or claims more than the file holds is an error, never an allocation.
Result<std::unique_ptr<WeightSource>> OpenSafetensors(const std::string& directory);

// One safetensors file by itself.
Result<std::unique_ptr<WeightSource>> OpenSafetensorsFile(const std::string& path);

// A tensor that a model needs, and how a random substitute is drawn.
struct TensorSpec {
  enum class Init { kNormal, kOnes, kZeros };

  std::string name;
  std::vector<int64_t> shape;
  Init init = Init::kNormal;
  float stddev = 0.02f;
};

// Seeded weights for shapes without a checkpoint. Element i of a tensor depends on (seed, name, i)
// alone, before rounding to `dtype` (a float type), and every Get makes the tensor anew. kNormal is
// a sum of four uniforms with the wanted deviation, never beyond 3.47 of them: good enough to
// measure speed and memory, and to exercise code. Precondition: names differ, ranks <= kMaxRank.
std::unique_ptr<WeightSource> MakeRandomWeights(std::vector<TensorSpec> specs, uint64_t seed,
                                                DType dtype);

}  // namespace kvgauge
