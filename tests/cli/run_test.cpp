// SPDX-License-Identifier: Apache-2.0
// What a run does: what is recorded, shards, company, texts, times.
#include <cmath>
#include <map>
#include <set>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(RunTest, FewerSamplesThanAskedForAreTold) {
  const std::string config =
      StrCat(R"({"models": [{"path": ")", Path("config.json"), R"(", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 4, "source": {"lengths": "320", "samples": 2},
                 "max_new_tokens": 2},
                {"task": "passkey", "name": "enough", "samples": 2, "source": {"lengths": "320"},
                 "max_new_tokens": 2}],
      "budgets": ["25%"], "methods": ["random"]})");
  Write("mine.json", config);
  const std::string told = RunInto("r.db").err;
  EXPECT_THAT(told, HasSubstr("passkey: there are 2 samples of the 4 asked for; \"source\": "
                              "{\"samples\": ...} makes more\n"));
  EXPECT_THAT(told, Not(HasSubstr("enough: there")));
}

TEST_F(RunTest, RecordsWhatHappened) {
  const Outcome outcome = RunInto("r.db", {"--json"});
  const Json summary = *ParseJson(outcome.out, "out");
  const auto store = Open("r.db");
  const std::vector<StoredCell> cells = CellsOf(*store);
  const Result<std::vector<StoredRun>> runs = store->Runs();
  ASSERT_TRUE(runs.ok());
  EXPECT_FALSE(runs->at(0).run.version.empty());
  EXPECT_EQ(Run({"--version"}).out, runs->at(0).run.revision.empty()
                                        ? StrCat("kvgauge ", runs->at(0).run.version, "\n")
                                        : StrCat("kvgauge ", runs->at(0).run.version, " (",
                                                 runs->at(0).run.revision, ")\n"));
  EXPECT_EQ(summary["cells"], Samples("r.db"));
  EXPECT_EQ(summary["failed"], 0);
  EXPECT_EQ(cells.size(), 24u);  // 12 rows on two tasks
  EXPECT_EQ(Samples("r.db"), 12 * (8 + 4));
  for (const StoredCell& cell : cells) {
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_FALSE(row.answers[0].question.empty());
    EXPECT_TRUE(row.score);
    ASSERT_TRUE(row.answer_depth) << cell.cell.task.name;
    EXPECT_FALSE(row.answers[0].excerpt.empty());
    const std::string& method = cell.cell.method.name;
    EXPECT_EQ(row.engagement,
              method == "full" ? EngagementMark::kIdentity : EngagementMark::kEngaged)
        << method << ": " << row.engagement_reason;
    double kept = 0;
    int64_t entries = 0;
    for (const LayerStatRow& layer : row.layers) {
      if (layer.head != LayerStatRow::kWholeLayer) {
        entries += *layer.entries_after;
        continue;
      }
      ASSERT_EQ(std::ssize(layer.kept_by_depth), LayerStatRow::kDepths);
      for (const double share : layer.kept_by_depth) kept += share / LayerStatRow::kDepths / 2;
      EXPECT_TRUE(layer.answer_kept);
      if (method == "full") {
        EXPECT_EQ(layer.answer_kept, 1.0);
      }
    }
    EXPECT_GT(entries, 0);
    const bool evicts = cell.cell.budget_kind == "fraction";
    EXPECT_NEAR(kept, evicts ? cell.cell.budget_value : 1.0, evicts ? 0.08 : 1e-9) << method;
    ASSERT_EQ(row.memory.size(), 2u);
    EXPECT_EQ(row.memory[0].logical_bytes() < row.memory[0].full_bytes,
              method != "full" && method != "quest");
    ASSERT_TRUE(row.latency);
    EXPECT_GT(row.latency->prefill_s, 0);
    // In company both are counted, a reader's index with them.
    EXPECT_EQ(row.memory[0].peak_bytes, row.memory[0].full_bytes + row.memory[0].resident_bytes);
    EXPECT_EQ(row.latency->peak_bytes, row.memory[0].peak_bytes);
    EXPECT_EQ(row.latency->resident_bytes, row.memory[1].resident_bytes);
  }
  // Again: nothing to do, nothing changed, and no prefill.
  const std::string digest = Digest("r.db");
  const Json again = *ParseJson(RunInto("r.db", {"--json"}).out, "out");
  EXPECT_EQ(again["cells"], 0);
  EXPECT_EQ(again["prefills"], 0);
  EXPECT_EQ(Digest("r.db"), digest);
}

