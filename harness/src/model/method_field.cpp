// SPDX-License-Identifier: Apache-2.0
#include "src/model/method_field.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/json.h"
#include "core/near_names.h"
#include "core/short_json.h"
#include "core/strings.h"
#include "runner/config.h"
#include "src/cli/markdown.h"
#include "src/cli/table.h"
#include "src/serve/serve_policy.h"
#include "src/serve/speculation_form.h"

namespace kvgauge {
namespace {

// In the order of the table. Beside the families of methods there are those that no method file
// can be of.
const std::vector<std::string> kFieldFamilies = {
    "baseline",  "selection",    "budget",      "merging", "quantization", "low_rank",
    "retrieval", "architecture", "composition", "prefill", "reuse",        "system"};

struct FieldEntry {
  size_t family = 0;
  std::string sorted_by;  // small letters
  std::string name, state, place, paper;
};

size_t PlaceOfFamily(const std::string& family) {
  const auto at = std::find(kFieldFamilies.begin(), kFieldFamilies.end(), family);
  return static_cast<size_t>(at - kFieldFamilies.begin());
}

std::string SmallLetters(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Letters and digits alone, so that "KV-Crush" is "kvcrush".
std::string Bare(const std::string& name) {
  std::string bare = SmallLetters(name);
  std::erase_if(bare, [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'); });
  return bare;
}

Result<std::string> FieldText(const Json& row, const char* key, const std::string& origin) {
  if (!row.contains(key)) return std::string();
  if (!row[key].is_string() || row[key].get<std::string>().empty()) {
    return BadInput(StrCat(origin, ": \"", key, "\" must be a text, is ", ShortJson(row[key])));
  }
  return row[key].get<std::string>();
}

Result<std::vector<std::string>> FieldIds(const Json& row, const std::vector<std::string>& known,
                                          const std::string& origin) {
  std::vector<std::string> ids;
  if (!row.contains("here")) return ids;
  const Json& list = row["here"];
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (!list.is_array() || list.empty() || !std::all_of(list.begin(), list.end(), is_text)) {
    return BadInput(StrCat(origin, ": \"here\" must be a list of ids, is ", ShortJson(list)));
  }
  ids = list.get<std::vector<std::string>>();
  for (const std::string& id : ids) {
    if (std::find(known.begin(), known.end(), id) != known.end()) continue;
    return BadInput(
        StrCat(origin, ": \"here\": unknown method ", Quoted(id), DidYouMeanOneOf(id, known)));
  }
  return ids;
}

Result<FieldRow> ParseFieldRow(const Json& json, const std::vector<std::string>& ids,
                               const std::string& origin) {
  static const std::vector<std::string> keys = {
      "name", "family", "paper", "here", "model", "policy", "speculation", "missing", "outside"};
  if (!json.is_object()) return BadInput(StrCat(origin, ": must be a JSON object"));
  for (const auto& [key, value] : json.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return BadInput(StrCat(origin, ": unknown key ", Quoted(key), DidYouMean(key, keys),
                           "; known: ", Join(keys, ", ")));
  }
  FieldRow row;
  KVG_ASSIGN(row.name, FieldText(json, "name", origin));
  if (row.name.empty()) return BadInput(StrCat(origin, ": \"name\" is missing"));
  const std::string owner = StrCat(origin, " (", row.name, ")");
  KVG_ASSIGN(row.family, FieldText(json, "family", owner));
  if (PlaceOfFamily(row.family) == kFieldFamilies.size()) {
    return BadInput(StrCat(owner, ": \"family\": unknown ", Quoted(row.family),
                           DidYouMean(row.family, kFieldFamilies),
                           "; known: ", Join(kFieldFamilies, ", ")));
  }
  KVG_ASSIGN(row.paper, FieldText(json, "paper", owner));
  KVG_ASSIGN(row.model, FieldText(json, "model", owner));
  if (!row.model.empty()) {
    std::vector<std::string> families;
    for (const FamilyInfo& family : ModelFamilies()) families.emplace_back(family.model_type);
    if (std::ranges::find(families, row.model) == families.end()) {
      return BadInput(StrCat(owner, ": \"model\": unknown model family ", Quoted(row.model),
                             DidYouMeanOneOf(row.model, families)));
    }
  }
  KVG_ASSIGN(row.policy, FieldText(json, "policy", owner));
  if (!row.policy.empty()) {
    const Result<ServePolicy> policy = FindServePolicy(row.policy);
    if (!policy.ok()) return policy.error().Wrap(StrCat(owner, ": \"policy\""));
  }
  KVG_ASSIGN(row.speculation, FieldText(json, "speculation", owner));
  if (!row.speculation.empty()) {
    const Result<SpeculationForm> form = FindSpeculationForm(row.speculation);
    if (!form.ok()) return form.error().Wrap(StrCat(owner, ": \"speculation\""));
  }
  KVG_ASSIGN(row.missing, FieldText(json, "missing", owner));
  KVG_ASSIGN(row.outside, FieldText(json, "outside", owner));
  KVG_ASSIGN(row.here, FieldIds(json, ids, owner));
  int said = row.here.empty() ? 0 : 1;
  for (const std::string* text :
       {&row.model, &row.policy, &row.speculation, &row.missing, &row.outside}) {
    said += text->empty() ? 0 : 1;
  }
  if (said != 1) {
    return BadInput(StrCat(owner, ": says ", said,
                           " of \"here\", \"model\", \"policy\", \"speculation\", "
                           "\"missing\" and \"outside\"; one of them is right"));
  }
  return row;
}

FieldEntry EntryOf(const Method& method) {
  return {.family = PlaceOfFamily(method.family),
          .sorted_by = SmallLetters(method.title),
          .name = EscapedMarkdown(method.title),
          .state = method.experimental ? "experimental" : "works",
          .place = StrCat(MarkdownCode(method.id), method.experimental_because.empty() ? "" : ": ",
                          EscapedMarkdown(method.experimental_because)),
          .paper = MarkdownPapers(method.paper)};
}

FieldEntry EntryOf(const FieldRow& row, const std::map<std::string, const Method*>& by_id) {
  FieldEntry entry = {.family = PlaceOfFamily(row.family),
                      .sorted_by = SmallLetters(row.name),
                      .name = EscapedMarkdown(row.name),
                      .state = row.outside.empty() ? "missing" : "outside",
                      .place = EscapedMarkdown(row.outside.empty() ? row.missing : row.outside),
                      .paper = MarkdownPapers(row.paper)};
  if (!row.policy.empty()) {
    entry.state = "policy";
    entry.place = MarkdownCode(StrCat("bench capacity --policies ", row.policy));
  }
  if (!row.speculation.empty()) {
    entry.state = "speculation";
    entry.place = MarkdownCode(StrCat("bench speculate --forms ", row.speculation));
  }
  if (!row.model.empty()) {
    entry.state = "works";
    entry.place = StrCat("model family ", MarkdownCode(row.model));
  }
  if (row.here.empty()) return entry;
  entry.state = "works";
  std::vector<std::string> ids;
  for (const std::string& id : row.here) {
    if (by_id.at(id)->experimental) entry.state = "experimental";
    ids.push_back(MarkdownCode(id));
  }
  entry.place = Join(ids, ", ");
  return entry;
}

// What is said of a row where its table is not at hand.
std::string WhereIs(const FieldRow& row) {
  if (!row.here.empty()) return StrCat("here as ", Join(row.here, ", "));
  if (!row.model.empty()) return StrCat("the model family ", row.model);
  if (!row.policy.empty()) return StrCat("bench capacity --policies ", row.policy);
  if (!row.speculation.empty()) return StrCat("bench speculate --forms ", row.speculation);
  if (!row.missing.empty()) return StrCat("missing: ", row.missing);
  return StrCat("outside: ", row.outside);
}

}  // namespace

Result<std::vector<FieldRow>> ReadField(const std::string& path,
                                        const std::vector<Method>& methods) {
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  if (!json.is_object() || json.size() != 1 || !json.contains("rows") || !json["rows"].is_array()) {
    return BadInput(StrCat(path, ": must be {\"rows\": [...]}"));
  }
  std::vector<std::string> ids;
  std::map<std::string, std::string> taken;  // bare names, and whose they are
  for (const Method& method : methods) {
    ids.push_back(method.id);
    taken[Bare(method.id)] = StrCat("the method ", Quoted(method.id));
  }
  std::vector<FieldRow> rows;
  for (const Json& item : json["rows"]) {
    const std::string origin = StrCat(path, ": rows[", rows.size(), "]");
    KVG_ASSIGN(FieldRow row, ParseFieldRow(item, ids, origin));
    const auto [owner, added] = taken.emplace(Bare(row.name), origin);
    if (!added) {
      return BadInput(StrCat(origin, ": \"name\": ", Quoted(row.name), " is that of ",
                             owner->second, " already; take one of them out"));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string FieldSection(const std::vector<FieldRow>& rows, const std::vector<Method>& methods) {
  std::map<std::string, const Method*> by_id;
  std::vector<FieldEntry> entries;
  for (const Method& method : methods) {
    by_id[method.id] = &method;
    entries.push_back(EntryOf(method));
  }
  for (const FieldRow& row : rows) entries.push_back(EntryOf(row, by_id));
  std::sort(entries.begin(), entries.end(), [](const FieldEntry& a, const FieldEntry& b) {
    return std::tie(a.family, a.sorted_by, a.name) < std::tie(b.family, b.sorted_by, b.name);
  });
  std::map<std::string, int> counts;
  TextTable table{
      .columns = {{"family"}, {"method"}, {"state"}, {"id here, or why not"}, {"paper"}},
      .rows = {}};
  for (const FieldEntry& entry : entries) {
    ++counts[entry.state];
    table.rows.push_back({{kFieldFamilies[entry.family]},
                          {entry.name},
                          {entry.state},
                          {entry.place},
                          {entry.paper}});
  }
  return StrCat(
      "\n## The field: what is here, and what is not\n\n", entries.size(),
      " methods: ", counts["works"], " work, ", counts["experimental"], " are experimental, ",
      counts["missing"], " are missing, ", counts["outside"], " are outside,\n", counts["policy"],
      " are policies, ", counts["speculation"],
      " are forms of speculative decoding.\n\n"
      "- **works**: an independent implementation holds it. **experimental**: it runs, and "
      "none does; the\n  table says why.\n"
      "- **policy**: an order of requests, or a place where their caches wait; "
      "`kvgauge bench capacity`\n  measures it ([capacity.md](capacity.md)).\n"
      "- **speculation**: a compressed cache drafts for the full one; `kvgauge bench speculate` "
      "measures it\n  ([speculation.md](speculation.md)).\n"
      "- **missing**: it is not here yet; the table says what it needs.\n"
      "- **outside**: this program will not have it; the table says why.\n\n"
      "One method may stand under several names. `configs/field.json` has the rows that "
      "no method file\nspeaks for.\n\n",
      table.ToMarkdown());
}

std::string KnownOtherwise(const std::string& name, const std::vector<FieldRow>& rows,
                           const std::vector<Method>& methods) {
  constexpr size_t kLeastLetters = 3, kMostLines = 6;
  const std::string wanted = Bare(name);
  if (wanted.size() < kLeastLetters) return "";
  const auto has = [&](const std::string& text) {
    return Bare(text).find(wanted) != std::string::npos;
  };
  std::vector<std::string> lines;
  for (const FieldRow& row : rows) {
    if (has(row.name) || has(row.paper)) lines.push_back(StrCat(row.name, ": ", WhereIs(row)));
  }
  for (const Method& method : methods) {
    if (!has(method.id) && !has(method.title) && !has(method.paper)) continue;
    lines.push_back(StrCat(method.id, ": ", method.title));
  }
  if (lines.size() > kMostLines) {
    const size_t more = lines.size() - kMostLines;
    lines.resize(kMostLines);
    lines.push_back(StrCat("and ", more, " more in docs/methods.md"));
  }
  std::string text;
  for (const std::string& line : lines) text.append("\n  ").append(line);
  return text;
}

}  // namespace kvgauge
