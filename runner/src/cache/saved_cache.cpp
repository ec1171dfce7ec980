// SPDX-License-Identifier: Apache-2.0
#include "runner/saved_cache.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/entropy.h"
#include "core/json.h"
#include "core/short_json.h"
#include "core/strings.h"
#include "runner/compressor.h"
#include "src/cache/bytes.h"
#include "src/cache/saved_pictures.h"

namespace kvgauge {
namespace {

constexpr std::string_view kSavedMagic = "kvgsave2";
// A prompt with pictures has it: older programs would take where these stand for the cache.
constexpr std::string_view kPicturesMagic = "kvgsave3";
// A program that does not know a key may not know what the pages hold.
constexpr std::array<std::string_view, 8> kSavedKeys = {
    "bytes", "budget", "loaded_for", "method", "model", "pictures", "planned_length", "state"};
constexpr int64_t kMostSavedHeaderBytes = int64_t{1} << 20;
constexpr size_t kBlockBytes = size_t{1} << 17;

void PutWord(std::string& out, uint32_t word) {
  PutBytes(out, std::span<const uint32_t>(&word, 1));
}

// What a file still has, for messages that name it.
class SavedReader {
 public:
  SavedReader(std::string_view file, const std::string& origin) : left_(file), origin_(origin) {}

  Error Fault(std::string_view what) const { return BadInput(StrCat(origin_, ": ", what)); }
  size_t left() const { return left_.size(); }
  Result<std::string_view> Take(size_t size_bytes, std::string_view what) {
    if (size_bytes > left_.size()) {
      return Fault(StrCat("the file ends within ", what, ": ", size_bytes, " bytes were due, ",
                          left_.size(), " are left; save the cache again"));
    }
    const std::string_view taken = left_.substr(0, size_bytes);
    left_.remove_prefix(size_bytes);
    return taken;
  }
  Result<uint32_t> TakeWord(std::string_view what) {
    KVG_ASSIGN(std::string_view bytes, Take(sizeof(uint32_t), what));
    uint32_t word = 0;
    KVG_TRY(TakeBytes(bytes, std::span<uint32_t>(&word, 1)));
    return word;
  }

