// SPDX-License-Identifier: Apache-2.0
#include "src/doctor/device_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>

#include "core/clock.h"
#include "core/rng.h"
#include "core/strings.h"
#include "kernels/library.h"
#include "kernels/ops.h"

namespace kvgauge {
namespace {

std::vector<float> Noise(int64_t count, uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(2 * rng.NextDouble() - 1);
  return values;
}

// Tensors of one case on one backend.
class CaseTensors {
 public:
  explicit CaseTensors(Ops& ops) : ops_(ops) {}

  Ops& ops() { return ops_; }
  Tensor New(std::initializer_list<int64_t> dims, DType dtype = DType::kF32) {
    const int64_t bytes = std::max<int64_t>(Tensor(nullptr, dtype, dims).SizeBytes(), 1);
    memory_.push_back(ops_.memory->Allocate(bytes));
    return memory_.back().As(dtype, dims);
  }
  Tensor Random(std::initializer_list<int64_t> dims, uint64_t seed) {
    const Tensor t = New(dims);
    const std::vector<float> values = Noise(t.Numel(), seed);
    ops_.memory->Copy(View(values, {t.Numel()}), t.Reshape({t.Numel()}));
    return t;
  }
  Tensor Integers(const std::vector<int32_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const Tensor t = New({count}, DType::kI32);
    ops_.memory->Copy(View(values, {count}), t);
    return t;
  }
  std::unique_ptr<PackedMatrix> Weights(int64_t n, int64_t k, DType dtype, uint64_t seed) {
    const std::vector<float> values = Noise(n * k, seed);
    const Tensor part = View(values, {n, k});
    return ops_.linear->Pack({&part, 1}, dtype);
  }
  std::vector<float> Floats(const Tensor& t) {
    Tensor wide = t;
    if (t.dtype != DType::kF32) {
      wide = New({t.shape[0], t.shape[1]});
      ops_.rows->Convert(t, wide);
    }
    std::vector<float> values(static_cast<size_t>(wide.Numel()));
    ops_.memory->Copy(wide, View(values, {wide.Numel()}));
    return values;
  }
  std::vector<float> Indices(const Tensor& t) {
    std::vector<int32_t> values(static_cast<size_t>(t.Numel()));
    ops_.memory->Copy(t, View(values, {t.Numel()}));
    return {values.begin(), values.end()};
  }
  void* Block(int64_t size_bytes) {
    memory_.push_back(ops_.memory->Allocate(size_bytes));
    return memory_.back().data();
  }

