// SPDX-License-Identifier: Apache-2.0
// Repeated work as graphs: the same results as when it is submitted as it comes, at each of its
// ways, and nothing left behind by what was begun in vain.
#include "cuda/device/graph_recorder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/backend_parts.h"
#include "cuda/emulated/device_memory.h"

namespace kvgauge::cuda {
namespace {

using emulated::GraphCounts;
using emulated::GraphsSoFar;
using emulated::Traffic;
using emulated::TrafficSoFar;

constexpr int64_t kSize = 300;

class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("KVGAUGE_CUDA_GRAPHS"); }
  void TearDown() override { unsetenv("KVGAUGE_CUDA_GRAPHS"); }

  static std::unique_ptr<Ops> NewOps() {
    std::string why;
    return MakeDeviceOps(0, &why);
  }
  Tensor New() {
    memory_.push_back(ops_->memory->Allocate(kSize * 4));
    return memory_.back().As(DType::kF32, {1, kSize});
  }

  // x = values; total += scale * x: begun twice and done once would show.
  void Submit(float value, float scale) {
    const std::vector<float> values(kSize, value);
    ops_->memory->Copy(View(values, {1, kSize}), x_);
    ops_->rows->Affine(x_, scale, 0, y_);
    ops_->rows->Combine(total_, y_, Binary::kAdd, total_);
    expected_ += value * scale;
  }
  // What Submit adds once, however often it is called.
  void Run(const std::function<void()>& body) {
    const float before = expected_;
    work_->Run([&] {
      expected_ = before;
      body();
    });
    CheckTotal();
  }
  void CheckTotal() {
    std::vector<float> total(kSize);
    ops_->memory->Copy(total_, View(total, {1, kSize}));
    for (const float t : total) ASSERT_EQ(t, expected_);
  }
  void ExpectCounts(int64_t plain, int64_t recorded, int64_t replayed) const {
    if (!kComparesMembers) return;
    EXPECT_EQ(work_->counts().plain, plain);
    EXPECT_EQ(work_->counts().recorded, recorded);
    EXPECT_EQ(work_->counts().replayed, replayed);
  }

  const std::unique_ptr<Ops> ops_ = NewOps();
  std::vector<Buffer> memory_;
  const Tensor x_ = New(), y_ = New(), total_ = New();
  std::unique_ptr<RepeatedWork> work_ = ops_->memory->MakeRepeatedWork();
  float expected_ = 0;
};

TEST_F(RecorderTest, TheSameWorkIsAGraphOfOneUpload) {
  for (int i = 0; i < 3; ++i) Run([&] { Submit(static_cast<float>(i), 2); });
  ExpectCounts(1, 1, 1);
  const Traffic before = TrafficSoFar();
  const GraphCounts graphs = GraphsSoFar();
  work_->Run([&] {
    Submit(7, 2);
    expected_ -= 14;
    Submit(9, 2);
  });
  ExpectCounts(1, 2, 1);  // other work: it had to be recorded anew
  EXPECT_EQ(GraphsSoFar().made, graphs.made + 1);
  work_->Run([&] {
    Submit(7, 2);
    expected_ -= 14;
    Submit(9, 2);
  });
  ExpectCounts(1, 2, 2);
  const Traffic sent = TrafficSoFar() - before;
  EXPECT_EQ(sent.uploads, 2);  // one for each, of what was two
  EXPECT_GE(sent.upload_bytes, 4 * kSize * 4);
  EXPECT_EQ(sent.downloads, 0);
}

TEST_F(RecorderTest, AnotherArgumentIsAnotherGraphOfTheSameKinds) {
  for (int i = 0; i < 4; ++i) Run([&] { Submit(1, 2); });
  Run([&] { Submit(1, 3); });
  ExpectCounts(1, 2, 2);
  const GraphCounts graphs = GraphsSoFar();
  Run([&] { Submit(1, 4); });
  ExpectCounts(1, 3, 2);
  EXPECT_EQ(GraphsSoFar().made, graphs.made);
  EXPECT_EQ(GraphsSoFar().updated, graphs.updated + 1);
  Run([&] { Submit(4, 4); });
  Run([&] { Submit(4, 3); });
  ExpectCounts(1, 3, 4);
}

// Work of two kinds that take turns has a graph for each.
TEST_F(RecorderTest, TwoGraphsTakeTurns) {
  for (int i = 0; i < 40; ++i) {
    Run([&] {
      Submit(static_cast<float>(i), 2);
      if (i % 4 == 0) Submit(1, 3);
    });
  }
  ExpectCounts(1, 2, 37);
}

