// SPDX-License-Identifier: Apache-2.0
// BABILong and Lost in the middle, on records made by hand in their published formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "datasets/formats.h"
#include "datasets/sample_stream.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One array in one line, as the set's own writer leaves it.
TEST_F(Formats, Babilong) {
  const std::string rows =
      R"([{"input": " The cat {sat}. Mary went to the office.\n", "question": "Where is Mary? ", "target": "office"},)"
      R"( {"input": "x", "question": "Is it in the Kitchen or the hallway?", "target": "garden"}])";
  const Result<std::vector<Sample>> samples = Open("babilong/qa1", rows);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  const Sample& first = samples->at(0);
  EXPECT_EQ(first.id, "line-1");
  EXPECT_TRUE(first.context.starts_with("I will give you context with the facts about positions"));
  EXPECT_TRUE(WholePrompt(first).ends_with(
      "is \u2019location\u2019. Do not write anything else after that.\n\n<context>\nThe cat "
      "{sat}. "
      "Mary went to the office.\n</context>\n\nQuestion: Where is Mary?"));
  EXPECT_EQ(first.questions[0].max_new_tokens, 20);
  EXPECT_EQ(Score(first, " The most recent location of Mary is OFFICE. Not the garden."), 1);
  EXPECT_EQ(Score(first, "In the office or the garden"), 0);
  EXPECT_EQ(Score(first, ""), 0);
  // What the question names is never an answer, and does no harm in one.
  const Sample& second = samples->at(1);
  EXPECT_EQ(second.id, "line-1-record-2");
  EXPECT_THAT(second.questions[0].all_classes,
              ElementsAre("bathroom", "bedroom", "garden", "office"));
  EXPECT_EQ(Score(second, "Not in the kitchen: the garden"), 1);

  const auto row = [](const char* question, const char* target) {
    return StrCat(R"([{"input": "x", "question": ")", question, R"(", "target": ")", target,
                  "\"}]");
  };
  const Sample carried = One("babilong/qa8", row("What is Mary carrying?", "apple,milk"));
  EXPECT_EQ(Score(carried, "milk and apple"), 1);
  EXPECT_EQ(Score(carried, "milk"), 0);
  const Sample path = One("babilong/qa19", row("How do you go?", "n,e"));
  EXPECT_EQ(path.questions[0].all_classes.size(), 12u);
  EXPECT_EQ(Score(path, "n,e"), 1);
  EXPECT_EQ(Score(path, "e,n"), 0);
  EXPECT_THAT(Open("babilong/qa6", row("Yes or no?", "yes")).error().message,
              HasSubstr("4k.json:1: field 'question' names every class"));
  EXPECT_THAT(Open("babilong/qa1", R"([{"input": "x", "question": "q", "target": "office"},)"
                                   R"( {"input": "x", "question": "q", "target": "office"},)"
                                   R"( {"input": "x", "question": "q"}])")
                  .error()
                  .message,
              HasSubstr("4k.json:1 (record 3): field 'target' is missing"));
}

TEST_F(Formats, LostInTheMiddleKeys) {
  const std::string record =
      R"({"ordered_kv_records": [["k1", "Va1"], ["k2", "Vb2"], ["k3", "Vc3"]], "key": "k2", "value": "Vb2"})";
  const Sample first = One("lost_in_the_middle/kv_75", record);
  EXPECT_EQ(WholePrompt(first),
            "Extract the value corresponding to the specified key in the JSON object below.\n\n"
            "JSON data:\n{\"k2\": \"Vb2\",\n \"k1\": \"Va1\",\n \"k3\": \"Vc3\"}\n\n"
            "Key: \"k2\"\nCorresponding value:");
  EXPECT_EQ(Score(first, " \"vB2\"\nand more"), 1);
  EXPECT_EQ(Score(first, "Va1"), 0);
  const Sample aware = One("lost_in_the_middle/kv_300_query_aware", record);
  EXPECT_THAT(aware.context, HasSubstr("below.\n\nKey: \"k2\"\n\nJSON data:\n{\"k2\""));

  const auto moved = [&](int64_t position) -> Result<std::string> {
    KVG_ASSIGN(const Task task, WithSourceParams(task_, {{"pair_position", position}}));
    TaskOptions options;
    options.data_directory = directory_.string();
    KVG_ASSIGN(const std::vector<Sample> samples, ReadAll(task, options));
    return samples.at(0).context.substr(samples.at(0).context.find("data:\n") + 6);
  };
  EXPECT_EQ(*moved(2), "{\"k1\": \"Va1\",\n \"k3\": \"Vc3\",\n \"k2\": \"Vb2\"}");
  EXPECT_EQ(*moved(1), "{\"k1\": \"Va1\",\n \"k2\": \"Vb2\",\n \"k3\": \"Vc3\"}");
  EXPECT_EQ(*moved(-1), *moved(1));
  EXPECT_THAT(
      moved(3).error().message,
      HasSubstr("field 'ordered_kv_records' has 3 pairs, and none can be moved to position 3"));

  const auto error = [&](const char* pairs) {
    return Open("lost_in_the_middle/kv_75",
                StrCat(R"({"key": "k1", "value": "v1", "ordered_kv_records": )", pairs, "}"))
        .error()
        .message;
  };
  EXPECT_THAT(error(R"([["k1", "v2"], ["k2", "v1"]])"),
              HasSubstr("does not hold the key 'k1' with"));
  EXPECT_THAT(error(R"([["k1", "v1"], ["k1", "v1"]])"), HasSubstr("holds the key 'k1' twice"));
  EXPECT_THAT(error(R"([["k1", "v1"], ["k2"]])"), HasSubstr("holds at index 1 no [key, value]"));
  EXPECT_THAT(error(R"([["k1", "v1"]])"), HasSubstr("is no array of two [key, value] or more"));
}

TEST_F(Formats, LostInTheMiddleDocuments) {
  const std::string record =
      R"({"question": "who won?", "answers": ["Wilhelm R\u00f6ntgen", "R\u00f6ntgen"], "nq_annotated_gold": {},)"
      R"( "ctxs": [{"title": "Prize", "text": "It went to {him}.", "hasanswer": true, "isgold": true},)"
      R"( {"id": "7", "title": "Other", "text": "No.", "score": "0.5", "hasanswer": false, "isgold": false}]})";
  const Sample sample = One("lost_in_the_middle/qa_20", record);
  EXPECT_EQ(
      WholePrompt(sample),
      "Write a high-quality answer for the given question using only the provided search results "
      "(some of which might be irrelevant).\n\nDocument [1](Title: Prize) It went to {him}.\n"
      "Document [2](Title: Other) No.\n\nQuestion: who won?\nAnswer:");
  EXPECT_EQ(Score(sample, " It was the R\u00f6ntgen."), 1);
  EXPECT_EQ(Score(sample, "Nobody\nR\u00f6ntgen"), 0);
  EXPECT_EQ(Score(sample, "\nR\u00f6ntgen"), 0);
  const Sample aware = One("lost_in_the_middle/qa_10_query_aware", record);
  EXPECT_THAT(aware.context, HasSubstr("irrelevant).\n\nQuestion: who won?\n\nDocument [1]"));
  const Sample closed = One("lost_in_the_middle/qa_closed_book", record);
  EXPECT_EQ(WholePrompt(closed), "Question: who won?\nAnswer:");
  EXPECT_EQ(closed.questions[0].max_new_tokens, 100);
}

}  // namespace
}  // namespace kvgauge
