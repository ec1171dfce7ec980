// SPDX-License-Identifier: Apache-2.0
// Attention of many rows on warpgroups has the bits of the portable kernel.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device_groups.h"
#include "cuda/emulated_arrays.h"
#include "cuda/suite_device.h"
#include "kernels/attention_scene.h"

namespace kvgauge {
namespace {

// All bits of what the rows get, and the products of warpgroups that it took.
struct Attended {
  std::vector<uint32_t> bits;
  int64_t products = 0;
};
Attended AttendRows(AttentionOps* device, const Scene& scene, std::span<const int32_t> ahead) {
  const std::unique_ptr<AttentionOps> ops = MakeHostedAttention(device);
  const std::unique_ptr<CodecOps> codecs = MakeHostedCodec();
  const SceneCache cache(*ops, *codecs, scene);
  const std::vector<float> queries = scene.Queries();
  const int64_t heads = scene.query_heads();
  AttentionItem item;
  item.rows = scene.rows;
  item.token_position = cache.token_position(scene.rows);
  item.heads = cache.heads();
  item.ahead = ahead;
  std::vector<float> out, lse;
  const int64_t before = cuda::emulated::WarpgroupProducts();
  ops->Attend(cache.shape(), {&item, 1}, View(queries, {scene.rows, heads, scene.key_dim}),
              MakeFilled(out, {scene.rows, heads, scene.value_dim}),
              {MakeFilled(lse, {heads, scene.rows}), {}});
  Attended attended;
  attended.products = cuda::emulated::WarpgroupProducts() - before;
  for (const std::vector<float>* values : {&out, &lse}) {
    for (const float v : *values) attended.bits.push_back(std::bit_cast<uint32_t>(v));
  }
  return attended;
}

// A device that has found warpgroups to agree.
Ops& DeviceWithWarpgroups() {
  static Ops* const ops = MakeTestDevice().release();
  return *ops;
}

void ExpectBitsOfThePortableKernel(const Scene& scene, std::span<const int32_t> ahead = {}) {
  SCOPED_TRACE(scene.name + ", " + std::string(NameOf(scene.dtype)));
  const Attended want = AttendRows(nullptr, scene, ahead);
  EXPECT_EQ(want.products, 0);
  const cuda::WithWarpgroups given(cuda::emulated::Warpgroups::kAsMma);
  const Attended got = AttendRows(DeviceWithWarpgroups().attention.get(), scene, ahead);
  EXPECT_GT(got.products, 0);
  EXPECT_TRUE(got.bits == want.bits);
}

Scene SceneOf(std::string name, int64_t key_dim, int64_t value_dim) {
  Scene scene;
  scene.name = std::move(name);
  scene.key_dim = key_dim;
  scene.value_dim = value_dim;
  scene.rows = 75;  // 150 rows: one block is full, another is not
  return scene;
}

TEST(PrefillOnWarpgroups, DimsHaveTheBitsOfThePortableKernel) {
  struct Dims {
    const char* name;
    int64_t key, value;
  };
  for (const Dims& dims : {Dims{"64 and 64", 64, 64},   // one product of values
                           {"128 and 128", 128, 128},   // two
                           {"128 and 64", 128, 64},     // half of what the kernel takes
                           {"96 and 80", 96, 80},       // queries in shared memory
                           {"8 and 7", 8, 7},           // less than a step
                           {"192 and 128", 192, 128},   // DeepSeek's
                           {"256 and 256", 256, 256},   // four
                           {"288 and 40", 288, 40}}) {  // more keys than registers hold ahead
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Scene scene = SceneOf(dims.name, dims.key, dims.value);
      scene.dtype = dtype;
      scene.heads = {Lengths({580})};  // two spans, and a page that is not full
      ExpectBitsOfThePortableKernel(scene);
    }
  }
}

TEST(PrefillOnWarpgroups, SegmentsHaveTheBitsOfThePortableKernel) {
  Scene scene = SceneOf("all that a segment may say", 64, 64);
  scene.dtype = DType::kBF16;
  scene.softcap = 20;
  scene.heads = {Lengths({200, 0, 90, 110}), Lengths({130, 150})};
  SegmentSpec& first = scene.heads[0][0];
  first.bias = first.key_scale = first.value_scale = true;
  scene.heads[0][2].skip = 40;
  scene.heads[0][2].read_bias = true;
  scene.heads[1][0].mask = Mask::kSome;
  scene.heads[1][1].mask = Mask::kOnes;
  ExpectBitsOfThePortableKernel(scene);
  scene.dtype = DType::kF16;
  scene.softcap = 0;
  ExpectBitsOfThePortableKernel(scene);

  scene = SceneOf("a window", 128, 128);
  scene.dtype = DType::kBF16;
  scene.heads = {Lengths({700}), Lengths({300, 100})};
  scene.window = 90;
  ExpectBitsOfThePortableKernel(scene);
  scene.name = "chunks";
  scene.chunked = true;
  ExpectBitsOfThePortableKernel(scene);

  scene = SceneOf("positions", 64, 64);
  scene.dtype = DType::kF16;
  scene.heads = {Lengths({300})};
  scene.heads[0][0].positions = true;
  scene.window = 120;
  ExpectBitsOfThePortableKernel(scene);
}

TEST(PrefillOnWarpgroups, FewEntriesHaveTheBitsOfThePortableKernel) {
  for (const int64_t length : {75, 128}) {  // two pages; rows that see one of them
    Scene scene = SceneOf("few entries", 64, 64);
    scene.dtype = DType::kBF16;
    scene.heads = {Lengths({length})};
    ExpectBitsOfThePortableKernel(scene);
  }
  Scene scene = SceneOf("rows that see ahead, sinks", 64, 48);
  scene.dtype = DType::kBF16;
  scene.heads = {Lengths({140})};
  scene.sinks = true;
  std::vector<int32_t> ahead(static_cast<size_t>(scene.rows), 0);
  for (size_t i = 20; i < 50; ++i) ahead[i] = static_cast<int32_t>(49 - i);
  ExpectBitsOfThePortableKernel(scene, ahead);
  // One page.
  scene = SceneOf("one page", 128, 128);
  scene.dtype = DType::kF16;
  scene.group = 8;
  scene.rows = 20;
  scene.heads = {Lengths({33})};
  ExpectBitsOfThePortableKernel(scene);
}

// Devices of 8.6, 8.9 and 12.0 have less shared memory for a block than those of 8.0 and 9.0.
class WithSmallBlocks {
 public:
  WithSmallBlocks() { cuda::emulated::SetBlockSharedBytes(int64_t{99} * 1024); }
  ~WithSmallBlocks() { cuda::emulated::SetBlockSharedBytes(cuda::emulated::kBlockSharedBytes); }
  WithSmallBlocks(const WithSmallBlocks&) = delete;
  WithSmallBlocks& operator=(const WithSmallBlocks&) = delete;
};

TEST(SmallBlocks, AttentionHasTheBitsThatItHasInLargeOnes) {
  struct Dims {
    const char* name;
    int64_t key, value, rows;
  };
  for (const Dims& dims :
       {Dims{"128 and 128", 128, 128, 75}, Dims{"192 and 128", 192, 128, 75},
        Dims{"256 and 256", 256, 256, 75}, Dims{"few of 256 and 256", 256, 256, 4}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      Scene scene = SceneOf(dims.name, dims.key, dims.value);
      SCOPED_TRACE(scene.name + ", " + std::string(NameOf(dtype)));
      scene.dtype = dtype;
      scene.rows = dims.rows;
      scene.heads = {Lengths({580})};
      const Attended want = AttendRows(nullptr, scene, {});
      const WithSmallBlocks small;
      EXPECT_TRUE(AttendRows(nullptr, scene, {}).bits == want.bits);
    }
  }
}

// Codes of more than 128 dims are expanded otherwise there: sums differ, in their last bits.
TEST(SmallBlocks, CodesAreAttendedTo) {
  for (const int64_t dim : {128, 256}) {
    for (const int64_t rows : {4, 75}) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        Scene scene = SceneOf("codes", dim, dim);
        SCOPED_TRACE(std::string(NameOf(dtype)) + ", " + std::to_string(dim) + " dims, " +
                     std::to_string(rows) + " rows");
        scene.dtype = dtype;
        scene.rows = rows;
        scene.heads = {Lengths({640}), Lengths({500})};
        for (SegmentSpec& s : scene.heads[0]) {
          s.key_codec = AffineCodec(4, CodeAxis::kToken, 32, static_cast<int>(dim));
          s.value_codec = AffineCodec(8, CodeAxis::kToken, 32, static_cast<int>(dim));
          s.value_codec->side = KvSide::kValues;
          s.keys_coded = s.values_coded = s.length - rows;
        }
        const Attended want = AttendRows(nullptr, scene, {});
        const WithSmallBlocks small;
        const Attended got = AttendRows(nullptr, scene, {});
        if (dim == 128) {
          EXPECT_TRUE(got.bits == want.bits);
        }
        ASSERT_EQ(got.bits.size(), want.bits.size());
        // Values and weights that are rounded to the type, or are not.
        const double bound = dtype == DType::kBF16 ? 1.0 / 64 : 1.0 / 512;
        for (size_t i = 0; i < want.bits.size(); ++i) {
          const auto expected = std::bit_cast<float>(want.bits[i]);
          ASSERT_NEAR(std::bit_cast<float>(got.bits[i]), expected,
                      bound * (1 + std::abs(expected)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
