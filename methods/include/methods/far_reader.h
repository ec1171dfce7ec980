// SPDX-License-Identifier: Apache-2.0
// Readers that choose as if all that is far were at one distance.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

class FarReader : public Reader {
 public:
  // The distance in tokens. A method that has the reader is refused unless its store says the same
  // (position `clipped`), as attention would else weigh what was chosen otherwise.
  virtual int64_t far_distance() const = 0;
};

}  // namespace kvgauge
