// SPDX-License-Identifier: Apache-2.0
#include "src/cache/layer_layout.h"

#include <algorithm>

#include "core/strings.h"

namespace kvgauge {
namespace {

std::vector<LayoutSpec>& Specs() {
  static std::vector<LayoutSpec> specs;
  return specs;
}

}  // namespace

// Made by the build: true, and a reference to every file in layouts/.
bool LayoutsAreLinked();

LayoutRegistrar::LayoutRegistrar(const LayoutSpec& spec) {
  for (const LayoutSpec& other : Specs()) {
    KVG_CHECK(other.id != spec.id, StrCat("two layouts are called ", spec.id));
  }
  Specs().push_back(spec);
}

std::unique_ptr<LayerLayout> MakeLayerLayout(std::string_view id) {
  KVG_CHECK(LayoutsAreLinked(), "a layout was left out of the program");
  for (const LayoutSpec& spec : Specs()) {
    if (spec.id == id) return spec.make();
  }
  return nullptr;
}

std::vector<std::string_view> LayoutIds() {
  std::vector<std::string_view> ids;
  for (const LayoutSpec& spec : Specs()) ids.push_back(spec.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Status LayerLayout::Use(const StoreLayout&, const LayerEntries&) { return {}; }
Status LayerLayout::Put(std::string&) const { return {}; }
Status LayerLayout::Take(std::string_view&, const LayerEntries&) { return {}; }

void LayerLayout::PutEntries(const LayerEntries& entries, std::string& out) const {
  for (const LayerPart& part : entries.parts) {
    for (const std::vector<Stream>* streams : {&part.keys, &part.values}) {
      for (const Stream& stream : *streams) stream.Serialize(out);
    }
  }
}

Status LayerLayout::TakeEntries(std::string_view& in, LayerEntries& entries) {
  for (LayerPart& part : entries.parts) {
    for (std::vector<Stream>* streams : {&part.keys, &part.values}) {
      for (Stream& stream : *streams) KVG_TRY(stream.Deserialize(in));
    }
  }
  return {};
}

Status LayerLayout::Check(const LayerEntries& entries) const {
  if (!entries.setup->values_in_keys || entries.setup->rows_alone) return {};
  return Unsupported("the cache holds the model's own latents; a store must say mla_latent");
}

int64_t LayerLayout::owners(const LayerEntries& entries, KvSide) const {
  return entries.setup->kv_heads;
}

int64_t LayerLayout::dim(const LayerEntries& entries, KvSide side, int64_t) const {
  return entries.HeadDim(side);
}

Tensor LayerLayout::Transformed(const LayerEntries&, KvSide, int64_t, const Tensor& rows,
                                Buffer*) const {
  return HeadRows(rows, 0);
}

Status LayerLayout::Convert(LayerEntries&, std::span<const LayerPair>) { return {}; }
Status LayerLayout::Seal(LayerEntries&, bool*) { return {}; }
Status LayerLayout::Classify(LayerEntries&, std::span<const std::vector<int32_t>>) {
  return Unsupported(StrCat(id(), ": entries have no classes"));
}
Status LayerLayout::SealTogether(LayerEntries&, const LayerPair&, Buffer*) { return {}; }
Status LayerLayout::CheckReduce(std::span<const HeadPlan>) const { return {}; }

void LayerLayout::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                       Tensor rows) const {
  entries.ReadStream(side, entries.OwnerOf(side, head), first, rows);
}

void LayerLayout::Describe(const LayerEntries&, std::span<KvSegment>) const {}

void LayerLayout::AddBytes(const LayerEntries& entries, KvBytes& bytes) const {
  for (const LayerPart& part : entries.parts) {
    for (const Stream& stream : part.keys) stream.AddBytes(bytes);
    for (const Stream& stream : part.values) stream.AddBytes(bytes);
  }
}

LayerPart LayerLayout::EmptyPart(const LayerEntries& entries) const {
  const std::array<int64_t, 2> counts = {owners(entries, KvSide::kKeys),
                                         owners(entries, KvSide::kValues)};
  return entries.NewPart(counts, *entries.pool, [&](KvSide side, int64_t owner) {
    StreamSpec spec;
    spec.side = side;
    spec.dtype = entries.setup->format.dtype;
    spec.dim = dim(entries, side, owner);
    spec.by_entry = entries.by_entry;
    return spec;
  });
}

}  // namespace kvgauge
