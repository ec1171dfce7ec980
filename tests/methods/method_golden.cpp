// SPDX-License-Identifier: Apache-2.0
// Methods against the oracles of scripts/goldens: tests/golden/methods holds a CASE.json for each
// case, which says what made it and how to ask for the same thing, and a CASE.safetensors with what
// to expect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "golden_overrides.h"
#include "methods/method.h"
#include "runner/compressor.h"
#include "runner/engine.h"
#include "runner/generate.h"
#include "runner/thin_prefill.h"
#include "src/cli/commands.h"
#include "src/model/method_flags.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/test_ops.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

const std::string kDirectory = std::string(KVG_TEST_DATA) + "/golden/methods/";

Json ReadOrStop(const std::string& path) {
  Result<Json> json = ReadJsonFile(path);
  if (!json.ok()) {
    ADD_FAILURE() << json.error().message;
    std::abort();
  }
  return std::move(json).value();
}

// By name, which is the file's.
const std::map<std::string, Json>& AllCases() {
  static const std::map<std::string, Json> cases = [] {
    std::map<std::string, Json> all;
    for (const auto& file : std::filesystem::directory_iterator(kDirectory)) {
      const std::filesystem::path& path = file.path();
      if (path.extension() == ".json") all.emplace(path.stem().string(), ReadOrStop(path.string()));
    }
    return all;
  }();
  return cases;
}

std::vector<std::string> CasesOf(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& [name, one] : AllCases()) {
    if (one.at("kind") == kind) names.push_back(name);
  }
  return names;
}

const Json& CaseNamed(const std::string& name) { return AllCases().at(name); }

std::string IdsOf(const Json& one) {
  return StrCat(kDirectory, "inputs/", one.value("ids", "ids"), ".json");
}

std::string MethodPath(const Json& one) {
  return StrCat(KVG_SOURCE_DIR, "/configs/methods/", one.at("method").get<std::string>(), ".json");
}

// Most cases are of one model; some name a golden checkpoint.
std::string CheckpointOf(const Json& one) {
  if (!one.contains("checkpoint")) return kDirectory + "model";
  return StrCat(KVG_TEST_DATA, "/golden/models/", one.at("checkpoint").get<std::string>());
}

std::unique_ptr<WeightSource> Open(const std::string& path) {
  Result<std::unique_ptr<WeightSource>> source = OpenSafetensorsFile(path);
  if (!source.ok()) {
    ADD_FAILURE() << source.error().message;
    std::abort();
  }
  return std::move(source).value();
}

std::unique_ptr<WeightSource> Expected(const std::string& name) {
  return Open(StrCat(kDirectory, name, ".safetensors"));
}

double Largest(const std::vector<float>& values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

// Numbers that the oracle leaves open, as rounding may turn their codes, become what is held: few.
void LeaveOutUnsure(const std::vector<float>& held, std::vector<float>& want) {
  ASSERT_EQ(held.size(), want.size());
  size_t open = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isnan(want[i])) continue;
    ++open;
    want[i] = held[i];
  }
  EXPECT_LE(100 * open, want.size());
}

struct Loaded {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  Method method;

  Loaded(const Json& one, const std::string& backend) {
    Result<Method> loaded = LoadMethod(MethodPath(one), "", OverridesOf(one, kDirectory));
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    method = std::move(loaded).value();
    const Status attached = AttachCalibrations(method);
    EXPECT_TRUE(attached.ok()) << attached.error().message;
    Result<std::unique_ptr<Ops>> made = MakeOps(backend, MakeThreadSettings(1));
    EXPECT_TRUE(made.ok());
    ops = std::move(made).value();
    ModelOptions options;
    options.dtype = DType::kF32;
    Result<std::unique_ptr<Model>> read = Model::Load(CheckpointOf(one), options, *ops);
    EXPECT_TRUE(read.ok()) << read.error().message;
    model = std::move(read).value();
  }
};

struct Probed {
  std::unique_ptr<WeightSource> cache;
  std::vector<int32_t> decoded;
  Json record;
};

