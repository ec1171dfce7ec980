// SPDX-License-Identifier: Apache-2.0
// Prompts that are put together of caches: what is exact has the bits of a whole prefill, and the
// rest is what the texts hold by themselves.
#include "runner/reuse_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "methods/historic_reuse.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/reuse_texts.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int kReuseLayers = 3;

struct ReadWhole {
  KvCache cache;
  std::vector<float> logits;

  ReadWhole(Model& model, const Prompt& prompt) : cache(model.NewCache(prompt.size() + 8)) {
    const Status done =
        Prefill(model, prompt, cache, Model::kChunkRows, false, [&](const Tensor& rows) -> Status {
          logits = HostFloats(model.ops(), rows);
          return {};
        });
    EXPECT_TRUE(done.ok()) << done.error().message;
  }
};

struct Reused {
  Prompt prompt;
  KvCache cache;
  Status status;
  std::vector<float> logits;
  ReuseFacts facts;

  Reused(Model& model, const Method& method, Prompt of, ReuseStore& store, int64_t context = 0,
         const std::vector<int64_t>& passages = {})
      : prompt(std::move(of)), cache(model.NewCache(prompt.size() + 8, store.pools())) {
    ReusePrefill prefill(model, *method.reuse, prompt, context, passages, cache, store);
    while (!prefill.done()) {
      const Result<Tensor> last = prefill.Next();
      if (!last.ok()) {
        status = last.error();
        return;
      }
      EXPECT_EQ(last->empty(), !prefill.done());
      if (prefill.done()) logits = HostFloats(model.ops(), *last);
    }
    facts = prefill.facts();
  }
};

std::vector<float> HeldRows(const KvCache& cache, int64_t layer, int64_t head, bool keys) {
  const int64_t n = cache.length(layer, head);
  const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
  std::vector<float> rows(static_cast<size_t>(n * dim));
  keys ? cache.ReadKeys(layer, head, 0, View(rows, {n, dim}))
       : cache.ReadValues(layer, head, 0, View(rows, {n, dim}));
  return rows;
}

void ExpectSameEntries(const KvCache& got, const KvCache& want) {
  for (int64_t layer = 0; layer < want.layer_count(); ++layer) {
    for (int64_t head = 0; head < want.kv_heads(); ++head) {
      EXPECT_EQ(got.Positions(layer, head), want.Positions(layer, head));
      for (const bool keys : {true, false}) {
        EXPECT_TRUE(SameBits(HeldRows(got, layer, head, keys), HeldRows(want, layer, head, keys)))
            << "layer " << layer << ", head " << head;
      }
    }
  }
}

// Whatever the chunks: nothing that was stored is left behind the prompt's beginning.
TEST(ReusePrefillTest, ComputingAllAgainIsTheWholePrefill) {
  for (const char* kind : {"mha", "gqa", "mqa"}) {
    const TinyModel tiny = MakeTinyModel(kind, 2, {}, kReuseLayers);
    Model& model = *tiny.model;
    for (const int64_t tokens : {int64_t{1}, int64_t{90}, Model::kChunkRows + 170}) {
      const Prompt prompt = Prompt::FromTokens(RandomIds(tokens, 3));
      const ReadWhole whole(model, prompt);
      for (const Method& method :
           {Shipped("cacheblend", {"reuse.chunk=32", "reuse.share=1"}),
            Shipped("cacheblend", {"reuse.chunk=32", "reuse.share=1", "reuse.layer=2"}),
            Shipped("epic", {"reuse.chunk=32", "reuse.again=32"})}) {
        ReuseStore store(model.pools(), 4 * tokens);
        const Reused reused(model, method, prompt, store);
        ASSERT_TRUE(reused.status.ok()) << reused.status.error().message;
        EXPECT_TRUE(SameBits(reused.logits, whole.logits)) << kind << ", " << tokens;
        ExpectSameEntries(reused.cache, whole.cache);
      }
    }
  }
}

