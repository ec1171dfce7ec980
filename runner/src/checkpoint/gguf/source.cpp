// SPDX-License-Identifier: Apache-2.0
// The tensors of a GGUF file as those of a checkpoint.
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "src/checkpoint/gguf/file.h"
#include "src/checkpoint/weights_common.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostExperts = 1 << 16;

// Where a tensor of the checkpoint comes from.
struct Origin {
  const GgufTensor* tensor = nullptr;
  GgufPlace place;
  int64_t expert = 0;          // where the place is stacked
  int64_t half = 0;            // where an expert's rows are two tensors: which of the two
  int64_t heads = 0;           // where it is paired
  std::vector<int64_t> shape;  // that of the checkpoint
};

// The row of the file that is row `row` of the checkpoint, where heads of `rows` rows stand in
// pairs: element j of half t is row 2 j + t there.
int64_t PairedRow(int64_t row, int64_t rows) {
  const int64_t half = rows / 2, in_head = row % rows;
  return row - in_head + in_head % half * 2 + in_head / half;
}

std::optional<DType> PlainType(const BlockType& type) {
  return DTypeFromName(type.name);  // blocks have names of their own
}

class GgufSource final : public WeightSource {
 public:
  GgufSource(GgufFile file, std::map<std::string, Origin> tensors, DType dtype)
      : file_(std::move(file)), tensors_(std::move(tensors)), dtype_(dtype) {}

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
    const Origin& origin = found->second;
    WeightBlocks blocks;
    blocks.rows.format = FormatOf(origin);
    if (!blocks.rows.format) return std::optional<WeightBlocks>();
    blocks.owner = file_.map;
    const BlockType& type = *origin.tensor->type;
    const int64_t rows = origin.shape[0], row_bytes = origin.shape[1] / type.elements * type.bytes;
    const uint8_t* content = Content(origin).data();
    const int64_t head_rows = origin.heads > 0 ? rows / origin.heads : 0;
    blocks.rows.blocks.reserve(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = origin.place.paired ? PairedRow(row, head_rows) : row;
      blocks.rows.blocks.push_back(content + from * row_bytes);
    }
    return std::optional<WeightBlocks>(std::move(blocks));
  }

  Result<WeightTensor> Get(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return NoSuchTensor(file_.path(), name, Names());
    const Origin& origin = found->second;
    const DType type = TypeOf(origin);
    if (IsView(origin)) {
      return WeightTensor{ContiguousView(Content(origin).data(), type, origin.shape), file_.map};
    }
    const int64_t rows = origin.shape.size() < 2 && !origin.place.paired ? 1 : origin.shape[0];
    int64_t elements = 1;
    for (const int64_t size : origin.shape) elements *= size;
    const auto buffer = std::make_shared<Buffer>(HostBuffer(elements * SizeOf(type)));
    MakeRows(origin, type, rows, elements / rows, static_cast<uint8_t*>(buffer->data()));
    return WeightTensor{ContiguousView(buffer->data(), type, origin.shape), buffer};
  }

  void Release(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) ReleasePages(Content(found->second));
  }

  std::string OriginOf(const std::string&) const override { return file_.path(); }

  std::string Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      FingerprintBuilder builder("gguf 1");
      for (const GgufTensor& tensor : file_.header.tensors) {
        builder.AddTensor(tensor.name, tensor.type->name, tensor.shape);
        builder.AddContent(file_.map->bytes().subspan(tensor.begin, tensor.end - tensor.begin));
      }
      fingerprint_ = builder.Finish();
    });
    return fingerprint_;
  }

 private:
  std::span<const uint8_t> Content(const Origin& origin) const {
    const GgufTensor& tensor = *origin.tensor;
    const int64_t halves = origin.place.second.empty() ? 1 : 2;
    const int64_t parts = origin.place.stacked ? tensor.shape[0] * halves : 1;
    const uint64_t bytes = (tensor.end - tensor.begin) / static_cast<uint64_t>(parts);
    const auto before = static_cast<uint64_t>(origin.expert * halves + origin.half);
    return file_.map->bytes().subspan(tensor.begin + before * bytes, bytes);
  }

  // Whether the file's bytes are the tensor's.
  static bool IsView(const Origin& origin) {
    return PlainType(*origin.tensor->type) && !origin.place.paired && !origin.place.plus_one;
  }

  static std::optional<BlockFormat> FormatOf(const Origin& origin) {
    if (origin.shape.size() != 2 || origin.place.plus_one || origin.place.unrounded) {
      return std::nullopt;
    }
    return origin.tensor->type->format;
  }

  DType TypeOf(const Origin& origin) const {
    if (origin.place.plus_one) return DType::kF32;
    if (const std::optional<DType> plain = PlainType(*origin.tensor->type)) return *plain;
    return origin.place.unrounded || origin.shape.size() < 2 ? DType::kF32 : dtype_;
  }

  // All rows, each read from where the file has it.
  void MakeRows(const Origin& origin, DType type, int64_t rows, int64_t columns,
                uint8_t* out) const {
    const std::span<const uint8_t> content = Content(origin);
    const BlockType& blocks = *origin.tensor->type;
    const int64_t row_bytes = columns / blocks.elements * blocks.bytes;
    const float less = origin.place.plus_one ? 1.0f : 0.0f;
    const int64_t head_rows = origin.heads > 0 ? rows / origin.heads : 0;
#pragma omp parallel
    {
      std::vector<float> numbers(static_cast<size_t>(columns));
#pragma omp for schedule(static)
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t from = origin.place.paired ? PairedRow(row, head_rows) : row;
        ReadBlocks(blocks, content.data() + from * row_bytes, columns, numbers.data());
        uint8_t* to = out + row * columns * SizeOf(type);
        if (type == DType::kF32) {
          auto* floats = reinterpret_cast<float*>(to);
          for (int64_t i = 0; i < columns; ++i) floats[i] = numbers[static_cast<size_t>(i)] - less;
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
  std::map<std::string, Origin> tensors_;
  DType dtype_;
  mutable std::once_flag fingerprint_once_;
  mutable std::string fingerprint_;
};

// Heads of queries or of keys, of a tensor whose rows are paired.
Result<int64_t> HeadsOf(const GgufFile& file, const GgufTensor& tensor) {
  const bool keys = tensor.name.find("attn_k.") != std::string::npos;
  const GgufValue* value = keys ? file.Find("attention.head_count_kv") : nullptr;
  if (value == nullptr) value = file.Find("attention.head_count");
  const int64_t heads = value != nullptr ? value->Int().value_or(0) : 0;
  if (heads >= 1 && tensor.shape[0] % heads == 0 && tensor.shape[0] / heads % 2 == 0) return heads;
  return BadInput(StrCat(file.path(), ": tensor ", Quoted(tensor.name, 120), " has ",
                         tensor.shape[0], " rows, expected ", heads,
                         " heads of an even number of rows each"));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenGgufWeights(const std::string& path, DType dtype) {
  KVG_ASSIGN(GgufFile file, OpenGgufFile(path));
  std::map<std::string, Origin> tensors;
  for (const GgufTensor& tensor : file.header.tensors) {
    if (IsGgufRopeTensor(tensor.name)) continue;  // the configuration has them
    const std::optional<GgufPlace> place = PlaceOfGgufTensor(*file.architecture, tensor.name);
    const std::string where = StrCat(path, ": tensor ", Quoted(tensor.name, 120));
    if (!place) {
      return BadInput(StrCat(where, " is none that ", file.architecture->name,
                             " is known to have; a model that ignores weights gives wrong logits"));
    }
    Origin origin{.tensor = &tensor, .place = *place, .shape = tensor.shape};
    if (place->paired) {
      KVG_ASSIGN(origin.heads, HeadsOf(file, tensor));
    }
    if (place->paired && tensor.shape.size() < 2 && tensor.type->elements > 1) {
      return Unsupported(StrCat(where, ": a bias in blocks of ", tensor.type->elements));
    }
    if (!place->stacked) {
      tensors.emplace(place->name, std::move(origin));
      continue;
    }
    const size_t rank = place->name.ends_with(".bias") ? 2 : 3;
    if (tensor.shape.size() != rank || tensor.shape[0] > kMostExperts) {
      return BadInput(StrCat(where, " has ", tensor.shape.size(), " dimensions, the first ",
                             tensor.shape[0], "; expected ", rank, ": at most ", kMostExperts,
                             " experts, rows", rank == 3 ? " and columns" : ""));
    }
    if (!place->second.empty() && tensor.shape[1] % 2 != 0) {
      return BadInput(StrCat(where, " has ", tensor.shape[1],
                             " rows for each expert, expected an even number: those of gates and "
                             "as many of what they open"));
    }
    origin.shape.erase(origin.shape.begin());
    if (!place->second.empty()) origin.shape[0] /= 2;
    for (origin.expert = 0; origin.expert < tensor.shape[0]; ++origin.expert) {
      origin.half = 0;
      for (const std::string* name : {&place->name, &place->second}) {
        if (name->empty()) continue;
        const size_t at = name->find('#');
        const std::string own = StrCat(name->substr(0, at), origin.expert, name->substr(at + 1));
        if (!tensors.emplace(own, origin).second) {
          return BadInput(StrCat(where, ": another tensor is ", Quoted(own, 120), " already"));
        }
        ++origin.half;
      }
    }
  }
  return std::unique_ptr<WeightSource>(
      std::make_unique<GgufSource>(std::move(file), std::move(tensors), dtype));
}

}  // namespace kvgauge