// What `kvgauge probe` notes under a name in the head of the file it writes.
Json NotedIn(const std::string& path, const char* name) {
  const Result<std::string> bytes = ReadFile(path);
  EXPECT_TRUE(bytes.ok());
  uint64_t length = 0;
  std::memcpy(&length, bytes->data(), sizeof(length));
  const Result<Json> head = ParseJson(bytes->substr(sizeof(length), length), path);
  EXPECT_TRUE(head.ok());
  const Result<Json> noted = ParseJson(head->at("__metadata__").at(name).get<std::string>(), path);
  EXPECT_TRUE(noted.ok());
  return *noted;
}

// Asks the probe command as the case says.
Probed Probe(const std::string& name, const std::string& model, const std::string& ids_file,
             const std::string& backend) {
  const Json& one = CaseNamed(name);
  const std::string out =
      StrCat(::testing::TempDir(), "kvg_golden_", name, backend, ".safetensors");
  ProbeOptions options;
  options.model = {.model = model, .dtype = "f32", .backend = backend};
  options.model.threads = 1;
  options.method = {.method = MethodPath(one),
                    .budget = one.at("budget").get<std::string>(),
                    .overrides = OverridesOf(one, kDirectory)};
  options.ids_file = ids_file;
  options.out = out;
  options.steps = one.at("steps").get<int64_t>();
  options.json = true;
  const Status status = RunProbe(options);
  EXPECT_TRUE(status.ok()) << status.error().message;
  Probed probed = {Open(out), NotedIn(out, "decoded").get<std::vector<int32_t>>(),
                   NotedIn(out, "record")};
  std::filesystem::remove(out);  // the map stays
  return probed;
}

class PromptGolden : public ::testing::TestWithParam<std::string> {};

// What the cache holds, where it stands, and what was decoded from it: equal positions, in order,
// and numbers within f32 rounding of the oracle's.
TEST_P(PromptGolden, TheCacheHoldsWhatTheOracleSays) {
  const Json& one = CaseNamed(GetParam());
  const std::unique_ptr<WeightSource> expected = Expected(GetParam());
  for (const char* backend : {"cpu", "reference"}) {
    const Probed probed = Probe(GetParam(), CheckpointOf(one), IdsOf(one), backend);
    const std::unique_ptr<WeightSource>& got = probed.cache;
    // What rounding allows, relative to the largest number.
    const double tolerance = one.value("tolerance", 2e-5);
    EXPECT_EQ(probed.decoded, one.at("decoded").get<std::vector<int32_t>>()) << backend;
    int64_t compared = 0;
    for (const std::string& name : expected->Names()) {
      if (name.starts_with("kept.")) {
        const std::vector<int32_t> want = ReadFixture<int32_t>(*expected, name, DType::kI32);
        EXPECT_EQ(ReadIds(*got, name), want) << name;
        ++compared;
      } else if (name.starts_with("k.") || name.starts_with("v.")) {
        std::vector<float> want = ReadFixture<float>(*expected, name, DType::kF32);
        const std::vector<float> held = ReadFixture<float>(*got, name, DType::kF32);
        LeaveOutUnsure(held, want);
        EXPECT_TRUE(AllWithin(held, want, tolerance * Largest(want))) << name << " of " << backend;
      } else if (name.starts_with("last_")) {
        // The newest entries alone, where older ones are the prompt's own. They hold the rounding
        // of every step before them.
        const std::vector<float> want = ReadFixture<float>(*expected, name, DType::kF32);
        std::vector<float> held = ReadFixture<float>(*got, name.substr(5), DType::kF32);
        ASSERT_GE(held.size(), want.size()) << name;
        held.erase(held.begin(), held.end() - std::ssize(want));
        EXPECT_TRUE(AllWithin(held, want, std::max(tolerance, 1e-4) * Largest(want)))
            << name << " of " << backend;
      } else if (name == "tiers") {
        // Bytes on the host at the end, and those that all steps fetched from there.
        const std::vector<int32_t> want = ReadFixture<int32_t>(*expected, name, DType::kI32);
        EXPECT_EQ(probed.record.at("final_host_bytes"), want[0]) << backend;
        const double steps = probed.record.at("steps").get<double>();
        EXPECT_NEAR(steps * probed.record.at("fetched_bytes_per_step").get<double>(), want[1], 0.5)
            << backend;
      } else {
        EXPECT_TRUE(name.starts_with("scores.") || name == "logits")
            << name << ": nothing compares it";
      }
    }
    const std::vector<std::string> held = got->Names();
    EXPECT_EQ(compared, std::count_if(held.begin(), held.end(), [](const std::string& name) {
                return name.starts_with("kept.");
              }));
    EXPECT_GE(compared, one.value("caches", 4))
        << "one for each KV head of each layer that has one";
  }
}

