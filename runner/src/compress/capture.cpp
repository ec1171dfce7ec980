// SPDX-License-Identifier: Apache-2.0
#include "runner/capture.h"

#include <algorithm>
#include <numeric>

#include "core/guarded.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"
#include "src/compress/chunk_sums.h"
#include "src/compress/gate_folds.h"
#include "src/compress/prompt_reach.h"
#include "src/compress/query_moments.h"

namespace kvgauge {
namespace {

int64_t Width(const KvCache& cache, int64_t layer) {
  int64_t width = 0;
  for (const KvHead& head : cache.Layer(layer)) width = std::max(width, head.length());
  return width;
}

// [rows, heads, dim] with whole rows of heads in one piece, as [rows, heads * dim].
Tensor Flat(const Tensor& q) {
  Tensor flat = q;
  KVG_CHECK(q.stride[1] == q.shape[2], "heads of a query row must lie side by side");
  flat.rank = 2;
  flat.shape = {q.shape[0], q.shape[1] * q.shape[2], 0, 0};
  flat.stride = {q.stride[0], 1, 0, 0};
  return flat;
}

}  // namespace

int64_t RowsOfQuestion(const Prompt& prompt, int64_t most) {
  if (prompt.spans.empty()) return most;
  const VisualSpan& last = prompt.spans.back();
  return std::clamp<int64_t>(prompt.size() - last.first - last.count, 1, most);
}

Needs NeedsOf(const Needs& declared, const Prompt& prompt, int64_t recorded) {
  Needs needs = declared;
  if (needs.question_rows > 0) {
    needs.window = std::max(needs.window, RowsOfQuestion(prompt, needs.question_rows));
  }
  if (!prompt.spans.empty() && recorded > 0) {
    needs.last_row_of.resize(static_cast<size_t>(recorded));
    std::iota(needs.last_row_of.begin(), needs.last_row_of.end(), 0);
  }
  return needs;
}

// The width of one query head, summed over layers.
int64_t KeyNumbers(const ModelConfig& config) {
  int64_t numbers = 0;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    numbers += config.HeadsOf(layer).key_dim;
  }
  return numbers;
}

AttentionShape LayerAttention(const ModelConfig& config, const KvCache& cache, int64_t layer) {
  return {.format = cache.format(layer),
          .query_heads = config.query_heads,
          .kv_heads = cache.kv_heads(layer),
          .scale = config.attention_scale,
          .softcap = config.attention_softcap,
          .window = config.layers[static_cast<size_t>(layer)].window,
          .rope = cache.rope(layer),
          .sinks = cache.sinks(layer),
          .chunked = config.layers[static_cast<size_t>(layer)].chunked};
}

PrefillCapture::PrefillCapture(const ModelConfig& config, const KvCache& cache, const Needs& needs,
                               int64_t rows, const Prompt* prompt)
    : config_(config),
      cache_(cache),
      prompt_(prompt),
      needs_(needs),
      rows_(rows),
      last_token_(cache.tokens() + rows),
      window_(std::min(needs.window, rows)),
      layer_rows_(static_cast<size_t>(config.layer_count()), rows),
      folded_(static_cast<size_t>(config.layer_count())),
      parts_(cache.devices().ranges().size()),
      reaches_(static_cast<size_t>(config.layer_count())) {
  const int64_t heads = config.query_heads;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    const int64_t width = Width(cache, layer) + rows;
    widths_.push_back(width);
    Ops& ops = cache.ops(layer);
    if (window_ > 0) {
      queries_.push_back(ops.memory->Allocate(window_ * heads * config.HeadsOf(layer).key_dim * 4));
      log_sums_.push_back(ops.memory->Allocate(window_ * heads * 4));
    }
    if (needs.first_rows > 0) {
      first_queries_.push_back(ops.memory->Allocate(std::min(needs.first_rows, rows) * heads *
                                                    config.HeadsOf(layer).key_dim * 4));
    }
    if (needs.column_sums) sums_.push_back(ops.memory->Allocate(heads * width * 4));
    if (needs.column_squares) squares_.push_back(ops.memory->Allocate(heads * width * 4));
  }
  for (int64_t layer = 0; needs.inputs && layer < config.layer_count(); ++layer) {
    inputs_.push_back(cache.ops(layer).memory->Allocate(rows * config.hidden_size * 4));
  }
  if (needs.surprise) surprise_ = cache.ops().memory->Allocate(rows * 4);
  for (const int64_t layer : needs.last_row_of) {
    last_rows_[layer] =
        cache.ops(layer).memory->Allocate(heads * widths_[static_cast<size_t>(layer)] * 4);
  }
  for (const ChunkAttention& of : needs.chunk_sums) {
    chunks_.push_back(std::make_unique<ChunkSums>(config, cache, of, rows));
  }
  for (const int64_t from : needs.query_moments) {
    moments_.push_back(std::make_unique<QueryMoments>(config, from, cache.devices()));
  }
  if (!needs.gates.empty())
    gates_ = std::make_unique<GateFolds>(config, ShapeOf(config, cache.format().dtype), needs.gates,
                                         rows, cache.ops());
}