 private:
  std::string_view left_;
  const std::string& origin_;
};

std::string WrongSum(std::string_view what, uint32_t claim, uint32_t sum) {
  return StrCat(what, " has checksum ", claim, " and its bytes have ", sum,
                ": the file is damaged; save the cache again");
}

struct SavedHeader {
  int64_t raw_bytes = 0;
  int64_t picture_bytes = 0;  // of these, those behind the ids
  int64_t state_bytes = 0;    // the last of them
};

Result<SavedHeader> ParseSavedHeader(std::string_view text, const SavedReader& reader,
                                     const std::string& origin, SavedCache* saved) {
  KVG_ASSIGN(const Json json, ParseJson(text, origin));
  const auto wrong = [&](const char* key, std::string_view right) {
    return reader.Fault(StrCat("key ", Quoted(key), " of its header is ",
                               json.contains(key) ? ShortJson(json[key]) : "missing", "; expected ",
                               right));
  };
  if (!json.is_object()) {
    return reader.Fault(StrCat("its header is ", ShortJson(json), "; expected a JSON object"));
  }
  for (const auto& [key, value] : json.items()) {
    if (std::find(kSavedKeys.begin(), kSavedKeys.end(), key) != kSavedKeys.end()) continue;
    return reader.Fault(StrCat("key ", Quoted(key), " of its header is not known to this version; ",
                               "load it with the one that wrote it, or save the cache again"));
  }
  const auto take_text = [&](const char* key, std::string* out) -> Status {
    if (!json.contains(key) || !json[key].is_string()) return wrong(key, "a text");
    *out = json[key].get<std::string>();
    return {};
  };
  const auto take_number = [&](const char* key, int64_t* out) -> Status {
    if (!json.contains(key) || !json[key].is_number_integer() || json[key].get<int64_t>() < 0) {
      return wrong(key, "a number that is not negative");
    }
    *out = json[key].get<int64_t>();
    return {};
  };
  KVG_TRY(take_text("model", &saved->model));
  KVG_TRY(take_text("method", &saved->method));
  KVG_TRY(take_text("budget", &saved->budget));
  KVG_TRY(take_text("loaded_for", &saved->loaded_for));
  KVG_TRY(take_number("planned_length", &saved->planned_length));
  if (saved->planned_length > INT32_MAX) return wrong("planned_length", "at most 2147483647");
  SavedHeader header;
  KVG_TRY(take_number("bytes", &header.raw_bytes));
  // Only of prompts with pictures.
  if (json.contains("pictures")) KVG_TRY(take_number("pictures", &header.picture_bytes));
  // Not of files of methods that do not act in decode steps.
  if (json.contains("state")) KVG_TRY(take_number("state", &header.state_bytes));
  if (header.picture_bytes > header.raw_bytes) {
    return wrong("pictures", StrCat("at most the ", header.raw_bytes, " of key \"bytes\""));
  }
  if (header.state_bytes > header.raw_bytes - header.picture_bytes) {
    return wrong("state", StrCat("at most the ", header.raw_bytes - header.picture_bytes,
                                 " that keys \"bytes\" and \"pictures\" leave"));
  }
  return header;
}

Error OfStage(const Method& method, const StageChoice& choice, std::string_view why) {
  return Unsupported(StrCat("method ", method.id, ": ", NameOf(choice.spec->kind), ".",
                            choice.spec->id, " ", why,
                            ", which a saved cache does not hold; leave it out, or do not save"));
}

// What a cache's entries are of: a checkpoint, and products by rows that change them.
std::string ModelOf(const Model& model) {
  if (model.product_rows() == ProductRows::kRounded) return model.fingerprint();
  return StrCat("products by rows of ", NameOf(model.product_rows()), ": ", model.fingerprint());
}

// "/stages/prepare/params/group" is prepare.group for users.
std::string NameOfPlace(std::string_view pointer) {
  std::vector<std::string> parts;
  for (const std::string& part : Split(pointer, '/')) {
    if (!part.empty() && part != "stages" && part != "params") parts.push_back(part);
  }
  return Join(parts, ".");
}

// Where two methods differ: "prepare.group was 4 and is 2".
std::string Differences(const Json& was, const Json& is) {
  const Json before = was.flatten(), now = is.flatten();
  std::set<std::string> places;
  for (const auto& place : before.items()) places.insert(place.key());
  for (const auto& place : now.items()) places.insert(place.key());
  std::vector<std::string> lines;
  for (const std::string& place : places) {
    const auto text = [&](const Json& of) {
      return of.contains(place) ? ShortJson(of[place]) : "nothing";
    };
    if (text(before) == text(now)) continue;
    lines.push_back(StrCat(NameOfPlace(place), " was ", text(before), " and is ", text(now)));
  }
  return Join(lines, ", ");
}

}  // namespace

Status CheckSavable(const Method& method) {
  const Pipeline stages = MakePipeline(method);
  if (stages.read == nullptr || stages.read->saves()) return {};
  return OfStage(method, *method.read, "chooses what is read by an index of its own");
}

Result<SavedCache> SaveCache(const Model& model, const Method* method, const std::string& budget,
                             const std::vector<int32_t>& ids, const std::vector<VisualSpan>& spans,
                             const KvCache& cache, Compressor* compressor) {
  if (method != nullptr) KVG_TRY(CheckSavable(*method));
  if (std::ssize(ids) <= cache.tokens()) {
    return Unsupported(
        "the answer ended at a stop, so there is nothing to go on with; ask for "
        "fewer new tokens, or ignore stops");
  }
  SavedCache saved;
  saved.model = ModelOf(model);
  if (method != nullptr) {
    saved.method = CanonicalJson(method->ToJson());
    const bool acts = ActsInDecode(*method);
    if (method->prepare || cache.mla_latent() || acts) saved.loaded_for = method->id;
    if (acts) KVG_TRY(compressor->SaveState(saved.state));
  }
  saved.budget = budget;
  saved.planned_length = cache.planned_length();
  saved.ids = ids;
  saved.spans = spans;
  KVG_ASSIGN(saved.bytes, cache.Serialize());
  return saved;
}

Status CheckLoadedFor(const SavedCache& saved, const Method* method, const std::string& origin) {
  if (saved.loaded_for.empty()) {
    if (method == nullptr) return {};
    return BadInput(StrCat(origin, ": the cache goes on as it was stored, without a method; leave ",
                           method->id, " out"));
  }
  const std::string again = StrCat(origin, ": the cache is one of method ", saved.loaded_for);
  if (method == nullptr) {
    return BadInput(StrCat(again, "; name the method again, with the parameters of then"));
  }
  if (method->id != saved.loaded_for) {
    return BadInput(StrCat(again, ", and this is ", method->id, "; name ", saved.loaded_for,
                           ", with the parameters of then"));
  }
  const Json own = method->ToJson();
  if (CanonicalJson(own) == saved.method) return {};
  KVG_ASSIGN(const Json then, ParseJson(saved.method, origin));
  return BadInput(StrCat(again, " with other parameters: ", Differences(then, own),
                         "; name it with those of then"));
}

Result<KvCache> LoadCache(const SavedCache& saved, Model& model, const Method* method,
                          int64_t length, const std::string& origin) {
  KVG_TRY(CheckLoadedFor(saved, method, origin));
  if (const std::string own = ModelOf(model); saved.model != own) {
    return BadInput(StrCat(origin, ": the cache is of the model with fingerprint ",
                           Quoted(saved.model), "; this one has ", Quoted(own)));
  }
  const bool latents = method != nullptr && KeepsModelLatents(*method, model.checkpoint_shape());
  KvCache cache = model.NewCache(std::max(saved.planned_length, length), model.pools(), latents);
  if (length > saved.planned_length) {
    // Keys are stored as they were rotated.
    const KvCache planned = model.NewCache(saved.planned_length);
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      const RopeFrequencies &was = planned.frequencies(layer), &is = cache.frequencies(layer);
      if (was.inverse == is.inverse && was.attention_factor == is.attention_factor) continue;
      return BadInput(StrCat(origin, ": the cache was planned for ", saved.planned_length,
                             " tokens, and this model rotates keys otherwise for ", length,
                             "; ask for fewer new tokens"));
    }
  }
  const Status filled = cache.Deserialize(saved.bytes);
  if (!filled.ok()) return filled.error().Wrap(origin);
  if (std::ssize(saved.ids) != cache.tokens() + 1) {
    return BadInput(StrCat(origin, ": ", saved.ids.size(), " token ids; expected ",
                           cache.tokens() + 1, ", one more than its cache has seen"));
  }
  for (const int32_t id : saved.ids) {
    if (id >= 0 && id < model.config().vocab_size) continue;
    return BadInput(
        StrCat(origin, ": token id ", id, "; expected 0 .. ", model.config().vocab_size - 1));
  }
  return cache;
}

