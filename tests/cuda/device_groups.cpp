// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_groups.h"

#include <array>
#include <utility>

#include "cuda/mirror.h"
#include "cuda/suite_device.h"
#include "kernels/rounded_products.h"

namespace kvgauge {
namespace {

class MirroredRows final : public RowOps {
  void DoRmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps,
                 Tensor out) override {
    const Mirror on(memory_, {x, weight, out});
    ops_.RmsNorm(on(x), on(weight), weight_offset, eps, on(out));
  }
  void DoLayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                   Tensor out) override {
    const Mirror on(memory_, {x, weight, bias, out});
    ops_.LayerNorm(on(x), on(weight), on(bias), eps, on(out));
  }
  void DoRopeTable(const Tensor& positions, const Tensor& inverse_frequency, const Tensor& axis,
                   float attention_factor, Tensor cos, Tensor sin) override {
    const Mirror on(memory_, {positions, inverse_frequency, axis, cos, sin});
    ops_.RopeTable(on(positions), on(inverse_frequency), on(axis), attention_factor, on(cos),
                   on(sin));
  }
  void DoRope(const Tensor& cos, const Tensor& sin, RopeLayout layout, RopeDirection direction,
              Tensor x) override {
    const Mirror on(memory_, {cos, sin, x});
    ops_.Rope(on(cos), on(sin), layout, direction, on(x));
  }
  void DoActivate(const Tensor& x, Activation act, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.Activate(on(x), act, on(out));
  }
  void DoGatedActivate(const Tensor& x, Activation act, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.GatedActivate(on(x), act, on(out));
  }
  void DoCombine(const Tensor& a, const Tensor& b, Binary op, Tensor out) override {
    const Mirror on(memory_, {a, b, out});
    ops_.Combine(on(a), on(b), op, on(out));
  }
  void DoAffine(const Tensor& x, float scale, float shift, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.Affine(on(x), scale, shift, on(out));
  }
  void DoFill(float value, Tensor out) override {
    const Mirror on(memory_, {out});
    ops_.Fill(value, on(out));
  }
  void DoFillColumns(float value, int64_t begin, int64_t end, Tensor out) override {
    const Mirror on(memory_, {out});
    ops_.FillColumns(value, begin, end, on(out));
  }
  void DoSoftCap(const Tensor& x, float cap, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.SoftCap(on(x), cap, on(out));
  }
  void DoSoftmax(const Tensor& x, float scale, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.Softmax(on(x), scale, on(out));
  }
  void DoLogSumExp(const Tensor& x, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.LogSumExp(on(x), on(out));
  }
  void DoReduceRows(const Tensor& x, Reduction kind, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.ReduceRows(on(x), kind, on(out));
  }
  void DoReduceColumns(const Tensor& x, Reduction kind, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.ReduceColumns(on(x), kind, on(out));
  }
  void DoArgMax(const Tensor& x, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.ArgMax(on(x), on(out));
  }
  void DoConvert(const Tensor& x, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.Convert(on(x), on(out));
  }
  void DoUniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out) override {
    const Mirror on(memory_, {counter, out});
    ops_.Uniform(seed, stream, on(counter), on(out));
  }

  MemoryOps& memory_ = *TestDevice().memory;
  RowOps& ops_ = *TestDevice().rows;
};

