// SPDX-License-Identifier: Apache-2.0
// bench runner: tokens per second of prefill and decode, on random weights unless those of a file
// are asked for.
//
// A repetition during which other processes used the machine says nothing: it is dropped on that
// alone, never on its own speed, and redone a bounded number of times.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/clock.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "core/threads.h"
#include "runner/generate.h"
#include "src/cli/print.h"
#include "src/model/model_flags.h"

namespace kvgauge {
namespace {

struct Measurement {
  std::string cell;
  std::vector<double> tokens_per_s;  // clean repetitions, ascending
  int dropped = 0;

  bool contended() const { return tokens_per_s.empty(); }
  double median() const { return tokens_per_s[tokens_per_s.size() / 2]; }  // unless contended
};

class RunnerBench {
 public:
  RunnerBench(Model& model, const BenchRunnerOptions& options) : model_(model), options_(options) {}

  Result<Measurement> Prefill(int64_t tokens) {
    return Measure(StrCat("pp", tokens), tokens, [&](Timer& timer) -> Status {
      KvCache cache = model_.NewCache(tokens);
      const Prompt prompt = RandomPrompt(tokens);
      timer.Start();
      KVG_TRY(Feed(prompt, cache, Model::kChunkRows));
      timer.Stop();
      return {};
    });
  }

  // The cache is filled with random entries: what they hold does not change the time.
  Result<Measurement> Decode(int64_t depth) {
    const int64_t steps = options_.decode_steps;
    KvCache cache = model_.NewCache(depth + steps);
    // Entries of blocks are fewer than tokens.
    KVG_TRY(model_.config().blocks ? Feed(RandomPrompt(depth), cache, Model::kChunkRows)
                                   : FillRandom(cache, depth));
    const Prompt prompt = RandomPrompt(depth + steps);
    if (cache.state_count() > 0) return DecodeForks(cache, depth);
    return Measure(StrCat("tg", steps, " d", depth), steps, [&](Timer& timer) -> Status {
      KVG_TRY(cache.Truncate(depth));
      timer.Start();
      KVG_TRY(Feed(prompt, cache, 1));
      timer.Stop();
      return {};
    });
  }

 private:
  // States cannot go back: each repetition has a fork, whose first step, which copies them, is not
  // timed.
  Result<Measurement> DecodeForks(const KvCache& cache, int64_t depth) {
    const int64_t steps = options_.decode_steps;
    const Prompt first = RandomPrompt(depth + 1), prompt = RandomPrompt(depth + 1 + steps);
    return Measure(StrCat("tg", steps, " d", depth), steps, [&](Timer& timer) -> Status {
      KvCache own = cache.Fork();
      KVG_TRY(Feed(first, own, 1));
      timer.Start();
      KVG_TRY(Feed(prompt, own, 1));
      timer.Stop();
      return {};
    });
  }

  struct Timer {
    double start_s = 0, wall_s = 0;
    std::vector<int> processors = AllowedProcessors();
    CpuUse before, after;
    void Start() {
      before = ReadCpuUse(processors);
      start_s = NowSeconds();
    }
    void Stop() {
      wall_s = NowSeconds() - start_s;
      after = ReadCpuUse(processors);
    }
  };

