// SPDX-License-Identifier: Apache-2.0
// Weights that a Hub directory holds quantised, as the plain weights that they stand for.
//
// A format is one file of this folder. From the names and shapes of stored tensors it says which
// tensors it can make of them (its plan); the numbers are read when a tensor is asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/row_rounding.h"
#include "runner/weights.h"
#include "src/config/quantization.h"

namespace kvgauge {

// Writes rows [first, first + count) of a matrix, each number as f32.
using RowMaker = std::function<void(int64_t first, int64_t count, float* out)>;

struct MadeTensor {
  std::string stored;          // the main one of those it is made of, for messages
  std::vector<int64_t> shape;  // [rows, columns], or [rows] of one column
  // Reads and checks the scales. The maker may be called from several threads, and must keep what
  // it reads alive.
  std::function<Result<RowMaker>()> open;
  // How the rows that come to the matrix are rounded; none: the file says nothing.
  std::function<Result<RowRounding>()> inputs = nullptr;
};

struct QuantizedPlan {
  std::map<std::string, MadeTensor> made;
  std::set<std::string> parts;  // stored tensors that are no tensors of the model
  std::set<std::string> idle;   // tensors that a model need not have: Names() leaves them out
};

// Each names the tensor and what is wrong where the shapes do not fit together.
Result<QuantizedPlan> PlanFp8(const WeightSource& source, const QuantizationConfig& config);
Result<QuantizedPlan> PlanCompressedTensors(const WeightSource& source,
                                            const QuantizationConfig& config);
Result<QuantizedPlan> PlanGptq(const WeightSource& source, const QuantizationConfig& config);
Result<QuantizedPlan> PlanAwq(const WeightSource& source, const QuantizationConfig& config);
Result<QuantizedPlan> PlanBitsAndBytes(const WeightSource& source,
                                       const QuantizationConfig& config);

// gpt-oss's experts, which lie together: blocks, scales and biases.
Result<QuantizedPlan> PlanMxfp4(const WeightSource& source);

// Where outputs of gates and of what they open stand in a matrix of both.
enum class GateOrder { kTurns, kHalves };
// How experts of floats lie together.
struct StackedForm {
  GateOrder order = GateOrder::kHalves;
  bool rows = false;  // [experts, out, in]; otherwise [experts, in, out]
  std::string_view scope = ".experts.";
  std::string_view gate_up = "gate_up_proj", down = "down_proj";  // all that follows the scope
};
// The same as matrices of their own: "experts.gate_up_proj" becomes "experts.N.gate_proj.weight"
// and "experts.N.up_proj.weight".
Result<QuantizedPlan> PlanStackedExperts(const WeightSource& source, const StackedForm& form);
Result<std::unique_ptr<WeightSource>> OpenStackedExperts(std::unique_ptr<WeightSource> plain,
                                                         const StackedForm& form, DType dtype);

// Made tensors become `dtype`, rounded once; all others are those of `plain`.
Result<std::unique_ptr<WeightSource>> OpenQuantized(std::unique_ptr<WeightSource> plain,
                                                    const QuantizationConfig& config, DType dtype);

// An error where `module` is stored quantised although the config says that it is not.
Status CheckNotPlain(const WeightSource& source, const QuantizationConfig& config,
                     const std::string& module, const std::string& stored);

// MadeTensor::inputs of a matrix of `module` whose inputs are rounded by the scheme. A scale that
// the file has is read and checked by the call.
std::function<Result<RowRounding>()> InputsOf(const WeightSource& source,
                                              const QuantizationConfig& config,
                                              const std::optional<InputScheme>& scheme,
                                              const std::string& module);

// One size in groups of `group_size`; an error that begins with `where` when they do not divide it.
Result<int64_t> GroupCount(int64_t size, int64_t group_size, const std::string& where);

}  // namespace kvgauge
