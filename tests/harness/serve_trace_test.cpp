// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/strings.h"
#include "src/serve/serve_loop.h"
#include "src/serve/trace.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string TraceFault(const std::string& text) {
  const Result<Trace> trace = ParseTrace(text, "t.jsonl");
  return trace.ok() ? "" : trace.error().message;
}

TEST(TraceTest, ReadsItsOwnFormat) {
  const Result<Trace> trace = ParseTrace(
      R"({"id":"a","at_s":0.5,"prompt_tokens":100,"answer_tokens":8,"prefix":[{"id":"p","tokens":64}]}

{"at_s":0.5,"prompt_tokens":70,"answer_tokens":1,"prefix":[{"id":"p","tokens":64}],"conversation":"c"}
{"at_s":2,"prompt_tokens":5,"answer_tokens":3,"conversation":"c"}
{"at_s":3,"prompt_tokens":5,"answer_tokens":3,"conversation":"d"})",
      "folder/t.jsonl");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_THAT(trace->requests, SizeIs(4));
  EXPECT_EQ(trace->name, "t.jsonl");
  EXPECT_EQ(trace->requests[0].id, "a");
  EXPECT_EQ(trace->requests[1].id, "line 3");
  EXPECT_EQ(trace->requests[0].prefix, trace->requests[1].prefix);
  EXPECT_EQ(trace->requests[0].conversation, -1);
  EXPECT_EQ(trace->requests[1].conversation, 0);
  EXPECT_EQ(trace->requests[2].conversation, 0);
  EXPECT_EQ(trace->requests[3].conversation, 1);
  // What it writes it reads again.
  const Result<Trace> again = ParseTrace(WriteTrace(*trace), "again");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->requests[1].prompt_tokens, 70);
  EXPECT_EQ(again->requests[1].prefix[0].tokens, 64);
  EXPECT_EQ(again->requests[0].prefix, again->requests[1].prefix);
  EXPECT_EQ(again->requests[2].conversation, again->requests[1].conversation);
}

// Whatever they are called: a shared beginning that passed for an answer would be looked for among
// answers.
TEST(TraceTest, SharedBeginningsAreNobodysOwn) {
  std::string own, mooncake;
  for (int i = 0; i < 64; ++i) {
    own += StrCat(R"({"at_s":0,"prompt_tokens":9,"answer_tokens":1,"prefix":[{"id":"system )", i,
                  R"(","tokens":4}]})", "\n");
    mooncake +=
        StrCat(R"({"timestamp":0,"input_length":9,"output_length":1,"hash_ids":[)", i, "]}\n");
  }
  for (const std::string& text : {own, mooncake}) {
    const Result<Trace> trace = ParseTrace(text, "t.jsonl");
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    for (const TraceRequest& request : trace->requests) {
      int64_t answered = 0;
      EXPECT_FALSE(IsAnswerContent(request.prefix[0].content, &answered));
      EXPECT_LT(request.prefix[0].content, OwnRun(0, 1).content);
    }
  }
}

