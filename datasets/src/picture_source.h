// SPDX-License-Identifier: Apache-2.0
// Pictures of published sets: base64 in a cell, a file, or bytes of a Parquet row. A picture is
// hashed when its sample is made, held by no one, and read again where it is shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "datasets/sample.h"
#include "src/delimited.h"

namespace kvgauge {

// Larger pictures are refused.
inline constexpr int64_t kMaxPictureBytes = int64_t{64} << 20;

// The pictures of a cell: one, or a Python or JSON list of several. `name` is theirs in messages;
// errors are to be read behind it.
Result<std::vector<Picture>> PicturesOfCell(const std::string& path, const CellPlace& cell,
                                            const std::string& name);

// A file below `root`. An error, to be read behind its place, says that it is missing, empty or
// leads out of `root`.
Result<Picture> PictureOfFile(const std::string& root, const std::string& relative);

// Bytes of an image file that the record holds.
Result<Picture> PictureOfBytes(std::string bytes, const std::string& name);

// `relative` below `root`, through no link that leads out of it. An error, to be read behind the
// place of `relative`, says why there is none.
Result<std::string> PathBelow(const std::string& root, const std::string& relative);

}  // namespace kvgauge