// Values are those of a chunk that was read behind the prompt's first token, bit for bit; keys are
// turned to where they stand now. The prompt's beginning is what it was.
TEST(ReusePrefillTest, HoldsWhatChunksHoldByThemselves) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const std::vector<int32_t> ids = RandomIds(100, 4);
  ReuseStore store(model.pools(), 400);
  const Reused reused(model, Shipped("full_reuse"), Prompt::FromTokens(ids), store, 90, {30, 60});
  ASSERT_TRUE(reused.status.ok()) << reused.status.error().message;
  EXPECT_EQ(reused.facts.chunks, 3);
  EXPECT_EQ(reused.facts.reused_tokens, 90);
  EXPECT_EQ(reused.facts.made_tokens, 30 + 31 + 31);
  EXPECT_DOUBLE_EQ(reused.facts.rows_share, 0.1);
  const ReadWhole whole(model, Prompt::FromTokens(ids));
  std::vector<int32_t> alone_ids = {ids[0]};
  alone_ids.insert(alone_ids.end(), ids.begin() + 60, ids.begin() + 90);
  const ReadWhole alone(model, Prompt::FromTokens(alone_ids));
  const int64_t dim = model.config().value_dim;
  const auto rows = [&](const std::vector<float>& all, int64_t begin, int64_t end) {
    return std::vector<float>(all.begin() + begin * dim, all.begin() + end * dim);
  };
  for (int64_t layer = 0; layer < kReuseLayers; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      for (const bool keys : {true, false}) {
        const std::vector<float> got = HeldRows(reused.cache, layer, head, keys);
        EXPECT_TRUE(
            SameBits(rows(got, 0, 30), rows(HeldRows(whole.cache, layer, head, keys), 0, 30)));
      }
      const std::vector<float> values = rows(HeldRows(reused.cache, layer, head, false), 60, 90);
      const std::vector<float> own = rows(HeldRows(alone.cache, layer, head, false), 1, 31);
      EXPECT_TRUE(AllWithin(values, own, 1e-5));
      // In the first layer a key depends on its token and its place alone.
      const std::vector<float> keys = rows(HeldRows(reused.cache, layer, head, true), 60, 90);
      const std::vector<float> want = rows(HeldRows(whole.cache, layer, head, true), 60, 90);
      EXPECT_EQ(AllWithin(keys, want, 1e-5), layer == 0);
    }
  }
}

// The same chunk is found wherever it stands, and what is made of it does not depend on that.
TEST(ReusePrefillTest, FindsChunksAnywhere) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const std::vector<int32_t> head = RandomIds(20, 1), a = RandomIds(40, 2), b = RandomIds(30, 3),
                             question = RandomIds(9, 4);
  const auto joined = [&](const std::vector<int32_t>& first, const std::vector<int32_t>& second) {
    std::vector<int32_t> ids = head;
    for (const auto* part : {&first, &second, &question}) {
      ids.insert(ids.end(), part->begin(), part->end());
    }
    return Prompt::FromTokens(ids);
  };
  const Method method = Shipped("cacheblend");
  ReuseStore store(model.pools(), 1000), fresh(model.pools(), 1000);
  const Reused first(model, method, joined(a, b), store, 90, {20, 60});
  const Reused other(model, method, joined(b, a), store, 90, {20, 50});
  const Reused alone(model, method, joined(b, a), fresh, 90, {20, 50});
  EXPECT_EQ(first.facts.made_tokens, 20 + 41 + 31);
  EXPECT_EQ(other.facts.made_tokens, 0);
  EXPECT_EQ(alone.facts.made_tokens, 20 + 41 + 31);
  EXPECT_TRUE(SameBits(other.logits, alone.logits));
  ExpectSameEntries(other.cache, alone.cache);
  EXPECT_EQ(store.tokens(), 92);
}

