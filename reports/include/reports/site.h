// SPDX-License-Identifier: Apache-2.0
// A board: a static site made of many result stores, one after the other in time. It shows where
// every method stands today on each model and task, what changed between stores, and where from.
//
// Each page is one file that holds everything it shows and links to the others by relative paths,
// so it opens from a disk and from a web server alike. Equal stores give equal bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/set_score.h"
#include "reports/store.h"

namespace kvgauge {

// What a page says of a method beside its numbers.
struct SiteMethod {
  std::string id, title, family;
  std::string paper;   // "arXiv:2404.14469"; "": none
  std::string stages;  // "score.window, reduce.top_k"
  std::string proof;   // what holds it
  std::vector<std::string> departures;
};

struct SiteOptions {
  std::string title;  // "": "kvgauge board"
  double alpha = 0.05;
  double margin = 0.01;  // differences of the score up to this are equivalent
  uint64_t seed = 0;
  int64_t resamples = 1000;
  SumScores set_scores = {};
  std::vector<SiteMethod> methods = {};  // of ids that are not here a page shows what stores say
};

struct SiteFile {
  std::string path;  // relative to the site: "index.html", "methods/snapkv.html"
  std::string content;
};

struct SiteSummary {
  int64_t stores = 0, rows = 0, methods = 0, models = 0, tasks = 0;
  int64_t changes = 0;  // of a row between two stores that follow each other
  int64_t apart = 0;    // tables under another protocol than the newest store's
};

// When the newest run of a store began, in UTC: "2026-03-01T12:00:00Z"; "" without a run.
Result<std::string> StoreDate(ResultStore& store);

// Stores are added in the order of their dates. A builder holds only what pages show of each, and
// the scores of the samples of each row's newest store.
class SiteBuilder {
 public:
  explicit SiteBuilder(SiteOptions options);
  ~SiteBuilder();
  SiteBuilder(const SiteBuilder&) = delete;
  SiteBuilder& operator=(const SiteBuilder&) = delete;

  // `name` is shown, and unique. A date before that of the store added last is an error.
  Status Add(const std::string& name, ResultStore& store);
  std::vector<SiteFile> Render(SiteSummary* summary = nullptr);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvgauge
