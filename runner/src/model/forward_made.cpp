// SPDX-License-Identifier: Apache-2.0
// Layers whose keys and values are made anew (GoldFinch). Below them a token leaves one row in the
// cache. Each of them makes the keys and values of all tokens of that row, of the token's embedding
// and of the token before, attends to them, and forgets them: pages of one layer and sequence are
// all that there is of them at a time.
#include <algorithm>
#include <vector>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {
namespace {

// Tokens whose keys and values are made at once: what is made stays in a processor's caches, and a
// device has enough to do. No bit depends on it.
constexpr int64_t kMadeRowsOfHost = 64, kMadeRowsOfDevice = 512;
// Beside a root mean square, in a norm without a weight; here squared.
constexpr float kEvenEps = 1e-16f;

// [n, heads * dim] as [n, heads, dim].
Tensor HeadsOfRows(const Tensor& x, int64_t heads) {
  return x.Reshape({x.shape[0], heads, x.shape[1] / heads});
}

}  // namespace

// Pages of one layer's keys and values of one sequence.
class ForwardPass::MadePages {
 public:
  MadePages(Ops& ops, const KvFormat& format, int64_t heads, const Tensor& memory, int64_t tokens)
      : ops_(ops), format_(format), segments_(static_cast<size_t>(heads)), pages_(PagesOf(tokens)) {
    const int64_t bytes[] = {ops.attention->KeyPageBytes(format),
                             ops.attention->ValuePageBytes(format)};
    char* at = memory.As<char>();
    for (int side = 0; side < 2; ++side) {
      for (int64_t page = 0; page < heads * pages_; ++page, at += bytes[side]) {
        places_[side].push_back(at);
        // What the last one has beyond the tokens is 0.
        if ((page + 1) % pages_ != 0) continue;
        ops.memory->Clear(Tensor(at, DType::kU8, {bytes[side]}, memory.device));
      }
    }
    for (int64_t h = 0; h < heads; ++h) {
      KvSegment& segment = segments_[static_cast<size_t>(h)];
      segment.key_pages = places_[0].data() + h * pages_;
      segment.value_pages = places_[1].data() + h * pages_;
      segment.length = tokens;
      heads_.push_back({&segment, 1});
    }
  }

  static int64_t PagesOf(int64_t tokens) { return (tokens + kKvPageEntries - 1) / kKvPageEntries; }
  static int64_t BytesOf(const Ops& ops, const KvFormat& format, int64_t heads, int64_t tokens) {
    return heads * PagesOf(tokens) *
           (ops.attention->KeyPageBytes(format) + ops.attention->ValuePageBytes(format));
  }
  // Rows of all heads, from that token on: keys, or values.
  void Write(bool keys, int64_t first, const Tensor& rows) {
    std::vector<KvTarget> targets;
    for (const KvSegment& segment : segments_) {
      targets.push_back({.key_pages = segment.key_pages,
                         .value_pages = segment.value_pages,
                         .first_entry = first});
    }
    const Tensor heads = HeadsOfRows(rows, std::ssize(segments_));
    ops_.attention->WriteKv(format_, keys ? heads : Tensor(), keys ? Tensor() : heads, targets);
  }
  std::span<const KvHead> heads() const { return heads_; }

 private:
  Ops& ops_;
  KvFormat format_;
  std::vector<KvSegment> segments_;
  std::vector<KvHead> heads_;
  int64_t pages_;  // of a head
  std::vector<void*> places_[2];
};

void ForwardPass::KeepMadeRows(int64_t layer, const Tensor& residual) {
  const Linear& down = weights_.layers[static_cast<size_t>(layer)].made.down;
  const Tensor rows = Take(ScratchSlot::kNewKeys, DType::kF32, {rows_, config_.key_dim});
  ApplyLinear(ops_, residual, down, MatMulMode::kSet, rows);
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t end = row + step.end - step.begin;
    const Tensor own = rows.Slice(row, end);
    step.cache->Write(config_.CacheOf(layer), own.Reshape({end - row, 1, config_.key_dim}), {});
    row = end;
  }
}

void ForwardPass::EvenRows(const Tensor& x) {
  const Tensor ones = Take(ScratchSlot::kGateLimit, DType::kF32, {x.shape[1]});
  ops_.rows->Fill(1.0f, ones);
  ops_.rows->RmsNorm(x, ones, 0.0f, kEvenEps, x);
}

