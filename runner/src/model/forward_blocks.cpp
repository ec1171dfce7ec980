// SPDX-License-Identifier: Apache-2.0
// Two decoders (ModelConfig::blocks, Block Transformer): one whose rows are blocks of tokens, and
// one whose rows are what the first made of a block and the tokens of the next.
//
// Only the last token of a block is a row of the first decoder: the embeddings of the whole block,
// which need no state, as ids of earlier passes are in the prompt. Nothing is known behind the
// tokens before it in the first block, so they have no row at all.
//
// The second decoder attends within a block. Keys and values of a sequence's newest block are a
// state of the sequence; a pass puts them, and those of its rows, into pages that are its own. A
// block's place in a page follows from its number, so that sums have one order in any company.
#include <algorithm>
#include <vector>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {

// Rows of both decoders in one pass.
struct BlockRows {
  // Rows [begin, end) of a block in the second decoder.
  struct Part {
    int64_t first_row = 0;  // of the pass
    int64_t begin = 0, end = 0;
    int64_t page = 0, slot = 0;  // where the block's row 0 lies
  };
  struct Sequence {
    KvCache* cache = nullptr;
    std::vector<Part> parts;  // of blocks that follow each other
  };

  // The first decoder's; steps count blocks.
  std::vector<SequenceStep> block_steps;
  std::vector<int32_t> block_ids;   // of all tokens of these
  std::vector<int32_t> given_rows;  // of the second, from each of these
  // The second one's.
  std::vector<Sequence> sequences;
  std::vector<int32_t> places;                 // of all rows, in their blocks
  std::vector<int32_t> token_ids, token_rows;  // those of them that are tokens
  std::vector<int32_t> answers;                // whose logits are wanted, in the order of the steps
  // Pages [kv_heads][pages], and what attention sees of them.
  int64_t pages = 0;
  std::vector<void*> key_pages, value_pages;
  std::vector<KvSegment> segments;
  std::vector<KvHead> heads;
  std::vector<AttentionItem> items;

  int64_t rows() const { return std::ssize(places); }
  void AddStep(const SequenceStep& step, const BlockConfig& blocks);
  void AddRow(Sequence& sequence, int64_t block, int64_t place, const BlockConfig& blocks);
  void LayOut(const ModelConfig& config, DType dtype, Ops& ops, Scratch& scratch);
};

void BlockRows::AddRow(Sequence& sequence, int64_t block, int64_t place,
                       const BlockConfig& blocks) {
  const int64_t held = kKvPageEntries / blocks.rows();  // blocks of a page
  const int64_t slot = block % held * blocks.rows();
  std::vector<Part>& parts = sequence.parts;
  if (parts.empty() || place == 0) {
    if (parts.empty() || slot == 0) ++pages;
    parts.push_back({rows(), place, place, pages - 1, slot});
  }
  ++parts.back().end;
  places.push_back(static_cast<int32_t>(place));
}

void BlockRows::AddStep(const SequenceStep& step, const BlockConfig& blocks) {
  const int64_t pad = step.cache->block_pad();
  const auto id_at = [&](int64_t token) {
    return token < 0 ? 0 : step.prompt->positions[static_cast<size_t>(token)].token_id;
  };
  Sequence sequence = {.cache = step.cache, .parts = {}};
  SequenceStep ended = step;
  ended.begin = (pad + step.begin) / blocks.tokens;
  ended.end = (pad + step.end) / blocks.tokens;
  ended.hook = nullptr;
  if (ended.end > ended.begin) block_steps.push_back(ended);
  for (int64_t token = step.begin; token < step.end; ++token) {
    const int64_t block = (pad + token) / blocks.tokens, place = (pad + token) % blocks.tokens;
    const bool answered = block > 0 || place + 1 == blocks.tokens;  // BlockConfig::Answers
    if (place + 1 == blocks.tokens) {
      for (int64_t i = 0; i < blocks.tokens; ++i) {
        block_ids.push_back(id_at(token + 1 - blocks.tokens + i));
      }
      for (int64_t i = 0; i < blocks.given_rows; ++i) {
        given_rows.push_back(static_cast<int32_t>(rows()));
        AddRow(sequence, block + 1, i, blocks);
      }
    } else if (answered) {
      token_ids.push_back(id_at(token));
      token_rows.push_back(static_cast<int32_t>(rows()));
      AddRow(sequence, block, blocks.given_rows + place, blocks);
    }
    const bool wanted = step.logits == LogitRows::kAll ||
                        (step.logits == LogitRows::kLast && token + 1 == step.end);
    KVG_CHECK(answered || !wanted, "the first block has logits behind its last token alone");
    if (wanted) answers.push_back(static_cast<int32_t>(rows() - 1));
  }
  if (!sequence.parts.empty()) sequences.push_back(std::move(sequence));
}

