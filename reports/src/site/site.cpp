// SPDX-License-Identifier: Apache-2.0
#include "reports/site.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/strings.h"
#include "src/html/format.h"
#include "src/site/site_data.h"
#include "src/site/site_pages.h"

namespace kvgauge {

class SiteBuilder::Impl {
 public:
  explicit Impl(SiteOptions options) : data(std::move(options)) {}
  site::Data data;
  std::set<std::string> names;
};

SiteBuilder::SiteBuilder(SiteOptions options) {
  if (options.title.empty()) options.title = "kvgauge board";
  impl_ = std::make_unique<Impl>(std::move(options));
}
SiteBuilder::~SiteBuilder() = default;

Result<std::string> StoreDate(ResultStore& store) {
  KVG_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  std::string date;
  for (const StoredRun& run : runs) date = std::max(date, run.run.started_at);
  return date;
}

Status SiteBuilder::Add(const std::string& name, ResultStore& store) {
  if (!impl_->names.insert(name).second) {
    return BadInput(StrCat(store.path(), ": a store is added as ", Quoted(name), " already"));
  }
  return impl_->data.Add(name, store);
}

namespace {

using report::Html;
using report::Plural;

std::string IndexPage(const site::Data& data, const SiteSummary& summary) {
  Html body;
  std::vector<report::PageLink> links;
  body.Put("<h1>{}</h1>", {data.options().title});
  if (!data.sources().empty()) {
    const std::string first = site::DayOf(data.sources().front()),
                      last = site::DayOf(data.sources().back());
    body.Put(R"(<p class="verdict">{} of {} on {} and {}, from {} {}.</p>)",
             {Plural(summary.rows, "row", "rows"), Plural(summary.methods, "method", "methods"),
              Plural(summary.models, "model", "models"), Plural(summary.tasks, "task", "tasks"),
              Plural(summary.stores, "store", "stores"),
              first == last ? StrCat("of ", first) : StrCat("between ", first, " and ", last)});
  }
  const auto add = [&](const char* id, const char* title, const Html& content,
                       report::Markup missing) {
    links.push_back({id, title});
    body.Put(R"(<section id="{}" aria-labelledby="{}-h"><h2 id="{}-h">{}</h2>)"
             "\n",
             {id, id, id, title});
    if (content.empty()) {
      body.Put(R"(<p class="note">{}</p>)", {missing});
    } else {
      body.Put(content);
    }
    body.Put("</section>\n");
  };
  add("today", "Today", site::TodaySection(data), "No store holds a result.");
  add("changes", "Changes", site::ChangesSection(data, "", ""),
      "No row that two stores have differs between them, neither in a sample's score nor in its "
      "bytes.");
  add("stores", "Stores", site::StoresSection(data), "");
  return report::WrapPage(data.options().title, links, body);
}

}  // namespace

std::vector<SiteFile> SiteBuilder::Render(SiteSummary* summary) {
  site::Data& data = impl_->data;
  data.Finish();
  SiteSummary counted;
  std::set<std::string> methods, models, tasks;
  for (const site::Series& series : data.series()) {
    methods.insert(series.method.name);
    counted.changes += std::ssize(series.changes);
    const site::Table& table = data.tables()[series.table];
    if (!table.current || table.group) continue;
    ++counted.rows;
    models.insert(table.frame.model_fingerprint);
    tasks.insert(table.frame.task);
  }
  for (const site::Source& source : data.sources()) counted.apart += std::ssize(source.apart);
  counted.stores = std::ssize(data.sources());
  counted.methods = std::ssize(methods);
  counted.models = std::ssize(models);
  counted.tasks = std::ssize(tasks);
  if (summary != nullptr) *summary = counted;
  std::vector<SiteFile> files = {{"index.html", IndexPage(data, counted)}};
  for (const std::string& method : methods) {
    files.push_back({site::MethodPath(method), site::MethodPage(data, method)});
  }
  return files;
}

}  // namespace kvgauge
