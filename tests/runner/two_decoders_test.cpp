// SPDX-License-Identifier: Apache-2.0
// Two decoders, one for blocks of tokens and one for the tokens of a block: prompts of any length
// and in any company, what is held of them, and what is refused by name. The numbers are held by
// model_golden.cpp.
#include <gmock/gmock.h>

#include "runner/calibrate.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/layer_division.h"
#include "runner/speculate.h"
#include "support/compare.h"
#include "support/fixtures.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TwoDecoders : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = Load(*ops_);
    ASSERT_NE(model_, nullptr);
    block_ = model_->config().blocks->tokens;
  }

  static std::unique_ptr<Model> Load(Ops& ops) {
    ModelOptions options;
    options.dtype = DType::kF32;
    Result<std::unique_ptr<Model>> model =
        Model::Load(StrCat(KVG_TEST_DATA, "/golden/models/", GetParam()), options, ops);
    if (model.ok()) return std::move(model).value();
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }

  // A sequence whose prompt has so many tokens, behind which an answer goes on.
  struct Sequence {
    Prompt prompt;
    KvCache cache;

    SequenceStep Next(int64_t end, LogitRows logits = LogitRows::kLast) {
      const int64_t begin = cache.tokens();
      EXPECT_TRUE(cache.Append(end - begin).ok());
      return {.cache = &cache, .prompt = &prompt, .begin = begin, .end = end, .logits = logits};
    }
  };
  Sequence Begin(int64_t tokens, uint64_t seed, int64_t answer = 0) {
    Sequence sequence = {Prompt::FromTokens(RandomIds(tokens + answer, seed)),
                         model_->NewCache(tokens + answer)};
    sequence.cache.EndBlockBehind(tokens);
    return sequence;
  }
  std::vector<float> Forward(std::vector<SequenceStep> steps) {
    return HostFloats(*ops_, model_->Forward(steps));
  }
  // Logits behind the first `end` tokens.
  std::vector<float> Behind(Sequence& sequence, int64_t end) {
    return Forward({sequence.Next(end)});
  }
  std::vector<int32_t> Answer(Model& model, const std::vector<int32_t>& ids, int64_t tokens) {
    GenerateOptions options;
    options.max_new_tokens = tokens;
    const Result<GenerateResult> answer =
        Generate(model, Prompt::FromTokens(ids), options, nullptr);
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? answer->ids : std::vector<int32_t>();
  }

  const std::unique_ptr<Ops> ops_ = MakeTestOps("cpu", 2);
  std::unique_ptr<Model> model_;
  int64_t block_ = 0;
};

// A prompt is what it is behind so many tokens of id 0 that its blocks are whole.
TEST_P(TwoDecoders, PromptsAreFilledUpInFront) {
  for (int64_t tokens = 1; tokens < 3 * block_; ++tokens) {
    const std::vector<int32_t> ids = RandomIds(tokens, static_cast<uint64_t>(tokens));
    std::vector<int32_t> filled(static_cast<size_t>(-tokens % block_ + block_) % block_, 0);
    filled.insert(filled.end(), ids.begin(), ids.end());
    ASSERT_EQ(std::ssize(filled) % block_, 0);
    EXPECT_EQ(Answer(*model_, ids, 20), Answer(*model_, filled, 20)) << tokens << " tokens";
    std::vector<float> rows[2];
    for (const bool whole : {false, true}) {
      const Prompt prompt = Prompt::FromTokens(whole ? filled : ids);
      KvCache cache = model_->NewCache(prompt.size());
      ASSERT_TRUE(Prefill(*model_, prompt, cache, Model::kChunkRows, true,
                          [&](const Tensor& logits) -> Status {
                            const std::vector<float> more = HostFloats(*ops_, logits);
                            rows[whole].insert(rows[whole].end(), more.begin(), more.end());
                            return {};
                          })
                      .ok());
      EXPECT_EQ(cache.length(0, 0), std::ssize(filled) / block_);
    }
    EXPECT_EQ(std::ssize(rows[0]), (std::ssize(filled) - block_ + 1) * model_->config().vocab_size);
    EXPECT_TRUE(SameBits(rows[0], rows[1])) << tokens << " tokens";
  }
}

