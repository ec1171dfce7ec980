// SPDX-License-Identifier: Apache-2.0
#include "src/serve/serve_model.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/guarded.h"
#include "core/rng.h"
#include "core/strings.h"
#include "runner/sparse_prefill.h"
#include "runner/thin_prefill.h"

namespace kvgauge {

namespace {

// Readers are asked how much they know each time that so many passes were made: their indexes grow
// slowly, and only where entries leave meanwhile is less held at the end.
constexpr int64_t kCountedPasses = 64;

int64_t SumOf(CachePools& pools, int64_t (BlockPool::*bytes)() const) {
  int64_t sum = 0;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    sum += (pools.of(tier).*bytes)();
  }
  return sum;
}

}  // namespace

bool LeavesCacheAlone(const Method& method, const ModelShape& shape) {
  if (method.prepare || method.see || method.attend || method.thin || method.score || method.read) {
    return false;
  }
  const std::unique_ptr<Stage> stage = MakeStage(*method.store);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Result<StorePlan> plan = static_cast<const Store&>(*stage).Plan(shape, layer);
    if (!plan.ok() || !plan->IsPlain()) return false;
  }
  return true;
}

bool ReadsPromptApart(const Method& method) {
  return method.thin.has_value() || method.attend.has_value();
}

int64_t UnsharedTokens(const Method& method) {
  const Needs needs = method.needs();
  const bool all = ReadsPromptApart(method) || needs.column_sums || needs.column_squares ||
                   !needs.chunk_sums.empty() || !needs.query_moments.empty() ||
                   !needs.gates.empty() || needs.inputs;
  return all ? -1 : std::max<int64_t>(1, needs.most_window());
}

ServeModel::ServeModel(Model& model, const Trace& trace, const ServeModelOptions& options,
                       CachePools& pools)
    : model_(model),
      trace_(trace),
      options_(options),
      pools_(pools),
      latents_(KeepsModelLatents(*options.method, model.shape())),
      unchanged_(LeavesCacheAlone(*options.method, model.shape())),
      answers_(trace.requests.size()) {}

ServeModel::~ServeModel() {
  sequences_.clear();
  if (folder_.empty()) return;
  std::error_code failed;
  std::filesystem::remove_all(folder_, failed);
}

double ServeModel::now_s() { return NowSeconds(); }

int64_t ServeModel::peak_bytes() const {
  return std::max(counted_peak_bytes_, SumOf(pools_, &BlockPool::peak_bytes));
}

void ServeModel::CountHeld(int64_t more) {
  int64_t held = more + SumOf(pools_, &BlockPool::resident_bytes);
  // Those that moved to the host have left their indexes behind.
  for (const auto& [request, s] : sequences_) {
    if (s.compressor != nullptr) held += s.compressor->reader_bytes();
  }
  counted_peak_bytes_ = std::max(counted_peak_bytes_, held);
}

uint64_t ServeModel::SeedOf(int64_t request) const {
  return Rng(options_.seed, static_cast<uint64_t>(request)).NextU64();
}

KvCache ServeModel::NewCache(int64_t request, int64_t prompt_tokens) {
  const int64_t own = prompt_tokens + trace_.requests[static_cast<size_t>(request)].answer_tokens;
  KvCache cache = model_.NewCache(std::max(own, options_.planned_tokens), pools_, latents_);
  cache.EndBlockBehind(prompt_tokens);
  return cache;
}

std::vector<int32_t> ServeModel::PromptOf(std::span<const TokenRun> runs) const {
  std::vector<int32_t> ids;
  const auto vocab = static_cast<uint32_t>(model_.config().vocab_size);
  for (const TokenRun& run : runs) {
    int64_t request = 0;
    if (IsAnswerContent(run.content, &request)) {
      const std::vector<int32_t>& answer = answers_[static_cast<size_t>(request)];
      KVG_CHECK(run.first + run.tokens <= std::ssize(answer), "an answer that is not there yet");
      ids.insert(ids.end(), answer.begin() + run.first, answer.begin() + run.first + run.tokens);
      continue;
    }
    const Rng rng(options_.seed, run.content);
    for (int64_t i = run.first; i < run.first + run.tokens; ++i) {
      ids.push_back(static_cast<int32_t>(rng.At(static_cast<uint64_t>(i))[0] % vocab));
    }
  }
  return ids;
}