// A full cache takes the same bytes a token wherever it is compressed and whatever is asked.
TEST_F(RunTest, BytesATokenAreOfTheCacheAlone) {
  Write("mine.json", Config(R"("compress_at": ["prompt", "context"], )", R"("random")"));
  RunInto("r.db");
  const Json board = *ParseJson(Run({"leaderboard", Path("r.db"), "--json"}).out, "out");
  ASSERT_EQ(board["tables"].size(), 4u);
  for (const Json& table : board["tables"]) {
    for (const Json& row : table["rows"]) {
      if (row["method"] != "full") continue;
      EXPECT_EQ(row["logical_per_token"], 2 * 2 * (32 + 32) * 4) << row.dump();
    }
  }
}

// A continuation that ends at its first token has no decode step to measure an error in, and that
// is no error of 0. Here every token ends it.
TEST_F(RunTest, ErrorsThatWereNotMeasuredAreNull) {
  for (const bool ends : {true, false}) {
    std::string stops = "2";
    for (int id = 3; ends && id < 1792; ++id) stops += StrCat(", ", id);
    std::string model = kTinyModel;
    const std::string was = "\"eos_token_id\": 2";
    model.replace(model.find(was), was.size(), StrCat("\"eos_token_id\": [0, 1, ", stops, "]"));
    if (ends) Write("config.json", model);
    if (!ends) Write("config.json", kTinyModel);
    Write("mine.json",
          Config(R"("compress_at": ["prompt", "context"], "fidelity_steps": 3, )", R"("random")"));
    const std::string database = ends ? "ends.db" : "goes_on.db";
    RunInto(database, {"--limit", "2"});
    const auto store = Open(database);
    for (const StoredCell& cell : CellsOf(*store)) {
      const SampleRow row = FirstOf(*store, cell);
      ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
      // With `context` the question's own last token is compared.
      const bool compared = !ends || cell.cell.compress_at == "context";
      EXPECT_EQ(row.kl_divergence.has_value(), compared) << cell.cell.compress_at << ends;
      EXPECT_EQ(row.top1_agreement.has_value(), compared) << cell.cell.compress_at << ends;
      for (const LayerStatRow& layer : row.layers) {
        if (layer.head == LayerStatRow::kWholeLayer) {
          EXPECT_EQ(layer.attention_error.has_value(), !ends);
        }
      }
    }
  }
}

