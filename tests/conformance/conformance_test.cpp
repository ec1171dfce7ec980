// SPDX-License-Identifier: Apache-2.0
// What every shipped method must keep, whatever it does. The list is the directory of method files:
// a new method is in the suite as soon as its file exists.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>

#include "conformance/masking.h"
#include "core/json.h"
#include "methods/absorbing_reader.h"
#include "methods/layouts/coded.h"
#include "methods/trained_thin.h"
#include "runner/chunk_prefill.h"
#include "runner/reuse_texts.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class Conformance : public ::testing::TestWithParam<std::string> {};

// A prompt of so many tokens, with those that a stage puts between its texts.
int64_t TokensWithLinks(const Method& method, int64_t tokens) {
  return method.reuse ? tokens + LinkTokens(*method.reuse, tokens, 0, {}) : tokens;
}

// Whether entries stay as they are: uncoded, at their own positions.
bool IsPlain(const Method& method, const ModelShape& shape) {
  const Result<StorePlan> plan = MakePipeline(method).store->Plan(shape, 0);
  return plan.ok() && method.store->spec->id == "plain" && plan->IsPlain();
}

// Whether every number stays as it is, wherever it lies and by whatever position it turns.
bool IsUncoded(const Method& method, const ModelShape& shape) {
  const Pipeline pipeline = MakePipeline(method);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = pipeline.store->Plan(shape, layer);
    if (!plan.ok() || !plan->layout->traits().exact) return false;
  }
  return true;
}

// At full budget a method that stores plainly is the full cache, bit for bit: logits and attention.
// A reader that may read everything is, too. A store that keeps uncoded keys unrotated turns those
// of the prompt back and forth, so it differs by that rounding alone.
TEST_P(Conformance, FullBudgetIsTheFullCache) {
  for (const auto& subject : Subjects(GetParam(), {.overrides = KeepingAll(GetParam())})) {
    if (!IsUncoded(subject->method, subject->shape())) return;
    Contender contender = subject->contender();
    if (subject->method.takes_budget) contender.budget = {Budget::Kind::kFraction, 1.0};
    if (!CheckMethod(subject->method, subject->shape(), contender.budget, kPromptTokens).ok()) {
      continue;
    }
    const Outcomes outcomes =
        RunContenders({contender}, {Sample(kPromptTokens, 1)}, {.fidelity_steps = 5});
    const CellResult& cell = outcomes.at({0, 0}).cell;
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    ASSERT_TRUE(cell.fidelity.has_value());
    EXPECT_EQ(cell.fidelity->top1_agreement, 1);
    if (IsPlain(subject->method, subject->shape())) {
      EXPECT_EQ(cell.fidelity->kl_divergence, 0);
      for (const double error : cell.fidelity->attention_error) EXPECT_EQ(error, 0);
    } else {
      EXPECT_LE(cell.fidelity->kl_divergence, 1e-9);
      for (const double error : cell.fidelity->attention_error) EXPECT_LE(error, 1e-5);
      continue;
    }
    if (subject->method.reuse) {
      EXPECT_NE(cell.record.engagement, Engagement::kNotEngaged) << cell.record.reason;
      continue;
    }
    // Without a budget such a method is expected to give up something.
    const bool must = (subject->method.reduce || subject->method.thin || subject->method.attend ||
                       subject->shape().running_entries) &&
                      !subject->method.takes_budget;
    const Engagement idle = subject->method.read || must  ? Engagement::kNotEngaged
                            : subject->method.place.any() ? Engagement::kEngaged
                                                          : Engagement::kIdentity;
    EXPECT_EQ(cell.record.engagement, idle) << cell.record.reason;
  }
}