Status ServeModel::Start(int64_t request, std::span<const TokenRun> runs, const Payload& payload,
                         int64_t tokens, bool kept) {
  return Guarded([&]() -> Status {
    Sequence& s = sequences_[request];
    s = {};
    std::vector<int32_t> ids = PromptOf(runs);
    s.prompt_tokens = std::ssize(ids);
    const std::vector<int32_t>& answer = answers_[static_cast<size_t>(request)];
    if (unchanged_ && !answer.empty()) ids.insert(ids.end(), answer.begin(), answer.end() - 1);
    s.prompt = Prompt::FromTokens(ids);
    if (kept) {
      int64_t before = -1;
      for (const TokenRun& run : runs) IsAnswerContent(run.content, &before);
      const auto at = kept_.find(before);
      KVG_CHECK(at != kept_.end(), "a cache that was not kept");
      std::string bytes = std::move(at->second.bytes);
      if (!at->second.path.empty()) {
        KVG_ASSIGN(bytes, ReadFile(at->second.path, int64_t{1} << 40));
        std::filesystem::remove(at->second.path);
      }
      kept_.erase(at);
      s.cache = std::make_unique<KvCache>(NewCache(request, s.prompt_tokens));
      KVG_TRY(s.cache->Deserialize(bytes));
      KVG_CHECK(s.cache->tokens() == tokens, "a kept cache of another length");
    } else if (payload != nullptr) {
      const auto& shared = *static_cast<const KvCache*>(payload.get());
      s.cache = std::make_unique<KvCache>(shared.Fork());
      KVG_TRY(s.cache->Truncate(tokens));
    } else {
      s.cache = std::make_unique<KvCache>(NewCache(request, s.prompt_tokens));
    }
    return Begin(s, request);
  });
}

Status ServeModel::Begin(Sequence& s, int64_t /*request*/) {
  s.compressor = std::make_unique<Compressor>(model_, *options_.method, options_.budget);
  s.capture = std::make_unique<PrefillCapture>(model_.cache_config(), *s.cache,
                                               NeedsOf(options_.method->needs(), s.prompt),
                                               s.prompt.size() - s.cache->tokens(), &s.prompt);
  return {};
}

Status ServeModel::Prepare(const ServeStep& step, SequenceStep* out) {
  Sequence& s = sequences_.at(step.request);
  if (!step.prefill) {
    s.prompt.AppendText(answers_[static_cast<size_t>(step.request)][static_cast<size_t>(s.fed)]);
  }
  const int64_t begin = s.cache->tokens(), end = begin + step.rows;
  KVG_TRY(s.cache->Append(step.rows));
  *out = {.cache = s.cache.get(),
          .prompt = &s.prompt,
          .begin = begin,
          .end = end,
          .logits = !step.prefill || step.last ? LogitRows::kLast : LogitRows::kNone,
          .hook = step.prefill ? static_cast<LayerHook*>(s.capture.get()) : s.compressor->hook()};
  return {};
}

std::vector<Status> ServeModel::Pass(std::span<const ServeStep> steps) {
  std::vector<Status> results(steps.size());
  std::vector<ServeStep> ready;
  std::vector<SequenceStep> passed;
  std::vector<Status*> targets;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].prefill && ReadsPromptApart(*options_.method)) {
      // Layer by layer, whole: with the last of its rows.
      if (steps[i].last) results[i] = Guarded([&] { return ReadApart(steps[i]); });
      continue;
    }
    SequenceStep step;
    results[i] = Guarded([&] { return Prepare(steps[i], &step); });
    if (!results[i].ok()) continue;
    ready.push_back(steps[i]);
    passed.push_back(step);
    targets.push_back(&results[i]);
  }
  if (!ready.empty()) Forward(ready, passed, targets);
  if (++passes_ % kCountedPasses == 0) CountHeld();
  return results;
}

