// SPDX-License-Identifier: Apache-2.0
// Commands as they are given on a machine with a device, from their arguments to what they print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "cuda/device/device_query.h"
#include "cuda/emulated/device_memory.h"
#include "cuda/many_rows.h"
#include "harness/cli.h"
#include "reports/store.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// A library that has no way to multiply anything.
class NoWays final : public cuda::ProductLibrary {
 public:
  NoWays() { cuda::emulated::SetProductLibrary(this); }
  ~NoWays() override { cuda::emulated::SetProductLibrary(nullptr); }
  std::string name() const override { return "stand-in 2"; }
  std::span<const int64_t> blocks() const override {
    static constexpr int64_t kBlocks[] = {96};
    return kBlocks;
  }
  std::vector<Way> Ways(const cuda::BlockProduct&) override { return {}; }
  std::string Describe(const Way&) const override { return ""; }
  bool Multiply(const cuda::BlockProduct&, const Way&, const void*, const void*, bool, float*,
                cuda::Stream) override {
    return false;
  }
};

class DeviceCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_device_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    Write("config.json", TinyConfig("gqa"));
  }
  ~DeviceCommands() override {
    cuda::emulated::SetAsked(nullptr);
    cuda::emulated::SetDevices(1);
    cuda::emulated::SetCapacity(kAll);
    std::filesystem::remove_all(directory_);
  }

  struct Outcome {
    int exit_code;
    std::string out, err;
  };
  static Outcome Run(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv = {"kvgauge"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunCommandLine(static_cast<int>(argv.size()), argv.data(), {"test", ""});
    std::string out = ::testing::internal::GetCapturedStdout();
    return {code, std::move(out), ::testing::internal::GetCapturedStderr()};
  }
  // Null where it failed.
  static Json RunForJson(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--backend", "cuda", "--json"});
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    if (outcome.exit_code != 0) return {};
    Result<Json> json = ParseJson(outcome.out, "output");
    EXPECT_TRUE(json.ok()) << outcome.out;
    return json.ok() ? *json : Json();
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  static constexpr int64_t kAll = int64_t{4} << 30;

 private:
  std::string directory_;
};

TEST_F(DeviceCommands, BenchRunner) {
  Json json = RunForJson({"bench", "runner", "--model", Path("config.json"), "--dtype", "bf16",
                          "--prefill", "40", "--depth", "70", "--decode-steps", "2",
                          "--repetitions", "1", "--max-others", "1"});
  ASSERT_EQ(json["cells"].size(), 2u);
  for (const Json& cell : json["cells"]) {
    EXPECT_EQ(cell["variant"], "emulated");
    EXPECT_GT(cell["median_tokens_per_s"], 0);
  }
}

TEST_F(DeviceCommands, BenchLockstepFindsTheSameAnswersAloneAndTogether) {
  Json json = RunForJson({"bench",           "lockstep",
                          "--model",         Path("config.json"),
                          "--dtype",         "bf16",
                          "--rows",          "4",
                          "--methods",       "snapkv,streaming_llm,finch,snapkv_kivi",
                          "--budgets",       "0.6",
                          "--prompt-tokens", "100",
                          "--new-tokens",    "3",
                          "--samples",       "1",
                          "--repetitions",   "1"});
  ASSERT_EQ(json["cells"].size(), 1u);
  EXPECT_EQ(json["cells"][0]["identical"], true);
  EXPECT_EQ(json["variant"], "emulated");
}

TEST_F(DeviceCommands, BenchLatencyOfEveryKindOfMethod) {
  cuda::emulated::SetCapacity(int64_t{64} << 20);
  Json json =
      RunForJson({"bench", "latency", Path("config.json"), "--weights", "random:1", "--contexts",
                  "96", "--methods", "snapkv,h2o,streaming_llm,kivi_2bit,quest", "--budgets", "48",
                  "--decode-steps", "2", "--repetitions", "1", "--max-others", "1"});
  std::set<std::string> methods;
  double full_bytes = 0;
  for (const Json& cell : json["cells"]) {
    methods.insert(cell["method"].get<std::string>());
    if (cell["full_cache"]) full_bytes = cell["resident_bytes"];
    EXPECT_GT(cell["ttft_s"], 0);
    EXPECT_GT(cell["tpot_p50_s"], 0);
    EXPECT_GE(cell["peak_bytes"], cell["resident_bytes"]);
  }
  EXPECT_THAT(methods, ::testing::UnorderedElementsAre("full", "snapkv", "h2o", "streaming_llm",
                                                       "kivi_2bit", "quest"));
  EXPECT_GT(full_bytes, 0);
  EXPECT_TRUE(json["weights_read_s"].is_number());
}

// Requests are admitted by what the device has, if that is less than --max-memory, or without it.
TEST_F(DeviceCommands, BenchCapacityKeepsToTheDevice) {
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"bench",
                                          "capacity",
                                          Path("config.json"),
                                          "--weights",
                                          "random:1",
                                          "--methods",
                                          "full",
                                          "--batches",
                                          "4",
                                          "--prompt-tokens",
                                          "64..128",
                                          "--answer-tokens",
                                          "3",
                                          "--requests",
                                          "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Json json = RunForJson(arguments);
    return json.is_null() ? json : json["cases"][0];
  };
  const Json all = run({});
  EXPECT_EQ(all["served"], 4);
  const auto weights = all["weight_bytes"].get<int64_t>();
  const auto working = all["working_bytes"].get<int64_t>();
  const auto planned = all["planned_bytes"].get<int64_t>();

  cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes() + weights + working + planned / 2);
  const Json half = run({"--max-memory", "1GiB"});
  EXPECT_EQ(half["served"], 4) << half;
  EXPECT_LT(half["held"].get<int64_t>(), all["held"].get<int64_t>());

  cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes() + weights + working / 2);
  const Json none = run({});
  EXPECT_THAT(none["refused"].get<std::string>(), HasSubstr("full: the device has "));
  EXPECT_THAT(none["refused"].get<std::string>(), HasSubstr(", working memory "));
}

