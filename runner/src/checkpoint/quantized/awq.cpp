// SPDX-License-Identifier: Apache-2.0
// AWQ in the gemm layout: a word holds four-bit codes of eight neighbouring outputs for one input,
// first those of even outputs and then those of odd ones.
#include <array>

#include "core/strings.h"
#include "src/checkpoint/quantized/words.h"

namespace kvgauge {
namespace {

constexpr int64_t kPerWord = 8;
// The bits at which output 8 c + i stands in word c.
constexpr std::array<int, kPerWord> kShiftOf = {0, 16, 4, 20, 8, 24, 12, 28};

float AwqCode(const uint8_t* words, int64_t output) {
  const uint32_t word = WordAt(words, output / kPerWord);
  return static_cast<float>(word >> kShiftOf[static_cast<size_t>(output % kPerWord)] & 15u);
}

}  // namespace

Result<QuantizedPlan> PlanAwq(const WeightSource& source, const QuantizationConfig& config) {
  QuantizedPlan plan;
  for (const std::string& module : WordModules(source)) {
    const std::string codes = module + ".qweight";
    KVG_TRY(CheckNotPlain(source, config, module, codes));
    KVG_ASSIGN(const RawTensor stored, StoredOf(source, codes, {"I32"}));
    if (stored.shape.size() != 2) {
      return BadInput(StrCat(source.OriginOf(codes), ": tensor ", Quoted(codes, 120), " has shape ",
                             ShapeOfStored(stored.shape), ", expected a matrix"));
    }
    const WordShape shape{.rows = stored.shape[1] * kPerWord,
                          .columns = stored.shape[0],
                          .codes = stored.shape,
                          .zero_words = stored.shape[1]};
    KVG_ASSIGN(const WordMatrix matrix,
               ReadWordMatrix(source, config.schemes.front(), module, shape));
    const int64_t row_bytes = stored.shape[1] * 4;
    AddWordMatrix(
        source, matrix,
        [matrix, row_bytes](int64_t input, int64_t first, int64_t count, float* out, int64_t step) {
          const uint8_t* words = matrix.codes.bytes.data() + input * row_bytes;
          for (int64_t j = 0; j < count; ++j) out[j * step] = AwqCode(words, first + j);
        },
        [matrix, row_bytes]() -> Result<std::vector<float>> {
          std::vector<float> zeros;
          zeros.reserve(static_cast<size_t>(matrix.groups * matrix.rows));
          for (int64_t group = 0; group < matrix.groups; ++group) {
            const uint8_t* words = matrix.zeros.bytes.data() + group * row_bytes;
            for (int64_t j = 0; j < matrix.rows; ++j) zeros.push_back(AwqCode(words, j));
          }
          return zeros;
        },
        plan);
  }
  return plan;
}

}  // namespace kvgauge
