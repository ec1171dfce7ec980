// SPDX-License-Identifier: Apache-2.0
// Tensors that are accepted lie in their storages, whatever the bytes: of an archive where they
// begin like one, otherwise of the pickle in it.
#include "core/check.h"
#include "src/checkpoint/pickled/file.h"
#include "src/checkpoint/pickled/pickle.h"

namespace {

using kvgauge::FindNumberType;

uint64_t ElementsOf(const std::vector<int64_t>& shape) {
  uint64_t elements = 1;
  for (const int64_t size : shape) elements *= static_cast<uint64_t>(size);
  return elements;
}

// Place of the last element of a tensor that has some, counted from its first.
uint64_t LastOf(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  uint64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    last += static_cast<uint64_t>(shape[i] - 1) * static_cast<uint64_t>(strides[i]);
  }
  return last;
}

void ReadArchive(std::span<const uint8_t> bytes) {
  const auto parsed = kvgauge::ParsePickledWeights(bytes, "fuzz");
  if (!parsed.ok()) {
    KVG_CHECK(parsed.error().message.starts_with("fuzz"), "a message without its origin");
    return;
  }
  for (const kvgauge::StoredEntry& entry : *parsed) {
    const uint64_t size = FindNumberType(entry.dtype_name)->bits / 8;
    KVG_CHECK(entry.begin <= entry.end && entry.end <= bytes.size(), "tensors lie in the file");
    const uint64_t room = (entry.end - entry.begin) / size;
    if (entry.strides.empty()) {
      KVG_CHECK(ElementsOf(entry.shape) == room, "a tensor has the bytes of its shape");
      continue;
    }
    KVG_CHECK(ElementsOf(entry.shape) <= bytes.size() / size, "no tensor is larger than the file");
    KVG_CHECK(LastOf(entry.shape, entry.strides) + 1 == room, "strides lead to the last element");
  }
}

void ReadBarePickle(std::span<const uint8_t> bytes) {
  const auto parsed = kvgauge::ReadPickle(bytes, "fuzz");
  if (!parsed.ok()) {
    KVG_CHECK(parsed.error().message.starts_with("fuzz: data.pkl: "),
              "a message without its place");
    return;
  }
  for (size_t i = 0; i < parsed->size(); ++i) {
    const kvgauge::PickledTensor& tensor = (*parsed)[i];
    KVG_CHECK(i == 0 || (*parsed)[i - 1].name < tensor.name, "names are sorted and differ");
    const uint64_t room = tensor.storage_bytes / (tensor.type->bits / 8);
    const uint64_t elements = ElementsOf(tensor.shape);
    KVG_CHECK(tensor.shape.size() == tensor.strides.size(), "each size has a stride");
    KVG_CHECK(elements <= room && tensor.offset <= room, "tensors lie in their storages");
    KVG_CHECK(elements == 0 || tensor.offset + LastOf(tensor.shape, tensor.strides) < room,
              "the last element lies in the storage");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 && data[0] == 'P') {
    ReadArchive({data, size});
  } else {
    ReadBarePickle({data, size});
  }
  return 0;
}
