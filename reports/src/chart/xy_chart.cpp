// SPDX-License-Identifier: Apache-2.0
#include "src/chart/xy_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "src/chart/palette.h"

namespace kvgauge::report {
namespace {

constexpr double kFont = 11;
constexpr double kLabelGap = 13;

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool Overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Of the widest of the fonts that the page asks for (DejaVu Sans): a label that fits there fits.
double WidthOf(char c) {
  switch (c) {
    case 'i':
    case 'j':
    case 'l':
    case '\'':
      return 0.28;
    case ' ':
    case '.':
    case ',':
    case 'I':
      return 0.32;
    case 'f':
    case 'r':
    case 't':
    case '-':
    case ':':
    case ';':
    case '/':
    case '(':
    case ')':
      return 0.41;
    case '_':
    case 'c':
    case 's':
    case 'z':
      return 0.55;
    case 'm':
    case '%':
    case 'W':
    case 'M':
      return 0.97;
    case 'w':
    case '=':
    case '+':
    case '<':
    case '>':
      return 0.84;
    default:
      return c >= 'A' && c <= 'Z' ? 0.72 : 0.64;
  }
}

class Plot {
 public:
  explicit Plot(const XyChart& chart) : chart_(chart) {
    double left = 0, right = 12;
    for (const double tick : chart.y.ticks()) {
      left = std::max(left, TextWidth(FormatTick(tick, chart.y.unit()), kFont));
    }
    for (const XySeries& series : chart.series) {
      if (series.named && !series.points.empty()) {
        right = std::max(right, TextWidth(series.name, kFont) + 16);
      }
    }
    left_ = left + 10;
    right_ = chart.width - std::min(right, chart.width * 0.4);
    top_ = chart.rules.empty() ? 26 : 36;  // a rule at the top has its name above it
    bottom_ = chart.height - 38;
  }

  Html Render() {
    const bool links = std::any_of(chart_.series.begin(), chart_.series.end(), [](const auto& s) {
      return std::any_of(s.points.begin(), s.points.end(),
                         [](const XyPoint& point) { return !point.tip.empty(); });
    });
    html_.Put(
        "<svg class=\"xy\" viewBox=\"0 0 {} {}\" role=\"{}\" aria-label=\"{}\">"
        "<desc>{}</desc>",
        {Px{chart_.width}, Px{chart_.height}, links ? "group" : "img", chart_.label,
         chart_.description});
    Frame();
    if (chart_.band) Band(*chart_.band);
    for (const XyRule& rule : chart_.rules) Rule(rule);
    for (const XySeries& series : chart_.series) Line(series);
    for (const XySeries& series : chart_.series) Marks(series);
    Names();
    PointLabels();
    return html_.Put("</svg>");
  }

 private:
  double X(double value) const { return left_ + chart_.x.Place(value) * (right_ - left_); }
  double Y(double value) const {
    const double place = std::clamp(chart_.y.Place(value), -0.02, 1.02);
    return bottom_ - place * (bottom_ - top_);
  }

  void Frame() {
    html_.Put("<text class=\"at\" x=\"0\" y=\"12\">{}</text>", {chart_.y_title});
    for (const double tick : chart_.y.ticks()) {
      const double y = Y(tick);
      html_.Put(
          "<path class=\"grid\" d=\"M{} {}H{}\"/><text class=\"tk e\" x=\"{}\" y=\"{}\">{}"
          "</text>",
          {Px{left_}, Px{y}, Px{right_}, Px{left_ - 6}, Px{y + 3.8},
           FormatTick(tick, chart_.y.unit())});
    }
    html_.Put("<path class=\"axis\" d=\"M{} {}H{}", {Px{left_}, Px{bottom_}, Px{right_}});
    for (const double tick : chart_.x.ticks()) html_.Put("M{} {}v4", {Px{X(tick)}, Px{bottom_}});
    html_.Put("\"/>");
    std::vector<double> ticks = chart_.x.ticks();
    std::sort(ticks.begin(), ticks.end(), [&](double a, double b) { return X(a) < X(b); });
    double last = -1e9;
    for (const double tick : ticks) {
      const std::string text = FormatTick(tick, chart_.x.unit());
      const double half = TextWidth(text, kFont) / 2;
      if (X(tick) - half < last + 6) continue;
      last = X(tick) + half;
      html_.Put("<text class=\"tk m\" x=\"{}\" y=\"{}\">{}</text>",
                {Px{X(tick)}, Px{bottom_ + 16}, text});
    }
    html_.Put("<text class=\"at m\" x=\"{}\" y=\"{}\">{}</text>",
              {Px{(left_ + right_) / 2}, Px{chart_.height - 5}, chart_.x_title});
  }

