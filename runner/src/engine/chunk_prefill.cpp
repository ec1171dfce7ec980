// SPDX-License-Identifier: Apache-2.0
#include "runner/chunk_prefill.h"

#include <algorithm>

#include "core/clock.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

int64_t ChunksOf(int64_t prompt_tokens, int64_t chunk_tokens) {
  return (prompt_tokens + chunk_tokens - 1) / chunk_tokens;
}

// Why scores cannot be made of a chunk at a time; "" where they can.
std::string WhyNoScores(const Method& method, const Needs& needs) {
  if (ProbesPrompt(method)) return "runs the model behind a prompt that is whole";
  if (!needs.chunk_sums.empty()) return "scores entries among their own neighbours, once";
  if (!needs.last_row_of.empty()) return "compares layers of a prompt that is whole";
  return "";
}

// Where the last picture or video of a prompt ends; its size if there is none.
int64_t EndOfPictures(const Prompt& prompt) {
  if (prompt.spans.empty()) return prompt.size();
  return prompt.spans.back().first + prompt.spans.back().count;
}

// The first `seen` positions of a prompt, and its last `behind` tokens, which are text, right
// behind them.
Prompt WithItsEnd(const Prompt& prompt, int64_t seen, int64_t behind) {
  Prompt asked = prompt;
  asked.positions.resize(static_cast<size_t>(seen));
  std::erase_if(asked.spans, [&](const VisualSpan& span) { return span.first >= seen; });
  if (!asked.spans.empty()) {
    VisualSpan& last = asked.spans.back();
    last.count = std::min(last.count, seen - last.first);
  }
  const PromptPosition& next = prompt.positions[static_cast<size_t>(seen)];
  if (next.modality == Modality::kText) {
    asked.next_rope_position = next.rope_position[0];
  } else {
    asked.next_rope_position = 0;
    for (const PromptPosition& position : asked.positions) {
      for (const int32_t axis : position.rope_position) {
        asked.next_rope_position = std::max(asked.next_rope_position, axis + 1);
      }
    }
  }
  for (int64_t i = prompt.size() - behind; i < prompt.size(); ++i) {
    asked.AppendText(prompt.positions[static_cast<size_t>(i)].token_id);
  }
  return asked;
}

}  // namespace

bool ReducesPrompts(const Method& method) {
  return method.reduce && MakePipeline(method).trigger->AfterPrefill();
}

int64_t LongestChunk(int64_t prompt_tokens, int64_t chunk_tokens) {
  const int64_t chunks = ChunksOf(prompt_tokens, chunk_tokens);
  return chunks == 0 ? 0 : (prompt_tokens + chunks - 1) / chunks;
}

Status CheckChunks(const Method& method, int64_t chunk_tokens) {
  if (chunk_tokens < 1) {
    return BadInput(StrCat("chunk_tokens ", chunk_tokens, "; expected 1 or more"));
  }
  const auto refuse = [&](const StageChoice& stage, std::string_view why, std::string_view other) {
    return BadInput(StrCat(method.id, ": ", NameOf(*stage.spec), " ", why,
                           ", and compress_at chunk compresses each chunk of a prompt before the "
                           "next is read; use compress_at prompt or context, or ",
                           other));
  };
  if (method.attend) {
    return refuse(*method.attend, "says what a prompt that is whole attends to",
                  "leave out the stage");
  }
  if (method.thin) {
    return refuse(*method.thin, "lets rows of a whole prompt go", "leave out the stage");
  }
  if (!ReducesPrompts(method)) return {};
  const Pipeline pipeline = MakePipeline(method);
  const Needs needs = method.needs();
  const std::string why = WhyNoScores(method, needs);
  if (!why.empty()) return refuse(*method.score, why, "another score");
  for (const StageChoice* stage : method.stages()) {
    const std::unique_ptr<Stage> made = MakeStage(*stage);
    const Needs own = made->needs();
    if (made->takes_parts_of_pictures() || (!own.modality && own.question_rows == 0)) continue;
    return refuse(*stage, "tells pictures of a whole prompt apart", "another stage");
  }
  if (!pipeline.allocate->takes_chunks()) {
    return refuse(*method.allocate, "shares entries out by a prompt that is whole",
                  "allocate.uniform");
  }
  const bool even = pipeline.allocate->evens_heads() && pipeline.reduce->takes_budget();
  if (!even && !pipeline.score->takes_uneven()) {
    return refuse(*method.score,
                  StrCat("takes heads of a layer that hold as many entries, as they do not after ",
                         pipeline.allocate->evens_heads() ? NameOf(*method.reduce->spec)
                                                          : NameOf(*method.allocate->spec)),
                  "allocate.uniform with a reducer that keeps to a budget");
  }
  // Chunks are as even as can be: one may have half as many tokens.
  int64_t least = std::max(needs.most_window(), method.sinks + method.recent);
  if (!needs.query_moments.empty()) least = std::max(least, needs.query_moments.back() + 1);
  if ((chunk_tokens + 1) / 2 >= least) return {};
  return BadInput(StrCat(method.id, ": chunk_tokens ", chunk_tokens, " is too small for ",
                         NameOf(*method.score->spec), ", which looks back from ",
                         needs.most_window(), " rows of a chunk, and for the ", method.sinks,
                         " first and ", method.recent,
                         " last entries that stay, as a chunk may have half as many tokens; "
                         "expected ",
                         2 * least, " or more"));
}

