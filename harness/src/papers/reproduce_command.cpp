// SPDX-License-Identifier: Apache-2.0
#include "src/papers/reproduce_command.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/config.h"
#include "src/cli/print.h"
#include "src/model/shipped_files.h"
#include "src/papers/compare_table.h"
#include "src/papers/pack.h"
#include "src/papers/reproductions_page.h"
#include "src/results/open_stores.h"

namespace kvgauge {
namespace {

// What a model is made of, as far as a paper's name of it fixes that.
std::string DifferenceOf(const ModelConfig& ours, const ModelConfig& theirs) {
  const std::pair<const char*, std::pair<int64_t, int64_t>> facts[] = {
      {"layers", {std::ssize(ours.layers), std::ssize(theirs.layers)}},
      {"hidden size", {ours.hidden_size, theirs.hidden_size}},
      {"query heads", {ours.query_heads, theirs.query_heads}},
      {"KV heads", {ours.kv_heads, theirs.kv_heads}},
      {"head size", {ours.key_dim, theirs.key_dim}},
      {"vocabulary", {ours.vocab_size, theirs.vocab_size}}};
  for (const auto& [name, values] : facts) {
    if (values.first != values.second) {
      return StrCat(values.first, " ", name, ", expected ", values.second);
    }
  }
  return "";
}

Result<std::string> DifferenceOf(const std::string& model, const PaperTable& table) {
  KVG_ASSIGN(const std::string shape, FindConfigFile(StrCat("models/", table.shape, ".json")));
  KVG_ASSIGN(const ModelConfig theirs, ReadModelConfig(shape));
  KVG_ASSIGN(const ModelConfig ours, ReadModelConfig(FindShipped(model)));
  return DifferenceOf(ours, theirs);
}

// The table asked for: by number, else the first that the model fits, else the first.
Result<size_t> ChooseTable(const ReproduceOptions& options, const Paper& paper) {
  const auto count = static_cast<int64_t>(paper.tables.size());
  if (options.table < 0 || options.table > count) {
    return BadInput(StrCat("--table ", options.table, ": ", paper.id, " has ",
                           Counted(count, "table"), ", expected 1 to ", count));
  }
  if (options.table > 0) return static_cast<size_t>(options.table - 1);
  if (options.model.empty()) return size_t{0};
  for (size_t i = 0; i < paper.tables.size(); ++i) {
    KVG_ASSIGN(const std::string difference, DifferenceOf(options.model, paper.tables[i]));
    if (difference.empty()) return i;
  }
  return size_t{0};
}

void PrintHead(const Paper& paper, const PaperTable& table) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"paper", StrCat(paper.title, ", ", paper.paper)},
      {"table", table.page.empty() ? table.table : StrCat(table.table, ", page ", table.page)},
      {"read in", table.read},
      {"model", table.model},
      {"question", StrCat(table.question, " when the cache is compressed")},
      {"prompt", table.prompt == "chat" ? "the model's chat template" : "as the task has it"}};
  if (!table.details.empty()) facts.emplace_back("details", table.details);
  if (!paper.without_numbers.empty()) facts.emplace_back("no numbers", paper.without_numbers);
  PrintFacts(facts);
  for (const PaperRow& row : table.rows) {
    if (!row.note.empty()) Print(StrCat("note  ", row.label, ": ", row.note, "\n"));
  }
  Print("\n");
}

Json HeadJson(const Paper& paper, const PaperTable& table) {
  return {{"paper", paper.id},
          {"title", paper.title},
          {"source",
           {{"paper", paper.paper},
            {"table", table.table},
            {"page", table.page},
            {"read", table.read}}},
          {"model", table.model},
          {"protocol",
           {{"question", table.question}, {"prompt", table.prompt}, {"details", table.details}}}};
}

