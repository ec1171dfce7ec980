// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/stored_weights.h"

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostIndexBytes = int64_t{100} << 20;

constexpr auto kNumberTypes = std::to_array<NumberType>({
    {"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},   {"I64", 64, DType::kI64},
    {"I32", 32, DType::kI32},     {"I8", 8, DType::kI8},
    {"U8", 8, DType::kU8},        {"F64", 64, std::nullopt},
    {"C64", 64, std::nullopt},    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},    {"BOOL", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},
});

struct Shard {
  std::shared_ptr<const MappedFile> file;
  std::vector<StoredEntry> entries;
};

Result<Shard> OpenShard(const std::string& path, ReadEntries read) {
  Shard shard;
  KVG_ASSIGN(shard.file, MappedFile::Open(path));
  KVG_ASSIGN(shard.entries, read(shard.file->bytes(), path));
  return shard;
}

struct Located {
  std::shared_ptr<const MappedFile> file;
  StoredEntry entry;
};

// The numbers of a tensor in the order of its shape, and what keeps them alive.
struct Content {
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;
};

// Copies elements that lie apart, the last dimension fastest.
Content Gathered(const Located& located) {
  const StoredEntry& entry = located.entry;
  const uint64_t size = FindNumberType(entry.dtype_name)->bits / 8;
  int64_t elements = 1;
  for (const int64_t dim : entry.shape) elements *= dim;
  const int64_t columns = entry.shape.back(), step = entry.strides.back();
  const int64_t bytes = elements * static_cast<int64_t>(size);
  const auto buffer = std::make_shared<Buffer>(HostBuffer(bytes));
  auto* out = static_cast<uint8_t*>(buffer->data());
  const uint8_t* all = located.file->bytes().data() + entry.begin;
  std::vector<int64_t> at(entry.shape.size() - 1, 0);  // of the row
  for (int64_t row = 0; row < elements / columns; ++row) {
    int64_t first = 0;
    for (size_t d = 0; d < at.size(); ++d) first += at[d] * entry.strides[d];
    for (int64_t i = 0; i < columns; ++i, out += size) {
      std::memcpy(out, all + static_cast<uint64_t>(first + i * step) * size, size);
    }
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < entry.shape[d]) break;
      at[d] = 0;
    }
  }
  return {{static_cast<const uint8_t*>(buffer->data()), static_cast<size_t>(bytes)}, buffer};
}

Content ContentOf(const Located& located) {
  const StoredEntry& entry = located.entry;
  if (!entry.strides.empty()) return Gathered(located);
  return {located.file->bytes().subspan(entry.begin, entry.end - entry.begin), located.file};
}

class StoredSource final : public WeightSource, public OrderedReads {
 public:
  // `place` is what messages call the whole: a file or a directory.
  StoredSource(std::string place, std::map<std::string, Located> tensors)
      : place_(std::move(place)), tensors_(std::move(tensors)) {}

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    names.reserve(tensors_.size());
    for (const auto& [name, located] : tensors_) names.push_back(name);
    return names;
  }

  bool Contains(const std::string& name) const override { return tensors_.contains(name); }

  Result<WeightInfo> Describe(const std::string& name) const override {
    KVG_ASSIGN(const Located* located, Find(name));
    KVG_ASSIGN(const DType dtype, TypeOf(*located));
    std::vector<int64_t> shape = ViewShape(*located);
    if (shape.empty()) shape = {1};
    return WeightInfo{dtype, std::move(shape)};
  }

  Result<WeightTensor> Get(const std::string& name) const override {
    KVG_ASSIGN(const Located* located, Find(name));
    KVG_ASSIGN(const DType dtype, TypeOf(*located));
    ahead_.Reach(PartOf(*located));
    const Content content = ContentOf(*located);
    return WeightTensor{ContiguousView(content.bytes.data(), dtype, ViewShape(*located)),
                        content.owner};
  }

  Result<RawTensor> GetStored(const std::string& name) const override {
    KVG_ASSIGN(const Located* located, Find(name));
    ahead_.Reach(PartOf(*located));
    const Content content = ContentOf(*located);
    return RawTensor{located->entry.dtype_name, located->entry.shape, content.bytes, content.owner};
  }

  void Release(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return;
    ReleasePages(PartOf(found->second));
  }

  void PlanReads(std::span<const std::string> names) const override {
    std::vector<FilePart> parts;
    for (const std::string& name : names) {
      const auto found = tensors_.find(name);
      if (found != tensors_.end()) parts.push_back(PartOf(found->second));
    }
    ahead_.Plan(parts);
  }

  void EndReads() const override { ahead_.EndPlan(); }

  std::string OriginOf(const std::string& name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? place_ : found->second.file->path();
  }

  // The same for the same numbers in any container.
  std::string Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      FingerprintBuilder builder("safetensors 1");
      for (const auto& [name, located] : tensors_) {
        builder.AddTensor(name, located.entry.dtype_name, located.entry.shape);
        ahead_.Follow(PartOf(located));
        builder.AddContent(ContentOf(located).bytes);
        ReleasePages(PartOf(located));
      }
      fingerprint_ = builder.Finish();
    });
    return fingerprint_;
  }

 private:
  Result<const Located*> Find(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(place_, name, Names());
    return &found->second;
  }

  static std::span<const uint8_t> StoredBytes(const Located& located) {
    return located.file->bytes().subspan(located.entry.begin,
                                         located.entry.end - located.entry.begin);
  }

  static FilePart PartOf(const Located& located) {
    return {located.file.get(), StoredBytes(located)};
  }

  static Result<DType> TypeOf(const Located& located) {
    const StoredEntry& entry = located.entry;
    if (entry.dtype) return *entry.dtype;
    return Unsupported(StrCat(located.file->path(), ": tensor ", Quoted(entry.name, 120),
                              " has dtype ", entry.dtype_name,
                              ", expected F32, F16, BF16, I64, I32, I8 or U8"));
  }

  // The last dimensions are one where there are too many for a view.
  static std::vector<int64_t> ViewShape(const Located& located) {
    std::vector<int64_t> shape = located.entry.shape;
    while (shape.size() > kMaxRank) {
      const int64_t last = shape.back();
      shape.pop_back();
      shape.back() *= last;
    }
    return shape;
  }

  std::string place_;
  std::map<std::string, Located> tensors_;
  mutable ReadAhead ahead_;
  mutable std::once_flag fingerprint_once_;
  mutable std::string fingerprint_;
};

