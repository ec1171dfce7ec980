// SPDX-License-Identifier: Apache-2.0
// What goes on from chunk to chunk of a prompt: the column sums that the rows so far gave to the
// entries that are still held, and what gates gave these entries. A chunk's capture begins with
// them, so that its sums are those of all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/stages.h"
#include "runner/capture.h"

namespace kvgauge {

class CarriedSums {
 public:
  CarriedSums(const ModelShape& shape, const Needs& needs, const LayerDevices& devices);

  // Into the capture of the next chunk, before any of its rows.
  void GiveTo(PrefillCapture& capture) const;
  // Takes those of one layer when a chunk was read: of the entries that stay by `plan`, before the
  // plan is executed; of all where it is empty. Entries that others are merged into keep their own.
  void Take(const PrefillCapture& capture, int64_t layer, std::span<const HeadPlan> plan);
  int64_t bytes() const;

 private:
  struct Sums {
    Buffer memory;
    int64_t width = 0;  // [query_heads, width]; of gates [kv_heads, width]
  };
  static void Keep(Ops& ops, const Tensor& all, std::span<const HeadPlan> plan, Sums& kept);

  const ModelShape& shape_;
  const LayerDevices devices_;
  std::vector<Sums> sums_, squares_;  // [layers]; empty where they are not declared
  const std::vector<GateNeed> gates_;
  std::vector<std::vector<Sums>> gate_scores_;  // [gates][layers]
};

}  // namespace kvgauge
