// SPDX-License-Identifier: Apache-2.0
#include "src/config/gguf_metadata.h"

#include <algorithm>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"

namespace kvgauge {
namespace {

// What cannot change the forward pass, or follows from the tensors.
constexpr std::string_view kIgnored[] = {
    "vocab_size",
    "tensor_data_layout",
    "leading_dense_block_count",
    "interleave_moe_layer_step",
    "nextn_predict_layers",
    "rope.scaling.finetuned",
    "expert_group_count",
};

}  // namespace

const GgufValue* GgufMetadata::Take(std::string_view key) {
  taken_.insert(StrCat(file_.architecture->name, ".", key));
  return file_.Find(key);
}

std::optional<int64_t> GgufMetadata::Int(std::string_view key) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return std::nullopt;
  // Some files say one number for each layer, all of them the same.
  if (const auto all = value->Ints(); all && !all->empty()) {
    if (std::ranges::count(*all, all->front()) == std::ssize(*all)) return all->front();
  }
  const std::optional<int64_t> number = value->Int();
  if (!number) Fail(key, "one whole number for all layers");
  return number;
}

std::vector<int64_t> GgufMetadata::LayerInts(std::string_view key, int64_t layers) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return {};
  if (const auto all = value->Ints(); all && std::ssize(*all) == layers) return *all;
  if (const auto one = value->Int()) return std::vector<int64_t>(static_cast<size_t>(layers), *one);
  Fail(key, StrCat("one whole number, or ", layers, ", one for each layer"));
  return {};
}

std::vector<bool> GgufMetadata::LayerFlags(std::string_view key, int64_t layers) {
  const GgufValue* value = Take(key);
  const auto flags = value != nullptr ? value->Bools() : std::nullopt;
  if (flags && std::ssize(*flags) == layers) return *flags;
  Fail(key, StrCat(layers, " flags, one for each layer"));
  return std::vector<bool>(static_cast<size_t>(layers), false);
}

std::optional<double> GgufMetadata::Real(std::string_view key) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = value->Real();
  if (!number) Fail(key, "a number");
  return number;
}

std::optional<bool> GgufMetadata::Bool(std::string_view key) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<bool> flag = value->Bool();
  if (!flag) Fail(key, "true or false");
  return flag;
}

std::string GgufMetadata::Text(std::string_view key) {
  const GgufValue* value = Take(key);
  if (value == nullptr) return "";
  const std::optional<std::string_view> text = value->Text();
  if (!text || FindInvalidUtf8(*text) != std::string_view::npos) Fail(key, "a text");
  return std::string(text.value_or(""));
}

void GgufMetadata::Set(std::string_view key, Json value) {
  out_[std::string(key)] = std::move(value);
}

void GgufMetadata::Rename(std::string_view from, std::string_view to) {
  const auto found = out_.find(std::string(from));
  if (found == out_.end()) return;
  Json value = std::move(*found);
  out_.erase(found);
  Set(to, std::move(value));
}

void GgufMetadata::Drop(std::string_view key) { out_.erase(std::string(key)); }

const GgufTensor* GgufMetadata::FirstInLayers(std::string_view part) const {
  const auto found = std::ranges::find_if(file_.header.tensors, [&](const GgufTensor& tensor) {
    const std::optional<NumberedName> layer = SplitGgufLayer(tensor.name);
    return layer && layer->rest == part;
  });
  return found == file_.header.tensors.end() ? nullptr : &*found;
}

bool GgufMetadata::HasInLayers(std::string_view part) const {
  return FirstInLayers(part) != nullptr;
}

std::optional<int64_t> GgufMetadata::RowsInLayers(std::string_view part) const {
  const GgufTensor* tensor = FirstInLayers(part);
  if (tensor == nullptr || tensor->shape.size() < 2) return std::nullopt;
  return tensor->shape[tensor->shape.size() - 2];
}

void GgufMetadata::Fail(std::string_view key, std::string_view expected) {
  if (!fault_.ok()) return;
  fault_ = BadInput(StrCat(file_.path(), ": key '", file_.architecture->name, ".", key,
                           "': expected ", expected));
}

void GgufMetadata::Refuse(std::string_view key, std::string_view why) {
  if (!fault_.ok()) return;
  fault_ =
      Unsupported(StrCat(file_.path(), ": key '", file_.architecture->name, ".", key, "': ", why));
}

Status GgufMetadata::Finish() {
  KVG_TRY(fault_);
  for (const std::string_view key : kIgnored) Take(key);
  const std::string scope = StrCat(file_.architecture->name, ".");
  for (const auto& [key, value] : file_.header.metadata) {
    if (!key.starts_with(scope) || taken_.contains(key)) continue;
    return Unsupported(StrCat(file_.path(), ": key ", Quoted(key, 120),
                              " is not understood, and may change what the model computes"));
  }
  return {};
}

int64_t GgufStoredLayers(GgufMetadata& data) {
  const int64_t layers = data.Int("block_count").value_or(0);
  if (layers >= 1 && layers <= kMostLayers) return layers;
  data.Fail("block_count", StrCat("a number from 1 to ", kMostLayers));
  return 1;
}

int64_t GgufLayers(GgufMetadata& data) {
  const int64_t stored = GgufStoredLayers(data);
  return std::min(stored, data.file().DraftLayer().value_or(stored));
}

std::optional<int64_t> HeadWidthOf(GgufMetadata& data) {
  if (const auto keys = data.Int("attention.key_length")) return keys;
  const GgufValue* hidden = data.file().Find("embedding_length");
  const GgufValue* heads = data.file().Find("attention.head_count");
  const int64_t count = heads != nullptr ? heads->Int().value_or(0) : 0;
  if (hidden == nullptr || count < 1) return std::nullopt;
  return hidden->Int().value_or(0) / count;
}

void SetHeads(GgufMetadata& data) {
  const auto keys = data.Int("attention.key_length");
  const auto values = data.Int("attention.value_length");
  if (keys && values && *keys != *values) {
    data.Refuse("attention.value_length", "another width than that of keys");
  }
  const auto rotated = data.Int("rope.dimension_count");
  const std::optional<int64_t> width = HeadWidthOf(data);
  data.SetIf("head_dim", keys);
  if (!rotated || !width || *rotated == *width) return;
  if (data.type() == "phi3") {
    data.Set("partial_rotary_factor", static_cast<double>(*rotated) / static_cast<double>(*width));
  } else {
    data.Refuse("rope.dimension_count", "a part of each head that does not turn");
  }
}

}  // namespace kvgauge
