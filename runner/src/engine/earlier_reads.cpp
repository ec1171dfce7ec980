// SPDX-License-Identifier: Apache-2.0
#include "src/engine/earlier_reads.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "methods/layouts/plain.h"
#include "runner/capture.h"

namespace kvgauge {

// What the rows of a pass pay to each text that stands there: attention to its entries alone has a
// sum of its own, which is its share of the whole sum.
class EarlierReads::Paying final : public LayerHook {
 public:
  // Rows [begin, end) of `read`, for which its cache has made room.
  Paying(EarlierReads& reads, Read& read, int64_t begin, int64_t end)
      : reads_(reads), read_(read), begin_(begin), end_(end) {
    const ModelConfig& config = reads.model_.cache_config();
    const int64_t heads = config.query_heads, rows = end - begin, texts = reads.texts();
    words_ = (end + 63) / 64;
    Ops& ops = reads.model_.ops();
    words_memory_ = ops.memory->Allocate(WordBytes(config, texts, end));
    std::vector<int32_t> bits(static_cast<size_t>(texts * heads * words_ * 2));
    for (int64_t text = 0; text < texts; ++text) {
      const int64_t first = read.firsts[static_cast<size_t>(text)];
      const int64_t last = std::min(first + reads.LengthOf(text), end);
      for (int64_t half = 0; half < 2 * words_; ++half) {
        uint32_t inside = 0;
        for (int64_t bit = 0; bit < 32; ++bit) {
          const int64_t entry = half * 32 + bit;
          if (entry >= first && entry < last) inside |= uint32_t{1} << bit;
        }
        for (int64_t h = 0; h < heads; ++h) {
          bits[static_cast<size_t>((text * heads + h) * 2 * words_ + half)] =
              std::bit_cast<int32_t>(inside);
        }
      }
    }
    ops.memory->Copy(View(bits, {std::ssize(bits)}),
                     words_memory_.As(DType::kI32, {std::ssize(bits)}));
    memory_ = ops.memory->Allocate(RowBytes(config, rows));
  }

  // Words say which entries of each text a head reads; rows have results and sums of their own.
  static int64_t WordBytes(const ModelConfig& config, int64_t texts, int64_t entries) {
    return texts * config.query_heads * ((entries + 63) / 64) * 8;
  }
  static int64_t RowBytes(const ModelConfig& config, int64_t rows) {
    return rows * (config.query_heads * (config.value_dim + 1) + 1) * 4;
  }

  bool wants_log_sum_exp() const override { return true; }
  void BeforeAttend(int64_t /*layer*/, const Tensor& /*q*/) override {}
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override {
    Ops& ops = reads_.model_.ops();
    const int64_t heads = q.shape[1], rows = q.shape[0], values = heads * out.shape[2];
    const Tensor all = memory_.As(DType::kF32, {rows * (values + heads + 1)});
    const Tensor unused = all.Slice(0, rows * values).Reshape({rows, heads, out.shape[2]});
    const Tensor sums = all.Slice(rows * values, rows * (values + heads)).Reshape({heads, rows});
    const Tensor mean = all.Slice(rows * (values + heads), all.shape[0]);
    const Tensor words = words_memory_.As(DType::kI64, {reads_.texts(), heads, words_});
    AttentionShape shape = LayerAttention(reads_.model_.cache_config(), *read_.cache, layer);
    shape.sinks = {};  // the whole sum counts them
    AttentionCapture capture;
    capture.log_sum_exp = sums;
    for (int64_t text = 0; text < reads_.texts(); ++text) {
      if (read_.firsts[static_cast<size_t>(text)] >= end_) continue;
      read_.cache->SetRead(layer, words[text]);
      const AttentionItem item = {
          .rows = rows, .token_position = begin_, .heads = read_.cache->Layer(layer)};
      ops.attention->Attend(shape, {&item, 1}, q, unused, capture);
      ops.rows->Combine(sums, log_sum_exp, Binary::kSubtract, sums);
      ops.rows->Activate(sums, Activation::kExp, sums);
      ops.rows->ReduceColumns(sums, Reduction::kMean, mean);
      Add(text, mean);
    }
    read_.cache->SetRead(layer, {});
  }

 private:
  // Tokens stand elsewhere in the prompt than in the earlier one.
  void Add(int64_t to, const Tensor& paid) {
    const Tensor row = reads_.PaidOf(read_)[to];
    for (int64_t text = 1; text < reads_.texts(); ++text) {
      const int64_t first = read_.firsts[static_cast<size_t>(text)];
      const int64_t from = std::max(first, begin_);
      const int64_t last = std::min(first + reads_.LengthOf(text), end_);
      if (from >= last) continue;
      const int64_t now = reads_.edges_[static_cast<size_t>(text)] - first;
      const Tensor sum = row.Slice(from + now, last + now).Reshape({1, last - from});
      reads_.model_.ops().rows->Combine(
          sum, paid.Slice(from - begin_, last - begin_).Reshape({1, last - from}), Binary::kAdd,
          sum);
    }
  }

