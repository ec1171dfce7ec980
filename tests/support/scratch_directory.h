// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {

// A directory of its own that goes with the test: tests that run side by side share no file.
class ScratchDirectory {
 public:
  // `parent`: where it should be, if that exists.
  explicit ScratchDirectory(const std::string& parent = "") {
    const std::string where = std::filesystem::is_directory(parent)
                                  ? parent
                                  : std::filesystem::temp_directory_path().string();
    std::string pattern = StrCat(where, "/kvgauge_XXXXXX");
    KVG_CHECK(mkdtemp(pattern.data()) != nullptr, "a directory for a test");
    path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  std::string File(const std::string& name) const { return StrCat(path_, "/", name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvgauge
