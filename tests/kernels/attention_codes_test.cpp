// SPDX-License-Identifier: Apache-2.0
// What coded pages are multiplied with: bits do not depend on which rows and columns go together.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/dtype.h"
#include "core/rng.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/codec/codec_layout.h"
#include "cpu/cpu.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

// Exact: e4m3 and e5m2 have no number that f32 has not.
float NumberOfFloat8(unsigned code, int mantissa) {
  const int exponent_bits = 7 - mantissa, bias = (1 << (exponent_bits - 1)) - 1;
  const int fraction = static_cast<int>(code) & ((1 << mantissa) - 1);
  const int exponent = static_cast<int>(code) >> mantissa & ((1 << exponent_bits) - 1);
  const int whole = exponent == 0 ? fraction : fraction + (1 << mantissa);
  const float size =
      std::ldexp(static_cast<float>(whole), (exponent == 0 ? 1 : exponent) - bias - mantissa);
  return (code & 0x80) != 0 ? -size : size;
}

struct NumberScene {
  NumberForm form;
  int pairs, vectors, vectors_of_rows, group_pairs;
  bool scaled, accumulate;

  int bits() const { return form == NumberForm::kTable || form == NumberForm::kShortTable ? 4 : 8; }
  std::string Name() const {
    return "form " + std::to_string(static_cast<int>(form)) + ", " + std::to_string(vectors) +
           " vectors, rows for " + std::to_string(vectors_of_rows) + ", groups of " +
           std::to_string(group_pairs);
  }
};

class NumberProductCase {
 public:
  NumberProductCase(const NumberScene& scene, int rows)
      : scene_(scene),
        rows_(rows),
        codes_(static_cast<size_t>(scene.pairs * scene.vectors * scene.bits() / 16 *
                                       kCodeBlockBytes * 2 +
                                   2 * kCodeBlockBytes)),
        a_(RandomValues(int64_t{RowGroups()} * rows * Steps(), 3)),
        scales_(RandomValues(int64_t{scene.pairs} * Columns(), 4)),
        before_(RandomValues(int64_t{rows} * Columns(), 5)) {
    Rng rng(6, 6);
    for (uint8_t& byte : codes_) {
      // Without what float8 has for infinity and for no number.
      do byte = static_cast<uint8_t>(rng.NextBelow(256));
      while ((scene.form == NumberForm::kE5M2 && (byte & 0x7c) == 0x7c) || (byte & 0x7f) == 0x7f);
    }
    const std::vector<float> numbers = RandomValues(16, 7);
    for (size_t i = 0; i < 16; ++i) {
      const auto whole = std::bit_cast<uint32_t>(numbers[i]);
      const bool is_short = scene.form == NumberForm::kShortTable;
      table_[i] = std::bit_cast<float>(is_short ? whole & 0xffff0000u : whole);
    }
    table_[8] = -0.0f;
  }

  std::vector<float> Run(const AttentionKernels& kernels) const {
    std::vector<float> out = before_, raised(a_.size());
    NumberProductArgs args = {};
    args.codes = reinterpret_cast<const char*>(codes_.data());
    args.pairs = scene_.pairs;
    args.vectors = scene_.vectors;
    args.table = table_;
    args.offset = kOffset;
    args.a = a_.data();
    if (scene_.form == NumberForm::kRaisedE4M3) {
      EXPECT_TRUE(
          kernels.raise_rows({a_.data(), Steps(), RowGroups() * rows_, Steps(), raised.data()}));
      args.a = raised.data();
    }
    args.a_stride = Steps();
    args.rows_stride = int64_t{rows_} * Steps();
    args.vectors_of_rows = scene_.vectors_of_rows;
    args.rows = rows_;
    args.scales = scene_.scaled ? scales_.data() : nullptr;
    args.scale_stride = Columns();
    args.group_pairs = scene_.group_pairs;
    args.out = out.data();
    args.out_stride = Columns();
    args.accumulate = scene_.accumulate;
    kernels.number_product[static_cast<size_t>(scene_.form)](args);
    return out;
  }

