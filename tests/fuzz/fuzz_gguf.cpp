// SPDX-License-Identifier: Apache-2.0
// A header that is accepted keeps its promises, whatever the bytes.
#include <algorithm>

#include "core/check.h"
#include "src/checkpoint/gguf/header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kvgauge::GgufTensor;
  const auto parsed = kvgauge::ParseGgufHeader({data, size}, "fuzz");
  if (!parsed.ok()) {
    KVG_CHECK(parsed.error().message.starts_with("fuzz"), "a message without its origin");
    return 0;
  }
  for (const auto& [key, value] : parsed->metadata) {
    KVG_CHECK(!key.empty(), "a key has a name");
    if (const auto texts = value.Texts()) {
      KVG_CHECK(texts->size() == value.count(), "a list has the texts that it claims");
    }
    if (const auto numbers = value.Reals()) {
      KVG_CHECK(numbers->size() == value.count(), "a list has the numbers that it claims");
    }
    KVG_CHECK(!value.Text() || !value.Real(), "a value is of one kind");
    KVG_CHECK(!value.Bool() || !value.Int(), "a value is of one kind");
  }
  std::vector<GgufTensor> tensors = parsed->tensors;
  for (size_t i = 1; i < tensors.size(); ++i) {
    KVG_CHECK(tensors[i - 1].name < tensors[i].name, "names are sorted and differ");
  }
  std::ranges::sort(tensors, {}, &GgufTensor::begin);
  uint64_t covered = 0;
  for (const GgufTensor& tensor : tensors) {
    KVG_CHECK(tensor.begin >= covered && tensor.end <= size, "tensors lie in the file, apart");
    covered = tensor.end;
    int64_t blocks = 1;
    for (const int64_t dim : tensor.shape) blocks *= dim;
    blocks /= tensor.type->elements;
    KVG_CHECK(static_cast<uint64_t>(blocks * tensor.type->bytes) == tensor.end - tensor.begin,
              "a tensor has the bytes of its shape");
    if (blocks == 0) continue;
    std::vector<float> numbers(static_cast<size_t>(tensor.type->elements));
    ReadBlocks(*tensor.type, data + tensor.begin, tensor.type->elements, numbers.data());
  }
  return 0;
}
