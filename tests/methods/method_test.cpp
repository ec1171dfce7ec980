// SPDX-License-Identifier: Apache-2.0
// Method files: what they say, what is refused, and why.
#include "methods/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kShipped = StrCat(KVG_SOURCE_DIR, "/configs/methods");

// A file with these stages; the rest is filled in.
std::string File(const std::string& stages, const std::string& more = "") {
  return StrCat(R"({"id": "mine", "title": "Mine", "family": "selection", )", more,
                R"("stages": {)", stages, "}}");
}
Result<Method> Parse(const std::string& text) {
  return ParseMethod(*ParseJson(text, "test"), "mine.json");
}
std::string ErrorOf(const std::string& text) {
  const Result<Method> method = Parse(text);
  return method.ok() ? "" : method.error().message;
}

// A stage is found by its kind and its id: methods/score/knorm.cpp.
TEST(Registry, StagesLieInTheFolderOfTheirKind) {
  std::set<std::string> files, homes;
  for (const StageSpec* spec : AllStages()) {
    homes.insert(StrCat(NameOf(spec->kind), "/", spec->id));
  }
  const std::string home = StrCat(KVG_SOURCE_DIR, "/methods");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(home)) {
    const std::filesystem::path path = entry.path();
    const std::string folder = path.parent_path().filename().string();
    if (path.extension() != ".cpp" || folder == "plugin") continue;
    if (path.string().starts_with(home + "/src/")) continue;
    files.insert(StrCat(folder, "/", path.stem().string()));
  }
  EXPECT_GE(homes.size(), 7u);
  EXPECT_EQ(homes, files);
}

TEST(Registry, IsSortedAndEveryStageMakesItself) {
  std::vector<std::pair<StageKind, std::string>> keys;
  for (const StageSpec* spec : AllStages()) {
    keys.emplace_back(spec->kind, spec->id);
    EXPECT_FALSE(spec->summary.empty()) << spec->id;
    EXPECT_GE(spec->version, 1) << spec->id;
    const Result<Params> params = Params::Parse(spec->params, Json(), spec->id);
    ASSERT_TRUE(params.ok()) << params.error().message;
    EXPECT_NE(spec->make(*params), nullptr) << spec->id;
    for (const ParamSpec& param : spec->params) EXPECT_FALSE(param.help.empty()) << param.name;
  }
  EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
}

TEST(Registry, UnknownIdNamesTheNearOnes) {
  const auto found = FindStage(StageKind::kScore, "snapvk");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("unknown score stage 'snapvk'"), HasSubstr("did you mean 'snapkv'"),
                    HasSubstr("--plugin FILE adds others")));
}

TEST(RegistryDeathTest, TwoOfOneName) {
  EXPECT_DEATH(StageRegistrar(**FindStage(StageKind::kScore, "snapkv")),
               "registered twice: score.snapkv");
}

TEST(MethodFiles, EveryShippedOneLoads) {
  const Result<std::vector<std::string>> ids = ListMethods(kShipped);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_FALSE(ids->empty());
  EXPECT_TRUE(std::is_sorted(ids->begin(), ids->end()));
  std::set<std::string> keys;
  for (const std::string& id : *ids) {
    const Result<Method> method = LoadMethod(id, kShipped, {});
    ASSERT_TRUE(method.ok()) << method.error().message;
    EXPECT_EQ(method->id, id);
    EXPECT_TRUE(keys.insert(CanonicalJson(method->ToJson())).second) << id;
  }
}

TEST(MethodFiles, DefaultsAreFilledIn) {
  const Result<Method> method =
      Parse(File(R"("score": {"id": "random"}, "reduce": {"id": "top_k"})"));
  ASSERT_TRUE(method.ok()) << method.error().message;
  EXPECT_TRUE(method->takes_budget);
  EXPECT_EQ(method->allocate->spec->id, "uniform");
  EXPECT_EQ(method->trigger->spec->id, "prefill");
  EXPECT_EQ(method->store->spec->id, "plain");
  const Result<Method> empty = Parse(File(""));
  ASSERT_TRUE(empty.ok()) << empty.error().message;
  EXPECT_FALSE(empty->takes_budget);
  EXPECT_EQ(empty->store->spec->id, "plain");
  EXPECT_FALSE(empty->trigger.has_value());
}

TEST(MethodFiles, ExperimentalMaySayWhy) {
  const Result<Method> plain = Parse(File("", R"("experimental": true, )"));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_TRUE(plain->experimental);
  EXPECT_EQ(plain->experimental_because, "");
  const Result<Method> why = Parse(File("", R"("experimental": "no code", )"));
  ASSERT_TRUE(why.ok()) << why.error().message;
  EXPECT_TRUE(why->experimental);
  EXPECT_EQ(why->experimental_because, "no code");
  EXPECT_FALSE(Parse(File("", R"("experimental": false, )"))->experimental);
}