class MirroredSelect final : public SelectOps {
  void DoTopK(const Tensor& scores, const Tensor& counts, Tensor out) override {
    const Mirror on(memory_, {scores, counts, out});
    ops_.TopK(on(scores), on(counts), on(out));
  }
  void DoGather(const Tensor& source, const Tensor& index, Tensor out) override {
    const Mirror on(memory_, {source, index, out});
    ops_.Gather(on(source), on(index), on(out));
  }
  void DoScatter(const Tensor& source, const Tensor& index, Tensor out) override {
    const Mirror on(memory_, {source, index, out});
    ops_.Scatter(on(source), on(index), on(out));
  }
  void DoScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                    Tensor out) override {
    const Mirror on(memory_, {source, index, weight, out});
    ops_.ScatterAdd(on(source), on(index), on(weight), on(out));
  }
  void DoPool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.Pool(on(x), kernel, mode, on(out));
  }
  void DoFollowing(const Tensor& sorted, const Tensor& value, Tensor out) override {
    const Mirror on(memory_, {sorted, value, out});
    ops_.Following(on(sorted), on(value), on(out));
  }
  void DoMarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words) override {
    const Mirror on(memory_, {index, words});
    ops_.MarkRuns(on(index), run, n, on(words));
  }
  void DoChooseExperts(const Tensor& logits, const ExpertRule& rule, const Tensor& correction,
                       Tensor index, Tensor weight) override {
    const Mirror on(memory_, {logits, correction, index, weight});
    ops_.ChooseExperts(on(logits), rule, on(correction), on(index), on(weight));
  }
  void DoAddWeighted(const Tensor& source, const Tensor& weight, Tensor out) override {
    const Mirror on(memory_, {source, weight, out});
    ops_.AddWeighted(on(source), on(weight), on(out));
  }
  void DoCountBits(const Tensor& words, const Tensor& base, Tensor out) override {
    const Mirror on(memory_, {words, base, out});
    ops_.CountBits(on(words), on(base), on(out));
  }
  void DoCountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base,
                      Tensor out) override {
    const Mirror on(memory_, {words, range, base, out});
    ops_.CountAnyBits(on(words), on(range), on(base), on(out));
  }
  void DoMoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out) override {
    const Mirror on(memory_, {words, out});
    ops_.MoveBits(on(words), first, skip, on(out));
  }
  void DoReadBits(const Tensor& words, int64_t first, Tensor out) override {
    const Mirror on(memory_, {words, out});
    ops_.ReadBits(on(words), first, on(out));
  }
  void DoAtLeast(const Tensor& x, int32_t least, Tensor out) override {
    const Mirror on(memory_, {x, out});
    ops_.AtLeast(on(x), least, on(out));
  }
  void DoColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high) override {
    const Mirror on(memory_, {x, low, high});
    ops_.ColumnRanges(on(x), trim, on(low), on(high));
  }

  MemoryOps& memory_ = *TestDevice().memory;
  SelectOps& ops_ = *TestDevice().select;
};

class MirroredAlgebra final : public AlgebraOps {
  void DoCosineSimilarity(const Tensor& a, const Tensor& b, Tensor out) override {
    const Mirror on(memory_, {a, b, out});
    ops_.CosineSimilarity(on(a), on(b), on(out));
  }
  void DoKMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment) override {
    const Mirror on(memory_, {x, centroids, assignment});
    ops_.KMeans(on(x), iterations, on(centroids), on(assignment));
  }
  void DoSvd(const Tensor& a, Tensor u, Tensor s, Tensor vt) override {
    const Mirror on(memory_, {a, u, s, vt});
    ops_.Svd(on(a), on(u), on(s), on(vt));
  }
  void DoEigenvectors(const Tensor& a, Tensor values, Tensor vectors) override {
    const Mirror on(memory_, {a, values, vectors});
    ops_.Eigenvectors(on(a), on(values), on(vectors));
  }
  void DoQr(const Tensor& a, Tensor q, Tensor r) override {
    const Mirror on(memory_, {a, q, r});
    ops_.Qr(on(a), on(q), on(r));
  }
  void DoHadamard(Tensor x) override {
    const Mirror on(memory_, {x});
    ops_.Hadamard(on(x));
  }
  void DoDirectionsBetween(const Tensor& a, const Tensor& b, double weight, Tensor out,
                           Tensor a_norm, Tensor b_norm) override {
    const Mirror on(memory_, {a, b, out, a_norm, b_norm});
    ops_.DirectionsBetween(on(a), on(b), weight, on(out), on(a_norm), on(b_norm));
  }

  MemoryOps& memory_ = *TestDevice().memory;
  AlgebraOps& ops_ = *TestDevice().algebra;
};

