// SPDX-License-Identifier: Apache-2.0
// What the conformance tests share: every shipped method, tiny models of each kind of attention,
// and cells with a digest of what their caches hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "methods/encoding_thin.h"
#include "methods/method.h"
#include "runner/encoder.h"
#include "runner/engine.h"
#include "support/tiny_models.h"

namespace kvgauge {

inline const char* const kKinds[] = {"mha", "gqa", "mqa", "mla", "two_sizes", "hybrid"};
inline constexpr int64_t kPromptTokens = 200;
// Models that have an encoder beside the decoder.
inline const char* const kEncodedKinds[] = {"cepe"};

inline std::string MethodsDirectory() { return std::string(KVG_SOURCE_DIR) + "/configs/methods"; }

inline std::vector<std::string> AllMethods() {
  const Result<std::vector<std::string>> ids = ListMethods(MethodsDirectory());
  return ids.ok() ? *ids : std::vector<std::string>();
}

// An id as a part of a test's name.
inline std::string TestNameOf(std::string id) {
  std::replace_if(
      id.begin(), id.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return id;
}

// The overrides that the method's file asks of these models, and `more` after them.
inline Method LoadShipped(const std::string& id, const std::vector<std::string>& more = {}) {
  const Result<Json> file = ReadJsonFile(StrCat(MethodsDirectory(), "/", id, ".json"));
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  auto overrides = file->value("conformance", std::vector<std::string>());
  overrides.insert(overrides.end(), more.begin(), more.end());
  Result<Method> method = LoadMethod(id, MethodsDirectory(), overrides);
  if (!method.ok()) {
    ADD_FAILURE() << method.error().message;
    std::abort();
  }
  for (StageChoice* choice : method->stages()) {
    const std::string encoder = TaggerPath(*choice);
    if (encoder.empty()) continue;
    const auto looked = LookAtTagger(StrCat(KVG_SOURCE_DIR, "/", encoder));
    EXPECT_TRUE(looked.ok()) << looked.error().message;
    choice->tagger = *looked;
  }
  return std::move(method).value();
}

// Overrides with which the method gives up nothing at full budget.
inline std::vector<std::string> KeepingAll(const std::string& id) {
  const Method method = LoadShipped(id);
  std::vector<std::string> overrides;
  if (method.read) {
    const size_t before = overrides.size();
    bool local = false;
    for (const ParamSpec& param : method.read->spec->params) {
      if (param.name == "share") overrides.emplace_back("read.share=1");
      if (param.name == "tokens") overrides.emplace_back("read.tokens=100000");
      if (param.name == "alpha") overrides.emplace_back("read.alpha=1e9");
      local = local || param.name == "local";
    }
    // Who chooses by another number reads what is near.
    if (overrides.size() == before && local) overrides.emplace_back("read.local=100000");
    // Frames are near nothing: they are chosen by their number.
    for (const ParamSpec& param : method.read->spec->params) {
      if (param.name == "picks") overrides.emplace_back("read.picks=1048576");
    }
  }
  if (method.narrow) overrides.emplace_back("narrow.share=1");
  // Nothing is as far away as that.
  if (method.store->spec->id == "plain" && method.store->params.Text("position") == "clipped") {
    overrides.emplace_back("store.position_limit=99999");
    if (method.read && method.read->spec->id == "emllm") {
      overrides.emplace_back("read.local=100000");
    }
  }
  if (method.reduce && !method.takes_budget) {
    const std::string_view reducer = method.reduce->spec->id;
    if (reducer == "threshold") overrides.emplace_back("reduce.least=-1e30");
    if (reducer == "coverage") overrides.emplace_back("reduce.mass=1");
    if (reducer == "attention_norm") overrides.emplace_back("reduce.loss=0");
  }
  if (method.thin) {
    const std::vector<ParamSpec>& params = method.thin->spec->params;
    const bool drops =
        std::ranges::any_of(params, [](const ParamSpec& param) { return param.name == "drop"; });
    const bool encodes =
        std::ranges::any_of(params, [](const ParamSpec& param) { return param.name == "decoder"; });
    overrides.emplace_back(drops     ? "thin.drop=0"
                           : encodes ? "thin.decoder=100000"
                                     : "thin.chunk=100000");
  }
  if (method.prepare && method.prepare->spec->id == "dmc") {
    overrides.emplace_back("prepare.merge=false");
  }
  const std::pair<const char*, const char*> whole[] = {
      {"window", "1048576"}, {"gamma", "1"}, {"threshold", "1"}, {"diagonals", "1048576"}};
  for (const auto& [name, value] : whole) {
    if (!method.attend) break;
    for (const ParamSpec& param : method.attend->spec->params) {
      if (param.name == name) overrides.push_back(StrCat("attend.", name, "=", value));
    }
  }
  if (method.reuse) {
    for (const ParamSpec& param : method.reuse->spec->params) {
      if (param.name == "share") overrides.emplace_back("reuse.share=1");
      if (param.name == "again") overrides.emplace_back("reuse.again=100000");
      // These give up nothing where there is one text.
      for (const char* other : {"temperature", "links", "alpha"}) {
        if (param.name == other) overrides.emplace_back("reuse.chunk=100000");
      }
    }
  }
  return overrides;
}

// A budget under which the method has to give up something.
inline Budget HalfBudget(const Method& method) {
  return method.takes_budget ? Budget{Budget::Kind::kFraction, 0.5} : Budget{};
}

// Whether an encoder of the model reads a part of its prompts, which are text.
inline bool ReadsByEncoder(const Method& method) {
  const std::unique_ptr<Stage> thin = method.thin ? MakeStage(*method.thin) : nullptr;
  return dynamic_cast<const EncodingThin*>(thin.get()) != nullptr;
}

// A method on a model; null with the reason where it cannot work.
struct Subject {
  TinyModel tiny;
  Method method;
  Budget budget;

  Model& model() const { return *tiny.model; }
  ModelShape shape() const { return tiny.model->shape(); }
  Contender contender() const { return {&method, budget, tiny.model.get()}; }
};

struct SubjectOptions {
  int threads = 1;
  std::vector<std::string> overrides = {};
  bool on_host = false;  // also where tests are linked for a device
};

// A method that prepares weights runs on the weights as it prepares them.
inline std::unique_ptr<Subject> MakeSubject(const std::string& id, const std::string& kind,
                                            const SubjectOptions& asked = {}) {
  auto subject = std::make_unique<Subject>();
  subject->method = LoadShipped(id, asked.overrides);
  subject->budget = HalfBudget(subject->method);
  const ModelShape shape = TinyShape(kind);
  const Status legal = CheckMethod(subject->method, shape, subject->budget, kPromptTokens);
  if (!legal.ok()) {
    EXPECT_GT(legal.error().message.size(), 20u) << kind << ": a refusal without a reason";
    return nullptr;
  }
  const Pipeline pipeline = MakePipeline(subject->method);
  ModelOptions options;
  options.prepare = pipeline.prepare.get();
  options.mla_latent = KeepsModelLatents(subject->method, shape);
  std::unique_ptr<Ops> ops =
      asked.on_host ? MakeHostOps("cpu", asked.threads) : MakeTestOps("cpu", asked.threads);
  for (const StageChoice* choice : std::as_const(subject->method).stages()) {
    if (choice->tagger == nullptr) continue;
    auto loaded = TokenClassifier::Load(choice->tagger->directory, *ops);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    options.taggers[choice->tagger->directory] = *std::move(loaded);
  }
  subject->tiny = MakeTinyModelOn(std::move(ops), kind, options);
  return subject;
}

// On every kind of model on which the method is legal; a refusal must say why.
inline std::vector<std::unique_ptr<Subject>> Subjects(const std::string& id,
                                                      const SubjectOptions& asked = {},
                                                      std::span<const char* const> kinds = kKinds) {
  std::vector<std::unique_ptr<Subject>> subjects;
  if (ReadsByEncoder(LoadShipped(id))) kinds = kEncodedKinds;
  for (const char* kind : kinds) {
    auto subject = MakeSubject(id, kind, asked);
    if (subject != nullptr) subjects.push_back(std::move(subject));
  }
  EXPECT_FALSE(subjects.empty()) << id << " is legal on no model";
  return subjects;
}

inline EngineSample Sample(int64_t prompt, uint64_t seed, int64_t new_tokens = 5) {
  EngineSample sample;
  sample.id = StrCat("sample ", seed);
  sample.turns.push_back({.ids = RandomIds(prompt, seed), .max_new_tokens = new_tokens});
  return sample;
}

// Everything a cache holds, as attention sees it, and the states of layers beside.
inline std::string Digest(const KvCache& cache) {
  Sha256 hash;
  std::vector<float> rows;
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
      const std::vector<int32_t> positions = cache.Positions(layer, head);
      const std::vector<float> weights = cache.LogWeights(layer, head);
      hash.Update(positions.data(), positions.size() * sizeof(int32_t));
      hash.Update(weights.data(), weights.size() * sizeof(float));
      const auto length = static_cast<int64_t>(positions.size());
      for (const bool keys : {true, false}) {
        const int64_t dim = keys ? cache.format(layer).key_dim : cache.format(layer).value_dim;
        rows.assign(static_cast<size_t>(length * dim), 0.0f);
        if (length == 0) continue;
        if (keys) {
          cache.ReadKeys(layer, head, 0, View(rows, {length, dim}));
        } else {
          cache.ReadValues(layer, head, 0, View(rows, {length, dim}));
        }
        hash.Update(rows.data(), rows.size() * sizeof(float));
      }
    }
  }
  if (cache.state_count() > 0) {
    const Result<std::string> bytes = cache.Serialize();
    if (bytes.ok()) hash.Update(bytes->data(), bytes->size());
  }
  return hash.Finish();
}

