// SPDX-License-Identifier: Apache-2.0
// Logits and greedy text against independent implementations, for every checkpoint under
// tests/golden/models; each directory's made_by.json says what the oracle was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/strings.h"
#include "methods/attention.h"
#include "runner/generate.h"
#include "src/compress/view.h"
#include "src/model/model_tensors.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

// A stored tensor of any alignment, rounded to `dtype`.
std::vector<float> Widened(const Tensor& stored, DType dtype) {
  const int64_t size = SizeOf(stored.dtype);
  std::vector<float> out;
  for (int64_t i = 0; i < stored.Numel(); ++i) {
    const char* at = static_cast<const char*>(stored.data) + i * size;
    float value = 0;
    uint16_t bits = 0;
    if (stored.dtype == DType::kF32) {
      std::memcpy(&value, at, sizeof value);
    } else {
      std::memcpy(&bits, at, sizeof bits);
      value = stored.dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
    }
    if (dtype == DType::kF16) value = F16ToF32(F32ToF16(value));
    if (dtype == DType::kBF16) value = Bf16ToF32(F32ToBf16(value));
    out.push_back(value);
  }
  return out;
}

struct Loaded {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

class ModelGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = std::string(KVG_TEST_DATA) + "/golden/models/" + GetParam();
    Result<std::unique_ptr<WeightSource>> expected =
        OpenSafetensorsFile(directory_ + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    expected_ = std::move(expected).value();
    ids_ = ReadIds(*expected_, "ids");
    ASSERT_FALSE(ids_.empty());
  }

  Loaded Load(const std::string& backend, DType dtype) {
    std::unique_ptr<Ops> ops = MakeTestOps(backend, 2);
    ModelOptions options;
    options.dtype = dtype;
    Result<std::unique_ptr<Model>> model = Model::Load(directory_, options, *ops);
    if (!model.ok()) {
      ADD_FAILURE() << model.error().message;
      return {};
    }
    return {std::move(ops), std::move(model).value()};
  }

  // Logits of every prompt row; `planned` 0 plans the prompt alone.
  std::vector<float> Logits(Model& model, int64_t planned, int64_t chunk) {
    const Prompt prompt = Prompt::FromTokens(ids_);
    KvCache cache = model.NewCache(planned > 0 ? planned : prompt.size());
    std::vector<float> all;
    const Status status =
        Prefill(model, prompt, cache, chunk, true, [&](const Tensor& rows) -> Status {
          const std::vector<float> values = HostFloats(model.ops(), rows);
          all.insert(all.end(), values.begin(), values.end());
          return {};
        });
    EXPECT_TRUE(status.ok());
    return all;
  }

  static double Range(const std::vector<float>& values) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return double{*high} - double{*low};
  }

  std::string directory_;
  std::unique_ptr<WeightSource> expected_;
  std::vector<int32_t> ids_;
};

TEST_P(ModelGolden, F32Logits) {
  const std::vector<float> want = ReadFixture<float>(*expected_, "logits_f32", DType::kF32);
  for (const char* backend : {"cpu", "reference"}) {
    const Loaded loaded = Load(backend, DType::kF32);
    ASSERT_NE(loaded.model, nullptr);
    const std::vector<float> got = Logits(*loaded.model, 0, Model::kChunkRows);
    EXPECT_TRUE(AllWithin(got, want, 1e-4 * Range(want))) << backend;
  }
}

TEST_P(ModelGolden, ChunksGiveTheSameBits) {
  const Loaded loaded = Load("cpu", DType::kF32);
  ASSERT_NE(loaded.model, nullptr);
  const std::vector<float> whole = Logits(*loaded.model, 0, Model::kChunkRows);
  for (const int64_t chunk : {1, 7, 32}) {
    EXPECT_TRUE(SameBits(Logits(*loaded.model, 0, chunk), whole)) << "chunks of " << chunk;
  }
}