void BlockRows::LayOut(const ModelConfig& config, DType dtype, Ops& ops, Scratch& scratch) {
  const KvFormat format = {dtype, config.key_dim, config.value_dim};
  const int64_t key_bytes = ops.attention->KeyPageBytes(format);
  const int64_t value_bytes = ops.attention->ValuePageBytes(format);
  const int64_t of_side = config.kv_heads * pages;
  const Tensor memory = scratch.Take(ops, ScratchSlot::kBlockPages, DType::kU8,
                                     {of_side * (key_bytes + value_bytes)});
  ops.memory->Clear(memory);
  auto* at = static_cast<char*>(memory.data);
  for (int64_t i = 0; i < of_side; ++i) {
    key_pages.push_back(at + i * key_bytes);
    value_pages.push_back(at + of_side * key_bytes + i * value_bytes);
  }
  int64_t parts = 0;
  for (const Sequence& sequence : sequences) parts += std::ssize(sequence.parts);
  segments.reserve(static_cast<size_t>(parts * config.kv_heads));
  heads.reserve(segments.capacity());
  for (const Sequence& sequence : sequences) {
    for (const Part& part : sequence.parts) {
      const size_t first = heads.size();
      for (int64_t h = 0; h < config.kv_heads; ++h) {
        KvSegment& segment = segments.emplace_back();
        segment.key_pages = &key_pages[static_cast<size_t>(h * pages + part.page)];
        segment.value_pages = &value_pages[static_cast<size_t>(h * pages + part.page)];
        segment.length = part.end;
        segment.skip = part.slot;
        heads.push_back({&segment, 1});
      }
      AttentionItem& item = items.emplace_back();
      item.first_row = part.first_row;
      item.rows = part.end - part.begin;
      item.heads = std::span(heads).subspan(first);
    }
  }
}

// Instead of Run. Hooks see nothing of it: methods are refused (CheckBlockEntries).
Tensor ForwardPass::RunDecoders() {
  KVG_CHECK(first_layer_ == 0 && end_layer_ == config_.layer_count(),
            "two decoders lie on one device");
  BlockRows rows;
  for (const SequenceStep& step : steps_) {
    KVG_CHECK(step.last.empty() && step.prompt->spans.empty(), "rows of two decoders are texts");
    rows.AddStep(step, *config_.blocks);
  }
  if (rows.rows() == 0) return {};
  rows.LayOut(config_, dtype_, ops_, scratch_);
  const int64_t hidden = config_.hidden_size;
  const Tensor residual = Take(ScratchSlot::kTokenRows, DType::kF32, {rows.rows(), hidden});
  const auto put = [&](const Tensor& from, std::span<const int32_t> where) {
    const Tensor index = Take(ScratchSlot::kIds, DType::kI32, {std::ssize(where)});
    ops_.memory->Copy(View(where, {std::ssize(where)}), index);
    ops_.select->Scatter(from, index, residual);
  };
  if (!rows.block_steps.empty()) {
    const Tensor given = ForwardPass(*this, rows.block_steps).RunBlocks(rows.block_ids);
    put(given, rows.given_rows);
  }
  if (!rows.token_ids.empty()) {
    const Tensor embedded =
        Take(ScratchSlot::kBranch, DType::kF32, {std::ssize(rows.token_ids), hidden});
    LookUp(weights_.embedding, rows.token_ids, 1.0f, embedded);
    put(embedded, rows.token_rows);
  }
  ForwardPass tokens(*this, rows);
  tokens.RunTokens(residual);
  return tokens.LogitsAt(residual, rows.answers);
}

ForwardPass::ForwardPass(const ForwardPass& whole, std::span<const SequenceStep> blocks)
    : config_(whole.config_),
      dtype_(whole.dtype_),
      ops_(whole.ops_),
      weights_(whole.weights_),
      scratch_(whole.scratch_),
      steps_(blocks),
      rows_(RowCount(blocks)),
      end_layer_(whole.config_.block_layer_count()),
      counts_blocks_(true) {}

ForwardPass::ForwardPass(const ForwardPass& whole, const BlockRows& in_block)
    : config_(whole.config_),
      dtype_(whole.dtype_),
      ops_(whole.ops_),
      weights_(whole.weights_),
      scratch_(whole.scratch_),
      rows_(in_block.rows()),
      first_layer_(whole.config_.block_layer_count()),
      end_layer_(whole.end_layer_),
      in_block_(&in_block) {}

// ids: of all tokens of the blocks. What the second decoder is given of them: [blocks * given_rows,
// hidden_size].
Tensor ForwardPass::RunBlocks(std::span<const int32_t> ids) {
  const BlockConfig& blocks = *config_.blocks;
  const int64_t hidden = config_.hidden_size, columns = blocks.embedding_columns;
  const Tensor x = Take(ScratchSlot::kResidual, DType::kF32, {rows_, hidden});
  if (blocks.projects) {
    const Tensor embedded =
        Take(ScratchSlot::kBranch, DType::kF32, {rows_ * blocks.tokens, columns});
    LookUp(weights_.blocks.embedding, ids, 1.0f, embedded);
    ApplyLinear(ops_, embedded.Reshape({rows_, blocks.tokens * columns}),
                weights_.blocks.projection, MatMulMode::kSet, x);
  } else {
    LookUp(weights_.blocks.embedding, ids, 1.0f, x.Reshape({rows_ * blocks.tokens, columns}));
  }
  MakeRopeTables();
  for (int64_t layer = 0; layer < end_layer_; ++layer) Layer(layer, x);
  ApplyNorm(weights_.blocks.norm, x, x);
  const Tensor given = Take(ScratchSlot::kBranch, DType::kF32, {rows_, blocks.given_rows * hidden});
  ApplyLinear(ops_, x, weights_.blocks.expansion, MatMulMode::kSet, given);
  return given.Reshape({rows_ * blocks.given_rows, hidden});
}

