// SPDX-License-Identifier: Apache-2.0
// tokenizer.model through the SentencePiece library, special tokens as Hugging Face adds them.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <utility>

#include "core/files.h"
#include "core/strings.h"
#include "src/text/tokenizer/loaders.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

// The fields of ModelProto's normalizer_spec that this file needs.
struct NormalizerFlags {
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

// Reads one protobuf message field by field. Every step is bounded by the bytes there are.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  struct Field {
    uint64_t number = 0;
    uint64_t varint = 0;
    std::string_view bytes = {};
  };
  // False at the end and at anything ill-formed.
  bool Next(Field& field) {
    uint64_t tag = 0;
    if (bytes_.empty() || !Varint(tag)) return false;
    field = {.number = tag >> 3};
    uint64_t size = 0;
    switch (tag & 7) {
      case 0:
        return Varint(field.varint);
      case 1:
        size = 8;
        break;
      case 2:
        if (!Varint(size)) return false;
        break;
      case 5:
        size = 4;
        break;
      default:
        return false;
    }
    if (size > bytes_.size()) return false;
    field.bytes = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

 private:
  bool Varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const auto byte = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  std::string_view bytes_;
};

NormalizerFlags ReadNormalizerFlags(std::string_view model) {
  constexpr uint64_t kNormalizerSpec = 3, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4;
  NormalizerFlags flags;
  WireReader reader(model);
  for (WireReader::Field field; reader.Next(field);) {
    if (field.number != kNormalizerSpec) continue;
    WireReader spec(field.bytes);
    for (WireReader::Field flag; spec.Next(flag);) {
      if (flag.number == kAddDummyPrefix) flags.add_dummy_prefix = flag.varint != 0;
      if (flag.number == kRemoveExtraWhitespaces) flags.remove_extra_whitespaces = flag.varint != 0;
    }
  }
  return flags;
}

// The runs between special tokens are decoded one by one, each losing its own leading space.
class RunDetokenizer final : public Detokenizer {
 public:
  RunDetokenizer(const Tokenizer& tokenizer, const Decoder& decoder, bool clean_up,
                 bool skip_special)
      : tokenizer_(tokenizer),
        decoder_(decoder),
        run_(decoder.Start(false)),
        whole_(Decoder::Plain().Start(clean_up)),
        skip_special_(skip_special) {}

  void Push(int32_t id, std::string& out) override {
    const bool special = tokenizer_.IsSpecial(id);
    if (special && skip_special_) return;
    std::string text;
    if (special) {
      run_.Finish(text);
      run_ = decoder_.Start(false);
      text += tokenizer_.TokenText(id);
    } else {
      run_.Push(tokenizer_.TokenText(id), text);
    }
    if (!text.empty()) whole_.Push(text, out);
  }
  void Finish(std::string& out) override {
    std::string text;
    run_.Finish(text);
    if (!text.empty()) whole_.Push(text, out);
    whole_.Finish(out);
  }