Status ComparePaper(const ReproduceOptions& options, const Paper& paper, const PaperTable& table,
                    const std::vector<std::string>& databases, const std::string& model_name,
                    const std::string& not_comparable) {
  KVG_ASSIGN(const OpenStores stores, OpenAllForReading(databases));
  const CompareTableOptions wanted = {.alpha = options.alpha,
                                      .margin = options.margin,
                                      .model = model_name,
                                      .not_comparable = not_comparable};
  KVG_ASSIGN(const std::vector<PaperCell> cells, CompareTable(table, stores.all, wanted));
  if (options.run.json) {
    Json json = HeadJson(paper, table);
    json["cells"] = ToJson(table, cells, wanted);
    if (!not_comparable.empty()) json["not_comparable"] = not_comparable;
    PrintJson(json);
    return {};
  }
  PrintComparison(table, cells, wanted);
  return {};
}

Status ListPapers(const ReproduceOptions& options) {
  KVG_ASSIGN(const std::vector<Paper> papers, ReadPapers());
  if (options.format == "markdown") {
    if (options.run.json) return BadInput("--json and --format markdown: give one of the two");
    Print(ReproductionsPage(papers));
    return {};
  }
  if (options.run.json) {
    Json list = Json::array();
    for (const Paper& paper : papers) {
      Json tables = Json::array();
      for (const PaperTable& table : paper.tables) tables.push_back(HeadJson(paper, table));
      list.push_back({{"id", paper.id},
                      {"title", paper.title},
                      {"paper", paper.paper},
                      {"without_numbers", paper.without_numbers},
                      {"tables", tables}});
    }
    PrintJson(list);
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  for (const Paper& paper : papers) {
    for (size_t i = 0; i < paper.tables.size(); ++i) {
      const PaperTable& table = paper.tables[i];
      rows.push_back(
          {i == 0 ? paper.id : "", StrCat(i + 1), table.table, table.model,
           Counted(std::ssize(table.columns), "column"),
           paper.without_numbers.empty() ? Counted(std::ssize(table.rows), "row") : "no numbers"});
    }
  }
  PrintTable({"paper", "no.", "table", "model", "columns", "rows"}, rows);
  return {};
}

}  // namespace

Result<int> RunReproduce(const ReproduceOptions& options) {
  if (options.paper.empty()) {
    KVG_TRY(ListPapers(options));
    return kExitOk;
  }
  if (options.format != "table") {
    return BadInput("--format markdown writes the page of all papers; leave out the paper");
  }
  KVG_ASSIGN(const Paper paper, ReadPaper(options.paper));
  KVG_ASSIGN(const size_t index, ChooseTable(options, paper));
  const PaperTable& table = paper.tables[index];
  if (!options.from.empty()) {
    if (!options.model.empty()) return BadInput("--from compares databases; leave out --model");
    if (!options.run.json) PrintHead(paper, table);
    KVG_TRY(ComparePaper(options, paper, table, options.from, options.model_name, ""));
    return kExitOk;
  }
  const bool random = options.weights != "file";
  std::string not_comparable;
  if (!options.model.empty()) {
    KVG_ASSIGN(const std::string difference, DifferenceOf(options.model, table));
    if (!difference.empty()) {
      not_comparable = StrCat(options.model, " is not ", table.model, ": ", difference);
    }
  }
  if (random) not_comparable = "the weights are random";
  const PaperRun as = {.model = options.model, .weights = options.weights, .dtype = options.dtype};
  KVG_ASSIGN(Json config, RunOfTable(paper, index, as));
  RunOptions run = options.run;
  run.config = paper.id + ".json";
  if (run.database.empty()) {
    run.database = StrCat("results/", config["name"].get<std::string>(), ".db");
  }
  run.prepared = std::make_shared<const Json>(std::move(config));
  if (run.dry_run) {
    if (!run.json) PrintHead(paper, table);
    KVG_TRY(RunPlanCommand(run));
    return kExitOk;
  }
  if (!run.json) {
    PrintHead(paper, table);
    KVG_TRY(RunPlanCommand(run));
    Print("\n");
  }
  // One object is printed, that of the comparison.
  RunOptions quiet = run;
  if (run.json) quiet.quiet = true;
  quiet.json = false;
  KVG_ASSIGN(const int code, ExecuteRunCommand(quiet));
  if (code != kExitOk) return code;
  KVG_TRY(
      ComparePaper(options, paper, table, {run.database}, ModelNameOf(table, as), not_comparable));
  return kExitOk;
}

}  // namespace kvgauge
