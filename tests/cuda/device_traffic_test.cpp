// SPDX-License-Identifier: Apache-2.0
// What goes between host and device in prefills and decode steps.
#include <gtest/gtest.h>

#include "conformance/scene.h"
#include "core/files.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/emulated/device_memory.h"
#include "cuda/half_bases.h"
#include "images/drawn.h"
#include "images/preprocess.h"
#include "kernels/block_products.h"
#include "runner/vision.h"
#include "support/compare.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using cuda::emulated::Traffic;
using cuda::emulated::TrafficSoFar;

// The traffic of decode steps of all contenders together: from `fewer` tokens to `more`.
Traffic OfSteps(int64_t fewer, int64_t more, const std::vector<Contender>& contenders,
                EngineSample sample, const EngineOptions& options = {}) {
  const auto run = [&](int64_t new_tokens) {
    sample.turns[0].max_new_tokens = new_tokens;
    const Traffic before = TrafficSoFar();
    const Status done =
        Engine(contenders, options).Run({&sample, 1}, [&](CellResult cell) -> Status {
          EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
          EXPECT_EQ(std::ssize(cell.turns[0].ids), new_tokens);
          return {};
        });
    EXPECT_TRUE(done.ok());
    return TrafficSoFar() - before;
  };
  run(more);  // working memory grows to what it is going to be
  const Traffic shorter = run(fewer);
  return run(more) - shorter;
}
Traffic OfOneStep(const std::vector<Contender>& contenders, const EngineSample& sample,
                  const EngineOptions& options = {}) {
  return OfSteps(4, 5, contenders, sample, options);
}

// The traffic of a prompt and its first token.
Traffic OfPrompt(const Contender& contender, int64_t prompt_tokens) {
  const EngineSample sample = Sample(prompt_tokens, 8, 1);
  Traffic traffic;
  for (const bool warm : {false, true}) {
    const Traffic before = TrafficSoFar();
    const Status done =
        Engine({contender}, {}).Run({&sample, 1}, [](const CellResult& cell) -> Status {
          EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
          return {};
        });
    EXPECT_TRUE(done.ok());
    if (warm) traffic = TrafficSoFar() - before;
  }
  return traffic;
}

class DeviceTraffic : public ::testing::Test {
 protected:
  const TinyModel tiny_ = MakeTinyModel("gqa");
  const Method full_ = LoadShipped("full"), snapkv_ = LoadShipped("snapkv"),
               kivi_ = LoadShipped("kivi_2bit");
  const Budget half_ = {Budget::Kind::kFraction, 0.5};
  // Contenders that decode without reducing or reading less.
  const std::vector<Contender> contenders_ = {{&full_, {}, tiny_.model.get()},
                                              {&snapkv_, half_, tiny_.model.get()},
                                              {&full_, {}, tiny_.model.get()},
                                              {&kivi_, {}, tiny_.model.get()}};
};

TEST_F(DeviceTraffic, AGreedyStepBringsBackItsTokensAlone) {
  for (const size_t count : {1, 4}) {
    const Traffic step =
        OfOneStep({contenders_.begin(), contenders_.begin() + count}, Sample(100, 8));
    EXPECT_EQ(step.downloads, 1) << count;
    EXPECT_EQ(step.download_bytes, 4 * static_cast<int64_t>(count));
    EXPECT_EQ(step.allocations, 0);
  }
}

// Whatever the layers, heads and contenders: what a step needs goes to the device at once; and for
// each sequence that lost entries, at which positions the new ones are.
TEST_F(DeviceTraffic, AStepIsSentAtOnce) {
  if (!cuda::kComparesMembers) GTEST_SKIP() << "graphs are made anew in each step";
  const Contender &full = contenders_[0], &snapkv = contenders_[1];
  EXPECT_EQ(OfOneStep({full}, Sample(100, 8)).uploads, 1);
  EXPECT_EQ(OfOneStep({full, full, full}, Sample(100, 8)).uploads, 1);
  EXPECT_EQ(OfOneStep({snapkv, full, snapkv}, Sample(100, 8)).uploads, 3);
}

// Experts are chosen on the device.
TEST_F(DeviceTraffic, AMixtureOfExpertsAsksNothing) {
  const TinyModel tiny = MakeTinyModel("mla");
  ASSERT_TRUE(tiny.model->config().moe);
  const Contender contender = {&full_, {}, tiny.model.get()};
  for (const size_t count : {1, 3}) {
    const Traffic step = OfOneStep(std::vector<Contender>(count, contender), Sample(60, 8));
    EXPECT_EQ(step.downloads, 1) << count;
    EXPECT_EQ(step.download_bytes, 4 * static_cast<int64_t>(count));
    EXPECT_EQ(step.allocations, 0);
    if (cuda::kComparesMembers) {
      EXPECT_EQ(step.uploads, 1);
    }
  }
}

