// SPDX-License-Identifier: Apache-2.0
// StateOps against its twin, and against itself over cuts of a sequence and thread counts.
#include "kernels/state.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "core/rng.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

std::vector<float> Draw(int64_t count, uint64_t stream, float scale = 1.0f, float shift = 0.0f) {
  Rng rng(11, stream);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) v = shift + scale * static_cast<float>(rng.NextGaussian());
  return out;
}

struct ScanCase {
  int64_t rows, key_heads, heads, key_dim, value_dim;
  bool corrects, skips;
};
constexpr ScanCase kScans[] = {
    {7, 2, 4, 8, 6, true, false},      {1, 1, 1, 1, 1, true, false},
    {19, 1, 3, 33, 70, true, false},   {9, 2, 2, 16, 37, false, true},
    {33, 1, 4, 128, 128, true, false}, {12, 1, 6, 16, 64, false, true},
};

// Columns [column, column + heads * dim) of a matrix as [rows, heads, dim].
Tensor HeadsIn(Tensor t, int64_t column, int64_t heads, int64_t dim) {
  t.data = t.As<float>() + column;
  const int64_t width = t.shape[1];
  t.rank = 3;
  t.shape = {t.shape[0], heads, dim, 0};
  t.stride = {width, dim, 1, 0};
  return t;
}

// Numbers of a scan; rows lie in one matrix that has more columns.
struct ScanNumbers {
  explicit ScanNumbers(const ScanCase& c) : of(c) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
    rows = Draw(c.rows * width(), 1, unit);
    logits = Draw(c.rows * 2 * c.heads, 2, 2.0f);
    bias = Draw(c.heads, 3);
    rates = Draw(c.heads, 4);
    for (float& rate : rates) rate = -std::exp(rate - 1.0f);
    skip = Draw(c.heads, 5);
    state = Draw(c.heads * c.key_dim * c.value_dim, 6, unit);
  }
  int64_t width() const { return 2 * of.key_heads * of.key_dim + of.heads * of.value_dim + 3; }

  Tensor Heads(int64_t column, int64_t heads, int64_t dim) const {
    return HeadsIn(View(rows, {of.rows, width()}), column, heads, dim);
  }
  Tensor Logits(int64_t column) const {
    Tensor t = View(logits, {of.rows, 2 * of.heads});
    t.data = t.As<float>() + column;
    t.shape[1] = of.heads;
    return t;
  }
  StateScan Scan() const {
    const int64_t keys = of.key_heads * of.key_dim;
    StateScan scan = {.queries = Heads(0, of.key_heads, of.key_dim),
                      .keys = Heads(keys, of.key_heads, of.key_dim),
                      .values = Heads(2 * keys, of.heads, of.value_dim),
                      .steps = Logits(0),
                      .weights = of.corrects ? Logits(of.heads) : Tensor(),
                      .step_bias = View(bias, {of.heads}),
                      .rates = View(rates, {of.heads}),
                      .skip = of.skips ? View(skip, {of.heads}) : Tensor()};
    scan.corrects = of.corrects;
    scan.least_step = 0.01f;
    scan.most_step = 3.0f;
    return scan;
  }

  ScanCase of;
  std::vector<float> rows, logits, bias, rates, skip, state;
};

struct Scanned {
  std::vector<float> out, state;
};

// The sequence in calls of so many rows each.
// f(begin, end) of rows, so many at a time.
template <class Function>
void InPieces(int64_t rows, int64_t rows_each, const Function& f) {
  for (int64_t begin = 0; begin < rows; begin += rows_each) {
    f(begin, std::min(begin + rows_each, rows));
  }
}

Scanned RunScan(StateOps& ops, const ScanNumbers& numbers, int64_t rows_each) {
  const ScanCase& c = numbers.of;
  Scanned done = {std::vector<float>(static_cast<size_t>(c.rows * c.heads * c.value_dim)),
                  numbers.state};
  const Tensor out = View(done.out, {c.rows, c.heads, c.value_dim});
  const Tensor state = View(done.state, {c.heads, c.key_dim, c.value_dim});
  for (int64_t begin = 0; begin < c.rows; begin += rows_each) {
    const int64_t end = std::min(begin + rows_each, c.rows);
    StateScan scan = numbers.Scan();
    for (Tensor* t : {&scan.queries, &scan.keys, &scan.values, &scan.steps, &scan.weights}) {
      if (!t->empty()) *t = t->Slice(begin, end);
    }
    ops.Scan(scan, state, out.Slice(begin, end));
  }
  return done;
}

