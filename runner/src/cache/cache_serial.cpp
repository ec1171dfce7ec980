// SPDX-License-Identifier: Apache-2.0
// A cache as bytes: little-endian numbers, how each layer is stored, float entries in the cache's
// own dtype, so that nothing is rounded, and coded pages as the backend has them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>

#include "core/strings.h"
#include "runner/kv_cache.h"
#include "src/cache/bytes.h"
#include "src/cache/cache_layer.h"
#include "src/cache/encoded_rows.h"
#include "src/cache/states.h"

namespace kvgauge {
namespace {

constexpr std::string_view kMagic = "kvgcache6";
// Bits of a number.
constexpr int64_t kHasRawKeys = 1, kAttendsApart = 2, kHasEncoded = 4;
// Angles are made for as many positions as were seen, whatever was kept of them.
constexpr int64_t kMostTurnedTokens = int64_t{1} << 24;

}  // namespace

// How a plain layer's keys turn, and the name of its layout with what that writes of its plan.
Status CacheLayer::Serialize(std::string& out) const {
  PutNumber(out, stored_ ? 1 : 0);
  if (stored_) {
    const KeyTurn& turn = entries_.turn;
    PutNumber(out, turn.raw ? 1 : 0);
    PutNumber(out, static_cast<int64_t>(turn.position));
    PutNumber(out, turn.position_limit);
    const std::string_view id = layout_->id();
    PutArray(out, std::vector<char>(id.begin(), id.end()));
    KVG_TRY(layout_->Put(out));
  }
  PutNumber(out, entries_.kept_scores);
  for (const HeadEntries& head : entries_.heads) {
    PutNumber(out, head.length);
    PutNumber(out, head.has_positions ? 1 : 0);
    PutArray(out, head.positions.ToHost<int32_t>());
    PutArray(out, head.log_weights.ToHost<float>());
    for (int64_t i = 0; i < std::max<int64_t>(entries_.kept_scores, 1); ++i) {
      PutArray(out, head.score(i).ToHost<float>());
    }
  }
  layout_->PutEntries(entries_, out);
  return {};
}

Status CacheLayer::TakeHead(std::string_view& in, int64_t h, int64_t tokens) {
  HeadEntries& head = entries_.heads[static_cast<size_t>(h)];
  int64_t length = 0, has_positions = 0;
  KVG_TRY(TakeNumber(in, "entries of a head", 0, tokens, &length));
  KVG_TRY(TakeNumber(in, "positions of a head", 0, 1, &has_positions));
  std::vector<int32_t> positions;
  std::vector<float> log_weights;
  std::array<std::vector<float>, 2> scores;
  KVG_TRY(TakeArray(in, &positions));
  KVG_TRY(TakeArray(in, &log_weights));
  const int64_t kept = entries_.kept_scores;
  for (int64_t i = 0; i < std::max<int64_t>(kept, 1); ++i) {
    KVG_TRY(TakeArray(in, &scores[static_cast<size_t>(i)]));
  }
  // Where a layout has another order, CheckStreams looks at that of its parts.
  std::vector<int32_t> ascending = positions;
  if (layout_->ascends_by_part()) std::sort(ascending.begin(), ascending.end());
  const bool fits = std::ssize(positions) == (has_positions != 0 ? length : 0) &&
                    (log_weights.empty() || std::ssize(log_weights) == length) &&
                    std::ssize(scores[0]) == (kept > 0 ? length : 0) &&
                    std::ssize(scores[1]) == (kept > 1 ? length : 0) &&
                    std::adjacent_find(ascending.begin(), ascending.end(),
                                       std::greater_equal<>()) == ascending.end() &&
                    (ascending.empty() || (ascending[0] >= 0 && ascending.back() < tokens));
  if (!fits) {
    return BadInput(StrCat("cache bytes: KV head ", h, " has ", length, " entries of ", tokens,
                           " tokens with positions, log weights or scores that do not fit"));
  }
  head.length = length;
  head.has_positions = has_positions != 0;
  KVG_TRY(head.positions.Assign(positions));
  KVG_TRY(head.log_weights.Assign(log_weights));
  KVG_TRY(head.scores.Assign(scores[0]));
  return head.second_scores.Assign(scores[1]);
}

// Every head's streams hold its entries, part by part alike, and those of a part in order.
Status CacheLayer::CheckStreams() const {
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    int64_t entries = 0;
    bool alike = true;
    const std::vector<int32_t> positions = Positions(h);
    for (size_t p = 0; p < entries_.parts.size(); ++p) {
      const LayerPart& part = entries_.parts[p];
      const int64_t keys =
          part.keys[static_cast<size_t>(entries_.OwnerOf(KvSide::kKeys, h, p))].length();
      if (keys > length(h) - entries)
        return BadInput(StrCat("cache bytes: KV head ", h, " has ", entries + keys,
                               " keys or more; expected the ", length(h), " of its entries"));
      if (!std::is_sorted(positions.begin() + entries, positions.begin() + entries + keys)) {
        return BadInput(StrCat("cache bytes: KV head ", h, ": entries ", entries, " to ",
                               entries + keys - 1,
                               " are of one part and do not ascend; expected ascending positions"));
      }
      entries += keys;
      if (setup().values_in_keys) continue;
      alike =
          alike &&
          keys ==
              part.values[static_cast<size_t>(entries_.OwnerOf(KvSide::kValues, h, p))].length();
    }
    if (alike && entries == length(h)) continue;
    return BadInput(StrCat("cache bytes: KV head ", h, " has ", entries, " keys",
                           alike ? "" : " and another number of values", "; expected ", length(h),
                           " of both, as it has entries"));
  }
  return {};
}

