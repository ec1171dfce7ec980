// SPDX-License-Identifier: Apache-2.0
// Attention over several segments a head: every backend against the reference over a table of
// scenes, and the equalities that hold bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_scene.h"
#include "kernels/codec_stream.h"
#include "kernels/kv_backends.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

// Scores err by the rounding of their dot products, and an error of a score is a relative error of
// its probability.
constexpr double kScoreBound = 4e-4;
// In 16-bit caches queries are rounded after the scales of codes are folded in, which moves a score
// by what ScoresOfFoldedCodes below holds it to: these scenes keep scores small. Devices round bf16
// caches' to bf16.
constexpr double kDeviceBf16Bound = 1e-2;
constexpr float kFoldedQueries = 0.05f;

SceneResults RunOn(const KvBackend& backend, int threads, const Scene& scene) {
  return RunScene(*backend.Attention(threads), *backend.Codecs(), scene);
}

// Segments that hold coded entries before float ones, by the seal unit of each codec.
void Code(SegmentSpec& s, int64_t rows, KvCodec keys, KvCodec values, int64_t key_dim,
          int64_t value_dim) {
  keys.side = KvSide::kKeys;
  keys.dim = key_dim;
  values.side = KvSide::kValues;
  values.dim = value_dim;
  const auto sealed = [](const KvCodec& codec, int64_t entries) {
    return std::max<int64_t>(0, entries) / SealUnit(codec) * SealUnit(codec);
  };
  s.keys_coded = sealed(keys, s.length - rows - 3);
  s.values_coded = sealed(values, s.length - rows - 20);
  s.key_codec = keys;
  s.value_codec = values;
}

