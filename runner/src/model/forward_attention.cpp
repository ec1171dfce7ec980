// SPDX-License-Identifier: Apache-2.0
// Attention in the forward pass: what is written to the caches, how queries turn, who attends.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {
namespace {

// Heads [first, first + count) of a [m, heads, d] view.
Tensor SomeHeads(const Tensor& heads, int64_t first, int64_t count) {
  Tensor some = heads;
  some.data = static_cast<char*>(heads.data) + first * heads.stride[1] * SizeOf(heads.dtype);
  some.shape[1] = count;
  return some;
}

// Whether the heads of a row of a [m, heads, d] view follow each other.
bool HeadsAreDense(const Tensor& heads) { return heads.stride[1] == heads.shape[2]; }

// One head of a [m, heads, d] view as [m, d].
Tensor OneHead(const Tensor& heads, int64_t h) {
  Tensor one = heads;
  one.data = static_cast<char*>(heads.data) + h * heads.stride[1] * SizeOf(heads.dtype);
  one.rank = 2;
  one.shape = {heads.shape[0], heads.shape[2], 0, 0};
  one.stride = {heads.stride[0], 1, 0, 0};
  return one;
}

// Latent norms of MLA have their own epsilon, whatever the config says.
constexpr float kLatentNormEps = 1e-6f;

}  // namespace

void ForwardPass::RotateBySlot(size_t index, int64_t row, int64_t layer, const Tensor& q) {
  const SequenceStep& step = steps_[index];
  const int kind = TablesOf(layer);
  const int64_t at = config_.CacheOf(layer);
  const int64_t count = step.end - step.begin, pairs = cos_[kind].shape[1];
  const int64_t kv_heads = step.cache->kv_heads(at), group = config_.query_heads / kv_heads;
  const int64_t steps = std::ssize(steps_);
  // Ropes that turn other numbers of dims have as much room each.
  const int64_t widest = std::max(cos_[0].shape[1], cos_[1].shape[1]);
  const int64_t numbers = rows_ + steps * widest + 2 * rows_ * widest;
  const Tensor all =
      Take(ScratchSlot::kSlotTables, DType::kF32, {config_.local_rope ? 2 : 1, numbers})[kind];
  Tensor positions = all.Slice(row, row + count);
  positions.dtype = DType::kI32;
  const Tensor inverse =
      all.Slice(rows_, rows_ + steps * pairs).Reshape({steps, pairs})[static_cast<int64_t>(index)];
  const int64_t begin = rows_ + steps * pairs;
  const Tensor tables = all.Slice(begin, begin + 2 * rows_ * pairs).Reshape({2 * rows_, pairs});
  const Tensor cos = tables.Slice(row, row + count);
  const Tensor sin = tables.Slice(rows_ + row, rows_ + row + count);
  slots_[kind].resize(steps_.size(), kNoSlot);
  for (int64_t h = 0; h < kv_heads; ++h) {
    // Heads and layers may hold different numbers of entries; mostly they do not.
    const auto first = static_cast<int32_t>(step.cache->slot_of(at, h));
    if (int32_t& tabled = slots_[kind][index]; first != tabled) {
      const RopeFrequencies& frequencies = step.cache->frequencies(at);
      if (tabled == kNoSlot) {
        const std::vector<float> narrow(frequencies.inverse.begin(), frequencies.inverse.end());
        ops_.memory->Copy(View(narrow, {pairs}), inverse);
      }
      std::vector<int32_t> slots(static_cast<size_t>(count));
      std::iota(slots.begin(), slots.end(), first);
      ops_.memory->Copy(View(slots, {count}), positions);
      ops_.rows->RopeTable(positions.Reshape({count, 1}), inverse, {},
                           static_cast<float>(frequencies.attention_factor), cos, sin);
      tabled = first;
    }
    ops_.rows->Rope(cos, sin, config_.rope->layout, RopeDirection::kForward,
                    SomeHeads(q, h * group, group));
  }
}

