// SPDX-License-Identifier: Apache-2.0
// Readers that can also read less of what another reader chose.
//
// In a method file such a reader stands under "read" alone, where all entries are its candidates,
// or under "narrow", where those are that the stage under "read" chose.
#pragma once

#include <memory>

#include "methods/stages.h"

namespace kvgauge {

class NarrowingReader : public Reader {
 public:
  // Takes entries away from words, which are what each query head would read; a query head that had
  // some keeps some. q, words as of Select. Returns false to read everything.
  virtual bool Narrow(LayerView& view, const Tensor& q, Tensor words) const = 0;
  // The same where each would read everything, and words are zero. Returns false, and marks
  // nothing, to let it.
  virtual bool NarrowAll(LayerView& view, const Tensor& q, Tensor words) const = 0;

  bool Select(LayerView& view, State&, const Tensor& q, Tensor words) const final {
    return NarrowAll(view, q, words);
  }
};

// `read`, then `narrow` on what it chose.
std::unique_ptr<Reader> MakeNarrowed(std::unique_ptr<Reader> read,
                                     std::unique_ptr<NarrowingReader> narrow);

}  // namespace kvgauge
