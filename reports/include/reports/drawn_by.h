// SPDX-License-Identifier: Apache-2.0
// Answers that are drawn at a temperature: how their samples are named in a store, and what a
// signature says of them. A draw is a sample of its own: "17#3" is the fourth draw of sample 17.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvgauge {

// The facts of a sample that say which draw it is, and what its answer votes for.
inline constexpr char kDrawFact[] = "draw";
inline constexpr char kVoteFact[] = "vote";

// How the answers under a signature were drawn; nothing where they are greedy.
struct DrawnBy {
  double temperature = 0;
  double top_p = 1;

  std::string Text() const;  // "temperature 0.6, top-p 0.95"
  bool operator==(const DrawnBy&) const = default;
};
std::optional<DrawnBy> DrawnByOf(const std::string& signature);

// The name of a draw, and what it is made of. A name without a number is a prompt's own: draw -1.
std::string DrawName(const std::string& prompt, int64_t draw);
struct NamedDraw {
  std::string prompt;
  int64_t draw = -1;
};
NamedDraw ParseDrawName(const std::string& name);

}  // namespace kvgauge