Status CacheLayer::Deserialize(std::string_view& in, int64_t tokens,
                               std::span<const std::unique_ptr<CacheLayer>> below) {
  KVG_CHECK(width() == 0 && !stored_, "only an empty, plain layer can be filled");
  bool stored = false;
  KVG_TRY(TakeFlag(in, "kind of a layer", &stored));
  if (stored) {
    KeyTurn& turn = entries_.turn;
    KVG_TRY(TakeFlag(in, "raw keys", &turn.raw));
    KVG_TRY(TakeEnum(in, "position policy", PositionPolicy::kClipped, &turn.position));
    KVG_TRY(TakeNumber(in, "position limit", 0, INT32_MAX, &turn.position_limit));
    std::vector<char> name;
    KVG_TRY(TakeArray(in, &name));
    const std::string_view id(name.data(), name.size());
    std::unique_ptr<LayerLayout> layout = MakeLayerLayout(id);
    if (layout == nullptr) return BadInput(StrCat("cache bytes: no layout is called ", Quoted(id)));
    KVG_TRY(layout->Take(in, entries_));
    const bool turns = turn.raw || layout->wants_raw_keys(entries_);
    if (turns && !setup().frequencies.inverse.empty() && every_position_ == nullptr) {
      return BadInput(
          "cache bytes: 'raw keys' is 0 and a layer has keys before rotation; expected 1");
    }
    KVG_TRY(Adopt(std::move(layout), {}));
  }
  KVG_TRY(TakeNumber(in, "scores of a layer", 0, 2, &entries_.kept_scores));
  for (int64_t h = 0; h < setup().kv_heads; ++h) KVG_TRY(TakeHead(in, h, tokens));
  KVG_TRY(layout_->TakeEntries(in, entries_));
  const int64_t sharing = layout_->shared_with_below();
  if (sharing > std::ssize(below)) {
    return BadInput(StrCat("cache bytes: a layer shares entries with ", sharing,
                           " below it; expected at most the ", below.size(), " that there are"));
  }
  std::vector<LayerPair> pairs;
  for (const auto& layer : below.last(static_cast<size_t>(sharing))) {
    pairs.push_back({&layer->entries_, &layer->layout_});
  }
  KVG_TRY(layout_->TakeShared(entries_, pairs));
  KVG_TRY(CheckStreams());
  tokens_ = tokens;
  KVG_TRY(AssignRotations());
  Publish();
  PlaceDistances();
  return {};
}