void ForwardPass::Rotate(int64_t layer, const Tensor& q, const Tensor& keys) {
  if (!config_.rope) return;
  const Tensor &cos = cos_[TablesOf(layer)], &sin = sin_[TablesOf(layer)];
  if (in_block_ != nullptr) {
    for (const Tensor& x : {q, keys}) {
      ops_.rows->Rope(cos, sin, config_.rope->layout, RopeDirection::kForward, x);
    }
    return;
  }
  const int64_t at = config_.CacheOf(layer);
  // Rows of neighbours that turn by their positions turn together.
  struct Run {
    int64_t begin = 0, end = 0;
  };
  const auto turn = [&](Run& run, const Tensor& x) {
    if (run.begin < run.end && !x.empty()) {
      ops_.rows->Rope(cos.Slice(run.begin, run.end), sin.Slice(run.begin, run.end),
                      config_.rope->layout, RopeDirection::kForward, x.Slice(run.begin, run.end));
    }
    run.begin = run.end;
  };
  Run queries, stored;
  int64_t row = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const SequenceStep& step = steps_[i];
    const int64_t end = row + step.end - step.begin;
    if (step.cache->slot_positions(at)) {
      turn(queries, q);
      RotateBySlot(i, row, layer, q.Slice(row, end));
      queries.begin = end;
    }
    if (step.cache->raw_keys(at)) {
      turn(stored, keys);
      stored.begin = end;
    }
    queries.end = stored.end = row = end;
  }
  turn(queries, q);
  turn(stored, keys);
}

// Single rows of many sequences are tasks; many rows of one are work for all threads.
void ForwardPass::ForSequences(std::span<const size_t> sequences,
                               const std::function<void(size_t)>& body) {
  constexpr double kRow_ns = 2000;
  std::vector<size_t> tasks;
  for (const size_t i : sequences) {
    if (steps_[i].end - steps_[i].begin == 1) {
      tasks.push_back(i);
    } else {
      body(i);
    }
  }
  ops_.tasks->ForEach(std::ssize(tasks), kRow_ns,
                      [&](int64_t t) { body(tasks[static_cast<size_t>(t)]); });
}

// The newest rows of all sequences in one call, where calls are what costs: a device makes its own
// for each. False where they are to be written one by one.
bool ForwardPass::WriteTogether(int64_t layer, const Tensor& keys, const Tensor& values) {
  const auto is_row = [](const SequenceStep& step) { return step.end - step.begin == 1; };
  if (ops_.device == Device::kHost || rows_ == 1 ||
      !std::all_of(steps_.begin(), steps_.end(), is_row) || !HeadsAreDense(keys) ||
      (!values.empty() && !HeadsAreDense(values))) {
    return false;
  }
  std::vector<KvTarget> targets;
  for (const SequenceStep& step : steps_) {
    if (!step.cache->AddTargets(layer, &targets)) return false;
  }
  const auto gathered = [&](ScratchSlot slot, const Tensor& heads) {
    if (heads.empty()) return Tensor();
    const int64_t count = heads.shape[1], dim = heads.shape[2];
    const Tensor dense = Take(slot, DType::kF32, {1, rows_ * count, dim});
    ops_.rows->Convert(RowsOfHeads(heads), dense.Reshape({rows_, count * dim}));
    return dense;
  };
  ops_.attention->WriteKv(steps_[0].cache->format(layer), gathered(ScratchSlot::kNewKeys, keys),
                          gathered(ScratchSlot::kNewValues, values), targets);
  return true;
}

void ForwardPass::PutRows(const Tensor& heads, const Tensor& into) {
  KVG_CHECK(HeadsAreDense(heads), "heads of a row follow each other");
  const int64_t width = heads.shape[1] * heads.shape[2];
  const Tensor dense = Take(ScratchSlot::kNewKeys, DType::kF32, {rows_, width});
  ops_.rows->Convert(RowsOfHeads(heads), dense);
  const Tensor places = Take(ScratchSlot::kIds, DType::kI32, {rows_});
  ops_.memory->Copy(View(part_->places, {rows_}), places);
  ops_.select->Scatter(dense, places, into.Reshape({into.shape[0], width}));
}