// A row's rounding: sums over key_dim of numbers that the state bounds, and what rows before it had
// to round, which decays no slower than the state does; keys are about of length 1.
double BoundOf(const Scanned& want, int64_t key_dim, int64_t rows) {
  double largest = 0;
  for (const float v : want.out) largest = std::max(largest, std::abs(double{v}));
  for (const float v : want.state) largest = std::max(largest, std::abs(double{v}));
  return kRound * largest * static_cast<double>(key_dim + 16) * static_cast<double>(rows + 1);
}

// `run(ops, rows each)` gives what the twin gives, and the same bits however rows are cut.
template <class Run>
void ExpectTwins(int64_t rows, double bound, const Run& run) {
  const auto twin = MakeReferenceState();
  const Scanned want = run(*twin, rows);
  EXPECT_TRUE(SameBits(run(*twin, 1).out, want.out));
  for (const auto& [name, ops] : CpuBackends(MakeCpuState, {1, 2, 4})) {
    const Scanned got = run(*ops, rows);
    EXPECT_TRUE(AllWithin(got.out, want.out, bound)) << name << ", " << rows << " rows";
    EXPECT_TRUE(AllWithin(got.state, want.state, bound)) << name << ", " << rows << " rows";
    for (const int64_t rows_each : {1, 5}) {
      const Scanned cut = run(*ops, rows_each);
      EXPECT_TRUE(SameBits(cut.out, got.out)) << name << ", " << rows_each << " rows each";
      EXPECT_TRUE(SameBits(cut.state, got.state)) << name << ", " << rows_each;
    }
  }
}

TEST(StateOps, ScansLikeTheTwin) {
  const auto twin = MakeReferenceState();
  for (const ScanCase& c : kScans) {
    const ScanNumbers numbers(c);
    const Scanned want = RunScan(*twin, numbers, c.rows);
    const double bound = BoundOf(want, c.key_dim, c.rows);
    for (const auto& [name, ops] : CpuBackends(MakeCpuState, {1, 2, 4})) {
      const Scanned got = RunScan(*ops, numbers, c.rows);
      EXPECT_TRUE(AllWithin(got.out, want.out, bound)) << name << " key dim " << c.key_dim;
      EXPECT_TRUE(AllWithin(got.state, want.state, bound)) << name << " key dim " << c.key_dim;
    }
  }
}

TEST(StateOps, CutsOfASequenceDoNotChangeItsBits) {
  auto backends = CpuBackends(MakeCpuState, {1, 4});
  backends.push_back({"reference", MakeReferenceState()});
  for (const auto& [name, ops] : backends) {
    for (const ScanCase& c : kScans) {
      const ScanNumbers numbers(c);
      const Scanned whole = RunScan(*ops, numbers, c.rows);
      for (const int64_t rows_each : {1, 5}) {
        const Scanned cut = RunScan(*ops, numbers, rows_each);
        EXPECT_TRUE(SameBits(cut.out, whole.out)) << name << ", " << rows_each << " rows each";
        EXPECT_TRUE(SameBits(cut.state, whole.state)) << name << ", " << rows_each;
      }
    }
  }
}

// By hand: one head, no decay to speak of, queries that read what keys wrote.
TEST(StateOps, TheDeltaRuleReplacesWhatAKeyFinds) {
  auto backends = CpuBackends(MakeCpuState);
  backends.push_back({"reference", MakeReferenceState()});
  const std::vector<float> keys = {1, 0, 1, 0}, values = {3, 5}, open = {100, 100};
  const std::vector<float> steps = {-100, -100}, zero = {0}, rate = {-1};
  for (const auto& [name, ops] : backends) {
    for (const bool corrects : {true, false}) {
      std::vector<float> state = {0, 0}, out = {0, 0};
      StateScan scan = {.queries = View(keys, {2, 1, 2}),
                        .keys = View(keys, {2, 1, 2}),
                        .values = View(values, {2, 1, 1}),
                        .steps = View(steps, {2, 1}),
                        .weights = View(open, {2, 1}),
                        .step_bias = View(zero, {1}),
                        .rates = View(rate, {1}),
                        .skip = {}};
      scan.corrects = corrects;
      ops->Scan(scan, View(state, {1, 2, 1}), View(out, {2, 1, 1}));
      EXPECT_EQ(out, (corrects ? std::vector<float>{3, 5} : std::vector<float>{3, 8})) << name;
      EXPECT_EQ(state, (std::vector<float>{out[1], 0})) << name;
    }
  }
}

