// SPDX-License-Identifier: Apache-2.0
// The steps of a sequence, for readers whose choices hold for several.
#pragma once

#include "methods/layer_view.h"
#include "methods/state_fields.h"

namespace kvgauge {

// A step that found no memory is tried again, from its first layer on, and counts once.
class TriedSteps {
 public:
  // The newest row of the view is tried in Select: true if for the first time.
  bool Try(const LayerView& view) {
    if (view.tokens() == tokens_) return false;
    tokens_ = view.tokens();
    ++count_;
    return true;
  }
  int64_t before() const { return count_ - 1; }  // the one that is tried

  // As Reader::Fields.
  Status Fields(const LayerView& view, StateFields& fields) {
    KVG_TRY(fields.Number("tokens at the last step", -1, view.tokens(), &tokens_));
    return fields.Number("steps of a reader", 0, view.tokens(), &count_);
  }

 private:
  int64_t tokens_ = -1;  // of the view at the last one
  int64_t count_ = 0;
};

}  // namespace kvgauge