// A softmax over some entries and another one over the rest; then each row's two results by what
// their sums weigh.
void ForwardPass::AttendApart(const AttentionShape& shape, KvCache& cache, int64_t layer,
                              AttentionItem item, const Tensor& q, Tensor out) {
  const SideBySide& apart = *cache.apart();
  KVG_CHECK(shape.sinks.empty(), "logits of no entry belong to neither softmax");
  const int64_t heads = config_.query_heads, rows = item.rows, dv = out.shape[2];
  int64_t longest = 0;
  for (int64_t h = 0; h < cache.kv_heads(layer); ++h) {
    longest = std::max(longest, cache.length(layer, h));
  }
  const int64_t words = (longest + 63) / 64;
  // Words as pairs of 32 bits, the lower ones first.
  std::vector<int32_t> bits(static_cast<size_t>(4 * heads * words));
  for (int64_t half = 0; half < 2 * words; ++half) {
    uint32_t inside = 0;
    for (int64_t bit = 0; bit < 32; ++bit) {
      const int64_t entry = half * 32 + bit;
      if (entry >= apart.first && entry < apart.end) inside |= uint32_t{1} << bit;
    }
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<size_t>(2 * h * words + half);
      bits[at] = static_cast<int32_t>(inside);
      bits[at + static_cast<size_t>(2 * heads * words)] = static_cast<int32_t>(~inside);
    }
  }
  const Tensor reads = Take(ScratchSlot::kApartWords, DType::kI64, {2, heads, words});
  ops_.memory->Copy(View(bits, {4 * heads * words}), reads);
  const Tensor memory =
      Take(ScratchSlot::kApart, DType::kF32, {rows * heads * dv + 2 * heads * rows + heads});
  const Tensor other = memory.Slice(0, rows * heads * dv).Reshape({rows, heads, dv});
  const Tensor sums = memory.Slice(rows * heads * dv, rows * heads * dv + 2 * heads * rows)
                          .Reshape({2, heads, rows});
  const Tensor weight = memory.Slice(memory.shape[0] - heads, memory.shape[0]).Reshape({heads, 1});
  const Tensor of_rows = q.Slice(item.first_row, item.first_row + rows);
  const Tensor result = out.Slice(item.first_row, item.first_row + rows);
  item.first_row = 0;
  for (const bool inside : {true, false}) {
    AttentionShape own = shape;
    if (inside) own.scale /= apart.temperature;
    cache.SetRead(layer, reads[inside ? 0 : 1]);
    item.heads = cache.Layer(layer);
    AttentionCapture capture;
    capture.log_sum_exp = sums[inside ? 0 : 1];
    ops_.attention->Attend(own, {&item, 1}, of_rows, inside ? other : result, capture);
  }
  cache.SetRead(layer, {});
  // other - result, and the share that it has.
  ops_.rows->Combine(other.Reshape({rows, heads * dv}), result.Reshape({rows, heads * dv}),
                     Binary::kSubtract, other.Reshape({rows, heads * dv}));
  ops_.rows->Affine(sums[0], apart.scale * apart.temperature, 0.0f, sums[0]);
  ops_.rows->Combine(sums[0], sums[1], Binary::kSubtract, sums[0]);
  ops_.rows->Activate(sums[0], Activation::kSigmoid, sums[0]);
  for (int64_t row = 0; row < rows; ++row) {
    ops_.rows->Convert(Columns(sums[0], row, row + 1), weight);
    ops_.select->AddWeighted(other[row], weight, result[row]);
  }
}

void ForwardPass::AttendJoined(int64_t layer, const Tensor& q, const Tensor& keys,
                               const Tensor& values, Tensor out) {
  const JoinedEntries& joined = *part_->joined;
  PutRows(keys, joined.keys);
  PutRows(values, joined.values);
  if (joined.only_put) return;
  KvCache& cache = *steps_[0].cache;
  const int64_t end = part_->places.back() + 1;
  cache.Write(layer, joined.keys.Slice(joined.first, end), joined.values.Slice(joined.first, end));
  // Places without a gap are one item, as in a whole prefill.
  std::vector<AttentionItem> items;
  for (int64_t row = 0; row < rows_; ++row) {
    const int64_t place = PlaceOf(row);
    if (!items.empty() && items.back().first_position + items.back().rows == place) {
      ++items.back().rows;
      continue;
    }
    items.push_back({.first_row = row,
                     .rows = 1,
                     .first_position = place,
                     .token_position = place,
                     .heads = cache.Layer(layer)});
  }
  const Tensor& sinks = weights_.layers[static_cast<size_t>(layer)].sinks.weight;
  AttentionCapture capture;
  if (!sinks.empty()) {
    capture.log_sum_exp = Take(ScratchSlot::kLogSumExp, DType::kF32, {config_.query_heads, rows_});
  }
  const AttentionShape shape = {.format = cache.format(layer),
                                .query_heads = config_.query_heads,
                                .kv_heads = cache.kv_heads(layer),
                                .scale = config_.attention_scale,
                                .softcap = config_.attention_softcap,
                                .window = config_.layers[static_cast<size_t>(layer)].window,
                                .sinks = sinks,
                                .chunked = config_.layers[static_cast<size_t>(layer)].chunked};
  if (cache.apart()) {
    for (const AttentionItem& item : items) AttendApart(shape, cache, layer, item, q, out);
    return;
  }
  ops_.attention->Attend(shape, items, q, out, capture);
}

