// SPDX-License-Identifier: Apache-2.0
#include "kernels/block_products.h"

#include "core/check.h"
#include "core/rounding.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// How many rows there are, which can be packed.
int64_t CheckRows(std::span<const StoredRows> parts, int64_t k, DType store) {
  KVG_CHECK(!parts.empty() && k > 0, "nothing to pack");
  KVG_CHECK(IsFloat(store), "weights are stored as f32, f16 or bf16");
  int64_t n = 0;
  for (const StoredRows& part : parts) {
    n += part.rows();
    if (part.format) {
      const BlockShape& shape = BlockShapeOf(*part.format);
      KVG_CHECK(k % shape.elements == 0,
                StrCat("rows of ", k, " are no whole number of ", shape.name, " blocks"));
      continue;
    }
    const Tensor& floats = part.floats;
    KVG_CHECK(floats.device == Device::kHost && IsFloat(floats.dtype) && floats.rank == 2 &&
                  floats.shape[1] == k && (k == 1 || floats.stride[1] == 1),
              StrCat("cannot pack ", floats.DebugString(), " as rows of ", k));
  }
  return n;
}

}  // namespace

std::string_view NameOf(ProductRows rows) {
  switch (rows) {
    case ProductRows::kRounded:
      return "dtype";
    case ProductRows::kInt8:
      return "int8";
    case ProductRows::kFile:
      return "file";
  }
  CheckFailed(__FILE__, __LINE__, "rows", "unknown rows of products");
}

std::unique_ptr<PackedMatrix> BlockProducts::PackStored(std::span<const StoredRows> parts,
                                                        int64_t k, DType store, bool* finite,
                                                        ProductRows by) {
  bool seen = false;
  const Keep keep = by == ProductRows::kInt8 ? Keep::kBlocksForInt8 : Keep::kBlocks;
  auto packed = DoPackStored(parts, CheckRows(parts, k, store), k, store, keep, seen);
  if (finite != nullptr) *finite = seen;
  return packed;
}

std::unique_ptr<PackedMatrix> BlockProducts::PackDequantised(std::span<const StoredRows> parts,
                                                             int64_t k, DType store, bool* finite) {
  bool seen = false;
  auto packed = DoPackStored(parts, CheckRows(parts, k, store), k, store, Keep::kFloats, seen);
  if (finite != nullptr) *finite = seen;
  return packed;
}

void BlockProducts::EmbedBlocks(const StoredRows& table, DType rounded, const Tensor& ids,
                                float scale, Tensor out) {
  KVG_CHECK(table.format.has_value(), "the table is not in blocks");
  const BlockShape& shape = BlockShapeOf(*table.format);
  KVG_CHECK(ids.rank == 1 && ids.dtype == DType::kI32 && ids.IsContiguous(), "ids are i32[m]");
  KVG_CHECK(out.rank == 2 && out.dtype == DType::kF32 && out.shape[0] == ids.shape[0] &&
                out.shape[1] % shape.elements == 0 && out.stride[1] == 1,
            StrCat("shapes do not fit: ", ids.DebugString(), " -> ", out.DebugString()));
  for (int64_t i = 0; i < ids.shape[0]; ++i) {
    const int32_t id = ids.i32()[i];
    KVG_CHECK(0 <= id && id < table.rows(), "token id out of range");
    const uint8_t* row = table.blocks[static_cast<size_t>(id)];
    float* to = out.f32() + i * out.stride[0];
    for (int64_t j = 0; j < out.shape[1]; j += shape.elements, row += shape.bytes) {
      ReadBlock(*table.format, row, to + j);
    }
    for (int64_t j = 0; j < out.shape[1]; ++j) to[j] = scale * Rounded(rounded, to[j]);
  }
}

}  // namespace kvgauge
