// SPDX-License-Identifier: Apache-2.0
#include "src/model/method_field.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/strings.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class MethodField : public ::testing::Test {
 protected:
  static Method Named(const std::string& id, const std::string& because) {
    Method method;
    method.id = id;
    method.title = StrCat("Title of ", id);
    method.family = "selection";
    method.experimental = !because.empty();
    method.experimental_because = because;
    return method;
  }

  Result<std::vector<FieldRow>> Read(const std::string& rows) {
    std::ofstream(path_) << R"({"rows": [)" << rows << "]}";
    return ReadField(path_, methods_);
  }

  void ExpectRefused(const std::string& rows, const std::vector<std::string>& words) {
    const Result<std::vector<FieldRow>> read = Read(rows);
    ASSERT_FALSE(read.ok()) << rows;
    EXPECT_THAT(read.error().message, HasSubstr("field.json: rows["));
    for (const std::string& word : words) EXPECT_THAT(read.error().message, HasSubstr(word));
  }

  const ScratchDirectory scratch_;
  const std::string path_ = scratch_.File("field.json");
  std::vector<Method> methods_ = {Named("proven", ""), Named("untried", "no public code")};
};

TEST_F(MethodField, StatesComeFromMethods) {
  const auto rows = Read(
      R"({"name": "Known otherwise", "family": "budget", "here": ["proven"]},)"
      R"({"name": "Half", "family": "budget", "here": ["proven", "untried"]},)"
      R"({"name": "Lacking", "family": "reuse", "paper": "arXiv:1234.56789", "missing": "a tree"},)"
      R"({"name": "Queueing", "family": "system", "policy": "queues"},)"
      R"({"name": "Drafting", "family": "reuse", "speculation": "triforce"},)"
      R"({"name": "Trained", "family": "architecture", "model": "llama"},)"
      R"({"name": "Elsewhere", "family": "system", "outside": "a queue"})");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const std::string section = FieldSection(*rows, methods_);
  EXPECT_THAT(section, HasSubstr("9 methods: 3 work, 2 are experimental, 1 are missing, 1 are "
                                 "outside,\n1 are policies, 1 are forms of speculative decoding."));
  EXPECT_THAT(section, HasSubstr("| selection | Title of proven | works | `proven` | - |"));
  EXPECT_THAT(section,
              HasSubstr("| Title of untried | experimental | `untried`: no public code |"));
  EXPECT_THAT(section, HasSubstr("| budget | Known otherwise | works | `proven` |"));
  EXPECT_THAT(section, HasSubstr("| budget | Half | experimental | `proven`, `untried` |"));
  EXPECT_THAT(section, HasSubstr("| reuse | Lacking | missing | a tree | [1234.56789](https://"));
  EXPECT_THAT(section, HasSubstr("| Queueing | policy | `bench capacity --policies queues` | - |"));
  EXPECT_THAT(section,
              HasSubstr("| Drafting | speculation | `bench speculate --forms triforce` | - |"));
  EXPECT_THAT(section, HasSubstr("| Trained | works | model family `llama` | - |"));
  EXPECT_THAT(section, HasSubstr("| system | Elsewhere | outside | a queue | - |"));
  EXPECT_LT(section.find("Title of proven"), section.find("Half"));
  EXPECT_LT(section.find("Half"), section.find("Known otherwise"));
  EXPECT_LT(section.find("Lacking"), section.find("Elsewhere"));
}