Result<std::unique_ptr<Compressor>> LoadCompressor(const SavedCache& saved, const Model& model,
                                                   const Method* method, const Prompt& sequence,
                                                   KvCache& cache, const std::string& origin) {
  const bool acts = method != nullptr && ActsInDecode(*method);
  if (!acts && saved.state.empty()) return std::unique_ptr<Compressor>();
  if (!acts) {
    return BadInput(StrCat(origin, ": ", saved.state.size(),
                           " bytes are a method's state, and no method that acts in decode is "
                           "named; expected none, or the method of then"));
  }
  KVG_ASSIGN(const Budget budget, Budget::Parse(saved.budget));
  auto compressor = std::make_unique<Compressor>(model, *method, budget);
  const Status status = compressor->GoOn(sequence, saved.state, cache);
  if (!status.ok()) return status.error().Wrap(origin);
  return compressor;
}

Prompt SequenceOf(const SavedCache& saved, const KvCache& cache) {
  Prompt prompt = Prompt::FromTokens(saved.ids);
  prompt.spans = saved.spans;
  for (const VisualSpan& span : saved.spans) {
    for (int64_t at = span.first; at < span.first + span.count; ++at) {
      PromptPosition& position = prompt.positions[static_cast<size_t>(at)];
      position.token_id = -1;
      position.modality = span.modality;
    }
  }
  const RopePlaces* places = cache.rope_places();
  if (places == nullptr) return prompt;
  for (int64_t i = 0; i < prompt.size(); ++i) {
    prompt.positions[static_cast<size_t>(i)].rope_position = places->At(i);
  }
  prompt.next_rope_position = places->At(prompt.size())[0];
  return prompt;
}

std::string PackSaved(const SavedCache& saved) {
  std::string raw;
  PutArray(raw, saved.ids);
  const size_t of_ids = raw.size();
  if (!saved.spans.empty()) PutPictures(saved.spans, raw);
  const size_t of_pictures = raw.size() - of_ids;
  raw += saved.bytes;
  raw += saved.state;
  Json header = {{"model", saved.model},
                 {"method", saved.method},
                 {"budget", saved.budget},
                 {"loaded_for", saved.loaded_for},
                 {"planned_length", saved.planned_length},
                 {"bytes", std::ssize(raw)}};
  if (of_pictures > 0) header["pictures"] = of_pictures;
  if (!saved.state.empty()) header["state"] = std::ssize(saved.state);
  const std::string text = CanonicalJson(header);
  std::string out(of_pictures > 0 ? kPicturesMagic : kSavedMagic);
  PutWord(out, static_cast<uint32_t>(text.size()));
  out += text;
  PutWord(out, Crc32(out));
  for (size_t at = 0; at < raw.size(); at += kBlockBytes) {
    const std::string_view block = std::string_view(raw).substr(at, kBlockBytes);
    std::string page;
    PutWord(page, static_cast<uint32_t>(block.size()));
    const std::string packed = PackBlock(block);
    PutWord(page, static_cast<uint32_t>(packed.size()));
    page += packed;
    PutWord(page, Crc32(page));
    out += page;
  }
  return out;
}

