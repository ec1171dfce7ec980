// SPDX-License-Identifier: Apache-2.0
// Every op of RowOps is a row of a table: a run, and a bound on its error. The table is held
// against the twin over shapes and backends, and against itself over row and thread counts.
#include "kernels/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numbers>

#include "backends.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

// What bounds are made of.
struct RowFacts {
  double adds = 0;     // roundings on the longest path of a sum over the row
  double largest = 0;  // finite magnitude
  double magnitude = 0, squares = 0;
  double deviation = 0;  // sqrt(var + eps)
};

RowFacts FactsOf(std::span<const float> x) {
  RowFacts f;
  double sum = 0, count = static_cast<double>(x.size()), spread = 0;
  // At least four lanes times four partial sums in blocks of 4096, and the tree.
  f.adds = std::min(count, 4096.0) / 16 + 8;
  for (const float v : x) {
    if (!std::isfinite(v)) continue;
    f.largest = std::max<double>(f.largest, std::abs(v));
    f.magnitude += std::abs(v);
    f.squares += double{v} * v;
    sum += v;
  }
  for (const float v : x) spread += (v - sum / count) * (v - sum / count);
  f.deviation = std::sqrt(spread / count + 1e-5);
  return f;
}

struct OpCase {
  std::string name;
  DType out_type;
  int inputs_per_output;  // input columns per output column; 0: one output per row
  std::function<void(RowOps&, const Tensor& x, const Tensor& weight, Tensor out)> run;
  // Allowed error before rounding to the output type; x: the input at the same place.
  std::function<double(const RowFacts&, double x, double want)> bound;
};

double Exact(const RowFacts&, double, double) { return 0; }
double Ulps(double count, double want) { return count * kRound * std::abs(want) + 1e-37; }

double ActivationBound(Activation act, double x, double want) {
  switch (act) {
    case Activation::kRelu:
    case Activation::kSqrt:
      return 0;
    case Activation::kSilu:
    case Activation::kSigmoid:
      return Ulps(8, want);
    case Activation::kGeluQuick:  // 1.702 x is rounded before it is an exponent
      return Ulps(8 + 4 * std::abs(x), want);
    case Activation::kGelu:
      return 4 * kRound * std::abs(x);
    case Activation::kExp:
    case Activation::kLog:
      return Ulps(3, want);
    case Activation::kGeluTanh:  // the exponent is off by a few ulps of itself
      return Ulps(8 + 8 * std::abs(x) * (1 + 0.045 * x * x), want);
  }
  return 0;
}

Tensor Flat(const Tensor& weight) { return weight.Reshape({weight.shape[1]}); }
Tensor Column(const Tensor& out) { return out.Reshape({out.shape[0]}); }

// Operations on every type of number that is stored.
void AddStored(std::vector<OpCase>& table) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const float offset : {0.0f, 1.0f}) {
      table.push_back(
          {StrCat("RmsNorm offset ", offset), type, 1,
           [offset](RowOps& ops, const Tensor& x, const Tensor& w, Tensor out) {
             ops.RmsNorm(x, Flat(w), offset, 1e-6f, out);
           },
           [](const RowFacts& f, double, double want) { return Ulps(f.adds / 2 + 4, want); }});
    }
    table.push_back({"LayerNorm", type, 1,
                     [](RowOps& ops, const Tensor& x, const Tensor& w, Tensor out) {
                       ops.LayerNorm(x, Flat(w), Flat(w), 1e-5f, out);
                     },
                     [](const RowFacts& f, double, double want) {
                       // The mean is off by its sum's error; weights are below 80.
                       return Ulps(f.adds + 8, want) +
                              80 * kRound * (f.adds + 4) * f.largest / f.deviation;
                     }});
    table.push_back({"LayerNorm plain", type, 1,
                     [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                       ops.LayerNorm(x, {}, {}, 1e-5f, out);
                     },
                     [](const RowFacts& f, double, double want) {
                       return Ulps(f.adds + 8, want) +
                              kRound * (f.adds + 4) * f.largest / f.deviation;
                     }});
    for (const Activation act : {Activation::kRelu, Activation::kSilu, Activation::kGelu,
                                 Activation::kGeluTanh, Activation::kGeluQuick}) {
      table.push_back({StrCat("GatedActivate ", static_cast<int>(act)), type, 2,
                       [act](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                         ops.GatedActivate(x, act, out);
                       },
                       [act](const RowFacts& f, double x, double want) {
                         return Ulps(1, want) + (act == Activation::kGelu
                                                     ? f.largest * 4 * kRound * std::abs(x)
                                                     : ActivationBound(act, x, want));
                       }});
    }
    table.push_back(
        {"Convert", type, 1,
         [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) { ops.Convert(x, out); },
         Exact});
  }
}