void PrefillCapture::LayerInput(int64_t layer, const Tensor& x) {
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    // These rows end at the cache's newest token; those that are held begin with the prefill.
    const int64_t begun = last_token_ - rows_;
    const int64_t at = cache_.tokens(layer) - x.shape[0] - begun;
    if (gates_ != nullptr) gates_->Fold(layer, x, at);
    if (needs_.inputs) cache_.ops(layer).rows->Convert(x, Inputs(layer).Slice(at, at + x.shape[0]));
    return {};
  });
}

void PrefillCapture::TakeSurprise(const Tensor& surprise) {
  const int64_t end = rows_ - (last_token_ - cache_.tokens());
  cache_.ops().memory->Copy(surprise, Surprise().Slice(end - surprise.shape[0], end));
  // A question may follow, which is no part of what is captured.
  if (end == rows_) cache_.ops().memory->Clear(Surprise().Slice(rows_ - 1, rows_));
}

Tensor PrefillCapture::Surprise() const {
  KVG_CHECK(needs_.surprise, "no stage declared surprise");
  return surprise_.As(DType::kF32, {rows_});
}

Tensor PrefillCapture::GateScores(const Gate& gate, int64_t layer) const {
  KVG_CHECK(gates_ != nullptr, "no stage declared a gate");
  return gates_->Of(gate, layer);
}

void PrefillCapture::GiveGateScores(const Gate& gate, int64_t layer, const Tensor& before) {
  KVG_CHECK(gates_ != nullptr, "no stage declared a gate");
  gates_->Give(gate, layer, before);
}

Tensor PrefillCapture::GateScoresBefore(const Gate& gate, int64_t layer) const {
  KVG_CHECK(gates_ != nullptr, "no stage declared a gate");
  return gates_->Before(gate, layer);
}

Tensor PrefillCapture::Inputs(int64_t layer) const {
  KVG_CHECK(needs_.inputs, "no stage declared inputs");
  return inputs_[static_cast<size_t>(layer)].As(DType::kF32, {rows_, config_.hidden_size});
}

PrefillCapture::~PrefillCapture() = default;

bool PrefillCapture::wants_log_sum_exp() const {
  return window_ > 0 || needs_.column_sums || needs_.column_squares || !last_rows_.empty();
}

void PrefillCapture::AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                                 const Tensor&) {
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    Capture(layer, q, log_sum_exp);
    return {};
  });
}

void PrefillCapture::TakeRows(int64_t layer, std::span<const KvHead> heads, const Tensor& q,
                              const Tensor& log_sum_exp) {
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    if (needs_.column_sums) Add(Part(layer), layer, sums_[static_cast<size_t>(layer)]);
    if (!needs_.column_squares) return {};
    const int64_t end = heads[0].length();
    const AttentionItem item = {
        .first_row = 0, .rows = q.shape[0], .token_position = end - q.shape[0], .heads = heads};
    ColumnRequest request;
    request.kind = ColumnReduction::kSumSquares;
    request.rows = item.rows;
    const Tensor part = Part(layer);
    cache_.ops(layer).attention->ReduceColumns(LayerAttention(config_, cache_, layer), item, q,
                                               log_sum_exp, request, part);
    Add(part, layer, squares_[static_cast<size_t>(layer)]);
    return {};
  });
}

void PrefillCapture::TakeLayer(int64_t layer, std::shared_ptr<const PromptReach> reach,
                               const Tensor& queries, const Tensor& log_sum_exp) {
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    reaches_[static_cast<size_t>(layer)] = std::move(reach);
    const PromptReach* seen = this->reach(layer);
    if (seen != nullptr && !seen->whole()) SumSeen(layer, *seen, queries, log_sum_exp);
    if (window_ > 0) KeepWindow(layer, queries, log_sum_exp);
    KeepFirst(layer, queries);
    KeepLastRow(layer, queries, log_sum_exp);
    for (const auto& chunks : chunks_) chunks->Add(layer, queries);
    // In the pieces that an ordinary prefill has.
    for (const auto& moments : moments_) {
      for (int64_t begin = 0; begin < rows_; begin += Model::kChunkRows) {
        moments->Add(layer, queries.Slice(begin, std::min(rows_, begin + Model::kChunkRows)), begin,
                     cache_.frequencies(layer), cache_.rope_places());
      }
    }
    return {};
  });
}

void PrefillCapture::SumSeen(int64_t layer, const PromptReach& seen, const Tensor& q,
                             const Tensor& log_sum_exp) {
  const auto index = static_cast<size_t>(layer);
  const auto sum = [&](ColumnReduction kind, const Buffer& sums) {
    const Tensor part = Part(layer);
    seen.SumColumns(cache_.ops(layer), LayerAttention(config_, cache_, layer), cache_.Layer(layer),
                    kind, q, log_sum_exp, part);
    Add(part, layer, sums);
  };
  if (needs_.column_sums) sum(ColumnReduction::kSum, sums_[index]);
  if (needs_.column_squares) sum(ColumnReduction::kSumSquares, squares_[index]);
}

void PrefillCapture::Capture(int64_t layer, const Tensor& q, const Tensor& log_sum_exp) {
  if (window_ > 0) KeepWindow(layer, q, log_sum_exp);
  KeepFirst(layer, q);
  if (RowsToCome(layer) == 0) KeepLastRow(layer, q, log_sum_exp);
  // A pass that found no memory is begun again, and its rows come twice.
  int64_t& folded = folded_[static_cast<size_t>(layer)];
  if (folded == Width(cache_, layer)) return;
  folded = Width(cache_, layer);
  // The sums were left where ColumnSumsOfRows said.
  if (needs_.column_sums) Add(Part(layer), layer, sums_[static_cast<size_t>(layer)]);
  if (needs_.column_squares) FoldSquares(layer, q, log_sum_exp);
  for (const auto& chunks : chunks_) chunks->Add(layer, q);
  for (const auto& moments : moments_) {
    moments->Add(layer, q, cache_.tokens() - q.shape[0], cache_.frequencies(layer),
                 cache_.rope_places());
  }
}

void PrefillCapture::KeepFirst(int64_t layer, const Tensor& q) {
  if (first_queries_.empty()) return;
  const auto index = static_cast<size_t>(layer);
  const int64_t row_size = config_.query_heads * config_.HeadsOf(layer).key_dim;
  const Buffer& memory = first_queries_[index];
  const int64_t most = memory.size_bytes() / (4 * row_size);
  // These rows end at the layer's newest entry; the first stands behind what was there before.
  const int64_t before = layer_rows_[index] - RowsToCome(layer) - q.shape[0];
  if (before >= most) return;
  const int64_t end = std::min(most, before + q.shape[0]);
  cache_.ops(layer).rows->Convert(Flat(q).Slice(0, end - before),
                                  memory.As(DType::kF32, {most, row_size}).Slice(before, end));
}

Tensor PrefillCapture::FirstQueries(int64_t layer, int64_t rows) const {
  KVG_CHECK(!first_queries_.empty(), "no stage declared the first rows");
  const int64_t row_size = config_.query_heads * config_.HeadsOf(layer).key_dim;
  const Buffer& memory = first_queries_[static_cast<size_t>(layer)];
  const int64_t most = memory.size_bytes() / (4 * row_size);
  KVG_CHECK(rows <= std::min(most, layer_rows_[static_cast<size_t>(layer)]),
            "more first rows than there are");
  return memory.As(DType::kF32, {most, config_.query_heads, config_.HeadsOf(layer).key_dim})
      .Slice(0, rows);
}