  // fused: multiply-adds round once.
  std::vector<float> Want(bool fused) const {
    const auto add = [fused](float x, float y, float sum) {
      return fused ? std::fma(x, y, sum) : x * y + sum;
    };
    // Float8 sums even and odd steps apart.
    const bool apart = IsE4M3() || scene_.form == NumberForm::kE5M2;
    std::vector<float> out = before_;
    for (int r = 0; r < rows_; ++r) {
      for (int c = 0; c < Columns(); ++c) {
        float& to = out[At(r, Columns(), c)];
        const int rows_at = c / kCodeLanes / scene_.vectors_of_rows;
        const float* x = &a_[At(rows_at * rows_ + r, Steps(), 0)];
        bool adds = scene_.accumulate;
        for (int first = 0, g = 0; first < scene_.pairs; first += scene_.group_pairs, ++g) {
          float sums[2] = {};
          for (int s = 2 * first; s < 2 * std::min(scene_.pairs, first + scene_.group_pairs); ++s) {
            float& sum = sums[apart ? s % 2 : 0];
            sum = add(x[s], Number(s, c), sum);
          }
          const float scale = scene_.scaled ? scales_[At(g, Columns(), c)] : 1.0f;
          const float product = (apart ? sums[0] + sums[1] : sums[0]) * scale;
          to = adds ? to + product : product;
          adds = true;
        }
      }
    }
    return out;
  }

 private:
  static constexpr float kOffset = 128;

  static size_t At(int row, int width, int column) {
    return static_cast<size_t>(row) * static_cast<size_t>(width) + static_cast<size_t>(column);
  }
  bool IsE4M3() const {
    return scene_.form == NumberForm::kE4M3 || scene_.form == NumberForm::kRaisedE4M3;
  }
  int Steps() const { return 2 * scene_.pairs; }
  int Columns() const { return scene_.vectors * kCodeLanes; }
  int RowGroups() const {
    return (scene_.vectors + scene_.vectors_of_rows - 1) / scene_.vectors_of_rows;
  }
  float Number(int step, int column) const {
    const int slots = 16 / scene_.bits();
    const int slot = step / 2 * scene_.vectors + column / kCodeLanes;
    const int bit = slot % slots * scene_.bits() + step % 2 * 16;
    const int byte = slot / slots * kCodeBlockBytes + column % kCodeLanes * 4 + bit / 8;
    const unsigned code = static_cast<unsigned>(codes_[static_cast<size_t>(byte)]) >> bit % 8 &
                          ((1u << scene_.bits()) - 1);
    if (IsE4M3()) return NumberOfFloat8(code, 3);
    if (scene_.form == NumberForm::kE5M2) return NumberOfFloat8(code, 2);
    if (scene_.form == NumberForm::kByte) return static_cast<float>(code) - kOffset;
    return table_[code];
  }

  NumberScene scene_;
  int rows_;
  std::vector<uint8_t> codes_;
  std::vector<float> a_, scales_, before_;
  alignas(64) float table_[16];
};

// Codes that stand for numbers: a chain of multiply-adds for each output element.
TEST(AttentionCodes, NumbersMakeOneChain) {
  for (const NumberForm form :
       {NumberForm::kE4M3, NumberForm::kE5M2, NumberForm::kByte, NumberForm::kTable,
        NumberForm::kShortTable, NumberForm::kRaisedE4M3}) {
    for (const NumberScene& scene :
         {NumberScene{form, 32, 4, 4, 32, false, false},
          NumberScene{form, 64, 4, 4, 8, true, false}, NumberScene{form, 33, 8, 8, 10, true, true},
          NumberScene{form, 32, 8, 1, 32, false, true},
          NumberScene{form, 32, 8, 2, 32, false, true},
          NumberScene{form, 16, 12, 3, 16, true, false}}) {
      for (int rows = 1; rows <= 9; ++rows) {
        const NumberProductCase product(scene, rows);
        for (const Isa isa : SupportedIsas()) {
          const bool raises = AttentionKernelsOf(isa).raise_rows != nullptr;
          if (form == NumberForm::kRaisedE4M3 && !raises) continue;
          EXPECT_TRUE(
              SameBits(product.Run(AttentionKernelsOf(isa)), product.Want(isa != Isa::kPortable)))
              << NameOf(isa) << ", " << scene.Name() << ", " << rows << " rows";
        }
      }
    }
  }
}

