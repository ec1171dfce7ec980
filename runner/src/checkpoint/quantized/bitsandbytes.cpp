// SPDX-License-Identifier: Apache-2.0
// bitsandbytes as transformers saves it. Four bits: codes of a table (NF4 or FP4), the high half of
// a byte first, times the largest magnitude of their block, which may be quantised in turn. Int8:
// bytes times a magnitude of their row over 127.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/quantized/stored.h"
#include "src/config/config_reader.h"

namespace kvgauge {
namespace {

using FourBitCode = std::array<float, 16>;

// QLoRA's NormalFloat: levels that a normal distribution fills evenly.
constexpr FourBitCode kNf4 = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};
constexpr FourBitCode kFp4 = {
    0.0f, 0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};
constexpr float kCodeTolerance = 1e-6f;
constexpr int64_t kMostStateBytes = int64_t{1} << 16;
constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr std::string_view kScb = ".SCB";

struct FourBitMatrix {
  std::string weight;
  std::string code;
  RawTensor codes;
  int64_t rows = 0, columns = 0, block = 0;
  bool nested = false;
  int64_t nested_block = 0;
  float offset = 0.0f;
};

// What the JSON text in a tensor of bytes says.
Status ReadState(const WeightSource& source, const std::string& name, FourBitMatrix& matrix) {
  KVG_ASSIGN(const RawTensor stored, StoredOf(source, name, {"U8"}));
  const std::string origin = StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120));
  if (std::ssize(stored.bytes) > kMostStateBytes) {
    return BadInput(
        StrCat(origin, " has ", stored.bytes.size(), " bytes, expected at most ", kMostStateBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(stored.bytes.data()),
                              stored.bytes.size());
  KVG_ASSIGN(const Json json, ParseJson(text, origin));
  if (!json.is_object()) return BadInput(StrCat(origin, ": expected a JSON object"));
  ConfigReader reader(json, origin);
  matrix.block = reader.Int("blocksize", std::nullopt, 1, int64_t{1} << 20);
  const std::vector<int64_t> shape = reader.IntOrInts("shape", 1, int64_t{1} << 31);
  if (shape.size() != 2) reader.Fail("shape", "two sizes, rows and columns");
  if (reader.Text("quant_type", "") != matrix.code) {
    reader.Fail("quant_type", StrCat("'", matrix.code, "', as the tensor's name says"));
  }
  if (matrix.nested) {
    matrix.nested_block = reader.Int("nested_blocksize", std::nullopt, 1, int64_t{1} << 20);
    matrix.offset = static_cast<float>(reader.Real("nested_offset", std::nullopt, -1e30, 1e30));
  }
  reader.Ignore({"dtype", "nested_dtype"});  // of the tensor before it was quantised
  KVG_TRY(reader.Finish());
  matrix.rows = shape[0];
  matrix.columns = shape[1];
  return {};
}

// The stored table must be the known one, or the codes mean something else.
Status CheckCode(const WeightSource& source, const std::string& name, const FourBitCode& code) {
  KVG_ASSIGN(const std::vector<float> stored, FiniteNumbers(source, name));
  bool same = stored.size() == code.size();
  for (size_t i = 0; same && i < code.size(); ++i) {
    same = std::abs(stored[i] - code[i]) <= kCodeTolerance;
  }
  if (same) return {};
  return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120),
                         " is not the table of 16 numbers that the type of the weight has"));
}

// The scale of each block.
Result<std::vector<float>> BlockScales(const WeightSource& source, const FourBitMatrix& matrix) {
  const std::string absmax = matrix.weight + ".absmax";
  if (!matrix.nested) return FiniteNumbers(source, absmax);
  const std::string outer = matrix.weight + ".nested_absmax";
  KVG_ASSIGN(const RawTensor codes, StoredOf(source, absmax, {"U8"}));
  KVG_ASSIGN(const std::vector<float> table,
             FiniteNumbers(source, matrix.weight + ".nested_quant_map"));
  KVG_ASSIGN(const std::vector<float> largest, FiniteNumbers(source, outer));
  std::vector<float> scales(codes.bytes.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = table[codes.bytes[i]] * largest[i / static_cast<size_t>(matrix.nested_block)] +
                matrix.offset;
  }
  return scales;
}

int64_t BlocksOf(int64_t count, int64_t block) { return (count + block - 1) / block; }