void ForwardPass::MakeKeys(int64_t layer, const SequenceStep& step, MadePages& pages) {
  const MadeKeysConfig& config = *config_.made_keys;
  const LayerWeights& own = weights_.layers[static_cast<size_t>(layer)];
  const MadeKeysWeights& w = own.made;
  const int64_t cache = config_.CacheOf(layer), hidden = config_.hidden_size;
  const int64_t columns = config_.key_dim, rank = config.mix_rank;
  const Linear& up = weights_.layers[static_cast<size_t>(config_.LayerOf(cache))].made.up;
  const int64_t rows = ops_.device == Device::kHost ? kMadeRowsOfHost : kMadeRowsOfDevice;
  const int64_t most = std::min(rows, step.end);
  const Tensor memory = Take(ScratchSlot::kMade, DType::kF32,
                             {most * (4 * hidden + 2 * columns + 2 * rank + config.rank)});
  // The last rows of the block before, of embeddings and of keys; zeros before the first token.
  const Tensor before = Take(ScratchSlot::kMadeBefore, DType::kF32, {2, hidden});
  ops_.memory->Clear(before);
  const Tensor taps = own.state.conv.weight.Reshape({2, hidden});
  for (int64_t begin = 0; begin < step.end; begin += rows) {
    const int64_t n = std::min(rows, step.end - begin);
    int64_t taken = 0;
    const auto take = [&](int64_t width) {
      const int64_t at = taken;
      taken += n * width;
      return memory.Slice(at, taken).Reshape({n, width});
    };
    const Tensor tokens = take(hidden), kept = take(columns), both = take(hidden + columns);
    const Tensor keys = take(hidden), differences = take(hidden), narrow = take(2 * rank);
    const Tensor low = take(config.rank);
    std::vector<int32_t> ids;
    for (int64_t i = begin; i < begin + n; ++i) ids.push_back(PositionOf(step, i).token_id);
    LookUp(weights_.embedding, ids, 1.0f, tokens);
    if (config_.embedding_norm) ApplyNorm(weights_.embedding_norm, tokens, tokens);
    step.cache->ReadKeys(cache, 0, begin, kept);
    ops_.rows->Convert(tokens, Columns(both, 0, hidden));
    ops_.rows->Convert(kept, Columns(both, hidden, hidden + columns));
    ApplyLinear(ops_, both, up, MatMulMode::kSet, keys);
    EvenRows(keys);
    EvenRows(tokens);
    const auto differ = [&](const Tensor& from, int64_t of) {
      ops_.state->Convolve(from, taps, {}, before.Slice(of, of + 1), differences);
      ops_.rows->Combine(differences, from, Binary::kSubtract, differences);
    };
    // What a layer changes, in its norm, in pages.
    const auto finish = [&](int side, const Tensor& mixed) {
      const auto i = static_cast<size_t>(side);
      ApplyLinear(ops_, mixed, w.made[i].linear, MatMulMode::kSet, low);
      ops_.rows->SoftCap(low, 1.0f, low);
      ApplyLinear(ops_, low, w.second[i], MatMulMode::kAdd, mixed);
      ApplyNorm(w.norms[side], mixed, mixed);
      pages.Write(side == 0, begin, mixed);
    };
    differ(tokens, 0);
    ProjectMixed(w.narrow, tokens, differences, narrow);
    ops_.rows->SoftCap(narrow, 1.0f, narrow);
    finish(1, MixedRows(w.made[1], tokens, differences, narrow));
    differ(keys, 1);
    finish(0, MixedRows(w.made[0], keys, differences, narrow));
  }
}

Tensor ForwardPass::MadeAttention(int64_t layer, const Tensor& x) {
  const MadeKeysWeights& w = weights_.layers[static_cast<size_t>(layer)].made;
  const MadeKeysConfig& config = *config_.made_keys;
  const int64_t heads = config_.query_heads, dim = config.head_dim, width = heads * dim;
  const Tensor differences = Differences(layer, x, 0);
  const Tensor narrow = Take(ScratchSlot::kSelected, DType::kF32, {rows_, config.mix_rank});
  ProjectMixed(w.narrow_query, x, differences, narrow);
  ops_.rows->SoftCap(narrow, 1.0f, narrow);
  const Tensor queries = Take(ScratchSlot::kProjected, DType::kF32, {rows_, width});
  ApplyLinear(ops_, MixedRows(w.query, x, differences, narrow), w.query.linear, MatMulMode::kSet,
              queries);
  ApplyNorm(w.query_norm, queries, queries);
  const AttentionShape shape = {.format = {.dtype = dtype_, .key_dim = dim, .value_dim = dim},
                                .query_heads = heads,
                                .kv_heads = heads,
                                .scale = config_.attention_scale};
  const Tensor out = Take(ScratchSlot::kAttended, DType::kF32, {rows_, width});
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t bytes = MadePages::BytesOf(ops_, shape.format, heads, step.end);
    const Tensor memory = Take(ScratchSlot::kMadePages, DType::kU8, {bytes});
    MadePages pages(ops_, shape.format, heads, memory, step.end);
    MakeKeys(layer, step, pages);
    AttentionItem item;
    item.first_row = row;
    item.rows = step.end - step.begin;
    item.first_position = step.begin;
    item.heads = pages.heads();
    ops_.attention->Attend(shape, {&item, 1}, HeadsOfRows(queries, heads), HeadsOfRows(out, heads));
    row += item.rows;
  }
  ApplyNorm(w.output_norm, out, out);
  return out;
}

}  // namespace kvgauge
