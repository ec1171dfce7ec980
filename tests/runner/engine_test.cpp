// SPDX-License-Identifier: Apache-2.0
// The lockstep engine, and what it is made of: captures, the executor, the fidelity pass.
#include "runner/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "src/compress/view.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

TEST_F(EngineTest, ContendersAnswerAloneAsInCompany) {
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.3), At(random_, 0.5),
                                             At(streaming_, 0.2), At(snapkv_, 0.6)};
  const std::vector<EngineSample> samples = {Sample(600, 1), Sample(70, 2, 3), Sample(1, 3),
                                             Sample(130, 4, 9)};
  const Cells together = RunEngine(contenders, {}, samples);
  for (const int64_t pool_lanes : {1, 2, 7}) {
    const Cells cells = RunEngine(contenders, {.max_pool_lanes = pool_lanes}, samples);
    for (const auto& [at, cell] : cells) {
      EXPECT_EQ(cell.turns[0].ids, together.at(at).turns[0].ids);
      EXPECT_EQ(cell.record.entries_after, together.at(at).record.entries_after);
    }
  }
  for (size_t contender = 0; contender < contenders.size(); ++contender) {
    for (size_t s = 0; s < samples.size(); ++s) {
      const Cells alone = RunEngine({contenders[contender]}, {}, {samples[s]});
      const CellResult& cell = together.at({s, contender});
      EXPECT_TRUE(cell.status.ok());
      EXPECT_EQ(alone.at({0, 0}).turns[0].ids, cell.turns[0].ids)
          << "contender " << contender << " on " << s;
      EXPECT_EQ(std::ssize(cell.turns[0].ids), samples[s].turns[0].max_new_tokens);
    }
  }
}

TEST_F(EngineTest, ForksShareThePromptButNotTheAnswer) {
  // The full contender decodes from the very blocks that the others fork from.
  const Cells cells =
      RunEngine({At(full_, 1), At(full_, 1), At(snapkv_, 0.25)}, {}, {Sample(200, 9, 12)});
  const Cells alone = RunEngine({At(full_, 1)}, {}, {Sample(200, 9, 12)});
  EXPECT_EQ(cells.at({0, 0}).turns[0].ids, alone.at({0, 0}).turns[0].ids);
  EXPECT_EQ(cells.at({0, 1}).turns[0].ids, alone.at({0, 0}).turns[0].ids);
}

TEST_F(EngineTest, RecordsWhatWasDone) {
  const Cells cells =
      RunEngine({At(full_, 1), At(snapkv_, 0.25), At(snapkv_, 1)}, {}, {Sample(256, 1)});
  const CompressionRecord& full = cells.at({0, 0}).record;
  EXPECT_EQ(full.engagement, Engagement::kIdentity);
  EXPECT_EQ(full.bytes.payload, full.full_bytes);
  EXPECT_EQ(full.nominal_bytes, full.full_bytes);
  const CompressionRecord& snapkv = cells.at({0, 1}).record;
  EXPECT_EQ(snapkv.engagement, Engagement::kEngaged);
  EXPECT_EQ(snapkv.prompt_tokens, 256);
  EXPECT_EQ(snapkv.compressions, 1);
  EXPECT_EQ(snapkv.steps, 5);
  for (const auto& layer : snapkv.entries_before) EXPECT_THAT(layer, ::testing::Each(256));
  for (const auto& layer : snapkv.entries_after) EXPECT_THAT(layer, ::testing::Each(64));
  EXPECT_EQ(snapkv.nominal_bytes, full.full_bytes / 4);
  EXPECT_EQ(snapkv.bytes.payload, full.full_bytes / 4);
  EXPECT_LT(snapkv.bytes.resident(), full.bytes.resident());
  EXPECT_EQ(snapkv.bits, std::vector<double>({32, 32}));
  // 64 kept and the answer so far: 65 .. 69 over five steps.
  EXPECT_DOUBLE_EQ(snapkv.reads_per_step, 67);
  EXPECT_DOUBLE_EQ(snapkv.read_share, 1);
  EXPECT_EQ(cells.at({0, 2}).record.engagement, Engagement::kIdentity);
}