// What a method keeps is within its budget, and less than all: it did something.
TEST_P(Conformance, KeepsWithinItsBudget) {
  for (const auto& subject : Subjects(GetParam())) {
    const Outcomes outcomes = RunContenders({subject->contender()}, {Sample(kPromptTokens, 2)});
    const CellResult& cell = outcomes.at({0, 0}).cell;
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    const CompressionRecord& record = cell.record;
    const ModelShape shape = subject->shape();
    const int64_t tokens = TokensWithLinks(subject->method, kPromptTokens);
    const int64_t per_head = HeadBudgetFor(subject->method, shape, subject->budget, tokens).entries;
    int64_t held = 0;
    for (const auto& layer : record.entries_after) {
      for (const int64_t entries : layer) {
        EXPECT_GE(entries, 0);
        EXPECT_LE(entries, tokens);
        held += entries;
      }
    }
    EXPECT_EQ(std::ssize(record.entries_after), shape.layers);
    EXPECT_LE(held, per_head * shape.layers * std::ssize(record.entries_after[0]));
    const Pipeline pipeline = MakePipeline(subject->method);
    const bool joins =
        pipeline.reuse != nullptr && pipeline.reuse->texts() != ReusedTexts::kPrefixes;
    const bool has_stages = subject->method.score || subject->method.read || subject->method.thin ||
                            subject->method.attend || joins || !IsPlain(subject->method, shape) ||
                            subject->method.place.any() || shape.running_entries;
    if (subject->method.place.any()) {
      EXPECT_GT(record.host_bytes, 0);
      EXPECT_LE(record.host_bytes, record.bytes.logical() + record.reader_bytes);
      EXPECT_EQ(record.fetched_bytes_per_step > 0, !subject->method.place.attends);
      EXPECT_LE(record.fetched_bytes_per_step, static_cast<double>(record.final_host_bytes));
    }
    // Codes of pictures alone have nothing to do in a text.
    if (pipeline.store->needs().modality && !pipeline.store->needs_scores()) {
      EXPECT_EQ(record.engagement, Engagement::kNotEngaged);
      EXPECT_FALSE(record.reason.empty());
    } else if (has_stages) {
      EXPECT_EQ(record.engagement, Engagement::kEngaged) << record.reason;
    } else if (!subject->method.prepare) {
      EXPECT_EQ(record.engagement, Engagement::kIdentity);
    }
  }
}

// In the references a share of the prompt is a number of entries, and it stays that number, but for
// what comes between two times of a trigger that acts now and then. Heads that are given entries
// anew hold that number together.
TEST_P(Conformance, HoldsItsNumberWhileDecoding) {
  constexpr int64_t kNewTokens = 20;
  for (const auto& subject : Subjects(GetParam())) {
    if (!subject->method.trigger || !MakePipeline(subject->method).trigger->in_decode()) return;
    if (!subject->method.takes_budget) return;  // its number follows from its scores
    std::vector<std::vector<int64_t>> held;
    const Outcomes outcomes =
        RunContenders({subject->contender()}, {Sample(kPromptTokens, 2, kNewTokens)},
                      {.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
                        for (int64_t layer = 0; layer < subject->shape().layers; ++layer) {
                          held.emplace_back();
                          for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
                            held.back().push_back(cache.length(layer, head));
                          }
                        }
                      }});
    const CellResult& cell = outcomes.at({0, 0}).cell;
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    const Params& trigger = subject->method.trigger->params;
    const bool now_and_then = subject->method.trigger->spec->id == "interval";
    const int64_t since = now_and_then ? (kNewTokens - 1) % trigger.Int("steps") : 0;
    std::vector<std::vector<int64_t>> want = cell.record.entries_after;
    for (std::vector<int64_t>& layer : want) {
      for (int64_t& entries : layer) entries += since;
    }
    if (subject->method.trigger->spec->id == "refresh") {
      // Whole steps leave less than that.
      const int64_t most =
          HeadBudgetFor(subject->method, subject->shape(), subject->budget, kPromptTokens).entries;
      for (const auto& layer : held) {
        for (const int64_t entries : layer) {
          EXPECT_GT(entries, 0);
          EXPECT_LE(entries, most);
        }
      }
      continue;
    }
    if (!now_and_then || !trigger.Bool("again")) {
      EXPECT_EQ(held, want);
      continue;
    }
    for (size_t layer = 0; layer < want.size(); ++layer) {
      EXPECT_EQ(std::accumulate(held[layer].begin(), held[layer].end(), int64_t{0}),
                std::accumulate(want[layer].begin(), want[layer].end(), int64_t{0}));
    }
  }
}

