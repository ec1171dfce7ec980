// SPDX-License-Identifier: Apache-2.0
#include "reports/report.h"

#include "core/strings.h"
#include "src/report/board_tables.h"
#include "src/report/sections.h"

namespace kvgauge {
namespace {

using report::Html;
using report::PageLink;

// Layers of a few samples tell what a method does; those of a hundred thousand take seconds.
constexpr int64_t kLayerRows = 400000;

class Page {
 public:
  // `missing`: where there is no content, why, and what would make some.
  void Add(const char* id, const char* link, const char* title, const Html& content,
           report::Markup missing) {
    if (content.empty()) {
      missing_.Put("<div><dt>{}</dt><dd>{}</dd></div>", {title, missing});
      return;
    }
    links_.push_back({id, link});
    body_.Put(R"(<section id="{}" aria-labelledby="{}-h"><h2 id="{}-h">{}</h2>)"
              "\n"
              "{}</section>"
              "\n",
              {id, id, id, title, content});
  }
  void Lacks(const char* title, report::Markup why) {
    missing_.Put("<div><dt>{}</dt><dd>{}</dd></div>", {title, why});
  }
  Html& body() { return body_; }
  Html Missing() const {
    Html html;
    if (missing_.empty()) return html;
    return html.Put(R"(<dl class="facts lacks">{}</dl>)", {missing_});
  }
  const std::vector<PageLink>& links() const { return links_; }

