// SPDX-License-Identifier: Apache-2.0
// A reader whose index can be cut back.
#pragma once

namespace kvgauge {

// A mark beside Reader: Append makes all of the index anew that lies at or behind its `first`,
// whatever the index held there; an index of the prompt alone has nothing there. What Select leaves
// in it serves the same step. Forks of a sequence of which one goes on at a time may then share one
// index, as each appends an entry before it selects.
class TurnTakingReader {
 public:
  virtual ~TurnTakingReader() = default;
};

}  // namespace kvgauge
