// SPDX-License-Identifier: Apache-2.0
// One layer of a sequence's cache. A copy shares blocks.
//
// A layer has parts, runs of entries that all heads store alike, in ascending order; new entries go
// to the last. Within a part each owner of keys, and of values, has a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "methods/stages.h"
#include "runner/kv_basis.h"
#include "runner/rope.h"
#include "src/cache/stream.h"

namespace kvgauge {

// What all layers of a cache have in common.
struct LayerSetup {
  KvFormat format;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  bool mla = false;             // keys turn in their last dims: they are always stored rotated
  bool values_in_keys = false;  // MLA: one stream of latents and rotated parts
  bool windowed = false;        // some layer's rows see a window of positions only
  RopeLayout rope_layout = RopeLayout::kHalf;
  RopeFrequencies frequencies;
  CachePools* pools = nullptr;
};

class CacheLayer {
 public:
  // `bases` of this layer, for plans with `latent`; they outlive the layer.
  CacheLayer(std::shared_ptr<const LayerSetup> setup, std::span<const KvBasis* const> bases);
  CacheLayer(const CacheLayer& other);
  CacheLayer& operator=(const CacheLayer&) = delete;

  int64_t length(int64_t head) const { return heads_[head].length; }
  int64_t width() const;
  std::span<const KvHead> views() const { return views_; }

  // Room for `rows` more entries from position `first_position` on; nothing is counted in yet. On
  // an error: Trim.
  Status Grow(int64_t rows, int64_t first_position);
  void Trim();
  // `positions` and `zeros` [rows] of the new entries, on the host; what of them goes to arrays of
  // entries is added to `copies`.
  void Count(const Tensor& positions, const Tensor& zeros, std::vector<MemoryOps::CopyJob>* copies);
  void Write(const Tensor& keys, const Tensor& values);
  // Where Write puts the new entries of each head; false, and nothing, where they are projected.
  bool AddTargets(std::vector<KvTarget>* targets) const;
  void SetRead(const Tensor& words);  // copies

  // Executes the plan where the entries lie, if it drops and merges a few float ones whose pages
  // are this layer's alone: otherwise false. An error leaves the layer as it was.
  Result<bool> ReduceInPlace(std::span<const HeadPlan> plan);

  // The same on a device, which decides by itself where the plan's entries go, and which ones: the
  // host learns nothing but what is told in `outcome` (KeepKv). False where it has to know more.
  Result<bool> ReduceUnseen(std::span<const HeadPlan> plan, const Tensor& outcome);

  bool owns_shared() const { return sharing_ == Sharing::kOwner; }
  // After an error of one of these the layer is not to be used: they work on a copy.
  Status Reduce(std::span<const HeadPlan> plan);
  Status Store(const StorePlan& plan);
  Status Seal();
  // Both plain, the upper next to the lower, holding the same entries.
  static Status Share(CacheLayer& lower, CacheLayer& upper, const StorePlan& plan);
  // What came to both since: nothing is left out. `memory`, which grows as needed, holds rows.
  static Status ShareLater(CacheLayer& lower, CacheLayer& upper, Buffer* memory);
  const StorePlan& plan() const { return plan_; }
  int64_t last_rows() const { return last_rows_; }
  // [0, 1, 2 ..] as long as any position: what raw keys turn by. Needed before Count and Store
  // where keys are raw.
  void SetEveryPosition(const int32_t* positions) { every_position_ = positions; }

  // Entries at positions from `tokens` on go.
  Status Truncate(int64_t tokens);
  Status KeepScores(const Tensor& scores);
  bool keeps_scores() const { return keeps_scores_; }
  void ReadScores(Tensor scores) const;