// Who multiplies, and what is switched off, moves times: such a case is another one.
TEST_F(DeviceCommands, BenchCapacityKnowsWhatMultiplied) {
  const auto recorded = [&] {
    const Json json = RunForJson({"bench", "capacity", Path("config.json"), "--weights", "random:1",
                                  "--methods", "full", "--batches", "2", "--prompt-tokens", "64",
                                  "--answer-tokens", "2", "--requests", "2", "--db", Path("c.db")});
    return json.is_null() || json["cases"][0].value("recorded", false);
  };
  const auto last_products = [&] {
    const auto store = *ResultStore::Open(Path("c.db"), StoreMode::kReadOnly);
    const std::vector<EventRow> events = *store->Events(store->Runs()->back().id);
    const auto found = std::ranges::find(events, "products", &EventRow::kind);
    return found == events.end() ? "" : found->message;
  };
  EXPECT_FALSE(recorded());
  EXPECT_EQ(last_products(), "");
  EXPECT_TRUE(recorded());
  for (const char* name : {"KVGAUGE_CUDA_GRAPHS", "KVGAUGE_CUDA_LIBRARY"}) {
    setenv(name, "off", 1);
    EXPECT_FALSE(recorded()) << name;
    EXPECT_TRUE(recorded()) << name;
    unsetenv(name);
  }
  const NoWays library;
  EXPECT_FALSE(recorded());
  EXPECT_THAT(last_products(), ::testing::StartsWith("stand-in 2: "));
  EXPECT_THAT(last_products(), HasSubstr(": 96 rows by our kernels: the library has no way"));
  EXPECT_TRUE(recorded());
}