// In ref-mla a latent has as many bytes as one head's key and value, so bytes an entry do not tell.
TEST_F(EngineTest, LatentsInsteadOfWhatTheyStandForEngage) {
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  ModelOptions options;
  options.mla_latent = true;
  const auto mla = Model::Load(KVG_SOURCE_DIR "/models/ref-mla", options, *ops);
  ASSERT_TRUE(mla.ok()) << mla.error().message;
  const Method latents = Shipped("mla_latent");
  Contender contender = At(latents, 1), whole = At(full_, 1);
  contender.model = whole.model = mla->get();
  const CompressionRecord record = RunEngine({contender}, {}, {Sample(64, 1)}).at({0, 0}).record;
  const CompressionRecord full = RunEngine({whole}, {}, {Sample(64, 1)}).at({0, 0}).record;
  EXPECT_EQ(record.engagement, Engagement::kEngaged) << record.reason;
  EXPECT_EQ(record.reason, "");
  EXPECT_EQ(full.engagement, Engagement::kIdentity);
  EXPECT_EQ(record.full_bytes, full.bytes.payload);
  EXPECT_EQ(record.bytes.payload * 8, full.bytes.payload);
}

TEST_F(EngineTest, WindowAttentionAndColumnSumsAgree) {
  // Sums over all contenders, streamed in chunks, are those of all contenders' attention.
  const int64_t prompt_tokens = 530;
  const Prompt prompt = Prompt::FromTokens(RandomIds(prompt_tokens, 4));
  const Needs needs = {.window = prompt_tokens, .column_sums = true, .column_squares = true};
  KvCache cache = model_.NewCache(prompt_tokens);
  PrefillCapture capture(model_.config(), cache, needs, prompt_tokens);
  for (int64_t begin = 0; begin < prompt_tokens; begin += Model::kChunkRows) {
    const int64_t end = std::min(begin + Model::kChunkRows, prompt_tokens);
    ASSERT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step = {.cache = &cache,
                               .prompt = &prompt,
                               .begin = begin,
                               .end = end,
                               .logits = LogitRows::kNone,
                               .hook = &capture};
    model_.Forward({&step, 1});
  }
  const int64_t heads = model_.config().query_heads;
  for (int64_t layer = 0; layer < model_.config().layer_count(); ++layer) {
    std::vector<float> all(static_cast<size_t>(heads * prompt_tokens * prompt_tokens));
    const AttentionItem item = {.rows = prompt_tokens, .heads = cache.Layer(layer)};
    model_.ops().attention->WindowProbabilities(LayerAttention(model_.config(), cache, layer), item,
                                                capture.WindowQueries(layer, prompt_tokens),
                                                capture.WindowLogSumExp(layer),
                                                View(all, {heads, prompt_tokens, prompt_tokens}));
    std::vector<float> sums(static_cast<size_t>(heads * prompt_tokens)), squares(sums.size());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < prompt_tokens; ++i) {
        double contender = 0;
        for (int64_t j = 0; j < prompt_tokens; ++j) {
          const float p = all[static_cast<size_t>((h * prompt_tokens + i) * prompt_tokens + j)];
          if (j > i) {
            ASSERT_EQ(p, 0.0f);
          }
          contender += p;
          sums[static_cast<size_t>(h * prompt_tokens + j)] += p;
          squares[static_cast<size_t>(h * prompt_tokens + j)] += p * p;
        }
        ASSERT_NEAR(contender, 1, 1e-4);
      }
    }
    const Tensor got = capture.ColumnSums(layer), got2 = capture.ColumnSquares(layer);
    EXPECT_TRUE(AllWithin({got.f32(), sums.size()}, sums, 1e-3));
    EXPECT_TRUE(AllWithin({got2.f32(), squares.size()}, squares, 1e-3));
  }
}

