// SPDX-License-Identifier: Apache-2.0
#include "src/serve/speculation_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/strings.h"
#include "methods/method.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

TEST(SpeculationFormTest, ShippedFormsNameMethodsAndBudgets) {
  const auto ids = ListSpeculationForms();
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(*ids, (std::vector<std::string>{"magicdec", "magicdec_streaming", "quantspec", "rapid",
                                            "triforce"}));
  for (const std::string& id : *ids) {
    const auto form = FindSpeculationForm(id);
    ASSERT_TRUE(form.ok()) << form.error().message;
    EXPECT_EQ(form->id, id);
    EXPECT_FALSE(form->departures.empty()) << id;
    EXPECT_THAT(form->paper, HasSubstr("arXiv:")) << id;
    const Result<Method> draft =
        LoadMethod(form->draft, KVG_SOURCE_DIR "/configs/methods", form->overrides);
    ASSERT_TRUE(draft.ok()) << id << ": " << draft.error().message;
    EXPECT_EQ(draft->takes_budget, form->budget != "none") << id;
    EXPECT_TRUE(Budget::Parse(form->budget).ok()) << id;
  }
}

TEST(SpeculationFormTest, RefusesWhatIsNoForm) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("form.json");
  const auto refused = [&](const std::string& text, const std::string& why) {
    std::ofstream(path) << text;
    const auto form = ReadSpeculationForm(path);
    ASSERT_FALSE(form.ok()) << text;
    EXPECT_THAT(form.error().message, HasSubstr("form.json: "));
    EXPECT_THAT(form.error().message, HasSubstr(why));
  };
  const std::string begin = R"({"id": "a", "title": "A", "paper": "p", "draft": "snapkv")";
  refused("[]", "must be a JSON object");
  refused(R"({"id": "a"})", "'title' is missing");
  refused(begin + R"(, "gama": 3})", "unknown key 'gama'");
  refused(begin + R"(, "gamma": 0})", "'gamma' is 0; expected a whole number, 1 .. 64");
  refused(begin + R"(, "gamma": "3"})", "expected a whole number");
  refused(begin + R"(, "overrides": "x"})", "expected a list of texts");
  refused(begin + R"(, "budget": ""})", "expected a text");
  refused(begin + R"(, "retrieve": {"chunks": 3}})", "retrieve: unknown key 'chunks' (did you");
  refused(begin + R"(, "retrieve": {"chunk": 0}})", "retrieve: 'chunk' is 0; expected a whole");
  std::ofstream(path) << begin << "}";
  EXPECT_TRUE(ReadSpeculationForm(path).ok());
  EXPECT_THAT(FindSpeculationForm("magicdeck").error().message, HasSubstr("magicdec"));
}

}  // namespace
}  // namespace kvgauge
