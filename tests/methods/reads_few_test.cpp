// SPDX-License-Identifier: Apache-2.0
// Which readers say that they read few single entries, so that the cache keeps these side by side.
#include <gtest/gtest.h>

#include "fake_view.h"

namespace kvgauge {
namespace {

struct SaysFew {
  const char* id;
  const char* params;
  int64_t layer, length;
  bool few;
};

TEST(ReadsFewTest, AQuarterOfSingleEntriesAtMost) {
  constexpr SaysFew kReaders[] = {
      {"exact_top_k", R"({"tokens": 60, "sinks": 2, "local": 2})", 2, 256, true},
      {"exact_top_k", R"({"tokens": 60, "sinks": 2, "local": 2})", 2, 255, false},
      // Between whole reads that are rare enough.
      {"recycled", R"({"tokens": 64, "stride": 10})", 0, 256, true},
      {"recycled", R"({"tokens": 64, "stride": 10})", 0, 200, false},
      {"recycled", R"({"tokens": 64, "stride": 2})", 0, 256, false},
      // Pages that are runs are read where they lie.
      {"rocketkv", R"({"tokens": 64, "page": 4})", 0, 256, true},
      {"rocketkv", R"({"tokens": 64, "page": 16})", 0, 256, false},
      {"quest", R"({"tokens": 64, "page": 16})", 2, 256, false},
      // The most that is chosen from, in layers that choose.
      {"quest_top_p", R"({"tokens": 60, "page": 16, "dense_layers": 2})", 2, 256, true},
      {"quest_top_p", R"({"tokens": 60, "page": 16, "dense_layers": 2})", 1, 256, false},
      {"quest_top_p", R"({"tokens": 65, "page": 16, "dense_layers": 2})", 2, 256, false},
      {"top_p", R"({"share": 0.1})", 2, 4096, false},
  };
  for (const SaysFew& one : kReaders) {
    const auto reader = MakeStage<Reader>(StageKind::kRead, one.id, one.params);
    EXPECT_EQ(reader->ReadsFew(one.layer, one.length), one.few)
        << one.id << " " << one.params << " of " << one.length;
  }
}

}  // namespace
}  // namespace kvgauge
