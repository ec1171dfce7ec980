// SPDX-License-Identifier: Apache-2.0
#include "src/model/method_facts.h"

#include <string_view>

#include "core/strings.h"
#include "src/cli/markdown.h"
#include "src/cli/table.h"

namespace kvgauge {

// "score.snapkv"
std::string StageNames(const Method& method) {
  std::vector<std::string> names;
  for (const StageChoice* choice : method.stages()) names.push_back(NameOf(*choice->spec));
  return Join(names, " ");
}

std::vector<std::string> SignalNames(const Needs& needs) {
  std::vector<std::string> names;
  if (needs.window > 0) names.push_back(StrCat("attention of the last ", needs.window, " rows"));
  if (needs.question_rows > 0) {
    names.push_back(StrCat("attention of up to ", needs.question_rows, " rows behind pictures"));
  }
  for (const int64_t layer : needs.last_row_of) {
    names.push_back(StrCat("attention of the last row in layer ", layer));
  }
  if (needs.column_sums) names.emplace_back("column sums of attention");
  if (needs.column_squares) names.emplace_back("column sums of squared attention");
  for (const ChunkAttention& of : needs.chunk_sums) {
    names.push_back(StrCat("attention inside chunks of ", of.rows, " rows"));
  }
  if (!needs.query_moments.empty()) {
    names.emplace_back("mean and covariance of queries before rotation");
  }
  if (needs.inputs) names.emplace_back("inputs of layers");
  if (!needs.gates.empty()) names.emplace_back("inputs of layers, through a gate");
  if (!needs.step_gates.empty()) {
    names.emplace_back("rows that enter a layer in decode, through a gate");
  }
  if (needs.first_rows > 0) {
    names.push_back(StrCat("queries of the first ", needs.first_rows, " rows"));
  }
  if (needs.surprise) names.emplace_back("how little each token was expected");
  if (needs.raw_keys) names.emplace_back("keys before rotation");
  if (needs.output_weights) names.emplace_back("output projection");
  if (needs.step_window > 0) {
    names.push_back(StrCat("queries of the last ", needs.step_window, " rows in decode"));
  }
  if (needs.step_attention) names.emplace_back("attention of decode steps");
  if (needs.step_queries) names.emplace_back("queries of decode steps");
  if (needs.guessed_queries) {
    names.emplace_back("queries of decode steps, guessed from the input of the layer below");
  }
  if (needs.encoder) names.emplace_back("texts behind the prompt");
  if (needs.token_classes) names.emplace_back("classes of tokens");
  if (needs.modality) names.emplace_back("pictures and videos of entries");
  return names;
}

std::vector<std::string> AllDepartures(const Method& method) {
  std::vector<std::string> all = method.departures;
  for (const StageChoice* choice : method.stages()) {
    for (const std::string& text : choice->spec->departures) {
      all.push_back(StrCat(NameOf(*choice->spec), ": ", text));
    }
  }
  return all;
}

namespace {

struct FamilyHeading {
  std::string_view family, heading;
};

// In the order of the page.
constexpr FamilyHeading kFamilyHeadings[] = {
    {"baseline", "Baselines"},
    {"selection", "Selection: which entries stay"},
    {"budget", "Budgets: how many entries each layer and head keeps"},
    {"merging", "Merging: evicted entries live on in others"},
    {"quantization", "Quantization: fewer bits for each number"},
    {"low_rank", "Low rank: fewer numbers for each entry"},
    {"retrieval", "Retrieval: all entries stay, few are read"},
    {"reuse", "Reuse: caches of texts that were read before"},
    {"architecture", "Architecture: the model itself stores less"},
    {"prefill", "Prefill: rows of the prompt look at fewer entries, all of which stay"},
    {"composition", "Compositions of several methods"},
};

// The stages that a method has unless its file names others.
bool IsDefault(const StageChoice& choice) {
  const std::string name = NameOf(*choice.spec);
  return name == "allocate.uniform" || name == "store.plain" || name == "trigger.prefill";
}

std::string OwnStages(const Method& method) {
  std::vector<std::string> names;
  for (const StageChoice* choice : method.stages()) {
    if (!IsDefault(*choice)) names.push_back(MarkdownCode(NameOf(*choice->spec)));
  }
  return names.empty() ? "-" : Join(names, " ");
}

std::string BytesText(const Method& method) {
  std::vector<std::string> texts;
  if (method.takes_budget) texts.emplace_back("the budget");
  for (const StageChoice* choice : method.stages()) {
    if (!IsDefault(*choice) && !choice->spec->bytes.empty()) texts.push_back(choice->spec->bytes);
  }
  return texts.empty() ? "all entries, uncoded" : Join(texts, "; ");
}

TextTable FamilyTable(const std::vector<Method>& methods, std::string_view family) {
  TextTable table{.columns = {{"method"},
                              {"title"},
                              {"paper"},
                              {"stages"},
                              {"signals"},
                              {"bytes"},
                              {"proof"},
                              {"departures"}},
                  .rows = {}};
  for (const Method& method : methods) {
    if (method.family != family) continue;
    const size_t departures = AllDepartures(method).size();
    const std::vector<std::string> signals = SignalNames(method.needs());
    table.rows.push_back(
        {{MarkdownCode(method.id)},
         {EscapedMarkdown(method.title)},
         {MarkdownPapers(method.paper)},
         {OwnStages(method)},
         {signals.empty() ? "-" : Join(signals, ", ")},
         {EscapedMarkdown(BytesText(method))},
         {method.experimental ? "experimental" : "golden"},
         {departures == 0 ? "-" : StrCat("[", departures, "](#", method.id, ")")}});
  }
  return table;
}

}  // namespace

std::string MethodsPage(const std::vector<Method>& methods, const std::vector<FieldRow>& field) {
  std::string page = StrCat(
      "# Methods\n\n"
      "This page is the output of `kvgauge methods --format markdown`; `scripts/approve` renews "
      "it.\n"
      "It lists ",
      methods.size(), " methods over ", AllStages().size(),
      " stages. `kvgauge methods NAME` prints one with all its\n"
      "parameters, and [formats/methods.md](formats/methods.md) describes the files.\n\n"
      "- **stages**: the parts that the method is composed of, besides the defaults "
      "`allocate.uniform`,\n"
      "  `store.plain` and `trigger.prefill`. Every score works with every allocator, reducer, "
      "store and\n"
      "  reader unless a stage says why not.\n"
      "- **signals**: what the method captures in prefill or in decode steps, beside keys and "
      "values.\n"
      "- **bytes**: bytes of an entry of one KV head, in the names of the stage's parameters. "
      "\"The\n"
      "  budget\" means: as many entries as the run asks for. Every run measures the allocator's "
      "bytes.\n"
      "- **proof**: tests compare a `golden` method with an independent implementation on stored "
      "cases.\n"
      "  An `experimental` one has conformance tests and hand-worked cases only. [The table of\n"
      "  the field](#the-field-what-is-here-and-what-is-not) says why, and what else there is.\n"
      "- **departures**: known differences from the reference, listed at the end.\n");
  for (const FamilyHeading& heading : kFamilyHeadings) {
    const TextTable table = FamilyTable(methods, heading.family);
    if (!table.rows.empty()) page += StrCat("\n## ", heading.heading, "\n\n", table.ToMarkdown());
  }
  page += FieldSection(field, methods);
  page += "\n## Departures from the references\n";
  for (const Method& method : methods) {
    const std::vector<std::string> departures = AllDepartures(method);
    if (departures.empty()) continue;
    page += StrCat("\n### ", method.id, "\n\n");
    for (const std::string& text : departures) page += MarkdownItem(text);
  }
  return page;
}

}  // namespace kvgauge
