// SPDX-License-Identifier: Apache-2.0
#include "generators/visual_draw.h"

#include <algorithm>
#include <cstdlib>

#include "core/strings.h"
#include "generators/generator.h"

namespace kvgauge::visual {
namespace {

constexpr int kEighths = 8;  // of a unit: the pixels of the smallest picture

struct Colour {
  std::string_view name;
  std::array<int, 3> rgb;
};

// Names of glyphs are words that the reference models' tokenizer has whole.
constexpr std::array<Colour, 10> kGlyphColours = {{{"red", {205, 35, 35}},
                                                   {"blue", {40, 75, 215}},
                                                   {"green", {35, 150, 55}},
                                                   {"yellow", {250, 240, 80}},
                                                   {"brown", {120, 72, 30}},
                                                   {"black", {12, 12, 12}},
                                                   {"white", {252, 252, 252}},
                                                   {"purple", {140, 45, 170}},
                                                   {"silver", {196, 200, 212}},
                                                   {"golden", {205, 150, 20}}}};
constexpr std::array<Colour, 10> kShapeColours = {{{"red", {215, 25, 25}},
                                                   {"blue", {30, 65, 220}},
                                                   {"green", {20, 150, 45}},
                                                   {"yellow", {250, 230, 40}},
                                                   {"orange", {245, 130, 15}},
                                                   {"purple", {135, 35, 175}},
                                                   {"brown", {110, 62, 22}},
                                                   {"black", {10, 10, 10}},
                                                   {"white", {252, 252, 252}},
                                                   {"pink", {250, 150, 200}}}};
constexpr std::array<std::string_view, 32> kGlyphNouns = {
    "ball",   "box",   "bed",    "hat",   "boat", "bus",   "fork", "wolf",
    "plane",  "bag",   "book",   "table", "van",  "fox",   "pear", "sock",
    "camera", "duck",  "cheese", "flag",  "coat", "horse", "harp", "desk",
    "knife",  "stone", "bear",   "apple", "drum", "doll",  "axe",  "ladder"};
constexpr std::array<std::string_view, 10> kShapeNouns = {"circle",  "ring",   "square", "triangle",
                                                          "diamond", "cross",  "star",   "heart",
                                                          "arrow",   "hexagon"};

// Symmetric bitmaps of 7 x 7, any two at least twelve bits apart; a row is seven bits, the left one
// the highest.
constexpr std::array<std::array<uint8_t, 7>, 32> kGlyphs = {{
    {0x08, 0x55, 0x3e, 0x63, 0x00, 0x6b, 0x55}, {0x1c, 0x6b, 0x6b, 0x41, 0x14, 0x14, 0x7f},
    {0x22, 0x08, 0x7f, 0x2a, 0x14, 0x08, 0x49}, {0x08, 0x77, 0x55, 0x7f, 0x14, 0x22, 0x41},
    {0x55, 0x36, 0x41, 0x3e, 0x63, 0x6b, 0x00}, {0x14, 0x5d, 0x14, 0x00, 0x7f, 0x49, 0x22},
    {0x55, 0x3e, 0x08, 0x00, 0x3e, 0x77, 0x55}, {0x63, 0x08, 0x22, 0x3e, 0x49, 0x14, 0x22},
    {0x22, 0x14, 0x1c, 0x22, 0x77, 0x77, 0x36}, {0x7f, 0x49, 0x5d, 0x6b, 0x49, 0x55, 0x41},
    {0x36, 0x36, 0x1c, 0x00, 0x08, 0x22, 0x3e}, {0x49, 0x14, 0x36, 0x22, 0x36, 0x6b, 0x2a},
    {0x3e, 0x6b, 0x41, 0x7f, 0x5d, 0x36, 0x55}, {0x14, 0x3e, 0x14, 0x55, 0x6b, 0x63, 0x00},
    {0x1c, 0x22, 0x55, 0x41, 0x41, 0x36, 0x2a}, {0x14, 0x5d, 0x08, 0x08, 0x49, 0x36, 0x63},
    {0x1c, 0x77, 0x77, 0x1c, 0x2a, 0x3e, 0x49}, {0x49, 0x6b, 0x00, 0x3e, 0x77, 0x7f, 0x3e},
    {0x7f, 0x55, 0x6b, 0x08, 0x08, 0x1c, 0x41}, {0x00, 0x14, 0x49, 0x1c, 0x7f, 0x22, 0x36},
    {0x63, 0x6b, 0x2a, 0x22, 0x63, 0x55, 0x41}, {0x49, 0x49, 0x36, 0x7f, 0x7f, 0x63, 0x49},
    {0x55, 0x41, 0x55, 0x6b, 0x5d, 0x77, 0x08}, {0x00, 0x2a, 0x49, 0x1c, 0x41, 0x49, 0x63},
    {0x7f, 0x5d, 0x5d, 0x22, 0x5d, 0x49, 0x36}, {0x2a, 0x6b, 0x14, 0x41, 0x2a, 0x08, 0x49},
    {0x36, 0x7f, 0x63, 0x1c, 0x6b, 0x5d, 0x14}, {0x6b, 0x49, 0x2a, 0x6b, 0x08, 0x08, 0x77},
    {0x08, 0x41, 0x14, 0x63, 0x3e, 0x14, 0x6b}, {0x63, 0x1c, 0x1c, 0x14, 0x22, 0x77, 0x08},
    {0x49, 0x1c, 0x6b, 0x00, 0x2a, 0x00, 0x5d}, {0x49, 0x7f, 0x3e, 0x3e, 0x2a, 0x22, 0x36},
}};

// Digits, 5 x 7.
constexpr std::array<std::array<uint8_t, 7>, 10> kFont = {{
    {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e},
    {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e},
    {0x0e, 0x11, 0x01, 0x06, 0x08, 0x10, 0x1f},
    {0x1e, 0x01, 0x01, 0x0e, 0x01, 0x01, 0x1e},
    {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02},
    {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e},
    {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e},
    {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08},
    {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e},
    {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c},
}};

// A star's corners in thousandths of the half side, y downwards.
constexpr std::array<std::array<int, 2>, 10> kStar = {{{0, -950},
                                                       {223, -307},
                                                       {903, -294},
                                                       {361, 117},
                                                       {558, 769},
                                                       {0, 380},
                                                       {-558, 769},
                                                       {-361, 117},
                                                       {-903, -294},
                                                       {-223, -307}}};

bool InStar(int x, int y) {
  bool inside = false;
  for (size_t i = 0, j = kStar.size() - 1; i < kStar.size(); j = i++) {
    const int64_t ax = kStar[i][0], ay = kStar[i][1], bx = kStar[j][0], by = kStar[j][1];
    if ((ay > y) == (by > y)) continue;
    // x < ax + (bx - ax) (y - ay) / (by - ay), without the division.
    const int64_t left = (x - ax) * (by - ay), right = (bx - ax) * (y - ay);
    if (by > ay ? left < right : left > right) inside = !inside;
  }
  return inside;
}

// (x, y) in thousandths of the half side from the middle, y downwards.
bool InShape(int noun, int x, int y) {
  const int ax = std::abs(x), ay = std::abs(y), squared = x * x + y * y;
  const auto in_disc = [](int dx, int dy, int radius) {
    return dx * dx + dy * dy <= radius * radius;
  };
  switch (noun) {
    case 0:
      return squared <= 900 * 900;
    case 1:
      return squared <= 920 * 920 && squared >= 540 * 540;
    case 2:
      return ax <= 800 && ay <= 800;
    case 3:
      return y >= -900 && y <= 800 && ax * 1700 <= (y + 900) * 950;
    case 4:
      return ax * 3 + ay * 2 <= 1900;
    case 5:
      return (ax <= 270 || ay <= 270) && ax <= 900 && ay <= 900;
    case 6:
      return InStar(x, y);
    case 7:
      return in_disc(ax - 430, y + 330, 480) || (y >= -330 && ax * 1230 <= (900 - y) * 900);
    case 8:
      return (ay <= 240 && x >= -900 && x <= 150) || (x >= 50 && ay * 850 <= (900 - x) * 750);
    default:
      return ay <= 800 && ax * 800 <= 930 * 800 - ay * 465;
  }
}

int GreyAt(const Scene& scene, int x, int y) {
  const Background& ground = scene.background;
  const int unit = scene.side / kGrid;
  const int64_t last = scene.side - 1;
  const int period = std::max(1, ground.period * unit / kEighths);
  switch (ground.ground) {
    case Ground::kRamp: {
      const int64_t left = (last - x), up = (last - y);
      const int64_t sum = ground.greys[0] * left * up + ground.greys[1] * x * up +
                          ground.greys[2] * left * y + ground.greys[3] * int64_t{x} * y;
      return static_cast<int>(sum / (last * last));
    }
    case Ground::kPlain:
      return ground.greys[0];
    case Ground::kStripes: {
      const int along = ground.direction == 0 ? x : ground.direction == 1 ? y : x + y;
      return ground.greys[static_cast<size_t>(along / period % 2)];
    }
    case Ground::kChecks:
      return ground.greys[static_cast<size_t>((x / period + y / period) % 2)];
    case Ground::kDiscs:
      break;
  }
  for (size_t i = 0; i < ground.discs.size(); ++i) {
    const int64_t dx = x - ground.discs[i][0] * unit / kEighths;
    const int64_t dy = y - ground.discs[i][1] * unit / kEighths;
    const int64_t radius = ground.discs[i][2] * unit / kEighths;
    if (dx * dx + dy * dy <= radius * radius) return ground.greys[1 + i % 3];
  }
  return ground.greys[0];
}

void Paint(Image& image, int x, int y, const std::array<int, 3>& ink) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height) return;
  for (int c = 0; c < 3; ++c)
    image.Row(y)[3 * x + c] = static_cast<uint8_t>(ink[static_cast<size_t>(c)]);
}

