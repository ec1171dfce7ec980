// SPDX-License-Identifier: Apache-2.0
#include "src/papers/reproductions_page.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/markdown.h"
#include "src/cli/print.h"

namespace kvgauge {
namespace {

constexpr std::string_view kHead = R"(# Published tables, run again

<!-- Written by `kvgauge reproduce --format markdown`; scripts/approve renews it. -->

A pack repeats a table that a paper published: model, tasks, budgets, protocol and the printed
numbers, each with its table and the place where it was read. Packs are data, one file a paper in
`configs/papers/`; no number is in the code. `configs/methods/*.json` hold other claims of papers,
the times and sizes of their abstracts; scores are in packs alone.

    kvgauge reproduce                                   # all packs
    kvgauge reproduce snapkv --weights random:1 --dry-run   # what would run, without weights
    kvgauge reproduce snapkv --model DIR                # plan, run, compare; repeat to go on
    kvgauge reproduce snapkv --from results/reproduce-snapkv.db

The second command needs the data of the pack's tasks, which `scripts/fetch_data` gets. The third
one prints the plan with the time and memory on this machine, runs it as `kvgauge run` does (Ctrl-C
stops it, the same command continues, `--limit 20` takes the first 20 samples of each task), and
prints ours beside theirs. `--json` gives the same for programs.

- **agrees**: the 95% interval of our score lies within 1 point (`--margin`) of theirs.
- **differs**: theirs lies outside that interval by more than its rounding, and the p-value,
  corrected by Holm over all cells of the table, is below 0.05.
- **undecided**: too few samples to say either.

The printed number counts as a constant. The change against the full cache is compared in the same
way, and it is the better test: the two sides share what is peculiar to their prompts and weights,
and our interval is then that of paired differences. A perplexity's margin is in per cent. Where the
model is not the paper's, or its weights are random, there are no verdicts. Random weights of a
model without a tokenizer take that of `models/ref-gqa`, so lengths in such a plan are those of
another vocabulary.

Rows that a paper prints and kvgauge has no method for are not in the packs. A row's note says where
our method is known to depart from the paper's.

)";

std::string TableRow(const std::vector<std::string>& cells) {
  return StrCat("| ", Join(cells, " | "), " |\n");
}

std::string SourceText(const PaperTable& table) {
  return table.page.empty() ? table.table : StrCat(table.table, ", p. ", table.page);
}

// What a paper would name it by: windows and the like are its protocol.
std::string RunText(const PaperRow& row) {
  return row.budget.empty() ? row.method : StrCat(row.method, " ", row.budget);
}

void AddList(const std::vector<Paper>& papers, std::string& page) {
  size_t with_numbers = 0;
  for (const Paper& paper : papers) with_numbers += paper.without_numbers.empty() ? 1 : 0;
  page += StrCat("## The packs\n\n", papers.size(), " papers, ", with_numbers,
                 " of them with numbers.\n\n");
  page += TableRow({"pack", "paper", "table", "model", "columns", "rows", "question", "prompt"});
  page += TableRow({"---", "---", "---", "---", "---", "---", "---", "---"});
  for (const Paper& paper : papers) {
    for (size_t i = 0; i < paper.tables.size(); ++i) {
      const PaperTable& table = paper.tables[i];
      const std::string name =
          i == 0 ? MarkdownCode(paper.id) : StrCat(MarkdownCode(paper.id), " ", i + 1);
      page += TableRow({name, MarkdownPapers(paper.paper), EscapedMarkdown(SourceText(table)),
                        EscapedMarkdown(table.model), StrCat(table.columns.size()),
                        paper.without_numbers.empty() ? StrCat(table.rows.size()) : "no numbers",
                        table.question, table.prompt});
    }
  }
  page += "\n";
}

void AddDetails(const std::vector<Paper>& papers, std::string& page) {
  page += "## Protocols, and where the numbers were read\n\n";
  for (const Paper& paper : papers) {
    page += StrCat("### ", EscapedMarkdown(paper.title), "\n\n");
    if (!paper.without_numbers.empty()) {
      page += StrCat(MarkdownItem("No numbers: " + EscapedMarkdown(paper.without_numbers)), "\n");
    }
    std::set<std::string> said;
    for (const PaperTable& table : paper.tables) {
      const std::string where = StrCat(SourceText(table), ", ", table.model, ": read in ",
                                       table.read, ". ", table.details);
      page += StrCat(MarkdownItem(EscapedMarkdown(where)), "\n");
      for (const PaperRow& row : table.rows) {
        if (row.note.empty() || !said.insert(row.note).second) continue;
        page += StrCat(MarkdownItem(EscapedMarkdown(StrCat(row.label, ": ", row.note))), "\n");
      }
    }
    page += "\n";
  }
}

// Numbers of the same model, task, method and budget, by the papers that print them.
void AddDisagreements(const std::vector<Paper>& papers, std::string& page) {
  using Cell = std::tuple<std::string, std::string, std::string>;  // checkpoint, column, run
  std::map<Cell, std::vector<std::pair<std::string, double>>> cells;
  for (const Paper& paper : papers) {
    for (const PaperTable& table : paper.tables) {
      if (table.checkpoint.empty()) continue;
      for (size_t c = 0; c < table.columns.size(); ++c) {
        if (table.columns[c].tasks.size() != 1 || !table.tasks[c].is_string()) continue;
        for (const PaperRow& row : table.rows) {
          if (!row.scores[c]) continue;
          cells[{table.checkpoint, table.columns[c].name, RunText(row)}].emplace_back(
              paper.id, *row.scores[c]);
        }
      }
    }
  }
  page +=
      "## Where papers disagree\n\n"
      "The same checkpoint, task, method and budget in different papers, widest first. Nothing "
      "here\n"
      "was run by us. Tables whose checkpoint is not certain are left out.\n\n";
  struct Line {
    double spread;
    std::vector<std::string> cells;
  };
  std::vector<Line> lines;
  size_t shared = 0;
  for (const auto& [cell, numbers] : cells) {
    std::set<std::string> by;
    for (const auto& [paper, number] : numbers) by.insert(paper);
    // A paper that prints a method twice, at other bits, does not disagree with itself.
    if (by.size() < 2 || by.size() < numbers.size()) continue;
    ++shared;
    const auto [low, high] =
        std::ranges::minmax_element(numbers, {}, &std::pair<std::string, double>::second);
    const double spread = high->second - low->second;
    if (spread <= 0) continue;
    std::vector<std::string> texts;
    for (const auto& [paper, number] : numbers)
      texts.push_back(StrCat(paper, " ", Fixed(number, 2)));
    lines.push_back({spread,
                     {std::get<0>(cell), std::get<1>(cell), std::get<2>(cell), Join(texts, ", "),
                      Fixed(spread, 2)}});
  }
  std::ranges::stable_sort(lines, std::greater(), &Line::spread);
  page += StrCat(shared, " cells stand in more than one paper; in ", lines.size(),
                 " of them the numbers differ.\n\n");
  page += TableRow({"checkpoint", "task", "row", "papers", "spread"});
  page += TableRow({"---", "---", "---", "---", "---:"});
  for (const Line& line : lines) page += TableRow(line.cells);
}

}  // namespace

std::string ReproductionsPage(const std::vector<Paper>& papers) {
  std::string page(kHead);
  AddList(papers, page);
  AddDetails(papers, page);
  AddDisagreements(papers, page);
  return page;
}

}  // namespace kvgauge
