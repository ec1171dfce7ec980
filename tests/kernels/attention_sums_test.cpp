// SPDX-License-Identifier: Apache-2.0
// Column sums that attention leaves on its way: what a second pass would find, to the same bits
// whatever the threads and the company.
#include <gtest/gtest.h>

#include "cpu/cpu.h"
#include "kernels/attention_scene.h"
#include "reference/reference.h"

namespace kvgauge {
namespace {

struct Sums {
  std::vector<float> out, lse, sums, second_pass;
};

// All rows of the scene behind `before` rows of another item that wants nothing.
Sums SumUp(AttentionOps& ops, CodecOps& codecs, const Scene& scene, int64_t before = 0) {
  const SceneCache cache(ops, codecs, scene);
  const int64_t heads = scene.query_heads(), rows = scene.rows, columns = scene.columns() + 3;
  const std::vector<float> queries = scene.Queries();
  std::vector<float> all(static_cast<size_t>(before * heads * scene.key_dim), 0.25f);
  all.insert(all.end(), queries.begin(), queries.end());
  const Tensor q = View(all, {before + rows, heads, scene.key_dim});
  Sums r;
  std::vector<float> out, lse;
  std::vector<AttentionItem> items(1);
  items[0].first_row = before;
  items[0].rows = rows;
  items[0].token_position = cache.token_position(rows);
  items[0].heads = cache.heads();
  for (int64_t i = 0; i < before; ++i) {
    items.push_back(items[0]);
    items.back().first_row = i;
    items.back().rows = 1;
  }
  items[0].column_sums = MakeFilled(r.sums, {heads, columns});
  const Tensor log_sums = MakeFilled(lse, {heads, before + rows});
  ops.Attend(cache.shape(), items, q, MakeFilled(out, {before + rows, heads, scene.value_dim}),
             {log_sums, {}});
  r.out.assign(out.begin() + before * heads * scene.value_dim, out.end());
  for (int64_t h = 0; h < heads; ++h) {
    r.lse.insert(r.lse.end(), lse.begin() + h * (before + rows) + before,
                 lse.begin() + (h + 1) * (before + rows));
  }
  ColumnRequest request;
  request.rows = rows;
  AttentionItem alone = items[0];
  alone.column_sums = {};
  ops.ReduceColumns(cache.shape(), alone, q, log_sums, request,
                    MakeFilled(r.second_pass, {heads, columns}));
  return r;
}

// Heads of one segment each.
Scene MakeScene(const char* name, DType dtype, int64_t group, int64_t rows,
                std::initializer_list<int64_t> lengths) {
  Scene scene;
  scene.name = name;
  scene.dtype = dtype;
  scene.group = group;
  scene.rows = rows;
  for (const int64_t length : lengths) {
    SegmentSpec segment;
    segment.length = length;
    scene.heads.push_back({segment});
  }
  return scene;
}

std::vector<Scene> SumScenes() {
  std::vector<Scene> scenes;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    scenes.push_back(MakeScene("plain", dtype, 3, 70, {1500, 1100}));
    scenes.push_back(MakeScene("few rows", dtype, 4, 2, {513}));
    scenes.push_back(MakeScene("window", dtype, 1, 130, {700, 700}));
    scenes.back().window = 90;
    scenes.back().softcap = 5;
    scenes.push_back(MakeScene("more rows than entries", dtype, 2, 40, {50, 3, 0}));
    scenes.push_back(MakeScene("skipped slots", dtype, 3, 70, {1500, 70, 1100}));
    scenes.back().heads[0][0].skip = 17;
    scenes.back().heads[1][0].skip = 63;
    scenes.push_back(MakeScene("a step behind skipped slots", dtype, 3, 1, {600, 40}));
    scenes.back().heads[0][0].skip = 5;
    // These take the second pass.
    scenes.push_back(MakeScene("sinks", dtype, 3, 20, {90, 600}));
    scenes.back().sinks = true;
    scenes.push_back(MakeScene("bias", dtype, 2, 20, {90}));
    scenes.back().heads[0][0].bias = true;
    scenes.push_back(MakeScene("two segments", dtype, 2, 20, {70}));
    scenes.back().heads[0].push_back(scenes.back().heads[0][0]);
  }
  return scenes;
}

TEST(AttentionSums, AreThoseOfASecondPass) {
  for (const Scene& scene : SumScenes()) {
    const auto reference = MakeReferenceAttention();
    const auto codecs = MakeReferenceCodec();
    const Sums want = SumUp(*reference, *codecs, scene);
    EXPECT_TRUE(SameBits(want.sums, want.second_pass)) << scene.name;
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(std::string(NameOf(isa)) + " " + std::string(NameOf(scene.dtype)) + " " +
                   scene.name);
      const auto ops = MakeCpuAttention(isa, {2});
      const Sums got = SumUp(*ops, *MakeCpuCodec(isa, {1}), scene);
      // One rounding of a probability and one of a sum for each row.
      EXPECT_TRUE(AllWithin(got.sums, got.second_pass, 2e-6 * static_cast<double>(scene.rows)));
      double total = 0;
      for (const float sum : got.sums) total += sum;
      double seeing = 0;
      for (const float lse : got.lse) seeing += std::isfinite(lse) ? 1 : 0;
      if (scene.sinks) {
        EXPECT_LT(total, seeing - 1);
      } else {
        EXPECT_NEAR(total, seeing, 1e-4 * seeing + 1e-6);
      }
    }
  }
}

TEST(AttentionSums, DoNotDependOnThreadsOrCompany) {
  for (const Scene& scene : SumScenes()) {
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(std::string(NameOf(isa)) + " " + std::string(NameOf(scene.dtype)) + " " +
                   scene.name);
      const auto codecs = MakeCpuCodec(isa, {1});
      const auto ops = MakeCpuAttention(isa, {1});
      const Sums one = SumUp(*ops, *codecs, scene);
      const Sums four = SumUp(*MakeCpuAttention(isa, {4}), *codecs, scene);
      const Sums together = SumUp(*ops, *codecs, scene, 3);
      EXPECT_TRUE(SameBits(four.sums, one.sums));
      EXPECT_TRUE(SameBits(together.sums, one.sums));
      EXPECT_TRUE(SameBits(together.out, one.out));
      EXPECT_TRUE(SameBits(together.lse, one.lse));
    }
  }
}

}  // namespace
}  // namespace kvgauge