TEST_P(ModelGolden, GreedyText) {
  const Loaded loaded = Load("cpu", DType::kF32);
  ASSERT_NE(loaded.model, nullptr);
  const bool planned = expected_->Contains("greedy_planned");
  const std::vector<int32_t> want = ReadIds(*expected_, planned ? "greedy_planned" : "greedy");
  GenerateOptions options;
  options.max_new_tokens = static_cast<int64_t>(want.size());
  const Result<GenerateResult> got =
      Generate(*loaded.model, Prompt::FromTokens(ids_), options, nullptr);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ids, want);
}

TEST_P(ModelGolden, PlannedLengthLogits) {
  if (!expected_->Contains("logits_f32_planned")) return;  // only where frequencies depend on it
  const Loaded loaded = Load("cpu", DType::kF32);
  ASSERT_NE(loaded.model, nullptr);
  const std::vector<float> want = ReadFixture<float>(*expected_, "logits_f32_planned", DType::kF32);
  const auto planned =
      static_cast<int64_t>(ids_.size() + ReadIds(*expected_, "greedy_planned").size());
  EXPECT_TRUE(
      AllWithin(Logits(*loaded.model, planned, Model::kChunkRows), want, 1e-4 * Range(want)));
}

// Two bf16 implementations round at different places, and the oracle's own bf16 logits are up to a
// few percent of the range away from its f32 logits. So hold ours against f32, and the distance
// between the two bf16 results to what the oracle's own rounding allows.
TEST_P(ModelGolden, Bf16Logits) {
  const std::vector<float> f32 = ReadFixture<float>(*expected_, "logits_f32", DType::kF32);
  const std::vector<float> bf16 = ReadFixture<float>(*expected_, "logits_bf16", DType::kF32);
  const Loaded loaded = Load("cpu", DType::kBF16);
  ASSERT_NE(loaded.model, nullptr);
  const std::vector<float> got = Logits(*loaded.model, 0, Model::kChunkRows);
  ASSERT_EQ(got.size(), f32.size());
  double ours = 0, theirs = 0, between = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i]));
    ours = std::max(ours, std::abs(double{got[i]} - f32[i]));
    theirs = std::max(theirs, std::abs(double{bf16[i]} - f32[i]));
    between = std::max(between, std::abs(double{got[i]} - bf16[i]));
  }
  const double range = Range(f32);
  RecordProperty("ours_to_f32", std::to_string(ours / range));
  RecordProperty("oracle_bf16_to_f32", std::to_string(theirs / range));
  RecordProperty("ours_to_oracle_bf16", std::to_string(between / range));
  EXPECT_LE(ours, std::max(2e-2 * range, theirs));
  EXPECT_LE(between, 2e-2 * range + theirs);
}

// Attention over latents against attention over the keys and values they stand for.
TEST_P(ModelGolden, LatentCachesGiveTheSameLogits) {
  if (!GetParam().starts_with("deepseek")) return;
  const std::vector<float> want = ReadFixture<float>(*expected_, "logits_f32", DType::kF32);
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  ModelOptions options;
  options.dtype = DType::kF32;
  options.mla_latent = true;
  Result<std::unique_ptr<Model>> loaded = Model::Load(directory_, options, *ops);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  Model& model = **loaded;
  const ModelConfig& config = model.config();
  const Prompt prompt = Prompt::FromTokens(ids_);
  CachePools pools(*ops);
  for (const int64_t chunk : {Model::kChunkRows, int64_t{7}}) {
    KvCache cache = model.NewCache(prompt.size(), pools, true);
    std::vector<float> got;
    const Status status =
        Prefill(model, prompt, cache, chunk, true, [&](const Tensor& rows) -> Status {
          const std::vector<float> values = HostFloats(*ops, rows);
          got.insert(got.end(), values.begin(), values.end());
          return {};
        });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_TRUE(AllWithin(got, want, 1e-4 * Range(want))) << "chunks of " << chunk;
    EXPECT_EQ(cache.Bytes().payload, prompt.size() * config.layer_count() * 4 *
                                         (config.mla->kv_lora_rank + config.mla->rope_dim));
  }
  // One batch of both kinds: each gets the bits it gets alone.
  KvCache expanded = model.NewCache(prompt.size(), pools);
  KvCache latent = model.NewCache(prompt.size(), pools, true);
  std::vector<std::vector<float>> alone;
  std::vector<SequenceStep> steps;
  for (KvCache* cache : {&expanded, &latent}) {
    KvCache own = cache->Fork();
    ASSERT_TRUE(own.Append(prompt.size()).ok());
    const SequenceStep step{&own, &prompt, 0, prompt.size()};
    alone.push_back(HostFloats(*ops, model.Forward({&step, 1})));
    ASSERT_TRUE(cache->Append(prompt.size()).ok());
    steps.push_back({cache, &prompt, 0, prompt.size()});
  }
  const std::vector<float> both = HostFloats(*ops, model.Forward(steps));
  ASSERT_EQ(both.size(), alone[0].size() + alone[1].size());
  EXPECT_TRUE(SameBits(std::span<const float>(both).first(alone[0].size()), alone[0]));
  EXPECT_TRUE(SameBits(std::span<const float>(both).last(alone[1].size()), alone[1]));
}