TEST(TraceTest, WhatWasSavedHasTheSamePrefixes) {
  const Result<Trace> mooncake = ParseTrace(
      R"({"timestamp":0,"input_length":900,"output_length":1,"hash_ids":[7,8]})", "t.jsonl");
  const Result<Trace> own = ParseTrace(
      R"({"at_s":0,"prompt_tokens":9,"answer_tokens":1,"prefix":[{"id":"7","tokens":4}]})",
      "t.jsonl");
  GeneratedTrace options;
  options.prompts = options.answers = *LengthMix::Parse("9", "--prompt-tokens");
  options.shared_tokens = 5;
  options.shared_groups = 3;
  ASSERT_TRUE(mooncake.ok() && own.ok());
  for (const Trace& trace : {*mooncake, *own, GenerateTrace(options)}) {
    const Result<Trace> again = ParseTrace(WriteTrace(trace), "again.jsonl");
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(again->requests.size(), trace.requests.size());
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      EXPECT_FALSE(trace.requests[i].prefix.empty());
      EXPECT_EQ(again->requests[i].prefix, trace.requests[i].prefix);
    }
    EXPECT_EQ(WriteTrace(*again), WriteTrace(trace));
  }
  const auto prefix = [](const std::string& item) {
    return TraceFault(StrCat(R"({"at_s":1,"prompt_tokens":4,"answer_tokens":2,"prefix":[{)", item,
                             R"("tokens":1}]})"));
  };
  EXPECT_EQ(prefix(R"("content":9223372036854775807,)"), "");
  EXPECT_THAT(prefix(R"("content":9223372036854775808,)"),
              HasSubstr("expected a whole number of 0 .. 9223372036854775807"));
  EXPECT_THAT(prefix(R"("content":-1,)"), HasSubstr("\"content\" is '-1'"));
  EXPECT_THAT(prefix(R"("content":1,"id":"a",)"), HasSubstr("either \"id\" or \"content\""));
  EXPECT_THAT(prefix(""), HasSubstr("either \"id\" or \"content\""));
}

TEST(TraceTest, SaysWhereItIsWrong) {
  const std::string good = R"({"at_s":1,"prompt_tokens":4,"answer_tokens":2})";
  EXPECT_EQ(TraceFault(good), "");
  EXPECT_THAT(TraceFault(""), HasSubstr("holds no request"));
  EXPECT_THAT(TraceFault(R"({"at_s":-1,"prompt_tokens":4,"answer_tokens":2})"),
              HasSubstr("t.jsonl: line 1: 'at_s' is -1 s; expected 0 or more"));
  EXPECT_THAT(TraceFault(good + "\n" + R"({"at_s":0.5,"prompt_tokens":4,"answer_tokens":2})"),
              HasSubstr("line 2: 'at_s' is 0.5 s and that of the request before 1 s; expected an "
                        "order of time"));
  EXPECT_THAT(TraceFault(R"({"at_s":1,"prompt_tokens":0,"answer_tokens":2})"),
              HasSubstr("'prompt_tokens' is 0; expected 1 .. 10000000"));
  EXPECT_THAT(TraceFault(R"({"at_s":1,"prompt_tokens":18446744073709551615,"answer_tokens":2})"),
              HasSubstr("'prompt_tokens' is 18446744073709551615; expected 1 .. 10000000"));
  EXPECT_THAT(TraceFault(R"({"at_s":1,"prompt_tokens":4,"answer_tokens":2,"prefix":[4]})"),
              HasSubstr("line 1: \"prefix\" has '4'; expected a list of {\"id\", \"tokens\"}"));
  EXPECT_THAT(TraceFault("Timestamp,Request tokens,Response tokens\ninf,4,2\n"),
              HasSubstr("line 2: \"Timestamp\" is 'inf'; expected seconds"));
  EXPECT_THAT(TraceFault("Timestamp,Timestamp,Request tokens,Response tokens\n1,2,3,4\n"),
              HasSubstr("line 1: column 'Timestamp' occurs twice"));
  EXPECT_THAT(TraceFault(R"({"at_s":1,"prompt_tokens":4.5,"answer_tokens":2})"),
              HasSubstr("expected a whole number"));
  EXPECT_THAT(TraceFault(R"({"at_s":1e300,"prompt_tokens":4,"answer_tokens":2})"),
              HasSubstr("'at_s' is 1e+300"));
  EXPECT_THAT(TraceFault(R"({"at_s":1,"prompt_tokens":4})"),
              HasSubstr("'answer_tokens' is missing"));
  EXPECT_THAT(TraceFault(R"({"at_s":1,"prompt_token":4,"answer_tokens":2})"),
              HasSubstr("unknown key 'prompt_token' (did you mean"));
  EXPECT_THAT(
      TraceFault(
          R"({"at_s":1,"prompt_tokens":4,"answer_tokens":2,"prefix":[{"id":"a","tokens":5}]})"),
      HasSubstr("\"prefix\" has 5 tokens; expected at most 4"));
  EXPECT_THAT(TraceFault("a,b\n1,2\n"), HasSubstr("is no trace; expected JSON lines, or"));
  EXPECT_THAT(TraceFault("{\"at_s\":1,\xff"), HasSubstr("byte 10 is no UTF-8"));
  EXPECT_THAT(TraceFault("[1]"), HasSubstr("is no trace"));
  EXPECT_THAT(TraceFault("{\"a\":{\"a\":"), HasSubstr("line 1"));
  EXPECT_THAT(TraceFault(good + "\n[]"), HasSubstr("line 2: expected a JSON object"));
  EXPECT_THAT(TraceFault("\n\n{"), HasSubstr("line 3: "));
  EXPECT_THAT(TraceFault("\r\n\r\na,b\r\n"), HasSubstr("line 3: 'a,b' is no trace"));
}