void PrefillCapture::KeepWindow(int64_t layer, const Tensor& q, const Tensor& log_sum_exp) {
  // These rows end at the layer's newest entry; the window ends at the last of the prefill.
  const int64_t end = q.shape[0], left = RowsToCome(layer);
  const int64_t count = std::min(end, window_ - left);
  if (count <= 0) return;
  const int64_t heads = config_.query_heads, row_size = heads * config_.HeadsOf(layer).key_dim;
  const int64_t to = window_ - left;
  const auto index = static_cast<size_t>(layer);
  const Tensor rows = queries_[index].As(DType::kF32, {window_, row_size});
  cache_.ops(layer).rows->Convert(Flat(q).Slice(end - count, end), rows.Slice(to - count, to));
  const Tensor sums = log_sums_[index].As(DType::kF32, {heads, window_});
  cache_.ops(layer).rows->Convert(Columns(log_sum_exp, end - count, end),
                                  Columns(sums, to - count, to));
}

int64_t PrefillCapture::RowsToCome(int64_t layer) const {
  // Rows that join entries make none.
  if (config_.means) return last_token_ - cache_.tokens(layer);
  return widths_[static_cast<size_t>(layer)] - Width(cache_, layer);
}

void PrefillCapture::Begin(int64_t first_layer, int64_t rows) {
  thinned_ = true;
  for (int64_t layer = first_layer; layer < config_.layer_count(); ++layer) {
    const auto index = static_cast<size_t>(layer);
    for (const auto* sums : {&sums_, &squares_}) {
      if (sums->empty()) continue;
      const Buffer& memory = (*sums)[index];
      cache_.ops(layer).memory->Clear(memory.As(DType::kF32, {memory.size_bytes() / 4}));
    }
    widths_[index] = Width(cache_, layer) + rows;
    layer_rows_[index] = rows;
    folded_[index] = 0;
  }
}

int64_t PrefillCapture::window(int64_t layer) const {
  return std::min(window_, layer_rows_[static_cast<size_t>(layer)]);
}

void PrefillCapture::KeepLastRow(int64_t layer, const Tensor& q, const Tensor& log_sum_exp) {
  if (!last_rows_.contains(layer)) return;
  const int64_t rows = q.shape[0], heads = config_.query_heads;
  const Buffer memory = cache_.ops(layer).memory->Allocate(heads * 4);
  const Tensor last_sum = memory.As(DType::kF32, {heads, 1});
  cache_.ops(layer).rows->Convert(Columns(log_sum_exp, rows - 1, rows), last_sum);
  const Tensor out = LastRow(layer);
  const Tensor of_row = out.Reshape({heads, 1, out.shape[1]});
  if (const PromptReach* seen = reach(layer); seen != nullptr && !seen->whole()) {
    seen->Probabilities(cache_.ops(layer), LayerAttention(config_, cache_, layer),
                        cache_.Layer(layer), rows_ - 1, q.Slice(rows - 1, rows), last_sum, of_row);
    return;
  }
  const AttentionItem item = {
      .first_row = 0, .rows = 1, .token_position = last_token_ - 1, .heads = cache_.Layer(layer)};
  cache_.ops(layer).attention->WindowProbabilities(LayerAttention(config_, cache_, layer), item,
                                                   q.Slice(rows - 1, rows), last_sum, of_row);
}

Tensor PrefillCapture::Part(int64_t layer) {
  const int64_t width = Width(cache_, layer), bytes = config_.query_heads * width * 4;
  Buffer& part = parts_[cache_.devices().index_of(layer)];
  if (part.size_bytes() < bytes) part = cache_.ops(layer).memory->Allocate(bytes);
  return part.As(DType::kF32, {config_.query_heads, width});
}

Tensor PrefillCapture::ColumnSumsOfRows(int64_t layer) {
  Tensor part;
  if (!needs_.column_sums || !status_.ok()) return part;
  status_ = Guarded([&]() -> Status {
    part = Part(layer);
    return {};
  });
  return part;
}

void PrefillCapture::Add(const Tensor& part, int64_t layer, const Buffer& sums) {
  const Tensor all =
      sums.As(DType::kF32, {config_.query_heads, widths_[static_cast<size_t>(layer)]});
  const Tensor reached = Columns(all, 0, part.shape[1]);
  cache_.ops(layer).rows->Combine(reached, part, Binary::kAdd, reached);
}