void ForwardPass::ShareQueries(const KvCache& cache, int64_t at, const Tensor& q) {
  const std::span<const int64_t> asked = cache.asked(at);
  const int64_t heads = std::ssize(asked), group = heads > 0 ? config_.query_heads / heads : 0;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t other = asked[static_cast<size_t>(h)];
    for (int64_t g = 0; g < group && other != h; ++g) {
      ops_.rows->Convert(OneHead(q, other * group + g), OneHead(q, h * group + g));
    }
  }
}

void ForwardPass::AttendCaches(int64_t layer, bool latents, const Tensor& q, const Tensor& keys,
                               const Tensor& values, Tensor out) {
  int64_t shared = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t end = shared + step.end - step.begin;
    ShareQueries(*step.cache, config_.CacheOf(layer), q.Slice(shared, end));
    shared = end;
  }
  if (Runs(LayerPass::kQueries)) {
    KVG_CHECK(!latents, "queries of caches that hold latents");
    steps_[0].cache->Write(layer, keys, values);
    ops_.rows->Convert(q, part_->queries);
    return;
  }
  if (part_ != nullptr && part_->joined != nullptr) {
    KVG_CHECK(!latents, "joined entries are keys and values");
    AttendJoined(layer, q, keys, values, out);
    return;
  }
  if (config_.ReadsLater(layer)) {
    AttendLater(layer, q, out);
    return;
  }
  const bool own = config_.HasCache(layer);
  const int64_t at = config_.CacheOf(layer);
  const auto hook_of = [&](const SequenceStep& step) {
    return own && shows_ ? step.hook : nullptr;
  };
  std::vector<AttentionItem> items(steps_.size());
  std::vector<size_t> waiting;
  bool wants_log_sum_exp = false;
  int64_t row = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const SequenceStep& step = steps_[i];
    const int64_t begin = row;
    row += step.end - step.begin;
    if (step.cache->mla_latent() != latents) continue;
    items[i] = {.first_row = begin, .rows = row - begin, .token_position = step.begin, .heads = {}};
    if (!ahead_.empty()) items[i].ahead = ahead_[i];
    waiting.push_back(i);
    const LayerHook* hook = hook_of(step);
    wants_log_sum_exp |= hook != nullptr && hook->wants_log_sum_exp();
  }
  const bool written = !own || (waiting.size() == steps_.size() && WriteTogether(at, keys, values));
  ForSequences(waiting, [&](size_t i) {
    const SequenceStep& step = steps_[i];
    const int64_t begin = items[i].first_row, end = begin + items[i].rows;
    if (!written) {
      step.cache->Write(at, keys.Slice(begin, end), latents ? Tensor() : values.Slice(begin, end));
    }
    LayerHook* hook = hook_of(step);
    if (hook != nullptr) hook->BeforeAttend(at, q.Slice(begin, end));
    items[i].heads = step.cache->Layer(at);
    if (hook != nullptr) items[i].column_sums = hook->ColumnSumsOfRows(at);
  });
  AttentionCapture capture;
  const Tensor& sinks = weights_.layers[static_cast<size_t>(layer)].sinks.weight;
  if (wants_log_sum_exp || !sinks.empty()) {
    capture.log_sum_exp = Take(ScratchSlot::kLogSumExp, DType::kF32, {config_.query_heads, rows_});
  }
  const std::vector<size_t> attending = waiting;
  std::erase_if(waiting, [&](size_t i) {
    KvCache& cache = *steps_[i].cache;
    if (!cache.apart()) return false;
    AttendApart({.format = cache.format(at),
                 .query_heads = config_.query_heads,
                 .kv_heads = cache.kv_heads(at),
                 .scale = config_.attention_scale,
                 .softcap = config_.attention_softcap,
                 .window = config_.layers[static_cast<size_t>(layer)].window,
                 .rope = cache.rope(at),
                 .sinks = sinks,
                 .chunked = config_.layers[static_cast<size_t>(layer)].chunked},
                cache, at, items[i], q, out);
    return true;
  });
  while (!waiting.empty()) {
    // One call for all whose keys turn by the same tables, and for those whose keys do not turn.
    const KvCache& first = *steps_[waiting[0]].cache;
    const DeferredRope* rope = nullptr;
    std::vector<AttentionItem> together;
    std::erase_if(waiting, [&](size_t i) {
      const DeferredRope* wanted = steps_[i].cache->rope(at);
      if (wanted != nullptr && rope != nullptr && wanted != rope) return false;
      if (wanted != nullptr) rope = wanted;
      together.push_back(items[i]);
      return true;
    });
    const AttentionShape shape = {.format = first.format(at),
                                  .query_heads = config_.query_heads,
                                  .kv_heads = first.kv_heads(at),
                                  .scale = config_.attention_scale,
                                  .softcap = config_.attention_softcap,
                                  .window = config_.layers[static_cast<size_t>(layer)].window,
                                  .rope = rope,
                                  .sinks = sinks,
                                  .chunked = config_.layers[static_cast<size_t>(layer)].chunked};
    ops_.attention->Attend(shape, together, q, out, capture);
  }
  ForSequences(attending, [&](size_t i) {
    LayerHook* hook = hook_of(steps_[i]);
    if (hook == nullptr) return;
    const int64_t begin = items[i].first_row, end = begin + items[i].rows;
    Tensor log_sum_exp;
    if (hook->wants_log_sum_exp()) log_sum_exp = Columns(capture.log_sum_exp, begin, end);
    hook->AfterAttend(at, q.Slice(begin, end), log_sum_exp, out.Slice(begin, end));
  });
}

