// SPDX-License-Identifier: Apache-2.0
// Experts of a layer that lie in one tensor: as floats [experts, in, out] or [experts, out, in], or
// in MXFP4 [experts, out, blocks, 16 bytes] with the exponent of each block of 32 numbers beside
// them.
#include <array>
#include <cmath>
#include <utility>

#include "core/strings.h"
#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/quantized/stored.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostStacked = int64_t{1} << 16;
constexpr int64_t kBlockNumbers = 32, kCodeBytes = 16;
constexpr uint8_t kNoExponent = 0xff;  // stands for NaN

// What 4 bits stand for: a sign, two of exponent and one more.
constexpr auto kFourBitFloats =
    std::to_array<float>({0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,  //
                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f});

// Rows first, first + step .. of an expert's matrix, as a tensor of its own.
struct ExpertPart {
  std::string_view name;  // "gate_proj"
  int64_t first = 0, step = 1, rows = 0;
};

std::vector<ExpertPart> PartsOf(bool gate_up, int64_t outputs, GateOrder order) {
  if (!gate_up) return {{.name = "down_proj", .rows = outputs}};
  const int64_t half = outputs / 2;
  if (order == GateOrder::kTurns) {
    return {{.name = "gate_proj", .step = 2, .rows = half},
            {.name = "up_proj", .first = 1, .step = 2, .rows = half}};
  }
  return {{.name = "gate_proj", .rows = half}, {.name = "up_proj", .first = half, .rows = half}};
}

// "model.layers.0.mlp.experts.gate_up_proj_bias": what is before the matrix's name, which of the
// two matrices it is of, and what follows.
struct StackedName {
  std::string scope;  // "model.layers.0.mlp.experts."
  bool gate_up = false;
  std::string kind;  // "", "_bias", "_blocks" or "_scales"
};
std::optional<StackedName> SplitStacked(const std::string& name, const StackedForm& form = {}) {
  constexpr std::string_view kScope = ".experts.";
  const size_t at = name.rfind(form.scope);
  if (at == std::string::npos) return std::nullopt;
  StackedName split;
  split.scope = name.substr(0, at + form.scope.size());
  std::string_view rest = std::string_view(name).substr(split.scope.size());
  if (form.scope != kScope) split.scope += kScope.substr(1);
  for (const std::string_view matrix : {form.gate_up, form.down}) {
    if (!rest.starts_with(matrix)) continue;
    split.gate_up = matrix == form.gate_up;
    split.kind = rest.substr(matrix.size());
    for (const std::string_view kind : {"", "_bias", "_blocks", "_scales"}) {
      if (split.kind == kind) return split;
    }
  }
  return std::nullopt;
}

Error NotStacked(const WeightSource& source, const std::string& name, const RawTensor& stored,
                 std::string_view expected) {
  return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " of ", stored.type,
                         " has shape ", ShapeOfStored(stored.shape), ", expected ", expected));
}

// Checks what all stacked tensors have in common: `rank` sizes, and an even number of outputs where
// gates stand beside what they open.
Status CheckStacked(const WeightSource& source, const std::string& name, const RawTensor& stored,
                    const StackedName& split, size_t rank, size_t outputs,
                    std::string_view expected) {
  bool fits = stored.shape.size() == rank && stored.shape[0] <= kMostStacked;
  for (const int64_t size : stored.shape) fits = fits && size > 0;
  if (fits && split.gate_up) fits = stored.shape[outputs] % 2 == 0;
  return fits ? Status() : NotStacked(source, name, stored, expected);
}

// Adds a tensor for each part of each expert. open(expert, part) reads and makes it; `columns` 0: a
// vector.
using OpenPart = std::function<Result<RowMaker>(int64_t expert, const ExpertPart& part)>;
void AddParts(const std::string& stored, const StackedName& split, int64_t experts, int64_t outputs,
              int64_t columns, GateOrder order, const OpenPart& open, QuantizedPlan& plan) {
  plan.parts.insert(stored);
  for (int64_t e = 0; e < experts; ++e) {
    for (const ExpertPart& part : PartsOf(split.gate_up, outputs, order)) {
      MadeTensor made{.stored = stored, .shape = {part.rows}, .open = nullptr};
      if (columns > 0) made.shape.push_back(columns);
      made.open = [open, e, part] { return open(e, part); };
      const char* kind = columns > 0 ? ".weight" : ".bias";
      plan.made.emplace(StrCat(split.scope, e, ".", part.name, kind), std::move(made));
    }
  }
}

Status AddBias(const WeightSource& source, const std::string& name, const StackedName& split,
               GateOrder order, QuantizedPlan& plan) {
  KVG_ASSIGN(const RawTensor stored, StoredOf(source, name, {"F32", "F16", "BF16"}));
  KVG_TRY(CheckStacked(source, name, stored, split, 2, 1, "[experts, outputs]"));
  const int64_t outputs = stored.shape[1];
  AddParts(
      name, split, stored.shape[0], outputs, 0, order,
      [stored, outputs](int64_t e, const ExpertPart& part) -> Result<RowMaker> {
        const ReadNumber read = NumberReader(stored.type);
        return RowMaker([stored, outputs, e, part, read](int64_t first, int64_t count, float* out) {
          for (int64_t i = first; i < first + count; ++i) {
            *out++ = read(stored.bytes.data(), e * outputs + part.first + i * part.step);
          }
        });
      },
      plan);
  return {};
}