void AddElementwise(std::vector<OpCase>& table) {
  for (const Activation act :
       {Activation::kRelu, Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kGeluQuick, Activation::kExp, Activation::kSigmoid}) {
    table.push_back(
        {StrCat("Activate ", static_cast<int>(act)), DType::kF32, 1,
         [act](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
           ops.Activate(x, act, out);
         },
         [act](const RowFacts&, double x, double want) { return ActivationBound(act, x, want); }});
  }
  for (const float scale : {1e-30f, 1.0f, 1e30f}) {
    table.push_back({StrCat("Activate log of ", scale, " times squares"), DType::kF32, 1,
                     [scale](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                       ops.Combine(x, x, Binary::kMultiply, out);
                       ops.Affine(out, scale, 0.0f, out);
                       ops.Activate(out, Activation::kLog, out);
                     },
                     [](const RowFacts&, double, double want) {
                       return ActivationBound(Activation::kLog, 0, want);
                     }});
  }
  table.push_back({"Activate square root of squares", DType::kF32, 1,
                   [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                     ops.Combine(x, x, Binary::kMultiply, out);
                     ops.Activate(out, Activation::kSqrt, out);
                   },
                   Exact});
  table.push_back(
      {"Fill", DType::kF32, 1,
       [](RowOps& ops, const Tensor&, const Tensor&, Tensor out) { ops.Fill(-1.7f, out); }, Exact});
  for (const Binary op : {Binary::kAdd, Binary::kSubtract, Binary::kMultiply, Binary::kDivide,
                          Binary::kMin, Binary::kMax, Binary::kLess}) {
    table.push_back({StrCat("Combine row ", static_cast<int>(op)), DType::kF32, 1,
                     [op](RowOps& ops, const Tensor& x, const Tensor& w, Tensor out) {
                       ops.Combine(x, Flat(w), op, out);
                     },
                     Exact});
    table.push_back({StrCat("Combine ", static_cast<int>(op)), DType::kF32, 1,
                     [op](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                       ops.Combine(x, x, op, out);
                     },
                     Exact});
  }
  table.push_back(
      {"Affine", DType::kF32, 1,
       [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
         ops.Affine(x, 0.3f, -1.7f, out);
       },
       [](const RowFacts&, double x, double) { return 2 * kRound * (0.3 * std::abs(x) + 1.7); }});
  table.push_back(
      {"SoftCap", DType::kF32, 1,
       [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) { ops.SoftCap(x, 3.0f, out); },
       [](const RowFacts&, double, double want) { return Ulps(8, want); }});
}

void AddReductions(std::vector<OpCase>& table) {
  table.push_back(
      {"Softmax", DType::kF32, 1,
       [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) { ops.Softmax(x, 0.37f, out); },
       [](const RowFacts& f, double, double want) {
         return Ulps(f.adds + 8 + 2 * 0.37 * f.largest, want);
       }});
  table.push_back({"LogSumExp", DType::kF32, 0,
                   [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                     ops.LogSumExp(x, Column(out));
                   },
                   [](const RowFacts& f, double, double want) {
                     return kRound * (f.adds + 8 + std::abs(want));
                   }});
  for (const Reduction kind : {Reduction::kSum, Reduction::kMean, Reduction::kMax, Reduction::kMin,
                               Reduction::kSumAbs, Reduction::kSumSquares, Reduction::kNorm}) {
    table.push_back({StrCat("ReduceRows ", static_cast<int>(kind)), DType::kF32, 0,
                     [kind](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) {
                       ops.ReduceRows(x, kind, Column(out));
                     },
                     [kind](const RowFacts& f, double, double want) {
                       if (kind == Reduction::kSumSquares || kind == Reduction::kSumAbs) {
                         return Ulps(f.adds, want);
                       }
                       if (kind == Reduction::kNorm) return Ulps(f.adds / 2 + 1, want);
                       const bool sum = kind == Reduction::kSum || kind == Reduction::kMean;
                       return sum ? kRound * (f.adds * f.magnitude + std::abs(want)) : 0.0;
                     }});
  }
  table.push_back(
      {"ArgMax", DType::kI32, 0,
       [](RowOps& ops, const Tensor& x, const Tensor&, Tensor out) { ops.ArgMax(x, Column(out)); },
       Exact});
}

