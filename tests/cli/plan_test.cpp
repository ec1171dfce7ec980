// SPDX-License-Identifier: Apache-2.0
// Run files and what is said of them: errors, the plan, progress, shipped and recorded ones.
#include <pty.h>

#include <cctype>

#include "cli/run_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
      {StrCat(R"({"models": ["models/ref-gqq"], )", rest, "}"),
       {"models[0]", "ref-gqq", "did you mean 'models/ref-gqa'?"}},
      {StrCat(R"({"models": [{"path": ")", Path("confg.json"), R"("}], )", rest, "}"),
       {"models[0]", Path("config.json")}},
      {StrCat("{", model, R"(, "tasks": [{"task": "ruler/vt", "source": {"lengths": "20"}}],
              "methods": ["full"]})"),
       {"mine.json: task 'ruler/vt': ", "lengths: 20 less"}},
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
      {StrCat("{", model, R"(, "name": "../x", "tasks": ["passkey"], "methods": ["full"]})"),
       {"name: '\"../x\"', expected a file's name, without '/'"}},
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
      {StrCat("{", model, R"(, "compress_at": "chunk", "chunk_tokens": 0, )", rest, "}"),
       {"mine.json.chunk_tokens", "0", "1"}},
      {StrCat("{", model, R"(, "compress_at": "chunk", "chunk_tokens": -64, )", rest, "}"),
       {"mine.json.chunk_tokens", "-64", "1"}},
      {StrCat("{", model, R"(, "compress_at": "prompt", "chunk_tokens": 64, )", rest, "}"),
       {"mine.json.chunk_tokens", "expected \"chunk\" in", "compress_at"}},
      {StrCat("{", model, R"(, "seeds": [-1], )", rest, "}"), {"seeds", "-1", "whole numbers"}},
      {StrCat("{", model, R"(, "samples": 0, )", rest, "}"), {"samples", "from 1"}},
      {StrCat("{", model, R"(, "max_memory": "8GB", )", rest, "}"), {"max_memory", "8GB", "8GiB"}},
      {StrCat("{", model, R"(, "tasks": ["perplexity/wikitext2_2048"], "methods": ["full"]})"),
       {"perplexity/wikitext2_2048", "KVGAUGE_DATA"}},
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
  const Outcome beyond = Run({"run", Path("mine.json"), "--db", Path("r.db"), "--samples", "500"});
  EXPECT_EQ(beyond.exit_code, 2);
  EXPECT_THAT(beyond.err, HasSubstr("the largest has 8, expected positions from 0 to 7"));
  EXPECT_FALSE(FileExists(Path("r.db")));
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

TEST_F(RunTest, PlanTellsTimesAndWhatCannotRun) {
  Write("mine.json",
        Config(R"("latency": {"contexts": [160, 320], "repetitions": 3, "decode_steps": 2}, )",
               R"("random", {"method": "snapkv", "budgets": ["5%"]})"));
  const std::vector<std::string> plan = {"plan", Path("mine.json"), "--json", "--db", Path("r.db")};
  Json planned = *ParseJson(Run(plan).out, "out");
  ASSERT_EQ(planned["latency"].size(), 1u);
  // Three rows besides the full cache, two lengths, three rounds, each with the full cache.
  EXPECT_EQ(planned["latency"][0]["measurements"], 2 * 3 * (3 + 1));
  EXPECT_EQ(planned["latency"][0]["longest_prompt"], 320);
  EXPECT_GT(planned["latency"][0]["seconds"], 0);
  ASSERT_EQ(planned["groups"][0]["unfit"].size(), 1u);
  EXPECT_EQ(planned["groups"][0]["unfit"][0]["status"], "skipped");
  EXPECT_EQ(planned["groups"][0]["unfit"][0]["cells"], 8);
  EXPECT_THAT(
      Run({"plan", Path("mine.json"), "--db", Path("r.db")}).out,
      AllOf(HasSubstr("(latency)"), HasSubstr("seed 0: 8 skipped: "), HasSubstr("protected")));
  // A shard that measures no times plans none.
  EXPECT_EQ((*ParseJson(Run({"plan", Path("mine.json"), "--json", "--shard", "2/2"}).out,
                        "out"))["latency"]
                .size(),
            0u);
  RunInto("r.db");
  planned = *ParseJson(Run(plan).out, "out");
  // A row that cannot be measured stays to be measured, beside the full cache.
  EXPECT_GE(planned["latency"][0]["done"], 2 * 3 * 3);
  EXPECT_EQ(planned["groups"][0]["unfit"].size(), 0u);
}