TEST(MethodFiles, FaultsNameFileKeyValueAndCure) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {R"([])", {"mine.json", "must be a JSON object"}},
      {R"({"title": "x", "family": "selection"})", {"mine.json", "\"id\" is missing"}},
      {R"({"id": "mine", "title": "x", "family": "selektion"})",
       {"\"family\"", "did you mean 'selection'"}},
      {R"({"id": "mine", "title": "x", "family": "selection", "stage": {}})",
       {"unknown key 'stage'", "did you mean 'stages'"}},
      {R"({"id": "mine", "title": "x", "family": "selection", "version": 0})",
       {"\"version\"", "is 0"}},
      {File(R"("skore": {"id": "random"})"), {"stages: unknown key 'skore'", "'score'"}},
      {File(R"("score": "random")"), {"stages.score", "must be an object"}},
      {File(R"("score": {"id": "snapvk"}, "reduce": {"id": "top_k"})"),
       {"mine.json: stages.score", "'snapvk'", "'snapkv'"}},
      {File(R"("score": {"id": "snapkv", "windw": 3}, "reduce": {"id": "top_k"})"),
       {"mine.json: score.snapkv", "'windw'", "did you mean 'window'"}},
      {File(R"("score": {"id": "snapkv", "window": 0}, "reduce": {"id": "top_k"})"),
       {"score.snapkv.window: 0 is not valid", "[1, 4096]"}},
      {File(R"("score": {"id": "snapkv", "group": "median"}, "reduce": {"id": "top_k"})"),
       {"score.snapkv.group", "\"median\"", "'mean'"}},
      {File("", R"("protect": {"sinks": -1}, )"), {"protect.sinks: -1 is not valid"}},
      {File("", R"("departures": "none", )"), {"\"departures\" must be a list"}},
      {File("", R"("experimental": 1, )"), {"\"experimental\" must be true, false", "is 1"}},
      {File("", R"("experimental": "", )"), {"\"experimental\" must be true, false", "is \"\""}},
      {File("", R"("conformance": [7], )"), {"\"conformance\" must be a list of texts, is [7]"}},
      {File("", R"("conformance": ["score.windw"], )"),
       {"mine.json: conformance", "must be stage.param=value"}},
      {File("", R"("conformance": ["store.positio=slot"], )"),
       {"mine.json: conformance", "did you mean 'position'"}},
      // Stages that do not fit each other.
      {File(R"("score": {"id": "random"})"),
       {"score.random has no effect without a reduce stage", "top_k"}},
      {File(R"("trigger": {"id": "prefill"})"), {"trigger.prefill has no effect"}},
      {File("", R"("protect": {"sinks": 4}, )"), {"protect has no effect"}},
      {File("", R"("place": {"share": 2}, )"), {"mine.json: place.share: 2 is not valid"}},
      {File("", R"("place": {"side": "keys"}, )"), {"mine.json: place", "did you mean 'sides'"}},
      {File("", R"("place": "host", )"), {"mine.json: place", "JSON object"}},
      {File(R"("reduce": {"id": "top_k"})"), {"reduce.top_k needs scores"}},
      {File(R"("score": {"id": "lava"}, "reduce": {"id": "top_k"},
               "trigger": {"id": "every_step"})"),
       {"trigger.every_step acts in decode", "score.lava", "trigger.prefill"}},
      {File(R"("score": {"id": "snapkv"}, "reduce": {"id": "top_k"},
               "decode_score": {"id": "lava"}, "trigger": {"id": "interval"})"),
       {"trigger.interval acts in decode", "score.lava"}},
      {File(R"("score": {"id": "snapkv"}, "reduce": {"id": "top_k"},
               "decode_score": {"id": "knorm"})"),
       {"decode_score.knorm has no effect", "trigger.prefill", "trigger.interval"}},
      {File(R"("decode_score": {"id": "knorm"})"), {"decode_score.knorm has no effect"}},
      {File(R"("score": {"id": "snapkv"}, "allocate": {"id": "zigzagkv"},
               "reduce": {"id": "top_k"}, "trigger": {"id": "interval", "again": true})"),
       {"trigger.interval allocates again", "allocate.zigzagkv", "trigger.again=false"}},
      {File(R"("score": {"id": "snapkv", "window": 16}, "reduce": {"id": "top_k"},
               "trigger": {"id": "every_step"})",
            R"("protect": {"recent": 8}, )"),
       {"protect.recent is 8", "score.snapkv looks back from the last 16 rows", "raise it to 16"}},
      {File(R"("score": {"id": "knorm"}, "allocate": {"id": "fastgen"},
               "reduce": {"id": "top_k"})"),
       {"allocate.fastgen reads the scores of score.fastgen, not those of score.knorm"}},
      // Rows that leave a prefill are missing for others.
      {File(R"("thin": {"id": "fastv"}, "score": {"id": "kvzip"}, "reduce": {"id": "top_k"})"),
       {"score.kvzip needs probes of the whole prompt, and thin.fastv", "score.snapkv"}},
      {File(R"("thin": {"id": "fastv"}, "score": {"id": "compactor"},
               "reduce": {"id": "top_k"})"),
       {"score.compactor needs attention inside chunks", "thin.fastv"}},
      {File(R"("thin": {"id": "fastv"}, "read": {"id": "emllm"})"),
       {"read.emllm needs how little each token was expected, and thin.fastv"}},
      {File(R"("thin": {"id": "fastv"}, "score": {"id": "kvzap"}, "reduce": {"id": "top_k"})"),
       {"score.kvzap needs gates of all rows", "thin.fastv"}},
      {File(R"("thin": {"id": "fastv"}, "score": {"id": "expected_attention"},
               "reduce": {"id": "top_k"})"),
       {"score.expected_attention needs moments of the queries", "thin.fastv"}},
      {File(R"("thin": {"id": "fastv"}, "score": {"id": "snapkv"}, "allocate": {"id": "ada"},
               "reduce": {"id": "top_k"})"),
       {"allocate.ada compares the scores of all layers", "thin.fastv", "allocate.uniform"}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string message = ErrorOf(text);
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part)) << text;
  }
}

