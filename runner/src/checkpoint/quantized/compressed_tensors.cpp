// SPDX-License-Identifier: Apache-2.0
// compressed-tensors: integers or 8-bit floats, one a byte or packed into words, minus a zero
// point, times a scale of the matrix, its row, a group of columns or a block.
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/strings.h"
#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/quantized/stored.h"
#include "src/text/tokenizer/regex.h"

namespace kvgauge {
namespace {

constexpr std::string_view kPattern = "re:";

// Which module a scheme is for, patterns compiled.
struct ModuleTarget {
  std::string text;
  std::optional<Regex> pattern;
  const QuantScheme* scheme = nullptr;

  // 0: the module's name, 1: a pattern of it, 2: its class; nothing: another module.
  Result<std::optional<int>> RankFor(const std::string& module) const {
    using Rank = std::optional<int>;
    if (pattern) {
      std::vector<Span> found;
      KVG_TRY(pattern->FindAll(module, found));
      return !found.empty() && found[0].begin == 0 ? Rank(1) : Rank();
    }
    if (text == module) return Rank(0);
    const bool embedding = module.ends_with("embed_tokens");
    return text == (embedding ? "Embedding" : "Linear") ? Rank(2) : Rank();
  }
};

Result<ModuleTarget> TargetOf(const std::string& text, const std::string& where) {
  ModuleTarget target{.text = text, .pattern = std::nullopt};
  if (text.starts_with(kPattern)) {
    KVG_ASSIGN(target.pattern, Regex::Compile(text.substr(kPattern.size()), where));
  }
  return target;
}

class SchemeFinder {
 public:
  static Result<SchemeFinder> Of(const QuantizationConfig& config) {
    SchemeFinder finder(config);
    for (const QuantScheme& scheme : config.schemes) {
      for (const std::string& text : scheme.targets) {
        KVG_ASSIGN(ModuleTarget target,
                   TargetOf(text, StrCat(config.path, ": key 'targets' of quantization_config")));
        target.scheme = &scheme;
        finder.targets_.push_back(std::move(target));
      }
    }
    for (const std::string& text : config.plain_modules) {
      KVG_ASSIGN(ModuleTarget target,
                 TargetOf(text, StrCat(config.path, ": key 'quantization_config.ignore'")));
      finder.ignored_.push_back(std::move(target));
    }
    return finder;
  }

  Result<const QuantScheme*> Find(const WeightSource& source, const std::string& module,
                                  const std::string& stored) const {
    const std::string where =
        StrCat(source.OriginOf(stored), ": tensor ", Quoted(stored, 120), " is quantised, but ");
    for (const ModuleTarget& target : ignored_) {
      KVG_ASSIGN(const std::optional<int> rank, target.RankFor(module));
      if (!rank || *rank == 2) continue;
      return BadInput(StrCat(where, config_->path, " has ", Quoted(target.text, 120),
                             " in key 'quantization_config.ignore'"));
    }
    std::optional<std::tuple<int, std::string, const QuantScheme*>> best;
    for (const ModuleTarget& target : targets_) {
      KVG_ASSIGN(const std::optional<int> rank, target.RankFor(module));
      if (!rank) continue;
      const auto found = std::tuple(*rank, target.text, target.scheme);
      if (!best || found < *best) best = found;
    }
    if (best) return std::get<2>(*best);
    return BadInput(StrCat(where, "no group of key 'quantization_config.config_groups' in ",
                           config_->path, " has it as a target"));
  }

 private:
  explicit SchemeFinder(const QuantizationConfig& config) : config_(&config) {}