// How much there is to choose from is staged: a graph chooses from more than it was made for.
TEST_F(RecorderTest, WhatIsChosenFromMayGrow) {
  constexpr int64_t kRows = 2, kCount = 4;
  const auto make = [&](DType dtype, std::initializer_list<int64_t> dims) {
    memory_.push_back(ops_->memory->Allocate(kRows * kSize * 8));
    return memory_.back().As(dtype, dims);
  };
  const Tensor scores = make(DType::kF32, {kRows, kSize}), counts = make(DType::kI32, {kRows});
  const Tensor best = make(DType::kI32, {kRows, kCount});
  const Tensor words = make(DType::kI64, {kRows, (kSize + 63) / 64});
  std::vector<float> ascending(static_cast<size_t>(kRows * kSize));
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<float>(i);
  const std::vector<int32_t> each(kRows, kCount);
  ops_->memory->Copy(View(ascending, {kRows, kSize}), scores);
  ops_->memory->Copy(View(each, {kRows}), counts);
  for (int64_t n = 200; n < 250; ++n) {
    work_->Run([&] {
      Tensor some = scores, marked = words;
      some.shape[1] = n;
      marked.shape[1] = (n + 63) / 64;
      ops_->memory->Clear(words);
      ops_->select->TopK(some, counts, best);
      ops_->select->MarkRuns(best, 2, n, marked);  // of runs that are there in part or not at all
      ops_->select->TopK(some, counts, best);
      ops_->select->MarkRuns(best, 1, n, marked);
    });
    std::vector<int32_t> found(kRows * kCount);
    std::vector<int64_t> bits(static_cast<size_t>(words.Numel()));
    ops_->memory->Copy(best, View(found, {kRows, kCount}));
    ops_->memory->Copy(words, Tensor(bits.data(), DType::kI64, {kRows, words.shape[1]}));
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], n - kCount + static_cast<int64_t>(i) % kCount);
    }
    for (int64_t bit = 0; bit < 64 * words.shape[1]; ++bit) {
      const bool is = (bits[static_cast<size_t>(bit / 64)] >> bit % 64 & 1) != 0;
      EXPECT_EQ(is, bit >= n - kCount && bit < n) << bit << " of " << n;
    }
  }
  ExpectCounts(1, 1, 48);
}

// The length of rows is staged, too: a graph sums in the order that a row of that length has. It is
// made anew only where a block takes over from a warp.
TEST_F(RecorderTest, RowsMayGrow) {
  constexpr int64_t kRows = 9, kRoom = 1100;
  struct Found {
    std::vector<float> shares, sums, means, votes;
    bool operator==(const Found&) const = default;
  };
  const auto make = [&](std::initializer_list<int64_t> dims) {
    memory_.push_back(ops_->memory->Allocate(kRows * kRoom * 4));
    return memory_.back().As(DType::kF32, dims);
  };
  const Tensor x = make({kRows, kRoom}), shares = make({kRows, kRoom}), sums = make({kRows});
  const Tensor means = make({kRows}), votes = make({kRows, kRoom});
  std::vector<float> values(static_cast<size_t>(kRows * kRoom));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 1009) / 500.0f;
  ops_->memory->Copy(View(values, {kRows, kRoom}), x);
  const auto submit = [&](int64_t n) {
    const auto own = [n](Tensor t) {
      t.shape[1] = n;
      return t;
    };
    ops_->memory->Clear(shares);
    ops_->memory->Clear(votes);
    ops_->rows->Softmax(own(x), 1.5f, own(shares));
    ops_->rows->ReduceRows(own(x), Reduction::kSum, sums);
    ops_->rows->ReduceRows(own(x), Reduction::kMean, means);
    ops_->rows->Softmax(own(x.Slice(0, 1)), 0.5f, own(shares.Slice(0, 1)));
    ops_->rows->FillColumns(7, n - 5, n, own(votes));
    ops_->rows->FillColumns(3, 0, n - 960, own(votes));
  };
  const auto found = [&] {
    Found all;
    const std::pair<Tensor, std::vector<float>*> parts[] = {
        {shares, &all.shares}, {sums, &all.sums}, {means, &all.means}, {votes, &all.votes}};
    for (const auto& [from, to] : parts) {
      to->resize(static_cast<size_t>(from.Numel()));
      ops_->memory->Copy(from.Reshape({from.Numel()}), View(*to, {from.Numel()}));
    }
    return all;
  };
  for (int64_t n = 1000; n < 1050; ++n) {
    work_->Run([&] { submit(n); });
    const Found with = found();
    submit(n);  // as it comes
    EXPECT_EQ(with, found()) << n;
    for (int64_t i = 0; i < kRows * kRoom; ++i) {
      const int64_t column = i % kRoom;
      const float last = column >= n - 5 && column < n ? 7.0f : 0.0f;
      EXPECT_EQ(with.votes[static_cast<size_t>(i)], column < n - 960 ? 3.0f : last);
      EXPECT_TRUE(column < n || with.shares[static_cast<size_t>(i)] == 0);
    }
  }
  ExpectCounts(1, 2, 47);
}