// Names of shards come from a downloaded file; they may only name neighbours of the index.
bool IsPlainFileName(std::string_view name, std::string_view ending) {
  return !name.empty() && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos &&
         name.find("..") == std::string_view::npos && name.ends_with(ending);
}

// Tensor name -> shard file name.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& path,
                                                     std::string_view ending) {
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
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>(), ending)) {
      return BadInput(StrCat(path, ": weight_map: tensor ", Quoted(name, 120), ": ",
                             Quoted(CanonicalJson(file), 120), ", expected the name of a ", ending,
                             " file in the same directory"));
    }
    shard_of.emplace(name, file.get<std::string>());
  }
  return shard_of;
}

Result<std::unique_ptr<WeightSource>> OpenSharded(const std::string& directory,
                                                  const std::string& index_path,
                                                  const StoredFormat& format) {
  using ShardNames = std::map<std::string, std::string>;
  KVG_ASSIGN(const ShardNames shard_of, ReadIndex(index_path, format.ending));
  std::map<std::string, Shard> shards;
  for (const auto& [name, file] : shard_of) {
    if (shards.contains(file)) continue;
    Result<Shard> shard = OpenShard(StrCat(directory, "/", file), format.read);
    if (!shard.ok()) return shard.error().Wrap(index_path);
    shards.emplace(file, std::move(shard).value());
  }
  std::map<std::string, Located> tensors;
  std::vector<std::string> unlisted;
  for (auto& [file, shard] : shards) {
    for (StoredEntry& entry : shard.entries) {
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
      std::make_unique<StoredSource>(directory, std::move(tensors)));
}

}  // namespace

const NumberType* FindNumberType(std::string_view name) {
  for (const NumberType& type : kNumberTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

Result<std::unique_ptr<WeightSource>> OpenStoredFile(const std::string& path, ReadEntries read) {
  KVG_ASSIGN(Shard shard, OpenShard(path, read));
  std::map<std::string, Located> tensors;
  for (StoredEntry& entry : shard.entries) {
    const std::string name = entry.name;
    tensors.emplace(name, Located{shard.file, std::move(entry)});
  }
  return std::unique_ptr<WeightSource>(std::make_unique<StoredSource>(path, std::move(tensors)));
}

bool HasStored(const std::string& directory, const StoredFormat& format) {
  return FileExists(StrCat(directory, "/", format.single)) ||
         FileExists(StrCat(directory, "/", format.index));
}

Result<std::unique_ptr<WeightSource>> OpenStored(const std::string& directory,
                                                 const StoredFormat& format) {
  if (!DirectoryExists(directory)) {
    return BadInput(StrCat(directory, ": not a directory, expected one with ", format.single));
  }
  const std::string single = StrCat(directory, "/", format.single);
  const std::string index = StrCat(directory, "/", format.index);
  const bool has_single = FileExists(single);
  const bool has_index = FileExists(index);
  if (has_single && has_index) {
    return BadInput(StrCat(directory, ": both ", format.single, " and ", format.index,
                           " are here, and they may hold different weights; remove one"));
  }
  if (has_index) return OpenSharded(directory, index, format);
  if (has_single) return OpenStoredFile(single, format.read);
  return BadInput(
      StrCat(directory, ": neither ", format.single, " nor ", format.index, " is here"));
}

}  // namespace kvgauge
