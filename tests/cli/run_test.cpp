// SPDX-License-Identifier: Apache-2.0
// plan and run as processes: wrong files, resuming after any end, shards, company, two writers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "reports/store.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;  // 128 + n: ended by signal n
  std::string out, err;
};

// Two layers and a thousand weights, drawn; the tokenizer is that of the reference model.
constexpr char kTinyModel[] = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1792, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false,
  "torch_dtype": "float32", "rope_theta": 10000.0, "rope_scaling": null, "bos_token_id": 1,
  "eos_token_id": 2})";

std::vector<StoredCell> CellsOf(ResultStore& store) {
  Result<std::vector<StoredCell>> cells = store.Cells();
  EXPECT_TRUE(cells.ok());
  return cells.ok() ? std::move(cells).value() : std::vector<StoredCell>();
}
std::vector<ScoreRow> ScoresOf(ResultStore& store, const StoredCell& cell) {
  Result<std::vector<ScoreRow>> scores = store.Scores(cell.id);
  EXPECT_TRUE(scores.ok());
  return scores.ok() ? std::move(scores).value() : std::vector<ScoreRow>();
}
SampleRow FirstOf(ResultStore& store, const StoredCell& cell) {
  const std::vector<ScoreRow> scores = ScoresOf(store, cell);
  if (scores.empty()) {
    ADD_FAILURE() << "no samples of " << cell.cell.method.name;
    return {};
  }
  return **store.Read(cell.id, scores[0].sample_id);
}

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_run_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    Write("config.json", kTinyModel);
    for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
      std::filesystem::copy_file(StrCat(KVG_SOURCE_DIR, "/models/ref-gqa/", file), Path(file));
    }
    Write("mine.json", Config());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
  }

  // A run of a second or less; `keys` come in addition.
  std::string Config(const std::string& keys = "", const std::string& methods = R"(
      "random", "streaming_llm", "h2o", {"method": "snapkv", "overrides": {"protect.recent": 4}},
      {"method": "kivi_2bit"}, {"method": "quest", "overrides": {"read.dense_layers": 0},
                                "sweep": {"read.tokens": [48, 64]}})") const {
    return StrCat(R"({"models": [{"path": ")", Path("config.json"),
                  R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 8, "source": {"lengths": "320"},
                 "max_new_tokens": 6},
                {"task": "shared_context/multi_request", "samples": 4,
                 "source": {"lengths": "400"}, "max_new_tokens": 4}],
      "budgets": ["25%", "50%"], )",
                  keys, R"("methods": [)", methods, "]}");
  }

  pid_t Start(const std::vector<std::string>& arguments) const {
    const pid_t child = fork();
    if (child != 0) return child;
    const auto redirect = [&](const char* name, int to) {
      const int file = open(Path(name).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
      dup2(file, to);
    };
    redirect("out", STDOUT_FILENO);
    redirect("err", STDERR_FILENO);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    std::vector<std::string> words = {KVG_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(KVG_PROGRAM, argv.data());
    _exit(127);
  }
  Outcome Wait(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = *ReadFile(Path("out")),
            .err = *ReadFile(Path("err"))};
  }
  Outcome Run(const std::vector<std::string>& arguments) const { return Wait(Start(arguments)); }
  // Runs mine.json into a database and expects it to go well.
  Outcome RunInto(const std::string& database, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"run", Path("mine.json"), "--db", Path(database)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }

  std::unique_ptr<ResultStore> Open(const std::string& database,
                                    StoreMode mode = StoreMode::kReadOnly) const {
    Result<std::unique_ptr<ResultStore>> store = ResultStore::Open(Path(database), mode);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? std::move(store).value() : nullptr;
  }
  std::string Digest(const std::string& database) const {
    const Result<std::string> digest = Open(database)->ResultDigest();
    EXPECT_TRUE(digest.ok());
    return digest.ok() ? *digest : "";
  }
  int64_t Samples(const std::string& database) const {
    const auto store = Open(database);
    int64_t count = 0;
    for (const StoredCell& cell : CellsOf(*store)) count += std::ssize(ScoresOf(*store, cell));
    return count;
  }
  // Whether something was recorded already.
  bool HasSamples(const std::string& database) const {
    if (!FileExists(Path(database))) return false;
    Result<std::unique_ptr<ResultStore>> store =
        ResultStore::Open(Path(database), StoreMode::kReadOnly);
    if (!store.ok()) return false;
    const auto cells = (*store)->Cells();
    if (!cells.ok()) return false;
    return std::any_of(cells->begin(), cells->end(), [&](const StoredCell& cell) {
      const auto scores = (*store)->Scores(cell.id);
      return scores.ok() && !scores->empty();
    });
  }

  std::string directory_;
};

