// SPDX-License-Identifier: Apache-2.0
// How one layer's entries are stored: a plan that a Store stage makes and the runner's cache
// executes.
//
// A plan names one layout. A layout is a class of its own in methods/layouts/: its fields, what it
// costs and when it is legal stand there; how the cache executes it stands in the file of the same
// name in runner/src/cache/layouts/. A new store idea is a new layout (docs/add-a-store.md); no
// other struct has a field for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "methods/model_shape.h"

namespace kvgauge {

// Where a key's angle comes from when keys are stored unrotated.
enum class PositionPolicy {
  kOriginal,  // the token's own position
  kSlot,      // its place in the cache: 0, 1, 2, ...
  kClipped,   // its own, but never further than `position_limit` from the query
};

// How keys are rotated, in every layout alike.
struct KeyTurn {
  bool raw = false;  // stored before rotation, and rotated when read
  PositionPolicy position = PositionPolicy::kOriginal;
  int64_t position_limit = 0;

  bool operator==(const KeyTurn&) const = default;
};

// Where the memory of entries lies.
enum class Tier { kDevice, kHost, kDisk };

// What other parts of the program must know of a layout.
struct StoreTraits {
  bool plain = false;     // entries as they are, where they are: nothing has to be done
  bool exact = true;      // no number is changed by more than what rotating it back and forth does
  bool seals = false;     // entries are coded when KvCache::Seal finds them due
  bool by_head = true;    // entries belong to one head of one layer, so a reducer may evict them
  bool raw_keys = false;  // keys are stored before rotation, whatever KeyTurn says
  bool model_latents = false;  // the cache holds the model's own latents from the prefill on
};

// The method and the model that a layout is to work with. Stages by name ("reduce.cam").
struct StoreUse {
  const ModelShape* shape = nullptr;
  int64_t layer = 0;
  bool has_bases = false;         // a prepare stage writes bases
  std::string merges_keys_later;  // the reducer that may merge keys while decoding, or empty
  std::string corrects_reads;     // the reader that corrects what attention gave, or empty
};

// The part of a store plan that says what is kept of entries, and in what form. Immutable once it
// is in a plan; tensors belong to whoever made them and are copied by the cache.
class StoreLayout {
 public:
  virtual ~StoreLayout() = default;
  // Names the runner's half; part of a written cache.
  virtual std::string_view id() const = 0;
  virtual StoreTraits traits() const = 0;
  // Why it cannot be used so, if so: what does not fit and what would be right.
  virtual Status Check(const StoreUse& use) const;
  // Logical bytes of one KV head's `entries` entries, positions excluded. Numbers that depend on
  // the data, such as outliers, count by the share that is asked for.
  virtual double HeadBytes(const ModelShape& shape, int64_t entries) const;
  // What the layout's name promises for one entry of one KV head: bits of its numbers alone.
  virtual int64_t EntryBits(const ModelShape& shape) const;
  // Bytes to plan for one layer that holds up to `entries` a head, of which up to `fresh` came in
  // one pass: whole pages, and what waits to be sealed.
  virtual int64_t PlannedLayerBytes(const ModelShape& shape, int64_t entries, int64_t fresh) const;
};

struct StorePlan {
  // Plain.
  StorePlan();
  explicit StorePlan(std::shared_ptr<const StoreLayout> chosen, KeyTurn key_turn = {})
      : turn(key_turn), layout(std::move(chosen)) {}

  KeyTurn turn;
  std::shared_ptr<const StoreLayout> layout;  // never null

  // The layout as `T`, a base of it included; null when it is another.
  template <class T>
  const T* Get() const {
    return dynamic_cast<const T*>(layout.get());
  }
  // Whether it asks for nothing: entries stay as they are, rotated.
  bool IsPlain() const;
};

// A plan with that layout.
template <class Layout>
StorePlan PlanOf(Layout layout, KeyTurn turn = {}) {
  return StorePlan(std::make_shared<const Layout>(std::move(layout)), turn);
}

}  // namespace kvgauge
