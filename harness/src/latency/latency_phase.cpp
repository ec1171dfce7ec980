// SPDX-License-Identifier: Apache-2.0
// In which order the latency phase measures, and what it has measured already.
#include "src/latency/latency_phase.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "core/threads.h"
#include "runner/engine.h"
#include "src/latency/thread_pins.h"

namespace kvgauge {
namespace {

// How many rows share one measurement of the full cache beside them. More would save time and let
// the machine drift between a row and what it is compared with.
constexpr size_t kRowsBesideFull = 4;
constexpr int64_t kWarmUpSteps = 4;
constexpr int64_t kMostTokens = int64_t{1} << 24;

Result<int64_t> WholeNumber(const Json& value, const std::string& where, int64_t low,
                            int64_t high) {
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (number >= low && number <= high) return number;
  }
  return BadInput(
      StrCat(where, ": ", value.dump(), ", expected a whole number from ", low, " to ", high));
}

Status ReadContexts(const Json& value, const std::string& where, std::vector<int64_t>& contexts) {
  if (!value.is_array() || value.empty()) {
    return BadInput(StrCat(where, ": ", value.dump(), ", expected prompt lengths like [1024]"));
  }
  for (const Json& item : value) {
    KVG_ASSIGN(const int64_t tokens, WholeNumber(item, where, 1, kMostTokens));
    if (std::ranges::find(contexts, tokens) != contexts.end()) {
      return BadInput(StrCat(where, ": ", tokens, " is there twice"));
    }
    contexts.push_back(tokens);
  }
  return {};
}

// The rows besides the full cache of each round to come. Who goes first changes from repetition to
// repetition.
std::vector<std::vector<size_t>> RoundsOf(const std::vector<int64_t>& missing, size_t full) {
  std::vector<std::vector<size_t>> rounds;
  const int64_t most = *std::ranges::max_element(missing);
  for (int64_t repetition = 0; repetition < most; ++repetition) {
    std::vector<size_t> rows;
    for (size_t i = 0; i < missing.size(); ++i) {
      const size_t line = (i + static_cast<size_t>(repetition)) % missing.size();
      if (line != full && missing[line] > repetition) rows.push_back(line);
    }
    for (size_t begin = 0; begin < rows.size(); begin += kRowsBesideFull) {
      const size_t end = std::min(begin + kRowsBesideFull, rows.size());
      rounds.emplace_back(rows.begin() + static_cast<int64_t>(begin),
                          rows.begin() + static_cast<int64_t>(end));
    }
  }
  while (std::ssize(rounds) < missing[full]) rounds.emplace_back();
  return rounds;
}

class Phase {
 public:
  Phase(const std::vector<LatencyLine>& lines, const LatencyPrompt& prompt,
        const LatencyOptions& options, const LatencyHooks& hooks,
        const std::function<Status(const LatencyRound&)>& sink)
      : lines_(lines),
        prompt_(prompt),
        options_(options),
        hooks_(hooks),
        sink_(sink),
        processors_(AllowedProcessors()) {
    if (options.pin_threads && !processors_.empty()) pins_.emplace(processors_);
  }

  Result<LatencyOutcome> Run(
      const std::function<Result<LatencyRecorded>(size_t, int64_t)>& recorded) {
    KVG_TRY(FindFull());
    for (const int64_t context : options_.contexts) {
      Length& length = lengths_.emplace_back(Length{.context = context, .missing = {}});
      for (size_t line = 0; line < lines_.size(); ++line) {
        KVG_ASSIGN(const LatencyRecorded there, recorded(line, context));
        outcome_.had += std::min(there.repetitions, options_.repetitions);
        length.next_round = std::max(length.next_round, there.next_round);
        length.missing.push_back(std::max<int64_t>(options_.repetitions - there.repetitions, 0));
      }
      planned_ += Measurements(length);
    }
    for (Length& length : lengths_) {
      LeaveOutWhatCannotFit(length);
      KVG_TRY(WarmUp(length));
      KVG_TRY(RunLength(length));
      if (outcome_.cancelled) break;
    }
    return outcome_;
  }

