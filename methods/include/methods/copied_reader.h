// SPDX-License-Identifier: Apache-2.0
// A reader whose index tells of the steps before.
#pragma once

#include <memory>

#include "methods/stages.h"

namespace kvgauge {

// A mark beside Reader: Begin cannot find out in the midst of an answer what the state knows, such
// as a choice that holds for several steps. A fork of a sequence gets a copy of it.
class CopiedReader {
 public:
  virtual ~CopiedReader() = default;
  // Forks of which one goes on at a time may share what Append makes anew, as of TurnTakingReader.
  virtual std::unique_ptr<Reader::State> Copy(const Reader::State& state, Ops& ops) const = 0;
};

}  // namespace kvgauge
