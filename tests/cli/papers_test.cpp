// SPDX-License-Identifier: Apache-2.0
// Published tables: every pack plans, and ours stand beside theirs.
#include <set>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PapersTest : public RunTest {
 protected:
  void WriteBelow(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    Write(name, content);
  }

  // Made-up records in the published formats, for every file that a task of a pack reads.
  void WriteData(const std::set<std::string>& tasks) const {
    std::string words;
    for (int i = 0; i < 600; ++i) words += StrCat("word", i, i % 12 == 11 ? ".\\n" : " ");
    for (const std::string& task : tasks) {
      std::string answer = "under the mat";
      if (task.ends_with("retrieval_en")) answer = "Paragraph 3";
      if (task.ends_with("retrieval_zh")) answer = "\u6bb5\u843d3";
      if (task.ends_with("passage_count")) answer = "3";
      if (task.ends_with("trec") || task.ends_with("lsht")) answer = "A";
      std::string lines;
      for (int i = 0; i < 3; ++i) {
        lines +=
            StrCat(R"({"input": "The largest number of all?", "context": ")", words,
                   R"(", "answers": [")", answer, R"("], "length": 600, "dataset": "x",)",
                   R"( "language": "en", "all_classes": ["A", "B"], "_id": ")", i, R"(", "id": ")",
                   i, R"(", "answer": ["7"], "options": ["7", "8", "9", "10"])", "}\n");
      }
      WriteBelow(StrCat("data/", task, ".jsonl"), lines);
    }
    std::string text;
    for (int i = 0; i < 4000; ++i) text += StrCat("A line ", i, " of a book.\n");
    WriteBelow("data/pg19/10146.txt", text);
    WriteBelow("data/wikitext2/wiki.test.raw", text);
    WriteBelow("data/gsm8k/test.jsonl",
               "{\"question\": \"How many?\", \"answer\": \"2 + 2 = 4\\n#### 4\"}\n");
    std::string squad = R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [)";
    std::string hotpot = "[";
    for (int i = 0; i < 40; ++i) {
      squad += StrCat(i == 0 ? "" : ", ", R"({"context": "Paragraph )", i,
                      R"( says that it is there.", "qas": [{"id": "q)", i,
                      R"(", "question": "Where is )", i,
                      R"(?", "answers": [{"text": "there", "answer_start": 0}],)",
                      R"( "is_impossible": false}]})");
      hotpot += StrCat(i == 0 ? "" : ", ", R"({"_id": "h)", i, R"(", "question": "Where is )", i,
                       R"(?", "answer": "there", "context": [["Title )", i,
                       R"(", ["It is there.", " And here."]]]})");
    }
    WriteBelow("data/ruler/dev-v2.0.json", squad + "]}]}");
    WriteBelow("data/ruler/hotpot_dev_distractor_v1.json", hotpot + "]");
  }

  // A paper of the tasks that mine.json runs.
  std::string WritePack(const std::string& rows, const std::string& more = "") const {
    return Write("made.json", StrCat(R"({"id": "made", "title": "Made up", "paper": "arXiv:0",
      "tables": [{"model": "Tiny", "shape": "bench-s",
      "source": {"table": "Table 9", "page": "4", "read": "nowhere"},
      "protocol": {"question": "seen", "prompt": "chat", "details": "none"}, )",
                                     more, R"("tasks": [{"task": "passkey", "samples": 8,
      "source": {"lengths": "320"}, "max_new_tokens": 6}],
      "rows": [)",
                                     rows, "]}]}"));
  }
};

