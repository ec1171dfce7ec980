// SPDX-License-Identifier: Apache-2.0
#include "src/compress/probe_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/clock.h"
#include "runner/capture.h"
#include "runner/compressor.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class ProbePassTest : public EngineTest {
 protected:
  static constexpr int64_t kPrompt = 90;

  // A prompt and what the cache holds of it.
  struct Read {
    Prompt prompt;
    KvCache cache;
  };
  Read ReadPrompt(int64_t tokens) {
    Read read = {Prompt::FromTokens(RandomIds(tokens, 8)), model_.NewCache(tokens)};
    EXPECT_TRUE(Prefill(model_, read.prompt, read.cache, Model::kChunkRows, false,
                        [](const Tensor&) -> Status { return {}; })
                    .ok());
    return read;
  }

  // The attention of the rows behind the prompt over all entries, from one pass over both.
  std::vector<float> AttentionOf(const Read& read, const Probe& probe, int64_t layer) {
    Prompt all = read.prompt;
    for (const int32_t id : probe.ids) all.AppendText(id);
    KvCache cache = model_.NewCache(all.size());
    const int64_t rows = std::ssize(probe.ids);
    PrefillCapture capture(model_.config(), cache, {.window = rows}, all.size());
    EXPECT_TRUE(cache.Append(all.size()).ok());
    const SequenceStep step = {
        .cache = &cache, .prompt = &all, .begin = 0, .end = all.size(), .hook = &capture};
    model_.Forward({&step, 1});
    const int64_t heads = model_.config().query_heads;
    std::vector<float> out(static_cast<size_t>(heads * rows * all.size()));
    const AttentionItem item = {.rows = rows, .heads = cache.Layer(layer)};
    model_.ops().attention->WindowProbabilities(
        LayerAttention(model_.config(), cache, layer), item, capture.WindowQueries(layer, rows),
        capture.WindowLogSumExp(layer), View(out, {heads, rows, all.size()}));
    return out;
  }
};

// Over all entries it is attention itself; over some of them, attention divided by what those get.
TEST_F(ProbePassTest, MaximaAreThoseOfAttentionOverThePartsAlone) {
  const Read read = ReadPrompt(kPrompt);
  for (const Probe& probe : {Probe{.ids = RandomIds(70, 3), .sinks = 0, .begin = 0, .end = kPrompt},
                             Probe{.ids = RandomIds(20, 4), .sinks = 3, .begin = 61, .end = 80}}) {
    ProbePass pass(model_, read.cache, read.prompt);
    ASSERT_TRUE(pass.Run({&probe, 1}, 70).ok());
    const int64_t rows = std::ssize(probe.ids), all = kPrompt + rows;
    for (int64_t layer = 0; layer < model_.config().layer_count(); ++layer) {
      const std::vector<float> attention = AttentionOf(read, probe, layer);
      const Tensor maxima = pass.Maxima(layer);
      for (int64_t h = 0; h < maxima.shape[0]; ++h) {
        std::vector<double> want(kPrompt);
        for (int64_t r = 0; r < rows; ++r) {
          const float* row = &attention[static_cast<size_t>((h * rows + r) * all)];
          double measured = 0;
          for (int64_t j = 0; j < all; ++j) {
            if (j < probe.sinks || j >= kPrompt || (j >= probe.begin && j < probe.end)) {
              measured += row[j];
            }
          }
          for (int64_t j = probe.begin; j < probe.end; ++j) {
            want[j] = std::max(want[j], row[j] / measured);
          }
        }
        for (int64_t j = 0; j < kPrompt; ++j) {
          ASSERT_NEAR(maxima[h].f32()[j], want[j], 2e-5) << layer << " " << h << " " << j;
        }
      }
    }
  }
}