class MirroredState final : public StateOps {
  void DoConvolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past,
                  Tensor out) override {
    const Mirror on(memory_, {x, taps, bias, past, out});
    ops_.Convolve(on(x), on(taps), on(bias), on(past), on(out));
  }
  void DoScan(const StateScan& scan, Tensor state, Tensor out) override {
    const Mirror on(memory_, {scan.queries, scan.keys, scan.values, scan.steps, scan.weights,
                              scan.step_bias, scan.rates, scan.skip, state, out});
    StateScan there = scan;
    for (Tensor* t : {&there.queries, &there.keys, &there.values, &there.steps, &there.weights,
                      &there.step_bias, &there.rates, &there.skip}) {
      *t = on(*t);
    }
    ops_.Scan(there, on(state), on(out));
  }
  void DoScanColumns(const ColumnScan& scan, Tensor state, Tensor out) override {
    const Mirror on(memory_, {scan.queries, scan.keys, scan.values, scan.steps, scan.step_bias,
                              scan.rates, scan.skip, state, out});
    ops_.ScanColumns({.queries = on(scan.queries),
                      .keys = on(scan.keys),
                      .values = on(scan.values),
                      .steps = on(scan.steps),
                      .step_bias = on(scan.step_bias),
                      .rates = on(scan.rates),
                      .skip = on(scan.skip)},
                     on(state), on(out));
  }
  void DoScanAverages(const AverageScan& scan, Tensor state, Tensor out) override {
    const Mirror on(memory_, {scan.keys, scan.values, scan.rates, scan.first, state, out});
    ops_.ScanAverages({.keys = on(scan.keys),
                       .values = on(scan.values),
                       .rates = on(scan.rates),
                       .first = on(scan.first)},
                      on(state), on(out));
  }
  void DoScanDecays(const DecayScan& scan, Tensor state, Tensor out) override {
    const Mirror on(memory_, {scan.queries, scan.keys, scan.values, scan.rates, scan.finds,
                              scan.writes, state, out});
    ops_.ScanDecays({.queries = on(scan.queries),
                     .keys = on(scan.keys),
                     .values = on(scan.values),
                     .rates = on(scan.rates),
                     .finds = on(scan.finds),
                     .writes = on(scan.writes)},
                    on(state), on(out));
  }
  void DoScanBonus(const BonusScan& scan, Tensor state, Tensor out) override {
    const Mirror on(memory_,
                    {scan.queries, scan.keys, scan.values, scan.rates, scan.bonus, state, out});
    ops_.ScanBonus({.queries = on(scan.queries),
                    .keys = on(scan.keys),
                    .values = on(scan.values),
                    .rates = on(scan.rates),
                    .bonus = on(scan.bonus)},
                   on(state), on(out));
  }

  MemoryOps& memory_ = *TestDevice().memory;
  StateOps& ops_ = *TestDevice().state;
};

class MirroredLinear final : public LinearOps, public RoundedProducts {
  std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor> parts, int64_t, int64_t,
                                       DType store) override {
    return ops_.Pack(parts, store);
  }
  void DoMatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
                Tensor out) override {
    const Mirror on(memory_, {x, bias, out});
    ops_.MatMul(on(x), w, on(bias), mode, on(out));
  }
  void DoRoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding) override {
    RoundedProducts::Of(ops_)->RoundRowsOf(matrix, rounding);
  }
  std::unique_ptr<MatrixSet> DoCollect(std::vector<const PackedMatrix*> matrices) override {
    return ops_.Collect(std::move(matrices));
  }
  void DoMatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice,
                      Tensor out) override {
    const Mirror on(memory_, {x, choice, out});
    ops_.MatMulChosen(on(x), set, on(choice), on(out));
  }
  void DoMatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    const Mirror on(memory_, {a, b, out});
    ops_.MatMulNT(on(a), on(b), alpha, on(out));
  }
  void DoMatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    const Mirror on(memory_, {a, b, out});
    ops_.MatMulNN(on(a), on(b), alpha, on(out));
  }
  void DoEmbed(const Tensor& table, const Tensor& ids, float scale, Tensor out) override {
    const Mirror on(memory_, {table, ids, out});
    ops_.Embed(on(table), on(ids), scale, on(out));
  }

  MemoryOps& memory_ = *TestDevice().memory;
  LinearOps& ops_ = *TestDevice().linear;
};

}  // namespace

std::unique_ptr<Ops> MakeHostedDevice() {
  auto ops = std::make_unique<Ops>();
  ops->variant = TestDevice().variant;
  ops->rows = std::make_unique<MirroredRows>();
  ops->select = std::make_unique<MirroredSelect>();
  ops->algebra = std::make_unique<MirroredAlgebra>();
  ops->state = std::make_unique<MirroredState>();
  ops->linear = std::make_unique<MirroredLinear>();
  ops->codecs = MakeHostedCodec();
  ops->attention = MakeHostedAttention();
  return ops;
}

}  // namespace kvgauge
