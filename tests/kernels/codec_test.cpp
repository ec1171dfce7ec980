// SPDX-License-Identifier: Apache-2.0
// Every codec on every backend: the same codes, the bytes declared, nothing else touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "codec_stream.h"
#include "core/rng.h"
#include "cpu/codec/codec_kernels.h"
#include "kv_backends.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class EveryCodecBackend : public ::testing::Test {
 protected:
  EveryCodecBackend()
      : twin(MakeReferenceCodec()), backends(CpuBackends(MakeCpuCodec, {1, 2, 4})) {}
  std::unique_ptr<CodecOps> twin;
  std::vector<Backend<CodecOps>> backends;
};

// Codecs without side-cars for one dim.
std::vector<KvCodec> PlainCodecs(int64_t dim) {
  static const std::vector<float> kLevels[] = {NormalLevels(1), NormalLevels(2), NormalLevels(3),
                                               NormalLevels(4)};
  // Far from halfway between levels.
  static const std::vector<std::vector<float>> kEdges = [] {
    std::vector<std::vector<float>> edges;
    for (const std::vector<float>& levels : kLevels) {
      std::vector<float>& of = edges.emplace_back();
      for (size_t i = 1; i < levels.size(); ++i) of.push_back(0.7f * levels[i] + 0.05f);
    }
    return edges;
  }();
  std::vector<KvCodec> codecs;
  for (const int bits : {1, 2, 3, 4, 8}) {
    for (const bool symmetric : {false, true}) {
      if (symmetric && bits == 1) continue;
      std::vector<KvCodec> some = {AffineCodec(bits, CodeAxis::kToken, dim, dim),
                                   AffineCodec(bits, CodeAxis::kToken, 32, dim),
                                   AffineCodec(bits, CodeAxis::kChannel, 32, dim)};
      if (bits == 2) {
        some.push_back(AffineCodec(bits, CodeAxis::kToken, 10, dim));
        some.push_back(AffineCodec(bits, CodeAxis::kToken, 1, dim));
        some.push_back(AffineCodec(bits, CodeAxis::kChannel, 16, dim));
        some.push_back(AffineCodec(bits, CodeAxis::kChannel, 64, dim));
      }
      for (KvCodec& codec : some) {
        codec.symmetric = symmetric;
        if (codec.axis == CodeAxis::kToken) codec.group = std::min(codec.group, dim);
        codecs.push_back(codec);
        if (symmetric || codec.axis != CodeAxis::kToken) continue;
        codec.exact_scale = true;
        codecs.push_back(codec);
        codec.exact_scale = false;
        codec.clip = 0.8f;
        codecs.push_back(codec);
      }
    }
  }
  static const std::vector<float> kScales = [] {
    std::vector<float> scales;
    for (int i = 0; i < 1024; ++i) scales.push_back(0.013f * static_cast<float>(1 + i % 11));
    return scales;
  }();
  for (const KvCodec& codec : FormatCodecs(dim, kScales)) codecs.push_back(codec);
  for (const int bits : {1, 2, 3, 4}) {
    for (const CodeRange range : {CodeRange::kExtremes, CodeRange::kRms, CodeRange::kLargest}) {
      codecs.push_back(CodebookCodec(bits, range, dim, dim, kLevels[bits - 1]));
      codecs.push_back(
          CodebookCodec(bits, range, std::min<int64_t>(dim, 24), dim, kLevels[bits - 1]));
    }
    KvCodec& edged =
        codecs.emplace_back(CodebookCodec(bits, CodeRange::kExtremes, dim, dim, kLevels[bits - 1]));
    edged.table = View(kEdges[bits - 1], {std::ssize(kEdges[bits - 1])});
  }
  return codecs;
}

const std::vector<float>& RecordNumbers() {
  static const std::vector<float> kNumbers = RandomValues(12 * 128 * 128, 77);
  return kNumbers;
}
std::vector<KvCodec> Records(int64_t dim) {
  static const std::vector<float> kLevels = NormalLevels(3);
  static const std::vector<float> kGroups = [] {
    std::vector<float> groups;
    for (int i = 0; i < 1024; ++i) groups.push_back(static_cast<float>(i * 7 % 3));
    return groups;
  }();
  return RecordCodecs(dim, RecordNumbers(), kLevels, kGroups);
}