TEST(TraceTest, ReadsWhatOtherSystemsWrite) {
  const std::string line = R"({"at_s":1,"prompt_tokens":4,"answer_tokens":2})";
  EXPECT_EQ(TraceFault(StrCat("\xef\xbb\xbf", line, "\r\n\r\n", line, "\r\n")), "");
  EXPECT_EQ(TraceFault("\xef\xbb\xbfTimestamp,Request tokens,Response tokens\r\n5,1,1\r\n"), "");
}

// The first lines of the published files.
TEST(TraceTest, ReadsPublishedTraces) {
  const Result<Trace> azure = ParseTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 18:17:03.9799600,4808,10\n"
      "2023-11-16 18:17:04.0319600,3180,8\n"
      "2023-11-17 00:00:00,110,27\n",
      "azure.csv");
  ASSERT_TRUE(azure.ok()) << azure.error().message;
  ASSERT_THAT(azure->requests, SizeIs(3));
  EXPECT_EQ(azure->requests[0].at_s, 0);
  EXPECT_NEAR(azure->requests[1].at_s, 0.052, 1e-6);
  EXPECT_NEAR(azure->requests[2].at_s, 20576.02004, 1e-5);
  EXPECT_EQ(azure->requests[0].prompt_tokens, 4808);
  EXPECT_EQ(azure->requests[0].answer_tokens, 10);

  const Result<Trace> zone = ParseTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.5+00:00,1,1\n"
      "2024-03-01 00:00:00+00:00,1,1\n",
      "azure.csv");
  ASSERT_TRUE(zone.ok()) << zone.error().message;
  EXPECT_NEAR(zone->requests[1].at_s, 86400.5, 1e-5);  // of a leap year

  const Result<Trace> burst = ParseTrace(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45,ChatGPT,1087,0,1087,Conversation log\n"
      "118,GPT-4,417,276,693,Conversation log\n",
      "burst.csv");
  ASSERT_TRUE(burst.ok()) << burst.error().message;
  ASSERT_THAT(burst->requests, SizeIs(2));
  EXPECT_EQ(burst->left_out, 1);
  EXPECT_EQ(burst->requests[1].at_s, 113);
  EXPECT_EQ(burst->requests[1].answer_tokens, 276);

  const Result<Trace> mooncake = ParseTrace(
      R"({"timestamp": 0, "input_length": 915, "output_length": 355, "hash_ids": [0, 462]}
{"timestamp": 3000, "input_length": 1477, "output_length": 615, "hash_ids": [0, 820, 821]})",
      "mooncake.jsonl");
  ASSERT_TRUE(mooncake.ok()) << mooncake.error().message;
  EXPECT_EQ(mooncake->requests[1].at_s, 3);
  ASSERT_THAT(mooncake->requests[1].prefix, SizeIs(3));
  EXPECT_EQ(mooncake->requests[0].prefix[0], mooncake->requests[1].prefix[0]);
  EXPECT_EQ(mooncake->requests[0].prefix[1].tokens, 915 - 512);
  EXPECT_EQ(mooncake->requests[1].prefix[2].tokens, 1477 - 1024);

  EXPECT_THAT(TraceFault("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:17:03,1,1\n"),
              HasSubstr("line 2: \"TIMESTAMP\" is '2023-13-16 18:17:03'; expected a time"));
  EXPECT_THAT(TraceFault("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1\n"),
              HasSubstr("2 columns; expected 3"));
  EXPECT_THAT(TraceFault("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,-1,1\n"),
              HasSubstr("'ContextTokens' is -1"));
  EXPECT_THAT(TraceFault("Timestamp,Request tokens,Response tokens\n-5,1,1\n"),
              HasSubstr("\"Timestamp\" is '-5'; expected seconds, 0 or more"));
  EXPECT_THAT(TraceFault("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n"
                         "2023-11-16 18:17:02,1,1\n"),
              HasSubstr("line 3: 'TIMESTAMP' is '2023-11-16 18:17:02', before that of the first"));
  EXPECT_THAT(TraceFault(R"({"timestamp":-5,"input_length":9,"output_length":1,"hash_ids":[1]})"),
              HasSubstr("line 1: 'timestamp' is -5 ms; expected 0 or more, at most 1e+13"));
}