// Company costs the launches of its attention, not those of everything.
TEST_F(DeviceTraffic, RowsOfAStepAreWrittenTogether) {
  const Contender& full = contenders_[0];
  const int64_t alone = OfOneStep({full}, Sample(100, 8)).launches;
  const int64_t two = OfOneStep({full, full}, Sample(100, 8)).launches;
  const int64_t four = OfOneStep({full, full, full, full}, Sample(100, 8)).launches;
  EXPECT_GT(alone, 0);
  EXPECT_EQ(four, two);
  EXPECT_LE(two - alone, 2 * tiny_.model->config().layer_count());  // keys and values are gathered
}

// Stops that are held back are so on the device.
TEST_F(DeviceTraffic, HeldStopsBringNothingMoreBack) {
  EngineSample sample = Sample(100, 8);
  sample.stop_ids = {3, 50, 100};
  sample.turns[0].min_new_tokens = 5;
  const Traffic step = OfOneStep({contenders_[0]}, sample);
  EXPECT_EQ(step.downloads, 1);
  EXPECT_EQ(step.download_bytes, 4);
}

// While nothing is given up.
TEST_F(DeviceTraffic, ScoresThatAgeStayOnTheDevice) {
  const Method h2o = LoadShipped("h2o");
  const Contender contender = {&h2o, {Budget::Kind::kFraction, 1.0}, tiny_.model.get()};
  EXPECT_EQ(OfOneStep({contender}, Sample(100, 8)).downloads, 1);
}

// What is read is chosen on the device, and counted there.
TEST_F(DeviceTraffic, ReadersAskNothing) {
  for (const char* id : {"quest", "tokenselect", "clusterkv", "pqcache"}) {
    const bool clusters = id != std::string_view("quest") && id != std::string_view("tokenselect");
    const std::vector<std::string> short_of_it = {"read.iterations=1"};
    const Method reader = LoadShipped(id, clusters ? short_of_it : std::vector<std::string>());
    const Traffic step = OfOneStep({{&reader, {}, tiny_.model.get()}}, Sample(100, 8));
    EXPECT_EQ(step.downloads, 1) << id;
    EXPECT_EQ(step.download_bytes, 4) << id;
    EXPECT_EQ(step.waits, 1) << id;  // the engine's own, for the step
    if (std::string_view(id) == "quest") {
      EXPECT_EQ(step.allocations, 0);
    }
  }
}

// Keys in coordinates of a basis, and keys that turn by clipped positions.
TEST_F(DeviceTraffic, KeysThatAreStoredOtherwiseAskNothing) {
  const HalfBases bases;
  ModelOptions options;
  options.prepare = &bases;
  const TinyModel latent = MakeTinyModel("gqa", 1, options);
  const Method palu = LoadShipped("palu"), clipped = LoadShipped("lm_infinite");
  const Budget all = {Budget::Kind::kFraction, 1.0};
  for (const Contender& contender :
       {Contender{&palu, {}, latent.model.get()}, Contender{&clipped, all, tiny_.model.get()}}) {
    const Traffic step = OfOneStep({contender}, Sample(100, 8));
    EXPECT_EQ(step.downloads, 1) << contender.method->id;
    EXPECT_EQ(step.waits, 1) << contender.method->id;
    EXPECT_EQ(step.allocations, 0) << contender.method->id;
  }
}

// Over more steps than a group of codes has entries. How many outliers a page has is known where
// they are a share of its vectors.
TEST_F(DeviceTraffic, SealingIsSubmittedAndNotWaitedFor) {
  const Method gear = LoadShipped("gear");
  for (const Method* method : {&kivi_, &gear}) {
    const Traffic steps = OfSteps(2, 42, {{method, {}, tiny_.model.get()}}, Sample(100, 8));
    // The record asks each page of keys that was sealed how many outliers it has, at the end; of 32
    // values none is one.
    const ModelConfig& config = tiny_.model->config();
    const int64_t pages = method == &gear ? config.layer_count() * config.kv_heads : 0;
    EXPECT_EQ(steps.downloads, 40 + pages) << method->id;
    EXPECT_EQ(steps.waits, 40) << method->id;
  }
}

