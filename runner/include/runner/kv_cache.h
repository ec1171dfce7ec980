// SPDX-License-Identifier: Apache-2.0
// The cache of one sequence: for each layer and KV head a short list of segments, ragged, in blocks
// of a pool. Plans of methods are executed here.
//
// Entries of a head are in ascending order of position, but where a layer's plan keeps some of them
// in classes or apart (Store, Classify). A copy (Fork) shares blocks; a write to a
// shared block copies it first, so forks never affect each other. For one thread.
//
// One step: Append(rows), then the forward pass writes and attends layer by layer, then Seal().
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/placement.h"
#include "methods/reuse.h"
#include "methods/stages.h"
#include "runner/block_pool.h"
#include "runner/config.h"
#include "runner/kv_basis.h"
#include "runner/layer_devices.h"

namespace kvgauge {

class CacheLayer;
class DistanceTable;
class EncodedRows;
class SequenceStates;
struct LayerSetup;
class RopeTables;

struct KvCacheOptions {
  DType dtype = DType::kF32;  // f32, f16 or bf16
  int64_t planned_length = 0;
  RopeFrequencies frequencies;        // those of the planned length (ComputeRope)
  RopeFrequencies local_frequencies;  // the same of layers with LayerConfig::local_rope
  // MLA: entries are the model's latents with the rotated part behind them, one KV head.
  bool mla_latent = false;
  const KvBases* bases = nullptr;  // for stores with `latent`; outlive the cache
  // AttentionShape::sinks of each layer, or none; outlive the cache.
  const std::vector<Tensor>* sinks = nullptr;
  // Where layers lie, by their pools (CachePools::on); null: all on the first device.
  const LayerDevices* devices = nullptr;
  // The numbers of each layer of constant state that the sequence has beside its cache, or of each
  // that attends within a block (ModelConfig::blocks). Where rows may join entries
  // (ModelConfig::means) there is one for each cache, and it is part of it.
  std::vector<int64_t> states = {};
};

class KvCache {
 public:
  // The pools outlive the cache.
  KvCache(const ModelConfig& config, const KvCacheOptions& options, CachePools& pools);
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();
  KvCache Fork() const;

  int64_t tokens() const { return tokens_; }  // seen, evicted ones included: the next position
  int64_t layer_count() const { return static_cast<int64_t>(layers_.size()); }
  int64_t planned_length() const { return planned_length_; }
  int64_t kv_heads(int64_t layer) const;
  // Those of all layers. Precondition: they have the same.
  int64_t kv_heads() const;
  int64_t length(int64_t layer, int64_t head) const;  // entries held
  bool mla_latent() const;
  const KvFormat& format(int64_t layer) const;  // as attention takes it
  const KvFormat& format() const;               // as kv_heads()
  const RopeFrequencies& frequencies(int64_t layer) const;
  // From now on tokens stand there for rotation; null: each at its place in the sequence. Those
  // seen so far must stand where they stood. A fork goes on with them.
  void PlaceRope(std::shared_ptr<const RopePlaces> places);
  const RopePlaces* rope_places() const { return places_.get(); }
  Ops& ops() const { return devices_.first(); }
  // That of the device where a layer lies.
  Ops& ops(int64_t layer) const { return devices_.of(layer); }
  const LayerDevices& devices() const { return devices_; }

  // Where entries are blocks of tokens (ModelConfig::blocks): the first block is filled up in
  // front, so that one ends with a prompt of so many tokens. What comes behind it goes on in its
  // blocks. Needed before the first Append; other models know no blocks.
  void EndBlockBehind(int64_t prompt_tokens);
  // What fills the first block up: tokens that the model sees, and that are not counted as seen.
  int64_t block_pad() const { return block_pad_; }
  // Tokens of all blocks that have ended, with those: tokens(), where entries are tokens. A full
  // cache has an entry for each, or for each block of them.
  int64_t held_tokens() const { return EntriesBehind(tokens_) * entry_tokens_; }
  // The tokens [begin, end) of the sequence that an entry at this position stands for: the position
  // itself where entries are tokens.
  std::pair<int64_t, int64_t> TokensAt(int64_t position) const;

