// SPDX-License-Identifier: Apache-2.0
// One layer of a sequence's cache: entries, the layout they are stored in, and what attention sees
// of both. A copy shares blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "methods/placement.h"
#include "methods/stages.h"
#include "runner/kv_basis.h"
#include "src/cache/distances.h"
#include "src/cache/layer_entries.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {

class CacheLayer {
 public:
  // Plain. `bases` of this layer outlive it.
  CacheLayer(std::shared_ptr<const LayerSetup> setup, std::span<const KvBasis* const> bases);
  CacheLayer(const CacheLayer& other);
  CacheLayer& operator=(const CacheLayer&) = delete;

  int64_t length(int64_t head) const { return entries_.length(head); }
  int64_t width() const { return entries_.width(); }
  std::span<const KvHead> views() const { return views_; }
  const LayerSetup& setup() const { return *entries_.setup; }
  int64_t tokens() const { return tokens_; }  // seen: behind the newest entry's position

  // Room for more entries at these positions; nothing is counted in yet. On an error: Trim.
  Status Grow(std::span<const int32_t> positions);
  void Trim();
  // `positions` and `zeros` [rows] of the new entries, on the host; what of them goes to arrays of
  // entries is added to `copies`.
  void Count(const Tensor& positions, const Tensor& zeros, std::vector<MemoryOps::CopyJob>* copies);
  void Write(const Tensor& keys, const Tensor& values);
  // As KvCache::EndRows.
  void EndRows(std::span<const int64_t> lengths, std::span<const std::vector<int32_t>> positions);
  // Whether the inputs of the rows that are written next are wanted, and these.
  bool wants_inputs() const { return layout_->stores_inputs(); }
  void TakeInputs(const Tensor& inputs) { layout_->TakeInputs(entries_, inputs); }
  // Where Write puts the new entries of each head; false, and nothing, where they are transformed,
  // or go to pages of another kind than setup() says.
  bool AddTargets(std::vector<KvTarget>* targets) const;
  void SetRead(const Tensor& words, const Tensor& bias, const Tensor& places);  // copies

  // Executes the plan where the entries lie, if it drops and merges a few float ones whose pages
  // are this layer's alone: otherwise false. An error leaves the layer as it was.
  Result<bool> ReduceInPlace(std::span<const HeadPlan> plan);

  // The same on a device, which decides by itself where the plan's entries go, and which ones: the
  // host learns nothing but what is told in `outcome` (KeepKv). False where it has to know more.
  Result<bool> ReduceOnDevice(std::span<const HeadPlan> plan, const Tensor& outcome);

  // After an error of one of these the layer, and those `below`, are not to be used: they are
  // copies.
  Status Reduce(std::span<const HeadPlan> plan);
  // As KvCache::KeepByEntry.
  Status KeepByEntry();
  // `below`: as many layers as the layout is converted with, the nearest last.
  Status Store(const StorePlan& plan, std::unique_ptr<LayerLayout> layout,
               std::span<CacheLayer* const> below);
  Status Seal();
  // classes: of each entry of each head, negative where it stays in the class it is in.
  Status Classify(std::span<const std::vector<int32_t>> classes);
  bool ClassesAreDue() const { return layout_->ClassesAreDue(entries_); }
  bool reorders() const { return layout_->reorders(); }
  bool rounds() const { return layout_->rounds(); }
  // Entries of a head that were there before the last part, to which new ones go.
  int64_t BeforeLastPart(int64_t head) const;
  bool seals_with_above() const { return layout_->seals_with_above(); }
  bool shares_with_below() const { return layout_->shared_with_below() > 0; }
  // `memory`, which grows as needed, holds rows.
  Status SealTogether(CacheLayer& above, Buffer* memory);
  const KeyTurn& turn() const { return entries_.turn; }
  std::span<const int64_t> asked() const { return layout_->asked(); }
  int64_t last_rows() const { return last_rows_; }
  // [0, 1, 2 ..] as long as any position: what raw keys turn by. Needed before Count and Store
  // where keys are raw.
  void SetEveryPosition(const int32_t* positions) { every_position_ = positions; }
  // Where the model's scores count distances: a table that reaches every position, needed before
  // Count, Store and Deserialize. Outlives the layer.
  void SetDistances(const DistanceTable* table) {
    distances_ = table;
    Publish();
  }
  // Makes what scores gain of new entries; call it when what Count left to copy is copied.
  void PlaceDistances();
  // Where tokens stand for rotation; null: at their places in the sequence. Outlive the layer.
  void SetPlaces(const RopePlaces* places) { places_ = places; }

  // Entries at positions from `tokens` on go.
  Status Truncate(int64_t tokens);
  Status KeepScores(const Tensor& scores);
  int64_t kept_scores() const { return entries_.kept_scores; }
  void ReadScores(Tensor scores) const;