// One method for the prompt and another while decoding.
TEST(MethodFiles, StagesOfDecodeAreTheirOwn) {
  const Result<Method> method = LoadMethod("prefill_decoding", kShipped,
                                           {"decode_score.id=snapkv", "decode_score.window=12"});
  ASSERT_TRUE(method.ok()) << method.error().message;
  EXPECT_EQ(method->score->params.Int("window"), 32);
  EXPECT_EQ(method->decode_score->params.Int("window"), 12);
  EXPECT_EQ(method->decode_score->slot, "decode_score");
  EXPECT_EQ(method->needs(), (Needs{.window = 32, .step_window = 12}));
  EXPECT_EQ(method->recent, 32);
  const Result<Method> other = LoadMethod("prefill_decoding", kShipped, {"decode_score.id=h2o"});
  ASSERT_TRUE(other.ok()) << other.error().message;
  // Running scores begin with the prompt.
  EXPECT_EQ(other->needs(), (Needs{.window = 32, .column_sums = true, .step_attention = true}));
  EXPECT_NE(method->ToJson(), other->ToJson());
  EXPECT_FALSE(LoadMethod("snapkv", kShipped, {})->ToJson()["stages"].contains("decode_score"));
}

TEST(MethodFiles, OverridesReachEveryParameter) {
  const Result<Method> method =
      LoadMethod("snapkv", kShipped,
                 {"score.window=16", "protect.recent=16", "protect.recent_share=0.25",
                  "score.pool=max", "store.position=slot"});
  ASSERT_TRUE(method.ok()) << method.error().message;
  EXPECT_EQ(method->score->params.Int("window"), 16);
  EXPECT_EQ(method->score->params.Text("pool"), "max");
  EXPECT_EQ(method->recent, 16);
  EXPECT_EQ(method->recent_share, 0.25);
  EXPECT_EQ(method->store->params.Text("position"), "slot");
  EXPECT_EQ(method->needs().window, 16);

  const Result<Method> other = LoadMethod("snapkv", kShipped, {"score.id=random"});
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->score->spec->id, "random");
  EXPECT_EQ(other->needs(), Needs());

  const std::pair<const char*, const char*> wrong[] = {
      {"score.windw=1", "did you mean 'window'"},
      {"skore.window=1", "did you mean 'score'"},
      {"score.window", "must be stage.param=value"},
      {"score.window=x", "score.snapkv.window: \"x\" is not valid"},
      {"protect.sink=1", "did you mean 'sinks'"},
      {"place.side=keys", "did you mean 'sides'"},
      {"plac.share=1", "did you mean 'place'"},
      {"read.page=8", "has no read stage; name one with read.id=..."},
  };
  for (const auto& [text, part] : wrong) {
    const Result<Method> refused = LoadMethod("snapkv", kShipped, {text});
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(refused.error().message, HasSubstr(part));
  }
}

// What the conformance tests ask of a file is of its own stages.
TEST(MethodFiles, AStageThatTheConformanceTestsNameMayBeReplaced) {
  const Result<Method> method = LoadMethod("quest", kShipped, {"read.id=exact_top_k"});
  ASSERT_TRUE(method.ok()) << method.error().message;
  EXPECT_EQ(method->read->spec->id, "exact_top_k");
}

TEST(MethodFiles, PublishedNumbersAreData) {
  const Method snapkv = *LoadMethod("snapkv", kShipped, {});
  ASSERT_EQ(snapkv.published.size(), 3u);
  EXPECT_EQ(snapkv.published[0].what, PublishedNumber::What::kDecodeTimes);
  EXPECT_EQ(snapkv.published[0].value, 3.6);
  EXPECT_EQ(snapkv.published[0].context_tokens, 16384);
  EXPECT_EQ(LoadMethod("mla_latent", kShipped, {})->published[0].latent_numbers, 576);
  EXPECT_THAT(ErrorOf(File("", R"("published": [{"what": "tokens", "source": "x"}], )")),
              AllOf(HasSubstr("published[0].what"), HasSubstr("decode_times")));
  EXPECT_THAT(ErrorOf(File("", R"("published": [{"value": 3}], )")), HasSubstr("\"source\""));
  EXPECT_THAT(ErrorOf(File("", R"("published": 3, )")), HasSubstr("must be a list"));
}

