// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "core/files.h"
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

Result<std::vector<Merged>> MergeInto(const std::string& out, const OpenStores& inputs) {
  KVG_ASSIGN(const auto store, ResultStore::Open(out, StoreMode::kCreate));
  KVG_ASSIGN(const std::vector<MergeReport> reports, store->MergeAll(inputs.all));
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
  const bool existed = FileExists(flags.out);
  const Result<std::vector<Merged>> merged = MergeInto(flags.out, inputs);
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
