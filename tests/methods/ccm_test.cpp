// SPDX-License-Identifier: Apache-2.0
// Adapters of compressed context memory: their published layout, and what is refused of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/json.h"
#include "core/strings.h"
#include "methods/condensing_thin.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// The shape of a Llama with two layers.
ModelShape LlamaOf(int64_t query_heads, int64_t kv_heads) {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden_size = 64;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.key_dim = shape.value_dim = shape.rotary_dim = 32;
  shape.attention_scale = 0.2f;
  shape.windows = {0, 0};
  return shape;
}

constexpr char kSavedPrefix[] = "base_model.model.model.";

// A LoRA of rank 3 for two layers of a tiny model, as PEFT saves it.
Calibration::Tables SavedAdapter(const ModelShape& shape, int64_t embeddings,
                                 const std::string& adapter_name = "") {
  Calibration::Tables tables;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 7 + name.size() % 5);
    }
    tables[kSavedPrefix + name] = {{rows, columns}, values};
  };
  const std::pair<char, int64_t> projections[] = {{'q', shape.query_heads * shape.key_dim},
                                                  {'k', shape.kv_heads * shape.key_dim},
                                                  {'v', shape.kv_heads * shape.value_dim},
                                                  {'o', shape.hidden_size}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (const auto& [name, out] : projections) {
      const std::string at = StrCat("layers.", layer, ".self_attn.", std::string(1, name), "_proj");
      const int64_t in = name == 'o' ? shape.query_heads * shape.value_dim : shape.hidden_size;
      add(StrCat(at, ".lora_A.", adapter_name, "weight"), 3, in);
      add(StrCat(at, ".lora_B.", adapter_name, "weight"), out, 3);
    }
  }
  add("embed_tokens.comp_embeddings.weight", embeddings, shape.hidden_size);
  return tables;
}

const StageSpec& CcmSpec() {
  const Result<const StageSpec*> spec = FindStage(StageKind::kThin, "ccm");
  EXPECT_TRUE(spec.ok());
  return **spec;
}

std::string ImportRefusal(const Calibration::Tables& published) {
  const auto tables = CcmSpec().import(published);
  EXPECT_FALSE(tables.ok());
  return tables.ok() ? "" : tables.error().message;
}

// What the stage says of a side-file with these tables.
Status CheckOf(const Calibration::Tables& tables, const ModelShape& shape,
               const std::string& params) {
  const Json json = *ParseJson(params, "params");
  Result<Params> parsed = Params::Parse(CcmSpec().params, json, "ccm");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  const std::unique_ptr<Stage> stage = CcmSpec().make(*parsed);
  auto file = std::make_shared<Calibration>();
  file->path = "adapter";
  file->tables = tables;
  stage->Use(file);
  return stage->Check(shape);
}