  EarlierReads& reads_;
  Read& read_;
  const int64_t begin_, end_;
  int64_t words_ = 0;
  Buffer words_memory_, memory_;
};

EarlierReads::EarlierReads(Model& model, const HistoricReuse& stage, const Prompt& prompt,
                           std::vector<int64_t> edges, int64_t planned_length, CachePools& pools)
    : model_(model),
      stage_(stage),
      prompt_(prompt),
      edges_(std::move(edges)),
      planned_length_(planned_length),
      pools_(pools),
      orders_(stage.Orders(texts() - 1)) {
  KVG_CHECK(texts() > 1 && !orders_.empty(), "chunks that stood in an earlier prompt");
}

EarlierReads::~EarlierReads() = default;

int64_t EarlierReads::PlannedBytes(const HistoricReuse& stage, const ModelConfig& config,
                                   int64_t tokens, int64_t texts) {
  const int64_t prompts = std::ssize(stage.Orders(texts - 1));
  // What is paid stays until a stage has chosen by it, which takes as much for sums at most.
  const int64_t paid = prompts * texts * tokens * 4;
  const int64_t rows = std::min(Model::kChunkRows, tokens);
  return paid + std::max(prompts * texts * texts * 4 + (2 * tokens + 1) * 4,
                         Paying::WordBytes(config, texts, tokens) + Paying::RowBytes(config, rows));
}

Status EarlierReads::Begin() {
  const std::vector<int64_t>& order = orders_[reads_.size()];
  Read read;
  read.firsts.resize(static_cast<size_t>(texts()));
  const auto append = [&](int64_t text) {
    read.firsts[static_cast<size_t>(text)] = std::ssize(read.ids);
    for (int64_t i = 0; i < LengthOf(text); ++i) {
      const int64_t at = edges_[static_cast<size_t>(text)] + i;
      read.ids.push_back(prompt_.positions[static_cast<size_t>(at)].token_id);
    }
  };
  append(0);
  for (const int64_t text : order) append(text);
  KVG_CHECK(std::ssize(read.ids) == edges_.back(), "each chunk stands in an earlier prompt once");
  read.prompt = std::make_unique<Prompt>(Prompt::FromTokens(read.ids));
  read.cache = std::make_unique<KvCache>(model_.NewCache(planned_length_, pools_));
  for (int64_t l = 0; l < read.cache->layer_count(); ++l) {
    KVG_TRY(read.cache->Store(l, PlanOf(Plain(), {.raw = true})));
  }
  read.paid = model_.ops().memory->Allocate(texts() * edges_.back() * 4);
  model_.ops().memory->Clear(PaidOf(read));
  reads_.push_back(std::move(read));
  return {};
}

Status EarlierReads::Next() {
  if (reads_.empty() || reads_.back().ended()) KVG_TRY(Begin());
  Read& read = reads_.back();
  const int64_t begin = read.cache->tokens();
  const int64_t end = std::min(begin + Model::kChunkRows, read.prompt->size());
  KVG_TRY(read.cache->Append(end - begin));
  Paying hook(*this, read, begin, end);
  const SequenceStep step = {.cache = read.cache.get(),
                             .prompt = read.prompt.get(),
                             .begin = begin,
                             .end = end,
                             .logits = LogitRows::kNone,
                             .hook = &hook};
  model_.Forward({&step, 1});
  model_.ops().memory->Synchronize();
  return {};
}

EarlierReads::Choice EarlierReads::Choose() const {
  std::vector<EarlierPrompt> prompts;
  for (size_t i = 0; i < reads_.size(); ++i) prompts.push_back({orders_[i], PaidOf(reads_[i])});
  HistoricReuse::Choice chosen =
      stage_.ChooseEarlier({.ops = &model_.ops(), .edges = edges_, .prompts = prompts});
  KVG_CHECK(std::ssize(chosen.prompts) == texts() - 1, "an earlier prompt for each chunk");
  Choice choice;
  for (int64_t text = 1; text < texts(); ++text) {
    const int64_t prompt = chosen.prompts[static_cast<size_t>(text) - 1];
    choice.chunks.push_back({prompt, Of(prompt).firsts[static_cast<size_t>(text)]});
  }
  choice.rows = std::move(chosen.rows);
  return choice;
}

}  // namespace kvgauge