void PrefillCapture::FoldSquares(int64_t layer, const Tensor& q, const Tensor& log_sum_exp) {
  const int64_t end = cache_.tokens(), begin = end - q.shape[0];
  std::vector<int32_t> ahead;
  if (prompt_ != nullptr) ahead = RowsAhead(config_, *prompt_, begin, end);
  const AttentionItem item = {.first_row = 0,
                              .rows = q.shape[0],
                              .token_position = begin,
                              .heads = cache_.Layer(layer),
                              .ahead = ahead};
  ColumnRequest request;
  request.kind = ColumnReduction::kSumSquares;
  request.rows = item.rows;
  const Tensor part = Part(layer);
  cache_.ops(layer).attention->ReduceColumns(LayerAttention(config_, cache_, layer), item, q,
                                             log_sum_exp, request, part);
  Add(part, layer, squares_[static_cast<size_t>(layer)]);
}

Tensor PrefillCapture::WindowQueries(int64_t layer, int64_t rows) const {
  KVG_CHECK(rows > 0 && rows <= window_, "more query rows than were captured");
  return queries_[static_cast<size_t>(layer)]
      .As(DType::kF32, {window_, config_.query_heads, config_.HeadsOf(layer).key_dim})
      .Slice(window_ - rows, window_);
}

Tensor PrefillCapture::WindowLogSumExp(int64_t layer) const {
  KVG_CHECK(window_ > 0, "no query rows were captured");
  return log_sums_[static_cast<size_t>(layer)].As(DType::kF32, {config_.query_heads, window_});
}

Tensor PrefillCapture::ColumnSums(int64_t layer) const {
  KVG_CHECK(needs_.column_sums, "no stage declared column sums");
  const auto index = static_cast<size_t>(layer);
  return sums_[index].As(DType::kF32, {config_.query_heads, widths_[index]});
}

Tensor PrefillCapture::ColumnSquares(int64_t layer) const {
  KVG_CHECK(needs_.column_squares, "no stage declared column squares");
  const auto index = static_cast<size_t>(layer);
  return squares_[index].As(DType::kF32, {config_.query_heads, widths_[index]});
}

Tensor PrefillCapture::LastRow(int64_t layer) const {
  const auto found = last_rows_.find(layer);
  KVG_CHECK(found != last_rows_.end(), "no stage declared the last row of this layer");
  return found->second.As(DType::kF32, {config_.query_heads, widths_[static_cast<size_t>(layer)]});
}

const ChunkSums& PrefillCapture::SumsOfChunks(const ChunkAttention& of) const {
  const auto found = std::find_if(chunks_.begin(), chunks_.end(),
                                  [&](const auto& chunks) { return chunks->kind() == of; });
  KVG_CHECK(found != chunks_.end(), "no stage declared these chunks");
  return **found;
}

const QueryMoments& PrefillCapture::MomentsFrom(int64_t from) const {
  const auto found = std::find_if(moments_.begin(), moments_.end(),
                                  [&](const auto& moments) { return moments->from() == from; });
  KVG_CHECK(found != moments_.end(), "no stage declared these moments of queries");
  return **found;
}

int64_t PrefillCapture::bytes() const {
  int64_t bytes = surprise_.size_bytes() + (gates_ != nullptr ? gates_->bytes() : 0);
  for (const auto& chunks : chunks_) bytes += chunks->bytes();
  for (const auto& moments : moments_) bytes += moments->bytes();
  for (const auto& [layer, buffer] : last_rows_) bytes += buffer.size_bytes();
  for (const auto* buffers :
       {&queries_, &log_sums_, &first_queries_, &inputs_, &sums_, &squares_, &parts_}) {
    for (const Buffer& buffer : *buffers) bytes += buffer.size_bytes();
  }
  return bytes;
}

int64_t PrefillCapture::PlannedBytes(const ModelConfig& config, const Needs& needs, int64_t rows) {
  const int64_t heads = config.query_heads;
  const int64_t window = std::min(needs.most_window(), rows);
  const int64_t columns = int64_t{needs.column_sums} + int64_t{needs.column_squares};
  const ModelShape shape = ShapeOf(config, DType::kF32);
  int64_t of_chunks = 0;
  for (const GateNeed& need : needs.gates) {
    of_chunks += need.gate->PlannedBytes(shape) + config.layer_count() * shape.kv_heads * rows * 4;
  }
  if (needs.inputs) of_chunks += config.layer_count() * rows * config.hidden_size * 4;
  for (const ChunkAttention& of : needs.chunk_sums) {
    of_chunks += ChunkSums::PlannedBytes(config, of, rows);
  }
  // A pass makes logits of 64 rows at a time.
  const int64_t of_tokens =
      needs.surprise ? 4 * (rows + 64 * (config.vocab_size + config.hidden_size + 2)) : 0;
  return of_chunks + of_tokens +
         4 * heads *
             (config.layer_count() * (window + columns * rows) +
              (window + std::min(needs.first_rows, rows)) * KeyNumbers(config) +
              std::ssize(needs.last_row_of) * rows + (columns > 0 ? rows : 0)) +
         std::ssize(needs.query_moments) *
             QueryMoments::PlannedBytes(config, std::min(rows, Model::kChunkRows));
}

