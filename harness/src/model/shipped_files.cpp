// SPDX-License-Identifier: Apache-2.0
#include "src/model/shipped_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

// KVG_SHARE_FROM_BIN: "../share/kvgauge", as the prefix is laid out.
std::vector<fs::path> Roots() {
  std::vector<fs::path> roots;
  if (const char* home = std::getenv("KVGAUGE_HOME"); home != nullptr && *home != 0) {
    roots.emplace_back(home);
  }
  std::error_code error;
  fs::path at = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return roots;
  roots.push_back((at / KVG_SHARE_FROM_BIN).lexically_normal());
  constexpr int kMostLevels = 5;  // build/PRESET/harness/kvgauge is three below the source tree
  for (int up = 0; up < kMostLevels && at.has_relative_path(); ++up, at = at.parent_path()) {
    roots.push_back(at);
  }
  return roots;
}

}  // namespace

Result<std::string> FindConfigFile(const std::string& relative) {
  const std::vector<fs::path> roots = Roots();
  for (const fs::path& root : roots) {
    const std::string path = (root / "configs" / relative).string();
    if (FileExists(path)) return path;
  }
  std::vector<std::string> looked;
  for (const fs::path& root : roots) looked.push_back(root.string());
  return BadInput(StrCat("configs/", relative, " was not found in any of ", Join(looked, ", "),
                         "; set KVGAUGE_HOME to the directory that holds configs/"));
}

std::string FindShipped(const std::string& path) {
  if (FileExists(path) || DirectoryExists(path) || fs::path(path).is_absolute()) return path;
  const Result<std::string> known = FindConfigFile("methods/full.json");
  if (!known.ok()) return path;
  const std::string shipped =
      (fs::path(*known).parent_path().parent_path().parent_path() / path).string();
  return FileExists(shipped) || DirectoryExists(shipped) ? shipped : path;
}

Result<std::string> ShapeOrPath(const std::string& model) {
  if (model.find('/') != std::string::npos || FileExists(model) || DirectoryExists(model)) {
    return model;
  }
  KVG_ASSIGN(const std::string shipped, FindConfigFile("models/bench-s.json"));
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& file : fs::directory_iterator(fs::path(shipped).parent_path(), failed)) {
    names.push_back(file.path().stem().string());
    if (names.back() == model) return file.path().string();
  }
  std::ranges::sort(names);
  return BadInput(StrCat("model ", Quoted(model), " is neither a path nor a shipped shape",
                         DidYouMean(model, names), ", expected one of ", Join(names, ", ")));
}

}  // namespace kvgauge