// A selective scan; queries and keys lie in one matrix, as they are projected.
struct ColumnCase {
  int64_t rows, columns, key_dim;
  bool skips;
};
constexpr ColumnCase kColumnScans[] = {
    {7, 6, 8, true}, {1, 1, 1, false}, {19, 70, 16, true}, {9, 300, 5, false}, {33, 128, 16, true}};

struct ColumnNumbers {
  explicit ColumnNumbers(const ColumnCase& c) : of(c) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
    keys = Draw(c.rows * (2 * c.key_dim + 3), 21, unit);
    values = Draw(c.rows * (c.columns + 2), 22);
    steps = Draw(c.rows * c.columns, 23, 2.0f);
    bias = Draw(c.columns, 24);
    rates = Draw(c.key_dim * c.columns, 25);
    for (float& rate : rates) rate = -std::exp(rate - 1.0f);
    skip = Draw(c.columns, 26);
    state = Draw(c.key_dim * c.columns, 27, unit);
  }
  // Rows [begin, end).
  ColumnScan Scan(int64_t begin, int64_t end) const {
    const auto part = [&](const std::vector<float>& of_rows, int64_t width, int64_t first,
                          int64_t count) {
      Tensor t = View(of_rows, {of.rows, width});
      t.data = t.As<float>() + first;
      t.shape[1] = count;
      return t.Slice(begin, end);
    };
    const int64_t width = 2 * of.key_dim + 3;
    return {.queries = part(keys, width, of.key_dim + 1, of.key_dim),
            .keys = part(keys, width, 0, of.key_dim),
            .values = part(values, of.columns + 2, 1, of.columns),
            .steps = part(steps, of.columns, 0, of.columns),
            .step_bias = View(bias, {of.columns}),
            .rates = View(rates, {of.key_dim, of.columns}),
            .skip = of.skips ? View(skip, {of.columns}) : Tensor()};
  }

  ColumnCase of;
  std::vector<float> keys, values, steps, bias, rates, skip, state;
};

Scanned RunColumns(StateOps& ops, const ColumnNumbers& numbers, int64_t rows_each) {
  const ColumnCase& c = numbers.of;
  Scanned done = {std::vector<float>(static_cast<size_t>(c.rows * c.columns)), numbers.state};
  const Tensor out = View(done.out, {c.rows, c.columns});
  const Tensor state = View(done.state, {c.key_dim, c.columns});
  InPieces(c.rows, rows_each, [&](int64_t begin, int64_t end) {
    ops.ScanColumns(numbers.Scan(begin, end), state, out.Slice(begin, end));
  });
  return done;
}

// The bound of the scan above: here a decay and a product of two numbers are rounded in each row.
TEST(StateOps, ScansColumnsLikeTheTwinHoweverTheyAreCut) {
  const auto twin = MakeReferenceState();
  for (const ColumnCase& c : kColumnScans) {
    const ColumnNumbers numbers(c);
    const auto run = [&](StateOps& ops, int64_t rows_each) {
      return RunColumns(ops, numbers, rows_each);
    };
    ExpectTwins(c.rows, BoundOf(run(*twin, c.rows), c.key_dim, c.rows), run);
  }
}

// By hand: a step of log 2 halves where the rate is -1 and leaves a quarter where it is -2.
TEST(StateOps, ColumnsForgetByRatesOfTheirOwn) {
  auto backends = CpuBackends(MakeCpuState);
  backends.push_back({"reference", MakeReferenceState()});
  const std::vector<float> keys = {0, 0}, ones = {1, 1}, zeros = {0, 0}, rates = {-1, -2, -2, -1};
  for (const auto& [name, ops] : backends) {
    std::vector<float> state = {8, 8, 8, 16}, out = {0, 0};
    ops->ScanColumns({.queries = View(ones, {1, 2}),
                      .keys = View(keys, {1, 2}),
                      .values = View(ones, {1, 2}),
                      .steps = View(zeros, {1, 2}),
                      .step_bias = View(zeros, {2}),
                      .rates = View(rates, {2, 2}),
                      .skip = View(ones, {2})},
                     View(state, {2, 2}), View(out, {1, 2}));
    EXPECT_TRUE(AllWithin(state, std::vector<float>{4, 2, 2, 8}, 1e-5)) << name;
    EXPECT_TRUE(AllWithin(out, std::vector<float>{7, 11}, 1e-5)) << name;
  }
}

