// SPDX-License-Identifier: Apache-2.0
#include "src/compress/reads.h"

#include "methods/tensors.h"
#include "methods/turn_taking_reader.h"
#include "src/compress/stopwatch.h"

namespace kvgauge {

StepReads::StepReads(const Reader* reader, const Placement& place, const ModelShape& shape,
                     Ops& ops)
    : reader_(reader),
      joining_(dynamic_cast<const JoiningReader*>(reader)),
      biasing_(dynamic_cast<const BiasingReader*>(reader)),
      absorbing_(dynamic_cast<const AbsorbingReader*>(reader)),
      takes_turns_(dynamic_cast<const TurnTakingReader*>(reader) != nullptr),
      shape_(shape),
      ops_(ops),
      tiers_(place, shape, ops) {}

void StepReads::Begin(const ViewSource& source) {
  const auto layers = static_cast<size_t>(shape_.layers);
  states_.resize(layers);
  indexed_.resize(layers);
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

void StepReads::CopyAbsorbed(const StepReads& other) {
  if (absorbing_ == nullptr) return;
  states_.clear();
  for (const auto& state : other.states_) {
    states_.push_back(state != nullptr ? absorbing_->Copy(*state, ops_) : nullptr);
  }
}

bool StepReads::ContinueInTurns(const StepReads& other) {
  if (!takes_turns_) return false;
  states_ = other.states_;
  indexed_ = other.indexed_;
  chosen_.assign(states_.size(), false);
  AllocateCounts();
  return true;
}

void StepReads::CountFrom(const StepReads& other) {
  whole_ = other.whole_;
  held_ = other.held_;
  tiers_.CountFrom(other.tiers_);
  if (other.counts_[0].size_bytes() == 0) return;
  AllocateCounts();
  for (size_t which : {0, 1}) ops_.memory->Copy(other.Counts(0), Counts(which));
}

void StepReads::AllocateCounts() {
  for (Buffer& counts : counts_) {
    if (counts.size_bytes() > 0) continue;
    counts = ops_.memory->Allocate(shape_.layers * shape_.query_heads * SizeOf(DType::kI64));
  }
}

void StepReads::BeginStep() {
  step_whole_ = step_held_ = 0;
  tiers_.BeginStep();
}

void StepReads::Choose(const ViewSource& source, KvCache& cache, int64_t layer, const Tensor& q,
                       double& seconds) {
  const int64_t readers = shape_.query_heads / cache.kv_heads();  // of a KV head
  double held = 0;
  for (int64_t head = 0; head < cache.kv_heads(); ++head) {
    held += static_cast<double>(cache.length(layer, head) * readers);
  }
  step_held_ += held;
  bool chosen = false;
  if (reader_ != nullptr) {
    const Stopwatch watch(ops_, seconds, During::kStep);
    chosen = ChooseEntries(source, cache, layer, q[0]);
  }
  if (chosen) return;
  step_whole_ += held;
  tiers_.AddWhole(cache, layer);
}

// False where all is read.
bool StepReads::ChooseEntries(const ViewSource& source, KvCache& cache, int64_t layer,
                              const Tensor& q) {
  const auto index = static_cast<size_t>(layer);
  CacheView view(source, layer);
  reader_->Append(view, indexed_[index], *states_[index]);
  indexed_[index].assign(view.lengths().begin(), view.lengths().end());
  const Tensor words = view.Scratch(DType::kI64, {shape_.query_heads, (view.width() + 63) / 64});
  const auto leader = static_cast<size_t>(reader_->LedBy(layer));
  Tensor bias;
  if (biasing_ == nullptr) {
    chosen_[index] = reader_->Select(view, *states_[leader], q, words);
  } else {
    bias = view.Scratch(DType::kF32, {shape_.query_heads, view.width()});
    chosen_[index] = biasing_->Choose(view, *states_[leader], q, words, bias);
  }
  if (!chosen_[index]) return false;
  cache.SetRead(layer, words, bias);
  ops_.select->CountBits(words, Counts(0)[layer], Counts(1)[layer]);
  Tensor joined;
  if (joining_ != nullptr) {
    joined = view.Scratch(DType::kI64, {words.shape[0], words.shape[1]});
    joining_->MarkJoined(view, *states_[leader], joined);
    ops_.select->CountBits(joined, Counts(1)[layer], Counts(1)[layer]);
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
  ops_.rows->Convert(log_sum_exp, own);
  joining_->Join(view, state, q[0], own.Reshape({shape_.query_heads}), out);
}

void StepReads::EndPass() {
  whole_ += step_whole_;
  held_ += step_held_;
  tiers_.EndPass();
}

void StepReads::KeepCounts() {
  if (step_chosen_) ops_.memory->Copy(Counts(1), Counts(0));
  step_chosen_ = false;
  tiers_.KeepCounts();
}

double StepReads::read() const {
  double reads = whole_;
  if (counts_[0].size_bytes() == 0) return reads;
  std::vector<int64_t> counts(static_cast<size_t>(shape_.layers * shape_.query_heads));
  ops_.memory->Copy(Counts(0),
                    Tensor(counts.data(), DType::kI64, {shape_.layers, shape_.query_heads}));
  for (const int64_t count : counts) reads += static_cast<double>(count);
  return reads;
}

int64_t StepReads::index_bytes() const {
  int64_t bytes = 0;
  for (const auto& state : states_) bytes += state->bytes();
  return bytes;
}

}  // namespace kvgauge
