// SPDX-License-Identifier: Apache-2.0
// Foreign text made fit to be looked at: models answer with anything, and files hold anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvgauge::report {

// Well-formed UTF-8 in which every character can be seen and none acts on its neighbours: control
// bytes become their pictures (U+2400 and on), characters that turn the direction of text, join
// without a trace or are no characters become "⟨U+202E⟩". Line feeds and tabs stay.
std::string MakeVisible(std::string_view text);

// MakeVisible of at most `limit` bytes of `text`, cut between characters. `left_out` gets the
// number of bytes that were cut off.
std::string MakeVisible(std::string_view text, size_t limit, size_t& left_out);

}  // namespace kvgauge::report
