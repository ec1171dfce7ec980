// SPDX-License-Identifier: Apache-2.0
// GPTQ: codes of an output lie along its inputs in words, the lowest bits first; zero points lie
// along outputs. Files of checkpoint_format "gptq" store zero points one smaller than they are.
#include <algorithm>
#include <array>

#include "core/strings.h"
#include "src/checkpoint/quantized/words.h"

namespace kvgauge {
namespace {

// A one in every field of `bits` bits of word `index` of a stream.
uint32_t OnesOfWord(int bits, int64_t index) {
  uint32_t ones = 0;
  for (int64_t at = (index * 32 + bits - 1) / bits * bits; at < index * 32 + 32; at += bits) {
    ones |= 1u << (at - index * 32);
  }
  return ones;
}

// Zero points of all groups as they are. Each word is added to as a whole, as its writers took away
// from it, so that a zero point of 0 comes back.
std::vector<float> ReadZeros(const WordMatrix& matrix, bool less_one) {
  const int64_t words = matrix.zeros.shape[1];
  std::vector<float> zeros;
  zeros.reserve(static_cast<size_t>(matrix.groups * matrix.rows));
  std::vector<uint32_t> row(static_cast<size_t>(words));
  for (int64_t group = 0; group < matrix.groups; ++group) {
    for (int64_t word = 0; word < words; ++word) {
      row[static_cast<size_t>(word)] = WordAt(matrix.zeros.bytes.data(), group * words + word) +
                                       (less_one ? OnesOfWord(matrix.bits, word) : 0);
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(row.data());
    for (int64_t j = 0; j < matrix.rows; ++j) {
      zeros.push_back(static_cast<float>(FieldAt(bytes, j, matrix.bits)));
    }
  }
  return zeros;
}

// Three bits with zero points that are one smaller. One writer takes a one from each field, another
// takes these from the words in turn; both mean the middle, or the file is not symmetric.
Result<std::vector<float>> ReadThreeBitZeros(const WeightSource& source, const WordMatrix& matrix) {
  constexpr std::array<uint32_t, 3> kOtherOnes = {0x24924924u, 0x92492492u, 0x49249249u};
  constexpr std::array<uint32_t, 3> kThrees = {0xdb6db6dbu, 0xb6db6db6u, 0x6db6db6du};
  constexpr std::array<uint32_t, 3> kFours = {0x24924924u, 0x49249249u, 0x92492492u};
  const int64_t words = matrix.zeros.shape[1];
  bool ones = true, others = true;
  for (int64_t i = 0; i < matrix.groups * words; ++i) {
    const uint32_t word = WordAt(matrix.zeros.bytes.data(), i);
    const auto turn = static_cast<size_t>(i % words % 3);
    ones = ones && word == kThrees[turn];
    others = others && word + kOtherOnes[turn] == kFours[turn];
  }
  if (!ones && !others) {
    return BadInput(StrCat(source.OriginOf(matrix.module + ".qzeros"), ": tensor ",
                           Quoted(matrix.module + ".qzeros", 120),
                           " holds other zero points than the 4 of symmetric codes of 3 bits"));
  }
  return std::vector<float>(static_cast<size_t>(matrix.groups * matrix.rows), 4.0f);
}

}  // namespace

Result<QuantizedPlan> PlanGptq(const WeightSource& source, const QuantizationConfig& config) {
  const QuantScheme& scheme = config.schemes.front();
  QuantizedPlan plan;
  for (const std::string& module : WordModules(source)) {
    const std::string codes = module + ".qweight";
    KVG_ASSIGN(const RawTensor stored, StoredOf(source, codes, {"I32"}));
    const bool whole = stored.shape.size() == 2 && stored.shape[0] * 32 % scheme.bits == 0;
    const int64_t outputs = stored.shape.size() == 2 ? stored.shape[1] : 0;
    if (!whole || outputs * scheme.bits % 32 != 0) {
      return BadInput(StrCat(source.OriginOf(codes), ": tensor ", Quoted(codes, 120), " has shape ",
                             ShapeOfStored(stored.shape), ", which codes of ", scheme.bits,
                             " bits in whole words cannot have"));
    }
    const WordShape shape{.rows = outputs,
                          .columns = stored.shape[0] * 32 / scheme.bits,
                          .codes = stored.shape,
                          .zero_words = outputs * scheme.bits / 32};
    KVG_ASSIGN(const WordMatrix matrix, ReadWordMatrix(source, scheme, module, shape));
    const bool less_one = config.zero_less_one;
    AddWordMatrix(
        source, matrix,
        [matrix](int64_t input, int64_t first, int64_t count, float* out, int64_t step) {
          const int64_t at = input * matrix.bits, shift = at % 32;
          const uint8_t* low = matrix.codes.bytes.data() + (at / 32 * matrix.rows + first) * 4;
          const bool two = shift + matrix.bits > 32;
          const uint32_t mask = (1u << matrix.bits) - 1;
          for (int64_t j = 0; j < count; ++j) {
            uint64_t word = WordAt(low, j);
            if (two) word |= uint64_t{WordAt(low + matrix.rows * 4, j)} << 32;
            out[j * step] = static_cast<float>(static_cast<uint32_t>(word >> shift) & mask);
          }
        },
        [&source, matrix, less_one]() -> Result<std::vector<float>> {
          if (less_one && matrix.bits == 3) return ReadThreeBitZeros(source, matrix);
          return ReadZeros(matrix, less_one);
        },
        plan);
  }
  return plan;
}

}  // namespace kvgauge