  Prompt RandomPrompt(int64_t tokens) const {
    Rng rng(1, 1);
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(model_.config().vocab_size)));
    }
    return Prompt::FromTokens(ids);
  }

  Status FillRandom(KvCache& cache, int64_t entries) {
    const ModelConfig& config = model_.config();
    const int64_t k_size = config.kv_heads * config.key_dim;
    const int64_t v_size = config.kv_heads * config.value_dim;
    Rng rng(2, 2);
    std::vector<float> keys(static_cast<size_t>(kKvPageEntries * k_size));
    std::vector<float> values(static_cast<size_t>(kKvPageEntries * v_size));
    for (float& v : keys) v = static_cast<float>(rng.NextGaussian());
    for (float& v : values) v = static_cast<float>(rng.NextGaussian());
    MemoryOps& memory = *model_.ops().memory;
    const Buffer key_memory = memory.Allocate(std::ssize(keys) * 4);
    const Buffer value_memory = memory.Allocate(std::ssize(values) * 4);
    const Tensor k = key_memory.As(DType::kF32, {kKvPageEntries, config.kv_heads, config.key_dim});
    const Tensor v =
        value_memory.As(DType::kF32, {kKvPageEntries, config.kv_heads, config.value_dim});
    memory.Copy(View(keys, {std::ssize(keys)}), k);
    memory.Copy(View(values, {std::ssize(values)}), v);
    for (int64_t begin = 0; begin < entries; begin += kKvPageEntries) {
      const int64_t count = std::min(kKvPageEntries, entries - begin);
      KVG_TRY(cache.Append(count));
      for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
        cache.Write(layer, k.Slice(0, count), v.Slice(0, count));
      }
    }
    return {};
  }

  // Until all of it is done: a device works on when the calls have returned.
  Status Feed(const Prompt& prompt, KvCache& cache, int64_t chunk) {
    KVG_TRY(::kvgauge::Prefill(model_, prompt, cache, chunk, false,
                               [](const Tensor&) { return Status(); }));
    model_.ops().memory->Synchronize();
    return {};
  }

  template <class Body>
  Result<Measurement> Measure(std::string cell, int64_t tokens, Body&& body) {
    Measurement result;
    result.cell = std::move(cell);
    const int tries = options_.repetitions * 10;
    Timer warm_up;
    KVG_TRY(body(warm_up));
    for (int i = 0;
         i < tries && static_cast<int>(result.tokens_per_s.size()) < options_.repetitions; ++i) {
      Timer timer;
      KVG_TRY(body(timer));
      // The kernel counts in ticks of 10 ms: a short repetition is given one tick of grace.
      const double others =
          OthersShare(timer.before, timer.after, timer.wall_s, AvailableProcessors());
      const double grace = 0.011 / (timer.wall_s * AvailableProcessors());
      if (others > options_.max_others + grace) {
        ++result.dropped;
        continue;
      }
      result.tokens_per_s.push_back(static_cast<double>(tokens) / timer.wall_s);
    }
    std::sort(result.tokens_per_s.begin(), result.tokens_per_s.end());
    return result;
  }

  Model& model_;
  const BenchRunnerOptions& options_;
};

std::string RangeText(const Measurement& m) {
  if (m.contended()) return "contended";
  return StrCat(Fixed(m.tokens_per_s.front(), 1), " .. ", Fixed(m.tokens_per_s.back(), 1));
}

}  // namespace

Status RunBenchRunner(const BenchRunnerOptions& options) {
  std::vector<std::string> models = options.models;
  if (models.empty()) models = {"bench-s", "bench-l"};
  // A wrong name is an error before anything is measured.
  for (std::string& model : models) {
    KVG_ASSIGN(model, ShapeOrPath(model));
  }
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const std::string& path : models) {
    for (const std::string& dtype : options.dtypes) {
      ModelFlags flags;
      flags.model = path;
      flags.dtype = dtype;
      flags.weights = options.weights;
      flags.product_rows = options.product_rows;
      flags.backend = options.backend;
      flags.threads = options.threads;
      KVG_ASSIGN(const LoadedModel loaded, LoadModel(flags));
      RunnerBench bench(*loaded.model, options);
      std::vector<Measurement> cells;
      const std::string name = std::filesystem::path(path).stem().string();
      const auto record = [&](Result<Measurement> measured) -> Status {
        KVG_ASSIGN(Measurement m, std::move(measured));
        const std::string speed =
            m.contended() ? "contended" : StrCat(Fixed(m.median(), 1), " tokens/s");
        std::fprintf(stderr, "%s %s %s: %s\n", name.c_str(), dtype.c_str(), m.cell.c_str(),
                     speed.c_str());
        cells.push_back(std::move(m));
        return {};
      };
      for (const int64_t tokens : options.prefill) {
        if (tokens > 0) KVG_TRY(record(bench.Prefill(tokens)));
      }
      for (const int64_t depth : options.depths) {
        if (depth >= 0) KVG_TRY(record(bench.Decode(depth)));
      }
      for (const Measurement& m : cells) {
        rows.push_back({name, dtype, loaded.ops->variant, m.cell,
                        m.contended() ? "-" : Fixed(m.median(), 1), RangeText(m),
                        StrCat(m.tokens_per_s.size()), StrCat(m.dropped)});
        json.push_back({{"model", name},
                        {"dtype", dtype},
                        {"product_rows", NameOf(loaded.model->product_rows())},
                        {"variant", loaded.ops->variant},
                        {"cell", m.cell},
                        {"median_tokens_per_s", m.contended() ? Json() : Json(m.median())},
                        {"tokens_per_s", m.tokens_per_s},
                        {"dropped", m.dropped}});
      }
    }
  }
  if (options.json) {
    PrintJson({{"threads", MakeThreadSettings(options.threads).threads}, {"cells", json}});
  } else {
    PrintTable({"model", "dtype", "variant", "cell", "tokens/s", "range", "clean", "dropped"},
               rows);
  }
  return {};
}

}  // namespace kvgauge
