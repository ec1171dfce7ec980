// SPDX-License-Identifier: Apache-2.0
#include "reports/report.h"

#include "core/strings.h"
#include "src/report/sections.h"

namespace kvgauge {
namespace {

using report::Html;
using report::PageLink;

// Layers of a few samples tell what a method does; those of a hundred thousand take seconds.
constexpr int64_t kLayerRows = 400000;

class Page {
 public:
  void Add(const char* id, const char* link, const char* title, const Html& content) {
    if (content.empty()) return;
    links_.push_back({id, link});
    body_.Put("<section id=\"{}\" aria-labelledby=\"{}-h\"><h2 id=\"{}-h\">{}</h2>\n{}</section>\n",
              {id, id, id, title, content});
  }
  Html& body() { return body_; }
  const std::vector<PageLink>& links() const { return links_; }

 private:
  std::vector<PageLink> links_;
  Html body_;
};

}  // namespace

Result<std::string> RenderReport(ResultStore& store, const ReportOptions& options) {
  report::Queries queries(store);
  KVG_ASSIGN(const report::PageData data, report::GatherPage(store, options.leaderboard));
  KVG_ASSIGN(const std::vector<report::GridCount> grid, queries.Grid());
  report::AnatomyInput anatomy;
  KVG_ASSIGN(anatomy.bytes, queries.Bytes());
  KVG_ASSIGN(anatomy.heads, queries.Heads(kLayerRows, anatomy.samples));
  KVG_ASSIGN(anatomy.depths, queries.Depths(anatomy.samples));
  KVG_ASSIGN(const Html samples, report::SamplesSection(data, queries, options));

  Html leaderboard, pareto, curves, needle, splits, ablation, inside, scaling;
  for (const report::Board& board : data.boards) {
    leaderboard.Put(report::LeaderboardSection(board, data));
    pareto.Put(report::ParetoSection(board));
    curves.Put(report::CurvesSection(board));
    needle.Put(report::NeedleSection(board, data, grid));
    splits.Put(report::SplitsSection(board, data));
    ablation.Put(report::AblationSection(board));
    inside.Put(report::AnatomySection(board, data, anatomy));
    scaling.Put(report::ScalingSection(board));
  }
  Page page;
  page.body().Put(report::HeadSection(data, options));
  page.Add("leaderboard", "Leaderboard", "Leaderboard", leaderboard);
  page.Add("pareto", "Fronts", "Score against size and speed", pareto);
  page.Add("curves", "Curves", "Score over budgets", curves);
  page.Add("needle", "Needles", "Needles by depth and length", needle);
  page.Add("parts", "Parts", "Parts of the data", splits);
  page.Add("ablation", "Sweeps", "Sweeps", ablation);
  page.Add("anatomy", "Anatomy", "Inside the methods", inside);
  page.Add("scaling", "Scaling", "Scaling with the context", scaling);
  page.Add("samples", "Samples", "Samples", samples);
  page.Add("reproduce", "Reproduce", "Reproduce", report::ReproduceSection(data, store.path()));
  std::string title = options.title;
  if (title.empty()) {
    title = data.boards.empty() ? "kvgauge report" : StrCat("kvgauge: ", data.boards.front().model);
  }
  return report::WrapPage(title, page.links(), page.body());
}

}  // namespace kvgauge
