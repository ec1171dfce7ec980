// SPDX-License-Identifier: Apache-2.0
// bench lockstep: what many method rows cost together, against one full row and against the same
// rows one at a time, on random weights. Answers are compared before times are told.
#include <algorithm>
#include <cstdio>

#include "core/clock.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "runner/engine.h"
#include "src/method_flags.h"
#include "src/model_flags.h"
#include "src/print.h"

namespace kvgauge {
namespace {

// Scores of a window, of all columns, of places and of nothing; evicted, merged, quantised.
constexpr const char* kLockstepMethods[] = {"snapkv",        "pyramidkv", "adakv", "h2o_prompt",
                                            "streaming_llm", "random",    "cam",   "snapkv_kivi"};

using Answers = std::vector<std::vector<int32_t>>;  // by sample, then row

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

class LockstepBench {
 public:
  LockstepBench(Model& model, const BenchLockstepOptions& options)
      : model_(model), options_(options) {
    for (int64_t s = 0; s < options.samples; ++s) {
      Rng rng(1, static_cast<uint64_t>(s));
      EngineSample sample = {.id = StrCat("sample ", s)};
      EngineTurn turn = {.max_new_tokens = options.new_tokens};
      for (int64_t i = 0; i < options.prompt_tokens; ++i) {
        turn.ids.push_back(
            static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(model.config().vocab_size))));
      }
      sample.turns.push_back(std::move(turn));
      samples_.push_back(std::move(sample));
    }
  }

  // Seconds for all samples; the answers go to `answers`.
  Result<double> Time(std::span<const ChosenMethod* const> rows, Answers& answers) const {
    std::vector<EngineRow> engine_rows;
    for (const ChosenMethod* row : rows) {
      engine_rows.push_back({.method = &row->method, .budget = row->budget, .model = &model_});
    }
    EngineOptions engine_options;
    engine_options.max_pool_rows = std::max<int64_t>(options_.samples, 1) * std::ssize(rows);
    Engine engine(std::move(engine_rows), engine_options);
    answers.assign(static_cast<size_t>(options_.samples) * rows.size(), {});
    const double start_s = NowSeconds();
    KVG_TRY(engine.Run(samples_, [&](CellResult result) {
      answers[static_cast<size_t>(result.sample) * rows.size() + static_cast<size_t>(result.row)] =
          result.turns[0].ids;
      return result.status;
    }));
    return NowSeconds() - start_s;
  }

 private:
  Model& model_;
  const BenchLockstepOptions& options_;
  std::vector<EngineSample> samples_;
};

// Each method at each budget, methods first; all must run on the model as it is.
Result<std::vector<ChosenMethod>> ChooseRows(const BenchLockstepOptions& options,
                                             const ModelShape& shape) {
  std::vector<std::string> methods = options.methods;
  if (methods.empty()) methods.assign(std::begin(kLockstepMethods), std::end(kLockstepMethods));
  std::vector<ChosenMethod> rows;
  for (const std::string& budget : options.budgets) {
    for (const std::string& method : methods) {
      KVG_ASSIGN(ChosenMethod row, ChooseMethod({.method = method, .budget = budget}));
      KVG_TRY(CheckMethod(row.method, shape, row.budget, options.prompt_tokens));
      if (row.method.prepare || KeepsModelLatents(row.method, shape)) {
        return BadInput(StrCat("--methods: ", method, " needs a model of its own"));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

Status RunBenchLockstep(const BenchLockstepOptions& options) {
  ModelFlags flags;
  flags.model = options.model;
  if (flags.model.empty()) {
    KVG_ASSIGN(flags.model, FindConfigFile("models/bench-s.json"));
  }
  flags.dtype = options.dtype;
  flags.weights = "random:1";
  flags.backend = options.backend;
  flags.threads = options.threads;
  KVG_ASSIGN(const LoadedModel loaded, LoadModel(flags));
  const ModelShape shape = loaded.model->shape();
  KVG_ASSIGN(const std::vector<ChosenMethod> kinds, ChooseRows(options, shape));
  KVG_ASSIGN(const ChosenMethod full, ChooseMethod({.method = "full"}));
  const LockstepBench bench(*loaded.model, options);

  const int64_t most = *std::max_element(options.rows.begin(), options.rows.end());
  std::vector<const ChosenMethod*> rows;  // kinds over and over
  for (int64_t i = 0; i < most; ++i) rows.push_back(&kinds[static_cast<size_t>(i) % kinds.size()]);

  // One at a time: each kind once, as repeated rows cost the same.
  const auto distinct = std::min(rows.size(), kinds.size());
  std::vector<Answers> alone(distinct);
  std::vector<double> alone_s(distinct);
  Answers ignored;
  const ChosenMethod* full_row = &full;
  KVG_TRY([&]() -> Status {  // warms up
    const Result<double> seconds = bench.Time({&full_row, 1}, ignored);
    return seconds.ok() ? Status() : Status(seconds.error());
  }());
  for (size_t i = 0; i < distinct && options.alone; ++i) {
    KVG_ASSIGN(alone_s[i], bench.Time({&rows[i], 1}, alone[i]));
  }

  Json json = Json::array();
  std::vector<std::vector<std::string>> table;
  for (const int64_t count : options.rows) {
    const std::span<const ChosenMethod* const> some(rows.data(), static_cast<size_t>(count));
    std::vector<double> full_s, together_s;
    Answers answers;
    for (int i = 0; i < options.repetitions; ++i) {
      KVG_ASSIGN(const double one, bench.Time({&full_row, 1}, ignored));
      KVG_ASSIGN(const double many, bench.Time(some, answers));
      full_s.push_back(one);
      together_s.push_back(many);
    }
    double one_by_one_s = 0;
    for (int64_t i = 0; i < count && options.alone; ++i) {
      const size_t kind = static_cast<size_t>(i) % kinds.size();
      one_by_one_s += alone_s[kind];
      for (int64_t s = 0; s < options.samples; ++s) {
        if (answers[static_cast<size_t>(s * count + i)] == alone[kind][static_cast<size_t>(s)]) {
          continue;
        }
        return Unsupported(StrCat("row ", i, " (", rows[static_cast<size_t>(i)]->method.id, ") of ",
                                  count, " answered sample ", s, " otherwise than alone"));
      }
    }
    const double ratio = Median(together_s) / Median(full_s);
    std::fprintf(stderr, "%lld rows: %s x one full row\n", static_cast<long long>(count),
                 Fixed(ratio, 2).c_str());
    table.push_back({StrCat(count), Fixed(Median(together_s), 2), Fixed(Median(full_s), 2),
                     Fixed(ratio, 2), options.alone ? Fixed(one_by_one_s, 2) : "-",
                     options.alone ? Fixed(one_by_one_s / Median(together_s), 2) : "-"});
    json.push_back({{"rows", count},
                    {"together_s", together_s},
                    {"full_s", full_s},
                    {"times_full", ratio},
                    {"one_by_one_s", options.alone ? Json(one_by_one_s) : Json(nullptr)},
                    {"identical", options.alone ? Json(true) : Json(nullptr)}});
  }
  if (options.json) {
    PrintJson({{"model", flags.model},
               {"dtype", options.dtype},
               {"variant", loaded.ops->variant},
               {"threads", MakeThreadSettings(options.threads).threads},
               {"prompt_tokens", options.prompt_tokens},
               {"new_tokens", options.new_tokens},
               {"samples", options.samples},
               {"cells", json}});
  } else {
    PrintTable({"rows", "together s", "full row s", "ratio", "one by one s", "gain"}, table);
  }
  return {};
}

}  // namespace kvgauge
