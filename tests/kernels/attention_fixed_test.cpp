// SPDX-License-Identifier: Apache-2.0
// Attention over pages of 2, 3 and 4 bit codes that rows in fixed point meet: keys with ranges of
// channels, values with ranges of entries. Against the reference, and bit for bit in any company.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/strings.h"
#include "kernels/attention.h"
#include "kernels/attention_scene.h"
#include "kernels/codec_stream.h"
#include "kernels/kv_backends.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

struct FixedCase {
  int key_bits, value_bits;
  int64_t key_group, value_group;  // entries, dims
  int64_t key_dim, value_dim;
  int64_t heads;  // query heads of a KV head
  int64_t rows;   // tokens
  bool zeros = true;
  DType dtype = DType::kF16;
};

// Every number of bits, group, dim and row count with some of the others. Value dims that no whole
// block has, and key dims that keep a page from this way.
const std::vector<FixedCase> kCases = {
    {4, 4, 64, 128, 128, 128, 4, 1},
    {2, 2, 32, 64, 128, 128, 8, 1},
    {3, 3, 64, 32, 64, 64, 1, 1},
    {4, 2, 16, 16, 64, 80, 2, 1, false},
    {2, 3, 64, 128, 256, 256, 2, 1, true, DType::kBF16},
    {3, 4, 32, 32, 192, 70, 4, 3, false, DType::kBF16},
    {4, 3, 64, 64, 256, 128, 1, 9},
    {3, 2, 16, 24, 128, 24, 8, 1},
    {4, 4, 64, 32, 80, 80, 4, 1},
    {4, 2, 64, 64, 64, 64, 8, 9, true, DType::kBF16},
};

std::string NameOf(const FixedCase& c) {
  return StrCat(c.key_bits, "/", c.value_bits, " bits, groups ", c.key_group, "/", c.value_group,
                ", dims ", c.key_dim, "/", c.value_dim, ", ", c.heads, " heads, ", c.rows, " rows");
}

// One KV head whose coded entries end within a page, behind two spans, and a second segment.
Scene SceneOf(const FixedCase& c) {
  Scene scene;
  scene.name = NameOf(c);
  scene.dtype = c.dtype;
  scene.key_dim = c.key_dim;
  scene.value_dim = c.value_dim;
  scene.group = c.heads;
  scene.rows = c.rows;
  scene.query_size = 0.05f;  // some numbers are 20 times as large
  scene.heads = {Lengths({130, 640})};
  for (SegmentSpec& s : scene.heads[0]) {
    KvCodec keys = AffineCodec(c.key_bits, CodeAxis::kChannel, c.key_group, c.key_dim);
    KvCodec values = AffineCodec(c.value_bits, CodeAxis::kToken, c.value_group, c.value_dim);
    values.side = KvSide::kValues;
    keys.symmetric = values.symmetric = !c.zeros;
    s.key_codec = keys;
    s.value_codec = values;
    s.keys_coded = (s.length - c.rows - 1) / c.key_group * c.key_group;
    s.values_coded = s.length - c.rows - 1;
  }
  return scene;
}

// 1 and the largest number.
double Size(const std::vector<float>& values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  return 1.0 + largest;
}

TEST(AttentionFixed, MatchesTheReference) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  for (const FixedCase& c : kCases) {
    const Scene scene = SceneOf(c);
    SCOPED_TRACE(scene.name);
    const SceneResults want = RunScene(*reference, *MakeReferenceCodec(), scene);
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(backend.name);
      const SceneResults got = RunScene(*backend.Attention(2), *backend.Codecs(), scene);
      // Weights of float pages in bf16 are off by 2^-9 of themselves, all else by much less.
      const double weight = c.dtype == DType::kBF16 ? 1.0 / 256 : 0;
      EXPECT_TRUE(AllWithin(got.out, want.out, Size(want.out) * (weight + 4e-4)));
      EXPECT_TRUE(AllWithin(got.lse, want.lse, 4e-4));
      EXPECT_TRUE(AllWithin(got.entropy, want.entropy, 4e-3));
    }
  }
}

