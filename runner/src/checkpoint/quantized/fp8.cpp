// SPDX-License-Identifier: Apache-2.0
// FP8: a weight of one byte a number, times a scale of its block, its row or the whole matrix.
// DeepSeek-V3's and Qwen3's files call the scale "weight_scale_inv" and mean the factor itself.
#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/quantized/stored.h"

namespace kvgauge {
namespace {

struct Fp8Matrix {
  RawTensor weight;
  int64_t rows = 0, columns = 0;
  int64_t block_rows = 0, block_columns = 0;  // what shares a scale
};

// How far one scale reaches, from its shape and what the config says.
Result<Fp8Matrix> Fp8Layout(const WeightSource& source, const QuantScheme& scheme,
                            const std::string& name, const std::string& scale) {
  Fp8Matrix matrix;
  KVG_ASSIGN(matrix.weight, source.GetStored(name));
  if (matrix.weight.shape.size() != 2) {
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " of ",
                           matrix.weight.type, " has shape ", ShapeOfStored(matrix.weight.shape),
                           ", expected a matrix"));
  }
  matrix.rows = matrix.weight.shape[0];
  matrix.columns = matrix.weight.shape[1];
  const std::vector<std::string_view> floats = {"F32", "BF16", "F16", "F8_E8M0"};
  if (scheme.scale == QuantScheme::Scale::kBlock) {
    matrix.block_rows = scheme.block_rows;
    matrix.block_columns = scheme.block_columns;
    const int64_t down = (matrix.rows + scheme.block_rows - 1) / scheme.block_rows;
    const int64_t across = (matrix.columns + scheme.block_columns - 1) / scheme.block_columns;
    KVG_TRY(StoredOf(source, scale, floats, {{down, across}},
                     StrCat(ShapeOfStored(matrix.weight.shape), " in blocks of ", scheme.block_rows,
                            " x ", scheme.block_columns)));
    return matrix;
  }
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {1}, {1, 1}, {matrix.rows, 1}, {matrix.rows}};
  KVG_ASSIGN(const RawTensor stored,
             StoredOf(source, scale, floats, shapes, "one scale, or one a row"));
  int64_t count = 1;
  for (const int64_t size : stored.shape) count *= size;
  matrix.block_rows = count == 1 ? std::max<int64_t>(matrix.rows, 1) : 1;
  matrix.block_columns = std::max<int64_t>(matrix.columns, 1);
  return matrix;
}

}  // namespace

Result<QuantizedPlan> PlanFp8(const WeightSource& source, const QuantizationConfig& config) {
  QuantizedPlan plan;
  constexpr std::string_view kWeight = ".weight";
  for (const std::string& name : source.Names()) {
    KVG_ASSIGN(const RawTensor stored, source.GetStored(name));
    if (stored.type != "F8_E4M3" && stored.type != "F8_E5M2") continue;
    if (!name.ends_with(kWeight)) {
      return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " is ",
                             stored.type, ", expected the name of a weight"));
    }
    const std::string module = name.substr(0, name.size() - kWeight.size());
    KVG_TRY(CheckNotPlain(source, config, module, name));
    std::string scale = name + "_scale_inv";
    if (!source.Contains(scale)) scale = name + "_scale";
    if (!source.Contains(scale)) {
      return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " is ",
                             stored.type, ", but there is no scale '", name, "_scale_inv' or '",
                             name, "_scale'"));
    }
    KVG_ASSIGN(const Fp8Matrix matrix, Fp8Layout(source, config.schemes.front(), name, scale));
    plan.parts.insert(scale);
    for (const char* of_inputs : {".input_scale", ".activation_scale"}) {
      if (source.Contains(module + of_inputs)) plan.parts.insert(module + of_inputs);
    }
    MadeTensor made{.stored = name, .shape = stored.shape, .open = nullptr};
    made.inputs = InputsOf(source, config, config.schemes.front().inputs, module);
    made.open = [&source, matrix, scale]() -> Result<RowMaker> {
      KVG_ASSIGN(std::vector<float> scales, FiniteNumbers(source, scale));
      const float* numbers = ByteNumbers(matrix.weight.type);
      const int64_t across = (matrix.columns + matrix.block_columns - 1) / matrix.block_columns;
      return RowMaker([matrix, numbers, across, scales = std::move(scales)](
                          int64_t first, int64_t count, float* out) {
        const uint8_t* codes = matrix.weight.bytes.data() + first * matrix.columns;
        for (int64_t row = first; row < first + count; ++row) {
          const float* factor = scales.data() + row / matrix.block_rows * across;
          for (int64_t begin = 0; begin < matrix.columns; begin += matrix.block_columns, ++factor) {
            const int64_t end = std::min(begin + matrix.block_columns, matrix.columns);
            for (int64_t i = begin; i < end; ++i) *out++ = numbers[*codes++] * *factor;
          }
        }
      });
    };
    plan.made.emplace(name, std::move(made));
  }
  return plan;
}

}  // namespace kvgauge