// The window that a score looks back from is what stays: one number.
TEST(MethodFiles, WindowsProtectThemselves) {
  const auto recent = [](const char* id, const std::vector<std::string>& overrides) {
    const Result<Method> method = LoadMethod(id, kShipped, overrides);
    EXPECT_TRUE(method.ok()) << method.error().message;
    return method->recent;
  };
  EXPECT_EQ(recent("snapkv", {}), 32);
  EXPECT_EQ(recent("snapkv", {"score.window=8"}), 8);
  EXPECT_EQ(recent("cake", {"score.window=64"}), 64);
  EXPECT_EQ(recent("rkv", {}), 8);
  // Without the window nothing stays, and a file may say what does.
  EXPECT_EQ(recent("snapkv", {"score.id=knorm"}), 0);
  EXPECT_EQ(recent("snapkv", {"score.window=8", "protect.recent=0"}), 0);
  EXPECT_EQ(recent("knorm", {"protect.recent=5"}), 5);
  const Result<Method> method = LoadMethod("snapkv", kShipped, {"score.window=8"});
  EXPECT_EQ(method->ToJson()["protect"]["recent"], 8);
}

TEST(MethodFiles, UnknownNamesAndForeignNames) {
  const Result<Method> unknown = LoadMethod("snapk", kShipped, {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("did you mean 'snapkv'"));

  const std::string path = ::testing::TempDir() + "kvg_other_name.json";
  std::ofstream(path) << File("");
  const Result<Method> named = LoadMethod(path, kShipped, {});
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.error().message, HasSubstr("\"id\" is 'mine', but the file's name says"));
  std::filesystem::remove(path);
}

TEST(MethodFiles, CanonicalFormHoldsEveryParameter) {
  const Result<Method> method = LoadMethod("snapkv", kShipped, {});
  ASSERT_TRUE(method.ok());
  const Json json = method->ToJson();
  EXPECT_EQ(json["stages"]["score"]["params"]["order"], "group_first");
  EXPECT_EQ(json["stages"]["allocate"]["id"], "uniform");
  EXPECT_EQ(json["stages"]["reduce"]["version"], 1);
  EXPECT_EQ(json["protect"]["recent"], 32);
}

TEST(BudgetText, ReadsEveryKind) {
  const auto kind = [](const char* text) { return Budget::Parse(text)->kind; };
  EXPECT_EQ(kind("none"), Budget::Kind::kNone);
  EXPECT_EQ(kind("0.2"), Budget::Kind::kFraction);
  EXPECT_EQ(kind("1.0"), Budget::Kind::kFraction);
  EXPECT_EQ(kind("1"), Budget::Kind::kEntries);
  EXPECT_EQ(kind("512"), Budget::Kind::kEntries);
  EXPECT_EQ(kind("64B"), Budget::Kind::kBytesPerToken);
  EXPECT_EQ(Budget::Parse("20%")->value, 0.2);
  EXPECT_EQ(Budget::Parse("1.5B")->value, 1.5);
  for (const char* text : {"none", "20%", "12.5%", "100%", "512", "64B", "1.5B"}) {
    EXPECT_EQ(Budget::Parse(text)->ToString(), text);
  }
  EXPECT_EQ(Budget::Parse("0.2")->ToString(), "20%");
  EXPECT_EQ(NameOf(kind("0.2")), "fraction");
  EXPECT_EQ(NameOf(kind("64B")), "bytes_per_token");
  for (const char* text : {"", "-1", "0", "0.0", "1.5", "101%", "abc", "B", "5x", "nan", "1e400"}) {
    const Result<Budget> budget = Budget::Parse(text);
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_THAT(budget.error().message, HasSubstr("20%"));
  }
}

Method Loaded(const std::string& id, const std::vector<std::string>& overrides = {}) {
  const Result<Method> method = LoadMethod(id, kShipped, overrides);
  EXPECT_TRUE(method.ok()) << method.error().message;
  return *method;
}
std::string Refusal(const Method& method, const ModelShape& shape, const char* budget,
                    int64_t prompt = 1000) {
  const Status status = CheckMethod(method, shape, *Budget::Parse(budget), prompt);
  return status.ok() ? "" : status.error().message;
}

TEST(CheckMethodTest, Budgets) {
  const ModelShape shape = SmallShape(2, 2, 2);
  EXPECT_EQ(Refusal(Loaded("full"), shape, "none"), "");
  EXPECT_THAT(Refusal(Loaded("full"), shape, "0.2"),
              AllOf(HasSubstr("method full"), HasSubstr("takes no budget")));
  EXPECT_THAT(Refusal(Loaded("snapkv"), shape, "none"), HasSubstr("needs a budget"));
  EXPECT_EQ(Refusal(Loaded("snapkv"), shape, "0.2"), "");
  EXPECT_EQ(Refusal(Loaded("snapkv"), shape, "32"), "");
  EXPECT_THAT(Refusal(Loaded("snapkv"), shape, "31"),
              AllOf(HasSubstr("gives each head 31 entries, but"), HasSubstr("protect.recent")));
  EXPECT_EQ(Refusal(Loaded("snapkv", {"score.window=8"}), shape, "8"), "");
  EXPECT_THAT(Refusal(Loaded("snapkv", {"allocate.id=cake", "score.id=knorm"}), shape, "100"),
              HasSubstr("allocate.cake: weighs layers by the window"));
  EXPECT_THAT(Refusal(Loaded("snapkv"), shape, "0.01"),
              HasSubstr("gives each head 10 entries of a prompt of 1000, but"));
  EXPECT_THAT(Refusal(Loaded("random", {"protect.sinks=0", "protect.recent=0"}), shape, "0.1B"),
              HasSubstr("gives each head 0 entries"));
  // A prompt that fits whole needs no more.
  EXPECT_EQ(Refusal(Loaded("snapkv"), shape, "31", 20), "");
}