  // Latents rebuilt, keys not turned. rows: [n, dim] contiguous.
  void Read(KvSide side, int64_t head, int64_t first, Tensor rows) const;
  // Whether what Read gives of keys was rotated.
  bool rotated_keys() const { return !plan_.raw_keys; }
  // Of entries [first, first + n): where the cache lies, or, where an entry's place is its
  // position, in `memory` on the host.
  Tensor PositionsOf(int64_t head, int64_t first, int64_t n, std::vector<int32_t>* memory) const;
  // Which position each entry's key turns by, where keys are raw.
  Tensor RotationsOf(int64_t head, int64_t first, int64_t n, std::vector<int32_t>* memory) const;
  std::vector<int32_t> Positions(int64_t head) const;
  std::vector<float> LogWeights(int64_t head) const;
  KvBytes Bytes() const;

  // Not of layers that share. Deserialize fills an empty, plain one from the front of `in`; after
  // an error it is not to be used.
  Status Serialize(std::string& out) const;
  Status Deserialize(std::string_view& in, int64_t tokens);

 private:
  struct Part {
    std::vector<Stream> keys, values;  // [owners]; no values where they are in the keys
  };
  struct Head {
    explicit Head(BlockPool& pool);

    int64_t length = 0;
    bool has_positions = false;           // otherwise entry i is position i
    EntryArray positions;                 // i32
    EntryArray log_weights;               // f32, or empty: 0
    EntryArray scores;                    // f32, when the layer keeps them
    EntryArray rotations;                 // i32, where keys turn by clipped positions
    EntryArray key_scales, value_scales;  // f32, of the part that is shared with another layer
  };
  // Of three parts the second holds directions that two layers share. They count with the owner.
  enum class Sharing { kNone, kOwner, kBorrower };
  // What one head keeps, on the host.
  using Kept = std::vector<int32_t>;
  // What all keep, there and on the device.
  struct Keeps {
    std::vector<Kept> host;
    std::vector<Tensor> device;  // [kv_heads] i32
    Buffer memory;               // of them
  };