// A channel with a constant that is a thousand times as large as everything else moves nothing.
TEST(AttentionFixed, LoudChannelsAreMetExactly) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  for (const int bits : {2, 4}) {
    FixedCase c = kCases[0];
    c.key_bits = bits;
    Scene scene = SceneOf(c);
    for (SegmentSpec& s : scene.heads[0]) s.key_shift = 1000;
    const SceneResults want = RunScene(*reference, *MakeReferenceCodec(), scene);
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(StrCat(backend.name, " ", bits, " bits"));
      const SceneResults got = RunScene(*backend.Attention(1), *backend.Codecs(), scene);
      EXPECT_TRUE(AllWithin(got.lse, want.lse, 1e-3));  // f32 sums of numbers around 100
      EXPECT_TRUE(AllWithin(got.out, want.out, Size(want.out) * 1e-3));
    }
  }
}

// What rows of a scene give, so many in a call.
struct Attended {
  std::vector<float> out, lse;

  Attended(AttentionOps& ops, const Scene& scene, const SceneCache& cache,
           const std::vector<float>& queries, int64_t step) {
    const int64_t heads = scene.query_heads();
    const Tensor q = View(queries, {scene.rows, heads, scene.key_dim});
    const Tensor result = MakeFilled(out, {scene.rows, heads, scene.value_dim});
    const Tensor lse_out = MakeFilled(lse, {heads, scene.rows});
    for (int64_t row = 0; row < scene.rows; row += step) {
      AttentionItem item;
      item.first_row = row;
      item.rows = std::min(step, scene.rows - row);
      item.first_position = scene.columns() - scene.rows + row;
      item.heads = cache.heads();
      ops.Attend(cache.shape(), {&item, 1}, q, result, {lse_out, {}});
    }
  }
};

// Tokens one by one, by nine and all together: rows of a tile, and of several, have the same bits.
TEST(AttentionFixed, RowsDoNotDependOnTheirCompany) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t heads : {1, 4, 8}) {
      FixedCase c = {4, 3, 32, 32, 64, 64, heads, heads == 1 ? 70 : 19};
      c.dtype = dtype;
      const Scene scene = SceneOf(c);
      for (const KvBackend& backend : KvBackends()) {
        SCOPED_TRACE(StrCat(backend.name, " ", scene.name));
        const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
        const std::unique_ptr<CodecOps> codecs = backend.Codecs();
        const SceneCache cache(*ops, *codecs, scene);
        const std::vector<float> queries = scene.Queries();
        const Attended whole(*ops, scene, cache, queries, scene.rows);
        for (const int64_t step : {9, 1}) {
          const Attended some(*ops, scene, cache, queries, step);
          EXPECT_TRUE(SameBits(some.out, whole.out)) << step << " rows a call";
          EXPECT_TRUE(SameBits(some.lse, whole.lse)) << step << " rows a call";
        }
      }
    }
  }
}

