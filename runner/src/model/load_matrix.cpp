// SPDX-License-Identifier: Apache-2.0
// Matrices from the parts that a file has of them: floats or blocks, in another order of rows where
// the model has one. What is packed is looked at meanwhile, so that numbers are read once.
#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "src/checkpoint/weights_common.h"
#include "src/model/weight_loader.h"

namespace kvgauge {
namespace {

// Rows of stacked parts as rows of the one that has them.
struct PlaceInParts {
  size_t part = 0;
  RowSpan rows;
};
PlaceInParts FindPart(const LinearSpec& spec, RowSpan rows) {
  size_t part = 0;
  for (int64_t height = spec.parts[0].shape[0]; rows.begin >= height;
       height = spec.parts[part].shape[0]) {
    rows = {rows.begin - height, rows.end - height};
    ++part;
    KVG_CHECK(part < spec.parts.size(), "rows behind the last part");
  }
  KVG_CHECK(rows.end <= spec.parts[part].shape[0], "rows of several parts");
  return {part, rows};
}

// A matrix of all that is not rows in one dimension.
Tensor AsMatrix(const Tensor& stored) {
  if (stored.rank <= 2) return stored;
  return stored.Reshape({stored.shape[0], stored.Numel() / stored.shape[0]});
}

int64_t RowsOf(std::span<const StoredRows> parts) {
  int64_t rows = 0;
  for (const StoredRows& part : parts) rows += part.rows();
  return rows;
}

}  // namespace

Status WeightLoader::Load(const LinearSpec& spec, Linear& out, std::optional<DType> store) {
  if (spec.parts.empty()) return {};
  if (spec.transposed) {
    KVG_TRY(LoadTransposed(spec, out));
    return RoundInputs(spec, *out.matrix);
  }
  std::vector<StoredPart> parts(spec.parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!store) {
      KVG_ASSIGN(parts[i].blocks, BlocksOf(spec.parts[i]));
    }
    if (!parts[i].blocks) {
      KVG_ASSIGN(parts[i].floats, source_.Get(spec.parts[i].name));
    }
  }
  const DType type = store.value_or(dtype_);
  if (!PackParts(spec, parts, type, out)) {
    for (size_t i = 0; i < parts.size(); ++i) {
      StoredPart& part = parts[i];
      if (part.blocks) {
        if (SureOf(*part.blocks, spec.parts[i].shape[1])) continue;
        out.matrix.reset();
        part.blocks.reset();
        KVG_ASSIGN(part.floats, source_.Get(spec.parts[i].name));
      }
      KVG_TRY(CheckFinite(spec.parts[i], part.floats.view));
    }
    if (out.matrix == nullptr) PackParts(spec, parts, type, out);
  }
  const bool in_blocks =
      std::ranges::any_of(parts, [](const StoredPart& part) { return part.blocks.has_value(); });
  if (keep_blocks_ && in_blocks) block_bytes_ += out.matrix->bytes();
  bytes_ += out.matrix->bytes();
  KVG_TRY(RoundInputs(spec, *out.matrix));
  Release(spec);
  return LoadBiases(spec, out);
}

Status WeightLoader::RoundInputs(const LinearSpec& spec, PackedMatrix& matrix) const {
  const RoundedInputs* inputs = RoundedInputs::Of(source_);
  if (product_rows_ != ProductRows::kFile || inputs == nullptr) return {};
  std::optional<RowRounding> all;
  for (size_t i = 0; i < spec.parts.size(); ++i) {
    const std::string& name = spec.parts[i].name;
    KVG_ASSIGN(std::optional<RowRounding> own, inputs->InputsOf(name));
    if (i == 0) {
      all = own;
      continue;
    }
    // Parts read the same rows, and the largest scale cuts the fewest of their numbers.
    if (all && own && all->scale > 0.0f && own->scale > 0.0f) {
      all->scale = own->scale = std::max(all->scale, own->scale);
    }
    if (all == own) continue;
    return Unsupported(StrCat(source_.OriginOf(name), ": ", Quoted(spec.parts[0].name, 120),
                              " and ", Quoted(name, 120),
                              " are multiplied by the same rows, but these are to be rounded in "
                              "different ways; expected product rows of the dtype"));
  }
  if (!all) return {};
  RoundedProducts* const products = RoundedProducts::Of(*ops_.linear);
  KVG_CHECK(products != nullptr, "the backend rounds no rows (CheckProductRows)");
  products->RoundRowsOf(matrix, *all);
  return {};
}

Result<std::optional<WeightBlocks>> WeightLoader::BlocksOf(const TensorSpec& spec) const {
  using Blocks = std::optional<WeightBlocks>;
  if (products_ == nullptr || spec.shape.size() != 2) return Blocks();
  KVG_ASSIGN(Blocks blocks, source_.GetBlocks(spec.name));
  if (blocks && !keep_blocks_) {
    KVG_ASSIGN(const WeightInfo info, source_.Describe(spec.name));
    if (info.dtype != dtype_) blocks.reset();
  }
  return blocks;
}

bool WeightLoader::SureOf(const WeightBlocks& blocks, int64_t columns) const {
  const StoredRows& rows = blocks.rows;
  const int64_t count = columns / BlockShapeOf(*rows.format).elements;
  bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite)
  for (int64_t i = 0; i < rows.rows(); ++i) {
    finite =
        finite && SurelyFinite(*rows.format, rows.blocks[static_cast<size_t>(i)], count, dtype_);
  }
  return finite;
}

Result<std::optional<WeightBlocks>> WeightLoader::SureBlocksOf(const TensorSpec& spec) const {
  using Blocks = std::optional<WeightBlocks>;
  if (!keep_blocks_) return Blocks();
  KVG_ASSIGN(Blocks blocks, BlocksOf(spec));
  if (blocks && !SureOf(*blocks, spec.shape[1])) blocks.reset();
  return blocks;
}

bool WeightLoader::PackParts(const LinearSpec& spec, std::span<const StoredPart> parts, DType type,
                             Linear& out) const {
  std::vector<StoredRows> whole, taken;
  for (const StoredPart& part : parts) {
    whole.push_back(part.blocks ? part.blocks->rows
                                : StoredRows{.floats = AsMatrix(part.floats.view), .format = {}});
  }
  for (const RowSpan& rows : spec.order) {
    const PlaceInParts at = FindPart(spec, rows);
    const StoredRows& from = whole[at.part];
    if (!from.format) {
      taken.push_back({.floats = from.floats.Slice(at.rows.begin, at.rows.end), .format = {}});
      continue;
    }
    if (taken.empty() || taken.back().format != from.format) {
      taken.push_back({.floats = {}, .format = from.format});
    }
    taken.back().blocks.insert(taken.back().blocks.end(), from.blocks.begin() + at.rows.begin,
                               from.blocks.begin() + at.rows.end);
  }
  const std::vector<StoredRows>& rows = spec.order.empty() ? whole : taken;
  if (products_ == nullptr) {
    std::vector<Tensor> views;
    for (const StoredRows& some : rows) views.push_back(some.floats);
    out.matrix = ops_.linear->Pack(views, type);
    return false;
  }
  const int64_t columns = whole[0].format ? spec.parts[0].shape[1] : whole[0].floats.shape[1];
  bool finite = false;
  out.matrix = keep_blocks_ ? products_->PackStored(rows, columns, type, &finite, product_rows_)
                            : products_->PackDequantised(rows, columns, type, &finite);
  return finite && RowsOf(rows) == RowsOf(whole);  // rows that are left out were not seen
}

}  // namespace kvgauge
