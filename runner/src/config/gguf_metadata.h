// SPDX-License-Identifier: Apache-2.0
// What a GGUF file says of its model, key by key, on its way to a config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "src/checkpoint/gguf/file.h"

namespace kvgauge {

// One file's metadata, each key taken once; Finish() looks for what nobody took. The first fault is
// kept. Keys are without "<architecture>.".
class GgufMetadata {
 public:
  GgufMetadata(const GgufFile& file, Json& out) : file_(file), out_(out) {}

  const GgufFile& file() const { return file_; }
  std::string_view type() const { return file_.architecture->model_type; }

  const GgufValue* Take(std::string_view key);
  std::optional<int64_t> Int(std::string_view key);
  // One number for each layer, which the file may say once for all of them; empty where it has
  // none.
  std::vector<int64_t> LayerInts(std::string_view key, int64_t layers);
  std::vector<bool> LayerFlags(std::string_view key, int64_t layers);
  std::optional<double> Real(std::string_view key);
  std::optional<bool> Bool(std::string_view key);
  std::string Text(std::string_view key);

  // Keys of the config.
  void Set(std::string_view key, Json value);
  template <class T>
  void SetIf(std::string_view key, const std::optional<T>& value) {
    if (value) Set(key, *value);
  }
  // What the config calls otherwise in this family; nothing where it has not got it.
  void Rename(std::string_view from, std::string_view to);
  void Drop(std::string_view key);

  // Whether some layer has a tensor: "attn_q.bias".
  bool HasInLayers(std::string_view part) const;
  // Rows of the first layer's that has it, those of one expert where it has all of them.
  std::optional<int64_t> RowsInLayers(std::string_view part) const;

  void Fail(std::string_view key, std::string_view expected);
  void Refuse(std::string_view key, std::string_view why);
  Status Finish();

 private:
  const GgufTensor* FirstInLayers(std::string_view part) const;

  const GgufFile& file_;
  Json& out_;
  std::set<std::string> taken_;
  Status fault_;
};

// How many layers the file has, and how many of them run: from 1 on; a fault where it does not say.
int64_t GgufStoredLayers(GgufMetadata& data);
int64_t GgufLayers(GgufMetadata& data);
// The width of a head of keys; nothing where the file does not make it clear.
std::optional<int64_t> HeadWidthOf(GgufMetadata& data);
// head_dim, where the file has it; that all of a head turns, but for Phi-3's.
void SetHeads(GgufMetadata& data);
// rope_scaling, of keys or of the tensors that list divisors.
void SetScaling(GgufMetadata& data);

// Takes all keys of a family that has a reader of its own (gguf_families.cpp, gguf_states.cpp);
// false for the others.
bool SetOwnFamily(GgufMetadata& data);
bool SetStateFamily(GgufMetadata& data);

}  // namespace kvgauge