std::vector<Scene> CodedScenes(DType dtype, int64_t rows) {
  static const std::vector<float> levels = NormalLevels(3);
  constexpr CodeAxis kToken = CodeAxis::kToken, kChannel = CodeAxis::kChannel;
  struct Pair {
    const char* name;
    KvCodec keys, values;
  };
  std::vector<Pair> pairs;
  for (const int bits : {1, 2, 3, 4, 8}) {
    for (const int64_t group : {16, 32, 64}) {
      if (bits != 2 && group == 16) continue;
      pairs.push_back({"affine channel/token", AffineCodec(bits, kChannel, group, 0),
                       AffineCodec(bits, kToken, group, 0)});
    }
  }
  pairs.push_back(
      {"affine token/channel", AffineCodec(4, kToken, 32, 0), AffineCodec(2, kChannel, 32, 0)});
  pairs.push_back(
      {"q8_0/q4_0", PlainCodec(KvCodecKind::kQ8_0, 0), PlainCodec(KvCodecKind::kQ4_0, 0)});
  pairs.push_back(
      {"fp8", PlainCodec(KvCodecKind::kFp8E4M3, 0), PlainCodec(KvCodecKind::kFp8E4M3, 0)});
  pairs.push_back(
      {"q5_0/q5_1", PlainCodec(KvCodecKind::kQ5_0, 0), PlainCodec(KvCodecKind::kQ5_1, 0)});
  pairs.push_back(
      {"nvfp4/mxfp4", PlainCodec(KvCodecKind::kNvFp4, 0), PlainCodec(KvCodecKind::kMxFp4, 0)});
  static const std::vector<float> scale = {0.02f};
  Pair floats = {"float8 with scales", PlainCodec(KvCodecKind::kFp8E5M2, 0),
                 PlainCodec(KvCodecKind::kFp8E4M3, 0)};
  floats.keys.group = 32;
  floats.values.fixed_scale = View(scale, {1});
  pairs.push_back(floats);
  const KvCodec book = CodebookCodec(3, CodeRange::kRms, 64, 0, levels);
  pairs.push_back({"codebook", book, book});
  Pair side = {"side-cars", AffineCodec(2, kChannel, 64, 0), AffineCodec(2, kToken, 64, 0)};
  side.keys.symmetric = side.values.symmetric = true;
  pairs.push_back({"symmetric", side.keys, side.values});
  side.keys.outlier_share = side.values.outlier_share = 0.04;
  side.keys.rank = side.values.rank = 2;
  pairs.push_back(side);

  static const std::vector<float> groups = [] {
    std::vector<float> all;
    for (int i = 0; i < 64; ++i) all.push_back(static_cast<float>(i % 3));
    return all;
  }();
  Pair polar = {"polar", PlainCodec(KvCodecKind::kPolarPairs, 0),
                PlainCodec(KvCodecKind::kPolarTree, 0)};
  polar.keys.bits = 4;
  polar.keys.group = 64;
  pairs.push_back(polar);
  Pair sizes = {"mean sizes", PlainCodec(KvCodecKind::kMeanSizes, 0),
                PlainCodec(KvCodecKind::kMeanSizes, 0)};
  sizes.keys.bits = 2;
  sizes.keys.group = 32;
  sizes.keys.stages = 24;
  sizes.values.group = 64;
  sizes.values.stages = 0;
  pairs.push_back(sizes);
  Pair records = {"records", PlainCodec(KvCodecKind::kClusters, 0),
                  PlainCodec(KvCodecKind::kSketched, 0)};
  records.keys.bits = 2;
  records.keys.stages = 3;
  records.keys.table = View(groups, {std::ssize(groups)});
  records.values.bits = 3;
  records.values.levels = View(levels, {std::ssize(levels)});
  pairs.push_back(records);

  std::vector<Scene> scenes;
  for (const Pair& pair : pairs) {
    Scene s;
    s.name = pair.name + std::string(" ") + std::to_string(pair.keys.bits) + " bits, group " +
             std::to_string(pair.keys.group);
    s.dtype = dtype;
    s.rows = rows;
    if (dtype != DType::kF32) s.query_size = kFoldedQueries;
    s.value_dim = 128;
    s.group = 2 + std::ssize(scenes) % 2 * 3;
    s.heads = {Lengths({5, 600, 90}), Lengths({64, 65})};
    for (auto& head : s.heads) {
      Code(head[0], rows, pair.keys, pair.values, s.key_dim, s.value_dim);
      Code(head[1], rows, pair.keys, pair.values, s.key_dim, s.value_dim);
    }
    scenes.push_back(s);
  }
  // Odd dims; rotation; latents; a mask.
  Scene s = scenes[2];
  s.name = "coded, odd dims, masked, scaled";
  s.key_dim = 48;
  s.value_dim = 80;
  for (auto& head : s.heads) {
    for (SegmentSpec& segment : head) {
      Code(segment, rows, AffineCodec(4, kChannel, 32, 0), AffineCodec(4, kToken, 16, 0), 48, 80);
      segment.bias = segment.key_scale = segment.value_scale = segment.read_bias = true;
    }
  }
  scenes.push_back(s);
  s.name = "coded, turned";
  s.rope_pairs = 20;
  for (auto& head : s.heads) {
    for (SegmentSpec& segment : head) segment.turned = Turned::kStraight;
  }
  scenes.push_back(s);
  s.name = "coded latents";
  s.rope_pairs = 0;
  for (auto& head : s.heads) {
    for (SegmentSpec& segment : head) {
      segment.turned = Turned::kNo;
      segment.key_rank = 32;
      segment.value_rank = 64;
      Code(segment, rows, AffineCodec(4, kChannel, 64, 0), AffineCodec(4, kToken, 32, 0), 32, 64);
    }
  }
  scenes.push_back(s);
  s.name = "coded keys that hold the values";
  s.key_dim = 80;
  s.value_dim = 64;
  for (auto& head : s.heads) {
    for (SegmentSpec& segment : head) {
      Code(segment, rows, PlainCodec(KvCodecKind::kQ8_0, 0), KvCodec(), 80, 64);
      segment.key_rank = segment.value_rank = segment.values_coded = 0;
      segment.values_in_keys = true;
    }
  }
  scenes.push_back(s);
  return scenes;
}

