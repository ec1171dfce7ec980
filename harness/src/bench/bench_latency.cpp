// SPDX-License-Identifier: Apache-2.0
// bench latency: the latency phase on its own, on seeded prompts and without a store, of one model
// or of several; beside it what papers say of the same methods.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>

#include "core/json.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/devices.h"
#include "reports/statistics.h"
#include "src/cli/print.h"
#include "src/doctor/device_check.h"
#include "src/latency/latency_phase.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/model/shapes_table.h"
#include "src/run/machine_facts.h"

namespace kvgauge {
namespace {

// Loaded models by their paths and by what their methods need of them.
class Models {
 public:
  explicit Models(const ModelFlags& flags) : flags_(flags) {}

  Result<Model*> For(const std::string& model, const ChosenMethod& chosen, int64_t most_tokens) {
    std::string key = model;
    if (chosen.method.prepare) key += StageKey(*chosen.method.prepare);
    ModelFlags flags = flags_;
    flags.model = model;
    KVG_ASSIGN(const ModelOptions options, ParseModelOptions(flags));
    KVG_ASSIGN(const ModelConfig config, ReadModelConfig(model));
    const ModelShape shape = ShapeFor(flags, config, options);
    KVG_TRY(CheckMethod(chosen.method, shape, chosen.budget, most_tokens));
    if (KeepsModelLatents(chosen.method, shape)) key += " latents";
    key += LoadedBeside(chosen.method);
    const auto found = loaded_.find(key);
    if (found != loaded_.end()) return found->second.model.get();
    KVG_ASSIGN(LoadedModel loaded, LoadModelFor(chosen, flags, most_tokens));
    return loaded_.emplace(key, std::move(loaded)).first->second.model.get();
  }

 private:
  const ModelFlags& flags_;
  std::map<std::string, LoadedModel> loaded_;
};

struct BenchContender {
  ChosenMethod chosen;
  std::string budget = "none";  // as it was written
  std::string model = {};       // a path
  std::string named = {};       // the model, as it was written
  bool beside = false;          // of another model than the first

