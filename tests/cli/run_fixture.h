// SPDX-License-Identifier: Apache-2.0
// plan and run as processes on a model of two layers, in a directory of the test's own.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/program.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/store.h"

namespace kvgauge {

// Two layers and a thousand weights, drawn; the tokenizer is that of the reference model.
inline constexpr char kTinyModel[] =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1792, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false,
  "torch_dtype": "float32", "rope_theta": 10000.0, "rope_scaling": null, "bos_token_id": 1,
  "eos_token_id": 2})";

inline std::vector<StoredCell> CellsOf(ResultStore& store) {
  Result<std::vector<StoredCell>> cells = store.Cells();
  EXPECT_TRUE(cells.ok());
  return cells.ok() ? std::move(cells).value() : std::vector<StoredCell>();
}
inline std::vector<ScoreRow> ScoresOf(ResultStore& store, const StoredCell& cell) {
  Result<std::vector<ScoreRow>> scores = store.Scores(cell.id);
  EXPECT_TRUE(scores.ok());
  return scores.ok() ? std::move(scores).value() : std::vector<ScoreRow>();
}
inline SampleRow FirstOf(ResultStore& store, const StoredCell& cell) {
  const std::vector<ScoreRow> scores = ScoresOf(store, cell);
  if (scores.empty()) {
    ADD_FAILURE() << "no samples of " << cell.cell.method.name;
    return {};
  }
  return **store.Read(cell.id, scores[0].sample_id);
}

class RunTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    Write("config.json", kTinyModel);
    for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
      std::filesystem::copy_file(StrCat(KVG_SOURCE_DIR, "/models/ref-gqa/", file), Path(file));
    }
    Write("mine.json", Config());
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
  // Whether something comes to hold while the child runs, within two minutes. If not, the child has
  // ended.
  template <class Holds>
  bool WaitUntil(pid_t child, const Holds& holds) const {
    constexpr double kMostS = 120;
    const double begin_s = NowSeconds();
    while (!holds()) {
      const bool ended = waitpid(child, nullptr, WNOHANG) != 0;
      if (ended || NowSeconds() - begin_s > kMostS) {
        if (!ended) {
          kill(child, SIGKILL);
          waitpid(child, nullptr, 0);
        }
        ADD_FAILURE() << (ended ? "it ended before: " : "it takes too long: ")
                      << *ReadFile(Path("err"));
        return false;
      }
      usleep(20'000);
    }
    return true;
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
};

}  // namespace kvgauge
