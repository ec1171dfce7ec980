// SPDX-License-Identifier: Apache-2.0
// Several devices of one process, for a model whose layers lie on more than one of them.
//
// Each device has Ops of its own. An operation of these takes tensors of that device alone. A Copy
// of any of them may go between the memories of two devices, and from or to any of them and the
// host: it comes behind what was submitted to these devices before, and before what follows.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace kvgauge {

// The MemoryOps of the first device are this, too, where there are others.
class OtherDevices {
 public:
  virtual ~OtherDevices() = default;
  virtual std::span<const std::unique_ptr<Ops>> others() const = 0;
};

// As MakeOps, which takes one device; and "cuda:0+1": devices of one kind, in the order in which
// layers go through them. The result is the first device's and owns the others.
Result<std::unique_ptr<Ops>> MakeLayeredOps(const std::string& backend, ThreadSettings threads);
bool NamesSeveralDevices(const std::string& backend);

// Those of all devices, these first: one, unless MakeLayeredOps was given several.
std::vector<Ops*> DevicesOf(Ops& ops);

}  // namespace kvgauge
