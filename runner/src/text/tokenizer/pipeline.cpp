// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/pipeline.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

// Longer spellings do not occur, and a search must not walk them at every place of a text.
constexpr size_t kMaxAddedTokenBytes = 4096;

class ChainDetokenizer final : public Detokenizer {
 public:
  ChainDetokenizer(const Tokenizer& tokenizer, DecodeChain chain, bool skip_special)
      : tokenizer_(tokenizer), chain_(std::move(chain)), skip_special_(skip_special) {}

  void Push(int32_t id, std::string& out) override {
    if (skip_special_ && tokenizer_.IsSpecial(id)) return;
    const std::string text = tokenizer_.TokenText(id);
    if (!text.empty()) chain_.Push(text, out);
  }
  void Finish(std::string& out) override { chain_.Finish(out); }

 private:
  const Tokenizer& tokenizer_;
  DecodeChain chain_;
  bool skip_special_;
};

}  // namespace

std::unique_ptr<Detokenizer> MakeDetokenizer(const Tokenizer& tokenizer, DecodeChain chain,
                                             bool skip_special) {
  return std::make_unique<ChainDetokenizer>(tokenizer, std::move(chain), skip_special);
}

Status AddedVocabulary::Add(AddedToken token, std::optional<int32_t> model_id, size_t expected,
                            std::string_view where) {
  if (token.content.empty()) return {};
  if (token.content.size() > kMaxAddedTokenBytes) {
    return Unsupported(StrCat(where, ": an added token of ", token.content.size(),
                              " bytes; at most ", kMaxAddedTokenBytes, " are supported"));
  }
  if (Find(token.content) != nullptr) return {};
  const int64_t limit = 16 * static_cast<int64_t>(expected) + 65536;
  if (token.id < 0 || token.id >= limit) {
    return BadInput(StrCat(where, ": token ", Quoted(token.content), " has id ", token.id,
                           "; ids lie between 0 and ", limit - 1, " here"));
  }
  if (model_id && *model_id != token.id) {
    return BadInput(StrCat(where, ": token ", Quoted(token.content), " has id ", token.id,
                           ", but the model's vocabulary gives it ", *model_id));
  }
  const auto [entry, fresh] = tokens_.emplace(token.id, token);
  if (!fresh) {
    return BadInput(StrCat(where, ": id ", token.id, " is given to both ",
                           Quoted(entry->second.content), " and ", Quoted(token.content)));
  }
  ids_.emplace(token.content, token.id);
  order_.push_back(token.id);
  return {};
}