// Where the score looks back from a window, the window stays, however wide it is, and allocators
// count it. Layers whose rows have left a prefill look back from the last of those that are left.
TEST_P(Conformance, WindowsStayWhole) {
  for (const int64_t window : {int64_t{8}, int64_t{64}}) {
    const Method shipped = LoadShipped(GetParam());
    if (!shipped.score || MakePipeline(shipped).score->protects() == 0) return;
    const auto subject =
        MakeSubject(GetParam(), "gqa", {.overrides = {StrCat("score.window=", window)}});
    ASSERT_NE(subject, nullptr);
    const int64_t per_head =
        HeadBudgetFor(subject->method, subject->shape(), subject->budget, kPromptTokens).entries;
    const auto share =
        static_cast<int64_t>(subject->method.recent_share * static_cast<double>(per_head));
    EXPECT_EQ(
        HeadBudgetFor(subject->method, subject->shape(), subject->budget, kPromptTokens).recent,
        std::max(window, share));
    ASSERT_GT(per_head, window);
    const Pipeline pipeline = MakePipeline(subject->method);
    const int64_t layers =
        pipeline.thin ? pipeline.thin->Layers(subject->shape())[0] : subject->shape().layers;
    int64_t newest = 0;
    RunContenders(
        {subject->contender()}, {Sample(kPromptTokens, 2, 1)},
        {.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
          for (int64_t layer = 0; layer < layers; ++layer) {
            for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
              std::vector<int32_t> positions(static_cast<size_t>(cache.length(layer, head)));
              cache.ReadPositions(layer, head, 0, View(positions, {cache.length(layer, head)}));
              for (const int32_t at : positions) {
                newest += at >= kPromptTokens - window && at < kPromptTokens;
              }
            }
          }
        }});
    int64_t heads = 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      heads += subject->shape().OfLayer(layer).kv_heads;
    }
    EXPECT_EQ(newest, heads * window) << window;
  }
}

// A run repeated, a sample after another, and any company give the same bytes.
TEST_P(Conformance, SameBytesAgainAfterOthersAndInCompany) {
  const Method full = LoadShipped("full"), snapkv = LoadShipped("snapkv");
  for (const auto& subject : Subjects(GetParam())) {
    Model& model = subject->model();
    const EngineSample a = Sample(kPromptTokens, 3), b = Sample(130, 4);
    const Outcomes alone = RunContenders({subject->contender()}, {a});
    ExpectSame(RunContenders({subject->contender()}, {a}).at({0, 0}), alone.at({0, 0}));
    const Outcomes aba = RunContenders({subject->contender()}, {a, b, a}, {.max_pool_lanes = 1});
    ExpectSame(aba.at({0, 0}), alone.at({0, 0}));
    ExpectSame(aba.at({2, 0}), alone.at({0, 0}));
    const std::vector<Contender> company = {{&full, {}, &model},
                                            subject->contender(),
                                            {&snapkv, {Budget::Kind::kFraction, 0.4}, &model},
                                            subject->contender()};
    const Outcomes together = RunContenders(company, {b, a}, {.max_pool_lanes = 3});
    ExpectSame(together.at({1, 1}), alone.at({0, 0}));
    ExpectSame(together.at({1, 3}), alone.at({0, 0}));
    ExpectSame(together.at({0, 1}), aba.at({1, 0}));
  }
}