TEST_F(ProbePassTest, LeavesTheCacheAndAddsItsProbesUp) {
  const Read read = ReadPrompt(kPrompt);
  const std::string before = *read.cache.Serialize();
  const std::vector<Probe> probes = {{.ids = RandomIds(9, 1), .sinks = 0, .begin = 0, .end = 40},
                                     {.ids = RandomIds(12, 2), .sinks = 2, .begin = 40, .end = 90}};
  ProbePass both(model_, read.cache, read.prompt);
  ASSERT_TRUE(both.Run(probes, 12).ok());
  EXPECT_EQ(*read.cache.Serialize(), before);
  for (size_t i = 0; i < probes.size(); ++i) {
    ProbePass one(model_, read.cache, read.prompt);
    ASSERT_TRUE(one.Run({&probes[i], 1}, 12).ok());
    for (int64_t h = 0; h < model_.config().query_heads; ++h) {
      const float *got = both.Maxima(1)[h].f32(), *alone = one.Maxima(1)[h].f32();
      for (int64_t j = 0; j < kPrompt; ++j) {
        const bool inside = j >= probes[i].begin && j < probes[i].end;
        EXPECT_EQ(alone[j], inside ? got[j] : 0.0f);
        if (inside) {
          EXPECT_GT(got[j], 0.0f);
        }
      }
    }
  }
  const int64_t planned_bytes =
      ProbePass::PlannedBytes(model_.config(), model_.shape(), kPrompt, 12);
  EXPECT_LE(both.bytes(), planned_bytes);
}

// Weights of 16 bits round a layer's inputs; they are weighed as they are.
TEST_F(ProbePassTest, RowsCountByTheirInputs) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ModelOptions options;
    options.dtype = dtype;
    const TinyModel tiny = MakeTinyModelOn(MakeTestOps("cpu", 1), "gqa", options);
    const Prompt prompt = Prompt::FromTokens(RandomIds(kPrompt, 8));
    KvCache cache = tiny.model->NewCache(kPrompt);
    ASSERT_TRUE(
        Prefill(*tiny.model, prompt, cache, Model::kChunkRows, false, [](const Tensor&) -> Status {
          return {};
        }).ok());
    // One row: every maximum is divided by the same length, which is about the root of its size.
    Probe probe = {.ids = {5}, .sinks = 0, .begin = 0, .end = kPrompt};
    ProbePass plain(*tiny.model, cache, prompt), weighed(*tiny.model, cache, prompt);
    ASSERT_TRUE(plain.Run({&probe, 1}, 1).ok());
    probe.over_input_length = true;
    ASSERT_TRUE(weighed.Run({&probe, 1}, 1).ok());
    const double length = plain.Maxima(1)[0].f32()[7] / weighed.Maxima(1)[0].f32()[7];
    EXPECT_NEAR(length / std::sqrt(static_cast<double>(tiny.model->config().hidden_size)), 1, 0.5);
    for (int64_t j = 0; j < kPrompt; ++j) {
      EXPECT_NEAR(weighed.Maxima(1)[1].f32()[j] * length, plain.Maxima(1)[1].f32()[j], 1e-5);
    }
  }
}

TEST_F(ProbePassTest, RefusesWhatDoesNotFit) {
  const Read read = ReadPrompt(kPrompt);
  const Probe probe = {.ids = RandomIds(20, 1), .sinks = 0, .begin = 0, .end = 10};
  ProbePass pass(model_, read.cache, read.prompt);
  const Status more = pass.Run({&probe, 1}, 19);
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message, HasSubstr("20 rows; it announced at most 19"));
  const int64_t most = model_.config().max_position;
  const Probe longer = {.ids = RandomIds(most, 1), .sinks = 0, .begin = 0, .end = 10};
  const Status beyond = pass.Run({&longer, 1}, most);
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.error().message, HasSubstr(StrCat("the model was made for ", most)));
}

