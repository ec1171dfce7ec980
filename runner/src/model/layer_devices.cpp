// SPDX-License-Identifier: Apache-2.0
#include "runner/layer_devices.h"

#include <algorithm>

#include "core/check.h"

namespace kvgauge {

void LayerNumbers::Allocate(const LayerDevices& devices, int64_t layers, DType dtype,
                            int64_t numbers) {
  KVG_CHECK(pieces_.empty(), "numbers of layers are allocated once");
  dtype_ = dtype;
  numbers_ = numbers;
  for (const LayerDevices::Range& range : devices.ranges()) {
    const int64_t count = std::min(range.end, layers) - range.first;
    if (count <= 0) continue;
    pieces_.push_back({range.ops, range.first, count,
                       range.ops->memory->Allocate(count * numbers * SizeOf(dtype))});
  }
}

Tensor LayerNumbers::Of(int64_t layer) const {
  for (const Piece& piece : pieces_) {
    if (layer < piece.first + piece.layers) return All(piece)[layer - piece.first];
  }
  KVG_CHECK(false, "no such layer");
}

Tensor LayerNumbers::All(const Piece& piece) const {
  return piece.memory.As(dtype_, {piece.layers, numbers_});
}

int64_t LayerNumbers::size_bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.memory.size_bytes();
  return bytes;
}

void LayerNumbers::CopyFrom(const LayerNumbers& other) {
  KVG_CHECK(pieces_.size() == other.pieces_.size(), "numbers of other layers");
  for (size_t i = 0; i < pieces_.size(); ++i) {
    pieces_[i].ops->memory->Copy(other.All(other.pieces_[i]), All(pieces_[i]));
  }
}

}  // namespace kvgauge