TEST_F(RecorderTest, WhatIsLessThanBeforeIsNotReplayed) {
  const auto twice = [&] {
    Submit(1, 2);
    Submit(1, 2);
  };
  for (int i = 0; i < 3; ++i) Run(twice);
  Run([&] { Submit(1, 2); });
  Run([] {});
  Run(twice);
}

TEST_F(RecorderTest, WhatTakesMemoryOrWaitsIsDoneAsItComes) {
  const std::function<void()> breaks[] = {[&] { memory_.push_back(ops_->memory->Allocate(64)); },
                                          [&] { ops_->memory->Synchronize(); },
                                          [&] {
                                            std::vector<float> seen(kSize);
                                            ops_->memory->Copy(total_, View(seen, {1, kSize}));
                                            EXPECT_EQ(seen[0], expected_);
                                          }};
  for (const auto& one : breaks) {
    work_ = ops_->memory->MakeRepeatedWork();
    for (int i = 0; i < 12; ++i) {
      Run([&] {
        Submit(static_cast<float>(i), 2);
        if (i % 5 == 3) one();
        Submit(1, 3);
      });
    }
    EXPECT_GE(work_->counts().plain, 3);
    EXPECT_GE(work_->counts().replayed, kComparesMembers ? 4 : 0);
  }
}

// What can never be a graph is tried more and more seldom.
TEST_F(RecorderTest, WhatNeverFitsIsSeldomTried) {
  int64_t calls = 0;
  for (int i = 0; i < 200; ++i) {
    Run([&] {
      ++calls;
      Submit(1, 2);
      ops_->memory->Synchronize();
    });
  }
  ExpectCounts(200, 0, 0);
  EXPECT_LE(calls, 200 + 12);
}

TEST_F(RecorderTest, WhatChangesEachTimeIsLeftAloneForAWhile) {
  for (int i = 0; i < 60; ++i) {
    Run([&] { Submit(1, static_cast<float>(i)); });
  }
  EXPECT_EQ(work_->counts().replayed, 0);
  EXPECT_LE(work_->counts().recorded, 8);
}

TEST_F(RecorderTest, MoreIsSentThanThereWasRoomFor) {
  for (const int64_t times : {1, 1, 1, 40, 40, 40, 1, 2, 3}) {
    Run([&] {
      for (int64_t i = 0; i < times; ++i) Submit(static_cast<float>(i), 1);
    });
  }
}

TEST_F(RecorderTest, AnErrorInTheMiddleLeavesNothingBehind) {
  for (int i = 0; i < 8; ++i) {
    const float before = expected_;
    if (i == 1 || i == 5) {  // while recording, while comparing
      EXPECT_THROW(work_->Run([&] {
        Submit(1, 2);
        throw std::runtime_error("no more");
      }),
                   std::runtime_error);
      expected_ = before;
      CheckTotal();
    }
    Run([&] { Submit(static_cast<float>(i), 2); });
  }
  EXPECT_GE(work_->counts().replayed, kComparesMembers ? 3 : 0);
}

TEST_F(RecorderTest, WhatIsFreedIsFreedBehindTheWork) {
  for (int i = 0; i < 5; ++i) {
    Buffer source = ops_->memory->Allocate(kSize * 4);
    const Tensor from = source.As(DType::kF32, {1, kSize});
    const std::vector<float> values(kSize, static_cast<float>(i));
    ops_->memory->Copy(View(values, {1, kSize}), from);
    const int64_t held = emulated::AllocatedBytes();
    Run([&] {
      ops_->memory->Copy(from, x_);
      Buffer gone = std::move(source);
      ops_->rows->Combine(total_, x_, Binary::kAdd, total_);
      expected_ += static_cast<float>(i);
    });
    EXPECT_TRUE(i < 2 || emulated::AllocatedBytes() < held);
  }
}

TEST_F(RecorderTest, CanBeSwitchedOff) {
  setenv("KVGAUGE_CUDA_GRAPHS", "off", 1);
  for (int i = 0; i < 5; ++i) Run([&] { Submit(1, 2); });
  ExpectCounts(5, 0, 0);
}

}  // namespace
}  // namespace kvgauge::cuda
