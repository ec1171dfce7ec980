// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/pickled/file.h"

#include <map>
#include <string>
#include <utility>

#include "core/strings.h"
#include "src/checkpoint/pickled/pickle.h"
#include "src/checkpoint/pickled/zip.h"

namespace kvgauge {
namespace {

using Entries = std::map<std::string, ZipEntry>;

constexpr uint64_t kMostPickleBytes = uint64_t{64} << 20;
constexpr std::string_view kPickle = "/data.pkl";

// PyTorch before 1.6 wrote pickles one behind the other.
bool IsBarePickle(std::span<const uint8_t> file) { return file.size() > 1 && file[0] == 0x80; }

// All entries lie in one folder, which has any name.
Result<std::string> FolderOf(const Entries& entries, std::string_view origin) {
  std::vector<std::string> folders;
  for (const auto& [name, entry] : entries) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos && std::string_view(name).substr(slash) == kPickle) {
      folders.push_back(name.substr(0, slash));
    }
  }
  if (folders.size() == 1) return folders[0];
  return BadInput(StrCat(origin, ": a zip archive with ", folders.size(), " entries FOLDER",
                         kPickle, ", expected one; this is no file of torch.save"));
}

std::span<const uint8_t> Content(std::span<const uint8_t> file, const ZipEntry& entry) {
  return file.subspan(entry.begin, entry.end - entry.begin);
}

Status CheckKind(std::span<const uint8_t> file, const Entries& entries, const std::string& folder,
                 std::string_view origin) {
  if (entries.contains(folder + "/constants.pkl")) {
    return Unsupported(StrCat(origin,
                              ": a TorchScript archive, which holds a program; expected a "
                              "dictionary of tensors"));
  }
  const auto order = entries.find(folder + "/byteorder");
  if (order == entries.end()) return {};
  const auto bytes = Content(file, order->second);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (Trim(text) == "little") return {};
  return Unsupported(StrCat(origin, ": byteorder is ", Quoted(text), ", expected 'little'"));
}

bool IsInOrder(const PickledTensor& tensor) {
  int64_t step = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] > 1 && tensor.strides[i] != step) return false;
    step *= tensor.shape[i];
  }
  return true;
}

StoredEntry Place(const PickledTensor& tensor, const ZipEntry& storage) {
  StoredEntry entry{.name = tensor.name,
                    .dtype_name = std::string(tensor.type->name),
                    .dtype = tensor.type->dtype,
                    .shape = tensor.shape};
  const uint64_t bytes = tensor.type->bits / 8;
  uint64_t elements = 1;  // from the first to the last
  bool empty = false;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    empty = empty || tensor.shape[i] == 0;
    elements += static_cast<uint64_t>((tensor.shape[i] - 1) * tensor.strides[i]);
  }
  if (empty) elements = 0;
  entry.begin = storage.begin + tensor.offset * bytes;
  entry.end = entry.begin + elements * bytes;
  if (!empty && !IsInOrder(tensor)) entry.strides = tensor.strides;
  return entry;
}

}  // namespace

Result<std::vector<StoredEntry>> ParsePickledWeights(std::span<const uint8_t> file,
                                                     std::string_view origin) {
  if (IsBarePickle(file)) {
    return Unsupported(StrCat(origin,
                              ": a file of PyTorch before 1.6, which is not read; load it and "
                              "save it again, at best as safetensors"));
  }
  KVG_ASSIGN(const Entries entries, ReadZipDirectory(file, origin));
  KVG_ASSIGN(const std::string folder, FolderOf(entries, origin));
  KVG_TRY(CheckKind(file, entries, folder, origin));
  const auto pickle = Content(file, entries.at(StrCat(folder, kPickle)));
  if (pickle.size() > kMostPickleBytes) {
    return BadInput(StrCat(origin, ": data.pkl has ", pickle.size(), " bytes, expected at most ",
                           kMostPickleBytes));
  }
  KVG_ASSIGN(const std::vector<PickledTensor> tensors, ReadPickle(pickle, origin));
  std::vector<StoredEntry> placed;
  placed.reserve(tensors.size());
  for (const PickledTensor& tensor : tensors) {
    const auto storage = entries.find(StrCat(folder, "/data/", tensor.storage));
    const std::string where = StrCat(origin, ": tensor ", Quoted(tensor.name, 120), ": storage ",
                                     Quoted(tensor.storage, 120));
    if (storage == entries.end()) return BadInput(where + " is not in the archive");
    const uint64_t bytes = storage->second.end - storage->second.begin;
    if (bytes != tensor.storage_bytes) {
      return BadInput(
          StrCat(where, " has ", bytes, " bytes, but the pickle says ", tensor.storage_bytes));
    }
    placed.push_back(Place(tensor, storage->second));
  }
  return placed;
}

}  // namespace kvgauge
