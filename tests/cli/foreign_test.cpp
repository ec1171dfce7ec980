// SPDX-License-Identifier: Apache-2.0
// Scores of other programs: read strictly, shown beside ours, mixed with nothing.
#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The layout of lm-evaluation-harness 0.4.
constexpr char kLmEval[] = R"({
  "results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.25,
                        "exact_match_stderr,strict-match": 0.0119,
                        "exact_match,flexible-extract": 0.5,
                        "exact_match_stderr,flexible-extract": "N/A"},
              "arc_easy": {"alias": "arc_easy", "acc,none": 0.75, "acc_stderr,none": 0.01}},
  "versions": {"gsm8k": 3, "arc_easy": 1}, "n-shot": {"gsm8k": 5, "arc_easy": 0},
  "n-samples": {"gsm8k": {"original": 1319, "effective": 100}},
  "config": {"model": "hf", "model_args": "pretrained=some/model,dtype=float32"},
  "model_name": "some/model", "chat_template_sha": null})";

constexpr char kKvpressConfig[] = R"(dataset: ruler
data_dir: '4096'
model: some/model
press_name: snapkv
compression_ratio: 0.5
fraction: 0.1
query_aware: false
threshold: null
model_kwargs:
  attn_implementation: eager
)";

class ForeignTest : public RunTest {
 protected:
  void WriteKvpress(const std::string& metrics, const std::string& config = kKvpressConfig) const {
    std::filesystem::create_directories(Path("kvpress/one"));
    Write("kvpress/one/metrics.json", metrics);
    Write("kvpress/one/config.yaml", config);
  }
};

