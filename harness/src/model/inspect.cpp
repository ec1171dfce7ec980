// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "core/json.h"
#include "core/strings.h"
#include "images/decode.h"
#include "runner/chat_template.h"
#include "runner/tokenizer.h"
#include "runner/vision.h"
#include "src/cli/markdown.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/model/model_flags.h"
#include "src/model/visual_input.h"

namespace kvgauge {
namespace {

std::string RopeText(const ModelConfig& config) {
  if (!config.rope) return config.learned_positions ? "none (learned positions)" : "none";
  const RopeConfig& rope = *config.rope;
  std::string text = StrCat(NameOf(rope.kind), ", theta ", rope.theta);
  if (rope.kind != RopeKind::kDefault) text += StrCat(", factor ", rope.factor);
  if (rope.rotary_dim != config.key_dim) {
    text += StrCat(", ", rope.rotary_dim, " of ", config.key_dim, " dims");
  }
  return text + (rope.layout == RopeLayout::kHalf ? ", half layout" : ", interleaved layout");
}

std::string WindowText(const ModelConfig& config) {
  int64_t windowed = 0, window = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0) {
      ++windowed;
      window = layer.window;
    }
  }
  if (windowed == 0) return "full attention in every layer";
  return StrCat("sliding window of ", window, " in ", windowed, " of ", config.layer_count(),
                " layers");
}

std::string MlpText(const ModelConfig& config) {
  std::string text = StrCat(config.gated_mlp ? "gated, " : "plain, ", config.ffn_size, " wide");
  if (config.moe) {
    const MoeConfig& moe = *config.moe;
    text += StrCat("; ", moe.experts, " experts of ", moe.expert_ffn_size, ", ",
                   moe.experts_per_token, " a token, ", moe.shared_experts, " shared");
  }
  return text;
}

Status ListFamilies(const InspectOptions& options) {
  if (options.json && options.format == "markdown") {
    return BadInput("inspect --families: --json and --format markdown exclude each other");
  }
  TextTable table{.columns = {{"model_type"}, {"models"}, {"notes"}}, .rows = {}};
  Json list = Json::array();
  const bool markdown = options.format == "markdown";
  for (const FamilyInfo& family : ModelFamilies()) {
    const std::string name(family.model_type), notes(family.notes);
    table.rows.push_back(
        {{markdown ? MarkdownCode(name) : name}, {std::string(family.title)}, {notes}});
    list.push_back({{"model_type", name}, {"title", family.title}, {"notes", notes}});
  }
  if (options.json) {
    PrintJson(list);
  } else if (!markdown) {
    Print(table.ToText(false));
  } else {
    Print(StrCat(
        "# Model families\n\n"
        "This page is the output of `kvgauge inspect --families --format markdown`;\n"
        "`scripts/approve` renews it. `model_type` is the key of a checkpoint's `config.json`.\n\n",
        table.ToMarkdown(),
        "\nA key of config.json that changes the forward pass and is not understood, a missing or\n"
        "unexpected tensor, a wrong shape or a NaN is an error that names it.\n"
        "[formats/model-configs.md](formats/model-configs.md) lists the keys that are read,\n"
        "defaulted and refused, and [add-a-model-family.md](add-a-model-family.md) shows how to "
        "add\n"
        "a family.\n"));
  }
  return {};
}

Json EosJson(const ModelConfig& config) { return Json(config.eos_ids); }

// What a model that sees makes of a picture of the asked size.
struct Sight {
  VisionSpec spec;
  int64_t parameters = 0;
  ImageSize size;
  int64_t rows = 0;     // of such a picture; 0: not known
  std::string without;  // why not
};

