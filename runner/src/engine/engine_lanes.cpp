// SPDX-License-Identifier: Apache-2.0
// Lanes: a contender on a sample, from its fork of the prefill to its last answer.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/strings.h"
#include "src/engine/engine_run.h"

namespace kvgauge {
namespace {

// Over the whole row, in doubles.
double LogProbability(std::span<const float> logits, int32_t id) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  return logits[static_cast<size_t>(id)] - most - std::log(sum);
}

// The other stages had nothing to do with what the prompt was put together of.
void JudgeReuse(const ReuseFacts& facts, CompressionRecord& record) {
  if (record.engagement == Engagement::kNotEngaged) return;
  if (facts.reused_tokens > 0) {
    record.engagement = Engagement::kEngaged;
    record.reason =
        StrCat("reused ", facts.reused_tokens, " of ", facts.prompt_tokens, " tokens in ",
               facts.chunks, facts.chunks == 1 ? " text" : " texts", "; ",
               std::llround(100 * facts.rows_share), "% of the layers' rows were computed");
  } else if (record.engagement == Engagement::kIdentity) {
    record.reason = StrCat("no text of ", facts.prompt_tokens, " tokens was there before");
  }
}

bool Contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Status EngineRun::Admit() {
  if (ready_ == nullptr) return {};
  constexpr double kCompression_ns = 1e6;
  while (!ready_->waiting.empty() && static_cast<int64_t>(lanes_.size()) < pool_lanes_) {
    // A bounded pool takes one at a time: the next may fit when this one has given back.
    std::vector<Lane*> starting;
    while (!ready_->waiting.empty() && static_cast<int64_t>(lanes_.size()) < pool_lanes_ &&
           (starting.empty() || !bounded_)) {
      starting.push_back(&AddLane(ready_->waiting.front()));
      ready_->waiting.pop_front();
    }
    ForLanes(std::ssize(starting), kCompression_ns, [&](int64_t i) {
      Lane& lane = *starting[static_cast<size_t>(i)];
      lane.status = ForkAndCompress(lane);
      if (lane.status.ok() && options_.compress_at != CompressAt::kContext) {
        const std::vector<float>& logits = ready_->logits;
        lane.token = ChooseToken(lane, View(logits, {std::ssize(logits)}), ready_->best);
      }
    });
    for (Lane* lane : starting) KVG_TRY(StartLane(*lane));
    lanes_.remove_if([](const Lane& lane) { return lane.done; });
  }
  if (!ready_->waiting.empty()) return {};
  // Lanes that come back to the context may have to compress it anew.
  if (options_.compress_at != CompressAt::kContext) {
    ready_->cache.reset();
    ready_->capture.reset();
    ready_->compressor.reset();
    ready_->scores.reset();
  }
  ready_.reset();
  return {};
}

Status EngineRun::ForkAndCompress(Lane& lane) const {
  Snapshot& snapshot = *lane.snapshot;
  const Contender& contender = contenders_[static_cast<size_t>(lane.contender)];
  return Guarded([&]() -> Status {
    if (snapshot.compressor != nullptr) {
      if (snapshot.forked) {
        lane.cache = std::make_unique<KvCache>(snapshot.cache->Fork());
        lane.compressor =
            std::make_unique<Compressor>(*contender.model, *contender.method, contender.budget);
        lane.compressor->ContinueFrom(*snapshot.compressor, *lane.cache);
      } else {
        lane.cache = std::move(snapshot.cache);
        lane.compressor = std::move(snapshot.compressor);
      }
      lane.compressor->ReadFrom(lane.prompt);
      lane.compressor->seconds().prefill = snapshot.prefill_s;
      return {};
    }
    lane.cache = std::make_unique<KvCache>(snapshot.cache->Fork());
    lane.compressor =
        std::make_unique<Compressor>(*contender.model, *contender.method, contender.budget);
    lane.compressor->seconds().prefill = snapshot.prefill_s;
    PromptState state = snapshot.state();
    state.prompt = &lane.prompt;
    return lane.compressor->Compress(state, &*snapshot.scores, *lane.cache);
  });
}

EngineRun::Lane& EngineRun::AddLane(const Snapshot::Start& start) {
  lanes_.emplace_back();
  Lane& lane = lanes_.back();
  lane.contender = start.contender;
  lane.draw = start.draw;
  lane.snapshot = ready_;
  lane.turn = ready_->turn;
  lane.prompt = ready_->prompt;
  lane.sampler.emplace(options_.sampling, DrawStream(ready_->seed, lane.turn, lane.draw),
                       options_.valid_vocab);
  return lane;
}

// Once it is compressed.
Status EngineRun::StartLane(Lane& lane) {
  if (!lane.status.ok()) return FailLane(lane, lane.status);
  if (lane.token) return TakeToken(lane, *std::exchange(lane.token, {}));

  const std::vector<EngineTurn>& turns = SampleOf(lane).turns;
  const bool returns = std::any_of(turns.begin() + 1, turns.end(),
                                   [](const EngineTurn& turn) { return !turn.continues; });
  if (returns) {
    lane.base_cache = std::move(lane.cache);
    lane.base = std::move(lane.compressor);
    lane.turn = -1;
    return AskNext(lane);
  }
  AppendTurn(lane);
  lane.asking = true;
  return {};
}

// The turn's question, behind what the lane has seen. Pictures in it stand where three axes say.
void EngineRun::AppendTurn(Lane& lane) const {
  const EngineTurn& turn = TurnOf(lane);
  AppendTokens(lane.snapshot->model->config(), SampleOf(lane), turn.ids, turn.spans, lane.prompt);
  if (!turn.spans.empty()) lane.cache->PlaceRope(RopePlaces::Of(lane.prompt));
}

// Puts the next question behind the answer, or behind the context alone.
Status EngineRun::AskNext(Lane& lane) {
  ++lane.turn;
  const EngineTurn& turn = TurnOf(lane);
  if (lane.base != nullptr && (lane.turn == 0 || !turn.continues)) {
    const Contender& contender = contenders_[static_cast<size_t>(lane.contender)];
    lane.prompt = lane.snapshot->prompt;
    const Status forked = Guarded([&]() -> Status {
      lane.cache = std::make_unique<KvCache>(lane.base_cache->Fork());
      lane.compressor =
          std::make_unique<Compressor>(*contender.model, *contender.method, contender.budget);
      if (lane.compressor->ContinueFrom(*lane.base, *lane.cache)) return {};
      return ForkAndCompress(lane);
    });
    if (!forked.ok()) return FailLane(lane, forked);
  }
  AppendTurn(lane);
  lane.asking = true;
  if (options_.compress_at == CompressAt::kTurn) {
    const Model& model = *lane.snapshot->model;
    const Status begun = Guarded([&]() -> Status {
      lane.capture = std::make_unique<PrefillCapture>(
          model.cache_config(), *lane.cache,
          NeedsOf(contenders_[static_cast<size_t>(lane.contender)].method->needs(), lane.prompt,
                  model.cache_config().layer_count()),
          lane.prompt.size() - lane.cache->tokens(), &lane.prompt);
      return {};
    });
    if (!begun.ok()) return FailLane(lane, begun);
  }
  return {};
}

void EngineRun::HoldStops(int64_t sample, int64_t turn, int64_t answered, const Tensor& row) const {
  const EngineSample& of = samples_[static_cast<size_t>(sample)];
  const EngineTurn& asked = of.turns[static_cast<size_t>(turn)];
  if (!asked.forced.empty() || answered >= asked.min_new_tokens) return;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const int32_t stop : of.stop_ids) {
    if (stop < 0 || stop >= row.shape[0]) continue;
    contenders_[0].model->ops().memory->Copy(View(std::span(&kNever, 1), {1}),
                                             row.Slice(stop, stop + 1));
  }
}