// Scales that are taken as they lie in a page are those that were made f32 before.
TEST(AttentionCodes, ByteScalesAreThoseOfFloats) {
  constexpr int kSteps = 64, kGroups = 4, kStride = 80, kMostRows = 5, kColumns = 64;
  constexpr float kFixed = 0.37f;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  for (int i = 0; i < kGroups * kStride; ++i) {
    codes.push_back(static_cast<uint8_t>(i % 127));  // all that are numbers and not negative
    scales.push_back(NumberOfFloat8(codes.back(), 3) * kFixed);
  }
  const ByteScales bytes = {codes.data(), 0x1p8f * kFixed};
  const std::vector<float> a = RandomValues(kMostRows * kSteps, 1);
  std::vector<uint8_t> page(2 * kSteps * kColumns);
  Rng rng(2, 2);
  for (uint8_t& byte : page) byte = static_cast<uint8_t>(rng.NextBelow(256));
  alignas(64) float table[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                 -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (const Isa isa : SupportedIsas()) {
    const AttentionKernels& kernels = AttentionKernelsOf(isa);
    if (!kernels.byte_scales) continue;
    for (int rows = 1; rows <= kMostRows; ++rows) {
      const auto scale = [&](bool by_bytes) {
        std::vector<float> folded(static_cast<size_t>(kGroups * rows * kSteps));
        kernels.scale_rows({.scales = by_bytes ? nullptr : scales.data(),
                            .bytes = by_bytes ? bytes : ByteScales{},
                            .scale_stride = kStride,
                            .groups = kGroups,
                            .steps = kSteps,
                            .a = a.data(),
                            .a_stride = kSteps,
                            .rows = rows,
                            .folded = folded.data()});
        return folded;
      };
      EXPECT_TRUE(SameBits(scale(true), scale(false))) << NameOf(isa) << ", " << rows << " rows";
      for (const NumberForm form :
           {NumberForm::kByte, NumberForm::kTable, NumberForm::kShortTable}) {
        const auto multiply = [&](bool by_bytes) {
          std::vector<float> out(static_cast<size_t>(rows * kColumns));
          NumberProductArgs args = {};
          args.codes = reinterpret_cast<const char*>(page.data());
          args.pairs = kSteps / 2;
          args.vectors = args.vectors_of_rows = kColumns / kCodeLanes;
          args.table = table;
          args.offset = 128;
          args.a = a.data();
          args.a_stride = kSteps;
          args.rows = rows;
          args.scales = by_bytes ? nullptr : scales.data();
          if (by_bytes) args.bytes = bytes;
          args.scale_stride = kStride;
          args.group_pairs = kSteps / 2 / kGroups;
          args.out = out.data();
          args.out_stride = kColumns;
          kernels.number_product[static_cast<size_t>(form)](args);
          return out;
        };
        EXPECT_TRUE(SameBits(multiply(true), multiply(false)))
            << NameOf(isa) << ", form " << static_cast<int>(form) << ", " << rows << " rows";
      }
    }
  }
}

// What groups of steps add, they add in order, as products of each alone do.
TEST(AttentionCodes, GroupsOfStepsAddUpInOrder) {
  constexpr int kSteps = 64, kGroups = 4, kMostRows = 5, kColumns = 64;
  const std::vector<float> a = RandomValues(kMostRows * kSteps, 1);
  const std::vector<float> scales = RandomValues(kGroups * kColumns, 2);
  const std::vector<float> before = RandomValues(kMostRows * kColumns, 3);
  std::vector<uint8_t> page(2 * kSteps * kColumns);
  Rng rng(4, 4);
  for (uint8_t& byte : page) byte = static_cast<uint8_t>(rng.NextBelow(256));
  alignas(64) float table[16];
  for (int i = 0; i < 16; ++i) table[i] = static_cast<float>(i * i - 90);
  for (const Isa isa : SupportedIsas()) {
    const AttentionKernels& kernels = AttentionKernelsOf(isa);
    for (const NumberForm form :
         {NumberForm::kE5M2, NumberForm::kByte, NumberForm::kTable, NumberForm::kShortTable}) {
      const bool tabled = form == NumberForm::kTable || form == NumberForm::kShortTable;
      const int group_bytes = kSteps / kGroups * kColumns / (tabled ? 2 : 1);
      for (int i = 0; i < 2 * kMostRows; ++i) {
        const int rows = i / 2 + 1;
        NumberProductArgs args = {};
        args.vectors = args.vectors_of_rows = kColumns / kCodeLanes;
        args.table = table;
        args.offset = 128;
        args.a_stride = kSteps;
        args.rows = rows;
        args.scale_stride = kColumns;
        args.group_pairs = kSteps / 2 / kGroups;
        args.out_stride = kColumns;
        const auto multiply = [&](int first, int groups, bool accumulate, std::vector<float>& out) {
          args.codes = reinterpret_cast<const char*>(page.data()) + first * group_bytes;
          args.pairs = groups * args.group_pairs;
          args.a = a.data() + first * kSteps / kGroups;
          args.scales = scales.data() + first * kColumns;
          args.accumulate = accumulate;
          args.out = out.data();
          kernels.number_product[static_cast<size_t>(form)](args);
        };
        const bool accumulate = i % 2 != 0;
        std::vector<float> together = before, alone = before;
        multiply(0, kGroups, accumulate, together);
        for (int g = 0; g < kGroups; ++g) multiply(g, 1, accumulate || g > 0, alone);
        EXPECT_TRUE(SameBits(together, alone))
            << NameOf(isa) << ", form " << static_cast<int>(form) << ", " << rows << " rows";
      }
    }
  }
}

// Raised rows are exact, or refused: where they are too large, and where denormals count as 0.
TEST(AttentionCodes, RowsAreRaisedWhereThatIsExact) {
  constexpr int kSteps = 50;
  for (const Isa isa : SupportedIsas()) {
    const AttentionKernels& kernels = AttentionKernelsOf(isa);
    if (kernels.raise_rows == nullptr) continue;
    std::vector<float> a = RandomValues(3 * kSteps, 1), raised(2 * kSteps);
    const auto raise = [&](float* to) {
      return kernels.raise_rows({a.data() + 1, kSteps + 1, 2, kSteps, to});
    };
    a[5] = 0x1p-149f;
    a[kSteps + 7] = -0x1.fffffep15f;
    ASSERT_TRUE(raise(raised.data()));
    for (size_t i = 0; i < raised.size(); ++i) {
      const size_t row = i / kSteps;
      ASSERT_EQ(raised[i], std::ldexp(a[1 + row * (kSteps + 1) + i % kSteps], 112));
    }
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x40);
    EXPECT_FALSE(raise(raised.data()));
    _mm_setcsr(before);
#endif
    for (const size_t at : {size_t{1}, size_t{2 * kSteps + 1}}) {  // in whole vectors, and behind
      for (const float large : {-0x1p16f, std::numeric_limits<float>::infinity()}) {
        const float small = std::exchange(a[at], large);
        EXPECT_FALSE(raise(raised.data())) << at;
        a[at] = small;
      }
    }
  }
}