// Averages in time; keys far apart, so that what came before may weigh all or nothing.
struct AverageNumbers {
  AverageNumbers(int64_t row_count, int64_t column_count) : rows(row_count), columns(column_count) {
    keys = Draw(rows * (columns + 3), 31, 20.0f);
    values = Draw(rows * (columns + 2), 32);
    rates = Draw(columns, 33);
    for (float& rate : rates) rate = -std::exp(rate - 1.0f);
    first = Draw(columns, 34);
  }
  AverageScan Scan(int64_t begin, int64_t end) const {
    Tensor k = View(keys, {rows, columns + 3}), v = View(values, {rows, columns + 2});
    k.shape[1] = v.shape[1] = columns;
    return {.keys = k.Slice(begin, end),
            .values = v.Slice(begin, end),
            .rates = View(rates, {columns}),
            .first = View(first, {columns})};
  }

  int64_t rows, columns;
  std::vector<float> keys, values, rates, first;
};

Scanned RunAverages(StateOps& ops, const AverageNumbers& numbers, int64_t rows_each) {
  const int64_t rows = numbers.rows, columns = numbers.columns;
  Scanned done = {std::vector<float>(static_cast<size_t>(rows * columns)),
                  std::vector<float>(static_cast<size_t>(3 * columns))};
  const Tensor out = View(done.out, {rows, columns}), state = View(done.state, {3, columns});
  InPieces(rows, rows_each, [&](int64_t begin, int64_t end) {
    ops.ScanAverages(numbers.Scan(begin, end), state, out.Slice(begin, end));
  });
  return done;
}

// An exponential of a difference of two numbers up to 100 is off by the rounding of that
// difference, 100 units; sums and weights grow by at most 1 a row and lose as much.
TEST(StateOps, ScansAveragesLikeTheTwinHoweverTheyAreCut) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 6}, {19, 70}, {33, 300}}) {
    const AverageNumbers numbers(rows, columns);
    const double bound = kRound * 4 * 110 * static_cast<double>(rows + 1);
    ExpectTwins(rows, bound, [&](StateOps& ops, int64_t rows_each) {
      return RunAverages(ops, numbers, rows_each);
    });
  }
}

// By hand: weights halve from row to row, and a row's own is twice that of its key. Keys that no
// exponential of theirs is a float of weigh as others do.
TEST(StateOps, AveragesForgetAndNeverOverflow) {
  auto backends = CpuBackends(MakeCpuState);
  backends.push_back({"reference", MakeReferenceState()});
  const float half = -std::log(2.0f);
  const std::vector<float> values = {1, 4, -2}, rate = {half}, first = {-half};
  for (const auto& [name, ops] : backends) {
    for (const float key : {0.0f, 500.0f, -500.0f}) {
      const std::vector<float> keys(3, key);
      std::vector<float> state = {0, 0, 0}, out = {0, 0, 0};
      ops->ScanAverages({.keys = View(keys, {3, 1}),
                         .values = View(values, {3, 1}),
                         .rates = View(rate, {1}),
                         .first = View(first, {1})},
                        View(state, {3, 1}), View(out, {3, 1}));
      // (1 + 2 * 4) / (1 + 2); what was seen then is 1 / 2 + 4, of weight 1 / 2 + 1.
      EXPECT_TRUE(AllWithin(out, std::vector<float>{1, 3, 0.5f / 3.5f}, 1e-4)) << name << key;
      EXPECT_NEAR(state[0] / state[1], 0.25 / 1.75, 1e-4) << name << ", keys of " << key;
    }
  }
}

struct DecayNumbers {
  explicit DecayNumbers(const ScanCase& c) : of(c) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
    rows = Draw(c.rows * width(), 41, unit);
    rates = Draw(c.rows * c.heads * c.key_dim, 42);
    for (float& rate : rates) rate = -std::exp(rate - 1.5f);
    state = Draw(c.heads * c.key_dim * c.value_dim, 43, unit);
  }
  int64_t width() const { return of.heads * (4 * of.key_dim + of.value_dim) + 3; }
  DecayScan Scan(int64_t begin, int64_t end) const {
    const auto part = [&](int64_t column, int64_t dim) {
      return HeadsIn(View(rows, {of.rows, width()}), column, of.heads, dim).Slice(begin, end);
    };
    const int64_t keys = of.heads * of.key_dim;
    return {.queries = part(0, of.key_dim),
            .keys = part(keys, of.key_dim),
            .values = part(4 * keys, of.value_dim),
            .rates = View(rates, {of.rows, of.heads, of.key_dim}).Slice(begin, end),
            .finds = part(2 * keys, of.key_dim),
            .writes = part(3 * keys, of.key_dim)};
  }

  ScanCase of;
  std::vector<float> rows, rates, state;
};

