// SPDX-License-Identifier: Apache-2.0
// What a database holds of a paper's table, beside what the paper prints.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "reports/published.h"
#include "reports/store.h"
#include "src/papers/pack.h"

namespace kvgauge {

struct CompareTableOptions {
  double alpha = 0.05;
  double margin = 1;  // points of 100; of a perplexity per cent of what is printed
  std::string model;  // its name in the database; "": there is one
  // Why the two sides may not be held against each other, such as another model; then there are no
  // verdicts.
  std::string not_comparable;
};

// A number of ours and one of theirs.
struct PaperNumber {
  double theirs = 0;
  std::optional<Estimate> ours = {};
  PublishedComparison comparison = {};
};

struct PaperCell {
  size_t row = 0, column = 0;
  PaperNumber score = {};
  // Against the full cache of the same side; none in its own row, of perplexities, and where the
  // table has no full cache.
  std::optional<PaperNumber> change = {};
  int64_t samples = 0;
};

// Cells by column, then row, those without a published number left out.
Result<std::vector<PaperCell>> CompareTable(const PaperTable& table,
                                            std::span<ResultStore* const> stores,
                                            const CompareTableOptions& options);

Json ToJson(const PaperTable& table, const std::vector<PaperCell>& cells,
            const CompareTableOptions& options);
void PrintComparison(const PaperTable& table, const std::vector<PaperCell>& cells,
                     const CompareTableOptions& options);

}  // namespace kvgauge
