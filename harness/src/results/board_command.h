// SPDX-License-Identifier: Apache-2.0
// `kvgauge board`: a directory of result stores as a static site.
#pragma once

#include <string>

#include "core/result.h"

namespace kvgauge {

struct BoardFlags {
  std::string stores;  // a directory; every *.db below it is a store
  std::string out;     // a directory, made where it is not
  std::string title;
  double margin = 1;  // differences up to this are equivalent, in points of a hundred
  bool skip_bad = false;
  bool json = false;
};

// Writes nothing unless every page could be made. Pages of an earlier board in `out` that this one
// does not have are removed; files of anybody else are refused.
Status RunBoard(const BoardFlags& flags);

}  // namespace kvgauge