// Whatever the store makes of the entries: a cache that is written and read back holds the same,
// and goes on the same.
TEST_P(Conformance, BytesBringTheCacheBack) {
  for (const auto& subject : Subjects(GetParam())) {
    Model& model = subject->model();
    EngineOptions options;
    int seen = 0;
    options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
      ++seen;
      const Result<std::string> bytes = cache.Serialize();
      ASSERT_TRUE(bytes.ok()) << bytes.error().message;
      CachePools pools(model.ops());
      const int64_t planned = kPromptTokens + 16;
      KvCache again = model.NewCache(planned, pools, cache.mla_latent());
      const Status filled = again.Deserialize(*bytes);
      ASSERT_TRUE(filled.ok()) << filled.error().message;
      EXPECT_EQ(again.tokens(), cache.tokens());
      EXPECT_EQ(Digest(again), Digest(cache));
      KvBytes got = again.Bytes(), want = cache.Bytes();
      got.slack = want.slack = 0;
      EXPECT_EQ(got, want);
      EXPECT_EQ(*again.Serialize(), *bytes);
      for (size_t size = 0; size < bytes->size(); size += 1 + bytes->size() / 7) {
        KvCache cut = model.NewCache(planned, pools, cache.mla_latent());
        EXPECT_FALSE(cut.Deserialize(std::string_view(*bytes).substr(0, size)).ok()) << size;
      }
      // One more token, and what is due is sealed.
      KvCache fork = cache.Fork();
      const int64_t at = cache.tokens();
      const Prompt prompt = Prompt::FromTokens(RandomIds(at + 1, 9));
      std::vector<std::vector<float>> logits;
      for (KvCache* either : {&fork, &again}) {
        ASSERT_TRUE(either->Append(1).ok());
        const SequenceStep step = {.cache = either, .prompt = &prompt, .begin = at, .end = at + 1};
        logits.push_back(HostFloats(model.ops(), model.Forward({&step, 1})));
        ASSERT_TRUE(either->Seal().ok());
      }
      EXPECT_TRUE(SameBits(logits[1], logits[0]));
      EXPECT_EQ(Digest(again), Digest(fork));
    };
    Engine engine({subject->contender()}, options);
    const EngineSample sample = Sample(kPromptTokens, 8);
    const Status done =
        engine.Run({&sample, 1}, [](const CellResult& cell) { return cell.status; });
    EXPECT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(seen, 1);
  }
}

// What a contender's plan is for: without constants of the model, and without what the method
// placed in the host's memory, of which a device has nothing.
int64_t HeldBytes(const Subject& subject, const KvCache& cache) {
  const KvBytes bytes = cache.Bytes();
  return bytes.resident() - bytes.codebooks - bytes.projections - cache.PlacedBytes() +
         BytesOfStates(subject.shape(), cache);
}

// What was planned for a contender is enough for what it holds at the end, a reader's index with
// it.
TEST_P(Conformance, HoldsNoMoreThanPlanned) {
  for (const auto& subject : Subjects(GetParam())) {
    int64_t held_bytes = 0;
    EngineOptions options;
    options.inspect = [&](const CellResult&, const KvCache& cache, Compressor& compressor) {
      held_bytes = HeldBytes(*subject, cache) + compressor.reader_bytes();
    };
    Engine engine({subject->contender()}, options);
    const EngineSample sample = Sample(kPromptTokens, 8);
    const Result<MemoryPlan> plan = engine.PlanMemory({&sample, 1});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const Status done =
        engine.Run({&sample, 1}, [](const CellResult& cell) { return cell.status; });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_GT(held_bytes, 0);
    EXPECT_LE(held_bytes, plan->lane_bytes);
  }
}

TEST_P(Conformance, ThreadsChangeNothing) {
  const auto one = Subjects(GetParam(), {.threads = 1});
  for (const int threads : {2, 4}) {
    const auto many = Subjects(GetParam(), {.threads = threads});
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      const std::vector<EngineSample> samples = {Sample(kPromptTokens, 5)};
      ExpectSame(RunContenders({many[i]->contender()}, samples).at({0, 0}),
                 RunContenders({one[i]->contender()}, samples).at({0, 0}));
    }
  }
}