// Chunks are the prompt's own, however its rows come: in one pass, or a few at a time behind rows
// that another prefill brought.
TEST_F(EngineTest, ChunkSumsDoNotDependOnHowRowsCome) {
  constexpr int64_t kTokens = 61;
  const Prompt prompt = Prompt::FromTokens(RandomIds(kTokens, 4));
  const ChunkAttention plain = {.rows = 16, .first = 3, .last = 2};
  ChunkAttention padded = plain;
  padded.padded = true;
  std::vector<std::vector<float>> seen;
  for (const int64_t rows : {kTokens, int64_t{5}, int64_t{16}}) {
    KvCache cache = model_.NewCache(kTokens);
    PrefillCapture capture(model_.config(), cache, {.chunk_sums = {plain, padded}}, kTokens);
    for (int64_t begin = 0; begin < kTokens; begin += rows) {
      const int64_t end = std::min(begin + rows, kTokens);
      ASSERT_TRUE(cache.Append(end - begin).ok());
      const SequenceStep step = {.cache = &cache,
                                 .prompt = &prompt,
                                 .begin = begin,
                                 .end = end,
                                 .logits = LogitRows::kNone,
                                 .hook = &capture};
      model_.Forward({&step, 1});
    }
    ASSERT_TRUE(capture.status().ok());
    seen.emplace_back();
    const ModelShape shape = model_.shape();
    const ViewSource source = {
        .model = &model_, .shape = &shape, .cache = &cache, .prefill = &capture};
    CacheView view(source, 1);
    for (const ChunkAttention& of : {plain, padded}) {
      const Tensor sums = view.ChunkSums(of);
      ASSERT_EQ(sums.shape[1], kTokens);
      for (int64_t h = 0; h < sums.shape[0]; ++h) {
        const float* row = sums[h].f32();
        double all = 0;
        for (int64_t i = 0; i < kTokens; ++i) all += row[i];
        // Every row pays one; rows of zeros pay in part to zeros, and are paid by others.
        EXPECT_EQ(std::abs(all - 56) < 1e-3, !of.padded) << all;
        for (const int64_t i : {0, 1, 2, 59, 60}) EXPECT_EQ(row[i], 0);
        seen.back().insert(seen.back().end(), row, row + kTokens);
      }
    }
    const int64_t planned_bytes =
        PrefillCapture::PlannedBytes(model_.config(), {.chunk_sums = {plain, padded}}, kTokens);
    EXPECT_LE(capture.bytes(), planned_bytes + planned_bytes / 100);
  }
  EXPECT_TRUE(SameBits(seen[1], seen[0]));
  EXPECT_TRUE(SameBits(seen[2], seen[0]));
}

TEST_F(EngineTest, FullCacheIsFaithfulToItself) {
  const Cells cells = RunEngine({At(full_, 1), At(snapkv_, 0.2), At(snapkv_, 1)},
                                {.fidelity_steps = 5}, {Sample(300, 3, 8)});
  for (const int64_t contender : {0, 2}) {
    const Fidelity& same = *cells.at({0, contender}).fidelity;
    EXPECT_EQ(same.steps, 5);
    EXPECT_EQ(same.kl_divergence, 0);
    EXPECT_EQ(same.top1_agreement, 1);
    EXPECT_THAT(same.attention_error, ::testing::ElementsAre(0, 0));
  }
  const Fidelity& less = *cells.at({0, 1}).fidelity;
  EXPECT_GT(less.kl_divergence, 0);
  EXPECT_THAT(less.attention_error, ::testing::Each(::testing::Gt(0)));
  // It says nothing of the free-running answers.
  EXPECT_EQ(std::ssize(cells.at({0, 1}).turns[0].ids), 8);
}