// Scores as every row's allocator and reducer get them.
TEST_P(PromptGolden, ScoresAreTheOracles) {
  const Json& one = CaseNamed(GetParam());
  const std::unique_ptr<WeightSource> expected = Expected(GetParam());
  if (!expected->Contains("scores.0")) return;
  const Loaded loaded(one, "cpu");
  const Prompt prompt = Prompt::FromTokens(ReadOrStop(IdsOf(one)).get<std::vector<int32_t>>());
  KvCache cache = loaded.model->NewCache(prompt.size());
  PrefillCapture capture(loaded.model->cache_config(), cache, loaded.method.needs(), prompt.size());
  const SequenceStep step = {.cache = &cache,
                             .prompt = &prompt,
                             .begin = 0,
                             .end = prompt.size(),
                             .logits = LogitRows::kNone,
                             .hook = &capture};
  ASSERT_TRUE(cache.Append(prompt.size()).ok());
  loaded.model->Forward({&step, 1});
  const Method* method = &loaded.method;
  const PromptScores scores =
      PromptScores::Compute(*loaded.model, {&cache, &capture, 0}, {&method, 1});
  const Result<std::span<const Tensor>> layers = scores.Of(loaded.method);
  ASSERT_TRUE(layers.ok()) << layers.error().message;
  for (size_t layer = 0; layer < layers->size(); ++layer) {
    const std::string name = StrCat("scores.", layer);
    const std::vector<float> want = ReadFixture<float>(*expected, name, DType::kF32);
    // The oracle's forced entries, the last ones, are left out.
    const Tensor& all = (*layers)[layer];
    const int64_t n = std::ssize(want) / all.shape[0];
    std::vector<float> got;
    for (int64_t h = 0; h < all.shape[0]; ++h) {
      const float* row = all.f32() + h * all.stride[0];
      got.insert(got.end(), row, row + n);
    }
    EXPECT_TRUE(AllWithin(got, want, 2e-5 * Largest(want) + 1e-8)) << name;
  }
}

