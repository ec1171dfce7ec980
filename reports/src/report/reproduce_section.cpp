// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "src/report/sections.h"
#include "src/report/sql.h"

namespace kvgauge::report {

std::string Indented(const std::string& json) {
  const Result<Json> parsed = ParseJson(json, "text");
  if (!parsed.ok()) return json;
  return parsed->dump(2, ' ', false, Json::error_handler_t::replace);
}

Html ReproduceSection(const PageData& data, const std::string& path, int64_t layer_samples) {
  Html html;
  const size_t slash = path.rfind('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  html.Put(
      R"(<p class="lead">Made from <code>{}</code>. The same command goes on where it stopped. )"
      "Answers and scores are the same on every machine of the same backend and instruction set; "
      "on another some samples may come out otherwise, and they are recorded as cells of their "
      "own. Times are the machine's.</p>",
      {file});
  std::map<std::string, const RunRow*> configs;
  std::set<std::string> machines;
  html.Put(R"(<h3 class="sub">Commands</h3><pre class="code">)");
  std::set<std::string> commands;
  for (const StoredRun& run : data.runs) {
    configs.emplace(run.run.config, &run.run);
    machines.insert(run.run.machine.facts);
    if (commands.insert(run.run.command).second) html.Put("{}\n", {run.run.command});
  }
  html.Put(R"(</pre><h3 class="sub">Runs</h3><div class="scroll"><table )"
           R"(class="plain"><thead><tr><th )"
           R"(scope="col">Started</th>)"
           R"(<th scope="col">Finished</th><th scope="col">Program</th><th )"
           R"(scope="col">Source</th></tr></thead><tbody>)");
  for (const StoredRun& run : data.runs) {
    html.Put(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
        {run.run.started_at, run.run.finished_at.empty() ? "not finished" : run.run.finished_at,
         run.run.version, run.run.revision});
  }
  html.Put("</tbody></table></div>");
  for (const auto& entry : configs) {
    html.Put(
        "<details><summary>Configuration of the run of {}</summary><pre "
        R"(class="code">{}</pre></details>)",
        {entry.second->started_at, Indented(entry.first)});
  }
  for (const std::string& machine : machines) {
    html.Put(
        R"(<details class="brief"><summary>Machine</summary><pre class="code">{}</pre></details>)",
        {Indented(machine)});
  }
  std::map<std::string, std::pair<std::string, std::set<std::string>>> signatures;
  std::map<std::string, std::string> models;
  std::set<int64_t> seeds;
  std::map<std::pair<std::string, std::string>, const MethodRow*> methods;
  for (const StoredCell& cell : data.cells) {
    auto& signature = signatures[cell.signature_key];
    signature.first = cell.cell.signature;
    signature.second.insert(cell.cell.task.name);
    models.emplace(cell.cell.model.fingerprint, cell.cell.model.name);
    seeds.insert(cell.cell.seed);
    methods.emplace(std::pair(cell.cell.method.name, cell.cell.method.variant), &cell.cell.method);
  }
  std::vector<std::string> seed_texts;
  for (const int64_t seed : seeds) seed_texts.push_back(StrCat(seed));
  html.Put(R"(<h3 class="sub">Seeds and fingerprints</h3><dl )"
           R"(class="facts"><div><dt>Seeds</dt><dd>{}</dd></div>)",
           {Join(seed_texts, ", ")});
  for (const auto& [fingerprint, name] : models) {
    html.Put("<div><dt>{}</dt><dd><code>{}</code></dd></div>", {name, fingerprint});
  }
  html.Put("</dl><details><summary>Protocol: {}</summary>",
           {Plural(std::ssize(signatures), "signature", "signatures")});
  for (const auto& [key, signature] : signatures) {
    html.Put(R"(<h4><code>{}</code></h4><p class="soft">{}</p><pre class="code">{}</pre>)",
             {key, Join({signature.second.begin(), signature.second.end()}, ", "),
              Indented(signature.first)});
  }
  html.Put("</details><details><summary>Methods: {} with all their parameters</summary>",
           {methods.size()});
  for (const auto& entry : methods) {
    const MethodRow& method = *entry.second;
    html.Put(R"(<h4>{} {} <span class="soft">version {}</span></h4><pre class="code">{}</pre>)",
             {method.name, method.variant, method.version, Indented(method.spec)});
  }
  html.Put(
      R"(</details><details><summary>The SQL of each table and figure</summary><p class="soft">)"
      "For <code>sqlite3 -header -column {}</code>, to be pasted as it stands.</p>",
      {file});
  std::vector<std::string> keys;
  for (const KeySplits& split : data.task_splits) keys.push_back(split.key);
  for (const ShownQuery& query : ShownQueries(layer_samples, keys)) {
    html.Put("<h4>{}</h4>", {query.name});
    if (!query.note.empty()) html.Put(R"(<p class="soft">{}</p>)", {query.note});
    html.Put(R"(<pre class="code">{};</pre>)", {query.sql});
  }
  return html.Put("</details>\n");
}

}  // namespace kvgauge::report