TEST_F(DeviceCommands, BenchesTellWhatWasPinnedForTheirProducts) {
  const NoWays library;
  const Json latency =
      RunForJson({"bench", "latency", Path("config.json"), "--weights", "random:1", "--contexts",
                  "96", "--methods", "full", "--decode-steps", "2", "--repetitions", "1"});
  ASSERT_FALSE(latency.is_null());
  EXPECT_THAT(latency["products"].get<std::string>(), HasSubstr("stand-in 2: f32 "));
  const Json drafts =
      RunForJson({"bench", "speculate", Path("config.json"), "--weights", "random:1", "--drafts",
                  "streaming_llm", "--budgets", "48", "--prompt-tokens", "96", "--answer-tokens",
                  "4", "--prompts", "1", "--repetitions", "1", "--db", Path("s.db")});
  ASSERT_FALSE(drafts.is_null());
  const auto store = *ResultStore::Open(Path("s.db"), StoreMode::kReadOnly);
  const std::vector<EventRow> events = *store->Events(store->Runs()->front().id);
  EXPECT_EQ(std::ranges::count(events, "products", &EventRow::kind), 1);
  const auto found = std::ranges::find(events, "products", &EventRow::kind);
  ASSERT_NE(found, events.end());
  EXPECT_EQ(found->message, latency["products"].get<std::string>());
}

TEST_F(DeviceCommands, RunRecordsItsCells) {
  Json config = *ParseJson(TinyConfig("gqa"), "config");
  config["vocab_size"] = 1792;  // of the tokenizer
  Write("config.json", config.dump());
  for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
    std::filesystem::copy_file(StrCat(KVG_SOURCE_DIR, "/models/ref-gqa/", file), Path(file));
  }
  Write("run.json", StrCat(R"({"models": [{"path": ")", Path("config.json"),
                           R"(", "name": "tiny", "weights": "random:5"}],
      "tasks": [{"task": "passkey", "samples": 1, "source": {"lengths": "128"},
                 "max_new_tokens": 4}],
      "methods": ["snapkv", "h2o", "kivi_2bit"], "budgets": ["50%"], "backend": "cuda"})"));
  const NoWays library;
  const Outcome run = Run({"run", Path("run.json"), "--db", Path("run.db"), "--quiet"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  const auto store = ResultStore::Open(Path("run.db"), StoreMode::kReadOnly);
  ASSERT_TRUE(store.ok()) << store.error().message;
  const auto cells = (*store)->Cells();
  ASSERT_TRUE(cells.ok());
  EXPECT_EQ(cells->size(), 4u);  // the full cache is always among them
  for (const StoredCell& cell : *cells) {
    EXPECT_EQ((*store)->Scores(cell.id)->size(), 1u) << cell.cell.method.name;
  }
  // What was pinned for its products is on record, too.
  const StoredRun recorded = (*store)->Runs()->front();
  EXPECT_THAT(recorded.run.machine.facts, HasSubstr(R"("many_rows_by":"stand-in 2")"));
  const std::vector<EventRow> events = *(*store)->Events(recorded.id);
  const auto found = std::ranges::find(events, "products", &EventRow::kind);
  ASSERT_NE(found, events.end());
  EXPECT_THAT(found->message, HasSubstr("stand-in 2: f32 "));
}

// Whatever is wrong with driver or device: doctor says what, the cpu goes on, and who asks for the
// device is told the same.
TEST_F(DeviceCommands, ADeviceThatCannotBeUsedIsSaid) {
  using Failed = cuda::DeviceQuery::Failed;
  struct Case {
    Failed failed;
    const char* error;
    int count;
    int driver, major;
    const char* said;
  };
  const Case cases[] = {
      {Failed::kVersion, "", 0, 0, 0, "no NVIDIA driver is installed"},
      {Failed::kVersion, "", 0, 12040, 0,
       "the NVIDIA driver is too old: it serves CUDA 12.4, this program was built with 13.0"},
      {Failed::kNone, "", 0, 13000, 0, "no usable device: none is present"},
      {Failed::kCount, "unknown error", 0, 13000, 0, "no usable device: unknown error"},
      {Failed::kProperties, "invalid device ordinal", 1, 13000, 0,
       "device 0 does not answer: invalid device ordinal"},
      {Failed::kNone, "", 1, 13000, 7,
       "device 0 (Card) has compute capability 7.5; 8.0 is the least this program is built for"},
      {Failed::kMemory, "out of memory", 1, 13000, 9,
       "device 0 (Card) has too little memory left to begin with: of 2.0 GiB nearly all is held by "
       "other programs (nvidia-smi names them)"},
      {Failed::kContext, "uncorrectable ECC error encountered", 1, 13000, 9,
       "device 0 (Card) cannot be used: uncorrectable ECC error encountered"}};
  Write("ids.json", "[5, 6, 7, 8]");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.said);
    cuda::DeviceQuery asked;
    asked.failed = c.failed;
    asked.error = c.error;
    asked.count = c.count;
    asked.info.name = "Card";
    asked.info.major = c.major;
    asked.info.minor = c.major == 7 ? 5 : 0;
    asked.info.driver_version = c.driver;
    asked.info.runtime_version = 13000;
    asked.info.total_bytes = int64_t{2} << 30;
    cuda::emulated::SetAsked(&asked);
    const Outcome doctor = Run({"doctor"});
    EXPECT_EQ(doctor.exit_code, kExitOk);
    EXPECT_THAT(doctor.out, HasSubstr(c.said));
    const auto logits = [&](const char* backend) {
      return Run({"logits", Path("config.json"), "--weights", "random:1", "--backend", backend,
                  "--ids-file", Path("ids.json"), "--out", Path("logits.npy")});
    };
    EXPECT_EQ(logits("cpu").exit_code, kExitOk);
    for (const Outcome& refused :
         {logits("cuda"), Run({"doctor", "--check", "cuda"}),
          Run({"bench", "kernels", "--backend", "cuda"}),
          Run({"bench", "latency", Path("config.json"), "--weights", "random:1", "--backend",
               "cuda", "--contexts", "32", "--methods", "snapkv", "--budgets", "8"})}) {
      EXPECT_EQ(refused.exit_code, kExitBadInput);
      EXPECT_THAT(refused.err, HasSubstr(StrCat("cuda: ", c.said)));
    }
  }
}

