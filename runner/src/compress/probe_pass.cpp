// SPDX-License-Identifier: Apache-2.0
#include "src/compress/probe_pass.h"

#include <algorithm>

#include "core/guarded.h"
#include "core/strings.h"
#include "methods/tensors.h"
#include "runner/capture.h"

namespace kvgauge {
namespace {

// Entries [begin, end) of a segment of float pages, as a segment of its own.
KvSegment Part(const KvSegment& whole, int64_t begin, int64_t end) {
  const int64_t slot = whole.skip + begin, page = slot / kKvPageEntries;
  KvSegment part;
  part.key_pages = whole.key_pages + page;
  if (whole.value_pages != nullptr) part.value_pages = whole.value_pages + page;
  part.values_in_keys = whole.values_in_keys;
  part.by_entry = whole.by_entry;
  part.length = end - begin;
  part.skip = slot % kKvPageEntries;
  return part;
}

bool IsPlainRun(const KvHead& head) {
  if (head.count != 1) return false;
  const KvSegment& s = head.segments[0];
  return s.keys.entries == 0 && s.values.entries == 0 && s.bias == nullptr &&
         s.key_scale == nullptr && s.value_scale == nullptr && s.rotation == nullptr &&
         s.key_basis.empty() && s.value_basis.empty() && s.read == nullptr &&
         s.read_bias == nullptr;
}

Tensor Grown(Ops& ops, Buffer& memory, std::initializer_list<int64_t> dims) {
  int64_t bytes = 4;
  for (const int64_t dim : dims) bytes *= dim;
  if (memory.size_bytes() < bytes) memory = ops.memory->Allocate(bytes);
  return memory.As(DType::kF32, dims);
}

// `most`: positions that the model was made for; 0: it does not say.
Status CheckPositions(int64_t most, int64_t tokens, int64_t rows) {
  if (most == 0 || tokens + rows <= most) return {};
  return Unsupported(StrCat("a probe of ", rows, " rows behind a prompt of ", tokens,
                            " tokens needs ", tokens + rows, " positions; the model was made for ",
                            most, "; use shorter probes, or a shorter prompt"));
}

// The longest prompt that has room for its probes whatever they say.
int64_t LongestProbed(const Scorer& scorer, int64_t most) {
  int64_t low = 0, high = most;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    middle + scorer.ProbeRows(middle) <= most ? low = middle : high = middle - 1;
  }
  return low;
}

}  // namespace

Status CheckProbes(const Model& model, const StageChoice& score, const Prompt& prompt) {
  const std::unique_ptr<Stage> stage = MakeStage(score);
  const auto& scorer = static_cast<const Scorer&>(*stage);
  if (scorer.ProbeRows(1) == 0 || scorer.AnswerTokens() > 0) return {};
  std::vector<int32_t> ids;
  for (const PromptPosition& at : prompt.positions) ids.push_back(at.token_id);
  KVG_ASSIGN(const std::vector<Probe> probes,
             scorer.Probes({.prompt = ids, .encode = model.encode()}));
  const int64_t most = model.config().max_position;
  for (const Probe& probe : probes) {
    const Status fits = CheckPositions(most, prompt.size(), std::ssize(probe.ids));
    if (fits.ok()) continue;
    return Unsupported(StrCat(fits.error().message, ": with these parameters of the stage up to ",
                              LongestProbed(scorer, most), " tokens (max_position_embeddings is ",
                              most, ")"));
  }
  return {};
}

ProbePass::ProbePass(Model& model, const KvCache& cache, const Prompt& prompt)
    : model_(model), cache_(cache), prompt_(prompt) {
  KVG_CHECK(prompt.size() == cache.tokens(), "a prompt that the cache has not seen");
  const ModelConfig& config = model.cache_config();
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    maxima_.push_back(model.ops().memory->Allocate(config.query_heads * cache.tokens() * 4));
  }
}

Status ProbePass::Run(std::span<const Probe> probes, int64_t most_rows) {
  const int64_t tokens = cache_.tokens(), most = model_.config().max_position;
  for (const Probe& probe : probes) {
    const int64_t rows = std::ssize(probe.ids);
    KVG_CHECK(probe.sinks <= probe.begin && probe.begin <= probe.end && probe.end <= tokens,
              "a probe of tokens that the prompt does not have");
    if (rows > most_rows) {
      return Unsupported(StrCat("a probe has ", rows, " rows; it announced at most ", most_rows));
    }
    KVG_TRY(CheckPositions(most, tokens, rows));
    probe_ = &probe;
    KVG_TRY(RunOne(Model::kChunkRows));
  }
  return {};
}

