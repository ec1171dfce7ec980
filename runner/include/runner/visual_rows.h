// SPDX-License-Identifier: Apache-2.0
// Finished rows of a picture or a video: what takes the place of token embeddings, in memory of the
// backend that made them. Prompts that show the picture read them there; nobody changes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace kvgauge {

class VisualRows {
 public:
  VisualRows() = default;  // none
  // Zeros until somebody writes them: `count` rows of `width`, and as many of each layer of
  // `deepstack`. Throws std::bad_alloc as MemoryOps::Allocate does.
  VisualRows(MemoryOps& memory, int64_t count, int64_t width, int64_t deepstack);
  // Copies of host numbers: the rows, and those of each layer.
  VisualRows(MemoryOps& memory, const std::vector<float>& rows, int64_t width,
             const std::vector<std::vector<float>>& deepstack = {});

  int64_t count() const { return tables_.empty() ? 0 : tables_[0].shape[0]; }
  int64_t width() const { return tables_.empty() ? 0 : tables_[0].shape[1]; }
  int64_t bytes() const { return memory_.size_bytes(); }
  bool on_host() const { return memory_.device() == Device::kHost; }
  // The rows, then those that are added behind each text layer: [count, width] f32 each.
  const std::vector<Tensor>& tables() const { return tables_; }

 private:
  Buffer memory_;
  std::vector<Tensor> tables_;
};

// Numbers of a contiguous tensor as the host sees them: in place, or a copy in `copied`.
std::span<const float> HostNumbers(MemoryOps& memory, const Tensor& numbers,
                                   std::vector<float>& copied);

}  // namespace kvgauge
