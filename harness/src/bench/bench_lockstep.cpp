// SPDX-License-Identifier: Apache-2.0
// bench lockstep: what many contenders cost together, against one full cache and against the same
// contenders one at a time, on random weights. Answers are compared before times are told.
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
#include "src/bench/median.h"
#include "src/cli/print.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/run/run_plan.h"

namespace kvgauge {
namespace {

// Scores of a window, of all columns, of places and of nothing; evicted, merged, quantised.
constexpr const char* kLockstepMethods[] = {"snapkv",        "pyramidkv", "adakv", "h2o_prompt",
                                            "streaming_llm", "random",    "cam",   "snapkv_kivi"};

// What a contender did on a sample: its tokens, and a digest of the newest layer's cache, which
// every bit of every step reaches.
struct Answer {
  std::vector<int32_t> ids;
  std::string digest;
  bool operator==(const Answer&) const = default;
};

struct Measured {
  double wall_s = 0;
  double process_s = 0;         // CPU seconds of this process
  double others = 0;            // share of the machine that other processes used meanwhile
  std::vector<Answer> answers;  // by sample, then contender
  std::vector<PhaseSeconds> seconds;
};

std::string Digest(const KvCache& cache) {
  Sha256 hash;
  std::vector<float> rows;
  if (cache.layer_count() == 0) return hash.Finish();  // what a state holds shows in the tokens
  const int64_t layer = cache.layer_count() - 1;
  for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
    const int64_t n = cache.length(layer, head);
    const std::vector<int32_t> positions = cache.Positions(layer, head);
    hash.Update(positions.data(), positions.size() * sizeof(int32_t));
    for (const bool keys : {true, false}) {
      const int64_t dim = keys ? cache.format(layer).key_dim : cache.format(layer).value_dim;
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
  Result<Measured> Run(std::span<const ChosenMethod* const> contenders) const {
    std::vector<Contender> engine_contenders;
    for (const ChosenMethod* contender : contenders) {
      engine_contenders.push_back(
          {.method = &contender->method, .budget = contender->budget, .model = &model_});
    }
    Measured measured;
    const size_t cells = samples_.size() * contenders.size();
    measured.answers.resize(cells);
    measured.seconds.resize(cells);
    const auto at = [&](const CellResult& result) {
      return static_cast<size_t>(result.sample) * contenders.size() +
             static_cast<size_t>(result.contender);
    };
    double digests_s = 0, digests_process_s = 0;
    EngineOptions engine_options;
    engine_options.max_pool_lanes = std::max(kPoolLanes, std::ssize(contenders));  // as `run` does
    engine_options.inspect = [&](const CellResult& result, const KvCache& cache, Compressor&) {
      const double start_s = NowSeconds(), process_s = ReadCpuUse().process_s;
      measured.answers[at(result)].digest = Digest(cache);
      digests_s += NowSeconds() - start_s;
      digests_process_s += ReadCpuUse().process_s - process_s;
    };
    Engine engine(std::move(engine_contenders), engine_options);
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
Result<std::vector<ChosenMethod>> ChooseContenders(const BenchLockstepOptions& options,
                                                   const ModelShape& shape) {
  std::vector<std::string> methods = options.methods;
  if (methods.empty()) methods.assign(std::begin(kLockstepMethods), std::end(kLockstepMethods));
  std::vector<ChosenMethod> contenders;
  for (const std::string& budget : options.budgets) {
    for (const std::string& method : methods) {
      KVG_ASSIGN(ChosenMethod contender, ChooseMethod({.method = method, .budget = budget}));
      KVG_TRY(CheckMethod(contender.method, shape, contender.budget, options.prompt_tokens));
      if (contender.method.prepare || KeepsModelLatents(contender.method, shape)) {
        return BadInput(StrCat("--methods: ", method, " needs a model of its own"));
      }
      contenders.push_back(std::move(contender));
    }
  }
  return contenders;
}

// What is measured: the kinds of contenders, and as many contenders as the largest count, kinds
// over and over.
struct LockstepContenders {
  std::vector<ChosenMethod> kinds;
  ChosenMethod full;
  std::vector<const ChosenMethod*> all = {};
};

// Some contenders together against one full cache, by repetition.
struct LockstepCell {
  int64_t count = 0;
  std::vector<double> full_s, together_s, ratios, process_ratios, others;
  double one_by_one_s = 0;
  std::map<std::string, PhaseSeconds> phases;  // summed over the contenders of a method
};

// Each kind once, as repeated contenders cost the same. `full` warms up.
Result<std::vector<Measured>> MeasureKindsAlone(const LockstepBench& bench,
                                                const LockstepContenders& contenders, bool alone) {
  std::vector<Measured> measured(std::min(contenders.all.size(), contenders.kinds.size()));
  const ChosenMethod* full = &contenders.full;
  const Result<Measured> warm = bench.Run({&full, 1});
  if (!warm.ok()) return warm.error();
  for (size_t i = 0; i < measured.size() && alone; ++i) {
    KVG_ASSIGN(measured[i], bench.Run({&contenders.all[i], 1}));
  }
  return measured;
}

// `alone`: each kind by itself; with options.alone, the contenders' answers must be the same.
Result<LockstepCell> MeasureTogether(const BenchLockstepOptions& options,
                                     const LockstepBench& bench,
                                     const LockstepContenders& contenders, int64_t count,
                                     const std::vector<Measured>& alone) {
  const std::span<const ChosenMethod* const> some(contenders.all.data(),
                                                  static_cast<size_t>(count));
  const ChosenMethod* full = &contenders.full;
  LockstepCell cell;
  cell.count = count;
  Measured many;
  for (int i = 0; i < options.repetitions; ++i) {
    KVG_ASSIGN(const Measured one, bench.Run({&full, 1}));
    KVG_ASSIGN(many, bench.Run(some));
    cell.full_s.push_back(one.wall_s);
    cell.together_s.push_back(many.wall_s);
    cell.ratios.push_back(many.wall_s / one.wall_s);
    cell.process_ratios.push_back(many.process_s / one.process_s);
    cell.others.push_back(std::max(one.others, many.others));
  }
  for (int64_t i = 0; i < count; ++i) {
    const size_t kind = static_cast<size_t>(i) % contenders.kinds.size();
    const std::string& id = some[static_cast<size_t>(i)]->method.id;
    if (options.alone) cell.one_by_one_s += alone[kind].wall_s;
    for (int64_t s = 0; s < options.samples; ++s) {
      const auto at = static_cast<size_t>(s * count + i);
      cell.phases[id] += many.seconds[at];
      if (!options.alone || many.answers[at] == alone[kind].answers[static_cast<size_t>(s)]) {
        continue;
      }
      return Unsupported(StrCat("contender ", i, " (", id, ") of ", count, " answered sample ", s,
                                " otherwise than alone"));
    }
  }
  return cell;
}

std::vector<std::string> CellLine(const LockstepCell& cell, bool alone) {
  const double together_s = Median(cell.together_s);
  return {StrCat(cell.count),
          Fixed(together_s, 2),
          Fixed(Median(cell.full_s), 2),
          Fixed(Median(cell.ratios), 2),
          Fixed(Median(cell.process_ratios), 2),
          Fixed(100 * Median(cell.others), 0),
          alone ? Fixed(cell.one_by_one_s, 2) : "-",
          alone ? Fixed(cell.one_by_one_s / together_s, 2) : "-",
          alone ? "yes" : "not checked"};
}

Json CellJson(const LockstepCell& cell, bool alone) {
  return {{"rows", cell.count},
          {"together_s", cell.together_s},
          {"full_s", cell.full_s},
          {"times_full", Median(cell.ratios)},
          {"times_full_process", Median(cell.process_ratios)},
          {"others", cell.others},
          {"one_by_one_s", alone ? Json(cell.one_by_one_s) : Json(nullptr)},
          {"identical", alone ? Json(true) : Json(nullptr)}};
}

// Milliseconds that a contender of each method took a sample, beside the shared passes.
std::map<std::string, PhaseSeconds> ContenderPhases(const LockstepCell& cell,
                                                    const LockstepContenders& contenders,
                                                    int64_t samples) {
  std::map<std::string, PhaseSeconds> per_row;
  for (const auto& [id, sum] : cell.phases) {
    const auto share = std::count_if(
        contenders.all.begin(), contenders.all.begin() + cell.count,
        [&name = id](const ChosenMethod* contender) { return contender->method.id == name; });
    const double scale = 1e3 / static_cast<double>(share * samples);
    PhaseSeconds& mean = per_row[id];
    mean.score = sum.score * scale;
    mean.select = sum.select * scale;
    mean.compact = sum.compact * scale;
    mean.quantise = sum.quantise * scale;
  }
  return per_row;
}

void PrintCells(const BenchLockstepOptions& options, const std::vector<LockstepCell>& cells,
                const std::map<std::string, PhaseSeconds>& phases) {
  std::vector<std::vector<std::string>> table, phase_table;
  for (const LockstepCell& cell : cells) table.push_back(CellLine(cell, options.alone));
  for (const auto& [id, ms] : phases) {
    phase_table.push_back(
        {id, Fixed(ms.score, 1), Fixed(ms.select, 1), Fixed(ms.compact, 1), Fixed(ms.quantise, 1)});
  }
  PrintTable({"rows", "together s", "full row s", "ratio", "CPU ratio", "others %", "one by one s",
              "gain", "identical"},
             table);
  Print(StrCat("\nA row of ", options.rows.back(), ", ms a sample:\n"));
  PrintTable({"method", "score", "select", "compact", "quantise"}, phase_table);
}

void PrintCellsJson(const BenchLockstepOptions& options, const std::string& model,
                    const std::string& variant, const std::vector<LockstepCell>& cells,
                    const std::map<std::string, PhaseSeconds>& phases) {
  Json json = Json::array(), phase_json = Json::object();
  for (const LockstepCell& cell : cells) json.push_back(CellJson(cell, options.alone));
  for (const auto& [id, ms] : phases) {
    phase_json[id] = {{"score_ms", ms.score},
                      {"select_ms", ms.select},
                      {"compact_ms", ms.compact},
                      {"quantise_ms", ms.quantise}};
  }
  PrintJson({{"model", model},
             {"dtype", options.dtype},
             {"variant", variant},
             {"threads", MakeThreadSettings(options.threads).threads},
             {"prompt_tokens", options.prompt_tokens},
             {"new_tokens", options.new_tokens},
             {"samples", options.samples},
             {"cells", json},
             {"row_phases", phase_json}});
}

}  // namespace

Status RunBenchLockstep(const BenchLockstepOptions& options) {
  ModelFlags flags;
  KVG_ASSIGN(flags.model, ShapeOrPath(options.model.empty() ? "bench-s" : options.model));
  flags.dtype = options.dtype;
  flags.weights = "random:1";
  flags.backend = options.backend;
  flags.threads = options.threads;
  KVG_ASSIGN(const LoadedModel loaded, LoadModel(flags));
  KVG_ASSIGN(std::vector<ChosenMethod> kinds, ChooseContenders(options, loaded.model->shape()));
  KVG_ASSIGN(ChosenMethod full, ChooseMethod({.method = "full"}));
  LockstepContenders contenders{std::move(kinds), std::move(full)};
  const int64_t most = *std::max_element(options.rows.begin(), options.rows.end());
  for (int64_t i = 0; i < most; ++i) {
    contenders.all.push_back(&contenders.kinds[static_cast<size_t>(i) % contenders.kinds.size()]);
  }
  const LockstepBench bench(*loaded.model, options);
  KVG_ASSIGN(const std::vector<Measured> alone,
             MeasureKindsAlone(bench, contenders, options.alone));
  std::vector<LockstepCell> cells;
  for (const int64_t count : options.rows) {
    KVG_ASSIGN(LockstepCell cell, MeasureTogether(options, bench, contenders, count, alone));
    std::fprintf(stderr, "%lld rows: %s x one full row\n", static_cast<long long>(count),
                 Fixed(Median(cell.ratios), 2).c_str());
    cells.push_back(std::move(cell));
  }
  const std::map<std::string, PhaseSeconds> phases =
      ContenderPhases(cells.back(), contenders, options.samples);
  if (options.json) {
    PrintCellsJson(options, flags.model, loaded.ops->variant, cells, phases);
  } else {
    PrintCells(options, cells, phases);
  }
  return {};
}

}  // namespace kvgauge
