// SPDX-License-Identifier: Apache-2.0
#include "src/compress/tier_counts.h"

#include <algorithm>
#include <cmath>

#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Bytes of these entries of a head, of the sides that lie on the host.
double BytesOnHost(const Placement& place, const KvCache& cache, int64_t layer, int64_t head,
                   const EntryRange& range) {
  double bytes = 0;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const bool placed = side == KvSide::kKeys ? place.keys : place.values;
    if (placed) bytes += cache.EntryBytes(layer, head, side, range.first, range.last);
  }
  return bytes;
}

// For each head the rows of a behind each other, then those of b: [heads * rows, columns]. Words of
// a and b that are fewer are followed by zeros.
Tensor Together(LayerView& view, int64_t heads, const Tensor& a, const Tensor& b, int64_t columns) {
  const int64_t rows = (a.shape[0] + b.shape[0]) / heads;
  const Tensor out = view.Scratch(DType::kI64, {heads * rows, columns});
  std::vector<MemoryOps::CopyJob> jobs;
  for (int64_t head = 0; head < heads; ++head) {
    int64_t to = head * rows;
    for (const Tensor* part : {&a, &b}) {
      const int64_t own = part->shape[0] / heads;
      for (int64_t row = head * own; row < (head + 1) * own; ++row) {
        jobs.push_back({(*part)[row], out[to++].Slice(0, part->shape[1])});
      }
    }
  }
  view.ops().memory->CopyAll(jobs);
  return out;
}
Tensor Together(LayerView& view, int64_t heads, const Tensor& a, const Tensor& b) {
  return Together(view, heads, a, b, a.shape[1]);
}

}  // namespace

TierCounts::TierCounts(const Placement& place, const ModelShape& shape, const LayerDevices& devices)
    : place_(place), shape_(shape), devices_(devices) {
  if (!counts()) return;
  whole_.resize(static_cast<size_t>(shape.layers * shape.kv_heads));
  step_whole_ = whole_;
  last_.resize(static_cast<size_t>(shape.layers));
  step_.resize(static_cast<size_t>(shape.layers));
}

void TierCounts::Allocate() {
  for (LayerNumbers& counts : counts_) {
    if (!counts.empty()) continue;
    counts.Allocate(devices_, shape_.layers, DType::kI64, kKinds * shape_.kv_heads);
  }
}

void TierCounts::BeginStep() {
  std::fill(step_whole_.begin(), step_whole_.end(), 0.0);
  for (Words& words : step_) words.rows = 0;
}

void TierCounts::AddWhole(const KvCache& cache, int64_t layer) {
  if (!counts()) return;
  for (int64_t head = 0; head < cache.kv_heads(); ++head) {
    const EntryRange range = place_.OnHost(layer, cache.length(layer, head));
    step_whole_[At(layer, head)] = static_cast<double>(range.count());
  }
}

void TierCounts::AddRead(LayerView& view, const KvCache& cache, const Tensor& words,
                         const Tensor& joined) {
  if (!counts() || view.layer() < place_.first_layer) return;
  Allocate();
  const int64_t layer = view.layer(), heads = cache.kv_heads();
  std::vector<int32_t> ends;
  for (int64_t head = 0; head < heads; ++head) {
    const EntryRange range = place_.OnHost(layer, cache.length(layer, head));
    ends.push_back(static_cast<int32_t>(range.first));
    ends.push_back(static_cast<int32_t>(range.last));
  }
  const Tensor range = Upload(view, std::span<const int32_t>(ends)).Reshape({heads, 2});
  const auto count = [&](const Tensor& any, Kind kind) {
    view.ops().select->CountAnyBits(any, range, Counts(0, kind, layer).Slice(0, heads),
                                    Counts(1, kind, layer).Slice(0, heads));
  };
  step_read_ = true;
  const Tensor read = joined.empty() ? words : Together(view, heads, words, joined);
  const Words& last = last_[static_cast<size_t>(layer)];
  if (!place_.keeps || last.rows == 0) {
    count(read, kRead);
  } else {
    // What either read, less what the last step read, is what is new.
    const Tensor before = Together(view, heads, last.view(), {}, read.shape[1]);
    count(Together(view, heads, read, before), kRead);
    count(before, kKept);
  }
  if (!place_.keeps) return;
  Words& now = step_[static_cast<size_t>(layer)];
  const int64_t size_bytes = read.Numel() * SizeOf(DType::kI64);
  if (now.memory.size_bytes() < size_bytes) {
    now.memory = view.ops().memory->Allocate(size_bytes + size_bytes / 4);
  }
  now.rows = read.shape[0];
  now.columns = read.shape[1];
  view.ops().memory->Copy(read, now.view());
}

void TierCounts::Forget(int64_t layer) {
  if (!last_.empty()) last_[static_cast<size_t>(layer)].rows = 0;
}

void TierCounts::EndPass() {
  for (size_t i = 0; i < whole_.size(); ++i) whole_[i] += step_whole_[i];
}

void TierCounts::KeepCounts() {
  if (step_read_) counts_[0].CopyFrom(counts_[1]);
  step_read_ = false;
  std::swap(last_, step_);
}

void TierCounts::CountFrom(const TierCounts& other) {
  whole_ = other.whole_;
  if (other.counts_[0].empty()) return;
  Allocate();
  for (LayerNumbers& counts : counts_) counts.CopyFrom(other.counts_[0]);
}

double TierCounts::FetchedBytes(const KvCache& cache) const {
  if (!counts()) return 0;
  std::vector<int64_t> read(kKinds * whole_.size());  // [layers, kinds, kv_heads]
  if (!counts_[0].empty()) read = counts_[0].ToHost<int64_t>();
  double bytes = 0;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      const size_t at = At(layer, head);
      const size_t of_kind = At(kKinds * layer, head);
      const auto heads = static_cast<size_t>(shape_.kv_heads);
      const int64_t fetched = read[of_kind + kRead * heads] - read[of_kind + kKept * heads];
      const double entries = whole_[at] + static_cast<double>(fetched);
      if (entries == 0) continue;
      // Where none is left there, those of the head are like them.
      const int64_t length = cache.length(layer, head);
      EntryRange range = place_.OnHost(layer, length);
      if (range.count() == 0) range = {0, length};
      if (range.count() == 0) continue;
      bytes += entries * BytesOnHost(place_, cache, layer, head, range) /
               static_cast<double>(range.count());
    }
  }
  return bytes;
}

int64_t HostBytes(const Placement& place, const KvCache& cache) {
  if (!place.any()) return 0;
  double bytes = 0;
  for (int64_t layer = place.first_layer; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      const EntryRange range = place.OnHost(layer, cache.length(layer, head));
      if (range.count() > 0) bytes += BytesOnHost(place, cache, layer, head, range);
    }
  }
  return std::llround(bytes);
}

}  // namespace kvgauge