 private:
  struct Length {
    int64_t context = 0;
    std::vector<int64_t> missing;  // [lines] repetitions
    int64_t next_round = 0;
  };

  Status FindFull() {
    const auto count = std::ranges::count_if(lines_, &LatencyLine::full_cache);
    if (count != 1) {
      return BadInput(StrCat(
          "latency: expected exactly one full-cache row per model to compare against, found ",
          count));
    }
    full_ = static_cast<size_t>(std::ranges::find_if(lines_, &LatencyLine::full_cache) -
                                lines_.begin());
    return {};
  }

  int64_t Measurements(const Length& length) const {
    return PlannedMeasurements(length.missing, full_);
  }

  bool Cancelled() {
    outcome_.cancelled = outcome_.cancelled || (hooks_.cancelled && hooks_.cancelled());
    return outcome_.cancelled;
  }

  // The row is left out at this length. Without the full cache nothing is measured there.
  void Fail(Length& length, size_t line, const Status& status) {
    const int64_t before = Measurements(length);
    length.missing[line] = 0;
    if (line == full_) std::ranges::fill(length.missing, 0);
    planned_ -= before - Measurements(length);
    ++outcome_.failed;
    Tell(length, line, status, {});
  }

  void Tell(const Length& length, size_t line, const Status& status, const LatencyRow& row) {
    if (!hooks_.on_event) return;
    hooks_.on_event({.line = &lines_[line],
                     .context_tokens = length.context,
                     .done = done_,
                     .planned = planned_,
                     .status = status,
                     .row = row});
  }

  // All models of the phase are held, and one row at a time.
  Status Fits(const LatencyLine& line, int64_t context, int64_t visual_bytes) const {
    std::set<const Model*> models;
    int64_t others = 0;
    for (const LatencyLine& other : lines_) {
      if (other.model != line.model && models.insert(other.model).second) {
        others += other.model->weight_bytes();
      }
    }
    const Contender contender = {.method = line.method, .budget = line.budget, .model = line.model};
    const EngineSample sample = {.id = "latency",
                                 .context = std::vector<int32_t>(static_cast<size_t>(context)),
                                 .turns = {{.max_new_tokens = options_.decode_steps + 1}}};
    EngineOptions engine;
    engine.max_pool_lanes = 1;
    engine.vision_bytes = visual_bytes;
    if (options_.chunk_tokens > 0) {
      engine.compress_at = CompressAt::kChunk;
      engine.chunk_tokens = options_.chunk_tokens;
    }
    // Without a limit of the user's, what the device has free.
    if (options_.max_memory_bytes > 0) {
      engine.max_memory_bytes = std::max<int64_t>(1, options_.max_memory_bytes - others);
    }
    const Result<MemoryPlan> plan = Engine({contender}, engine).PlanMemory({&sample, 1});
    if (plan.ok()) return {};
    if (others == 0) return plan.error();
    return plan.error().Wrap(StrCat("beside ", HumanBytes(others), " of other weights"));
  }

  void LeaveOutWhatCannotFit(Length& length) {
    const Ops& ops = lines_[full_].model->ops();
    if (options_.max_memory_bytes == 0 && ops.memory->FreeBytes() == 0) return;
    const Result<LatencyTokens> prompt = prompt_(length.context, length.next_round);
    HeldRows shown;
    if (prompt.ok()) {
      shown.Add(prompt->visuals.get());
      for (const auto& left : prompt->left) shown.Add(left->visuals.get());
    }
    const int64_t visual_bytes = shown.bytes();
    for (size_t i = 0; i < lines_.size(); ++i) {
      const size_t line = (full_ + i) % lines_.size();  // the full cache first
      const bool wanted = line == full_ ? Measurements(length) > 0 : length.missing[line] > 0;
      if (!wanted) continue;
      const Status fits = Fits(lines_[line], length.context, visual_bytes);
      if (!fits.ok()) Fail(length, line, fits);
    }
  }