// Prompts around the window, the pages and the residuals, and of one token.
TEST_P(Conformance, OddLengths) {
  std::set<int64_t> lengths = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129};
  const Method shipped = LoadShipped(GetParam());
  const auto around = [&](int64_t edge) {
    for (const int64_t length : {edge - 1, edge, edge + 1}) {
      if (length > 0) lengths.insert(length);
    }
  };
  around(shipped.needs().window);
  // Where the store seals for the first and for the second time.
  for (const char* kind : kKinds) {
    const ModelShape shape = TinyShape(kind);
    if (!CheckMethod(shipped, shape, HalfBudget(shipped), kPromptTokens).ok()) continue;
    const Result<StorePlan> plan = MakePipeline(shipped).store->Plan(shape.OfLayer(0), 0);
    ASSERT_TRUE(plan.ok());
    const auto* coded = plan->Get<Coded>();
    if (coded == nullptr) continue;
    for (const SealRule* rule : {&coded->seal_keys, &coded->seal_values}) {
      around(coded->sinks + rule->keep_recent + rule->unit);
      around(coded->sinks + rule->keep_recent + 2 * rule->unit);
    }
    around(coded->sinks);
  }
  std::vector<EngineSample> samples;
  for (const int64_t length : lengths) {
    samples.push_back(Sample(length, static_cast<uint64_t>(100 + length), 3));
  }
  for (const auto& subject : Subjects(GetParam())) {
    const Outcomes outcomes = RunContenders({subject->contender()}, samples);
    for (size_t i = 0; i < samples.size(); ++i) {
      const CellResult& cell = outcomes.at({static_cast<int64_t>(i), 0}).cell;
      const int64_t length = TokensWithLinks(subject->method, std::ssize(samples[i].turns[0].ids));
      ASSERT_TRUE(cell.status.ok()) << length << ": " << cell.status.error().message;
      EXPECT_EQ(cell.turns[0].ids.size(), 3u) << length;
      for (const auto& layer : cell.record.entries_after) {
        for (const int64_t entries : layer) EXPECT_LE(entries, length);
      }
    }
  }
}

// Read in chunks that are compressed before the next: within the budget, alone as in company, in no
// more than was planned, at any length; or refused by name. The full cache is the one of a prompt
// that is read whole.
TEST_P(Conformance, ReadsPromptsInChunks) {
  constexpr int64_t kChunk = 100;
  const Method full = LoadShipped("full"), snapkv = LoadShipped("snapkv");
  const EngineSample a = Sample(kPromptTokens, 3), b = Sample(330, 4);
  for (const auto& subject : Subjects(GetParam())) {
    const Status fits = CheckMoment(subject->method, CompressAt::kChunk, kChunk);
    if (!fits.ok()) {
      EXPECT_TRUE(fits.error().message.starts_with(subject->method.id + ": "));
      EXPECT_NE(fits.error().message.find("chunk"), std::string::npos) << fits.error().message;
      return;
    }
    const bool reads = ReducesPrompts(subject->method);
    std::map<std::pair<int64_t, int64_t>, int64_t> held_bytes;
    const EngineOptions options = {
        .compress_at = CompressAt::kChunk,
        .chunk_tokens = kChunk,
        .max_pool_lanes = 3,
        .inspect = [&](const CellResult& cell, const KvCache& cache, Compressor& compressor) {
          held_bytes[{cell.sample, cell.contender}] =
              HeldBytes(*subject, cache) + compressor.reader_bytes();
        }};
    const Outcomes alone = RunContenders({subject->contender()}, {a, b}, options);
    const Result<MemoryPlan> plan =
        Engine({subject->contender()}, options).PlanMemory(std::vector<EngineSample>{b});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_LE(held_bytes.at({1, 0}), plan->lane_bytes);
    for (const int64_t at : {0, 1}) {
      const CellResult& cell = alone.at({at, 0}).cell;
      ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
      const int64_t tokens =
          TokensWithLinks(subject->method, std::ssize((at == 0 ? a : b).turns[0].ids));
      EXPECT_EQ(cell.record.prompt_tokens, tokens);
      const int64_t per_head =
          HeadBudgetFor(subject->method, subject->shape(), subject->budget, tokens).entries;
      int64_t held = 0, heads = 0;
      for (const auto& layer : cell.record.entries_after) {
        heads += std::ssize(layer);
        held = std::accumulate(layer.begin(), layer.end(), held);
      }
      EXPECT_LE(held, per_head * heads);
      if (reads) {
        EXPECT_EQ(cell.record.engagement, Engagement::kEngaged) << cell.record.reason;
      }
    }
    const std::vector<Contender> company = {
        {&full, {}, &subject->model()},
        subject->contender(),
        {&snapkv, {Budget::Kind::kFraction, 0.4}, &subject->model()},
        subject->contender()};
    const Outcomes together = RunContenders(company, {b, a}, options);
    for (const int64_t contender : {1, 3}) {
      ExpectSame(together.at({0, contender}), alone.at({1, 0}));
      ExpectSame(together.at({1, contender}), alone.at({0, 0}));
    }
    ExpectSame(together.at({0, 0}), RunContenders({company[0]}, {b}).at({0, 0}));
    if (!reads) {
      ExpectSame(alone.at({0, 0}), RunContenders({subject->contender()}, {a}).at({0, 0}));
    }
    for (const int64_t length : {int64_t{1}, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk + 1}) {
      const Outcomes odd = RunContenders({subject->contender()}, {Sample(length, 100, 2)}, options);
      const Status& status = odd.at({0, 0}).cell.status;
      EXPECT_TRUE(status.ok()) << length << ": " << status.error().message;
    }
  }
}