// The bytes of layers that keep a state instead of entries, which Bytes does not count.
inline int64_t BytesOfStates(const ModelShape& shape, const KvCache& cache) {
  if (shape.state_bytes == 0 || shape.running_entries) return 0;
  EXPECT_EQ(cache.StateBytes(), shape.state_bytes);
  return shape.state_bytes;
}

struct Outcome {
  CellResult cell;
  std::string digest;  // of the cache when the cell ended
};
using Outcomes = std::map<std::pair<int64_t, int64_t>, Outcome>;  // by (sample, contender)

inline Outcomes RunContenders(const std::vector<Contender>& contenders,
                              const std::vector<EngineSample>& samples,
                              EngineOptions options = {}) {
  Outcomes outcomes;
  options.inspect = [&, also = options.inspect](const CellResult& cell, const KvCache& cache,
                                                Compressor& compressor) {
    outcomes[{cell.sample, cell.contender}].digest = Digest(cache);
    if (also) also(cell, cache, compressor);
  };
  Engine engine(contenders, options);
  const Status status = engine.Run(samples, [&](CellResult cell) -> Status {
    const std::pair<int64_t, int64_t> at(cell.sample, cell.contender);
    outcomes[at].cell = std::move(cell);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.error().message;
  return outcomes;
}

inline void ExpectSame(const Outcome& got, const Outcome& want) {
  ASSERT_TRUE(got.cell.status.ok()) << got.cell.status.error().message;
  ASSERT_TRUE(want.cell.status.ok()) << want.cell.status.error().message;
  for (size_t turn = 0; turn < want.cell.turns.size(); ++turn) {
    EXPECT_EQ(got.cell.turns[turn].ids, want.cell.turns[turn].ids);
  }
  EXPECT_EQ(got.digest, want.digest);
  EXPECT_EQ(got.cell.record.entries_after, want.cell.record.entries_after);
  EXPECT_EQ(got.cell.record.bytes, want.cell.record.bytes);
  EXPECT_EQ(got.cell.record.reads_per_step, want.cell.record.reads_per_step);
}

}  // namespace kvgauge
