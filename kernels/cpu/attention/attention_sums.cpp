// SPDX-License-Identifier: Apache-2.0
// Sums of attention over query rows, one for each entry, on the way: a block keeps what its softmax
// made of every span until the states of its rows are complete, which scales it to probabilities.
// So no score is computed twice. Blocks are cut alike whatever the threads, and are added in order.
#include <algorithm>
#include <cmath>

#include "cpu/attention/attention_schedule.h"

namespace kvgauge::attention_schedule {

// Heads of one segment whose scores are plain products; the rest takes the second pass.
bool CpuAttention::DoesSumColumns(const AttentionItem& item) const {
  return std::all_of(item.heads.begin(), item.heads.end(), [](const KvHead& head) {
    if (head.count != 1) return false;
    const KvSegment& s = head.segments[0];
    return s.keys.entries == 0 && s.values.entries == 0 && s.bias == nullptr &&
           s.key_scale == nullptr && s.value_scale == nullptr && s.rotation == nullptr &&
           s.key_basis.empty() && s.value_basis.empty() && !s.values_in_keys && s.read == nullptr &&
           s.read_bias == nullptr;
  });
}

void CpuAttention::PlaceSums(Call& call, const AttentionCapture& capture) {
  summed_heads_.clear();
  int64_t floats = 0;
  for (int64_t b = 0; b < std::ssize(blocks_); ++b) {
    Block& block = blocks_[b];
    if (block.item->column_sums.empty() || !SumsColumns(*block.item, capture)) continue;
    block.sums_at = floats;
    floats += call.group * block.spans * kSpan;
    call.kept_spans = std::max(call.kept_spans, block.spans);
    const bool same =
        b > 0 && blocks_[b - 1].item == block.item && blocks_[b - 1].kv_head == block.kv_head;
    if (!same) summed_heads_.push_back({b, 0});
    ++summed_heads_.back().blocks;
  }
  if (std::ssize(column_parts_) < floats) column_parts_.resize(static_cast<size_t>(floats));
}

void CpuAttention::SumBlock(const Call& call, const Block& block, const Scratch& scratch) const {
  if (block.pieces == 0) return;
  const Piece& piece = pieces_[block.first_piece];
  const int64_t rows = block.count * call.group;
  float* sums = column_parts_.data() + block.sums_at;
  std::fill_n(sums, call.group * block.spans * kSpan, 0.0f);
  float factors[kBlockRows];
  for (int64_t s = 0; s < piece.spans; ++s) {
    const int64_t span = piece.first_span + s;
    const int64_t first = piece.PageBegin(span) * kEntries - span * kSpan;
    const int64_t last = piece.PageEnd(span) * kEntries - span * kSpan;
    const SoftmaxState* parts = scratch.kept_states + s * rows;
    for (int g = 0; g < call.group; ++g) {
      for (int64_t i = 0; i < block.count; ++i) {
        const SoftmaxState& whole = scratch.states[i * call.group + g];
        const float max = parts[i * call.group + g].max;
        factors[i] = max == kNothing ? 0.0f : std::exp(max - whole.max) / whole.sum;
      }
      kernels_.add_weighted({scratch.kept_scores + (s * rows + g) * kSpan + first,
                             int64_t{call.group} * kSpan, static_cast<int>(block.count), factors,
                             static_cast<int>(last - first),
                             sums + (g * block.spans + s) * kSpan + first});
    }
  }
}

void CpuAttention::JoinSums(const Call& call, int64_t first_block, int64_t blocks,
                            int group_head) const {
  const Block& first = blocks_[first_block];
  const Tensor& out = first.item->column_sums;
  const int64_t head = int64_t{first.kv_head} * call.group + group_head;
  float* row = out.f32() + head * out.stride[0];
  std::fill_n(row, out.shape[1], 0.0f);
  for (int64_t b = first_block; b < first_block + blocks; ++b) {
    const Block& block = blocks_[b];
    if (block.pieces == 0) continue;
    const Piece& piece = pieces_[block.first_piece];
    const float* sums = column_parts_.data() + block.sums_at + group_head * block.spans * kSpan;
    // Slots that are skipped have no columns.
    const int64_t skip = piece.segment->skip, begin = piece.first_span * kSpan;
    const int64_t end = std::min(piece.entries.end, out.shape[1] + skip);
    const int64_t from = std::max(begin, skip);
    const int64_t whole = std::max<int64_t>(end - from, 0) / kEntries * kEntries;
    if (whole > 0) {
      constexpr float kOnce = 1.0f;
      kernels_.add_weighted(
          {sums + (from - begin), 0, 1, &kOnce, static_cast<int>(whole), row + (from - skip)});
    }
    for (int64_t slot = from + whole; slot < end; ++slot) {
      row[slot - skip] += sums[slot - begin];
    }
  }
}

}  // namespace kvgauge::attention_schedule
