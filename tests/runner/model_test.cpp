// SPDX-License-Identifier: Apache-2.0
// The model as a whole: loading refuses what does not fit, and company never changes a bit.
#include "runner/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "runner/generate.h"
#include "support/compare.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
  "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
  "vocab_size": 101, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
  "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32",
  "rope_theta": 10000.0, "rope_scaling": null, "bos_token_id": 1, "eos_token_id": 2
})";

// A checkpoint in a directory of its own, written tensor by tensor so that a test can spoil it.
class ModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_model_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    std::ofstream(directory_ + "/config.json") << kConfig;
    Result<std::unique_ptr<Ops>> ops = MakeOps("cpu", MakeThreadSettings(2));
    ASSERT_TRUE(ops.ok());
    ops_ = std::move(ops).value();
    const Result<ModelConfig> config = ReadModelConfig(directory_);
    ASSERT_TRUE(config.ok()) << config.error().message;
    uint64_t seed = 0;
    for (const TensorSpec& spec : ExpectedTensors(*config)) {
      int64_t count = 1;
      for (const int64_t d : spec.shape) count *= d;
      tensors_.push_back({spec.name, spec.shape, RandomValues(count, ++seed, 0.1f)});
    }
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  struct StoredTensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  StoredTensor& Find(const std::string& name) {
    for (StoredTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors_[0];
  }

  void WriteWeights() const {
    Json header = Json::object();
    size_t at = 0;
    for (const StoredTensor& tensor : tensors_) {
      const size_t end = at + tensor.values.size() * sizeof(float);
      header[tensor.name] = {
          {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
      at = end;
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream file(directory_ + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << text;
    for (const StoredTensor& tensor : tensors_) {
      file.write(reinterpret_cast<const char*>(tensor.values.data()),
                 static_cast<std::streamsize>(tensor.values.size() * sizeof(float)));
    }
  }

  Result<std::unique_ptr<Model>> Load() {
    WriteWeights();
    return Model::Load(directory_, {}, *ops_);
  }

  std::string LoadError() {
    const Result<std::unique_ptr<Model>> model = Load();
    return model.ok() ? "loaded" : model.error().message;
  }

  std::string directory_;
  std::unique_ptr<Ops> ops_;
  std::vector<StoredTensor> tensors_;
};

// Before any weight is drawn or read.
TEST_F(ModelTest, WeightsBeyondTheMemoryAreRefused) {
  Json config = *ReadJsonFile(directory_ + "/config.json");
  config["hidden_size"] = config["intermediate_size"] = 1 << 16;
  config["num_hidden_layers"] = 200;
  std::ofstream(directory_ + "/config.json") << config.dump();
  ModelOptions options;
  options.random_seed = 1;
  const Result<std::unique_ptr<Model>> model = Model::Load(directory_, options, *ops_);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kResource);
  EXPECT_THAT(model.error().message,
              AllOf(HasSubstr(directory_), HasSubstr("as f32"), HasSubstr("this machine has"),
                    HasSubstr("or f16 or bf16 weights")));
}

TEST_F(ModelTest, MissingTensorIsNamed) {
  std::erase_if(tensors_, [](const StoredTensor& t) {
    return t.name == "model.layers.1.self_attn.k_proj.weight";
  });
  EXPECT_THAT(LoadError(), HasSubstr("'model.layers.1.self_attn.k_proj.weight' is missing"));
}

TEST_F(ModelTest, UnusedTensorIsNamed) {
  tensors_.push_back({"model.layers.1.self_attn.k_proj.bias", {32}, std::vector<float>(32)});
  EXPECT_THAT(LoadError(), HasSubstr("not used by this config, the first is "
                                     "'model.layers.1.self_attn.k_proj.bias'"));
}

TEST_F(ModelTest, IgnorableTensorIsIgnored) {
  tensors_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {8}, std::vector<float>(8)});
  EXPECT_EQ(LoadError(), "loaded");
}

TEST_F(ModelTest, WrongShapeIsNamed) {
  Find("model.norm.weight").shape = {6, 8};
  EXPECT_THAT(LoadError(),
              HasSubstr("'model.norm.weight' has shape [6, 8], but the config needs [48]"));
}

TEST_F(ModelTest, NonFiniteWeightsAreNamed) {
  Find("model.layers.0.mlp.up_proj.weight").values[77] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(LoadError(), HasSubstr("'model.layers.0.mlp.up_proj.weight' of shape [80, 48] holds "
                                     "NaN or infinity at element 77"));
}

TEST_F(ModelTest, NonFiniteNormIsNamed) {
  Find("model.norm.weight").values[5] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(LoadError(), HasSubstr("'model.norm.weight'"));
}

TEST_F(ModelTest, FingerprintFollowsTheWeights) {
  const std::string before = (*Load())->fingerprint();
  EXPECT_EQ((*Load())->fingerprint(), before);
  Find("model.norm.weight").values[5] += 1;
  EXPECT_NE((*Load())->fingerprint(), before);
}

std::vector<int32_t> SomeIds(int64_t count, int32_t step) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * step + 3) % 101));
  return ids;
}