TEST_F(RunTest, ConfigErrorsNameTheRightOne) {
  struct Case {
    std::string text;
    std::vector<std::string> says;
  };
  const std::string model =
      StrCat(R"("models": [{"path": ")", Path("config.json"), R"(", "weights": "random:5"}])");
  const std::string rest = R"("tasks": ["passkey"], "methods": ["random"], "budgets": ["20%"])";
  const std::vector<Case> cases = {
      {"{", {"mine.json"}},
      {"[]", {"mine.json: expected a JSON object"}},
      {StrCat("{", R"("modles": [], )", rest, "}"),
       {"mine.json: unknown key", "modles", "'models'"}},
      {StrCat("{", rest, "}"), {"mine.json.models: missing"}},
      {StrCat(R"({"models": ["nowhere"], )", rest, "}"), {"models[0]", "nowhere", "config.json"}},
      {StrCat(R"({"models": [{"path": ")", Path("config.json"), R"(", "dtpye": "f32"}], )", rest,
              "}"),
       {"models[0]: unknown key", "dtpye", "'dtype'"}},
      {StrCat(R"({"models": [{"path": ")", Path("config.json"), R"(", "dtype": "f23"}], )", rest,
              "}"),
       {"models[0]", "f23", "f32"}},
      {StrCat("{", model, R"(, "tasks": ["paskey"], "methods": ["full"]})"),
       {"tasks[0]: unknown task", "paskey", "'passkey'"}},
      {StrCat("{", model, R"(, "tasks": [{"task": "passkey", "source": {"lenghts": "9"}}],
              "methods": ["full"]})"),
       {"tasks[0]", "lenghts", "'lengths'"}},
      {StrCat("{", model, R"(, "tasks": ["passkey", "passkey"], "methods": ["full"]})"),
       {"tasks", "passkey", "twice", "name"}},
      {StrCat("{", model, R"(, "tasks": ["passkey"], "methods": ["snapvk"]})"),
       {"methods[0]: unknown method", "snapvk", "'snapkv'"}},
      {StrCat("{", model, R"(, "tasks": ["passkey"], "methods": ["snapkv"]})"),
       {"methods[0]", "needs a budget", "10%"}},
      {StrCat("{", model, R"(, "tasks": ["passkey"],
              "methods": [{"method": "kivi_2bit", "budgets": ["20%"]}]})"),
       {"methods[0].budgets", "takes no budget"}},
      {StrCat("{", model, R"(, "tasks": ["passkey"], "budgets": ["120%"], "methods": ["h2o"]})"),
       {"budgets", "120%"}},
      {StrCat("{", model, R"(, "tasks": ["passkey"], "budgets": ["20%"],
              "methods": [{"method": "snapkv", "sweep": {"score.windw": [8]}}]})"),
       {"methods[0]", "windw", "'window'"}},
      {StrCat("{", model, R"(, "tasks": ["passkey"], "budgets": ["20%"],
              "methods": [{"method": "snapkv", "sweep": {"score.window": 8}}]})"),
       {"sweep.score.window", "list of values"}},
      {StrCat("{", model, R"(, "compress_at": ["promt"], )", rest, "}"),
       {"compress_at", "promt", "'prompt'"}},
      {StrCat("{", model, R"(, "seeds": [-1], )", rest, "}"), {"seeds", "-1", "whole numbers"}},
      {StrCat("{", model, R"(, "samples": 0, )", rest, "}"), {"samples", "from 1"}},
      {StrCat("{", model, R"(, "max_memory": "8GB", )", rest, "}"), {"max_memory", "8GB", "8GiB"}},
      {StrCat("{", model, R"(, "tasks": ["perplexity/wikitext2_2048"], "methods": ["full"]})"),
       {"perplexity/wikitext2_2048", "perplexity", "fidelity_steps"}},
      {StrCat("{", model, R"(, "tasks": ["longbench/qasper"], "methods": ["full"]})"),
       {"longbench/qasper", "KVGAUGE_DATA"}},
  };
  unsetenv("KVGAUGE_DATA");
  for (const Case& wrong : cases) {
    Write("mine.json", wrong.text);
    const Outcome outcome = Run({"run", Path("mine.json"), "--db", Path("r.db")});
    EXPECT_EQ(outcome.exit_code, 2) << wrong.text << outcome.err;
    for (const std::string& part : wrong.says) {
      EXPECT_THAT(outcome.err, HasSubstr(part)) << wrong.text;
    }
    EXPECT_FALSE(FileExists(Path("r.db"))) << wrong.text;
  }
  EXPECT_THAT(Run({"plan", "quikstart"}).err, HasSubstr("'quickstart'"));
  Write("mine.json", Config());
  EXPECT_THAT(Run({"plan", Path("mine.json"), "--only", "snapk"}).err, HasSubstr("'snapkv'"));
  EXPECT_THAT(Run({"plan", Path("mine.json"), "--shard", "5/4"}).err, HasSubstr("1/4"));
  EXPECT_THAT(Run({"plan", Path("mine.json"), "--samples", "3-1"}).err, HasSubstr("0-9,17"));
}

