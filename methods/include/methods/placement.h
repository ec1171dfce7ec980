// SPDX-License-Identifier: Apache-2.0
// Which entries of a sequence lie in the host's memory: what a method's file says under "place".
//
// Every backend counts what lies there and what a decode step fetches from there. Devices move
// whole pages there (KvCache::Place); elsewhere there is one memory. Entries of a head count in its
// own order, which is that of positions in most stores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/params.h"
#include "core/result.h"
#include "methods/model_shape.h"

namespace kvgauge {

// Entries [first, last).
struct EntryRange {
  int64_t first = 0, last = 0;
  int64_t count() const { return last - first; }
};

struct Placement {
  double share = 0;  // of the entries that may lie on the host, the oldest; 0: all on the device
  int64_t sinks = 0, recent = 0;  // first and last entries of a head that stay on the device
  int64_t first_layer = 0;        // all of the layers before it stays there
  bool keys = true, values = true;
  bool index = false;    // what a reader knows of the entries lies on the host, too
  bool attends = false;  // attention to what lies on the host is computed there: nothing is fetched

  // What a step of a reader fetched stays on the device for the next step, in layers of which both
  // read a part.
  bool keeps = false;

  bool any() const { return share > 0; }
  // Which entries of a head that holds `length` lie there.
  EntryRange OnHost(int64_t layer, int64_t length) const;

  static const std::vector<ParamSpec>& Specs();
  // `params` of those specs.
  static Placement From(const Params& params);
  Json ToJson() const;
  // What does not fit a model with that many layers, with or without a reader.
  Status Check(const ModelShape& shape, bool reads) const;
  // "2 first and 64 last entries of a head stay on the device, ..."; for people. Precondition: any.
  std::string Describe() const;
};

}  // namespace kvgauge