TEST_F(MethodField, RefusesWhatIsNotSo) {
  ExpectRefused(R"({"name": "A", "family": "budget", "here": ["provn"]})", {"provn", "proven"});
  ExpectRefused(R"({"name": "A", "family": "budget", "here": []})", {"list of ids"});
  ExpectRefused(R"({"name": "A", "family": "budget"})", {"says 0 of"});
  ExpectRefused(R"({"name": "A", "family": "budget", "missing": "x", "outside": "y"})",
                {"says 2 of"});
  ExpectRefused(R"({"name": "A", "family": "budget", "missing": ""})", {"\"missing\" must be"});
  ExpectRefused(R"({"name": "A", "family": "budgets", "missing": "x"})", {"budgets", "budget"});
  ExpectRefused(R"({"name": "A", "family": "budget", "mising": "x"})", {"mising", "missing"});
  ExpectRefused(R"({"name": "A", "family": "reuse", "speculation": "trifrce"})",
                {"\"speculation\"", "trifrce", "triforce"});
  ExpectRefused(R"({"name": "A", "family": "architecture", "model": "lama"})",
                {"\"model\"", "lama", "llama"});
  ExpectRefused(R"({"family": "budget", "missing": "x"})", {"\"name\" is missing"});
  ExpectRefused(R"(7)", {"must be a JSON object"});
  // A method that came since, and the same name in another spelling.
  ExpectRefused(R"({"name": "Pro-Ven", "family": "budget", "missing": "x"})",
                {"the method 'proven'"});
  ExpectRefused(R"({"name": "KV-A", "family": "budget", "missing": "x"},)"
                R"({"name": "kva", "family": "budget", "missing": "x"})",
                {"rows[1]", "rows[0] already"});
}

TEST_F(MethodField, RefusesOtherFiles) {
  for (const char* text : {"[]", "{}", R"({"rows": 1})", R"({"rows": [], "more": 1})"}) {
    std::ofstream(path_) << text;
    const auto read = ReadField(path_, methods_);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.error().message, HasSubstr("must be {\"rows\": [...]}"));
  }
  EXPECT_FALSE(ReadField("/nowhere/field.json", methods_).ok());
}

TEST_F(MethodField, KnowsNamesThatNoFileHas) {
  const auto rows =
      Read(R"({"name": "W-KVQuant", "family": "quantization", "paper": "arXiv:2402.12065",)"
           R"( "outside": "learned"},)"
           R"({"name": "ZeroQuant, its cache", "family": "quantization", "here": ["proven"]},)"
           R"({"name": "YOCO", "family": "architecture", "model": "yoco"})");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  methods_[1].paper = "arXiv:2402.02750";
  const auto known = [&](const std::string& name) { return KnownOtherwise(name, *rows, methods_); };
  EXPECT_EQ(known("wkvquant"), "\n  W-KVQuant: outside: learned");
  EXPECT_EQ(known("2402.12065"), known("wkvquant"));
  EXPECT_EQ(known("ZeroQuant"), "\n  ZeroQuant, its cache: here as proven");
  EXPECT_EQ(known("yoco"), "\n  YOCO: the model family yoco");
  EXPECT_EQ(known("title-of"), "\n  proven: Title of proven\n  untried: Title of untried");
  EXPECT_EQ(known("arXiv:2402.02750"), "\n  untried: Title of untried");
  EXPECT_EQ(known("q9"), "");
  EXPECT_EQ(known("snapvk"), "");
  for (int i = 0; i < 7; ++i) methods_.push_back(Named(StrCat("more_", i), ""));
  EXPECT_THAT(known("more"), HasSubstr("and 1 more in docs/methods.md"));
}

// What is shipped: every experimental method says why, and no reason outlives its method.
TEST_F(MethodField, ShippedMethodsSayWhy) {
  const std::string home = StrCat(KVG_SOURCE_DIR, "/configs");
  std::vector<Method> shipped;
  const auto ids = ListMethods(StrCat(home, "/methods"));
  ASSERT_TRUE(ids.ok());
  for (const std::string& id : *ids) {
    const auto method = LoadMethod(id, StrCat(home, "/methods"), {});
    ASSERT_TRUE(method.ok()) << method.error().message;
    EXPECT_EQ(method->experimental, !method->experimental_because.empty())
        << id << ": \"experimental\" must be a text that says why";
    shipped.push_back(*method);
  }
  const auto rows = ReadField(StrCat(home, "/field.json"), shipped);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const std::string section = FieldSection(*rows, shipped);
  for (const Method& method : shipped) {
    const std::string state = method.experimental ? "experimental" : "works";
    EXPECT_THAT(section, HasSubstr(StrCat(" | ", state, " | `", method.id, "`")));
  }
}

}  // namespace
}  // namespace kvgauge