  // From now on rows attend to these entries of every head apart from the others (methods/reuse.h).
  // They are plain, and none of them, or before them, is evicted. A fork goes on with that.
  void AttendApart(const SideBySide& apart) { apart_ = apart; }
  const std::optional<SideBySide>& apart() const { return apart_; }

  // Makes room for `rows` more entries in every head and counts them in, at positions tokens() and
  // on; clears SetRead. Where an entry is a block, there is one for each that ends with these rows,
  // at the block's number; there may be none. A full pool is a kResource error that changes
  // nothing.
  Status Append(int64_t rows);
  // The same in layers [first, end) alone, at these positions: ascending, behind those that the
  // layers have seen. For prefills that go layer by layer; when they end, all layers have seen the
  // newest token, so that Append goes on. tokens() is what the layer that saw most has seen.
  Status AppendAt(int64_t first, int64_t end, std::span<const int32_t> positions);
  // Tokens that a layer has seen; tokens(), but for prefills that go layer by layer.
  int64_t tokens(int64_t layer) const;
  // The entries that Append counted in last, as f32: keys [rows, kv_heads, key_dim], before
  // rotation where raw_keys says so; values [rows, kv_heads, value_dim], empty for mla_latent. Both
  // may be strided over rows and heads.
  void Write(int64_t layer, const Tensor& keys, const Tensor& values);
  // Whether the layer stores inputs of its attention in the place of keys and values; then these
  // come before Write: [rows, hidden_size], of any float type, gone when they are taken.
  bool wants_inputs(int64_t layer) const;
  void TakeInputs(int64_t layer, const Tensor& inputs);
  // Where rows may join entries, in the place of Write: the caller has put keys and values of the
  // rows that Append counted in last into the pages itself, from slot_of on, or over the entry
  // before it. `lengths`: the entries that each head now holds; `positions`: those of its last
  // entries, as many as the pass wrote. Room for more entries goes back to the pool.
  void EndRows(int64_t layer, std::span<const int64_t> lengths,
               std::span<const std::vector<int32_t>> positions);
  // For a caller that writes several caches in one call: adds the places of each head's new entries
  // to `targets`; they are valid until the cache changes. False, and nothing is added, if Write
  // does more than storing rows.
  bool AddTargets(int64_t layer, std::vector<KvTarget>* targets) const;
  bool raw_keys(int64_t layer) const;
  // Whether queries are rotated by their place in the cache (slot_of) instead of their position.
  bool slot_positions(int64_t layer) const;
  // The first entry of the last Append.
  int64_t slot_of(int64_t layer, int64_t head) const;
  // For AttentionShape::rope; null where keys are stored rotated.
  const DeferredRope* rope(int64_t layer) const;
  // The KV head whose queries a head's values are weighed by, for each; empty: its own.
  std::span<const int64_t> asked(int64_t layer) const;
  // For AttentionShape::sinks; empty: none.
  Tensor sinks(int64_t layer) const {
    return sinks_ == nullptr ? Tensor() : (*sinks_)[static_cast<size_t>(layer)];
  }
  // For AttentionItem::heads, with kEndAligned. Valid until the cache changes.
  std::span<const KvHead> Layer(int64_t layer) const;
  // Which entries the next Attend of this layer reads, over all of a head's entries in order: words
  // [query_heads, ceil(longest head / 64)] i64; empty: all. `bias`, [query_heads, longest head] f32
  // or empty, is added to the scores that each query head gives them. `places`, [longest head or
  // more] i32 or empty, where the plan keeps keys before rotation at their own positions: the
  // position of a token that was seen, by which each entry's key turns instead in every head. Valid
  // until the next Append.
  void SetRead(int64_t layer, const Tensor& words, const Tensor& bias = {},
               const Tensor& places = {});

  // The state of a layer that has one, counted among those: its numbers as f32 on the device, zeros
  // before the first row. Append makes it this sequence's own; the pass that it made room for
  // writes it. Stages neither see nor change it, and Bytes does not count it, unless it is that of
  // a cache's own entries.
  int64_t state_count() const;
  Tensor State(int64_t index) const;
  // A pass says so before it writes a state from what that was, and when it is through. One that
  // found no memory in between cannot be begun again: some layers have seen its rows.
  void SetStatesMidway(bool midway);
  bool states_midway() const;
  int64_t StateBytes() const;