// What caches of one model have in common: dtype, layers, KV heads, dims of keys and of values; the
// last three of each layer, behind three of 0, where they are not the same.
std::vector<int64_t> KvCache::Sizes() const {
  std::vector<int64_t> sizes = {static_cast<int64_t>(setup_->format.dtype), layer_count()};
  if (!even_heads_) sizes.insert(sizes.end(), 3, 0);
  for (int64_t i = 0; i < (even_heads_ ? 1 : layer_count()); ++i) {
    const LayerSetup& of = even_heads_ ? *setup_ : layers_[static_cast<size_t>(i)]->setup();
    sizes.insert(sizes.end(), {of.kv_heads, of.format.key_dim, of.format.value_dim});
  }
  return sizes;
}

Result<std::string> KvCache::Serialize() const {
  std::string out(kMagic);
  for (const int64_t number : Sizes()) PutNumber(out, number);
  PutNumber(out, tokens_);
  if (entry_tokens_ > 1) PutNumber(out, block_pad_);
  std::vector<int32_t> places;
  if (places_ != nullptr) {
    places.push_back(places_->next());
    for (const RopePosition& place : places_->first()) {
      places.insert(places.end(), place.begin(), place.end());
    }
  }
  PutArray(out, places);
  bool raw = false;
  for (int64_t i = 0; i < layer_count(); ++i) raw = raw || raw_keys(i);
  PutNumber(out, (raw ? kHasRawKeys : 0) + (apart_ ? kAttendsApart : 0) +
                     (encoded_ != nullptr ? kHasEncoded : 0));
  if (apart_) {
    PutNumber(out, apart_->first);
    PutNumber(out, apart_->end);
    PutNumber(out, std::bit_cast<int32_t>(apart_->temperature));
    PutNumber(out, std::bit_cast<int32_t>(apart_->scale));
  }
  for (int64_t i = 0; i < layer_count(); ++i) {
    const Status status = layers_[i]->Serialize(out);
    if (!status.ok()) return status.error().Wrap(StrCat("layer ", i));
  }
  if (states_) states_->Serialize(out);
  if (encoded_ != nullptr) encoded_->Serialize(out);
  return out;
}