  void Band(const XyBand& band) {
    if (band.slices.empty()) return;
    html_.Put("<path class=\"band\" d=\"");
    bool first = true;
    for (const XyBand::Slice& slice : band.slices) {
      html_.Put(first ? Markup("M{} {}") : Markup("L{} {}"), {Px{X(slice.x)}, Px{Y(slice.high)}});
      first = false;
    }
    for (auto slice = band.slices.rbegin(); slice != band.slices.rend(); ++slice) {
      html_.Put("L{} {}", {Px{X(slice->x)}, Px{Y(slice->low)}});
    }
    html_.Put("z\"/>");
  }

  void Rule(const XyRule& rule) {
    const double y = Y(rule.y);
    html_.Put("<path class=\"rule\" d=\"M{} {}H{}\"/>", {Px{left_}, Px{y}, Px{right_}});
    const double width = TextWidth(rule.label, kFont);
    html_.Put("<text class=\"nm\" x=\"{}\" y=\"{}\">{}</text>",
              {Px{left_ + 3}, Px{y - 5}, rule.label});
    taken_.push_back({left_, y - 16, left_ + 5 + width, y - 3});
  }

  void Line(const XySeries& series) {
    if (!series.line || series.points.size() < 2) return;
    html_.Put(
        "<path class=\"ln {}{}\" data-f=\"{}\" d=\"",
        {FamilyClass(series.family), series.dashed ? " dash" : "", LookOf(series.family).family});
    bool first = true;
    for (const XyPoint& point : series.points) {
      html_.Put(first ? Markup("M{} {}") : Markup("L{} {}"), {Px{X(point.x)}, Px{Y(point.y)}});
      first = false;
    }
    html_.Put("\"/>");
  }

  void Marks(const XySeries& series) {
    if (!series.marks) return;
    const Html family = FamilyClass(series.family);
    for (const XyPoint& point : series.points) {
      const double x = X(point.x), y = Y(point.y);
      const Markup open = point.open ? Markup(" open") : Markup("");
      const std::string_view name = LookOf(series.family).family;
      if (!point.target.empty()) {
        html_.Put("<a class=\"pt {}{}\" data-f=\"{}\" href=\"#{}\" aria-label=\"{}\">",
                  {family, open, name, point.target, point.tip});
      } else if (!point.tip.empty()) {
        html_.Put(
            "<g class=\"pt {}{}\" data-f=\"{}\" role=\"img\" tabindex=\"0\" aria-label=\"{}\">",
            {family, open, name, point.tip});
      } else {
        html_.Put("<g class=\"pt {}{}\" data-f=\"{}\">", {family, open, name});
      }
      if (point.interval && std::isfinite(point.interval->low)) {
        html_.Put("<path class=\"ci\" d=\"M{} {}V{}\"/>",
                  {Px{x}, Px{Y(point.interval->low)}, Px{Y(point.interval->high)}});
      }
      if (point.x_interval && point.x_interval->high > point.x_interval->low) {
        html_.Put("<path class=\"ci\" d=\"M{} {}H{}\"/>",
                  {Px{X(point.x_interval->low)}, Px{y}, Px{X(point.x_interval->high)}});
      }
      html_.Put("<use href=\"#m-{}\" x=\"{}\" y=\"{}\"/>", {name, Px{x}, Px{y}});
      html_.Put(point.target.empty() ? Markup("</g>") : Markup("</a>"));
      taken_.push_back({x - 5, y - 5, x + 5, y + 5});
    }
  }

  // Names at the ends of lines, moved apart, tied to their ends where they had to move.
  void Names() {
    std::vector<const XySeries*> named;
    std::vector<double> wanted;
    for (const XySeries& series : chart_.series) {
      if (!series.named || series.points.empty()) continue;
      if (Ends(series)) {
        named_here_.push_back(&series);
        continue;
      }
      named.push_back(&series);
      wanted.push_back(Y(series.points.back().y));
    }
    const std::vector<double> places = Spread(wanted, kLabelGap, top_ - 6, bottom_);
    for (size_t i = 0; i < named.size(); ++i) {
      const double x = X(named[i]->points.back().x);
      const Html family = FamilyClass(named[i]->family);
      const std::string_view name = LookOf(named[i]->family).family;
      if (std::abs(places[i] - wanted[i]) > 3 || right_ - x > 20) {
        html_.Put("<path class=\"tie\" d=\"M{} {}L{} {}\"/>",
                  {Px{x + 6}, Px{wanted[i]}, Px{right_ + 6}, Px{places[i]}});
      }
      html_.Put("<text class=\"nm {}\" data-f=\"{}\" x=\"{}\" y=\"{}\">{}</text>",
                {family, name, Px{right_ + 9}, Px{places[i] + 3.8}, named[i]->name});
    }
  }