  // Rows of an encoder that has read what comes before the sequence's tokens, [n, width] f32,
  // behind those that were taken before. A fork shares them, and then neither takes more. Stages
  // neither see nor change them; Bytes counts them beside all layers.
  Status TakeEncoded(const Tensor& rows);
  const EncodedRows* encoded() const { return encoded_.get(); }  // null: none

  // Seals the entries that are due by the rules of Store, in every layer; call it after the forward
  // pass. After an error the cache holds the same entries, some of them unsealed.
  Status Seal();

  // On a device: whole pages of the entries that lie on the host by `place` are moved to the host's
  // memory, and other pages there back to the device's; side-cars of codes, and all that lies
  // beside entries, stay. Call it when entries came, left or moved. What is read and attended to
  // has the same bits. Elsewhere, and where attention to them is computed on the host, nothing
  // moves. A host without room is a kResource error, after which some pages have moved.
  Status Place(const Placement& place);
  // What of Bytes().resident() lies in the host's memory by that.
  int64_t PlacedBytes() const;

  // Executes a plan for each head of a layer: entries that are not kept are evicted, and their
  // blocks are freed. An error leaves the layer unchanged.
  Status Reduce(int64_t layer, std::span<const HeadPlan> plan);
  // The same on a device, without copying the kept indices to the host: their number is enough. An
  // invalid plan is refused later, in `outcome`, [kv_heads, kKvKeptNumbers] i32 on the device
  // (kernels/kv_keep.h). False, and nothing is done, if Reduce is necessary: coded entries, entries
  // in another tier or shared with another layer, latents that heads share, or a plan with log
  // weights.
  Result<bool> ReduceOnDevice(int64_t layer, std::span<const HeadPlan> plan, const Tensor& outcome);
  // Stores a plain layer as planned, what it holds and what comes; sinks and codes begin once more
  // entries than sinks are held. Keys that are to be raw and are held rotated are turned back.
  // Layers that share entries share those that both hold now, when the upper one is stored, and
  // later entries when they are sealed, if the plan says so; shared entries cannot be evicted.
  // Retained entries then come first in a head.
  Status Store(int64_t layer, const StorePlan& plan);
  // From now on keeps a layer that nothing else is stored of for reads of few single entries
  // (KvFormat::by_entry), if the host computes. In as many bytes, but no longer in blocks that
  // forks share. All results have the same bits. Written caches are read back without that.
  Status KeepByEntry(int64_t layer);
  // Puts entries of a layer whose plan has classes into them: [kv_heads, width] i32, width the
  // longest head; -1: the entry stays where it is. Entries of a head then come class by class, each
  // ascending, and last those that have none. An error leaves the layer unchanged.
  Status Classify(int64_t layer, const Tensor& classes);
  // Whether the plan wants that done now; and how many entries of a head have a class.
  bool ClassesAreDue(int64_t layer) const;
  int64_t InClasses(int64_t layer, int64_t head) const;
  // Whether some layer holds other numbers than were written, in as many bytes.
  bool rounds() const;
  // Whether a head's entries may have another order than that of positions.
  bool reorders(int64_t layer) const;
  // Stores running scores with the entries, counted as biases: they move with their entries, and
  // new entries have 0. [kv_heads, width] f32, width the longest head, ReadScores fills the rest
  // with 0. Two numbers of each entry are [2, kv_heads, width].
  Status KeepScores(int64_t layer, const Tensor& scores);
  int64_t kept_scores(int64_t layer) const;  // numbers of each entry
  void ReadScores(int64_t layer, Tensor scores) const;

  // Entries [first, first + n) of a head as contiguous f32 [n, dim]: keys as attention sees them.
  void ReadKeys(int64_t layer, int64_t head, int64_t first, Tensor rows) const;
  // Keys before rotation. Keys that are stored rotated are rotated back, so they have the rounding
  // of the cache's dtype. Not for models with latent attention.
  void ReadRawKeys(int64_t layer, int64_t head, int64_t first, Tensor rows) const;
  void ReadValues(int64_t layer, int64_t head, int64_t first, Tensor rows) const;
  std::vector<int32_t> Positions(int64_t layer, int64_t head) const;
  // Copies the positions of entries [first, first + n) into [n] i32 on the cache's device, without
  // waiting.
  void ReadPositions(int64_t layer, int64_t head, int64_t first, Tensor out) const;
  // The same from `first` on, where out may be longer: what comes behind the entries means nothing.
  void ReadRoomyPositions(int64_t layer, int64_t head, int64_t first, Tensor out) const;
  std::vector<float> LogWeights(int64_t layer, int64_t head) const;  // 0 if none are stored

  // The bytes of this sequence as if it were alone: blocks that forks share count in full.
  KvBytes Bytes() const;
  KvBytes Bytes(int64_t layer) const;
  // The numbers, codes and scales among these of entries [first, last) of a head: its part where
  // heads share them. Positions, bases and all else that lies beside entries do not count.
  double EntryBytes(int64_t layer, int64_t head, KvSide side, int64_t first, int64_t last) const;

  // Forgets the newest tokens, as far as they are held. Precondition: tokens <= tokens(). A state
  // of constant size cannot forget: an error that changes nothing.
  Status Truncate(int64_t tokens);

  // Serializes all content bit for bit, what layers share once; coded pages fit only the backend
  // that made them. Deserialize takes untrusted bytes into an empty cache of the same model, or
  // refuses them.
  Result<std::string> Serialize() const;
  Status Deserialize(std::string_view bytes);

 private:
  KvCache(const KvCache& other);

  std::vector<int64_t> Sizes() const;
  std::shared_ptr<EncodedRows> NoEncodedRows() const;
  Status AppendTo(int64_t first, int64_t end, std::span<const int32_t> positions);
  Status AppendBlocks(int64_t rows);
  // Blocks that have ended when so many tokens were seen: those tokens, where entries are tokens.
  int64_t EntriesBehind(int64_t tokens) const { return (block_pad_ + tokens) / entry_tokens_; }
  Status Change(int64_t layer, const std::function<Status(CacheLayer&)>& change);
  // Extends the rotation tables to `positions`, for layers with raw keys.
  void NeedRope(int64_t positions);
  // Extends what scores gain by distance to `positions`, where the model counts distances.
  void NeedDistances(int64_t positions);

  // Layers of the range, a device's, and their pools.
  std::span<const std::unique_ptr<CacheLayer>> LayersOf(const LayerDevices::Range& range) const;

  std::shared_ptr<const LayerSetup> setup_;  // of the first device
  LayerDevices devices_;
  int64_t planned_length_;
  bool even_heads_ = true;  // ModelConfig::HasEvenHeads
  const std::vector<Tensor>* sinks_ = nullptr;
  std::shared_ptr<const RopePlaces> places_;
  std::optional<SideBySide> apart_;
  struct Turning {
    std::shared_ptr<const RopeTables> numbers;  // what slots turn by
    std::shared_ptr<const RopeTables> placed;   // of tokens at `places_`, or `numbers`
  };
  // [devices] that of all layers but the local ones, and that of those.
  std::vector<std::array<Turning, 2>> turning_;
  std::vector<std::shared_ptr<const DistanceTable>> distances_;  // of each; outlive the layers
  std::vector<std::unique_ptr<CacheLayer>> layers_;
  std::unique_ptr<SequenceStates> states_;  // null: none
  int64_t encoder_width_ = 0;               // of rows that an encoder makes; 0: the model has none
  std::shared_ptr<EncodedRows> encoded_;
  int64_t tokens_ = 0;
  int64_t entry_tokens_ = 1;  // ModelConfig::EntryTokens
  int64_t block_pad_ = 0;
  bool aligned_ = true;  // whether EndBlockBehind was called, where it is needed
  Buffer share_memory_;  // rows that layers share
};

}  // namespace kvgauge
