// SPDX-License-Identifier: Apache-2.0
#include "src/chart/xy_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "src/chart/palette.h"

namespace kvgauge::report {
namespace {

constexpr double kLabelGap = 13;

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool Overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Measures the widest of the fonts that the page asks for (DejaVu Sans): a label that fits there
// fits.
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
      left = std::max(left, TextWidth(FormatTick(tick, chart.y.unit()), kChartFont));
    }
    for (const XySeries& series : chart.series) {
      if (series.named && !series.points.empty()) {
        right = std::max(right, TextWidth(series.name, kChartFont) + 16);
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
    html_.Put(R"(<svg class="xy" viewBox="0 0 {} {}" role="{}" aria-label="{}">)"
              "<desc>{}</desc>",
              {Px{chart_.width}, Px{chart_.height}, links ? "group" : "img", chart_.label,
               chart_.description});
    Frame();
    if (chart_.band) Band(*chart_.band);
    for (const XyRule& rule : chart_.rules) Rule(rule);
    for (const XySeries& series : chart_.series) Line(series);
    for (const XySeries& series : chart_.series) Marks(series);
    for (const XyRule& rule : chart_.rules) RuleName(rule);
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
    html_.Put(R"(<text class="at" x="0" y="12">{}</text>)", {chart_.y_title});
    for (const double tick : chart_.y.ticks()) {
      const double y = Y(tick);
      html_.Put(R"(<path class="grid" d="M{} {}H{}"/><text class="tk e" x="{}" y="{}">{})"
                "</text>",
                {Px{left_}, Px{y}, Px{right_}, Px{left_ - 6}, Px{y + 3.8},
                 FormatTick(tick, chart_.y.unit())});
    }
    html_.Put(R"(<path class="axis" d="M{} {}H{})", {Px{left_}, Px{bottom_}, Px{right_}});
    for (const double tick : chart_.x.ticks()) html_.Put("M{} {}v4", {Px{X(tick)}, Px{bottom_}});
    html_.Put(R"("/>)");
    std::vector<double> ticks = chart_.x.ticks();
    std::sort(ticks.begin(), ticks.end(), [&](double a, double b) { return X(a) < X(b); });
    double last = -1e9;
    for (const double tick : ticks) {
      const std::string text = FormatTick(tick, chart_.x.unit());
      const double half = TextWidth(text, kChartFont) / 2;
      if (X(tick) - half < last + 6) continue;
      last = X(tick) + half;
      html_.Put(R"(<text class="tk m" x="{}" y="{}">{}</text>)",
                {Px{X(tick)}, Px{bottom_ + 16}, text});
    }
    html_.Put(R"(<text class="at m" x="{}" y="{}">{}</text>)",
              {Px{(left_ + right_) / 2}, Px{chart_.height - 5}, chart_.x_title});
  }

  void Band(const XyBand& band) {
    if (band.slices.empty()) return;
    html_.Put(R"(<path class="band" d=")");
    bool first = true;
    for (const XyBand::Slice& slice : band.slices) {
      html_.Put(first ? Markup("M{} {}") : Markup("L{} {}"), {Px{X(slice.x)}, Px{Y(slice.high)}});
      first = false;
    }
    for (auto slice = band.slices.rbegin(); slice != band.slices.rend(); ++slice) {
      html_.Put("L{} {}", {Px{X(slice->x)}, Px{Y(slice->low)}});
    }
    html_.Put(R"(z"/>)");
  }

  void Rule(const XyRule& rule) {
    const double y = Y(rule.y);
    html_.Put(R"(<path class="rule" d="M{} {}H{}"/>)", {Px{left_}, Px{y}, Px{right_}});
    crossed_.push_back({left_, y - 1, right_, y + 1});
  }

  // Above its line, where it covers least; below, where that is better.
  void RuleName(const XyRule& rule) {
    const double y = Y(rule.y), width = TextWidth(rule.label, kChartFont);
    Box best;
    size_t least = std::numeric_limits<size_t>::max();
    for (const double top : {y - 16, y + 3}) {
      if (top < 13 || top + 13 > bottom_) continue;
      for (double left = left_; left + width + 5 <= right_; left += 12) {
        const Box box = {left, top, left + 5 + width, top + 13};
        const size_t cost = 10 * Count(taken_, box) + Count(crossed_, box);
        if (cost >= least) continue;
        least = cost;
        best = box;
      }
    }
    if (least == std::numeric_limits<size_t>::max())
      best = {left_, y - 16, left_ + 5 + width, y - 3};
    html_.Put(R"(<text class="nm" x="{}" y="{}">{}</text>)",
              {Px{best.left + 3}, Px{best.top + 11}, rule.label});
    taken_.push_back(best);
  }

  static size_t Count(const std::vector<Box>& boxes, const Box& box) {
    return static_cast<size_t>(std::count_if(
        boxes.begin(), boxes.end(), [&](const Box& other) { return box.Overlaps(other); }));
  }

  void Line(const XySeries& series) {
    if (!series.line || series.points.size() < 2) return;
    html_.Put(
        R"(<path class="ln {}{}" data-f="{}" d=")",
        {FamilyClass(series.family),
         series.dashed                      ? Html().Put(" dash")
         : series.variety % kVarieties != 0 ? Html().Put(" d{}", {series.variety % kVarieties})
                                            : Html(),
         LookOf(series.family).family});
    for (size_t i = 0; i < series.points.size(); ++i) {
      const double x = X(series.points[i].x), y = Y(series.points[i].y);
      html_.Put(i == 0 ? Markup("M{} {}") : Markup("L{} {}"), {Px{x}, Px{y}});
      if (i > 0) Crossed(X(series.points[i - 1].x), Y(series.points[i - 1].y), x, y);
    }
    html_.Put(R"("/>)");
  }