std::vector<int32_t> TokensOf(const Prompt& prompt) {
  std::vector<int32_t> ids;
  for (const PromptPosition& position : prompt.positions) ids.push_back(position.token_id);
  return ids;
}

const std::vector<std::string> kLinked = {"reuse.links=3", "reuse.first=70", "reuse.most=4",
                                          "reuse.begin=60", "reuse.end=61"};

// Trained tokens stand between texts and before the question, and are computed behind all that
// stands before; what the texts hold is what they hold by themselves.
TEST(ReusePrefillTest, PutsTrainedTokensBetweenTexts) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const std::vector<int32_t> ids = RandomIds(100, 4);
  const auto part = [&](int64_t begin, int64_t end) {
    return std::vector<int32_t>(ids.begin() + begin, ids.begin() + end);
  };
  std::vector<int32_t> want = part(0, 30);
  for (const auto& more : {std::vector<int32_t>{60}, part(30, 60), std::vector<int32_t>{70, 71, 72},
                           part(60, 90), std::vector<int32_t>{73, 74, 75, 61}, part(90, 100)}) {
    want.insert(want.end(), more.begin(), more.end());
  }
  const Method method = Shipped("kvlink", kLinked);
  EXPECT_EQ(LinkTokens(*method.reuse, 100, 90, std::vector<int64_t>{30, 60}), 8);
  EXPECT_EQ(MostLinkTokens(method), 3 * 4 + 2);
  ReuseStore store(model.pools(), 400);
  const Reused reused(model, method, Prompt::FromTokens(ids), store, 90, {30, 60});
  ASSERT_TRUE(reused.status.ok()) << reused.status.error().message;
  EXPECT_EQ(TokensOf(reused.prompt), want);
  EXPECT_EQ(reused.facts.prompt_tokens, 108);
  EXPECT_EQ(reused.facts.link_tokens, 8);
  EXPECT_EQ(reused.facts.reused_tokens, 90);
  EXPECT_EQ(reused.facts.made_tokens, 90);
  EXPECT_DOUBLE_EQ(reused.facts.rows_share, 18.0 / 108);
  const ReadWhole first(model, Prompt::FromTokens(part(0, 30)));
  const ReadWhole alone(model, Prompt::FromTokens(part(60, 90)));
  const int64_t dim = model.config().value_dim;
  for (int64_t layer = 0; layer < kReuseLayers; ++layer) {
    EXPECT_EQ(reused.cache.length(layer, 0), 108);
    const auto rows = [&](const KvCache& cache, int64_t begin) {
      const std::vector<float> all = HeldRows(cache, layer, 1, false);
      return std::vector<float>(all.begin() + begin * dim, all.begin() + (begin + 30) * dim);
    };
    EXPECT_TRUE(SameBits(rows(reused.cache, 0), rows(first.cache, 0)));
    EXPECT_TRUE(AllWithin(rows(reused.cache, 64), rows(alone.cache, 0), 1e-5));
  }
  // Other texts before it, and the last of the trained tokens has other values.
  std::vector<int32_t> changed = ids;
  changed[40] = (changed[40] + 1) % 101;
  const Reused other(model, method, Prompt::FromTokens(changed), store, 90, {30, 60});
  EXPECT_EQ(other.facts.made_tokens, 30);
  const auto last_values = [&](const KvCache& cache, int64_t begin, int64_t end) {
    const std::vector<float> all = HeldRows(cache, kReuseLayers - 1, 1, false);
    return std::vector<float>(all.begin() + begin * dim, all.begin() + end * dim);
  };
  EXPECT_TRUE(SameBits(last_values(other.cache, 64, 94), last_values(reused.cache, 64, 94)));
  EXPECT_FALSE(
      AllWithin(last_values(other.cache, 94, 97), last_values(reused.cache, 94, 97), 1e-5));
}

