// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the midst of a reader's choice.
#pragma once

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "chosen_entries.h"
#include "fake_view.h"

namespace kvgauge {

// Memory of the host that provides so many buffers.
class ScarceMemory final : public MemoryOps {
 public:
  ScarceMemory(MemoryOps& inner, int64_t left) : inner_(inner), left_(left) {}
  Buffer Allocate(int64_t size_bytes) override {
    if (left_-- <= 0) throw std::bad_alloc();
    return inner_.Allocate(size_bytes);
  }
  void Copy(const Tensor& from, Tensor to) override { inner_.Copy(from, to); }
  void Clear(Tensor to) override { inner_.Clear(to); }
  void Synchronize() override { inner_.Synchronize(); }

 private:
  MemoryOps& inner_;
  int64_t left_;
};

// A choice that found no memory, wherever that was, is made when it is asked for again.
inline void ExpectChoosesAgain(const Reader& reader, FakeView& view, const std::vector<float>& q) {
  const Answered want = AskWith(reader, view, *reader.Begin(view), q, false);
  ASSERT_TRUE(want.reads.chosen);
  std::unique_ptr<MemoryOps>& memory = view.ops().memory;
  int64_t failures = 0;
  for (bool fails = true; fails; failures += fails ? 1 : 0) {
    const auto state = reader.Begin(view);
    std::unique_ptr<MemoryOps> whole = std::move(memory);
    memory = std::make_unique<ScarceMemory>(*whole, failures);
    try {
      AskWith(reader, view, *state, q, false);
      fails = false;
    } catch (const std::bad_alloc&) {
    }
    memory = std::move(whole);
    const Answered got = AskWith(reader, view, *state, q, false);
    EXPECT_EQ(got.reads.words, want.reads.words) << failures;
    EXPECT_EQ(got.places, want.places) << failures;
  }
  EXPECT_GT(failures, 0);
}

}  // namespace kvgauge
