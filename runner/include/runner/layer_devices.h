// SPDX-License-Identifier: Apache-2.0
// On which device each layer of a model lies: ranges of layers, one for each device, in order.
//
// Whatever belongs to a layer (weights, entries, captures, what a stage computes of them) lies on
// its device and is computed by the Ops of that device. Between layers only hidden rows go from one
// device to another; whoever needs more of two layers copies it (kernels/devices.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/ops.h"

namespace kvgauge {

class LayerDevices {
 public:
  struct Range {
    Ops* ops = nullptr;
    int64_t first = 0, end = 0;  // of layers
  };

  // All layers lie on one device. Callers that know of one pass its Ops.
  LayerDevices(Ops& ops)  // NOLINT(google-explicit-constructor)
      : ranges_{{&ops, 0, std::numeric_limits<int64_t>::max()}} {}
  explicit LayerDevices(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

  bool several() const { return ranges_.size() > 1; }
  Ops& first() const { return *ranges_.front().ops; }
  Ops& of(int64_t layer) const { return *ranges_[index_of(layer)].ops; }
  size_t index_of(int64_t layer) const {
    size_t i = 0;
    while (i + 1 < ranges_.size() && layer >= ranges_[i].end) ++i;
    return i;
  }
  std::span<const Range> ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// Numbers of each layer, as many of all, on its device. Those of one device lie behind each other.
class LayerNumbers {
 public:
  // All layers of one device: `memory` is [layers, numbers of one].
  struct Piece {
    Ops* ops = nullptr;
    int64_t first = 0, layers = 0;
    Buffer memory;
  };

  bool empty() const { return pieces_.empty(); }
  void Allocate(const LayerDevices& devices, int64_t layers, DType dtype, int64_t numbers);
  // [numbers] of a layer.
  Tensor Of(int64_t layer) const;
  // [layers, numbers] of a piece.
  Tensor All(const Piece& piece) const;
  std::span<const Piece> pieces() const { return pieces_; }
  int64_t size_bytes() const;
  // The other has as many, on the same devices.
  void CopyFrom(const LayerNumbers& other);
  // All of them, layer by layer.
  template <class T>
  std::vector<T> ToHost() const {
    std::vector<T> host;
    for (const Piece& piece : pieces_) {
      const Tensor all = All(piece);
      const auto at = std::ssize(host);
      host.resize(static_cast<size_t>(at + all.Numel()));
      piece.ops->memory->Copy(all, Tensor(host.data() + at, dtype_, {piece.layers, numbers_}));
    }
    return host;
  }

 private:
  DType dtype_ = DType::kF32;
  int64_t numbers_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace kvgauge