// Where working memory runs out, halves go one after the other, to the same bits.
void ServeModel::Forward(std::span<const ServeStep> steps, std::span<const SequenceStep> passed,
                         std::span<Status*> results) {
  std::vector<int32_t> best;
  const Status ran = Guarded([&]() -> Status {
    const Tensor logits = model_.Forward(passed);
    const bool any = std::any_of(passed.begin(), passed.end(), [](const SequenceStep& step) {
      return step.logits == LogitRows::kLast;
    });
    if (any) best = model_.BestTokens(logits, 0);
    model_.ops().memory->Synchronize();
    return {};
  });
  if (!ran.ok() && steps.size() > 1) {
    const size_t half = steps.size() / 2;
    Forward(steps.first(half), passed.first(half), results.first(half));
    Forward(steps.subspan(half), passed.subspan(half), results.subspan(half));
    return;
  }
  if (!ran.ok()) {
    *results[0] = ran;
    return;
  }
  std::vector<int32_t> chosen(steps.size(), -1);
  size_t row = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (passed[i].logits == LogitRows::kLast) chosen[i] = best[row++];
  }
  constexpr double kStep_ns = 20000;
  model_.ops().tasks->ForEach(std::ssize(steps), kStep_ns, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    if (!steps[at].prefill) {
      *results[at] = Guarded([&] { return EndStep(steps[at], chosen[at]); });
    }
  });
  // Compression may run the model: alone.
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].prefill) continue;
    if (steps[i].last) {
      *results[i] = Guarded([&] { return EndPrompt(steps[i].request, chosen[i]); });
    }
  }
}

template <class Prefill>
Result<int32_t> ServeModel::Finished(Prefill&& prefill) {
  int32_t best = -1;
  while (!prefill.done()) {
    KVG_ASSIGN(const Tensor logits, prefill.Next());
    if (prefill.done()) best = model_.BestTokens(logits, 0)[0];
    model_.ops().memory->Synchronize();
  }
  return best;
}

Status ServeModel::ReadApart(const ServeStep& step) {
  Sequence& s = sequences_.at(step.request);
  const Method& method = *options_.method;
  const uint64_t seed = SeedOf(step.request);
  int32_t best = -1;
  if (method.attend) {
    KVG_ASSIGN(best, Finished(SparsePrefill(model_, *method.attend, s.prompt, *s.cache, *s.capture,
                                            seed)));
  } else {
    KVG_ASSIGN(best,
               Finished(ThinPrefill(model_, *method.thin, s.prompt, *s.cache, *s.capture, seed)));
  }
  return EndPrompt(step.request, best);
}

Status ServeModel::EndPrompt(int64_t request, int32_t best) {
  Sequence& s = sequences_.at(request);
  KVG_TRY(s.capture->status());
  CountHeld(s.capture->bytes());
  if (options_.shares) s.read = std::make_shared<KvCache>(s.cache->Fork());
  PromptState state = {s.cache.get(), s.capture.get(), SeedOf(request), &s.prompt, false};
  state.next = best;
  std::optional<PromptScores> scores;
  const Method* method = options_.method;
  if (ProbesPrompt(*method)) scores = PromptScores::Compute(model_, state, {&method, 1});
  KVG_TRY(s.compressor->Compress(state, scores ? &*scores : nullptr, *s.cache));
  CountHeld(s.capture->bytes());
  s.capture.reset();
  std::vector<int32_t>& answer = answers_[static_cast<size_t>(request)];
  const int64_t replayed = s.prompt.size() - s.prompt_tokens;
  s.fed = replayed;
  if (answer.empty()) {
    answer.push_back(best);
  } else if (answer[static_cast<size_t>(replayed)] != best) {
    return Unsupported("a dropped cache gave another token when it was made again");
  }
  return {};
}

