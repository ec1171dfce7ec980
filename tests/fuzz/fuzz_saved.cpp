// SPDX-License-Identifier: Apache-2.0
// A saved cache: what is accepted can be packed and read again; damaged files are refused. Below
// the checksums, the coder is given the bytes as they come, and so are the states of stages.
#include <cstring>

#include "core/check.h"
#include "core/entropy.h"
#include "core/json.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "runner/saved_cache.h"

namespace {

using namespace kvgauge;

// Whatever the bytes, with checksums that are right: what the parser would never see otherwise.
std::string WithSums(std::string file) {
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    if (at + 4 <= file.size()) std::memcpy(&value, file.data() + at, 4);
    return value;
  };
  const auto sum = [&](size_t first, size_t end) {
    if (end + 4 > file.size()) return false;
    const uint32_t right = Crc32(std::string_view(file).substr(first, end - first));
    std::memcpy(file.data() + end, &right, 4);
    return true;
  };
  size_t at = 12 + size_t{word(8)};
  if (!sum(0, at)) return file;
  for (at += 4; at < file.size();) {
    const size_t end = at + 8 + size_t{word(at + 4)};
    if (!sum(at, end)) break;
    at = end + 4;
  }
  return file;
}

void TrySaved(const std::string& file) {
  const auto saved = UnpackSaved(file, "fuzz");
  if (!saved.ok()) {
    KVG_CHECK(saved.error().message.starts_with("fuzz"), "a message without its origin");
    return;
  }
  const auto again = UnpackSaved(PackSaved(*saved), "fuzz");
  KVG_CHECK(again.ok() && again->bytes == saved->bytes && again->state == saved->state &&
                again->ids == saved->ids && again->spans == saved->spans &&
                again->model == saved->model && again->method == saved->method,
            "what was accepted comes back");
}

// A state that a reducer accepts is written as it was read.
void TryStates(const std::string& bytes) {
  constexpr int64_t kHeads = 2, kMostTokens = 9;
  for (const StageSpec* spec : AllStages()) {
    if (spec->kind != StageKind::kReduce) continue;
    const auto stage = spec->make(*Params::Parse(spec->params, Json(), spec->id));
    const auto state = static_cast<const Reducer&>(*stage).Begin();
    if (state == nullptr) continue;
    std::string_view left = bytes;
    StateFields reads(&left);
    if (!state->Fields(reads, kHeads, kMostTokens).ok()) continue;
    std::string out;
    StateFields writes(&out);
    KVG_CHECK(state->Fields(writes, kHeads, kMostTokens).ok() &&
                  out == std::string_view(bytes).substr(0, bytes.size() - left.size()),
              "a state comes back");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  TrySaved(bytes);
  TrySaved(WithSums(bytes));
  TryStates(bytes);
  std::string out;
  constexpr int64_t kBlock = 300;
  if (UnpackBlock(bytes, kBlock, out).ok()) {
    KVG_CHECK(out.size() == kBlock, "a block has its size");
  } else {
    KVG_CHECK(out.empty(), "nothing of a damaged block is left");
  }
  out.clear();
  const std::string packed = PackBlock(bytes);
  KVG_CHECK(packed.size() <= size + 1, "a block hardly grows");
  KVG_CHECK(UnpackBlock(packed, static_cast<int64_t>(size), out).ok() && out == bytes,
            "every block comes back");
  return 0;
}