// Forced tokens are fed one by one through each contender's own cache, in company as alone, and
// their probabilities are those of the model: with the full cache those of one pass over all of
// them.
TEST_F(EngineTest, ForcedTokensAreScoredThroughTheCache) {
  const std::vector<int32_t> ids = RandomIds(160, 77);
  EngineSample sample = {.id = "w", .context = {ids.begin(), ids.begin() + 150}};
  sample.turns.push_back({.max_new_tokens = 10, .forced = {ids.begin() + 150, ids.end()}});
  // A stop among them ends nothing.
  sample.stop_ids = {ids[153]};
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.3), At(streaming_, 0.3)};
  const Cells cells = RunEngine(contenders, {}, {sample});

  CachePools pools(model_.ops());
  KvCache cache = model_.NewCache(160, pools);
  const Prompt prompt = Prompt::FromTokens(ids);
  std::vector<double> want;
  ASSERT_TRUE(Prefill(model_, prompt, cache, 160, true, [&](const Tensor& logits) -> Status {
                for (int64_t contender = 149; contender < 159; ++contender) {
                  std::vector<float> host(static_cast<size_t>(logits.shape[1]));
                  model_.ops().memory->Copy(logits[contender], View(host, {logits.shape[1]}));
                  double sum = 0;
                  for (const float x : host) sum += std::exp(double{x});
                  want.push_back(
                      host[static_cast<size_t>(ids[static_cast<size_t>(contender) + 1])] -
                      std::log(sum));
                }
                return {};
              }).ok());
  const TurnResult& full = cells.at({0, 0}).turns[0];
  EXPECT_EQ(full.ids, sample.turns[0].forced);
  EXPECT_FALSE(full.stopped);
  ASSERT_EQ(full.log_probs.size(), 10u);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(full.log_probs[i], want[i], 1e-4) << i;
  for (int64_t contender = 1; contender < 3; ++contender) {
    const TurnResult& turn = cells.at({0, contender}).turns[0];
    EXPECT_EQ(turn.ids, full.ids);
    // The first is predicted by the prompt, which all share; what follows is not.
    EXPECT_EQ(turn.log_probs[0], full.log_probs[0]);
    EXPECT_NE(turn.log_probs[9], full.log_probs[9]);
    const Cells alone = RunEngine({contenders[static_cast<size_t>(contender)]}, {}, {sample});
    EXPECT_EQ(turn.log_probs, alone.at({0, 0}).turns[0].log_probs);
  }
  sample.turns[0].max_new_tokens = 9;
  Engine engine(contenders, {});
  EXPECT_THAT(engine.PlanMemory({&sample, 1}).error().message, HasSubstr("expected 10"));
}

// Prepared weights are held against the checkpoint as it was, and so are their bytes.
// Logits of the last token of a prompt under a model's full cache.
std::vector<float> LastLogits(Model& model, std::vector<int32_t> ids) {
  const Prompt prompt = Prompt::FromTokens(std::move(ids));
  KvCache cache = model.NewCache(prompt.size() + 8);
  std::vector<float> last;
  EXPECT_TRUE(Prefill(model, prompt, cache, Model::kChunkRows, false,
                      [&](const Tensor& rows_out) -> Status {
                        last.assign(rows_out.f32(), rows_out.f32() + rows_out.Numel());
                        return {};
                      })
                  .ok());
  return last;
}
int32_t BestOf(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}
// The divergence of the distribution behind `got` from that behind `want`.
double KlByHand(const std::vector<float>& want, const std::vector<float>& got) {
  double want_sum = 0, got_sum = 0, kl = 0;
  for (const float x : want) want_sum += std::exp(double{x});
  for (const float x : got) got_sum += std::exp(double{x});
  for (size_t i = 0; i < want.size(); ++i) {
    const double p = want[i] - std::log(want_sum), q = got[i] - std::log(got_sum);
    kl += std::exp(p) * (p - q);
  }
  return kl;
}