  Ops& ops() const { return pool_->ops(); }
  const std::vector<Stream>& StreamsOf(const Part& part, KvSide side) const {
    return side == KvSide::kKeys ? part.keys : part.values;
  }
  const std::vector<Tensor>& BasesOf(KvSide side) const {
    return side == KvSide::kKeys ? key_bases_ : value_bases_;
  }
  int64_t OwnerOf(KvSide side, int64_t head) const;
  // Of a head's keys or values as the model has them.
  int64_t HeadDim(KvSide side) const {
    return side == KvSide::kKeys ? setup_->format.key_dim : setup_->format.value_dim;
  }
  // One head's part of its owner's basis, [dim, rank]; empty where there is none.
  Tensor BasisOf(KvSide side, int64_t head) const;
  // An empty stream for each owner: coded and placed as the plan says, keys of few numbers, or
  // plainly.
  enum class PartKind { kPlain, kPlanned, kNarrow };
  Part NewPart(PartKind kind) const;
  // Rows [n, heads, dim] of an owner's heads as its stream has them, [n, stream dim]; `memory`,
  // which grows as needed, may hold them.
  Tensor Projected(KvSide side, int64_t owner, const Tensor& rows, Buffer* memory) const;
  // Keys of a head whose first part is narrow, zeros for what was given up.
  void ReadNarrow(int64_t head, int64_t first, Tensor rows) const;
  // Entries of an owner's stream, as stored.
  void ReadStream(KvSide side, int64_t owner, int64_t first, Tensor rows) const;
  std::vector<float> HostRows(KvSide side, int64_t head, int64_t first = 0) const;
  Stream& SharedStream(KvSide side, size_t part, int64_t head) {
    return (side == KvSide::kKeys ? parts_[part].keys
                                  : parts_[part].values)[static_cast<size_t>(head)];
  }
  Status AppendHost(Stream& stream, const std::vector<float>& rows) const;
  // Directions among entries [first, first + n) of a head become what they stand for.
  void ScaleShared(KvSide side, int64_t head, int64_t first, Tensor rows) const;
  Status CheckPlan(const StorePlan& plan) const;
  Status CheckNarrow(const StorePlan& plan) const;
  // Copies a plan's tensors to the host, where codecs want them, for as long as they are used:
  // constants beside the pools, ranges that were found in this sequence into a block of one.
  Status OwnTables();
  // Of an owner's stream: a head may have ranges of its own.
  KvCodec CodecOf(KvSide side, int64_t owner) const;
  // Stores plain entries anew: turned back, or as latents.
  Status Represent();
  // Keys of all entries but the last into a part of their own, without what the plan gives up.
  Status NarrowKeys();
  // Sinks into a part of their own; all after them are stored as planned.
  Status Split();
  bool Clips() const { return plan_.raw_keys && plan_.position == PositionPolicy::kClipped; }
  Status AssignRotations();
  // Of all entries of a head, on the device.
  void ClipPositions(const Head& head, Tensor out) const;
  const int32_t* RotationsFrom(const Head& head, int64_t first) const;
  Keeps KeepsOf(std::span<const HeadPlan> plan) const;
  Status CheckKeep(int64_t head, const Kept& kept, const HeadPlan& plan) const;
  bool CanReduceUnseen(std::span<const HeadPlan> plan) const;
  // Whether slots may be skipped: what counts entries by slot then has no place for them.
  bool MaySkip() const;
  // Of every head.
  Result<Keeps> CheckedKeeps(std::span<const HeadPlan> plan) const;
  // What an owner keeps, by part, counted from where each part begins.
  std::vector<Kept> KeptOfParts(KvSide side, int64_t owner, const Kept& kept) const;
  int64_t FirstHeadOf(KvSide side, int64_t owner) const {
    return owner * setup_->kv_heads / std::ssize(StreamsOf(parts_[0], side));
  }
  // The kept entries [kept, dim] after the merge, in `memory`, which grows as needed; empty when
  // nothing is merged.
  Tensor Merged(KvSide side, int64_t head, const Kept& kept, const MergeList& merge,
                Buffer* memory) const;
  Result<Head> GatheredHead(int64_t head, const Kept& kept, const Tensor& log_weight) const;
  Status Rebuild(std::span<const Kept> kept, std::span<const HeadPlan> plan);
  Status TakeHead(std::string_view& in, int64_t head, int64_t tokens);
  Status CheckStreams() const;
  void Publish();
  static int64_t WordsOf(const KvSegment& segment);

  std::shared_ptr<const LayerSetup> setup_;
  BlockPool* pool_;
  std::vector<Tensor> given_key_bases_, given_value_bases_;  // what Prepare wrote
  std::vector<Tensor> key_bases_, value_bases_;              // [owners] in use, or empty
  StorePlan plan_;  // its tensors lie in tables_ and ranges_
  std::shared_ptr<const std::vector<std::vector<float>>> tables_;
  BlockList ranges_;  // of host memory
  // Of each head, where the first part's keys are narrow: [key_dim, narrow_dim] of zeros and ones,
  // in `choices_`. Attention and reads take it as the basis of latents.
  std::vector<Tensor> narrow_bases_;
  BlockList choices_;
  Sharing sharing_ = Sharing::kNone;
  bool split_ = false;  // the plan's codecs and tiers are at work in the last part
  const int32_t* every_position_ = nullptr;
  int64_t tokens_ = 0;
  std::vector<Part> parts_;
  std::vector<Head> heads_;
  bool keeps_scores_ = false;
  int64_t last_rows_ = 0;  // counted in by the last Count

  // What attention sees.
  std::vector<KvSegment> segments_;  // [kv_heads][parts]
  std::vector<KvHead> views_;        // [kv_heads]
  Buffer read_memory_;
  Buffer row_memory_;                        // of a step's row while it is projected
  std::vector<const uint64_t*> read_words_;  // [kv_heads][parts][group]
};

}  // namespace kvgauge
