// SPDX-License-Identifier: Apache-2.0
// The sections of the page, in its order. Each gives nothing where the store has nothing for it.
#pragma once

#include <vector>

#include "reports/capacity.h"
#include "reports/report.h"
#include "reports/speculation.h"
#include "src/html/html.h"
#include "src/report/board.h"
#include "src/report/queries.h"

namespace kvgauge::report {

// So many rows of a map stand on a sheet of paper.
inline constexpr size_t kMapRows = 40;

// What was run, where, and what came of it in a sentence.
Html HeadSection(const PageData& data, const ReportOptions& options);
// A sample with pictures that one row still answers and another at the same budget does not.
Result<Html> OpeningSection(const std::vector<SamplePair>& pairs, const PageData& data,
                            Queries& queries, const ReportOptions& options);
Html LeaderboardSection(const Board& board, const PageData& data);
Html ParetoSection(const Board& board);
Html CurvesSection(const Board& board);
Html NeedleSection(const Board& board, const PageData& data, const std::vector<GridCount>& grid);
// What of text, pictures and videos rows hold.
Html ModalitySection(const Board& board, const PageData& data,
                     const std::vector<ModalitySum>& sums);
// Several draws of each answer; nothing where answers are greedy.
Html DrawsSection(const Board& board, const PageData& data);
// Scores by facts of samples that tasks report by.
Html SplitsSection(const Board& board, const PageData& data);
Html AblationSection(const Board& board);

struct AnatomyInput {
  std::vector<BytesByKind> bytes;
  std::vector<HeadMean> heads;
  std::vector<DepthMean> depths;
  int64_t samples = 0;  // of each cell that heads and depths are means of
};
Html AnatomySection(const Board& board, const PageData& data, const AnatomyInput& input);
Html ScalingSection(const Board& board);
// What a memory holds and serves with each method, against scores.
Html CapacitySection(const PageData& data, const std::vector<CapacityBoard>& capacities);
// How fast the full cache is with each method's drafts.
Html SpeculationSection(const PageData& data, const std::vector<SpeculationBoard>& speculations);
Result<Html> SamplesSection(const std::vector<SamplePair>& pairs, const PageData& data,
                            Queries& queries, const ReportOptions& options, ReportCounts& counts);
// `layer_samples`: as AnatomyInput::samples.
Html ReproduceSection(const PageData& data, const std::string& path, int64_t layer_samples);

// "snapkv 10% (310 B held a token, 12.1% of full)", and leads to the row.
Html RowLink(const BoardRow& row);
// A run's facts as a definition list; the comparison shows two.
Html RunFacts(const std::vector<StoredRun>& runs);
// A JSON text on several lines, where it is one.
std::string Indented(const std::string& json);

// A front of the best score that a size, or a time, can buy: ascending x, scores never worse than
// before. Returns indices into `x`.
std::vector<size_t> ParetoFront(const std::vector<double>& x, const std::vector<double>& y);

// A block that is folded away or open at first. Scripts parse its body when it comes into view, so
// that a page of a hundred thousand nodes opens at once; without scripts it is there from the
// beginning. `family`: hidden with the others of that family; "": never.
Html Folded(const Html& summary, const Html& body, const std::string& family, bool open);

// The figures of a board: as they are of a small one; of a large one as the body of a fold that
// cannot be closed, for the same reason.
Html Figures(const Board& board, const Html& figures);

// The whole page around sections.
struct PageLink {
  std::string id, title;
};
std::string WrapPage(const std::string& title, const std::vector<PageLink>& links,
                     const Html& body);

}  // namespace kvgauge::report
