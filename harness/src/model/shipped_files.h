// SPDX-License-Identifier: Apache-2.0
// What comes with the program: configs/, models/, and data/ where there is one. They lie in
// KVGAUGE_HOME, or in share/kvgauge of the prefix that the program was installed to, wherever that
// is now, or in the source tree above the executable. The first that has a file counts.
#pragma once

#include <string>

#include "core/result.h"

namespace kvgauge {

// A file under configs/.
Result<std::string> FindConfigFile(const std::string& relative);

// As given when it is there, else below the directory that holds configs/.
std::string FindShipped(const std::string& path);

// A path as given, or that of a shape under configs/models by its name: "bench-s".
Result<std::string> ShapeOrPath(const std::string& model);

}  // namespace kvgauge
