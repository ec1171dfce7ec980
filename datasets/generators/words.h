// SPDX-License-Identifier: Apache-2.0
// Plain English words of our own choice, for keys, lists and prose.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/rng.h"

namespace kvgauge {

std::span<const std::string_view> Adjectives();
std::span<const std::string_view> Nouns();
std::span<const std::string_view> Verbs();  // past tense, with an object
std::span<const std::string_view> People();
std::span<const std::string_view> Cities();

std::string_view Pick(Rng& rng, std::span<const std::string_view> words);
// "quiet-lantern".
std::string WordPair(Rng& rng);

}  // namespace kvgauge