Status KvCache::Deserialize(std::string_view bytes) {
  KVG_CHECK(tokens_ == 0, "only an empty cache can be filled");
  if (!bytes.starts_with(kMagic)) {
    return BadInput(StrCat("cache bytes begin with ", Quoted(bytes.substr(0, kMagic.size())),
                           "; expected ", Quoted(kMagic)));
  }
  bytes.remove_prefix(kMagic.size());
  const KvFormat& format = setup_->format;
  const std::vector<int64_t> mine = Sizes();
  std::vector<int64_t> theirs(mine.size());
  int64_t tokens = 0;
  KVG_TRY(TakeBytes(bytes, std::span<int64_t>(theirs)));
  KVG_TRY(TakeNumber(bytes, &tokens));
  const auto dtype = static_cast<DType>(theirs[0]);
  if (theirs[0] != mine[0] && theirs[0] >= 0 && theirs[0] < 256 && IsFloat(dtype)) {
    return BadInput(StrCat("the cache is in ", NameOf(dtype), ", and this model in ",
                           NameOf(format.dtype), "; load the model in ", NameOf(dtype)));
  }
  if (theirs != mine || tokens < 0 || tokens > INT32_MAX) {
    return BadInput(StrCat("cache bytes of ", theirs[1], " layers, ", theirs[2], " KV heads, dims ",
                           theirs[3], " and ", theirs[4], "; this model has ", mine[1], ", ",
                           mine[2], ", ", mine[3], " and ", mine[4], ", in ",
                           NameOf(format.dtype)));
  }
  int64_t pad = 0;
  if (entry_tokens_ > 1) {
    KVG_TRY(TakeNumber(bytes, "what fills the first block", 0, entry_tokens_ - 1, &pad));
  }
  const int64_t entries = (pad + tokens) / entry_tokens_;
  std::vector<int32_t> numbers;
  KVG_TRY(TakeArray(bytes, &numbers));
  if (!numbers.empty()) {
    const bool whole = numbers.size() % 3 == 1;
    if (!whole || std::any_of(numbers.begin(), numbers.end(), [](int32_t n) { return n < 0; })) {
      return BadInput(StrCat("cache bytes: ", numbers.size(),
                             " numbers say where tokens stand; expected one more than three for "
                             "each, none negative"));
    }
    std::vector<RopePosition> first;
    for (size_t i = 1; i < numbers.size(); i += 3) {
      first.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    }
    PlaceRope(std::make_shared<const RopePlaces>(std::move(first), numbers[0]));
  }
  int64_t marks = 0;
  KVG_TRY(TakeNumber(bytes, "raw keys", 0, kHasRawKeys + kAttendsApart + kHasEncoded, &marks));
  if ((marks & kHasEncoded) != 0 && encoder_width_ == 0) {
    return BadInput(
        "cache bytes: rows of an encoder are announced, and this model has no encoder; expected "
        "none");
  }
  std::optional<SideBySide> apart;
  if ((marks & kAttendsApart) != 0) {
    apart.emplace();
    int64_t temperature = 0, scale = 0;
    KVG_TRY(TakeNumber(bytes, "entries attended apart", 0, tokens, &apart->first));
    KVG_TRY(TakeNumber(bytes, "entries attended apart", apart->first, tokens, &apart->end));
    KVG_TRY(TakeNumber(bytes, "a temperature", INT32_MIN, INT32_MAX, &temperature));
    KVG_TRY(TakeNumber(bytes, "a scale", INT32_MIN, INT32_MAX, &scale));
    apart->temperature = std::bit_cast<float>(static_cast<int32_t>(temperature));
    apart->scale = std::bit_cast<float>(static_cast<int32_t>(scale));
    if (!(std::isfinite(apart->temperature) && apart->temperature > 0 &&
          std::isfinite(apart->scale) && apart->scale >= 0)) {
      return BadInput(StrCat("cache bytes: entries attended apart with temperature ",
                             apart->temperature, " and scale ", apart->scale,
                             "; expected one above 0 and one of 0 or more"));
    }
  }
  const bool turns = (marks & kHasRawKeys) != 0 && !setup_->frequencies.inverse.empty();
  if (turns || !setup_->slopes.empty()) {
    if (tokens > std::max(planned_length_, kMostTurnedTokens)) {
      return BadInput(StrCat("cache bytes of ", tokens, " tokens; expected at most ",
                             std::max(planned_length_, kMostTurnedTokens)));
    }
    if (turns) NeedRope(std::max<int64_t>(tokens, 1));
    NeedDistances(std::max<int64_t>(tokens, 1));
  }
  std::vector<std::unique_ptr<CacheLayer>> filled;
  for (int64_t i = 0; i < layer_count(); ++i) {
    filled.push_back(std::make_unique<CacheLayer>(*layers_[i]));
    const Status status =
        filled.back()->Deserialize(bytes, entries, std::span(filled).first(filled.size() - 1));
    if (!status.ok()) return status.error().Wrap(StrCat("layer ", i));
  }
  for (size_t i = 0; i < filled.size(); ++i) {
    if (!filled[i]->seals_with_above()) continue;
    if (i + 1 < filled.size() && filled[i + 1]->shares_with_below()) continue;
    return BadInput(
        StrCat("cache bytes: layer ", i,
               " seals with the one above, which shares nothing; expected one that does"));
  }
  if (states_) KVG_TRY(states_->Deserialize(bytes));
  std::shared_ptr<EncodedRows> encoded;
  if ((marks & kHasEncoded) != 0) {
    encoded = NoEncodedRows();
    KVG_TRY(encoded->Deserialize(bytes));
  }
  if (!bytes.empty()) {
    return BadInput(StrCat("cache bytes: ", bytes.size(), " follow what they hold; expected none"));
  }
  layers_ = std::move(filled);
  tokens_ = tokens;
  block_pad_ = pad;
  aligned_ = true;
  apart_ = apart;
  encoded_ = std::move(encoded);
  return {};
}

}  // namespace kvgauge