// In place.
void ForwardPass::EvenLengths(const Tensor& heads) {
  const Tensor ones = Take(ScratchSlot::kGateLimit, DType::kF32, {heads.shape[2]});
  ops_.rows->Fill(1.0f, ones);
  ops_.rows->RmsNorm(heads, ones, 0.0f, config_.norm_eps, heads);
}

void ForwardPass::NormHeads(const Norm& norm, const Tensor& heads) {
  const float eps = config_.norm_eps;
  switch (config_.qk_norm_kind) {
    case QkNorm::kHead:
      ops_.rows->RmsNorm(heads, norm.weight, norm_offset(), eps, heads);
      return;
    case QkNorm::kWidth: {
      const Tensor rows = RowsOfHeads(heads);
      ops_.rows->RmsNorm(rows, norm.weight, norm_offset(), eps, rows);
      return;
    }
    case QkNorm::kLayer:
      ops_.rows->LayerNorm(heads, norm.weight, norm.bias, eps, heads);
      return;
    case QkNorm::kLength:
      EvenLengths(heads);
      return;
    case QkNorm::kLayerHeads:
    case QkNorm::kLayerLists:
      break;
  }
  const int64_t dim = heads.shape[2];
  for (int64_t h = 0; h < heads.shape[1]; ++h) {
    const Tensor one = OneHead(heads, h);
    ops_.rows->LayerNorm(one, norm.weight.Slice(h * dim, (h + 1) * dim), {}, eps, one);
  }
}

// In place: queries, and keys and values if they are there.
void ForwardPass::AdjustProjected(const Tensor& projected) {
  if (config_.multipliers) {
    const int64_t queries = config_.query_heads * config_.key_dim;
    const int64_t keys = queries + config_.kv_heads * config_.key_dim;
    Multiply(Columns(projected, 0, queries), config_.multipliers->queries);
    Multiply(Columns(projected, queries, keys), config_.multipliers->keys);
    Multiply(Columns(projected, keys, projected.shape[1]), config_.multipliers->values);
  }
  const float limit = config_.qkv_limit;
  if (limit <= 0) return;
  const Tensor bound = Take(ScratchSlot::kGateLimit, DType::kF32, {projected.shape[1]});
  ops_.rows->Fill(limit, bound);
  ops_.rows->Combine(projected, bound, Binary::kMin, projected);
  ops_.rows->Fill(-limit, bound);
  ops_.rows->Combine(projected, bound, Binary::kMax, projected);
}