TEST(TraceTest, ArrivalsHaveTheirRateAndBursts) {
  GeneratedTrace options;
  options.requests = 20000;
  options.per_second = 5;
  options.prompts = *LengthMix::Parse("10..20", "--prompt-tokens");
  options.answers = *LengthMix::Parse("3,9", "--answer-tokens");
  const auto gaps = [&](Arrivals arrivals) {
    options.arrivals = arrivals;
    const Trace trace = GenerateTrace(options);
    double sum = 0, squares = 0, last = 0;
    for (const TraceRequest& request : trace.requests) {
      const double gap = request.at_s - last;
      last = request.at_s;
      sum += gap;
      squares += gap * gap;
      EXPECT_GE(request.prompt_tokens, 10);
      EXPECT_LE(request.prompt_tokens, 20);
      EXPECT_TRUE(request.answer_tokens == 3 || request.answer_tokens == 9);
    }
    const auto n = static_cast<double>(trace.requests.size());
    const double mean = sum / n;
    return std::pair(mean, (squares / n - mean * mean) / (mean * mean));
  };
  const auto poisson = gaps(Arrivals::kPoisson), bursts = gaps(Arrivals::kBursts);
  EXPECT_NEAR(poisson.first, 0.2, 0.006);
  EXPECT_NEAR(poisson.second, 1, 0.06);
  EXPECT_NEAR(bursts.first, 0.2, 0.012);
  EXPECT_NEAR(bursts.second, 4, 0.5);
  EXPECT_EQ(gaps(Arrivals::kTogether).first, 0);
  options.arrivals = Arrivals::kBursts;
  EXPECT_EQ(WriteTrace(GenerateTrace(options)), WriteTrace(GenerateTrace(options)));
}

TEST(TraceTest, ConversationsAndSharedBeginnings) {
  GeneratedTrace options;
  options.requests = 12;
  options.turns = 3;
  options.pause_s = 10;
  options.shared_tokens = 50;
  options.shared_groups = 2;
  options.prompts = *LengthMix::Parse("7", "--prompt-tokens");
  options.answers = *LengthMix::Parse("2", "--answer-tokens");
  const Trace trace = GenerateTrace(options);
  EXPECT_EQ(trace.conversations, 4);
  int64_t first_turns = 0;
  for (const TraceRequest& request : trace.requests) {
    first_turns += request.prefix.empty() ? 0 : 1;
    EXPECT_EQ(request.prompt_tokens, request.prefix.empty() ? 7 : 57);
    EXPECT_EQ(request.at_s > 0, request.prefix.empty());
  }
  EXPECT_EQ(first_turns, 4);
  for (const char* bad : {"", "0", "5..3", "a", "1,", "1..", "99999999999"}) {
    EXPECT_FALSE(LengthMix::Parse(bad, "--prompt-tokens").ok()) << bad;
  }
}

}  // namespace
}  // namespace kvgauge