Status AddFourBits(const WeightSource& source, const QuantizationConfig& config,
                   const std::string& state, QuantizedPlan& plan) {
  FourBitMatrix matrix;
  const size_t at = state.rfind(kState);
  matrix.weight = state.substr(0, at);
  matrix.code = state.substr(at + kState.size());
  const std::string& weight = matrix.weight;
  const std::string where = StrCat(source.OriginOf(state), ": tensor ", Quoted(weight, 120));
  if (matrix.code != config.code) {
    return BadInput(StrCat(where, " is ", Quoted(matrix.code), ", but ", config.path, " says ",
                           Quoted(config.code)));
  }
  constexpr std::string_view kWeight = ".weight";
  if (!weight.ends_with(kWeight)) return BadInput(StrCat(where, ": expected a weight"));
  KVG_TRY(CheckNotPlain(source, config, weight.substr(0, weight.size() - kWeight.size()), weight));
  matrix.nested = source.Contains(weight + ".nested_absmax");
  std::vector<std::string> needed = {weight, weight + ".absmax", weight + ".quant_map"};
  if (matrix.nested) needed.push_back(weight + ".nested_quant_map");
  for (const std::string& part : needed) {
    if (!source.Contains(part)) {
      return BadInput(StrCat(where, " comes without ", Quoted(part, 120)));
    }
  }
  KVG_TRY(ReadState(source, state, matrix));
  KVG_ASSIGN(matrix.codes, source.GetStored(weight));
  int64_t count = 0;
  const bool fits = !__builtin_mul_overflow(matrix.rows, matrix.columns, &count) &&
                    std::ssize(matrix.codes.bytes) == (count + 1) / 2;
  if (!fits) {
    return BadInput(StrCat(where, " has ", matrix.codes.bytes.size(), " bytes, but ",
                           Quoted(state, 120), " says ", matrix.rows, " x ", matrix.columns,
                           " numbers of four bits"));
  }
  const int64_t blocks = BlocksOf(count, matrix.block);
  KVG_TRY(StoredOf(source, weight + ".absmax",
                   {matrix.nested ? std::string_view("U8") : std::string_view("F32")}, {{blocks}},
                   StrCat(count, " numbers in blocks of ", matrix.block)));
  if (matrix.nested) {
    KVG_TRY(StoredOf(source, weight + ".nested_absmax", {"F32"},
                     {{BlocksOf(blocks, matrix.nested_block)}},
                     StrCat(blocks, " scales in blocks of ", matrix.nested_block)));
    KVG_TRY(StoredOf(source, weight + ".nested_quant_map", {"F32"}, {{256}}, "codes of a byte"));
  }
  plan.parts.insert(state);
  for (const char* part : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    plan.parts.insert(weight + part);
  }
  MadeTensor made{.stored = weight, .shape = {matrix.rows, matrix.columns}, .open = nullptr};
  made.open = [&source, matrix]() -> Result<RowMaker> {
    const FourBitCode& code = matrix.code == "nf4" ? kNf4 : kFp4;
    KVG_TRY(CheckCode(source, matrix.weight + ".quant_map", code));
    KVG_ASSIGN(std::vector<float> scales, BlockScales(source, matrix));
    return RowMaker(
        [matrix, &code, scales = std::move(scales)](int64_t first, int64_t rows, float* out) {
          const int64_t end = (first + rows) * matrix.columns;
          for (int64_t i = first * matrix.columns; i < end; ++i) {
            const uint8_t byte = matrix.codes.bytes[static_cast<size_t>(i / 2)];
            *out++ = code[i % 2 == 0 ? byte >> 4 : byte & 15] *
                     scales[static_cast<size_t>(i / matrix.block)];
          }
        });
  };
  plan.made.emplace(weight, std::move(made));
  return {};
}

Status AddEightBits(const WeightSource& source, const QuantizationConfig& config,
                    const std::string& scale, QuantizedPlan& plan) {
  const std::string module = scale.substr(0, scale.size() - kScb.size());
  const std::string weight = module + ".weight";
  KVG_TRY(CheckNotPlain(source, config, module, weight));
  KVG_ASSIGN(const RawTensor codes, StoredOf(source, weight, {"I8"}));
  if (codes.shape.size() != 2) {
    return BadInput(StrCat(source.OriginOf(weight), ": tensor ", Quoted(weight, 120), " has shape ",
                           ShapeOfStored(codes.shape), ", expected a matrix"));
  }
  const int64_t rows = codes.shape[0], columns = codes.shape[1];
  KVG_TRY(StoredOf(source, scale, {"F32", "F16", "BF16"}, {{rows}}, "one scale a row"));
  const std::string layout = module + ".weight_format";
  if (source.Contains(layout)) {
    KVG_ASSIGN(const std::vector<float> format, FiniteNumbers(source, layout));
    if (format.size() != 1 || format[0] != 0.0f) {
      return BadInput(StrCat(source.OriginOf(layout), ": tensor ", Quoted(layout, 120),
                             ": expected one 0, which says that rows are stored as rows"));
    }
  }
  plan.parts.insert({scale, layout});
  MadeTensor made{.stored = weight, .shape = codes.shape, .open = nullptr};
  made.open = [&source, codes, columns, scale]() -> Result<RowMaker> {
    KVG_ASSIGN(std::vector<float> scales, FiniteNumbers(source, scale));
    const float* numbers = ByteNumbers("I8");
    return RowMaker([codes, columns, numbers, scales = std::move(scales)](
                        int64_t first, int64_t count, float* out) {
      for (int64_t row = first; row < first + count; ++row) {
        const uint8_t* bytes = codes.bytes.data() + row * columns;
        const float largest = scales[static_cast<size_t>(row)];
        for (int64_t i = 0; i < columns; ++i) {
          *out++ = numbers[bytes[i]] * largest * (1.0f / 127.0f);
        }
      }
    });
  };
  plan.made.emplace(weight, std::move(made));
  return {};
}

}  // namespace

Result<QuantizedPlan> PlanBitsAndBytes(const WeightSource& source,
                                       const QuantizationConfig& config) {
  QuantizedPlan plan;
  for (const std::string& name : source.Names()) {
    if (config.code == "int8" && name.ends_with(kScb)) {
      KVG_TRY(AddEightBits(source, config, name, plan));
    } else if (config.code != "int8" && name.rfind(kState) != std::string::npos) {
      KVG_TRY(AddFourBits(source, config, name, plan));
    }
  }
  return plan;
}

}  // namespace kvgauge