 private:
  Ops& ops_;
  std::vector<Buffer> memory_;
};

// One sequence's cache of random keys and values, and query rows at its end.
class Cached {
 public:
  Cached(CaseTensors& stage, KvFormat format, int64_t query_heads, int64_t kv_heads,
         int64_t entries, int64_t rows, KvCodec codec = {})
      : stage_(stage), codec_(codec), values_codec_(codec), format_(format), rows_(rows) {
    const int64_t pages = (entries + kKvPageEntries - 1) / kKvPageEntries;
    codec_.dim = format.key_dim;
    values_codec_.dim = format.value_dim;
    values_codec_.side = KvSide::kValues;
    const int64_t coded = codec_.coded() ? entries / kKvPageEntries * kKvPageEntries : 0;
    shape_ = {.format = format,
              .query_heads = query_heads,
              .kv_heads = kv_heads,
              .scale = 1.0f / std::sqrt(static_cast<float>(format.key_dim))};
    pages_.resize(static_cast<size_t>(kv_heads));
    segments_.resize(static_cast<size_t>(kv_heads));
    const Tensor keys = stage.Random({std::min(entries, kChunk), format.key_dim}, 7);
    const Tensor values = stage.Random({std::min(entries, kChunk), format.value_dim}, 8);
    for (size_t h = 0; h < pages_.size(); ++h) {
      Pages& own = pages_[h];
      for (int64_t p = 0; p < pages; ++p) {
        const bool is_coded = p * kKvPageEntries < coded;
        const auto block = [&](bool wanted, int64_t bytes) {
          return wanted ? stage.Block(bytes) : nullptr;
        };
        Ops& ops = stage.ops();
        own.keys.push_back(block(!is_coded, ops.attention->KeyPageBytes(format)));
        own.values.push_back(block(!is_coded, ops.attention->ValuePageBytes(format)));
        own.coded_keys.push_back(block(is_coded, is_coded ? ops.codecs->PageBytes(codec_) : 0));
        own.coded_values.push_back(
            block(is_coded, is_coded ? ops.codecs->PageBytes(values_codec_) : 0));
      }
      for (int64_t first = 0; first < entries;) {
        const int64_t end = first < coded ? coded : entries;
        const int64_t count = std::min(kChunk, end - first);
        Fill(own, first, keys.Slice(0, count), values.Slice(0, count), first < coded);
        first += count;
      }
      KvSegment& segment = segments_[h];
      segment.key_pages = own.keys.data();
      segment.value_pages = own.values.data();
      segment.length = entries;
      if (coded > 0) {
        segment.keys = {&codec_, {.codes = own.coded_keys.data()}, coded};
        segment.values = {&values_codec_, {.codes = own.coded_values.data()}, coded};
      }
      heads_.push_back({&segment, 1});
    }
    q_ = stage.Random({rows, query_heads, format.key_dim}, 9);
    out_ = stage.New({rows, query_heads, format.value_dim});
    log_sums_ = stage.New({query_heads, rows});
    item_ = {.rows = rows, .heads = heads_};
  }
  Cached(const Cached&) = delete;
  Cached& operator=(const Cached&) = delete;

  Tensor Attend() {
    AttentionCapture capture;
    capture.log_sum_exp = log_sums_;
    stage_.ops().attention->Attend(shape_, {&item_, 1}, q_, out_, capture);
    return out_.Reshape({rows_ * shape_.query_heads, format_.value_dim});
  }
  // Of the one row: what attends next.
  Tensor Queries() const { return q_.Reshape({1, q_.shape[1] * q_.shape[2]}); }
  Tensor ColumnSums() {
    const int64_t entries = segments_[0].length;
    item_.first_position = entries - rows_;
    if (sums_.empty()) sums_ = stage_.New({shape_.query_heads, entries});
    ColumnRequest request;
    request.rows = rows_;
    stage_.ops().attention->ReduceColumns(shape_, item_, q_, log_sums_, request, sums_);
    return sums_;
  }
  // What one Attend must read of the cache.
  double bytes() const {
    const int64_t coded = segments_[0].keys.entries, plain = segments_[0].length - coded;
    const int64_t dims = format_.key_dim + format_.value_dim;
    double one = static_cast<double>(plain * dims * SizeOf(format_.dtype));
    if (coded > 0) {
      one += static_cast<double>(CodedBytes(codec_, coded).logical() +
                                 CodedBytes(values_codec_, coded).logical());
    }
    return one * static_cast<double>(segments_.size());
  }

 private:
  static constexpr int64_t kChunk = 4096;
  struct Pages {
    std::vector<void*> keys, values, coded_keys, coded_values;
  };

  void Fill(Pages& own, int64_t first, const Tensor& keys, const Tensor& values, bool coded) {
    Ops& ops = stage_.ops();
    if (coded) {
      ops.codecs->Encode(codec_, keys, first, {.codes = own.coded_keys.data()});
      ops.codecs->Encode(values_codec_, values, first, {.codes = own.coded_values.data()});
      return;
    }
    const KvTarget target = {own.keys.data(), own.values.data(), first};
    ops.attention->WriteKv(format_, keys.Reshape({keys.shape[0], 1, format_.key_dim}),
                           values.Reshape({values.shape[0], 1, format_.value_dim}), {&target, 1});
  }