// The logits of the prompt's last row are the oracle's, where a stage says how the prompt is read.
TEST_P(PromptGolden, LogitsAreTheOracles) {
  const Json& one = CaseNamed(GetParam());
  const std::unique_ptr<WeightSource> expected = Expected(GetParam());
  if (!expected->Contains("logits")) return;
  const std::vector<float> want = ReadFixture<float>(*expected, "logits", DType::kF32);
  for (const char* backend : {"cpu", "reference"}) {
    const Loaded loaded(one, backend);
    Model& model = *loaded.model;
    ASSERT_TRUE(loaded.method.thin.has_value());
    Prompt prompt = Prompt::FromTokens(ReadOrStop(IdsOf(one)).get<std::vector<int32_t>>());
    KvCache cache = model.NewCache(prompt.size());
    PrefillCapture capture(model.cache_config(), cache, loaded.method.needs(), prompt.size());
    ThinPrefill prefill(model, *loaded.method.thin, prompt, cache, capture, 0);
    std::vector<float> got;
    while (!prefill.done()) {
      const Result<Tensor> logits = prefill.Next();
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      if (prefill.done()) got = HostFloats(*loaded.ops, *logits);
    }
    EXPECT_TRUE(AllWithin(got, want, 1e-4)) << backend;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, PromptGolden, ::testing::ValuesIn(CasesOf("prompt")));

// Models whose own logits are held by tests/golden/models: the same tokens from the method's cache.
class ModelGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelGolden, DecodesAsTheModelsReferenceDoes) {
  const Json& one = CaseNamed(GetParam());
  const std::string model =
      StrCat(KVG_TEST_DATA, "/golden/models/", one.at("model").get<std::string>());
  const std::unique_ptr<WeightSource> expected = Open(model + "/expected.safetensors");
  std::vector<int32_t> want = ReadIds(*expected, "greedy");
  ASSERT_GE(std::ssize(want), one.at("steps").get<int64_t>());
  want.resize(one.at("steps").get<size_t>());
  const std::string ids = StrCat(::testing::TempDir(), "kvg_golden_", GetParam(), "_ids.json");
  ASSERT_TRUE(WriteFile(ids, Json(ReadIds(*expected, "ids")).dump()).ok());
  for (const char* backend : {"cpu", "reference"}) {
    EXPECT_EQ(Probe(GetParam(), model, ids, backend).decoded, want) << backend;
  }
  std::filesystem::remove(ids);
}

INSTANTIATE_TEST_SUITE_P(Methods, ModelGolden, ::testing::ValuesIn(CasesOf("model")));

// Runs of the prompt's tokens stand for pictures, in a sample of the engine.
EngineSample PicturedSample(const Json& one, const WeightSource& expected, int64_t hidden_size) {
  EngineSample sample;
  sample.id = "pictures";
  EngineTurn turn;
  turn.ids = ReadOrStop(IdsOf(one)).get<std::vector<int32_t>>();
  // The first token is the prompt's; the others follow from what the method left of it.
  turn.max_new_tokens = one.contains("decoded") ? std::ssize(one.at("decoded")) : 1;
  int64_t rows = 0;
  for (const Json& piece : one.at("spans")) {
    VisualSpan span;
    span.first = piece.at("first").get<int64_t>();
    span.count = piece.at("count").get<int64_t>();
    span.grid = piece.at("grid").get<std::array<int32_t, 3>>();
    span.index = piece.at("index").get<int32_t>();
    span.embedding_row = rows;
    rows += span.count;
    turn.spans.push_back(span);
  }
  // Where the question comes behind the pictures.
  const auto asked = one.value("context_tokens", int64_t{0});
  if (asked > 0) {
    sample.context.assign(turn.ids.begin(), turn.ids.begin() + asked);
    turn.ids.erase(turn.ids.begin(), turn.ids.begin() + asked);
    std::swap(sample.context_spans, turn.spans);
  }
  sample.turns = {turn};
  sample.visuals = VisualsOf(ReadFixture<float>(expected, "rows", DType::kF32), hidden_size);
  return sample;
}

class VisualGolden : public ::testing::TestWithParam<std::string> {};

