// SPDX-License-Identifier: Apache-2.0
// Colours and marks. A family of methods has one colour and one shape of mark in every figure, so
// that neither has to be told by colour alone. Each colour has a light and a dark form; pages name
// them by class only.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "src/html/html.h"

namespace kvgauge::report {

struct Rgb {
  uint8_t red = 0, green = 0, blue = 0;
};
// As the Web Content Accessibility Guidelines define it, from 1 to 21.
double Contrast(Rgb a, Rgb b);

struct Shade {
  std::string_view name;
  Rgb light, dark;
};
struct FamilyLook {
  std::string_view family;  // as a method's file says
  std::string_view title;
  Shade colour;
  std::string_view mark;  // outline around 0,0
};

std::span<const FamilyLook> Families();
// The look of a family that nobody knows is the last one's.
const FamilyLook& LookOf(std::string_view family);
// Page and ink: background, panel, line, faint ink, ink and such.
std::span<const Shade> Inks();
std::span<const Shade> KindShades();  // of stacked kinds: bytes, time

inline constexpr int kHeatLevels = 10;
enum class HeatScale {
  kAmount,  // little to much: pale to strong
  kScore,   // wrong to right: orange over pale to blue
};
Rgb HeatColour(HeatScale scale, int level, bool dark);
// Ink that reads best on it.
Rgb HeatInk(HeatScale scale, int level, bool dark);

// Variables and classes: f-FAMILY sets `color`, k0.. and a0.., s0.. set `fill`, at0.., st0.. are
// the ink on the latter two.
std::string PaletteCss();
// One hidden drawing that defines the marks as #m-FAMILY.
Html MarkDefinitions();
// The families among `present` with their marks and colours: what figures without names need.
Html FamilyLegend(const std::set<std::string_view>& present);
// References to a family's class and mark.
Html FamilyClass(std::string_view family);

}  // namespace kvgauge::report
