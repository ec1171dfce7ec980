// SPDX-License-Identifier: Apache-2.0
// Shipped task files on records made by hand in the published formats.
#include "datasets/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "datasets/metric.h"
#include "datasets/sample_stream.h"
#include "datasets/task.h"
#include "src/python_literal.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(Formats, InfiniteBench) {
  const Sample choice = One(
      "infinitebench/longbook_choice_eng",
      R"({"id": 3, "context": "Book.", "input": "Who?", "answer": ["Bo"], "options": ["Al", "Bo", "Cy", "Di"]})");
  EXPECT_EQ(
      WholePrompt(choice),
      "Read the book and answer the question.\n\nBook.\n\nQuestion: Who?\nA. Al\nB. Bo\nC. Cy\n"
      "D. Di\n\nThe letter of the correct answer is");
  EXPECT_THAT(choice.questions[0].answers, ElementsAre("Bo", "B"));
  EXPECT_EQ(Score(choice, " B"), 1);
  EXPECT_EQ(Score(choice, "A"), 0);
  const auto stranger = Open(
      "infinitebench/longbook_choice_eng",
      R"({"id": 3, "context": "", "input": "", "answer": ["X"], "options": ["Al", "Bo", "Cy", "Di"]})");
  EXPECT_THAT(stranger.error().message, HasSubstr("field 'answer' is not one of the choices"));

  const Sample run = One(
      "infinitebench/code_run",
      R"({"id": 0, "context": "def func_7(x):", "input": "Give me func_7(-12) please", "answer": 5, "options": []})");
  EXPECT_THAT(run.context, HasSubstr("a function called func_7 in"));
  EXPECT_TRUE(run.questions[0].text.ends_with("The value of func_7(-12) is"));
  EXPECT_EQ(Score(run, " 5."), 1);

  const Sample find = One(
      "infinitebench/math_find",
      R"({"id": 0, "context": "[1, 2]", "input": "The largest number of the list is:", "answer": 2, "options": []})");
  EXPECT_EQ(
      WholePrompt(find),
      "What is the largest number in the following list?\n\n[1, 2]\n\nThe largest number of the "
      "list is:");
  const Sample calc =
      One("infinitebench/math_calc",
          R"({"id": 0, "context": "1 + 3", "input": "", "answer": [1, 4], "options": []})");
  EXPECT_EQ(Score(calc, "[1, 5]"), 0.5);
}

TEST_F(Formats, SCBench) {
  const std::string record =
      R"({"id": 1, "context": "Book.", "multi_turns": [)"
      R"({"input": "Who?", "answer": "Bo", "options": ["Al", "Bo", "Cy", "Di"]},)"
      R"({"input": "Why?", "answer": "c", "options": ["a", "b", "c", "d"]}]})";
  const Sample talk = One("scbench/choice_eng_multi_turn", record);
  EXPECT_EQ(talk.mode, QuestionMode::kMultiTurn);
  EXPECT_EQ(talk.context, "Read the book and answer the question.\n\nBook.\n\n");
  EXPECT_TRUE(talk.questions.at(1).text.starts_with("Question: Why?\nA. a\nB. b"));
  EXPECT_THAT(talk.questions.at(1).answers, ElementsAre("c", "C"));
  const Sample requests = One("scbench/choice_eng_multi_request", record);
  EXPECT_EQ(requests.mode, QuestionMode::kMultiRequest);
  EXPECT_EQ(requests.questions.size(), 2u);
  const Sample variables = One(
      "scbench/vt_multi_request",
      R"({"id": 1, "context": "x", "multi_turns": [{"input": "q", "answer": ["AB", "CD", "EF"]}]})");
  EXPECT_EQ(Score(variables, "ab"), 0.33);
}

TEST_F(Formats, SCBenchMathFind) {
  const std::string record = R"({"id": 2, "context": [3, 7, 5], "multi_turns": [)"
                             R"({"input": "The largest number of the list is:", "answer": 7},)"
                             R"({"input": "The median of the list is:", "answer": "5"}]})";
  const Sample talk = One("scbench/mf_multi_turn", record);
  EXPECT_EQ(talk.context, "What is the largest number of the list?\n\n[3, 7, 5]\n\n");
  EXPECT_EQ(talk.questions.at(0).text, "The largest number of the list is:");
  EXPECT_EQ(talk.questions.at(1).text,
            "What is the median of the list?\n\nThe median of the list is:");
  EXPECT_EQ(Score(talk, " 7.9, I think"), 1);
  EXPECT_EQ(Score(talk, "17"), 0);
  EXPECT_EQ(Score(talk, "none"), 0);
  const Sample requests = One("scbench/mf_multi_request", record);
  EXPECT_EQ(requests.context, "The largest number of the list is:\n\n[3, 7, 5]");
  EXPECT_EQ(requests.questions.at(1).text,
            "What is the median of the list?\n\nThe median of the list is:");
}

