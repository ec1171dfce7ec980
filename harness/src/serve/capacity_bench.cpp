// SPDX-License-Identifier: Apache-2.0
#include "src/serve/capacity_bench.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/attention.h"
#include "runner/sequence_plan.h"
#include "src/serve/serve_model.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostBatch = 1024;  // where the memory alone decides
// Blocks come in slabs of a thirty-second of what their size class uses, and their sizes are
// rounded within as much (runner/block_pool.h).
constexpr int64_t kSlabShare = 16;

// What each request of a trace asks for: its prompt with all turns before it, and in all.
std::set<std::pair<int64_t, int64_t>> LengthsOf(const Trace& trace, int64_t most_tokens) {
  std::set<std::pair<int64_t, int64_t>> lengths;
  std::map<int64_t, int64_t> history;
  for (const TraceRequest& request : trace.requests) {
    int64_t prompt = request.prompt_tokens;
    if (request.conversation >= 0) {
      int64_t& before = history[request.conversation];
      prompt += before;
      before = prompt + request.answer_tokens;
    }
    const int64_t total = prompt + request.answer_tokens;
    // One that the model cannot hold fails by itself.
    if (most_tokens > 0 && total > most_tokens) continue;
    lengths.insert({prompt, total});
  }
  return lengths;
}

// As long as the longest prompt, and the longest in all, which may be two requests.
SampleLength LongestOf(const Trace& trace, int64_t most_tokens) {
  SampleLength longest;
  for (const auto& [prompt, total] : LengthsOf(trace, most_tokens)) {
    longest.prefill = std::max(longest.prefill, prompt);
    longest.total = std::max(longest.total, total);
  }
  return longest;
}

// Rounded up, so that who gives what a message asks for has enough.
std::string RoundedUp(int64_t bytes) {
  int64_t unit = 1;
  while (bytes / unit >= 1024) unit *= 1024;
  if (unit == 1) return HumanBytes(bytes);
  const int64_t whole = bytes / unit, tenths = (bytes % unit * 10 + unit - 1) / unit;
  return HumanBytes(whole * unit + (tenths * unit + 9) / 10);
}

int64_t PositionsOf(const ModelConfig& config) { return config.max_position; }

// Bytes of a case, with the room that an allocator takes, remembered: traces ask again and again.
class PlannedBytes {
 public:
  PlannedBytes(const PlannedContender& contender, const EngineOptions& options)
      : plan_(contender, options),
        unchanged_(LeavesCacheAlone(*contender.method, contender.model->shape)) {}

  ServeBytes Functions() {
    ServeBytes bytes;
    bytes.prefill = [this](int64_t prompt) {
      return Known(prefill_, Pages(prompt), [&] { return plan_.PrefillBytes(Pages(prompt)); });
    };
    bytes.held = [this](int64_t prompt, int64_t total) {
      const std::pair<int64_t, int64_t> key = {prompt, Pages(total)};
      return Known(held_, key, [&] { return plan_.HeldBytes(prompt, Pages(total)); });
    };
    bytes.full = [this](int64_t tokens) {
      return Known(full_, Pages(tokens), [&] { return plan_.FullBytes(tokens); });
    };
    bytes.unchanged = unchanged_;
    return bytes;
  }

 private:
  static int64_t Pages(int64_t tokens) {
    return (tokens + kKvPageEntries - 1) / kKvPageEntries * kKvPageEntries;
  }
  template <class Map, class Key, class Compute>
  static int64_t Known(Map& map, const Key& key, const Compute& compute) {
    const auto [at, added] = map.try_emplace(key, 0);
    if (added) {
      const int64_t bytes = compute();
      at->second = bytes + bytes / kSlabShare;
    }
    return at->second;
  }

  const SequencePlan plan_;
  const bool unchanged_;
  std::map<int64_t, int64_t> prefill_, full_;
  std::map<std::pair<int64_t, int64_t>, int64_t> held_;
};

EngineOptions OptionsOf(int64_t max_batch) {
  EngineOptions options;
  options.max_pool_lanes = max_batch;
  return options;
}