StepCapture::StepCapture(const ModelConfig& config, const Needs& needs, const LayerDevices& devices)
    : config_(config), devices_(devices), needs_(needs) {
  const int64_t layers = config.layer_count();
  if (wants_guesses()) guesses_.resize(static_cast<size_t>(layers));
  if (!wanted()) return;
  queries_.Allocate(devices_, layers, DType::kF32, row_size());
  if (slides()) last_.Allocate(devices_, layers, DType::kF32, needs.step_window * row_size());
  if (wants_inputs()) {
    gates_ = std::make_unique<GateFolds>(config, ShapeOf(config, DType::kF32), needs.gates, 1,
                                         devices_.first());
  }
  if (wants_residuals()) {
    step_gates_ = std::make_unique<GateFolds>(config, ShapeOf(config, DType::kF32),
                                              needs.step_gates, 1, devices_.first());
  }
  if (!needs.step_attention) return;
  log_sums_.Allocate(devices_, layers, DType::kF32, config.query_heads);
  attention_.resize(static_cast<size_t>(config.layer_count()));
}

Tensor StepCapture::AttentionOf(int64_t layer, const KvCache& cache) {
  if (attention_.empty()) return {};
  Left& own = attention_[static_cast<size_t>(layer)];
  own.left = {};
  if (!devices_.of(layer).attention->SumsColumns({.heads = cache.Layer(layer)})) return {};
  const int64_t width = Width(cache, layer), bytes = config_.query_heads * width * 4;
  // Steps add an entry each: room for some more.
  if (own.memory.size_bytes() < bytes) {
    own.memory =
        devices_.of(layer).memory->Allocate(bytes + config_.query_heads * kKvPageEntries * 4);
  }
  // The sums over one row are its attention.
  own.left = own.memory.As(DType::kF32, {config_.query_heads, width});
  return own.left;
}

void StepCapture::Keep(int64_t layer, const Tensor& q, const Tensor& log_sum_exp) {
  const int64_t heads = config_.query_heads;
  devices_.of(layer).rows->Convert(q[0], Queries(layer));
  if (needs_.step_attention) devices_.of(layer).rows->Convert(log_sum_exp, LogSumExp(layer));
  KVG_CHECK(q.shape[0] == 1 && q.shape[1] == heads, "a step has one row");
}

StepCapture::~StepCapture() = default;

void StepCapture::KeepInput(int64_t layer, const Tensor& x) { gates_->Fold(layer, x, 0); }
void StepCapture::KeepResidual(int64_t layer, const Tensor& x) { step_gates_->Fold(layer, x, 0); }

Tensor StepCapture::GateScores(const Gate& gate, int64_t layer) const {
  if (gate.rows_of() >= 0) {
    KVG_CHECK(step_gates_ != nullptr, "no stage declared a gate of the rows of decode steps");
    return step_gates_->Of(gate, gate.rows_of());
  }
  KVG_CHECK(gates_ != nullptr, "no stage declared a gate");
  return gates_->Of(gate, layer);
}

void StepCapture::KeepGuess(int64_t layer, const Tensor& q) {
  KVG_CHECK(q.shape[0] == 1, "a step has one row");
  Buffer& own = guesses_[static_cast<size_t>(layer)];
  if (own.size_bytes() == 0) own = devices_.of(layer).memory->Allocate(q.shape[1] * q.shape[2] * 4);
  devices_.of(layer).rows->Convert(q[0], own.As(DType::kF32, {q.shape[1], q.shape[2]}));
}

