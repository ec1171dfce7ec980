// SPDX-License-Identifier: Apache-2.0
// Products with weights that stay in blocks of few bits, and by rows of few bits: what some
// backends can beside LinearOps.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "kernels/linear.h"
#include "kernels/weight_blocks.h"

namespace kvgauge {

// The form of the rows that a matrix is multiplied by.
enum class ProductRows {
  kRounded,  // to the type of the weights
  // Rounded to that, then to 8 bits: 256 numbers share a scale. Sums are those of block_coded.h,
  // with the same bits on every instruction set. Columns that are not in blocks take the others.
  kInt8,
  // Rounded to that, then as the file says of the inputs of a matrix, then to the type of the
  // weights again (RoundedProducts). Matrices of which it says nothing take the others.
  kFile,
};

std::string_view NameOf(ProductRows rows);  // "dtype", "int8", "file"

// Backends whose LinearOps is one of these multiply matrices in any BlockFormat as they are; on the
// others weights are dequantised before they are packed.
class BlockProducts {
 public:
  virtual ~BlockProducts() = default;
  // Null where the backend has none.
  static BlockProducts* Of(LinearOps& linear) { return dynamic_cast<BlockProducts*>(&linear); }

  // LinearOps::Pack of rows of k that may lie in blocks, whose numbers are finite as `store`. The
  // matrix takes the few bits of its blocks; its products (MatMul, MatMulChosen) by rounded rows
  // have the bits of those with the dequantised rows. 64 columns that are not all of one format,
  // counted from the first, are dequantised. finite: null, or told whether all numbers were seen to
  // be finite, of blocks as SurelyFinite has it. False also where the backend does not look.
  std::unique_ptr<PackedMatrix> PackStored(std::span<const StoredRows> parts, int64_t k,
                                           DType store, bool* finite = nullptr,
                                           ProductRows by = ProductRows::kRounded);
  // LinearOps::Pack of the dequantised rows, which are never in memory.
  std::unique_ptr<PackedMatrix> PackDequantised(std::span<const StoredRows> parts, int64_t k,
                                                DType store, bool* finite = nullptr);

  // out[i, :] = scale * table[ids[i], :], as LinearOps::Embed, of a table in blocks whose numbers
  // are rounded to `rounded` before they are scaled. Host memory.
  void EmbedBlocks(const StoredRows& table, DType rounded, const Tensor& ids, float scale,
                   Tensor out);

 protected:
  enum class Keep { kFloats, kBlocks, kBlocksForInt8 };

 private:
  virtual std::unique_ptr<PackedMatrix> DoPackStored(std::span<const StoredRows> parts, int64_t n,
                                                     int64_t k, DType store, Keep keep,
                                                     bool& finite) = 0;
};

}  // namespace kvgauge
