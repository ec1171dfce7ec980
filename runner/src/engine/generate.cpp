// SPDX-License-Identifier: Apache-2.0
#include "runner/generate.h"

#include <algorithm>

#include "core/clock.h"
#include "src/engine/engine_parts.h"

namespace kvgauge {
namespace {

// One more token, with what the method does in a decode step.
Status DecodeOne(Model& model, const Prompt& sequence, KvCache& cache, Compressor& compressor,
                 const LogitsCallback& on_logits) {
  const int64_t begin = cache.tokens();
  KVG_CHECK(begin + 1 == sequence.size(), "a decode step has one row");
  KVG_TRY(cache.Append(1));
  const SequenceStep step{&cache, &sequence, begin, begin + 1, LogitRows::kLast, compressor.hook()};
  const Tensor logits = model.Forward({&step, 1});
  model.ops().memory->Synchronize();
  KVG_TRY(compressor.AfterStep());
  return on_logits(logits);
}

}  // namespace

Status Prefill(Model& model, const Prompt& prompt, KvCache& cache, int64_t chunk_rows,
               bool want_all, const LogitsCallback& on_logits) {
  KVG_CHECK(chunk_rows > 0, "chunk must hold a row");
  if (cache.tokens() == 0) {
    cache.PlaceRope(RopePlaces::Of(prompt));
    cache.EndBlockBehind(prompt.size());
  }
  const int64_t unanswered = cache.TokensAt(0).second - 1;
  while (cache.tokens() < prompt.size()) {
    const int64_t begin = cache.tokens();
    // Where all are wanted, tokens that have no logits go by themselves.
    const bool answers = !want_all || begin >= unanswered;
    const int64_t end = answers ? PassEnd(model.config(), prompt, begin, chunk_rows) : unanswered;
    const bool last = end == prompt.size();
    const LogitRows rows = !answers   ? LogitRows::kNone
                           : want_all ? LogitRows::kAll
                           : last     ? LogitRows::kLast
                                      : LogitRows::kNone;
    const SequenceStep step{&cache, &prompt, begin, end, rows};
    KVG_TRY(cache.Append(end - begin));
    const Tensor logits = model.Forward({&step, 1});
    KVG_TRY(cache.Seal());
    if (rows != LogitRows::kNone) KVG_TRY(on_logits(logits));
  }
  return {};
}

Result<GenerateResult> Generate(Model& model, const Prompt& prompt, const GenerateOptions& options,
                                const std::function<bool(int32_t)>& on_token) {
  KvCache cache = model.NewCache(prompt.size() + options.max_new_tokens);
  return GenerateFrom(model, prompt, cache, options, on_token);
}

Result<GenerateResult> GenerateFrom(Model& model, const Prompt& prompt, KvCache& cache,
                                    const GenerateOptions& options,
                                    const std::function<bool(int32_t)>& on_token,
                                    Compressor* compressor) {
  if (prompt.size() == 0) return BadInput("the prompt has no tokens");
  KVG_CHECK(cache.tokens() < prompt.size(), "a token must be left to read");
  GenerateResult result;
  Sampler sampler(options.sampling, 0, options.valid_vocab);

  int32_t next = -1;
  const auto choose = [&](const Tensor& logits) -> Status {
    if (options.sampling.greedy()) {
      next = model.BestTokens(logits, options.valid_vocab)[0];
    } else {
      std::vector<float> copy;
      next = sampler.Next(HostLogits(model.ops(), logits[0], &copy));
    }
    return {};
  };
  Prompt sequence = prompt;
  if (compressor != nullptr) compressor->ReadFrom(sequence);
  const auto read = [&](int64_t rows) -> Status {
    if (compressor == nullptr) return Prefill(model, sequence, cache, rows, false, choose);
    return DecodeOne(model, sequence, cache, *compressor, choose);
  };
  const double start = NowSeconds();
  KVG_TRY(read(options.chunk_rows));
  const double prefilled = NowSeconds();
  result.prefill_s = prefilled - start;

  while (static_cast<int64_t>(result.ids.size()) < options.max_new_tokens) {
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), next) !=
        options.stop_ids.end()) {
      result.stopped = true;
      break;
    }
    result.ids.push_back(next);
    if (on_token && !on_token(next)) {
      result.stopped = true;
      break;
    }
    if (static_cast<int64_t>(result.ids.size()) == options.max_new_tokens) break;
    sequence.AppendText(next);
    KVG_TRY(read(1));
    ++result.decode_steps;
  }
  result.decode_s = NowSeconds() - prefilled;
  if (compressor != nullptr) {
    compressor->ReadFrom(prompt);
    KVG_TRY(compressor->CheckSteps());
  }
  const KvBytes bytes = cache.Bytes();
  result.cache_payload_bytes = bytes.payload;
  result.cache_resident_bytes = bytes.resident();
  return result;
}

}  // namespace kvgauge