// In place.
void ForwardPass::GrowQueries(int64_t layer, const Tensor& q) {
  if (!config_.query_growth || (config_.Turns(layer) && !config_.query_growth->everywhere)) return;
  const float ahead = config_.query_growth->everywhere ? 0.0f : 1.0f;
  const auto scale = static_cast<float>(config_.query_growth->scale);
  const auto every = static_cast<float>(config_.query_growth->every);
  std::vector<float> factors;
  for (const SequenceStep& step : steps_) {
    for (int64_t i = step.begin; i < step.end; ++i) {
      const float seen = std::floor((static_cast<float>(PlaceOf(i)) + ahead) / every);
      factors.push_back(std::log1p(seen) * scale + 1.0f);
    }
  }
  const Tensor factor = Take(ScratchSlot::kQueryFactor, DType::kF32, {rows_, 1});
  ops_.memory->Copy(View(factors, {rows_, 1}), factor);
  const Tensor rows = RowsOfHeads(q);
  const Tensor grown = Take(ScratchSlot::kQueryGrown, DType::kF32, {rows_, rows.shape[1]});
  ops_.rows->Fill(0.0f, grown);
  ops_.select->AddWeighted(rows, factor, grown);
  ops_.rows->Convert(grown, rows);
}

Tensor ForwardPass::PlainAttention(int64_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const HeadSizes sizes = config_.HeadsOf(layer);
  const int64_t heads = config_.query_heads, kv_heads = sizes.kv_heads;
  const int64_t dk = sizes.key_dim, dv = sizes.value_dim;
  // Queries, and keys and values where the layer has projections of its own.
  const Tensor projected =
      Take(ScratchSlot::kProjected, DType::kF32, {rows_, w.qkv.matrix->out_features()});
  ApplyLinear(ops_, x, w.qkv, MatMulMode::kSet, projected);
  for (const Adapted& rows : adapted_) {
    rows.adapters->AddToHeads(layer, rows.Of(x), rows.Of(projected));
  }
  AdjustProjected(projected);
  const Tensor q = HeadsIn(projected, 0, heads, dk, dk);
  Tensor k, v;
  const LayerConfig& own = config_.layers[static_cast<size_t>(layer)];
  if (config_.HasCache(layer) || own.in_block) {
    k = HeadsIn(projected, heads * dk, kv_heads, dk, dk);
    if (own.values_are_keys) {
      v = Take(ScratchSlot::kKeys, DType::kF32, {rows_, kv_heads, dv});
      ops_.rows->Convert(RowsOfHeads(k), RowsOfHeads(v));
    } else {
      v = HeadsIn(projected, (heads + kv_heads) * dk, kv_heads, dv, dv);
    }
  }
  if (config_.qk_norm && (config_.qk_norm_kind != QkNorm::kLength || config_.Turns(layer))) {
    NormHeads(w.q_norm, q);
    if (!k.empty()) NormHeads(w.k_norm, k);
  }
  if (config_.value_norm && !v.empty()) EvenLengths(v);
  if (config_.means) MeanRows(layer, q, k, v);
  Rotate(layer, q, k);
  GrowQueries(layer, q);
  const Tensor out = Take(ScratchSlot::kAttended, DType::kF32, {rows_, heads, dv});
  if (config_.means) {
    HideNeurons(q, k);
    AttendMeans(layer, q, k, v, out);
  } else if (own.in_block) {
    AttendInBlocks(layer, q, k, v, out);
  } else {
    AttendCaches(layer, false, q, k, v, out);
  }
  const Tensor attended = out.Reshape({rows_, heads * dv});
  if (config_.attention_gate) {
    const int64_t width = projected.shape[1];
    const Tensor gate = Columns(projected, width - heads * dv, width);
    ops_.rows->Activate(gate, Activation::kSigmoid, gate);
    ops_.rows->Combine(attended, gate, Binary::kMultiply, attended);
  }
  return attended;
}

Tensor ForwardPass::LatentQueries(int64_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const int64_t rows = x.shape[0], rank = config_.mla->q_lora_rank;
  const Tensor q_all =
      Take(ScratchSlot::kProjected, DType::kF32, {rows, config_.query_heads * config_.key_dim});
  if (rank == 0) {
    ApplyLinear(ops_, x, w.qkv, MatMulMode::kSet, q_all);
    return q_all;
  }
  const Tensor down = Take(ScratchSlot::kLatentQuery, DType::kF32, {rows, rank});
  ApplyLinear(ops_, x, w.qkv, MatMulMode::kSet, down);
  const Tensor normed = Take(ScratchSlot::kLatentNormed, dtype_, {rows, rank});
  ops_.rows->RmsNorm(down, w.q_latent_norm.weight, 0.0f, kLatentNormEps, normed);
  ApplyLinear(ops_, normed, w.q_up, MatMulMode::kSet, q_all);
  return q_all;
}