TEST_F(PapersTest, EveryPackPlans) {
  const Outcome list = Run({"reproduce", "--json"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  const Json papers = Json::parse(list.out);
  ASSERT_GE(papers.size(), 25u);
  std::set<std::string> tasks;
  for (const std::string group : {"longbench", "infinitebench"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", group))) {
      tasks.insert(StrCat(group, "/", entry.path().stem().string()));
    }
  }
  WriteData(tasks);
  for (const Json& paper : papers) {
    const std::string id = paper["id"];
    for (size_t i = 0; i < paper["tables"].size(); ++i) {
      const Outcome plan = Run({"reproduce", id, "--table", StrCat(i + 1), "--weights", "random:1",
                                "--dry-run", "--data", Path("data"), "--limit", "1", "--json"});
      ASSERT_EQ(plan.exit_code, 0) << id << " " << i + 1 << ": " << plan.err;
      const Json json = Json::parse(plan.out);
      // Every row of the table can run on the paper's model.
      EXPECT_EQ(json["refused"], Json::array()) << id << " " << i + 1;
      EXPECT_GT(json["cells"], 0) << id;
      for (const Json& group : json["groups"]) EXPECT_EQ(group["unfit"], Json::array()) << id;
    }
  }
}

TEST_F(PapersTest, PacksSayWhereTheirNumbersAreFrom) {
  const Json papers = Json::parse(Run({"reproduce", "--json"}).out);
  for (const Json& paper : papers) {
    EXPECT_THAT(paper["paper"].get<std::string>(), HasSubstr("arXiv:")) << paper["id"];
    for (const Json& table : paper["tables"]) {
      EXPECT_FALSE(table["source"]["table"].get<std::string>().empty()) << paper["id"];
      EXPECT_FALSE(table["source"]["read"].get<std::string>().empty()) << paper["id"];
    }
  }
}

TEST_F(PapersTest, OursBesideTheirs) {
  RunInto("a.db");
  WritePack(R"({"label": "All", "method": "full", "scores": [90.0]},
               {"label": "S", "method": "streaming_llm", "budget": "25%", "scores": [0.5]},
               {"label": "N", "method": "h2o", "budget": "75%", "scores": [1]})");
  const Outcome table = Run({"reproduce", Path("made.json"), "--from", Path("a.db")});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("Table 9, page 4"));
  EXPECT_THAT(table.out, HasSubstr("differs"));    // 0 of 8 against 90
  EXPECT_THAT(table.out, HasSubstr("undecided"));  // 0 of 8 against 0.5
  EXPECT_THAT(table.out, HasSubstr("not run"));
  const Json json =
      Json::parse(Run({"reproduce", Path("made.json"), "--from", Path("a.db"), "--json"}).out);
  ASSERT_EQ(json["cells"].size(), 3u);
  EXPECT_EQ(json["cells"][0]["score"]["agreement"], "differs");
  EXPECT_EQ(json["cells"][0]["samples"], 8);
  EXPECT_FALSE(json["cells"][0].contains("change"));
  EXPECT_EQ(json["cells"][1]["change"]["theirs"], -89.5);
  EXPECT_EQ(json["cells"][1]["change"]["agreement"], "differs");
  EXPECT_FALSE(json["cells"][2]["score"].contains("ours"));
}

TEST_F(PapersTest, RunsAndGoesOn) {
  WritePack(R"({"label": "All", "method": "full", "scores": [90.0]},
               {"label": "S", "method": "streaming_llm", "budget": "25%", "scores": [0.5]})");
  const std::vector<std::string> command = {
      "reproduce", Path("made.json"), "--model", Path("config.json"), "--weights", "random:5",
      "--db",      Path("r.db"),      "--quiet"};
  const Outcome first = Run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("0 recorded"));
  EXPECT_THAT(first.out, HasSubstr("no verdicts: the weights are random"));
  EXPECT_THAT(first.out, Not(HasSubstr("differs")));
  const std::string digest = Digest("r.db");
  const Outcome again = Run(command);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("16 recorded"));
  EXPECT_EQ(Digest("r.db"), digest);
}

TEST_F(PapersTest, AnotherModelGetsNoVerdict) {
  WritePack(R"({"label": "All", "method": "full", "scores": [90.0]})");
  const Outcome outcome = Run({"reproduce", Path("made.json"), "--model", Path("config.json"),
                               "--weights", "random:5", "--dry-run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Outcome missing = Run({"reproduce", Path("made.json")});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--model"));
}

TEST_F(PapersTest, WrongPacksAreRefused) {
  const std::string row = R"({"label": "All", "method": "full", "scores": [90.0]})";
  struct Case {
    std::string rows, more, message;
  };
  const Case cases[] = {
      {R"({"label": "All", "method": "full", "scores": [1, 2]})", "", "2 numbers, expected 1"},
      {R"({"label": "All", "method": "full", "scores": ["x"]})", "", "rows[0].scores"},
      {R"({"label": "All", "method": "ful", "scores": [1]})", "", "full"},
      {R"({"method": "full", "scores": [1]})", "", "label"},
      {R"({"label": "A", "method": "full", "score": [1]})", "", "scores"},
      {R"({"label": "A", "method": "snapkv", "scores": [1]})", "", "budget"},
      {"", "", "rows"},
      {row, R"("decimals": 99, )", "decimals"},
      {row, R"("columns": [{"name": "x", "mean": ["qasper"]}], )", "mean"},
      {row, R"("colums": [], )", "columns"},
  };
  for (const Case& one : cases) {
    WritePack(one.rows, one.more);
    const Outcome outcome = Run({"reproduce", Path("made.json"), "--weights", "random:1", "--model",
                                 Path("config.json"), "--dry-run"});
    EXPECT_EQ(outcome.exit_code, 2) << one.message;
    EXPECT_THAT(outcome.err, HasSubstr(one.message));
    EXPECT_THAT(outcome.err, HasSubstr("made.json"));
  }
  const Outcome unknown = Run({"reproduce", "snapkw"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("snapkv"));
  EXPECT_EQ(Run({"reproduce", "snapkv", "--table", "9", "--weights", "random:1"}).exit_code, 2);
}

TEST_F(PapersTest, TokenizerIsForRandomWeightsOnly) {
  Write("mine.json", R"({"models": [{"path": ")" + std::string(KVG_SOURCE_DIR) +
                         R"(/models/ref-gqa", "tokenizer": "models/ref-mha"}],
      "tasks": ["passkey"], "methods": ["full"]})");
  const Outcome outcome = Run({"plan", Path("mine.json")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("tokenizer"));
}

}  // namespace
}  // namespace kvgauge