Status CheckCase(const CapacityCase& of, const SampleLength& longest, const ModelShape& shape) {
  const Method& method = of.chosen->method;
  KVG_TRY(CheckMethod(method, shape, of.chosen->budget, longest.prefill));
  if (shape.prompt_passes > 1) {
    return Unsupported(StrCat(method.id, ": policy ", of.policy.name,
                              " reads prompts in parts, and a prompt goes through layers of this "
                              "model ",
                              shape.prompt_passes,
                              " times as a whole; measure it with kvgauge run or bench latency"));
  }
  if (method.reuse || method.see) {
    return Unsupported(StrCat(method.id, ": acts on ",
                              method.reuse ? "texts that prompts have in common" : "pictures",
                              ", and a trace has none; measure it with kvgauge run"));
  }
  if (of.policy.keep != ServePolicy::Keep::kNone && !LeavesCacheAlone(method, shape)) {
    return Unsupported(StrCat(method.id, ": policy ", of.policy.name,
                              " goes on with a cache after an answer, and this method's cache is "
                              "not what the next prompt would be read into; use full"));
  }
  if (of.policy.keep != ServePolicy::Keep::kNone && shape.entry_tokens > 1) {
    return Unsupported(StrCat(method.id, ": policy ", of.policy.name,
                              " goes on with a cache after an answer, and this model reads blocks "
                              "of ",
                              shape.entry_tokens,
                              " tokens that end with a prompt, which the next one's do elsewhere; "
                              "use another policy"));
  }
  if (of.policy.share != ServePolicy::Share::kNone && shape.state_bytes > 0) {
    return Unsupported(StrCat(method.id, ": policy ", of.policy.name,
                              " goes on from what prompts have in common, and layers of this model "
                              "keep a state of constant size, which cannot go back to there; use "
                              "another policy"));
  }
  if (of.policy.share != ServePolicy::Share::kNone && UnsharedTokens(method) < 0) {
    return Unsupported(StrCat(method.id, ": policy ", of.policy.name,
                              " does not read what is known of a prompt, and this method needs "
                              "the attention of all its rows; use another policy"));
  }
  return {};
}

ServeLimits LimitsOf(const CapacityCase& of, const CapacityPlan& plan, const ModelConfig& config) {
  ServeLimits limits;
  limits.cache_bytes = plan.cache_bytes;
  limits.max_batch = plan.max_batch;
  limits.max_tokens = PositionsOf(config);
  limits.host_bytes = of.host_bytes;
  limits.unshared_tokens = UnsharedTokens(of.chosen->method);
  return limits;
}

CapacityResult Begun(const CapacityPlan& plan, const PlannedModel& model) {
  CapacityResult result;
  result.max_batch = plan.max_batch;
  result.weight_bytes = model.weight_bytes;
  result.working_bytes = plan.working_bytes;
  result.cache_bytes = plan.cache_bytes;
  result.planned_held = plan.planned_held;
  return result;
}

}  // namespace

Result<CapacityPlan> PlanCapacity(const CapacityCase& of, const Trace& trace,
                                  const PlannedModel& model) {
  const SampleLength longest = LongestOf(trace, PositionsOf(*model.config));
  CapacityPlan plan;
  plan.max_batch = of.max_batch > 0 ? of.max_batch : kMostBatch;
  if (longest.total == 0) return plan;  // every request fails by itself
  KVG_TRY(CheckCase(of, longest, model.shape));
  const PlannedContender contender = {.method = &of.chosen->method,
                                      .budget = of.chosen->budget,
                                      .model = &model,
                                      .original = &model};
  struct Need {
    int64_t held = 0, beside = 0, prompt = 0;
  };
  const auto need_of = [](const ServeBytes& bytes, int64_t prompt, int64_t total) {
    const int64_t held = bytes.held(prompt, total), prefill = bytes.prefill(prompt);
    return Need{held, bytes.unchanged ? std::max<int64_t>(prefill - held, 0) : prefill, prompt};
  };
  const bool device =
      of.device_bytes > 0 && (of.memory_bytes == 0 || of.device_bytes < of.memory_bytes);
  const int64_t limit_bytes = device ? of.device_bytes : of.memory_bytes;
  const std::string limit =
      StrCat(device ? "the device has " : "--max-memory is ", HumanBytes(limit_bytes));
  std::optional<Need> most;  // of one request; the same for every batch
  const auto fit = [&](int64_t batch) -> Status {
    PlannedBytes planned(contender, OptionsOf(batch));
    const ServeBytes bytes = planned.Functions();
    plan.working_bytes = SequencePlan(contender, OptionsOf(batch)).WorkingBytes(longest.total);
    plan.cache_bytes = limit_bytes - model.weight_bytes - plan.working_bytes;
    const Need both = need_of(bytes, longest.prefill, longest.total);
    if (plan.cache_bytes >= both.held + both.beside) {
      plan.planned_held = (plan.cache_bytes - both.beside) / std::max<int64_t>(both.held, 1);
      return {};
    }
    // No request may ask for both.
    if (!most) {
      most = Need();
      for (const auto& length : LengthsOf(trace, PositionsOf(*model.config))) {
        const Need need = need_of(bytes, length.first, length.second);
        if (need.held + need.beside > most->held + most->beside) most = need;
      }
      // What is kept of a prompt may be less than what is kept of as long an answer.
      if (most->held + most->beside > both.held + both.beside) most = both;
    }
    const int64_t held = most->held, beside = most->beside;
    if (plan.cache_bytes < held + beside) {
      plan.planned_held = 0;
      return ResourceError(
          StrCat(of.chosen->method.id, ": ", limit, "; expected at least ",
                 RoundedUp(model.weight_bytes + plan.working_bytes + held + beside), " (weights ",
                 HumanBytes(model.weight_bytes), ", working memory ",
                 HumanBytes(plan.working_bytes), ", a sequence ", HumanBytes(held + beside),
                 " while its prompt of ", most->prompt, " tokens is read)"));
    }
    plan.planned_held = 1;
    return {};
  };
  if (limit_bytes == 0) {
    plan.max_batch = of.max_batch > 0 ? of.max_batch : 64;
    plan.working_bytes =
        SequencePlan(contender, OptionsOf(plan.max_batch)).WorkingBytes(longest.total);
    return plan;
  }
  if (model.weight_bytes >= limit_bytes) {
    return ResourceError(StrCat(limit, "; expected more than the weights, which take ",
                                HumanBytes(model.weight_bytes)));
  }
  // Working memory grows with the batch, so as many as fit beside what they need themselves.
  if (of.max_batch == 0) {
    int64_t least = 1, largest = kMostBatch;
    while (least < largest) {
      const int64_t middle = (least + largest + 1) / 2;
      if (fit(middle).ok() && plan.planned_held >= middle) {
        least = middle;
      } else {
        largest = middle - 1;
      }
    }
    plan.max_batch = least;
  }
  KVG_TRY(fit(plan.max_batch));
  return plan;
}