int32_t EngineRun::ChooseToken(Lane& lane, const Tensor& row, int32_t best) const {
  const EngineTurn& turn = TurnOf(lane);
  if (!ReadsLogits(turn)) return best;
  std::vector<float> copy;
  const std::span<const float> logits = HostLogits(lane.snapshot->model->ops(), row, &copy);
  if (turn.forced.empty()) return lane.sampler->Next(logits);
  const int32_t id = turn.forced[lane.answer.ids.size()];
  lane.answer.log_probs.push_back(LogProbability(logits, id));
  return id;
}

Status EngineRun::TakeToken(Lane& lane, int32_t id) {
  const bool forced = !TurnOf(lane).forced.empty();
  if (!forced && Contains(SampleOf(lane).stop_ids, id)) return EndTurn(lane, true);
  lane.answer.ids.push_back(id);
  lane.prompt.AppendText(id);
  const bool go_on = forced || !options_.on_token ||
                     options_.on_token({lane.snapshot->sample, lane.contender, lane.turn,
                                        lane.answer.ids, lane.draw});
  if (!go_on) return EndTurn(lane, true);
  if (static_cast<int64_t>(lane.answer.ids.size()) < TurnOf(lane).max_new_tokens) return {};
  return EndTurn(lane, false);
}

Status EngineRun::EndTurn(Lane& lane, bool stopped) {
  lane.answer.stopped = stopped;
  Cell& cell = CellOf(lane.snapshot->sample, {lane.contender, lane.draw});
  cell.result.turns[static_cast<size_t>(lane.turn)] = std::exchange(lane.answer, {});
  const bool last = AsksApart(options_.compress_at) ||
                    lane.turn + 1 == static_cast<int64_t>(SampleOf(lane).turns.size());
  if (!last) return AskNext(lane);
  lane.done = true;
  const Status steps = Guarded([&] { return lane.compressor->CheckSteps(); });
  if (cell.result.status.ok()) cell.result.status = steps;
  // Prompts of one sample may end in any order: the record is that of the last one.
  if (lane.turn > cell.recorded_turn) {
    cell.recorded_turn = lane.turn;
    const Status looked = Guarded([&]() -> Status {
      cell.result.record = lane.compressor->Record();
      cell.result.reuse = lane.snapshot->reused;
      if (cell.result.reuse) JudgeReuse(*cell.result.reuse, cell.result.record);
      if (options_.inspect) options_.inspect(cell.result, *lane.cache, *lane.compressor);
      return {};
    });
    if (cell.result.status.ok()) cell.result.status = looked;
  }
  return EndCell(lane.snapshot->sample, {lane.contender, lane.draw});
}

