// SPDX-License-Identifier: Apache-2.0
// What SourceSpec asks of a source whose parameter "file" names all that it reads: one file below
// the data directory.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/params.h"
#include "core/result.h"

namespace kvgauge {

inline std::vector<std::string> SourceFile(const Params& params, const Json&) {
  return {params.Text("file")};
}

inline Status CheckSourceFile(const Params& params, const Json&) {
  if (params.Text("file").empty()) return BadInput(".file: missing");
  return {};
}

}  // namespace kvgauge
