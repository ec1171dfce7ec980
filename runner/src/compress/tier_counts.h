// SPDX-License-Identifier: Apache-2.0
// What of a sequence's entries lies on the host by a method's placement, and what decode steps
// fetch of it.
//
// An entry counts once for a KV head however many of its query heads read it, in every step anew
// unless the placement keeps what the step before fetched. What a step reads is counted on the
// device, until somebody asks.
#pragma once

#include <vector>

#include "methods/placement.h"
#include "src/compress/view.h"

namespace kvgauge {

class TierCounts {
 public:
  // `shape` outlives this.
  TierCounts(const Placement& place, const ModelShape& shape, const LayerDevices& devices);

  // A step begins, perhaps once more.
  void BeginStep();
  // Everything of a layer is read in that step.
  void AddWhole(const KvCache& cache, int64_t layer);
  // Or what these words say, and `joined` where they are not empty; both as of Reader::Select.
  void AddRead(LayerView& view, const KvCache& cache, const Tensor& words, const Tensor& joined);
  // The layer's entries are other ones than those that were read.
  void Forget(int64_t layer);
  // The pass is done, and what it counted on the device counts.
  void EndPass();
  void KeepCounts();
  // What was fetched so far is as of the other.
  void CountFrom(const TierCounts& other);

  // Bytes over all steps; an entry has the bytes that those of its head on the host have now. Waits
  // for the device.
  double FetchedBytes(const KvCache& cache) const;

 private:
  // Which entries of a layer a step read.
  struct Words {
    Buffer memory;
    int64_t rows = 0, columns = 0;  // 0: none, or all
    Tensor view() const { return memory.As(DType::kI64, {rows, columns}); }
  };
  // Entries that were read, and those that the device kept.
  enum Kind { kRead, kKept, kKinds };

  // Whether steps fetch anything.
  bool counts() const { return place_.any() && !place_.attends; }
  void Allocate();
  // [kv_heads] of a layer.
  Tensor Counts(size_t which, Kind kind, int64_t layer) const {
    return counts_[which].Of(layer).Reshape({kKinds, shape_.kv_heads})[kind];
  }
  size_t At(int64_t layer, int64_t head) const {
    return static_cast<size_t>(layer * shape_.kv_heads + head);
  }

  const Placement place_;
  const ModelShape& shape_;
  const LayerDevices devices_;
  // [layers, kv_heads] entries of layers that were read whole, until now and of this step.
  std::vector<double> whole_, step_whole_;
  LayerNumbers counts_[2];  // [kinds, kv_heads] until the last step, and with this one
  bool step_read_ = false;
  std::vector<Words> last_, step_;  // [layers], of the last step and of this one
};

// Bytes of entries that lie on the host.
int64_t HostBytes(const Placement& place, const KvCache& cache);

}  // namespace kvgauge