// Which entries stay, and what goes where of those that do not, is nobody's business but the
// device's.
TEST_F(DeviceTraffic, GivingUpEntriesAsksNothing) {
  for (const char* id : {"h2o", "tova", "streaming_llm", "keyformer", "scissorhands", "vatp",
                         "sepllm", "cam", "lm_infinite", "rkv"}) {
    const Method method = LoadShipped(id);
    const Traffic step = OfSteps(
        20, 21, {{&method, {Budget::Kind::kEntries, 50}, tiny_.model.get()}}, Sample(100, 30));
    EXPECT_EQ(step.downloads, 1) << id;
    EXPECT_EQ(step.waits, 1) << id;
    EXPECT_EQ(step.allocations, 0) << id;
  }
}

// How alike they are, and how many are alike enough: of all heads of a layer together.
TEST_F(DeviceTraffic, MergingByLikenessAsksTwicePerLayer) {
  const Method d2o = LoadShipped("d2o");
  const Traffic step =
      OfOneStep({{&d2o, {Budget::Kind::kEntries, 50}, tiny_.model.get()}}, Sample(100, 8));
  EXPECT_EQ(step.downloads, 1 + 2 * tiny_.model->config().layer_count());
  EXPECT_EQ(step.waits, 1 + 2 * tiny_.model->config().layer_count());
}

// Directions of new entries that two layers share are found where the entries are.
TEST_F(DeviceTraffic, SharingEntriesWithALayerAsksNothing) {
  const Method minicache = LoadShipped("minicache");
  const Traffic step = OfOneStep({{&minicache, {}, tiny_.model.get()}}, Sample(100, 8));
  EXPECT_EQ(step.downloads, 1);
  EXPECT_EQ(step.download_bytes, 4);
  EXPECT_EQ(step.waits, 1);
  EXPECT_EQ(step.allocations, 0);
}

// The host learns which rows of a prefill go on, and some scores where it chooses them itself.
TEST_F(DeviceTraffic, RowsThatLeaveAPrefillStayOnTheDevice) {
  constexpr int64_t kRows = 200;
  const int64_t hidden_bytes = 4 * tiny_.model->config().hidden_size * kRows;
  const Traffic plain = OfPrompt({&full_, {}, tiny_.model.get()}, kRows);
  struct Case {
    const char* id;
    std::vector<std::string> overrides = {};
    int64_t downloads = 1;
  };
  const Case cases[] = {
      {"gemfilter"}, {"fastv"},       {"fastkv"},
      {"lazyllm"},   {"pyramiddrop"}, {"pyramidinfer"},
      {"aim_prune"}, {"dart", {}, 3}, {"selective_context", {"thin.recent=4", "thin.drop=0.5"}, 3}};
  for (const auto& [id, overrides, downloads] : cases) {
    const Method thin = LoadShipped(id, overrides);
    const Traffic own = OfPrompt({&thin, {}, tiny_.model.get()}, kRows);
    EXPECT_EQ(own.downloads - plain.downloads, downloads) << id;
    EXPECT_LE(own.download_bytes - plain.download_bytes,
              downloads > 1 ? hidden_bytes / 4 : 4 * kRows)
        << id;
    EXPECT_LE(own.upload_bytes - plain.upload_bytes, hidden_bytes / 4) << id;
  }
}

// The tower of a family on the device, and a picture that it sees.
struct Eyes {
  std::unique_ptr<VisionTower> tower;
  PixelValues pixels;

  Eyes(const std::string& family, Ops& ops, int width, int height) {
    const std::string checkpoint = std::string(KVG_TEST_DATA) + "/golden/vision/" + family;
    const Result<Json> config = ReadJsonFile(checkpoint + "/preprocessor_config.json");
    KVG_CHECK(config.ok(), family);
    pixels = *Preprocess(*ReadPreprocessor(*config, "config"), Drawn(width, height, 11));
    tower = *VisionTower::Load(checkpoint, {.dtype = DType::kF32, .random_seed = {}}, ops);
  }

  // What it takes to see it. The rows are left in `shown`.
  Traffic Of(const See* see, VisualFeatures& shown) const {
    const Traffic before = TrafficSoFar();
    Result<std::vector<VisualFeatures>> seen =
        tower->Encode({&pixels, 1}, Modality::kImage, nullptr, see);
    EXPECT_TRUE(seen.ok()) << seen.error().message;
    const Traffic traffic = TrafficSoFar() - before;
    shown = std::move((*seen)[0]);
    return traffic;
  }
};