  CaseTensors& stage_;
  KvCodec codec_, values_codec_;
  KvFormat format_;
  int64_t rows_;
  AttentionShape shape_;
  std::vector<Pages> pages_;
  std::vector<KvSegment> segments_;
  std::vector<KvHead> heads_;
  AttentionItem item_;
  Tensor q_, out_, log_sums_, sums_;
};

KvCodec Affine(int bits, CodeAxis axis, int64_t group) {
  KvCodec codec;
  codec.kind = KvCodecKind::kAffine;
  codec.bits = bits;
  codec.axis = axis;
  codec.group = group;
  return codec;
}
KvCodec OfKind(KvCodecKind kind) {
  KvCodec codec;
  codec.kind = kind;
  return codec;
}

// Decode steps of one sequence: layers that share their weights and a cache, as long as a step of a
// model of that width.
class Step {
 public:
  Step(CaseTensors& stage, int64_t heads, int64_t head_dim, int64_t layers, int64_t entries)
      : ops_(stage.ops()),
        layers_(layers),
        width_(heads * head_dim),
        ffn_(width_ * 7 / 2),
        cached_(stage, {DType::kF16, head_dim, head_dim}, heads, std::max<int64_t>(heads / 4, 1),
                entries, 1),
        query_(stage.Weights(width_, width_, DType::kBF16, 21)),
        output_(stage.Weights(width_, width_, DType::kBF16, 22)),
        up_(stage.Weights(2 * ffn_, width_, DType::kBF16, 23)),
        down_(stage.Weights(width_, ffn_, DType::kBF16, 24)),
        gain_(stage.Random({width_}, 25)),
        x_(stage.New({1, width_})),
        normed_(stage.New({1, width_}, DType::kBF16)),
        gated_(stage.New({1, 2 * ffn_})),
        active_(stage.New({1, ffn_}, DType::kBF16)) {}

  void Submit(const std::vector<float>& input) {
    ops_.memory->Copy(View(input, {1, width_}), x_);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      ops_.rows->RmsNorm(x_, gain_, 0, 1e-5f, normed_);
      ops_.linear->MatMul(normed_, *query_, {}, MatMulMode::kSet, cached_.Queries());
      const Tensor attended = cached_.Attend().Reshape({1, width_});
      ops_.linear->MatMul(attended, *output_, {}, MatMulMode::kAdd, x_);
      ops_.rows->RmsNorm(x_, gain_, 0, 1e-5f, normed_);
      ops_.linear->MatMul(normed_, *up_, {}, MatMulMode::kSet, gated_);
      ops_.rows->GatedActivate(gated_, Activation::kSilu, active_);
      ops_.linear->MatMul(active_, *down_, {}, MatMulMode::kAdd, x_);
    }
  }
  int64_t width() const { return width_; }
  const Tensor& result() const { return x_; }
  // What one step must read.
  double bytes() const {
    const int64_t weights = query_->bytes() + output_->bytes() + up_->bytes() + down_->bytes();
    return static_cast<double>(layers_) * (static_cast<double>(weights) + cached_.bytes());
  }

