// SPDX-License-Identifier: Apache-2.0
#include "src/results/open_stores.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

// Stores that lie where `path` was looked for: "; there is: a.db, b.db".
std::string Neighbours(const std::string& path) {
  fs::path parent = fs::path(path).parent_path();
  if (parent.empty()) parent = ".";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string extension = at->path().extension().string();
    if (extension != ".db" && extension != ".sqlite" && extension != ".kvg") continue;
    names.push_back(at->path().filename().string());
  }
  if (names.empty()) return "";
  std::ranges::sort(names);
  const std::string slip = DidYouMean(fs::path(path).filename().string(), names);
  constexpr size_t kMost = 8;
  if (names.size() > kMost) {
    names.resize(kMost);
    names.emplace_back("...");
  }
  return StrCat(slip, "; there is: ", Join(names, ", "));
}

}  // namespace

Result<std::unique_ptr<ResultStore>> OpenForReading(const std::string& path) {
  auto store = ResultStore::Open(path, StoreMode::kReadOnly);
  if (store.ok()) return store;
  std::string message = store.error().message;
  if (!FileExists(path) && !DirectoryExists(path)) message += Neighbours(path);
  return BadInput(std::move(message));
}

Result<OpenStores> OpenAllForReading(const std::vector<std::string>& paths) {
  OpenStores stores;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(path, error);
    if (!seen.insert(error ? path : real.string()).second) continue;
    KVG_ASSIGN(std::unique_ptr<ResultStore> store, OpenForReading(path));
    stores.all.push_back(store.get());
    stores.owned.push_back(std::move(store));
  }
  return stores;
}

}  // namespace kvgauge