// Two kinds of questions in one conversation: each has its own limit and score, and the set's score
// is the mean of both means.
TEST_F(Formats, SCBenchSummaryWithNeedles) {
  const std::string record =
      R"({"context": "Book.", "multi_turns": [)"
      R"({"input": "Sum up.", "answer": "a cat sat down", "task": "scbench_summary"},)"
      R"({"input": "The key?", "answer": "71432", "task": "scbench_passkey"},)"
      R"({"input": "And now?", "answer": "5", "task": "scbench_passkey"}]})";
  const Sample talk = One("scbench/summary_with_needles_multi_turn", record);
  EXPECT_EQ(talk.mode, QuestionMode::kMultiTurn);
  EXPECT_EQ(talk.context, "Book.\n\n");
  ASSERT_EQ(talk.questions.size(), 3u);
  EXPECT_EQ(talk.questions[0].kind, "scbench_summary");
  EXPECT_EQ(talk.questions[0].max_new_tokens, 800);
  EXPECT_EQ(talk.questions[1].max_new_tokens, 15);
  EXPECT_EQ(Score(talk, "a cat sat up"), 0.75);
  EXPECT_EQ(Score(talk, "It is 71432, not 1", 1), 1);
  EXPECT_EQ(Score(talk, "1, 71432", 1), 0);
  SetScore set(*FindMetric(task_.metric));
  ASSERT_TRUE(set.Add(Input(talk.questions[0], "a cat sat up")).ok());
  ASSERT_TRUE(set.Add(Input(talk.questions[1], "71432")).ok());
  ASSERT_TRUE(set.Add(Input(talk.questions[2], "none")).ok());
  EXPECT_EQ(set.Value(), (0.75 + 0.5) / 2);
  EXPECT_EQ(One("scbench/summary_with_needles_multi_request", record).context, "Book.");
  EXPECT_THAT(Open("scbench/summary_with_needles_multi_turn",
                   R"({"context": "", "multi_turns": [{"input": "", "answer": "", "task": "qa"}]})")
                  .error()
                  .message,
              HasSubstr("field 'task' is 'qa', expected one of scbench_passkey, scbench_summary"));
}

// The distractors of a function are those of all lines of its repository.
TEST_F(Formats, SCBenchRepoQa) {
  const auto turn = [](const char* name, const char* body) {
    return StrCat(R"({"input": "Find it.", "name": ")", name, R"(", "answer": ")", body, R"("})");
  };
  const std::string add = "int add(int a, int b) { return a + b; }";
  const auto line = [](const std::string& repo, const std::string& turns) {
    return StrCat(R"({"repo": ")", repo,
                  R"(", "lang": "cpp", "context": "Code.", "multi_turns": [)", turns, "]}\n");
  };
  const Result<std::vector<Sample>> samples =
      Open("scbench/repoqa_multi_turn",
           StrCat(line("x", turn("add", add.c_str())),
                  line("x", turn("sub", "int sub(int a, int b) { return a - b; }")),
                  line("y", turn("mul", "int mul(int a, int b) { return a * b; }"))));
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  const Sample& first = samples->at(0);
  EXPECT_TRUE(first.context.starts_with("Based on the function description and code context"));
  EXPECT_TRUE(first.context.ends_with("wrapped by ```:\n\nCode.\n\n"));
  EXPECT_EQ(first.questions[0].max_new_tokens, 1024);
  EXPECT_THAT(first.questions[0].answers, ElementsAre(add, "add"));
  EXPECT_THAT(first.questions[0].all_classes,
              ElementsAre("add", add, "sub", "int sub(int a, int b) { return a - b; }"));
  EXPECT_THAT(samples->at(2).questions[0].all_classes.size(), 2u);
  EXPECT_EQ(Score(first, StrCat("Here:\n```cpp\n", add, "\n```\nIt adds.")), 1);
  EXPECT_EQ(Score(first, StrCat("It is this, and adds:\n", add)), 0);
  EXPECT_EQ(Score(samples->at(1), StrCat("```\n", add, "\n```")), 0);
  EXPECT_EQ(Score(first, ""), 0);

  const Sample mixed = One(
      "scbench/repoqa_and_kv_multi_request",
      StrCat(R"({"repo": "x", "lang": "cpp", "context": "C", "multi_turns": [)",
             R"({"input": "f", "task": "scbench_repoqa", "name": "add", "answer": ")", add, "\"},",
             R"({"input": "k", "task": "scbench_kv", "name": null, "answer": "v1"}]})"));
  EXPECT_EQ(mixed.questions.at(1).max_new_tokens, 80);
  EXPECT_EQ(Score(mixed, StrCat("```\n", add, "\n```")), 1);
  EXPECT_EQ(Score(mixed, "it is v1.", 1), 1);
  EXPECT_THAT(mixed.questions.at(1).all_classes.size(), 0u);
}

