// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "src/checkpoint/gguf/parts.h"

namespace kvgauge {
namespace {

constexpr std::string_view kEnding = ".gguf";

struct OpenedGguf {
  std::shared_ptr<const MappedFile> map;
  GgufHeader header;
};

Result<OpenedGguf> OpenOne(const std::string& path) {
  OpenedGguf file;
  KVG_ASSIGN(file.map, MappedFile::Open(path));
  KVG_ASSIGN(file.header, ParseGgufHeader(file.map->bytes(), path));
  return file;
}

// What a file says of how many hold its model must be what its name says.
Result<int64_t> CountByName(const OpenedGguf& file, const std::optional<GgufPartName>& name) {
  const std::string& path = file.map->path();
  KVG_ASSIGN(const int64_t count, CountGgufParts(file.header, path));
  if (!name && count > 1) {
    return BadInput(StrCat(path, ": key 'split.count' is ", count,
                           ", so the file is one of several, whose first must be called ",
                           GgufPartName{.stem = "NAME", .count = count}.PathOf(1)));
  }
  if (name && name->count != count) {
    return BadInput(StrCat(path, ": by its name the file is one of ", name->count,
                           ", but by its key 'split.count' one of ", count,
                           "; a file that holds a whole model must have another name"));
  }
  return count;
}

// A matrix that is f32 in every file: routers, norms of heads, convolutions, numbers of states.
bool IsSmall(std::string_view name) {
  return name.find(".ffn_gate_inp") != std::string_view::npos || name.ends_with("_norm.weight") ||
         name.ends_with(".ssm_conv1d.weight") || name.ends_with(".ssm_a") ||
         name.ends_with(".ssm_d");
}

}  // namespace

Result<std::optional<std::string>> FindGguf(const std::string& path) {
  if (!DirectoryExists(path)) {
    if (!path.ends_with(kEnding)) return std::optional<std::string>();
    return std::optional<std::string>(path);
  }
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.ends_with(kEnding)) continue;
    const std::optional<GgufPartName> part = ParseGgufPartName(name);
    found.push_back(part ? part->PathOf(1) : name);
  }
  if (found.empty()) return std::optional<std::string>();
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.size() > 1) {
    return BadInput(StrCat(path, ": ", found.size(), " GGUF files are here (", Join(found, ", "),
                           "); name the one to read"));
  }
  for (const char* other : {"model.safetensors", "model.safetensors.index.json",
                            "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!FileExists(StrCat(path, "/", other))) continue;
    return BadInput(StrCat(path, ": both ", found[0], " and ", other,
                           " are here, and they may hold different weights; remove one, or name "
                           "the GGUF file"));
  }
  return std::optional<std::string>(StrCat(path, "/", found[0]));
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  return header.Find(StrCat(architecture->name, ".", key));
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = std::ranges::lower_bound(header.tensors, name, {}, &GgufTensor::name);
  return found != header.tensors.end() && found->name == name ? &*found : nullptr;
}

std::optional<int64_t> GgufFile::DraftLayer() const {
  const GgufValue *layers = Find("block_count"), *ahead = Find("nextn_predict_layers");
  if (layers == nullptr || ahead == nullptr) return std::nullopt;
  const int64_t all = layers->Int().value_or(0), drafts = ahead->Int().value_or(0);
  return drafts > 0 && drafts < all ? std::optional<int64_t>(all - drafts) : std::nullopt;
}

std::string GgufFile::WeightFormat() const {
  std::map<std::string_view, uint64_t> bytes;
  for (const GgufTensor& tensor : header.tensors) {
    bytes[tensor.type->name] += tensor.end - tensor.begin;
  }
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [name, size] : bytes) order.emplace_back(size, name);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> names;
  for (const auto& [size, name] : order) names.push_back(name);
  return StrCat("gguf: ", Join(names, ", "));
}

DType GgufFile::StoredType() const {
  bool f16 = false, f32 = false, other = false;
  for (const GgufTensor& tensor : header.tensors) {
    if (tensor.shape.size() < 2) continue;  // vectors are f32 in every file
    if (IsSmall(tensor.name)) continue;
    f16 = f16 || tensor.type->name == "f16";
    f32 = f32 || tensor.type->name == "f32";
    other = other || (tensor.type->name != "f16" && tensor.type->name != "f32");
  }
  if (other || f16 == f32) return DType::kBF16;
  return f16 ? DType::kF16 : DType::kF32;
}

Result<GgufFile> OpenGgufHeader(const std::string& path) {
  const std::optional<GgufPartName> name = ParseGgufPartName(path);
  if (name && name->number != 1) {
    return BadInput(StrCat(path, ": part ", name->number, " of the ", name->count,
                           " files of a model; name the first one, ", name->PathOf(1)));
  }
  const auto missing = [&](int64_t part) {
    return BadInput(StrCat(name->PathOf(part), ": part ", part, " of the ", name->count,
                           " files of a model is missing; all of them must be in one directory"));
  };
  if (name && name->count > 1 && !FileExists(path)) return missing(1);
  KVG_ASSIGN(OpenedGguf first, OpenOne(path));
  KVG_ASSIGN(const int64_t count, CountByName(first, name));
  GgufFile file;
  file.parts.push_back(std::move(first.map));
  if (count == 1) {
    file.header = std::move(first.header);
    return file;
  }
  std::vector<GgufPart> parts;
  parts.push_back({path, std::move(first.header)});
  for (int64_t part = 2; part <= count; ++part) {
    const std::string next = name->PathOf(part);
    if (!FileExists(next)) return missing(part);
    KVG_ASSIGN(OpenedGguf other, OpenOne(next));
    file.parts.push_back(std::move(other.map));
    parts.push_back({next, std::move(other.header)});
  }
  KVG_ASSIGN(file.header, JoinGgufParts(std::move(parts)));
  return file;
}

Result<GgufFile> OpenGgufFile(const std::string& path) {
  KVG_ASSIGN(GgufFile file, OpenGgufHeader(path));
  constexpr std::string_view kKey = "general.architecture";
  const GgufValue* value = file.header.Find(kKey);
  const std::optional<std::string_view> name = value ? value->Text() : std::nullopt;
  if (!name) return BadInput(StrCat(path, ": key '", kKey, "' is missing or not a text"));
  const GgufValue* experts = file.header.Find(StrCat(*name, ".expert_count"));
  const bool mixture = experts != nullptr && experts->Int().value_or(0) > 0;
  file.architecture = FindGgufArchitecture(*name, mixture, file.header);
  if (file.architecture == nullptr) {
    const std::vector<std::string> known = GgufArchitectureNames();
    return Unsupported(StrCat(
        path, ": key '", kKey, "': ", Quoted(*name, 60), mixture ? " with experts" : "",
        " is not read", DidYouMean(std::string(*name), known), "; read are ", Join(known, ", ")));
  }
  return file;
}

}  // namespace kvgauge
