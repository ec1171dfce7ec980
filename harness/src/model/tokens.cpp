// SPDX-License-Identifier: Apache-2.0
// tokenize, detokenize, logits: the windows through which others check this runner.
#include <algorithm>

#include "core/files.h"
#include "core/json.h"
#include "core/npy.h"
#include "core/strings.h"
#include "runner/generate.h"
#include "runner/tokenizer.h"
#include "src/cli/print.h"
#include "src/cli/read_text.h"
#include "src/model/model_flags.h"
#include "src/model/visual_input.h"

namespace kvgauge {

Status RunTokenize(const TokenizeOptions& options) {
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(options.model));
  KVG_ASSIGN(const std::string text, ReadTextFile(options.text_file));
  KVG_ASSIGN(const std::vector<int32_t> ids,
             tokenizer->Encode(
                 text, {.add_special = !options.no_bos, .parse_special = !options.no_special}));
  if (options.json) {
    Print(Json({{"ids", ids}}).dump() + "\n");
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  for (const int32_t id : ids) rows.push_back({StrCat(id), Quoted(tokenizer->TokenText(id))});
  PrintTable({"id", "token"}, rows);
  return {};
}

Status RunDetokenize(const DetokenizeOptions& options) {
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(options.model));
  KVG_ASSIGN(const std::vector<int32_t> ids, ReadIdsFile(options.ids_file, tokenizer->VocabSize()));
  const std::string text = tokenizer->Decode(ids, options.skip_special);
  if (options.json) {
    Print(Json({{"text", text}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    Print(text);
  }
  return {};
}

Status RunLogits(const LogitsOptions& options) {
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(options.model.model));
  KVG_ASSIGN(std::vector<int32_t> ids, ReadIdsFile(options.ids_file, config.vocab_size));
  if (config.blocks) {
    return Unsupported(StrCat(config.path, ": the model reads blocks of ", config.blocks->tokens,
                              " tokens (block_length) and has no logits within the first one; "
                              "kvgauge logits writes those of every token"));
  }
  if (ids.empty()) return BadInput(StrCat(options.ids_file, ": holds no token ids"));
  KVG_ASSIGN(VisualInput input, ReadVisualInput(options.visual, options.model.model, config));
  KVG_TRY(CheckPlaceholders(input, config, ids));
  ModelFlags divided = options.model;
  divided.divides = true;
  KVG_ASSIGN(const LoadedModel loaded, LoadModel(divided));
  Model& model = *loaded.model;

  const auto rows = static_cast<int64_t>(ids.size());
  KVG_ASSIGN(NpyWriter writer, NpyWriter::Create(options.out, rows, config.vocab_size));
  KVG_ASSIGN(const VisualPrompt visual,
             EncodeVisuals(input, options.visual, options.model, loaded, std::move(ids)));
  const Prompt prompt = visual.Of(config);
  KvCache cache = model.NewCache(rows);
  // A row of logits may be a megabyte: hold few of them at a time.
  const int64_t most = std::max<int64_t>(1, (int64_t{64} << 20) / (4 * config.vocab_size));
  const int64_t chunk = options.chunk > 0 ? options.chunk : std::min(Model::kChunkRows, most);
  std::vector<float> host;
  KVG_TRY(Prefill(model, prompt, cache, chunk, true, [&](const Tensor& logits) {
    if (logits.device == Device::kHost) {
      return writer.Append({logits.f32(), static_cast<size_t>(logits.Numel())});
    }
    host.resize(static_cast<size_t>(logits.Numel()));
    model.ops().memory->Copy(logits, View(host, {logits.Numel()}));
    return writer.Append(host);
  }));
  KVG_TRY(writer.Finish());
  if (options.json) {
    Print(Json({{"out", options.out},
                {"tokens", rows},
                {"vocab", config.vocab_size},
                {"dtype", NameOf(model.dtype())}})
              .dump() +
          "\n");
  } else {
    Print(StrCat(options.out, ": float32 [", rows, ", ", config.vocab_size, "]\n"));
  }
  return {};
}

}  // namespace kvgauge
