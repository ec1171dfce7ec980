// SPDX-License-Identifier: Apache-2.0
// Where the pictures of a saved prompt stand, and which piece of one each position shows, as bytes
// and back.
//
// What embeds and turns their rows is not in it: entries are in the cache, and so are the places
// by which they turned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "methods/visual_span.h"

namespace kvgauge {

// Behind `out`. Precondition: spans as PlaceVisuals makes them.
void PutPictures(const std::vector<VisualSpan>& spans, std::string& out);
// From the front of `in`, for a sequence whose first `tokens` tokens were read. Bytes may come from
// anywhere.
Status TakePictures(std::string_view& in, int64_t tokens, std::vector<VisualSpan>* spans);

}  // namespace kvgauge