// Scenes in which segments have options; the last segment, which rows belong to, too.
std::vector<Scene> OptionScenes(DType dtype, int64_t rows) {
  std::vector<Scene> scenes;
  Scene base;
  base.dtype = dtype;
  base.rows = rows;
  const auto add = [&](Scene scene, const std::string& name, auto change) {
    scene.name = name;
    scene.heads = {Lengths({70, 530, 90}), Lengths({64, 0, 75})};
    for (auto& head : scene.heads) {
      for (SegmentSpec& s : head) change(s, &s == &head.back());
    }
    scenes.push_back(scene);
  };
  add(base, "bias", [](SegmentSpec& s, bool last) { s.bias = !last; });
  add(base, "scales", [](SegmentSpec& s, bool) { s.key_scale = s.value_scale = true; });
  Scene capped = base;
  capped.softcap = 4.0f;
  capped.window = 60;
  capped.key_dim = 35;
  capped.value_dim = 24;
  capped.group = 3;
  add(capped, "bias and scales under softcap and window",
      [](SegmentSpec& s, bool) { s.bias = s.key_scale = s.value_scale = true; });
  add(capped, "positions", [](SegmentSpec& s, bool) { s.positions = true; });
  add(base, "masks", [](SegmentSpec& s, bool last) { s.mask = last ? Mask::kNone : Mask::kSome; });
  add(capped, "masks everywhere with bias", [](SegmentSpec& s, bool) {
    s.mask = Mask::kSome;
    s.bias = true;
  });
  Scene turned = base;
  turned.rope_pairs = 32;
  add(turned, "turned", [](SegmentSpec& s, bool) { s.turned = Turned::kStraight; });
  turned.rope = RopeLayout::kInterleaved;
  turned.rope_pairs = 9;
  turned.key_dim = 33;
  turned.group = 1;
  add(turned, "turned in part by scattered positions",
      [](SegmentSpec& s, bool last) { s.turned = last ? Turned::kNo : Turned::kScattered; });
  add(base, "latent keys", [](SegmentSpec& s, bool last) { s.key_rank = last ? 0 : 24; });
  add(base, "latents", [](SegmentSpec& s, bool) {
    s.key_rank = 13;
    s.value_rank = 80;
    s.value_scale = true;
  });
  turned.group = 3;
  add(turned, "latents, turned, masked", [](SegmentSpec& s, bool last) {
    s.key_rank = 40;
    s.value_rank = last ? 0 : 17;
    s.turned = Turned::kStraight;
    s.mask = last ? Mask::kNone : Mask::kSome;
  });
  const auto skips = [](SegmentSpec& s, bool last) { s.skip = s.length == 0 ? 0 : last ? 17 : 63; };
  add(base, "skipped slots", skips);
  add(base, "skipped slots, masked", [skips](SegmentSpec& s, bool last) {
    skips(s, last);
    s.mask = last ? Mask::kNone : Mask::kSome;
  });
  add(base, "biases of heads, masked", [skips](SegmentSpec& s, bool last) {
    skips(s, last);
    s.mask = Mask::kSome;
    s.read_bias = true;
  });
  add(capped, "biases of heads under softcap and window, beside others",
      [](SegmentSpec& s, bool) { s.bias = s.key_scale = s.value_scale = s.read_bias = true; });
  Scene windowed = capped;
  windowed.window = 100;
  add(windowed, "skipped slots under softcap and window", skips);
  windowed.chunked = true;
  add(windowed, "skipped slots under softcap and chunks", skips);
  add(windowed, "chunks of positions", [](SegmentSpec& s, bool) { s.positions = true; });
  Scene whole = base;
  whole.rope_pairs = 32;
  add(whole, "skipped slots, turned", [skips](SegmentSpec& s, bool last) {
    skips(s, last);
    s.turned = Turned::kStraight;
  });
  add(whole, "turned by scattered positions",
      [](SegmentSpec& s, bool) { s.turned = Turned::kScattered; });
  whole.rope = RopeLayout::kInterleaved;
  add(whole, "turned, interleaved", [](SegmentSpec& s, bool) { s.turned = Turned::kStraight; });
  add(base, "skipped slots, latents", [skips](SegmentSpec& s, bool last) {
    skips(s, last);
    s.key_rank = 24;
    s.value_rank = 40;
  });
  Scene shared = base;
  shared.key_dim = 88;
  shared.value_dim = 70;
  shared.group = 5;
  add(shared, "values in keys", [](SegmentSpec& s, bool) { s.values_in_keys = true; });
  return scenes;
}

