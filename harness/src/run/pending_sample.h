// SPDX-License-Identifier: Apache-2.0
// What a run still has to do on a sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "src/run/picture_show.h"
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

using Samples = std::vector<std::shared_ptr<RunSample>>;

// The samples of a window as the model sees them: with rows of their pictures, and no longer the
// pictures. They are copies, so that a sample can be shown again.
class ShownSamples {
 public:
  // The same copies until they are given up; a sample without pictures is its own.
  Samples Of(const Samples& samples) {
    Samples found;
    for (const auto& sample : samples) {
      auto& copy = copies_[sample->position];
      const bool sees = !sample->sample.pictures.empty();
      if (copy == nullptr) copy = sees ? std::make_shared<RunSample>(*sample) : sample;
      found.push_back(copy);
    }
    return found;
  }
  // With the rows, however long their cells wait to be recorded.
  void GiveUp() {
    for (const auto& [position, copy] : copies_) PictureShow::Hide(*copy);
    copies_.clear();
  }

 private:
  std::map<int64_t, std::shared_ptr<RunSample>> copies_;  // by position
};

// Those of `all` that `some` are copies of.
inline Samples SamplesOf(const Samples& all, const Samples& some) {
  Samples found;
  for (const auto& sample : all) {
    const auto same = [&](const auto& copy) { return copy->position == sample->position; };
    if (std::ranges::any_of(some, same)) found.push_back(sample);
  }
  return found;
}

}  // namespace kvgauge