// A contender whose probes do not fit fails without a prefill; others of the sample go on.
TEST_F(ProbePassTest, WhatDoesNotFitIsRefusedBeforeItsPromptIsRead) {
  const Method kvzip = Shipped("kvzip"), kvcompose = Shipped("kvcompose");
  const int64_t most = model_.config().max_position;
  const std::vector<EngineSample> samples = {Sample(most - 20, 1, 2), Sample(40, 2, 2)};
  const int64_t peak_bytes = model_.pools().of(Tier::kDevice).peak_bytes();
  const std::vector<EngineSample> longer = {samples[0]};
  Cells cells = RunEngine({At(kvzip, 0.4), At(kvcompose, 0.4)}, {}, longer);
  EXPECT_EQ(model_.pools().of(Tier::kDevice).peak_bytes(), peak_bytes);  // nothing was read
  const std::string& zip = cells.at({0, 0}).status.error().message;
  EXPECT_THAT(zip, HasSubstr("kvzip: score.kvzip: a probe of "));
  EXPECT_THAT(zip, HasSubstr(StrCat("max_position_embeddings is ", most)));
  EXPECT_THAT(cells.at({0, 1}).status.error().message,
              HasSubstr(StrCat("kvcompose: score.kvcompose: a probe of ", most - 20,
                               " rows behind a prompt of ", most - 20, " tokens needs ",
                               2 * (most - 20), " positions; the model was made for ", most)));
  EXPECT_THAT(cells.at({0, 1}).status.error().message,
              HasSubstr(StrCat("up to ", most / 2, " tokens")));

  cells = RunEngine({At(full_, 1), At(kvcompose, 0.4)}, {}, samples);
  EXPECT_TRUE(cells.at({0, 0}).status.ok());
  EXPECT_FALSE(cells.at({0, 1}).status.ok());
  EXPECT_TRUE(cells.at({1, 1}).status.ok());
  const Cells alone = RunEngine({At(full_, 1)}, {}, longer);
  EXPECT_EQ(cells.at({0, 0}).turns[0].ids, alone.at({0, 0}).turns[0].ids);
}

// Rows that probe, and rows beside them, keep their bits in company.
TEST_F(ProbePassTest, AloneAsInCompany) {
  const Method kvzip = Shipped("kvzip"), kvcompose = Shipped("kvcompose");
  const std::vector<Contender> contenders = {At(full_, 1), At(kvzip, 0.4), At(snapkv_, 0.4),
                                             At(kvcompose, 0.4), At(kvzip, 0.6)};
  const Cells together = RunEngine(contenders, {}, {Sample(300, 1), Sample(120, 2)});
  for (size_t c = 0; c < contenders.size(); ++c) {
    const Cells alone = RunEngine({contenders[c]}, {}, {Sample(300, 1), Sample(120, 2)});
    for (int64_t sample = 0; sample < 2; ++sample) {
      const CellResult& got = together.at({sample, static_cast<int64_t>(c)});
      EXPECT_TRUE(got.status.ok());
      EXPECT_EQ(got.turns[0].ids, alone.at({sample, 0}).turns[0].ids) << c;
      EXPECT_EQ(got.record.entries_after, alone.at({sample, 0}).record.entries_after) << c;
    }
  }
}

TEST_F(ProbePassTest, ItsTimeIsItsScores) {
  const Method kvcompose = Shipped("kvcompose"), full = Shipped("full");
  const Read read = ReadPrompt(300);
  PrefillCapture capture(model_.config(), read.cache, {}, 0);
  const std::vector<const Method*> methods = {&kvcompose, &full};
  const double start = NowSeconds();
  const PromptScores scores =
      PromptScores::Compute(model_, {&read.cache, &capture, 1, &read.prompt}, methods);
  const double took = NowSeconds() - start;
  EXPECT_GT(scores.seconds(kvcompose), took / 2);
  EXPECT_LE(scores.seconds(kvcompose), took);
  EXPECT_EQ(scores.seconds(full), 0);
}

TEST_F(ProbePassTest, TurnsAreRefusedBeforeAnythingRuns) {
  const Method kvzip = Shipped("kvzip");
  Engine engine({At(kvzip, 0.4)}, {.compress_at = CompressAt::kTurn});
  const EngineSample sample = Sample(50, 1);
  const Status done = engine.Run({&sample, 1}, [](const CellResult&) -> Status {
    ADD_FAILURE() << "a cell";
    return {};
  });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(done.error().message, HasSubstr("compress_at prompt or context"));
}

}  // namespace
}  // namespace kvgauge