// Feeds whole prompts one after the other, or all in one batch, and returns the last logits.
TEST_F(ModelTest, SequencesInABatchGetTheBitsTheyGetAlone) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    WriteWeights();
    ModelOptions options;
    options.dtype = dtype;
    Result<std::unique_ptr<Model>> loaded = Model::Load(directory_, options, *ops_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    Model& model = **loaded;
    const std::vector<int64_t> lengths = {1, 5, 70, 33};
    std::vector<Prompt> prompts;
    for (size_t i = 0; i < lengths.size(); ++i) {
      prompts.push_back(Prompt::FromTokens(SomeIds(lengths[i], static_cast<int32_t>(7 + 2 * i))));
    }
    std::vector<std::vector<float>> alone;
    for (const Prompt& prompt : prompts) {
      KvCache cache = model.NewCache(prompt.size());
      const SequenceStep step{&cache, &prompt, 0, prompt.size(), LogitRows::kLast};
      ASSERT_TRUE(cache.Append(prompt.size()).ok());
      const Tensor logits = model.Forward({&step, 1});
      alone.emplace_back(logits.f32(), logits.f32() + logits.Numel());
    }
    std::vector<KvCache> caches;
    for (const Prompt& prompt : prompts) caches.push_back(model.NewCache(prompt.size()));
    std::vector<SequenceStep> steps;
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_TRUE(caches[i].Append(prompts[i].size()).ok());
      steps.push_back({&caches[i], &prompts[i], 0, prompts[i].size(), LogitRows::kLast});
    }
    const Tensor logits = model.Forward(steps);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const float* row = logits[static_cast<int64_t>(i)].f32();
      EXPECT_TRUE(SameBits({row, alone[i].size()}, alone[i]))
          << NameOf(dtype) << ", sequence " << i;
    }
  }
}

TEST_F(ModelTest, ThreadsDoNotChangeBits) {
  WriteWeights();
  const Prompt prompt = Prompt::FromTokens(SomeIds(90, 5));
  std::vector<float> first;
  for (const int threads : {1, 2, 4}) {
    const std::unique_ptr<Ops> ops = std::move(*MakeOps("cpu", MakeThreadSettings(threads)));
    Result<std::unique_ptr<Model>> model = Model::Load(directory_, {}, *ops);
    ASSERT_TRUE(model.ok());
    KvCache cache = (*model)->NewCache(prompt.size());
    const SequenceStep step{&cache, &prompt, 0, prompt.size(), LogitRows::kAll};
    ASSERT_TRUE(cache.Append(prompt.size()).ok());
    const Tensor logits = (*model)->Forward({&step, 1});
    const std::vector<float> got(logits.f32(), logits.f32() + logits.Numel());
    if (first.empty()) first = got;
    EXPECT_TRUE(SameBits(got, first)) << threads << " threads";
  }
}

TEST_F(ModelTest, EmbeddingsCanStandForTokens) {
  WriteWeights();
  Result<std::unique_ptr<Model>> model = Load();
  ASSERT_TRUE(model.ok());
  const std::vector<int32_t> ids = SomeIds(12, 5);
  Prompt tokens = Prompt::FromTokens(ids);
  Prompt mixed = tokens;
  // Positions 3 and 7 as ready embeddings, equal to what their tokens look up.
  const StoredTensor& table = Find("model.embed_tokens.weight");
  std::vector<float> rows;
  for (const int at : {3, 7}) {
    const auto* row = &table.values[static_cast<size_t>(ids[at]) * 48];
    mixed.positions[at].token_id = -1;
    mixed.positions[at].embedding_row = static_cast<int32_t>(rows.size() / 48);
    mixed.positions[at].modality = Modality::kImage;
    rows.insert(rows.end(), row, row + 48);
  }
  mixed.embeddings = {{View(rows, {2, 48})}};
  std::vector<std::vector<float>> results;
  for (const Prompt* prompt : {&tokens, &mixed}) {
    KvCache cache = (*model)->NewCache(12);
    const SequenceStep step{&cache, prompt, 0, 12, LogitRows::kLast};
    ASSERT_TRUE(cache.Append(12).ok());
    const Tensor logits = (*model)->Forward({&step, 1});
    results.emplace_back(logits.f32(), logits.f32() + logits.Numel());
  }
  EXPECT_TRUE(SameBits(results[0], results[1]));
}

TEST_F(ModelTest, CacheBytesAreCounted) {
  Result<std::unique_ptr<Model>> model = Load();
  ASSERT_TRUE(model.ok());
  GenerateOptions options;
  options.max_new_tokens = 5;
  options.sampling.temperature = 1;
  const Result<GenerateResult> result =
      Generate(**model, Prompt::FromTokens(SomeIds(30, 3)), options, nullptr);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->ids.size(), 5u);
  // The last token is never fed back: 30 + 4 entries.
  EXPECT_EQ(result->cache_payload_bytes,
            34 * (*model)->config().KvBytesPerToken((*model)->dtype()));
  EXPECT_GE(result->cache_resident_bytes, result->cache_payload_bytes);
  EXPECT_FALSE(Generate(**model, Prompt(), options, nullptr).ok());
}

