// SPDX-License-Identifier: Apache-2.0
#include "src/compress/reads.h"

#include <algorithm>
#include <numeric>

#include "methods/repeating_view.h"
#include "methods/tensors.h"
#include "methods/turn_taking_reader.h"
#include "src/compress/stopwatch.h"

namespace kvgauge {
namespace {

// The positions of entries, as all heads have them, which a reader may change: [width or more] i32.
// A device has as many until another 64 entries begin.
Tensor PlacesOf(CacheView& view) {
  const int64_t width = view.width();
  const RepeatingView* const repeating = Repeating(view);
  if (repeating != nullptr && repeating->InOrder(0)) {
    std::vector<int32_t> places(static_cast<size_t>(GrowingColumns(view, width)));
    std::iota(places.begin(), places.begin() + width, 0);
    return Upload(view, places);
  }
  const Tensor places = view.Scratch(DType::kI32, {width});
  view.ops().memory->Copy(view.Positions(0, 0), places);
  return places;
}

}  // namespace

StepReads::StepReads(const Reader* reader, const Placement& place, const ModelShape& shape,
                     const LayerDevices& devices)
    : reader_(reader),
      joining_(dynamic_cast<const JoiningReader*>(reader)),
      biasing_(dynamic_cast<const BiasingReader*>(reader)),
      absorbing_(dynamic_cast<const AbsorbingReader*>(reader)),
      copied_(dynamic_cast<const CopiedReader*>(reader)),
      asked_(dynamic_cast<const QuestionReader*>(reader)),
      takes_turns_(dynamic_cast<const TurnTakingReader*>(reader) != nullptr),
      repeating_(dynamic_cast<const RepeatingReader*>(reader)),
      shape_(shape),
      devices_(devices),
      tiers_(place, shape, devices) {}

void StepReads::Begin(const ViewSource& source) {
  const auto layers = static_cast<size_t>(shape_.layers);
  states_.resize(layers);
  indexed_.resize(layers);
  indexed_before_.assign(layers, {});
  chosen_.assign(layers, false);
  AllocateCounts();
  for (int64_t layer = 0; layer < shape_.layers; ++layer) BeginLayer(source, layer);
}

void StepReads::BeginLayer(const ViewSource& source, int64_t layer) {
  const auto index = static_cast<size_t>(layer);
  CacheView view(source, layer);
  if (absorbing_ == nullptr || states_[index] == nullptr) states_[index] = reader_->Begin(view);
  tiers_.Forget(layer);
  indexed_[index].assign(view.lengths().begin(), view.lengths().end());
}

Status StepReads::Absorb(LayerView& view, std::span<const HeadPlan> plan) {
  if (absorbing_ == nullptr) return {};
  std::vector<Tensor> leaving(plan.size());
  for (size_t head = 0; head < plan.size(); ++head) {
    const HeadPlan& one = plan[head];
    if (!one.keys.empty() || !one.values.empty()) {
      return Unsupported("would count twice what is merged into entries that stay");
    }
    const int64_t length = view.lengths()[head], kept = one.keep.Numel();
    if (kept == length) continue;
    leaving[head] = kept == 0 ? Numbers(view, length) : Complement(view, one.keep, length);
  }
  states_.resize(static_cast<size_t>(shape_.layers));
  std::shared_ptr<Reader::State>& state = states_[static_cast<size_t>(view.layer())];
  if (state == nullptr) state = absorbing_->Begin(view);
  return absorbing_->Absorb(view, leaving, *state);
}

Status StepReads::Fields(const ViewSource& source, int64_t layer, StateFields& fields) {
  if (reader_ == nullptr) return {};
  const auto index = static_cast<size_t>(layer);
  CacheView view(source, layer);
  KVG_CHECK(std::equal(indexed_[index].begin(), indexed_[index].end(), view.lengths().begin(),
                       view.lengths().end()),
            "between steps a reader has seen all entries");
  return reader_->Fields(view, *states_[index], fields);
}

void StepReads::CopyAbsorbed(const StepReads& other) {
  if (absorbing_ != nullptr) CopyStates(other);
}

void StepReads::CopyStates(const StepReads& other) {
  states_.clear();
  for (const auto& state : other.states_) {
    Ops& ops = devices_.of(std::ssize(states_));
    states_.push_back(state != nullptr ? copied_->Copy(*state, ops) : nullptr);
  }
}

bool StepReads::ContinueInTurns(const StepReads& other) {
  if (copied_ != nullptr) {
    CopyStates(other);
  } else if (takes_turns_) {
    states_ = other.states_;
  } else {
    return false;
  }
  indexed_ = other.indexed_;
  indexed_before_.assign(states_.size(), {});
  chosen_.assign(states_.size(), false);
  AllocateCounts();
  return true;
}

void StepReads::CountFrom(const StepReads& other) {
  whole_ = other.whole_;
  held_ = other.held_;
  tiers_.CountFrom(other.tiers_);
  if (other.counts_[0].empty()) return;
  AllocateCounts();
  for (LayerNumbers& counts : counts_) counts.CopyFrom(other.counts_[0]);
}

void StepReads::AllocateCounts() {
  for (LayerNumbers& counts : counts_) {
    if (!counts.empty()) continue;
    counts.Allocate(devices_, shape_.layers, DType::kI64, shape_.query_heads);
  }
}

void StepReads::BeginPass(int64_t first, int64_t end, bool again) {
  if (repeating_ == nullptr || states_.empty()) return;
  KVG_CHECK(end <= std::ssize(states_), "a layer that has no cache");
  for (int64_t layer = first; layer < end; ++layer) {
    Reader::State& state = *states_[static_cast<size_t>(layer)];
    again ? repeating_->UndoStep(state) : repeating_->BeginStep(state);
  }
}

void StepReads::BeginStep() {
  step_whole_.assign(static_cast<size_t>(shape_.layers), 0);
  step_held_ = step_whole_;
  tiers_.BeginStep();
}

void StepReads::Choose(const ViewSource& source, KvCache& cache, int64_t layer, const Tensor& q,
                       double& seconds) {
  const int64_t readers = shape_.query_heads / cache.kv_heads(layer);  // of a KV head
  double held = 0;
  for (int64_t head = 0; head < cache.kv_heads(layer); ++head) {
    held += static_cast<double>(cache.length(layer, head) * readers);
  }
  step_held_[static_cast<size_t>(layer)] = held;
  bool chosen = false;
  if (reader_ != nullptr) {
    const Stopwatch watch(devices_.of(layer), seconds, During::kStep);
    chosen = ChooseEntries(source, cache, layer, q);
  }
  if (chosen) return;
  step_whole_[static_cast<size_t>(layer)] = held;
  tiers_.AddWhole(cache, layer);
}

void StepReads::Show(CacheView& view) {
  const auto index = static_cast<size_t>(view.layer());
  if (repeating_ != nullptr) {
    std::vector<int64_t>& before = indexed_before_[index];
    if (before.empty()) before = indexed_[index];
    indexed_[index] = before;
  }
  reader_->Append(view, indexed_[index], *states_[index]);
  indexed_[index].assign(view.lengths().begin(), view.lengths().end());
}

bool StepReads::ChooseOnce(CacheView& view, KvCache& cache, const Tensor& q, bool anew,
                           const Tensor& words) {
  Tensor places, own;
  if (asked_->moves()) {
    places = PlacesOf(view);
    own = places.Slice(0, view.width());
  }
  Reader::State& state = *states_[static_cast<size_t>(view.layer())];
  if (!asked_->Choose(view, state, q, anew, words, own)) return false;
  cache.SetRead(view.layer(), words, {}, cache.raw_keys(view.layer()) ? places : Tensor());
  return true;
}

void StepReads::ChooseForRows(const ViewSource& source, KvCache& cache, int64_t layer,
                              const Tensor& q, int64_t question_end, double& seconds) {
  const Stopwatch watch(devices_.of(layer), seconds, During::kStep);
  CacheView view(source, layer);
  const int64_t begin = view.tokens() - q.shape[0];
  if (question_end != question_end_) {
    question_end_ = question_end;
    question_begin_ = begin;
  }
  Show(view);
  const Tensor words = view.Scratch(DType::kI64, {shape_.query_heads, (view.width() + 63) / 64});
  // A pass that found no memory is begun again, and then chooses the same.
  rows_chose_ |= ChooseOnce(view, cache, q, begin == question_begin_, words);
}

// False where all is read.
bool StepReads::ChooseEntries(const ViewSource& source, KvCache& cache, int64_t layer,
                              const Tensor& q) {
  const auto index = static_cast<size_t>(layer);
  CacheView view(source, layer);
  Show(view);
  const Tensor words = view.Scratch(DType::kI64, {shape_.query_heads, (view.width() + 63) / 64});
  const auto leader = static_cast<size_t>(reader_->LedBy(layer));
  Tensor bias;
  if (asked_ != nullptr) {
    chosen_[index] = ChooseOnce(view, cache, q, false, words);
  } else if (biasing_ == nullptr) {
    chosen_[index] = reader_->Select(view, *states_[leader], q[0], words);
  } else {
    bias = view.Scratch(DType::kF32, {shape_.query_heads, view.width()});
    chosen_[index] = biasing_->Choose(view, *states_[leader], q[0], words, bias);
  }
  if (!chosen_[index]) return false;
  if (asked_ == nullptr) cache.SetRead(layer, words, bias);
  const Tensor before = counts_[0].Of(layer), counted = counts_[1].Of(layer);
  view.ops().select->CountBits(words, before, counted);
  Tensor joined;
  if (joining_ != nullptr) {
    joined = view.Scratch(DType::kI64, {words.shape[0], words.shape[1]});
    joining_->MarkJoined(view, *states_[leader], joined);
    view.ops().select->CountBits(joined, counted, counted);
  }
  tiers_.AddRead(view, cache, words, joined);
  step_chosen_ = true;
  return true;
}

bool StepReads::corrects(int64_t layer) const {
  if (absorbing_ != nullptr) return true;
  return reader_ != nullptr && reader_->corrects() && chosen_[static_cast<size_t>(layer)];
}

void StepReads::Correct(const ViewSource& source, int64_t layer, const Tensor& q,
                        const Tensor& log_sum_exp, const Tensor& out) {
  CacheView view(source, layer);
  Reader::State& state = *states_[static_cast<size_t>(layer)];
  if (!joins()) return reader_->Correct(view, state, out);
  // Rows of it may be far apart.
  const Tensor own = view.Scratch(DType::kF32, {shape_.query_heads, 1});
  view.ops().rows->Convert(log_sum_exp, own);
  joining_->Join(view, state, q[0], own.Reshape({shape_.query_heads}), out);
}

void StepReads::EndPass() {
  whole_ = std::accumulate(step_whole_.begin(), step_whole_.end(), whole_);
  held_ = std::accumulate(step_held_.begin(), step_held_.end(), held_);
  for (std::vector<int64_t>& before : indexed_before_) before.clear();
  tiers_.EndPass();
}

void StepReads::KeepCounts() {
  if (step_chosen_) counts_[0].CopyFrom(counts_[1]);
  step_chosen_ = false;
  tiers_.KeepCounts();
}

double StepReads::read() const {
  double reads = whole_;
  if (counts_[0].empty()) return reads;
  for (const int64_t count : counts_[0].ToHost<int64_t>()) reads += static_cast<double>(count);
  return reads;
}

int64_t StepReads::index_bytes() const {
  int64_t bytes = 0;
  // Where memory ran out while an index was made, some layers have none.
  for (const auto& state : states_) bytes += state != nullptr ? state->bytes() : 0;
  return bytes;
}

}  // namespace kvgauge