Result<SavedCache> UnpackSaved(std::string_view file, const std::string& origin) {
  const std::string_view all = file;
  SavedReader reader(file, origin);
  KVG_ASSIGN(const std::string_view magic, reader.Take(kSavedMagic.size(), "its first bytes"));
  if (magic != kSavedMagic && magic != kPicturesMagic) {
    return reader.Fault(
        StrCat("begins with ", Quoted(magic), "; expected ", Quoted(kSavedMagic), " or ",
               Quoted(kPicturesMagic),
               ": this is no saved cache of `kvgauge generate --save-cache`, or one "
               "of another version"));
  }
  KVG_ASSIGN(const uint32_t header_bytes, reader.TakeWord("the header"));
  if (header_bytes > kMostSavedHeaderBytes) {
    return reader.Fault(
        StrCat("a header of ", header_bytes, " bytes; expected at most ", kMostSavedHeaderBytes));
  }
  KVG_ASSIGN(const std::string_view text, reader.Take(header_bytes, "the header"));
  const uint32_t header_sum = Crc32(all.substr(0, all.size() - reader.left()));
  KVG_ASSIGN(const uint32_t header_claim, reader.TakeWord("the header"));
  if (header_sum != header_claim) {
    return reader.Fault(WrongSum("the header", header_claim, header_sum));
  }
  SavedCache saved;
  KVG_ASSIGN(const SavedHeader header, ParseSavedHeader(text, reader, origin, &saved));
  std::string raw;
  for (int64_t page = 0; std::ssize(raw) < header.raw_bytes; ++page) {
    const std::string name = StrCat("page ", page);
    const std::string_view from = all.substr(all.size() - reader.left());
    KVG_ASSIGN(const uint32_t block_bytes, reader.TakeWord(name));
    KVG_ASSIGN(const uint32_t packed_bytes, reader.TakeWord(name));
    KVG_ASSIGN(const std::string_view packed, reader.Take(packed_bytes, name));
    const uint32_t sum = Crc32(from.substr(0, 2 * sizeof(uint32_t) + packed_bytes));
    KVG_ASSIGN(const uint32_t claim, reader.TakeWord(name));
    if (sum != claim) {
      return reader.Fault(WrongSum(name, claim, sum));
    }
    if (block_bytes == 0 || block_bytes > kBlockBytes ||
        block_bytes > header.raw_bytes - std::ssize(raw)) {
      return reader.Fault(
          StrCat(name, " holds ", block_bytes, " bytes; expected 1 .. ",
                 std::min<int64_t>(kBlockBytes, header.raw_bytes - std::ssize(raw))));
    }
    const Status unpacked = UnpackBlock(packed, block_bytes, raw);
    if (!unpacked.ok()) return unpacked.error().Wrap(StrCat(origin, ": ", name));
  }
  if (reader.left() > 0) {
    return reader.Fault(StrCat(reader.left(), " bytes follow the last page; expected none"));
  }
  std::string_view rest = raw;
  const Status ids = TakeArray(rest, &saved.ids);
  if (!ids.ok()) return ids.error().Wrap(origin);
  if (header.picture_bytes > 0) {
    const int64_t before = std::ssize(rest);
    // The newest token is no part of the prompt.
    const Status pictures = TakePictures(rest, std::ssize(saved.ids) - 1, &saved.spans);
    if (!pictures.ok()) return pictures.error().Wrap(origin);
    if (const int64_t taken = before - std::ssize(rest); taken != header.picture_bytes) {
      return reader.Fault(
          StrCat("key \"pictures\" of its header is ", header.picture_bytes, "; expected ", taken));
    }
  }
  if (header.state_bytes > std::ssize(rest)) {
    return reader.Fault(StrCat("key \"state\" of its header is ", header.state_bytes,
                               "; expected at most the ", rest.size(), " bytes behind the ids"));
  }
  const size_t of_cache = rest.size() - static_cast<size_t>(header.state_bytes);
  saved.bytes = rest.substr(0, of_cache);
  saved.state = rest.substr(of_cache);
  return saved;
}

}  // namespace kvgauge
