// SPDX-License-Identifier: Apache-2.0
// Logits without a value: what is attended and captured with them follows from what is attended
// without them, by the definition of the softmax.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/attention_scene.h"
#include "kernels/kv_backends.h"
#include "reference/reference.h"

namespace kvgauge {
namespace {

struct SinkCase {
  const char* name;
  int64_t rows, group, window;
  std::vector<int64_t> lengths;
};
constexpr int64_t kManyRows = 70;  // whole tiles and a rest
const SinkCase kSinkCases[] = {
    {"a step", 1, 2, 0, {700, 3}},
    {"a prompt", kManyRows, 3, 0, {kManyRows, 600}},
    {"a window", 20, 2, 30, {90, 513}},
    {"rows that see nothing", 5, 1, 0, {2, 9}},
};

Scene SceneOf(const SinkCase& c, DType dtype) {
  Scene scene;
  scene.name = c.name;
  scene.dtype = dtype;
  scene.rows = c.rows;
  scene.group = c.group;
  scene.window = c.window;
  for (const int64_t length : c.lengths) {
    SegmentSpec segment;
    segment.length = length;
    scene.heads.push_back({segment});
  }
  return scene;
}

// What `plain` becomes with sinks.
SceneResults WithSinks(const Scene& scene, SceneResults plain) {
  const std::vector<float> sinks = scene.Sinks();
  const int64_t heads = scene.query_heads(), rows = scene.rows;
  const int64_t columns = std::ssize(plain.window) / (heads * rows);
  std::vector<double> sums(static_cast<size_t>(heads * columns));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < rows; ++i) {
      const double before = plain.lse[h * rows + i], sink = sinks[h];
      const double top = std::max(before, sink);
      const double after = top + std::log(std::exp(before - top) + std::exp(sink - top));
      const double kept = std::exp(before - after);
      plain.lse[h * rows + i] = static_cast<float>(after);
      for (int64_t k = 0; k < scene.value_dim; ++k) {
        float& out = plain.out[(i * heads + h) * scene.value_dim + k];
        out = static_cast<float>(out * kept);
      }
      double entropy = 0;
      for (int64_t j = 0; j < columns; ++j) {
        float& share = plain.window[(h * rows + i) * columns + j];
        const double p = share * kept;
        if (p > 0) entropy -= p * std::log(p);
        share = static_cast<float>(p);
        sums[h * columns + j] += p;
      }
      entropy -= std::exp(sink - after) * (sink - after);
      plain.entropy[h * rows + i] = static_cast<float>(entropy);
    }
  }
  plain.columns[0].assign(sums.begin(), sums.end());
  return plain;
}

TEST(AttentionSinks, TakeTheirShareOfEveryRow) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  for (const SinkCase& c : kSinkCases) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Scene scene = SceneOf(c, dtype);
      const SceneResults plain = RunScene(*reference, *MakeReferenceCodec(), scene);
      scene.sinks = true;
      const SceneResults want = WithSinks(scene, plain);
      std::vector<KvBackend> backends = KvBackends();
      const auto expect = [&](const std::string& name, const SceneResults& got, double bound) {
        SCOPED_TRACE(name + ": " + c.name + ", " + std::string(NameOf(dtype)));
        const double weight = dtype == DType::kBF16 ? 20.0 / 512 : 0;
        EXPECT_TRUE(AllWithin(got.out, want.out, weight + bound));
        EXPECT_TRUE(AllWithin(got.lse, want.lse, bound));
        EXPECT_TRUE(AllWithin(got.entropy, want.entropy, 50 * bound));
        EXPECT_TRUE(AllWithin(got.window, want.window, bound));
        std::vector<float> sums = got.columns[0];
        EXPECT_TRUE(AllWithin(sums, want.columns[0], 60 * bound));
      };
      // Scores reach 80, so an f32 sum of products moves by 1e-5 of that.
      expect("reference", RunScene(*reference, *MakeReferenceCodec(), scene), 1e-6);
      for (const KvBackend& backend : backends) {
        expect(backend.name, RunScene(*backend.Attention(2), *backend.Codecs(), scene), 2e-4);
      }
    }
  }
}

// A row's own bits do not depend on its company.
TEST(AttentionSinks, RowsAreTheSameAloneAndTogether) {
  const int64_t rows = 40, heads = 6, dim = 24;
  const std::vector<float> sinks = SceneValues(heads, 5, 3.0f);
  const std::vector<float> values = SceneValues(rows * heads * dim, 6);
  const std::vector<float> sums = SceneValues(heads * rows, 7, 4.0f);
  for (const KvBackend& backend : KvBackends()) {
    SCOPED_TRACE(backend.name);
    const auto ops = backend.Attention(2);
    std::vector<float> out = values, lse = sums;
    ops->AddSinks(View(sinks, {heads}), View(out, {rows, heads, dim}), View(lse, {heads, rows}),
                  {});
    for (const int64_t i : {int64_t{0}, rows - 1}) {
      std::vector<float> one(values.begin() + i * heads * dim,
                             values.begin() + (i + 1) * heads * dim);
      std::vector<float> sum;
      for (int64_t h = 0; h < heads; ++h) sum.push_back(sums[h * rows + i]);
      ops->AddSinks(View(sinks, {heads}), View(one, {1, heads, dim}), View(sum, {heads, 1}), {});
      for (int64_t h = 0; h < heads; ++h) EXPECT_EQ(sum[h], lse[h * rows + i]);
      for (int64_t k = 0; k < heads * dim; ++k) EXPECT_EQ(one[k], out[i * heads * dim + k]);
    }
  }
}

}  // namespace
}  // namespace kvgauge