Tensor StepCapture::Guess(int64_t layer) const {
  KVG_CHECK(wants_guesses(), "no stage declared guessed queries");
  const Buffer& own = guesses_[static_cast<size_t>(layer)];
  const int64_t heads = config_.query_heads;
  if (own.size_bytes() == 0) return {};
  return own.As(DType::kF32, {heads, own.size_bytes() / (heads * 4)});
}

int64_t StepCapture::PlannedBytesOfGuesses(const ModelConfig& config, const Needs& needs) {
  if (!needs.guessed_queries) return 0;
  return config.layer_count() * config.query_heads * config.key_dim * 4;
}

// The piece of a device is [step_window, its layers * query_heads * key_dim].
Tensor StepCapture::LastOf(int64_t layer) const {
  for (const LayerNumbers::Piece& piece : last_.pieces()) {
    const int64_t at = layer - piece.first;
    if (at >= piece.layers) continue;
    return Columns(RowsOf(piece), at * row_size(), (at + 1) * row_size());
  }
  KVG_CHECK(false, "no such layer");
}

Tensor StepCapture::RowsOf(const LayerNumbers::Piece& last) const {
  return last_.All(last).Reshape({needs_.step_window, last.layers * row_size()});
}

// All layers of a row lie side by side, so that a step takes one copy on each device, outside of
// what it repeats.
void StepCapture::KeepLast(int64_t at) {
  for (size_t i = 0; i < last_.pieces().size(); ++i) {
    const LayerNumbers::Piece& last = last_.pieces()[i];
    const Tensor newest = queries_.All(queries_.pieces()[i]);
    last.ops->memory->Copy(newest.Reshape({newest.Numel()}), RowsOf(last)[at % needs_.step_window]);
  }
}

void StepCapture::KeepRows(int64_t layer, const Tensor& q, int64_t end) {
  const int64_t window = needs_.step_window, begin = end - q.shape[0];
  const Tensor rows = Flat(q), last = LastOf(layer);
  for (int64_t at = std::max(begin, end - window); at < end; ++at) {
    devices_.of(layer).rows->Convert(rows.Slice(at - begin, at - begin + 1),
                                     last.Slice(at % window, at % window + 1));
  }
}

void StepCapture::KeepPrompt(const PrefillCapture& prompt, int64_t end) {
  for (int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    const int64_t rows = std::min(needs_.step_window, prompt.window(layer));
    if (rows > 0) KeepRows(layer, prompt.WindowQueries(layer, rows), end);
  }
}

void StepCapture::ContinueFrom(const StepCapture& other) {
  if (!last_.empty()) last_.CopyFrom(other.last_);
}

Status StepCapture::LastFields(StateFields& fields, int64_t layer) const {
  if (!slides()) return {};
  Ops& ops = devices_.of(layer);
  const Tensor last = LastOf(layer);
  const Buffer memory = ops.memory->Allocate(last.Numel() * 4);
  const Tensor rows = memory.As(DType::kF32, {last.shape[0], last.shape[1]});
  if (!fields.reads()) ops.rows->Convert(last, rows);
  KVG_TRY(fields.Rows("queries of the last rows", ops, rows));
  if (fields.reads()) ops.rows->Convert(rows, last);
  return {};
}

void StepCapture::LastQueries(int64_t layer, int64_t end, Tensor out) const {
  const int64_t window = needs_.step_window, rows = out.shape[0];
  KVG_CHECK(rows <= window && rows <= end, "more query rows than are kept");
  const Tensor last = LastOf(layer), flat = out.Reshape({rows, row_size()});
  for (int64_t done = 0; done < rows;) {
    const int64_t at = (end - rows + done) % window;
    const int64_t count = std::min(rows - done, window - at);
    devices_.of(layer).rows->Convert(last.Slice(at, at + count), flat.Slice(done, done + count));
    done += count;
  }
}

int64_t StepCapture::PlannedBytesOfLast(const ModelConfig& config, const Needs& needs) {
  return needs.step_window * config.layer_count() * config.query_heads * config.key_dim * 4;
}

Tensor StepCapture::Queries(int64_t layer) const {
  KVG_CHECK(wanted(), "no stage declared step queries");
  return queries_.Of(layer).Reshape({config_.query_heads, config_.key_dim});
}

Tensor StepCapture::LogSumExp(int64_t layer) const {
  KVG_CHECK(needs_.step_attention, "no stage declared step attention");
  return log_sums_.Of(layer).Reshape({config_.query_heads, 1});
}

}  // namespace kvgauge
