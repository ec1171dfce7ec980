// SPDX-License-Identifier: Apache-2.0
// Budgets by modality: what rows hold of text, pictures and videos, and in which layers.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/strings.h"
#include "src/chart/heat_map.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

struct Held {
  double before = 0, after = 0;
  double attention = 0, attention_kept = 0;  // sums over samples and layers

  double Share() const { return before > 0 ? after / before : 0; }
};
struct RowHeld {
  std::map<std::string, Held> of;                           // modality
  std::map<int64_t, std::map<std::string, Held>> of_layer;  // layer, modality
  double after = 0;
};

void AddSum(const ModalitySum& sum, Held& held) {
  const auto samples = static_cast<double>(sum.samples);
  held.before += static_cast<double>(sum.entries_before);
  held.after += static_cast<double>(sum.entries_after);
  held.attention += samples * sum.attention;
  held.attention_kept += samples * sum.attention_kept;
}

HeatCell ShareCell(double share) {
  return {.value = std::clamp(share, 0.0, 1.0), .text = Format(share, Unit::kPercent)};
}

// "pictures" for image.
std::string NameOfModality(const std::string& modality) {
  return modality == "image" ? "pictures" : modality == "video" ? "videos" : modality;
}

using HeldRows = std::vector<std::pair<const BoardRow*, const RowHeld*>>;

struct ShareColumn {
  std::string title;
  std::function<std::optional<double>(const RowHeld&)> value;
};

// One map for every so many rows, under one caption.
Html ShareMaps(const HeldRows& rows, const std::vector<ShareColumn>& columns,
               const std::string& title, const std::string& note, const std::string& column_title,
               double cell_width) {
  Html html;
  const size_t maps = (rows.size() + kMapRows - 1) / kMapRows;
  for (size_t m = 0; m < maps; ++m) {
    HeatMap map;
    map.scale = HeatScale::kAmount;
    map.label = StrCat(title, maps > 1 ? StrCat(", part ", m + 1) : "");
    map.description = note;
    map.column_title = column_title;
    map.cell_width = cell_width;
    map.cell_height = 18;
    for (const ShareColumn& column : columns) map.columns.push_back(column.title);
    const size_t end = std::min(rows.size(), (m + 1) * kMapRows);
    for (size_t r = m * kMapRows; r < end; ++r) {
      map.rows.push_back(rows[r].first->ShortName());
      auto& cells = map.cells.emplace_back();
      for (const ShareColumn& column : columns) {
        const std::optional<double> share = column.value(*rows[r].second);
        if (share) {
          cells.push_back(ShareCell(*share));
        } else {
          cells.emplace_back();
        }
      }
    }
    html.Put(R"(<figure><figcaption><b>{}</b> <span class="soft">{}</span></figcaption>)"
             R"(<div class="scroll">{}</div></figure>)"
             "\n",
             {map.label, note, Render(map)});
  }
  return html;
}

std::optional<double> ShareOf(const std::map<std::string, Held>& of, const std::string& modality) {
  const auto found = of.find(modality);
  if (found == of.end() || found->second.before == 0) return std::nullopt;
  return found->second.Share();
}

Html ShareOverview(const HeldRows& rows, const std::set<std::string>& modalities) {
  std::vector<ShareColumn> columns;
  for (const std::string& modality : modalities) {
    columns.push_back({StrCat("of ", NameOfModality(modality)),
                       [modality](const RowHeld& row) { return ShareOf(row.of, modality); }});
  }
  Html html = ShareMaps(rows, columns, "Entries held", "of each kind, all layers together", "", 84);
  columns.clear();
  for (const std::string& modality : modalities) {
    columns.push_back({NameOfModality(modality), [modality](const RowHeld& row) {
                         const auto found = row.of.find(modality);
                         if (found == row.of.end() || row.after == 0)
                           return std::optional<double>();
                         return std::optional(found->second.after / row.after);
                       }});
  }
  html.Put(ShareMaps(rows, columns, "Where the budget goes", "each kind's part of what is held", "",
                     84));
  columns.clear();
  for (const std::string& modality : modalities) {
    columns.push_back({StrCat("of ", NameOfModality(modality)), [modality](const RowHeld& row) {
                         const auto found = row.of.find(modality);
                         if (found == row.of.end() || found->second.attention <= 0) {
                           return std::optional<double>();
                         }
                         return std::optional(found->second.attention_kept /
                                              found->second.attention);
                       }});
  }
  return html.Put(ShareMaps(rows, columns, "Attention kept",
                            "of the last row of the prompt, in the whole cache", "", 84));
}

Html ShareLayers(const HeldRows& rows, const std::set<std::string>& modalities) {
  std::set<int64_t> layers;
  for (const auto& [row, held] : rows) {
    for (const auto& entry : held->of_layer) layers.insert(entry.first);
  }
  Html html;
  if (layers.size() < 2) return html;
  for (const std::string& modality : modalities) {
    if (modality == "text") continue;
    std::vector<ShareColumn> columns;
    for (const int64_t layer : layers) {
      columns.push_back({StrCat(layer), [modality, layer](const RowHeld& row) {
                           const auto found = row.of_layer.find(layer);
                           return found == row.of_layer.end() ? std::optional<double>()
                                                              : ShareOf(found->second, modality);
                         }});
    }
    html.Put(ShareMaps(rows, columns,
                       StrCat("Entries of ", NameOfModality(modality), " held, by layer"), "",
                       "layer", 46));
  }
  return html;
}

}  // namespace

Html ModalitySection(const Board& board, const PageData& data,
                     const std::vector<ModalitySum>& sums) {
  const auto index = static_cast<size_t>(&board - data.boards.data());
  std::map<size_t, RowHeld> held;
  std::set<std::string> modalities;
  for (const ModalitySum& sum : sums) {
    const auto place = data.row_of_cell.find(sum.cell);
    if (place == data.row_of_cell.end() || place->second.first != index) continue;
    if (board.InSweep(board.rows[place->second.second].method)) continue;
    RowHeld& row = held[place->second.second];
    AddSum(sum, row.of[sum.modality]);
    AddSum(sum, row.of_layer[sum.layer][sum.modality]);
    row.after += static_cast<double>(sum.entries_after);
    modalities.insert(sum.modality);
  }
  Html html;
  if (held.empty()) return html;
  HeldRows rows;
  for (const auto& [row, of] : held) rows.emplace_back(&board.rows[row], &of);
  if (!board.alone) html.Put("<h3>{}</h3>", {board.Title()});
  html.Put(
      R"(<p class="lead">A budget is of all entries; these are the ones that rows spend it on, over )"
      "all samples that show pictures. Rows of pictures that a method took out before the text "
      "model read them count as given up. {}</p>\n",
      {HeatLegend(HeatScale::kAmount, "nothing", "everything")});
  return html.Put(R"(<div class="figures three">{}</div><div class="figures">{}</div>)"
                  "\n",
                  {ShareOverview(rows, modalities), ShareLayers(rows, modalities)});
}

}  // namespace kvgauge::report
