// SPDX-License-Identifier: Apache-2.0
// Captions against what the COCO toolkit gave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "metrics/caption_words.h"

namespace kvgauge {
namespace {

Json Golden() {
  const Result<Json> golden =
      ReadJsonFile(StrCat(KVG_SOURCE_DIR, "/tests/golden/metrics/captions.json"));
  EXPECT_TRUE(golden.ok());
  return golden.ok() ? *golden : Json();
}

std::vector<std::string> Words(const std::string& caption) {
  std::vector<std::string> words;
  for (const metrics::Text& word : metrics::CaptionWords(metrics::Decode(caption))) {
    words.push_back(metrics::Encode(word));
  }
  return words;
}

MetricInput InputOf(const Json& picture) {
  return {.prediction = picture["prediction"], .answers = picture["answers"]};
}

TEST(Captions, WordsAreTheTokenizers) {
  const Json golden = Golden();
  for (const Json& picture : golden["pictures"]) {
    EXPECT_EQ(Words(picture["prediction"]), picture["words"].get<std::vector<std::string>>());
    for (size_t i = 0; i < picture["answers"].size(); ++i) {
      EXPECT_EQ(Words(picture["answers"][i]),
                picture["answer_words"][i].get<std::vector<std::string>>())
          << picture["answers"][i];
    }
  }
}

TEST(Captions, RougeIsTheToolkits) {
  const MetricSpec* metric = FindMetric("coco_rouge_l");
  ASSERT_NE(metric, nullptr);
  const Json golden = Golden();
  for (const Json& picture : golden["pictures"]) {
    EXPECT_NEAR(*metric->score(InputOf(picture)), picture["rouge_l"].get<double>(), 1e-12)
        << picture["prediction"];
  }
}

// One caption and the set; the toolkit's words and those between blanks.
TEST(Captions, BleuIsTheToolkits) {
  const Json golden = Golden();
  for (const auto& [family, key] :
       {std::pair("coco_bleu_", "bleu"), std::pair("caption_bleu_", "plain_bleu")}) {
    for (size_t order = 1; order <= 4; ++order) {
      const MetricSpec* metric = FindMetric(StrCat(family, order));
      ASSERT_NE(metric, nullptr) << family << order;
      SetScore set(*metric);
      for (const Json& picture : golden["pictures"]) {
        const Result<double> score = set.Add(InputOf(picture));
        ASSERT_TRUE(score.ok());
        EXPECT_NEAR(*score, picture[key][order - 1].get<double>(), 1e-12) << picture["prediction"];
      }
      EXPECT_NEAR(set.Value(), golden[key][order - 1].get<double>(), 1e-12) << metric->name;
      EXPECT_FALSE(metric->score({.prediction = "a bus"}).ok());
    }
  }
  EXPECT_NE(golden["bleu"], golden["plain_bleu"]);
}

TEST(Captions, CiderOfWordsBetweenBlanksIsTheToolkits) {
  const Json golden = Golden();
  SetScore set(*FindMetric("caption_cider"));
  for (const Json& picture : golden["pictures"]) ASSERT_TRUE(set.Add(InputOf(picture)).ok());
  EXPECT_NEAR(set.Value(), golden["plain_cider"].get<double>(), 1e-9);
  EXPECT_NE(golden["plain_cider"], golden["cider"]);
}

TEST(Captions, CiderIsTheToolkitsOverTheWholeSet) {
  const MetricSpec* metric = FindMetric("coco_cider");
  ASSERT_NE(metric, nullptr);
  const Json golden = Golden();
  SetScore set(*metric), front(*metric);
  for (const Json& picture : golden["pictures"]) {
    ASSERT_TRUE(set.Add(InputOf(picture)).ok());
    if (front.count() == 5) continue;
    ASSERT_TRUE(front.Add(InputOf(picture)).ok());
  }
  EXPECT_NEAR(set.Value(), golden["cider"].get<double>(), 1e-9);
  EXPECT_NE(front.Value(), set.Value()) << "words weigh by what other captions say";
  EXPECT_FALSE(metric->score(InputOf(golden["pictures"][0])).ok());
}

}  // namespace
}  // namespace kvgauge
