// SPDX-License-Identifier: Apache-2.0
// Matrices from the parts that a file has of them: floats or blocks, in another order of rows where
// the model has one. What is packed is looked at meanwhile, so that numbers are read once.
#include <algorithm>
#include <utility>

#include "core/check.h"
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

}  // namespace

Status WeightLoader::Load(const LinearSpec& spec, Linear& out, std::optional<DType> store) {
  if (spec.parts.empty()) return {};
  if (spec.transposed) return LoadTransposed(spec, out);
  bool loaded = false;
  if (!store) {
    KVG_ASSIGN(loaded, LoadBlocks(spec, out));
  }
  if (!loaded) KVG_TRY(LoadFloats(spec, store.value_or(dtype_), out));
  bytes_ += out.matrix->bytes();
  Release(spec);
  return LoadBiases(spec, out);
}

Status WeightLoader::LoadFloats(const LinearSpec& spec, DType store, Linear& out) {
  std::vector<WeightTensor> parts(spec.parts.size());
  std::vector<Tensor> views;
  for (size_t i = 0; i < parts.size(); ++i) {
    KVG_ASSIGN(parts[i], source_.Get(spec.parts[i].name));
    views.push_back(AsMatrix(parts[i].view));
  }
  if (!spec.order.empty()) {
    const std::vector<Tensor> whole = std::move(views);
    views.clear();
    for (const RowSpan& rows : spec.order) {
      const PlaceInParts at = FindPart(spec, rows);
      views.push_back(whole[at.part].Slice(at.rows.begin, at.rows.end));
    }
  }
  bool finite = false;
  if (products_ != nullptr) {
    std::vector<StoredRows> rows;
    for (const Tensor& view : views) rows.push_back({.floats = view, .format = std::nullopt});
    out.matrix = products_->PackDequantised(rows, views[0].shape[1], store, &finite);
  }
  for (size_t i = 0; i < parts.size() && !finite; ++i) {
    KVG_TRY(CheckFinite(spec.parts[i], parts[i].view));
  }
  if (out.matrix == nullptr) out.matrix = ops_.linear->Pack(views, store);
  return {};
}

Result<std::optional<WeightBlocks>> WeightLoader::BlocksOf(const TensorSpec& spec) const {
  using Blocks = std::optional<WeightBlocks>;
  if (products_ == nullptr || spec.shape.size() != 2) return Blocks();
  if (!keep_blocks_) {
    KVG_ASSIGN(const WeightInfo info, source_.Describe(spec.name));
    if (info.dtype != dtype_) return Blocks();
  }
  return source_.GetBlocks(spec.name);
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

Result<bool> WeightLoader::LoadBlocks(const LinearSpec& spec, Linear& out) {
  std::vector<std::optional<WeightBlocks>> blocks(spec.parts.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    KVG_ASSIGN(blocks[i], BlocksOf(spec.parts[i]));
  }
  const auto any = [&] {
    return std::ranges::any_of(blocks, [](const auto& some) { return some.has_value(); });
  };
  if (!any()) return false;
  bool finite = false;
  KVG_TRY(PackParts(spec, blocks, out, finite));
  if (!finite) {
    size_t doubted = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!blocks[i] || SureOf(*blocks[i], spec.parts[i].shape[1])) continue;
      blocks[i].reset();
      ++doubted;
    }
    if (doubted > 0) out.matrix.reset();
    if (!any()) return false;
    if (doubted > 0) KVG_TRY(PackParts(spec, blocks, out, finite));
  }
  if (keep_blocks_) block_bytes_ += out.matrix->bytes();
  return true;
}

Status WeightLoader::PackParts(const LinearSpec& spec,
                               const std::vector<std::optional<WeightBlocks>>& blocks, Linear& out,
                               bool& finite) {
  std::vector<StoredRows> parts;
  std::vector<WeightTensor> floats(spec.parts.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i]) {
      parts.push_back(blocks[i]->rows);
      continue;
    }
    KVG_TRY(Load(spec.parts[i], floats[i]));
    parts.push_back({.floats = AsMatrix(floats[i].view), .format = std::nullopt});
  }
  if (!spec.order.empty()) {
    const std::vector<StoredRows> whole = std::move(parts);
    parts.clear();
    for (const RowSpan& rows : spec.order) {
      const PlaceInParts at = FindPart(spec, rows);
      const StoredRows& from = whole[at.part];
      if (!from.format) {
        parts.push_back(
            {.floats = from.floats.Slice(at.rows.begin, at.rows.end), .format = std::nullopt});
        continue;
      }
      if (parts.empty() || parts.back().format != from.format) {
        parts.push_back({.floats = {}, .format = from.format});
      }
      parts.back().blocks.insert(parts.back().blocks.end(), from.blocks.begin() + at.rows.begin,
                                 from.blocks.begin() + at.rows.end);
    }
  }
  const int64_t columns = spec.parts[0].shape[1];
  out.matrix = keep_blocks_ ? products_->PackStored(parts, columns, dtype_, &finite)
                            : products_->PackDequantised(parts, columns, dtype_, &finite);
  return {};
}

}  // namespace kvgauge