// Without them nothing is left but chunks that were read by themselves; and a prompt of one text is
// read as any other.
TEST(ReusePrefillTest, WithoutTrainedTokensIsBlockAttention) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const Prompt prompt = Prompt::FromTokens(RandomIds(100, 6));
  const std::vector<std::string> none = {"reuse.links=0", "reuse.begin=-1", "reuse.end=-1",
                                         "reuse.first=0"};
  ReuseStore store(model.pools(), 1000);
  for (const int64_t context : {int64_t{90}, int64_t{100}}) {
    const Reused linked(model, Shipped("kvlink", none), prompt, store, context, {30, 60});
    const Reused blocks(model, Shipped("block_attention"), prompt, store, context, {30, 60});
    ASSERT_TRUE(linked.status.ok()) << linked.status.error().message;
    EXPECT_TRUE(SameBits(linked.logits, blocks.logits));
    ExpectSameEntries(linked.cache, blocks.cache);
  }
  const Reused one(model, Shipped("kvlink", kLinked), prompt, store, 90);
  EXPECT_TRUE(SameBits(one.logits, ReadWhole(model, prompt).logits));
  // Where trained tokens follow the context, all of it may be a text.
  const Reused all(model, Shipped("kvlink", kLinked), prompt, store, 100, {30, 60});
  EXPECT_EQ(all.facts.reused_tokens, 100);
  EXPECT_EQ(all.prompt.positions.back().token_id, 61);
}

// Chunks come from an earlier prompt that held them in another order, and are what they were there.
TEST(ReusePrefillTest, HoldsWhatEarlierPromptsLeft) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const std::vector<int32_t> ids = RandomIds(Model::kChunkRows + 90, 4);
  const std::vector<int64_t> edges = {0, 20, 60, 290, Model::kChunkRows + 80};
  const std::vector<int64_t> passages = {20, 60, 290};
  const Method method = Shipped("cache_craft", {"reuse.alpha=0", "reuse.seed=3"});
  const std::unique_ptr<Stage> stage = MakeStage(*method.reuse);
  const std::vector<int64_t> order = static_cast<const HistoricReuse&>(*stage).Orders(3)[0];
  ASSERT_NE(order, (std::vector<int64_t>{1, 2, 3}));
  std::vector<int32_t> earlier(ids.begin(), ids.begin() + 20);
  std::vector<int64_t> firsts(4);
  for (const int64_t text : order) {
    const auto at = static_cast<size_t>(text);
    firsts[at] = std::ssize(earlier);
    earlier.insert(earlier.end(), ids.begin() + edges[at], ids.begin() + edges[at + 1]);
  }
  ReuseStore store(model.pools(), 4000);
  const Prompt prompt = Prompt::FromTokens(ids);
  const Reused reused(model, method, prompt, store, edges[4], passages);
  ASSERT_TRUE(reused.status.ok()) << reused.status.error().message;
  EXPECT_EQ(reused.facts.reused_tokens, edges[4]);
  EXPECT_EQ(reused.facts.made_tokens, 20 + edges[4]);
  EXPECT_EQ(store.tokens(), 20 + edges[4]);
  const ReadWhole was(model, Prompt::FromTokens(earlier));
  const int64_t dim = model.config().value_dim;
  for (int64_t layer = 0; layer < kReuseLayers; ++layer) {
    const std::vector<float> got = HeldRows(reused.cache, layer, 1, false);
    const std::vector<float> want = HeldRows(was.cache, layer, 1, false);
    for (size_t text = 1; text < 4; ++text) {
      const int64_t count = (edges[text + 1] - edges[text]) * dim;
      const auto from = [&](const std::vector<float>& rows, int64_t first) {
        return std::vector<float>(rows.begin() + first * dim, rows.begin() + first * dim + count);
      };
      EXPECT_TRUE(AllWithin(from(got, edges[text]), from(want, firsts[text]), 1e-5)) << text;
    }
  }
  // What leaned on others is computed again, and the more the higher it is weighed.
  int64_t before = edges[4];
  for (const char* alpha : {"reuse.alpha=0.5", "reuse.alpha=1", "reuse.alpha=1000"}) {
    const Reused fixed(model, Shipped("cache_craft", {alpha, "reuse.seed=3"}), prompt, store,
                       edges[4], passages);
    ASSERT_TRUE(fixed.status.ok()) << fixed.status.error().message;
    EXPECT_LT(fixed.facts.reused_tokens, before) << alpha;
    before = fixed.facts.reused_tokens;
  }
  // One chunk stood where it stands.
  const Reused same(model, Shipped("cache_craft"), prompt, store, edges[4], {290});
  EXPECT_EQ(same.facts.reused_tokens, edges[4]);
  EXPECT_TRUE(AllWithin(same.logits, ReadWhole(model, prompt).logits, 1e-4));
}