 private:
  const Tokenizer& tokenizer_;
  const Decoder& decoder_;
  DecodeChain run_, whole_;
  bool skip_special_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Make(PieceModelParts parts);

  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions& options) const override;
  std::unique_ptr<Detokenizer> NewDetokenizer(const DecodeOptions& options) const override;
  std::string Kind() const override { return kind_; }
  int64_t VocabSize() const override { return std::max(vocabulary_.size(), added_.size()); }
  std::string TokenText(int32_t id) const override {
    const AddedToken* token = added_.Find(id);
    return token != nullptr ? token->content : vocabulary_.TextOf(id);
  }
  std::optional<int32_t> IdOf(std::string_view text) const override {
    return IdOfToken(text, vocabulary_, added_);
  }
  bool IsSpecial(int32_t id) const override {
    return added_.IsSpecial(id) || (id >= 0 && id < vocabulary_.size() && processor_.IsControl(id));
  }

 private:
  Status EncodeText(std::string_view text, bool at_start, std::vector<int32_t>& out) const;

  std::string kind_;
  sentencepiece::SentencePieceProcessor processor_;
  Vocabulary vocabulary_;
  AddedVocabulary added_;
  AddedTokenFinder finder_;
  Decoder decoder_ = Decoder::SentencePiece(true);
  std::vector<int32_t> prefix_, suffix_;
  bool prefix_at_start_only_ = false;  // the non-legacy reading of text behind special tokens
  bool clean_up_ = false;
};

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Make(PieceModelParts parts) {
  const std::string& path = parts.path;
  std::string model = std::move(parts.model);
  TokenizerConfig config = std::move(parts.config);
  auto made = std::make_unique<SentencePieceTokenizer>();
  made->kind_ = std::move(parts.kind);
  const NormalizerFlags flags = ReadNormalizerFlags(model);
  if (!config.legacy && flags.add_dummy_prefix) {
    made->prefix_at_start_only_ = true;
    // A repeated field of a message overrides: normalizer_spec { add_dummy_prefix: false }.
    model += std::string("\x1a\x02\x18\x00", 4);
  }
  const sentencepiece::util::Status loaded = made->processor_.LoadFromSerializedProto(model);
  if (!loaded.ok()) {
    return BadInput(
        StrCat(path, ": the SentencePiece library refuses the model: ", loaded.ToString()));
  }
  const int pieces = made->processor_.GetPieceSize();
  for (int id = 0; id < pieces; ++id) {
    KVG_TRY(made->vocabulary_.Add(made->processor_.IdToPiece(id), id, pieces, path));
  }
  if (!FileExists(config.path)) {
    const auto piece_or = [&](const std::string& named, int id) {
      return named.empty() && id >= 0 ? made->processor_.IdToPiece(id) : named;
    };
    config.bos = piece_or(config.bos, made->processor_.bos_id());
    config.eos = piece_or(config.eos, made->processor_.eos_id());
    config.unk = piece_or(config.unk, made->processor_.unk_id());
    for (const std::string& token : {config.bos, config.eos, config.unk}) {
      if (token.empty()) continue;
      config.specials.push_back({.content = token, .special = true, .normalized = false});
    }
  }
  KVG_TRY(AddConfigTokens(config, made->vocabulary_, made->added_));
  for (const AddedToken* token : made->added_.InSearchOrder()) {
    made->finder_.Add(*token, token->content);
  }
  made->bos_id_ = made->IdOf(config.bos);
  const std::optional<int32_t> eos = made->IdOf(config.eos);
  if (config.add_bos.value_or(true) && made->bos_id_) made->prefix_.push_back(*made->bos_id_);
  if (config.add_eos.value_or(false) && eos) made->suffix_.push_back(*eos);
  made->decoder_ = Decoder::SentencePiece(flags.add_dummy_prefix || flags.remove_extra_whitespaces);
  made->clean_up_ = config.clean_up;
  made->fingerprint_ = std::move(parts.fingerprint);
  return std::unique_ptr<Tokenizer>(std::move(made));
}

std::unique_ptr<Detokenizer> SentencePieceTokenizer::NewDetokenizer(
    const DecodeOptions& options) const {
  return std::make_unique<RunDetokenizer>(*this, decoder_, clean_up_ && options.clean_up,
                                          options.skip_special);
}

Status SentencePieceTokenizer::EncodeText(std::string_view text, bool at_start,
                                          std::vector<int32_t>& out) const {
  std::string prefixed;
  if (prefix_at_start_only_ && at_start) {
    prefixed = StrCat(kSpaceMark, text);
    text = prefixed;
  }
  std::vector<int> ids;
  const sentencepiece::util::Status encoded = processor_.Encode({text.data(), text.size()}, &ids);
  if (!encoded.ok()) {
    return Unsupported(StrCat("SentencePiece gives up on a text of ", text.size(),
                              " bytes: ", encoded.ToString()));
  }
  out.insert(out.end(), ids.begin(), ids.end());
  return {};
}

Result<std::vector<int32_t>> SentencePieceTokenizer::Encode(std::string_view text,
                                                            const EncodeOptions& options) const {
  std::string repaired;
  if (FindInvalidUtf8(text) != std::string_view::npos) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (options.add_special) ids = prefix_;
  std::vector<Segment> segments;
  finder_.Cut(text, options.parse_special, segments);
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      KVG_TRY(EncodeText(text.substr(segment.begin, segment.end - segment.begin),
                         segment.begin == 0, ids));
    }
  }
  if (options.add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeSentencePiece(PieceModelParts parts) {
  return SentencePieceTokenizer::Make(std::move(parts));
}

Result<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& directory) {
  PieceModelParts parts;
  parts.kind = "SentencePiece (tokenizer.model)";
  parts.path = directory + "/tokenizer.model";
  KVG_ASSIGN(parts.model, ReadFile(parts.path));
  KVG_ASSIGN(parts.config, ReadTokenizerConfig(directory));
  // A model begins with its first piece, field 1.
  if (!parts.model.starts_with('\n')) {
    return BadInput(StrCat(parts.path,
                           ": neither a SentencePiece model, which begins with byte 0x0A, nor a "
                           "tiktoken vocabulary, lines of base64 and a rank"));
  }
  KVG_ASSIGN(parts.fingerprint,
             FingerprintFiles(directory, {"tokenizer.model", "tokenizer_config.json",
                                          "special_tokens_map.json", "added_tokens.json"}));
  return MakeSentencePiece(std::move(parts));
}

}  // namespace kvgauge
