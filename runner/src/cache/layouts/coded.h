// SPDX-License-Identifier: Apache-2.0
// Streams whose older entries are coded, or lie on another tier; sinks in a part of their own.
// Other layouts whose streams may be coded derive from it.
#pragma once

#include <array>

#include "methods/layouts/coded.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {

class CodedLayer : public LayerLayout {
 public:
  std::string_view id() const override { return Coded::kId; }
  std::unique_ptr<LayerLayout> Fork() const override { return std::make_unique<CodedLayer>(*this); }
  Status Use(const StoreLayout& plan, const LayerEntries& entries) override;
  Status Put(std::string& out) const override;
  Status Take(std::string_view& in, const LayerEntries& entries) override;
  Status Check(const LayerEntries& entries) const override;
  bool seals() const override { return plan_.keys.coded() || plan_.values.coded(); }
  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  // The parts are made once more entries than sinks are held.
  Status Seal(LayerEntries& entries, bool* changed) override;
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override;

 protected:
  const Coded& plan() const { return plan_; }
  // What Check asks of every layout with codes, wherever its entries come from.
  Status CheckCodes(const LayerEntries& entries) const;

 private:
  // Copies a plan's tensors to the host, where codecs want them, for as long as they are used:
  // constants beside the pools, what was found in this sequence into blocks of one.
  Status OwnTables(const LayerEntries& entries);
  // Tables of heads: ranges of keys, fixed scales, records; empty where the plan has none.
  std::array<Tensor*, 6> TablesOfHeads();
  bool IsConstant(const Tensor& table) const;  // of these: of the model, not of this sequence
  // From bytes: `tables` hold what a tensor has until OwnTables.
  using Tables = std::vector<std::vector<float>>;
  static Status TakeTable(std::string_view& in, Tables* tables, Tensor* table);
  static Status TakeCodec(std::string_view& in, KvSide side, KvCodec* codec, Tables* tables);
  static Status TakeHeadTable(std::string_view& in, int64_t heads, Tables* tables, Tensor* table);
  Status TakeRanges(std::string_view& in, const LayerEntries& entries, Tables* tables);
  // The codec of an owner's stream: a head may have ranges of its own.
  KvCodec CodecOf(KvSide side, int64_t owner) const;
  // The same of entries behind those that are sealed first, where they have another.
  KvCodec LaterCodecOf(KvSide side) const;
  // Whether anything is stored otherwise than in plain segments.
  bool planned() const { return seals() || plan_.tier != Tier::kDevice; }
  // Sinks into a part of their own, and what is coded otherwise later; all others as planned.
  Status Split(LayerEntries& entries);

  Coded plan_;  // its tensors lie in tables_ and ranges_
  std::shared_ptr<const Tables> tables_;
  std::shared_ptr<BlockList> ranges_;  // of host memory; never written again
  bool split_ = false;                 // codecs and tier are at work in all parts but sinks
};

}  // namespace kvgauge