// A later prompt shares blocks with what it has in common with an earlier one.
// Host memory that counts what is held.
class CountedMemory final : public MemoryOps {
 public:
  explicit CountedMemory(std::unique_ptr<MemoryOps> inner) : inner_(std::move(inner)) {
    held_bytes = most_bytes = 0;
  }
  Buffer Allocate(int64_t size_bytes) override {
    if (size_bytes == 0) return {};
    const auto room = static_cast<size_t>((size_bytes + 63) / 64 * 64);
    void* data = std::aligned_alloc(64, room);
    std::memset(data, 0, room);
    held_bytes += size_bytes;
    most_bytes = std::max(most_bytes, held_bytes);
    return Buffer(data, size_bytes, Device::kHost, [](void* freed, int64_t bytes) {
      held_bytes -= bytes;
      std::free(freed);
    });
  }
  void Copy(const Tensor& from, Tensor to) override { inner_->Copy(from, to); }
  void Clear(Tensor to) override { inner_->Clear(to); }
  void Synchronize() override { inner_->Synchronize(); }

  static inline int64_t held_bytes = 0, most_bytes = 0;

 private:
  std::unique_ptr<MemoryOps> inner_;
};

// What earlier prompts paid to each other is held while they are read, and is in the plan.
TEST(ReusePrefillTest, PlansForWhatEarlierPromptsPaid) {
  constexpr int64_t kAll = 400, kAsked = 390, kEarlier = 3;
  std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
  ops->memory = std::make_unique<CountedMemory>(std::move(ops->memory));
  const TinyModel tiny = MakeTinyModelOn(std::move(ops), "gqa", {}, kReuseLayers);
  Model& model = *tiny.model;
  const Method method = Shipped("cache_craft", {StrCat("reuse.requests=", kEarlier)});
  std::vector<int64_t> passages;
  for (int64_t at = 3; at < kAsked; at += 3) passages.push_back(at);
  ReuseStore store(model.pools(), 4 * kAll);
  // The first prompt leaves scratch memory behind.
  const Prompt other = Prompt::FromTokens(RandomIds(kAll, 4));
  ASSERT_TRUE(Reused(model, method, other, store, kAsked, passages).status.ok());

  Prompt prompt = Prompt::FromTokens(RandomIds(kAll, 5));
  KvCache cache = model.NewCache(kAll, store.pools());
  ReusePrefill prefill(model, *method.reuse, prompt, kAsked, passages, cache, store);
  // Blocks of caches come from elsewhere.
  const int64_t before = CountedMemory::held_bytes;
  CountedMemory::most_bytes = before;
  while (prefill.makes()) ASSERT_TRUE(prefill.Next().ok());
  const int64_t most = CountedMemory::most_bytes - before;
  const int64_t texts = std::ssize(passages) + 1;
  EXPECT_GE(most, kEarlier * texts * kAsked * 4);
  EXPECT_LE(most,
            ReusePrefill::PlannedBytes(*method.reuse, model.config(), kAll, std::ssize(passages)));
}

