// SPDX-License-Identifier: Apache-2.0
// What a method did to the cache: entries by layer and head, places that were kept, bytes, times,
// and what it cost in fidelity by layer.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/strings.h"
#include "src/chart/bars.h"
#include "src/chart/heat_map.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"
#include "src/token_bytes.h"

namespace kvgauge::report {
namespace {

// Means of several cells, each cell counting alike.
struct Mean {
  double sum = 0;
  int64_t count = 0;
  void Add(const std::optional<double>& value) {
    if (!value) return;
    sum += *value;
    ++count;
  }
  std::optional<double> Get() const {
    if (count == 0) return std::nullopt;
    return sum / static_cast<double>(count);
  }
};

struct Anatomy {
  std::map<std::pair<int64_t, int64_t>, Mean> kept;  // layer, head
  std::map<int64_t, Mean> error, answer_kept;        // layer
  std::map<int64_t, std::vector<Mean>> depths;       // layer
  std::vector<Mean> bytes;                           // by kind, a token
  Mean full_bytes;
};

constexpr double kAnatomyWidth = 420;  // of a figure: three stand beside each other

struct Method {
  std::string name, title, family;
  std::vector<size_t> rows;  // by budget
};

class Section {
 public:
  Section(const Board& board, const PageData& data, const AnatomyInput& input)
      : board_(board), parts_(board.rows.size()), samples_(input.samples) {
    const auto index = static_cast<size_t>(&board - data.boards.data());
    const auto part_of = [&](int64_t cell) -> Anatomy* {
      const auto place = data.row_of_cell.find(cell);
      if (place == data.row_of_cell.end() || place->second.first != index) return nullptr;
      return &parts_[place->second.second];
    };
    for (const HeadMean& mean : input.heads) {
      Anatomy* part = part_of(mean.cell);
      if (part == nullptr) continue;
      if (mean.head >= 0) part->kept[{mean.layer, mean.head}].Add(mean.kept);
      if (mean.head < 0) part->answer_kept[mean.layer].Add(mean.answer_kept);
      part->error[mean.layer].Add(mean.attention_error);
    }
    for (const DepthMean& mean : input.depths) {
      Anatomy* part = part_of(mean.cell);
      if (part == nullptr) continue;
      std::vector<Mean>& depths = part->depths[mean.layer];
      depths.resize(std::max(depths.size(), mean.kept.size()));
      for (size_t i = 0; i < mean.kept.size(); ++i) depths[i].Add(mean.kept[i]);
    }
    const double full_token_bytes = FullTokenBytes(board.model_facts);
    for (const BytesByKind& bytes : input.bytes) {
      Anatomy* part = part_of(bytes.cell);
      const double tokens = HeldTokens(bytes.full_bytes, full_token_bytes, bytes.tokens_in);
      if (part == nullptr || tokens <= 0) continue;
      part->bytes.resize(BytesByKind::kKinds);
      for (size_t k = 0; k < part->bytes.size(); ++k) part->bytes[k].Add(bytes.parts[k] / tokens);
      part->full_bytes.Add(bytes.full_bytes / tokens);
    }
    for (size_t r = 0; r < board.rows.size(); ++r) {
      const BoardRow& row = board.rows[r];
      if (board.InSweep(row.method)) continue;
      auto found = std::find_if(methods_.begin(), methods_.end(),
                                [&](const Method& m) { return m.name == row.method.name; });
      if (found == methods_.end()) {
        methods_.push_back({row.method.name, row.method.title, row.method.family, {}});
        found = methods_.end() - 1;
      }
      found->rows.push_back(r);
    }
    std::stable_partition(methods_.begin(), methods_.end(), [&](const Method& m) {
      return board.rows[m.rows.front()].method.full_cache;
    });
    for (Method& method : methods_) {
      std::sort(method.rows.begin(), method.rows.end(), [&](size_t a, size_t b) {
        return board.rows[a].budget_value < board.rows[b].budget_value;
      });
    }
  }