// Prompts, questions and rows of answers at every place of a block have the bits beside each other
// that they have alone, and so has what they leave behind.
TEST_P(TwoDecoders, CompanyChangesNoBit) {
  const auto all = [&] {
    std::vector<Sequence> sequences;
    for (int64_t i = 0; i < 2 * block_; ++i) {
      sequences.push_back(Begin(90 + i, static_cast<uint64_t>(i), 2 * block_));
    }
    return sequences;
  };
  // In turns: whole prompts, their first tokens, one row, and several rows.
  const auto ends = [&](int64_t i) {
    return i % 3 == 0   ? std::vector<int64_t>{90 + i, 91 + i, 90 + i + block_}
           : i % 3 == 1 ? std::vector<int64_t>{1, 37, 91 + i}
                        : std::vector<int64_t>{90 + i, 89 + i + block_, 91 + i + block_};
  };
  std::vector<Sequence> apart = all(), together = all();
  for (size_t turn = 0; turn < 3; ++turn) {
    std::vector<float> alone;
    std::vector<SequenceStep> steps;
    for (size_t i = 0; i < apart.size(); ++i) {
      const int64_t end = ends(static_cast<int64_t>(i))[turn];
      const bool early = apart[i].cache.TokensAt(0).second > end;
      const LogitRows logits = early ? LogitRows::kNone : LogitRows::kLast;
      const std::vector<float> rows = Forward({apart[i].Next(end, logits)});
      if (!early) alone.insert(alone.end(), rows.begin(), rows.end());
      steps.push_back(together[i].Next(end, logits));
    }
    EXPECT_TRUE(SameBits(Forward(steps), alone)) << "turn " << turn;
  }
  for (size_t i = 0; i < apart.size(); ++i) {
    EXPECT_EQ(*apart[i].cache.Serialize(), *together[i].cache.Serialize()) << i;
  }
}

TEST_P(TwoDecoders, ThreadsChangeNoBit) {
  const std::vector<int32_t> ids = RandomIds(601, 3);
  const auto want = Answer(*model_, ids, 40);
  for (const int threads : {1, 4}) {
    const std::unique_ptr<Ops> ops = MakeTestOps("cpu", threads);
    const std::unique_ptr<Model> other = Load(*ops);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(Answer(*other, ids, 40), want) << threads;
  }
}

TEST_P(TwoDecoders, HoldsAnEntryForEachBlockAndTheRowsOfOne) {
  const ModelConfig& config = model_->config();
  const int64_t blocks = config.block_layer_count(), width = 2 * config.hidden_size;
  EXPECT_EQ(config.cache_count(), blocks);
  EXPECT_EQ(config.KvBytesPerToken(DType::kBF16), blocks * width * 2 / block_);
  EXPECT_EQ(config.KvReachBytes(10 * block_ + 1, DType::kBF16), 11 * blocks * width * 2);
  EXPECT_EQ(config.StateBytes(),
            (config.layer_count() - blocks) * config.blocks->rows() * width * 4);
  EXPECT_EQ(model_->shape().state_bytes, config.StateBytes());
  Sequence sequence = Begin(block_ + 1, 1, 2 * block_);
  EXPECT_EQ(sequence.cache.TokensAt(0), (std::pair<int64_t, int64_t>(0, 1)));
  EXPECT_EQ(sequence.cache.TokensAt(1), (std::pair<int64_t, int64_t>(1, 1 + block_)));
  for (int64_t seen = 1; seen < 3 * block_; ++seen) {
    Behind(sequence, seen);
    EXPECT_EQ(sequence.cache.tokens(), seen);
    EXPECT_EQ(sequence.cache.length(0, 0), 1 + (seen - 1) / block_) << seen;
    EXPECT_EQ(sequence.cache.Bytes().payload, (1 + (seen - 1) / block_) * blocks * width * 4);
    EXPECT_EQ(sequence.cache.StateBytes(), config.StateBytes());
  }
  const Method full = Shipped("full");
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(90, 1), .max_new_tokens = 9}}};
  const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
  const CellResult cell = RunEngine({contender}, {}, {sample}).at({0, 0});
  EXPECT_EQ(cell.record.engagement, Engagement::kIdentity);
  EXPECT_EQ(cell.record.prompt_tokens, 90);
  EXPECT_EQ(cell.record.entries_after[0][0], (90 + block_ - 1) / block_);
  EXPECT_EQ(cell.record.full_bytes, cell.record.bytes.payload);
  EXPECT_EQ(cell.record.nominal_bytes, cell.record.bytes.payload);
}

