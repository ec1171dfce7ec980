// SPDX-License-Identifier: Apache-2.0
#include "src/doctor/device_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "core/rng.h"
#include "core/strings.h"
#include "src/doctor/device_case.h"

namespace kvgauge {
namespace {

struct Case {
  std::string op, shape;
  double bound;  // relative to the largest result
  std::function<std::vector<float>(CaseTensors&)> run;
};

void AddRows(std::vector<Case>& cases) {
  const auto add = [&](const char* op, double bound, auto run) {
    cases.push_back({op, "37 x 1500", bound, [run](CaseTensors& s) {
                       const Tensor x = s.Random({37, 1500}, 1), out = s.New({37, 1500});
                       run(*s.ops().rows, s, x, out);
                       return s.Floats(out);
                     }});
  };
  add("RmsNorm", 1e-6, [](RowOps& rows, CaseTensors& s, const Tensor& x, const Tensor& out) {
    rows.RmsNorm(x, s.Random({1500}, 2), 0, 1e-5f, out);
  });
  add("LayerNorm", 1e-5, [](RowOps& rows, CaseTensors& s, const Tensor& x, const Tensor& out) {
    rows.LayerNorm(x, s.Random({1500}, 2), s.Random({1500}, 3), 1e-5f, out);
  });
  add("Softmax", 1e-5, [](RowOps& rows, CaseTensors&, const Tensor& x, const Tensor& out) {
    rows.Softmax(x, 3.0f, out);
  });
  add("SoftCap", 1e-6, [](RowOps& rows, CaseTensors&, const Tensor& x, const Tensor& out) {
    rows.SoftCap(x, 0.5f, out);
  });
  add("Activate silu", 1e-6, [](RowOps& rows, CaseTensors&, const Tensor& x, const Tensor& out) {
    rows.Activate(x, Activation::kSilu, out);
  });
  add("Activate gelu", 1e-6, [](RowOps& rows, CaseTensors&, const Tensor& x, const Tensor& out) {
    rows.Activate(x, Activation::kGelu, out);
  });
  add("Combine times", 0, [](RowOps& rows, CaseTensors& s, const Tensor& x, const Tensor& out) {
    rows.Combine(x, s.Random({1500}, 2), Binary::kMultiply, out);
  });
  add("Affine", 1e-6, [](RowOps& rows, CaseTensors&, const Tensor& x, const Tensor& out) {
    rows.Affine(x, 1.5f, -0.25f, out);
  });
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    cases.push_back({StrCat("Convert to ", NameOf(dtype)), "37 x 1500", 0, [dtype](CaseTensors& s) {
                       const Tensor out = s.New({37, 1500}, dtype);
                       s.ops().rows->Convert(s.Random({37, 1500}, 1), out);
                       return s.Floats(out);
                     }});
  }
  cases.push_back(
      {"GatedActivate gelu", "37 x 1500", 1e-6, [](CaseTensors& s) {
         const Tensor out = s.New({37, 750});
         s.ops().rows->GatedActivate(s.Random({37, 1500}, 1), Activation::kGeluTanh, out);
         return s.Floats(out);
       }});
  cases.push_back({"LogSumExp", "37 x 1500", 1e-6, [](CaseTensors& s) {
                     const Tensor out = s.New({37});
                     s.ops().rows->LogSumExp(s.Random({37, 1500}, 1), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"ReduceRows squares", "37 x 1500", 1e-6, [](CaseTensors& s) {
                     const Tensor out = s.New({37});
                     s.ops().rows->ReduceRows(s.Random({37, 1500}, 1), Reduction::kSumSquares, out);
                     return s.Floats(out);
                   }});
  cases.push_back({"Uniform", "1000", 0, [](CaseTensors& s) {
                     std::vector<int32_t> counter(1000);
                     for (size_t i = 0; i < counter.size(); ++i) {
                       counter[i] = static_cast<int32_t>(i * 77);
                     }
                     const Tensor out = s.New({1000});
                     s.ops().rows->Uniform(5, 6, s.Integers(counter), out);
                     return s.Floats(out);
                   }});
  cases.push_back(
      {"Rope", "37 x 4 x 128", 1e-6, [](CaseTensors& s) {
         std::vector<int32_t> positions(37);
         for (size_t i = 0; i < positions.size(); ++i) {
           positions[i] = static_cast<int32_t>(i * 3001);
         }
         std::vector<float> frequency(64);
         for (int i = 0; i < 64; ++i) {
           frequency[static_cast<size_t>(i)] = static_cast<float>(std::pow(10000.0, -i / 64.0));
         }
         const Tensor f = s.New({64}), cos = s.New({37, 64}), sin = s.New({37, 64});
         s.ops().memory->Copy(View(frequency, {64}), f);
         const Tensor x = s.Random({37, 4, 128}, 4);
         s.ops().rows->RopeTable(s.Integers(positions).Reshape({37, 1}), f, {}, 1, cos, sin);
         s.ops().rows->Rope(cos, sin, RopeLayout::kHalf, RopeDirection::kForward, x);
         return s.Floats(x);
       }});
  cases.push_back({"ArgMax", "37 x 1500", 0, [](CaseTensors& s) {
                     const Tensor out = s.New({37}, DType::kI32);
                     s.ops().rows->ArgMax(s.Random({37, 1500}, 1), out);
                     return s.Indices(out);
                   }});
  cases.push_back({"ReduceColumns sum", "37 x 1500", 1e-6, [](CaseTensors& s) {
                     const Tensor out = s.New({1500});
                     s.ops().rows->ReduceColumns(s.Random({37, 1500}, 1), Reduction::kSum, out);
                     return s.Floats(out);
                   }});
}

void AddStates(std::vector<Case>& cases) {
  cases.push_back(
      {"Convolve", "37 x 300, 4 taps", 1e-6, [](CaseTensors& s) {
         const Tensor out = s.New({37, 300}), past = s.Random({3, 300}, 3);
         s.ops().state->Convolve(s.Random({37, 300}, 1), s.Random({4, 300}, 2), {}, past, out);
         return s.Floats(out);
       }});
  cases.push_back({"Scan", "37 rows of 4 heads, 32 x 96", 1e-4, [](CaseTensors& s) {
                     const Tensor out = s.New({37, 4, 96}), rates = s.New({4});
                     s.ops().rows->Fill(-0.5f, rates);
                     const Tensor keys = s.Random({37, 2, 32}, 1);
                     s.ops().rows->Affine(keys, 0.15f, 0.0f, keys);
                     StateScan scan = {.queries = keys,
                                       .keys = keys,
                                       .values = s.Random({37, 4, 96}, 2),
                                       .steps = s.Random({37, 4}, 3),
                                       .weights = s.Random({37, 4}, 4),
                                       .step_bias = s.Random({4}, 5),
                                       .rates = rates,
                                       .skip = {}};
                     scan.corrects = true;
                     s.ops().state->Scan(scan, s.New({4, 32, 96}), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"ScanColumns", "37 rows of 300 columns, 16 each", 1e-4, [](CaseTensors& s) {
                     const Tensor out = s.New({37, 300}), rates = s.New({16, 300});
                     s.ops().rows->Fill(-0.5f, rates);
                     s.ops().state->ScanColumns({.queries = s.Random({37, 16}, 1),
                                                 .keys = s.Random({37, 16}, 2),
                                                 .values = s.Random({37, 300}, 3),
                                                 .steps = s.Random({37, 300}, 4),
                                                 .step_bias = s.Random({300}, 5),
                                                 .rates = rates,
                                                 .skip = s.Random({300}, 6)},
                                                s.New({16, 300}), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"ScanAverages", "37 rows of 300 columns", 1e-5, [](CaseTensors& s) {
                     const Tensor out = s.New({37, 300}), rates = s.New({300});
                     s.ops().rows->Fill(-0.1f, rates);
                     s.ops().state->ScanAverages({.keys = s.Random({37, 300}, 1),
                                                  .values = s.Random({37, 300}, 2),
                                                  .rates = rates,
                                                  .first = s.Random({300}, 3)},
                                                 s.New({3, 300}), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"ScanDecays", "37 rows of 4 heads, 32 x 96", 1e-4, [](CaseTensors& s) {
                     const Tensor out = s.New({37, 4, 96}), rates = s.New({37, 4, 32});
                     s.ops().rows->Fill(-0.1f, rates);
                     const Tensor finds = s.Random({37, 4, 32}, 1), writes = s.New({37, 4, 32});
                     s.ops().rows->Affine(finds, 0.15f, 0.0f, finds);
                     s.ops().rows->Affine(finds, -0.5f, 0.0f, writes);
                     s.ops().state->ScanDecays({.queries = s.Random({37, 4, 32}, 2),
                                                .keys = s.Random({37, 4, 32}, 3),
                                                .values = s.Random({37, 4, 96}, 4),
                                                .rates = rates,
                                                .finds = finds,
                                                .writes = writes},
                                               s.New({4, 32, 96}), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"ScanBonus", "37 rows of 4 heads, 32 x 96", 1e-4, [](CaseTensors& s) {
                     const Tensor out = s.New({37, 4, 96}), rates = s.New({37, 4, 32});
                     s.ops().rows->Fill(-0.1f, rates);
                     s.ops().state->ScanBonus({.queries = s.Random({37, 4, 32}, 1),
                                               .keys = s.Random({37, 4, 32}, 2),
                                               .values = s.Random({37, 4, 96}, 3),
                                               .rates = rates,
                                               .bonus = s.Random({4, 32}, 4)},
                                              s.New({4, 32, 96}), out);
                     return s.Floats(out);
                   }});
}

// [n, m] i64 as [n * 2 m] i32.
Tensor Halves(Tensor words) {
  words.dtype = DType::kI32;
  words.shape[1] *= 2;
  words.stride[0] *= 2;
  return words.Reshape({words.Numel()});
}
Tensor RandomBits(CaseTensors& s, int64_t rows, int64_t words) {
  std::vector<int32_t> halves(static_cast<size_t>(2 * rows * words));
  Rng rng(3, 0);
  for (int32_t& half : halves) half = static_cast<int32_t>(rng.NextU64() >> 33);
  Tensor bits = s.Integers(halves).Reshape({rows, 2 * words});
  bits.dtype = DType::kI64;
  bits.shape[1] = words;
  bits.stride[0] = words;
  return bits;
}

void AddSelect(std::vector<Case>& cases) {
  cases.push_back(
      {"TopK", "5 of 3000, k 0 .. 3000", 0, [](CaseTensors& s) {
         const Tensor out = s.New({5, 3000}, DType::kI32);
         s.ops().select->TopK(s.Random({5, 3000}, 1), s.Integers({0, 1, 700, 2999, 3000}), out);
         return s.Indices(out);
       }});
  cases.push_back({"Gather", "400 of 1000 x 96", 0, [](CaseTensors& s) {
                     std::vector<int32_t> index(400);
                     for (size_t i = 0; i < index.size(); ++i) {
                       index[i] = static_cast<int32_t>(i * 7919 % 1001) - 1;
                     }
                     const Tensor out = s.New({400, 96});
                     s.ops().select->Gather(s.Random({1000, 96}, 1), s.Integers(index), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"ScatterAdd", "400 into 50 x 96", 1e-6, [](CaseTensors& s) {
                     std::vector<int32_t> index(400);
                     for (size_t i = 0; i < index.size(); ++i) {
                       index[i] = static_cast<int32_t>(i * 7919 % 51) - 1;
                     }
                     const Tensor out = s.Random({50, 96}, 2);
                     s.ops().select->ScatterAdd(s.Random({400, 96}, 1), s.Integers(index),
                                                s.Random({400}, 3), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"Scatter", "50 into 90 x 96", 0, [](CaseTensors& s) {
                     std::vector<int32_t> index(50);
                     for (size_t i = 0; i < index.size(); ++i) {
                       index[i] = static_cast<int32_t>(i * 37 % 90);
                     }
                     const Tensor out = s.Random({90, 96}, 2);
                     s.ops().select->Scatter(s.Random({50, 96}, 1), s.Integers(index), out);
                     return s.Floats(out);
                   }});
  cases.push_back({"Following", "3 of 200, 70 values", 0, [](CaseTensors& s) {
                     std::vector<int32_t> sorted(200), value(70);
                     for (size_t i = 0; i < sorted.size(); ++i) {
                       sorted[i] = static_cast<int32_t>(3 * i);
                     }
                     for (size_t i = 0; i < value.size(); ++i) {
                       value[i] = static_cast<int32_t>(i * 61 % 650);
                     }
                     const Tensor out = s.New({3, 70}, DType::kI32);
                     s.ops().select->Following(s.Integers(sorted), s.Integers(value), out);
                     return s.Indices(out);
                   }});
  cases.push_back({"MarkRuns", "3 x 8 runs of 5 in 500", 0, [](CaseTensors& s) {
                     std::vector<int32_t> index(24);
                     for (size_t i = 0; i < index.size(); ++i) {
                       index[i] = static_cast<int32_t>(i * 29 % 101) - 1;
                     }
                     const Tensor words = s.New({3, 8}, DType::kI64);
                     s.ops().select->MarkRuns(s.Integers(index).Reshape({3, 8}), 5, 500, words);
                     return s.Indices(Halves(words));
                   }});
  cases.push_back({"MoveBits", "3 x 300, from 70 to 5", 0, [](CaseTensors& s) {
                     const Tensor out = s.New({3, 4}, DType::kI64);
                     s.ops().select->MoveBits(RandomBits(s, 3, 5), 70, 5, out);
                     return s.Indices(Halves(out));
                   }});
  cases.push_back({"CountBits", "3 x 320", 0, [](CaseTensors& s) {
                     const Tensor out = s.New({3}, DType::kI64), none = s.New({3}, DType::kI64);
                     s.ops().select->CountBits(RandomBits(s, 3, 5), none, out);
                     return s.Indices(Halves(out.Reshape({3, 1})));
                   }});
  cases.push_back({"CountAnyBits", "2 of 3 x 320, 5 to 300", 0, [](CaseTensors& s) {
                     const Tensor out = s.New({2}, DType::kI64), none = s.New({2}, DType::kI64);
                     const std::vector<int32_t> ends = {5, 300, 64, 64};
                     s.ops().select->CountAnyBits(RandomBits(s, 6, 5),
                                                  s.Integers(ends).Reshape({2, 2}), none, out);
                     return s.Indices(Halves(out.Reshape({2, 1})));
                   }});
  cases.push_back({"ReadBits", "3 x 200, from 70", 0, [](CaseTensors& s) {
                     const Tensor out = s.New({3, 200});
                     s.ops().select->ReadBits(RandomBits(s, 3, 5), 70, out);
                     return s.Floats(out);
                   }});
  cases.push_back({"AtLeast", "200", 0, [](CaseTensors& s) {
                     std::vector<int32_t> values(200);
                     for (size_t i = 0; i < values.size(); ++i) {
                       values[i] = static_cast<int32_t>(i * 61 % 650);
                     }
                     const Tensor out = s.New({200}, DType::kI32);
                     s.ops().select->AtLeast(s.Integers(values), 300, out);
                     return s.Indices(out);
                   }});
  cases.push_back({"ColumnRanges", "300 x 70, 3 trimmed", 0, [](CaseTensors& s) {
                     const Tensor out = s.New({2, 70});
                     s.ops().select->ColumnRanges(s.Random({300, 70}, 1), 3, out[0], out[1]);
                     return s.Floats(out);
                   }});
  cases.push_back({"Pool", "5 x 1000, 7 wide", 1e-6, [](CaseTensors& s) {
                     const Tensor out = s.New({5, 1000});
                     s.ops().select->Pool(s.Random({5, 1000}, 1), 7, Pooling::kAverage, out);
                     return s.Floats(out);
                   }});
}

void AddAlgebra(std::vector<Case>& cases) {
  cases.push_back(
      {"CosineSimilarity", "90 x 70 x 128", 1e-5, [](CaseTensors& s) {
         const Tensor out = s.New({90, 70});
         s.ops().algebra->CosineSimilarity(s.Random({90, 128}, 1), s.Random({70, 128}, 2), out);
         return s.Floats(out);
       }});
  cases.push_back({"KMeans", "500 x 16, 8 means", 1e-5, [](CaseTensors& s) {
                     const Tensor x = s.Random({500, 16}, 1), means = s.New({8, 16});
                     s.ops().memory->Copy(x.Slice(0, 8), means);
                     s.ops().algebra->KMeans(x, 3, means, s.New({500}, DType::kI32));
                     return s.Floats(means);
                   }});
  cases.push_back(
      {"Svd", "60 x 24", 1e-6, [](CaseTensors& s) {
         const Tensor values = s.New({24});
         s.ops().algebra->Svd(s.Random({60, 24}, 1), s.New({60, 24}), values, s.New({24, 24}));
         return s.Floats(values);
       }});
  cases.push_back({"Eigenvectors", "8 of 24 x 24", 1e-5, [](CaseTensors& s) {
                     const Tensor x = s.Random({24, 60}, 1), products = s.New({24, 24});
                     s.ops().linear->MatMulNT(x.Reshape({1, 24, 60}), x.Reshape({1, 24, 60}), 1.0f,
                                              products.Reshape({1, 24, 24}));
                     const Tensor values = s.New({8});
                     s.ops().algebra->Eigenvectors(products, values, s.New({8, 24}));
                     return s.Floats(values);
                   }});
  cases.push_back({"Qr", "60 x 24", 1e-6, [](CaseTensors& s) {
                     const Tensor r = s.New({24, 24});
                     s.ops().algebra->Qr(s.Random({60, 24}, 1), s.New({60, 24}), r);
                     return s.Floats(r);
                   }});
  cases.push_back({"Hadamard", "40 x 512", 1e-6, [](CaseTensors& s) {
                     const Tensor x = s.Random({40, 512}, 1);
                     s.ops().algebra->Hadamard(x);
                     return s.Floats(x);
                   }});
}

void AddLinear(std::vector<Case>& cases) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t m : {1, 33, 150}) {
      cases.push_back({StrCat("MatMul ", NameOf(dtype)), StrCat(m, " x 200 x 1100"), 1e-5,
                       [dtype, m](CaseTensors& s) {
                         const auto w = s.Weights(200, 1100, dtype, 2);
                         const Tensor out = s.New({m, 200});
                         s.ops().linear->MatMul(s.Random({m, 1100}, 1), *w, s.Random({200}, 3),
                                                MatMulMode::kSet, out);
                         return s.Floats(out);
                       }});
    }
  }
}

void AddExperts(std::vector<Case>& cases) {
  for (const bool sigmoid : {false, true}) {
    for (const bool weights : {false, true}) {
      cases.push_back({weights ? "ChooseExperts, weights" : "ChooseExperts",
                       sigmoid ? "37 rows, 6 of 64, sigmoids" : "37 rows, 6 of 64",
                       weights ? 1e-6 : 0, [weights, sigmoid](CaseTensors& s) {
                         const Tensor index = s.New({37, 6}, DType::kI32), weight = s.New({37, 6});
                         s.ops().select->ChooseExperts(
                             s.Random({37, 64}, 1),
                             {.groups = 8, .top_groups = 3, .sigmoid = sigmoid},
                             sigmoid ? s.Random({64}, 2) : Tensor(), index, weight);
                         return weights ? s.Floats(weight) : s.Indices(index.Reshape({37 * 6}));
                       }});
    }
  }
  cases.push_back(
      {"AddWeighted", "37 rows of 6 x 200", 1e-6, [](CaseTensors& s) {
         const Tensor out = s.Random({37, 200}, 3);
         s.ops().select->AddWeighted(s.Random({37 * 6, 200}, 1), s.Random({37, 6}, 2), out);
         return s.Floats(out);
       }});
  // Few rows, few of each of many matrices, and many of each.
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t m : {1, 40, 120}) {
      cases.push_back(
          {StrCat("MatMulChosen ", NameOf(dtype)), StrCat("2 of 5 for ", m, " rows, 200 x 1100"),
           1e-5, [dtype, m](CaseTensors& s) {
             std::vector<std::unique_ptr<PackedMatrix>> matrices;
             std::vector<const PackedMatrix*> all;
             for (uint64_t i = 0; i < 5; ++i) {
               matrices.push_back(s.Weights(200, 1100, dtype, 2 + i));
               all.push_back(matrices.back().get());
             }
             const auto set = s.ops().linear->Collect(all);
             std::vector<int32_t> choice(static_cast<size_t>(2 * m));
             for (size_t i = 0; i < choice.size(); ++i) {
               choice[i] = static_cast<int32_t>(i * i % 5);
             }
             const Tensor out = s.New({2 * m, 200});
             s.ops().linear->MatMulChosen(s.Random({m, 1100}, 1), *set, s.Integers(choice), out);
             return s.Floats(out);
           }});
    }
  }
}

void AddProducts(std::vector<Case>& cases) {
  cases.push_back(
      {"MatMulNT", "3 x 40 x 70 x 96", 1e-5, [](CaseTensors& s) {
         const Tensor out = s.New({3, 40, 70});
         s.ops().linear->MatMulNT(s.Random({3, 40, 96}, 1), s.Random({3, 70, 96}, 2), 0.5f, out);
         return s.Floats(out);
       }});
  cases.push_back(
      {"MatMulNN", "3 x 40 x 70 x 96", 1e-5, [](CaseTensors& s) {
         const Tensor out = s.New({3, 40, 70});
         s.ops().linear->MatMulNN(s.Random({3, 40, 96}, 1), s.Random({3, 96, 70}, 2), 0.5f, out);
         return s.Floats(out);
       }});
  cases.push_back(
      {"Embed", "5 of 100 x 96", 0, [](CaseTensors& s) {
         const Tensor out = s.New({5, 96});
         s.ops().linear->Embed(s.Random({100, 96}, 1), s.Integers({99, 0, 7, 7, 50}), 2, out);
         return s.Floats(out);
       }});
}

void AddAttention(std::vector<Case>& cases) {
  struct KeptAs {
    const char* name;
    DType dtype;
    KvCodec codec;
    double bound;
  };
  // The bounds are those of rounding queries and weights to the cache's type.
  const KeptAs stores[] = {
      {"f32", DType::kF32, {}, 1e-5},
      {"f16", DType::kF16, {}, 2e-3},
      {"bf16", DType::kBF16, {}, 1.6e-2},
      {"int8 token", DType::kF16, AffineCodec(8, CodeAxis::kToken, 32), 2e-3},
      {"int4 channel", DType::kF16, AffineCodec(4, CodeAxis::kChannel, 32), 4e-3},
      {"int2 channel", DType::kF16, AffineCodec(2, CodeAxis::kChannel, 32), 4e-3},
      {"q8_0", DType::kF16, CodecOfKind(KvCodecKind::kQ8_0), 2e-3},
      {"q4_0", DType::kF16, CodecOfKind(KvCodecKind::kQ4_0), 4e-3},
      {"fp8", DType::kF16, CodecOfKind(KvCodecKind::kFp8E4M3), 2e-3},
  };
  for (const KeptAs& store : stores) {
    const KvFormat format = {store.dtype, 64, 64};
    const KvCodec codec = store.codec;
    for (const int64_t rows : {1, 40}) {
      cases.push_back({StrCat("Attend ", store.name), StrCat(rows, " rows, 4/2 heads, 700 entries"),
                       store.bound, [format, codec, rows](CaseTensors& s) {
                         CacheCase cached(s, format, 4, 2, 700, rows, codec);
                         return s.Floats(cached.Attend());
                       }});
    }
  }
  // Fetched from the host, where a device takes what lies there for its own.
  for (const KeptAs& store : stores) {
    if (store.dtype == DType::kBF16) continue;
    const KvFormat format = {store.dtype, 64, 64};
    const KvCodec codec = store.codec;
    cases.push_back({StrCat("Attend ", store.name, " on the host"), "1 row, 4/2 heads, 700 entries",
                     store.bound, [format, codec](CaseTensors& s) {
                       CacheCase cached(s, format, 4, 2, 700, 1, codec, Lies::kOnHost);
                       return s.Floats(cached.Attend());
                     }});
  }
  // What is coded, decoded: the same numbers on every backend.
  for (const KeptAs& store : stores) {
    if (!store.codec.coded()) continue;
    KvCodec codec = store.codec;
    codec.dim = 64;
    cases.push_back({StrCat("Encode, Decode ", store.name), "128 x 64", 0, [codec](CaseTensors& s) {
                       void* const blocks[] = {s.Block(s.ops().codecs->PageBytes(codec)),
                                               s.Block(s.ops().codecs->PageBytes(codec))};
                       const KvPages pages = {.codes = blocks};
                       const Tensor out = s.New({128, 64});
                       s.ops().codecs->Encode(codec, s.Random({128, 64}, 3), 0, pages);
                       s.ops().codecs->Decode(codec, pages, 0, out);
                       return s.Floats(out);
                     }});
  }
  cases.push_back({"WriteKv, GatherKv f16", "200 of 700 entries", 0, [](CaseTensors& s) {
                     std::vector<int32_t> index(200);
                     for (size_t i = 0; i < index.size(); ++i) {
                       index[i] = static_cast<int32_t>(i * 463 % 700);
                     }
                     CacheCase cached(s, {DType::kF16, 64, 64}, 4, 2, 700, 1);
                     return s.Floats(cached.Gathered(index));
                   }});
  cases.push_back(
      {"WindowProbabilities f16", "8 rows, 4/2 heads, 700 entries", 4e-3, [](CaseTensors& s) {
         CacheCase cached(s, {DType::kF16, 64, 64}, 4, 2, 700, 8);
         cached.Attend();
         return s.Floats(cached.Window());
       }});
  cases.push_back(
      {"ReduceColumns f16", "40 rows, 4/2 heads, 700 entries", 2e-3, [](CaseTensors& s) {
         CacheCase cached(s, {DType::kF16, 64, 64}, 4, 2, 700, 40);
         cached.Attend();
         return s.Floats(cached.ColumnSums());
       }});
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double largest = 0, error = 0;
  for (const float v : want) largest = std::max(largest, std::abs(double{v}));
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = std::abs(double{got[i]} - want[i]);
    if (std::isnan(off)) return off;
    error = std::max(error, off);
  }
  return largest > 0 ? error / largest : error;
}

// Steps that a device may take at once, bit for bit as they come one operation after the other.
DeviceCheckRow CheckRepeatedSteps(Ops& device) {
  constexpr int kSteps = 8;
  CaseTensors s(device);
  StepCase step(s, 4, 64, 3, 700);
  const std::unique_ptr<RepeatedWork> work = device.memory->MakeRepeatedWork();
  double error = 0;
  for (uint64_t i = 0; i < kSteps; ++i) {
    const std::vector<float> input = CaseNoise(step.width(), i);
    work->Run([&] { step.Submit(input); });
    const std::vector<float> repeated = s.Floats(step.result());
    step.Submit(input);
    error = std::max(error, RelativeError(repeated, s.Floats(step.result())));
    if (std::isnan(error)) break;
  }
  const RepeatedWork::Counts counts = work->counts();
  return {"Step at once", StrCat(kSteps, " steps, ", counts.replayed, " replayed"), error, 0,
          error <= 0};
}

// Attention over a cache on the host, bit for bit as over the same on the device, many times with
// nothing between: what one call fetches never meets what the call before it reads.
DeviceCheckRow CheckFetches(Ops& device) {
  constexpr int kCalls = 4;
  const KvFormat format = {DType::kF16, 64, 64};
  CaseTensors s(device);
  CacheCase there(s, format, 4, 2, 3000, 1);
  CacheCase on_host(s, format, 4, 2, 3000, 1, {}, Lies::kOnHost);
  CacheCase shorter(s, format, 4, 2, 1700, 1, {}, Lies::kOnHost);
  const std::vector<float> want = s.Floats(there.Attend());
  double error = 0;
  for (int i = 0; i < kCalls; ++i) {
    for (int calls = 0; calls < i; ++calls) {
      shorter.Attend();
      on_host.Attend();
    }
    error = std::max(error, RelativeError(s.Floats(on_host.Attend()), want));
    if (std::isnan(error)) break;
  }
  return {"Fetch from the host", StrCat(kCalls, " times, 4/2 heads, 3000 entries"), error, 0,
          error <= 0};
}

}  // namespace

bool DeviceCheck::ok() const {
  return std::all_of(checks.begin(), checks.end(), [](const auto& row) { return row.ok; });
}

std::vector<DeviceCheckRow> CheckOps(Ops& device) {
  std::vector<Case> cases;
  AddRows(cases);
  AddSelect(cases);
  AddAlgebra(cases);
  AddStates(cases);
  AddLinear(cases);
  AddExperts(cases);
  AddProducts(cases);
  AddAttention(cases);
  const Result<std::unique_ptr<Ops>> reference = MakeOps("reference", {});
  KVG_CHECK(reference.ok(), "the reference backend is always there");
  std::vector<DeviceCheckRow> rows;
  for (const Case& c : cases) {
    CaseTensors there(device), here(**reference);
    const double error = RelativeError(c.run(there), c.run(here));
    rows.push_back({c.op, c.shape, error, c.bound, error <= c.bound});
  }
  if (device.device != Device::kHost) rows.push_back(CheckFetches(device));
  rows.push_back(CheckRepeatedSteps(device));
  return rows;
}

}  // namespace kvgauge