Status EngineRun::EndCell(int64_t sample, const Snapshot::Start& start) {
  Cell& cell = CellOf(sample, start);
  if (--cell.turns_left > 0) return {};
  CellResult result = std::move(cell.result);
  cells_.erase({sample, start.contender, start.draw});
  return on_result_(std::move(result));
}

Status EngineRun::FailLane(Lane& lane, const Status& status) {
  lane.done = true;
  CellResult& result = CellOf(lane.snapshot->sample, {lane.contender, lane.draw}).result;
  if (result.status.ok()) result.status = status;
  return EndCell(lane.snapshot->sample, {lane.contender, lane.draw});
}

void EngineRun::FinishStep(Lane& lane, const Passed& passed, int64_t row) const {
  lane.status = lane.compressor->AfterStep();
  if (!lane.status.ok()) return;
  lane.token = ChooseToken(lane, passed.logits[row], passed.BestOf(row));
}

Status EngineRun::FinishRows(Lane& lane, const Passed& passed, int64_t row) {
  Status after = lane.compressor->AfterRows();
  if (after.ok() && lane.cache->tokens() < lane.prompt.size()) return {};
  lane.asking = false;
  if (after.ok() && lane.capture != nullptr) {
    after = Guarded([&]() -> Status {
      KVG_TRY(lane.capture->status());
      return lane.compressor->Compress(
          {lane.cache.get(), lane.capture.get(), lane.snapshot->seed, &lane.prompt}, nullptr,
          *lane.cache);
    });
    lane.capture.reset();
  }
  if (!after.ok()) return FailLane(lane, after);
  return TakeToken(lane, ChooseToken(lane, passed.logits[row], passed.BestOf(row)));
}

}  // namespace kvgauge
