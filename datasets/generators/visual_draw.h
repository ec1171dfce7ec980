// SPDX-License-Identifier: Apache-2.0
// Pictures that are drawn rather than read: a grid of eight by eight units with coloured things and
// digits on a background. Whole numbers only, so that every machine gives the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/image.h"
#include "core/rng.h"

namespace kvgauge::visual {

inline constexpr int kGrid = 8;  // units of a side

// kGlyphs: things are bitmaps that mean a noun to a model that was trained on them; a thing takes
// two units, of which the first says the colour and the second the noun. kShapes: circles, stars
// and the like, which any model knows; a thing takes one unit.
enum class Style { kGlyphs, kShapes };

std::vector<std::string_view> ColourNames(Style style);
std::vector<std::string_view> ThingNames(Style style);

struct Thing {
  int colour = 0, noun = 0;
  bool operator==(const Thing&) const = default;
};
std::string NameOf(Style style, const Thing& thing);  // "red ball"
// A fifth of all things: those that training never names and evaluation asks for.
bool IsHeldOut(const Thing& thing);

// A thing or a digit at its place.
struct Item {
  Thing thing;
  int digit = -1;  // instead of the thing
  int row = 0, column = 0;
  int down = 0, right = 0;  // from the unit's corner, in eighths of a unit
  std::array<int, 3> ink = {};
};

enum class Ground { kRamp, kPlain, kStripes, kChecks, kDiscs };
inline constexpr int kGrounds = 5;

struct Background {
  Ground ground = Ground::kRamp;
  std::array<int, 4> greys = {};  // of the corners; others use the first two
  std::array<int, 3> tint = {};
  int period = 8, direction = 0;                 // in eighths of a unit
  std::array<std::array<int, 3>, 4> discs = {};  // x, y, radius in eighths of a unit
};

struct Scene {
  Style style = Style::kGlyphs;
  int32_t side = 64;  // pixels; a multiple of kGrid, of 64 for kGlyphs
  Background background;
  std::vector<Item> items;
  uint64_t noise_seed = 0, noise_stream = 0;
};

// Any of the grounds, or a ramp.
Background DrawBackground(Rng& rng, bool any);
// A cell: a thing, and behind it, in the same row, digits or another thing. `number`: its digits.
std::vector<Item> ThingAndNumber(Rng& rng, Style style, const Thing& thing, std::string_view number,
                                 int row);
std::vector<Item> ThingAndThing(Rng& rng, Style style, const Thing& left, const Thing& right,
                                int row);

Image Render(const Scene& scene);
// What each unit shows, row by row: "red" and "ball" or "red circle", "7", "" for background.
std::vector<std::string> WordsOf(const Scene& scene);

}  // namespace kvgauge::visual