TEST_F(Formats, Scrolls) {
  const auto line = [](const char* id, const char* input, const char* output) {
    return StrCat(R"({"id": ")", id, R"(", "pid": ")", id, R"(_0", "input": ")", input,
                  R"(", "output": ")", output, "\"}\n");
  };
  const std::string content = line("a", "Who?\\n\\nText.", "Bo Lee") +
                              line("a", "Who?\\n\\nText.", "Mr Lee") + line("b", "Q", "x");
  const auto samples = Open("scrolls/qasper", content);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ(WholePrompt(samples->at(0)), "Who?\n\nText.");
  EXPECT_THAT(samples->at(0).questions[0].answers, ElementsAre("Bo Lee", "Mr Lee"));
  EXPECT_EQ(Score(samples->at(0), "mr. lee"), 1);
  EXPECT_THAT(samples->at(1).questions[0].answers, ElementsAre("x"));
  // One id in two places is not one sample.
  EXPECT_THAT(Open("scrolls/qasper", content + line("a", "Who?", "Al")).error().message,
              HasSubstr("id 'a' occurs twice"));
  // What comes before a broken line is whole.
  const auto broken = Open("scrolls/qasper", line("a", "Q", "x") + "{");
  EXPECT_THAT(broken.error().message, HasSubstr("validation.jsonl:2"));
  TaskOptions lenient;
  lenient.skip_bad = true;
  const auto kept =
      Open("scrolls/qasper", line("a", "Q", "x") + "{\n" + line("b", "Q", "y"), lenient);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->size(), 2u);
  const Sample nli = One("scrolls/contract_nli", line("c", "Claim\\n\\nContract", "Entailment"));
  EXPECT_EQ(Score(nli, "entailment."), 1);
}

TEST_F(Formats, MultiHop) {
  const Sample hotpot = One(
      "multi_hop/hotpotqa",
      R"([{"_id": "5a", "question": "Where?", "answer": "Oslo", "type": "bridge", "level": "hard",)"
      R"( "supporting_facts": [["Bo", 0]], "context": [["Bo", ["Bo was born.", " In Oslo."]], ["Al", []]]}])");
  EXPECT_TRUE(WholePrompt(hotpot).ends_with(
      "passages.\nPassage 1:\nBo\nBo was born. In Oslo.\n\nPassage 2:\nAl\n\n\nAnswer the question "
      "based on the given passages. Only give me the answer and do not output any other words."
      "\n\nQuestion: Where?\nAnswer:"));
  EXPECT_EQ(hotpot.id, "5a");
  EXPECT_EQ(Score(hotpot, "in Oslo"), 2.0 / 3);
  EXPECT_THAT(Open("multi_hop/hotpotqa",
                   R"([{"_id": "1", "question": "", "answer": "", "context": [["Bo", "text"]]}])")
                  .error()
                  .message,
              HasSubstr("field 'context' holds no passages; expected [title, [sentences]]"));
  const Sample musique = One(
      "multi_hop/musique",
      R"({"id": "2hop__1", "question": "Q?", "answer": "A", "answer_aliases": [], "answerable": true,)"
      R"( "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "Text.", "is_supporting": true}]})");
  EXPECT_THAT(WholePrompt(musique), HasSubstr("\nPassage 1:\nT\nText.\n"));
}