// Perplexities of a text through the cache, window by window, on the leaderboard and in
// comparisons.
TEST_F(RunTest, PerplexityIsTakenThroughTheCache) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += StrCat("The box holds number ", i * 37 % 101, ". ");
  Write("book.txt", text);
  Write("task.json", R"({"name": "book", "version": 1, "group": "perplexity", "description": "d",
    "citation": "c", "metric": "perplexity", "max_new_tokens": 1,
    "source": {"name": "running_text", "file": "book.txt", "protocol": "sliding", "window": 320,
               "stride": 40}})");
  const auto config = [&](const std::string& task, const std::string& more = "") {
    return StrCat(R"({"models": [{"path": ")", Path("config.json"),
                  R"(", "name": "tiny", "weights": "random:5"}], "data": ")", directory_,
                  R"(", "samples": 6, "budgets": ["25%"], )", more, R"("tasks": [)", task,
                  R"(], "methods": ["random", {"method": "h2o", "budgets": ["25%", "32"]},
                  "kivi_2bit"]})");
  };
  const std::string task = StrCat("\"", Path("task.json"), "\"");
  Write("mine.json", config(task, R"("compress_at": ["prompt", "context"], )"));
  const Json summary = *ParseJson(RunInto("r.db", {"--json"}).out, "out");
  EXPECT_EQ(summary["cells"], 2 * 5 * 6);
  EXPECT_EQ(summary["failed"], 0);
  EXPECT_EQ(summary["skipped"], 0);
  const auto store = Open("r.db");
  std::map<std::string, double> full;
  for (const StoredCell& cell : CellsOf(*store)) {
    for (const ScoreRow& row : ScoresOf(*store, cell)) {
      ASSERT_EQ(row.parts.size(), 2u);
      EXPECT_EQ(row.parts[1], 40);
      EXPECT_NEAR(*row.score, std::exp(row.parts[0] / 40), 1e-9);
      EXPECT_EQ(row.engagement,
                cell.cell.method.full_cache ? EngagementMark::kIdentity : EngagementMark::kEngaged);
      // The full cache does not care where it would have been compressed.
      if (!cell.cell.method.full_cache) continue;
      const auto at = full.try_emplace(row.sample_id, *row.score);
      EXPECT_EQ(at.first->second, *row.score);
    }
  }
  const Json board = *ParseJson(Run({"leaderboard", Path("r.db"), "--json"}).out, "out");
  ASSERT_EQ(board["tables"].size(), 2u);
  for (const Json& table : board["tables"]) {
    EXPECT_EQ(table["lower_is_better"], true);
    double best = 0;
    for (const Json& row : table["rows"]) {
      ASSERT_TRUE(row["rank"].is_number()) << row.dump();
      if (row["rank"] == 1) best = row["score"].get<double>();
      EXPECT_GT(row["score"], 1);
    }
    for (const Json& row : table["rows"]) EXPECT_GE(row["score"].get<double>(), best);
  }
  const Outcome compared =
      Run({"compare", "full", "random@25%", "--db", Path("r.db"), "--at", "prompt"});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("6 paired samples"));
  const Outcome shown =
      Run({"show", Path("r.db"), "random", "text/2", "--at", "prompt", "--data", directory_});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("40 tokens, "), HasSubstr("The box holds number")));
  const Outcome gated =
      Run({"gate", "--baseline", Path("r.db"), "--candidate", Path("r.db"), "--all"});
  EXPECT_EQ(gated.exit_code, 0) << gated.out << gated.err;
  EXPECT_THAT(gated.out, HasSubstr("perplexity"));

  // Token by token nothing is there to compress at first: what acts on prompts alone, and what is a
  // share of a prompt, says so.
  Write("mine.json", config(StrCat(R"({"task": )", task, R"(, "name": "blocks", "samples": 2,
                                    "source": {"protocol": "blocks", "window": 64}})")));
  const Outcome blocks = RunInto("b.db", {"--json"});
  EXPECT_EQ((*ParseJson(blocks.out, "out"))["cells"], 2 * 3) << blocks.out;
  EXPECT_THAT(blocks.err, AllOf(HasSubstr("random 25%, blocks"), HasSubstr("h2o 25%, blocks"),
                                HasSubstr("a share of it"), HasSubstr("sliding")));
  for (const StoredCell& cell : CellsOf(*Open("b.db"))) {
    EXPECT_EQ(FirstOf(*Open("b.db"), cell).parts[1], 63);
  }
  Write("mine.json", config(task, R"("compress_at": "turn", )"));
  EXPECT_THAT(Run({"plan", Path("mine.json")}).err, HasSubstr("no turns"));
}

// A file that changed under its name is not mixed with what it was; a changed model is run anew.
// Every row goes on from its own reasoning: the second prompt, asked alone, has the same answer.
TEST_F(RunTest, AChainOfThoughtIsConcluded) {
  const auto record = [&](const std::string& id, const std::string& context,
                          const std::string& question) {
    return Json{
        {"_id", id},           {"domain", "d"},        {"sub_domain", "s"}, {"difficulty", "easy"},
        {"length", "short"},   {"question", question}, {"choice_A", "one"}, {"choice_B", "two"},
        {"choice_C", "three"}, {"choice_D", "four"},   {"answer", "B"},     {"context", context}};
  };
  std::string text;
  for (int i = 0; i < 60; ++i) text += StrCat("The red box ", i, " holds a key. ");
  std::filesystem::create_directories(Path("longbench_v2"));
  Write("longbench_v2/data.json",
        Json{record("1", text, "What is held?"), record("2", text, "Who holds it?")}.dump());
  setenv("KVGAUGE_DATA", Path("").c_str(), 1);
  const auto config = [&](const std::string& task) {
    return StrCat(R"({"models": [{"path": ")", Path("config.json"),
                  R"(", "name": "tiny", "weights": "random:5"}], "tasks": [)", task,
                  R"(], "budgets": ["25%"], "methods": ["full", "snapkv"]})");
  };
  Write("mine.json", config(R"({"task": "longbench_v2_cot", "max_new_tokens": 6})"));
  RunInto("r.db");
  const auto store = Open("r.db");
  const std::vector<StoredCell> cells = CellsOf(*store);
  ASSERT_EQ(cells.size(), 2u);
  std::set<std::string> reasonings;
  Json asked = Json::array();
  std::map<std::string, std::string> concluded;
  for (const StoredCell& cell : cells) {
    for (const ScoreRow& score : ScoresOf(*store, cell)) {
      const SampleRow row = **store->Read(cell.id, score.sample_id);
      ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
      ASSERT_EQ(row.answers.size(), 2u);
      const AnswerRow &reasoning = row.answers[0], &conclusion = row.answers[1];
      EXPECT_FALSE(reasoning.score);
      EXPECT_TRUE(conclusion.score);
      EXPECT_EQ(row.score, conclusion.score);
      EXPECT_EQ(row.tokens_out, reasoning.tokens_out + conclusion.tokens_out);
      EXPECT_TRUE(row.layers.size() > 0 && row.memory.size() == 2);
      reasonings.insert(reasoning.prediction);
      std::string prompt = conclusion.question;
      const size_t at = prompt.find("$COT$");
      ASSERT_NE(at, std::string::npos);
      prompt.replace(at, 5, Trim(reasoning.prediction));
      const std::string id = StrCat(cell.cell.method.name, row.sample_id);
      asked.push_back(record(id, "", prompt));
      concluded[id] = conclusion.prediction;
    }
  }
  EXPECT_GT(reasonings.size(), 2u) << "methods that reason alike prove nothing";
  EXPECT_THAT(Run({"show", Path("r.db"), "snapkv@25%", "1"}).out, HasSubstr("$COT$"));

  Write("longbench_v2/data.json", asked.dump());
  Write("mine.json", config(R"({"task": "longbench_v2", "max_new_tokens": 6,
                                "source": {"prompt": "$Q$"}})"));
  RunInto("s.db");
  const auto alone = Open("s.db");
  for (const StoredCell& cell : CellsOf(*alone)) {
    if (cell.cell.method.name != "full") continue;
    for (const ScoreRow& score : ScoresOf(*alone, cell)) {
      const SampleRow row = **alone->Read(cell.id, score.sample_id);
      EXPECT_EQ(row.answers.at(0).prediction, concluded.at(row.sample_id)) << row.sample_id;
      concluded.erase(row.sample_id);
    }
  }
  EXPECT_TRUE(concluded.empty());
}

TEST_F(RunTest, DataThatChangedIsRefused) {
  const auto lines = [&](const char* last) {
    std::string text;
    for (int i = 0; i < 3; ++i) {
      text += StrCat(R"({"q": "What is )", i, R"( and 1?", "a": ")", i == 2 ? last : "1", "\"}\n");
    }
    return text;
  };
  Write("sums.jsonl", lines("3"));
  Write("task.json", R"({"name": "sums", "version": 1, "group": "sums", "description": "d",
    "citation": "c", "metric": "partial_match", "max_new_tokens": 4,
    "source": {"name": "jsonl", "file": "sums.jsonl", "context": "Sums.\n",
               "question": "{q}", "answers": "a"}})");
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:5"}], "data": ")", directory_,
                            R"(", "tasks": [")", Path("task.json"), R"("], "methods": ["full"]})"));
  RunInto("r.db");
  const std::string digest = Digest("r.db");
  Write("sums.jsonl", lines("4"));
  const Outcome changed = Run({"run", Path("mine.json"), "--db", Path("r.db")});
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_THAT(changed.err, AllOf(HasSubstr(Path("r.db")), HasSubstr("'sums'"),
                                 HasSubstr("its data file changed"), HasSubstr("another --db")));
  EXPECT_EQ(Digest("r.db"), digest);
  Write("sums.jsonl", lines("3"));
  RunInto("r.db");
  EXPECT_EQ(Digest("r.db"), digest);
  // Another model under the name: cells of its own, said aloud.
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:6"}], "data": ")", directory_,
                            R"(", "tasks": [")", Path("task.json"), R"("], "methods": ["full"]})"));
  EXPECT_THAT(RunInto("r.db").err, HasSubstr("is recorded with another model"));
  EXPECT_EQ(Samples("r.db"), 6);
}

// A metric's files are a part of what a cell is known by: with and without them are two results.
TEST_F(RunTest, ScoresOverLemmasAreCellsOfTheirOwn) {
  Write("open.jsonl", R"({"q": "Who ran?", "a": "the dogs"}
{"q": "What?", "a": "a cat"}
)");
  Write("task.json", R"({"name": "open", "version": 1, "group": "open", "description": "d",
    "metric": "wups_nextqa", "max_new_tokens": 4, "source": {"name": "jsonl",
    "file": "open.jsonl", "context": "Say.\n", "question": "{q}", "answers": "a"}})");
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:5"}], "data": ")", directory_,
                            R"(", "tasks": [")", Path("task.json"), R"("], "methods": ["full"]})"));
  const std::string golden = KVG_TEST_DATA "/golden/metrics";
  setenv("KVGAUGE_WORDNET", (golden + "/wordnet").c_str(), 1);
  unsetenv("KVGAUGE_NLTK");
  RunInto("r.db");
  EXPECT_EQ(Samples("r.db"), 2);
  setenv("KVGAUGE_NLTK", (golden + "/nltk").c_str(), 1);
  const Outcome lemmas = RunInto("r.db");
  EXPECT_EQ(Samples("r.db"), 4);
  const std::string digest = Digest("r.db");
  RunInto("r.db");
  EXPECT_EQ(Digest("r.db"), digest);
  setenv("KVGAUGE_NLTK", golden.c_str(), 1);
  const Outcome wrong = Run({"run", Path("mine.json"), "--db", Path("r.db")});
  unsetenv("KVGAUGE_NLTK");
  RunInto("r.db");
  EXPECT_EQ(Digest("r.db"), digest);
  unsetenv("KVGAUGE_WORDNET");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("KVGAUGE_NLTK: "), HasSubstr("is not there")));
  EXPECT_THAT(lemmas.err, HasSubstr("is recorded with another metric_basis"));
  int with_basis = 0;
  for (const StoredCell& cell : CellsOf(*Open("r.db"))) {
    const Json signature = *ParseJson(cell.cell.signature, "signature");
    with_basis += signature.contains("metric_basis") ? 1 : 0;
  }
  EXPECT_EQ(with_basis, 1);
}

TEST_F(RunTest, MalformedRecordsAreLeftOutAndCounted) {
  Write("sums.jsonl",
        "{\"q\": \"1?\", \"a\": \"1\"}\n{\n{\"q\": \"2?\", \"a\": \"\"}\n{\"q\": \"3?\", \"a\": "
        "\"3\"}\n");
  Write("task.json", R"({"name": "sums", "version": 1, "group": "sums", "description": "d",
    "metric": "partial_match", "max_new_tokens": 4, "source": {"name": "jsonl",
    "file": "sums.jsonl", "context": "Sums.\n", "question": "{q}", "answers": "a"}})");
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:5"}], "data": ")", directory_,
                            R"(", "tasks": [")", Path("task.json"), R"("], "methods": ["full"]})"));
  const Outcome refused = Run({"run", Path("mine.json"), "--db", Path("r.db")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("sums.jsonl:2: column 2: not valid JSON"));
  const Outcome planned = Run({"plan", Path("mine.json"), "--skip-bad"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.err, HasSubstr("sums: malformed records left out: 2"));
  const Outcome ran = Run({"run", Path("mine.json"), "--db", Path("k.db"), "--skip-bad"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("sums: malformed records left out: 2"));
  EXPECT_EQ(Samples("k.db"), 2);
}

// Where a task begins the answer, that is part of what the model was asked.
TEST_F(RunTest, TheQuestionIsWhatWasAsked) {
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                            R"(", "name": "tiny", "weights": "random:5"}], "methods": ["full"],
      "tasks": [{"task": "reference/needle", "samples": 3, "source": {"lengths": "320"}}]})"));
  RunInto("r.db");
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    for (const ScoreRow& score : ScoresOf(*store, cell)) {
      const SampleRow row = **store->Read(cell.id, score.sample_id);
      EXPECT_TRUE(row.answers[0].question.ends_with(" is kept in the")) << row.answers[0].question;
      const Json shown =
          *ParseJson(Run({"show", Path("r.db"), "full", score.sample_id, "--json"}).out, "out");
      EXPECT_EQ(shown["questions"][0], row.answers[0].question);
    }
  }
}

TEST_F(RunTest, ShardsMergedAreOneRun) {
  RunInto("whole.db");
  const auto merged = Open("merged.db", StoreMode::kCreate);
  for (int shard = 1; shard <= 3; ++shard) {
    const std::string name = StrCat("part", shard, ".db");
    RunInto(name, {"--shard", StrCat(shard, "/3")});
    EXPECT_NE(Digest(name), Digest("whole.db"));
    ASSERT_TRUE(merged->Merge(*Open(name)).ok());
  }
  EXPECT_EQ(*merged->ResultDigest(), Digest("whole.db"));
}

// P4: a row that runs alone, or with others, with one thread or two, gives the same.
TEST_F(RunTest, ARowAloneIsThatOfThePlan) {
  RunInto("whole.db", {"--threads", "2"});
  const auto whole = Open("whole.db");
  for (const char* method : {"h2o", "snapkv"}) {
    const std::string name = StrCat(method, ".db");
    RunInto(name, {"--only", method, "--threads", "1"});
    const auto alone = Open(name);
    int compared = 0;
    for (const StoredCell& cell : CellsOf(*alone)) {
      const std::vector<StoredCell> all = CellsOf(*whole);
      const auto same = std::find_if(all.begin(), all.end(), [&](const StoredCell& other) {
        return other.cell.Key() == cell.cell.Key();
      });
      ASSERT_NE(same, all.end());
      for (const ScoreRow& score : ScoresOf(*alone, cell)) {
        EXPECT_TRUE((*alone->Read(cell.id, score.sample_id))
                        ->SameResult(**whole->Read(same->id, score.sample_id)))
            << cell.cell.method.name << " " << score.sample_id;
        ++compared;
      }
    }
    EXPECT_EQ(compared, 3 * (8 + 4));
  }
}

// More rows, samples and choices later: only what is new is run.
TEST_F(RunTest, AGrownPlanRunsWhatIsNew) {
  Write("mine.json", Config("", R"("random")"));
  RunInto("r.db", {"--samples", "1,3"});
  const int64_t before = Samples("r.db");
  EXPECT_EQ(before, 3 * (2 + 2));
  Write("mine.json", Config());
  const Json summary = *ParseJson(RunInto("r.db", {"--json"}).out, "out");
  EXPECT_EQ(summary["cells"], 12 * (8 + 4) - before);
  RunInto("whole.db");
  EXPECT_EQ(Digest("r.db"), Digest("whole.db"));
}

// Prompts that a method cannot take are recorded with the reason; with room for them they are run.
TEST_F(RunTest, CellsThatCannotRunAreRecorded) {
  Write("mine.json", Config("", R"("random", {"method": "snapkv", "budgets": ["5%"]})"));
  const Outcome ran = RunInto("r.db", {"--json"});
  const Json summary = *ParseJson(ran.out, "out");
  EXPECT_EQ(summary["skipped"], 8 + 4);
  // Lengths differ, the reason does not.
  ASSERT_EQ(summary["reasons"].size(), 1u) << summary.dump();
  EXPECT_EQ(summary["reasons"][0]["cells"], 8 + 4);
  EXPECT_EQ(summary["reasons"][0]["status"], "skipped");
  EXPECT_THAT(ran.err, HasSubstr("12 skipped: "));
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    if (cell.cell.method.name != "snapkv") continue;
    const SampleRow row = FirstOf(*store, cell);
    EXPECT_EQ(row.status, SampleStatus::kSkipped);
    EXPECT_THAT(row.reason, HasSubstr("protected"));
  }
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json"}).out, "out"))["skipped"], 0);
  // Nothing but what cannot run: that is no success.
  const Outcome retried = Run({"run", Path("mine.json"), "--db", Path("r.db"), "--retry"});
  EXPECT_EQ(retried.exit_code, 1);
  EXPECT_THAT(retried.err,
              AllOf(HasSubstr("8/8 samples, 8 cells, "), HasSubstr("12 skipped: "),
                    HasSubstr("protected"), HasSubstr("nothing that was run succeeded")));
}

