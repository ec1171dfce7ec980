// SPDX-License-Identifier: Apache-2.0
// A reader whose steps are mostly alike.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

// A mark beside Reader: Append and Select ask the device nothing and give it the same to do in most
// steps, so that it may take a step at once. They may be called again for a step that was begun, of
// whose calls nothing came: Append makes all of the index anew that lies at or behind its `first`,
// and an exception leaves the index as it was.
class RepeatingReader {
 public:
  virtual ~RepeatingReader() = default;
  // Where Select notes on the host what it has given the device to do. BeginStep is called before a
  // step. UndoStep is called before the step is begun again where nothing came of the calls since
  // BeginStep; where the step found no memory, some took effect, and BeginStep is called.
  virtual void BeginStep(Reader::State&) const {}
  virtual void UndoStep(Reader::State&) const {}
};

}  // namespace kvgauge