TEST_F(EngineTest, PreparedWeightsAreHeldAgainstTheOriginal) {
  const Method pooled = Shipped("mean_pool_gqa");
  const Method exact = Shipped("palu", {"prepare.key_ratio=1", "prepare.value_ratio=1"});
  const auto prepared = [&](const Method& method) {
    const Pipeline pipeline = MakePipeline(method);
    ModelOptions options;
    options.prepare = pipeline.prepare.get();
    return MakeTinyModel("gqa", 2, options);
  };
  const TinyModel half = prepared(pooled), same = prepared(exact);
  const EngineSample sample = Sample(150, 3, 8);
  const std::vector<Contender> contenders = {At(full_, 1),
                                             {&pooled, {}, half.model.get(), &model_},
                                             {&exact, {}, same.model.get(), &model_},
                                             {&pooled, {}, half.model.get()}};
  const Cells cells = RunEngine(contenders, {.fidelity_steps = 2}, {sample});
  const CompressionRecord& record = cells.at({0, 1}).record;
  EXPECT_EQ(record.full_bytes, cells.at({0, 0}).record.full_bytes);
  EXPECT_EQ(2 * record.bytes.payload, record.full_bytes);

  // By hand: both full caches read the original's own next token.
  std::vector<int32_t> ids = sample.turns[0].ids;
  double kl = 0;
  for (int step = 0; step < 2; ++step) {
    ids.push_back(BestOf(LastLogits(model_, ids)));
    kl += KlByHand(LastLogits(model_, ids), LastLogits(*half.model, ids)) / 2;
  }
  const Fidelity& fidelity = *cells.at({0, 1}).fidelity;
  EXPECT_EQ(fidelity.steps, 2);
  EXPECT_GT(kl, 1e-4);
  EXPECT_NEAR(fidelity.kl_divergence, kl, 1e-6 + 1e-4 * kl);
  for (const double error : fidelity.attention_error) EXPECT_GT(error, 0.01);

  // The whole rank is the same model but for rounding; a contender without an original is its own.
  EXPECT_LT(cells.at({0, 2}).fidelity->kl_divergence, 1e-8);
  for (const double error : cells.at({0, 2}).fidelity->attention_error) EXPECT_LT(error, 1e-4);
  EXPECT_EQ(cells.at({0, 3}).fidelity->kl_divergence, 0);
}

// A prompt that lost tokens before it was read is held against the whole of it, wherever it is
// compressed; contenders that read all of it, beside it in the pool, are not.
TEST_F(EngineTest, ShorterPromptsAreHeldAgainstWholeOnes) {
  for (const CompressAt at : {CompressAt::kPrompt, CompressAt::kContext}) {
    SCOPED_TRACE(NameOf(at));
    auto whole = std::make_shared<EngineSample>(Sample(30, 3, 8));
    whole->context = Sample(150, 4).turns[0].ids;
    EngineSample sample = *whole;
    sample.context.erase(sample.context.begin() + 20, sample.context.begin() + 90);
    sample.whole = whole;
    const Cells cells = RunEngine({At(full_, 1), At(snapkv_, 0.5)},
                                  {.compress_at = at, .fidelity_steps = 3}, {sample});
    std::vector<int32_t> all = whole->context, less = sample.context;
    for (std::vector<int32_t>* ids : {&all, &less}) {
      ids->insert(ids->end(), whole->turns[0].ids.begin(), whole->turns[0].ids.end());
    }
    // Where the question follows, its last row counts, too.
    const int first = at == CompressAt::kContext ? 0 : 1;
    double kl = 0;
    for (int step = 0; step < 3 + first; ++step) {
      const std::vector<float> want = LastLogits(model_, all);
      if (step >= first) kl += KlByHand(want, LastLogits(model_, less)) / 3;
      all.push_back(BestOf(want));
      less.push_back(BestOf(want));
    }
    const CellResult& full = cells.at({0, 0});
    ASSERT_TRUE(full.status.ok() && full.fidelity) << full.status.error().message;
    EXPECT_EQ(full.fidelity->steps, 3);
    EXPECT_GT(kl, 1e-4);
    EXPECT_NEAR(full.fidelity->kl_divergence, kl, 1e-6 + 1e-4 * kl);
    EXPECT_GT(full.fidelity->attention_error[0], 0);
    EXPECT_NE(cells.at({0, 1}).fidelity->kl_divergence, full.fidelity->kl_divergence);

    sample.context = whole->context;
    const Cells same =
        RunEngine({At(full_, 1)}, {.compress_at = at, .fidelity_steps = 3}, {sample});
    EXPECT_EQ(same.at({0, 0}).fidelity->kl_divergence, 0);
    EXPECT_EQ(same.at({0, 0}).fidelity->attention_error[0], 0);
  }
}