// Constant, zero, tied, tiny and huge numbers; kinds from 8 on are ordinary.
float Hard(uint64_t kind, int64_t i, float v) {
  switch (kind) {
    case 0:
      return -3.3f;
    case 1:
      return i % 2 == 0 ? 0.0f : -0.0f;
    case 2:
      return static_cast<float>(i % 4) - 1.5f;
    case 3:
      return v * 1e-7f;
    case 4:
      return v * 1e-42f;
    case 5:
      return v * 1e5f;
    case 6:
      return v * 1e30f;
    case 7:
      return i % 3 == 0 ? 2.5f : -2.5f;
    default:
      return v;
  }
}

// A page of ordinary rows; one in which some dims are hard over all entries; then hard rows.
std::vector<float> HardRows(int64_t n, int64_t dim, uint64_t seed) {
  std::vector<float> rows = RandomValues(n * dim, seed);
  Rng rng(seed, 3);
  for (int64_t i = 64; i < n; ++i) {
    const uint64_t row_kind = rng.NextBelow(24);
    for (int64_t c = 0; c < dim; ++c) {
      float& v = rows[i * dim + c];
      v = i < 128 ? Hard(static_cast<uint64_t>(c * 5 % 13), i, v) : Hard(row_kind, c, v);
    }
  }
  return rows;
}

// Bits, not values: -0 is not 0 here.
int64_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof a[i]) != 0) return static_cast<int64_t>(i);
  }
  return a.size() == b.size() ? -1 : static_cast<int64_t>(a.size());
}

TEST_F(EveryCodecBackend, AgreesWithTwinToTheBit) {
  for (const int64_t dim : {1, 7, 32, 64, 80, 128}) {
    const std::vector<float> rows = HardRows(192, dim, 11 + dim);
    for (KvCodec codec : Some(PlainCodecs(dim), 3)) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        codec.side = side;
        ASSERT_TRUE(CheckCodec(codec).ok()) << CheckCodec(codec).error().message;
        const int64_t entries = SealUnit(codec) == 1 ? 165 : 192;
        const std::vector<float> these(rows.begin(), rows.begin() + entries * dim);
        CodecStream want(*twin, codec, entries);
        want.Encode(these);
        const std::vector<float> wanted = want.Decode();
        std::vector<std::vector<uint8_t>> memory;
        for (const auto& [name, ops] : backends) {
          SCOPED_TRACE(StrCat(name, " ", NameOf(codec)));
          CodecStream got(*ops, codec, entries);
          got.Encode(these);
          const std::vector<float> decoded = got.Decode();
          const int64_t at = FirstDifference(decoded, wanted);
          ASSERT_EQ(at, -1) << "entry " << at / dim << " dim " << at % dim << ": " << decoded[at]
                            << ", expected " << wanted[at] << " for " << these[at];
          ASSERT_TRUE(got.Intact());
          for (int64_t p = 0; p < 3; ++p) {  // all instruction sets share one layout
            if (memory.size() < 3) memory.push_back(got.PageMemory(p));
            ASSERT_EQ(got.PageMemory(p), memory[p]);
          }
        }
      }
    }
  }
}

// Numbers whose squares are finite.
TEST_F(EveryCodecBackend, RecordsAgreeWithTwinToTheBit) {
  for (const int64_t dim : {7, 32, 48, 128}) {
    std::vector<float> rows = HardRows(192, dim, 23 + dim);
    for (float& v : rows) v = std::abs(v) > 1e9f ? v * 1e-25f : v;
    for (KvCodec codec : Some(Records(dim), 2)) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        codec.side = side;
        ASSERT_TRUE(CheckCodec(codec).ok()) << CheckCodec(codec).error().message;
        const int64_t entries = SealUnit(codec) == 1 ? 165 : 192;
        const std::vector<float> these(rows.begin(), rows.begin() + entries * dim);
        CodecStream want(*twin, codec, entries);
        want.Encode(these);
        const std::vector<float> wanted = want.Decode();
        for (size_t i = 0; i < backends.size(); i += 2) {
          SCOPED_TRACE(StrCat(backends[i].name, " ", NameOf(codec)));
          CodecOps& ops = *backends[i].ops;
          CodecStream got(ops, codec, entries), pieces(ops, codec, entries);
          got.Encode(these);
          const std::vector<float> decoded = got.Decode();
          const int64_t at = FirstDifference(decoded, wanted);
          ASSERT_EQ(at, -1) << "entry " << at / dim << " dim " << at % dim << ": " << decoded[at]
                            << ", expected " << wanted[at] << " for " << these[at];
          const int64_t half = 64 + SealUnit(codec);
          pieces.Encode({these.begin() + half * dim, these.end()}, half);
          pieces.Encode({these.begin(), these.begin() + half * dim});
          for (int64_t p = 0; p < 3; ++p) ASSERT_EQ(pieces.PageMemory(p), got.PageMemory(p));
          ASSERT_TRUE(got.Intact() && pieces.Intact());
          const KvBytes bytes = CodedBytes(codec, 64);
          ASSERT_EQ(ops.PageBytes(codec), bytes.payload + bytes.scales);
          ASSERT_EQ(twin->PageBytes(codec), bytes.payload + bytes.scales);
        }
      }
    }
  }
}