// Scaled queries are raised where they lie, and scaled again where they are too large for that: a
// power of two more in queries and less in their products changes nothing.
TEST(AttentionCodes, QueriesTooLargeToBeRaisedAreScaledAgain) {
  constexpr int64_t kDims = 64;
  const std::vector<float> rows = RandomValues(kKvPageEntries * kDims, 1);
  std::vector<float> scales;
  for (int i = 0; i < kDims; ++i) scales.push_back(0.01f + 0.001f * static_cast<float>(i));
  for (const Isa isa : SupportedIsas()) {
    const std::unique_ptr<CodecOps> codecs = MakeCpuCodec(isa, ThreadSettings{1});
    KvCodec keys;
    keys.kind = KvCodecKind::kFp8E4M3;
    keys.dim = kDims;
    keys.fixed_scale = View(scales, {kDims});
    KvCodec values = keys;
    values.side = KvSide::kValues;
    const Buffer key_page = HostBuffer(codecs->PageBytes(keys));
    const Buffer value_page = HostBuffer(codecs->PageBytes(values));
    void* const key_pages[] = {key_page.data()};
    void* const value_pages[] = {value_page.data()};
    codecs->Encode(keys, View(rows, {kKvPageEntries, kDims}), 0, {key_pages});
    codecs->Encode(values, View(rows, {kKvPageEntries, kDims}), 0, {value_pages});
    KvSegment segment;
    segment.length = kKvPageEntries;
    segment.keys = {&keys, {key_pages}, kKvPageEntries};
    segment.values = {&values, {value_pages}, kKvPageEntries};
    const KvHead head = {&segment, 1};
    AttentionItem item;
    item.rows = 1;
    item.heads = {&head, 1};
    const auto attend = [&](float factor) {
      AttentionShape shape;
      shape.format = {DType::kF32, kDims, kDims};
      shape.kv_heads = 1;
      shape.query_heads = 2;
      shape.scale = 0.125f / factor;
      std::vector<float> q = RandomValues(2 * kDims, 2), out(q.size());
      for (float& x : q) x *= factor;
      MakeCpuAttention(isa, ThreadSettings{1})
          ->Attend(shape, {&item, 1}, View(q, {1, 2, kDims}), View(out, {1, 2, kDims}));
      return out;
    };
    EXPECT_TRUE(SameBits(attend(0x1p30f), attend(1))) << NameOf(isa);
  }
}

