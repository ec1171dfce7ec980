// SPDX-License-Identifier: Apache-2.0
// Attention over several segments a head: every backend against the reference over a table of
// scenes, and the equalities that hold bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/cpu.h"
#include "kernels/attention.h"
#include "kernels/attention_scene.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

std::vector<SegmentSpec> Lengths(std::initializer_list<int64_t> lengths) {
  std::vector<SegmentSpec> segments;
  for (const int64_t length : lengths) {
    segments.push_back({});
    segments.back().length = length;
  }
  return segments;
}

std::vector<Scene> Scenes() {
  std::vector<Scene> scenes;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t rows : {1, 7, 70}) {
      Scene s;
      s.dtype = dtype;
      s.rows = rows;
      s.name = "ragged";
      s.heads = {Lengths({4, 0, 700, 80}), Lengths({0, 90}), Lengths({513, 64, 71})};
      scenes.push_back(s);
      s.name = "odd dims, softcap, window";
      s.key_dim = 33;
      s.value_dim = 35;
      s.group = 3;
      s.softcap = 3.0f;
      s.window = 90;
      s.heads = {Lengths({65, 130, 100}), Lengths({70}), Lengths({64, 6, 70})};
      scenes.push_back(s);
    }
  }
  return scenes;
}

// Scores err by the rounding of their dot products, and an error of a score is a relative error of
// its probability.
constexpr double kScoreBound = 4e-4;

void ExpectClose(const Scene& scene, const SceneResults& got, const SceneResults& want) {
  float largest = 0;
  for (const float v : want.out) largest = std::max(largest, std::abs(v));
  // bf16 weights: each is off by 2^-9 of itself at most, and they sum to 1; outliers of single
  // values are 20 times larger than what they average to.
  const double weight = scene.dtype == DType::kBF16 ? 20.0 / 512 : 0;
  EXPECT_TRUE(AllWithin(got.out, want.out, (1 + largest) * (weight + 2 * kScoreBound)));
  EXPECT_TRUE(AllWithin(got.lse, want.lse, 2 * kScoreBound));
  EXPECT_TRUE(AllWithin(got.entropy, want.entropy, 50 * kScoreBound));
  EXPECT_TRUE(AllWithin(got.window, want.window, 2 * kScoreBound));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(AllWithin(got.columns[i], want.columns[i], 60 * kScoreBound)) << "reduction " << i;
  }
  // A probability on the threshold may fall on either side.
  int64_t differing = 0;
  for (size_t j = 0; j < want.columns[3].size(); ++j) {
    differing += std::abs(got.columns[3][j] - want.columns[3][j]) <= 1e-3 ? 0 : 1;
  }
  EXPECT_LE(differing, 2);
}

TEST(AttentionSegments, EveryInstructionSetMatchesTheReference) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  for (const Scene& scene : Scenes()) {
    const SceneResults want = RunScene(*reference, scene);
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(std::string(NameOf(isa)) + ": " + scene.name + ", " +
                   std::string(NameOf(scene.dtype)) + ", rows " + std::to_string(scene.rows));
      ExpectClose(scene, RunScene(*MakeCpuAttention(isa, {2}), scene), want);
    }
  }
}

void ExpectSame(const SceneResults& got, const SceneResults& want) {
  EXPECT_TRUE(SameBits(got.out, want.out));
  EXPECT_TRUE(SameBits(got.lse, want.lse));
  EXPECT_TRUE(SameBits(got.entropy, want.entropy));
  EXPECT_TRUE(SameBits(got.window, want.window));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(got.columns[i], want.columns[i]));
}

TEST(AttentionSegments, ThreadsChangeNoBit) {
  for (const Scene& scene : Scenes()) {
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(std::string(NameOf(isa)) + ": " + scene.name);
      const SceneResults one = RunScene(*MakeCpuAttention(isa, {1}), scene);
      ExpectSame(RunScene(*MakeCpuAttention(isa, {3}), scene), one);
    }
  }
}

// Rows attended one by one, each over what it may see, and rows in a batch have the same bits.
TEST(AttentionSegments, RowsDoNotDependOnTheirCompany) {
  for (const Scene& scene : Scenes()) {
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(std::string(NameOf(isa)) + ": " + scene.name);
      const std::unique_ptr<AttentionOps> ops = MakeCpuAttention(isa, {2});
      const SceneCache cache(*ops, scene);
      const AttentionShape shape = scene.Shape();
      const int64_t heads = scene.query_heads();
      const std::vector<float> queries = scene.Queries();
      const Tensor q = View(queries, {scene.rows, heads, scene.key_dim});
      const auto attend = [&](int64_t chunk, std::vector<float>& lse) {
        std::vector<float> out;
        const Tensor result = MakeFilled(out, {scene.rows, heads, scene.value_dim});
        const Tensor lse_out = MakeFilled(lse, {heads, scene.rows});
        for (int64_t row = 0; row < scene.rows; row += chunk) {
          // The same heads without the entries of later rows.
          const int64_t end = std::min(scene.rows, row + chunk);
          std::vector<std::vector<KvSegment>> segments;
          std::vector<KvHead> shorter;
          for (const KvHead& head : cache.heads()) {
            segments.emplace_back(head.segments, head.segments + head.count);
            segments.back().back().length -= scene.rows - end;
          }
          for (const auto& s : segments) shorter.push_back({s.data(), std::ssize(s)});
          AttentionItem item;
          item.first_row = row;
          item.rows = end - row;
          item.token_position = row;
          item.heads = shorter;
          ops->Attend(shape, {&item, 1}, q, result, {lse_out, {}});
        }
        return out;
      };
      std::vector<float> whole_lse;
      const std::vector<float> whole = attend(scene.rows, whole_lse);
      for (const int64_t chunk : {1, 3, 17}) {
        std::vector<float> lse;
        EXPECT_TRUE(SameBits(attend(chunk, lse), whole)) << chunk << " rows a call";
        EXPECT_TRUE(SameBits(lse, whole_lse));
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