  const std::string& id() const { return chosen.method.id; }
  std::string shape() const { return ShapeNameOf(model); }
};

// "MODEL" or "MODEL:METHOD".
Result<BenchContender> ChooseBeside(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string method = colon == std::string::npos ? "full" : text.substr(colon + 1);
  BenchContender contender;
  contender.beside = true;
  contender.named = text.substr(0, colon);
  KVG_ASSIGN(contender.model, ShapeOrPath(contender.named));
  KVG_ASSIGN(contender.chosen, ChooseMethod({.method = method}));
  if (contender.chosen.method.takes_budget) {
    return BadInput(StrCat("--beside ", text, ": method ", method,
                           " takes a budget, expected one that takes none; --methods measures it "
                           "on the first model"));
  }
  return contender;
}

// The full cache, then each method at each budget it takes, then what is beside them.
Result<std::vector<BenchContender>> ChooseBenchContenders(const BenchLatencyOptions& options) {
  std::vector<BenchContender> contenders(1);
  KVG_ASSIGN(contenders[0].chosen, ChooseMethod({.method = "full"}));
  for (const std::string& method : options.methods) {
    if (method == "full") continue;
    KVG_ASSIGN(const ChosenMethod chosen,
               ChooseMethod({.method = method, .overrides = options.overrides}));
    if (!chosen.method.takes_budget) {
      contenders.push_back({.chosen = chosen});
      continue;
    }
    for (const std::string& budget : options.budgets) {
      contenders.push_back({.chosen = chosen, .budget = budget});
      KVG_ASSIGN(contenders.back().chosen.budget, Budget::Parse(budget));
    }
  }
  for (BenchContender& contender : contenders) {
    contender.named = options.model.model;
    KVG_ASSIGN(contender.model, ShapeOrPath(contender.named));
  }
  for (const std::string& text : options.beside) {
    KVG_ASSIGN(BenchContender contender, ChooseBeside(text));
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

// What was measured of one contender at one length.
struct Cell {
  std::vector<LatencyRow> rows;  // by round
  std::vector<LatencyRow> full;  // beside each of them
};

// Summarises the undisturbed repetitions, or all if every one was disturbed: wide intervals show
// how little those are worth.
class Summary {
 public:
  Summary(const Cell& cell, double max_others_share) {
    for (const LatencyRow& row : cell.rows) clean_ += row.others_share <= max_others_share;
    for (size_t i = 0; i < cell.rows.size(); ++i) {
      if (clean_ > 0 && cell.rows[i].others_share > max_others_share) continue;
      rows_.push_back(&cell.rows[i]);
      pairs_.emplace_back(&cell.rows[i], &cell.full[i]);
    }
    const auto disturbed = [&](const auto& pair) {
      return pair.second->others_share > max_others_share;
    };
    if (!std::ranges::all_of(pairs_, disturbed)) std::erase_if(pairs_, disturbed);
  }

  int64_t clean() const { return clean_; }

  template <class Field>
  double Median(Field LatencyRow::*field) const {
    std::vector<double> values;
    for (const LatencyRow* row : rows_) values.push_back(static_cast<double>(row->*field));
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
  }

  double Mean(double LatencyRow::*field) const {
    double sum = 0;
    for (const LatencyRow* row : rows_) sum += row->*field;
    return sum / static_cast<double>(rows_.size());
  }

  // Over the full cache of the same round: the geometric mean, its interval at 95%.
  template <class Field>
  Estimate Ratio(Field LatencyRow::*field) const {
    std::vector<double> logs;
    for (const auto& [row, full] : pairs_) {
      logs.push_back(
          std::log(static_cast<double>(row->*field) / static_cast<double>(full->*field)));
    }
    Estimate ratio = MeasuredMean(logs);
    ratio.value = std::exp(ratio.value);
    ratio.interval = {std::exp(ratio.interval.low), std::exp(ratio.interval.high)};
    return ratio;
  }

 private:
  int64_t clean_ = 0;
  std::vector<const LatencyRow*> rows_;
  std::vector<std::pair<const LatencyRow*, const LatencyRow*>> pairs_;
};

std::string MillisecondDigits(double seconds) {
  const double ms = 1e3 * seconds;
  return Fixed(ms, ms < 10 ? 3 : ms < 100 ? 2 : 1);
}

// "0.742 +- 1.3%": the ratio with the half-width of its interval.
std::string RatioText(const Estimate& ratio) {
  if (ratio.samples == 0) return "-";
  std::string value = Fixed(ratio.value, 3);
  if (!std::isfinite(ratio.interval.high)) return value;
  return StrCat(value, " +- ", Fixed(100 * (ratio.interval.high / ratio.value - 1), 1), "%");
}

Json RatioJson(const Estimate& ratio) {
  if (ratio.samples == 0) return nullptr;
  const auto bound = [](double v) { return std::isfinite(v) && v > 0 ? Json(v) : Json(nullptr); };
  return {{"value", ratio.value},
          {"low", bound(ratio.interval.low)},
          {"high", bound(ratio.interval.high)},
          {"pairs", ratio.samples}};
}

using TimeField = std::pair<const char*, double LatencyRow::*>;
constexpr TimeField kPhases[] = {
    {"prefill", &LatencyRow::prefill_s},   {"score", &LatencyRow::score_s},
    {"select", &LatencyRow::select_s},     {"compact", &LatencyRow::compact_s},
    {"quantise", &LatencyRow::quantise_s}, {"attend", &LatencyRow::attend_s},
    {"other", &LatencyRow::other_s}};
constexpr TimeField kTimes[] = {{"ttft_s", &LatencyRow::ttft_s},
                                {"tpot_p50_s", &LatencyRow::tpot_p50_s},
                                {"tpot_p90_s", &LatencyRow::tpot_p90_s},
                                {"tpot_p99_s", &LatencyRow::tpot_p99_s}};

Json RowJson(const LatencyRow& row) {
  Json json = {{"round", row.repetition},
               {"resident_bytes", row.resident_bytes},
               {"peak_bytes", row.peak_bytes},
               {"others_share", row.others_share}};
  for (const auto& [name, field] : kTimes) json[name] = row.*field;
  for (const auto& [name, field] : kPhases) json[StrCat(name, "_s")] = row.*field;
  return json;
}

class LatencyBench {
 public:
  LatencyBench(const BenchLatencyOptions& options, const std::vector<BenchContender>& contenders)
      : options_(options), contenders_(contenders) {}

  Status Run() {
    const auto& contexts = options_.contexts;
    const int64_t most_tokens = *std::ranges::max_element(contexts);
    const int64_t fewest_tokens = *std::ranges::min_element(contexts);
    Models models(options_.model);
    std::vector<LatencyLine> lines;
    for (const BenchContender& contender : contenders_) {
      LatencyLine& line = lines.emplace_back();
      line.name = StrCat(contender.id(), " ", contender.budget);
      if (!options_.beside.empty()) line.name = StrCat(contender.shape(), " ", contender.id());
      line.method = &contender.chosen.method;
      line.budget = contender.chosen.budget;
      line.full_cache = lines.size() == 1;
      KVG_ASSIGN(line.model, models.For(contender.model, contender.chosen, most_tokens));
      KVG_TRY(
          CheckMethod(*line.method, line.model->checkpoint_shape(), line.budget, fewest_tokens));
    }
    LatencyOptions latency;
    latency.contexts = contexts;
    latency.decode_steps = options_.decode_steps;
    latency.repetitions = options_.repetitions;
    latency.pin_threads = options_.pin_threads;
    latency.max_others_share = options_.max_others;
    LatencyHooks hooks;
    hooks.on_event = [](const LatencyEvent& event) { Tell(event); };
    const Model& full = *lines[0].model;
    MeasureWeights(full);
    int64_t vocab_size = full.config().vocab_size;  // ids that every model knows
    for (const LatencyLine& line : lines) {
      models_.push_back(line.model);
      vocab_size = std::min(vocab_size, line.model->config().vocab_size);
    }
    KVG_ASSIGN(const LatencyOutcome outcome,
               MeasureLatency(
                   lines, SeededPrompts(vocab_size, options_.seed), latency, hooks,
                   [](size_t, int64_t) -> Result<LatencyRecorded> { return LatencyRecorded(); },
                   [&](const LatencyRound& round) {
                     Keep(round);
                     return Status();
                   }));
    if (options_.json) {
      PrintJson({{"model", contenders_[0].model},
                 {"dtype", NameOf(full.dtype())},
                 {"product_rows", NameOf(full.product_rows())},
                 {"machine", MachineFacts(full.ops(), options_.model.threads)},
                 {"products", ProductsText()},
                 {"environment", ThreadEnvironment()},
                 {"settings", ToJson(latency)},
                 {"seed", options_.seed},
                 {"disturbed", outcome.disturbed},
                 {"weight_bytes", full.weight_bytes()},
                 {"weights_read_s", weights_read_s_ > 0 ? Json(weights_read_s_) : Json(nullptr)},
                 {"published", PublishedJson()},
                 {"cells", CellsJson()}});
    } else {
      PrintTables(outcome);
    }
    return {};
  }

 private:
  static void Tell(const LatencyEvent& event) {
    std::string text = StrCat(event.context_tokens, " tokens, ", event.line->name, ": ");
    if (event.status.ok()) {
      text += StrCat(MillisecondDigits(event.row.ttft_s), " ms to the first token, ",
                     MillisecondDigits(event.row.tpot_p50_s), " ms a token (", event.done, " of ",
                     event.planned, ")");
    } else {
      text += StrCat("left out, ", event.status.error().message);
    }
    std::fprintf(stderr, "%s\n", text.c_str());
  }

  // A step reads every weight but the rows of the table that are not looked up. Experts are not
  // all read; and the host's memory has no bandwidth of its own to be held against.
  void MeasureWeights(const Model& model) {
    const ModelConfig& config = model.config();
    if (model.ops().device == Device::kHost || config.moe) return;
    const int64_t table =
        config.tied_head ? 0 : config.vocab_size * config.hidden_size * SizeOf(model.dtype());
    constexpr int64_t kMostCopied = int64_t{1} << 28;  // many times a device's cache
    constexpr int64_t kLeastCopied = int64_t{1} << 20;
    const int64_t copied = std::min(kMostCopied, model.ops().memory->FreeBytes() / 4);
    if (copied < kLeastCopied) return;
    weights_read_s_ = static_cast<double>(model.weight_bytes() - table) /
                      (1e9 * MeasureCopy(model.ops(), copied));
  }

  void Keep(const LatencyRound& round) {
    for (size_t i = 0; i < round.lines.size(); ++i) {
      Cell& cell = cells_[{round.rows[i].context_tokens, round.lines[i]}];
      cell.rows.push_back(round.rows[i]);
      cell.full.push_back(round.rows[0]);
    }
  }

  void PrintTables(const LatencyOutcome& outcome) const {
    std::vector<std::vector<std::string>> table, parts;
    for (const auto& [key, cell] : cells_) {
      const int64_t tokens = key.first;
      const size_t line = key.second;
      const BenchContender& contender = contenders_[line];
      const Summary summary(cell, options_.max_others);
      std::vector<std::string> cells = {StrCat(tokens), contender.id(), contender.budget};
      if (!options_.beside.empty()) cells.insert(cells.begin() + 1, contender.shape());
      std::vector<std::string> phases = cells;
      const std::string clean = StrCat(summary.clean(), "/", cell.rows.size());
      const auto ratio = [&](auto field) {
        return line == 0 ? std::string("1") : RatioText(summary.Ratio(field));
      };
      cells.insert(
          cells.end(),
          {MillisecondDigits(summary.Median(&LatencyRow::ttft_s)), ratio(&LatencyRow::ttft_s),
           MillisecondDigits(summary.Median(&LatencyRow::tpot_p50_s)),
           ratio(&LatencyRow::tpot_p50_s),
           MillisecondDigits(summary.Median(&LatencyRow::tpot_p90_s)),
           MillisecondDigits(summary.Median(&LatencyRow::tpot_p99_s)),
           HumanBytes(std::llround(summary.Median(&LatencyRow::resident_bytes))),
           HumanBytes(std::llround(summary.Median(&LatencyRow::peak_bytes))), clean});
      table.push_back(std::move(cells));
      for (const auto& phase : kPhases)
        phases.push_back(MillisecondDigits(summary.Mean(phase.second)));
      parts.push_back(std::move(phases));
    }
    std::vector<std::string> names = {"tokens", "method", "budget"};
    if (!options_.beside.empty()) names.insert(names.begin() + 1, "model");
    std::vector<std::string> header = names;
    for (const char* column :
         {"ttft ms", "x full", "tpot ms", "x full", "p90", "p99", "resident", "peak", "clean"}) {
      header.emplace_back(column);
    }
    PrintTable(header, table);
    Print(StrCat("\nWhere the time went, ms over the prompt and ", options_.decode_steps,
                 " steps:\n\n"));
    header = names;
    for (const auto& phase : kPhases) header.emplace_back(phase.first);
    PrintTable(header, parts);
    PrintPublished();
    PrintMemory();
    if (outcome.disturbed > 0) {
      Print(StrCat("\n", outcome.disturbed, " of ", outcome.measured,
                   " measurements were disturbed: other programs had more than ",
                   Fixed(100 * options_.max_others, 0),
                   "% of the processors beside them. They count only where a row has no other.\n"));
    }
  }

  void PrintMemory() const {
    Print(StrCat("\nweights ", HumanBytes(models_[0]->weight_bytes()),
                 options_.beside.empty() ? "" : StrCat(" of ", contenders_[0].shape()),
                 ", beside which the caches lie\n"));
    if (weights_read_s_ == 0) return;
    Print(StrCat("reading them at the speed of a copy takes ", MillisecondDigits(weights_read_s_),
                 " ms; a token with the full cache:"));
    for (const int64_t tokens : options_.contexts) {
      const auto cell = cells_.find({tokens, 0});
      if (cell == cells_.end()) continue;
      const Summary full(cell->second, options_.max_others);
      Print(StrCat(" ", Fixed(full.Median(&LatencyRow::tpot_p50_s) / weights_read_s_, 2),
                   " times that at ", tokens));
    }
    Print("\n");
  }

  struct Beside {
    int64_t tokens;
    size_t line;
    const PublishedNumber* claim;
    double measured;
  };
  std::vector<Beside> BesidePublished() const {
    std::vector<Beside> list;
    const int64_t longest = *std::ranges::max_element(options_.contexts);
    for (const auto& [key, cell] : cells_) {
      const auto& [tokens, line] = key;
      if (contenders_[line].beside) continue;  // claims are of one model with and without a method
      for (const PublishedNumber& claim : contenders_[line].chosen.method.published) {
        const int64_t told_at = claim.context_tokens > 0 ? claim.context_tokens : longest;
        if (tokens == told_at && Concerns(claim, models_[line]->config())) {
          list.push_back({tokens, line, &claim, Of(claim.what, tokens, line, cell)});
        }
      }
    }
    return list;
  }

  // What holds for latents of one size is left out on others.
  static bool Concerns(const PublishedNumber& claim, const ModelConfig& config) {
    if (claim.latent_numbers == 0) return true;
    return config.mla && config.mla->kv_lora_rank + config.mla->rope_dim == claim.latent_numbers;
  }

  double Of(PublishedNumber::What what, int64_t tokens, size_t line, const Cell& cell) const {
    const Summary summary(cell, options_.max_others);
    const Summary full(cells_.at({tokens, 0}), options_.max_others);
    const auto peak = [](const Summary& s, const Model& model) {
      return s.Median(&LatencyRow::peak_bytes) + static_cast<double>(model.weight_bytes());
    };
    switch (what) {
      case PublishedNumber::What::kDecodeTimes:
        return 1 / summary.Ratio(&LatencyRow::tpot_p50_s).value;
      case PublishedNumber::What::kCacheTimes:
        return 1 / summary.Ratio(&LatencyRow::resident_bytes).value;
      case PublishedNumber::What::kPeakTimes:
        return peak(full, *models_[0]) / peak(summary, *models_[line]);
      case PublishedNumber::What::kEntryBytes:
        break;
    }
    const auto entries =
        static_cast<double>((tokens + options_.decode_steps) * models_[line]->shape().layers);
    return summary.Median(&LatencyRow::resident_bytes) / entries;
  }

  void PrintPublished() const {
    std::vector<std::vector<std::string>> table;
    for (const Beside& b : BesidePublished()) {
      const int digits = b.claim->value < 100 ? 2 : 0;
      table.push_back({StrCat(b.tokens), contenders_[b.line].id(), contenders_[b.line].budget,
                       std::string(Describe(b.claim->what)), Fixed(b.claim->value, digits),
                       Fixed(b.measured, digits), b.claim->source});
    }
    if (table.empty()) return;
    Print("\nBeside what is published, of other models and machines:\n\n");
    PrintTable({"tokens", "method", "budget", "what", "published", "here", "source"}, table);
  }

  Json PublishedJson() const {
    Json list = Json::array();
    for (const Beside& b : BesidePublished()) {
      list.push_back({{"context_tokens", b.tokens},
                      {"method", contenders_[b.line].id()},
                      {"budget", contenders_[b.line].budget},
                      {"what", Describe(b.claim->what)},
                      {"published", b.claim->value},
                      {"measured", b.measured},
                      {"source", b.claim->source}});
    }
    return list;
  }

  // What was pinned for the products of all models.
  std::string ProductsText() const {
    std::vector<Ops*> devices;
    for (const Model* model : models_) {
      const std::vector<Ops*> own = DevicesOf(model->ops());
      devices.insert(devices.end(), own.begin(), own.end());
    }
    return ManyRowsText(devices);
  }

  Json CellsJson() const {
    Json list = Json::array();
    for (const auto& [key, cell] : cells_) {
      const auto& [tokens, line] = key;
      const Summary summary(cell, options_.max_others);
      Json json = {
          {"context_tokens", tokens},         {"model", contenders_[line].named},
          {"method", contenders_[line].id()}, {"budget", contenders_[line].budget},
          {"full_cache", line == 0},          {"weight_bytes", models_[line]->weight_bytes()},
          {"clean", summary.clean()},         {"repetitions", Json::array()}};
      for (const LatencyRow& row : cell.rows) json["repetitions"].push_back(RowJson(row));
      for (const auto& [name, field] : kTimes) json[name] = summary.Median(field);
      for (const auto& [name, field] : kPhases) json[StrCat(name, "_s")] = summary.Mean(field);
      json["resident_bytes"] = summary.Median(&LatencyRow::resident_bytes);
      json["peak_bytes"] = summary.Median(&LatencyRow::peak_bytes);
      if (line != 0) {
        json["ttft_times_full"] = RatioJson(summary.Ratio(&LatencyRow::ttft_s));
        json["tpot_times_full"] = RatioJson(summary.Ratio(&LatencyRow::tpot_p50_s));
        json["resident_times_full"] = RatioJson(summary.Ratio(&LatencyRow::resident_bytes));
      }
      list.push_back(std::move(json));
    }
    return list;
  }

  const BenchLatencyOptions& options_;
  const std::vector<BenchContender>& contenders_;
  std::map<std::pair<int64_t, size_t>, Cell> cells_;  // by context and line
  std::vector<const Model*> models_;                  // of lines
  double weights_read_s_ = 0;                         // 0: not known
};

}  // namespace

Status RunBenchLatency(const BenchLatencyOptions& options) {
  KVG_ASSIGN(const std::vector<BenchContender> contenders, ChooseBenchContenders(options));
  return LatencyBench(options, contenders).Run();
}

}  // namespace kvgauge