// No row of a picture comes to the host that no stage asks for. A stage that chooses among them
// does so there, by what it asked for of all tiles together. What it keeps stays on the device;
// what it mixes is mixed on the host.
TEST_F(DeviceTraffic, PicturesStayOnTheDevice) {
  const Eyes eyes("llava_next", *tiny_.ops, 56, 40);
  const VisionSpec& spec = eyes.tower->spec();
  constexpr int64_t kTiles = 5;
  const int64_t patches = kTiles * spec.tower.grid_rows() * spec.tower.grid_columns();
  const int64_t row_bytes = 4 * spec.hidden_size;
  VisualFeatures shown;
  const Traffic whole = eyes.Of(nullptr, shown);
  EXPECT_EQ(whole.downloads, 0);
  EXPECT_FALSE(shown.rows.on_host());
  EXPECT_EQ(shown.rows.bytes(), row_bytes * shown.layout.rows);

  // It needs no number, only the picture's seed.
  const Method drawn = LoadShipped("random_see");
  EXPECT_EQ(eyes.Of(MakePipeline(drawn).see.get(), shown).downloads, 0);
  EXPECT_EQ(shown.rows.bytes(), row_bytes * shown.count());

  const Method kept = LoadShipped("holov");
  const Traffic few = eyes.Of(MakePipeline(kept).see.get(), shown);
  // The attention of all tiles, and the rows that it compares.
  EXPECT_EQ(few.downloads, 2);
  EXPECT_LE(few.download_bytes, 4 * spec.tower.heads * (patches + kTiles) + row_bytes * patches);

  const Method mixed = LoadShipped("visionzip", {"see.dominant=6", "see.contextual=3"});
  // The attention of all tiles, their keys, and the rows that are mixed.
  EXPECT_EQ(eyes.Of(MakePipeline(mixed).see.get(), shown).downloads, 3);
}

// Squares of rows, and what the text model's first layers are shown of earlier ones.
TEST_F(DeviceTraffic, PicturesWithDeepRowsStayOnTheDevice) {
  const Eyes eyes("qwen3_vl", *tiny_.ops, 50, 40);
  const auto layers = std::ssize(eyes.tower->spec().deepstack);
  ASSERT_GT(layers, 0);
  VisualFeatures shown;
  EXPECT_EQ(eyes.Of(nullptr, shown).downloads, 0);
  EXPECT_EQ(std::ssize(shown.rows.tables()), 1 + layers);
  // What is kept is gathered.
  const Method kept = LoadShipped("random_see");
  EXPECT_EQ(eyes.Of(MakePipeline(kept).see.get(), shown).downloads, 0);
  EXPECT_LT(shown.count(), shown.layout.rows);
}

// Rows of the text model are between those of the tower where a canvas of tiles is shrunk: the host
// computes them.
TEST_F(DeviceTraffic, RowsBetweenThoseOfATowerComeToTheHost) {
  const Eyes eyes("llava_onevision", *tiny_.ops, 55, 57);
  VisualFeatures shown;
  // The canvas of 8 x 8 rows is shown as 5 x 5.
  EXPECT_EQ(eyes.Of(nullptr, shown).downloads, 1);
  EXPECT_EQ(shown.layout.rows, 16 + 5 * 6);
  EXPECT_FALSE(shown.rows.on_host());
  const Eyes small("llava_onevision", *tiny_.ops, 56, 28);
  EXPECT_EQ(small.Of(nullptr, shown).downloads, 0);
  EXPECT_EQ(shown.layout.rows, 16 + 4 * 9);
}

// A prefill takes rows from where they are: nothing of them is sent, and the answer has the bits
// that it has with rows of the host.
TEST_F(DeviceTraffic, PrefillsReadRowsOfTheDevice) {
  const int64_t width = tiny_.model->config().hidden_size;
  const std::vector<float> numbers = RandomValues(40 * width, 5, 1.0f);
  EngineSample sample = Sample(100, 8);
  sample.turns[0].spans = {
      {.first = 10, .count = 24, .index = 0, .grid = {1, 4, 6}},
      {.first = 60, .count = 16, .index = 1, .grid = {1, 4, 4}, .embedding_row = 24}};
  const int64_t steps = sample.turns[0].max_new_tokens;
  std::vector<std::vector<double>> answers;
  std::vector<Traffic> traffic;
  for (MemoryOps* memory : {&HostMemory(), tiny_.ops->memory.get()}) {
    sample.visuals = VisualsOf(numbers, width, *memory);
    EXPECT_EQ(sample.visuals->parts[0].rows->on_host(), memory == &HostMemory());
    sample.turns[0].forced = RandomIds(steps, 3);
    Traffic last;
    for (const bool warm : {false, true}) {
      const Traffic before = TrafficSoFar();
      const Status done =
          Engine({contenders_[1]}, {}).Run({&sample, 1}, [&](const CellResult& cell) {
            EXPECT_TRUE(cell.status.ok()) << cell.status.error().message;
            if (warm) answers.push_back(cell.turns[0].log_probs);
            return Status();
          });
      EXPECT_TRUE(done.ok());
      last = TrafficSoFar() - before;
    }
    traffic.push_back(last);
  }
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(traffic[0].downloads, traffic[1].downloads);
  EXPECT_EQ(traffic[0].uploads - traffic[1].uploads, 2) << "runs of rows";
  EXPECT_EQ(traffic[0].upload_bytes - traffic[1].upload_bytes, 40 * width * 4);
}