TEST(ReusePrefillTest, SharesPrefixesToTheBit) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const Method method = Shipped("radix_attention");
  std::vector<int32_t> ids = RandomIds(300, 7);
  CachePools pools(model.ops());
  ReuseStore store(pools, 4000);
  const Reused first(model, method, Prompt::FromTokens(ids), store);
  EXPECT_EQ(first.facts.reused_tokens, 0);
  const int64_t used = pools.of(Tier::kDevice).used_bytes();
  for (size_t i = 256; i < ids.size(); ++i) ids[i] = (ids[i] + 1) % 97;
  const Prompt changed = Prompt::FromTokens(ids);
  const ReadWhole whole(model, changed);
  const Reused second(model, method, changed, store);
  EXPECT_EQ(second.facts.reused_tokens, 256);
  EXPECT_NEAR(second.facts.rows_share, 44.0 / 300, 1e-12);
  EXPECT_TRUE(SameBits(second.logits, whole.logits));
  ExpectSameEntries(second.cache, whole.cache);
  // Four whole pages of five are shared: the second prompt needs a page of its own.
  EXPECT_EQ(used % 5, 0);
  EXPECT_EQ(pools.of(Tier::kDevice).used_bytes(), used + used / 5);
  // The whole prompt again: its last row is read, since nobody kept its logits.
  const Reused third(model, method, changed, store);
  EXPECT_EQ(third.facts.reused_tokens, 299);
  EXPECT_TRUE(SameBits(third.logits, whole.logits));
  ExpectSameEntries(third.cache, whole.cache);
}

// What was used longest ago goes first.
TEST(ReusePrefillTest, StoresHoldTheNewestTexts) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const Method method = Shipped("radix_attention");
  ReuseStore store(model.pools(), 100);
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    const Reused read(model, method, Prompt::FromTokens(RandomIds(40, seed)), store);
    ASSERT_TRUE(read.status.ok());
  }
  EXPECT_EQ(store.tokens(), 80);
  const Reused kept(model, method, Prompt::FromTokens(RandomIds(40, 2)), store);
  EXPECT_EQ(kept.facts.reused_tokens, 39);
  const Reused gone(model, method, Prompt::FromTokens(RandomIds(40, 1)), store);
  EXPECT_EQ(gone.facts.reused_tokens, 0);
}

// Contexts that stand beside each other: with one of them, and a softmax that divides and counts
// as any other, nothing is apart.
TEST(ReusePrefillTest, OneContextBesideNothingIsTheWholePrefill) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const Prompt prompt = Prompt::FromTokens(RandomIds(100, 5));
  const ReadWhole whole(model, prompt);
  ReuseStore store(model.pools(), 1000);
  const Reused reused(model, Shipped("ape", {"reuse.temperature=1", "reuse.scale=1"}), prompt,
                      store, 80, {20});
  ASSERT_TRUE(reused.status.ok()) << reused.status.error().message;
  EXPECT_TRUE(AllWithin(reused.logits, whole.logits, 1e-4));
  for (int64_t layer = 0; layer < kReuseLayers; ++layer) {
    EXPECT_TRUE(AllWithin(HeldRows(reused.cache, layer, 1, true),
                          HeldRows(whole.cache, layer, 1, true), 1e-4));
  }
  const Reused sharper(model, Shipped("ape"), prompt, store, 80, {20});
  EXPECT_FALSE(AllWithin(sharper.logits, whole.logits, 1e-4));
}