// What a refusal says would do does.
TEST(CheckMethodTest, RefusedBudgetsAreToldWhatWouldDo) {
  const ModelShape shape = SmallShape(2, 2, 2, 64);
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"snapkv", "31", "32 would do"},
      {"snapkv", "0.1", "10.7% would do"},
      // Two sides of 64 numbers of 4 bytes and a position, four times 32, over 300 tokens.
      {"snapkv", "60B", "221B would do"},
      {"snapkv", "220B", "221B would do"},
      {"minikv", "1B", "B would do"},
      {"curdkv", "0.1B", "prompt of 300; 7B would do"}};
  for (const auto& [id, refused, told] : cases) {
    const std::string message = Refusal(Loaded(id), shape, refused, 300);
    EXPECT_THAT(message, HasSubstr(told)) << id << " " << refused;
    const std::string would_do = message.substr(0, message.find(" would do"));
    EXPECT_EQ(Refusal(Loaded(id), shape, would_do.substr(would_do.rfind(' ') + 1).c_str(), 300),
              "");
  }
}

TEST(CheckMethodTest, ModelsThatLackSomething) {
  ModelShape shape = SmallShape();
  EXPECT_EQ(Refusal(Loaded("streaming_llm"), shape, "64"), "");
  shape.rotary_dim = 0;
  EXPECT_THAT(Refusal(Loaded("streaming_llm"), shape, "64"),
              AllOf(HasSubstr("store.plain"), HasSubstr("no rotary")));
  EXPECT_THAT(Refusal(Loaded("sepllm"), shape, "64"),
              AllOf(HasSubstr("score.sepllm"), HasSubstr("has no tokenizer")));
  EXPECT_THAT(Refusal(Loaded("snapkv", {"score.kernel=4"}), shape, "64"),
              AllOf(HasSubstr("score.snapkv"), HasSubstr("kernel 4 is even")));
  EXPECT_THAT(Refusal(Loaded("full", {"store.position=clipped"}), SmallShape(), "none"),
              HasSubstr("position_limit"));
}

TEST(CheckMethodTest, StagesThatDoNotFitTheModelOrEachOther) {
  const ModelShape shape = SmallShape(4, 2, 2, 64);
  const std::string palu = R"("prepare": {"id": "palu"}, "store": {"id": "low_rank"})";
  EXPECT_EQ(Refusal(*Parse(File(palu)), shape, "none"), "");
  EXPECT_THAT(Refusal(*Parse(File(R"("store": {"id": "low_rank"})")), shape, "none"),
              AllOf(HasSubstr("no prepare stage writes the bases"), HasSubstr("palu")));
  EXPECT_THAT(Refusal(*Parse(File(palu + R"(, "score": {"id": "random"},
                                  "reduce": {"id": "top_k"})")),
                      shape, "0.5"),
              HasSubstr("reduce.top_k cannot evict"));
  EXPECT_THAT(Refusal(Loaded("mla_latent"), shape, "none"), HasSubstr("this model has none"));
  // Narrow keys and whole ones are never merged: not after the prompt, where none are narrow yet.
  EXPECT_THAT(Refusal(Loaded("d2o", {"store.id=think"}), shape, "0.5"),
              AllOf(HasSubstr("store.think"), HasSubstr("reduce.d2o"),
                    HasSubstr("while decoding; use trigger.prefill")));
  EXPECT_EQ(Refusal(Loaded("d2o", {"store.id=think", "trigger.id=prefill"}), shape, "0.5"), "");
  EXPECT_EQ(Refusal(Loaded("cam", {"store.id=think"}), shape, "0.5"), "");
  ModelShape mla = shape;
  mla.latent_dim = 32;
  EXPECT_EQ(Refusal(Loaded("mla_latent"), mla, "none"), "");
  EXPECT_THAT(Refusal(Loaded("streaming_llm"), mla, "64"), HasSubstr("latent attention rotates"));
  EXPECT_THAT(Refusal(Loaded("minicache"), SmallShape(1, 2, 2, 64), "none"),
              HasSubstr("store.minicache: shares between layers"));
  EXPECT_THAT(Refusal(Loaded("snapkv_kivi", {"store.id=minicache"}), shape, "0.5"),
              HasSubstr("cannot evict"));
  EXPECT_EQ(Refusal(Loaded("snapkv_quest"), shape, "0.5"), "");  // a reader over what is left
  EXPECT_THAT(Refusal(Loaded("kivi_2bit"), SmallShape(2, 2, 2, 80), "none"),
              HasSubstr("store.kivi: group 32 must divide the 80 dims"));
  EXPECT_THAT(Refusal(Loaded("int8", {"store.key_bits=5"}), shape, "none"),
              HasSubstr("store.affine: keys: bits 5"));
  EXPECT_THAT(
      Refusal(Loaded("int8", {"store.key_axis=channel", "store.key_group=48"}), shape, "none"),
      HasSubstr("group 48"));
  // Stages after the preparation see what it leaves: two KV heads became one.
  const Method pooled = Loaded("mean_pool_gqa", {"prepare.heads=2"});
  EXPECT_EQ(Refusal(pooled, shape, "none"), "");
  EXPECT_THAT(Refusal(pooled, SmallShape(4, 3, 2, 64), "none"),
              HasSubstr("prepare.mean_pool_heads: heads 2 must divide"));
}

TEST(CheckMethodTest, RowsLeaveWhereNothingMissesThem) {
  const ModelShape shape = SmallShape(4, 2, 2, 64);
  EXPECT_EQ(Refusal(Loaded("fastv"), shape, "none"), "");
  EXPECT_THAT(Refusal(Loaded("fastv"), shape, "0.5"),
              AllOf(HasSubstr("it takes no budget, because a stage of its prefill"),
                    HasSubstr("its size follows from thin.fastv")));
  EXPECT_THAT(Refusal(Loaded("fastv", {"thin.layer=4"}), shape, "none"),
              AllOf(HasSubstr("thin.fastv: layer is 4"), HasSubstr("expected 1 .. 3")));
  ModelShape windowed = shape;
  windowed.windows = {0, 512, 0, 512};
  EXPECT_THAT(Refusal(Loaded("fastv"), windowed, "none"),
              AllOf(HasSubstr("thin.fastv: layer 1 sees a window of 512"),
                    HasSubstr("expected a model whose layers all see the whole prompt")));
  EXPECT_THAT(Refusal(Loaded("fastv", {"store.id=minicache"}), shape, "none"),
              AllOf(HasSubstr("store.minicache: layers share entries"), HasSubstr("thin.fastv")));
}

// A reader that takes in what leaves needs something that lets go, and leaves nothing of it.
TEST(CheckMethodTest, WhatIsTakenInIsGone) {
  const ModelShape shape = SmallShape(4, 2, 2, 64);
  const std::string random = "read.weights=random";
  EXPECT_EQ(Refusal(Loaded("less", {random}), shape, "0.5"), "");
  EXPECT_EQ(Refusal(Loaded("less", {random, "score.id=recency"}), shape, "0.5"), "");
  const Result<Method> alone = Parse(R"({"id": "mine", "title": "t", "family": "selection",
    "version": 1, "stages": {"read": {"id": "less", "weights": "random"}}})");
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_THAT(Refusal(*alone, shape, "none"),
              HasSubstr("read.less takes in what a reduce stage lets go, and nothing is let go"));
  EXPECT_THAT(Refusal(Loaded("less", {random, "reduce.id=d2o"}), shape, "0.5"),
              HasSubstr("would count twice what reduce.d2o merges into entries that stay"));
}