// Declared bytes are what the allocator handed out, to the byte; and they went down.
TEST_P(Conformance, DeclaredBytesAreAllocated) {
  for (const auto& subject : Subjects(GetParam())) {
    Prefilled prefilled(*subject, Prompt::FromTokens(RandomIds(kPromptTokens, 6)));
    const int64_t full_bytes = prefilled.used_bytes();
    const int64_t states = BytesOfStates(subject->shape(), *prefilled.cache);
    EXPECT_EQ(prefilled.cache->Bytes().resident() + states, full_bytes);
    Compressor compressor(subject->model(), subject->method, subject->budget);
    const Status status = prefilled.CompressWith(compressor, *subject, *prefilled.cache);
    ASSERT_TRUE(status.ok()) << status.error().message;
    const KvBytes bytes = prefilled.cache->Bytes();
    // Constants belong to the model; nothing else lies outside the pools.
    EXPECT_EQ(bytes.resident() - bytes.codebooks - bytes.projections + states,
              prefilled.used_bytes());
    const CompressionRecord record = compressor.Record();
    // Weights of a gate are constants too. They lie beside the cache, and the record has them.
    KvBytes declared = bytes;
    const Needs needs = subject->method.needs();
    for (const auto* gates : {&needs.gates, &needs.step_gates}) {
      for (const GateNeed& need : *gates) {
        const auto loaded = need.gate->Load(subject->shape(), subject->model().ops());
        EXPECT_GT(loaded->bytes(), 0);
        declared.projections += loaded->bytes();
      }
    }
    const Pipeline own = MakePipeline(subject->method);
    declared.projections += TrainedBytes(own.thin.get(), subject->shape());
    if (subject->method.thin && subject->method.thin->tagger != nullptr) {
      declared.projections += subject->method.thin->tagger->weight_bytes;
    }
    if (const auto* absorbing = dynamic_cast<const AbsorbingReader*>(own.read.get())) {
      EXPECT_GT(absorbing->WeightBytes(subject->shape()), 0);
      declared.projections += absorbing->WeightBytes(subject->shape());
    }
    EXPECT_EQ(record.bytes, declared);
    EXPECT_EQ(record.final_bytes, declared);
    EXPECT_GE(bytes.resident(), bytes.logical());
    if (subject->method.takes_budget && subject->method.score) {
      EXPECT_LT(prefilled.used_bytes(), full_bytes);
    }
    prefilled.cache.reset();
    EXPECT_EQ(prefilled.used_bytes(), 0);
  }
}

TEST_P(Conformance, EvictingIsMasking) {
  for (const auto& subject : Subjects(GetParam())) {
    ExpectEvictingIsMasking(*subject, Prompt::FromTokens(RandomIds(kPromptTokens, 7)));
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Conformance, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return TestNameOf(method.param); });

