// SPDX-License-Identifier: Apache-2.0
// Token classifiers: directories that hold none, and what encoder_golden.cpp does not tell.
#include "runner/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "support/scratch_directory.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kEncoders = std::string(KVG_TEST_DATA) + "/golden/encoders/";

// A golden encoder in a directory of its own, for a test to spoil.
class SpoiltEncoder {
 public:
  explicit SpoiltEncoder(const std::string& name) {
    for (const char* file :
         {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      Write(file, *ReadFile(StrCat(kEncoders, name, "/", file)));
    }
  }

  const std::string& path() const { return scratch_.path(); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(scratch_.File(name), std::ios::binary) << text;
  }
  void Remove(const std::string& name) const { std::filesystem::remove(scratch_.File(name)); }
  void SetConfig(const std::string& key, const Json& value) const {
    Json config = *ReadJsonFile(scratch_.File("config.json"));
    config[key] = value;
    Write("config.json", config.dump());
  }
  // The first number of a tensor, in f16.
  void SetFirst(const std::string& tensor, uint16_t bits) const {
    std::string file = *ReadFile(scratch_.File("model.safetensors"));
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    const Json header = *ParseJson(file.substr(8, size), "header");
    const auto at = header[tensor]["data_offsets"][0].get<size_t>();
    std::memcpy(file.data() + 8 + size + at, &bits, sizeof(bits));
    Write("model.safetensors", file);
  }
  std::string Refusal() const {
    const auto looked = LookAtTagger(path());
    return looked.ok() ? "" : looked.error().message;
  }

 private:
  ScratchDirectory scratch_;
};

TEST(TokenClassifierTest, WhatIsNoTokenClassifierIsRefused) {
  EXPECT_THAT(LookAtTagger("no/such/place").error().message,
              AllOf(HasSubstr("no/such/place: has no config.json"),
                    HasSubstr("expected the directory of a token classifier")));
  const SpoiltEncoder spoilt("bert");
  EXPECT_EQ(spoilt.Refusal(), "");
  spoilt.SetConfig("architectures", {"BertForMaskedLM"});
  EXPECT_THAT(spoilt.Refusal(),
              AllOf(HasSubstr("config.json: key 'architectures' is [\"BertForMaskedLM\"]"),
                    HasSubstr("expected a token classifier: BertForTokenClassification")));
  spoilt.SetConfig("architectures", {"BertForTokenClassification"});
  spoilt.SetConfig("id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}});
  EXPECT_THAT(spoilt.Refusal(), HasSubstr("3 classes of tokens (id2label); expected 2"));
  spoilt.SetConfig("id2label", {{"0", "a"}, {"1", "b"}});
  spoilt.SetConfig("vocab_size", 10);
  EXPECT_THAT(spoilt.Refusal(), HasSubstr("word_embeddings.weight' has shape"));
  spoilt.SetConfig("vocab_size", 700);
  spoilt.SetConfig("position_embedding_type", "relative_key");
  EXPECT_THAT(spoilt.Refusal(), HasSubstr("key 'position_embedding_type'"));
}

TEST(TokenClassifierTest, ItsTokenizerAndWeightsMustFit) {
  const SpoiltEncoder spoilt("bert");
  const std::string own = *ReadFile(spoilt.path() + "/tokenizer.json");
  const std::string own_config = *ReadFile(spoilt.path() + "/tokenizer_config.json");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    spoilt.Write(file, *ReadFile(StrCat(kEncoders, "xlmr/", file)));
  }
  EXPECT_THAT(spoilt.Refusal(),
              AllOf(HasSubstr("its tokenizer is Unigram"), HasSubstr("has a WordPiece tokenizer")));
  spoilt.Remove("tokenizer.json");
  EXPECT_THAT(spoilt.Refusal(), HasSubstr("no tokenizer; looked for tokenizer.json"));
  spoilt.Write("tokenizer.json", own);
  spoilt.Write("tokenizer_config.json", own_config);
  const auto ops = MakeTestOps("cpu", 1);
  EXPECT_TRUE(TokenClassifier::Load(spoilt.path(), *ops).ok());
  constexpr uint16_t kHalfNan = 0x7e00;
  spoilt.SetFirst("bert.encoder.layer.1.output.dense.weight", kHalfNan);
  EXPECT_THAT(TokenClassifier::Load(spoilt.path(), *ops).error().message,
              AllOf(HasSubstr("'bert.encoder.layer.1.output.dense.weight'"),
                    HasSubstr("holds NaN or infinity at element 0")));
  spoilt.Remove("model.safetensors");
  EXPECT_NE(spoilt.Refusal(), "");
}

TEST(TokenClassifierTest, FactsAreThoseOfWhatIsLoaded) {
  const auto ops = MakeTestOps("cpu", 1);
  std::set<std::string> fingerprints;
  for (const char* name : {"bert", "xlmr"}) {
    const auto facts = LookAtTagger(kEncoders + name);
    ASSERT_TRUE(facts.ok()) << facts.error().message;
    const auto loaded = TokenClassifier::Load(kEncoders + name, *ops);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ((*loaded)->most_tokens(), 512);
    // Backends pad matrices.
    EXPECT_GE((*loaded)->weight_bytes(), (*facts)->weight_bytes);
    EXPECT_LE((*loaded)->weight_bytes(), 2 * (*facts)->weight_bytes);
    EXPECT_GT((*facts)->working_bytes, 512 * 32 * 4);
    fingerprints.insert((*facts)->fingerprint);
  }
  EXPECT_EQ(fingerprints.size(), 2u);
  const SpoiltEncoder other("bert");
  other.SetFirst("classifier.bias", 0);
  EXPECT_FALSE(fingerprints.contains((*LookAtTagger(other.path()))->fingerprint));
}

TEST(TokenClassifierTest, MarksAreTokensAndTheMeanOfAll) {
  const auto ops = MakeTestOps("cpu", 1);
  const auto loaded = TokenClassifier::Load(kEncoders + "bert", *ops);
  ASSERT_TRUE(loaded.ok());
  const std::vector<TaggerToken> tokens = *(*loaded)->Cut("we[NEW3]we [NEW007] [NEW100] [NEW");
  EXPECT_EQ(tokens[1].spelling, "[NEW3]");
  EXPECT_FALSE(tokens[1].special);
  EXPECT_EQ(tokens[0].id, tokens[2].id);
  int marks = 0;
  for (const TaggerToken& token : tokens) marks += token.spelling.starts_with("[NEW") ? 1 : 0;
  EXPECT_EQ(marks, 1);
  // All marks are the same to the encoder.
  const int32_t mark = tokens[1].id;
  const std::vector<int32_t> one = {9, mark, 11}, other = {9, mark + 5, 11}, none = {9, 10, 11};
  const auto of = [&](const std::vector<int32_t>& ids) { return *(*loaded)->Logits(ids); };
  EXPECT_EQ(of(one), of(other));
  EXPECT_NE(of(one), of(none));
}

// What does not fit a pass is left out, behind a text first.
TEST(TokenClassifierTest, LongTextsLoseTheirEnd) {
  const auto ops = MakeTestOps("cpu", 2);
  const auto loaded = TokenClassifier::Load(kEncoders + "xlmr", *ops);
  ASSERT_TRUE(loaded.ok());
  for (const size_t count : {size_t{0}, size_t{1}, size_t{510}, size_t{511}, size_t{600}}) {
    const std::vector<int32_t> ids(count, 20);
    EXPECT_EQ((*loaded)->Logits(ids)->size(), 2 * std::min<size_t>(count + 2, 512)) << count;
    EXPECT_EQ((*loaded)->Chances(ids, TextEdges::kOwn)->size(), std::min<size_t>(count, 511));
  }
}

}  // namespace
}  // namespace kvgauge
