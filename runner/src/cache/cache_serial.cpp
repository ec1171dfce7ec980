// SPDX-License-Identifier: Apache-2.0
// A plain cache as bytes, the same on every backend: little-endian numbers, entries in the cache's
// own dtype, so that nothing is rounded.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "core/strings.h"
#include "runner/kv_cache.h"
#include "src/cache/cache_layer.h"

namespace kvgauge {
namespace {

constexpr std::string_view kMagic = "kvgcache1";

template <class T>
void Put(std::string& out, std::span<const T> numbers) {
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}
void PutNumber(std::string& out, int64_t number) { Put(out, std::span<const int64_t>(&number, 1)); }

template <class T>
Status Take(std::string_view& in, std::span<T> numbers) {
  if (in.size() < numbers.size_bytes()) {
    return BadInput(StrCat("cache bytes end early: ", numbers.size_bytes(), " were due, ",
                           in.size(), " are left"));
  }
  if (!numbers.empty()) std::memcpy(numbers.data(), in.data(), numbers.size_bytes());
  in.remove_prefix(numbers.size_bytes());
  return {};
}

// A count of things of `size` bytes each that must still follow.
Status TakeCount(std::string_view& in, int64_t size, int64_t* count) {
  KVG_TRY(Take(in, std::span<int64_t>(count, 1)));
  if (*count < 0 || *count > std::ssize(in) / size) {
    return BadInput(StrCat("cache bytes claim ", *count, " of ", size, " bytes each, ", in.size(),
                           " are left"));
  }
  return {};
}

template <class T>
void PutArray(std::string& out, const std::vector<T>& numbers) {
  PutNumber(out, std::ssize(numbers));
  Put(out, std::span<const T>(numbers));
}

template <class T>
Status TakeArray(std::string_view& in, std::vector<T>* numbers) {
  int64_t count = 0;
  KVG_TRY(TakeCount(in, sizeof(T), &count));
  numbers->resize(static_cast<size_t>(count));
  return Take(in, std::span<T>(*numbers));
}

}  // namespace

Status CacheLayer::Serialize(std::string& out) const {
  if (tables_ != nullptr || sharing_ != Sharing::kNone) {
    return Unsupported("only layers that are stored plainly can be written");
  }
  PutNumber(out, keeps_scores_ ? 1 : 0);
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    const Head& head = heads_[static_cast<size_t>(h)];
    PutNumber(out, head.length);
    PutNumber(out, head.has_positions ? 1 : 0);
    PutArray(out, head.positions.ToHost<int32_t>());
    PutArray(out, head.log_weights.ToHost<float>());
    PutArray(out, head.scores.ToHost<float>());
    for (const std::vector<Stream>* streams : {&parts_[0].keys, &parts_[0].values}) {
      if (streams->empty() || head.length == 0) continue;
      const Stream& stream = (*streams)[static_cast<size_t>(h)];
      const int64_t n = head.length, dim = stream.spec().dim;
      const int64_t size_bytes = n * dim * SizeOf(stream.spec().dtype);
      const Buffer memory = ops().memory->Allocate(n * dim * 4 + size_bytes);
      const Tensor wide = memory.As(DType::kF32, {n, dim});
      const Tensor narrow(static_cast<char*>(memory.data()) + n * dim * 4, stream.spec().dtype,
                          {n, dim}, wide.device);
      stream.Read(0, wide);
      ops().rows->Convert(wide, narrow);
      const size_t at = out.size();
      out.resize(at + static_cast<size_t>(size_bytes));
      Tensor bytes(narrow.data, DType::kU8, {size_bytes}, narrow.device);
      ops().memory->Copy(bytes, Tensor(out.data() + at, DType::kU8, {size_bytes}));
    }
  }
  return {};
}