// Reads the newest entry alone, and makes nothing of it.
class Mute final : public Reader {
 public:
  explicit Mute(const Params&) {}
  struct Nothing final : State {
    int64_t bytes() const override { return 0; }
  };
  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<Nothing>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool Select(LayerView& view, State&, const Tensor&, Tensor words) const override {
    const int64_t newest = view.width() - 1;
    for (int64_t head = 0; head < words.shape[0]; ++head) {
      words[head].As<int64_t>()[newest / 64] = static_cast<int64_t>(uint64_t{1} << newest % 64);
    }
    return view.layer() == 1;
  }
  bool corrects() const override { return true; }
  void Correct(LayerView& view, State&, Tensor out) const override {
    EXPECT_EQ(view.layer(), 1) << "a layer in which everything was read";
    view.ops().rows->Affine(out, 0.0f, 0.0f, out);
  }
};
const StageRegistrar kMute(StageSpec{.kind = StageKind::kRead,
                                     .id = "test_mute",
                                     .summary = "reads the newest entry, and makes nothing of it",
                                     .make = Make<Mute>()});

TEST_F(EngineTest, ReadersCorrectWhatAttentionGave) {
  const Result<Method> mute = ParseMethod({{"id", "mute"},
                                           {"title", "makes nothing of what is read"},
                                           {"family", "baseline"},
                                           {"version", 1},
                                           {"stages", {{"read", {{"id", "test_mute"}}}}}},
                                          "test");
  ASSERT_TRUE(mute.ok()) << mute.error().message;
  const Contender contender = {.method = &*mute, .budget = {}, .model = &model_};
  const CellResult cell =
      RunEngine({contender, At(full_, 1)}, {.fidelity_steps = 4}, {Sample(90, 1)}).at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  EXPECT_THAT(cell.fidelity->attention_error, ::testing::ElementsAre(0, 1));
  EXPECT_LT(cell.record.read_share, 0.6);
}

TEST_F(EngineTest, StopsEndAnAnswer) {
  EngineSample sample = Sample(90, 5, 10);
  const std::vector<int32_t> ids = RunEngine({At(full_, 1)}, {}, {sample}).at({0, 0}).turns[0].ids;
  ASSERT_EQ(ids.size(), 10u);
  sample.stop_ids = {ids[4]};
  const auto first = std::find(ids.begin(), ids.end(), ids[4]) - ids.begin();
  const TurnResult stopped = RunEngine({At(full_, 1)}, {}, {sample}).at({0, 0}).turns[0];
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(ids.begin(), ids.begin() + first));
  // The caller may stop as well; what it saw is in the answer.
  sample.stop_ids = {};
  EngineOptions options;
  options.on_token = [](const EngineToken& token) { return token.answer.size() < 3; };
  const TurnResult cut = RunEngine({At(full_, 1)}, options, {sample}).at({0, 0}).turns[0];
  EXPECT_TRUE(cut.stopped);
  EXPECT_EQ(cut.ids, std::vector<int32_t>(ids.begin(), ids.begin() + 3));
}

