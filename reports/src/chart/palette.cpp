// SPDX-License-Identifier: Apache-2.0
#include "src/chart/palette.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"

namespace kvgauge::report {
namespace {

constexpr Rgb Hex(uint32_t value) {
  return {static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 8),
          static_cast<uint8_t>(value)};
}

constexpr FamilyLook kFamilies[] = {
    {"baseline",
     "Full cache and baselines",
     {"baseline", Hex(0x22262b), Hex(0xf0f2f4)},
     "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"},
    {"selection",
     "Selection",
     {"selection", Hex(0x1f6fd6), Hex(0x6cabff)},
     "M-3.6-3.6h7.2v7.2h-7.2z"},
    {"budget",
     "Budgets per head and layer",
     {"budget", Hex(0x0b8585), Hex(0x3cc7c0)},
     "M0-5L5 0 0 5-5 0z"},
    {"merging", "Merging", {"merging", Hex(0xc2570c), Hex(0xff9d57)}, "M0-4.8L4.8 3.6h-9.6z"},
    {"quantization",
     "Quantisation",
     {"quantization", Hex(0xb3236f), Hex(0xff7ab8)},
     "M0 4.8L4.8-3.6h-9.6z"},
    {"low_rank",
     "Low rank",
     {"low_rank", Hex(0x7b55d3), Hex(0xb79bff)},
     "M-1.6-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z"},
    {"retrieval",
     "Retrieval",
     {"retrieval", Hex(0x38821b), Hex(0x86d15f)},
     "M-2.4-4.6L0-2.2 2.4-4.6 4.6-2.4 2.2 0 4.6 2.4 2.4 4.6 0 2.2-2.4 4.6-4.6 2.4-2.2 0-4.6-2.4z"},
    {"architecture",
     "Architecture",
     {"architecture", Hex(0x8f6a00), Hex(0xe0b84a)},
     "M0-4.8L4.6-1.5 2.8 3.9h-5.6L-4.6-1.5z"},
    {"composition",
     "Compositions",
     {"composition", Hex(0x64707d), Hex(0xa9b3be)},
     "M-4.8 0L-2.4-4.2h4.8L4.8 0 2.4 4.2h-4.8z"},
    {"other", "Other", {"other", Hex(0x77624f), Hex(0xcdb59f)}, "M-4.8-2.4h9.6v4.8h-9.6z"},
};

// Small enough for every mark; the first is none.
constexpr std::string_view kSigns[kVarieties] = {"",
                                                 "M-1.2 0a1.2 1.2 0 1 0 2.4 0a1.2 1.2 0 1 0-2.4 0z",
                                                 "M-2.8 0h5.6",
                                                 "M0-2.8v5.6",
                                                 "M-2.2 2.2L2.2-2.2",
                                                 "M-2 -2L2 2M-2 2L2-2"};

constexpr Shade kInks[] = {
    {"page", Hex(0xfcfcfb), Hex(0x14171b)},   {"panel", Hex(0xf4f5f3), Hex(0x1c2026)},
    {"line", Hex(0xd9dcd8), Hex(0x343a43)},   {"axis", Hex(0x8b918d), Hex(0x78818c)},
    {"ink", Hex(0x1b1f23), Hex(0xe9ecef)},    {"faint", Hex(0x565d63), Hex(0xa7afb8)},
    {"accent", Hex(0x0b5cad), Hex(0x7fb6ff)}, {"good", Hex(0x0f6b58), Hex(0x5fd0b2)},
    {"bad", Hex(0xb23410), Hex(0xff9a76)},    {"band", Hex(0xd7e3f2), Hex(0x24364d)},
    {"hint", Hex(0xfff4d6), Hex(0x3a3118)},
};

constexpr Shade kKinds[] = {
    {"k0", Hex(0x2b6cb0), Hex(0x5b9be0)}, {"k1", Hex(0xc96a24), Hex(0xf0995a)},
    {"k2", Hex(0x23877a), Hex(0x4fc0b1)}, {"k3", Hex(0xb63763), Hex(0xee7ba3)},
    {"k4", Hex(0x7658c6), Hex(0xab94f0)}, {"k5", Hex(0x947100), Hex(0xd6b13f)},
    {"k6", Hex(0x4f8126), Hex(0x8fc761)}, {"k7", Hex(0x835340), Hex(0xc99a86)},
    {"k8", Hex(0x2a80a8), Hex(0x6cc0e6)}, {"k9", Hex(0x858b91), Hex(0x7d858f)},
};

// Evenly spaced from the lowest level to the highest.
constexpr Rgb kAmountLight[] = {Hex(0xe9f0f8), Hex(0x6fa4da), Hex(0x0b2f63)};
constexpr Rgb kAmountDark[] = {Hex(0x1f2833), Hex(0x2f6caf), Hex(0xb9deff)};
constexpr Rgb kScoreLight[] = {Hex(0xb2420f), Hex(0xefb183), Hex(0xf5f1e8), Hex(0x9cc3e6),
                               Hex(0x1b5a9c)};
constexpr Rgb kScoreDark[] = {Hex(0xf08a55), Hex(0x8a4a28), Hex(0x33353a), Hex(0x2d5a86),
                              Hex(0x7fbcf7)};

Rgb Between(std::span<const Rgb> anchors, double at) {
  const double place = at * static_cast<double>(anchors.size() - 1);
  const size_t i = std::min(static_cast<size_t>(place), anchors.size() - 2);
  const double share = place - static_cast<double>(i);
  const auto mix = [share](uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(std::lround(a + (b - a) * share));
  };
  const Rgb& a = anchors[i];
  const Rgb& b = anchors[i + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

double Luminance(Rgb colour) {
  const auto channel = [](uint8_t value) {
    const double c = value / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * channel(colour.red) + 0.7152 * channel(colour.green) +
         0.0722 * channel(colour.blue);
}

void AppendVariable(std::string& css, std::string_view name, Rgb colour) {
  constexpr char kDigits[] = "0123456789abcdef";
  css.append("--").append(name).append(":#");
  for (const uint8_t channel : {colour.red, colour.green, colour.blue}) {
    css.push_back(kDigits[channel >> 4]);
    css.push_back(kDigits[channel & 15]);
  }
  css.push_back(';');
}

std::string Variables(bool dark) {
  std::string css;
  const auto add = [&](const Shade& shade, const char* prefix) {
    AppendVariable(css, StrCat(prefix, shade.name), dark ? shade.dark : shade.light);
  };
  for (const Shade& ink : kInks) add(ink, "");
  for (const FamilyLook& look : kFamilies) add(look.colour, "f-");
  for (const Shade& kind : kKinds) add(kind, "");
  for (int level = 0; level < kHeatLevels; ++level) {
    AppendVariable(css, StrCat("a", level), HeatColour(HeatScale::kAmount, level, dark));
    AppendVariable(css, StrCat("at", level), HeatInk(HeatScale::kAmount, level, dark));
    AppendVariable(css, StrCat("s", level), HeatColour(HeatScale::kScore, level, dark));
    AppendVariable(css, StrCat("st", level), HeatInk(HeatScale::kScore, level, dark));
  }
  return css;
}

}  // namespace

double Contrast(Rgb a, Rgb b) {
  const double high = std::max(Luminance(a), Luminance(b));
  const double low = std::min(Luminance(a), Luminance(b));
  return (high + 0.05) / (low + 0.05);
}

std::span<const FamilyLook> Families() { return kFamilies; }
std::span<const Shade> Inks() { return kInks; }
std::span<const Shade> KindShades() { return kKinds; }

const FamilyLook& LookOf(std::string_view family) {
  for (const FamilyLook& look : kFamilies) {
    if (look.family == family) return look;
  }
  return *std::rbegin(kFamilies);
}

Rgb HeatColour(HeatScale scale, int level, bool dark) {
  const double at = static_cast<double>(level) / (kHeatLevels - 1);
  if (scale == HeatScale::kAmount) return Between(dark ? kAmountDark : kAmountLight, at);
  return Between(dark ? kScoreDark : kScoreLight, at);
}

Rgb HeatInk(HeatScale scale, int level, bool dark) {
  const Rgb colour = HeatColour(scale, level, dark);
  const Rgb black = Hex(0x000000), white = Hex(0xffffff);
  return Contrast(colour, black) >= Contrast(colour, white) ? black : white;
}

std::string PaletteCss() {
  const std::string light = Variables(false), dark = Variables(true);
  std::string css = StrCat(":root{color-scheme:light;", light, "}\n",
                           "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;",
                           dark, "}}\n@media screen{:root[data-theme=light]{color-scheme:light;",
                           light, "}\n:root[data-theme=dark]{color-scheme:dark;", dark, "}}\n");
  for (const FamilyLook& look : kFamilies) {
    css.append(StrCat(".f-", look.family, "{color:var(--f-", look.family, ")}"));
  }
  for (const Shade& kind : kKinds) {
    css.append(StrCat(".", kind.name, "{fill:var(--", kind.name, ")}"));
  }
  for (int level = 0; level < kHeatLevels; ++level) {
    for (const char* scale : {"a", "at", "s", "st"}) {
      css.append(StrCat(".", scale, level, "{fill:var(--", scale, level, ")}"));
    }
  }
  css.push_back('\n');
  return css;
}

Html MarkDefinitions() {
  Html html;
  html.Put(R"(<svg class="marks" width="0" height="0" aria-hidden="true"><defs>)");
  for (const FamilyLook& look : kFamilies) {
    html.Put(R"(<path id="m-{}" d="{}"/>)", {look.family, look.mark});
  }
  for (size_t v = 1; v < kVarieties; ++v) {
    html.Put(R"(<path id="v-{}" d="{}"/>)", {v, kSigns[v]});
  }
  return html.Put("</defs></svg>\n");
}

Html MarkAt(std::string_view family, size_t variety, double x, double y) {
  Html html;
  html.Put(R"(<use href="#m-{}" x="{}" y="{}"/>)", {LookOf(family).family, Px{x}, Px{y}});
  if (variety % kVarieties != 0) {
    html.Put(R"(<use class="in" href="#v-{}" x="{}" y="{}"/>)",
             {variety % kVarieties, Px{x}, Px{y}});
  }
  return html;
}

Html MarkBesideText(std::string_view family, size_t variety) {
  return Html().Put(R"(<svg class="{}" width="12" height="12" viewBox="-6 -6 12 12" )"
                    R"(aria-hidden="true">{}</svg>)",
                    {FamilyClass(family), MarkAt(family, variety, 0, 0)});
}

Html MethodLegend(const std::vector<LegendMethod>& methods) {
  Html html;
  html.Put(R"(<div class="legend">)");
  for (const FamilyLook& look : kFamilies) {
    Html names;
    for (const LegendMethod& method : methods) {
      if (LookOf(method.family).family != look.family) continue;
      names.Put(R"( <span class="one">{} {}</span>)",
                {MarkBesideText(method.family, method.variety), Breakable(method.name)});
    }
    if (names.empty()) continue;
    html.Put(R"(<p data-f="{}"><b>{}</b>{}</p>)", {look.family, look.title, names});
  }
  return html.Put("</div>");
}

Html FamilyClass(std::string_view family) { return Html().Put("f-{}", {LookOf(family).family}); }

}  // namespace kvgauge::report