// A row of NaN or infinite numbers gives NaN, one of zeros the mean, and neither moves another row.
TEST(AttentionFixed, RowsThatAreNoNumbersStayApart) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  constexpr float kEndless = std::numeric_limits<float>::infinity();
  for (const int bits : {2, 3, 4}) {
    FixedCase c = {bits, bits, 64, 64, 128, 128, 6, 3};
    const Scene scene = SceneOf(c);
    const int64_t dim = scene.key_dim;
    const std::vector<float> clean = scene.Queries();
    std::vector<float> queries = clean;
    const auto row_of = [&](int64_t row) { return queries.begin() + row * dim; };
    row_of(1)[7] = std::numeric_limits<float>::quiet_NaN();
    row_of(8)[70] = kEndless;
    row_of(13)[127] = -kEndless;
    std::fill_n(row_of(4), dim, 0.0f);
    std::vector<float> zeros = clean;
    std::fill_n(zeros.begin() + 4 * dim, dim, 0.0f);
    const std::unique_ptr<CodecOps> reference_codecs = MakeReferenceCodec();
    const SceneCache plain(*reference, *reference_codecs, scene);
    const Attended want(*reference, scene, plain, zeros, scene.rows);
    for (const KvBackend& backend : KvBackends()) {
      const std::unique_ptr<AttentionOps> ops = backend.Attention(1);
      const std::unique_ptr<CodecOps> codecs = backend.Codecs();
      const SceneCache cache(*ops, *codecs, scene);
      const Attended got(*ops, scene, cache, queries, scene.rows);
      const Attended alone(*ops, scene, cache, clean, scene.rows);
      for (int64_t row = 0; row < scene.rows * c.heads; ++row) {
        SCOPED_TRACE(StrCat(backend.name, " ", bits, " bits, row ", row));
        const auto of_row = [&](const Attended& of) {
          return std::span(of.out).subspan(static_cast<size_t>(row * scene.value_dim),
                                           static_cast<size_t>(scene.value_dim));
        };
        const std::span<const float> own = of_row(got);
        if (row == 1 || row == 8 || row == 13) {
          EXPECT_TRUE(std::all_of(own.begin(), own.end(), [](float v) { return std::isnan(v); }));
        } else if (row == 4) {
          EXPECT_TRUE(AllWithin(own, of_row(want), Size(want.out) * 4e-4));
        } else {
          EXPECT_TRUE(SameBits(own, of_row(alone)));
        }
      }
    }
  }
}

// An infinite number makes a row NaN whichever entry it reads. What rounding makes of such a row
// is minus infinity for most codes, which alone would count as a row that sees nothing. A cpu does
// not round it, and minus infinity is then its score.
TEST(AttentionFixed, InfiniteNumbersAreFoundWhateverIsRead) {
  constexpr float kEndless = std::numeric_limits<float>::infinity();
  for (const int bits : {2, 3, 4}) {
    FixedCase c = {bits, bits, 64, 64, 128, 128, 8, 1};
    Scene scene = SceneOf(c);
    scene.heads[0].resize(1);
    SegmentSpec& spec = scene.heads[0][0];
    spec.length = spec.keys_coded = spec.values_coded = kAttentionSpan;
    std::vector<float> queries = scene.Queries();
    for (int64_t row = 0; row < c.heads; ++row) {
      float& number = queries[static_cast<size_t>(row * scene.key_dim + row * 15)];
      number = std::copysign(kEndless, row % 2 == 0 ? 1.0f : -1.0f);
    }
    for (const KvBackend& backend : KvBackends()) {
      if (backend.name != "device") continue;
      const std::unique_ptr<AttentionOps> ops = backend.Attention(1);
      const std::unique_ptr<CodecOps> codecs = backend.Codecs();
      const SceneCache cache(*ops, *codecs, scene);
      KvSegment segment = cache.heads()[0].segments[0];
      for (const int entry : {0, 9, 30, 63}) {
        SCOPED_TRACE(StrCat(backend.name, " ", bits, " bits, entry ", entry));
        std::vector<uint64_t> one(kAttentionSpan / kKvPageEntries, 0);
        one[0] = uint64_t{1} << entry;
        const std::vector<const uint64_t*> read(static_cast<size_t>(c.heads), one.data());
        segment.read = read.data();
        const KvHead head = {&segment, 1};
        AttentionItem item;
        item.rows = 1;
        item.heads = {&head, 1};
        std::vector<float> out, lse;
        ops->Attend(cache.shape(), {&item, 1}, View(queries, {1, c.heads, scene.key_dim}),
                    MakeFilled(out, {1, c.heads, scene.value_dim}),
                    {MakeFilled(lse, {c.heads, 1}), {}});
        EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return std::isnan(v); }));
      }
    }
  }
}