TEST(CcmTest, ReadsTheNamesThatAreSaved) {
  const ModelShape shape = LlamaOf(6, 2);
  const Calibration::Tables plain = *CcmSpec().import(SavedAdapter(shape, 2));
  EXPECT_EQ(plain.size(), 2u * 8 + 1);
  EXPECT_EQ(plain.at("layers.1.k.down").shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(plain.at("layers.1.k.up").shape, (std::vector<int64_t>{64, 3}));
  EXPECT_EQ(plain.at("layers.0.o.down").shape, (std::vector<int64_t>{3, 192}));
  EXPECT_EQ(plain.at("embeddings").shape, (std::vector<int64_t>{2, 64}));
  EXPECT_TRUE(CheckOf(plain, shape, R"({"tokens": 2, "rank": 3})").ok());

  // The state of a loaded model has the adapter's name, and older files another one of embeddings.
  Calibration::Tables named = SavedAdapter(shape, 2, "default.");
  auto rows = named.extract(StrCat(kSavedPrefix, "embed_tokens.comp_embeddings.weight"));
  rows.key() = StrCat(kSavedPrefix, "embed_tokens.gist_embeddings.weight");
  named.insert(std::move(rows));
  const Calibration::Tables read = *CcmSpec().import(named);
  EXPECT_EQ(read.size(), plain.size());
  EXPECT_TRUE(CheckOf(read, shape, R"({"tokens": 2, "rank": 3})").ok());
}

TEST(CcmTest, RefusesWhatIsNoAdapterOfItsKind) {
  const ModelShape shape = LlamaOf(6, 2);
  const std::string query = StrCat(kSavedPrefix, "layers.0.self_attn.q_proj.lora_A.weight");
  const std::string embeddings = StrCat(kSavedPrefix, "embed_tokens.comp_embeddings.weight");
  Calibration::Tables some = SavedAdapter(shape, 2);
  some.erase(embeddings);
  EXPECT_THAT(ImportRefusal(some), HasSubstr(StrCat("has no tensor '", embeddings, "'")));
  EXPECT_THAT(ImportRefusal({}), HasSubstr("has no LoRA weights"));
  some = SavedAdapter(shape, 2);
  some[query].shape = {4, 48};
  EXPECT_THAT(ImportRefusal(some), HasSubstr("expected one rank"));
  some[query].shape = {192};
  EXPECT_THAT(ImportRefusal(some), HasSubstr("is of rank 1; expected a matrix"));
  for (const char* name :
       {"layers.0.mlp.up_proj.lora_A.weight", "layers.x.self_attn.q_proj.lora_A.weight",
        "layers.0.self_attn.q_proj.weight", "embed_tokens.weight"}) {
    some = SavedAdapter(shape, 2);
    some[StrCat(kSavedPrefix, name)] = {{3, 64}, std::vector<float>(192)};
    EXPECT_THAT(ImportRefusal(some),
                HasSubstr(StrCat(name, "' acts on what this method leaves as it is")));
  }
}

TEST(CcmTest, RefusesAnotherModelRankOrNumberOfTokens) {
  const ModelShape shape = LlamaOf(6, 2);
  const Calibration::Tables tables = *CcmSpec().import(SavedAdapter(shape, 6));
  const auto refusal = [&](const char* params, const ModelShape& of) {
    const Status status = CheckOf(tables, of, params);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refusal(R"({"tokens": 6, "rank": 3})", shape), "");
  EXPECT_EQ(refusal(R"({"tokens": 3, "rank": 3, "memory": "merge"})", shape), "");
  EXPECT_THAT(refusal(R"({"tokens": 6, "rank": 3, "memory": "merge"})", shape),
              HasSubstr("'embeddings' has shape [6, 64], this model needs [12, 64]"));
  EXPECT_THAT(refusal(R"({"tokens": 2, "rank": 3})", shape), HasSubstr("this model needs [2, 64]"));
  EXPECT_THAT(refusal(R"({"tokens": 6})", shape), HasSubstr("[3, 64], this model needs [16, 64]"));
  EXPECT_THAT(refusal(R"({"tokens": 6, "rank": 3})", LlamaOf(4, 1)), HasSubstr("this model needs"));
  ModelShape deeper = shape;
  deeper.layers = 3;
  EXPECT_THAT(refusal(R"({"tokens": 6, "rank": 3})", deeper), HasSubstr("layers.2."));
  ModelShape shallower = shape;
  shallower.layers = 1;
  EXPECT_THAT(refusal(R"({"tokens": 6, "rank": 3})", shallower), HasSubstr("another model"));
  EXPECT_THAT(refusal(R"({"tokens": 6, "rank": 3, "chunk": 6, "sinks": 1})", shape),
              HasSubstr("chunk is 6, and 6 tokens and 1 sinks stay of the first one; expected 7"));
  ModelShape latent = shape;
  latent.latent_dim = 32;
  EXPECT_THAT(refusal(R"({"tokens": 6, "rank": 3})", latent), HasSubstr("projects to latents"));
}

// Without a side-file, and beside stages that look at what is gone or act on other weights.
TEST(CcmTest, RefusesCompositionsThatCannotBe) {
  const auto parse = [](const std::string& stages) {
    const Json json = *ParseJson(
        StrCat(R"({"id": "x", "title": "x", "family": "merging", "stages": {"thin": {"id": "ccm",
          "weights": "random"})",
               stages, "}}"),
        "test");
    return ParseMethod(json, "test");
  };
  const auto refusal = [&](const std::string& stages) {
    const Result<Method> method = parse(stages);
    if (!method.ok()) return method.error().message;
    const Status status = CheckMethod(*method, LlamaOf(6, 2), {}, 200);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(R"(, "store": {"id": "kivi"})"), "");
  EXPECT_EQ(refusal(R"(, "read": {"id": "quest"})"), "");
  EXPECT_THAT(refusal(R"(, "score": {"id": "snapkv"}, "reduce": {"id": "top_k"})"),
              HasSubstr("reduce.top_k chooses by the attention of a prompt that is read whole, and "
                        "thin.ccm reads it chunk by chunk"));
  EXPECT_THAT(
      refusal(R"(, "prepare": {"id": "smooth_keys"})"),
      HasSubstr("prepare.smooth_keys changes projections, and thin.ccm has trained weights"));
  EXPECT_THAT(refusal(R"(, "store": {"id": "plain", "position": "slot"})"),
              HasSubstr("store.plain: turns keys by the places of their entries"));
  EXPECT_THAT(refusal(R"(, "store": {"id": "kvquant"})"),
              HasSubstr("store.kvquant needs signals of the whole prompt"));
  EXPECT_THAT(refusal(R"(, "store": {"id": "think"})"),
              HasSubstr("store.think needs signals of the whole prompt"));
  const Result<Method> shipped =
      LoadMethod("ccm_concat", StrCat(KVG_SOURCE_DIR, "/configs/methods"), {});
  ASSERT_TRUE(shipped.ok());
  const Status without = CheckMethod(*shipped, LlamaOf(6, 2), {}, 200);
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().message, HasSubstr("calibration names no side-file"));
}

}  // namespace
}  // namespace kvgauge