Scanned RunDecays(StateOps& ops, const DecayNumbers& numbers, int64_t rows_each) {
  const ScanCase& c = numbers.of;
  Scanned done = {std::vector<float>(static_cast<size_t>(c.rows * c.heads * c.value_dim)),
                  numbers.state};
  const Tensor out = View(done.out, {c.rows, c.heads, c.value_dim});
  const Tensor state = View(done.state, {c.heads, c.key_dim, c.value_dim});
  InPieces(c.rows, rows_each, [&](int64_t begin, int64_t end) {
    ops.ScanDecays(numbers.Scan(begin, end), state, out.Slice(begin, end));
  });
  return done;
}

// The bound of the first scan: what a row finds is written back, about once as large.
TEST(StateOps, ScansDecaysLikeTheTwinHoweverTheyAreCut) {
  const auto twin = MakeReferenceState();
  for (const ScanCase& c : kScans) {
    const DecayNumbers numbers(c);
    const auto run = [&](StateOps& ops, int64_t rows_each) {
      return RunDecays(ops, numbers, rows_each);
    };
    ExpectTwins(c.rows, BoundOf(run(*twin, c.rows), c.key_dim, c.rows), run);
  }
}

// By hand: the first key dimension halves and the second stays; what is found at the second is
// taken from it, before a value is written to the first.
TEST(StateOps, EveryKeyDimensionDecaysByItself) {
  auto backends = CpuBackends(MakeCpuState);
  backends.push_back({"reference", MakeReferenceState()});
  const std::vector<float> ones = {1, 1}, second = {0, 1}, taken = {0, -1}, key = {1, 0};
  const std::vector<float> values = {3, 5}, rates = {-std::log(2.0f), 0};
  for (const auto& [name, ops] : backends) {
    std::vector<float> state = {8, 4, 6, 7}, out = {0, 0};
    ops->ScanDecays({.queries = View(ones, {1, 1, 2}),
                     .keys = View(key, {1, 1, 2}),
                     .values = View(values, {1, 1, 2}),
                     .rates = View(rates, {1, 1, 2}),
                     .finds = View(second, {1, 1, 2}),
                     .writes = View(taken, {1, 1, 2})},
                    View(state, {1, 2, 2}), View(out, {1, 1, 2}));
    EXPECT_TRUE(AllWithin(state, std::vector<float>{7, 7, 0, 0}, 1e-5)) << name;
    EXPECT_TRUE(AllWithin(out, std::vector<float>{7, 7}, 1e-5)) << name;
  }
}

struct BonusNumbers {
  explicit BonusNumbers(const ScanCase& c) : of(c) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(c.key_dim));
    rows = Draw(c.rows * width(), 51, unit);
    rates = Draw(c.rows * c.heads * c.key_dim, 52);
    for (float& rate : rates) rate = -std::exp(rate - 1.5f);
    bonus = Draw(c.heads * c.key_dim, 53);
    state = Draw(c.heads * c.key_dim * c.value_dim, 54, unit);
  }
  int64_t width() const { return of.heads * (2 * of.key_dim + of.value_dim) + 3; }
  BonusScan Scan(int64_t begin, int64_t end) const {
    const auto part = [&](int64_t column, int64_t dim) {
      return HeadsIn(View(rows, {of.rows, width()}), column, of.heads, dim).Slice(begin, end);
    };
    const int64_t keys = of.heads * of.key_dim;
    return {.queries = part(0, of.key_dim),
            .keys = part(keys, of.key_dim),
            .values = part(2 * keys, of.value_dim),
            .rates = View(rates, {of.rows, of.heads, of.key_dim}).Slice(begin, end),
            .bonus = of.skips ? View(bonus, {of.heads, of.key_dim}) : Tensor()};
  }

  ScanCase of;
  std::vector<float> rows, rates, bonus, state;
};

Scanned RunBonus(StateOps& ops, const BonusNumbers& numbers, int64_t rows_each) {
  const ScanCase& c = numbers.of;
  Scanned done = {std::vector<float>(static_cast<size_t>(c.rows * c.heads * c.value_dim)),
                  numbers.state};
  const Tensor out = View(done.out, {c.rows, c.heads, c.value_dim});
  const Tensor state = View(done.state, {c.heads, c.key_dim, c.value_dim});
  InPieces(c.rows, rows_each, [&](int64_t begin, int64_t end) {
    ops.ScanBonus(numbers.Scan(begin, end), state, out.Slice(begin, end));
  });
  return done;
}