std::vector<Scene> Scenes() {
  std::vector<Scene> scenes;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t rows : {1, 7, 40}) {
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
      // Not every option at every number of rows: a dtype meets each number somewhere.
      if (rows == (dtype == DType::kF32 ? 7 : 40) || (dtype == DType::kBF16 && rows == 1)) {
        for (const Scene& scene : OptionScenes(dtype, rows)) scenes.push_back(scene);
      }
      if (rows == (dtype == DType::kBF16 ? 7 : 1)) {
        for (const Scene& scene : CodedScenes(dtype, rows)) scenes.push_back(scene);
      }
    }
  }
  return scenes;
}

void ExpectClose(const Scene& scene, const SceneResults& got, const SceneResults& want) {
  const bool coded = std::any_of(scene.heads[0].begin(), scene.heads[0].end(),
                                 [](const SegmentSpec& s) { return s.key_codec.has_value(); });
  const bool to_bf16 = OnDevice() && coded && scene.dtype == DType::kBF16;
  const double bound = to_bf16 ? kDeviceBf16Bound : kScoreBound;
  float largest = 0;
  for (const float v : want.out) largest = std::max(largest, std::abs(v));
  // bf16 weights: each is off by 2^-9 of itself at most, and they sum to 1; outliers of single
  // values are 20 times larger than what they average to.
  const double weight = scene.dtype == DType::kBF16 ? 20.0 / 512 : 0;
  EXPECT_TRUE(AllWithin(got.out, want.out, (1 + largest) * (weight + 2 * bound)));
  EXPECT_TRUE(AllWithin(got.lse, want.lse, 2 * bound));
  EXPECT_TRUE(AllWithin(got.entropy, want.entropy, 50 * bound));
  EXPECT_TRUE(AllWithin(got.window, want.window, 2 * bound));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(AllWithin(got.columns[i], want.columns[i], 60 * bound)) << "reduction " << i;
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
  for (const Scene& scene : Some(Scenes(), 5)) {
    const SceneResults want = RunScene(*reference, *MakeReferenceCodec(), scene);
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(backend.name + ": " + scene.name + ", " + std::string(NameOf(scene.dtype)) +
                   ", rows " + std::to_string(scene.rows));
      ExpectClose(scene, RunOn(backend, 2, scene), want);
    }
  }
}

// Where the numbers of entries lie is nobody else's concern. Most codes leave few float pages.
TEST(AttentionSegments, PagesByEntryChangeNoBit) {
  for (const Scene& scene : Some(Scenes(), 5)) {
    const SegmentSpec& first = scene.heads[0][0];
    if (scene.rows == 40 || (first.key_codec && first.key_codec->bits != 4)) continue;
    Scene by_entry = scene;
    by_entry.by_entry = true;
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(backend.name + ": " + scene.name + ", " + std::string(NameOf(scene.dtype)) +
                   ", rows " + std::to_string(scene.rows));
      const SceneResults got = RunOn(backend, 2, by_entry), want = RunOn(backend, 2, scene);
      EXPECT_TRUE(SameBits(got.out, want.out));
      EXPECT_TRUE(SameBits(got.lse, want.lse));
      EXPECT_TRUE(SameBits(got.entropy, want.entropy));
      EXPECT_TRUE(SameBits(got.window, want.window));
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(got.columns[i], want.columns[i]));
    }
  }
}

// To the twin that reads entry by entry, slots that are skipped are not there.
TEST(AttentionSegments, SkippedSlotsAreNotThere) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  int64_t scenes = 0;
  for (Scene& scene : Scenes()) {
    if (scene.heads[0][0].skip == 0 || scene.heads[0][0].mask != Mask::kNone) continue;
    SCOPED_TRACE(scene.name);
    const SceneResults got = RunScene(*reference, *MakeReferenceCodec(), scene);
    for (auto& head : scene.heads) {
      for (SegmentSpec& segment : head) segment.skip = 0;
    }
    const SceneResults want = RunScene(*reference, *MakeReferenceCodec(), scene);
    EXPECT_EQ(got.out, want.out);
    EXPECT_EQ(got.lse, want.lse);
    EXPECT_EQ(got.window, want.window);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.columns[i], want.columns[i]);
    ++scenes;
  }
  EXPECT_GE(scenes, 4);
}