// A scorer that throws on prompts of one length.
class Thrower final : public Scorer {
 public:
  explicit Thrower(const Params& params) : tokens_(params.Int("tokens")) {}
  void Score(LayerView& view, Tensor out) const override {
    if (view.tokens() == tokens_) throw std::runtime_error("a stage that throws");
    for (int64_t head = 0; head < out.shape[0]; ++head) {
      view.ops().memory->Copy(Row(out.shape[1]), out[head]);
    }
  }

 private:
  static Tensor Row(int64_t width) {
    static std::vector<float> row(4096, 1.0f);
    return View(std::span<const float>(row).first(static_cast<size_t>(width)), {width});
  }
  int64_t tokens_;
};

const StageRegistrar kThrower(StageSpec{
    .kind = StageKind::kScore,
    .id = "test_thrower",
    .version = 1,
    .paper = "",
    .summary = "throws on prompts of one length",
    .departures = {},
    .bytes = "",
    .params = {IntParam("tokens", 150, 1, 100000, "the length that throws")},
    .make = Make<Thrower>()});

// An error is the result of its cell; neighbours and the next sample never notice.
TEST(ConformanceErrors, StayInTheirCell) {
  const Json json = {
      {"id", "thrower"},
      {"title", "throws"},
      {"family", "baseline"},
      {"version", 1},
      {"stages", {{"score", {{"id", "test_thrower"}}}, {"reduce", {{"id", "top_k"}}}}}};
  const Result<Method> thrower = ParseMethod(json, "test");
  ASSERT_TRUE(thrower.ok()) << thrower.error().message;
  const Method snapkv = LoadShipped("snapkv");
  const TinyModel tiny = MakeTinyModel("gqa");
  const Budget half = {Budget::Kind::kFraction, 0.5};
  const Contender good = {&snapkv, half, tiny.model.get()};
  const Contender bad = {&*thrower, half, tiny.model.get()};
  const std::vector<EngineSample> samples = {Sample(150, 8), Sample(140, 9)};
  const Outcomes outcomes = RunContenders({good, bad, good}, samples);
  const Outcomes alone = RunContenders({good}, samples);
  EXPECT_FALSE(outcomes.at({0, 1}).cell.status.ok());
  EXPECT_NE(outcomes.at({0, 1}).cell.status.error().message.find("a stage that throws"),
            std::string::npos);
  for (const int64_t sample : {0, 1}) {
    for (const int64_t contender : {0, 2}) {
      ExpectSame(outcomes.at({sample, contender}), alone.at({sample, 0}));
    }
  }
  ExpectSame(outcomes.at({1, 1}), RunContenders({bad}, {samples[1]}).at({0, 0}));
}

// Codes, outliers and corrections that take more than the numbers they stand for, in a layout that
// tells the plan of memory nothing of it.
struct Greedy final : Coded {
  using Coded::Coded;
  int64_t PlannedLayerBytes(const ModelShape&, int64_t, int64_t) const override { return 1; }
};

class GreedyStore final : public Store {
 public:
  explicit GreedyStore(const Params&) {}
  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Greedy layout(shape);
    for (KvCodec* codec : {&layout.keys, &layout.values}) {
      codec->kind = KvCodecKind::kAffine;
      codec->bits = 8;
      codec->outlier_share = 0.5;
      codec->rank = 32;
    }
    layout.keys.axis = CodeAxis::kChannel;
    layout.keys.group = 64;
    layout.values.group = shape.value_dim;
    layout.seal_keys = SealWhole(layout.keys);
    layout.seal_values = SealWhole(layout.values);
    return PlanOf(std::move(layout));
  }
};

const StageRegistrar kGreedy(StageSpec{.kind = StageKind::kStore,
                                       .id = "test_greedy",
                                       .version = 1,
                                       .paper = "",
                                       .summary = "takes more than it says",
                                       .departures = {},
                                       .bytes = "",
                                       .params = {},
                                       .make = Make<GreedyStore>()});