Status CacheLayer::Deserialize(std::string_view& in, int64_t tokens) {
  KVG_CHECK(width() == 0 && tables_ == nullptr, "only an empty, plain layer can be filled");
  int64_t scored = 0;
  KVG_TRY(Take(in, std::span<int64_t>(&scored, 1)));
  keeps_scores_ = scored != 0;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    Head& head = heads_[static_cast<size_t>(h)];
    int64_t length = 0, has_positions = 0;
    KVG_TRY(Take(in, std::span<int64_t>(&length, 1)));
    KVG_TRY(Take(in, std::span<int64_t>(&has_positions, 1)));
    std::vector<int32_t> positions;
    std::vector<float> log_weights, scores;
    KVG_TRY(TakeArray(in, &positions));
    KVG_TRY(TakeArray(in, &log_weights));
    KVG_TRY(TakeArray(in, &scores));
    const bool fits = length >= 0 && length <= tokens &&
                      std::ssize(positions) == (has_positions != 0 ? length : 0) &&
                      (log_weights.empty() || std::ssize(log_weights) == length) &&
                      std::ssize(scores) == (keeps_scores_ ? length : 0) &&
                      std::adjacent_find(positions.begin(), positions.end(),
                                         std::greater_equal<>()) == positions.end() &&
                      (positions.empty() || (positions[0] >= 0 && positions.back() < tokens));
    if (!fits) {
      return BadInput(StrCat("cache bytes: KV head ", h, " has ", length, " entries of ", tokens,
                             " tokens with positions, log weights or scores that do not fit"));
    }
    head.length = length;
    head.has_positions = has_positions != 0;
    KVG_TRY(head.positions.Assign(positions));
    KVG_TRY(head.log_weights.Assign(log_weights));
    KVG_TRY(head.scores.Assign(scores));
    for (std::vector<Stream>* streams : {&parts_[0].keys, &parts_[0].values}) {
      if (streams->empty() || length == 0) continue;
      Stream& stream = (*streams)[static_cast<size_t>(h)];
      const int64_t dim = stream.spec().dim;
      const int64_t size_bytes = length * dim * SizeOf(stream.spec().dtype);
      std::vector<char> host(static_cast<size_t>(
          std::min(size_bytes, std::ssize(in) + 1)));  // what is too long fails in Take
      KVG_TRY(Take(in, std::span<char>(host)));
      const Buffer memory = ops().memory->Allocate(length * dim * 4 + size_bytes);
      const Tensor wide = memory.As(DType::kF32, {length, dim});
      const Tensor narrow(static_cast<char*>(memory.data()) + length * dim * 4, stream.spec().dtype,
                          {length, dim}, wide.device);
      ops().memory->Copy(Tensor(host.data(), DType::kU8, {size_bytes}),
                         Tensor(narrow.data, DType::kU8, {size_bytes}, narrow.device));
      ops().rows->Convert(narrow, wide);
      KVG_TRY(stream.Append(wide));
    }
  }
  tokens_ = tokens;
  Publish();
  return {};
}

Result<std::string> KvCache::Serialize() const {
  std::string out(kMagic);
  const KvFormat& format = setup_->format;
  for (const int64_t number : {static_cast<int64_t>(format.dtype), layer_count(), kv_heads(),
                               format.key_dim, format.value_dim, tokens_}) {
    PutNumber(out, number);
  }
  for (int64_t i = 0; i < layer_count(); ++i) {
    const Status status = layers_[i]->Serialize(out);
    if (!status.ok()) return status.error().Wrap(StrCat("layer ", i));
  }
  return out;
}

Status KvCache::Deserialize(std::string_view bytes) {
  KVG_CHECK(tokens_ == 0, "only an empty cache can be filled");
  if (!bytes.starts_with(kMagic)) return BadInput("these are not the bytes of a cache");
  bytes.remove_prefix(kMagic.size());
  const KvFormat& format = setup_->format;
  const std::array<int64_t, 5> mine = {static_cast<int64_t>(format.dtype), layer_count(),
                                       kv_heads(), format.key_dim, format.value_dim};
  std::array<int64_t, 5> theirs = {};
  int64_t tokens = 0;
  KVG_TRY(Take(bytes, std::span<int64_t>(theirs)));
  KVG_TRY(Take(bytes, std::span<int64_t>(&tokens, 1)));
  if (theirs != mine || tokens < 0 || tokens > INT32_MAX) {
    return BadInput(StrCat("cache bytes of ", theirs[1], " layers, ", theirs[2], " KV heads, dims ",
                           theirs[3], " and ", theirs[4], "; this model has ", mine[1], ", ",
                           mine[2], ", ", mine[3], " and ", mine[4], ", in ",
                           NameOf(format.dtype)));
  }
  std::vector<std::unique_ptr<CacheLayer>> filled;
  for (int64_t i = 0; i < layer_count(); ++i) {
    filled.push_back(std::make_unique<CacheLayer>(*layers_[i]));
    const Status status = filled.back()->Deserialize(bytes, tokens);
    if (!status.ok()) return status.error().Wrap(StrCat("layer ", i));
  }
  if (!bytes.empty()) return BadInput(StrCat("cache bytes: ", bytes.size(), " too many"));
  layers_ = std::move(filled);
  tokens_ = tokens;
  return {};
}

}  // namespace kvgauge
