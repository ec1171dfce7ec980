// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/quantized/source.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

// Rows that are made at once: formats that store columns together read a cache line of each.
constexpr int64_t kRowsAtOnce = 16;

class QuantizedSource final : public WeightSource, public RoundedInputs {
 public:
  QuantizedSource(std::unique_ptr<WeightSource> plain, QuantizedPlan plan, DType dtype)
      : plain_(std::move(plain)), plan_(std::move(plan)), dtype_(dtype) {
    for (const std::string& name : plain_->Names()) {
      if (IsPlain(name)) names_.push_back(name);
    }
    for (const auto& [name, made] : plan_.made) names_.push_back(name);
    std::sort(names_.begin(), names_.end());
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const std::string& name : names_) {
      if (!plan_.idle.contains(name)) names.push_back(name);
    }
    return names;
  }

  bool Contains(const std::string& name) const override {
    return std::ranges::binary_search(names_, name);
  }

  Result<WeightInfo> Describe(const std::string& name) const override {
    const auto found = plan_.made.find(name);
    if (found != plan_.made.end()) return WeightInfo{dtype_, found->second.shape};
    if (IsPlain(name)) return plain_->Describe(name);
    return NoSuchTensor(plain_->OriginOf(name), name, names_);
  }

  Result<WeightTensor> Get(const std::string& name) const override {
    const auto found = plan_.made.find(name);
    if (found == plan_.made.end()) {
      if (IsPlain(name)) return plain_->Get(name);
      return NoSuchTensor(plain_->OriginOf(name), name, names_);
    }
    const MadeTensor& made = found->second;
    KVG_ASSIGN(const RowMaker maker, made.open());
    const int64_t rows = made.shape[0], columns = made.shape.size() > 1 ? made.shape[1] : 1;
    const auto buffer = std::make_shared<Buffer>(HostBuffer(rows * columns * SizeOf(dtype_)));
    Make(maker, rows, columns, static_cast<uint8_t*>(buffer->data()));
    return WeightTensor{ContiguousView(buffer->data(), dtype_, made.shape), buffer};
  }

  Result<std::optional<RowRounding>> InputsOf(const std::string& name) const override {
    using Inputs = std::optional<RowRounding>;
    const auto found = plan_.made.find(name);
    if (found == plan_.made.end() || !found->second.inputs) return Inputs();
    KVG_ASSIGN(const RowRounding rounding, found->second.inputs());
    return Inputs(rounding);
  }

  std::string OriginOf(const std::string& name) const override {
    const auto found = plan_.made.find(name);
    return plain_->OriginOf(found == plan_.made.end() ? name : found->second.stored);
  }

  std::string Fingerprint() const override { return plain_->Fingerprint(); }

 private:
  // Parts are no tensors; a made tensor may have the name of the one that it is made of.
  bool IsPlain(const std::string& name) const {
    return plain_->Contains(name) && !plan_.parts.contains(name) && !plan_.made.contains(name);
  }

  void Make(const RowMaker& maker, int64_t rows, int64_t columns, uint8_t* out) const {
#pragma omp parallel
    {
      std::vector<float> numbers;
#pragma omp for schedule(dynamic)
      for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
        const int64_t count = std::min(kRowsAtOnce, rows - first);
        if (dtype_ == DType::kF32) {
          maker(first, count, reinterpret_cast<float*>(out) + first * columns);
          continue;
        }
        numbers.resize(static_cast<size_t>(kRowsAtOnce * columns));
        maker(first, count, numbers.data());
        auto* halves = reinterpret_cast<uint16_t*>(out) + first * columns;
        for (int64_t i = 0; i < count * columns; ++i) {
          const float value = numbers[static_cast<size_t>(i)];
          halves[i] = dtype_ == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
        }
      }
    }
  }

  std::unique_ptr<WeightSource> plain_;
  QuantizedPlan plan_;
  DType dtype_;
  std::vector<std::string> names_;  // sorted, the idle ones too
};

Result<QuantizedPlan> PlanOf(const WeightSource& source, const QuantizationConfig& config) {
  switch (config.method) {
    case QuantizationConfig::Method::kFp8:
      return PlanFp8(source, config);
    case QuantizationConfig::Method::kCompressedTensors:
      return PlanCompressedTensors(source, config);
    case QuantizationConfig::Method::kGptq:
      return PlanGptq(source, config);
    case QuantizationConfig::Method::kAwq:
      return PlanAwq(source, config);
    case QuantizationConfig::Method::kBitsAndBytes:
      return PlanBitsAndBytes(source, config);
    case QuantizationConfig::Method::kMxfp4:
      return PlanMxfp4(source);
  }
  CheckFailed(__FILE__, __LINE__, "method", "unknown method");
}

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenStackedExperts(std::unique_ptr<WeightSource> plain,
                                                         const StackedForm& form, DType dtype) {
  KVG_ASSIGN(QuantizedPlan plan, PlanStackedExperts(*plain, form));
  if (plan.made.empty()) return plain;
  return std::unique_ptr<WeightSource>(
      std::make_unique<QuantizedSource>(std::move(plain), std::move(plan), dtype));
}

Result<std::unique_ptr<WeightSource>> OpenQuantized(std::unique_ptr<WeightSource> plain,
                                                    const QuantizationConfig& config, DType dtype) {
  KVG_ASSIGN(QuantizedPlan plan, PlanOf(*plain, config));
  const bool dense = std::ranges::all_of(
      config.schemes, [](const QuantScheme& scheme) { return scheme.format == "dense"; });
  if (plan.made.empty() && !dense) {
    return BadInput(StrCat(config.path, ": key 'quantization_config': the weights are to be ",
                           config.Title(), ", but none beside it is stored so"));
  }
  return std::unique_ptr<WeightSource>(
      std::make_unique<QuantizedSource>(std::move(plain), std::move(plan), dtype));
}

Status CheckNotPlain(const WeightSource& source, const QuantizationConfig& config,
                     const std::string& module, const std::string& stored) {
  for (const std::string& name : config.plain_modules) {
    if (name.empty() || name.starts_with("re:")) continue;
    const bool listed =
        module == name || module.starts_with(name + ".") || module.ends_with("." + name);
    if (!listed) continue;
    return BadInput(StrCat(source.OriginOf(stored), ": tensor ", Quoted(stored, 120),
                           " is quantised, but ", config.path, " has ", Quoted(name, 120),
                           " in key 'quantization_config.", config.plain_key, "'"));
  }
  return {};
}

Result<int64_t> GroupCount(int64_t size, int64_t group_size, const std::string& where) {
  if (size % group_size == 0) return size / group_size;
  return BadInput(
      StrCat(where, " has ", size, " columns, which groups of ", group_size, " do not divide"));
}

}  // namespace kvgauge