Status ProbePass::RunOne(int64_t most_rows) {
  KvCache fork = cache_.Fork();
  fork_ = &fork;
  Prompt all = prompt_;
  for (const int32_t id : probe_->ids) {
    if (id >= 0) all.AppendText(id);
  }
  if (!prompt_.spans.empty()) fork.PlaceRope(RopePlaces::Of(all));
  for (int64_t begin = cache_.tokens(); begin < all.size(); begin += most_rows) {
    const int64_t end = std::min(begin + most_rows, all.size());
    KVG_TRY(fork.Append(end - begin));
    const SequenceStep step = {.cache = &fork,
                               .prompt = &all,
                               .begin = begin,
                               .end = end,
                               .logits = LogitRows::kNone,
                               .hook = this};
    model_.Forward({&step, 1});
    KVG_TRY(status_);
  }
  fork_ = nullptr;
  return {};
}

void ProbePass::LayerInput(int64_t, const Tensor& x) {
  if (!status_.ok() || !probe_->over_input_length) return;
  status_ = Guarded([&]() -> Status {
    RowOps& ops = *model_.ops().rows;
    const int64_t rows = x.shape[0];
    const Tensor both = Grown(model_.ops(), weights_, {2, rows});
    const Tensor weights = both.Slice(0, 1), lengths = both.Slice(1, 2);
    Tensor wide = x;
    if (x.dtype != DType::kF32) {
      wide = Grown(model_.ops(), inputs_, {rows, x.shape[1]});
      ops.Convert(x, wide);
    }
    ops.ReduceRows(wide, Reduction::kNorm, lengths.Reshape({rows}));
    ops.Fill(1.0f, weights);
    ops.Combine(weights, lengths, Binary::kDivide, weights);
    return {};
  });
}

void ProbePass::AfterAttend(int64_t layer, const Tensor& q, const Tensor&, const Tensor&) {
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    Measure(layer, q);
    return {};
  });
}

void ProbePass::Measure(int64_t layer, const Tensor& q) {
  const int64_t begin = probe_->begin, end = probe_->end, sinks = probe_->sinks;
  if (begin == end) return;
  Ops& ops = model_.ops();
  const ModelConfig& config = model_.cache_config();
  const int64_t rows = q.shape[0], heads = config.query_heads, tokens = cache_.tokens();
  std::vector<KvSegment> parts;
  std::vector<KvHead> measured;
  const std::span<const KvHead> held = fork_->Layer(layer);
  parts.reserve(3 * held.size());
  for (const KvHead& head : held) {
    KVG_CHECK(IsPlainRun(head) && head.length() == fork_->tokens(), "a prompt that is compressed");
    const size_t first = parts.size();
    if (sinks > 0) parts.push_back(Part(head.segments[0], 0, sinks));
    parts.push_back(Part(head.segments[0], begin, end));
    parts.push_back(Part(head.segments[0], tokens, fork_->tokens()));
    measured.push_back(
        {.segments = &parts[first], .count = static_cast<int64_t>(parts.size() - first)});
  }
  AttentionShape shape = LayerAttention(config, *fork_, layer);
  shape.chunked = false;
  shape.window = 0;  // entries stand where they stand, not where these parts put them
  const AttentionItem item = {.first_row = 0, .rows = rows, .heads = measured};
  const Tensor log_sum_exp = Grown(ops, log_sums_, {heads, rows});
  const Tensor out = Grown(ops, out_, {rows, heads, fork_->format().value_dim});
  AttentionCapture capture;
  capture.log_sum_exp = log_sum_exp;
  ops.attention->Attend(shape, {&item, 1}, q, out, capture);
  ColumnRequest request;
  request.kind = ColumnReduction::kMax;
  request.rows = rows;
  if (probe_->over_input_length) request.row_weights = weights_.As(DType::kF32, {rows});
  const Tensor part = Grown(ops, part_, {heads, sinks + (end - begin) + fork_->tokens() - tokens});
  ops.attention->ReduceColumns(shape, item, q, log_sum_exp, request, part);
  const Tensor most = Columns(Maxima(layer), begin, end);
  ops.rows->Combine(most, Columns(part, sinks, sinks + end - begin), Binary::kMax, most);
}

Tensor ProbePass::Maxima(int64_t layer) const {
  return maxima_[static_cast<size_t>(layer)].As(DType::kF32,
                                                {model_.config().query_heads, cache_.tokens()});
}

int64_t ProbePass::bytes() const {
  int64_t bytes = inputs_.size_bytes() + weights_.size_bytes() + out_.size_bytes() +
                  log_sums_.size_bytes() + part_.size_bytes();
  for (const Buffer& buffer : maxima_) bytes += buffer.size_bytes();
  return bytes;
}

int64_t ProbePass::PlannedBytes(const ModelConfig& config, const ModelShape& shape, int64_t tokens,
                                int64_t rows) {
  const int64_t pass = std::min(rows, Model::kChunkRows), heads = config.query_heads;
  // Two pages more: the prompt's last one is copied, and the probe's last one is begun.
  const int64_t fork =
      shape.layers * shape.kv_heads * shape.EntryBytes() * (rows + 2 * kKvPageEntries);
  return fork + 4 * heads * (config.layer_count() * tokens + tokens + rows) +
         4 * pass * (heads * (config.value_dim + 1) + config.hidden_size + 2);
}

}  // namespace kvgauge
