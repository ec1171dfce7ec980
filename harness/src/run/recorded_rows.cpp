// SPDX-License-Identifier: Apache-2.0
#include "src/run/recorded_rows.h"

#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/model.h"

namespace kvgauge {

std::string RandomKey() {
  std::ifstream source("/dev/urandom", std::ios::binary);
  unsigned char bytes[16] = {};
  source.read(reinterpret_cast<char*>(bytes), sizeof(bytes));
  std::string key;
  static constexpr char kHex[] = "0123456789abcdef";
  for (const unsigned char byte : bytes) key.append({kHex[byte >> 4], kHex[byte & 15]});
  return key;
}

ModelRow ModelRowOf(const std::string& name, const std::string& fingerprint,
                    const ModelShape& shape, const ModelConfig& config, DType dtype) {
  Json facts = {{"layers", shape.layers},           {"hidden_size", shape.hidden_size},
                {"query_heads", shape.query_heads}, {"kv_heads", shape.kv_heads},
                {"key_dim", shape.key_dim},         {"value_dim", shape.value_dim},
                {"latent_dim", shape.latent_dim},   {"parameters", ParameterCount(config)},
                {"dtype", NameOf(dtype)},           {"max_position", config.max_position}};
  // What a sequence takes beside its cache, however long it is.
  if (shape.state_bytes > 0) facts["state_bytes"] = shape.state_bytes;
  // What a token has in all layers, whose heads have several sizes.
  if (!shape.heads.empty()) {
    int64_t numbers = 0;
    for (const HeadSizes& heads : shape.heads) {
      numbers += heads.kv_heads * (heads.key_dim + heads.value_dim);
    }
    facts["token_numbers"] = numbers;
  }
  // How many tokens an entry of the cache stands for.
  if (shape.entry_tokens > 1) facts["entry_tokens"] = shape.entry_tokens;
  return {.fingerprint = fingerprint, .name = name, .facts = CanonicalJson(facts)};
}

bool AreAlikeBut(const std::string& a, const std::string& b,
                 std::initializer_list<const char*> keys) {
  Result<Json> one = ParseJson(a, "identity"), other = ParseJson(b, "identity");
  if (!one.ok() || !other.ok() || !one->is_object() || !other->is_object()) return false;
  for (const char* key : keys) {
    one->erase(key);
    other->erase(key);
  }
  return *one == *other;
}

MethodRow MethodRowOf(const Method& method, const std::string& variant) {
  Json spec = method.ToJson();
  spec["paper"] = method.paper;
  return {.name = method.id,
          .variant = variant,
          .title = method.title,
          .family = method.family,
          .version = method.version,
          .spec = CanonicalJson(spec),
          .full_cache = method.id == "full",
          .experimental = method.experimental};
}

Result<std::unique_ptr<ResultStore>> OpenForRecording(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && !DirectoryExists(parent.string())) {
    std::error_code failed;
    std::filesystem::create_directories(parent, failed);
    if (failed) return IoError(StrCat(path, ": its directory cannot be made: ", failed.message()));
  }
  return ResultStore::Open(path, StoreMode::kCreate);
}

Status EndRecording(ResultStore& store, int64_t run, int signal, const std::string& what) {
  if (signal != 0) {
    return store.AddEvent(
        run, {.at = UtcNow(), .kind = "interrupted", .message = StrCat("signal ", signal)});
  }
  KVG_TRY(store.AddEvent(run, {.at = UtcNow(), .kind = "finished", .message = what}));
  return store.FinishRun(run, UtcNow());
}

}  // namespace kvgauge
