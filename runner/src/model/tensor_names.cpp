// SPDX-License-Identifier: Apache-2.0
// Which of the published spellings of tensor names a checkpoint has.
#include <algorithm>

#include "core/strings.h"
#include "src/model/model_tensors.h"

namespace kvgauge {
namespace {

// Where the text part of a vision-language checkpoint lies: as its first files had it, as
// transformers holds it since 4.52, and as Idefics3 and its kin have it. Old Qwen2-VL files name it
// like a text model.
const TensorPlaces kTextPlaces[] = {
    {.body = "language_model.model.", .head = "language_model."},
    {.body = "model.language_model.", .head = ""},
    {.body = "model.text_model.", .head = ""},
    {.body = "model.", .head = ""},
};

// Prefixes of what is not the text part's: the tower, its projector, the row that ends a line.
constexpr std::string_view kTowerPrefixes[] = {
    "vision_tower.",
    "model.vision_tower.",
    "visual.",
    "model.visual.",
    "vision_model.",
    "model.vision_model.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "model.audio_tower.",
    "model.embed_vision.",
    "model.embed_audio.",
    "connector.",
    "model.connector.",
    "image_newline",
    "model.image_newline",
};

bool IsBodyTensor(const TensorPlaces& places, std::string_view name) {
  if (!name.starts_with(*places.body)) return false;
  const std::string_view rest = name.substr(places.body->size());
  return rest.starts_with("layers.") || rest.starts_with("embed_tokens.") ||
         rest.starts_with("norm.");
}

Result<TensorPlaces> PlacesOfTextPart(const WeightSource& source) {
  const TensorPlaces* found = nullptr;
  std::string first;
  const std::vector<std::string> names = source.Names();
  for (const std::string& name : names) {
    for (const TensorPlaces& places : kTextPlaces) {
      if (!IsBodyTensor(places, name)) continue;
      if (found != nullptr && found != &places) {
        return BadInput(StrCat(source.OriginOf(name), ": '", first, "' and '", name,
                               "' are two spellings of the text part's names; expected one"));
      }
      found = &places;
      if (first.empty()) first = name;
      break;
    }
  }
  // Whatever is missing is then named in the first spelling.
  if (found == nullptr) return kTextPlaces[0];
  for (const std::string& name : names) {
    const bool nested = name == "language_model.lm_head.weight";
    if (!nested && name != "lm_head.weight") continue;
    if (nested != !found->head.empty()) {
      return BadInput(StrCat(source.OriginOf(name), ": '", first, "' and '", name,
                             "' are two spellings of the text part's names; expected one"));
    }
  }
  return *found;
}

// True when both tensors hold the same bytes.
Result<bool> SameContent(const WeightSource& source, const std::string& a, const std::string& b) {
  KVG_ASSIGN(const std::optional<WeightBlocks> some, source.GetBlocks(a));
  KVG_ASSIGN(const std::optional<WeightBlocks> others, source.GetBlocks(b));
  KVG_ASSIGN(const WeightInfo shape, source.Describe(a));
  KVG_ASSIGN(const WeightInfo other_shape, source.Describe(b));
  // As they are stored: dequantised, the largest matrices would be in memory twice.
  if (some && others && some->rows.format == others->rows.format &&
      shape.shape == other_shape.shape) {
    const BlockShape& block = BlockShapeOf(*some->rows.format);
    const auto bytes = static_cast<size_t>(shape.shape[1] / block.elements * block.bytes);
    return std::ranges::equal(some->rows.blocks, others->rows.blocks,
                              [bytes](const uint8_t* one, const uint8_t* other) {
                                return __builtin_memcmp(one, other, bytes) == 0;
                              });
  }
  KVG_ASSIGN(const WeightTensor first, source.Get(a));
  KVG_ASSIGN(const WeightTensor second, source.Get(b));
  return first.view.dtype == second.view.dtype &&
         first.view.SizeBytes() == second.view.SizeBytes() &&
         __builtin_memcmp(first.view.data, second.view.data,
                          static_cast<size_t>(first.view.SizeBytes())) == 0;
}

}  // namespace

bool IsTowerTensor(const std::string& name) {
  return std::any_of(std::begin(kTowerPrefixes), std::end(kTowerPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Result<ModelTensors> TensorsIn(const ModelConfig& config, const WeightSource& source) {
  TensorPlaces places;
  if (!config.vision_family.empty()) {
    KVG_ASSIGN(places, PlacesOfTextPart(source));
  } else {
    // Some files lack the first name, that of the body within the whole.
    const std::string_view body = config.tensor_names.body;
    const std::string inner(body.substr(body.find('.') + 1));
    if (source.Contains(StrCat(inner, config.tensor_names.embedding, ".weight"))) {
      places.body = inner;
    }
    // Others keep that of the text part of a whole that also sees.
    const std::string nested = StrCat(body, "language_model.");
    if (source.Contains(StrCat(nested, config.tensor_names.embedding, ".weight"))) {
      places.body = nested;
    }
  }
  ModelTensors tensors = DescribeTensors(config, places);
  if (!config.tied_head) return tensors;
  const std::string head = StrCat(places.head, config.tensor_names.head, ".weight");
  if (!source.Contains(head) || !source.Contains(tensors.embedding.name)) return tensors;
  KVG_ASSIGN(tensors.stored_head_differs, SameContent(source, head, tensors.embedding.name));
  tensors.stored_head_differs = !tensors.stored_head_differs;
  tensors.stored_head = head;
  // A class may tie by default what a checkpoint trained apart: both stored and different are two,
  // as transformers 5 has it. A text model's config is believed.
  if (tensors.stored_head_differs && !config.vision_family.empty()) {
    tensors.head.parts[0].name = head;
  }
  return tensors;
}

}  // namespace kvgauge
