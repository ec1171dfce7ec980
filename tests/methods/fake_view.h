// SPDX-License-Identifier: Apache-2.0
// A layer made in the test: exact f32 keys, values and attention, on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "methods/registry.h"
#include "support/compare.h"

namespace kvgauge {

inline ModelShape SmallShape(int64_t layers = 1, int64_t kv_heads = 1, int64_t group = 1,
                             int64_t dim = 4) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden_size = dim * kv_heads * group;
  shape.query_heads = kv_heads * group;
  shape.kv_heads = kv_heads;
  shape.key_dim = shape.value_dim = shape.rotary_dim = dim;
  shape.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  shape.windows.assign(static_cast<size_t>(layers), 0);
  return shape;
}

class FakeView final : public LayerView {
 public:
  // Every head holds `length` entries at positions 0, 1, ..; everything else is zero until set.
  FakeView(const ModelShape& shape, int64_t length, int64_t layer = 0, uint64_t seed = 1)
      : attention(static_cast<size_t>(shape.query_heads * length * length)),
        step(static_cast<size_t>(shape.query_heads * length)),
        output_weights(
            static_cast<size_t>(shape.query_heads * shape.value_dim * shape.hidden_size)),
        shape_(shape),
        layer_(layer),
        seed_(seed),
        tokens_(length),
        lengths_(static_cast<size_t>(shape.kv_heads), length),
        ops_(std::move(*MakeOps("cpu", ThreadSettings{1}))) {
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      keys.emplace_back(length * shape.key_dim);
      values.emplace_back(length * shape.value_dim);
      positions.emplace_back(length);
      for (int64_t i = 0; i < length; ++i) positions[h][i] = static_cast<int32_t>(i);
    }
  }

  // Random keys, values and queries, and the causal attention they give, by plain loops.
  void Randomize(uint64_t seed) {
    const int64_t n = width(), d = shape_.key_dim, heads = shape_.query_heads;
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      keys[h] = RandomValues(n * d, seed + 10 * h, 0.5f);
      values[h] = RandomValues(n * shape_.value_dim, seed + 10 * h + 1, 0.5f);
    }
    queries = RandomValues(n * heads * d, seed + 5, 0.5f);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < n; ++i) {
        std::vector<double> row(i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double dot = 0;
          for (int64_t c = 0; c < d; ++c) {
            dot += double{queries[(i * heads + h) * d + c]} * keys[h / shape_.group()][j * d + c];
          }
          sum += row[j] = std::exp(dot * double{shape_.attention_scale});
        }
        for (int64_t j = 0; j <= i; ++j) At(h, i, j) = static_cast<float>(row[j] / sum);
      }
    }
  }

  // Probability of row i on entry j.
  float& At(int64_t head, int64_t i, int64_t j) {
    return attention[(head * width() + i) * width() + j];
  }
  // A head that holds fewer entries than the widest, after a reduction.
  void SetLength(int64_t head, int64_t length) { lengths_[head] = length; }

  const ModelShape& shape() const override { return shape_; }
  int64_t layer() const override { return layer_; }
  Ops& ops() const override { return *ops_; }
  int64_t tokens() const override { return tokens_; }
  std::span<const int64_t> lengths() const override { return lengths_; }
  int64_t width() const override { return tokens_; }
  uint64_t seed() const override { return seed_; }

  Tensor Positions(int64_t head, int64_t first) override {
    return View(positions[head], {tokens_}).Slice(first, lengths_[head]);
  }
  Tensor Keys(int64_t head, int64_t first) override {
    return View(keys[head], {tokens_, shape_.key_dim}).Slice(first, lengths_[head]);
  }
  // The fake does not rotate.
  Tensor RawKeys(int64_t head, int64_t first) override { return Keys(head, first); }
  Tensor Values(int64_t head, int64_t first) override {
    return View(values[head], {tokens_, shape_.value_dim}).Slice(first, lengths_[head]);
  }

  Tensor OfClass(TokenClass wanted, int64_t head, int64_t first) override {
    const Tensor out = Scratch(DType::kF32, {lengths_[head] - first});
    const std::vector<float>& is = classes[static_cast<size_t>(wanted)];
    for (int64_t i = first; i < lengths_[head] && !is.empty(); ++i) {
      out.f32()[i - first] = is[static_cast<size_t>(positions[head][i])];
    }
    return out;
  }

  Tensor OfModality(Modality wanted, int64_t head, int64_t first) override {
    const Tensor out = Scratch(DType::kF32, {lengths_[head] - first});
    for (int64_t i = first; i < lengths_[head]; ++i) {
      const VisualSpan* span = SpanAt(positions[head][i]);
      const Modality shown = span == nullptr ? Modality::kText : span->modality;
      out.f32()[i - first] = shown == wanted ? 1.0f : 0.0f;
    }
    return out;
  }
  Tensor VisualPlaces(VisualAxis axis, int64_t head, int64_t first) override {
    const Tensor out = Scratch(DType::kI32, {lengths_[head] - first});
    for (int64_t i = first; i < lengths_[head]; ++i) {
      const VisualSpan* span = SpanAt(positions[head][i]);
      int32_t place = -1;
      if (span != nullptr) {
        const VisualPlace at = PlaceIn(*span, positions[head][i]);
        const int32_t along[] = {span->index, span->frame + at.frame, at.row, at.column};
        place = along[static_cast<size_t>(axis)];
      }
      out.i32()[i - first] = place;
    }
    return out;
  }
  std::span<const VisualSpan> VisualSpans() override { return spans; }
  int64_t QuestionRows(int64_t most) override {
    if (spans.empty()) return most;
    return std::clamp<int64_t>(tokens_ - spans.back().first - spans.back().count, 1, most);
  }
  Tensor LastRow(int64_t of_layer) override {
    EXPECT_EQ(of_layer, layer_) << "the fake has one layer";
    return WindowAttention(1).Reshape({shape_.query_heads, tokens_});
  }

  Tensor WindowAttention(int64_t rows) override {
    const int64_t n = width(), heads = shape_.query_heads;
    EXPECT_LE(rows, n);
    Tensor out = Scratch(DType::kF32, {heads, rows, n});
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < n; ++j) out[h][r].f32()[j] = At(h, n - rows + r, j);
      }
    }
    return out;
  }
  // Those of the test's own: [rows, query_heads, key_dim].
  std::vector<float> first_queries;
  Tensor FirstQueries(int64_t rows) override {
    return View(first_queries, {rows, shape_.query_heads, shape_.key_dim});
  }
  Tensor WindowQueries(int64_t rows) override {
    return View(queries, {tokens_, shape_.query_heads, shape_.key_dim})
        .Slice(tokens_ - rows, tokens_);
  }
  Tensor ColumnSums() override { return Columns(false); }
  Tensor ColumnSquares() override { return Columns(true); }
  Tensor Surprise() override { return View(surprise, {std::ssize(surprise)}); }
  Tensor ChunkSums(const ChunkAttention& of) override {
    const int64_t d = shape_.key_dim, heads = shape_.query_heads;
    Tensor out = Scratch(DType::kF32, {heads, tokens_});
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t begin = of.first; begin < tokens_ - of.last; begin += of.rows) {
        const int64_t end = std::min(begin + of.rows, tokens_ - of.last);
        const int64_t pads = of.padded ? begin + of.rows - end : 0;
        for (int64_t i = begin; i < end; ++i) {
          std::vector<double> row;
          double sum = static_cast<double>(pads);
          for (int64_t j = begin; j < end; ++j) {
            double dot = 0;
            for (int64_t c = 0; c < d; ++c) {
              dot += double{queries[(i * heads + h) * d + c]} * keys[h / shape_.group()][j * d + c];
            }
            sum += row.emplace_back(std::exp(dot));
          }
          for (int64_t j = begin; j < end; ++j) {
            out[h].f32()[j] += static_cast<float>(row[j - begin] / sum);
          }
        }
        for (int64_t j = begin; j < end; ++j) {
          out[h].f32()[j] += static_cast<float>(static_cast<double>(pads) / of.rows);
        }
      }
    }
    return out;
  }
  Tensor DraftQueries() override {
    const int64_t heads = shape_.query_heads, dim = shape_.key_dim;
    return View(draft_queries, {std::ssize(draft_queries) / (heads * dim), heads, dim});
  }
  Tensor ProbeMaxima() override { return View(probe_maxima, {shape_.query_heads, tokens_}); }
  Tensor GateScores(const Gate&) override {
    return is_decoding ? View(gate_scores, {shape_.kv_heads, 1})
                       : View(gate_scores, {shape_.kv_heads, tokens_});
  }
  // The fake does not rotate: queries are as they are, and to come they will be so.
  Tensor QueryMean(int64_t from) override {
    const int64_t width = shape_.query_heads * shape_.key_dim;
    Tensor out = Scratch(DType::kF32, {shape_.query_heads, shape_.key_dim});
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t i = from; i < tokens_; ++i) sum += queries[i * width + c];
      out.f32()[c] = static_cast<float>(sum / static_cast<double>(tokens_ - from));
    }
    return out;
  }
  Tensor QueryCovariance(int64_t from) override {
    const int64_t heads = shape_.query_heads, d = shape_.key_dim;
    const Tensor mean = QueryMean(from);
    Tensor out = Scratch(DType::kF32, {heads, d, d});
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t a = 0; a < d; ++a) {
        for (int64_t b = 0; b < d; ++b) {
          double sum = 0;
          for (int64_t i = from; i < tokens_; ++i) {
            const float* q = &queries[(i * heads + h) * d];
            sum += (double{q[a]} - mean[h].f32()[a]) * (double{q[b]} - mean[h].f32()[b]);
          }
          out[h][a].f32()[b] = static_cast<float>(sum / static_cast<double>(tokens_ - from));
        }
      }
    }
    return out;
  }
  Tensor Rotations(int64_t first, int64_t count) override {
    const int64_t pairs = shape_.rotary_dim / 2;
    Tensor out = Scratch(DType::kF32, {2, count, pairs});
    for (int64_t i = 0; i < count * pairs; ++i) {
      const double frequency = frequencies.empty() ? 0 : frequencies[i % pairs];
      const double angle = static_cast<double>(first + i / pairs) * frequency;
      out[0].f32()[i] = static_cast<float>(std::cos(angle));
      out[1].f32()[i] = static_cast<float>(std::sin(angle));
    }
    return out;
  }
  Tensor OutputWeights(int64_t query_head) override {
    const int64_t dim = shape_.value_dim;
    return View(output_weights, {shape_.query_heads * dim, shape_.hidden_size})
        .Slice(query_head * dim, (query_head + 1) * dim);
  }
  bool decoding() const override { return is_decoding; }
  Tensor StepAttention() override { return View(step, {shape_.query_heads, tokens_}); }
  Tensor StepQueries() override { return WindowQueries(1)[0]; }
  bool has_guess() const override { return !guesses.empty(); }
  Tensor GuessedQueries() override { return View(guesses, {shape_.query_heads, shape_.key_dim}); }

  Tensor Scratch(DType dtype, std::initializer_list<int64_t> dims) override {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    // Never null, as an empty tensor is.
    buffers_.push_back(HostBuffer(std::max<int64_t>(count, 1) * SizeOf(dtype)));
    return Tensor(buffers_.back().data(), dtype, dims);
  }

  std::vector<std::vector<float>> keys, values;  // [kv_heads] of [length, dim]
  std::vector<std::vector<int32_t>> positions;   // [kv_heads] of [length]
  std::vector<float> queries;                    // [length, query_heads, key_dim]
  std::vector<float> attention;                  // [query_heads, length, length]
  std::vector<float> probe_maxima;               // [query_heads, length]
  std::vector<float> draft_queries;              // [rows, query_heads, key_dim]
  std::vector<float> surprise;                   // [length]
  std::vector<float> gate_scores;                // [kv_heads, length], or the newest entry's
  std::vector<float> step;                       // [query_heads, length]
  std::vector<float> guesses;                    // [query_heads, key_dim], or empty: none
  bool is_decoding = false;                      // `step` is of a decoded row
  std::vector<double> frequencies;               // [rotary_dim / 2] of Rotations, or empty: 0
  std::vector<float> output_weights;             // [query_heads * value_dim, hidden_size]
  // By class, then position: 1 for tokens of it; empty: none is.
  std::array<std::vector<float>, kTokenClasses> classes;

  std::vector<VisualSpan> spans;  // without newlines

 private:
  const VisualSpan* SpanAt(int32_t position) const {
    for (const VisualSpan& span : spans) {
      if (position >= span.first && position < span.first + span.count) return &span;
    }
    return nullptr;
  }

  Tensor Columns(bool squares) {
    Tensor out = Scratch(DType::kF32, {shape_.query_heads, tokens_});
    for (int64_t h = 0; h < shape_.query_heads; ++h) {
      for (int64_t j = 0; j < tokens_; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < tokens_; ++i) {
          sum += squares ? double{At(h, i, j)} * At(h, i, j) : At(h, i, j);
        }
        out[h].f32()[j] = static_cast<float>(sum);
      }
    }
    return out;
  }

  ModelShape shape_;
  int64_t layer_;
  uint64_t seed_;
  int64_t tokens_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<Ops> ops_;
  std::vector<Buffer> buffers_;
};

// A stage by its id, parameters as JSON text.
template <class T>
std::unique_ptr<T> MakeStage(StageKind kind, const std::string& id,
                             const std::string& params = "{}") {
  const StageSpec* spec = *FindStage(kind, id);
  Result<Params> parsed = Params::Parse(spec->params, *ParseJson(params, "test"), id);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  std::unique_ptr<Stage> stage = spec->make(*parsed);
  return std::unique_ptr<T>(dynamic_cast<T*>(stage.release()));
}

inline std::vector<float> Floats(const Tensor& t) {
  std::vector<float> out;
  const int64_t columns = t.shape[t.rank - 1];
  for (int64_t i = 0; i < t.Numel(); ++i) {
    out.push_back(t.f32()[t.rank == 1 ? i : i / columns * t.stride[0] + i % columns]);
  }
  return out;
}
inline std::vector<int32_t> Ints(const Tensor& t) { return {t.i32(), t.i32() + t.Numel()}; }

inline std::vector<float> ScoreWith(const Scorer& scorer, LayerView& view) {
  Tensor out = view.Scratch(DType::kF32, {view.shape().kv_heads, view.width()});
  scorer.Score(view, out);
  return Floats(out);
}

}  // namespace kvgauge