TEST_F(ForeignTest, LmEval) {
  Write("results.json", kLmEval);
  const Outcome outcome = Run({"import", "lm-eval", Path("results.json"), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["kvgauge_foreign"], 1);
  ASSERT_EQ(json["rows"].size(), 3u);
  const Json& arc = json["rows"][0];
  EXPECT_EQ(arc["task"], "arc_easy");
  EXPECT_EQ(arc["metric"], "acc");
  EXPECT_EQ(arc["score"], 0.75);
  EXPECT_EQ(arc["protocol"], "version 1, shots 0, no chat template");
  EXPECT_FALSE(arc.contains("samples"));
  const Json& flexible = json["rows"][1];
  EXPECT_EQ(flexible["metric"], "exact_match, flexible-extract");
  EXPECT_FALSE(flexible.contains("standard_error"));
  EXPECT_EQ(json["rows"][2]["standard_error"], 0.0119);
  EXPECT_EQ(json["rows"][2]["samples"], 100);
  EXPECT_EQ(json["rows"][2]["model"], "some/model");
  EXPECT_THAT(json["rows"][2]["source"].get<std::string>(), HasSubstr("results.json (sha256 "));
}

TEST_F(ForeignTest, Kvpress) {
  WriteKvpress(R"({"niah_single_1": {"string_match": 95.2}, "vt": {"string_match": 3}})");
  const Outcome outcome = Run({"import", "kvpress", Path("kvpress"), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["task"], "ruler/4096/niah_single_1");
  EXPECT_EQ(json["rows"][0]["metric"], "string_match");
  EXPECT_EQ(json["rows"][0]["method"], "snapkv, compression_ratio 0.5");
  EXPECT_EQ(json["rows"][0]["protocol"], "question unseen, fraction 0.1");
  // The other shape, of data sets with one score.
  WriteKvpress(R"({"correct": 3, "answered": 5, "accuracy": 0.1, "total": 30})",
               "dataset: aime25\nmodel: m\npress_name: no_press\n");
  const Json flat = Json::parse(Run({"import", "kvpress", Path("kvpress/one"), "--json"}).out);
  ASSERT_EQ(flat["rows"].size(), 4u);
  EXPECT_EQ(flat["rows"][0]["task"], "aime25");
  EXPECT_EQ(flat["rows"][0]["method"], "full");
}

TEST_F(ForeignTest, ShownBelowTheLeaderboardAndNowhereElse) {
  RunInto("a.db");
  Write("results.json", kLmEval);
  const std::string digest = Digest("a.db");
  ASSERT_EQ(Run({"import", "lm-eval", Path("results.json"), "-o", Path("f.json")}).exit_code, 0);
  const std::string board = Run({"leaderboard", Path("a.db")}).out;
  const Outcome with = Run({"leaderboard", Path("a.db"), "--foreign", Path("f.json")});
  ASSERT_EQ(with.exit_code, 0) << with.err;
  EXPECT_THAT(with.out, HasSubstr("not ranked and not compared"));
  EXPECT_THAT(with.out, HasSubstr("arc_easy"));
  // Every table of ours is as it was.
  EXPECT_EQ(with.out.substr(0, with.out.find("Measured by other")),
            board.substr(0, with.out.find("Measured by other")));
  const Json plain = Json::parse(Run({"leaderboard", Path("a.db"), "--json"}).out);
  Json json =
      Json::parse(Run({"leaderboard", Path("a.db"), "--foreign", Path("f.json"), "--json"}).out);
  EXPECT_EQ(json["foreign"].size(), 3u);
  json.erase("foreign");
  EXPECT_EQ(json, plain);
  const Outcome csv =
      Run({"leaderboard", Path("a.db"), "--foreign", Path("f.json"), "--format", "csv"});
  EXPECT_EQ(csv.exit_code, 2);
  EXPECT_THAT(csv.err, HasSubstr("--foreign"));
  EXPECT_EQ(Digest("a.db"), digest);
}

TEST_F(ForeignTest, BadLmEvalFiles) {
  const std::string deep = std::string(100000, '[');
  const std::pair<std::string, std::string> cases[] = {
      {"", "results.json"},
      {"{", "results.json"},
      {"[]", "no \"results\""},
      {R"({"results": []})", "no \"results\""},
      {R"({"results": {}, "model_name": "m"})", "holds no score"},
      {R"({"results": {"a": {"acc,none": 1}}})", "names no model"},
      {R"({"results": {"a": 3}, "model_name": "m"})", "results.a"},
      {R"({"results": {"a": {"acc,none": true}}, "model_name": "m"})", "expected a number"},
      {R"({"results": {"a": {"acc,none": NaN}}, "model_name": "m"})", "results.json"},
      {R"({"results": {"a": {"acc,none": 1e999}}, "model_name": "m"})", "results.json"},
      {R"({"results": {"\u001b[2J": {"acc,none": 1}}, "model_name": "m"})", "control characters"},
      {R"({"results": {"a": {"acc,none": 1}}, "model_name": "\u0007"})", "control characters"},
      {R"({"results": {"a": {"acc,none": 1}}, "model_name": ")" + std::string(5000, 'x') + "\"}",
       "5000 bytes"},
      {deep, "results.json"},
      {std::string("{\"results\": \xff}"), "results.json"},
  };
  for (const auto& [text, message] : cases) {
    Write("results.json", text);
    const Outcome outcome =
        Run({"import", "lm-eval", Path("results.json"), "-o", Path("out.json")});
    EXPECT_EQ(outcome.exit_code, 2) << text.substr(0, 80) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << text.substr(0, 80);
    EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b[2J")));
    EXPECT_FALSE(FileExists(Path("out.json")));
  }
  EXPECT_EQ(Run({"import", "lm-eval", Path("absent.json")}).exit_code, 2);
  // What has no end is left where it passes the limit.
  const Outcome endless = Run({"import", "lm-eval", "/dev/zero"});
  EXPECT_EQ(endless.exit_code, 2);
  EXPECT_THAT(endless.err, HasSubstr("/dev/zero: grew past the limit of 64.0 MiB"));
}

TEST_F(ForeignTest, BadKvpressDirectories) {
  EXPECT_EQ(Run({"import", "kvpress", Path("absent")}).exit_code, 2);
  std::filesystem::create_directories(Path("empty"));
  const Outcome empty = Run({"import", "kvpress", Path("empty")});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("metrics.json"));
  struct Case {
    std::string metrics, config, message;
  };
  const Case cases[] = {
      {"3", kKvpressConfig, "expected an object"},
      {R"({"a": "x"})", kKvpressConfig, "expected a number"},
      {R"({"a": [1]})", kKvpressConfig, "expected a number"},
      {"{}", kKvpressConfig, "holds no score"},
      {R"({"a": 1})", "dataset: x\n", "has no model"},
      {R"({"a": 1})", "no colon here\n", "line 1"},
      {R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}}})", kKvpressConfig,
       "nested too deeply"},
      {R"({"a\u0000b": 1})", kKvpressConfig, "control characters"},
  };
  for (const Case& one : cases) {
    WriteKvpress(one.metrics, one.config);
    const Outcome outcome = Run({"import", "kvpress", Path("kvpress")});
    EXPECT_EQ(outcome.exit_code, 2) << one.metrics;
    EXPECT_THAT(outcome.err, HasSubstr(one.message)) << one.metrics;
  }
}

TEST_F(ForeignTest, BadForeignFiles) {
  RunInto("a.db", {"--limit", "1"});
  const std::string row =
      R"({"program": "p", "model": "m", "task": "t", "method": "full", "metric": "acc",)"
      R"( "score": 1, "source": "s"})";
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "no foreign rows"},
      {R"({"kvgauge_foreign": 2, "rows": []})", "newer kvgauge"},
      {R"({"kvgauge_foreign": 1, "rows": []})", "holds no score"},
      {R"({"kvgauge_foreign": 1, "rows": [3]})", "rows[0]"},
      {R"({"kvgauge_foreign": 1, "rows": [{"score": "x"}]})", "score"},
      {StrCat(R"({"kvgauge_foreign": 1, "rows": [)", row, ", ", row, "]}"), "there twice"},
      {R"({"kvgauge_foreign": 1, "rows": [{"scor": 1}]})", "unknown key"},
  };
  for (const auto& [text, message] : cases) {
    Write("f.json", text);
    const Outcome outcome = Run({"leaderboard", Path("a.db"), "--foreign", Path("f.json")});
    EXPECT_EQ(outcome.exit_code, 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace kvgauge