TEST_F(Formats, Quality) {
  const Sample story = One(
      "quality/dev",
      R"({"article_id": "52845", "set_unique_id": "52845_75VB1ISR", "article": "Story.", "questions": [)"
      R"({"question": "Who?", "options": ["Al", "Bo", "Cy", "Di"], "gold_label": 2, "difficult": 0},)"
      R"({"question": "Why?", "options": ["a", "b", "c", "d"], "gold_label": 4, "difficult": 1}]})");
  EXPECT_EQ(story.id, "52845_75VB1ISR");
  EXPECT_EQ(story.mode, QuestionMode::kMultiRequest);
  EXPECT_TRUE(story.context.ends_with("Do not provide any explanation.\n\nStory:\nStory."));
  ASSERT_EQ(story.questions.size(), 2u);
  EXPECT_EQ(
      story.questions[1].text,
      "\n\nQuestion and Possible Answers:\nWhy?\n (A) a\n (B) b\n (C) c\n (D) d\n\nAnswer:\n");
  EXPECT_EQ(Score(story, "(B) Bo"), 1);
  EXPECT_EQ(Score(story, "A", 1), 0);
  EXPECT_EQ(Score(story, "D", 1), 1);
  EXPECT_THAT(
      Open(
          "quality/dev",
          R"({"set_unique_id": "1", "article": "", "questions": [{"question": "", "options": ["", "", "", ""], "gold_label": 0}]})")
          .error()
          .message,
      HasSubstr("field 'gold_label' is 0, expected the index of one of 4 choices"));
}

TEST_F(Formats, Squality) {
  const Sample story = One(
      "squality/test",
      R"({"metadata": {"passage_id": "1"}, "document": "Story.", "questions": [{"question_text": "Plot?", "question_number": 1,)"
      R"( "responses": [{"worker_id": "6", "uid": "a", "response_text": "a cat sat down"},)"
      R"( {"worker_id": "1", "uid": "b", "response_text": "dogs"}]}]})");
  EXPECT_EQ(WholePrompt(story),
            "You are given a story and a question. Answer the question in a paragraph.\n\nStory:\n"
            "Story.\n\nQuestion:\nPlot?\n\nAnswer:\n");
  EXPECT_THAT(story.questions.at(0).answers, ElementsAre("a cat sat down", "dogs"));
  EXPECT_EQ(Score(story, "a cat sat down"), 1);
  EXPECT_THAT(Open("squality/test", R"({"document": "", "questions": [{"question_text": "",)"
                                    R"( "responses": [{"response_text": "a"}, {"text": "b"}]}]})")
                  .error()
                  .message,
              HasSubstr("field 'responses' holds at index 1 no object with the text "
                        "'response_text'"));
  EXPECT_THAT(Open("squality/test",
                   R"({"document": "", "questions": [{"question_text": "", "responses": "a"}]})")
                  .error()
                  .message,
              HasSubstr("field 'responses' is a string, expected an array of objects"));
}

TEST_F(Formats, QMSum) {
  const std::string record =
      R"({"topic_list": [], "general_query_list": [{"query": "Sum up.", "answer": "They met."}],)"
      R"( "specific_query_list": [{"query": "Who spoke?", "answer": "Ann did.", "relevant_text_span": [["0", "1"]]}],)"
      R"( "meeting_transcripts": [{"speaker": "Ann", "content": "Hello."}, {"speaker": "Bo Lee", "content": "Hi: you."}]})";
  const Sample part = One("qmsum/specific", record);
  EXPECT_THAT(WholePrompt(part), HasSubstr("Transcript:\nAnn: Hello.\nBo Lee: Hi: you.\n\nNow, "));
  EXPECT_TRUE(WholePrompt(part).ends_with("sentences.\n\nQuery: Who spoke?\nAnswer:"));
  EXPECT_THAT(part.questions.at(0).answers, ElementsAre("Ann did."));
  EXPECT_THAT(One("qmsum/general", record).questions.at(0).answers, ElementsAre("They met."));
  EXPECT_THAT(Open("qmsum/general", R"({"general_query_list": [{"query": "", "answer": ""}],)"
                                    R"( "meeting_transcripts": [{"speaker": "Ann"}]})")
                  .error()
                  .message,
              HasSubstr("field 'meeting_transcripts' holds no speech; expected objects with "
                        "'speaker' and 'content'"));
}

