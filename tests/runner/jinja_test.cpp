// SPDX-License-Identifier: Apache-2.0
// The template engine against jinja2's own results (tests/golden/templates/jinja.json), its limits,
// and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/jinja/template.h"

namespace kvgauge::jinja {
namespace {

using ::testing::HasSubstr;

struct Rendered {
  bool ok = false;
  std::string text;  // what was rendered, or the message
};

Rendered Render(const std::string& source, const Inputs& inputs = {}, const Limits& limits = {}) {
  const Result<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return {false, parsed.error().message};
  const Result<std::string> text = parsed->Render(inputs, limits);
  return text.ok() ? Rendered{true, *text} : Rendered{false, text.error().message};
}

std::string Refusal(const std::string& source, const Limits& limits = {}) {
  const Rendered rendered = Render(source, {}, limits);
  EXPECT_FALSE(rendered.ok) << source << " rendered " << rendered.text;
  return rendered.text;
}

TEST(Jinja, RendersAsJinja2) {
  std::ifstream file(std::string(KVG_TEST_DATA) + "/golden/templates/jinja.json");
  // Dicts are printed in their order: this one must not be sorted.
  const auto golden = nlohmann::ordered_json::parse(file);
  Inputs inputs;
  for (const auto& [name, value] : golden["variables"].items()) {
    inputs.values.emplace_back(name, value.dump());
  }
  ASSERT_GE(golden["cases"].size(), 700u);
  for (const auto& item : golden["cases"]) {
    const std::string source = item["template"];
    SCOPED_TRACE(source);
    const Rendered rendered = Render(source, inputs);
    if (item.contains("rendered")) {
      EXPECT_TRUE(rendered.ok) << rendered.text;
      EXPECT_EQ(rendered.text, item["rendered"].get<std::string>());
    } else {
      EXPECT_FALSE(rendered.ok) << rendered.text;
      // jinja2's own messages; those of Python are worded as they are.
      if (!item["error"].is_null()) {
        EXPECT_THAT(rendered.text, HasSubstr(item["error"].get<std::string>()));
      }
    }
  }
}

TEST(Jinja, ErrorsNameTheLineAndWhatStandsThere) {
  EXPECT_THAT(Refusal("a\n\n{{ 'x' | nofilter }}"),
              HasSubstr("line 3: No filter named 'nofilter'"));
  EXPECT_THAT(Refusal("a\n{{ missing.x }}"), HasSubstr("line 2: 'missing' is undefined"));
  EXPECT_THAT(Refusal("{%- if true %}\n{{ 1 + }}\n{% endif %}"), HasSubstr("line 2: unexpected"));
  EXPECT_THAT(Refusal("{% if true %}\nx"), HasSubstr("endif of line 1"));
  EXPECT_THAT(Refusal("a\n{% frobnicate %}"), HasSubstr("line 2: unknown tag 'frobnicate'"));
  EXPECT_THAT(Refusal("\n{% macro f() %}\n{{ raise_exception('Roles must alternate') }}\n"
                      "{% endmacro %}{{ f() }}"),
              HasSubstr("line 3: the template refuses: Roles must alternate"));
  EXPECT_THAT(Refusal("{{ 'a\xff' }}"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(Refusal("{{ '%é' % 1 }}"), HasSubstr("unsupported format character 'é'"));
}

TEST(Jinja, RefusesFilesAndWhatLiesBelow) {
  for (const std::string tag :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
        "{% extends 'x' %}", "{% block x %}{% endblock %}"}) {
    EXPECT_THAT(Refusal("\n" + tag), HasSubstr("line 2: ")) << tag;
    EXPECT_THAT(Refusal("\n" + tag), HasSubstr("joins templates from files")) << tag;
  }
  for (const std::string trick :
       {"{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ '' | attr('__class__') }}",
        "{{ [] | map(attribute='__class__') | list }}{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}{{ {}.__len__ }}", "{{ raise_exception.__globals__ }}",
        "{{ namespace().__dict__ }}", "{% if ''.__class__ is defined %}x{% endif %}"}) {
    const Rendered rendered = Render("\n" + trick);
    EXPECT_FALSE(rendered.ok) << trick << rendered.text;
    EXPECT_THAT(rendered.text, HasSubstr("line 2: ")) << trick;
  }
  EXPECT_THAT(Refusal("{{ ''.__class__ }}"), HasSubstr("'__class__'"));
  // Lists and dicts stay as they are.
  EXPECT_THAT(Refusal("{% set l = [] %}{{ l.append(1) }}"), HasSubstr("unsafe"));
}

TEST(Jinja, NamesWhatItDoesNotSupport) {
  EXPECT_THAT(Refusal("{{ 'a' | urlize }}"), HasSubstr("'urlize' is not supported"));
  EXPECT_THAT(Refusal("{{ 'a'.encode() }}"), HasSubstr("'encode' of a str is not supported"));
  EXPECT_THAT(Refusal("{{ self }}"), HasSubstr("'self' is not supported"));
  EXPECT_THAT(Refusal("{% for x in [1] recursive %}{% endfor %}"), HasSubstr("recursive"));
  EXPECT_THAT(Refusal("{% autoescape true %}{% endautoescape %}"), HasSubstr("autoescape"));
  EXPECT_THAT(Refusal("{{ 10 ** 30 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(Refusal("{{ raise_exception }}"), HasSubstr("address in memory"));
  EXPECT_THAT(Refusal("{{ strftime_now('%Q') }}"), HasSubstr("%Q"));
}

TEST(Jinja, StopsWhatHasNoEnd) {
  EXPECT_THAT(Refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{% for x in range(10 ** 9) %}x{% endfor %}"), HasSubstr("Range too big"));
  EXPECT_THAT(Refusal("{{ 'x' * 10 ** 12 }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ [1] * 10 ** 12 }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ 'x' | center(10 ** 12) }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ '%1000000000d' % 1 }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ '{:1000000000}'.format(1) }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ 'a' | indent(10 ** 10, true) }}"), HasSubstr("(limit)"));
  const std::string doubling =
      "{% set n = namespace(x='0123456789') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}"
      "{% endfor %}{{ n.x | length }}";
  constexpr Limits kSmall = {.memory_bytes = int64_t{1} << 22};
  EXPECT_THAT(Refusal(doubling, kSmall), HasSubstr("of memory"));
  const std::string lists =
      "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}";
  EXPECT_THAT(Refusal(lists, kSmall), HasSubstr("of memory"));
  const std::string loops =
      "{% for a in range(10000) %}{% for b in range(10000) %}"
      "{% set c = a + b %}{% endfor %}{% endfor %}";
  EXPECT_THAT(Refusal(loops, {.steps = 100'000}), HasSubstr("more than 100,000 steps"));
  EXPECT_THAT(
      Refusal("{% for a in range(1000) %}{{ 'x' * 100 }}{% endfor %}", {.output_bytes = 10'000}),
      HasSubstr("writes more than"));
  const std::string nested =
      "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}";
  EXPECT_THAT(Refusal(nested), HasSubstr("nested more than"));
}

// Looking at a text leaves none behind, but it takes time all the same.
TEST(Jinja, LookingAtTextsCounts) {
  const std::string texts =
      "{% set a = 'a' * 64000 %}{% set b = 'a' * 63999 ~ 'b' %}{% set blanks = ' ' * 64000 %}";
  for (const std::string look :
       {"a == b", "a < b", "'b' in a", "a.find('b')", "a.rfind('b')", "a.count('b')",
        "b.rfind('b' ~ a[:9])", "blanks.isspace()", "a.startswith(b)", "blanks | trim",
        "blanks.strip()", "{'k': 1}[a] is defined", "b is lower", "[blanks] | map('trim') | first",
        "a.rpartition('b') | length", "a.split('b') | length", "a.rsplit('b') | length"}) {
    const std::string loop =
        StrCat(texts, "{% for i in range(200) %}{% if ", look, " %}{% endif %}{% endfor %}");
    EXPECT_THAT(Refusal(loop, {.steps = 100'000}), HasSubstr("more than 100,000 steps")) << look;
  }
  // A search is as long as the text, whatever is looked for.
  const std::string halves = "{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 ~ 'b' %}";
  EXPECT_EQ(Render(halves + "{{ b in a }} {{ a.find(b) }} {{ a.count(b) }}").text, "False -1 0");
  EXPECT_EQ(Render(halves + "{{ a.replace(b, '') | length }}").text, "2000000");
  EXPECT_THAT(Refusal(halves + "{{ a.rfind(b) }}"), HasSubstr("50,000,000 steps"));
  EXPECT_EQ(Render("{{ 'abcabc'.rfind('bc') }} {{ 'abc'.rfind('') }} {{ ''.rfind('a') }} "
                   "{{ 'aab'.find('') }} {{ 'é-é'.rfind('é') }} {{ 'aaa'.rsplit('aa') }}")
                .text,
            "4 3 -1 0 2 ['a', '']");
}

// Templates for content parts go through plain texts sign by sign: a hundred thousand signs must
// not cost a hundred thousand times what one costs.
TEST(Jinja, ALoopOverATextRunsOnceForEachSign) {
  std::string text;
  while (text.size() < 100'000) text += "lorem ipsum dolor é ";
  const Inputs inputs = {.messages = {{"user", text}}};
  for (const std::string loop :
       {"{% for part in messages[0]['content'] %}{% if part['type'] == 'text' %}"
        "{{ part['text'] }}{% elif part['type'] == 'image' %}<image>{% endif %}{% endfor %}",
        "{% for part in messages[0]['content'] | selectattr('type', 'equalto', 'text') %}"
        "{{ part['text'] }}{% endfor %}"}) {
    const Result<Template> parsed = Template::Parse(loop);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const Result<std::string> rendered = parsed->Render(inputs, {.steps = 300'000});
    ASSERT_TRUE(rendered.ok()) << rendered.error().message;
    EXPECT_EQ(*rendered, "");
  }
}

TEST(Jinja, RefusesTextsNestedTooDeeply) {
  const auto repeated = [](const std::string& piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
  };
  EXPECT_THAT(Refusal("{{ " + repeated("(", 9999) + "1" + repeated(")", 9999) + " }}"),
              HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ " + repeated("not ", 9999) + "1 }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ 1" + repeated(" + 1", 9999) + " }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ 'a'" + repeated(" | upper", 9999) + " }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal("{{ x" + repeated(".a", 9999) + " }}"), HasSubstr("(limit)"));
  EXPECT_THAT(Refusal(repeated("{% if true %}", 9999) + repeated("{% endif %}", 9999)),
              HasSubstr("(limit)"));
}

// What holds itself is dropped all the same (the leak checker of the asan build watches).
TEST(Jinja, DropsWhatHoldsItself) {
  EXPECT_TRUE(Render("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}").ok);
  EXPECT_TRUE(Render("{% for x in [1] %}{% macro f() %}{{ f }}{% endmacro %}{% endfor %}").ok);
  EXPECT_TRUE(Render("{% for x in [1] %}{{ loop.changed(loop) }}{% endfor %}").ok);
  EXPECT_THAT(Refusal("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), HasSubstr("(limit)"));
}

TEST(Jinja, ThreadsShareATemplate) {
  const Result<Template> shared = Template::Parse(
      "{% for m in messages %}{{ ['a', m.content | trim, 'b'] | join('-') ~ '!' }}{% endfor %}");
  ASSERT_TRUE(shared.ok());
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        texts[i] = *shared->Render({.messages = {{"user", " x "}, {"assistant", "y"}}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "a-x-b!a-y-b!");
}

TEST(Jinja, TheClockStandsStill) {
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y, %A') }}").text, "26 Jul 2024, Friday");
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y') }}", {.date = "2030-01-31"}).text, "31 Jan 2030");
}

TEST(Jinja, TellsWhichVariablesAreRead) {
  const Result<Template> parsed =
      Template::Parse("{% if enable_thinking %}{% set date_string = 1 %}{% endif %}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->Reads("enable_thinking"));
  EXPECT_FALSE(parsed->Reads("date_string"));
  EXPECT_FALSE(parsed->Reads("thinking"));
}

// Published templates are not ours to keep; they are read where they lie beside the checkout.
TEST(Jinja, ReadsEveryPublishedTemplate) {
  const std::string path = std::string(KVG_TEST_DATA) + "/../../shared/templates/templates.json";
  if (!FileExists(path)) GTEST_SKIP() << "no " << path << ": published templates are not tried";
  const Result<Json> templates = ReadJsonFile(path);
  ASSERT_TRUE(templates.ok()) << templates.error().message;
  for (const Json& item : *templates) {
    const Result<Template> parsed = Template::Parse(item["template"].get<std::string>());
    EXPECT_TRUE(parsed.ok()) << item["name"] << ": " << parsed.error().message;
  }
}

}  // namespace
}  // namespace kvgauge::jinja