// VidKV's sizes: a bit, and 8 bits for five numbers; with sizes in f16 for 32 entries.
TEST(KvCodecBytes, OfSignsAndThreeLevels) {
  KvCodec codec = PlainCodec(KvCodecKind::kMeanSizes, 128);
  codec.group = 32;
  codec.stages = 0;
  EXPECT_EQ(EntryCodeBits(codec), 26 * 8);
  EXPECT_EQ(CodedBytes(codec, 64).payload, 64 * 26);
  EXPECT_EQ(CodedBytes(codec, 64).scales, 2 * 128 * 2);
  codec.stages = 64;
  codec.bits = 2;
  EXPECT_EQ(EntryCodeBits(codec), 64 + 128);
  EXPECT_EQ(CodedBytes(codec, 32).scales, 64 * 2 + 64 * 4);
}

// What the papers promise of normal numbers: TurboQuant's estimate is right on average, and the
// tree of angles has 3.875 bits a number.
TEST_F(EveryCodecBackend, SketchedProductsAreRightOnAverage) {
  const int64_t dim = 64, n = 4096;
  const std::vector<float> levels = NormalLevels(1);
  KvCodec codec = PlainCodec(KvCodecKind::kSketched, dim);
  codec.bits = 1;
  codec.levels = View(levels, {2});
  // What a random rotation leaves of any entry: normal numbers without outliers.
  Rng rng(3, 4);
  std::vector<float> rows(n * dim), queries(n * dim);
  for (float& v : rows) v = static_cast<float>(rng.NextGaussian());
  for (float& v : queries) v = static_cast<float>(rng.NextGaussian());
  CodecStream stream(*backends[0].ops, codec, n);
  stream.Encode(rows);
  const std::vector<float> decoded = stream.Decode();
  double met = 0, own = 0;
  for (int64_t i = 0; i < n; ++i) {
    double product = 0, estimate = 0;
    for (int64_t d = 0; d < dim; ++d) {
      // Half of it along the entry, so that products are large.
      const float q = queries[i * dim + d] + rows[i * dim + d];
      product += double{q} * rows[i * dim + d];
      estimate += double{q} * decoded[i * dim + d];
    }
    met += product * estimate;
    own += product * product;
  }
  EXPECT_NEAR(met / own, 1.0, 0.01);
  const KvCodec tree = PlainCodec(KvCodecKind::kPolarTree, dim);
  EXPECT_EQ(CodedBytes(tree, 64).logical() * 8.0 / 64 / dim, 3.875);
}