TEST_F(Formats, XSum) {
  const Sample sample = One(
      "xsum/h2o_3shot",
      R"({"article": "###\nArticle: A.\n\nSummarize the above article in 1 sentence.\n", "summary_gt": "a cat sat", "logprobs": 1, "max_tokens": 64, "n": 1, "stop": ["###"], "temperature": 0.3, "top_p": 1})");
  EXPECT_EQ(WholePrompt(sample),
            "###\nArticle: A.\n\nSummarize the above article in 1 sentence.\n");
  EXPECT_FALSE(sample.chat_template);
  EXPECT_NEAR(Score(sample, "a cat sat\n###\nArticle: B."), 1, 1e-6);
}

TEST_F(Formats, JudgedTasksAreThoseOfTheirTwins) {
  const Sample sample =
      One("loogle/longdep_qa_judge",
          R"({"input": "Text.", "qa_pairs": "[{'Q': 'Who?', 'A': 'Bo', 'S': [], 'type': 1}]"})");
  EXPECT_EQ(task_.metric, kJudgeMetric);
  EXPECT_THAT(sample.questions.at(0).answers, ElementsAre("Bo"));
}

TEST_F(Formats, LEval) {
  const std::string record =
      R"({"input": "Doc.", "instructions": ["Q1?", "Q2?"], "outputs": ["B. two", "AC"], "source": "s", "evaluation": "exam"})";
  const Sample exam = One("leval/coursera", record);
  EXPECT_EQ(exam.context, "Document is as follows. Doc.");
  EXPECT_EQ(exam.mode, QuestionMode::kMultiRequest);
  ASSERT_EQ(exam.questions.size(), 2u);
  EXPECT_TRUE(exam.questions[0].text.starts_with(" \nQuestion: Q1?.  Please directly"));
  EXPECT_EQ(exam.questions[0].answer_prefix, "\nAnswer:");
  EXPECT_THAT(exam.questions[0].answers, ElementsAre("B"));
  EXPECT_THAT(exam.questions[1].answers, ElementsAre("AC"));
  EXPECT_EQ(Score(exam, "B) since"), 1);
  const Sample open = One("leval/financial_qa", record);
  EXPECT_TRUE(open.questions[0].text.ends_with("Answer this question with 2 words."));
  EXPECT_THAT(
      Open("leval/coursera", R"({"input": "D", "instructions": ["Q1?", "Q2?"], "outputs": ["A"]})")
          .error()
          .message,
      HasSubstr("field 'outputs' is no array of 2 answers"));

  const ByteCodec codec;
  TaskOptions options;
  options.codec = &codec;
  options.max_prompt_tokens = 12;
  EXPECT_EQ(One("leval/financial_qa", record, options).context, "Document is");
}

// One question of the document, and the same of the real world without it.
TEST_F(Formats, LEvalScienceFiction) {
  const std::string record =
      R"({"input": "Story.", "instructions": ["Ice is hot, True or False? Answer this question based on the world described in the document."], "outputs": ["True [fact: False]"], "evaluation": "exam"})";
  const Sample story = One("leval/sci_fi", record);
  EXPECT_THAT(story.context, HasSubstr("a scientific fiction"));
  EXPECT_TRUE(story.context.ends_with("Document is as follows. Story."));
  EXPECT_THAT(story.questions.at(0).answers, ElementsAre("true"));
  EXPECT_EQ(Score(story, " It's TRUE, not false"), 1);
  EXPECT_EQ(Score(story, "No."), 0);
  const Sample world = One("leval/sci_fi_fact", record);
  EXPECT_EQ(world.context, "");
  EXPECT_EQ(world.questions.at(0).text,
            "Ice is hot, True or False? Answer this question based on the real-world knowledge and "
            "facts up until your last trainingPlease directly answer without any additional output "
            "or explanation. \nAnswer:");
  EXPECT_THAT(world.questions.at(0).answers, ElementsAre("false"));
  EXPECT_EQ(Score(world, "False"), 1);
  EXPECT_EQ(Score(world, "True"), 0);
}

// The end of a code base that is too long is kept, where the calls stand.
TEST_F(Formats, LEvalCode) {
  const std::string record =
      R"({"input": "def f(): 3\ncall", "instructions": ["What is it?"], "outputs": ["[6 15]"], "evaluation": "exam"})";
  const Sample whole = One("leval/codeu", record);
  EXPECT_TRUE(WholePrompt(whole).ends_with("question.def f(): 3\ncall\n\nWhat is it?"));
  EXPECT_EQ(Score(whole, "We sum. The final output of the code is `[6, 15]`."), 1);
  EXPECT_EQ(Score(whole, "It prints [6, 15] and then many other words that say nothing"), 0);
  const ByteCodec codec;
  TaskOptions options;
  options.codec = &codec;
  const auto kept = static_cast<int64_t>(whole.context.size()) + 1 - 6;
  options.max_prompt_tokens = kept;
  const Sample cut = One("leval/codeu", record, options);
  EXPECT_TRUE(WholePrompt(cut).ends_with("question.): 3\ncall\n\nWhat is it?")) << WholePrompt(cut);
  EXPECT_EQ(cut.questions.at(0).text, "\n\nWhat is it?");
  options.max_prompt_tokens = 20;
  EXPECT_THAT(Open("leval/codeu", record, options).error().message,
              HasSubstr("tokens around the document"));
}

TEST_F(Formats, Bamboo) {
  const Sample order = One("bamboo/showssort_4k",
                           R"({"content": ["e", "a", "d", "b", "c"], "answer": [1, 3, 4, 2, 0]})");
  EXPECT_THAT(
      WholePrompt(order),
      HasSubstr(
          "Chapters:\n[0] ```e```\n[1] ```a```\n[2] ```d```\n[3] ```b```\n[4] ```c```\n\nGive"));
  EXPECT_EQ(Score(order, "[1] > [3] > [4] > [2] > [0]"), 1);
  EXPECT_EQ(Score(order, "[0] > [3] > [4] > [2] > [1]"), 0.3);
  const Sample paper =
      One("bamboo/paperqa_4k",
          "{\"question\": \"a\tb\", \"evidence\": \"\", \"options\": [\"A. 1\", \"B. "
          "2\", \"C. 3\", \"D. 4\"], \"answer\": \"B\", \"content\": \"x\x01y\\\\\"}");
  EXPECT_THAT(WholePrompt(paper), HasSubstr("```x\x01y\\```"));
  EXPECT_THAT(WholePrompt(paper), HasSubstr("Question: a\tb\nOptions: A. 1\tB. 2"));
  EXPECT_EQ(Score(paper, " b. It is"), 1);
  const Sample claim = One("bamboo/senhallu_4k",
                           R"({"title": "", "content": "c", "hypothesis": "h", "answer": false})");
  EXPECT_EQ(Score(claim, "No."), 1);
  const Sample name = One("bamboo/showspred_16k", R"({"content": "c", "answer": "Ann"})");
  EXPECT_EQ(Score(name, " ann.\nBecause"), 1);
}

TEST_F(Formats, Loogle) {
  const Sample sample = One(
      "loogle/shortdep_qa",
      R"({"input": "Text.", "title": "T", "output": "None", "qa_pairs": "[{'Q': 'Who\\'s \"it\"?', 'A': \"Bob's\", 'S': ['x', None], 'type': 1}, {'Q': 'When?', 'A': '1', 'S': (), 'type': 2.5}]"})");
  EXPECT_EQ(sample.context, "Please answer the question based on the long texts below. \nText.");
  ASSERT_EQ(sample.questions.size(), 2u);
  EXPECT_EQ(sample.questions[0].text, "\nQuestion: Who's \"it\"?\nAnswer: ");
  EXPECT_EQ(Score(sample, "it is Bob's dog"), 1);
  EXPECT_THAT(
      Open("loogle/shortdep_qa", R"({"input": "x", "qa_pairs": "[{'Q': f()}]"})").error().message,
      HasSubstr("field 'qa_pairs' is not a Python literal at byte 8: expected a value"));
}

TEST_F(Formats, LoogleCloze) {
  const std::string record =
      R"({"input": "Text.", "title": "T", "output": "None", "qa_pairs": "[{'Q': '<mask-0> met <mask-1>.', 'S': 'x', 'A': {'<mask-0>': 'Bob Dylan', '<mask-1>': 'Paris'}}]"})";
  const Sample sample = One("loogle/shortdep_cloze", record);
  EXPECT_THAT(sample.context, HasSubstr("for example: {'<mask-0>': 'Bob', "));
  EXPECT_TRUE(sample.context.ends_with("'Bethel Horizon'}\nText."));
  EXPECT_EQ(sample.questions.at(0).text,
            "\n Question: <mask-0> met <mask-1>. What are the masked entities? \nAnswer:");
  EXPECT_EQ(sample.questions.at(0).max_new_tokens, 50);
  const std::string output = " {'<mask-0>': 'Bob', '<mask-1>': 'Paris'}";
  EXPECT_EQ(Score(sample, output), 0.5);
  EXPECT_EQ(Score(sample, "<mask-0> is Bob Dylan"), 0);
  EXPECT_EQ(Score(One("loogle/shortdep_cloze_partial", record), output), 1);
  EXPECT_THAT(
      Open("loogle/shortdep_cloze", R"({"input": "", "qa_pairs": "[{'Q': 'x', 'A': 'Bob'}]"})")
          .error()
          .message,
      HasSubstr("field 'A' is a string, expected an object of named answers"));
}

TEST(PythonLiteral, IsReadButNeverEvaluated) {
  const auto dump = [](std::string_view text) {
    const Result<Json> value = ParsePythonLiteral(text);
    return value.ok() ? value->dump() : "";
  };
  EXPECT_EQ(dump(R"( [1, -2.5, True, False, None, ] )"), "[1,-2.5,true,false,null]");
  EXPECT_EQ(dump(R"({'a': ('b', "c\n\t\x41\u00e9\q"), "d": {}})"),
            "{\"a\":[\"b\",\"c\\n\\tA\u00e9\\\\q\"],\"d\":{}}");
  for (const char* bad : {"", "[", "'a", "{'a' 1}", "{1: 2}", "[1 2]", "x", "1 2", "'\\x4'",
                          "'\\u12'", "__import__('os')", "[1]+[2]"}) {
    EXPECT_EQ(dump(bad), "") << bad;
  }
  EXPECT_EQ(dump(std::string(100, '[')), "");
}

TEST_F(Formats, ZeroScrolls) {
  const std::string record =
      R"({"id": "a", "pid": "a_0", "input": "Read.\n\nText é:\nlong long text\n\nQuestion:\nWho?\n\nAnswer:\n", "output": "(B) Bo", "document_start_index": 7, "document_end_index": 29, "query_start_index": 31, "query_end_index": 55, "truncation_seperator": "... [cut]\n\n"})";
  const Sample whole = One("zero_scrolls/quality", record);
  EXPECT_EQ(whole.context, "Read.\n\nText é:\nlong long text\n\n");
  EXPECT_EQ(whole.questions[0].text, "Question:\nWho?\n\nAnswer:\n");
  EXPECT_EQ(Score(whole, "It is (B)."), 1);
  const ByteCodec codec;
  TaskOptions options;
  options.codec = &codec;
  options.max_prompt_tokens = 48;
  const Sample cut = One("zero_scrolls/quality", record, options);
  EXPECT_EQ(WholePrompt(cut), "Read.\n\nText ... [cut]\n\nQuestion:\nWho?\n\nAnswer:\n");
  EXPECT_EQ(cut.questions[0].text, "Question:\nWho?\n\nAnswer:\n");
  options.max_prompt_tokens = 20;
  EXPECT_THAT(Open("zero_scrolls/quality", record, options).error().message,
              HasSubstr("must be above the 35 tokens of the question"));
}

TEST_F(Formats, M4le) {
  const Sample sample = One(
      "m4le/duorc",
      R"({"instruction": "Answer.", "input": "Text. Q?", "answers": ["Bo"], "input_length": 9, "total_length": 11, "length_bucket": 1000})");
  EXPECT_EQ(WholePrompt(sample), "Answer.\nText. Q?");
  EXPECT_EQ(sample.length, 11);
  EXPECT_EQ(Score(sample, "it was bo. Or Al"), 1);
  EXPECT_EQ(Score(sample, "Al. Bo"), 0);
  const auto record = [](const char* answer) {
    return StrCat(R"({"instruction": "Do.", "input": "Text", "answers": [")", answer,
                  R"("], "input_length": 9, "total_length": 11, "length_bucket": 1000})");
  };
  const Sample labels = One("m4le/marc", record("1, 3"));
  EXPECT_EQ(Score(labels, "3,1"), 1);
  EXPECT_EQ(Score(One("m4le/arxiv", record("a b c d")), "a b\nc d"), 0.5);
  EXPECT_EQ(Score(One("m4le/bigpatent_global_cls", record("Physics")), "physics: G"), 1);
  EXPECT_EQ(Score(One("m4le/thucnews_explicit-single", record("体育")), " 体育\n"), 1);
  EXPECT_EQ(Score(One("m4le/wiki2019zh", record("2")), "2。因为"), 1);
  EXPECT_EQ(Score(One("m4le/drcd_explicit-single", record("5")), "5，6"), 1);
  EXPECT_EQ(Score(One("m4le/drcd_semantic-single", record("北京")), "在北京。不是"), 1);
  EXPECT_EQ(Score(One("m4le/wow", record("7")), "\n7, 8"), 1);
  // Both sides of a count end at the full stop.
  EXPECT_EQ(Score(One("m4le/mnds-news_semantic-multiple", record("3. Sports")), " 3. I think"), 1);
  EXPECT_EQ(Score(One("m4le/thucnews_semantic-multiple", record("4。体育")), "4"), 1);
  EXPECT_EQ(Score(One("m4le/tedtalks-en2zh", record("我们都在这里。")), "我们都在这里。"), 1);
  EXPECT_EQ(Score(One("m4le/tedtalks-zh2en", record("We are here.")), "We are there."), 0);
}

