// SPDX-License-Identifier: Apache-2.0
#include "src/model/draft_models.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/strings.h"
#include "runner/drafted_answer.h"
#include "runner/tokenizer.h"
#include "src/model/shipped_files.h"

namespace kvgauge {
namespace {

// "" where the two give texts the same ids.
std::string WhyOtherTokens(const Tokenizer& measured, const Tokenizer& drafting) {
  if (measured.fingerprint() == drafting.fingerprint()) return "";
  const int64_t size = measured.VocabSize();
  if (drafting.VocabSize() != size) {
    return StrCat("has ", drafting.VocabSize(), " tokens, and that of the measured model ", size);
  }
  for (int64_t id = 0; id < size; ++id) {
    const auto at = static_cast<int32_t>(id);
    const std::string own = measured.TokenText(at), other = drafting.TokenText(at);
    if (own == other) continue;
    return StrCat("has ", Quoted(other), " as token ", id, ", and that of the measured model ",
                  Quoted(own));
  }
  return "";
}

// A loaded checkpoint that answers.
struct DraftingModel {
  std::unique_ptr<Model> model;
  int64_t valid_vocab = 0;

  Result<std::vector<int32_t>> Answer(std::span<const int32_t> prompt, int64_t most) const {
    const int64_t vocab = model->config().vocab_size;
    for (const int32_t id : prompt) {
      if (id < vocab) continue;
      return Unsupported(StrCat("token ", id, " of the prompt is beyond the ", vocab,
                                " that the draft model knows"));
    }
    const Prompt all = Prompt::FromTokens(std::vector<int32_t>(prompt.begin(), prompt.end()));
    KvCache cache = model->NewCache(all.size() + most);
    return GreedyAnswer(*model, all, cache, most, valid_vocab);
  }
};

Result<Drafter> LoadDraft(const std::string& directory, Ops& ops) {
  auto drafting = std::make_shared<DraftingModel>();
  KVG_ASSIGN(drafting->model, Model::Load(directory, {}, ops));
  if (HasTokenizer(directory)) {
    KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(directory));
    drafting->valid_vocab = std::min(tokenizer->VocabSize(), drafting->model->config().vocab_size);
  }
  return Drafter{.answer = [drafting](std::span<const int32_t> prompt, int64_t most) {
    return drafting->Answer(prompt, most);
  }};
}

}  // namespace

Result<std::shared_ptr<const DraftModel>> LookAtDraftModel(const std::string& directory) {
  auto draft = std::make_shared<DraftModel>();
  draft->directory = directory;
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(directory));
  KVG_ASSIGN(const std::unique_ptr<WeightSource> source,
             OpenWeights(directory, config.stored_dtype));
  KVG_TRY(CheckWeights(config, *source));
  KVG_ASSIGN(draft->fingerprint, ModelFingerprint(config, *source));
  draft->weight_bytes = PlannedWeightBytes(config, config.stored_dtype, *source, nullptr);
  draft->shape = ShapeOf(config, config.stored_dtype);
  return std::shared_ptr<const DraftModel>(std::move(draft));
}

// Tokens are compared by their texts; checkpoints without any, by how many there are.
Status CheckDraftModel(const DraftModel& draft, const std::string& directory,
                       const ModelConfig& config, const Tokenizer* tokenizer) {
  const std::string expected = "; expected a checkpoint with the tokenizer of the measured model";
  if (HasTokenizer(draft.directory) != HasTokenizer(directory)) {
    const bool own = HasTokenizer(directory);
    return BadInput(StrCat(own ? draft.directory : directory, " has no tokenizer, and ",
                           own ? directory : draft.directory, " has one", expected));
  }
  if (!HasTokenizer(directory)) {
    KVG_ASSIGN(const ModelConfig other, ReadModelConfig(draft.directory));
    if (other.vocab_size == config.vocab_size) return {};
    return BadInput(StrCat(draft.directory, ": vocab_size is ", other.vocab_size,
                           ", and the measured model's is ", config.vocab_size, expected));
  }
  std::unique_ptr<Tokenizer> read;
  if (tokenizer == nullptr) {
    KVG_ASSIGN(read, LoadTokenizer(directory));
    tokenizer = read.get();
  }
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> other, LoadTokenizer(draft.directory));
  const std::string why = WhyOtherTokens(*tokenizer, *other);
  if (why.empty()) return {};
  return BadInput(StrCat(draft.directory, ": its tokenizer ", why, expected));
}

Status AttachDraftModels(Method& method) {
  for (StageChoice* choice : method.stages()) {
    const std::string path = DraftModelPath(*choice);
    if (path.empty()) continue;
    Result<std::shared_ptr<const DraftModel>> draft = LookAtDraftModel(FindShipped(path));
    if (!draft.ok()) {
      return draft.error().Wrap(StrCat(NameOf(*choice->spec), ".", kDraftModelParam));
    }
    choice->draft = *std::move(draft);
  }
  return {};
}

Status CheckDraftModels(const Method& method, const std::string& directory,
                        const ModelConfig& config, const Tokenizer* tokenizer) {
  for (const StageChoice* choice : method.stages()) {
    if (choice->draft == nullptr) continue;
    const Status same = CheckDraftModel(*choice->draft, directory, config, tokenizer);
    if (same.ok()) continue;
    return same.error().Wrap(
        StrCat("method ", method.id, ": ", NameOf(*choice->spec), ".", kDraftModelParam));
  }
  return {};
}

Result<Drafters> LoadDrafters(std::span<const Method* const> methods, Ops& ops) {
  Drafters drafters;
  for (const Method* method : methods) {
    for (const StageChoice* choice : method->stages()) {
      if (choice->draft == nullptr || drafters.contains(choice->draft->directory)) continue;
      KVG_ASSIGN(drafters[choice->draft->directory], LoadDraft(choice->draft->directory, ops));
    }
  }
  return drafters;
}

}  // namespace kvgauge