// A row of a run: what it reused is told, and nothing depends on the company.
TEST(ReusePrefillTest, RunsAmongOthers) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  Model& model = *tiny.model;
  const Method full = Shipped("full"), blend = Shipped("cacheblend"),
               radix = Shipped("radix_attention"), ape = Shipped("ape"),
               linked = Shipped("kvlink", kLinked), crafted = Shipped("cache_craft");
  EngineSample sample = {.id = "s", .context = RandomIds(120, 9), .passages = {20, 70}};
  sample.turns = {{.ids = RandomIds(12, 10), .max_new_tokens = 5},
                  {.ids = RandomIds(15, 11), .max_new_tokens = 5}};
  for (const CompressAt at : {CompressAt::kPrompt, CompressAt::kContext}) {
    const EngineOptions options = {.compress_at = at, .fidelity_steps = 3};
    std::vector<Contender> all;
    for (const Method* method : {&full, &blend, &radix, &ape, &linked, &crafted}) {
      all.push_back({.method = method, .budget = {}, .model = &model});
    }
    const Cells together = RunEngine(all, options, {sample});
    for (int64_t i = 0; i < std::ssize(all); ++i) {
      const CellResult alone =
          RunEngine({all[static_cast<size_t>(i)]}, options, {sample}).at({0, 0});
      const CellResult& cell = together.at({0, i});
      ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
      for (const size_t turn : {0, 1}) EXPECT_EQ(cell.turns[turn].ids, alone.turns[turn].ids);
      EXPECT_EQ(cell.fidelity->kl_divergence, alone.fidelity->kl_divergence);
      EXPECT_EQ(cell.reuse.has_value(), i > 0);
      if (i == 2) {
        EXPECT_EQ(cell.turns[0].ids, together.at({0, 0}).turns[0].ids);
      }
    }
    const CellResult &blended = together.at({0, 1}), &shared = together.at({0, 2});
    EXPECT_EQ(together.at({0, 4}).reuse->reused_tokens, 120);
    EXPECT_GT(together.at({0, 4}).fidelity->kl_divergence, 0);
    EXPECT_EQ(blended.record.engagement, Engagement::kEngaged);
    EXPECT_THAT(blended.record.reason, HasSubstr("in 3 texts"));
    EXPECT_GT(blended.fidelity->kl_divergence, 0);
    EXPECT_EQ(shared.fidelity->kl_divergence, 0);
    const bool turns = at == CompressAt::kPrompt;  // each is a prompt of its own
    EXPECT_EQ(shared.record.engagement, turns ? Engagement::kEngaged : Engagement::kIdentity);
    EXPECT_EQ(shared.reuse->reused_tokens, turns ? 120 : 0);
  }
}

// A run holds a store for each model and stage: what one checkpoint read is never another's, nor
// is what stands behind another template.
TEST(ReusePrefillTest, NothingIsFoundOfAnotherCheckpointOrTemplate) {
  const TinyModel tiny = MakeTinyModel("gqa", 2, {}, kReuseLayers);
  const Result<std::unique_ptr<Model>> other = LoadTinyModel(*tiny.ops, "mha", {}, kReuseLayers);
  ASSERT_TRUE(other.ok()) << other.error().message;
  const Method radix = Shipped("radix_attention"), epic = Shipped("epic");
  const auto sample = [](const char* id, const std::vector<int32_t>& frame) {
    EngineSample one = {.id = id, .context = frame, .passages = {}};
    const std::vector<int32_t> text = RandomIds(90, 9);
    one.context.insert(one.context.end(), text.begin(), text.end());
    one.passages = {std::ssize(frame), std::ssize(frame) + 40};
    one.turns = {{.ids = RandomIds(10, 10), .max_new_tokens = 4}};
    return one;
  };
  const std::vector<int32_t> frame = RandomIds(12, 1), templated = RandomIds(12, 2);
  const std::vector<EngineSample> samples = {sample("first", frame), sample("again", frame),
                                             sample("other template", templated)};
  std::vector<Contender> contenders;
  for (Model* of : {tiny.model.get(), other->get()}) {
    for (const Method* method : {&radix, &epic}) {
      contenders.push_back({.method = method, .budget = {}, .model = of});
    }
  }
  const Cells together = RunEngine(contenders, {}, samples);
  for (int64_t c = 0; c < std::ssize(contenders); ++c) {
    const Cells alone = RunEngine({contenders[static_cast<size_t>(c)]}, {}, samples);
    for (int64_t s = 0; s < std::ssize(samples); ++s) {
      const CellResult &got = together.at({s, c}), &want = alone.at({s, 0});
      ASSERT_TRUE(got.status.ok()) << got.status.error().message;
      EXPECT_EQ(got.turns[0].ids, want.turns[0].ids) << c << " " << s;
      EXPECT_EQ(got.reuse->reused_tokens, want.reuse->reused_tokens) << c << " " << s;
    }
  }
  for (const int64_t radix_of : {0, 2}) {
    EXPECT_EQ(together.at({0, radix_of}).reuse->reused_tokens, 0);
    EXPECT_EQ(together.at({1, radix_of}).reuse->reused_tokens, 111);  // all but the last
    EXPECT_EQ(together.at({2, radix_of}).reuse->reused_tokens, 0);
  }
}

