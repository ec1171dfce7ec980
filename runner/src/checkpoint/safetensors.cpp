// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "runner/weights.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr int64_t kMostIndexBytes = int64_t{100} << 20;

struct Shard {
  std::shared_ptr<const MappedFile> file;
  std::vector<SafetensorsEntry> entries;
};

Result<Shard> OpenShard(const std::string& path) {
  Shard shard;
  KVG_ASSIGN(shard.file, MappedFile::Open(path));
  KVG_ASSIGN(shard.entries, ParseSafetensorsHeader(shard.file->bytes(), path));
  return shard;
}

struct Located {
  std::shared_ptr<const MappedFile> file;
  SafetensorsEntry entry;
};

class SafetensorsSource final : public WeightSource {
 public:
  // `place` is what messages call the whole: a file or a directory.
  SafetensorsSource(std::string place, std::map<std::string, Located> tensors)
      : place_(std::move(place)), tensors_(std::move(tensors)) {}

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    names.reserve(tensors_.size());
    for (const auto& [name, located] : tensors_) names.push_back(name);
    return names;
  }

  bool Contains(const std::string& name) const override { return tensors_.contains(name); }

  Result<WeightTensor> Get(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(place_, name, Names());
    const auto& [file, entry] = found->second;
    if (!entry.dtype) {
      return Unsupported(StrCat(file->path(), ": tensor ", Quoted(name, 120), " has dtype ",
                                entry.dtype_name, ", expected F32, F16, BF16, I64, I32, I8 or U8"));
    }
    std::vector<int64_t> shape = entry.shape;
    while (shape.size() > kMaxRank) {
      const int64_t last = shape.back();
      shape.pop_back();
      shape.back() *= last;
    }
    return WeightTensor{ContiguousView(Content(found->second).data(), *entry.dtype, shape), file};
  }

  Result<RawTensor> GetStored(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(place_, name, Names());
    const auto& [file, entry] = found->second;
    return RawTensor{entry.dtype_name, entry.shape, Content(found->second), file};
  }

  std::string OriginOf(const std::string& name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? place_ : found->second.file->path();
  }

  std::string Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      FingerprintBuilder builder("safetensors 1");
      for (const auto& [name, located] : tensors_) {
        builder.AddTensor(name, located.entry.dtype_name, located.entry.shape);
        builder.AddContent(Content(located));
      }
      fingerprint_ = builder.Finish();
    });
    return fingerprint_;
  }

 private:
  static std::span<const uint8_t> Content(const Located& located) {
    return located.file->bytes().subspan(located.entry.begin,
                                         located.entry.end - located.entry.begin);
  }

  std::string place_;
  std::map<std::string, Located> tensors_;
  mutable std::once_flag fingerprint_once_;
  mutable std::string fingerprint_;
};

// Names of shards come from a downloaded file; they may only name neighbours of the index.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos &&
         name.find("..") == std::string_view::npos && name.ends_with(".safetensors");
}

// Tensor name -> shard file name.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  KVG_ASSIGN(const std::string text, ReadFile(path, kMostIndexBytes));
  KVG_ASSIGN(const Json json, ParseJson(text, path));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    return BadInput(StrCat(path,
                           ": key 'weight_map' is missing or empty, expected an object that "
                           "maps tensor names to file names"));
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      return BadInput(StrCat(path, ": weight_map: tensor ", Quoted(name, 120), ": ",
                             Quoted(CanonicalJson(file), 120),
                             ", expected the name of a .safetensors file in the same directory"));
    }
    shard_of.emplace(name, file.get<std::string>());
  }
  return shard_of;
}

Result<std::unique_ptr<WeightSource>> OpenSharded(const std::string& directory,
                                                  const std::string& index_path) {
  using ShardNames = std::map<std::string, std::string>;
  KVG_ASSIGN(const ShardNames shard_of, ReadIndex(index_path));
  std::map<std::string, Shard> shards;
  for (const auto& [name, file] : shard_of) {
    if (shards.contains(file)) continue;
    Result<Shard> shard = OpenShard(StrCat(directory, "/", file));
    if (!shard.ok()) return shard.error().Wrap(index_path);
    shards.emplace(file, std::move(shard).value());
  }
  std::map<std::string, Located> tensors;
  std::vector<std::string> unlisted;
  for (auto& [file, shard] : shards) {
    for (SafetensorsEntry& entry : shard.entries) {
      const auto listed = shard_of.find(entry.name);
      if (listed == shard_of.end() || listed->second != file) {
        unlisted.push_back(StrCat(Quoted(entry.name, 120), " in ", file));
        continue;
      }
      const std::string name = entry.name;
      tensors.emplace(name, Located{shard.file, std::move(entry)});
    }
  }
  for (const auto& [name, file] : shard_of) {
    if (!tensors.contains(name)) {
      return BadInput(StrCat(directory, "/", file, ": no tensor ", Quoted(name, 120), ", which ",
                             index_path, " says is here"));
    }
  }
  if (!unlisted.empty()) {
    LogWarning(StrCat(index_path, ": ", unlisted.size(),
                      " tensors of the shards are not listed and will not be used, the first is ",
                      unlisted.front()));
  }
  return std::unique_ptr<WeightSource>(
      std::make_unique<SafetensorsSource>(directory, std::move(tensors)));
}

bool HasPickledWeights(const std::string& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenSafetensorsFile(const std::string& path) {
  KVG_ASSIGN(Shard shard, OpenShard(path));
  std::map<std::string, Located> tensors;
  for (SafetensorsEntry& entry : shard.entries) {
    const std::string name = entry.name;
    tensors.emplace(name, Located{shard.file, std::move(entry)});
  }
  return std::unique_ptr<WeightSource>(
      std::make_unique<SafetensorsSource>(path, std::move(tensors)));
}

Result<std::unique_ptr<WeightSource>> OpenSafetensors(const std::string& directory) {
  if (!DirectoryExists(directory)) {
    return BadInput(StrCat(directory, ": not a directory, expected one with ", kSingleName));
  }
  const std::string single = StrCat(directory, "/", kSingleName);
  const std::string index = StrCat(directory, "/", kIndexName);
  const bool has_single = FileExists(single);
  const bool has_index = FileExists(index);
  if (has_single && has_index) {
    return BadInput(StrCat(directory, ": both ", kSingleName, " and ", kIndexName,
                           " are here, and they may hold different weights; remove one"));
  }
  if (has_index) return OpenSharded(directory, index);
  if (has_single) return OpenSafetensorsFile(single);
  if (HasPickledWeights(directory)) {
    return Unsupported(StrCat(directory,
                              ": only pytorch_model*.bin is here; convert the weights "
                              "to safetensors (save_pretrained does so)"));
  }
  return BadInput(StrCat(directory, ": neither ", kSingleName, " nor ", kIndexName, " is here"));
}

}  // namespace kvgauge