// Times are those of the machine.
std::string WithoutTimes(std::string text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool clock = std::isdigit(static_cast<unsigned char>(text[i])) && i + 3 < text.size() &&
                       text[i + 1] == ':';
    if (!clock) {
      out += text[i];
      continue;
    }
    out += "T";
    i += 3;
  }
  return out;
}

TEST_F(RunTest, PlanIsAsApproved) {
  Write("mine.json", Config(R"("compress_at": ["prompt", "context"], "seeds": [0, 7], )",
                            R"("snapkv", "palu", "mla_latent")"));
  const std::string got = WithoutTimes(
      Run({"plan", Path("mine.json"), "--db", "none.db", "--limit", "3", "--backend", "reference"})
          .out);
  const std::string path = StrCat(KVG_TEST_DATA, "/cli/plan/plan.txt");
  if (std::getenv("KVG_APPROVE") != nullptr) {
    std::ofstream(path, std::ios::binary) << got;
    return;
  }
  const Result<std::string> want = ReadFile(path);
  ASSERT_TRUE(want.ok()) << want.error().message << "; run scripts/approve";
  EXPECT_EQ(got, *want);
}

TEST_F(RunTest, RecordsWhatHappened) {
  const Outcome outcome = RunInto("r.db", {"--json"});
  const Json summary = *ParseJson(outcome.out, "out");
  const auto store = Open("r.db");
  const std::vector<StoredCell> cells = CellsOf(*store);
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
  }
  // Again: nothing to do, nothing changed, and no prefill.
  const std::string digest = Digest("r.db");
  const Json again = *ParseJson(RunInto("r.db", {"--json"}).out, "out");
  EXPECT_EQ(again["cells"], 0);
  EXPECT_EQ(again["prefills"], 0);
  EXPECT_EQ(Digest("r.db"), digest);
}

// KVG_RUN_KILLS: how many kills; the default takes seconds.
TEST_F(RunTest, KilledAnywhereItGoesOn) {
  const double start_s = NowSeconds();
  RunInto("whole.db");
  const double whole_s = NowSeconds() - start_s;
  const std::string want = Digest("whole.db");
  const char* given = std::getenv("KVG_RUN_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 20;
  Rng rng(1, 0);
  int killed = 0, round = 0;
  while (killed < kills) {
    const std::string database = StrCat("killed", round++, ".db");
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const pid_t child = Start({"run", Path("mine.json"), "--db", Path(database)});
      if (killed < kills) {
        std::this_thread::sleep_for(std::chrono::duration<double>(whole_s * rng.NextDouble()));
        kill(child, SIGKILL);
      }
      const Outcome outcome = Wait(child);
      if (outcome.exit_code == 0) break;
      ASSERT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.err;
      ++killed;
    }
    const auto store = Open(database, StoreMode::kReadWrite);
    EXPECT_TRUE(store->Check().ok());
    EXPECT_EQ(Digest(database), want);
  }
  EXPECT_GE(killed, kills);
}

TEST_F(RunTest, CtrlCFinishesTheSample) {
  Write("mine.json", Config(R"("samples": 400, )", R"("random", "snapkv", "h2o")"));
  std::string text = *ReadFile(Path("mine.json"));
  text.replace(text.find("\"samples\": 8"), 12, "\"samples\": 400");
  Write("mine.json", text);
  const std::vector<std::string> command = {"run", Path("mine.json"), "--db", Path("r.db")};
  const pid_t child = Start(command);
  while (!HasSamples("r.db")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(child, SIGINT);
  const Outcome outcome = Wait(child);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(outcome.err, HasSubstr("kvgauge run " + Path("mine.json")));
  const auto store = Open("r.db");
  const std::vector<EventRow> events = *store->Events((*store->Runs())[0].id);
  EXPECT_EQ(events.back().kind, "interrupted");
  EXPECT_EQ((*store->Runs())[0].run.finished_at, "");
  // Every sample that was begun is there for every row.
  std::vector<size_t> counts;
  for (const StoredCell& cell : CellsOf(*store)) counts.push_back(ScoresOf(*store, cell).size());
  ASSERT_FALSE(counts.empty());
  for (const size_t count : counts) EXPECT_EQ(count, counts[0]);
  EXPECT_GT(counts[0], 0u);
  EXPECT_LT(counts[0], 400u);
}

TEST_F(RunTest, ASecondCtrlCLeavesAtOnce) {
  Write("mine.json", Config(R"("samples": 400, )", R"("random", "snapkv", "h2o")"));
  std::string text = *ReadFile(Path("mine.json"));
  text.replace(text.find("\"max_new_tokens\": 6"), 19, "\"max_new_tokens\": 3000");
  Write("mine.json", text);
  const pid_t child = Start({"run", Path("mine.json"), "--db", Path("r.db"), "--limit", "2"});
  const auto started = [&] {
    const Result<std::string> said = ReadFile(Path("err"));
    return said.ok() && said->find("[1/") != std::string::npos;
  };
  while (!started()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double asked_s = NowSeconds();
  kill(child, SIGINT);
  EXPECT_EQ(Wait(child).exit_code, 130);
  EXPECT_LT(NowSeconds() - asked_s, 2.0);
  EXPECT_TRUE(Open("r.db", StoreMode::kReadWrite)->Check().ok());
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

TEST_F(RunTest, TwoWritersAtOnce) {
  RunInto("r.db", {"--limit", "1"});
  const auto holder = Open("r.db", StoreMode::kReadWrite);
  const Outcome outcome = Run({"run", Path("mine.json"), "--db", Path("r.db")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(Path("r.db")));
  EXPECT_EQ(Samples("r.db"), 24);
}

TEST_F(RunTest, PlacesThatCannotBeWritten) {
  Write("file", "x");
  for (const std::string& database : {Path("file/r.db"), directory_, Path("file")}) {
    const Outcome outcome = Run({"run", Path("mine.json"), "--db", database});
    EXPECT_TRUE(outcome.exit_code == 1 || outcome.exit_code == 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(database.substr(0, database.rfind("/r.db"))));
  }
  EXPECT_EQ(*ReadFile(Path("file")), "x");
}

// A limit on the size of files stands for a full disk.
TEST_F(RunTest, ADiskThatIsFull) {
  RunInto("whole.db");
  const auto whole_bytes = std::filesystem::file_size(Path("whole.db"));
  const std::string command =
      StrCat("trap '' XFSZ; ulimit -f ", whole_bytes / 512 / 2, "; exec '", KVG_PROGRAM, "' run '",
             Path("mine.json"), "' --db '", Path("r.db"), "' 2>'", Path("err"), "'");
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1) << *ReadFile(Path("err"));
  EXPECT_THAT(*ReadFile(Path("err")), HasSubstr(Path("r.db")));
  const int64_t before = Samples("r.db");
  EXPECT_LT(before, Samples("whole.db"));
  RunInto("r.db");
  EXPECT_EQ(Digest("r.db"), Digest("whole.db"));
}

// Prompts that a method cannot take are recorded with the reason; with room for them they are run.
TEST_F(RunTest, CellsThatCannotRunAreRecorded) {
  Write("mine.json", Config("", R"("random", {"method": "snapkv", "budgets": ["5%"]})"));
  const Json summary = *ParseJson(RunInto("r.db", {"--json"}).out, "out");
  EXPECT_EQ(summary["skipped"], 8 + 4);
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    if (cell.cell.method.name != "snapkv") continue;
    const SampleRow row = FirstOf(*store, cell);
    EXPECT_EQ(row.status, SampleStatus::kSkipped);
    EXPECT_THAT(row.reason, HasSubstr("protected"));
  }
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json"}).out, "out"))["skipped"], 0);
  EXPECT_EQ((*ParseJson(RunInto("r.db", {"--json", "--retry"}).out, "out"))["skipped"], 8 + 4);
}

TEST_F(RunTest, MemoryIsBounded) {
  const Outcome outcome = RunInto("r.db", {"--max-memory", "1MiB", "--json"});
  const Json summary = *ParseJson(outcome.out, "out");
  EXPECT_EQ(summary["failed"], 12 * (8 + 4));
  const auto store = Open("r.db");
  EXPECT_THAT(FirstOf(*store, CellsOf(*store)[0]).reason, HasSubstr("--max-memory"));
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
  Write("mine.json", Config(R"("latency": {"context": [160]}, )"));
  EXPECT_THAT(Run({"plan", Path("mine.json")}).err, HasSubstr("'contexts'"));
}

TEST_F(RunTest, ShippedFilesAreRead) {
  int count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/configs/runs"))) {
    const std::string name = file.path().stem().string();
    if (name == "longbench") continue;  // needs data
    const Outcome outcome = Run({"plan", name, "--limit", "1", "--db", Path("none.db")});
    EXPECT_EQ(outcome.exit_code, 0) << name << ": " << outcome.err;
    ++count;
  }
  EXPECT_GE(count, 6);
}

}  // namespace
}  // namespace kvgauge