TEST_F(ModelTest, StopIdsEndTheText) {
  Result<std::unique_ptr<Model>> model = Load();
  ASSERT_TRUE(model.ok());
  GenerateOptions options;
  options.max_new_tokens = 20;
  const Prompt prompt = Prompt::FromTokens(SomeIds(30, 3));
  const Result<GenerateResult> free = Generate(**model, prompt, options, nullptr);
  ASSERT_TRUE(free.ok());
  options.stop_ids = {100000, free->ids[3]};
  std::vector<int32_t> seen;
  const Result<GenerateResult> stopped = Generate(**model, prompt, options, [&](int32_t id) {
    seen.push_back(id);
    return true;
  });
  ASSERT_TRUE(stopped.ok());
  EXPECT_TRUE(stopped->stopped);
  EXPECT_EQ(stopped->ids, seen);
  EXPECT_LE(stopped->ids.size(), 3u);
  const Result<GenerateResult> two =
      Generate(**model, prompt, options, [&, left = 2](int32_t) mutable { return --left > 0; });
  ASSERT_TRUE(two.ok());
  EXPECT_TRUE(two->stopped);
  EXPECT_EQ(two->ids.size(), 2u);
}

TEST(BestTokens, AreTheFirstOfTheLargestOnEveryBackend) {
  std::vector<std::string> backends = {"reference"};
  for (const std::string& isa : AvailableIsas()) backends.push_back(StrCat("cpu:", isa));
  for (const std::string& backend : backends) {
    const Result<std::unique_ptr<Ops>> ops = MakeOps(backend, MakeThreadSettings(2));
    ASSERT_TRUE(ops.ok()) << ops.error().message;
    const auto model = LoadTinyModel(**ops, "gqa");
    ASSERT_TRUE(model.ok()) << model.error().message;
    for (const size_t length : {1, 3, 31, 32, 33, 1023, 2047, 2048, 2049, 6000}) {
      Rng rng(5, length);
      constexpr int64_t kRows = 40;
      std::vector<float> logits(kRows * length);
      for (size_t i = 0; i < kRows; ++i) {
        const std::span<float> row(&logits[i * length], length);
        // Few values, so that the largest comes several times.
        for (float& logit : row) logit = static_cast<float>(rng.NextBelow(50)) - 60.0f;
        if (i % 4 == 1) std::fill(row.begin(), row.end(), -INFINITY);
        // What is no number is never larger.
        if (i % 4 == 2 && length > 1) row[1 + rng.NextBelow(length - 1)] = NAN;
      }
      const auto columns = static_cast<int64_t>(length), valid = (columns + 1) / 2;
      const Tensor rows = View(logits, {kRows, columns});
      const std::vector<int32_t> best = (*model)->BestTokens(rows, 0);
      const std::vector<int32_t> of_valid = (*model)->BestTokens(rows, valid);
      ASSERT_EQ(std::ssize(best), kRows);
      for (size_t i = 0; i < kRows; ++i) {
        const float* row = &logits[i * length];
        EXPECT_EQ(best[i], std::max_element(row, row + columns) - row) << backend << " " << length;
        EXPECT_EQ(of_valid[i], std::max_element(row, row + valid) - row)
            << backend << " " << length;
      }
    }
  }
}

TEST(Sampler, DrawsByProbabilityAndNeverPadding) {
  const std::vector<float> logits = {0, 2, 2, 1, 9};
  // Id 4 is padding. Nucleus: with top_p 0.5 only the two likeliest of the valid four remain.
  Sampler nucleus({.temperature = 1.0f, .top_p = 0.5f, .seed = 3}, 1, 4);
  std::vector<int> counts(5);
  for (int i = 0; i < 2000; ++i) ++counts[static_cast<size_t>(nucleus.Next(logits))];
  EXPECT_EQ(counts[0] + counts[3] + counts[4], 0);
  EXPECT_NEAR(counts[1], 1000, 150);
  // Without a nucleus the shares follow the softmax.
  Sampler full({.temperature = 1.0f, .top_p = 1.0f, .seed = 3}, 1, 4);
  counts.assign(5, 0);
  for (int i = 0; i < 20000; ++i) ++counts[static_cast<size_t>(full.Next(logits))];
  const double total = 1 + 2 * std::exp(2.0) + std::exp(1.0);
  EXPECT_NEAR(counts[0] / 20000.0, 1 / total, 0.01);
  EXPECT_NEAR(counts[1] / 20000.0, std::exp(2.0) / total, 0.015);
}

}  // namespace
}  // namespace kvgauge
