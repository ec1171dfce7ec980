// SPDX-License-Identifier: Apache-2.0
// The few words of Python's pickle that a dictionary of tensors is written in.
//
// A pickle is a program. This reader runs none: it knows the operations that build texts, numbers,
// lists and dictionaries, and the names that PyTorch gives its tensors and storages. Everything
// else is an error that names the operation or the name, and the byte where it stands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "src/checkpoint/stored_weights.h"

namespace kvgauge {

struct PickledTensor {
  std::string name = {};
  const NumberType* type = nullptr;  // of whole bytes
  std::string storage = {};          // the key of the storage that has its numbers
  uint64_t storage_bytes = 0;        // what the pickle says of it
  uint64_t offset = 0;               // in elements
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // in elements
};

// The tensors of a state dictionary, sorted by name. On success each lies in its storage, and has
// at most the elements that the storage has. `origin` begins every message.
Result<std::vector<PickledTensor>> ReadPickle(std::span<const uint8_t> pickle,
                                              std::string_view origin);

}  // namespace kvgauge
