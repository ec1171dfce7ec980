// SPDX-License-Identifier: Apache-2.0
// Released files with a record of a wrong shape behind a good one: one error that names the line,
// exit code 2, and nothing recorded. Every field of every family with every wrong value is tried by
// tests/datasets; here the program is.
#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Released {
  std::string task;
  std::string good;    // a record
  bool array = false;  // the file is one JSON array of records
};

// A text model refuses such a task before it reads records.
bool ShowsPictures(const Json& golden) {
  return golden.at("samples").dump().find("[picture 1]") != std::string::npos;
}

// The first record of the first task of each golden of tests/golden/tasks.
std::vector<Released> Families() {
  std::vector<Released> families;
  for (const auto& entry :
       std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/tests/golden/tasks"))) {
    const Result<Json> fixture = ReadJsonFile(entry.path().string());
    EXPECT_TRUE(fixture.ok()) << fixture.error().message;
    for (const Json& golden : fixture->at("tasks")) {
      const Json& files = golden.at("files");
      if (golden.contains("set") || !files.contains("") || ShowsPictures(golden)) {
        continue;
      }
      const Result<Json> first = ParseJson(files.at("")[0].get<std::string>(), "a fixture");
      EXPECT_TRUE(first.ok());
      const bool array = first->is_array();
      families.push_back({golden.at("tasks")[0], (array ? first->at(0) : *first).dump(), array});
      break;
    }
  }
  return families;
}

class WrongRecordsTest : public RunTest {
 protected:
  std::string FileOf(const std::string& task) const {
    const Result<Json> json =
        ReadJsonFile(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", task, ".json"));
    EXPECT_TRUE(json.ok()) << task;
    return json->at("source").at("file");
  }

  Outcome RunOver(const Released& family, const std::string& bad) {
    const std::filesystem::path path = Path(StrCat("data/", FileOf(family.task)));
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        << (family.array ? StrCat("[", family.good, ",\n", bad, "]\n")
                         : StrCat(family.good, "\n", bad, "\n"));
    Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                              R"(", "name": "tiny", "weights": "random:5"}], "data": ")",
                              Path("data"), R"(", "tasks": [")", family.task,
                              R"("], "methods": ["full"], "max_new_tokens": 1})"));
    return Run({"run", Path("mine.json"), "--db", Path("r.db"), "--quiet"});
  }
};

TEST_F(WrongRecordsTest, EndARunBeforeItBegins) {
  const std::vector<Released> families = Families();
  ASSERT_GE(families.size(), 10u);
  for (const Released& family : families) {
    SCOPED_TRACE(family.task);
    Json typeless = *ParseJson(family.good, "a record");
    for (auto& [key, value] : typeless.items()) value = Json{{"unknown", "key"}};
    for (const std::string& bad :
         {std::string("[1]"), std::string("{\"broken\": "), typeless.dump(), std::string("{}")}) {
      const Outcome outcome = RunOver(family, bad);
      EXPECT_EQ(outcome.exit_code, 2) << bad << "\n" << outcome.err;
      // An array that breaks off is noticed at its end.
      EXPECT_THAT(outcome.err, AnyOf(HasSubstr(StrCat(FileOf(family.task), ":2")),
                                     HasSubstr(StrCat(FileOf(family.task), ":3"))))
          << bad;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
      EXPECT_EQ(outcome.out, "");
      EXPECT_FALSE(FileExists(Path("r.db"))) << bad;
    }
  }
}

// What was recorded before stays, and nothing is added.
TEST_F(WrongRecordsTest, LeaveAStoreAsItWas) {
  const std::string line = R"({"q": "1?", "a": "1"})";
  const auto config = [&](const char* file) {
    Write("task.json", StrCat(R"({"name": "sums", "version": 1, "group": "sums",
      "description": "d", "metric": "partial_match", "max_new_tokens": 4, "source": {
      "name": "jsonl", "file": ")",
                              file, R"(", "context": "Sums.\n", "question": "{q}",
      "answers": "a"}})"));
    Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                              R"(", "name": "tiny", "weights": "random:5"}], "data": ")",
                              directory_, R"(", "tasks": ["passkey", ")", Path("task.json"),
                              R"("], "samples": 2, "max_new_tokens": 2, "methods": ["full"]})"));
  };
  Write("good.jsonl", StrCat(line, "\n", R"({"q": "2?", "a": "2"})", "\n"));
  config("good.jsonl");
  RunInto("r.db");
  const std::string digest = Digest("r.db");
  Write("bad.jsonl", StrCat(line, "\n", R"({"q": "2?"})", "\n"));
  config("bad.jsonl");
  const Outcome outcome = Run({"run", Path("mine.json"), "--db", Path("r.db"), "--quiet"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(Path("mine.json")), HasSubstr("'sums'"),
                                 HasSubstr("bad.jsonl:2"), HasSubstr("field 'a'")));
  EXPECT_EQ(Digest("r.db"), digest);
}

}  // namespace
}  // namespace kvgauge
