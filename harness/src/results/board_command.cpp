// SPDX-License-Identifier: Apache-2.0
#include "src/results/board_command.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "methods/method.h"
#include "reports/site.h"
#include "src/cli/print.h"
#include "src/model/method_facts.h"
#include "src/model/shipped_files.h"
#include "src/results/open_stores.h"
#include "src/results/set_scores.h"

namespace kvgauge {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "board.json";

struct Found {
  std::string name, path, date;
};

// Every *.db below the directory, in the order of dates, then names.
Result<std::vector<Found>> FindStores(const BoardFlags& flags, int64_t& bad) {
  if (!DirectoryExists(flags.stores)) {
    return BadInput(
        StrCat(flags.stores, ": is no directory; a board is made of the *.db below one"));
  }
  std::vector<Found> found;
  std::error_code error;
  fs::recursive_directory_iterator at(flags.stores, error), end;
  for (; !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".db" || !at->is_regular_file(error)) continue;
    found.push_back({fs::relative(at->path(), flags.stores).replace_extension().generic_string(),
                     at->path().string(),
                     {}});
  }
  if (error) return BadInput(StrCat(flags.stores, ": ", error.message()));
  std::vector<Found> stores;
  for (Found& one : found) {
    auto opened = OpenForReading(one.path);
    Result<std::string> date = opened.ok() ? StoreDate(**opened) : opened.error();
    if (!date.ok()) {
      if (!flags.skip_bad) {
        return BadInput(StrCat(date.error().message,
                               "; remove it from the directory, or leave such files out with "
                               "--skip-bad"));
      }
      LogWarning(StrCat("left out: ", date.error().message));
      ++bad;
      continue;
    }
    one.date = *std::move(date);
    stores.push_back(std::move(one));
  }
  if (stores.empty()) return BadInput(StrCat(flags.stores, ": holds no *.db that can be read"));
  std::ranges::sort(stores, {}, [](const Found& one) { return std::tie(one.date, one.name); });
  return stores;
}

// What this build knows of its methods.
Result<std::vector<SiteMethod>> KnownMethods() {
  KVG_ASSIGN(const std::string file, FindConfigFile("methods/full.json"));
  const std::string directory = fs::path(file).parent_path().string();
  KVG_ASSIGN(const std::vector<std::string> ids, ListMethods(directory));
  std::vector<SiteMethod> known;
  for (const std::string& id : ids) {
    KVG_ASSIGN(const Method method, LoadMethod(id, directory, {}));
    known.push_back({.id = method.id,
                     .title = method.title,
                     .family = method.family,
                     .paper = method.paper,
                     .stages = StageNames(method),
                     .proof = method.experimental
                                  ? ""
                                  : "an independent implementation, by the project's tests",
                     .departures = AllDepartures(method)});
  }
  return known;
}

// The pages that an earlier board wrote into `out`.
Result<std::vector<std::string>> EarlierPages(const std::string& out) {
  const std::string path = StrCat(out, "/", kManifest);
  std::vector<std::string> pages;
  if (!FileExists(path)) {
    std::error_code error;
    if (DirectoryExists(out) && !fs::is_empty(out, error)) {
      return BadInput(StrCat(out, ": holds files, but no ", kManifest,
                             " of an earlier board; name an empty or a new directory"));
    }
    return pages;
  }
  KVG_ASSIGN(const Json manifest, ReadJsonFile(path));
  const auto files = manifest.is_object() ? manifest.find("files") : manifest.end();
  if (files == manifest.end() || !files->is_array()) {
    return BadInput(StrCat(path, ": \"files\" is missing, expected the list of the board's pages"));
  }
  for (const Json& file : *files) {
    const std::string page = file.is_string() ? file.get<std::string>() : "";
    const bool below = page == "index.html" ||
                       (page.starts_with("methods/") && page.find("..") == std::string::npos);
    if (!below || !page.ends_with(".html")) {
      return BadInput(StrCat(path, ": \"files\": ", file.dump(), " is no page of a board"));
    }
    pages.push_back(page);
  }
  return pages;
}

Status WriteSite(const std::string& out, const std::vector<SiteFile>& files,
                 const std::vector<std::string>& earlier, Json manifest) {
  std::error_code error;
  fs::create_directories(fs::path(out) / "methods", error);
  if (error) return BadInput(StrCat(out, ": cannot be made: ", error.message()));
  std::set<std::string> written;
  Json names = Json::array();
  for (const SiteFile& file : files) {
    KVG_TRY(WriteFile(StrCat(out, "/", file.path), file.content));
    written.insert(file.path);
    names.push_back(file.path);
  }
  for (const std::string& page : earlier) {
    if (!written.contains(page)) fs::remove(fs::path(out) / page, error);
  }
  manifest["files"] = std::move(names);
  return WriteFile(StrCat(out, "/", kManifest), manifest.dump(2) + "\n");
}

}  // namespace

Status RunBoard(const BoardFlags& flags) {
  int64_t bad = 0;
  KVG_ASSIGN(const std::vector<std::string> earlier, EarlierPages(flags.out));
  KVG_ASSIGN(const std::vector<Found> stores, FindStores(flags, bad));
  SiteOptions options;
  options.title = flags.title;
  options.margin = flags.margin / 100;
  options.set_scores = KnownSetScores();
  KVG_ASSIGN(options.methods, KnownMethods());
  SiteBuilder builder(std::move(options));
  Json sources = Json::array();
  for (const Found& one : stores) {
    KVG_ASSIGN(const auto store, OpenForReading(one.path));
    KVG_TRY(builder.Add(one.name, *store));
    sources.push_back({{"store", one.name}, {"date", one.date}});
  }
  SiteSummary summary;
  const std::vector<SiteFile> files = builder.Render(&summary);
  KVG_TRY(WriteSite(flags.out, files, earlier, {{"stores", std::move(sources)}}));
  if (flags.json) {
    PrintJson({{"out", flags.out},
               {"pages", files.size()},
               {"stores", summary.stores},
               {"left_out", bad},
               {"rows", summary.rows},
               {"methods", summary.methods},
               {"models", summary.models},
               {"tasks", summary.tasks},
               {"changes", summary.changes},
               {"apart", summary.apart}});
    return {};
  }
  Print(StrCat("wrote ", flags.out, "/index.html and ", Counted(std::ssize(files) - 1, "page"),
               " of methods: ", Counted(summary.stores, "store"), ", ",
               Counted(summary.rows, "row"), ", ", Counted(summary.changes, "change"), "\n"));
  return {};
}

}  // namespace kvgauge
