// SPDX-License-Identifier: Apache-2.0
// A stage that joins frames of videos, whatever they show.
#pragma once

#include <cstdint>
#include <vector>

#include "methods/see.h"

namespace kvgauge {

// Each second frame joins the first of its pair.
class InPairs final : public See {
 public:
  SeeNeeds sees() const override { return {.frames = true}; }
  std::vector<int32_t> Join(const FrameView& view) const override {
    std::vector<int32_t> first;
    for (int32_t i = 0; i < std::ssize(view.frames); ++i) first.push_back(i - i % 2);
    return first;
  }
};

}  // namespace kvgauge
