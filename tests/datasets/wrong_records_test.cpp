// SPDX-License-Identifier: Apache-2.0
// Released files with a record of every wrong shape: one error each, with file and line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/formats.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a field can be instead; null stands for a field that is not there.
const std::vector<Json>& WrongValues() {
  static const std::vector<Json> values = {nullptr,
                                           "",
                                           " ",
                                           7,
                                           -1.5,
                                           true,
                                           Json::array(),
                                           Json::object(),
                                           Json::array({nullptr}),
                                           Json::array({Json::object()}),
                                           Json::array({""}),
                                           Json::array({Json::array({1, 2, 3})}),
                                           {{"unknown", "key"}}};
  return values;
}

class WrongRecords : public Formats {
 protected:
  // Tasks of one loader whose records and parameters have the same names are tried once.
  bool NewShape(const std::string& name, const Json& record) {
    const Result<Task> task = ReadTask(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", name, ".json"));
    EXPECT_TRUE(task.ok()) << name;
    std::string shape = task->group;
    for (const auto& [key, value] : record.items()) shape.append(" ").append(key);
    for (const auto& [key, value] : task->json->at("source").items()) {
      shape.append(" ").append(key);
    }
    return shapes_.insert(shape).second;
  }

  // The pictures and subtitles that records name.
  void WriteOthers(const Json& golden) const {
    for (const auto& [file, lines] : golden.at("files").items()) {
      if (file.empty()) continue;
      std::filesystem::create_directories((directory_ / file).parent_path());
      std::ofstream out(directory_ / file, std::ios::binary);
      for (const Json& line : lines) out << line.get<std::string>() << "\n";
    }
  }

  // Every field of a good record, replaced by every wrong value, behind the good record itself.
  void TryAll(const Json& golden) {
    const std::string name = golden.at("tasks")[0];
    const Json& lines = golden.at("files").at("");
    const Result<Task> read = ReadTask(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", name, ".json"));
    ASSERT_TRUE(read.ok()) << name;
    // A whole file of JSON, a table and Parquet have no lines (pictures_test.cpp tries them).
    const std::string container = read->json->at("source").value("container", "");
    const bool cells = container == "tsv" || container == "csv" || container == "parquet";
    const bool whole =
        read->source == "milebench" || read->json->at("source").value("kind", "") == "labels";
    if (whole || cells) return;
    WriteOthers(golden);
    Result<Json> first = ParseJson(lines[0].get<std::string>(), name);
    ASSERT_TRUE(first.ok()) << first.error().message;
    const bool array = first->is_array();
    Json good = array ? first->at(0) : *first;
    if (!NewShape(name, good)) return;
    int refused = 0;
    for (const auto& [key, held] : good.items()) {
      for (const Json& value : WrongValues()) {
        Json bad = good;
        if (value.is_null()) {
          bad.erase(key);
        } else {
          bad[key] = value;
        }
        for (const char* id : {"id", "_id", "task_id", "set_unique_id", "question_id"}) {
          if (bad.contains(id) && key != id) bad[id] = "another";
        }
        const std::string content = array ? StrCat("[", good.dump(), ",\n", bad.dump(), "]")
                                          : StrCat(good.dump(), "\n", bad.dump(), "\n");
        const Result<std::vector<Sample>> samples = Open(name, content);
        if (samples.ok()) {
          const std::string source = task_.json->at("source").dump();
          const bool missed = value.is_null() && source.find("{" + key + "}") != std::string::npos;
          EXPECT_FALSE(missed) << name << ": loads without " << key;
          continue;
        }
        ++refused;
        EXPECT_EQ(samples.error().code, ErrorCode::kBadInput);
        EXPECT_THAT(
            samples.error().message,
            AllOf(HasSubstr(StrCat(task_.source_params.Text("file"), ":2")), HasSubstr("field ")))
            << name << ": " << key << " = " << value.dump();
        EXPECT_EQ(samples.error().message.find('\n'), std::string::npos);
      }
    }
    EXPECT_GE(refused, 5) << name;
  }

  std::set<std::string> shapes_;
};

TEST_F(WrongRecords, EveryFieldOfEveryFamily) {
  for (const auto& entry :
       std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/tests/golden/tasks"))) {
    const Result<Json> fixture = ReadJsonFile(entry.path().string());
    ASSERT_TRUE(fixture.ok()) << fixture.error().message;
    for (const Json& golden : fixture->at("tasks")) {
      SCOPED_TRACE(golden.at("tasks")[0].get<std::string>());
      TryAll(golden);
    }
  }
}

// What no record is.
TEST_F(WrongRecords, LinesThatAreNoRecords) {
  const std::string good = R"({"content": "c", "answer": "a"})";
  for (const auto& [line, want] :
       {std::pair<std::string, std::string>{"[1]", "expected an object"},
        {"\"text\"", "expected an object"},
        {"{\"content\": \"c\", ", "not valid JSON"},
        {"{\"content\": \"\xff\"}", "not valid UTF-8"},
        {"nonsense", "not valid JSON"},
        {R"({"content": "c", "answer": "a"} trailing)", "not valid JSON"}}) {
    const auto samples = Open("bamboo/altqa_4k", StrCat(good, "\n", line, "\n", good, "\n"));
    ASSERT_FALSE(samples.ok()) << line;
    EXPECT_EQ(samples.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(samples.error().message, AllOf(HasSubstr("altqa_4k.jsonl:2"), HasSubstr(want)));
  }
}

// A file of which no record is asked for says so.
TEST_F(WrongRecords, NoRecordThatCounts) {
  const auto samples = Open(
      "leval/financial_qa",
      R"({"input": "d", "instructions": ["q"], "outputs": ["a"], "source": "s", "evaluation": "LLM"})");
  ASSERT_FALSE(samples.ok());
  EXPECT_THAT(samples.error().message,
              AllOf(HasSubstr("financial_qa.jsonl:1"), HasSubstr("source.only")));
}

}  // namespace
}  // namespace kvgauge