// The entries that the authors' code keeps, and what it merges into them.
TEST_P(VisualGolden, TheCacheHoldsWhatTheAuthorsKeep) {
  const Json& one = CaseNamed(GetParam());
  const std::unique_ptr<WeightSource> expected = Expected(GetParam());
  for (const char* backend : {"cpu", "reference"}) {
    const Loaded loaded(one, backend);
    const EngineSample sample = PicturedSample(one, *expected, loaded.model->config().hidden_size);
    const Result<Budget> budget = Budget::Parse(one.at("budget").get<std::string>());
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    int64_t compared = 0;
    EngineOptions options;
    if (one.contains("context_tokens")) options.compress_at = CompressAt::kContext;
    if (one.contains("chunk_tokens")) {
      options.compress_at = CompressAt::kChunk;
      options.chunk_tokens = one.at("chunk_tokens").get<int64_t>();
    }
    options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
      for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
        for (int64_t head = 0; head < cache.kv_heads(); ++head) {
          const std::string at = StrCat(".", layer, ".", head);
          const std::vector<int32_t> want =
              ReadFixture<int32_t>(*expected, "kept" + at, DType::kI32);
          std::vector<int32_t> got = cache.Positions(layer, head);
          // Without what was decoded, where the case says nothing of it.
          got.resize(std::min(got.size(), want.size()));
          EXPECT_EQ(got, want) << at << " of " << backend;
          ++compared;
          if (!expected->Contains("k" + at)) continue;
          for (const char* side : {"k", "v"}) {
            const std::vector<float> rows = ReadFixture<float>(*expected, side + at, DType::kF32);
            const auto dim = std::ssize(rows) / std::ssize(want);
            std::vector<float> held(static_cast<size_t>(cache.length(layer, head) * dim));
            const Tensor out = View(held, {cache.length(layer, head), dim});
            side[0] == 'k' ? cache.ReadKeys(layer, head, 0, out)
                           : cache.ReadValues(layer, head, 0, out);
            held.resize(rows.size());
            EXPECT_TRUE(AllWithin(held, rows, one.value("tolerance", 2e-5) * Largest(rows)))
                << side << at << backend;
          }
        }
      }
    };
    const Contender contender = {
        .method = &loaded.method, .budget = *budget, .model = loaded.model.get()};
    Engine engine({contender}, options);
    const Status status = engine.Run({&sample, 1}, [&](const CellResult& result) {
      EXPECT_TRUE(result.status.ok()) << result.status.error().message;
      if (one.contains("decoded")) {
        EXPECT_EQ(result.turns[0].ids, one.at("decoded").get<std::vector<int32_t>>()) << backend;
      }
      return Status();
    });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(compared, loaded.model->shape().layers * loaded.model->shape().kv_heads);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, VisualGolden, ::testing::ValuesIn(CasesOf("visual")));

// The prompt's and later entries of the fixture in every layer, through the method's own store.
class CodedGolden : public ::testing::TestWithParam<std::string> {
 protected:
  struct Rows {
    std::vector<float> raw, keys, values;
  };

  void SetUp() override {
    const std::unique_ptr<WeightSource> rows = Open(kDirectory + "inputs/coded.safetensors");
    inputs_ = {ReadFixture<float>(*rows, "raw", DType::kF32),
               ReadFixture<float>(*rows, "keys", DType::kF32),
               ReadFixture<float>(*rows, "values", DType::kF32)};
    const Json shape = ReadOrStop(kDirectory + "inputs/coded.json");
    prompt_ = shape.at("prompt_tokens").get<int64_t>();
    total_ = prompt_ + shape.at("steps").get<int64_t>();
    head_ = shape.at("head").get<int64_t>();
  }

  // Entries [begin, end) of all heads: [end - begin, 2, 32].
  Tensor Slice(const std::vector<float>& rows, int64_t begin, int64_t end) const {
    Tensor slice = View(std::span<const float>(rows), {total_, 2, kDim});
    slice.stride[0] = kDim;
    slice.stride[1] = total_ * kDim;
    return slice.Slice(begin, end);
  }

  void Write(KvCache& cache, int64_t begin, int64_t end) const {
    ASSERT_TRUE(cache.Append(end - begin).ok());
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      const std::vector<float>& keys = cache.raw_keys(layer) ? inputs_.raw : inputs_.keys;
      cache.Write(layer, Slice(keys, begin, end), Slice(inputs_.values, begin, end));
    }
  }

  // Compressed after the prompt, then entry by entry.
  void Fill(const Loaded& loaded, KvCache& cache) const {
    Write(cache, 0, prompt_);
    Compressor compressor(*loaded.model, loaded.method, {});
    const Status status = compressor.Compress({&cache, nullptr, 0}, nullptr, cache);
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (int64_t at = prompt_; at < total_; ++at) {
      Write(cache, at, at + 1);
      ASSERT_TRUE(compressor.AfterStep().ok());
    }
  }

  std::vector<float> Read(const KvCache& cache, int64_t layer, bool keys) const {
    std::vector<float> rows(static_cast<size_t>(total_ * kDim));
    EXPECT_EQ(cache.length(layer, head_), total_);
    if (keys) {
      cache.ReadKeys(layer, head_, 0, View(rows, {total_, kDim}));
    } else {
      cache.ReadValues(layer, head_, 0, View(rows, {total_, kDim}));
    }
    return rows;
  }

  static constexpr int64_t kDim = 32;
  Rows inputs_;
  int64_t prompt_ = 0, total_ = 0, head_ = 0;
};