template <size_t kRows>
void PaintBits(Image& image, const std::array<uint8_t, kRows>& bits, int columns, int left, int top,
               int wide, int high, const std::array<int, 3>& ink) {
  for (int row = 0; row < static_cast<int>(kRows); ++row) {
    for (int column = 0; column < columns; ++column) {
      if ((bits[static_cast<size_t>(row)] >> (columns - 1 - column) & 1) == 0) continue;
      for (int y = 0; y < high; ++y) {
        for (int x = 0; x < wide; ++x) {
          Paint(image, left + column * wide + x, top + row * high + y, ink);
        }
      }
    }
  }
}

void PaintItem(Image& image, const Scene& scene, const Item& item) {
  const int unit = scene.side / kGrid;
  const int left = item.column * unit + item.right * unit / kEighths;
  const int top = item.row * unit + item.down * unit / kEighths;
  const int dot = std::max(1, unit / kEighths);
  if (item.digit >= 0) {
    PaintBits(image, kFont[static_cast<size_t>(item.digit)], 5, left, top, dot, dot, item.ink);
  } else if (scene.style == Style::kGlyphs) {
    PaintBits(image, kGlyphs[static_cast<size_t>(item.thing.noun)], 7, left, top, 2 * dot, dot,
              item.ink);
  } else {
    const int size = unit * 7 / kEighths;
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x) {
        const int across = (2 * x + 1 - size) * 1000 / size,
                  down = (2 * y + 1 - size) * 1000 / size;
        if (InShape(item.thing.noun, across, down)) Paint(image, left + x, top + y, item.ink);
      }
    }
  }
}

