// SPDX-License-Identifier: Apache-2.0
// bench lockstep: what many method rows cost together, against one full row and against the same
// rows one at a time, on random weights. Answers are compared before times are told.
#include <algorithm>
#include <cstdio>
#include <map>

#include "core/clock.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "core/threads.h"
#include "runner/engine.h"
#include "src/cli/print.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/run/run_plan.h"

namespace kvgauge {
namespace {

// Scores of a window, of all columns, of places and of nothing; evicted, merged, quantised.
constexpr const char* kLockstepMethods[] = {"snapkv",        "pyramidkv", "adakv", "h2o_prompt",
                                            "streaming_llm", "random",    "cam",   "snapkv_kivi"};

// What a row did on a sample: its tokens, and a digest of the newest layer's cache, which every bit
// of every step reaches.
struct Answer {
  std::vector<int32_t> ids;
  std::string digest;
  bool operator==(const Answer&) const = default;
};

struct Measured {
  double wall_s = 0;
  double process_s = 0;         // CPU seconds of this process
  double others = 0;            // share of the machine that other processes used meanwhile
  std::vector<Answer> answers;  // by sample, then row
  std::vector<PhaseSeconds> seconds;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::string Digest(const KvCache& cache) {
  Sha256 hash;
  std::vector<float> rows;
  const int64_t layer = cache.layer_count() - 1;
  for (int64_t head = 0; head < cache.kv_heads(); ++head) {
    const int64_t n = cache.length(layer, head);
    const std::vector<int32_t> positions = cache.Positions(layer, head);
    hash.Update(positions.data(), positions.size() * sizeof(int32_t));
    for (const bool keys : {true, false}) {
      const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
      rows.assign(static_cast<size_t>(n * dim), 0);
      const Tensor out = View(rows, {n, dim});
      keys ? cache.ReadKeys(layer, head, 0, out) : cache.ReadValues(layer, head, 0, out);
      hash.Update(rows.data(), rows.size() * sizeof(float));
    }
  }
  return hash.Finish();
}

class LockstepBench {
 public:
  LockstepBench(Model& model, const BenchLockstepOptions& options) : model_(model) {
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

  // All samples, once. Digests are taken off the clock.
  Result<Measured> Run(std::span<const ChosenMethod* const> rows) const {
    std::vector<EngineRow> engine_rows;
    for (const ChosenMethod* row : rows) {
      engine_rows.push_back({.method = &row->method, .budget = row->budget, .model = &model_});
    }
    Measured measured;
    const size_t cells = samples_.size() * rows.size();
    measured.answers.resize(cells);
    measured.seconds.resize(cells);
    const auto at = [&](const CellResult& result) {
      return static_cast<size_t>(result.sample) * rows.size() + static_cast<size_t>(result.row);
    };
    double digests_s = 0, digests_process_s = 0;
    EngineOptions engine_options;
    engine_options.max_pool_rows = std::max(kPoolRows, std::ssize(rows));  // as `run` does
    engine_options.inspect = [&](const CellResult& result, const KvCache& cache) {
      const double start_s = NowSeconds(), process_s = ReadCpuUse().process_s;
      measured.answers[at(result)].digest = Digest(cache);
      digests_s += NowSeconds() - start_s;
      digests_process_s += ReadCpuUse().process_s - process_s;
    };
    Engine engine(std::move(engine_rows), engine_options);
    const CpuUse before = ReadCpuUse();
    const double start_s = NowSeconds();
    KVG_TRY(engine.Run(samples_, [&](CellResult result) {
      measured.answers[at(result)].ids = result.turns[0].ids;
      measured.seconds[at(result)] = result.record.seconds;
      return result.status;
    }));
    measured.wall_s = NowSeconds() - start_s;
    const CpuUse after = ReadCpuUse();
    measured.others = OthersShare(before, after, measured.wall_s, AvailableProcessors());
    measured.wall_s -= digests_s;
    measured.process_s = after.process_s - before.process_s - digests_process_s;
    return measured;
  }

 private:
  Model& model_;
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
  std::vector<Measured> alone(distinct);
  const ChosenMethod* full_row = &full;
  KVG_TRY([&]() -> Status {  // warms up
    const Result<Measured> measured = bench.Run({&full_row, 1});
    return measured.ok() ? Status() : Status(measured.error());
  }());
  for (size_t i = 0; i < distinct && options.alone; ++i) {
    KVG_ASSIGN(alone[i], bench.Run({&rows[i], 1}));
  }

  Json json = Json::array();
  std::vector<std::vector<std::string>> table;
  std::map<std::string, PhaseSeconds> phases;  // summed over the rows of a method
  for (const int64_t count : options.rows) {
    const std::span<const ChosenMethod* const> some(rows.data(), static_cast<size_t>(count));
    std::vector<double> full_s, together_s, ratios, process_ratios, others;
    Measured many;
    for (int i = 0; i < options.repetitions; ++i) {
      KVG_ASSIGN(const Measured one, bench.Run({&full_row, 1}));
      KVG_ASSIGN(many, bench.Run(some));
      full_s.push_back(one.wall_s);
      together_s.push_back(many.wall_s);
      ratios.push_back(many.wall_s / one.wall_s);
      process_ratios.push_back(many.process_s / one.process_s);
      others.push_back(std::max(one.others, many.others));
    }
    double one_by_one_s = 0;
    phases.clear();
    for (int64_t i = 0; i < count; ++i) {
      const size_t kind = static_cast<size_t>(i) % kinds.size();
      const std::string& id = rows[static_cast<size_t>(i)]->method.id;
      if (options.alone) one_by_one_s += alone[kind].wall_s;
      for (int64_t s = 0; s < options.samples; ++s) {
        const auto cell = static_cast<size_t>(s * count + i);
        phases[id] += many.seconds[cell];
        if (!options.alone || many.answers[cell] == alone[kind].answers[static_cast<size_t>(s)]) {
          continue;
        }
        return Unsupported(StrCat("row ", i, " (", id, ") of ", count, " answered sample ", s,
                                  " otherwise than alone"));
      }
    }
    const double ratio = Median(ratios);
    std::fprintf(stderr, "%lld rows: %s x one full row\n", static_cast<long long>(count),
                 Fixed(ratio, 2).c_str());
    table.push_back({StrCat(count), Fixed(Median(together_s), 2), Fixed(Median(full_s), 2),
                     Fixed(ratio, 2), Fixed(Median(process_ratios), 2),
                     Fixed(100 * Median(others), 0), options.alone ? Fixed(one_by_one_s, 2) : "-",
                     options.alone ? Fixed(one_by_one_s / Median(together_s), 2) : "-",
                     options.alone ? "yes" : "not checked"});
    json.push_back({{"rows", count},
                    {"together_s", together_s},
                    {"full_s", full_s},
                    {"times_full", ratio},
                    {"times_full_process", Median(process_ratios)},
                    {"others", others},
                    {"one_by_one_s", options.alone ? Json(one_by_one_s) : Json(nullptr)},
                    {"identical", options.alone ? Json(true) : Json(nullptr)}});
  }
  // Of the last count: what a row of each method took beside the shared passes.
  const double cells = static_cast<double>(options.rows.back() * options.samples);
  std::vector<std::vector<std::string>> phase_table;
  Json phase_json = Json::object();
  for (const auto& [id, sum] : phases) {
    const double share = static_cast<double>(
        std::count_if(rows.begin(), rows.begin() + options.rows.back(),
                      [&name = id](const ChosenMethod* row) { return row->method.id == name; }));
    const double per_row_ms = 1e3 * static_cast<double>(options.rows.back()) / (share * cells);
    phase_table.push_back({id, Fixed(sum.score * per_row_ms, 1), Fixed(sum.select * per_row_ms, 1),
                           Fixed(sum.compact * per_row_ms, 1),
                           Fixed(sum.quantise * per_row_ms, 1)});
    phase_json[id] = {{"score_ms", sum.score * per_row_ms},
                      {"select_ms", sum.select * per_row_ms},
                      {"compact_ms", sum.compact * per_row_ms},
                      {"quantise_ms", sum.quantise * per_row_ms}};
  }
  if (options.json) {
    PrintJson({{"model", flags.model},
               {"dtype", options.dtype},
               {"variant", loaded.ops->variant},
               {"threads", MakeThreadSettings(options.threads).threads},
               {"prompt_tokens", options.prompt_tokens},
               {"new_tokens", options.new_tokens},
               {"samples", options.samples},
               {"cells", json},
               {"row_phases", phase_json}});
  } else {
    PrintTable({"rows", "together s", "full row s", "ratio", "CPU ratio", "others %",
                "one by one s", "gain", "identical"},
               table);
    Print(StrCat("\nA row of ", options.rows.back(), ", ms a sample:\n"));
    PrintTable({"method", "score", "select", "compact", "quantise"}, phase_table);
  }
  return {};
}

}  // namespace kvgauge