std::vector<OpCase> Table() {
  std::vector<OpCase> table;
  AddStored(table);
  AddElementwise(table);
  AddReductions(table);
  return table;
}

// Error that rounding to the storage type adds when the values before it may differ: one step.
double StorageStep(DType type, double want) {
  if (type == DType::kBF16) return std::abs(want) / 128;
  if (type == DType::kF16) return std::abs(want) / 1024 + 6e-8;
  return 0;
}

TEST(RowOps, AgreesWithTwin) {
  const std::unique_ptr<RowOps> twin = MakeReferenceRows();
  const auto backends = CpuBackends(MakeCpuRows);
  const int64_t widths[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100, 127, 128, 259, 4100};
  for (const OpCase& op : Table()) {
    for (const int64_t d : widths) {
      const int64_t m = 3, per = std::max(op.inputs_per_output, 1);
      const int64_t out_d = op.inputs_per_output == 0 ? 1 : d;
      const int64_t pad = op.inputs_per_output == 0 ? 0 : 3;
      const Matrix x = Matrix::Of(RandomValues(m * d * per, 11 + d), d * per, 5);
      const Matrix weight = Matrix::Of(RandomValues(d * per, 5), d * per);
      const Tensor w = op.inputs_per_output == 2 ? Tensor() : weight.view();
      Matrix want(op.out_type, m, out_d, pad);
      op.run(*twin, x.view(), w, want.view());
      const std::vector<float> in = x.values(), expected = want.values();
      for (const auto& backend : backends) {
        Matrix got(op.out_type, m, out_d, pad);
        op.run(*backend.ops, x.view(), w, got.view());
        ASSERT_TRUE(got.Intact()) << op.name << " d " << d << " on " << backend.name;
        const std::vector<float> values = got.values();
        for (int64_t i = 0; i < m; ++i) {
          const RowFacts facts = FactsOf(std::span(in).subspan(i * d * per, d * per));
          for (int64_t j = 0; j < out_d; ++j) {
            const double wanted = expected[i * out_d + j];
            double bound = op.bound(facts, in[i * d * per + j], wanted);
            if (bound > 0) bound += StorageStep(op.out_type, wanted);
            ASSERT_LE(std::abs(values[i * out_d + j] - wanted), bound)
                << op.name << " " << NameOf(op.out_type) << " d " << d << " at " << i << ", " << j
                << ": x " << in[i * d * per + j] << ", got " << values[i * out_d + j] << ", want "
                << wanted << " on " << backend.name;
          }
        }
      }
    }
  }
}

// The bits of a row are its own: any number of rows and threads, strided or dense, in company or
// alone. The longer rows are long enough for threads to be woken.
TEST(RowOps, RowsDoNotDependOnCompany) {
  const auto table = Table();
  const auto backends = CpuBackends(MakeCpuRows, {1, 2, 4});
  for (const int64_t d : {int64_t{37}, int64_t{4099}}) {
    const bool is_long = d > 100;
    const std::vector<float> data = RandomValues(64 * d * 2, 3);
    const Matrix weight = Matrix::Of({data.begin(), data.begin() + d}, d);
    const Matrix dense[] = {Matrix::Of({data.begin(), data.begin() + 64 * d}, d),
                            Matrix::Of(data, 2 * d)};
    const Matrix strided[] = {Matrix::Of({data.begin(), data.begin() + 64 * d}, d, 7),
                              Matrix::Of(data, 2 * d, 7)};
    const std::vector<int64_t> counts =
        is_long ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 2, 3, 17, 64};
    for (const OpCase& op : table) {
      const bool wide = op.inputs_per_output == 2, reduces = op.inputs_per_output == 0;
      const Tensor w = wide ? Tensor() : weight.view();
      for (const auto& backend : backends) {
        Matrix alone(op.out_type, 64, reduces ? 1 : d);
        for (int64_t i = 0; i < 64; ++i) {
          op.run(*backend.ops, dense[wide].view().Slice(i, i + 1), w, alone.view().Slice(i, i + 1));
        }
        for (const int64_t m : counts) {
          for (const bool padded : {false, true}) {
            if (is_long && padded) continue;
            const Tensor x = (padded ? strided : dense)[wide].view().Slice(0, m);
            Matrix out(op.out_type, m, reduces ? 1 : d, padded && !reduces ? 5 : 0);
            op.run(*backend.ops, x, w, out.view());
            ASSERT_EQ(out.FirstDifference(alone), -1)
                << op.name << " " << NameOf(op.out_type) << ", " << m << " rows of " << d
                << (padded ? " strided" : "") << " on " << backend.name;
          }
        }
      }
    }
  }
}