TEST_F(EngineTest, RefusesSamplesThatCannotRun) {
  const auto message = [&](const EngineSample& sample, CompressAt at) {
    Engine engine({At(full_, 1)}, {.compress_at = at});
    const Status status = engine.Run({&sample, 1}, [](CellResult) { return Status(); });
    EXPECT_FALSE(status.ok());
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(message({.id = "a"}, CompressAt::kPrompt), HasSubstr("sample a: no turns"));
  EXPECT_THAT(message(Sample(5, 1, 0), CompressAt::kPrompt), HasSubstr("max_new_tokens"));
  EXPECT_THAT(message(Sample(5, 1), CompressAt::kContext), HasSubstr("needs a context"));
  EngineSample far = Sample(5, 1);
  far.turns[0].ids[2] = 101;
  EXPECT_THAT(message(far, CompressAt::kPrompt), HasSubstr("token id 101; expected 0 .. 100"));
}

TEST_F(EngineTest, AnErrorOfTheCallerEndsTheRun) {
  Engine engine({At(full_, 1)}, {});
  const std::vector<EngineSample> samples = {Sample(20, 1), Sample(20, 2)};
  int calls = 0;
  const Status status = engine.Run(samples, [&](CellResult) -> Status {
    ++calls;
    return IoError("disk full");
  });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(calls, 1);
}

TEST_F(EngineTest, SampledContendersDrawAlike) {
  const EngineOptions options = {.seed = 3, .sampling = {.temperature = 5.0f, .seed = 3}};
  const std::vector<EngineSample> samples = {Sample(60, 1), Sample(60, 2)};
  const Cells cells = RunEngine({At(full_, 1), At(full_, 1)}, options, samples);
  EXPECT_EQ(cells.at({0, 0}).turns[0].ids, cells.at({0, 1}).turns[0].ids);
  EXPECT_EQ(cells.at({1, 0}).turns[0].ids,
            RunEngine({At(full_, 1)}, options, {samples[1]}).at({0, 0}).turns[0].ids);
}

TEST_F(EngineTest, StopsAreHeldBackUntilSoManyTokensWereMade) {
  EngineSample sample = Sample(60, 1, 6);
  const auto answer = [&](int64_t min_new_tokens, float temperature) {
    sample.turns[0].min_new_tokens = min_new_tokens;
    const EngineOptions options = {.sampling = {.temperature = temperature, .seed = 3},
                                   .fidelity_steps = 3};
    const Cells cells = RunEngine({At(full_, 1), At(snapkv_, 0.5)}, options, {sample});
    EXPECT_EQ(cells.at({0, 0}).turns[0].ids.empty(), cells.at({0, 1}).turns[0].ids.empty());
    return cells.at({0, 0});
  };
  for (const float temperature : {0.0f, 5.0f}) {
    sample.stop_ids = {};
    const std::vector<int32_t> free = answer(0, temperature).turns[0].ids;
    // All but two: whatever is chosen freely ends the text.
    for (int32_t id = 0; id < 101; ++id) {
      if (id != 17 && id != 93) sample.stop_ids.push_back(id);
    }
    sample.stop_ids.push_back(100000);
    const CellResult held = answer(4, temperature);
    ASSERT_GE(held.turns[0].ids.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(held.turns[0].ids[i] == 17 || held.turns[0].ids[i] == 93) << temperature;
    }
    EXPECT_TRUE(held.turns[0].stopped);
    // The full cache is measured by its own words, stops among them.
    const CellResult stopped = answer(0, temperature);
    ASSERT_TRUE(held.fidelity && stopped.fidelity);
    EXPECT_EQ(held.fidelity->kl_divergence, stopped.fidelity->kl_divergence);
    EXPECT_EQ(held.fidelity->steps, stopped.fidelity->steps);
    // One that is not likeliest stays what it is.
    sample.stop_ids = {std::find(free.begin(), free.end(), 40) == free.end() ? 40 : 41};
    if (temperature == 0.0f) {
      EXPECT_EQ(answer(6, temperature).turns[0].ids, free);
    }
  }
}

TEST(CompressAt, Parses) {
  EXPECT_EQ(*ParseCompressAt("context"), CompressAt::kContext);
  EXPECT_EQ(*ParseCompressAt("chunk"), CompressAt::kChunk);
  const Result<CompressAt> unknown = ParseCompressAt("never");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("prompt, context, turn or chunk"));
}

}  // namespace
}  // namespace kvgauge
