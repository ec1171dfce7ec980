// SPDX-License-Identifier: Apache-2.0
// A header that is accepted keeps its promises, whatever the bytes; so do the headers of two files
// of one model.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/strings.h"
#include "src/checkpoint/gguf/header.h"
#include "src/checkpoint/gguf/parts.h"

namespace {

// Bytes that hold the beginning of a second file are two parts of a model.
void Join(std::span<const uint8_t> bytes) {
  constexpr std::string_view kMagic = "GGUF";
  const auto second = std::search(bytes.begin() + std::min<size_t>(bytes.size(), 1), bytes.end(),
                                  kMagic.begin(), kMagic.end());
  if (second == bytes.end()) return;
  const auto cut = static_cast<size_t>(second - bytes.begin());
  std::vector<kvgauge::GgufPart> parts;
  size_t tensors = 0;
  for (const auto& part : {bytes.first(cut), bytes.subspan(cut)}) {
    const std::string path = kvgauge::StrCat("fuzz", parts.size());
    auto header = kvgauge::ParseGgufHeader(part, path);
    if (!header.ok()) return;
    tensors += header->tensors.size();
    parts.push_back({path, std::move(header).value()});
  }
  const auto count = kvgauge::CountGgufParts(parts[0].header, "fuzz");
  KVG_CHECK(!count.ok() || (*count >= 1 && *count <= 99999), "a model has some files");
  const auto joined = kvgauge::JoinGgufParts(std::move(parts));
  if (!joined.ok()) {
    KVG_CHECK(joined.error().message.starts_with("fuzz"), "a message without its file");
    return;
  }
  KVG_CHECK(joined->tensors.size() == tensors, "no tensor is lost");
  for (size_t i = 0; i < tensors; ++i) {
    const kvgauge::GgufTensor& tensor = joined->tensors[i];
    KVG_CHECK(tensor.part < 2, "a tensor is in one of the files");
    KVG_CHECK(tensor.end <= (tensor.part == 0 ? cut : bytes.size() - cut), "and lies in it");
    KVG_CHECK(i == 0 || joined->tensors[i - 1].name < tensor.name, "names are sorted and differ");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kvgauge::GgufTensor;
  Join({data, size});
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