// Half of what each dim of a page of keys ranges over, or, without zeros, its largest number: what
// a code is scaled to at most. [pages][dim]
std::vector<std::vector<double>> HalfRanges(const std::vector<float>& rows, int64_t dim,
                                            bool symmetric) {
  const int64_t n = std::ssize(rows) / dim;
  std::vector<std::vector<double>> half;
  for (int64_t first = 0; first < n; first += kKvPageEntries) {
    half.emplace_back();
    for (int64_t c = 0; c < dim; ++c) {
      double low = rows[first * dim + c], high = low;
      for (int64_t e = first; e < std::min(n, first + kKvPageEntries); ++e) {
        low = std::min(low, double{rows[e * dim + c]});
        high = std::max(high, double{rows[e * dim + c]});
      }
      half.back().push_back(symmetric ? std::max(high, -low) : (high - low) / 2);
    }
  }
  return half;
}

// The bound that attention.h states. Each folded number is off by half a unit; zeros, which are
// folded in f32, by nothing. So what a score moves by does not depend on how loud a constant a
// channel carries.
TEST(AttentionSegments, ScoresOfFoldedCodes) {
  const std::unique_ptr<AttentionOps> reference = MakeReferenceAttention();
  // A row's largest number is so many units. On the cpu all that 16 bits hold. A device takes a
  // number apart into two signed bytes, of which the high one counts the half that the low one
  // lacks: 127 * 256 + 127 are the most that both hold.
  const double units = OnDevice() ? 32639 : 32767;
  double closest = 0;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const float query_size : {0.05f, 0.7f, 5.0f}) {
      for (const int bits : {2, 3, 4}) {
        for (const bool symmetric : {false, true}) {
          Scene scene;
          scene.dtype = dtype;
          scene.query_size = query_size;
          scene.rows = 2;
          scene.heads = {Lengths({388}), Lengths({210})};
          KvCodec keys = AffineCodec(bits, CodeAxis::kChannel, 64, 0);
          KvCodec values = AffineCodec(bits, CodeAxis::kToken, 64, 0);
          keys.symmetric = values.symmetric = symmetric;
          for (auto& head : scene.heads) {
            Code(head[0], scene.rows, keys, values, scene.key_dim, scene.value_dim);
            head[0].key_shift = symmetric ? 0.0f : 15.0f;
          }
          const std::vector<float> queries = scene.Queries();
          const SceneResults want = RunScene(*reference, *MakeReferenceCodec(), scene);
          for (const KvBackend& backend : KvBackends()) {
            const SceneResults got = RunOn(backend, 1, scene);
            for (int64_t h = 0; h < scene.query_heads(); ++h) {
              const auto head = static_cast<size_t>(h / scene.group);
              const auto half = HalfRanges(
                  KeysOf(scene.heads[head][0], scene.key_dim, SegmentSeed(scene, head, 0)),
                  scene.key_dim, symmetric);
              for (int64_t row = 0; row < scene.rows; ++row) {
                const float* q = &queries[(row * scene.query_heads() + h) * scene.key_dim];
                double rounding = 0, largest = 0;
                for (const std::vector<double>& page : half) {
                  double most = 0;
                  for (int64_t c = 0; c < scene.key_dim; ++c) {
                    most = std::max(most, std::abs(q[c]) * page[c]);
                  }
                  const double half_unit = most / units / 2;
                  rounding = std::max(rounding, static_cast<double>(scene.key_dim) * half_unit);
                }
                for (int64_t c = 0; c < scene.key_dim; ++c) {
                  largest += std::abs(q[c]) * (4 + scene.heads[head][0].key_shift);
                }
                const double scale = scene.Shape().scale;
                // f16 scales widen a range a little; f32 sums and scores round as well.
                const double bound = scale * (rounding * 1.01 + largest * 4e-7) + kScoreBound;
                const double off = std::abs(double{got.lse[h * scene.rows + row]} -
                                            want.lse[h * scene.rows + row]);
                EXPECT_LE(off, bound) << backend.name << ", " << NameOf(dtype) << ", " << bits
                                      << " bits, queries of " << query_size;
                closest = std::max(closest, (off - kScoreBound) / bound);
              }
            }
          }
        }
      }
    }
  }
  RecordProperty("closest", std::to_string(closest));
}