Result<ImageSize> ParseImageSize(const std::string& text) {
  int width = 0, height = 0, read = 0;
  const int found = std::sscanf(text.c_str(), "%dx%d%n", &width, &height, &read);
  if (found != 2 || read != static_cast<int>(text.size()) || width < 1 || height < 1 ||
      width > 16384 || height > 16384) {
    return BadInput(
        StrCat("--image-size: ", Quoted(text), ", expected WIDTHxHEIGHT, each from 1 to 16384"));
  }
  return ImageSize{width, height};
}

Result<std::optional<Sight>> Look(const InspectOptions& options, bool random) {
  KVG_ASSIGN(std::optional<VisionSpec> spec, ReadVisionConfig(options.model.model));
  if (!spec) return std::optional<Sight>();
  Sight sight;
  sight.spec = *std::move(spec);
  KVG_ASSIGN(sight.size, ParseImageSize(options.image_size));
  for (const TensorSpec& tensor : ExpectedVisionTensors(sight.spec)) {
    int64_t size = 1;
    for (const int64_t d : tensor.shape) size *= d;
    sight.parameters += size;
  }
  if (!random) {
    KVG_ASSIGN(const std::unique_ptr<WeightSource> source, OpenSafetensors(options.model.model));
    KVG_TRY(CheckVisionWeights(sight.spec, *source));
  }
  const Result<Preprocessor> preprocessor = ReadPicturePreprocessor(options.model.model);
  if (!preprocessor.ok()) {
    sight.without = preprocessor.error().message;
    return std::optional<Sight>(std::move(sight));
  }
  KVG_ASSIGN(const PixelValues pixels,
             Preprocess(*preprocessor, Image::OfSize(sight.size.width, sight.size.height)));
  KVG_ASSIGN(const VisualLayout layout, LayOutVisual(sight.spec, pixels, Modality::kImage));
  sight.rows = layout.rows;
  return std::optional<Sight>(std::move(sight));
}

}  // namespace

