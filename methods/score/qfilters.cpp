// SPDX-License-Identifier: Apache-2.0
// How far a key reaches along the one direction that the queries of its head share.
//
// Paper: Q-Filters, arXiv:2503.02812. Needs keys, as attention sees them, and a calibration: the
// filter of a query head is the first right singular vector of its queries over some texts, turned
// to the side on which most of them lie; that of a KV head is the mean over its query heads.
// Without a calibration the directions are those of the last `window` rows.
#include <algorithm>
#include <string>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string TableName(int64_t layer) { return StrCat("filters.", layer); }

// The first right singular vector of `rows`.
std::vector<float> Direction(Ops& ops, const Tensor& rows) {
  const int64_t m = rows.shape[0], n = rows.shape[1], rank = std::min(m, n);
  const Buffer u = ops.memory->Allocate(m * rank * 4), s = ops.memory->Allocate(rank * 4);
  const Buffer vt = ops.memory->Allocate(rank * n * 4);
  const Tensor right = vt.As(DType::kF32, {rank, n});
  ops.algebra->Svd(rows, u.As(DType::kF32, {m, rank}), s.As(DType::kF32, {rank}), right);
  return Fetch(ops, right[0]);
}

// How many more of `queries` ([n, direction.size()]) lie on its side than on the other.
int64_t Majority(std::span<const float> queries, std::span<const float> direction) {
  int64_t majority = 0;
  for (size_t at = 0; at < queries.size(); at += direction.size()) {
    double product = 0;
    for (size_t c = 0; c < direction.size(); ++c) product += double{queries[at + c]} * direction[c];
    majority += product > 0 ? 1 : product < 0 ? -1 : 0;
  }
  return majority;
}

// Adds a direction to `filter`, turned to the side of the majority.
void AddTurned(std::span<const float> direction, int64_t majority, std::span<double> filter) {
  for (size_t c = 0; c < direction.size(); ++c) {
    filter[c] += majority < 0 ? -direction[c] : direction[c];
  }
}

class QFilters final : public Scorer {
 public:
  explicit QFilters(const Params& params)
      : window_(params.Int("window")), learned_(!params.Text(kCalibrationParam).empty()) {}

  Needs needs() const override {
    return learned_ ? Needs{} : Needs{.window = window_, .step_window = window_};
  }
  bool any_time() const override { return true; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      KVG_TRY(Table(shape, layer));
    }
    if (calibration_ != nullptr && HasMore(shape)) {
      return BadInput(StrCat(calibration_->path, ": has a table '", TableName(shape.layers),
                             "', and this model has ", shape.layers,
                             " layers; it is that of another model"));
    }
    return {};
  }

  void Score(LayerView& view, Tensor out) const override {
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t n = view.lengths()[h];
      if (n == 0) continue;
      const Tensor filter = Filter(view, h);
      view.ops().linear->MatMulNT(view.Keys(h).Reshape({1, n, dim}), filter.Reshape({1, 1, dim}),
                                  1.0f, out[h].Slice(0, n).Reshape({1, n, 1}));
    }
  }

 private:
  // A filter for a layer that the model does not have.
  bool HasMore(const ModelShape& shape) const {
    return calibration_->tables.contains(TableName(shape.layers));
  }
  Result<Tensor> Table(const ModelShape& shape, int64_t layer) const {
    const int64_t dims[] = {shape.kv_heads, shape.key_dim};
    return calibration_->Find(TableName(layer), dims);
  }

  // [key_dim]
  Tensor Filter(LayerView& view, int64_t head) const {
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim;
    if (calibration_ != nullptr) {
      const Result<Tensor> table = Table(shape, view.layer());
      KVG_CHECK(table.ok(), "a calibration that was not checked");
      return Upload(view, std::span<const float>((*table)[head].f32(), static_cast<size_t>(dim)));
    }
    Ops& ops = view.ops();
    const Tensor queries =
        view.WindowQueries(std::min(window_, *std::ranges::min_element(view.lengths())));
    const int64_t rows = queries.shape[0];
    const Tensor own = view.Scratch(DType::kF32, {rows, dim});
    std::vector<double> filter(static_cast<size_t>(dim));
    for (int64_t q = head * shape.group(); q < (head + 1) * shape.group(); ++q) {
      Tensor strided(queries[0][q].data, DType::kF32, {rows, dim}, queries.device);
      strided.stride[0] = queries.stride[0];
      ops.rows->Convert(strided, own);
      const std::vector<float> direction = Direction(ops, own);
      AddTurned(direction, Majority(Fetch(ops, own), direction), filter);
    }
    std::vector<float> narrow;
    for (const double x : filter) {
      narrow.push_back(static_cast<float>(x / static_cast<double>(shape.group())));
    }
    return Upload(view, std::span<const float>(narrow));
  }

  int64_t window_;
  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