  Status WarmUp(Length& length) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const size_t line = (full_ + i) % lines_.size();  // the full cache first
      const bool wanted = line == full_ ? Measurements(length) > 0 : length.missing[line] > 0;
      if (!wanted) continue;
      if (Cancelled()) return {};
      KVG_ASSIGN(const LatencyTokens prompt, prompt_(length.context, length.next_round));
      const int64_t steps = std::min(options_.decode_steps, kWarmUpSteps);
      const Result<LatencyMeasurement> warm = MeasureLine(lines_[line], prompt, steps);
      if (!warm.ok()) Fail(length, line, warm.error());
      if (pins_) pins_->Pin();
    }
    return {};
  }

  Status RunLength(Length& length) {
    const std::vector<std::vector<size_t>> rounds = RoundsOf(length.missing, full_);
    std::vector<bool> failed(lines_.size());
    for (const std::vector<size_t>& rows : rounds) {
      LatencyRound round;
      const int64_t number = length.next_round++;
      KVG_ASSIGN(const LatencyTokens prompt, prompt_(length.context, number));
      // The full cache's place among the others changes, so that a drift of the machine does not
      // always favour one side.
      std::vector<size_t> order;
      for (const size_t line : rows) {
        if (!failed[line]) order.push_back(line);
      }
      if (order.empty() && !rows.empty()) continue;
      order.insert(order.begin() + number % (std::ssize(order) + 1), full_);
      for (const size_t line : order) {
        if (Cancelled()) return {};
        Result<LatencyRow> row = MeasureUndisturbed(line, prompt);
        if (!row.ok()) {
          failed[line] = true;
          ++outcome_.failed;
          Tell(length, line, row.error(), {});
          if (line == full_) return {};
          continue;
        }
        row->repetition = number;
        const auto at = line == full_ ? 0 : std::ssize(round.lines);
        round.lines.insert(round.lines.begin() + at, line);
        round.rows.insert(round.rows.begin() + at, *row);
        ++done_;
        Tell(length, line, {}, *row);
      }
      KVG_TRY(sink_(round));
      outcome_.measured += std::ssize(round.rows);
    }
    return {};
  }

  // On what the line's See stage leaves of the prompt. The row counts under the whole of it, which
  // is what its round shares.
  Result<LatencyMeasurement> MeasureLine(const LatencyLine& line, const LatencyTokens& prompt,
                                         int64_t steps) const {
    const bool less = line.see && !prompt.left.empty();
    const LatencyTokens& own = less ? *prompt.left[*line.see] : prompt;
    int64_t question = options_.question_tokens;
    if (less && question > 0 && question < prompt.size()) {
      question = own.size() - own.now[static_cast<size_t>(prompt.size() - question)];
    }
    KVG_ASSIGN(LatencyMeasurement measured,
               MeasureAlone(line, own, steps, processors_, question, options_.chunk_tokens));
    measured.row.context_tokens = prompt.size();
    return measured;
  }

  Result<LatencyRow> MeasureUndisturbed(size_t line, const LatencyTokens& prompt) {
    std::optional<LatencyRow> best;
    for (int64_t attempt = 0; attempt <= options_.most_retries; ++attempt) {
      if (pins_) pins_->Pin();
      KVG_ASSIGN(const LatencyMeasurement measured,
                 MeasureLine(lines_[line], prompt, options_.decode_steps));
      if (!best || measured.row.others_share < best->others_share) best = measured.row;
      if (best->others_share <= options_.max_others_share) return *best;
    }
    ++outcome_.disturbed;
    return *best;
  }

  const std::vector<LatencyLine>& lines_;
  const LatencyPrompt& prompt_;
  const LatencyOptions& options_;
  const LatencyHooks& hooks_;
  const std::function<Status(const LatencyRound&)>& sink_;
  const std::vector<int> processors_;  // before threads are bound
  std::optional<ThreadPins> pins_;
  size_t full_ = 0;
  std::vector<Length> lengths_;
  int64_t done_ = 0, planned_ = 0;
  LatencyOutcome outcome_;
};

}  // namespace