// Reads every projection and writes it back.
class Rewrite final : public Prepare {
 public:
  Status Transform(WeightView& weights) const override {
    using Matrix = WeightView::Matrix;
    for (int64_t layer = 0; layer < weights.shape().layers; ++layer) {
      for (const Matrix matrix : {Matrix::kQuery, Matrix::kKey, Matrix::kValue, Matrix::kOutput}) {
        KVG_ASSIGN(const Tensor read, weights.Read(layer, matrix));
        KVG_TRY(weights.Write(layer, matrix, read));
        KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
        if (!bias.empty()) KVG_TRY(weights.WriteBias(layer, matrix, bias));
      }
    }
    return {};
  }
};

TEST_P(ModelGolden, WeightsWrittenBackAreTheSameModel) {
  const Loaded plain = Load("cpu", DType::kF32);
  ASSERT_NE(plain.model, nullptr);
  const Rewrite rewrite;
  ModelOptions options;
  options.dtype = DType::kF32;
  options.prepare = &rewrite;
  const Result<std::unique_ptr<Model>> again = Model::Load(directory_, options, *plain.ops);
  if (plain.model->config().mla) {
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find("go through latents"), std::string::npos);
    return;
  }
  if (plain.model->config().attention_gate) {
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find("is weighed before its output"), std::string::npos);
    return;
  }
  if (plain.model->config().made_keys) {
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find("make keys and values anew"), std::string::npos);
    return;
  }
  if (!plain.model->config().HasEvenHeads()) {
    ASSERT_FALSE(again.ok());
    EXPECT_NE(again.error().message.find("heads of several sizes"), std::string::npos)
        << again.error().message;
    return;
  }
  if (plain.model->config().SharesCaches()) {
    ASSERT_FALSE(again.ok());
    const auto& layers = plain.model->config().layers;
    const auto reader =
        std::ranges::find_if(layers, [](const auto& one) { return one.reads >= 0; });
    const std::string which =
        StrCat("layer ", reader - layers.begin(), " reads the cache of layer ", reader->reads);
    EXPECT_NE(again.error().message.find(which), std::string::npos) << again.error().message;
    return;
  }
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(
      SameBits(Logits(**again, 0, Model::kChunkRows), Logits(*plain.model, 0, Model::kChunkRows)));
  EXPECT_EQ((*again)->fingerprint(), plain.model->fingerprint());
}