// The bound of the first scan: a bonus is one more product in each sum.
TEST(StateOps, ScansBonusLikeTheTwinHoweverTheyAreCut) {
  const auto twin = MakeReferenceState();
  for (const ScanCase& c : kScans) {
    const BonusNumbers numbers(c);
    const auto run = [&](StateOps& ops, int64_t rows_each) {
      return RunBonus(ops, numbers, rows_each);
    };
    ExpectTwins(c.rows, BoundOf(run(*twin, c.rows), c.key_dim, c.rows), run);
  }
}

// By hand: a row reads the state before it, and of its own value 2 (twice the key's 1) and no more,
// while the first key dimension halves.
TEST(StateOps, RowsReadBeforeTheyWrite) {
  auto backends = CpuBackends(MakeCpuState);
  backends.push_back({"reference", MakeReferenceState()});
  const std::vector<float> ones = {1, 1}, key = {1, 0}, bonus = {2, 9};
  const std::vector<float> values = {3, 5}, rates = {-std::log(2.0f), 0};
  for (const auto& [name, ops] : backends) {
    for (const bool rewarded : {true, false}) {
      std::vector<float> state = {8, 4, 6, 7}, out = {0, 0};
      ops->ScanBonus({.queries = View(ones, {1, 1, 2}),
                      .keys = View(key, {1, 1, 2}),
                      .values = View(values, {1, 1, 2}),
                      .rates = View(rates, {1, 1, 2}),
                      .bonus = rewarded ? View(bonus, {1, 2}) : Tensor()},
                     View(state, {1, 2, 2}), View(out, {1, 1, 2}));
      EXPECT_TRUE(AllWithin(state, std::vector<float>{7, 7, 6, 7}, 1e-5)) << name;
      const std::vector<float> want = {rewarded ? 20.0f : 14.0f, rewarded ? 21.0f : 11.0f};
      EXPECT_TRUE(AllWithin(out, want, 1e-5)) << name << rewarded;
    }
  }
}

struct Convolved {
  std::vector<float> out, past;
};

Convolved RunConvolve(StateOps& ops, int64_t rows, int64_t columns, int64_t width, bool biased,
                      int64_t rows_each) {
  const std::vector<float> x = Draw(rows * (columns + 2), 7), taps = Draw(width * columns, 8);
  const std::vector<float> bias = Draw(columns, 9);
  Convolved done = {std::vector<float>(static_cast<size_t>(rows * columns)),
                    Draw((width - 1) * columns, 10)};
  done.past.reserve(1);  // a view of nothing is a view all the same
  Tensor in = View(x, {rows, columns + 2});
  in.shape[1] = columns;
  for (int64_t begin = 0; begin < rows; begin += rows_each) {
    const int64_t end = std::min(begin + rows_each, rows);
    ops.Convolve(in.Slice(begin, end), View(taps, {width, columns}),
                 biased ? View(bias, {columns}) : Tensor(), View(done.past, {width - 1, columns}),
                 View(done.out, {rows, columns}).Slice(begin, end));
  }
  return done;
}

TEST(StateOps, ConvolvesLikeTheTwinHoweverItIsCut) {
  const auto twin = MakeReferenceState();
  for (const int64_t width : {1, 2, 4, 7}) {
    for (const bool biased : {false, true}) {
      const Convolved want = RunConvolve(*twin, 11, 45, width, biased, 11);
      for (const auto& [name, ops] : CpuBackends(MakeCpuState, {1, 4})) {
        const Convolved got = RunConvolve(*ops, 11, 45, width, biased, 11);
        // Numbers of up to 4 standard deviations.
        const double bound = kRound * static_cast<double>((width + 2) * (width + 2)) * 16;
        EXPECT_TRUE(AllWithin(got.out, want.out, bound)) << name << " width " << width;
        EXPECT_TRUE(SameBits(got.past, want.past)) << name << " width " << width;
        for (const int64_t rows_each : {1, 2, 5}) {
          const Convolved cut = RunConvolve(*ops, 11, 45, width, biased, rows_each);
          EXPECT_TRUE(SameBits(cut.out, got.out)) << name << ", " << rows_each << " rows each";
          EXPECT_TRUE(SameBits(cut.past, got.past)) << name << ", " << rows_each;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge
