// SPDX-License-Identifier: Apache-2.0
#include "src/cache/states.h"

#include <cmath>

#include "src/cache/bytes.h"

namespace kvgauge {

Status SequenceStates::Own() {
  while (blocks_.size() < count()) KVG_TRY(blocks_.Push(block_bytes(blocks_.size())));
  return blocks_.OwnFrom(0);
}

void SequenceStates::AddBytes(int64_t index, KvBytes& bytes) const {
  if (index >= blocks_.size()) return;
  bytes.biases += block_bytes(index);
  bytes.slack += pool_->BlockBytes(blocks_[index]) - block_bytes(index);
}

Tensor SequenceStates::View(int64_t index) const {
  KVG_CHECK(index >= 0 && index < blocks_.size() && blocks_.Owns(index),
            "a state that Append did not make room for");
  Tensor state = pool_->Bytes(blocks_[index], numbers_[static_cast<size_t>(index)]);
  state.dtype = DType::kF32;
  return state;
}

void SequenceStates::Serialize(std::string& out) const {
  for (int64_t i = 0; i < count(); ++i) {
    std::vector<float> numbers(static_cast<size_t>(numbers_[static_cast<size_t>(i)]));
    if (i < blocks_.size()) {
      const int64_t size_bytes = block_bytes(i);
      pool_->ops().memory->Copy(pool_->Bytes(blocks_[i], size_bytes),
                                Tensor(numbers.data(), DType::kU8, {size_bytes}));
    }
    PutArray(out, numbers);
  }
}

Status SequenceStates::Deserialize(std::string_view& in) {
  KVG_TRY(Own());
  for (int64_t i = 0; i < count(); ++i) {
    std::vector<float> numbers;
    KVG_TRY(TakeArray(in, &numbers));
    if (std::ssize(numbers) != numbers_[static_cast<size_t>(i)]) {
      return BadInput(StrCat("cache bytes: the state of layer ", i, " has ", numbers.size(),
                             " numbers; expected ", numbers_[static_cast<size_t>(i)]));
    }
    for (const float number : numbers) {
      if (std::isfinite(number)) continue;
      return BadInput(StrCat("cache bytes: the state of layer ", i, " has ", number,
                             "; expected finite numbers"));
    }
    const int64_t size_bytes = block_bytes(i);
    pool_->ops().memory->Copy(Tensor(numbers.data(), DType::kU8, {size_bytes}),
                              pool_->Bytes(blocks_[i], size_bytes));
  }
  return {};
}

}  // namespace kvgauge