const AddedToken* AddedVocabulary::Find(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

const AddedToken* AddedVocabulary::Find(std::string_view content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? nullptr : Find(found->second);
}

bool AddedVocabulary::IsSpecial(int32_t id) const {
  const AddedToken* token = Find(id);
  return token != nullptr && token->special;
}

std::vector<const AddedToken*> AddedVocabulary::InSearchOrder() const {
  std::vector<const AddedToken*> tokens;
  for (const int32_t id : order_) tokens.push_back(&tokens_.at(id));
  std::stable_partition(tokens.begin(), tokens.end(),
                        [](const AddedToken* token) { return token->special; });
  return tokens;
}

Result<std::unique_ptr<Tokenizer>> PipelineTokenizer::Make(PipelineParts parts,
                                                           std::optional<int32_t> bos_id,
                                                           std::string fingerprint) {
  std::unique_ptr<PipelineTokenizer> made(new PipelineTokenizer(std::move(parts)));
  made->bos_id_ = bos_id;
  made->fingerprint_ = std::move(fingerprint);
  for (const AddedToken* token : made->parts_.added.InSearchOrder()) {
    if (!token->in_texts) continue;
    if (!token->normalized) {
      made->raw_finder_.Add(*token, token->content);
      continue;
    }
    std::string pattern = token->content;
    bool at_start = true;
    KVG_TRY(made->parts_.normalizer.Apply(pattern, at_start));
    made->normalized_finder_.Add(*token, pattern);
  }
  return std::unique_ptr<Tokenizer>(std::move(made));
}

void PipelineTokenizer::AddSpellings(std::string_view piece, std::span<const int32_t> ids,
                                     std::vector<std::string>& spellings) const {
  const std::span<const int32_t> fresh = ids.subspan(spellings.size());
  std::vector<std::string> unknown;
  if (parts_.unk_id >= 0 && std::ranges::find(fresh, parts_.unk_id) != fresh.end()) {
    unknown = parts_.model->UnknownIn(piece);
  }
  size_t next = 0;
  for (const int32_t id : fresh) {
    const bool shown = id == parts_.unk_id && next < unknown.size();
    spellings.push_back(shown ? std::move(unknown[next++]) : TokenText(id));
  }
}

Status PipelineTokenizer::EncodeText(std::string_view text, bool at_start, bool take_special,
                                     std::vector<int32_t>& out,
                                     std::vector<std::string>* spellings) const {
  std::string normalized(text);
  KVG_TRY(parts_.normalizer.Apply(normalized, at_start));
  std::vector<Segment> segments;
  if (normalized_finder_.empty()) {
    segments.push_back({0, normalized.size(), -1});
  } else {
    normalized_finder_.Cut(normalized, take_special, segments);
  }
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
      if (spellings != nullptr) spellings->push_back(TokenText(segment.id));
      continue;
    }
    if (segment.begin == segment.end) continue;
    PieceList list;
    list.pieces.push_back(
        {std::string_view(normalized).substr(segment.begin, segment.end - segment.begin),
         at_start && segment.begin == 0});
    KVG_TRY(parts_.pre_tokenizer.Apply(list));
    for (const Piece& piece : list.pieces) {
      parts_.model->Encode(piece.text, out);
      if (spellings != nullptr) AddSpellings(piece.text, out, *spellings);
    }
  }
  return {};
}

Result<std::vector<int32_t>> PipelineTokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  if (options.add_special) ids = parts_.prefix;
  KVG_TRY(EncodeInto(text, options.parse_special, ids, nullptr));
  if (options.add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

Status PipelineTokenizer::Cut(std::string_view text, std::vector<int32_t>& ids,
                              std::vector<std::string>& spellings) const {
  ids.clear();
  spellings.clear();
  return EncodeInto(text, true, ids, &spellings);
}

Status PipelineTokenizer::EncodeInto(std::string_view text, bool take_special,
                                     std::vector<int32_t>& out,
                                     std::vector<std::string>* spellings) const {
  std::string repaired;
  if (FindInvalidUtf8(text) != std::string_view::npos) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  std::vector<Segment> segments;
  raw_finder_.Cut(text, take_special, segments);
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
      if (spellings != nullptr) spellings->push_back(TokenText(segment.id));
    } else {
      KVG_TRY(EncodeText(text.substr(segment.begin, segment.end - segment.begin),
                         segment.begin == 0, take_special, out, spellings));
    }
  }
  return {};
}

std::unique_ptr<Detokenizer> PipelineTokenizer::NewDetokenizer(const DecodeOptions& options) const {
  return MakeDetokenizer(*this, parts_.decoder.Start(parts_.clean_up && options.clean_up),
                         options.skip_special);
}

std::string PipelineTokenizer::Join(std::span<const std::string> spellings) const {
  DecodeChain chain = parts_.decoder.Start(false);
  std::string text;
  for (const std::string& spelling : spellings) chain.Push(spelling, text);
  chain.Finish(text);
  return text;
}

int64_t PipelineTokenizer::VocabSize() const {
  return std::max(parts_.vocabulary->size(), parts_.added.size());
}

std::string PipelineTokenizer::TokenText(int32_t id) const {
  const AddedToken* token = parts_.added.Find(id);
  return token != nullptr ? token->content : parts_.vocabulary->TextOf(id);
}

std::optional<int32_t> PipelineTokenizer::IdOf(std::string_view token_text) const {
  if (const AddedToken* token = parts_.added.Find(token_text)) return token->id;
  return parts_.vocabulary->Find(token_text);
}

}  // namespace kvgauge