// One page of keys and values in codes, and a row over it.
struct CodedPage {
  KvCodec keys, values;
  Buffer key_page, value_page;
  AttentionShape shape;
  std::vector<float> q;

  CodedPage(const KvBackend& backend, DType dtype, int bits, int64_t dims,
            const std::vector<float>& key_rows)
      : keys(AffineCodec(bits, CodeAxis::kChannel, 64, dims)),
        values(AffineCodec(bits, CodeAxis::kToken, 64, dims)),
        q(static_cast<size_t>(2 * dims), 0.25f) {
    values.side = KvSide::kValues;
    const std::unique_ptr<CodecOps> codecs = backend.Codecs();
    key_page = HostBuffer(codecs->PageBytes(keys));
    value_page = HostBuffer(codecs->PageBytes(values));
    void* const key_pages[] = {key_page.data()};
    void* const value_pages[] = {value_page.data()};
    codecs->Encode(keys, View(key_rows, {kKvPageEntries, dims}), 0, {key_pages});
    codecs->Encode(values, View(key_rows, {kKvPageEntries, dims}), 0, {value_pages});
    shape.format = {dtype, dims, dims};
    shape.kv_heads = 1;
    shape.query_heads = 2;
    shape.scale = 1.0f / 16;
  }

  std::vector<float> Attend(const KvBackend& backend) {
    void* const key_pages[] = {key_page.data()};
    void* const value_pages[] = {value_page.data()};
    KvSegment segment;
    segment.length = kKvPageEntries;
    segment.keys = {&keys, {key_pages}, kKvPageEntries};
    segment.values = {&values, {value_pages}, kKvPageEntries};
    const KvHead head = {&segment, 1};
    AttentionItem item;
    item.rows = 1;
    item.heads = {&head, 1};
    const int64_t dims = shape.format.key_dim;
    std::vector<float> out;
    backend.Attention(1)->Attend(shape, {&item, 1}, View(q, {1, 2, dims}),
                                 MakeFilled(out, {1, 2, dims}));
    return out;
  }
};

// Rows of equal numbers times an entry of the largest codes make the largest sums there are. Entry
// by entry: where a field stands in its word decides how large.
TEST(AttentionSegments, TheLargestSumsOfCodesFit) {
  for (const int bits : {2, 3, 4}) {
    for (const int64_t dims : {128, 256}) {
      for (const int64_t entry : {0, 21, 42, 63}) {
        std::vector<float> rows(static_cast<size_t>(kKvPageEntries * dims), 0.0f);
        std::fill_n(rows.begin() + entry * dims, dims, 1.0f);
        for (const KvBackend& backend : KvBackends()) {
          SCOPED_TRACE(backend.name + ", bits " + std::to_string(bits) + ", dims " +
                       std::to_string(dims) + ", entry " + std::to_string(entry));
          CodedPage page(backend, DType::kBF16, bits, dims, rows);
          const std::vector<float> out = page.Attend(backend);
          const double e = std::exp(static_cast<double>(dims) * 0.25 / 16);
          for (const float x : out) ASSERT_NEAR(x, e / (e + 63), 1e-2);
        }
      }
    }
  }
}

// Numbers that are none reach what they are part of, and nothing else.
TEST(AttentionSegments, CodesPassOnWhatIsNotFinite) {
  std::vector<float> rows(static_cast<size_t>(kKvPageEntries * 64));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int bits : {2, 3, 4}) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        for (const KvBackend& backend : KvBackends()) {
          SCOPED_TRACE(backend.name + " " + std::string(NameOf(dtype)) + ", bits " +
                       std::to_string(bits));
          CodedPage page(backend, dtype, bits, 64, rows);
          const std::vector<float> sound = page.Attend(backend);
          page.q[3] = bad;  // of the first query head
          const std::vector<float> out = page.Attend(backend);
          for (int k = 0; k < 64; ++k) {
            EXPECT_TRUE(std::isnan(out[k]));
            EXPECT_EQ(out[64 + k], sound[64 + k]);
          }
        }
      }
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
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(backend.name + ": " + scene.name);
      ExpectSame(RunOn(backend, 3, scene), RunOn(backend, 1, scene));
    }
  }
}