  Html Render() {
    Html html;
    bool first = true;
    for (const Method& method : methods_) {
      const bool full = board_.rows[method.rows.front()].method.full_cache;
      Html body;
      if (!full) {
        Maps(body, method);
        Errors(body, method);
      }
      Bytes(body, method);
      Times(body, method);
      if (body.empty()) continue;
      // The first one that drops something: the others' maps are all of one colour.
      const bool open = first && !full && !KeepsAll(method);
      if (open) first = false;
      Html summary;
      summary.Put(R"({} <span class="soft">{}</span>)", {method.name, method.title});
      html.Put(Folded(summary, Html().Put(R"(<div class="parts">{}</div>)", {body}), method.family,
                      open));
    }
    if (html.empty()) return html;
    Html section;
    if (!board_.alone) section.Put("<h3>{}</h3>", {board_.Title()});
    section.Put(
        R"(<p class="lead">Means over all tasks; by layer and head over the first {} of each )"
        "cell.{} "
        "{}</p>{}",
        {Plural(samples_, "sample", "samples"), board_.OnlySwept(),
         HeatLegend(HeatScale::kAmount, "nothing kept", "everything"), html});
    return section;
  }

 private:
  std::string BudgetName(size_t row) const {
    return board_.rows[row].budget_kind == "none" ? "all entries" : board_.rows[row].budget;
  }

  bool KeepsAll(const Method& method) const {
    bool any = false;
    for (const size_t r : method.rows) {
      for (const auto& entry : parts_[r].kept) {
        const auto value = entry.second.Get();
        any = any || value;
        if (value && *value < 1) return false;
      }
    }
    return any;
  }

  void Maps(Html& body, const Method& method) const {
    if (KeepsAll(method)) {
      body.Put(R"(<p class="soft part maps all">Every layer and head keeps all entries.</p>)");
      return;
    }
    Html heads, depths;
    bool few = true;  // so narrow that they leave room beside them
    for (const size_t r : method.rows) {
      for (const auto& entry : parts_[r].kept) few = few && entry.first.second < 4;
      HeadMap(heads, method, r);
      DepthMap(depths, method, r);
    }
    if (!heads.empty()) {
      body.Put(
          R"(<div class="part maps{}"><h3 class="sub">Entries kept, in %, by layer and head</h3>)"
          R"(<div class="figures tight">{}</div></div>)",
          {few ? Markup(" few") : Markup(""), heads});
    }
    if (!depths.empty()) {
      body.Put(R"(<div class="part maps"><h3 class="sub">Places kept, by layer and depth of the )"
               R"(context</h3><div class="figures tight">{}</div></div>)",
               {depths});
    }
  }

  // How large a cell may be so that maps of large models stay beside each other.
  static double CellSize(int64_t count, double width) {
    return std::clamp(std::floor(width / static_cast<double>(std::max<int64_t>(1, count))), 4.0,
                      22.0);
  }

  void HeadMap(Html& html, const Method& method, size_t r) const {
    const Anatomy& part = parts_[r];
    int64_t layers = 0, heads = 0;
    double low = 1e300, high = 0;
    for (const auto& [place, mean] : part.kept) {
      const auto value = mean.Get();
      if (!value) continue;
      layers = std::max(layers, place.first + 1);
      heads = std::max(heads, place.second + 1);
      low = std::min(low, *value);
      high = std::max(high, *value);
    }
    if (layers == 0) return;
    HeatMap map;
    map.scale = HeatScale::kAmount;
    map.label =
        StrCat(method.name, " ", BudgetName(r), ": share of entries kept by layer and head");
    const std::string least = Format(low, Unit::kPercent), most = Format(high, Unit::kPercent);
    map.description = StrCat("From ", least, " to ", most, ".");
    map.row_title = "layer";
    map.column_title = "head";
    map.cell_width = heads <= 8 ? 30 : CellSize(heads, 200);
    map.cell_height = CellSize(layers, 260);
    for (int64_t head = 0; head < heads; ++head) map.columns.push_back(StrCat(head));
    for (int64_t layer = 0; layer < layers; ++layer) {
      map.rows.push_back(StrCat(layer));
      auto& cells = map.cells.emplace_back();
      for (int64_t head = 0; head < heads; ++head) {
        const auto found = part.kept.find({layer, head});
        const auto value = found != part.kept.end() ? found->second.Get() : std::nullopt;
        if (!value) {
          cells.emplace_back();
          continue;
        }
        HeatCell cell;
        cell.value = *value;
        if (map.cell_width >= 24 && map.cell_height >= 14)
          cell.text = StrCat(std::lround(100 * *value));
        cells.push_back(cell);
      }
    }
    html.Put(R"(<figure class="small"><figcaption><a href="#{}">{}</a> <span )"
             R"(class="soft">{}</span></figcaption>{}</figure>)",
             {board_.rows[r].id, BudgetName(r), least == most ? most : StrCat(least, " to ", most),
              kvgauge::report::Render(map)});
  }