 private:
  Ops& ops_;
  int64_t layers_, width_, ffn_;
  Cached cached_;
  std::unique_ptr<PackedMatrix> query_, output_, up_, down_;
  Tensor gain_, x_, normed_, gated_, active_;
};

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
      {"int8 token", DType::kF16, Affine(8, CodeAxis::kToken, 32), 2e-3},
      {"int4 channel", DType::kF16, Affine(4, CodeAxis::kChannel, 32), 4e-3},
      {"int2 channel", DType::kF16, Affine(2, CodeAxis::kChannel, 32), 4e-3},
      {"q8_0", DType::kF16, OfKind(KvCodecKind::kQ8_0), 2e-3},
      {"q4_0", DType::kF16, OfKind(KvCodecKind::kQ4_0), 4e-3},
      {"fp8", DType::kF16, OfKind(KvCodecKind::kFp8E4M3), 2e-3},
  };
  for (const KeptAs& store : stores) {
    const KvFormat format = {store.dtype, 64, 64};
    const KvCodec codec = store.codec;
    for (const int64_t rows : {1, 40}) {
      cases.push_back({StrCat("Attend ", store.name), StrCat(rows, " rows, 4/2 heads, 700 entries"),
                       store.bound, [format, codec, rows](CaseTensors& s) {
                         Cached cached(s, format, 4, 2, 700, rows, codec);
                         return s.Floats(cached.Attend());
                       }});
    }
  }
  cases.push_back(
      {"ReduceColumns f16", "40 rows, 4/2 heads, 700 entries", 2e-3, [](CaseTensors& s) {
         Cached cached(s, {DType::kF16, 64, 64}, 4, 2, 700, 40);
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
  Step step(s, 4, 64, 3, 700);
  const std::unique_ptr<RepeatedWork> work = device.memory->MakeRepeatedWork();
  double error = 0;
  for (uint64_t i = 0; i < kSteps; ++i) {
    const std::vector<float> input = Noise(step.width(), i);
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

// Seconds of one call: the median of several timed runs, each long enough to be measured.
double SecondsOf(Ops& ops, const std::function<void()>& call) {
  constexpr double kLeastSeconds = 0.02;
  constexpr int kRuns = 5;
  call();
  ops.memory->Synchronize();
  int64_t repeats = 1;
  std::vector<double> seconds;
  while (static_cast<int>(seconds.size()) < kRuns) {
    const double start = NowSeconds();
    for (int64_t i = 0; i < repeats; ++i) call();
    ops.memory->Synchronize();
    const double elapsed = NowSeconds() - start;
    if (seconds.empty() && elapsed < kLeastSeconds) {
      repeats *= 2;
    } else {
      seconds.push_back(elapsed / static_cast<double>(repeats));
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
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
  AddLinear(cases);
  AddAttention(cases);
  const Result<std::unique_ptr<Ops>> reference = MakeOps("reference", {});
  KVG_CHECK(reference.ok(), "the reference backend is always there");
  std::vector<DeviceCheckRow> rows;
  for (const Case& c : cases) {
    CaseTensors there(device), here(**reference);
    const double error = RelativeError(c.run(there), c.run(here));
    rows.push_back({c.op, c.shape, error, c.bound, error <= c.bound});
  }
  rows.push_back(CheckRepeatedSteps(device));
  return rows;
}

double MeasureCopy(Ops& device, int64_t size_bytes) {
  CaseTensors s(device);
  const Tensor from = s.New({size_bytes}, DType::kU8), to = s.New({size_bytes}, DType::kU8);
  const double seconds = SecondsOf(device, [&] { device.memory->Copy(from, to); });
  return 2.0 * static_cast<double>(size_bytes) / seconds * 1e-9;
}

void MeasureRates(Ops& device, int64_t entries, DeviceCheck* check) {
  const int64_t scale = std::max<int64_t>(entries / 1024, 1);
  check->copy_gbs = MeasureCopy(device, scale << 23);
  const auto add_flops = [&](const std::string& op, const std::string& shape, double aim,
                             double flops, const std::function<void()>& call) {
    const double seconds = SecondsOf(device, call), rate = flops / seconds * 1e-12;
    if (check->product_tflops == 0) check->product_tflops = rate;
    const double share = rate / check->product_tflops;
    check->rates.push_back({op, shape, seconds * 1e3, rate, share, aim, true});
  };
  const auto add_bytes = [&](const std::string& op, const std::string& shape, double aim,
                             double bytes, const std::function<void()>& call) {
    const double seconds = SecondsOf(device, call), rate = bytes / seconds * 1e-9;
    const double share = rate / check->copy_gbs;
    check->rates.push_back({op, shape, seconds * 1e3, rate, share, aim, false});
  };

  // A device's cache holds a smaller matrix.
  const int64_t widest = device.device == Device::kHost ? 4096 : 8192;
  const int64_t width = std::min(128 * scale, widest);
  check->product_by = "our kernel";
  if (const auto library = MakeLibraryProduct(device); library.ok()) {
    CaseTensors s(device);
    check->product_by = (*library)->name();
    const auto random = [&](uint64_t seed) {
      const Tensor narrow = s.New({width, width}, DType::kBF16);
      device.rows->Convert(s.Random({width, width}, seed), narrow);
      return narrow;
    };
    const Tensor x = random(2), w = random(1), out = s.New({width, width}, DType::kBF16);
    const auto side = static_cast<double>(width);
    add_flops(StrCat("MatMul bf16, ", check->product_by), StrCat(width, " x ", width, " x ", width),
              0, 2 * side * side * side, [&] { (*library)->Multiply(x, w, out); });
  }
  {
    CaseTensors s(device);
    const auto w = s.Weights(width, width, DType::kBF16, 1);
    for (const int64_t m : {width, int64_t{1}, int64_t{16}, int64_t{64}}) {
      const Tensor x = s.Random({m, width}, 2), out = s.New({m, width});
      const auto call = [&] { device.linear->MatMul(x, *w, {}, MatMulMode::kSet, out); };
      const std::string shape = StrCat(m, " x ", width, " x ", width);
      if (m == width) {
        const auto side = static_cast<double>(width);
        add_flops("MatMul bf16", shape, 0, 2 * side * side * side, call);
      } else {
        add_bytes("MatMul bf16", shape, 0, static_cast<double>(w->bytes()), call);
      }
    }
  }

  struct KeptAs {
    const char* name;
    KvCodec codec;
    double aim;  // at kLongCache entries a head and more
  };
  constexpr int64_t kLongCache = 32768;
  const KeptAs stores[] = {{"f16", {}, 0.8},
                           {"int4", Affine(4, CodeAxis::kChannel, 64), 0.6},
                           {"int2", Affine(2, CodeAxis::kChannel, 64), 0.6},
                           {"q8_0", OfKind(KvCodecKind::kQ8_0), 0}};
  for (const KeptAs& store : stores) {
    CaseTensors s(device);
    Cached cached(s, {DType::kF16, 128, 128}, 32, 8, entries, 1, store.codec);
    add_bytes(StrCat("decode attention ", store.name), StrCat("32/8 heads, ", entries),
              entries >= kLongCache ? store.aim : 0, cached.bytes(), [&] { cached.Attend(); });
  }
  {
    CaseTensors s(device);
    constexpr int64_t kLayers = 32;
    const auto heads = std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(scale, 32)));
    Step step(s, static_cast<int64_t>(heads), 128, kLayers, entries);
    const std::vector<float> input = Noise(step.width(), 1);
    const std::string shape = StrCat(kLayers, " layers of ", step.width(), ", ", entries);
    // Each is waited for, as the next needs its token.
    add_bytes("decode step", shape, 0, step.bytes(), [&] {
      step.Submit(input);
      device.memory->Synchronize();
    });
    const std::unique_ptr<RepeatedWork> work = device.memory->MakeRepeatedWork();
    add_bytes("decode step at once", shape, 0, step.bytes(), [&] {
      work->Run([&] { step.Submit(input); });
      device.memory->Synchronize();
    });
  }
  {
    CaseTensors s(device);
    const int64_t rows = std::min<int64_t>(entries, 8192);
    Cached cached(s, {DType::kBF16, 128, 128}, 32, 8, rows, rows);
    const auto n = static_cast<double>(rows);
    const std::string shape = StrCat("32/8 heads, ", rows, " rows");
    add_flops("prefill attention bf16", shape, 0.5, 2 * n * n * 128 * 32, [&] { cached.Attend(); });
    add_flops("column sums bf16", shape, 0, n * n * 128 * 32, [&] { cached.ColumnSums(); });
  }
}

}  // namespace kvgauge
