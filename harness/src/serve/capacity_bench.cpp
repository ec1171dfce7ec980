// SPDX-License-Identifier: Apache-2.0
#include "src/serve/capacity_bench.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/guarded.h"
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
    bytes.left = [this](int64_t prompt, int64_t total) {
      return plan_.IndexBytes(prompt, Pages(total));
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

struct RequestsThatFit {
  SampleLength longest;    // prompt, and in all: which may be two requests
  int64_t most_bytes = 0;  // of one
};

// What a memory beside the weights has room for, at any batch: caches do not depend on it.
class RoomForRequests {
 public:
  RoomForRequests(const ServePolicy& policy, const Trace& trace, const PlannedContender& contender,
                  int64_t memory_bytes)
      : policy_(policy),
        contender_(contender),
        planned_(contender, OptionsOf(1)),
        bytes_(planned_.Functions()),
        memory_bytes_(memory_bytes) {
    for (const auto& [prompt, total] : LengthsOf(trace, PositionsOf(*contender.model->config))) {
      needs_.push_back({prompt, total, NeedAlone(bytes_, policy_, prompt, total)});
    }
    std::ranges::stable_sort(needs_, std::greater(), &Need::total);
  }

  int64_t Working(int64_t batch, int64_t tokens) const {
    return SequencePlan(contender_, OptionsOf(batch)).WorkingBytes(tokens);
  }
  int64_t CacheBytes(int64_t batch, int64_t longest_tokens) const {
    return memory_bytes_ - Working(batch, longest_tokens);
  }

  // The longest request that fits alone, and all of the others that then do.
  std::optional<RequestsThatFit> Fitting(int64_t batch) const {
    const SequencePlan plan(contender_, OptionsOf(batch));
    const auto longest = std::ranges::find_if(needs_, [&](const Need& need) {
      return need.bytes <= memory_bytes_ - plan.WorkingBytes(need.total);
    });
    if (longest == needs_.end()) return std::nullopt;
    const int64_t cache_bytes = CacheBytes(batch, longest->total);
    RequestsThatFit fitting;
    fitting.longest.total = longest->total;
    for (auto need = longest; need != needs_.end(); ++need) {
      if (need->bytes > cache_bytes) continue;
      fitting.longest.prefill = std::max(fitting.longest.prefill, need->prompt);
      fitting.most_bytes = std::max(fitting.most_bytes, need->bytes);
    }
    return fitting;
  }

  // Sequences as long as the longest that are held at once while a prompt is read; 0: not every
  // request fits.
  int64_t Held(int64_t batch, const RequestsThatFit& of) const {
    return HeldWith(batch, of, of.longest.total);
  }
  // Those of them that begin before one must go: more, where the policy admits by what is held now.
  int64_t Begun(int64_t batch, const RequestsThatFit& of) const {
    return HeldWith(batch, of, CoveredTokens(policy_, of.longest.prefill, of.longest.total));
  }

  // The error where no request fits. `limit`: what the memory is.
  Error Refusal(int64_t batch, const std::string& limit) const {
    const SequencePlan plan(contender_, OptionsOf(batch));
    const auto least = std::ranges::min_element(
        needs_, {}, [&](const Need& need) { return need.bytes + plan.WorkingBytes(need.total); });
    const auto most = std::ranges::max_element(needs_, {}, &Need::bytes);
    const int64_t weights = contender_.model->weight_bytes;
    const std::string enough = RoundedUp(weights + plan.WorkingBytes(least->total) + least->bytes);
    const std::string all =
        RoundedUp(weights + plan.WorkingBytes(needs_.front().total) + most->bytes);
    std::string words = StrCat(
        limit, "; expected at least ", enough, " (weights ", HumanBytes(weights),
        ", working memory ", HumanBytes(plan.WorkingBytes(least->total)), ", a sequence ",
        HumanBytes(least->bytes), " while its prompt of ", least->prompt, " tokens is read)");
    if (all != enough) words += StrCat(", and ", all, " for all requests");
    return ResourceError(words);
  }

 private:
  struct Need {
    int64_t prompt = 0, total = 0, bytes = 0;
  };

  // By what each holds with so many tokens.
  int64_t HeldWith(int64_t batch, const RequestsThatFit& of, int64_t tokens) const {
    const int64_t cache_bytes = CacheBytes(batch, of.longest.total);
    if (of.most_bytes > cache_bytes) return 0;
    const int64_t held = bytes_.held(of.longest.prefill, tokens);
    const int64_t reading = bytes_.Reading(of.longest.prefill, held);
    // No request may ask for both lengths.
    if (reading > cache_bytes) return 1;
    return (cache_bytes - (reading - held)) / std::max<int64_t>(held, 1);
  }

  const ServePolicy& policy_;
  const PlannedContender& contender_;
  PlannedBytes planned_;
  const ServeBytes bytes_;
  const int64_t memory_bytes_;
  std::vector<Need> needs_;  // the longest in all first
};

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

ServeLimits LimitsOf(const CapacityCase& of, const CapacityPlan& plan,
                     const PlannedContender& contender) {
  ServeLimits limits;
  limits.cache_bytes = plan.cache_bytes;
  limits.max_batch = plan.max_batch;
  limits.max_tokens = PositionsOf(*contender.model->config);
  if (plan.cache_bytes > 0) {
    limits.pass_tokens = plan.longest_tokens;
    limits.working = [&contender, batch = plan.max_batch](int64_t tokens) {
      return SequencePlan(contender, OptionsOf(batch)).WorkingBytes(tokens);
    };
  }
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
  plan.max_batch = of.max_batch > 0 ? of.max_batch : 1;
  plan.longest_tokens = longest.total;
  if (longest.total == 0) return plan;  // every request fails by itself
  KVG_TRY(CheckCase(of, longest, model.shape));
  const PlannedContender contender = {.method = &of.chosen->method,
                                      .budget = of.chosen->budget,
                                      .model = &model,
                                      .original = &model};
  const bool device =
      of.device_bytes > 0 && (of.memory_bytes == 0 || of.device_bytes < of.memory_bytes);
  const int64_t limit_bytes = device ? of.device_bytes : of.memory_bytes;
  const std::string limit =
      StrCat(device ? "the device has " : "--max-memory is ", HumanBytes(limit_bytes));
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
  const RoomForRequests room(of.policy, trace, contender, limit_bytes - model.weight_bytes);
  const int64_t batch = of.max_batch > 0 ? of.max_batch : 1;
  const std::optional<RequestsThatFit> fitting = room.Fitting(batch);
  if (!fitting) return room.Refusal(batch, StrCat(of.chosen->method.id, ": ", limit));
  plan.max_batch = batch;
  // Working memory grows with the batch, so as many as fit beside what they need themselves. None
  // fails that fits alone.
  int64_t largest = of.max_batch > 0 ? batch : kMostBatch;
  while (plan.max_batch < largest) {
    const int64_t middle = (plan.max_batch + largest + 1) / 2;
    if (room.Begun(middle, *fitting) >= middle) {
      plan.max_batch = middle;
    } else {
      largest = middle - 1;
    }
  }
  plan.longest_tokens = fitting->longest.total;
  plan.working_bytes = room.Working(plan.max_batch, plan.longest_tokens);
  plan.cache_bytes = room.CacheBytes(plan.max_batch, plan.longest_tokens);
  plan.planned_held = room.Held(plan.max_batch, *fitting);
  return plan;
}

CapacityResult RefusedCase(const CapacityCase& of, const std::string& why,
                           const PlannedModel& model) {
  CapacityResult refused;
  refused.refused = why;
  refused.max_batch = of.max_batch;
  refused.weight_bytes = model.weight_bytes;
  return refused;
}

Result<CapacityResult> MeasureCapacity(const CapacityCase& of, const Trace& trace, Model& model,
                                       const std::function<bool()>& cancelled) {
  const PlannedModel planned = {.config = &model.config(),
                                .caches = &model.cache_config(),
                                .shape = model.shape(),
                                .checkpoint_shape = model.checkpoint_shape(),
                                .weight_bytes = model.weight_bytes(),
                                .ops = &model.ops(),
                                .product_rows = model.product_rows()};
  const Result<CapacityPlan> plan = PlanCapacity(of, trace, planned);
  if (!plan.ok()) return RefusedCase(of, plan.error().message, planned);
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
    options.planned_tokens = plan->longest_tokens;
  }
  const ServeBytes functions = bytes.Functions();
  const CpuUse before = ReadCpuUse();
  const double start_s = NowSeconds();
  {
    ServeModel worker(model, trace, options, pools);
    ServeLoop loop(trace, of.policy, LimitsOf(of, *plan, contender), functions, worker);
    const Status ran = Guarded([&]() -> Status {
      KVG_ASSIGN(result.outcome, loop.Run(cancelled));
      return {};
    });
    // A disk or a device that has no more, where no request is to blame, ends this case alone.
    if (!ran.ok()) {
      if (ran.error().code == ErrorCode::kUnsupported) return ran.error();
      return RefusedCase(of, StrCat(of.chosen->method.id, ": ", ran.error().message), planned);
    }
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
  if (!plan.ok()) return RefusedCase(of, plan.error().message, model);
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
  ServeLoop loop(trace, of.policy, LimitsOf(of, *plan, contender), functions, worker);
  KVG_ASSIGN(result.outcome, loop.Run());
  result.metrics = MeasureServed(result.outcome);
  return result;
}

}  // namespace kvgauge
