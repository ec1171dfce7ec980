// SPDX-License-Identifier: Apache-2.0
// A checkpoint in a folder of its own, written tensor by tensor so that a test can spoil it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/json.h"
#include "runner/weights.h"
#include "support/compare.h"

namespace kvgauge {

struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class CheckpointFolder {
 public:
  CheckpointFolder() {
    std::string pattern = ::testing::TempDir() + "kvg_checkpoint_XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder " << pattern;
    path_ = pattern;
  }
  ~CheckpointFolder() { std::filesystem::remove_all(path_); }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }
  void WriteText(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }
  void WriteConfig(const Json& config) const { WriteText("config.json", config.dump()); }

  void WriteWeights(const std::vector<StoredTensor>& tensors) const {
    Json header = Json::object();
    size_t at = 0;
    for (const StoredTensor& tensor : tensors) {
      const size_t end = at + tensor.values.size() * sizeof(float);
      header[tensor.name] = {
          {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
      at = end;
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream file(path_ + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << text;
    for (const StoredTensor& tensor : tensors) {
      file.write(reinterpret_cast<const char*>(tensor.values.data()),
                 static_cast<std::streamsize>(tensor.values.size() * sizeof(float)));
    }
  }

 private:
  std::string path_;
};

// Small seeded numbers for each tensor.
inline std::vector<StoredTensor> DrawTensors(const std::vector<TensorSpec>& specs) {
  std::vector<StoredTensor> tensors;
  uint64_t seed = 0;
  for (const TensorSpec& spec : specs) {
    int64_t count = 1;
    for (const int64_t d : spec.shape) count *= d;
    StoredTensor tensor{spec.name, spec.shape, {}};
    tensor.values = RandomValues(count, ++seed, 0.1f);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace kvgauge