// A switch that nobody would obey is said, and not taken for one that is on.
TEST_F(DeviceCommands, AWrongSwitchIsSaid) {
  for (const char* name :
       {"KVGAUGE_CUDA_LIBRARY", "KVGAUGE_CUDA_WARPGROUPS", "KVGAUGE_CUDA_GRAPHS"}) {
    const std::string said = StrCat(name, " is 'OFF', expected off or on");
    setenv(name, "OFF", 1);
    const Outcome doctor = Run({"doctor"}), check = Run({"doctor", "--check", "cuda"});
    setenv(name, "on", 1);
    const Outcome on = Run({"doctor"});
    unsetenv(name);
    EXPECT_EQ(doctor.exit_code, kExitOk);
    EXPECT_THAT(doctor.out, HasSubstr(said));
    EXPECT_EQ(check.exit_code, kExitBadInput);
    EXPECT_THAT(check.err, HasSubstr(StrCat("cuda: ", said)));
    EXPECT_THAT(on.out, HasSubstr("emulated device, sm_90, "));
  }
}

TEST_F(DeviceCommands, DoctorSaysWhatTheDeviceIs) {
  const Outcome doctor = Run({"doctor"});
  EXPECT_EQ(doctor.exit_code, kExitOk);
  EXPECT_THAT(doctor.out, HasSubstr("cuda:0 "));
  EXPECT_THAT(doctor.out, HasSubstr("emulated device, sm_90, "));
  EXPECT_THAT(doctor.out, HasSubstr(" free, driver for CUDA 13.0; products of many rows by our "
                                    "kernels (the emulated device has no vendor)"));
}

TEST_F(DeviceCommands, DoctorListsEveryDevice) {
  cuda::emulated::SetDevices(3);
  cuda::emulated::SetCapability(1, 7, 5);
  cuda::emulated::SetCapacity(int64_t{1} << 30, 2);
  const Outcome doctor = Run({"doctor", "--json"});
  cuda::emulated::SetCapability(1, 9, 0);
  cuda::emulated::SetCapacity(kAll, 2);
  ASSERT_EQ(doctor.exit_code, kExitOk) << doctor.err;
  Json json = *ParseJson(doctor.out, "doctor");
  std::vector<std::string> lines;
  for (const Json& backend : json["backends"]) {
    lines.push_back(StrCat(
        backend["name"].get<std::string>(),
        backend["available"].get<bool>() ? ": " : " not: ", backend["detail"].get<std::string>()));
  }
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[1], HasSubstr("cuda:0: emulated device, sm_90"));
  EXPECT_THAT(lines[1], HasSubstr("products of many rows"));
  EXPECT_EQ(lines[2],
            "cuda:1 not: device 1 (emulated device) has compute capability 7.5; 8.0 is "
            "the least this program is built for");
  EXPECT_EQ(lines[3],
            "cuda:2: emulated device, sm_90, 1.0 GiB of 1.0 GiB free, driver for CUDA "
            "13.0");
}

