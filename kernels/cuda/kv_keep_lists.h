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
  void Keep(const PageLayout& layout, std::span<const KvKeep> heads, const Tensor& outcome,
            Stream stream);

 private:
  Tables tables_;
  Scratch merges_;
};

}  // namespace kvgauge::cuda