  // What a name had better not lie on.
  void Crossed(double x0, double y0, double x1, double y1) {
    const double steps = std::max(1.0, std::ceil(std::hypot(x1 - x0, y1 - y0) / 6));
    for (double i = 0; i < steps; ++i) {
      const double ax = x0 + (x1 - x0) * i / steps, bx = x0 + (x1 - x0) * (i + 1) / steps;
      const double ay = y0 + (y1 - y0) * i / steps, by = y0 + (y1 - y0) * (i + 1) / steps;
      crossed_.push_back({std::min(ax, bx) - 0.5, std::min(ay, by) - 0.5, std::max(ax, bx) + 0.5,
                          std::max(ay, by) + 0.5});
    }
  }

  void Marks(const XySeries& series) {
    if (!series.marks) return;
    const Html family = FamilyClass(series.family);
    for (const XyPoint& point : series.points) {
      const double x = X(point.x), y = Y(point.y);
      const Markup open = point.open ? Markup(" open") : Markup("");
      const std::string_view name = LookOf(series.family).family;
      if (!point.target.empty()) {
        html_.Put(R"(<a class="pt {}{}" data-f="{}" href="#{}" aria-label="{}">)",
                  {family, open, name, point.target, point.tip});
      } else if (!point.tip.empty()) {
        html_.Put(R"(<g class="pt {}{}" data-f="{}" role="img" tabindex="0" aria-label="{}">)",
                  {family, open, name, point.tip});
      } else {
        html_.Put(R"(<g class="pt {}{}" data-f="{}">)", {family, open, name});
      }
      if (point.interval && std::isfinite(point.interval->low)) {
        html_.Put(R"(<path class="ci" d="M{} {}V{}"/>)",
                  {Px{x}, Px{Y(point.interval->low)}, Px{Y(point.interval->high)}});
        crossed_.push_back({x - 0.5, Y(point.interval->high), x + 0.5, Y(point.interval->low)});
      }
      if (point.x_interval && point.x_interval->high > point.x_interval->low) {
        html_.Put(R"(<path class="ci" d="M{} {}H{}"/>)",
                  {Px{X(point.x_interval->low)}, Px{y}, Px{X(point.x_interval->high)}});
        crossed_.push_back({X(point.x_interval->low), y - 0.5, X(point.x_interval->high), y + 0.5});
      }
      html_.Put(MarkAt(series.family, series.variety, x, y));
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
        html_.Put(R"(<path class="tie" d="M{} {}L{} {}"/>)",
                  {Px{x + 6}, Px{wanted[i]}, Px{right_ + 6}, Px{places[i]}});
      }
      html_.Put(R"(<text class="nm {}" data-f="{}" x="{}" y="{}">{}</text>)",
                {family, name, Px{right_ + 9}, Px{places[i] + 3.8},
                 Shortened(named[i]->name, kChartFont, chart_.width - right_ - 9)});
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

  // Where it covers no mark or name and is crossed by the fewest lines, near the point if possible;
  // tied to it where it is not. A point without such a place has no name.
  void PointLabel(const XySeries& series, const XyPoint& point) {
    const double x = X(point.x), y = Y(point.y), width = TextWidth(point.label, kChartFont);
    struct Place {
      double x = 0, base = 0, cost = 0;
      Box box;
    };
    std::optional<Place> best;
    const auto consider = [&](double left, double base, double cost) {
      const Box box = {left - 2, base - 10, left + width + 2, base + 3};
      if (box.left < left_ - 4 || box.right > chart_.width || box.top < top_ - 14 ||
          box.bottom > bottom_ + 2 || Count(taken_, box) > 0) {
        return;
      }
      cost += 8 * static_cast<double>(Count(crossed_, box));
      if (!best || cost < best->cost) best = Place{left, base, cost, box};
    };
    consider(x - width / 2, y - 10, 0);
    consider(x - width / 2, y + 19, 1);
    consider(x + 9, y + 4, 2);
    consider(x - 9 - width, y + 4, 3);
    for (const double distance : {8.0, 20.0, 34.0, 50.0}) {
      for (const double down : {-distance, distance + 8, 4.0}) {
        consider(x + distance, y + down, distance);
        consider(x - distance - width, y + down, distance);
        if (down != 4.0) consider(x - width / 2, y + down * 1.3, distance);
      }
    }
    if (!best) return;
    taken_.push_back(best->box);
    // From the mark to the nearest edge of a name that stands apart.
    const double to_x = std::clamp(x, best->x, best->x + width);
    const double to_y = std::clamp(y, best->base - 9, best->base + 2);
    if (std::hypot(to_x - x, to_y - y) > 15) {
      html_.Put(R"(<path class="tie" d="M{} {}L{} {}"/>)", {Px{x}, Px{y}, Px{to_x}, Px{to_y}});
    }
    html_.Put(R"(<text class="nm {}" data-f="{}" x="{}" y="{}">{}</text>)",
              {FamilyClass(series.family), LookOf(series.family).family, Px{best->x},
               Px{best->base}, point.label});
  }

  const XyChart& chart_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  std::vector<Box> taken_;    // by marks and names: nothing may cover them
  std::vector<Box> crossed_;  // by lines and bars
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

std::string Shortened(const std::string& text, double size, double width) {
  if (TextWidth(text, size) <= width) return text;
  std::vector<std::string> characters;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 || characters.empty()) {
      characters.emplace_back();
    }
    characters.back().push_back(c);
  }
  const size_t count = characters.size();
  for (size_t kept = count - 1; kept > 0; --kept) {
    std::string shorter;
    for (size_t i = 0; i < (kept + 1) / 2; ++i) shorter.append(characters[i]);
    shorter.append("…");
    for (size_t i = count - kept / 2; i < count; ++i) shorter.append(characters[i]);
    if (TextWidth(shorter, size) <= width) return shorter;
  }
  return "…";
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