  void DepthMap(Html& html, const Method& method, size_t r) const {
    const Anatomy& part = parts_[r];
    if (part.depths.empty()) return;
    HeatMap map;
    map.scale = HeatScale::kAmount;
    map.label =
        StrCat(method.name, " ", BudgetName(r), ": share of entries kept by layer and depth");
    map.row_title = "layer";
    map.column_title = "depth, beginning to end";
    map.cell_width = 7;
    map.cell_height = CellSize(static_cast<int64_t>(part.depths.size()), 180);
    double first = 0, last = 0, middle = 0;
    int64_t count = 0;
    for (const auto& [layer, depths] : part.depths) {
      map.rows.push_back(StrCat(layer));
      auto& cells = map.cells.emplace_back();
      for (const Mean& mean : depths) {
        const auto value = mean.Get();
        if (value) {
          HeatCell cell;
          cell.value = *value;
          cells.push_back(cell);
        } else {
          cells.emplace_back();
        }
      }
      first += depths.front().Get().value_or(0);
      middle += depths[depths.size() / 2].Get().value_or(0);
      last += depths.back().Get().value_or(0);
      ++count;
    }
    map.columns.assign(map.cells.front().size(), "");
    const auto layers = static_cast<double>(count);
    map.description = StrCat("Kept of the beginning ", Format(first / layers, Unit::kPercent),
                             ", of the middle ", Format(middle / layers, Unit::kPercent),
                             ", of the end ", Format(last / layers, Unit::kPercent), ".");
    html.Put(R"(<figure class="small"><figcaption>{}</figcaption>{}</figure>)",
             {BudgetName(r), kvgauge::report::Render(map)});
  }