TEST_F(EveryCodecBackend, EntriesSealedInPiecesAreTheSame) {
  const int64_t dim = 80, entries = 192;
  const std::vector<float> rows = HardRows(entries, dim, 5);
  Rng rng(3, 3);
  for (KvCodec codec : Some(PlainCodecs(dim), 7)) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      codec.side = side;
      for (size_t i = 0; i < backends.size(); i += 3) {
        SCOPED_TRACE(StrCat(backends[i].name, " ", NameOf(codec)));
        CodecStream whole(*backends[i].ops, codec, entries),
            pieces(*backends[i].ops, codec, entries);
        whole.Encode(rows);
        // Backwards in part, so that later entries stand before earlier ones are written.
        std::vector<std::pair<int64_t, int64_t>> runs;
        const int64_t unit = SealUnit(codec);
        for (int64_t e = 0; e < entries;) {
          const int64_t n =
              std::min(entries - e, unit * static_cast<int64_t>(1 + rng.NextBelow(9)));
          runs.emplace_back(e, n);
          e += n;
        }
        std::reverse(runs.begin() + static_cast<int64_t>(runs.size()) / 2, runs.end());
        for (const auto& [first, n] : runs) {
          std::vector<float> padded;
          for (int64_t e = first; e < first + n; ++e) {
            padded.insert(padded.end(), rows.begin() + e * dim, rows.begin() + (e + 1) * dim);
            padded.insert(padded.end(), 3, 1e9f);
          }
          pieces.Encode(padded, first, 3);
        }
        for (int64_t p = 0; p < 3; ++p) ASSERT_EQ(pieces.PageMemory(p), whole.PageMemory(p));
        ASSERT_TRUE(pieces.Intact());
        const std::vector<float> all = whole.Decode(), some = whole.Decode(37, 99);
        ASSERT_EQ(FirstDifference(some, {all.begin() + 37 * dim, all.begin() + 136 * dim}), -1);
      }
    }
  }
}

// Codes of one bit stand for the ends of a range, so a channel has two numbers in two pages.
TEST_F(EveryCodecBackend, TwoPagesHaveOneRange) {
  const int64_t dim = 20, entries = 256;
  std::vector<float> rows = HardRows(entries, dim, 31);
  for (KvCodec codec :
       {AffineCodec(1, CodeAxis::kChannel, 64, dim), AffineCodec(2, CodeAxis::kChannel, 64, dim)}) {
    codec.range_pages = 2;
    codec.symmetric = codec.bits > 1;
    ASSERT_EQ(SealUnit(codec), 128);
    CodecStream want(*twin, codec, entries);
    want.Encode(rows);
    const std::vector<float> wanted = want.Decode();
    for (const auto& [name, ops] : backends) {
      SCOPED_TRACE(StrCat(name, " ", NameOf(codec)));
      CodecStream got(*ops, codec, entries), pieces(*ops, codec, entries);
      got.Encode(rows);
      ASSERT_EQ(FirstDifference(got.Decode(), wanted), -1);
      pieces.Encode({rows.begin() + 128 * dim, rows.end()}, 128);
      pieces.Encode({rows.begin(), rows.begin() + 128 * dim});
      for (int64_t p = 0; p < 4; ++p) ASSERT_EQ(pieces.PageMemory(p), got.PageMemory(p));
    }
    if (codec.bits > 1) continue;
    for (int64_t d = 0; d < dim; ++d) {
      for (const int64_t begin : {0, 128}) {
        std::set<float> numbers;
        for (int64_t e = begin; e < begin + 128; ++e) numbers.insert(wanted[e * dim + d]);
        EXPECT_LE(numbers.size(), 2) << d;
      }
    }
  }
}

// Outliers are taken out first. Without a number of pages those of a call have one range.
TEST_F(EveryCodecBackend, RunsOfPagesHaveOneRange) {
  const int64_t dim = 20, entries = 384;
  const std::vector<float> rows = HardRows(entries, dim, 37);
  for (const int64_t pages : {0, 3}) {
    for (const double share : {0.0, 0.1}) {
      KvCodec codec = AffineCodec(1, CodeAxis::kChannel, 64, dim);
      codec.range_pages = pages;
      codec.outlier_share = share;
      ASSERT_EQ(SealUnit(codec), pages == 0 ? 64 : 192);
      CodecStream want(*twin, codec, entries);
      want.Encode({rows.begin(), rows.begin() + 192 * dim});
      want.Encode({rows.begin() + 192 * dim, rows.end()}, 192);
      const std::vector<float> wanted = want.Decode();
      for (const auto& [name, ops] : backends) {
        SCOPED_TRACE(StrCat(name, " ", pages, " pages, outliers ", share));
        CodecStream got(*ops, codec, entries), at_once(*ops, codec, entries);
        got.Encode({rows.begin(), rows.begin() + 192 * dim});
        got.Encode({rows.begin() + 192 * dim, rows.end()}, 192);
        ASSERT_EQ(FirstDifference(got.Decode(), wanted), -1);
        at_once.Encode(rows);
        EXPECT_EQ(FirstDifference(at_once.Decode(), wanted) == -1, pages == 3);
      }
      if (share > 0) continue;
      for (int64_t d = 0; d < dim; ++d) {
        for (const int64_t begin : {0, 192}) {
          std::set<float> numbers;
          for (int64_t e = begin; e < begin + 192; ++e) numbers.insert(wanted[e * dim + d]);
          EXPECT_LE(numbers.size(), 2) << d;
        }
      }
    }
  }
}