class EveryRowBackend : public ::testing::Test {
 protected:
  EveryRowBackend() : backends(CpuBackends(MakeCpuRows, {1, 2})) {
    backends.push_back({"reference", MakeReferenceRows()});
  }
  std::vector<Backend<RowOps>> backends;
};

std::vector<float> Through(const Matrix& x, const std::function<void(Tensor, Tensor)>& op,
                           int64_t columns, DType type = DType::kF32) {
  Matrix out(type, x.view().shape[0], columns);
  op(x.view(), out.view());
  return out.values();
}

TEST_F(EveryRowBackend, NormsAndSoftmaxHandWorked) {
  for (const auto& [name, backend] : backends) {
    SCOPED_TRACE(name);
    const auto& ops = backend;  // clang 14 captures no structured bindings
    const std::vector<float> ones = {1, 1}, half = {0.5f, 2};
    // mean square 12.5
    Matrix x = Matrix::Rows({{3, 4}});
    std::vector<float> out(2);
    ops->RmsNorm(x.view(), View(half, {2}), 0, 0, View(out, {1, 2}));
    EXPECT_TRUE(AllWithin(out, std::vector<float>{0.42426407f, 2.2627417f}, 3e-7));
    ops->RmsNorm(x.view(), View(half, {2}), 1, 0, View(out, {1, 2}));
    EXPECT_TRUE(AllWithin(out, std::vector<float>{1.2727922f, 3.3941125f}, 5e-7));
    ops->LayerNorm(x.view(), View(half, {2}), View(ones, {2}), 0, View(out, {1, 2}));
    EXPECT_TRUE(AllWithin(out, std::vector<float>{0.5f, 3.0f}, 5e-7));

    const auto softmax = [&](const Matrix& in) {
      return Through(
          in, [&](Tensor a, Tensor b) { ops->Softmax(a, 1, b); }, 3);
    };
    EXPECT_TRUE(AllWithin(softmax(Matrix::Rows({{0, std::numbers::ln2_v<float>, -kInf}})),
                          std::vector<float>{1.0f / 3, 2.0f / 3, 0}, 1e-7));
    EXPECT_THAT(softmax(Matrix::Rows({{-kInf, -kInf, -kInf}})), ::testing::Each(0.0f));
    EXPECT_TRUE(
        SameBits(softmax(Matrix::Rows({{-kInf, 1000, -kInf}})), std::vector<float>{0, 1, 0}));
    EXPECT_THAT(softmax(Matrix::Rows({{1, kNan, -kInf}})), ::testing::Each(::testing::IsNan()));
    EXPECT_THAT(softmax(Matrix::Rows({{-kInf, kNan, -kInf}})), ::testing::Each(::testing::IsNan()));
    EXPECT_THAT(softmax(Matrix::Rows({{-kInf, kInf, 1}})), ::testing::Each(::testing::IsNan()));

    const auto lse = [&](const Matrix& in) {
      std::vector<float> result(1);
      ops->LogSumExp(in.view(), View(result, {1}));
      return result[0];
    };
    EXPECT_NEAR(lse(Matrix::Rows({{0, 0, 0, 0}})), 1.3862944f, 2e-7);
    EXPECT_EQ(lse(Matrix::Rows({{500}})), 500);
    EXPECT_EQ(lse(Matrix::Rows({{-kInf, -kInf}})), -kInf);
    EXPECT_EQ(lse(Matrix::Rows({{-kInf, kInf, 3}})), kInf);
    EXPECT_TRUE(std::isnan(lse(Matrix::Rows({{1, kNan, kInf}}))));
  }
}