// The backend's name chooses the device; what it computes there is the same.
TEST_F(DeviceCommands, ADeviceIsChosenByItsNumber) {
  cuda::emulated::SetDevices(2);
  Write("ids.json", "[5, 6, 7, 8]");
  const auto logits = [&](const std::string& backend) {
    return Run({"logits", Path("config.json"), "--weights", "random:1", "--backend", backend,
                "--ids-file", Path("ids.json"), "--out", Path(backend + ".npy")});
  };
  ASSERT_EQ(logits("cuda").exit_code, kExitOk);
  EXPECT_EQ(cuda::CurrentDevice(), 0);
  ASSERT_EQ(logits("cuda:1").exit_code, kExitOk);
  EXPECT_EQ(cuda::CurrentDevice(), 1);
  EXPECT_EQ(*ReadFile(Path("cuda.npy")), *ReadFile(Path("cuda:1.npy")));
  // Full is the one that was chosen, not the first.
  cuda::emulated::SetCapacity(10'000, 1);
  EXPECT_THAT(logits("cuda:1").err, HasSubstr("memory"));
  EXPECT_EQ(logits("cuda:0").exit_code, kExitOk);
  cuda::emulated::SetCapacity(kAll, 1);
  struct Wrong {
    const char *backend, *said;
  };
  for (const Wrong& wrong :
       {Wrong{"cuda:2", "cuda: device 2 does not exist: there are 2, devices 0 to 1"},
        Wrong{"cuda:x", "backend 'cuda:x': expected a device's number from 0 after the colon"},
        Wrong{"cuda:", "backend 'cuda:': expected a device's number"},
        Wrong{"cuda:-1", "backend 'cuda:-1': expected a device's number"}}) {
    const Outcome outcome = logits(wrong.backend);
    EXPECT_EQ(outcome.exit_code, kExitBadInput) << wrong.backend;
    EXPECT_THAT(outcome.err, HasSubstr(wrong.said));
  }
  cuda::emulated::SetDevices(1);
  EXPECT_THAT(logits("cuda:1").err, HasSubstr("device 1 does not exist: there is one, device 0"));
  setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  EXPECT_THAT(logits("cuda:1").err, HasSubstr("there is one, device 0 (CUDA_VISIBLE_DEVICES=3)"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

// A device that is full is a message and an exit code, whatever the command was doing.
TEST_F(DeviceCommands, AFullDeviceIsSaid) {
  Write("ids.json", "[5, 6, 7, 8, 9, 10, 11, 12]");
  const auto logits = [&] {
    return Run({"logits", Path("config.json"), "--weights", "random:1", "--backend", "cuda",
                "--ids-file", Path("ids.json"), "--out", Path("logits.npy")});
  };
  const Outcome roomy = logits();
  ASSERT_EQ(roomy.exit_code, kExitOk) << roomy.err;
  // No room for weights; for weights and nothing else; for all but the last of what is taken.
  int failed = 0;
  for (const int64_t left : {10'000, 100'000, 330'000, 700'000, 1'400'000}) {
    cuda::emulated::SetCapacity(cuda::emulated::AllocatedBytes() + left);
    const Outcome outcome = logits();
    cuda::emulated::SetCapacity(kAll);
    if (outcome.exit_code == kExitOk) continue;
    ++failed;
    EXPECT_EQ(outcome.exit_code, kExitFailure);
    EXPECT_THAT(outcome.err, HasSubstr("memory")) << left;
  }
  EXPECT_GE(failed, 3);
}

}  // namespace
}  // namespace kvgauge
