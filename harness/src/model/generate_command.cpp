// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <optional>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "runner/chat_template.h"
#include "runner/engine.h"
#include "runner/generate.h"
#include "runner/reuse_texts.h"
#include "runner/tokenizer.h"
#include "src/cli/print.h"
#include "src/cli/read_text.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/model/saved_answer.h"
#include "src/model/visual_input.h"

namespace kvgauge {
namespace {

// Cuts a stream of text before the first of several stop texts. Text that could still become one
// is held back.
class StopTexts {
 public:
  explicit StopTexts(const std::vector<std::string>& texts) {
    for (std::string text : texts) {
      for (size_t at = 0; (at = text.find("\\n", at)) != std::string::npos; ++at) {
        text.replace(at, 2, "\n");
      }
      if (!text.empty()) texts_.push_back(std::move(text));
    }
  }

  bool found() const { return found_; }

  // The part of the text so far that may be shown.
  std::string Push(const std::string& piece, bool last) {
    if (found_) return "";
    held_ += piece;
    size_t end = held_.size();
    for (const std::string& text : texts_) {
      const size_t at = held_.find(text);
      if (at != std::string::npos && at <= end) {
        end = at;
        found_ = true;
      }
    }
    if (!found_ && !last) {
      for (const std::string& text : texts_) {
        // The longest end of what is held that begins the stop text.
        for (size_t n = std::min(text.size() - 1, held_.size()); n > 0; --n) {
          if (held_.ends_with(std::string_view(text).substr(0, n))) {
            end = std::min(end, held_.size() - n);
            break;
          }
        }
      }
    }
    std::string shown = held_.substr(0, end);
    held_.erase(0, end);
    return shown;
  }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

// What the flags ask for, as token ids.
Result<std::vector<int32_t>> PromptIds(const GenerateFlags& flags, const ModelConfig& config,
                                       const Tokenizer* tokenizer, const VisualInput& input) {
  const int given = !flags.prompt.empty() + !flags.prompt_file.empty() + !flags.ids_file.empty();
  if (given != 1) {
    return BadInput("generate needs exactly one of --prompt, --prompt-file, --ids-file");
  }
  if (!flags.ids_file.empty()) return ReadIdsFile(flags.ids_file, config.vocab_size);
  if (tokenizer == nullptr) {
    return BadInput(StrCat(flags.model.model,
                           ": no tokenizer (tokenizer.json, tokenizer.model or vocab.json); give "
                           "token ids with --ids-file"));
  }
  std::string text = WellFormed(flags.prompt, "--prompt");
  if (!flags.prompt_file.empty()) {
    KVG_ASSIGN(text, ReadTextFile(flags.prompt_file));
  }
  KVG_ASSIGN(const ChatSwitches switches, SwitchesOf(flags.chat));
  KVG_ASSIGN(const ChatTemplate chat,
             ChatTemplate::Load(flags.model.model, flags.chat.name, switches));
  if (!flags.system.empty() && !chat.none() && !chat.takes_system()) {
    return BadInput(StrCat("--system: the chat template ", chat.name(),
                           " shows no system message; put the text into the prompt"));
  }
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) {
    messages.push_back({"system", WellFormed(flags.system, "--system")});
  }
  messages.push_back({"user", text});
  std::string rendered;
  if (input.empty()) {
    KVG_ASSIGN(rendered, chat.Render(messages, true));
  } else {
    KVG_ASSIGN(rendered, RenderWithVisuals(chat, config, *tokenizer,
                                           WellFormed(flags.system, "--system"), text, input));
  }
  bool begins = false;
  if (!chat.none()) {
    KVG_ASSIGN(begins, BeginsWithSpecials(*tokenizer, rendered));
  }
  KVG_ASSIGN(std::vector<int32_t> ids, tokenizer->Encode(rendered, {.add_special = !begins}));
  for (const int32_t id : ids) {
    if (id >= config.vocab_size) {
      return BadInput(StrCat(flags.model.model, ": the tokenizer gives id ", id,
                             ", but the model has only ", config.vocab_size,
                             " embedding rows; tokenizer and weights do not belong together"));
    }
  }
  return ids;
}

// Sees the cache when the answer has ended, and what compressed it; null without a method.
using CacheCallback =
    std::function<void(const std::vector<int32_t>& answer, const KvCache&, Compressor*)>;

// The same with a method: one sample, one row.
Result<CellResult> GenerateWith(const ChosenMethod& chosen, Model& model,
                                const VisualPrompt& prompt, const GenerateOptions& options,
                                const std::function<bool(int32_t)>& on_token,
                                const CacheCallback& ended) {
  const EngineOptions engine_options = {
      .seed = options.sampling.seed,
      .sampling = options.sampling,
      .valid_vocab = options.valid_vocab,
      .on_token = [&](const EngineToken& token) { return on_token(token.answer.back()); },
      .inspect =
          [&](const CellResult& cell, const KvCache& cache, Compressor& compressor) {
            if (ended) ended(cell.turns[0].ids, cache, &compressor);
          }};
  const EngineSample sample = {.id = "prompt",
                               .turns = {{.ids = prompt.ids,
                                          .spans = prompt.spans,
                                          .max_new_tokens = options.max_new_tokens}},
                               .stop_ids = options.stop_ids,
                               .visuals = prompt.visuals};
  Engine engine({{.method = &chosen.method, .budget = chosen.budget, .model = &model}},
                engine_options);
  CellResult cell;
  KVG_TRY(engine.Run({&sample, 1}, [&](CellResult result) {
    cell = std::move(result);
    return cell.status;
  }));
  return cell;
}

// A loaded cache, the tokens that it has seen and one more, and what its method goes on with.
struct Resumed {
  KvCache cache;
  Prompt sequence = {};
  std::unique_ptr<Compressor> compressor = nullptr;  // null: the method does nothing in decode
};

// What was answered and what that took.
struct Answered {
  std::string text;
  GenerateResult result;
  std::optional<CellResult> cell;  // of a method
  std::optional<CacheFileFacts> loaded, saved;
};

GenerateOptions OptionsOf(const GenerateFlags& flags, const ModelConfig& config,
                          const Tokenizer* tokenizer) {
  GenerateOptions options;
  options.max_new_tokens = flags.max_new_tokens;
  options.sampling = {.temperature = static_cast<float>(flags.temperature),
                      .top_p = static_cast<float>(flags.top_p),
                      .seed = flags.seed};
  if (!flags.ignore_stop) options.stop_ids.assign(config.eos_ids.begin(), config.eos_ids.end());
  if (tokenizer != nullptr) {
    options.valid_vocab = std::min(tokenizer->VocabSize(), config.vocab_size);
  }
  return options;
}

// Prints the answer as it comes, unless the whole is to be JSON. Without a tokenizer it is ids.
// `resumed`: of a saved cache, or null.
Result<Answered> AnswerPrompt(const GenerateFlags& flags, const std::optional<ChosenMethod>& chosen,
                              Model& model, const Tokenizer* tokenizer, const VisualPrompt& prompt,
                              const GenerateOptions& options, Resumed* resumed,
                              const CacheCallback& ended) {
  Answered answered;
  std::unique_ptr<TextStream> stream;
  if (tokenizer != nullptr) stream = std::make_unique<TextStream>(*tokenizer);
  StopTexts stops(flags.stop_texts);
  const auto emit = [&](const std::string& piece, bool last) {
    const std::string shown = stops.Push(piece, last);
    answered.text += shown;
    if (!flags.json) Print(shown);
  };
  int64_t count = 0;
  const auto on_token = [&](int32_t id) {
    emit(stream ? stream->Push(id) : StrCat(count == 0 ? "" : " ", id), false);
    ++count;
    return !stops.found();
  };
  if (resumed != nullptr) {
    Compressor* const compressor = resumed->compressor.get();
    KVG_ASSIGN(answered.result, GenerateFrom(model, resumed->sequence, resumed->cache, options,
                                             on_token, compressor));
    if (ended) ended(answered.result.ids, resumed->cache, compressor);
  } else if (!chosen) {
    KvCache cache = model.NewCache(std::ssize(prompt.ids) + options.max_new_tokens);
    KVG_ASSIGN(answered.result,
               GenerateFrom(model, prompt.Of(model.config()), cache, options, on_token));
    if (ended) ended(answered.result.ids, cache, nullptr);
  } else {
    double first_s = 0;
    const auto timed = [&](int32_t id) {
      if (first_s == 0) first_s = NowSeconds();
      return on_token(id);
    };
    KVG_ASSIGN(answered.cell, GenerateWith(*chosen, model, prompt, options, timed, ended));
    CellResult& cell = *answered.cell;
    if (chosen->method.see && cell.record.engagement == Engagement::kIdentity) {
      // It acted before the cache was there.
      const bool acted = prompt.unseen > 0;
      cell.record.engagement = acted ? Engagement::kEngaged : Engagement::kNotEngaged;
      cell.record.reason = acted ? "" : "every row of every picture was shown";
    }
    answered.result = {.ids = cell.turns[0].ids,
                       .stopped = cell.turns[0].stopped,
                       .prefill_s = cell.record.seconds.prefill,
                       .decode_s = first_s == 0 ? 0 : NowSeconds() - first_s,
                       .decode_steps = cell.record.steps,
                       .cache_payload_bytes = cell.record.final_bytes.payload,
                       .cache_resident_bytes = cell.record.final_bytes.resident()};
  }
  emit(stream ? stream->Finish() : "", true);
  return answered;
}

double Rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

// Tokens that the prefill read: a loaded cache has seen the others.
int64_t PrefillTokens(const Answered& answered, const VisualPrompt& prompt) {
  return std::ssize(prompt.ids) - (answered.loaded ? answered.loaded->tokens : 0);
}

void PrintAnswerJson(const Answered& answered, const std::optional<ChosenMethod>& chosen,
                     Model& model, const VisualPrompt& prompt, double load_s) {
  const GenerateResult& result = answered.result;
  const int64_t prefill_tokens = PrefillTokens(answered, prompt);
  Json method = nullptr;
  if (answered.cell) {
    method = {{"method", chosen->method.ToJson()},
              {"budget", chosen->budget.ToString()},
              {"record", answered.cell->record.ToJson()}};
  }
  PrintJson({{"text", answered.text},
             {"method", method},
             {"ids", result.ids},
             {"stopped", result.stopped},
             {"prompt_tokens", std::ssize(prompt.ids)},
             {"visual_tokens", prompt.visual_tokens()},
             {"visual_tokens_taken_out", prompt.unseen},
             {"vision_s", prompt.vision_s},
             {"video_decoder", prompt.decoder.empty() ? Json(nullptr) : Json(prompt.decoder)},
             {"load_s", load_s},
             {"prefill_s", result.prefill_s},
             {"prefill_tokens", prefill_tokens},
             {"prefill_tokens_per_s", Rate(prefill_tokens, result.prefill_s)},
             {"decode_s", result.decode_s},
             {"decode_tokens_per_s", Rate(result.decode_steps, result.decode_s)},
             {"cache_payload_bytes", result.cache_payload_bytes},
             {"cache_resident_bytes", result.cache_resident_bytes},
             {"loaded_cache", answered.loaded ? answered.loaded->ToJson() : Json(nullptr)},
             {"saved_cache", answered.saved ? answered.saved->ToJson() : Json(nullptr)},
             {"weight_bytes", model.weight_bytes()},
             {"packed_weight_bytes", model.block_bytes()},
             {"dtype", NameOf(model.dtype())},
             {"product_rows", NameOf(model.product_rows())},
             {"backend", model.ops().backend},
             {"variant", model.ops().variant}});
}

// To standard error, behind the answer.
void PrintMeasurements(const Answered& answered, const std::optional<ChosenMethod>& chosen,
                       Model& model, const VisualPrompt& prompt, double load_s) {
  const GenerateResult& result = answered.result;
  const int64_t prefill_tokens = PrefillTokens(answered, prompt);
  Print("\n");
  if (prompt.visuals != nullptr) {
    const std::string taken =
        prompt.unseen > 0 ? StrCat(" of the pictures' ", prompt.visual_tokens() + prompt.unseen)
                          : "";
    std::fprintf(stderr, "\nvision   %lld of the prompt's tokens%s, %.2f s",
                 static_cast<long long>(prompt.visual_tokens()), taken.c_str(), prompt.vision_s);
  }
  const std::string packed =
      model.block_bytes() > 0 ? StrCat(" (", HumanBytes(model.block_bytes()), " in blocks)") : "";
  const std::string read = answered.loaded
                               ? StrCat(prefill_tokens, " of ", std::ssize(prompt.ids), " tokens")
                               : StrCat(prefill_tokens, " tokens");
  std::fprintf(
      stderr,
      "\nprefill  %s, %.1f tokens/s\n"
      "decode   %lld steps, %.1f tokens/s%s\n"
      "cache    %s payload, %s resident (%s)\n"
      "weights  %s%s, %s on %s (%s), loaded in %.2f s\n",
      read.c_str(), Rate(prefill_tokens, result.prefill_s),
      static_cast<long long>(result.decode_steps), Rate(result.decode_steps, result.decode_s),
      result.stopped ? ", ended by a stop" : "", HumanBytes(result.cache_payload_bytes).c_str(),
      HumanBytes(result.cache_resident_bytes).c_str(), std::string(NameOf(model.dtype())).c_str(),
      HumanBytes(model.weight_bytes()).c_str(), packed.c_str(),
      std::string(NameOf(model.dtype())).c_str(), model.ops().backend.c_str(),
      model.ops().variant.c_str(), load_s);
  if (answered.loaded) std::fputs(answered.loaded->Describe("loaded").c_str(), stderr);
  if (answered.saved) std::fputs(answered.saved->Describe("saved").c_str(), stderr);
  if (answered.cell) std::fputs(DescribeRecord(*chosen, answered.cell->record).c_str(), stderr);
}

// A saved cache has its prompt, and how it was compressed, with it.
Status CheckLoadFlags(const GenerateFlags& flags) {
  if (flags.load_cache.empty()) return {};
  const TemplateFlags none;
  if (!flags.prompt.empty() || !flags.prompt_file.empty() || !flags.ids_file.empty() ||
      !flags.system.empty() || flags.chat.name != none.name || !flags.chat.set.empty() ||
      !flags.chat.date.empty()) {
    return BadInput(
        "--load-cache goes on with the tokens of its file: leave out --prompt, "
        "--prompt-file, --ids-file, --system and what chooses a template");
  }
  return {};
}

// The method, its budget and its parameters. What was stored has its budget in the file.
Result<std::optional<ChosenMethod>> MethodOf(const GenerateFlags& flags, const SavedCache* saved) {
  std::optional<ChosenMethod> chosen;
  if (!flags.method.method.empty()) {
    KVG_ASSIGN(chosen, ChooseMethod(flags.method));
  }
  if (saved == nullptr) return chosen;
  KVG_TRY(CheckLoadedFor(*saved, chosen ? &chosen->method : nullptr, flags.load_cache));
  if (!chosen) return chosen;
  if (flags.method.budget != MethodFlags().budget && flags.method.budget != saved->budget) {
    return BadInput(StrCat("--load-cache ", flags.load_cache, " was stored at a budget of ",
                           saved->budget, ": leave out --budget"));
  }
  KVG_ASSIGN(chosen->budget, Budget::Parse(saved->budget));
  return chosen;
}

}  // namespace

Status RunGenerate(const GenerateFlags& flags) {
  const double start = NowSeconds();
  if (flags.method.method.empty() &&
      (flags.method.budget != MethodFlags().budget || !flags.method.overrides.empty())) {
    return BadInput("--budget and --set are for a KV method; name one with --method");
  }
  if (flags.top_p != GenerateFlags().top_p && flags.temperature == 0) {
    return BadInput("--top-p: expected a --temperature above 0 beside it: 0 takes the likeliest");
  }
  KVG_TRY(CheckLoadFlags(flags));
  std::optional<LoadedCacheFile> file;
  if (!flags.load_cache.empty()) {
    KVG_ASSIGN(file, ReadCacheFile(flags.load_cache));
  }
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(flags.model.model));
  std::unique_ptr<Tokenizer> tokenizer;
  if (HasTokenizer(flags.model.model)) {
    KVG_ASSIGN(tokenizer, LoadTokenizer(flags.model.model));
  }
  KVG_ASSIGN(VisualInput input, ReadVisualInput(flags.visual, flags.model.model, config));
  std::vector<int32_t> ids;
  if (file) {
    if (!input.empty()) {
      return BadInput(
          "--load-cache: the pictures of the prompt are in the file, and none can be added");
    }
    ids = file->saved.ids;
  } else {
    KVG_ASSIGN(ids, PromptIds(flags, config, tokenizer.get(), input));
  }
  KVG_TRY(CheckPlaceholders(input, config, ids));
  ModelFlags divided = flags.model;
  divided.divides = true;
  LoadedModel loaded;
  KVG_ASSIGN(const std::optional<ChosenMethod> chosen,
             MethodOf(flags, file ? &file->saved : nullptr));
  if (chosen && !flags.save_cache.empty()) {
    const Status savable = CheckSavable(chosen->method);
    if (!savable.ok()) return savable.error().Wrap(StrCat("--save-cache ", flags.save_cache));
  }
  if (chosen) {
    KVG_ASSIGN(loaded, LoadModelFor(*chosen, divided, std::ssize(ids)));
  } else {
    KVG_ASSIGN(loaded, LoadModel(divided));
  }
  Model& model = *loaded.model;
  const auto prompt_tokens = static_cast<int64_t>(ids.size());
  const Pipeline stages = chosen ? MakePipeline(chosen->method) : Pipeline();
  if (chosen && chosen->method.see) {
    std::optional<EyesShape> eyes;
    if (!config.vision_family.empty()) {
      KVG_ASSIGN(const std::optional<VisionSpec> spec, ReadVisionConfig(flags.model.model));
      if (spec) eyes = ShapeOfEyes(*spec);
    }
    KVG_TRY(CheckSee(chosen->method, eyes));
  }
  KVG_ASSIGN(const VisualPrompt prompt, EncodeVisuals(input, flags.visual, flags.model, loaded,
                                                      std::move(ids), stages.see.get()));
  const double load_s = NowSeconds() - start - prompt.vision_s;
  const int64_t planned = prompt_tokens + flags.max_new_tokens;
  if (planned > config.max_position) {
    LogWarning(StrCat("prompt and answer reach ", planned, " tokens; the model was made for ",
                      config.max_position));
  }
  const GenerateOptions options = OptionsOf(flags, config, tokenizer.get());
  std::optional<Resumed> resumed;
  if (file) {
    const double begin = NowSeconds();
    const Method* method = chosen ? &chosen->method : nullptr;
    KVG_ASSIGN(KvCache cache, LoadCache(file->saved, model, method, planned, flags.load_cache));
    resumed.emplace(Resumed{.cache = std::move(cache)});
    resumed->sequence = SequenceOf(file->saved, resumed->cache);
    KVG_ASSIGN(resumed->compressor, LoadCompressor(file->saved, model, method, resumed->sequence,
                                                   resumed->cache, flags.load_cache));
    file->facts.seconds += NowSeconds() - begin;
    file->saved.bytes = {};
    file->saved.state = {};
  }
  Result<SavedCache> saved = SavedCache();
  double serialize_s = 0;
  CacheCallback ended;
  if (!flags.save_cache.empty()) {
    ended = [&](const std::vector<int32_t>& answer, const KvCache& cache, Compressor* acted) {
      // A file's ids are already those that the model read.
      std::vector<int32_t> all =
          chosen && !file ? IdsRead(chosen->method, prompt.ids, 0, {}) : prompt.ids;
      all.insert(all.end(), answer.begin(), answer.end());
      const double begin = NowSeconds();
      saved = SaveCache(model, chosen ? &chosen->method : nullptr,
                        chosen ? chosen->budget.ToString() : "", all,
                        file ? file->saved.spans : prompt.spans, cache, acted);
      serialize_s = NowSeconds() - begin;
      if (!saved.ok() || !file) return;
      saved->method = file->saved.method;
      saved->budget = file->saved.budget;
      saved->loaded_for = file->saved.loaded_for;
    };
  }
  KVG_ASSIGN(Answered answered, AnswerPrompt(flags, chosen, model, tokenizer.get(), prompt, options,
                                             resumed ? &*resumed : nullptr, ended));
  if (file) answered.loaded = file->facts;
  if (ended) {
    if (!saved.ok()) {
      if (!flags.json) Print("\n");  // behind the answer
      return saved.error().Wrap(StrCat("--save-cache ", flags.save_cache));
    }
    KVG_ASSIGN(answered.saved, WriteCacheFile(flags.save_cache, *saved, serialize_s));
  }
  if (flags.json) {
    PrintAnswerJson(answered, chosen, model, prompt, load_s);
  } else {
    PrintMeasurements(answered, chosen, model, prompt, load_s);
  }
  return {};
}

}  // namespace kvgauge
