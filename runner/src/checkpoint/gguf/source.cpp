// SPDX-License-Identifier: Apache-2.0
// The tensors of a GGUF file as those of a checkpoint.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "src/checkpoint/gguf/file.h"
#include "src/checkpoint/gguf/origins.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

std::optional<DType> PlainType(const BlockType& type) {
  return DTypeFromName(type.name);  // blocks have names of their own
}

// That of all parts; nothing where they differ, or lie in blocks.
std::optional<DType> PlainType(const GgufOrigin& origin) {
  const std::optional<DType> first = PlainType(*origin.parts[0]->type);
  const bool same = std::ranges::all_of(
      origin.parts, [&](const GgufTensor* part) { return PlainType(*part->type) == first; });
  return same ? first : std::nullopt;
}

class GgufSource final : public WeightSource, public OrderedReads {
 public:
  GgufSource(GgufFile file, DType dtype) : file_(std::move(file)), dtype_(dtype) {}

  // The origins view this file.
  Status FindOrigins() {
    KVG_ASSIGN(tensors_, FindGgufOrigins(file_));
    return {};
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    names.reserve(tensors_.size());
    for (const auto& [name, origin] : tensors_) names.push_back(name);
    return names;
  }

  bool Contains(const std::string& name) const override { return tensors_.contains(name); }

  Result<WeightInfo> Describe(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(file_.path(), name, Names());
    return WeightInfo{TypeOf(found->second), found->second.shape, FormatOf(found->second)};
  }

  Result<std::optional<WeightBlocks>> GetBlocks(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(file_.path(), name, Names());
    const GgufOrigin& origin = found->second;
    WeightBlocks blocks;
    blocks.rows.format = FormatOf(origin);
    if (!blocks.rows.format) return std::optional<WeightBlocks>();
    ReachAhead(origin);
    blocks.owner = OwnerOf(origin);
    const BlockType& type = *origin.parts[0]->type;
    const int64_t rows = origin.shape[0], row_bytes = origin.shape[1] / type.elements * type.bytes;
    std::vector<const uint8_t*> contents;
    for (size_t part = 0; part < origin.parts.size(); ++part) {
      contents.push_back(Content(origin, part).data());
    }
    blocks.rows.blocks.reserve(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      if (origin.order.in_place()) {
        blocks.rows.blocks.push_back(contents[0] + row * row_bytes);
        continue;
      }
      const RowOrder::Place at = origin.order.Of(row);
      blocks.rows.blocks.push_back(contents[at.run->part] + at.row * row_bytes);
    }
    return std::optional<WeightBlocks>(std::move(blocks));
  }

  Result<WeightTensor> Get(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(file_.path(), name, Names());
    const GgufOrigin& origin = found->second;
    const DType type = TypeOf(origin);
    ReachAhead(origin);
    if (IsView(origin)) {
      return WeightTensor{ContiguousView(Content(origin, 0).data(), type, origin.shape),
                          OwnerOf(origin)};
    }
    int64_t elements = 1;
    for (const int64_t size : origin.shape) elements *= size;
    int64_t rows = origin.shape.size() < 2 ? 1 : origin.shape[0];
    if (!origin.order.in_place()) rows = origin.order.groups * origin.order.rows_of_group();
    const auto buffer = std::make_shared<Buffer>(HostBuffer(elements * SizeOf(type)));
    MakeRows(origin, type, rows, elements / rows, static_cast<uint8_t*>(buffer->data()));
    LetGo(origin);  // numbers are here now, and what follows copies them once more
    return WeightTensor{ContiguousView(buffer->data(), type, origin.shape), buffer};
  }