Result<LatencyOptions> ParseLatencyOptions(const Json& json, const std::string& where) {
  if (!json.is_object()) return BadInput(StrCat(where, ": ", json.dump(), ", expected an object"));
  const LatencyOptions defaults;
  LatencyOptions options;
  std::vector<std::string> known;
  const Json shape = ToJson(defaults);
  for (const auto& item : shape.items()) known.push_back(item.key());
  for (const auto& [key, value] : json.items()) {
    const std::string here = StrCat(where, ": key '", key, "'");
    if (key == "contexts") {
      KVG_TRY(ReadContexts(value, here, options.contexts));
    } else if (key == "decode_steps") {
      KVG_ASSIGN(options.decode_steps, WholeNumber(value, here, 1, kMostTokens));
    } else if (key == "repetitions") {
      KVG_ASSIGN(options.repetitions, WholeNumber(value, here, 1, 1000));
    } else if (key == "most_retries") {
      KVG_ASSIGN(options.most_retries, WholeNumber(value, here, 0, 1000));
    } else if (key == "pin_threads") {
      if (!value.is_boolean()) {
        return BadInput(StrCat(here, ": ", value.dump(), ", expected true or false"));
      }
      options.pin_threads = value.get<bool>();
    } else if (key == "max_others_share") {
      if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > 1) {
        return BadInput(StrCat(here, ": ", value.dump(), ", expected a number from 0 to 1"));
      }
      options.max_others_share = value.get<double>();
    } else {
      return BadInput(StrCat(where, ": unknown key ", Quoted(key), DidYouMean(key, known),
                             ", expected one of ", Join(known, ", ")));
    }
  }
  if (options.contexts.empty()) {
    return BadInput(
        StrCat(where, ": key 'contexts' is missing, expected prompt lengths like [1024]"));
  }
  return options;
}

Json ToJson(const LatencyOptions& options) {
  return {{"contexts", options.contexts},
          {"decode_steps", options.decode_steps},
          {"max_others_share", options.max_others_share},
          {"most_retries", options.most_retries},
          {"pin_threads", options.pin_threads},
          {"repetitions", options.repetitions}};
}

int64_t PlannedMeasurements(const std::vector<int64_t>& missing, size_t full) {
  int64_t count = 0;
  for (const auto& rows : RoundsOf(missing, full)) count += std::ssize(rows) + 1;
  return count;
}

Result<LatencyOutcome> MeasureLatency(
    const std::vector<LatencyLine>& lines, const LatencyPrompt& prompt,
    const LatencyOptions& options, const LatencyHooks& hooks,
    const std::function<Result<LatencyRecorded>(size_t line, int64_t context_tokens)>& recorded,
    const std::function<Status(const LatencyRound&)>& sink) {
  return Phase(lines, prompt, options, hooks, sink).Run(recorded);
}

Result<LatencyOutcome> RecordLatency(const std::vector<LatencyLine>& lines,
                                     const LatencyPrompt& prompt, const LatencyOptions& options,
                                     const LatencyHooks& hooks, ResultStore& store, int64_t run) {
  KVG_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  const auto own = std::ranges::find(runs, run, &StoredRun::id);
  KVG_CHECK(own != runs.end(), "the run is of the store");
  std::vector<std::map<int64_t, LatencyRecorded>> there(lines.size());  // by context
  for (size_t line = 0; line < lines.size(); ++line) {
    KVG_ASSIGN(const std::vector<LatencyRow> rows, store.Latency(lines[line].cell));
    for (const LatencyRow& row : rows) {
      LatencyRecorded& r = there[line][row.context_tokens];
      ++r.repetitions;
      if (row.run_key == own->run.key) r.next_round = std::max(r.next_round, row.repetition + 1);
    }
  }
  return MeasureLatency(
      lines, prompt, options, hooks,
      [&](size_t line, int64_t context) -> Result<LatencyRecorded> { return there[line][context]; },
      [&](const LatencyRound& round) -> Status {
        for (size_t i = 0; i < round.lines.size(); ++i) {
          KVG_TRY(store.WriteLatency(lines[round.lines[i]].cell, run, {&round.rows[i], 1}));
        }
        return {};
      });
}

}  // namespace kvgauge