// What the plan of a run counts grows by entries, not by tokens, and a pool as large as it says is
// enough.
TEST_P(TwoDecoders, TheMemoryPlanCountsBlocks) {
  const Method full = Shipped("full");
  const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
  const auto sample = [](int64_t tokens) {
    return EngineSample{.id = "s", .turns = {{.ids = RandomIds(tokens, 1), .max_new_tokens = 8}}};
  };
  const auto plan = [&](int64_t tokens) {
    const EngineSample one = sample(tokens);
    const Result<MemoryPlan> planned = Engine({contender}, {}).PlanMemory({&one, 1});
    EXPECT_TRUE(planned.ok()) << planned.error().message;
    return *planned;
  };
  const ModelShape shape = model_->shape();
  const int64_t entries = 10 * kKvPageEntries;
  EXPECT_EQ(plan(2 * entries * block_).snapshot_bytes - plan(entries * block_).snapshot_bytes,
            entries * shape.TokenBytes());
  const MemoryPlan planned = plan(3000);
  EngineOptions options;
  options.max_memory_bytes =
      planned.weight_bytes + planned.working_bytes + planned.snapshot_bytes + planned.lane_bytes;
  const CellResult cell = RunEngine({contender}, options, {sample(3000)}).at({0, 0});
  EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
}

TEST_P(TwoDecoders, TheEngineAnswersAsTheModelDoes) {
  const Method full = Shipped("full");
  const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
  std::vector<EngineSample> samples;
  for (int64_t tokens = 1; tokens < 2 * block_; ++tokens) {
    samples.push_back({.id = StrCat("s", tokens),
                       .context = RandomIds(600, 9),
                       .turns = {{.ids = RandomIds(tokens, 11), .max_new_tokens = 13}}});
  }
  const Cells prompts = RunEngine({contender}, {}, samples);
  // A context that is read before its question begins as the whole of both does.
  const Cells contexts = RunEngine({contender}, {.compress_at = CompressAt::kContext}, samples);
  const Cells turns = RunEngine({contender}, {.compress_at = CompressAt::kTurn}, samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<int32_t> ids = samples[i].context;
    ids.insert(ids.end(), samples[i].turns[0].ids.begin(), samples[i].turns[0].ids.end());
    const std::vector<int32_t> own = Answer(*model_, ids, 13);
    for (const Cells* cells : {&prompts, &contexts, &turns}) {
      const CellResult& cell = cells->at({static_cast<int64_t>(i), 0});
      ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
      EXPECT_EQ(cell.turns[0].ids, own) << i;
    }
  }
}

