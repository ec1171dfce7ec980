// SPDX-License-Identifier: Apache-2.0
// KeepKv on a device: lists of pages go there in one copy a call. Nothing is read back.
#pragma once

#include <span>

#include "cuda/call_tables.h"
#include "cuda/kv_keep_kernels.h"
#include "kernels/kv_keep.h"

namespace kvgauge::cuda {

class Keeper {
 public:
  explicit Keeper(Stream stream) : stream_(stream), tables_(stream), merges_(stream) {}

  void Keep(const PageLayout& layout, std::span<const KvKeep> heads, const Tensor& outcome);

 private:
  const Stream stream_;
  Tables tables_;
  Scratch merges_;
};

}  // namespace kvgauge::cuda
