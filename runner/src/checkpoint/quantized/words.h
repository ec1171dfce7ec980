// SPDX-License-Identifier: Apache-2.0
// What GPTQ and AWQ files share: matrices that are stored with inputs as rows, whose groups of
// inputs have a scale and a zero point for each output.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/quantized/stored.h"

namespace kvgauge {

// The tensors of one module, their shapes checked.
struct WordMatrix {
  std::string module;
  RawTensor codes, zeros;  // "qweight", "qzeros"
  int bits = 4;
  int64_t rows = 0, columns = 0;  // outputs, inputs
  int64_t groups = 0, group_size = 0;
  bool order = false;  // "g_idx" says which group an input is in
};

// Modules that have a "qweight", in name order.
std::vector<std::string> WordModules(const WeightSource& source);

// `code_shape` and `zero_words` give the shape of "qweight" and the words of a row of "qzeros".
struct WordShape {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> codes;
  int64_t zero_words = 0;
};
Result<WordMatrix> ReadWordMatrix(const WeightSource& source, const QuantScheme& scheme,
                                  const std::string& module, const WordShape& shape);

// Writes the codes of one input for outputs [first, first + count), `step` floats apart.
using CodeReader =
    std::function<void(int64_t input, int64_t first, int64_t count, float* out, int64_t step)>;

// Adds the weight that is (code - zero) * scale. `zeros` are [groups, rows].
void AddWordMatrix(const WeightSource& source, const WordMatrix& matrix, CodeReader read,
                   std::function<Result<std::vector<float>>()> zeros, QuantizedPlan& plan);

}  // namespace kvgauge