  void Errors(Html& body, const Method& method) const {
    XyChart chart = {.label = StrCat(method.name, ": error of the attention output by layer"),
                     .description = "Relative to the full cache, on its own tokens.",
                     .x_title = "layer",
                     .y_title = "error of the attention output, relative",
                     .x = Axis::Linear(0, 1, Unit::kNumber),
                     .y = Axis::Linear(0, 1, Unit::kNumber),
                     .width = kAnatomyWidth,
                     .height = 200};
    double most = 0;
    int64_t layers = 1;
    for (const size_t r : method.rows) {
      XySeries series;
      series.family = method.family;
      series.name = BudgetName(r);
      for (const auto& [layer, mean] : parts_[r].error) {
        const auto value = mean.Get();
        if (!value) continue;
        most = std::max(most, *value);
        layers = std::max(layers, layer);
        series.points.push_back({.x = static_cast<double>(layer),
                                 .y = *value,
                                 .tip = StrCat(BudgetName(r), ", layer ", layer, ": ",
                                               Format(*value, Unit::kDecimals))});
      }
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    Html kl;
    for (const size_t r : method.rows) {
      const RowMeans& means = board_.rows[r].means;
      if (!means.kl_divergence) continue;
      kl.Put(R"(<tr><th scope="row">{}</th><td class="n">{}</td><td class="n">{}</td></tr>)",
             {BudgetName(r), Format(means.kl_divergence, Unit::kDecimals),
              Format(means.top1_agreement, Unit::kPercent)});
    }
    if (chart.series.empty() && kl.empty()) return;
    body.Put(R"(<div class="part"><h3 class="sub">Fidelity</h3><div class="figures">)");
    if (!chart.series.empty()) {
      chart.x = Axis::Linear(0, static_cast<double>(layers), Unit::kWhole,
                             static_cast<int>(std::clamp<int64_t>(layers, 2, 8)));
      chart.y = Axis::Linear(0, most, Unit::kNumber, 4);
      body.Put(
          "<figure><figcaption>Error of the attention output by layer</figcaption><div "
          R"(class="scroll">{}</div></figure>)",
          {kvgauge::report::Render(chart)});
    }
    if (!kl.empty()) {
      body.Put(R"(<figure class="small"><figcaption>Next tokens against the full )"
               R"(cache</figcaption><table class="plain"><thead><tr>)"
               R"(<th scope="col">Budget</th><th scope="col" class="n">KL</th><th scope="col" )"
               R"(class="n">top-1 agreement</th></tr></thead>)"
               "<tbody>{}</tbody></table></figure>",
               {kl});
    }
    body.Put("</div></div>");
  }

  void Bytes(Html& body, const Method& method) const {
    StackedBars bars;
    bars.label = StrCat(method.name, ": bytes a token of context, by kind");
    bars.description = "After compression, means over samples.";
    bars.title = "bytes a token of context";
    bars.width = kAnatomyWidth;
    bars.kinds.assign(std::begin(BytesByKind::kNames), std::end(BytesByKind::kNames));
    Mean full;
    for (const size_t r : method.rows) {
      if (parts_[r].bytes.empty()) continue;
      StackedBars::Bar bar;
      bar.name = BudgetName(r);
      bar.family = method.family;
      double total = 0;
      for (const Mean& mean : parts_[r].bytes) {
        bar.parts.push_back(mean.Get().value_or(0));
        total += bar.parts.back();
      }
      bar.total = Format(total, Unit::kBytes);
      full.Add(parts_[r].full_bytes.Get());
      bars.bars.push_back(std::move(bar));
    }
    if (bars.bars.empty()) return;
    if (const auto value = full.Get(); value && *value > 0) {
      bars.rule = *value;
      bars.rule_label = StrCat("full cache ", Format(*value, Unit::kBytes));
    }
    body.Put(R"(<div class="part"><h3 class="sub">Bytes by kind</h3><figure><div )"
             R"(class="scroll">{}</div></figure></div>)",
             {kvgauge::report::Render(bars)});
  }

  // At the longest context: where the time of the whole went, and that of compression by itself.
  void Times(Html& body, const Method& method) const {
    StackedBars whole, compress;
    whole.unit = compress.unit = Unit::kSeconds;
    whole.kinds = {"prefill", "compress", "attend", "other decoding"};
    compress.kinds = {"score", "select", "compact", "quantise"};
    int64_t tokens = 0;
    for (const size_t r : method.rows) {
      if (board_.rows[r].times.empty()) continue;
      const RowTimes& times = board_.rows[r].times.back();
      const LatencySummary& last = times.summary;
      tokens = last.context_tokens;
      whole.bars.push_back(
          {BudgetName(r),
           method.family,
           {last.prefill_s, last.compress_s(), last.attend_s, last.other_s},
           StrCat(Format(last.prefill_s + last.compress_s() + last.attend_s + last.other_s,
                         Unit::kSeconds),
                  times.disturbed ? ", disturbed" : "")});
      // The full cache compresses nothing; what is measured of it is the clock.
      if (last.compress_s() <= 0 || board_.rows[r].method.full_cache) continue;
      compress.bars.push_back(
          {BudgetName(r),
           method.family,
           {last.score_s, last.select_s, last.compact_s, last.quantise_s},
           StrCat(
               Format(last.compress_s(), Unit::kSeconds), ", ",
               Format(last.prefill_s > 0 ? last.compress_s() / last.prefill_s : 0, Unit::kPercent),
               " of prefill")});
    }
    if (whole.bars.empty()) return;
    const std::string at =
        StrCat(" at ", Format(static_cast<double>(tokens), Unit::kTokens), " tokens");
    whole.label = StrCat(method.name, ": time by phase", at);
    compress.label = StrCat(method.name, ": time of compression by phase", at);
    whole.description = compress.description =
        "Means over repetitions measured alone, less disturbed ones.";
    whole.title = compress.title = "time";
    whole.width = compress.width = kAnatomyWidth;
    body.Put(R"(<div class="part"><h3 class="sub">Time by phase{}</h3><div )"
             R"(class="figures"><figure><figcaption>Prefill and decoding</figcaption>)"
             R"(<div class="scroll">{}</div></figure>)",
             {at, kvgauge::report::Render(whole)});
    if (!compress.bars.empty()) {
      body.Put(
          "<figure><figcaption>Compression alone</figcaption><div "
          R"(class="scroll">{}</div></figure>)",
          {kvgauge::report::Render(compress)});
    }
    body.Put("</div></div>");
  }

  const Board& board_;
  std::vector<Anatomy> parts_;
  std::vector<Method> methods_;
  int64_t samples_;
};

}  // namespace

Html AnatomySection(const Board& board, const PageData& data, const AnatomyInput& input) {
  return Section(board, data, input).Render();
}

}  // namespace kvgauge::report