const CodecKernels& KernelsOf(Isa isa) {
  if (isa >= Isa::kAvx512) return Avx512CodecKernels();
  return isa == Isa::kAvx2 ? Avx2CodecKernels() : PortableCodecKernels();
}

// What attention reads: entries are the lanes of a tile of keys, dims those of a tile of values.
TEST(CodecTiles, HoldWhatDecodeGives) {
  for (const int64_t dim : {1, 20, 64, 80}) {
    const std::vector<float> rows = RandomValues(128 * dim, 17);
    std::vector<KvCodec> codecs = PlainCodecs(dim);
    codecs.push_back(AffineCodec(3, CodeAxis::kChannel, 64, dim));
    codecs.back().outlier_share = 0.1;
    codecs.back().rank = std::min<int64_t>(dim, 11);
    for (KvCodec codec : codecs) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        codec.side = side;
        for (const Isa isa : SupportedIsas()) {
          SCOPED_TRACE(StrCat(NameOf(isa), " ", NameOf(codec)));
          const std::unique_ptr<CodecOps> ops = MakeCpuCodec(isa, ThreadSettings{1});
          CodecStream stream(*ops, codec, 128);
          stream.Encode(rows);
          const std::vector<float> want = stream.Decode(64, 64);
          const CodecPlan plan(codec);
          constexpr float kGuard = -7.0f;
          std::vector<float> tile(static_cast<size_t>(TileFloats(plan.layout)) + 16, kGuard);
          DecodeTile(KernelsOf(isa), plan, PageOf(stream.pages(), 1), tile.data());
          const int64_t width = plan.layout.width;
          for (int64_t e = 0; e < 64; ++e) {
            for (int64_t c = 0; c < width; ++c) {
              if (side == KvSide::kKeys && c >= dim) continue;
              const float got = tile[side == KvSide::kKeys ? c * 64 + e : e * width + c];
              if (c < dim) {
                ASSERT_EQ(got, want[e * dim + c]) << e << " " << c;
              } else {
                ASSERT_TRUE(std::isfinite(got)) << e << " " << c;
              }
            }
          }
          for (size_t i = tile.size() - 16; i < tile.size(); ++i) ASSERT_EQ(tile[i], kGuard);
        }
      }
    }
  }
}

TEST_F(EveryCodecBackend, UnwrittenEntriesDecodeToZero) {
  for (KvCodec codec : PlainCodecs(32)) {
    if (SealUnit(codec) != 1) continue;
    for (const auto& [name, ops] : backends) {
      CodecStream stream(*ops, codec, 64);
      stream.Encode(RandomValues(32, 1), 5);
      const std::vector<float> rows = stream.Decode();
      for (int64_t i = 0; i < 64 * 32; ++i) {
        const bool written = i / 32 == 5;
        ASSERT_TRUE(written || rows[i] == 0.0f) << name << " " << NameOf(codec);
      }
    }
  }
}

TEST_F(EveryCodecBackend, DeclaredBytesAreAllocated) {
  backends.push_back({"reference", MakeReferenceCodec()});
  for (const int64_t dim : {16, 32, 48, 64, 80, 96, 128, 576}) {
    for (KvCodec codec : PlainCodecs(dim)) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        codec.side = side;
        const KvBytes bytes = CodedBytes(codec, 64);
        for (const auto& [name, ops] : backends) {
          EXPECT_EQ(ops->PageBytes(codec), bytes.payload + bytes.scales)
              << name << " " << NameOf(codec);
        }
      }
    }
  }
}