Result<CapacityResult> MeasureCapacity(const CapacityCase& of, const Trace& trace, Model& model,
                                       const std::function<bool()>& cancelled) {
  const PlannedModel planned = {.config = &model.cache_config(),
                                .shape = model.shape(),
                                .checkpoint_shape = model.checkpoint_shape(),
                                .weight_bytes = model.weight_bytes(),
                                .ops = &model.ops()};
  const Result<CapacityPlan> plan = PlanCapacity(of, trace, planned);
  if (!plan.ok()) {
    CapacityResult refused;
    refused.refused = plan.error().message;
    refused.max_batch = of.max_batch;
    refused.weight_bytes = model.weight_bytes();
    return refused;
  }
  CapacityResult result = Begun(*plan, planned);
  const PlannedContender contender = {.method = &of.chosen->method,
                                      .budget = of.chosen->budget,
                                      .model = &planned,
                                      .original = &planned};
  PlannedBytes bytes(contender, OptionsOf(plan->max_batch));
  CachePools::Limits pool_limits;
  pool_limits.device_bytes = plan->cache_bytes;
  CachePools pools(model.ops(), pool_limits);
  ServeModelOptions options;
  options.method = &of.chosen->method;
  options.budget = of.chosen->budget;
  options.seed = of.seed;
  options.directory = of.directory;
  options.shares = of.policy.share != ServePolicy::Share::kNone;
  if (options.shares || of.policy.keep != ServePolicy::Keep::kNone) {
    options.planned_tokens = LongestOf(trace, PositionsOf(model.config())).total;
  }
  const ServeBytes functions = bytes.Functions();
  const CpuUse before = ReadCpuUse();
  const double start_s = NowSeconds();
  {
    ServeModel worker(model, trace, options, pools);
    ServeLoop loop(trace, of.policy, LimitsOf(of, *plan, model.config()), functions, worker);
    KVG_ASSIGN(result.outcome, loop.Run(cancelled));
    result.answers = worker.answers();
    result.not_engaged = worker.not_engaged();
    result.not_engaged_because = worker.not_engaged_because();
    result.sequence_bytes = worker.mean_resident_bytes();
    result.peak_bytes = worker.peak_bytes();
  }
  result.others_share =
      OthersShare(before, ReadCpuUse(), NowSeconds() - start_s, AvailableProcessors());
  result.metrics = MeasureServed(result.outcome);
  return result;
}

Result<CapacityResult> EstimateCapacity(const CapacityCase& of, const Trace& trace,
                                        const PlannedModel& model, const MachineRates& rates) {
  const Result<CapacityPlan> plan = PlanCapacity(of, trace, model);
  if (!plan.ok()) {
    CapacityResult refused;
    refused.refused = plan.error().message;
    refused.max_batch = of.max_batch;
    refused.weight_bytes = model.weight_bytes;
    return refused;
  }
  CapacityResult result = Begun(*plan, model);
  const PlannedContender contender = {.method = &of.chosen->method,
                                      .budget = of.chosen->budget,
                                      .model = &model,
                                      .original = &model};
  PlannedBytes bytes(contender, OptionsOf(plan->max_batch));
  const ServeBytes functions = bytes.Functions();
  PassCost cost;
  cost.weight_bytes = static_cast<double>(model.weight_bytes);
  cost.operations_per_row = 2 * static_cast<double>(ParameterCount(*model.config));
  cost.held_bytes = functions.held;
  cost.full_bytes = functions.full;
  ServeEstimate worker(cost, rates);
  ServeLoop loop(trace, of.policy, LimitsOf(of, *plan, *model.config), functions, worker);
  KVG_ASSIGN(result.outcome, loop.Run());
  result.metrics = MeasureServed(result.outcome);
  return result;
}

}  // namespace kvgauge