  // As the layout reads it, keys not turned. rows: [n, dim] contiguous.
  void Read(KvSide side, int64_t head, int64_t first, Tensor rows) const;
  // The positions of entries [first, first + n): where the cache lies, or, where an entry's place
  // is its position, in `memory` on the host.
  Tensor PositionsOf(int64_t head, int64_t first, int64_t n, std::vector<int32_t>* memory) const;
  // The same, where some of the n may lie behind the last entry: those of them that have memory.
  Tensor RoomyPositionsOf(int64_t head, int64_t first, int64_t n,
                          std::vector<int32_t>* memory) const;
  // Which position each entry's key turns by, where keys are raw.
  Tensor RotationsOf(int64_t head, int64_t first, int64_t n, std::vector<int32_t>* memory) const;
  std::vector<int32_t> Positions(int64_t head) const { return entries_.Positions(head); }
  std::vector<float> LogWeights(int64_t head) const;
  // As KvCache::Place, of one layer.
  Status Place(const Placement& place, int64_t layer, BlockMoves* moves);
  int64_t PlacedBytes() const;
  KvBytes Bytes() const;
  // As KvCache::EntryBytes.
  double EntryBytes(KvSide side, int64_t head, int64_t first, int64_t last) const {
    return entries_.BytesOf(side, head, first, last);
  }

  // Deserialize fills an empty, plain one from the front of `in`; `below`: all layers below,
  // filled, the nearest last. After an error none of them is to be used.
  Status Serialize(std::string& out) const;
  Status Deserialize(std::string_view& in, int64_t tokens,
                     std::span<const std::unique_ptr<CacheLayer>> below);

 private:
  // What all heads keep, on the host and on the device. May refer to the plan.
  struct Keeps {
    std::vector<KeptEntries> host;
    std::vector<Tensor> device;  // [kv_heads] i32
    Buffer memory;               // of them, where they are copies
  };

  Ops& ops() const { return entries_.ops(); }
  bool transforms() const {
    return layout_->transforms(KvSide::kKeys) || layout_->transforms(KvSide::kValues);
  }
  std::vector<KvTarget> Targets() const;
  std::vector<LayerPart>& parts() { return entries_.parts; }
  const std::vector<LayerPart>& parts() const { return entries_.parts; }
  // Stores as a layout that has its plan.
  Status Adopt(std::unique_ptr<LayerLayout> layout, std::span<CacheLayer* const> below);
  // Stores plain entries in the layout's form, turned back where keys are to be raw.
  Status Represent();
  Status RepresentSide(KvSide side, bool turn, LayerPart& before);
  // Entries or parts are other ones than attention was told.
  void Republish();
  bool Clips() const {
    return entries_.turn.raw && entries_.turn.position == PositionPolicy::kClipped;
  }
  Status AssignRotations();
  // The positions of all entries of a head, on the device.
  void ClipPositions(const HeadEntries& head, Tensor out) const;
  const int32_t* RotationsFrom(const HeadEntries& head, int64_t first) const;
  Keeps KeepsOf(std::span<const HeadPlan> plan) const;
  Status CheckKeep(int64_t head, const KeptEntries& kept, const HeadPlan& plan) const;
  bool CanReduceOnDevice(std::span<const HeadPlan> plan) const;
  // Whether slots may be skipped: what counts entries by slot then has no place for them.
  bool MaySkip() const;
  // Checks the plans of every head.
  Result<Keeps> CheckedKeeps(std::span<const HeadPlan> plan) const;
  // What an owner keeps, by part, counted from where each part begins.
  std::vector<KeptEntries> KeptOfParts(KvSide side, int64_t owner, const KeptEntries& kept) const;
  // The kept entries [kept, dim] after the merge, in `memory`, which grows as needed; empty when
  // nothing is merged.
  Tensor Merged(KvSide side, int64_t head, const KeptEntries& kept, const MergeList& merge,
                Buffer* memory) const;
  Status Rebuild(std::span<const KeptEntries> kept, std::span<const HeadPlan> plan);
  int64_t CountScores(const Tensor& scores) const;
  Status TakeHead(std::string_view& in, int64_t head, int64_t tokens);
  Status CheckStreams() const;
  void Publish();
  static int64_t WordsOf(const KvSegment& segment);
  // Puts the biases of a SetRead where each part's slots are.
  void PlaceBias(const Tensor& bias);
  void PlaceTurns(const Tensor& places);
  // What a SetRead said is forgotten.
  void ForgetRead();
  // Tells segments what their entries gain by where they are. Publish does so.
  void PublishDistances();
  // Whether an entry's place in the cache is its position.
  static bool CountsBySlot(const HeadEntries& head);
  // What the entries of other heads gain, of one query head; as long as it may get.
  Tensor PlacedDistances(int64_t query_head) const;
  // Entries are other ones, or in other places, than distances were made for.
  void ForgetDistances() { placed_.clear(); }

  LayerEntries entries_;
  std::unique_ptr<LayerLayout> layout_;
  bool stored_ = false;  // by a plan
  const int32_t* every_position_ = nullptr;
  const RopePlaces* places_ = nullptr;
  int64_t tokens_ = 0;
  int64_t last_rows_ = 0;  // counted in by the last Count

  // What attention sees.
  std::vector<KvSegment> segments_;  // [kv_heads][parts]
  std::vector<KvHead> views_;        // [kv_heads]
  Buffer read_memory_;
  Buffer row_memory_;                        // of a step's row while it is transformed
  std::vector<const uint64_t*> read_words_;  // [kv_heads][parts][group]
  Buffer bias_memory_;
  std::vector<const float*> read_biases_;  // likewise
  Buffer turn_memory_;
  const int32_t* read_turns_ = nullptr;  // of entry 0, behind a page of zeros; null: their own
  const DistanceTable* distances_ = nullptr;
  Buffer distance_memory_;                     // [query_heads, ..]
  std::vector<const float*> distance_starts_;  // as read_biases_
  std::vector<int64_t> placed_;                // [kv_heads] entries whose distances are made
};

}  // namespace kvgauge
