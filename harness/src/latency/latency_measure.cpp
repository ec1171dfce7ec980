// SPDX-License-Identifier: Apache-2.0
// One measurement of the latency phase, and the prompts it runs on.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <optional>

#include "core/clock.h"
#include "core/rng.h"
#include "core/strings.h"
#include "core/threads.h"
#include "runner/capture.h"
#include "runner/chunk_prefill.h"
#include "runner/reuse_prefill.h"
#include "runner/reuse_texts.h"
#include "runner/sparse_prefill.h"
#include "runner/thin_prefill.h"
#include "src/latency/latency_phase.h"

namespace kvgauge {
namespace {

// Ids that tell nothing of their kind: a seed that no sample has.
constexpr uint64_t kPromptStream = 0x6c6174656e6379;

// /proc/stat counts in ticks of 10 ms, so one of them may be of something else.
constexpr double kTickSeconds = 0.011;

// Interpolates linearly between neighbours of ascending values.
double Percentile(const std::vector<double>& ascending, double share) {
  const double place = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  const double rest = place - static_cast<double>(below);
  return ascending[below] + rest * (ascending[above] - ascending[below]);
}

int64_t Sum(CachePools& pools, int64_t (BlockPool::*bytes)() const) {
  int64_t sum = 0;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    sum += (pools.of(tier).*bytes)();
  }
  return sum;
}

Status CheckPrompt(const LatencyLine& line, const LatencyTokens& prompt, int64_t decode_steps,
                   int64_t question_tokens, int64_t chunk_tokens) {
  const ModelConfig& config = line.model->config();
  if (prompt.ids.empty()) return BadInput(StrCat(line.name, ": the prompt has no tokens"));
  for (const int32_t id : prompt.ids) {
    if (id >= 0 && id < config.vocab_size) continue;
    return BadInput(
        StrCat(line.name, ": token id ", id, "; expected 0 .. ", config.vocab_size - 1));
  }
  const int64_t planned = prompt.size() + decode_steps + 1;
  if (config.learned_positions && planned > config.max_position) {
    return BadInput(StrCat(line.name, ": prompt and answer reach ", planned,
                           " tokens; the model has learned positions for ", config.max_position));
  }
  if (question_tokens >= prompt.size()) {
    return BadInput(StrCat(line.name, ": a prompt of ", prompt.size(),
                           " tokens, expected more than ", question_tokens,
                           ", those of the question that follows the context"));
  }
  const int64_t context = prompt.size() - question_tokens;
  if (config.blocks && !config.blocks->Answers(context, prompt.size())) {
    return BadInput(StrCat(line.name, ": a context of ", context,
                           " tokens; the model reads blocks ", "of ", config.blocks->tokens,
                           ", of which it has to hold one"));
  }
  if (chunk_tokens > 0) {
    KVG_TRY(CheckMoment(*line.method, CompressAt::kChunk, chunk_tokens));
  }
  return CheckMethod(*line.method, line.model->checkpoint_shape(), line.budget, context);
}

// Where the question begins: behind a picture that would be cut.
int64_t QuestionBegin(const LatencyTokens& prompt, int64_t question_tokens) {
  int64_t begin = prompt.size() - question_tokens;
  for (const VisualSpan& span : prompt.spans) {
    if (span.first < begin && begin < span.first + span.count) begin = span.first + span.count;
  }
  return begin;
}

// The tokens of [begin, end) with the pictures among them, behind what the prompt has.
void AppendPart(const ModelConfig& config, const LatencyTokens& tokens, int64_t begin, int64_t end,
                Prompt& prompt) {
  std::vector<VisualSpan> spans;
  for (VisualSpan span : tokens.spans) {
    if (span.first < begin || span.first >= end) continue;
    span.first -= begin;
    spans.push_back(span);
  }
  if (tokens.visuals != nullptr) tokens.visuals->ShowIn(prompt);
  prompt.Append(
      std::span(tokens.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
      spans, config.rope && !config.rope->sections.empty());
}

// What the method puts into a prompt of so many tokens.
int64_t LinksOf(const LatencyLine& line, int64_t tokens) {
  const std::optional<StageChoice>& reuse = line.method->reuse;
  return reuse ? LinkTokens(*reuse, tokens, 0, {}) : 0;
}

// A sequence that is alone in the program.
class Solo {
 public:
  Solo(const LatencyLine& line, const LatencyTokens& tokens, int64_t decode_steps,
       int64_t question_tokens, int64_t chunk_tokens)
      : line_(line),
        model_(*line.model),
        tokens_(tokens),
        chunk_tokens_(ReducesPrompts(*line.method) ? chunk_tokens : 0),
        question_(QuestionBegin(tokens, question_tokens)),
        pools_(model_.ops()),
        cache_(model_.NewCache(tokens.size() + LinksOf(line, question_) + decode_steps + 1, pools_,
                               KeepsModelLatents(*line.method, model_.shape()))),
        store_(pools_, tokens.size()),
        compressor_(model_, *line.method, line.budget) {
    AppendPart(model_.config(), tokens_, 0, question_, prompt_);
    if (!prompt_.spans.empty()) cache_.PlaceRope(RopePlaces::Of(prompt_));
    cache_.EndBlockBehind(tokens.size());
  }

  // The texts that the method reuses are there when a prompt asks for them.
  Status MakeTexts() {
    reuse_ = std::make_unique<ReusePrefill>(model_, *line_.method->reuse, prompt_, 0,
                                            std::span<const int64_t>(), cache_, store_);
    while (reuse_->makes()) {
      const Result<Tensor> none = reuse_->Next();
      if (!none.ok()) return none.error();
    }
    return {};
  }

  // As the engine does it for one row: chunks are cut alike, so tokens are the same.
  Status Prefill() {
    if (chunk_tokens_ > 0) return PrefillChunks();
    capture_.emplace(model_.cache_config(), cache_, NeedsOf(line_.method->needs(), prompt_),
                     prompt_.size(), &prompt_);
    if (reuse_ != nullptr) return PrefillReusing();
    if (line_.method->attend) {
      return Finish(
          SparsePrefill(model_, *line_.method->attend, prompt_, cache_, *capture_, kPromptStream));
    }
    if (line_.method->thin) {
      return Finish(
          ThinPrefill(model_, *line_.method->thin, prompt_, cache_, *capture_, kPromptStream));
    }
    while (cache_.tokens() < prompt_.size()) {
      const int64_t begin = cache_.tokens();
      const int64_t end = PassEnd(model_.config(), prompt_, begin, Model::kChunkRows);
      KVG_TRY(Forward(begin, end, &*capture_));
    }
    return capture_->status();
  }

  Status PrefillReusing() {
    while (!reuse_->done()) {
      KVG_ASSIGN(const Tensor logits, reuse_->Next());
      if (reuse_->done()) next_ = model_.BestTokens(logits, 0)[0];
      model_.ops().memory->Synchronize();
    }
    return {};
  }

  // A prefill that goes through the weights alone.
  template <class Prefill>
  Status Finish(Prefill prefill) {
    while (!prefill.done()) {
      KVG_ASSIGN(const Tensor logits, prefill.Next());
      if (prefill.done()) next_ = model_.BestTokens(logits, 0)[0];
      model_.ops().memory->Synchronize();
    }
    return {};
  }

  Status PrefillChunks() {
    ChunkPrefill prefill(model_, *line_.method, prompt_, kPromptStream, chunk_tokens_, compressor_,
                         cache_);
    while (!prefill.done()) {
      KVG_ASSIGN(const Tensor logits, prefill.Next());
      if (prefill.done()) next_ = model_.BestTokens(logits, 0)[0];
      model_.ops().memory->Synchronize();
    }
    peak_with_captures_ = prefill.capture_bytes() + Sum(pools_, &BlockPool::peak_bytes);
    return {};
  }

  Status Compress(uint64_t seed) {
    if (chunk_tokens_ > 0) {
      ids_.push_back(next_);
      return {};
    }
    // `false`: the method would not count what is left of each modality; the record does.
    PromptState state = {&cache_, &*capture_, seed, &prompt_, false};
    state.next = next_;
    std::optional<PromptScores> scores;
    if (ProbesPrompt(*line_.method)) {
      scores = PromptScores::Compute(model_, state, {&line_.method, 1});
    }
    KVG_TRY(compressor_.Compress(state, scores ? &*scores : nullptr, cache_));
    peak_with_captures_ = capture_->bytes() + Sum(pools_, &BlockPool::peak_bytes);
    capture_.reset();
    KVG_TRY(Ask());
    ids_.push_back(next_);
    return {};
  }

  Status Step() {
    prompt_.AppendText(ids_.back());
    KVG_TRY(Forward(cache_.tokens(), prompt_.size(), compressor_.hook()));
    KVG_TRY(compressor_.AfterStep());
    ids_.push_back(next_);
    return {};
  }

  // What chunks have taken to be compressed so far.
  double compressing_s() { return compressor_.seconds().compressing(); }
  Status CheckSteps() const { return compressor_.CheckSteps(); }
  CompressionRecord Record() const { return compressor_.Record(); }
  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t resident_bytes() { return Sum(pools_, &BlockPool::resident_bytes); }
  int64_t peak_bytes() {
    return std::max(peak_with_captures_, Sum(pools_, &BlockPool::peak_bytes));
  }

 private:
  // The question against what is left of the context.
  Status Ask() {
    const size_t shown = prompt_.spans.size();
    AppendPart(model_.config(), tokens_, question_, tokens_.size(), prompt_);
    if (prompt_.spans.size() > shown) cache_.PlaceRope(RopePlaces::Of(prompt_));
    while (cache_.tokens() < prompt_.size()) {
      const int64_t begin = cache_.tokens();
      const int64_t most = compressor_.most_question_rows();
      const int64_t end = PassEnd(model_.config(), prompt_, begin, most);
      KVG_TRY(Forward(begin, end, compressor_.question_hook()));
      KVG_TRY(compressor_.AfterRows());
    }
    return {};
  }

  Status Forward(int64_t begin, int64_t end, LayerHook* hook) {
    KVG_TRY(cache_.Append(end - begin));
    const bool last = end == prompt_.size();
    const SequenceStep step = {.cache = &cache_,
                               .prompt = &prompt_,
                               .begin = begin,
                               .end = end,
                               .logits = last ? LogitRows::kLast : LogitRows::kNone,
                               .hook = hook};
    const Tensor logits = model_.Forward({&step, 1});
    if (last) next_ = model_.BestTokens(logits, 0)[0];
    model_.ops().memory->Synchronize();
    return {};
  }

  const LatencyLine& line_;
  Model& model_;
  const LatencyTokens& tokens_;
  const int64_t chunk_tokens_;  // 0: the prompt is read whole
  const int64_t question_;      // where it begins
  Prompt prompt_;
  CachePools pools_;
  KvCache cache_;
  ReuseStore store_;
  std::unique_ptr<ReusePrefill> reuse_;
  std::optional<PrefillCapture> capture_;
  Compressor compressor_;
  int32_t next_ = -1;  // what follows the newest row
  std::vector<int32_t> ids_;
  int64_t peak_with_captures_ = 0;
};

Result<LatencyMeasurement> Measure(const LatencyLine& line, const LatencyTokens& prompt,
                                   int64_t decode_steps, std::span<const int> processors,
                                   int64_t question_tokens, int64_t chunk_tokens) {
  const CpuUse before = ReadCpuUse(processors);
  double start_s = NowSeconds();
  Solo solo(line, prompt, decode_steps, question_tokens, chunk_tokens);
  if (line.method->reuse) {
    KVG_TRY(solo.MakeTexts());
    start_s = NowSeconds();
  }
  KVG_TRY(solo.Prefill());
  const double prefilled_s = NowSeconds(), of_chunks_s = solo.compressing_s();
  KVG_TRY(solo.Compress(kPromptStream));
  double last_s = NowSeconds();

  LatencyMeasurement result;
  LatencyRow& row = result.row;
  row.ttft_s = last_s - start_s;
  std::vector<double> steps_s;
  for (int64_t step = 0; step < decode_steps; ++step) {
    KVG_TRY(solo.Step());
    const double now_s = NowSeconds();
    steps_s.push_back(now_s - last_s);
    last_s = now_s;
  }
  const CpuUse after = ReadCpuUse(processors);
  const int machine = processors.empty() ? AvailableProcessors() : std::ssize(processors);
  const double wall_s = last_s - start_s;
  row.others_share = std::max(
      0.0, OthersShare(before, after, wall_s, machine) - kTickSeconds / (wall_s * machine));

  KVG_TRY(solo.CheckSteps());
  result.record = solo.Record();
  result.ids = solo.ids();
  const PhaseSeconds& seconds = result.record.seconds;
  row.context_tokens = prompt.size();
  row.vision_s = prompt.vision_s;
  row.steps = decode_steps;
  row.prefill_s = prefilled_s - start_s - of_chunks_s;
  row.score_s = seconds.score;
  row.select_s = seconds.select;
  row.compact_s = seconds.compact;
  row.quantise_s = seconds.quantise;
  row.attend_s = seconds.attend;
  row.other_s = std::max(0.0, wall_s - (row.prefill_s + row.score_s + row.select_s + row.compact_s +
                                        row.quantise_s + row.attend_s));
  if (!steps_s.empty()) {
    std::sort(steps_s.begin(), steps_s.end());
    row.tpot_p50_s = Percentile(steps_s, 0.5);
    row.tpot_p90_s = Percentile(steps_s, 0.9);
    row.tpot_p99_s = Percentile(steps_s, 0.99);
  }
  row.resident_bytes = solo.resident_bytes() + result.record.reader_bytes;
  row.peak_bytes = solo.peak_bytes() + result.record.reader_bytes;
  return result;
}

}  // namespace

LatencyPrompt SeededPrompts(int64_t vocab_size, uint64_t seed) {
  return [=](int64_t tokens, int64_t round) -> Result<LatencyTokens> {
    Rng rng(seed, kPromptStream + static_cast<uint64_t>(round));
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(vocab_size)));
    }
    return LatencyTokens(std::move(ids));
  };
}

Result<LatencyMeasurement> MeasureAlone(const LatencyLine& line, const LatencyTokens& prompt,
                                        int64_t decode_steps, std::span<const int> processors,
                                        int64_t question_tokens, int64_t chunk_tokens) {
  KVG_TRY(CheckPrompt(line, prompt, decode_steps, question_tokens, chunk_tokens));
  try {
    return Measure(line, prompt, decode_steps, processors, question_tokens, chunk_tokens);
  } catch (const std::bad_alloc& error) {
    return ResourceError(
        StrCat(line.name, ": out of memory at ", prompt.size(), " tokens (", error.what(), ")"));
  }
}

}  // namespace kvgauge