Tensor ForwardPass::QueriesOf(int64_t layer, size_t index, int64_t row, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const KvCache& cache = *steps_[index].cache;
  const int64_t rows = x.shape[0], heads = config_.query_heads;
  const int64_t dk = config_.HeadsOf(layer).key_dim;
  Tensor projected, turned;
  if (config_.mla) {
    projected = LatentQueries(layer, x);
    turned = HeadsIn(projected, config_.mla->nope_dim, heads, config_.mla->rope_dim, dk);
  } else {
    projected = Take(ScratchSlot::kProjected, DType::kF32, {rows, w.qkv.matrix->out_features()});
    ApplyLinear(ops_, x, w.qkv, MatMulMode::kSet, projected);
    AdjustProjected(projected);
    turned = HeadsIn(projected, 0, heads, dk, dk);
    if (config_.qk_norm) NormHeads(w.q_norm, turned);
  }
  if (config_.rope && cache.slot_positions(config_.CacheOf(layer))) {
    RotateBySlot(index, row, layer, turned);
  } else if (config_.rope) {
    const int kind = TablesOf(layer);
    ops_.rows->Rope(cos_[kind].Slice(row, row + rows), sin_[kind].Slice(row, row + rows),
                    config_.rope->layout, RopeDirection::kForward, turned);
  }
  Tensor q = HeadsIn(projected, 0, heads, dk, dk);
  if (cache.mla_latent()) {
    const Tensor absorbed = AbsorbedQueries(layer, projected);
    q = absorbed.Reshape({rows, heads, absorbed.shape[1] / heads});
  }
  ShareQueries(cache, config_.CacheOf(layer), q);
  return q;
}

Tensor ForwardPass::LatentAttention(int64_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const MlaConfig& mla = *config_.mla;
  const int64_t heads = config_.query_heads, dk = config_.key_dim;

  const Tensor q_all = LatentQueries(layer, x);
  const Tensor down =
      Take(ScratchSlot::kLatentQuery, DType::kF32, {rows_, mla.kv_lora_rank + mla.rope_dim});
  ApplyLinear(ops_, x, w.kv_down, MatMulMode::kSet, down);
  const Tensor latent = Take(ScratchSlot::kLatentNormed, dtype_, {rows_, mla.kv_lora_rank});
  ops_.rows->RmsNorm(Columns(down, 0, mla.kv_lora_rank), w.kv_latent_norm.weight, 0.0f,
                     kLatentNormEps, latent);
  Rotate(layer, HeadsIn(q_all, mla.nope_dim, heads, mla.rope_dim, dk),
         HeadsIn(down, mla.kv_lora_rank, 1, mla.rope_dim, mla.rope_dim));

  const auto expands = [](const SequenceStep& step) { return !step.cache->mla_latent(); };
  const Tensor attended =
      std::any_of(steps_.begin(), steps_.end(), expands)
          ? ExpandedAttention(layer, q_all, down, latent)
          : Take(ScratchSlot::kAttended, DType::kF32, {rows_, heads * config_.value_dim});
  if (!std::all_of(steps_.begin(), steps_.end(), expands)) {
    AbsorbedAttention(layer, q_all, down, latent, attended);
  }
  return attended;
}

// Latents are expanded to full keys and values, which a plain cache stores.
Tensor ForwardPass::ExpandedAttention(int64_t layer, const Tensor& q_all, const Tensor& down,
                                      const Tensor& latent) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const MlaConfig& mla = *config_.mla;
  const int64_t heads = config_.query_heads, dk = config_.key_dim, dv = config_.value_dim;
  const Tensor up = Take(ScratchSlot::kLatentUp, DType::kF32, {rows_, heads * (mla.nope_dim + dv)});
  ApplyLinear(ops_, latent, w.kv_up, MatMulMode::kSet, up);
  const Tensor k_rope = Columns(down, mla.kv_lora_rank, mla.kv_lora_rank + mla.rope_dim);
  const Tensor keys = Take(ScratchSlot::kKeys, DType::kF32, {rows_, heads, dk});
  const Tensor flat = keys.Reshape({rows_, heads * dk});
  for (int64_t h = 0; h < heads; ++h) {
    ops_.rows->Convert(Columns(up, h * (mla.nope_dim + dv), h * (mla.nope_dim + dv) + mla.nope_dim),
                       Columns(flat, h * dk, h * dk + mla.nope_dim));
    ops_.rows->Convert(k_rope,
                       Columns(flat, h * dk + mla.nope_dim, h * dk + mla.nope_dim + mla.rope_dim));
  }
  const Tensor values = HeadsIn(up, mla.nope_dim, heads, dv, mla.nope_dim + dv);
  const Tensor out = Take(ScratchSlot::kAttended, DType::kF32, {rows_, heads, dv});
  AttendCaches(layer, false, HeadsIn(q_all, 0, heads, dk, dk), keys, values, out);
  return out.Reshape({rows_, heads * dv});
}