// Once for the directions, and once more for the side on which most queries lie.
class QFiltersCalibrator final : public Calibrator {
 public:
  QFiltersCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), heads_(static_cast<size_t>(shape.layers * shape.query_heads)) {
    const auto dim = static_cast<size_t>(shape.key_dim);
    for (Head& head : heads_) head.moments.resize(dim * dim);
  }

  int passes() const override { return 2; }
  Needs needs(int) const override { return {.window = kQueries}; }

  void Observe(int pass, LayerView& view) override {
    const int64_t dim = shape_.key_dim;
    const std::vector<float> queries =
        Fetch(view.ops(), view.WindowQueries(std::min(kQueries, view.tokens())));
    for (int64_t i = 0; i < std::ssize(queries) / dim; ++i) {
      Head& head =
          heads_[static_cast<size_t>(view.layer() * shape_.query_heads + i % shape_.query_heads)];
      const std::span<const float> q(queries.data() + i * dim, static_cast<size_t>(dim));
      if (pass == 0) {
        head.Add(q);
      } else {
        if (head.direction.empty()) {
          const std::vector<float> moments(head.moments.begin(), head.moments.end());
          head.direction =
              Direction(view.ops(), Upload(view, std::span(moments)).Reshape({dim, dim}));
        }
        head.majority += Majority(q, head.direction);
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    const int64_t dim = shape_.key_dim;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<float> filters;
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        std::vector<double> filter(static_cast<size_t>(dim));
        for (int64_t g = 0; g < shape_.group(); ++g) {
          const Head& head =
              heads_[static_cast<size_t>(layer * shape_.query_heads + h * shape_.group() + g)];
          AddTurned(head.direction, head.majority, filter);
        }
        for (const double x : filter) {
          filters.push_back(static_cast<float>(x / static_cast<double>(shape_.group())));
        }
      }
      tables[TableName(layer)] = {{shape_.kv_heads, dim}, std::move(filters)};
    }
    return tables;
  }

 private:
  // The last so many queries of a text speak for all.
  static constexpr int64_t kQueries = 512;

  // A query head.
  struct Head {
    std::vector<double> moments;   // [key_dim, key_dim]
    std::vector<float> direction;  // [key_dim], of the moments of all texts
    int64_t majority = 0;

    void Add(std::span<const float> q) {
      for (size_t a = 0; a < q.size(); ++a) {
        double* row = moments.data() + a * q.size();
        for (size_t b = 0; b < q.size(); ++b) row[b] += double{q[a]} * q[b];
      }
    }
  };

  const ModelShape shape_;
  std::vector<Head> heads_;  // [layers * query_heads]
};

// The published filters, one tensor [layers, kv_heads, key_dim], whose score is minus the product.
Result<Calibration::Tables> ImportFilters(const Calibration::Tables& published) {
  const auto found = published.find("q_filters");
  if (found == published.end() || found->second.shape.size() != 3) {
    return BadInput("has no tensor 'q_filters' [layers, kv_heads, key_dim]");
  }
  const auto& [dims, values] = found->second;
  const auto size = static_cast<size_t>(dims[1] * dims[2]);
  Calibration::Tables tables;
  for (int64_t layer = 0; layer < dims[0]; ++layer) {
    Calibration::Table& table = tables[TableName(layer)];
    table.shape = {dims[1], dims[2]};
    const size_t begin = static_cast<size_t>(layer) * size;
    for (size_t i = begin; i < begin + size; ++i) table.values.push_back(-values[i]);
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "qfilters",
    .version = 2,
    .paper = "arXiv:2503.02812",
    .summary = "entries whose keys reach far along the direction that queries share",
    .departures = {"without a calibration, the direction is that of the last queries",
                   "with one, the last 512 queries of a text speak for all",
                   "filters published by the authors point the other way, as their score is minus "
                   "the product: a side-file made of them holds them negated"},
    .params = {IntParam("window", 128, 1, 4096, "last rows, where there is no calibration"),
               CalibrationParam()},
    .make = Make<QFilters>(),
    .calibrate = MakeCalibrator<QFiltersCalibrator>,
    .import = ImportFilters,
});

}  // namespace
}  // namespace kvgauge
