// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/quantized/words.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr std::string_view kCodes = ".qweight";

struct WordRows {
  WordMatrix matrix;
  CodeReader read;
  std::vector<float> scales, zeros;  // [groups, rows]
  std::vector<int64_t> groups;       // of inputs; empty: in order

  void Make(int64_t first, int64_t count, float* out) const {
    for (int64_t i = 0; i < matrix.columns; ++i) {
      const int64_t group = groups.empty() ? i / matrix.group_size : groups[static_cast<size_t>(i)];
      const float* scale = scales.data() + group * matrix.rows + first;
      const float* zero = zeros.data() + group * matrix.rows + first;
      read(i, first, count, out + i, matrix.columns);
      for (int64_t j = 0; j < count; ++j) {
        float& number = out[j * matrix.columns + i];
        number = (number - zero[j]) * scale[j];
      }
    }
  }
};

// Writers add a bias of zeros to modules that have none.
bool IsZeroBias(const WeightSource& source, const std::string& name) {
  if (!source.Contains(name)) return false;
  const Result<RawTensor> stored = source.GetStored(name);
  return stored.ok() && std::ranges::all_of(stored->bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

std::vector<std::string> WordModules(const WeightSource& source) {
  std::vector<std::string> modules;
  for (const std::string& name : source.Names()) {
    if (name.ends_with(kCodes)) modules.push_back(name.substr(0, name.size() - kCodes.size()));
  }
  return modules;
}

Result<WordMatrix> ReadWordMatrix(const WeightSource& source, const QuantScheme& scheme,
                                  const std::string& module, const WordShape& shape) {
  WordMatrix matrix{.module = module,
                    .codes = {},
                    .zeros = {},
                    .bits = static_cast<int>(scheme.bits),
                    .rows = shape.rows,
                    .columns = shape.columns};
  const std::string codes = module + ".qweight", zeros = module + ".qzeros",
                    scales = module + ".scales", order = module + ".g_idx";
  const std::string where = StrCat(source.OriginOf(codes), ": tensor ", Quoted(codes, 120));
  for (const std::string& part : {zeros, scales}) {
    if (source.Contains(part)) continue;
    return BadInput(StrCat(where, " comes without ", Quoted(part, 120)));
  }
  matrix.group_size =
      scheme.group_size > 0 ? scheme.group_size : std::max<int64_t>(shape.columns, 1);
  KVG_ASSIGN(matrix.groups, GroupCount(shape.columns, matrix.group_size, where));
  const std::string because =
      StrCat(shape.columns, " inputs and ", shape.rows, " outputs, ", scheme.Title());
  KVG_ASSIGN(matrix.codes, StoredOf(source, codes, {"I32"}, {shape.codes}, because));
  KVG_ASSIGN(matrix.zeros,
             StoredOf(source, zeros, {"I32"}, {{matrix.groups, shape.zero_words}}, because));
  KVG_TRY(StoredOf(source, scales, {"F16", "BF16", "F32"}, {{matrix.groups, shape.rows}}, because));
  if (source.Contains(order)) {
    matrix.order = true;
    KVG_TRY(StoredOf(source, order, {"I32", "I64"}, {{shape.columns}}, because));
  } else if (scheme.ordered) {
    return BadInput(StrCat(where, " is in act order, but comes without ", Quoted(order, 120)));
  }
  return matrix;
}

void AddWordMatrix(const WeightSource& source, const WordMatrix& matrix, CodeReader read,
                   std::function<Result<std::vector<float>>()> zeros, QuantizedPlan& plan) {
  const std::string& module = matrix.module;
  for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
    plan.parts.insert(module + part);
  }
  if (IsZeroBias(source, module + ".bias")) plan.idle.insert(module + ".bias");
  MadeTensor made{
      .stored = module + ".qweight", .shape = {matrix.rows, matrix.columns}, .open = nullptr};
  made.open = [&source, matrix, read = std::move(read),
               zeros = std::move(zeros)]() -> Result<RowMaker> {
    auto rows = std::make_shared<WordRows>();
    rows->matrix = matrix;
    rows->read = read;
    KVG_ASSIGN(rows->scales, FiniteNumbers(source, matrix.module + ".scales"));
    KVG_ASSIGN(rows->zeros, zeros());
    if (matrix.order) {
      KVG_ASSIGN(rows->groups,
                 IntegersWithin(source, matrix.module + ".g_idx", 0, matrix.groups - 1));
    }
    return RowMaker(
        [rows](int64_t first, int64_t count, float* out) { rows->Make(first, count, out); });
  };
  plan.made.emplace(module + ".weight", std::move(made));
}

}  // namespace kvgauge