// [experts, out, in].
Status AddRows(const WeightSource& source, const std::string& name, const StackedName& split,
               GateOrder order, QuantizedPlan& plan) {
  KVG_ASSIGN(const RawTensor stored, StoredOf(source, name, {"F32", "F16", "BF16"}));
  KVG_TRY(CheckStacked(source, name, stored, split, 3, 1, "[experts, outputs, inputs]"));
  const int64_t outputs = stored.shape[1], inputs = stored.shape[2];
  AddParts(
      name, split, stored.shape[0], outputs, inputs, order,
      [stored, inputs, outputs](int64_t e, const ExpertPart& part) -> Result<RowMaker> {
        const ReadNumber read = NumberReader(stored.type);
        return RowMaker([=](int64_t first, int64_t count, float* out) {
          for (int64_t r = first; r < first + count; ++r) {
            const int64_t row = (e * outputs + part.first + r * part.step) * inputs;
            for (int64_t i = 0; i < inputs; ++i) *out++ = read(stored.bytes.data(), row + i);
          }
        });
      },
      plan);
  return {};
}

// [experts, in, out]: a row of the part is a column of the file.
Status AddFloats(const WeightSource& source, const std::string& name, const StackedName& split,
                 GateOrder order, QuantizedPlan& plan) {
  KVG_ASSIGN(const RawTensor stored, StoredOf(source, name, {"F32", "F16", "BF16"}));
  KVG_TRY(CheckStacked(source, name, stored, split, 3, 2, "[experts, inputs, outputs]"));
  const int64_t inputs = stored.shape[1], outputs = stored.shape[2];
  AddParts(
      name, split, stored.shape[0], outputs, inputs, order,
      [stored, inputs, outputs](int64_t e, const ExpertPart& part) -> Result<RowMaker> {
        const ReadNumber read = NumberReader(stored.type);
        return RowMaker([=](int64_t first, int64_t count, float* out) {
          for (int64_t i = 0; i < inputs; ++i) {
            const int64_t row = (e * inputs + i) * outputs + part.first;
            for (int64_t r = 0; r < count; ++r) {
              out[r * inputs + i] = read(stored.bytes.data(), row + (first + r) * part.step);
            }
          }
        });
      },
      plan);
  return {};
}

Status AddBlocks(const WeightSource& source, const std::string& name, const StackedName& split,
                 QuantizedPlan& plan) {
  KVG_ASSIGN(const RawTensor codes, StoredOf(source, name, {"U8"}));
  KVG_TRY(CheckStacked(source, name, codes, split, 4, 1, "[experts, outputs, blocks, 16]"));
  if (codes.shape[3] != kCodeBytes) {
    return NotStacked(source, name, codes, "[experts, outputs, blocks, 16]");
  }
  const std::string scale =
      StrCat(split.scope, split.gate_up ? "gate_up_proj" : "down_proj", "_scales");
  if (!source.Contains(scale)) {
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " has no scales ",
                           Quoted(scale, 120)));
  }
  const int64_t outputs = codes.shape[1], blocks = codes.shape[2];
  KVG_ASSIGN(const RawTensor exponents,
             StoredOf(source, scale, {"U8", "F8_E8M0"}, {{codes.shape[0], outputs, blocks}},
                      "one for each block of 32 numbers"));
  const std::string origin = source.OriginOf(scale);
  plan.parts.insert(scale);
  AddParts(
      name, split, codes.shape[0], outputs, blocks * kBlockNumbers, GateOrder::kTurns,
      [=](int64_t e, const ExpertPart& part) -> Result<RowMaker> {
        for (int64_t r = 0; r < part.rows; ++r) {
          const int64_t at = (e * outputs + part.first + r * part.step) * blocks;
          for (int64_t b = 0; b < blocks; ++b) {
            if (exponents.bytes[static_cast<size_t>(at + b)] != kNoExponent) continue;
            return BadInput(StrCat(origin, ": tensor ", Quoted(scale, 120), " is NaN (255) for ",
                                   "expert ", e, ", output ", part.first + r * part.step,
                                   ", block ", b, ", expected an exponent from 0 to 254"));
          }
        }
        return RowMaker([=](int64_t first, int64_t count, float* out) {
          for (int64_t r = first; r < first + count; ++r) {
            const int64_t at = (e * outputs + part.first + r * part.step) * blocks;
            for (int64_t b = at; b < at + blocks; ++b) {
              const float unit = std::ldexp(1.0f, exponents.bytes[static_cast<size_t>(b)] - 127);
              const uint8_t* bytes = codes.bytes.data() + b * kCodeBytes;
              for (int64_t i = 0; i < kCodeBytes; ++i) {
                *out++ = kFourBitFloats[bytes[i] & 15u] * unit;
                *out++ = kFourBitFloats[bytes[i] >> 4] * unit;
              }
            }
          }
        });
      },
      plan);
  return {};
}

}  // namespace

Result<QuantizedPlan> PlanStackedExperts(const WeightSource& source, const StackedForm& form) {
  QuantizedPlan plan;
  const auto add = form.rows ? AddRows : AddFloats;
  for (const std::string& name : source.Names()) {
    const std::optional<StackedName> split = SplitStacked(name, form);
    if (!split) continue;
    if (split->kind.empty()) KVG_TRY(add(source, name, *split, form.order, plan));
    if (split->kind == "_bias") KVG_TRY(AddBias(source, name, *split, form.order, plan));
  }
  return plan;
}

Result<QuantizedPlan> PlanMxfp4(const WeightSource& source) {
  QuantizedPlan plan;
  for (const std::string& name : source.Names()) {
    const std::optional<StackedName> split = SplitStacked(name);
    if (!split) continue;
    if (split->kind == "_blocks") KVG_TRY(AddBlocks(source, name, *split, plan));
    if (split->kind == "_bias") KVG_TRY(AddBias(source, name, *split, GateOrder::kTurns, plan));
  }
  return plan;
}

}  // namespace kvgauge