Status ServeModel::EndStep(const ServeStep& step, int32_t best) {
  Sequence& s = sequences_.at(step.request);
  KVG_TRY(s.compressor->AfterStep());
  ++s.fed;
  std::vector<int32_t>& answer = answers_[static_cast<size_t>(step.request)];
  if (step.chooses) {
    answer.push_back(best);
  } else if (answer[static_cast<size_t>(s.fed)] != best) {
    return Unsupported("a dropped cache gave another token when it was made again");
  }
  return {};
}

ServeWorker::Payload ServeModel::TakePrompt(int64_t request) {
  return std::exchange(sequences_.at(request).read, nullptr);
}

ServeWorker::Payload ServeModel::TakeWhole(int64_t request) {
  return std::make_shared<KvCache>(sequences_.at(request).cache->Fork());
}

Result<ServeWorker::Payload> ServeModel::Cut(const Payload& payload, int64_t tokens) {
  auto cut = std::make_shared<KvCache>(static_cast<const KvCache*>(payload.get())->Fork());
  KVG_TRY(cut->Truncate(tokens));
  return Payload(std::move(cut));
}

void ServeModel::Drop(int64_t request) {
  CountHeld();
  sequences_.erase(request);
}

Result<int64_t> ServeModel::Save(int64_t request) {
  Sequence& s = sequences_.at(request);
  CountHeld();
  KVG_ASSIGN(s.saved, s.cache->Serialize());
  // The compressor goes on with the same object.
  *s.cache = NewCache(request, s.prompt_tokens);
  return std::ssize(s.saved);
}

Status ServeModel::Restore(int64_t request) {
  Sequence& s = sequences_.at(request);
  return Guarded([&]() -> Status {
    KVG_TRY(s.cache->Deserialize(s.saved));
    s.saved = {};
    return {};
  });
}

Result<int64_t> ServeModel::Finish(int64_t request, bool keep) {
  const auto at = sequences_.find(request);
  if (at == sequences_.end()) return int64_t{0};
  CountHeld();
  Sequence& s = at->second;
  int64_t kept = 0;
  const Status ended = Guarded([&]() -> Status {
    if (s.capture != nullptr || s.cache == nullptr) return {};
    KVG_TRY(s.compressor->CheckSteps());
    const CompressionRecord record = s.compressor->Record();
    ++finished_;
    resident_sum_ +=
        static_cast<double>(record.final_bytes.resident() + s.compressor->reader_bytes());
    if (record.engagement == Engagement::kNotEngaged) {
      ++not_engaged_;
      because_ = record.reason;
    }
    if (!keep) return {};
    KeptCache cache;
    KVG_ASSIGN(cache.bytes, s.cache->Serialize());
    kept = std::ssize(cache.bytes);
    kept_[request] = std::move(cache);
    return {};
  });
  sequences_.erase(at);
  if (!ended.ok()) return ended.error();
  return kept;
}

Status ServeModel::MoveKeptToDisk(int64_t request) {
  KeptCache& cache = kept_.at(request);
  if (folder_.empty()) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::path parent =
        options_.directory.empty() ? fs::temp_directory_path(failed) : fs::path(options_.directory);
    std::string name = (parent / "kvgauge-kept-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return SystemError(name, "create");
    folder_ = name;
  }
  cache.path = StrCat(folder_, "/", request);
  KVG_TRY(WriteFile(cache.path, cache.bytes));
  cache.bytes = {};
  return {};
}

void ServeModel::DropKept(int64_t request) {
  const auto at = kept_.find(request);
  std::error_code failed;
  if (!at->second.path.empty()) std::filesystem::remove(at->second.path, failed);
  kept_.erase(at);
}

}  // namespace kvgauge