// Which operations ask the device for a number, as docs/cuda.md lists them, and what it leaves to
// others.
TEST_F(DeviceTraffic, OperationsThatAskAreThoseThatAreListed) {
  Ops& ops = *tiny_.ops;
  EXPECT_EQ(BlockProducts::Of(*ops.linear), nullptr);
  EXPECT_FALSE(ops.attention->SumsColumns({}));
  std::vector<Buffer> memory;
  const auto zeros = [&](std::initializer_list<int64_t> dims, DType dtype = DType::kF32) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    memory.push_back(ops.memory->Allocate(count * SizeOf(dtype)));
    return memory.back().As(dtype, dims);
  };
  const auto asks = [](const auto& run) {
    const int64_t before = TrafficSoFar().downloads;
    run();
    return TrafficSoFar().downloads > before;
  };
  const Tensor a = zeros({12, 8}), square = zeros({8, 8}), other = zeros({8, 8});
  const Tensor u = zeros({12, 8}), some = zeros({8}), group = zeros({12}, DType::kI32);
  const Tensor counts = zeros({12}, DType::kI32), best = zeros({12, 4}, DType::kI32);
  AlgebraOps& algebra = *ops.algebra;
  EXPECT_TRUE(asks([&] { algebra.Svd(a, u, some, square); }));
  EXPECT_TRUE(asks([&] { algebra.Eigenvectors(square, some, other); }));
  EXPECT_FALSE(asks([&] { algebra.Qr(a, u, square); }));
  EXPECT_FALSE(asks([&] { algebra.KMeans(a, 2, square, group); }));
  EXPECT_FALSE(asks([&] { algebra.CosineSimilarity(square, square, other); }));
  EXPECT_FALSE(asks([&] { algebra.Hadamard(square); }));
  EXPECT_FALSE(asks([&] {
    ops.linear->MatMulNT(square.Reshape({1, 8, 8}), square.Reshape({1, 8, 8}), 1.0f,
                         other.Reshape({1, 8, 8}));
  }));
  EXPECT_FALSE(asks([&] { ops.rows->Softmax(a, 1.0f, u); }));
  EXPECT_FALSE(asks([&] { ops.select->TopK(a, counts, best); }));
}

// Where probabilities are recorded, or tokens drawn, whole rows are wanted.
TEST_F(DeviceTraffic, LogitsComeWhereTheyAreRead) {
  const int64_t row_bytes = 4 * tiny_.model->config().vocab_size;
  EngineOptions warm;
  warm.sampling.temperature = 1.0f;
  EXPECT_EQ(OfOneStep({contenders_[0], contenders_[1]}, Sample(100, 8), warm).download_bytes,
            2 * row_bytes);
}

TEST_F(DeviceTraffic, BestTokensAreThoseOfTheHost) {
  Ops& ops = *tiny_.ops;
  const int64_t vocab = 1500, rows = 5;
  std::vector<float> logits(static_cast<size_t>(rows * vocab));
  Rng rng(3, 0);
  for (float& logit : logits) logit = static_cast<float>(rng.NextBelow(200)) - 100.0f;
  const Buffer memory = ops.memory->Allocate(rows * vocab * 4);
  const Tensor there = memory.As(DType::kF32, {rows, vocab});
  ops.memory->Copy(View(logits, {rows, vocab}), there);
  for (const int64_t valid : {int64_t{0}, int64_t{700}}) {
    const std::vector<int32_t> best = tiny_.model->BestTokens(there, valid);
    for (int64_t i = 0; i < rows; ++i) {
      const auto begin = logits.begin() + i * vocab;
      const auto most = std::max_element(begin, begin + (valid > 0 ? valid : vocab));
      EXPECT_EQ(best[static_cast<size_t>(i)], most - begin) << valid;
    }
  }
}

}  // namespace
}  // namespace kvgauge