TEST_F(Formats, M4leChineseSummaries) {
  const auto record = [](const std::string& answer) {
    return StrCat(R"({"instruction": "写。", "input": "新闻", "answers": [")", answer,
                  R"("], "input_length": 9, "total_length": 11, "length_bucket": 1000})");
  };
  const std::string answer = "他来到了网易杭研大厦";
  EXPECT_EQ(Score(One("m4le/cnewsum", record(answer)), answer + "新闻：又"), 1);
  EXPECT_EQ(Score(One("m4le/lcsts", record(answer)), answer + "\n别的"), 1);
  EXPECT_EQ(Score(One("m4le/news2016", record(answer)), StrCat("题目是\"", answer, "\"，因为")), 1);
  EXPECT_LT(Score(One("m4le/cepsum", record(answer)), "大厦"), 1);
}

TEST_F(Formats, RunningText) {
  const Sample wiki = One("perplexity/wikitext2_2048", " \n = Title = \n \n Text . \n");
  EXPECT_EQ(wiki.context, "\n\n = Title = \n\n\n\n\n Text . \n");
  EXPECT_TRUE(wiki.questions.empty());
  EXPECT_EQ(wiki.facts.at(0).second, "blocks");
  EXPECT_EQ(wiki.facts.at(1).second, "2048");
  EXPECT_THAT(Open("perplexity/wikitext2_2048", "a\xff").error().message,
              HasSubstr("not UTF-8 at byte 2"));
  const Sample book = One("perplexity/pg19_streaming", "One.\n");
  EXPECT_EQ(book.context, "One.\n");
  EXPECT_EQ(book.facts.at(3).second, "65536");

  const std::string path = (directory_ / "books.json").string();
  std::ofstream(path) << R"({"name": "b", "version": 1, "group": "g", "description": "d",
                             "metric": "perplexity", "max_new_tokens": 1,
                             "source": {"name": "running_text", "file": "b/b.jsonl",
                                        "container": "jsonl"}})";
  const Result<Task> task = ReadTask(path);
  ASSERT_TRUE(task.ok()) << task.error().message;
  std::filesystem::create_directories(directory_ / "b");
  TaskOptions options;
  options.data_directory = directory_.string();
  std::ofstream(directory_ / "b/b.jsonl") << "{\"text\": \"One.\"}\n{\"text\": \"Two.\"}\n";
  const auto books = ReadAll(*task, options);
  ASSERT_TRUE(books.ok()) << books.error().message;
  EXPECT_EQ(books->at(1).context, "Two.");
  EXPECT_EQ(books->at(1).id, "line-2");
  std::ofstream(directory_ / "b/b.jsonl") << "{\"text\": \"\"}\n";
  EXPECT_THAT(ReadAll(*task, options).error().message, HasSubstr("field 'text' is empty"));
}

TEST_F(Formats, Gsm8kCountsTheLastNumber) {
  const Sample sample =
      One("gsm8k_cot_flexible", R"({"question": "Q?", "answer": "so\n#### 1,200"})");
  EXPECT_EQ(Score(sample, "It costs 3 + $1,200.\n\nQ: next 5"), 1);
}

}  // namespace
}  // namespace kvgauge
