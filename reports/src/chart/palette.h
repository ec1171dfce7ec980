// SPDX-License-Identifier: Apache-2.0
// Colours and marks. A family of methods has one colour and one shape of mark in every figure, so
// that neither has to be told by colour alone. Each colour has a light and a dark form; pages name
// them by class only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
// An unknown family looks like the last one.
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
// Methods of one family share its colour and mark; a sign in the mark, and the dashes of the line,
// tell so many of them apart, on paper too.
inline constexpr size_t kVarieties = 6;
// One hidden drawing that defines the marks as #m-FAMILY and the signs in them as #v-1 on.
Html MarkDefinitions();
// For a drawing around 0,0 that is to show the mark of a method: its elements, and a small drawing
// beside text.
Html MarkAt(std::string_view family, size_t variety, double x, double y);
Html MarkBesideText(std::string_view family, size_t variety);

struct LegendMethod {
  std::string name, family;
  size_t variety = 0;
};
// The families of `methods` with their marks and colours, and each method with its own.
Html MethodLegend(const std::vector<LegendMethod>& methods);
// References to a family's class and mark.
Html FamilyClass(std::string_view family);

}  // namespace kvgauge::report