// A span alone, and in a longer cache of which nothing else is read, whose other pages are absent.
// A head that reads nothing gives nothing.
TEST(AttentionFixed, SpansDoNotDependOnTheirCompany) {
  for (const int bits : {2, 3, 4}) {
    FixedCase c = {bits, bits, 32, 32, 128, 64, 2, 1};
    Scene scene = SceneOf(c);
    constexpr int64_t kSpan = kAttentionSpan, kLong = 3 * kSpan;
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(StrCat(backend.name, " ", bits, " bits"));
      const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
      const std::unique_ptr<CodecOps> codecs = backend.Codecs();
      const std::vector<float> queries = scene.Queries();
      std::vector<float> out[2], lse[2];
      for (const bool in_longer : {false, true}) {
        scene.heads[0].resize(1);
        SegmentSpec& spec = scene.heads[0][0];
        spec.length = spec.keys_coded = spec.values_coded = in_longer ? kLong : kSpan;
        const SceneCache cache(*ops, *codecs, scene);
        KvSegment segment = cache.heads()[0].segments[0];
        const auto pages = static_cast<size_t>(spec.length / kKvPageEntries);
        const auto read_pages = static_cast<size_t>(kSpan / kKvPageEntries);
        std::vector<void*> keys(segment.keys.pages.codes, segment.keys.pages.codes + pages);
        std::vector<void*> values(segment.values.pages.codes, segment.values.pages.codes + pages);
        std::fill(keys.begin() + read_pages, keys.end(), nullptr);
        std::fill(values.begin() + read_pages, values.end(), nullptr);
        segment.keys.pages.codes = keys.data();
        segment.values.pages.codes = values.data();
        std::vector<uint64_t> some(pages, 0), none(pages, 0);
        std::fill_n(some.begin(), read_pages, ~uint64_t{0});
        const uint64_t* const read[] = {some.data(), none.data()};
        segment.read = read;
        const KvHead head = {&segment, 1};
        AttentionItem item;
        item.rows = 1;
        item.heads = {&head, 1};
        ops->Attend(cache.shape(), {&item, 1}, View(queries, {1, 2, scene.key_dim}),
                    MakeFilled(out[in_longer], {1, 2, scene.value_dim}),
                    {MakeFilled(lse[in_longer], {2, 1}), {}});
      }
      EXPECT_TRUE(SameBits(out[1], out[0]));
      EXPECT_TRUE(SameBits(lse[1], lse[0]));
      EXPECT_TRUE(std::all_of(out[0].begin() + scene.value_dim, out[0].end(),
                              [](float v) { return v == 0.0f; }));
      EXPECT_EQ(lse[0][1], -std::numeric_limits<float>::infinity());
      EXPECT_TRUE(std::isfinite(lse[0][0]));
    }
  }
}

// Windows, masks, scales and biases, of entries and of heads, over whole pages of codes.
TEST(AttentionFixed, OptionsOfSegmentsMatchTheReference) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  for (const int option : {1, 2, 3}) {
    FixedCase c = kCases[static_cast<size_t>(option)];
    c.rows = option == 1 ? 40 : 3;
    Scene scene = SceneOf(c);
    if (option == 1) scene.window = 200;
    if (option == 2) scene.softcap = 4.0f;
    for (SegmentSpec& s : scene.heads[0]) {
      s.bias = s.key_scale = s.value_scale = option >= 2;
      s.read_bias = option == 3;
    }
    SCOPED_TRACE(StrCat("option ", option));
    const SceneResults want = RunScene(*reference, *MakeReferenceCodec(), scene);
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(backend.name);
      const SceneResults got = RunScene(*backend.Attention(2), *backend.Codecs(), scene);
      EXPECT_TRUE(AllWithin(got.out, want.out, Size(want.out) * 1e-3));
      EXPECT_TRUE(AllWithin(got.lse, want.lse, 4e-4));
      EXPECT_TRUE(AllWithin(got.window, want.window, 4e-4));
    }
  }
}

}  // namespace
}  // namespace kvgauge