TEST(CheckMethodTest, ClassesByAttentionNeedAPromptThatSawEverything) {
  const ModelShape shape = SmallShape(4, 2, 2, 64);
  EXPECT_EQ(Refusal(Loaded("minference"), shape, "none"), "");
  EXPECT_EQ(Refusal(Loaded("qaq"), shape, "none"), "");
  EXPECT_THAT(Refusal(Loaded("minference", {"store.id=qaq"}), shape, "none"),
              AllOf(HasSubstr("store.qaq looks at the attention of the prompt's last rows"),
                    HasSubstr("attend.minference says what rows saw")));
}

TEST(CheckMethodTest, AllocatorsAreAskedBeforeAnythingRuns) {
  const ModelShape shape = SmallShape(4, 2, 2, 64);
  EXPECT_EQ(Refusal(Loaded("d2o"), shape, "0.2"), "");
  const std::vector<std::string> whole = {"allocate.whole_first=0.5", "allocate.whole_last=0.25"};
  EXPECT_THAT(Refusal(Loaded("d2o", whole), shape, "0.5"),
              AllOf(HasSubstr("method d2o: allocate.d2o: 3 of 4 layers stay whole"),
                    HasSubstr("allocate.whole_first")));
  EXPECT_EQ(Refusal(Loaded("d2o", whole), shape, "0.8"), "");
  EXPECT_EQ(Refusal(Loaded("d2o", {whole[0], whole[1], "allocate.compat=true"}), shape, "0.5"), "");
  EXPECT_EQ(Refusal(Loaded("d2o", whole), shape, "2000"), "");  // the prompt fits whole
}