// Questions that go on from one context have their blocks where its are.
TEST_P(TwoDecoders, QuestionsOfOneContextEndItsBlocksAlike) {
  const Method full = Shipped("full");
  const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
  const auto asked = [&](int64_t second) {
    return EngineSample{.id = "two",
                        .context = RandomIds(50, 2),
                        .turns = {{.ids = RandomIds(7, 3), .max_new_tokens = 9},
                                  {.ids = RandomIds(second, 4), .max_new_tokens = 9}}};
  };
  const EngineOptions options = {.compress_at = CompressAt::kContext};
  const EngineSample good = asked(7 + block_), bad = asked(8);
  const Cells cells = RunEngine({contender}, options, {good});
  for (size_t turn = 0; turn < 2; ++turn) {
    std::vector<int32_t> ids = good.context;
    ids.insert(ids.end(), good.turns[turn].ids.begin(), good.turns[turn].ids.end());
    EXPECT_EQ(cells.at({0, 0}).turns[turn].ids, Answer(*model_, ids, 9)) << turn;
  }
  const Result<MemoryPlan> refused = Engine({contender}, options).PlanMemory({&bad, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("sample two, turn 1"), HasSubstr("blocks of"),
                    HasSubstr("compress_at prompt")));
  EXPECT_TRUE(Engine({contender}, {}).PlanMemory({&bad, 1}).ok());
  // Nothing is known within the first block, where such a context would end.
  for (int64_t tokens = 1; tokens < 2 * block_; ++tokens) {
    const EngineSample early = {.id = "early",
                                .context = RandomIds(tokens, 2),
                                .turns = {{.ids = RandomIds(1, 3), .max_new_tokens = 2}}};
    const bool held = (tokens + 1 + block_ - 1) / block_ * block_ - 1 >= block_;
    const Result<MemoryPlan> plan = Engine({contender}, options).PlanMemory({&early, 1});
    ASSERT_EQ(plan.ok(), held) << tokens;
    if (held) {
      EXPECT_TRUE(RunEngine({contender}, options, {early}).at({0, 0}).status.ok()) << tokens;
    } else {
      EXPECT_THAT(plan.error().message,
                  AllOf(HasSubstr("sample early"), HasSubstr("has to hold one")));
    }
  }
}

// Beside itself the full cache differs by nothing.
TEST_P(TwoDecoders, FidelityIsMeasured) {
  const Method full = Shipped("full");
  const Contender contender = {.method = &full, .budget = {}, .model = model_.get()};
  const EngineSample sample = {.id = "s",
                               .context = RandomIds(70, 2),
                               .turns = {{.ids = RandomIds(9, 1), .max_new_tokens = 9}}};
  for (const CompressAt at : {CompressAt::kPrompt, CompressAt::kContext}) {
    const Cells cells =
        RunEngine({contender, contender}, {.compress_at = at, .fidelity_steps = 6}, {sample});
    for (int64_t i = 0; i < 2; ++i) {
      const CellResult& cell = cells.at({0, i});
      ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
      ASSERT_TRUE(cell.fidelity.has_value());
      EXPECT_EQ(cell.fidelity->steps, 6);
      EXPECT_EQ(cell.fidelity->kl_divergence, 0);
      EXPECT_EQ(cell.fidelity->top1_agreement, 1);
      EXPECT_TRUE(cell.fidelity->attention_error.empty()) << "no step shows what a block saw";
    }
  }
}

TEST_P(TwoDecoders, ForksGoOnByThemselves) {
  for (int64_t seen = 60; seen < 60 + block_; ++seen) {
    Sequence whole = Begin(61, 5, 29), cut = Begin(61, 5, 29);
    Behind(whole, seen);
    Behind(cut, seen);
    Sequence fork = {cut.prompt, cut.cache.Fork()}, other = {cut.prompt, cut.cache.Fork()};
    // Another's next tokens are others.
    for (size_t i = static_cast<size_t>(seen); i < 90; ++i) other.prompt.positions[i].token_id = 1;
    Behind(other, 90);
    const std::vector<float> want = Behind(whole, 90);
    EXPECT_TRUE(SameBits(Behind(fork, 90), want)) << seen;
    EXPECT_TRUE(SameBits(Behind(cut, 90), want)) << seen;
  }
}