TEST_P(CodedGolden, ReadsBackWhatTheOracleSays) {
  const Json& one = CaseNamed(GetParam());
  for (const char* backend : {"cpu", "reference"}) {
    const Loaded loaded(one, backend);
    KvCache cache = loaded.model->NewCache(total_);
    Fill(loaded, cache);
    for (const char* side : {"k", "v"}) {
      const bool keys = side[0] == 'k';
      for (const int64_t layer : {int64_t{0}, cache.layer_count() - 1}) {
        const std::vector<float> got = Read(cache, layer, keys);
        if (one.contains("best_error")) {
          // The correction begins from random numbers, so it is held to what is possible.
          const std::vector<float>& all = keys ? inputs_.keys : inputs_.values;
          double sum = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            const double error = double{got[i]} - all[static_cast<size_t>(head_) * got.size() + i];
            sum += error * error;
          }
          const double best = one.at("best_error").at(side).get<double>();
          EXPECT_LE(std::sqrt(sum), 1.03 * best) << side << " of " << backend;
          EXPECT_GE(std::sqrt(sum), 0.99 * best) << side << " of " << backend;
          continue;
        }
        const std::unique_ptr<WeightSource> expected = Expected(GetParam());
        const std::string of_layer = StrCat(side, ".", layer);  // where layers differ
        std::vector<float> want = ReadFixture<float>(
            *expected, expected->Contains(of_layer) ? of_layer : side, DType::kF32);
        LeaveOutUnsure(got, want);
        // Codes are equal; what is turned or multiplied afterwards rounds.
        EXPECT_TRUE(AllWithin(got, want, 2e-6 * Largest(want)))
            << side << " of layer " << layer << " of " << backend;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, CodedGolden, ::testing::ValuesIn(CasesOf("coded")));

TEST(MethodGolden, EveryCaseIsOfAKindThatIsCompared) {
  for (const auto& [name, one] : AllCases()) {
    const std::set<std::string> kinds = {"prompt", "coded",  "model", "see",
                                         "frames", "visual", "chunks"};
    EXPECT_TRUE(kinds.contains(one.at("kind").get<std::string>())) << name;
    EXPECT_FALSE(one.at("oracle").get<std::string>().empty()) << name;
    EXPECT_TRUE(one.at("made_by").contains("versions")) << name;
  }
}

// A method is experimental exactly where nothing independent holds it. An oracle that follows a
// paper without public code ("public_code": false) shares whatever was read into the paper.
TEST(MethodGolden, ExperimentalMethodsAreThoseWithoutACase) {
  std::set<std::string> held;
  for (const auto& [name, one] : AllCases()) {
    if (one.value("public_code", true)) held.insert(one.at("method").get<std::string>());
  }
  const std::string directory = StrCat(KVG_SOURCE_DIR, "/configs/methods");
  const Result<std::vector<std::string>> ids = ListMethods(directory);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  for (const std::string& id : *ids) {
    const Result<Method> method = LoadMethod(id, directory, {});
    ASSERT_TRUE(method.ok()) << method.error().message;
    EXPECT_EQ(method->experimental, !held.contains(id))
        << id
        << (held.contains(id) ? ": a golden case holds it; take \"experimental\" out"
                              : ": no golden case; set \"experimental\": true");
    held.erase(id);
  }
  EXPECT_TRUE(held.empty()) << *held.begin() << ": a golden case of a method that is not shipped";
}

}  // namespace
}  // namespace kvgauge
