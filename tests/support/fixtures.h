// SPDX-License-Identifier: Apache-2.0
// Reading golden fixtures.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "runner/weights.h"

namespace kvgauge {

// Directories under tests/<relative>, sorted by name. Fails the build's promise when there are
// none.
inline std::vector<std::string> FixtureDirectories(const std::string& relative) {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KVG_TEST_DATA) + "/" + relative)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// One tensor of a fixture as a vector. Fails the test when it is absent or of another type.
template <class T>
std::vector<T> ReadFixture(const WeightSource& source, const std::string& name, DType dtype) {
  std::vector<T> values;
  const Result<WeightTensor> tensor = source.Get(name);
  if (!tensor.ok()) {
    ADD_FAILURE() << tensor.error().message;
    return values;
  }
  EXPECT_EQ(tensor->view.dtype, dtype) << name;
  values.resize(static_cast<size_t>(tensor->view.Numel()));
  std::memcpy(values.data(), tensor->view.data, values.size() * sizeof(T));
  return values;
}

inline std::vector<int32_t> ReadIds(const WeightSource& source, const std::string& name) {
  const std::vector<int64_t> wide = ReadFixture<int64_t>(source, name, DType::kI64);
  return {wide.begin(), wide.end()};
}

}  // namespace kvgauge
