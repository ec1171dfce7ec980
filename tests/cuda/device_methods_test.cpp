// SPDX-License-Identifier: Apache-2.0
// Every shipped method on the device and on the host. They round differently, so numbers are near
// each other; what was chosen, and what it came to, is the same.
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/scene.h"

namespace kvgauge {
namespace {

struct Held {
  std::vector<std::vector<int32_t>> positions;  // by layer, then head
  std::vector<float> numbers;                   // keys and values, decoded
};

struct Ran {
  CellResult cell;
  Held held;
};

Held HeldBy(const KvCache& cache) {
  Held held;
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      held.positions.push_back(cache.Positions(layer, head));
      const auto length = std::ssize(held.positions.back());
      for (const bool keys : {true, false}) {
        const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
        std::vector<float> rows(static_cast<size_t>(length * dim));
        if (rows.empty()) continue;
        const Tensor out = View(rows, {length, dim});
        keys ? cache.ReadKeys(layer, head, 0, out) : cache.ReadValues(layer, head, 0, out);
        held.numbers.insert(held.numbers.end(), rows.begin(), rows.end());
      }
    }
  }
  return held;
}

Ran RunAlone(const Subject& subject) {
  Ran ran;
  EngineOptions options;
  options.inspect = [&](const CellResult&, const KvCache& cache) { ran.held = HeldBy(cache); };
  Engine engine({subject.row()}, options);
  const EngineSample sample = Sample(kPromptTokens, 31);
  const Status done = engine.Run({&sample, 1}, [&](CellResult cell) -> Status {
    ran.cell = std::move(cell);
    return {};
  });
  EXPECT_TRUE(done.ok()) << done.error().message;
  return ran;
}

// Root of the mean square of the differences, of the numbers' own.
double Apart(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    all += double{b[i]} * b[i];
  }
  return std::sqrt(off / all);
}

class DeviceMethods : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceMethods, DoOnADeviceWhatTheyDoOnTheHost) {
  std::unique_ptr<Subject> there, here;
  for (const char* kind : {"gqa", "mha", "mqa", "mla"}) {
    if ((there = MakeSubject(GetParam(), kind)) == nullptr) continue;
    here = MakeSubject(GetParam(), kind, {.on_host = true});
    break;
  }
  ASSERT_NE(here, nullptr) << "legal on no model";
  const Ran device = RunAlone(*there), host = RunAlone(*here);
  ASSERT_TRUE(host.cell.status.ok()) << host.cell.status.error().message;
  ASSERT_TRUE(device.cell.status.ok()) << device.cell.status.error().message;
  EXPECT_EQ(device.cell.turns[0].ids, host.cell.turns[0].ids);
  EXPECT_EQ(device.held.positions, host.held.positions);
  const CompressionRecord &got = device.cell.record, &want = host.cell.record;
  EXPECT_EQ(got.entries_after, want.entries_after);
  EXPECT_EQ(got.engagement, want.engagement) << got.reason;
  EXPECT_EQ(got.bytes.logical(), want.bytes.logical());
  EXPECT_EQ(got.reads_per_step, want.reads_per_step);
  ASSERT_EQ(device.held.numbers.size(), host.held.numbers.size());
  const Result<StorePlan> plan = MakePipeline(here->method).store->Plan(here->shape(), 0);
  ASSERT_TRUE(plan.ok());
  const bool coded = plan->keys.coded() || plan->values.coded() || plan->latent;
  // A number between two codes may fall to either.
  const double apart = Apart(device.held.numbers, host.held.numbers);
  EXPECT_LE(apart, coded ? 1e-2 : 1e-5);
  RecordProperty("apart", StrCat(apart));
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceMethods, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return method.param; });

}  // namespace
}  // namespace kvgauge
