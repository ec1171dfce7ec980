// SPDX-License-Identifier: Apache-2.0
// What a run still has to do on a sample.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/run/run_record.h"

namespace kvgauge {

// Contenders (of the group) that lack the same draws of a sample: one run of the engine.
struct CellBlock {
  std::vector<size_t> contenders;
  std::vector<int64_t> draws;

  int64_t cells() const { return std::ssize(contenders) * std::ssize(draws); }
  bool operator==(const CellBlock&) const = default;
};

// A sample and what is still to be run on it.
struct Pending {
  std::shared_ptr<RunSample> sample;
  std::vector<CellBlock> blocks;

  int64_t cells() const {
    int64_t count = 0;
    for (const CellBlock& block : blocks) count += block.cells();
    return count;
  }
};

}  // namespace kvgauge