// What methods see of the output projection is the checkpoint's, by head, as the model rounded it.
TEST_P(ModelGolden, OutputWeightsAreTheCheckpoints) {
  const Result<std::unique_ptr<WeightSource>> source = OpenSafetensors(directory_);
  ASSERT_TRUE(source.ok()) << source.error().message;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Loaded loaded = Load("cpu", dtype);
    ASSERT_NE(loaded.model, nullptr);
    const ModelConfig& config = loaded.model->config();
    const ModelShape shape = loaded.model->shape();
    if (shape.made_keys) GTEST_SKIP() << "no stage sees values that layers make anew";
    const KvCache cache = loaded.model->NewCache(1);
    const ViewSource from = {.model = loaded.model.get(), .shape = &shape, .cache = &cache};
    const Result<ModelTensors> named = TensorsIn(config, **source);
    ASSERT_TRUE(named.ok()) << named.error().message;
    const ModelTensors& tensors = *named;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      const int64_t dim = shape.OfLayer(layer).value_dim, width = shape.query_heads * dim;
      const auto index = static_cast<size_t>(config.LayerOf(layer));
      const TensorSpec& spec = tensors.layers[index].output.parts.at(0);
      const Result<WeightTensor> stored = (*source)->Get(spec.name);
      ASSERT_TRUE(stored.ok()) << stored.error().message;
      ASSERT_EQ(stored->view.shape[1], width);
      const std::vector<float> all = Widened(stored->view, dtype);
      CacheView view(from, layer);
      for (int64_t head = 0; head < shape.query_heads; ++head) {
        const std::vector<float> got = HostFloats(*loaded.ops, view.OutputWeights(head));
        std::vector<float> want;
        for (int64_t i = 0; i < dim; ++i) {
          for (int64_t out = 0; out < shape.hidden_size; ++out) {
            want.push_back(all[static_cast<size_t>(out * width + head * dim + i)]);
          }
        }
        ASSERT_EQ(got, want) << NameOf(dtype) << ", layer " << layer << ", head " << head;
      }
    }
  }
}

// What stages make of products of queries and keys is what the model attends to: its scale, soft
// cap and windows count.
TEST_P(ModelGolden, SharesOfProductsAreTheModels) {
  const Loaded loaded = Load("cpu", DType::kF32);
  ASSERT_NE(loaded.model, nullptr);
  Model& model = *loaded.model;
  const ModelShape shape = model.shape();
  if (shape.distances) GTEST_SKIP() << "scores are more than products";
  if (shape.made_keys) GTEST_SKIP() << "no stage sees keys that layers make anew";
  if (shape.entry_tokens > 1) GTEST_SKIP() << "stages see nothing of blocks";
  const Prompt prompt = Prompt::FromTokens(ids_);
  const auto tokens = std::ssize(ids_);
  KvCache cache = model.NewCache(tokens);
  PrefillCapture capture(model.cache_config(), cache, {.window = 1}, tokens);
  while (cache.tokens() < tokens) {
    const int64_t begin = cache.tokens(), end = PassEnd(model.config(), prompt, begin, tokens);
    ASSERT_TRUE(cache.Append(end - begin).ok());
    const SequenceStep step = {
        .cache = &cache, .prompt = &prompt, .begin = begin, .end = end, .hook = &capture};
    model.Forward({&step, 1});
  }
  const ViewSource source = {
      .model = &model, .shape = &shape, .cache = &cache, .prefill = &capture};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    CacheView view(source, layer);
    const int64_t group = view.shape().group(), dim = view.shape().key_dim;
    const Tensor want = view.WindowAttention(1), queries = view.WindowQueries(1)[0];
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Tensor got = view.Scratch(DType::kF32, {group, tokens});
      model.ops().linear->MatMulNT(
          queries.Slice(h * group, (h + 1) * group).Reshape({1, group, dim}),
          view.Keys(h, 0).Reshape({1, tokens, dim}), 1.0f, got.Reshape({1, group, tokens}));
      AttentionOfProducts(view, h, 0, QueryRows::Newest(view), got, got);
      for (int64_t g = 0; g < group; ++g) {
        std::vector<float> shares = HostFloats(*loaded.ops, want[h * group + g][0]);
        // Those of entries alone: the share of a logit without a value is left out.
        const float all = std::accumulate(shares.begin(), shares.end(), 0.0f);
        if (model.config().sinks) {
          EXPECT_LT(all, 1.0f);
          for (float& share : shares) share /= all;
        }
        EXPECT_TRUE(AllWithin(HostFloats(*loaded.ops, got[g]), shares, 1e-5))
            << "layer " << layer << ", head " << h * group + g;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ModelGolden,
                         ::testing::ValuesIn(FixtureDirectories("golden/models")),
                         [](const auto& checkpoint) { return checkpoint.param; });

}  // namespace
}  // namespace kvgauge