TEST_F(EveryRowBackend, ActivationsHandWorked) {
  for (const auto& [name, backend] : backends) {
    SCOPED_TRACE(name);
    const auto& ops = backend;  // clang 14 captures no structured bindings
    Matrix act = Matrix::Rows({{-3, -0.5f, 0, 1, 20}});
    const auto activate = [&](Activation a) {
      return Through(
          act, [&](Tensor from, Tensor to) { ops->Activate(from, a, to); }, 5);
    };
    EXPECT_TRUE(AllWithin(activate(Activation::kRelu), std::vector<float>{0, 0, 0, 1, 20}, 0));
    EXPECT_TRUE(AllWithin(activate(Activation::kSilu),
                          std::vector<float>{-0.14227762f, -0.18877033f, 0, 0.73105858f, 20},
                          1e-7));
    EXPECT_TRUE(AllWithin(activate(Activation::kGelu),
                          std::vector<float>{-0.0040496940f, -0.15426877f, 0, 0.84134475f, 20},
                          2e-7));
    EXPECT_TRUE(AllWithin(activate(Activation::kGeluTanh),
                          std::vector<float>{-0.0036373920f, -0.15428599f, 0, 0.84119199f, 20},
                          2e-7));
    act = Matrix::Rows({{-3, -0.5f, 0, 1, 5}});
    EXPECT_TRUE(AllWithin(activate(Activation::kExp),
                          std::vector<float>{0.049787068f, 0.60653066f, 1, 2.7182818f, 148.41316f},
                          4e-5));

    act = Matrix::Rows({{0, -1, 1, 2.7182818f, kInf}});
    EXPECT_TRUE(
        AllWithin(activate(Activation::kLog), std::vector<float>{-kInf, -kInf, 0, 1, kInf}, 1e-7));
    act = Matrix::Rows({{1e-39f, 1.17549435e-38f, 0.5f, 1.0000001f, kNan}});
    EXPECT_TRUE(AllWithin(activate(Activation::kLog),
                          std::vector<float>{-kInf, -87.336545f, -0.69314718f, 1.1920929e-7f, kNan},
                          8e-6));

    act = Matrix::Rows({{0, 2.25f, -1, kInf, kNan}});
    EXPECT_TRUE(
        AllWithin(activate(Activation::kSqrt), std::vector<float>{0, 1.5f, kNan, kInf, kNan}, 0));
    act = Matrix::Rows({{-3, -0.5f, 0, 1, 200}});
    EXPECT_TRUE(AllWithin(activate(Activation::kGeluQuick),
                          std::vector<float>{-0.018071310f, -0.14961156f, 0, 0.84579577f, 200},
                          1e-7));
    act = Matrix::Rows({{-kInf, -2, 0, 2, kInf}});
    EXPECT_TRUE(AllWithin(activate(Activation::kSigmoid),
                          std::vector<float>{0, 0.11920292f, 0.5f, 0.88079708f, 1}, 1e-7));

    const Matrix cap = Matrix::Rows({{0, 30, -1e6f, kInf}});
    EXPECT_TRUE(AllWithin(Through(
                              cap, [&](Tensor from, Tensor to) { ops->SoftCap(from, 30, to); }, 4),
                          std::vector<float>{0, 22.847825f, -30, 30}, 4e-6));
  }
}