TEST_F(EveryCodecBackend, OddDimsArePadded) {
  // Dims that are no multiple of 16: keys to a full block of dims, values and scales to 16.
  KvCodec odd = AffineCodec(2, CodeAxis::kChannel, 64, 33);
  EXPECT_EQ(backends[0].ops->PageBytes(odd), 36 * 64 / 4 + 48 * 4);
  odd.side = KvSide::kValues;
  EXPECT_EQ(backends[0].ops->PageBytes(odd), 48 * 64 / 4 + 48 * 4);
}

TEST(KvCodecBytes, HandWorked) {
  // 2 bits and, for each 32 numbers, 4 bytes: 3 bits a number.
  KvBytes kivi = CodedBytes(AffineCodec(2, CodeAxis::kChannel, 32, 128), 128);
  EXPECT_EQ(kivi.payload, 128 * 128 / 4);
  EXPECT_EQ(kivi.scales, 4 * 128 * 4);
  EXPECT_EQ(kivi.logical() * 8, 128 * 128 * 3);
  EXPECT_EQ(CodedBytes(AffineCodec(3, CodeAxis::kToken, 64, 64), 8).payload, 8 * 64 * 3 / 8);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kQ8_0, 128), 10).logical(), 10 * 4 * 34);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kQ4_0, 128), 10).logical(), 10 * 4 * 18);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kQ4_1, 128), 10).logical(), 10 * 4 * 20);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kQ5_0, 128), 10).logical(), 10 * 4 * 22);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kQ5_1, 128), 10).logical(), 10 * 4 * 24);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kIq4Nl, 128), 10).logical(), 10 * 4 * 18);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kMxFp4, 128), 10).logical(), 10 * 4 * 17);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kNvFp4, 128), 10).logical(), 10 * 8 * 9);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kFp8E4M3, 80), 3).logical(), 240);
  KvCodec by_entry = PlainCodec(KvCodecKind::kFp8E5M2, 80);
  by_entry.group = 80;
  EXPECT_EQ(CodedBytes(by_entry, 3).logical(), 3 * 84);
  EXPECT_EQ(CodedBytes(PlainCodec(KvCodecKind::kFloat, 80), 3).logical(), 480);
  const std::vector<float> levels = NormalLevels(3);
  EXPECT_EQ(CodedBytes(CodebookCodec(3, CodeRange::kRms, 128, 128, levels), 2).logical(),
            2 * (48 + 2));
  KvCodec gear = AffineCodec(2, CodeAxis::kToken, 64, 128);
  gear.rank = 4;
  EXPECT_EQ(CodedBytes(gear, 64).low_rank, (64 + 128) * 4 * 2);
  EXPECT_EQ(CodedBytes(gear, 0), KvBytes());

  KvBytes sum = kivi;
  sum += CodedBytes(gear, 64);
  sum.slack = 100;
  EXPECT_EQ(sum.payload, 4096 + 2048);
  EXPECT_EQ(sum.resident(), sum.logical() + 100);
}

TEST(KvCodecSeals, UnitIsWhatSharesSomething) {
  EXPECT_EQ(SealUnit(PlainCodec(KvCodecKind::kQ8_0, 64)), 1);
  EXPECT_EQ(SealUnit(AffineCodec(2, CodeAxis::kToken, 32, 64)), 1);
  EXPECT_EQ(SealUnit(AffineCodec(2, CodeAxis::kChannel, 32, 64)), 32);
  KvCodec codec = AffineCodec(2, CodeAxis::kToken, 32, 64);
  codec.rank = 1;
  EXPECT_EQ(SealUnit(codec), 64);
  codec.rank = 0;
  codec.outlier_share = 0.01;
  EXPECT_EQ(SealUnit(codec), 64);
}