// What is shipped works on an ordinary model with grouped heads, each with a budget if it takes
// one; a method of trained weights says that it needs them, and one that asks another model that it
// must be told which.
// A shipped method suits many models, and its last group may be shorter; the run says so. What a
// user chose for this one has to fit it.
TEST(CheckMethodTest, GroupsThatAUserChoseDivideAnEntry) {
  const ModelShape shape = SmallShape(2, 2, 2, 64), odd = SmallShape(2, 2, 2, 80);
  EXPECT_EQ(Refusal(Loaded("flexgen"), odd, "none"), "");
  EXPECT_THAT(
      ShorterGroups(Loaded("flexgen"), odd),
      ElementsAre("method flexgen: groups of 64 do not divide the 80 dims of keys; the last "
                  "one of an entry has 16 and a scale of its own",
                  "method flexgen: groups of 64 do not divide the 80 dims of values; the "
                  "last one of an entry has 16 and a scale of its own"));
  EXPECT_THAT(ShorterGroups(Loaded("flexgen"), shape), IsEmpty());
  EXPECT_THAT(ShorterGroups(Loaded("full"), odd), IsEmpty());
  EXPECT_EQ(Refusal(Loaded("flexgen", {"store.key_group=16", "store.value_group=40"}), odd, "none"),
            "");
  EXPECT_THAT(
      Refusal(Loaded("flexgen", {"store.key_group=64"}), odd, "none"),
      HasSubstr("method flexgen: override 'store.key_group=64': store.key_group 64 does not "
                "divide the 80 dims of keys; expected 1, 2, 4, 5, 8, 10, 16, 20, 40 or 80"));
  EXPECT_THAT(Refusal(Loaded("int8", {"store.value_group=128"}), shape, "none"),
              HasSubstr("store.value_group 128 does not divide the 64 dims of values; expected 1, "
                        "2, 4, 8, 16, 32 or 64"));
  EXPECT_THAT(Refusal(Loaded("mikv", {"store.value_group=24"}), shape, "none"),
              HasSubstr("store.value_group 24 does not divide the 64 dims of values"));
  EXPECT_THAT(Refusal(Loaded("gear", {"store.group=64"}), odd, "none"),
              HasSubstr("store.group 64 does not divide the 80 dims of values"));
  EXPECT_THAT(Refusal(Loaded("kivi_2bit"), odd, "none"), HasSubstr("; expected 16"));
  // Groups over entries, and of a stage that is no longer there.
  EXPECT_EQ(Refusal(Loaded("int8", {"store.key_axis=channel", "store.key_group=32"}), odd, "none"),
            "");
  EXPECT_EQ(Refusal(Loaded("int8", {"store.key_group=48", "store.id=kivi"}), shape, "none"), "");
  const std::string path = StrCat(::testing::TempDir(), "/mine.json");
  const std::string text = File(R"("store": {"id": "affine", "key_bits": 4, "key_group": 48})");
  ASSERT_TRUE(WriteFile(path, text).ok());
  const Result<Method> mine = LoadMethod(path, kShipped, {});
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  EXPECT_THAT(Refusal(*mine, shape, "none"),
              HasSubstr(StrCat(path, ": store.key_group 48 does not divide the 64 dims of keys")));
}

TEST(CheckMethodTest, EveryShippedOneRunsOnAnOrdinaryModel) {
  ModelShape shape = SmallShape(32, 2, 4, 64);
  shape.token_classes = true;
  const Result<std::vector<std::string>> ids = ListMethods(kShipped);
  for (const std::string& id : *ids) {
    const Method method = Loaded(id);
    if (id == "mla_latent") continue;
    const std::string refusal = Refusal(method, shape, method.takes_budget ? "0.5" : "none", 4000);
    const auto imports_alone = [](const std::optional<StageChoice>& choice) {
      return choice && choice->spec->imports() && choice->spec->calibrate == nullptr;
    };
    const bool trained =
        imports_alone(method.score) || imports_alone(method.thin) || imports_alone(method.read);
    if (id == "leank") {
      EXPECT_THAT(refusal, HasSubstr("needs masks of key channels"));
    } else if (id == "speckv") {
      EXPECT_THAT(refusal, HasSubstr("draft_model names no model"));
      EXPECT_EQ(Refusal(Loaded(id, {"score.draft_model=self"}), shape, "0.5", 4000), "");
    } else if (id == "llmlingua2") {
      EXPECT_THAT(refusal, HasSubstr("encoder names no checkpoint"));
      EXPECT_THAT(Refusal(Loaded(id, {"thin.encoder=some/where"}), shape, "none", 4000),
                  HasSubstr("thin.llmlingua2.encoder: 'some/where' was not looked at"));
    } else if (id == "cepe") {
      EXPECT_THAT(refusal, HasSubstr("this model has no encoder"));
      ModelShape beside = shape;
      beside.encoder_width = 48;
      EXPECT_EQ(Refusal(method, beside, "none", 4000), "");
    } else if (trained) {
      EXPECT_THAT(refusal, HasSubstr("which needs trained weights")) << id;
    } else {
      EXPECT_EQ(refusal, "") << id;
    }
  }
}

TEST(NeedsTest, StepSignalsOnlyWhereSomethingUsesThem) {
  EXPECT_EQ(Loaded("h2o").needs(), (Needs{.column_sums = true, .step_attention = true}));
  EXPECT_EQ(Loaded("h2o_prompt").needs(), Needs{.column_sums = true});
  EXPECT_EQ(Loaded("kvquant").needs(), Needs{.raw_keys = true});
  EXPECT_EQ(Loaded("cam").needs(), (Needs{.window = 1, .step_attention = true}));
  EXPECT_EQ(Loaded("full").needs(), Needs());
}