  const QuantizationConfig* config_;
  std::vector<ModuleTarget> targets_, ignored_;
};

// A matrix and how its scales lie.
struct CompressedMatrix {
  std::string module;
  RawTensor codes;
  int64_t rows = 0, columns = 0;
  int bits = 8;
  bool packed = false;
  int64_t scale_rows = 1, scale_columns = 1;  // of the scales
  int64_t reach_rows = 0, reach_columns = 0;  // of one of them
  std::string scale, zero_point, group_of;    // names; empty: none
  bool packed_zeros = false;
};

Status LayOutScales(const WeightSource& source, const QuantScheme& scheme,
                    CompressedMatrix& matrix) {
  const std::string name = matrix.module + ".weight";
  const std::string where = StrCat(source.OriginOf(matrix.scale), ": tensor ", Quoted(name, 120));
  matrix.reach_rows = std::max<int64_t>(matrix.rows, 1);
  matrix.reach_columns = std::max<int64_t>(matrix.columns, 1);
  std::vector<std::vector<int64_t>> shapes;
  switch (scheme.scale) {
    case QuantScheme::Scale::kTensor:
      shapes = {{1}, {}, {1, 1}};
      break;
    case QuantScheme::Scale::kChannel:
      matrix.reach_rows = 1;
      shapes = {{matrix.rows, 1}, {matrix.rows}};
      break;
    case QuantScheme::Scale::kGroup: {
      KVG_ASSIGN(matrix.scale_columns, GroupCount(matrix.columns, scheme.group_size, where));
      matrix.reach_rows = 1;
      matrix.reach_columns = scheme.group_size;
      shapes = {{matrix.rows, matrix.scale_columns}};
      break;
    }
    case QuantScheme::Scale::kBlock:
      matrix.reach_rows = scheme.block_rows;
      matrix.reach_columns = scheme.block_columns;
      matrix.scale_columns = (matrix.columns + scheme.block_columns - 1) / scheme.block_columns;
      shapes = {{(matrix.rows + scheme.block_rows - 1) / scheme.block_rows, matrix.scale_columns}};
      break;
  }
  matrix.scale_rows = (matrix.rows + matrix.reach_rows - 1) / matrix.reach_rows;
  KVG_TRY(StoredOf(
      source, matrix.scale, {"F32", "BF16", "F16"}, shapes,
      StrCat(ShapeOfStored(std::vector{matrix.rows, matrix.columns}), ", ", scheme.Title())));
  if (matrix.zero_point.empty()) return {};
  // Zero points are packed along rows where the weight is packed; older writers left them alone.
  KVG_ASSIGN(const RawTensor zeros, StoredOf(source, matrix.zero_point, {}));
  matrix.packed_zeros = zeros.type == "I32";
  if (matrix.packed_zeros) {
    const int64_t words = (matrix.scale_rows * matrix.bits + 31) / 32;
    shapes = {{words, matrix.scale_columns}};
  }
  KVG_TRY(StoredOf(source, matrix.zero_point, {"I32", "I8", "F8_E4M3"}, shapes, "its zero points"));
  return {};
}

Result<CompressedMatrix> PackedLayout(const WeightSource& source, const QuantScheme& scheme,
                                      const std::string& module) {
  CompressedMatrix matrix;
  matrix.module = module;
  matrix.packed = true;
  matrix.bits = static_cast<int>(scheme.bits);
  const std::string name = module + ".weight_packed", shape_name = module + ".weight_shape";
  if (!source.Contains(shape_name)) {
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " comes without ",
                           Quoted(shape_name, 120)));
  }
  KVG_ASSIGN(const std::vector<int64_t> shape,
             IntegersWithin(source, shape_name, 1, int64_t{1} << 31));
  if (shape.size() != 2) {
    return BadInput(StrCat(source.OriginOf(shape_name), ": tensor ", Quoted(shape_name, 120),
                           " has ", shape.size(), " numbers, expected rows and columns"));
  }
  matrix.rows = shape[0];
  matrix.columns = shape[1];
  const int64_t words = (matrix.columns * matrix.bits + 31) / 32;
  KVG_ASSIGN(matrix.codes, StoredOf(source, name, {"I32"}, {{matrix.rows, words}},
                                    StrCat(ShapeOfStored(shape), " of ", matrix.bits, " bits")));
  return matrix;
}

Result<CompressedMatrix> ByteLayout(const WeightSource& source, const QuantScheme& scheme,
                                    const std::string& module) {
  CompressedMatrix matrix;
  matrix.module = module;
  const std::string name = module + ".weight";
  KVG_ASSIGN(matrix.codes, StoredOf(source, name, {scheme.floats ? "F8_E4M3" : "I8"}));
  if (matrix.codes.shape.size() != 2) {
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " has shape ",
                           ShapeOfStored(matrix.codes.shape), ", expected a matrix"));
  }
  matrix.rows = matrix.codes.shape[0];
  matrix.columns = matrix.codes.shape[1];
  return matrix;
}

// The group of each column; empty: columns are in order. A list that begins with -1 was never set.
Result<std::vector<int64_t>> GroupsOfColumns(const WeightSource& source,
                                             const CompressedMatrix& matrix) {
  if (matrix.group_of.empty()) return std::vector<int64_t>();
  KVG_ASSIGN(std::vector<int64_t> groups,
             IntegersWithin(source, matrix.group_of, -1, matrix.scale_columns - 1));
  if (std::ranges::find(groups, -1) != groups.end()) return std::vector<int64_t>();
  std::vector<int64_t> sizes(static_cast<size_t>(matrix.scale_columns));
  for (const int64_t group : groups) ++sizes[static_cast<size_t>(group)];
  for (size_t group = 0; group < sizes.size(); ++group) {
    if (sizes[group] == matrix.reach_columns) continue;
    return BadInput(StrCat(source.OriginOf(matrix.group_of), ": tensor ",
                           Quoted(matrix.group_of, 120), " puts ", sizes[group],
                           " columns into group ", group, ", expected ", matrix.reach_columns));
  }
  return groups;
}

Result<std::vector<float>> ZeroPoints(const WeightSource& source, const CompressedMatrix& matrix) {
  const auto count = static_cast<size_t>(matrix.scale_rows * matrix.scale_columns);
  if (matrix.zero_point.empty()) return std::vector<float>(count);
  if (!matrix.packed_zeros) return FiniteNumbers(source, matrix.zero_point);
  KVG_ASSIGN(const RawTensor stored, source.GetStored(matrix.zero_point));
  std::vector<float> zeros(count);
  const int per_word = 32 / matrix.bits, offset = 1 << (matrix.bits - 1);
  for (int64_t row = 0; row < matrix.scale_rows; ++row) {
    for (int64_t column = 0; column < matrix.scale_columns; ++column) {
      const uint32_t word =
          WordAt(stored.bytes.data(), row / per_word * matrix.scale_columns + column);
      const uint32_t field = word >> (row % per_word * matrix.bits) & ((1u << matrix.bits) - 1);
      zeros[static_cast<size_t>(row * matrix.scale_columns + column)] =
          static_cast<float>(static_cast<int>(field) - offset);
    }
  }
  return zeros;
}

struct CompressedRows {
  CompressedMatrix matrix;
  std::vector<float> scales, zeros;
  std::vector<int64_t> groups;  // of columns; empty: in order

  void Make(int64_t first, int64_t count, float* out) const {
    const float* numbers = matrix.packed ? nullptr : ByteNumbers(matrix.codes.type);
    const int64_t words = (matrix.columns * matrix.bits + 31) / 32;
    const int offset = 1 << (matrix.bits - 1);
    for (int64_t row = first; row < first + count; ++row, out += matrix.columns) {
      const uint8_t* codes =
          matrix.codes.bytes.data() + row * (matrix.packed ? words * 4 : matrix.columns);
      for (int64_t i = 0; i < matrix.columns; ++i) {
        out[i] = matrix.packed
                     ? static_cast<float>(static_cast<int>(FieldAt(codes, i, matrix.bits)) - offset)
                     : numbers[codes[i]];
      }
      const int64_t at = row / matrix.reach_rows * matrix.scale_columns;
      const float* scale = scales.data() + at;
      const float* zero = zeros.data() + at;
      if (!groups.empty()) {
        for (int64_t i = 0; i < matrix.columns; ++i) {
          const int64_t group = groups[static_cast<size_t>(i)];
          out[i] = (out[i] - zero[group]) * scale[group];
        }
        continue;
      }
      for (int64_t begin = 0; begin < matrix.columns; begin += matrix.reach_columns) {
        const int64_t end = std::min(begin + matrix.reach_columns, matrix.columns);
        for (int64_t i = begin; i < end; ++i) out[i] = (out[i] - *zero) * *scale;
        ++zero;
        ++scale;
      }
    }
  }
};

// Everything of one module, its shapes checked; the numbers come later.
Status AddModule(const WeightSource& source, const QuantScheme& scheme, const std::string& module,
                 const std::string& stored, bool packed, QuantizedPlan& plan) {
  KVG_ASSIGN(CompressedMatrix matrix,
             packed ? PackedLayout(source, scheme, module) : ByteLayout(source, scheme, module));
  const std::string weight = module + ".weight";
  const auto part = [&](const char* kind) {
    std::string name = weight + kind;
    if (!source.Contains(name)) return std::string();
    plan.parts.insert(name);
    return name;
  };
  if (packed) plan.parts.insert({stored, weight + "_shape"});
  matrix.scale = part("_scale");
  matrix.zero_point = part("_zero_point");
  matrix.group_of = part("_g_idx");
  const std::string where = StrCat(source.OriginOf(stored), ": tensor ", Quoted(stored, 120));
  if (matrix.scale.empty()) {
    return BadInput(StrCat(where, " comes without a scale ", Quoted(weight + "_scale", 120)));
  }
  if (!scheme.symmetric && matrix.zero_point.empty()) {
    return BadInput(StrCat(where, " is asymmetric, but comes without zero points ",
                           Quoted(weight + "_zero_point", 120)));
  }
  if (scheme.ordered && scheme.scale == QuantScheme::Scale::kGroup && matrix.group_of.empty()) {
    return BadInput(
        StrCat(where, " is in act order, but comes without ", Quoted(weight + "_g_idx", 120)));
  }
  if (scheme.symmetric) matrix.zero_point.clear();
  KVG_TRY(LayOutScales(source, scheme, matrix));
  if (!matrix.group_of.empty()) {
    if (scheme.scale != QuantScheme::Scale::kGroup) {
      return BadInput(StrCat(where, " has groups of columns, but no scales in groups"));
    }
    KVG_TRY(StoredOf(source, matrix.group_of, {"I32", "I64"}, {{matrix.columns}}, "its columns"));
  }
  MadeTensor made{.stored = stored, .shape = {matrix.rows, matrix.columns}, .open = nullptr};
  made.open = [&source, matrix]() -> Result<RowMaker> {
    auto rows = std::make_shared<CompressedRows>();
    rows->matrix = matrix;
    KVG_ASSIGN(rows->scales, FiniteNumbers(source, matrix.scale));
    KVG_ASSIGN(rows->zeros, ZeroPoints(source, matrix));
    KVG_ASSIGN(rows->groups, GroupsOfColumns(source, matrix));
    return RowMaker(
        [rows](int64_t first, int64_t count, float* out) { rows->Make(first, count, out); });
  };
  plan.made.emplace(weight, std::move(made));
  return {};
}

}  // namespace

Result<QuantizedPlan> PlanCompressedTensors(const WeightSource& source,
                                            const QuantizationConfig& config) {
  KVG_ASSIGN(const SchemeFinder finder, SchemeFinder::Of(config));
  QuantizedPlan plan;
  for (const std::string& name : source.Names()) {
    constexpr std::string_view kPacked = ".weight_packed", kBytes = ".weight";
    const bool packed = name.ends_with(kPacked);
    if (!packed && !name.ends_with(kBytes)) continue;
    if (!packed) {
      KVG_ASSIGN(const RawTensor stored, source.GetStored(name));
      if (stored.type != "F8_E4M3" && stored.type != "I8") continue;
    }
    const std::string module = name.substr(0, name.size() - (packed ? kPacked : kBytes).size());
    KVG_ASSIGN(const QuantScheme* scheme, finder.Find(source, module, name));
    if (packed != (scheme->format == "pack-quantized")) {
      return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " is ",
                             packed ? "packed" : "not packed", ", but its group in ", config.path,
                             " has format ", Quoted(scheme->format)));
    }
    KVG_TRY(AddModule(source, *scheme, module, name, packed, plan));
    plan.made.at(module + std::string(kBytes)).inputs =
        InputsOf(source, config, scheme->inputs, module);
    for (const char* beside :
         {".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point"}) {
      if (source.Contains(module + beside)) plan.parts.insert(module + beside);
    }
  }
  return plan;
}

}  // namespace kvgauge