TEST(KvCodecChecks, NameWhatIsWrong) {
  const auto message = [](const KvCodec& codec) {
    const Status status = CheckCodec(codec);
    return status.ok() ? std::string() : status.error().message;
  };
  const KvCodec good = AffineCodec(2, CodeAxis::kToken, 32, 64);
  EXPECT_EQ(message(good), "");
  KvCodec codec = good;
  codec.bits = 5;
  EXPECT_THAT(message(codec), HasSubstr("bits 5: must be 1, 2, 3, 4 or 8"));
  codec = good;
  codec.group = 65;
  EXPECT_THAT(message(codec), HasSubstr("group 65: must be 1 to 64"));
  codec.axis = CodeAxis::kChannel;
  EXPECT_THAT(message(codec), HasSubstr("must be 16, 32 or 64"));
  codec = good;
  codec.bits = 1;
  codec.symmetric = true;
  EXPECT_THAT(message(codec), HasSubstr("2 bits"));
  codec.bits = 2;
  codec.exact_scale = true;
  EXPECT_THAT(message(codec), HasSubstr("exact_scale goes with groups along an entry"));
  codec.exact_scale = false;
  codec.clip = 0.5f;
  EXPECT_THAT(message(codec), HasSubstr("clip 0.5: goes with groups along an entry"));
  codec = AffineCodec(2, CodeAxis::kChannel, 32, 64);
  codec.clip = 0.5f;
  EXPECT_THAT(message(codec), HasSubstr("clip 0.5: goes with groups along an entry"));
  for (const float clip : {0.0f, 1.5f, NAN}) {
    codec = good;
    codec.clip = clip;
    EXPECT_THAT(message(codec), HasSubstr("must be above 0 and at most 1")) << clip;
  }
  codec = good;
  codec.outlier_share = 1.5;
  EXPECT_THAT(message(codec), HasSubstr("outlier_share 1.5"));
  codec = PlainCodec(KvCodecKind::kQ8_0, 64);
  codec.outlier_share = 0.1;
  EXPECT_THAT(message(codec), HasSubstr("outlier_share 0.1: goes with affine"));
  codec = AffineCodec(2, CodeAxis::kToken, 32, 2048);
  codec.outlier_share = 0.1;
  EXPECT_THAT(message(codec), HasSubstr("at most 1024"));
  codec = good;
  codec.rank = 65;
  EXPECT_THAT(message(codec), HasSubstr("rank 65: must be 0 to 64"));
  codec = good;
  codec.dim = 0;
  EXPECT_THAT(message(codec), HasSubstr("dim 0"));
  const std::vector<float> levels = {-1, 0, 0, 1}, low = {-1, 1}, high = {1, 0};
  codec = CodebookCodec(2, CodeRange::kExtremes, 2, 2, levels);
  EXPECT_THAT(message(codec), HasSubstr("level 2 is 0: levels must ascend"));
  codec.bits = 1;
  EXPECT_THAT(message(codec), HasSubstr("must be f32[2]"));
  codec.levels = View(low, {2});
  codec.table = View(high, {2});
  EXPECT_THAT(message(codec), HasSubstr("edges f32[2]"));
  codec.table = {};
  codec.axis = CodeAxis::kChannel;
  EXPECT_THAT(message(codec), HasSubstr("must be f32[2]"));
  codec.channel_low = View(low, {2});
  codec.channel_high = View(high, {2});
  EXPECT_THAT(message(codec), HasSubstr("range of channel 1 is 1 to 0"));
  const std::vector<float> unknown = {-1, 0, std::nanf(""), 1};
  codec = CodebookCodec(2, CodeRange::kRms, 2, 2, unknown);
  EXPECT_THAT(message(codec), HasSubstr("level 2 is nan"));
  codec = PlainCodec(KvCodecKind::kFp8E4M3, 2);
  codec.fixed_scale = View(levels, {4}).Slice(0, 3);
  EXPECT_THAT(message(codec), HasSubstr("must be f32[1] or f32[2]"));
  codec.fixed_scale = View(low, {2});
  EXPECT_THAT(message(codec), HasSubstr("fixed scale 0 is -1: must be 2^-100 to 2^100"));
  codec.fixed_scale = View(high, {2}).Slice(0, 1);
  EXPECT_EQ(message(codec), "");
  codec.group = 2;
  EXPECT_THAT(message(codec), HasSubstr("float8 without groups"));
  codec.fixed_scale = {};
  codec.axis = CodeAxis::kChannel;
  EXPECT_THAT(message(codec), HasSubstr("along an entry only"));
  codec = PlainCodec(KvCodecKind::kNvFp4, 2048);
  EXPECT_THAT(message(codec), HasSubstr("dim 2048 with scales of one byte: must be at most 1024"));
  codec = PlainCodec(KvCodecKind::kFloat, 64);
  codec.dtype = DType::kI8;
  EXPECT_THAT(message(codec), HasSubstr("dtype i8"));
}

