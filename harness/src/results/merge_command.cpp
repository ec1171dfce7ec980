// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/results/open_stores.h"
#include "src/results/results.h"

namespace kvgauge {
namespace {

struct Merged {
  std::string path;
  MergeReport report;
};

Result<std::vector<Merged>> MergeInto(ResultStore& store, const OpenStores& inputs) {
  KVG_ASSIGN(const std::vector<MergeReport> reports, store.MergeAll(inputs.all));
  std::vector<Merged> merged;
  for (size_t i = 0; i < reports.size(); ++i) merged.push_back({inputs.all[i]->path(), reports[i]});
  return merged;
}

}  // namespace

Status RunMerge(const MergeFlags& flags) {
  std::error_code error;
  for (const std::string& input : flags.inputs) {
    if (std::filesystem::equivalent(flags.out, input, error)) {
      return BadInput(StrCat(flags.out, ": is an input and the output, expected another file"));
    }
  }
  KVG_ASSIGN(const OpenStores inputs, OpenAllForReading(flags.inputs));
  const bool existed = std::filesystem::exists(std::filesystem::symlink_status(flags.out, error));
  // What cannot be opened is not ours: a directory, or a file that another process writes.
  KVG_ASSIGN(std::unique_ptr<ResultStore> store, ResultStore::Open(flags.out, StoreMode::kCreate));
  const Result<std::vector<Merged>> merged = MergeInto(*store, inputs);
  store.reset();
  if (!merged.ok()) {
    // A new file without anything in it is of no use.
    for (const char* tail : {"", "-wal", "-shm", ".lock"}) {
      if (!existed) std::filesystem::remove(flags.out + tail, error);
    }
    return merged.error();
  }
  if (flags.json) {
    Json list = Json::array();
    for (const Merged& m : *merged) {
      list.push_back({{"database", m.path},
                      {"cells", m.report.cells},
                      {"added", m.report.added},
                      {"kept", m.report.kept},
                      {"replaced", m.report.replaced},
                      {"capacity", m.report.capacity},
                      {"speculation", m.report.speculation}});
    }
    PrintJson({{"out", flags.out}, {"merged", list}});
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  for (const Merged& m : *merged) {
    rows.push_back({m.path, StrCat(m.report.cells), StrCat(m.report.added), StrCat(m.report.kept),
                    StrCat(m.report.replaced), StrCat(m.report.capacity),
                    StrCat(m.report.speculation)});
  }
  PrintTable({"database", "cells", "added", "already there", "replaced", "capacity", "speculation"},
             rows);
  return {};
}

}  // namespace kvgauge