 private:
  std::vector<PageLink> links_;
  Html body_, missing_;
};

bool HasFidelity(const report::PageData& data) {
  for (const report::Board& board : data.boards) {
    for (const report::BoardRow& row : board.rows) {
      if (row.means.kl_divergence) return true;
    }
  }
  return false;
}

}  // namespace

Result<std::string> RenderReport(ResultStore& store, const ReportOptions& options,
                                 ReportCounts* counts) {
  report::Queries queries(store);
  KVG_ASSIGN(const report::PageData data, report::GatherPage(store, options.leaderboard));
  KVG_ASSIGN(const std::vector<report::GridCount> grid, queries.Grid());
  report::AnatomyInput anatomy;
  KVG_ASSIGN(anatomy.bytes, queries.Bytes());
  KVG_ASSIGN(anatomy.heads, queries.Heads(kLayerRows, anatomy.samples));
  KVG_ASSIGN(anatomy.depths, queries.Depths(anatomy.samples));
  KVG_ASSIGN(const std::vector<report::ModalitySum> modality_sums, queries.Modalities());
  ReportCounts held;
  KVG_ASSIGN(const std::vector<report::SamplePair> pairs, queries.Pairs());
  KVG_ASSIGN(const Html samples, report::SamplesSection(pairs, data, queries, options, held));
  KVG_ASSIGN(const Html opening, report::OpeningSection(pairs, data, queries, options));
  if (counts != nullptr) *counts = held;

  KVG_ASSIGN(const std::vector<CapacityRow> measured, store.Capacities());
  const std::vector<CapacityBoard> capacities = SummariseCapacity(measured);
  KVG_ASSIGN(const std::vector<SpeculationRow> drafted, store.Speculations());
  const std::vector<SpeculationBoard> speculations = SummariseSpeculation(drafted);

  Html leaderboard, draws, pareto, curves, needle, modalities, splits, ablation, inside, scaling;
  for (const report::Board& board : data.boards) {
    leaderboard.Put(report::LeaderboardSection(board, data));
    draws.Put(report::DrawsSection(board, data));
    pareto.Put(report::ParetoSection(board));
    curves.Put(report::CurvesSection(board));
    needle.Put(report::NeedleSection(board, data, grid));
    modalities.Put(report::ModalitySection(board, data, modality_sums));
    splits.Put(report::SplitsSection(board, data));
    ablation.Put(report::AblationSection(board));
    inside.Put(report::AnatomySection(board, data, anatomy));
    scaling.Put(report::ScalingSection(board));
  }
  // Figures show what these hold; tables of the page are downloaded as they stand.
  const ReportTable tasks = report::TaskTable(data), needles = report::NeedleTable(data, grid),
                    bytes = report::BytesTable(data, anatomy.bytes),
                    times = report::TimesTable(data),
                    capacity_table = report::CapacityTable(capacities),
                    speculation_table = report::SpeculationTable(speculations);
  Html capacity = report::CapacitySection(data, capacities);
  Html speculation = report::SpeculationSection(data, speculations);
  const auto with = [](Html& section, const ReportTable& table) {
    if (!section.empty()) section.Put(report::DownloadButton(table));
  };
  with(curves, tasks);
  with(needle, needles);
  with(inside, bytes);
  with(scaling.empty() ? inside : scaling, times);
  with(capacity, capacity_table);
  with(speculation, speculation_table);
  Page page;
  page.body().Put(report::HeadSection(data, options));
  if (!opening.empty()) {
    page.Add("opening", "Example", "Two methods before the same pictures", opening, "");
  }
  page.Add("leaderboard", "Leaderboard", "Leaderboard", leaderboard, "Nothing was run.");
  if (!draws.empty()) page.Add("draws", "Draws", "Several answers to each prompt", draws, "");
  page.Add("pareto", "Fronts", "Score against size and speed", pareto,
           "A front needs two rows with scores and bytes: run <code>full</code> and a method.");
  page.Add("curves", "Curves", "Score over budgets", curves,
           R"(No method has scores and bytes: name some under <code>"methods"</code>, and )"
           R"(<code>"budgets": ["10%", "20%", "40%"]</code>.)");
  page.Add(
      "needle", "Needles", "Needles by depth and length", needle,
      "No task says at which depth and length its answer stands: <code>needle/single</code> and "
      "<code>reference/needle</code> do; <code>configs/runs/needle.json</code> runs a grid.");
  if (!modalities.empty()) {
    page.Add("modalities", "Pictures", "Text and pictures", modalities, "");
  }
  page.Add("parts", "Parts", "Parts of the data", splits,
           "No task reports scores by parts of its data: LongBench-E does.");
  page.Add("ablation", "Sweeps", "Sweeps", ablation,
           "No method was run with several settings: "
           R"(<code>{"method": "snapkv", "sweep": {"score.window": [8, 16, 32]}}</code> )"
           "among the methods does it; <code>configs/runs/ablation-*.json</code> are such runs.");
  page.Add("anatomy", "Anatomy", "Inside the methods", inside,
           "No layers, bytes or times were recorded.");
  page.Add("scaling", "Scaling", "Scaling with the context", scaling,
           "No method was timed alone at two lengths or more: "
           R"(<code>"latency": {"contexts": [1024, 4096]}</code> in the configuration does it )"
           "after the samples.");
  page.Add("capacity", "Capacity", "Capacity against score", capacity,
           "Nobody was served in a memory: <code>kvgauge bench capacity MODEL --max-memory 8GiB "
           "--db FILE</code> does it, and records it in the same file.");
  page.Add("speculation", "Speculation", "Speculative decoding", speculation,
           "No method drafted for the full cache: <code>kvgauge bench speculate MODEL --text FILE "
           "--db FILE</code> measures it, and records it in the same file.");
  page.Add("samples", "Samples", "Samples", samples,
           "No sample has a score of both a method and the full cache.");
  if (!HasFidelity(data)) {
    page.Lacks(
        "KL, top-1 agreement, attention error",
        R"(Not measured: <code>"fidelity_steps": 8</code> in the configuration adds a second )"
        "pass over the full cache's own tokens.");
  }
  if (const Html missing = page.Missing(); !data.cells.empty() && !missing.empty()) {
    page.Add("missing", "Missing", "Not in this report", missing, "");
  }
  page.Add("reproduce", "Reproduce", "Reproduce",
           report::ReproduceSection(data, store.path(), anatomy.samples), "Nothing was run.");
  page.body().Put(
      report::TablesData({tasks, needles, bytes, times, capacity_table, speculation_table}));
  std::string title = options.title;
  if (title.empty()) {
    title = data.boards.empty() ? "kvgauge report" : StrCat("kvgauge: ", data.boards.front().model);
  }
  return report::WrapPage(title, page.links(), page.body());
}

}  // namespace kvgauge