TEST_F(EveryRowBackend, CombinesAndReductionsHandWorked) {
  for (const auto& [name, backend] : backends) {
    SCOPED_TRACE(name);
    const auto& ops = backend;  // clang 14 captures no structured bindings
    const std::vector<float> ones = {1, 1}, half = {0.5f, 2};
    std::vector<float> out(2);
    const Matrix a = Matrix::Rows({{6, -2, kNan, 1}}), b = Matrix::Rows({{4, -8, 3, kNan}});
    const auto combine = [&](Binary op) {
      return Through(
          a, [&](Tensor from, Tensor to) { ops->Combine(from, b.view(), op, to); }, 4);
    };
    EXPECT_TRUE(
        AllWithin(combine(Binary::kDivide), std::vector<float>{1.5f, 0.25f, kNan, kNan}, 0));
    EXPECT_TRUE(AllWithin(combine(Binary::kMin), std::vector<float>{4, -8, 3, kNan}, 0));
    EXPECT_TRUE(AllWithin(combine(Binary::kMax), std::vector<float>{6, -2, 3, kNan}, 0));
    EXPECT_TRUE(AllWithin(combine(Binary::kLess), std::vector<float>{0, 0, 0, 0}, 0));
    ops->Combine(View(half, {1, 2}), View(ones, {1, 2}), Binary::kLess, View(out, {1, 2}));
    EXPECT_THAT(out, ::testing::ElementsAre(1, 0));

    // Columns: 1 + 3, 2 + -4.
    Matrix columns = Matrix::Rows({{1, 2}, {3, -4}});
    const auto reduce = [&](Reduction kind) {
      ops->ReduceColumns(columns.view(), kind, View(out, {2}));
      return out;
    };
    EXPECT_THAT(reduce(Reduction::kSum), ::testing::ElementsAre(4, -2));
    EXPECT_THAT(reduce(Reduction::kMean), ::testing::ElementsAre(2, -1));
    EXPECT_THAT(reduce(Reduction::kMax), ::testing::ElementsAre(3, 2));
    EXPECT_THAT(reduce(Reduction::kMin), ::testing::ElementsAre(1, -4));
    EXPECT_THAT(reduce(Reduction::kSumSquares), ::testing::ElementsAre(10, 20));
    columns = Matrix::Rows({{3, -8}, {-4, 6}});
    EXPECT_THAT(reduce(Reduction::kNorm), ::testing::ElementsAre(5, 10));
    EXPECT_THAT(reduce(Reduction::kSumAbs), ::testing::ElementsAre(7, 14));
    ops->ReduceRows(Matrix::Rows({{3, 4}, {0, -2}}).view(), Reduction::kNorm, View(out, {2}));
    EXPECT_THAT(out, ::testing::ElementsAre(5, 2));

    // What was there before does not matter.
    Matrix filled = Matrix::Rows({{kNan, kInf}, {-kInf, 3}});
    ops->Fill(1e30f, filled.view());
    EXPECT_THAT(filled.values(), ::testing::Each(1e30f));
    filled = Matrix::Rows({{1, 2, 3, 4}, {5, 6, 7, 8}});
    ops->FillColumns(-1, 1, 3, filled.view());
    ops->FillColumns(-2, 4, 4, filled.view());
    EXPECT_THAT(filled.values(), ::testing::ElementsAre(1, -1, -1, 4, 5, -1, -1, 8));
  }
}

TEST_F(EveryRowBackend, UniformIsOneFunctionOfItsNumbers) {
  const int64_t n = 5000;
  std::vector<int32_t> counter(n);
  for (int64_t i = 0; i < n; ++i) counter[i] = static_cast<int32_t>(7 * i - 20);
  std::vector<float> want(n), got(n), other(n);
  backends.back().ops->Uniform(5, 6, View(counter, {n}), View(want, {n}));
  EXPECT_EQ(want[3], static_cast<float>(Rng(5, 6).At(1)[0] >> 8) / 16777216.0f);
  double sum = 0;
  for (const float v : want) {
    ASSERT_GE(v, 0);
    ASSERT_LT(v, 1);
    sum += v;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.02);
  for (const auto& [name, ops] : backends) {
    ops->Uniform(5, 6, View(counter, {n}), View(got, {n}));
    EXPECT_TRUE(SameBits(got, want)) << name;
    ops->Uniform(5, 7, View(counter, {n}), View(other, {n}));
    EXPECT_NE(other, want) << name;
  }
}

TEST_F(EveryRowBackend, ConvertsPositions) {
  const std::vector<int32_t> positions = {0, 5, -1, 16777216, 131071, 7, 8, 9, 10, 11};
  for (const auto& [name, ops] : backends) {
    std::vector<float> out(10);
    ops->Convert(View(positions, {2, 5}), View(out, {2, 5}));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], positions[i]) << name;
  }
}

TEST_F(EveryRowBackend, NanGetsIntoEveryReduction) {
  for (const auto& [name, ops] : backends) {
    SCOPED_TRACE(name);
    for (const int64_t d : {1, 2, 7, 40, 133}) {
      for (const int64_t at : {int64_t{0}, d / 2, d - 1}) {
        std::vector<float> row = RandomValues(d, 9);
        row[at] = kNan;
        std::vector<float> both = row;
        both.insert(both.end(), row.begin(), row.end());
        const Matrix rows = Matrix::Of(both, d), column = Matrix::Of(row, 1);
        for (const Reduction kind :
             {Reduction::kSum, Reduction::kMean, Reduction::kMax, Reduction::kMin,
              Reduction::kSumAbs, Reduction::kSumSquares, Reduction::kNorm}) {
          std::vector<float> out(2), one(1);
          ops->ReduceRows(rows.view(), kind, View(out, {2}));
          EXPECT_THAT(out, ::testing::Each(::testing::IsNan())) << static_cast<int>(kind);
          ops->ReduceColumns(column.view(), kind, View(one, {1}));
          EXPECT_THAT(one, ::testing::Each(::testing::IsNan())) << static_cast<int>(kind);
        }
      }
    }
  }
}