TEST_P(TwoDecoders, SavedCachesGoOn) {
  for (int64_t seen = 60; seen < 60 + block_; ++seen) {
    Sequence sequence = Begin(61, 5, 29);
    Behind(sequence, seen);
    const std::string bytes = *sequence.cache.Serialize();
    Sequence again = {sequence.prompt, model_->NewCache(90)};
    ASSERT_TRUE(again.cache.Deserialize(bytes).ok());
    EXPECT_EQ(again.cache.block_pad(), sequence.cache.block_pad());
    EXPECT_EQ(*again.cache.Serialize(), bytes);
    EXPECT_TRUE(SameBits(Behind(again, 90), Behind(sequence, 90))) << seen;
    for (const size_t left : {bytes.size() - 1, bytes.size() / 2, size_t{40}}) {
      KvCache broken = model_->NewCache(90);
      const Status status = broken.Deserialize(std::string_view(bytes).substr(0, left));
      ASSERT_FALSE(status.ok()) << left;
      EXPECT_THAT(status.error().message, HasSubstr("cache bytes"));
    }
  }
}

TEST_P(TwoDecoders, AFullPoolIsAnErrorThatChangesNothing) {
  CachePools::Limits limits;
  limits.device_bytes = model_->config().StateBytes() / 2;
  CachePools pools(*ops_, limits);
  KvCache small = model_->NewCache(600, pools);
  small.EndBlockBehind(600);
  EXPECT_FALSE(small.Append(600).ok());
  EXPECT_EQ(small.tokens(), 0);
  EXPECT_EQ(small.length(0, 0), 0);
}

TEST_P(TwoDecoders, WhatTheyCannotIsRefusedByName) {
  const ModelShape shape = model_->shape();
  EXPECT_EQ(shape.entry_tokens, block_);
  EXPECT_TRUE(CheckMethod(Shipped("full"), shape, {}, 100).ok());
  for (const char* id : {"snapkv", "kivi_2bit", "streaming_llm", "quest", "cla", "fastv", "h2o",
                         "epic", "radix_attention", "mean_pool_gqa", "int8", "minference"}) {
    const Method method = Shipped(id);
    const Status refused =
        CheckMethod(method, shape, method.takes_budget ? Fraction(0.5) : Budget{}, 100);
    ASSERT_FALSE(refused.ok()) << id;
    EXPECT_THAT(refused.error().message, HasSubstr(id));
  }
  const std::string why = StrCat("stands for a block of ", block_, " tokens");
  EXPECT_THAT(CheckMethod(Shipped("snapkv"), shape, Fraction(0.5), 100).error().message,
              AllOf(HasSubstr("score.snapkv"), HasSubstr(why)));
  EXPECT_THAT(CheckMethod(Shipped("int8"), shape, {}, 100).error().message,
              AllOf(HasSubstr(why), HasSubstr("use store.plain")));
  EXPECT_THAT(CheckDraft(Shipped("full"), shape, {}, 100).error().message,
              HasSubstr("constant size"));
  EXPECT_THAT(CheckLayered(model_->config()).error().message,
              HasSubstr("one decoder reads blocks"));
  const Method learns = Shipped("kvsharer");
  const std::vector<std::vector<int32_t>> texts = {RandomIds(30, 1)};
  const auto tables = Calibrate(*model_, *learns.prepare, texts);
  ASSERT_FALSE(tables.ok());
  EXPECT_THAT(tables.error().message, HasSubstr("block_length"));
  Sequence sequence = Begin(60, 1);
  Behind(sequence, 60);
  EXPECT_THAT(sequence.cache.Truncate(59).error().message, HasSubstr("cannot forget"));
}

INSTANTIATE_TEST_SUITE_P(All, TwoDecoders,
                         ::testing::Values("block_transformer", "block_transformer_projected",
                                           "block_transformer_one", "block_transformer_serial",
                                           "block_transformer_long"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace kvgauge