TEST(KvCodecChecks, NameWhatIsWrongWithRecords) {
  const auto message = [](const KvCodec& codec) {
    const Status status = CheckCodec(codec);
    return status.ok() ? std::string() : status.error().message;
  };
  const std::vector<float> numbers(4096, 0.5f), groups(64, 0.0f);
  KvCodec codec = PlainCodec(KvCodecKind::kClusters, 64);
  codec.bits = 2;
  codec.stages = 2;
  EXPECT_THAT(message(codec), HasSubstr("must be f32[64]"));
  codec.table = View(groups, {64});
  EXPECT_EQ(message(codec), "");
  codec.clip = 1.5f;
  EXPECT_THAT(message(codec), HasSubstr("clip 1.5: must be above 0 and at most 1"));
  codec.clip = 1;
  const std::vector<float> beyond(64, 2.0f);
  codec.table = View(beyond, {64});
  EXPECT_THAT(message(codec), HasSubstr("dim 0 is in group 2; groups are 0 to 1"));
  codec.table = View(groups, {64});
  codec.rank = 1;
  EXPECT_THAT(message(codec), HasSubstr("records have no correction"));
  codec = PlainCodec(KvCodecKind::kPolarPairs, 64);
  codec.bits = 4;
  codec.group = 128;
  EXPECT_THAT(message(codec), HasSubstr("group 128 over entries: must be 16, 32 or 64"));
  codec.group = 64;
  codec.apart = 7;
  EXPECT_THAT(message(codec), HasSubstr("must be 1 or 32 apart"));
  EXPECT_THAT(message(PlainCodec(KvCodecKind::kPolarTree, 40)), HasSubstr("multiple of 16"));
  codec = PlainCodec(KvCodecKind::kVectors, 64);
  codec.bits = 4;
  codec.group = 5;
  EXPECT_THAT(message(codec), HasSubstr("group 5: must divide the 64 dims"));
  codec.group = 4;
  codec.table = View(numbers, {4096}).Slice(0, 1000);
  EXPECT_THAT(message(codec), HasSubstr("must be f32[1024]"));
  std::vector<float> unknown(1024, 0.5f);
  unknown[17] = std::nanf("");
  codec.table = View(unknown, {1024});
  EXPECT_THAT(message(codec), HasSubstr("table: number 17 is nan; all must be finite"));
  codec.commuting = true;
  EXPECT_THAT(message(codec), HasSubstr("commuting: codewords are of whole entries"));
  codec = PlainCodec(KvCodecKind::kMeanSizes, 64);
  codec.group = 128;
  EXPECT_THAT(message(codec), HasSubstr("group 128 over entries: must be 16, 32 or 64"));
  codec.group = 32;
  EXPECT_EQ(message(codec), "");
  codec.stages = 65;
  EXPECT_THAT(message(codec), HasSubstr("stages 65: dims with signs must be 0 to 64"));
  codec.bits = 5;
  EXPECT_THAT(message(codec), HasSubstr("bits 5: must be 1 to 4"));
  codec = AffineCodec(2, CodeAxis::kChannel, 32, 64);
  codec.range_pages = 2;
  EXPECT_THAT(message(codec), HasSubstr("range_pages 2: must be 1, or 0 to 1024 for groups of 64"));
  codec = PlainCodec(KvCodecKind::kSketched, 64);
  codec.bits = 2;
  const std::vector<float> levels = {-1, 0, 0, 1};
  codec.levels = View(levels, {4});
  EXPECT_THAT(message(codec), HasSubstr("level 2 is 0: levels must ascend"));
  codec.dim = 1024;
  EXPECT_THAT(message(codec), HasSubstr("dim 1024 of a record: must be at most 512"));
}

using CodecDeathTest = EveryCodecBackend;

TEST_F(CodecDeathTest, RefusesWhatIsNoSealUnit) {
  const KvCodec codec = AffineCodec(2, CodeAxis::kChannel, 32, 64);
  CodecStream stream(*twin, codec, 64);
  EXPECT_DEATH(stream.Encode(RandomValues(16 * 64, 1)), "multiples of 32");
  EXPECT_DEATH(stream.Encode(RandomValues(32 * 64, 1), 16), "multiples of 32");
}

}  // namespace
}  // namespace kvgauge