// Rows in fixed point: each is what it is alone, and near its products with the scales.
TEST(AttentionCodes, FoldedRowsAreThoseOfEachAlone) {
  constexpr int kMostRows = 9, kGroups = 3;
  constexpr float kLargest = 32767;
  for (const Isa isa : SupportedIsas()) {
    const AttentionKernels& kernels = AttentionKernelsOf(isa);
    if (!kernels.fixed_codes) continue;
    for (const int steps : {16, 32, 48, 64, 80, 128, 192, 256}) {
      const int64_t scale_stride = steps + 16;
      const std::vector<float> a = RandomValues(int64_t{kMostRows} * steps, 1);
      std::vector<uint16_t> scales, zeros;
      for (const float x : RandomValues(kGroups * scale_stride, 2)) scales.push_back(F32ToF16(x));
      for (const float x : RandomValues(kGroups * scale_stride, 3)) zeros.push_back(F32ToF16(x));
      struct Folded {
        std::vector<int16_t> rows;
        std::vector<float> constants, units;
      };
      const auto fold = [&](int group, int groups, int first, int rows) {
        const auto count = static_cast<size_t>(groups * rows);
        Folded to = {std::vector<int16_t>(count * static_cast<size_t>(steps)),
                     std::vector<float>(count), std::vector<float>(count)};
        std::vector<float> products(4 * static_cast<size_t>(steps));
        kernels.fold[1]({.scales = scales.data() + group * scale_stride,
                         .zeros = zeros.data() + group * scale_stride,
                         .scale_stride = scale_stride,
                         .groups = groups,
                         .steps = steps,
                         .middle = 0.5f,
                         .code_middle = 1.5f,
                         .largest = kLargest,
                         .unit = 1 / kLargest,
                         .a = a.data() + first * steps,
                         .a_stride = steps,
                         .rows = rows,
                         .folded = to.rows.data(),
                         .folded_stride = steps,
                         .group_stride = int64_t{rows} * steps,
                         .constants = to.constants.data(),
                         .units = to.units.data(),
                         .products = products.data()});
        return to;
      };
      for (int groups = 1; groups <= kGroups; ++groups) {
        for (int rows = 1; rows <= kMostRows; ++rows) {
          const Folded all = fold(0, groups, 0, rows);
          for (int i = 0; i < groups * rows; ++i) {
            const Folded alone = fold(i / rows, 1, i % rows, 1);
            const auto begin = all.rows.begin() + i * steps;
            EXPECT_TRUE(std::equal(alone.rows.begin(), alone.rows.end(), begin))
                << NameOf(isa) << ", " << steps << " steps, row " << i << " of " << groups
                << " groups of " << rows;
            const auto at = static_cast<size_t>(i);
            EXPECT_EQ(all.constants[at], alone.constants[0]);
            EXPECT_EQ(all.units[at], alone.units[0]);
          }
        }
      }
      const Folded all = fold(0, 1, 0, kMostRows);
      for (size_t i = 0; i < a.size(); ++i) {
        const size_t row = i / static_cast<size_t>(steps), step = i % static_cast<size_t>(steps);
        const double product = double{a[i]} * F16ToF32(scales[step]);
        EXPECT_NEAR(all.rows[i] * double{all.units[row]}, product, 0.501 * all.units[row]);
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