TEST_F(RunTest, MemoryIsBounded) {
  // The prompts of the second task are so long that not one row of them fits.
  std::string text = Config();
  text.replace(text.find("\"400\""), 5, "\"3000\"");
  Write("mine.json", text);
  const Json plan =
      *ParseJson(Run({"plan", Path("mine.json"), "--json", "--db", Path("r.db")}).out, "out");
  const auto least = [&](size_t group) {
    return plan["groups"][group]["least_memory_bytes"].get<int64_t>();
  };
  ASSERT_LT(least(0), least(1));
  const std::string bound = StrCat((least(0) + least(1)) / 2);
  const std::vector<std::string> bounded = {"--db", Path("r.db"), "--max-memory", bound};
  std::vector<std::string> planned = {"plan", Path("mine.json"), "--json"};
  planned.insert(planned.end(), bounded.begin(), bounded.end());
  const Json unfit = (*ParseJson(Run(planned).out, "out"))["groups"][1]["unfit"];
  const Outcome ran = RunInto("r.db", {"--max-memory", bound, "--json"});
  const Json summary = *ParseJson(ran.out, "out");
  EXPECT_EQ(summary["failed"], 12 * 4);
  EXPECT_THAT(ran.err, HasSubstr("4/4 samples, 48 cells, "));
  // The plan says what the run does.
  ASSERT_EQ(unfit.size(), 1u) << unfit.dump();
  EXPECT_EQ(unfit[0]["status"], "failed");
  EXPECT_EQ(unfit[0]["cells"], 12 * 4);
  EXPECT_EQ(unfit, summary["reasons"]);
  EXPECT_THAT(unfit[0]["reason"].get<std::string>(), HasSubstr("--max-memory is"));
  // What nothing fits into is refused before anything is made, by the plan as by the run.
  for (const char* command : {"plan", "run"}) {
    const Outcome refused =
        Run({command, Path("mine.json"), "--db", Path("n.db"), "--max-memory", "1MiB"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("no sample fits"), HasSubstr("passkey"),
                                   HasSubstr("--max-memory is 1.0 MiB")));
    EXPECT_FALSE(FileExists(Path("n.db")));
  }
}

TEST_F(RunTest, TimesAreMeasuredOnce) {
  Write("mine.json",
        Config(R"("latency": {"contexts": [160], "repetitions": 1, "decode_steps": 2}, )",
               R"("random", {"method": "quest", "sweep": {"read.tokens": [48, 64]}})"));
  const Json summary = *ParseJson(RunInto("r.db", {"--json", "--limit", "1"}).out, "out");
  EXPECT_EQ(summary["latencies"], 5);
  const auto store = Open("r.db");
  int64_t measured = 0;
  for (const StoredCell& cell : CellsOf(*store)) {
    const Result<std::vector<LatencyRow>> rows = store->Latency(cell.id);
    ASSERT_TRUE(rows.ok());
    for (const LatencyRow& row : *rows) {
      EXPECT_EQ(cell.cell.task.name, "passkey");
      EXPECT_EQ(row.context_tokens, 160);
      EXPECT_GT(row.ttft_s, 0);
      ++measured;
    }
  }
  EXPECT_EQ(measured, 5);
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json", "--limit", "1"}).out, "out"))["latencies"], 0);
  // Compressed elsewhere they are other times, of other cells.
  Write("mine.json", Config(R"("latency": {"contexts": [160], "repetitions": 1, "decode_steps": 2},
                  "compress_at": ["prompt", "context"], )",
                            R"("random")"));
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json", "--limit", "1"}).out, "out"))["latencies"], 3);
  // Without room nothing is measured, and the reason is said.
  Write("mine.json", Config(R"("latency": {"contexts": [3500], "repetitions": 1}, )",
                            R"("random", "kivi_2bit")"));
  const Outcome tight = RunInto("t.db", {"--limit", "1", "--max-memory", "6MiB"});
  EXPECT_THAT(tight.err, AllOf(HasSubstr("latency: full"), HasSubstr("--max-memory is"),
                               HasSubstr("0 latency measurements, 1 failed")));
  Write("mine.json", Config(R"("latency": {"context": [160]}, )"));
  EXPECT_THAT(Run({"plan", Path("mine.json")}).err, HasSubstr("'contexts'"));
}

}  // namespace
}  // namespace kvgauge