TEST(ReusePrefillTest, RefusesWhatCannotBeReused) {
  const auto check = [](const char* kind, const Method& method) {
    const TinyModel tiny = MakeTinyModel(kind, 1, {}, kReuseLayers);
    const Status status = CheckMethod(method, tiny.model->shape(), {}, 1000);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(check("mla", Shipped("cacheblend")), HasSubstr("latent attention"));
  EXPECT_EQ(check("mla", Shipped("radix_attention")), "");
  EXPECT_THAT(check("gqa", Shipped("cacheblend", {"reuse.layer=3"})), HasSubstr("expected 1 .. 2"));
  EXPECT_THAT(check("gqa", Shipped("ape", {"store.id=kivi"})), HasSubstr("use store.plain"));
  const auto refused = [](const std::string& stage) {
    const Result<Method> method = LoadMethod(
        "cacheblend", std::string(KVG_SOURCE_DIR) + "/configs/methods", {stage, "score.id=snapkv"});
    return method.ok() ? std::string() : method.error().message;
  };
  EXPECT_THAT(refused("reduce.id=top_k"), HasSubstr("does not read all of it"));
  EXPECT_THAT(refused("thin.id=fastv"), HasSubstr("leave out one of the two"));
  EXPECT_THAT(CheckMoment(Shipped("epic"), CompressAt::kTurn).error().message,
              HasSubstr("use compress_at prompt or context"));

  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kReuseLayers);
  const std::vector<float> rows = RandomValues(10 * 64, 5, 1.0f);
  Prompt prompt;
  prompt.embeddings = {{View(rows, {10, 64})}};
  VisualSpan picture;
  picture.first = 3;
  picture.count = 10;
  prompt.Append(RandomIds(40, 6), std::vector<VisualSpan>{picture}, false);
  ReuseStore store(tiny.model->pools(), 100);
  const Reused seen(*tiny.model, Shipped("radix_attention"), prompt, store);
  EXPECT_THAT(seen.status.error().message, HasSubstr("shows pictures"));

  const Prompt text = Prompt::FromTokens(RandomIds(100, 7));
  const Reused foreign(*tiny.model, Shipped("kvlink"), text, store);
  EXPECT_THAT(foreign.status.error().message, HasSubstr("the model's ids end at 100"));
  std::vector<std::string> small = kLinked;
  small.emplace_back("reuse.chunk=16");
  const Reused many(*tiny.model, Shipped("kvlink", small), text, store);
  EXPECT_THAT(many.status.error().message, HasSubstr("divides into 5; expected fewer"));
  EXPECT_EQ(many.prompt.size(), 100);
  const Method shipped = Shipped("kvlink");
  Engine engine({{.method = &shipped, .budget = {}, .model = tiny.model.get()}}, {});
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(100, 7), .max_new_tokens = 1}}};
  const Status planned = engine.Run({&sample, 1}, [](const CellResult&) { return Status(); });
  EXPECT_THAT(planned.error().message, HasSubstr("kvlink: reuse.link_tokens puts tokens up to"));
}

}  // namespace
}  // namespace kvgauge
