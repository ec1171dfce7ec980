// SPDX-License-Identifier: Apache-2.0
// How a layer executes the layout of its store plan: the runner's half of a StoreLayout.
//
// One file in layouts/ holds the class of one layout and registers it; the build finds it there.
// The base class is the plain layout: what a layout does not say otherwise is as in a plain cache.
// A layout owns what its plan's tensors hold, and whatever it keeps beside the entries. One thread.
//
// Life of one: Use (or Take, from bytes), Check, then Represent and Convert once on the entries
// that the layer holds; afterwards it is asked at each step. After an error the layer is dropped:
// the cache works on copies.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "methods/stages.h"
#include "src/cache/layer_entries.h"

namespace kvgauge {

class LayerLayout;

// One layer's entries and its layout, where a layout changes several layers.
struct LayerPair {
  LayerEntries* entries = nullptr;
  std::unique_ptr<LayerLayout>* layout = nullptr;
};

class LayerLayout {
 public:
  virtual ~LayerLayout() = default;
  virtual std::string_view id() const = 0;
  // For a fork: shares blocks.
  virtual std::unique_ptr<LayerLayout> Fork() const = 0;

  // -- The plan.
  // Takes over the plan of that id, with copies of its tensors.
  virtual Status Use(const StoreLayout& plan, const LayerEntries& entries);
  // The plan and its tensors as bytes, and back: bytes may come from anywhere. Also what the layout
  // has done so far, where the entries do not tell; Convert of an empty layer then does it again.
  virtual Status Put(std::string& out) const;
  virtual Status Take(std::string_view& in, const LayerEntries& entries);
  // What the streams hold, as bytes and back, into empty streams of heads whose lengths are known:
  // bit for bit what they held.
  virtual void PutEntries(const LayerEntries& entries, std::string& out) const;
  virtual Status TakeEntries(std::string_view& in, LayerEntries& entries);
  // How many layers below have entries of this one: of bytes, which hold them once. TakeShared then
  // takes them, behind TakeEntries; `below`: those layers, the nearest last.
  virtual int64_t shared_with_below() const { return 0; }
  virtual Status TakeShared(LayerEntries&, std::span<const LayerPair>) { return {}; }
  // Whether this layer of this cache can be stored so.
  virtual Status Check(const LayerEntries& entries) const;

  // -- The form of entries.
  // Whether keys are stored before rotation, whatever the plan's KeyTurn says.
  virtual bool wants_raw_keys(const LayerEntries&) const { return false; }
  // Streams of a side, and numbers of an entry in one of them.
  virtual int64_t owners(const LayerEntries& entries, KvSide side) const;
  virtual int64_t dim(const LayerEntries& entries, KvSide side, int64_t owner) const;
  // Whether entries are written in another form than the model's; then Transformed makes it: rows
  // [n, heads, dim] f32 of an owner's heads, strided, to [n, stream dim], in `memory`, which grows
  // as needed.
  virtual bool transforms(KvSide) const { return false; }
  virtual Tensor Transformed(const LayerEntries& entries, KvSide side, int64_t owner,
                             const Tensor& rows, Buffer* memory) const;
  // Whether what is stored are the inputs of the layer's attention, one stream for all heads in the
  // place of keys, from which both sides are read; then Convert stores those of the entries that
  // are there. TakeInputs has those of the rows that are written next, [rows, hidden_size].
  virtual bool stores_inputs() const { return false; }
  virtual void TakeInputs(const LayerEntries&, const Tensor&) {}
  // Whether values are read from the keys' stream, one for all heads, which both are written to.
  // TakeValues has those of the rows whose keys Transformed is asked for next, [n, heads, dim].
  virtual bool joins_sides() const { return stores_inputs(); }
  virtual void TakeValues(const Tensor&) {}
  // Whether entries that are float now may be coded later.
  virtual bool seals() const { return false; }

  // LayerEntries::key_owners, and for each KV head the one whose queries its values are weighed by.
  // Empty: neighbours share keys evenly; each its own.
  virtual std::vector<int64_t> KeyOwners(const LayerEntries&) const { return {}; }
  virtual std::span<const int64_t> asked() const { return {}; }

  // -- What is held.
  // How many layers before this one are converted with it. Called before Use.
  virtual int64_t layers_below(const StoreLayout&) const { return 0; }
  // The entries lie in one part, in the form above. `below`: those layers, the nearest last.
  virtual Status Convert(LayerEntries& entries, std::span<const LayerPair> below);
  // What is due after a step. Sets `changed` where streams or parts did.
  virtual Status Seal(LayerEntries& entries, bool* changed);
  // Whether entries that take the bytes of plain ones are other numbers than were written.
  virtual bool rounds() const { return false; }
  // Whether entries of a head may come in another order than that of positions; within a part they
  // never do.
  virtual bool reorders() const { return false; }
  // Whether only those of a part ascend.
  virtual bool ascends_by_part() const { return reorders(); }
  // Whether some head's entries wait to be put into classes; and that, where the layout has any:
  // classes[head][entry], negative: the entry stays where it is.
  virtual bool ClassesAreDue(const LayerEntries&) const { return false; }
  virtual Status Classify(LayerEntries& entries, std::span<const std::vector<int32_t>> classes);
  // Whether sealing goes on together with the layer above; then SealTogether does it, in `memory`,
  // which grows as needed.
  virtual bool seals_with_above() const { return false; }
  virtual Status SealTogether(LayerEntries& entries, const LayerPair& above, Buffer* memory);
  // Why a plan cannot be executed on these entries; without heads: entries at the end are dropped.
  virtual Status CheckReduce(std::span<const HeadPlan> plan) const;
  // Entries at the end were dropped.
  virtual void Truncated(const LayerEntries&) {}

  // -- Reading.
  // Entries of a head from `first` on as [n, head dim] f32: keys as they were written, before or
  // after rotation.
  virtual void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                    Tensor rows) const;
  // Completes what attention sees: segments [kv_heads][parts], of plain entries until now.
  virtual void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const;
  // Streams, and what the layout keeps beside them.
  virtual void AddBytes(const LayerEntries& entries, KvBytes& bytes) const;

  // A part for entries in this form that are not coded.
  LayerPart EmptyPart(const LayerEntries& entries) const;

 protected:
  LayerLayout() = default;
  LayerLayout(const LayerLayout&) = default;
};

// The layouts of the program.
struct LayoutSpec {
  std::string_view id;
  std::unique_ptr<LayerLayout> (*make)();
};
// Aborts on a second layout of that id.
struct LayoutRegistrar {
  explicit LayoutRegistrar(const LayoutSpec& spec);
};
// Null: no such layout.
std::unique_ptr<LayerLayout> MakeLayerLayout(std::string_view id);
std::vector<std::string_view> LayoutIds();  // sorted

}  // namespace kvgauge

// In namespace kvgauge, outside of unnamed ones, in a file of that name: registers the class under
// its plan's id. The build refers to `anchor`, so that the linker keeps the file.
#define KVG_REGISTER_LAYOUT(file, Plan, Layer)                                                  \
  namespace layouts {                                                                           \
  extern const char file;                                                                       \
  const char file = 0;                                                                          \
  }                                                                                             \
  namespace {                                                                                   \
  const LayoutRegistrar KVG_CONCAT_(kvg_layout_registrar_, __COUNTER__)(                        \
      {Plan::kId, []() -> std::unique_ptr<LayerLayout> { return std::make_unique<Layer>(); }}); \
  }