// A pool that is full in the middle of a run: the cell that asked for more has that as its result,
// gives back what it held, and nobody else notices.
TEST(ConformanceErrors, AFullPoolIsTheResultOfOneCell) {
  const Method snapkv = LoadShipped("snapkv");
  const Json json = {{"id", "greedy"},
                     {"title", "takes more than it says"},
                     {"family", "baseline"},
                     {"version", 1},
                     {"stages", {{"store", {{"id", "test_greedy"}}}}}};
  const Result<Method> greedy = ParseMethod(json, "test");
  ASSERT_TRUE(greedy.ok()) << greedy.error().message;
  ModelOptions narrow;
  narrow.dtype = DType::kBF16;
  const TinyModel tiny = MakeTinyModel("mqa", 1, narrow);
  const Budget most = {Budget::Kind::kFraction, 0.9};
  const std::vector<Contender> contenders = {{&snapkv, most, tiny.model.get()},
                                             {&*greedy, {}, tiny.model.get()}};
  // Long enough that pages that are part filled do not matter.
  const std::vector<EngineSample> samples = {Sample(400, 8, 3), Sample(60, 9, 6)};
  const Result<MemoryPlan> plan = Engine(contenders, {.max_pool_lanes = 2}).PlanMemory(samples);
  ASSERT_TRUE(plan.ok());
  const EngineOptions tight = {.max_pool_lanes = 2, .max_memory_bytes = plan->total_bytes()};
  const Outcomes outcomes = RunContenders(contenders, samples, tight);
  const Status& status = outcomes.at({0, 1}).cell.status;
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResource);
  EXPECT_NE(status.error().message.find("memory for the cache"), std::string::npos);
  const Outcomes free = RunContenders(contenders, samples, {.max_pool_lanes = 2});
  for (const auto& [at, outcome] : free) {
    if (at != std::pair<int64_t, int64_t>(0, 1)) ExpectSame(outcomes.at(at), outcome);
  }
  EXPECT_EQ(outcomes.size(), free.size());
}

// What the tiny models are too small for with the parameters that are shipped.
TEST(ConformanceShipped, MoreLayersAndLongerPrompts) {
  const int64_t tokens = 1100;
  const Method full = LoadShipped("full");
  for (const char* id : {"d2o", "quest"}) {
    const Result<Method> method = LoadMethod(id, MethodsDirectory(), {});
    ASSERT_TRUE(method.ok());
    const TinyModel tiny = MakeTinyModel("gqa", 1, {}, 6);
    const Budget budget = method->takes_budget ? Budget{Budget::Kind::kFraction, 0.6} : Budget{};
    const ModelShape shape = tiny.model->shape();
    const Status legal = CheckMethod(*method, shape, budget, tokens);
    ASSERT_TRUE(legal.ok()) << legal.error().message;
    const Contender contender = {&*method, budget, tiny.model.get()};
    const Outcomes alone = RunContenders({contender}, {Sample(tokens, 21)});
    const CompressionRecord& record = alone.at({0, 0}).cell.record;
    EXPECT_EQ(record.engagement, Engagement::kEngaged) << id << ": " << record.reason;
    int64_t held = 0;
    for (const auto& layer : record.entries_after) {
      for (const int64_t entries : layer) held += entries;
    }
    const int64_t per_head = HeadBudgetFor(*method, shape, budget, tokens).entries;
    EXPECT_LE(held, per_head * shape.layers * shape.kv_heads) << id;
    EXPECT_EQ(record.read_share < 1.0, method->read.has_value()) << id;
    ExpectSame(
        RunContenders({{&full, {}, tiny.model.get()}, contender}, {Sample(tokens, 21)}).at({0, 1}),
        alone.at({0, 0}));
  }
}

TEST(ConformanceList, IsNotEmpty) {
  const std::vector<std::string> methods = AllMethods();
  for (const char* id : {"full", "snapkv", "streaming_llm", "random"}) {
    EXPECT_NE(std::find(methods.begin(), methods.end(), id), methods.end()) << id;
  }
}

}  // namespace
}  // namespace kvgauge