// Keys of all but the last 32 entries hold 39 of 64 numbers, and a list says which.
TEST(HeadBudgetTest, BytesOfNarrowKeys) {
  ModelShape shape = SmallShape(2, 2, 2, 64);
  shape.cache_dtype = DType::kF16;
  const Method method = Loaded("snapkv_think");
  const int64_t length = 4000, heads = 4;
  for (const char* text : {"50B", "100B", "200B"}) {
    const Budget budget = *Budget::Parse(text);
    const auto limit = static_cast<int64_t>(budget.value) * length;
    int64_t want = 0;
    while (heads * (((want + 1) * 128 - (want + 1 - 32) * 25) * 2 + 4 * (want + 1) + 4 * 39) <=
           limit) {
      ++want;
    }
    EXPECT_EQ(HeadBudgetFor(method, shape, budget, length).entries, want) << text;
    EXPECT_GT(want, 32);
  }
}

// The largest number of entries whose bytes are within the budget.
TEST(HeadBudgetTest, BytesOfCodedEntries) {
  ModelShape shape = SmallShape(2, 2, 2, 64);
  shape.cache_dtype = DType::kF16;
  const Method method = Loaded("snapkv_kivi");
  const int64_t length = 4000, heads = 4;
  const auto bytes = [&](int64_t entries) {
    // 5 bits a number for full units of 128 keys, and for all values but the last 128.
    const int64_t keys = entries / 128 * 128, values = std::max<int64_t>(0, entries - 128);
    const int64_t coded = (keys + values) * 64 * 5 / 8;
    const int64_t plain = (2 * entries - keys - values) * 64 * 2;
    return heads * (coded + plain + 4 * entries);
  };
  for (const char* text : {"50B", "100B", "200B"}) {
    const Budget budget = *Budget::Parse(text);
    const int64_t entries = HeadBudgetFor(method, shape, budget, length).entries;
    const double limit = budget.value * static_cast<double>(length);
    EXPECT_LE(static_cast<double>(bytes(entries)), limit) << text;
    EXPECT_GT(entries, 300);
  }
}

// In the references a share of the prompt is a number, computed once.
TEST(HeadBudgetTest, AShareOfThePromptStaysWhileDecoding) {
  const ModelShape shape = SmallShape(2, 3, 2, 8);  // an entry of a head: 64 bytes, f32
  const Method stays = Loaded("streaming_llm");
  const Method grows = Loaded("streaming_llm", {"trigger.growth=share"});
  const auto growth = [&](const Method& method, const char* budget, int64_t tokens) {
    return GrowthOf(method, shape, *Budget::Parse(budget), 300, tokens);
  };
  EXPECT_EQ(growth(stays, "30%", 350), 0);
  EXPECT_EQ(growth(grows, "30%", 350), 15);
  EXPECT_EQ(growth(stays, "64B", 350), 0);
  EXPECT_GT(growth(grows, "64B", 350), 0);
  for (const Method* method : {&stays, &grows}) {
    // All of the prompt: nothing is ever given up.
    EXPECT_EQ(growth(*method, "1.0", 350), 50);
    // A number of entries that the prompt does not fill is filled.
    EXPECT_EQ(growth(*method, "90", 350), 0);
    EXPECT_EQ(growth(*method, "320", 310), 10);
    EXPECT_EQ(growth(*method, "320", 350), 20);
  }
}

TEST(HeadBudgetTest, EveryKindOfBudget) {
  const ModelShape shape = SmallShape(2, 3, 2, 8);  // an entry of a head: 64 bytes, f32
  const Method method = Loaded("random", {"protect.sinks=4", "protect.recent=8"});
  const auto entries = [&](const char* budget, int64_t length) {
    return HeadBudgetFor(method, shape, *Budget::Parse(budget), length).entries;
  };
  EXPECT_EQ(entries("0.2", 100), 20);
  EXPECT_EQ(entries("0.1", 130), 13);
  EXPECT_EQ(entries("50", 100), 50);
  EXPECT_EQ(entries("50", 30), 30);
  EXPECT_EQ(entries("0.01", 100), 12);  // never below what is protected
  EXPECT_EQ(entries("0.01", 5), 5);
  // 6 heads of 68 bytes an entry (4 for its position): 204 bytes a token are half.
  EXPECT_EQ(entries("204B", 100), 50);
  EXPECT_EQ(entries("203.9B", 100), 49);
  EXPECT_EQ(entries("1000B", 100), 100);
  EXPECT_EQ(HeadBudgetFor(Loaded("full"), shape, {}, 77).entries, 77);

  const Method shared =
      Loaded("random", {"protect.sinks=4", "protect.recent=0", "protect.recent_share=0.5"});
  const HeadBudget half = HeadBudgetFor(shared, shape, *Budget::Parse("20"), 100);
  EXPECT_EQ(half.sinks, 4);
  EXPECT_EQ(half.recent, 10);
  // The form that counts the coming token: 89 held of 90, 44 of them recent.
  const Method coming = Loaded("h2o", {"protect.coming=1"});
  const HeadBudget masked = HeadBudgetFor(coming, shape, *Budget::Parse("90"), 300);
  EXPECT_EQ(masked.entries, 89);
  EXPECT_EQ(masked.recent, 44);
  EXPECT_EQ(HeadBudgetFor(coming, shape, *Budget::Parse("1.0"), 300).entries, 300);
  const HeadBudget tight = HeadBudgetFor(shared, shape, *Budget::Parse("5"), 100);
  EXPECT_EQ(tight.recent, 1);  // what the sinks leave
}

}  // namespace
}  // namespace kvgauge
