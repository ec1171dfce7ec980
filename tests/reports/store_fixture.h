// SPDX-License-Identifier: Apache-2.0
// Rows for store tests: sample i of cell c is a function of (c, i) alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/strings.h"
#include "reports/store.h"
#include "support/scratch_directory.h"

namespace kvgauge {

inline RunRow TestRun(const std::string& key) {
  return {.key = key,
          .machine = {R"({"cores":2})"},
          .command = "kvgauge run quickstart.json",
          .config = R"({"seeds":[0]})",
          .version = "0.1.0",
          .revision = "abc",
          .started_at = "2026-01-02T03:04:05Z",
          .finished_at = ""};
}

inline CellRow TestCell(int64_t c) {
  CellRow cell;
  cell.identity = StrCat(R"({"budget":)", c, "}");
  cell.signature = R"({"template":1})";
  cell.model = {"f00d", "ref-gqa", "{}"};
  cell.method = {.name = c == 0 ? "full" : "snapkv",
                 .variant = "",
                 .title = "T",
                 .family = c == 0 ? "baseline" : "selection",
                 .version = 1,
                 .spec = "{}",
                 .full_cache = c == 0};
  cell.task = {"needle/single", 1, "{}"};
  if (c > 0) {
    cell.budget = StrCat(c * 10, "%");
    cell.budget_kind = "fraction";
    cell.budget_value = static_cast<double>(c) / 10;
  }
  return cell;
}

// The draft is the method of TestCell(c); it drafts `gamma` tokens, of which c are wrong, four
// times, and is 1 + c / 4 times as fast as the full cache.
inline SpeculationRow TestSpeculation(int64_t c, int64_t gamma, int64_t prompt,
                                      int64_t repetition) {
  const CellRow cell = TestCell(c);
  SpeculationRow row;
  row.identity = StrCat(R"({"speculation":1,"budget":)", c, R"(,"gamma":)", gamma, "}");
  row.model = cell.model;
  row.method = cell.method;
  row.budget = cell.budget;
  row.budget_kind = cell.budget_kind;
  row.budget_value = cell.budget_value;
  row.workload = R"({"answer_tokens":17,"digest":"d","prompt_tokens":"300..812","prompts":2,)"
                 R"("seed":1,"texts":["long.txt","b.txt"]})";
  row.gamma = gamma;
  row.prompt = prompt;
  row.repetition = repetition;
  row.prompt_tokens = prompt == 0 ? 300 : 812;
  row.answer_tokens = 17;
  row.checks = 4;
  row.draft_steps = row.drafted = 4 * gamma;
  row.accepted = 4 * (gamma - std::min(c, gamma)) + prompt;
  row.drafted_at.assign(static_cast<size_t>(gamma), 4);
  row.accepted_at.assign(static_cast<size_t>(gamma), 1);
  row.draft_s = 0.5;
  row.check_s = 0.25;
  row.other_s = 0.25;
  row.full_s = 1 + static_cast<double>(c) / 4;
  row.draft_bytes = 1000 * c;
  row.judge_bytes = 9000;
  row.held_bytes = 9500;
  row.answer_key = "abc";
  row.others_share = 0.125;
  return row;
}

inline SampleRow TestSample(int64_t cell_id, int64_t run_id, int64_t c, int64_t i) {
  SampleRow s;
  s.cell = cell_id;
  s.run = run_id;
  s.sample_id = StrCat("needle-", i);
  s.hash = StrCat("h", i);
  s.group = StrCat("g", i / 2);
  s.position = i;
  s.score = (i * 7 + c) % 4 == 0 ? 0.0 : 1.0;
  s.tokens_in = 1000 + i;
  s.tokens_out = 5;
  s.engagement = c == 0 ? EngagementMark::kIdentity : EngagementMark::kEngaged;
  s.compressions = c == 0 ? 0 : 1;
  s.kl_divergence = 0.01 * static_cast<double>(c);
  s.facts = StrCat(R"({"depth":")", i * 10 % 100, R"(","length":"4096"})");
  s.answer_depth = static_cast<double>(i * 10 % 100) / 100;
  s.reads_per_step = 100.5;
  s.read_share = 0.5;
  s.fetched_per_step = 2048.5;
  s.parts = {1.0, 0.125 * static_cast<double>(i)};
  s.answers.push_back({.question = StrCat("What is number ", i, "?"),
                       .excerpt = StrCat("... number ", i, " is ", i, " ..."),
                       .prediction = StrCat("The number is ", i, "."),
                       .references = {StrCat(i), "a \"quoted\" one"},
                       .score = s.score,
                       .tokens_out = 5,
                       .stopped = true});
  for (int64_t layer = 0; layer < 2; ++layer) {
    s.layers.push_back({.layer = layer,
                        .head = LayerStatRow::kWholeLayer,
                        .bits = 16.0,
                        .merged = c,
                        .reads = {},
                        .attention_error = 0.5,
                        .kept_by_depth = {1.0, 0.125, 0.0},
                        .answer_kept = 0.25});
    for (int64_t head = 0; head < 2; ++head) {
      s.layers.push_back({.layer = layer,
                          .head = head,
                          .entries_before = 1000 + i,
                          .entries_after = 100 * c + head,
                          .bits = {},
                          .merged = {}});
    }
  }
  for (const char* modality : {"image", "text"}) {
    s.modalities.push_back({.layer = 1,
                            .modality = modality,
                            .entries_before = 600,
                            .entries_after = 60 + c,
                            .bytes = 4096,
                            .attention = 0.75,
                            .attention_kept = 0.5});
  }
  s.images = 2;
  s.frames = 8;
  s.visual_tokens = 300;
  auto sight = std::make_shared<SightRow>();
  for (int64_t n = 0; n < 2; ++n) {
    const std::string content = StrCat("picture ", i, " ", n);
    sight->pictures.push_back({.name = content,
                               .frame = n == 0 ? -1 : 7,
                               .answer = n == 0,
                               .grids = {{2, 3}, {1, 2}},
                               .picture = std::make_shared<PictureRow>(PictureRow{
                                   content, 640, 480, std::string("\xff\xd8\0 ", 4) + content})});
  }
  s.sight = std::move(sight);
  s.patches = c == 0 ? "f" : "0123456789abcdef";
  MemoryRow memory;
  memory.nominal_bytes = 1000;
  memory.full_bytes = 8000;
  memory.payload_bytes = c == 0 ? 8000 : 800 * c;
  memory.scales_bytes = 7;
  memory.slack_bytes = 64;
  memory.resident_bytes = memory.logical_bytes() + 64;
  memory.peak_bytes = 9000;
  s.memory.push_back(memory);
  memory.moment = MemoryMoment::kFinal;
  memory.payload_bytes += 50;
  s.memory.push_back(memory);
  LatencyRow latency;
  latency.isolated = false;
  latency.context_tokens = s.tokens_in;
  latency.prefill_s = 0.25;
  latency.vision_s = 0.125;
  s.latency = latency;
  return s;
}

inline std::unique_ptr<ResultStore> MustOpen(const std::string& path,
                                             StoreMode mode = StoreMode::kCreate) {
  auto store = ResultStore::Open(path, mode);
  if (!store.ok()) {
    ADD_FAILURE() << store.error().message;
    return nullptr;
  }
  return std::move(store).value();
}

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    return T{};
  }
  return std::move(result).value();
}

inline void MustOk(const Status& status) {
  if (!status.ok()) ADD_FAILURE() << status.error().message;
}

// A store with samples [first, last) of each cell [0, cells).
inline void Fill(ResultStore& store, const std::string& run_key, int64_t cells, int64_t first,
                 int64_t last) {
  const int64_t run = Must(store.AddRun(TestRun(run_key)));
  for (int64_t c = 0; c < cells; ++c) {
    const int64_t cell = Must(store.AddCell(TestCell(c)));
    for (int64_t i = first; i < last; ++i) Must(store.Write(TestSample(cell, run, c, i)));
  }
}

}  // namespace kvgauge