// Rows attended one by one, each over what it may see, and rows in a batch have the same bits.
TEST(AttentionSegments, RowsDoNotDependOnTheirCompany) {
  for (const Scene& scene : Some(Scenes(), 9)) {
    for (const KvBackend& backend : KvBackends()) {
      SCOPED_TRACE(backend.name + ": " + scene.name);
      const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
      const std::unique_ptr<CodecOps> codecs = backend.Codecs();
      const SceneCache cache(*ops, *codecs, scene);
      const AttentionShape& shape = cache.shape();
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
          item.token_position = cache.token_position(scene.rows) + row;
          item.heads = shorter;
          ops->Attend(shape, {&item, 1}, q, result, {lse_out, {}});
        }
        return out;
      };
      std::vector<float> whole_lse;
      const std::vector<float> whole = attend(scene.rows, whole_lse);
      for (const int64_t chunk : Some(std::vector<int64_t>{1, 17, 3}, 2)) {
        std::vector<float> lse;
        EXPECT_TRUE(SameBits(attend(chunk, lse), whole)) << chunk << " rows a call";
        EXPECT_TRUE(SameBits(lse, whole_lse));
      }
    }
  }
}

// What is captured beside a result, and how many rows are attended together, decide which way it is
// computed, and show in no bit.
TEST(AttentionSegments, CapturesChangeNoBit) {
  struct Dims {
    int64_t key, value;
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Dims& dims : {Dims{64, 64}, {128, 128}, {192, 128}, {72, 144}}) {
      Scene scene;
      scene.dtype = dtype;
      scene.key_dim = dims.key;
      scene.value_dim = dims.value;
      scene.rows = 70;
      scene.heads = {Lengths({530, 75})};
      scene.softcap = dims.value == 64 ? 5.0f : 0.0f;
      scene.window = dims.key == 192 ? 100 : 0;
      for (SegmentSpec& s : scene.heads[0]) {
        s.bias = s.value_scale = dims.key == 72;
        s.mask = dims.key == 64 ? Mask::kSome : Mask::kNone;
      }
      for (const KvBackend& backend : KvBackends()) {
        SCOPED_TRACE(backend.name + " " + std::string(NameOf(dtype)) + " dims " +
                     std::to_string(dims.key) + "/" + std::to_string(dims.value));
        const SceneResults want = RunOn(backend, 2, scene);
        const std::unique_ptr<AttentionOps> ops = backend.Attention(2);
        const std::unique_ptr<CodecOps> codecs = backend.Codecs();
        const SceneCache cache(*ops, *codecs, scene);
        const std::vector<float> queries = scene.Queries();
        AttentionItem item;
        item.rows = scene.rows;
        item.heads = cache.heads();
        std::vector<float> out, lse;
        ops->Attend(cache.shape(), {&item, 1},
                    View(queries, {scene.rows, scene.query_heads(), scene.key_dim}),
                    MakeFilled(out, {scene.rows, scene.query_heads(), scene.value_dim}),
                    {MakeFilled(lse, {scene.query_heads(), scene.rows}), {}});
        EXPECT_TRUE(SameBits(out, want.out));
        EXPECT_TRUE(SameBits(lse, want.lse));
      }
    }
  }
}

// Options that say nothing change no bit.
TEST(AttentionSegments, EmptyOptionsChangeNoBit) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t rows : Some(std::vector<int64_t>{1, 5, 70}, 2)) {
      Scene scene;
      scene.dtype = dtype;
      scene.rows = rows;
      scene.heads = {Lengths({600, 90}), Lengths({75})};
      Scene masked = scene, placed = scene;
      for (auto& head : masked.heads) {
        for (SegmentSpec& s : head) s.mask = Mask::kOnes;
      }
      for (auto& head : placed.heads) {
        for (SegmentSpec& s : head) s.positions = true;
      }
      for (const KvBackend& backend : KvBackends()) {
        SCOPED_TRACE(backend.name);
        const SceneResults want = RunOn(backend, 2, scene);
        ExpectSame(RunOn(backend, 2, masked), want);
        ExpectSame(RunOn(backend, 2, placed), want);
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
