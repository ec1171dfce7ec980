// SPDX-License-Identifier: Apache-2.0
// The queries that a layer would have of the input of the layer below. In a model whose layers add
// next to nothing all inputs are one, so that a guess is the query itself.
#include <gtest/gtest.h>

#include <fstream>

#include "core/files.h"
#include "core/json.h"
#include "runner/engine_fixture.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

struct StillModel {
  const char* golden;
  const char* multiplier;  // of what layers add
  bool latents;            // the cache holds them
};

void PrintTo(const StillModel& model, std::ostream* out) { *out << model.golden; }

class GuessedQueries : public ::testing::TestWithParam<StillModel> {
 protected:
  class Hook final : public LayerHook {
   public:
    bool wants_guesses() const override { return wants; }
    void LayerGuess(int64_t layer, const Tensor& q) override { Copy(q, guesses[layer]); }
    void BeforeAttend(int64_t layer, const Tensor& q) override { Copy(q, queries[layer]); }
    void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}
    static void Copy(const Tensor& q, std::vector<float>& to) {
      for (int64_t h = 0; h < q.shape[1]; ++h) {
        const float* row = q.f32() + h * q.stride[1];
        to.insert(to.end(), row, row + q.shape[2]);
      }
    }

    bool wants = true;
    std::map<int64_t, std::vector<float>> guesses, queries;
  };
};

TEST_P(GuessedQueries, AreTheQueriesWhereLayersAddNothing) {
  const auto ops = MakeTestOps("cpu", 1);
  const std::string golden = StrCat(KVG_TEST_DATA, "/golden/models/", GetParam().golden);
  Json config = *ParseJson(*ReadFile(golden + "/config.json"), golden);
  config[GetParam().multiplier] = 1e-6;
  config["num_hidden_layers"] = 3;
  std::string directory = ::testing::TempDir() + "kvg_still_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::ofstream(directory + "/config.json") << config.dump();
  ModelOptions options;
  options.random_seed = 5;
  options.dtype = DType::kF32;
  options.mla_latent = GetParam().latents;
  const Result<std::unique_ptr<Model>> loaded = Model::Load(directory, options, *ops);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  Model& model = **loaded;

  const Prompt prompt = Prompt::FromTokens(RandomIds(20, 3));
  std::vector<KvCache> caches;
  std::vector<SequenceStep> steps;
  Hook asks, is_silent;
  is_silent.wants = false;
  for (int i = 0; i < 2; ++i) {
    caches.push_back(model.NewCache(20, model.pools(), GetParam().latents));
  }
  for (KvCache& cache : caches) {
    ASSERT_TRUE(cache.Append(19).ok());
    const SequenceStep whole = {.cache = &cache, .prompt = &prompt, .begin = 0, .end = 19};
    model.Forward({&whole, 1});
    ASSERT_TRUE(cache.Append(1).ok());
    Hook* hook = &cache == &caches[0] ? &is_silent : &asks;
    steps.push_back({.cache = &cache, .prompt = &prompt, .begin = 19, .end = 20, .hook = hook});
  }
  model.Forward(steps);
  EXPECT_TRUE(is_silent.guesses.empty());
  EXPECT_FALSE(asks.guesses.contains(0));
  for (int64_t layer = 1; layer < 3; ++layer) {
    EXPECT_TRUE(AllWithin(asks.guesses[layer], asks.queries[layer], 1e-4)) << layer;
    EXPECT_FALSE(AllWithin(asks.guesses[layer], asks.queries[layer - 1], 1e-1)) << layer;
    // Who asks changes nothing.
    EXPECT_TRUE(SameBits(asks.queries[layer], is_silent.queries[layer]));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GuessedQueries,
                         ::testing::Values(StillModel{"granite", "residual_multiplier", false},
                                           StillModel{"minicpm3", "scale_depth", false},
                                           StillModel{"minicpm3", "scale_depth", true}),
                         [](const auto& one) {
                           return std::string(one.param.golden) +
                                  (one.param.latents ? "_latents" : "");
                         });

}  // namespace
}  // namespace kvgauge
