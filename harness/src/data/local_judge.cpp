// SPDX-License-Identifier: Apache-2.0
#include "src/data/local_judge.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/strings.h"
#include "runner/chat_template.h"
#include "runner/config.h"
#include "runner/generate.h"
#include "runner/tokenizer.h"
#include "src/model/model_flags.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostReplyTokens = 1024;
constexpr size_t kJudgeDigits = 16;

class LocalModelJudge {
 public:
  static Result<std::shared_ptr<LocalModelJudge>> Open(const std::string& directory) {
    auto judge = std::make_shared<LocalModelJudge>();
    judge->directory_ = directory;
    KVG_ASSIGN(judge->config_, ReadModelConfig(directory));
    if (!HasTokenizer(directory)) {
      return BadInput(StrCat("--judge: ", directory, " has no tokenizer, which a judge needs"));
    }
    KVG_ASSIGN(judge->tokenizer_, LoadTokenizer(directory));
    KVG_ASSIGN(judge->chat_, ChatTemplate::Load(directory, "auto", ChatSwitches()));
    return judge;
  }

  Result<JudgeAnswer> Ask(const std::string& message) {
    KVG_ASSIGN(const std::string text, chat_.Render({{"user", message}}, true));
    bool begins = false;
    if (!chat_.none()) {
      KVG_ASSIGN(begins, BeginsWithSpecials(*tokenizer_, text));
    }
    KVG_ASSIGN(const std::vector<int32_t> ids, tokenizer_->Encode(text, {.add_special = !begins}));
    const int64_t room = config_.max_position - std::ssize(ids);
    if (room < 1) {
      return BadInput(StrCat("the question takes ", ids.size(), " tokens, the judge ", directory_,
                             " was made for ", config_.max_position));
    }
    if (loaded_.model == nullptr) {
      KVG_ASSIGN(loaded_, LoadModel({.model = directory_}));
    }
    GenerateOptions options;
    options.max_new_tokens = std::min(kMostReplyTokens, room);
    options.stop_ids.assign(config_.eos_ids.begin(), config_.eos_ids.end());
    options.valid_vocab = std::min(tokenizer_->VocabSize(), config_.vocab_size);
    KVG_ASSIGN(const GenerateResult result,
               Generate(*loaded_.model, Prompt::FromTokens(ids), options, nullptr));
    return JudgeAnswer{.text = tokenizer_->Decode(result.ids),
                       .tokens = std::ssize(ids) + std::ssize(result.ids)};
  }

 private:
  std::string directory_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatTemplate chat_;
  LoadedModel loaded_;
};

}  // namespace

Result<Judge> LocalJudge(const std::string& directory) {
  KVG_ASSIGN(const std::shared_ptr<LocalModelJudge> judge, LocalModelJudge::Open(directory));
  KVG_ASSIGN(const std::string fingerprint, FingerprintOf({.model = directory}));
  return Judge{.name = StrCat("local ", fingerprint.substr(0, kJudgeDigits)),
               .ask = [judge](const std::string& message, int64_t, int64_t* requests) {
                 if (requests != nullptr) ++*requests;
                 return judge->Ask(message);
               }};
}

}  // namespace kvgauge