  void Release(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) LetGo(found->second);
  }

  void PlanReads(std::span<const std::string> names) const override {
    std::vector<FilePart> parts;
    for (const std::string& name : names) {
      const auto found = tensors_.find(name);
      if (found == tensors_.end()) continue;
      const GgufOrigin& origin = found->second;
      for (size_t part = 0; part < origin.parts.size(); ++part) {
        parts.push_back(PartOf(origin, part));
      }
    }
    ahead_.Plan(parts);
  }

  void EndReads() const override { ahead_.EndPlan(); }

  std::string OriginOf(const std::string& name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? file_.path() : file_.PartOf(*found->second.parts[0])->path();
  }

  std::string Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      FingerprintBuilder builder("gguf 1");
      for (const GgufTensor& tensor : file_.header.tensors) {
        builder.AddTensor(tensor.name, tensor.type->name, tensor.shape);
        const FilePart part = {file_.PartOf(tensor).get(), file_.BytesOf(tensor)};
        ahead_.Follow(part);
        builder.AddContent(part.bytes);
        ReleasePages(part);
      }
      fingerprint_ = builder.Finish();
    });
    return fingerprint_;
  }

 private:
  std::span<const uint8_t> Content(const GgufOrigin& origin, size_t part) const {
    const std::span<const uint8_t> all = file_.BytesOf(*origin.parts[part]);
    const size_t bytes = all.size() / static_cast<size_t>(origin.slices);
    return all.subspan(static_cast<size_t>(origin.slice) * bytes, bytes);
  }

  void ReachAhead(const GgufOrigin& origin) const {
    for (size_t part = 0; part < origin.parts.size(); ++part) {
      ahead_.Reach(PartOf(origin, part));
    }
  }

  FilePart PartOf(const GgufOrigin& origin, size_t part) const {
    return {file_.PartOf(*origin.parts[part]).get(), Content(origin, part)};
  }

  void LetGo(const GgufOrigin& origin) const {
    for (size_t part = 0; part < origin.parts.size(); ++part) ReleasePages(PartOf(origin, part));
  }

  std::shared_ptr<const void> OwnerOf(const GgufOrigin& origin) const {
    if (origin.parts.size() == 1) return file_.PartOf(*origin.parts[0]);
    std::vector<std::shared_ptr<const MappedFile>> maps;
    for (const GgufTensor* part : origin.parts) maps.push_back(file_.PartOf(*part));
    return std::make_shared<const std::vector<std::shared_ptr<const MappedFile>>>(std::move(maps));
  }

  // Whether numbers are others than the file's.
  static bool Changes(const GgufOrigin& origin) { return origin.plus_one || origin.logarithm; }

  // Whether the file's bytes are the tensor's.
  static bool IsView(const GgufOrigin& origin) {
    return PlainType(origin) && origin.order.in_place() && !Changes(origin);
  }

  static std::optional<BlockFormat> FormatOf(const GgufOrigin& origin) {
    if (origin.shape.size() != 2 || Changes(origin) || origin.unrounded) return std::nullopt;
    const bool same = std::ranges::all_of(
        origin.parts, [&](const GgufTensor* part) { return part->type == origin.parts[0]->type; });
    if (!same || std::ranges::any_of(origin.order.runs, &RowRun::across)) return std::nullopt;
    return origin.parts[0]->type->format;
  }

  DType TypeOf(const GgufOrigin& origin) const {
    if (Changes(origin)) return DType::kF32;
    if (const std::optional<DType> plain = PlainType(origin)) return *plain;
    return origin.unrounded || origin.shape.size() < 2 ? DType::kF32 : dtype_;
  }

  // All numbers of the parts of which a run goes across, which no row of them has; empty of others.
  std::vector<std::vector<float>> ReadAcross(const GgufOrigin& origin, int64_t columns) const {
    std::vector<std::vector<float>> out(origin.parts.size());
    for (const RowRun& run : origin.order.runs) {
      if (!run.across) continue;
      const BlockType& blocks = *origin.parts[run.part]->type;
      const uint8_t* content = Content(origin, run.part).data();
      const int64_t rows = origin.order.groups * columns;
      std::vector<float>& numbers = out[run.part];
      numbers.resize(static_cast<size_t>(rows * run.rows));
#pragma omp parallel for schedule(static)
      for (int64_t row = 0; row < rows; ++row) {
        ReadBlocks(blocks, content + row * (run.rows / blocks.elements * blocks.bytes), run.rows,
                   numbers.data() + row * run.rows);
      }
    }
    return out;
  }

  // Row `row` of `columns` numbers, read from where the file has it.
  void ReadRow(const GgufOrigin& origin, const std::vector<std::vector<float>>& across, int64_t row,
               int64_t columns, std::span<float> out) const {
    size_t part = 0;
    int64_t from = row;
    if (!origin.order.in_place()) {
      const RowOrder::Place at = origin.order.Of(row);
      part = at.run->part;
      from = at.row;
      if (at.run->across) {
        const float* group = across[part].data() + at.group * columns * at.run->rows;
        for (int64_t i = 0; i < columns; ++i) {
          out[static_cast<size_t>(i)] = group[i * at.run->rows + at.in_run];
        }
        return;
      }
    }
    const BlockType& blocks = *origin.parts[part]->type;
    const int64_t row_bytes = columns / blocks.elements * blocks.bytes;
    ReadBlocks(blocks, Content(origin, part).data() + from * row_bytes, columns, out.data());
  }

  void MakeRows(const GgufOrigin& origin, DType type, int64_t rows, int64_t columns,
                uint8_t* out) const {
    const std::vector<std::vector<float>> across = ReadAcross(origin, columns);
    const float less = origin.plus_one ? 1.0f : 0.0f;
#pragma omp parallel
    {
      std::vector<float> numbers(static_cast<size_t>(columns));
#pragma omp for schedule(static)
      for (int64_t row = 0; row < rows; ++row) {
        ReadRow(origin, across, row, columns, numbers);
        uint8_t* to = out + row * columns * SizeOf(type);
        if (type == DType::kF32) {
          auto* floats = reinterpret_cast<float*>(to);
          for (int64_t i = 0; i < columns; ++i) {
            const float value = numbers[static_cast<size_t>(i)] - less;
            floats[i] = origin.logarithm ? std::log(-value) : value;
          }
          continue;
        }
        auto* halves = reinterpret_cast<uint16_t*>(to);
        for (int64_t i = 0; i < columns; ++i) {
          const float value = numbers[static_cast<size_t>(i)];
          halves[i] = type == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
        }
      }
    }
  }

  GgufFile file_;
  std::map<std::string, GgufOrigin> tensors_;
  DType dtype_;
  mutable ReadAhead ahead_;
  mutable std::once_flag fingerprint_once_;
  mutable std::string fingerprint_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenGgufWeights(const std::string& path, DType dtype) {
  KVG_ASSIGN(GgufFile file, OpenGgufFile(path));
  auto source = std::make_unique<GgufSource>(std::move(file), dtype);
  KVG_TRY(source->FindOrigins());
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace kvgauge