// A shard counts its own samples; latencies are numbered on and count themselves.
TEST_F(RunTest, ProgressCountsWhatThisCallRuns) {
  Write("mine.json",
        Config(R"("latency": {"contexts": [160], "repetitions": 1, "decode_steps": 2}, )",
               R"("random")"));
  const std::string part = RunInto("p.db", {"--shard", "1/4"}).err;
  EXPECT_THAT(part,
              AllOf(HasSubstr("[1/3] tiny, passkey, prompt, seed 0: 3 rows, 2 samples\n"),
                    HasSubstr(": 2/2 samples, 6 cells, "), HasSubstr("1/1 sample, 3 cells"),
                    HasSubstr("[3/3] tiny, latency, compressed at prompt: 3/3 measurements")));
  EXPECT_THAT(part, Not(HasSubstr("recorded before")));
  const std::string whole = RunInto("p.db").err;
  EXPECT_THAT(whole, AllOf(HasSubstr("8/8 samples, 18 cells, 2 samples recorded before"),
                           HasSubstr("[3/3] tiny, latency, compressed at prompt: 0 meas")));
}

// Live lines keep to the terminal's width, and follow it.
TEST_F(RunTest, LiveLinesFitTheTerminal) {
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = 50;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    const std::string config = Path("mine.json"), database = Path("r.db");
    execl(KVG_PROGRAM, KVG_PROGRAM, "run", config.c_str(), "--db", database.c_str(), nullptr);
    _exit(127);
  }
  std::string said;
  char buffer[4096];
  for (ssize_t count = 1; count > 0;) {
    count = read(terminal, buffer, sizeof(buffer));
    if (count > 0) said.append(buffer, static_cast<size_t>(count));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << said;
  int lines = 0;
  for (const std::string& line : Split(said, '\r')) {
    if (!line.starts_with("[")) continue;
    ++lines;
    EXPECT_LT(line.size(), 50u) << line;
  }
  EXPECT_GE(lines, 2) << said;
}

TEST_F(RunTest, AModelMayStandInTheWorkingDirectory) {
  std::string text = Config();
  text.replace(text.find(Path("config.json")), Path("config.json").size(), "config.json");
  Write("mine.json", text);
  const Outcome outcome = RunProgram(directory_, "plan mine.json --limit 1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

// What the store holds of a run is the run again: the same cells, and nothing is left to do.
TEST_F(RunTest, ARecordedConfigurationRunsAgain) {
  Write("mine.json", Config(R"("latency": {"contexts": [160], "repetitions": 1, "decode_steps": 2},
                               "compress_at": ["prompt", "context"], "seeds": [3], )"));
  RunInto("r.db", {"--limit", "1"});
  const std::string recorded = (*Open("r.db")->Runs())[0].run.config;
  Write("mine.json", recorded);
  const Json again = *ParseJson(RunInto("r.db", {"--limit", "1", "--json"}).out, "out");
  EXPECT_EQ(again["cells"], 0);
  EXPECT_EQ(again["latencies"], 0);
  EXPECT_EQ((*Open("r.db")->Runs())[1].run.config, recorded);
  const std::vector<EventRow> events = *Open("r.db")->Events((*Open("r.db")->Runs())[1].id);
  EXPECT_EQ(events.at(0).kind, "environment");
  EXPECT_EQ(events.at(0).message, R"({"OMP_WAIT_POLICY":"passive"})");
  EXPECT_EQ(events.at(1).kind, "resumed");
}

TEST_F(RunTest, ShippedFilesAreRead) {
  int count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(StrCat(KVG_SOURCE_DIR, "/configs/runs"))) {
    const std::string name = file.path().stem().string();
    if (name == "longbench" || name == "reference_perplexity") continue;  // need data
    const Outcome outcome = Run({"plan", name, "--limit", "1", "--db", Path("none.db")});
    EXPECT_EQ(outcome.exit_code, 0) << name << ": " << outcome.err;
    ++count;
  }
  EXPECT_GE(count, 6);
}

// Layers that keep a state have no entries whose attention is captured.
TEST_F(RunTest, APlanCountsCapturesOfLayersThatHaveACache) {
  const auto least = [&](int layers, const char* method) {
    Write("config.json", StrCat(R"({"model_type": "bamba", "architectures": ["BambaForCausalLM"],
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": )",
                                layers, R"(, "attn_layer_indices": [1, 3],
      "num_attention_heads": 6, "num_key_value_heads": 2, "partial_rotary_factor": 1.0,
      "head_dim": 32, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2,
      "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true,
      "vocab_size": 1792, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
      "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32",
      "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})"));
    Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                              R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 1, "source": {"lengths": "600"},
                 "max_new_tokens": 6}],
      "budgets": ["25%"], "methods": [")",
                              method, R"("]})"));
    const Outcome planned = Run({"plan", Path("mine.json"), "--json"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    return (*ParseJson(planned.out, "out"))["least_memory_bytes"].get<int64_t>();
  };
  const auto captured = [&](int layers) { return least(layers, "h2o") - least(layers, "random"); };
  EXPECT_GT(captured(4), 0);
  EXPECT_EQ(captured(4), captured(8));
}

}  // namespace
}  // namespace kvgauge
