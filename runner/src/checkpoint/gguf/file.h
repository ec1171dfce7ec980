// SPDX-License-Identifier: Apache-2.0
// A GGUF file, or the several files of one model, as a checkpoint: its metadata, and its tensors
// under the names and in the shapes that a Hugging Face checkpoint of the same model has them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/files.h"
#include "core/result.h"
#include "runner/weights.h"
#include "src/checkpoint/gguf/header.h"
#include "src/checkpoint/gguf/names.h"

namespace kvgauge {

// The GGUF file that `path` is, or the one that the directory `path` holds; nothing where it has
// none. The first file stands for a model in several. Several models, or one beside safetensors,
// are an error.
Result<std::optional<std::string>> FindGguf(const std::string& path);

struct GgufFile {
  std::vector<std::shared_ptr<const MappedFile>> parts;  // mostly one
  GgufHeader header;                                     // of all parts
  const GgufArchitecture* architecture = nullptr;

  const std::string& path() const { return parts[0]->path(); }
  const std::shared_ptr<const MappedFile>& PartOf(const GgufTensor& tensor) const {
    return parts[tensor.part];
  }
  std::span<const uint8_t> BytesOf(const GgufTensor& tensor) const {
    return PartOf(tensor)->bytes().subspan(tensor.begin, tensor.end - tensor.begin);
  }
  // Of "<architecture>.<key>"; null when it is not there.
  const GgufValue* Find(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;
  // The first of the layers behind the last that predict further tokens; nothing without any.
  std::optional<int64_t> DraftLayer() const;
  // "gguf: q4_k, q6_k, f32": the types of its tensors, that of most bytes first.
  std::string WeightFormat() const;
  // The type to compute in where nobody says: that of the matrices, bf16 of quantised ones.
  DType StoredType() const;
};

// The header alone, whatever the architecture: that of a file of a vocabulary may be any. The first
// of several files brings the others, which stand beside it.
Result<GgufFile> OpenGgufHeader(const std::string& path);
// The file must be of an architecture that is read.
Result<GgufFile> OpenGgufFile(const std::string& path);

// Tensors are made when they are asked for. Those in blocks become `dtype`, rounded once; a vector
// or a router becomes f32.
Result<std::unique_ptr<WeightSource>> OpenGgufWeights(const std::string& path, DType dtype);

}  // namespace kvgauge