void ForwardPass::RunTokens(const Tensor& residual) {
  if (config_.rope) {
    const int64_t pairs = config_.rope->rotary_dim / 2;
    cos_[0] = Take(ScratchSlot::kCos, DType::kF32, {rows_, pairs});
    sin_[0] = Take(ScratchSlot::kSin, DType::kF32, {rows_, pairs});
    MakeRopeTables(in_block_->places, config_.blocks->rows(), cos_[0], sin_[0]);
  }
  for (int64_t layer = first_layer_; layer < end_layer_; ++layer) Layer(layer, residual);
}

// Keys and values of one sequence, [rows of the pass, kv_heads, dim], go to its pages behind those
// that its state has, and those of its newest block go to the state.
void ForwardPass::PutInBlocks(int64_t layer, int64_t index, const Tensor& keys,
                              const Tensor& values) {
  const BlockRows& all = *in_block_;
  const BlockRows::Sequence& sequence = all.sequences[static_cast<size_t>(index)];
  const KvFormat format = {dtype_, config_.key_dim, config_.value_dim};
  const int64_t heads = config_.kv_heads, key_columns = heads * format.key_dim;
  const int64_t columns = key_columns + heads * format.value_dim;
  const Tensor state =
      sequence.cache->State(config_.StateOf(layer)).Reshape({config_.blocks->rows(), columns});
  const auto write = [&](const BlockRows::Part& part, int64_t begin, const Tensor& k,
                         const Tensor& v) {
    std::vector<KvTarget> targets;
    for (int64_t h = 0; h < heads; ++h) {
      const auto page = static_cast<size_t>(h * all.pages + part.page);
      targets.push_back({&all.key_pages[page], &all.value_pages[page], part.slot + begin});
    }
    ops_.attention->WriteKv(format, k, v, targets);
  };
  const BlockRows::Part &first = sequence.parts.front(), &last = sequence.parts.back();
  if (first.begin > 0) {
    // Rows of a later block take the place of these.
    if (sequence.parts.size() > 1) sequence.cache->SetStatesMidway(true);
    const Tensor before = state.Slice(0, first.begin);
    write(first, 0, HeadsIn(before, 0, heads, format.key_dim),
          HeadsIn(before, key_columns, heads, format.value_dim));
  }
  // Blocks of one page follow each other in it, as their rows do in the pass.
  for (size_t i = 0; i < sequence.parts.size();) {
    const BlockRows::Part& part = sequence.parts[i];
    int64_t end = part.first_row;
    for (; i < sequence.parts.size() && sequence.parts[i].page == part.page; ++i) {
      end += sequence.parts[i].end - sequence.parts[i].begin;
    }
    write(part, part.begin, keys.Slice(part.first_row, end), values.Slice(part.first_row, end));
  }
  const Tensor kept = state.Slice(last.begin, last.end);
  const int64_t end = last.first_row + last.end - last.begin;
  ops_.rows->Convert(RowsOfHeads(keys.Slice(last.first_row, end)), Columns(kept, 0, key_columns));
  ops_.rows->Convert(RowsOfHeads(values.Slice(last.first_row, end)),
                     Columns(kept, key_columns, columns));
}

void ForwardPass::AttendInBlocks(int64_t layer, const Tensor& q, const Tensor& keys,
                                 const Tensor& values, const Tensor& out) {
  constexpr double kPart_ns = 2000;
  // Sequences with many rows are work for all threads.
  std::vector<int64_t> short_ones;
  for (int64_t i = 0; i < std::ssize(in_block_->sequences); ++i) {
    if (in_block_->sequences[static_cast<size_t>(i)].parts.size() == 1) {
      short_ones.push_back(i);
    } else {
      PutInBlocks(layer, i, keys, values);
    }
  }
  ops_.tasks->ForEach(std::ssize(short_ones), kPart_ns, [&](int64_t i) {
    PutInBlocks(layer, short_ones[static_cast<size_t>(i)], keys, values);
  });
  AttentionShape shape;
  shape.format = {dtype_, config_.key_dim, config_.value_dim};
  shape.query_heads = config_.query_heads;
  shape.kv_heads = config_.kv_heads;
  shape.scale = config_.attention_scale;
  ops_.attention->Attend(shape, in_block_->items, q, out);
}

}  // namespace kvgauge