Tensor ForwardPass::AbsorbedQueries(int64_t layer, const Tensor& q_all) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const MlaConfig& mla = *config_.mla;
  const int64_t heads = config_.query_heads, dk = config_.key_dim;
  const int64_t rank = mla.kv_lora_rank, width = rank + mla.rope_dim;
  const Tensor q = Take(ScratchSlot::kAbsorbedQuery, DType::kF32, {q_all.shape[0], heads * width});
  for (int64_t h = 0; h < heads; ++h) {
    ApplyLinear(ops_, Columns(q_all, h * dk, h * dk + mla.nope_dim),
                w.absorbed_keys[static_cast<size_t>(h)], MatMulMode::kSet,
                Columns(q, h * width, h * width + rank));
    ops_.rows->Convert(Columns(q_all, h * dk + mla.nope_dim, h * dk + mla.nope_dim + mla.rope_dim),
                       Columns(q, h * width + rank, h * width + rank + mla.rope_dim));
  }
  return q;
}

// Attention over the latents themselves: the up projection of keys moves to the queries, that of
// values to the result. Fills the rows of steps whose caches hold latents.
void ForwardPass::AbsorbedAttention(int64_t layer, const Tensor& q_all, const Tensor& down,
                                    const Tensor& latent, Tensor attended) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const MlaConfig& mla = *config_.mla;
  const int64_t heads = config_.query_heads, dv = config_.value_dim;
  const int64_t rank = mla.kv_lora_rank, width = rank + mla.rope_dim;
  const Tensor q = AbsorbedQueries(layer, q_all);
  const Tensor keys = Take(ScratchSlot::kKeys, DType::kF32, {rows_, width});
  ops_.rows->Convert(latent, Columns(keys, 0, rank));
  ops_.rows->Convert(Columns(down, rank, rank + mla.rope_dim),
                     Columns(keys, rank, rank + mla.rope_dim));
  const Tensor out = Take(ScratchSlot::kLatentUp, DType::kF32, {rows_, heads, rank});
  AttendCaches(layer, true, q.Reshape({rows_, heads, width}), keys.Reshape({rows_, 1, width}), {},
               out);
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = row;
    row += step.end - step.begin;
    if (!step.cache->mla_latent()) continue;
    for (int64_t h = 0; h < heads; ++h) {
      ApplyLinear(ops_, OneHead(out, h).Slice(begin, row),
                  w.absorbed_values[static_cast<size_t>(h)], MatMulMode::kSet,
                  Columns(attended, h * dv, h * dv + dv).Slice(begin, row));
    }
  }
}

Tensor ForwardPass::Attended(int64_t layer, const Tensor& x) {
  if (Runs(LayerPass::kRest)) return part_->attended;
  if (config_.made_keys) return MadeAttention(layer, x);
  return config_.mla ? LatentAttention(layer, x) : PlainAttention(layer, x);
}

void ForwardPass::AttentionBranch(int64_t layer, const Tensor& x, Tensor out, MatMulMode mode) {
  const LayerConfig& own = config_.layers[static_cast<size_t>(layer)];
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  if (own.attends) {
    const Tensor attended = Attended(layer, x);
    if (config_.multipliers) Multiply(attended, config_.multipliers->attended);
    ApplyLinear(ops_, attended, w.output, mode, out);
    for (const Adapted& rows : adapted_) {
      rows.adapters->AddToOutput(layer, rows.Of(attended), rows.Of(out));
    }
    mode = MatMulMode::kAdd;
  }
  if (own.state && !own.rows_alone)
    ApplyLinear(ops_, StateRows(layer, x), w.state.output, mode, out);
}

}  // namespace kvgauge