int Tinted(int value, int tint) { return std::clamp(value + tint, 0, 255); }

Item ThingAt(Rng& rng, Style style, const Thing& thing, int row, int column, int down) {
  Item item;
  item.thing = thing;
  item.row = row;
  item.column = column;
  item.down = down;
  item.right = static_cast<int>(Between(rng, 0, style == Style::kGlyphs ? 2 : 1));
  const auto& colours = style == Style::kGlyphs ? kGlyphColours : kShapeColours;
  const std::array<int, 3>& rgb = colours[static_cast<size_t>(thing.colour)].rgb;
  for (size_t c = 0; c < 3; ++c) {
    item.ink[c] = Tinted(rgb[c], static_cast<int>(Between(rng, -10, 10)));
  }
  return item;
}

int ThingUnits(Style style) { return style == Style::kGlyphs ? 2 : 1; }

}  // namespace

std::vector<std::string_view> ColourNames(Style style) {
  std::vector<std::string_view> names;
  for (const Colour& colour : style == Style::kGlyphs ? kGlyphColours : kShapeColours) {
    names.push_back(colour.name);
  }
  return names;
}

std::vector<std::string_view> ThingNames(Style style) {
  if (style == Style::kGlyphs) return {kGlyphNouns.begin(), kGlyphNouns.end()};
  return {kShapeNouns.begin(), kShapeNouns.end()};
}

std::string NameOf(Style style, const Thing& thing) {
  const auto& colours = style == Style::kGlyphs ? kGlyphColours : kShapeColours;
  const auto noun = static_cast<size_t>(thing.noun);
  return StrCat(colours[static_cast<size_t>(thing.colour)].name, " ",
                style == Style::kGlyphs ? kGlyphNouns[noun] : kShapeNouns[noun]);
}