TEST_F(EveryRowBackend, ArgMaxTiesAndNan) {
  struct Example {
    std::vector<float> row;
    int32_t want;
  };
  std::vector<float> late(77, 1.0f);
  late[70] = late[75] = 2;
  late[3] = kNan;
  const Example examples[] = {
      {{5}, 0},          {{1, 3, 3}, 1},      {{kNan, 2, kNan}, 1}, {{kNan, -kInf}, 1},
      {{kNan, kNan}, 0}, {{-kInf, -kInf}, 0}, {{0, kInf, kInf}, 1}, {{-0.0f, 0.0f}, 0},
      {late, 70}};
  for (const auto& [name, ops] : backends) {
    for (const Example& e : examples) {
      std::vector<int32_t> out(1);
      const Matrix x = Matrix::Of(e.row, static_cast<int64_t>(e.row.size()));
      ops->ArgMax(x.view(), View(out, {1}));
      EXPECT_EQ(out[0], e.want) << name << " " << e.row.size();
    }
  }
}

TEST_F(EveryRowBackend, ReduceColumnsAgreesWithTwin) {
  const std::unique_ptr<RowOps> twin = MakeReferenceRows();
  for (const int64_t d : {1, 15, 64, 130, 1300}) {
    for (const int64_t m : {1, 2, 300}) {
      const Matrix x = Matrix::Of(RandomValues(m * d, 21), d, 3);
      for (const Reduction kind :
           {Reduction::kSum, Reduction::kMean, Reduction::kMax, Reduction::kMin, Reduction::kSumAbs,
            Reduction::kSumSquares, Reduction::kNorm}) {
        std::vector<float> want(d), got(d);
        twin->ReduceColumns(x.view(), kind, View(want, {d}));
        for (const auto& [name, ops] : backends) {
          ops->ReduceColumns(x.view(), kind, View(got, {d}));
          // Both add doubles in the order of the rows.
          EXPECT_TRUE(SameBits(got, want)) << name << " " << m << "x" << d;
        }
      }
    }
  }
}

// All 65536 patterns of the 16-bit types survive the way to f32 and back.
TEST_F(EveryRowBackend, ConvertsEveryHalf) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> bits(65536), back(65536);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(65536);
    for (const auto& [name, ops] : backends) {
      ops->Convert(Tensor(bits.data(), type, {65536}), View(wide, {65536}));
      ops->Convert(View(wide, {65536}), Tensor(back.data(), type, {65536}));
      for (size_t i = 0; i < bits.size(); ++i) {
        if (std::isnan(wide[i])) {
          const float again = type == DType::kF16 ? F16ToF32(back[i]) : Bf16ToF32(back[i]);
          ASSERT_TRUE(std::isnan(again)) << name;
        } else {
          ASSERT_EQ(back[i], bits[i]) << name;
        }
      }
    }
  }
}