ChunkPrefill::ChunkPrefill(Model& model, const Method& method, const Prompt& prompt, uint64_t seed,
                           int64_t chunk_tokens, Compressor& compressor, KvCache& cache)
    : model_(model),
      method_(method),
      prompt_(prompt),
      seed_(seed),
      chunks_(ChunksOf(prompt.size(), chunk_tokens)),
      behind_(MakePipeline(method).score->rows_behind_chunks()),
      of_pictures_(MakePipeline(method).score->takes_parts_of_pictures()),
      compressor_(compressor),
      cache_(cache) {
  KVG_CHECK(cache.tokens() == 0 && prompt.size() > 0, "a whole prompt into an empty cache");
}

void ChunkPrefill::BeginChunk() {
  const int64_t begin = cache_.tokens();
  ++chunk_;
  // The first ones have a token more where they are not even.
  const int64_t most = prompt_.size() / chunks_, longer = prompt_.size() % chunks_;
  chunk_end_ = begin + most + (chunk_ <= longer ? 1 : 0);
  capture_ = std::make_unique<PrefillCapture>(model_.cache_config(), cache_,
                                              NeedsOf(method_.needs(), prompt_), chunk_end_ - begin,
                                              &prompt_);
  compressor_.BeginChunk(*capture_);
}

Status ChunkPrefill::CheckEndOfPrompt(int64_t shown) const {
  const std::string puts = StrCat(method_.id, ": ", NameOf(*method_.score->spec), " puts the ");
  if (!of_pictures_) {
    return Unsupported(StrCat(puts,
                              "end of the prompt behind each chunk, which is not done beside "
                              "pictures; use compress_at prompt"));
  }
  if (prompt_.size() - shown >= behind_) return {};
  return Unsupported(StrCat(puts, "last ", behind_, " tokens of the prompt behind each chunk, and ",
                            prompt_.size() - shown,
                            " follow the last picture; expected as many at least"));
}

Status ChunkPrefill::EndChunk() {
  KVG_TRY(capture_->status());
  capture_bytes_ = std::max(capture_bytes_, capture_->bytes());
  PromptState state = {&cache_, capture_.get(), seed_, &prompt_};
  // Behind the last picture there is nothing to look at.
  const int64_t shown = of_pictures_ ? EndOfPictures(prompt_) : prompt_.size();
  const int64_t seen = std::min(cache_.tokens(), shown), end = seen + behind_;
  if (behind_ == 0 || seen == prompt_.size()) {
    return compressor_.CompressChunk(state, prompt_.size(), cache_);
  }
  if (!prompt_.spans.empty()) KVG_TRY(CheckEndOfPrompt(shown));
  const double start_s = NowSeconds();
  const Prompt asked = WithItsEnd(prompt_, seen, behind_);
  KvCache fork = cache_.Fork();
  if (seen < fork.tokens()) KVG_TRY(fork.Truncate(seen));
  PrefillCapture capture(model_.cache_config(), fork, NeedsOf(method_.needs(), asked), behind_,
                         &asked);
  while (fork.tokens() < end) {
    const int64_t begin = fork.tokens();
    const int64_t next = PassEnd(model_.config(), asked, begin, Model::kChunkRows);
    KVG_TRY(fork.Append(next - begin));
    const SequenceStep step = {.cache = &fork,
                               .prompt = &asked,
                               .begin = begin,
                               .end = next,
                               .logits = LogitRows::kNone,
                               .hook = &capture};
    model_.Forward({&step, 1});
  }
  if (!capture.status().ok()) return capture.status();
  capture_bytes_ = std::max(capture_bytes_, capture_->bytes() + capture.bytes());
  model_.ops().memory->Synchronize();
  compressor_.seconds().score += NowSeconds() - start_s;
  const PromptState behind = {&fork, &capture, seed_, &asked};
  state.asked = &behind;
  return compressor_.CompressChunk(state, prompt_.size(), cache_);
}

Result<Tensor> ChunkPrefill::Next() {
  KVG_CHECK(!done(), "a prefill that has ended");
  if (model_.config().mutual_pictures && !prompt_.spans.empty()) {
    return Unsupported(StrCat(method_.id,
                              ": tokens of a picture attend to each other in this model, and "
                              "compress_at chunk would cut pictures; use compress_at prompt"));
  }
  if (capture_ == nullptr) BeginChunk();
  const int64_t begin = cache_.tokens();
  const int64_t end = PassEnd(model_.config(), prompt_, begin,
                              std::min<int64_t>(Model::kChunkRows, chunk_end_ - begin));
  KVG_TRY(cache_.Append(end - begin));
  const bool last = end == prompt_.size();
  const SequenceStep step = {.cache = &cache_,
                             .prompt = &prompt_,
                             .begin = begin,
                             .end = end,
                             .logits = last ? LogitRows::kLast : LogitRows::kNone,
                             .hook = capture_.get()};
  const Tensor logits = model_.Forward({&step, 1});
  if (end < chunk_end_) return Tensor();
  KVG_TRY(EndChunk());
  capture_.reset();
  return last ? logits : Tensor();
}

}  // namespace kvgauge