  // Too far from the edge for a name there: a line to it would cross the others.
  bool Ends(const XySeries& series) const {
    return right_ - X(series.points.back().x) > 0.3 * (right_ - left_);
  }

  void PointLabels() {
    for (const XySeries* series : named_here_) {
      XyPoint last = series->points.back();
      last.label = series->name;
      PointLabel(*series, last);
    }
    for (const XySeries& series : chart_.series) {
      for (const XyPoint& point : series.points) {
        if (!point.label.empty()) PointLabel(series, point);
      }
    }
  }

  // Where it covers nothing, if there is such a place beside the point.
  void PointLabel(const XySeries& series, const XyPoint& point) {
    const double x = X(point.x), y = Y(point.y), width = TextWidth(point.label, kFont);
    struct Place {
      double dx, dy;
      Markup anchor;
      double left;
    };
    const Place places[] = {
        {0, -10, Markup("m"), -width / 2},
        {0, 19, Markup("m"), -width / 2},
        {9, 4, Markup("s"), 0},
        {-9, 4, Markup("e"), -width},
        {8, -9, Markup("s"), 0},
        {8, 17, Markup("s"), 0},
        {-8, -9, Markup("e"), -width},
        {-8, 17, Markup("e"), -width},
        {0, -24, Markup("m"), -width / 2},
        {0, 33, Markup("m"), -width / 2},
    };
    for (const Place& place : places) {
      const double left = x + place.dx + place.left, base = y + place.dy;
      const Box box = {left - 2, base - 10, left + width + 2, base + 3};
      if (box.left < left_ - 4 || box.right > chart_.width || box.top < top_ - 14 ||
          box.bottom > bottom_ + 2) {
        continue;
      }
      if (std::any_of(taken_.begin(), taken_.end(),
                      [&](const Box& other) { return box.Overlaps(other); })) {
        continue;
      }
      taken_.push_back(box);
      html_.Put("<text class=\"nm {} {}\" data-f=\"{}\" x=\"{}\" y=\"{}\">{}</text>",
                {place.anchor, FamilyClass(series.family), LookOf(series.family).family,
                 Px{x + place.dx}, Px{base}, point.label});
      return;
    }
  }

  const XyChart& chart_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  std::vector<Box> taken_;
  std::vector<const XySeries*> named_here_;
  Html html_;
};

}  // namespace

double TextWidth(const std::string& text, double size) {
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) continue;  // one width for a character of several bytes
    width += byte < 0x80 ? WidthOf(c) : 0.64;
  }
  return width * size;
}

std::vector<double> Spread(const std::vector<double>& wanted, double gap, double low, double high) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  if (wanted.size() > 1) {
    gap = std::min(gap, (high - low) / static_cast<double>(wanted.size() - 1));
  }
  // Blocks of touching labels, each centred on the mean of what its members want.
  struct Block {
    double sum = 0;  // of each member's wanted place, less its offset in the block
    double count = 0;
    double Start() const { return sum / count; }
  };
  std::vector<Block> blocks;
  const auto settled = [&](const Block& block) {
    return std::clamp(block.Start(), low, std::max(low, high - (block.count - 1) * gap));
  };
  for (const size_t i : order) {
    blocks.push_back({wanted[i], 1});
    while (blocks.size() > 1) {
      const Block& upper = blocks[blocks.size() - 2];
      const Block& lower = blocks.back();
      if (settled(upper) + upper.count * gap <= settled(lower)) break;
      const Block merged = {upper.sum + lower.sum - lower.count * upper.count * gap,
                            upper.count + lower.count};
      blocks.pop_back();
      blocks.back() = merged;
    }
  }
  std::vector<double> places(wanted.size());
  size_t next = 0;
  for (const Block& block : blocks) {
    for (int k = 0; k < static_cast<int>(block.count); ++k) {
      places[order[next++]] = settled(block) + k * gap;
    }
  }
  return places;
}

Html Render(const XyChart& chart) { return Plot(chart).Render(); }

}  // namespace kvgauge::report
