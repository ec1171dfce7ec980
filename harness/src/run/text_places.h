// SPDX-License-Identifier: Apache-2.0
// Where the texts of a conversation stand in what a chat template made of it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runner/chat_template.h"

namespace kvgauge {

// Bytes of one message's text that are looked for; ascending.
struct SoughtPlaces {
  size_t message = 0;
  std::vector<size_t> at;
};

struct FoundPlaces {
  std::vector<std::vector<size_t>> at;  // as they were sought, in bytes of the rendered text
  // Bytes taken off the beginnings of the texts before they were rendered; 0 where nothing was.
  std::vector<size_t> cut;
};

// Renders the messages again with marks at the places, and looks for the marks. Nothing where the
// text without its marks is not `rendered`, or a mark is not there once: then the template does to
// the texts what cannot be followed. Blanks that it takes off the ends of a text can: places in
// them move to what stays.
Result<std::optional<FoundPlaces>> FindPlaces(const ChatTemplate& chat,
                                              const std::vector<ChatMessage>& messages,
                                              const std::vector<SoughtPlaces>& sought,
                                              const std::string& rendered);
// The same for texts that `render` puts together in another way.
using RenderTexts = std::function<Result<std::string>(const std::vector<ChatMessage>& messages)>;
Result<std::optional<FoundPlaces>> FindPlaces(const RenderTexts& render,
                                              const std::vector<ChatMessage>& messages,
                                              const std::vector<SoughtPlaces>& sought,
                                              const std::string& rendered);

}  // namespace kvgauge