// Values between two halves, at the middle, and past the largest.
TEST_F(EveryRowBackend, ConvertRoundsToEven) {
  std::vector<float> values = {65504, 65519.996f, 65520,   1e9f, -1e9f,        5.9604645e-8f,
                               3e-8f, 2.9e-8f,    3.4e38f, kInf, 3.3961775e38f};
  for (uint32_t high = 0x3f80; high < 0x3f84; ++high) {
    for (const uint32_t low : {0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  for (const DType type : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> out(values.size());
    for (const auto& [name, ops] : backends) {
      ops->Convert(View(values, {count}), Tensor(out.data(), type, {count}));
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(out[i], type == DType::kF16 ? F32ToF16(values[i]) : F32ToBf16(values[i]))
            << name << " " << values[i];
      }
    }
  }
}

TEST_F(EveryRowBackend, ExponentialOverItsWholeRange) {
  // Softmax of (0, -t) and silu see the exponential at every magnitude.
  std::vector<float> x;
  for (double t = -200; t <= 200; t += 0.0371) x.push_back(static_cast<float>(t));
  const auto n = static_cast<int64_t>(x.size());
  for (const auto& [name, ops] : backends) {
    std::vector<float> out(x.size());
    ops->Activate(View(x, {1, n}), Activation::kSilu, View(out, {1, n}));
    for (int64_t i = 0; i < n; ++i) {
      const double want = x[i] / (1 + std::exp(-double{x[i]}));
      ASSERT_LE(std::abs(out[i] - want), 4 * kRound * std::abs(want) + 4e-37) << name << x[i];
    }
    for (int64_t i = 0; i < n; ++i) {
      std::vector<float> pair = {0, -std::abs(x[i])};
      ops->Softmax(View(pair, {1, 2}), 1, View(pair, {1, 2}));
      const double e = std::exp(-std::abs(double{x[i]})), want = e / (1 + e);
      ASSERT_LE(std::abs(pair[1] - want), 4 * kRound * want + 3e-45) << name << x[i];
    }
  }
}

// Norms over heads inside a fused buffer: neither dimension folds into the other.
TEST_F(EveryRowBackend, NormOfStridedHeads) {
  const std::vector<float> data = RandomValues(6 * 5 * 16, 2), weight = RandomValues(16, 3);
  for (const int64_t heads : {2, 4}) {
    Tensor x = View(data, {6, 5, 16});
    x.shape[1] = heads;
    for (const auto& [name, ops] : backends) {
      std::vector<float> got(6 * heads * 16), want(16);
      ops->RmsNorm(x, View(weight, {16}), 0, 1e-6f, View(got, {6, heads, 16}));
      for (int64_t i = 0; i < 6; ++i) {
        for (int64_t h = 0; h < heads; ++h) {
          ops->RmsNorm(x[i][h], View(weight, {16}), 0, 1e-6f, View(want, {16}));
          ASSERT_TRUE(SameBits(std::span(got).subspan((i * heads + h) * 16, 16), want)) << name;
        }
      }
    }
  }
}

TEST_F(EveryRowBackend, InPlaceEqualsOutOfPlace) {
  const std::vector<float> data = RandomValues(5 * 67, 8), weight = RandomValues(67, 3);
  const Tensor w = View(weight, {67});
  const std::vector<std::function<void(RowOps&, Tensor, Tensor)>> calls = {
      [&](RowOps& o, Tensor x, Tensor y) { o.RmsNorm(x, w, 1, 1e-6f, y); },
      [&](RowOps& o, Tensor x, Tensor y) { o.LayerNorm(x, w, w, 1e-6f, y); },
      [&](RowOps& o, Tensor x, Tensor y) { o.Activate(x, Activation::kSilu, y); },
      [&](RowOps& o, Tensor x, Tensor y) { o.Combine(x, w, Binary::kAdd, y); },
      [&](RowOps& o, Tensor x, Tensor y) { o.Affine(x, 2, 1, y); },
      [&](RowOps& o, Tensor x, Tensor y) { o.SoftCap(x, 5, y); },
      [&](RowOps& o, Tensor x, Tensor y) { o.Softmax(x, 1, y); }};
  for (const auto& [name, ops] : backends) {
    for (size_t i = 0; i < calls.size(); ++i) {
      std::vector<float> apart(data.size()), same = data;
      calls[i](*ops, View(data, {5, 67}), View(apart, {5, 67}));
      calls[i](*ops, View(same, {5, 67}), View(same, {5, 67}));
      EXPECT_TRUE(SameBits(same, apart)) << name << " call " << i;
    }
  }
}

TEST_F(EveryRowBackend, NoRowsIsNoWork) {
  for (const auto& [name, ops] : backends) {
    const Tensor none(nullptr, DType::kF32, {0, 8});
    const std::vector<float> weight(8);
    ops->RmsNorm(none, View(weight, {8}), 0, 1e-6f, none);
    ops->Softmax(none, 1, none);
    ops->ArgMax(none, Tensor(nullptr, DType::kI32, {0}));
  }
}

TEST(RowOpsDeathTest, MessagesShowTheShapes) {
  const auto ops = MakeReferenceRows();
  const std::vector<float> x(6), w(4);
  EXPECT_DEATH(ops->RmsNorm(View(x, {2, 3}), View(w, {4}), 0, 0, View(x, {2, 3})),
               "RmsNorm: f32\\[2, 3\\], f32\\[4\\], f32\\[2, 3\\]");
  EXPECT_DEATH(ops->Softmax(View(x, {2, 3}), 1, View(x, {3, 2})), "f32\\[3, 2\\]");
}

}  // namespace
}  // namespace kvgauge