Status RunInspect(const InspectOptions& options) {
  if (options.families != options.model.model.empty()) {
    return BadInput(
        options.families
            ? "inspect --families: lists all families, expected no MODEL"
            : "inspect: expected MODEL, a checkpoint directory or a config.json; or --families");
  }
  if (options.families) return ListFamilies(options);
  KVG_ASSIGN(const ModelOptions model_options, ParseModelOptions(options.model));
  KVG_ASSIGN(const ModelConfig config, ReadModelConfig(options.model.model));
  const DType dtype = model_options.dtype.value_or(config.stored_dtype);
  // Shapes are read, weights are not: a large checkpoint is inspected at once.
  std::string fingerprint = "none (random weights)";
  if (!model_options.random_seed) {
    KVG_ASSIGN(const std::unique_ptr<WeightSource> source, OpenSafetensors(options.model.model));
    KVG_TRY(CheckWeights(config, *source));
    KVG_ASSIGN(fingerprint, ModelFingerprint(config, *source));
  }
  std::optional<Sight> sight;
  if (!config.vision_family.empty()) {
    KVG_ASSIGN(sight, Look(options, model_options.random_seed.has_value()));
  }
  const int64_t parameters = ParameterCount(config);
  const int64_t weight_bytes = parameters * SizeOf(dtype);

  std::string tokenizer_text = "none";
  int64_t tokenizer_vocab = 0;
  std::string template_text = "none";
  if (HasTokenizer(options.model.model)) {
    KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(options.model.model));
    tokenizer_text = tokenizer->Kind();
    tokenizer_vocab = tokenizer->VocabSize();
    const Result<ChatTemplate> chat = ChatTemplate::Load(options.model.model, "auto");
    template_text = !chat.ok() ? StrCat("cannot be run: ", chat.error().message)
                    : chat->none()
                        ? "none"
                        : StrCat(chat->name(), ", sha256 ", chat->sha256().substr(0, 16));
  }

  const int64_t kv_bytes = config.KvBytesPerToken(dtype);
  if (options.json) {
    Json tensors = Json::array();
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      tensors.push_back({{"name", spec.name}, {"shape", spec.shape}});
    }
    Json vision = nullptr;
    if (sight) {
      vision = {{"family", sight->spec.family},
                {"parameters", sight->parameters},
                {"layers", sight->spec.tower.run_layers},
                {"width", sight->spec.tower.width},
                {"image_size", {sight->size.width, sight->size.height}},
                {"image_tokens", sight->rows},
                {"image_kv_bytes", sight->rows * kv_bytes}};
    }
    PrintJson({{"model", options.model.model},
               {"family", config.family},
               {"vision", vision},
               {"parameters", parameters},
               {"weight_bytes", weight_bytes},
               {"dtype", NameOf(dtype)},
               {"layers", config.layer_count()},
               {"hidden_size", config.hidden_size},
               {"ffn_size", config.ffn_size},
               {"query_heads", config.query_heads},
               {"kv_heads", config.kv_heads},
               {"key_dim", config.key_dim},
               {"value_dim", config.value_dim},
               {"vocab_size", config.vocab_size},
               {"max_position", config.max_position},
               {"rope", RopeText(config)},
               {"kv_bytes_per_token", kv_bytes},
               {"eos_ids", EosJson(config)},
               {"tokenizer", tokenizer_text},
               {"tokenizer_vocab", tokenizer_vocab},
               {"chat_template", template_text},
               {"fingerprint", fingerprint},
               {"tensors", tensors}});
    return {};
  }
  std::vector<std::pair<std::string, std::string>> seeing;
  if (sight) {
    const TowerSpec& tower = sight->spec.tower;
    seeing = {
        {"eyes", StrCat(sight->spec.family, ", ", tower.run_layers, " of ", tower.layers,
                        " layers of width ", tower.width, ", patches of ", tower.patch, " x ",
                        tower.patch, " pixels, ", WithCommas(sight->parameters), " parameters")},
        {"picture",
         sight->without.empty()
             ? StrCat(sight->size.width, " x ", sight->size.height, ": ", WithCommas(sight->rows),
                      " tokens, ", HumanBytes(sight->rows * kv_bytes), " of KV cache")
             : StrCat("not known: ", sight->without)}};
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", options.model.model},
      {"family", config.family},
      {"parameters",
       StrCat(WithCommas(parameters), " (", HumanBytes(weight_bytes), " as ", NameOf(dtype), ")")},
      {"layers", StrCat(config.layer_count(), " of width ", config.hidden_size)},
      {"attention",
       StrCat(config.query_heads, " query heads, ", config.kv_heads, " KV heads, key dim ",
              config.key_dim, ", value dim ", config.value_dim)},
      {"reach", WindowText(config)},
      {"mlp", MlpText(config)},
      {"rope", RopeText(config)},
      {"vocabulary", StrCat(WithCommas(config.vocab_size), " rows, head ",
                            config.tied_head ? "tied to the embedding" : "of its own")},
      {"context", StrCat(WithCommas(config.max_position), " positions")},
      {"KV cache", StrCat(WithCommas(kv_bytes), " bytes per token as ", NameOf(dtype), "; ",
                          HumanBytes(kv_bytes * config.max_position), " at full context")},
      {"tokenizer", tokenizer_vocab > 0
                        ? StrCat(tokenizer_text, ", ", WithCommas(tokenizer_vocab), " tokens")
                        : tokenizer_text},
      {"chat template", template_text},
      {"stop ids", EosJson(config).dump()},
      {"fingerprint", fingerprint},
  };
  facts.insert(facts.begin() + 2, seeing.begin(), seeing.end());
  PrintFacts(facts);
  Print("\n");
  std::vector<std::vector<std::string>> rows;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    std::string shape;
    for (const int64_t d : spec.shape) shape += StrCat(shape.empty() ? "" : " x ", d);
    rows.push_back({spec.name, shape});
  }
  PrintTable({"tensor", "shape"}, rows);
  return {};
}

}  // namespace kvgauge