bool IsHeldOut(const Thing& thing) { return (7 * thing.colour + thing.noun) % 5 == 0; }

Background DrawBackground(Rng& rng, bool any) {
  Background ground;
  if (any) ground.ground = static_cast<Ground>(Between(rng, 0, kGrounds - 1));
  for (int& grey : ground.greys) grey = static_cast<int>(Between(rng, 90, 150));
  for (int& tint : ground.tint) tint = static_cast<int>(Between(rng, -10, 10));
  if (ground.ground == Ground::kRamp || ground.ground == Ground::kPlain) return ground;
  ground.period = static_cast<int>(Between(rng, 3, 2 * kEighths));
  ground.direction = static_cast<int>(Between(rng, 0, 2));
  for (auto& disc : ground.discs) {
    disc[0] = static_cast<int>(Between(rng, 0, kGrid * kEighths - 1));
    disc[1] = static_cast<int>(Between(rng, 0, kGrid * kEighths - 1));
    disc[2] = static_cast<int>(Between(rng, kEighths, 3 * kEighths));
  }
  return ground;
}

std::vector<Item> ThingAndNumber(Rng& rng, Style style, const Thing& thing, std::string_view number,
                                 int row) {
  const int digits = static_cast<int>(number.size()), units = ThingUnits(style) + digits;
  const int column = static_cast<int>(Between(rng, 0, kGrid - units));
  const int down = static_cast<int>(Between(rng, 0, 1));
  std::vector<Item> items = {ThingAt(rng, style, thing, row, column, down)};
  for (int i = 0; i < digits; ++i) {
    Item item;
    item.digit = number[static_cast<size_t>(i)] - '0';
    item.row = row;
    item.column = column + ThingUnits(style) + i;
    item.down = down;
    item.right = static_cast<int>(Between(rng, 1, 2));
    item.ink.fill(Between(rng, 0, 1) == 0 ? 10 : 245);
    items.push_back(item);
  }
  return items;
}

std::vector<Item> ThingAndThing(Rng& rng, Style style, const Thing& left, const Thing& right,
                                int row) {
  const int units = ThingUnits(style);
  const int column = static_cast<int>(Between(rng, 0, kGrid - 2 * units));
  const int down = static_cast<int>(Between(rng, 0, 1));
  return {ThingAt(rng, style, left, row, column, down),
          ThingAt(rng, style, right, row, column + units, down)};
}

Image Render(const Scene& scene) {
  Image image = Image::OfSize(scene.side, scene.side);
  for (int y = 0; y < scene.side; ++y) {
    uint8_t* row = image.Row(y);
    for (int x = 0; x < scene.side; ++x) {
      const int grey = GreyAt(scene, x, y);
      for (int c = 0; c < 3; ++c) {
        row[3 * x + c] =
            static_cast<uint8_t>(Tinted(grey, scene.background.tint[static_cast<size_t>(c)]));
      }
    }
  }
  for (const Item& item : scene.items) PaintItem(image, scene, item);
  // Four bytes of a draw sum up to nearly a normal value of deviation 147.8; here it is 6.
  const Rng noise(scene.noise_seed, scene.noise_stream);
  for (size_t i = 0; i < image.rgb.size(); i += 4) {
    const std::array<uint32_t, 4> words = noise.At(i / 4);
    for (size_t j = 0; j < 4 && i + j < image.rgb.size(); ++j) {
      const uint32_t word = words[j];
      const int sum =
          static_cast<int>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24));
      // 12 / 296 of it, rounded to the nearest.
      const int scaled = ((sum - 510) * 12 + 148 + 296 * 64) / 296 - 64;
      image.rgb[i + j] = static_cast<uint8_t>(Tinted(image.rgb[i + j], scaled));
    }
  }
  return image;
}

std::vector<std::string> WordsOf(const Scene& scene) {
  std::vector<std::string> words(static_cast<size_t>(kGrid * kGrid));
  for (const Item& item : scene.items) {
    const auto at = static_cast<size_t>(item.row) * kGrid + static_cast<size_t>(item.column);
    if (item.digit >= 0) {
      words[at] = std::to_string(item.digit);
    } else if (scene.style == Style::kShapes) {
      words[at] = NameOf(scene.style, item.thing);
    } else {
      words[at] = kGlyphColours[static_cast<size_t>(item.thing.colour)].name;
      words[at + 1] = kGlyphNouns[static_cast<size_t>(item.thing.noun)];
    }
  }
  return words;
}

}  // namespace kvgauge::visual
