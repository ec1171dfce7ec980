// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "core/json.h"
#include "core/strings.h"
#include "images/decode.h"
#include "kernels/devices.h"
#include "methods/encoding_thin.h"
#include "runner/chat_template.h"
#include "runner/tokenizer.h"
#include "runner/vision.h"
#include "src/cli/markdown.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/model/machine_fit.h"
#include "src/model/model_flags.h"
#include "src/model/shapes_table.h"
#include "src/model/visual_input.h"

namespace kvgauge {
namespace {

std::string BaseText(const RopeConfig& rope) {
  std::string text = StrCat(NameOf(rope.kind), ", theta ", rope.theta);
  if (rope.kind != RopeKind::kDefault) text += StrCat(", factor ", rope.factor);
  return text;
}

// How many frequencies turn with each axis of a position, where there are three.
std::string SectionsText(const RopeConfig& rope) {
  if (rope.sections.empty()) return "";
  return StrCat("; of its frequencies ", rope.sections[0], " turn with time, ", rope.sections[1],
                " with height and ", rope.sections[2], " with width, ",
                rope.interleaved ? "in turns" : "one section after the other");
}

Json SectionsJson(const ModelConfig& config) {
  if (!config.rope || config.rope->sections.empty()) return nullptr;
  return {{"frequencies", config.rope->sections}, {"interleaved", config.rope->interleaved}};
}

std::string RopeText(const ModelConfig& config) {
  if (!config.distance_slopes.empty()) return "none (scores count distances: ALiBi)";
  if (!config.rope) return config.learned_positions ? "none (learned positions)" : "none";
  const RopeConfig& rope = *config.rope;
  std::string text = BaseText(rope);
  if (config.local_rope && config.local_rope->kind == RopeKind::kNone) {
    const auto still = std::count_if(config.layers.begin(), config.layers.end(),
                                     [](const LayerConfig& layer) { return layer.local_rope; });
    text += StrCat("; none in ", still, " of ", config.layer_count(), " layers");
  } else if (config.local_rope) {
    text += StrCat("; in sliding layers ", BaseText(*config.local_rope));
  }
  if (config.HasEvenHeads() && rope.rotary_dim != config.key_dim) {
    text += StrCat(", ", rope.rotary_dim, " of ", config.key_dim, " dims");
  }
  text += rope.layout == RopeLayout::kHalf ? ", half layout" : ", interleaved layout";
  return text + SectionsText(rope);
}

// Each kind of KV heads once, and how many layers have it where there are several.
std::string HeadsText(const ModelConfig& config) {
  if (config.made_keys) {
    return StrCat("as many of keys and of values, dim ", config.made_keys->head_dim,
                  ", which each layer makes anew of the cache's rows and tokens' embeddings");
  }
  std::vector<std::pair<HeadSizes, int64_t>> kinds;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    if (!config.HasCache(layer)) continue;
    const HeadSizes heads = config.HeadsOf(layer);
    const auto known =
        std::ranges::find_if(kinds, [&](const auto& kind) { return kind.first == heads; });
    if (known == kinds.end()) {
      kinds.emplace_back(heads, 1);
    } else {
      ++known->second;
    }
  }
  const bool even = config.HasEvenHeads();
  std::vector<std::string> texts;
  for (const auto& [heads, layers] : kinds) {
    texts.push_back(StrCat(heads.kv_heads, " KV heads, key dim ", heads.key_dim, ", value dim ",
                           heads.value_dim, even ? "" : StrCat(" in ", layers, " layers")));
    if (even) break;
  }
  return Join(texts, "; ");
}

// The KV heads of each layer with a cache, where they have several sizes.
Json HeadsJson(const ModelConfig& config) {
  if (config.HasEvenHeads()) return nullptr;
  Json layers = Json::array();
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    if (!config.HasCache(layer)) continue;
    const HeadSizes heads = config.HeadsOf(layer);
    layers.push_back({{"layer", layer},
                      {"kv_heads", heads.kv_heads},
                      {"key_dim", heads.key_dim},
                      {"value_dim", heads.value_dim}});
  }
  return layers;
}

std::string WindowText(const ModelConfig& config) {
  int64_t windowed = 0, window = 0;
  bool chunked = false;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0) {
      ++windowed;
      window = layer.window;
      chunked = layer.chunked;
    }
  }
  if (config.cache_count() == 0) return "none";
  if (config.blocks) {
    return StrCat("all blocks in ", config.block_layer_count(), " of ", config.layer_count(),
                  " layers, the rows of one in the others");
  }
  if (windowed == 0) {
    return StrCat("full attention in ", !config.state           ? "every layer"
                                        : config.SharesCaches() ? "layers that attend"
                                                                : "layers with a cache");
  }
  return StrCat(chunked ? "chunks of " : "sliding window of ", window, " in ", windowed, " of ",
                config.layer_count(), " layers");
}

int64_t AttendingLayers(const ModelConfig& config) {
  return std::ranges::count_if(config.layers, &LayerConfig::attends);
}

std::string CachesText(const ModelConfig& config) {
  const std::string states =
      StrCat("a state of constant size, ", HumanBytes(config.StateBytes()), " a sequence");
  if (config.made_keys) {
    return StrCat("one row of ", config.key_dim, " numbers, once for the ", AttendingLayers(config),
                  " of ", config.layer_count(), " layers that attend; all ", config.state_count(),
                  " keep ", states);
  }
  if (config.blocks) {
    return StrCat(config.cache_count(), " of ", config.layer_count(), " layers, an entry for ",
                  config.blocks->tokens, " tokens; the other ", config.state_count(),
                  " keep the rows of a block, ", HumanBytes(config.StateBytes()), " a sequence");
  }
  if (config.state && config.cache_count() == 0) {
    return StrCat("no layer; all ", config.layer_count(), " keep ", states);
  }
  if (config.state && config.cache_count() == config.layer_count()) {
    return StrCat("all ", config.layer_count(), " layers; ", config.state_count(),
                  " of them also keep ", states);
  }
  if (config.state) {
    const auto alone = std::ranges::count_if(
        config.layers, [](const LayerConfig& layer) { return !layer.mixes(); });
    const auto readers = std::ranges::count_if(
        config.layers, [](const LayerConfig& layer) { return layer.reads >= 0; });
    return StrCat(config.cache_count(), " of ", config.layer_count(), " layers",
                  readers > 0 ? StrCat(", read by ", readers, " more; ") : "; ",
                  alone > 0 || readers > 0 ? "" : "the other ", config.state_count(), " keep ",
                  states,
                  alone == 0 ? ""
                             : StrCat("; the other ", alone, " are ",
                                      config.moe ? "experts or " : "", "an MLP alone"));
  }
  if (!config.SharesCaches()) return StrCat("all ", config.layer_count(), " layers");
  return StrCat(config.cache_count(), " of ", config.layer_count(),
                " layers, whose caches the others read");
}

std::string DecodersText(const ModelConfig& config) {
  const BlockConfig& blocks = *config.blocks;
  return StrCat(config.block_layer_count(), " layers for blocks of ", blocks.tokens, " tokens, ",
                config.state_count(), " for ", blocks.rows(), " rows of each: ", blocks.given_rows,
                " from the block before and ", blocks.tokens - 1, " tokens");
}

Json DecodersJson(const ModelConfig& config) {
  if (!config.blocks) return nullptr;
  return {{"tokens", config.blocks->tokens},
          {"rows", config.blocks->rows()},
          {"given_rows", config.blocks->given_rows},
          {"block_layers", config.block_layer_count()},
          {"token_layers", config.state_count()}};
}

std::string PassesText(const ModelConfig& config) {
  std::string layers;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    if (!config.ReadsLater(layer)) continue;
    const int64_t end = config.PassedEnd(layer);
    layers += StrCat(layers.empty() ? "" : " and ", layer, " to ", end - 1);
    layer = end - 1;
  }
  return StrCat(config.prompt_passes, " through layers ", layers,
                ", as a whole; an answer's tokens and prompts of up to ", config.prompt_passes,
                " tokens go row by row, once");
}

// Each width of dense MLPs once, and experts; in how many layers where there are several kinds.
std::string MlpText(const ModelConfig& config) {
  std::vector<std::pair<int64_t, int64_t>> widths;
  int64_t mixtures = 0, mlps = 0;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
    if (!own.mlp) continue;
    ++mlps;
    mixtures += own.moe;
    if (own.moe && !config.moe->beside_mlp) continue;
    const int64_t width = config.FfnSizeOf(layer);
    const auto known = std::ranges::find(widths, width, &std::pair<int64_t, int64_t>::first);
    if (known == widths.end()) {
      widths.emplace_back(width, 1);
    } else {
      ++known->second;
    }
  }
  if (mlps == 0) return "none";
  std::string text = config.gated_mlp            ? "gated"
                     : config.squared_activation ? "plain, squared"
                                                 : "plain";
  for (const auto& [width, layers] : widths) {
    text += StrCat(", ", width, " wide", layers == mlps ? "" : StrCat(" in ", layers, " layers"));
  }
  if (mixtures > 0) {
    const MoeConfig& moe = *config.moe;
    text += StrCat(widths.empty() ? ", " : "; ", moe.experts, " experts of ", moe.expert_ffn_size,
                   mixtures == mlps ? "" : StrCat(" in ", mixtures, " layers"), ", ",
                   moe.experts_per_token, " a token, ", moe.shared_experts, " shared");
  }
  return text;
}

// What may be run on the cache, where not every method may.
std::string MethodsText(const ModelConfig& config) {
  if (config.cache_count() == 0) return "full alone, as there is no cache";
  if (config.made_keys) return "full alone, as keys and values are made anew";
  if (config.blocks) return "full alone, as entries are blocks of tokens";
  if (config.prompt_passes > 1) return "full alone, as layers read what later ones make";
  if (!config.HasEvenHeads()) return "those whose stages go by layer, as heads have several sizes";
  return "";
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
        "\nEvery family has small checkpoints in `tests/golden/models` whose logits and 64 greedy\n"
        "tokens are those of an independent implementation, in f32 within 1e-4 of their range; a\n"
        "test fails for a family without one. The reference has no InternLM 2, no EXAONE 3, no\n"
        "MiniCPM and no MiniCPM3: their oracles are Llama, Llama, Granite and DeepSeek-V3 with\n"
        "other names of tensors and keys, and for MiniCPM3 with its multipliers in the weights.\n"
        "So they prove the mapping and not a second implementation. That of LCKV's models is\n"
        "Llama whose layers share keys and values, and LCKV's own code where layers read later\n"
        "ones. That of Nemotron-H is a later release of the reference, that of RWKV-7 its\n"
        "author's package, those of RWKV-6 and RetNet flash-linear-attention's plain forms, and\n"
        "those of GoldFinch, Block Transformer and YOCO their authors' code. DeepSeek-V3 in bf16\n"
        "is held loosely: the oracle's own bf16 logits differ from its f32 ones by 0.75.\n"
        "\nA key of config.json that changes the forward pass and is not understood, a missing or\n"
        "unexpected tensor, a wrong shape or a NaN is an error that names it. Architectures that "
        "are\n"
        "known and not run are refused with the reason.\n"
        "[formats/model-configs.md](formats/model-configs.md) lists the keys that are read,\n"
        "defaulted and refused, and [add-a-model-family.md](add-a-model-family.md) shows how to "
        "add\n"
        "a family; [models.md](models.md) lists the formats of weights.\n"));
  }
  return {};
}

// The vision tower of a checkpoint, and what it makes of a picture of the requested size.
struct VisionFacts {
  VisionSpec spec;
  int64_t parameters = 0;
  ImageSize size;
  int64_t rows = 0;          // tokens of such a picture; 0: not known
  std::string unknown_rows;  // why the tokens are not known
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

Result<std::optional<VisionFacts>> ReadVisionFacts(const InspectOptions& options, DType dtype,
                                                   bool stored) {
  KVG_ASSIGN(std::optional<VisionSpec> spec, ReadVisionConfig(options.model.model));
  if (!spec) return std::optional<VisionFacts>();
  VisionFacts facts;
  facts.spec = *std::move(spec);
  KVG_ASSIGN(facts.size, ParseImageSize(options.image_size));
  for (const TensorSpec& tensor : ExpectedVisionTensors(facts.spec)) {
    int64_t size = 1;
    for (const int64_t d : tensor.shape) size *= d;
    facts.parameters += size;
  }
  if (stored) {
    KVG_ASSIGN(const std::unique_ptr<WeightSource> source, OpenWeights(options.model.model, dtype));
    KVG_TRY(CheckVisionWeights(facts.spec, *source));
  }
  const Result<Preprocessor> preprocessor = ReadPicturePreprocessor(options.model.model);
  if (!preprocessor.ok()) {
    facts.unknown_rows = preprocessor.error().message;
    return std::optional<VisionFacts>(std::move(facts));
  }
  KVG_ASSIGN(const PixelValues pixels,
             Preprocess(*preprocessor, Image::OfSize(facts.size.width, facts.size.height)));
  KVG_ASSIGN(const VisualLayout layout, LayOutVisual(facts.spec, pixels, Modality::kImage));
  facts.rows = layout.rows;
  return std::optional<VisionFacts>(std::move(facts));
}

// Everything that the command reports.
struct ModelFacts {
  ModelConfig config;
  DType dtype = DType::kF32;
  std::string fingerprint = "none (random weights)";
  std::optional<VisionFacts> vision;
  int64_t parameters = 0, weight_bytes = 0, kv_bytes = 0;  // the last: of one token
  int64_t held_bytes = 0;                                  // of weights in memory
  bool in_blocks = false;                                  // some of them stay as the file has them
  std::string tokenizer = "none";
  int64_t tokenizer_vocab = 0;
  std::string chat_template = "none";
  std::vector<LayerShare> shares = {};  // where the backend names several devices
  std::optional<MachineFit> fit = {};   // elsewhere
};

Status ReadTextFacts(const std::string& directory, ModelFacts& facts) {
  if (!HasTokenizer(directory)) return {};
  KVG_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(directory));
  facts.tokenizer = tokenizer->Kind();
  facts.tokenizer_vocab = tokenizer->VocabSize();
  const Result<ChatTemplate> chat = ChatTemplate::Load(directory, "auto");
  if (!chat.ok()) {
    facts.chat_template = StrCat("cannot be run: ", chat.error().message);
  } else if (!chat->none()) {
    facts.chat_template = StrCat(chat->name(), ", sha256 ", chat->sha256().substr(0, 16));
  }
  return {};
}

int64_t TowerBytes(const ModelFacts& facts) {
  return facts.vision ? facts.vision->parameters * SizeOf(facts.dtype) : 0;
}

// How the layers would be divided over the devices that the backend names, which must be there.
Result<std::vector<LayerShare>> ReadShares(const InspectOptions& options, const ModelFacts& facts) {
  KVG_ASSIGN(const std::unique_ptr<Ops> ops,
             MakeLayeredOps(options.model.backend, MakeThreadSettings(1)));
  LayerCosts costs = CostsOfLayers(facts.config, facts.dtype, nullptr, nullptr);
  costs.tower_bytes = TowerBytes(facts);
  return ShareLayers(facts.config, costs, DevicesOf(*ops));
}

// Tokens of the full cache that a share has room for beside its weights, of one sequence.
int64_t FullCacheTokens(const LayerShare& share, const ModelFacts& facts) {
  int64_t caches = 0;
  for (int64_t layer = share.first; layer < share.end; ++layer) {
    if (facts.config.HasCache(layer)) ++caches;
  }
  const int64_t of_token = facts.kv_bytes * caches / facts.config.cache_count();
  return of_token == 0 ? 0 : std::max<int64_t>(share.left_bytes(), 0) / of_token;
}

// Reads shapes and no weights, so that a large checkpoint takes no time.
Result<ModelFacts> ReadFacts(const InspectOptions& options) {
  ModelFacts facts;
  KVG_ASSIGN(const ModelOptions model_options, ParseModelOptions(options.model));
  KVG_ASSIGN(facts.config, ReadModelConfig(options.model.model));
  facts.dtype = model_options.dtype.value_or(facts.config.stored_dtype);
  // A config.json alone has no weights that could be checked.
  std::error_code ignored;
  const bool stored =
      !model_options.random_seed && (std::filesystem::is_directory(options.model.model, ignored) ||
                                     options.model.model.ends_with(".gguf"));
  if (!model_options.random_seed && !stored) facts.fingerprint = "none (no weights)";
  if (model_options.random_seed) facts.config.weight_format.clear();
  // A backend that is not here is no reason to say nothing.
  const auto ops = MakeLayeredOps(options.model.backend, MakeThreadSettings(1));
  if (stored) {
    KVG_ASSIGN(const std::unique_ptr<WeightSource> source,
               OpenWeights(options.model.model, facts.dtype));
    KVG_TRY(CheckWeights(facts.config, *source));
    KVG_ASSIGN(facts.fingerprint, ModelFingerprint(facts.config, *source));
    const Ops* keeps = ops.ok() && model_options.keep_blocks ? ops->get() : nullptr;
    const int64_t unpacked = PlannedWeightBytes(facts.config, facts.dtype, *source, nullptr);
    facts.held_bytes = PlannedWeightBytes(facts.config, facts.dtype, *source, keeps);
    facts.in_blocks = facts.held_bytes != unpacked;
    if (ops.ok()) {
      KVG_TRY(CheckProductRows(facts.config, model_options, facts.dtype, source.get(), **ops));
    }
  }
  if (!facts.config.vision_family.empty()) {
    KVG_ASSIGN(facts.vision, ReadVisionFacts(options, facts.dtype, stored));
  }
  facts.parameters = ParameterCount(facts.config);
  facts.weight_bytes = facts.parameters * SizeOf(facts.dtype);
  if (!stored) facts.held_bytes = PlannedWeightBytes(facts.config, facts.dtype, facts.dtype);
  facts.kv_bytes = facts.config.KvBytesPerToken(facts.dtype);
  if (NamesSeveralDevices(options.model.backend)) {
    KVG_ASSIGN(facts.shares, ReadShares(options, facts));
  } else {
    facts.fit = FitMachine(facts.config, facts.held_bytes + TowerBytes(facts), facts.kv_bytes,
                           options.model.backend, ops);
  }
  KVG_TRY(ReadTextFacts(options.model.model, facts));
  return facts;
}

Json VisionJson(const VisionFacts& vision, int64_t kv_bytes) {
  return {{"family", vision.spec.family},
          {"parameters", vision.parameters},
          {"layers", vision.spec.tower.run_layers},
          {"width", vision.spec.tower.width},
          {"image_size", {vision.size.width, vision.size.height}},
          {"image_tokens", vision.rows},
          {"image_kv_bytes", vision.rows * kv_bytes}};
}

// Lengths at which caches are compared.
constexpr int64_t kLengths[] = {8192, 32768, 131072};

std::string ReachText(const ModelConfig& config, DType dtype) {
  std::string text;
  for (const int64_t tokens : kLengths) {
    text += StrCat(text.empty() ? "" : ", ", HumanBytes(config.KvReachBytes(tokens, dtype)), " of ",
                   WithCommas(tokens), " tokens");
  }
  return text;
}

Json ReachJson(const ModelConfig& config, DType dtype) {
  Json bytes = Json::object();
  for (const int64_t tokens : kLengths) {
    bytes[std::to_string(tokens)] = config.KvReachBytes(tokens, dtype);
  }
  return bytes;
}

// Bytes of a row that an encoder makes, which stand for a token that it reads.
int64_t EncodedRowBytes(const ModelFacts& facts) {
  return facts.config.encoder->hidden_size * SizeOf(facts.dtype);
}

int64_t CrossLayers(const ModelConfig& config) {
  return std::ranges::count_if(config.layers, &LayerConfig::crosses);
}

Json EncoderJson(const ModelFacts& facts) {
  const ModelConfig& encoder = *facts.config.encoder;
  return {{"layers", encoder.layer_count()},
          {"hidden_size", encoder.hidden_size},
          {"query_heads", encoder.query_heads},
          {"cross_layers", CrossLayers(facts.config)},
          {"chunk_tokens", EncodingThin::kChunkTokens},
          {"bytes_per_token", EncodedRowBytes(facts)}};
}

std::string EncoderText(const ModelFacts& facts) {
  const ModelConfig& encoder = *facts.config.encoder;
  return StrCat(encoder.layer_count(), " layers of width ", encoder.hidden_size, ", ",
                encoder.query_heads, " heads; chunks of ", EncodingThin::kChunkTokens,
                " tokens (method cepe), whose rows ", CrossLayers(facts.config), " of ",
                facts.config.layer_count(), " layers attend to; ",
                WithCommas(EncodedRowBytes(facts)), " bytes per token as ", NameOf(facts.dtype));
}

// The cache of method mla_latent beside the expanded one.
std::string LatentsText(const ModelFacts& facts) {
  const ModelConfig& config = facts.config;
  const int64_t token_bytes = LatentBytesPerToken(config, facts.dtype);
  return StrCat(WithCommas(token_bytes), " bytes per token as ", NameOf(facts.dtype), ", ",
                config.mla->kv_lora_rank, " numbers and ", config.mla->rope_dim,
                " that turn in each layer (method mla_latent); ",
                HumanBytes(token_bytes * config.max_position), " at full context");
}

Json FactsJson(const std::string& model, const ModelFacts& facts) {
  const ModelConfig& config = facts.config;
  Json tensors = Json::array();
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    tensors.push_back({{"name", spec.name}, {"shape", spec.shape}});
  }
  Json devices = Json::array();
  for (const LayerShare& share : facts.shares) {
    devices.push_back({{"first_layer", share.first},
                       {"end_layer", share.end},
                       {"weight_bytes", share.weight_bytes},
                       {"tower_bytes", share.tower_bytes},
                       {"free_bytes", share.free_bytes},
                       {"full_cache_tokens", FullCacheTokens(share, facts)}});
  }
  return {
      {"model", model},
      {"devices", devices},
      {"machine", facts.fit ? JsonOf(*facts.fit) : Json(nullptr)},
      {"family", config.family},
      {"architecture", ArchitectureText(config)},
      {"vision", facts.vision ? VisionJson(*facts.vision, facts.kv_bytes) : Json(nullptr)},
      {"encoder", config.encoder != nullptr ? EncoderJson(facts) : Json(nullptr)},
      {"parameters", facts.parameters},
      {"weight_bytes", facts.weight_bytes},
      {"held_weight_bytes", facts.held_bytes},
      {"weights_memory", facts.in_blocks ? "packed" : "unpacked"},
      {"dtype", NameOf(facts.dtype)},
      {"weight_format", config.weight_format.empty() ? Json(nullptr) : Json(config.weight_format)},
      {"layers", config.layer_count()},
      {"hidden_size", config.hidden_size},
      {"ffn_size", config.ffn_size},
      {"query_heads", config.cache_count() > 0 ? config.query_heads : 0},
      {"kv_heads", config.cache_count() > 0 ? config.kv_heads : 0},
      {"key_dim", config.key_dim},
      {"value_dim", config.value_dim},
      {"heads_of_layers", HeadsJson(config)},
      {"vocab_size", config.vocab_size},
      {"max_position", config.max_position},
      {"rope", RopeText(config)},
      {"rope_sections", SectionsJson(config)},
      {"kv_bytes_per_token", facts.kv_bytes},
      {"latent_bytes_per_token",
       config.mla ? Json(LatentBytesPerToken(config, facts.dtype)) : Json(nullptr)},
      {"kv_layers", config.cache_count()},
      {"prompt_passes", config.prompt_passes},
      {"made_keys", config.made_keys ? Json{{"layers", AttendingLayers(config)},
                                            {"head_dim", config.made_keys->head_dim}}
                                     : Json(nullptr)},
      {"blocks", DecodersJson(config)},
      {"state_layers", config.state_count()},
      {"state_bytes", config.StateBytes()},
      {"kv_reach_bytes", ReachJson(config, facts.dtype)},
      {"eos_ids", config.eos_ids},
      {"tokenizer", facts.tokenizer},
      {"tokenizer_vocab", facts.tokenizer_vocab},
      {"chat_template", facts.chat_template},
      {"fingerprint", facts.fingerprint},
      {"tensors", tensors}};
}

using Lines = std::vector<std::pair<std::string, std::string>>;

Lines VisionLines(const VisionFacts& vision, int64_t kv_bytes) {
  const TowerSpec& tower = vision.spec.tower;
  return {
      {"vision", StrCat(vision.spec.family, ", ", tower.run_layers, " of ", tower.layers,
                        " layers of width ", tower.width, ", patches of ", tower.patch, " x ",
                        tower.patch, " pixels, ", WithCommas(vision.parameters), " parameters")},
      {"picture",
       vision.unknown_rows.empty()
           ? StrCat(vision.size.width, " x ", vision.size.height, ": ", WithCommas(vision.rows),
                    " tokens, ", HumanBytes(vision.rows * kv_bytes), " of KV cache")
           : StrCat("not known: ", vision.unknown_rows)}};
}

void PrintModelFacts(const std::string& model, const ModelFacts& facts) {
  const ModelConfig& config = facts.config;
  Lines lines = {
      {"model", model},
      {"family", config.family},
      {"architecture", ArchitectureText(config)},
      {"parameters", StrCat(WithCommas(facts.parameters), " (", HumanBytes(facts.weight_bytes),
                            " as ", NameOf(facts.dtype), ")")},
      {"layers", StrCat(config.layer_count(), " of width ", config.hidden_size)},
      {"attention", config.cache_count() == 0
                        ? "none"
                        : StrCat(config.query_heads, " query heads, ", HeadsText(config))},
      {"reach", WindowText(config)},
      {"mlp", MlpText(config)},
      {"rope", RopeText(config)},
      {"vocabulary", StrCat(WithCommas(config.vocab_size), " rows, head ",
                            config.tied_head ? "tied to the embedding" : "of its own")},
      {"context", StrCat(WithCommas(config.max_position), " positions")},
      {"KV cache", StrCat(WithCommas(facts.kv_bytes), " bytes per token as ", NameOf(facts.dtype),
                          ", in ", CachesText(config), "; ",
                          HumanBytes(facts.kv_bytes * config.max_position), " at full context")},
      {"KV reach", ReachText(config, facts.dtype)},
      {"methods", MethodsText(config)},
      {"runs here", facts.fit ? TextOf(*facts.fit, config) : ""},
      {"tokenizer", facts.tokenizer_vocab > 0 ? StrCat(facts.tokenizer, ", ",
                                                       WithCommas(facts.tokenizer_vocab), " tokens")
                                              : facts.tokenizer},
      {"chat template", facts.chat_template},
      {"stop ids", Json(config.eos_ids).dump()},
      {"fingerprint", facts.fingerprint},
  };
  if (config.prompt_passes > 1) {
    lines.insert(lines.begin() + 9, {"prompt passes", PassesText(config)});
  }
  if (!config.weight_format.empty()) {
    lines.insert(lines.begin() + 4,
                 {"weights", StrCat(config.weight_format, "; ", HumanBytes(facts.held_bytes),
                                    facts.in_blocks ? " held in blocks where products read them, "
                                                      "otherwise as "
                                                    : " held as ",
                                    NameOf(facts.dtype))});
  }
  if (facts.vision) {
    const Lines seen = VisionLines(*facts.vision, facts.kv_bytes);
    lines.insert(lines.begin() + 3, seen.begin(), seen.end());
  }
  if (config.blocks) {
    const auto layers = std::ranges::find(lines, "layers", &Lines::value_type::first);
    lines.insert(layers + 1, {"decoders", DecodersText(config)});
  }
  if (config.encoder != nullptr) {
    const auto cache = std::ranges::find(lines, "KV cache", &Lines::value_type::first);
    lines.insert(cache + 1, {"encoder", EncoderText(facts)});
  }
  if (config.mla) {
    const auto cache = std::ranges::find(lines, "KV cache", &Lines::value_type::first);
    lines.insert(cache + 1, {"latents", LatentsText(facts)});
  }
  std::erase_if(lines, [](const auto& line) { return line.second.empty(); });
  for (size_t i = 0; i < facts.shares.size(); ++i) {
    const LayerShare& share = facts.shares[i];
    lines.push_back({StrCat("device ", i + 1),
                     StrCat(Describe(share), ": ", WithCommas(FullCacheTokens(share, facts)),
                            " tokens of the full cache at most")});
  }
  PrintFacts(lines);
  Print("\n");
  std::vector<std::vector<std::string>> rows;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    std::string shape;
    for (const int64_t d : spec.shape) shape += StrCat(shape.empty() ? "" : " x ", d);
    rows.push_back({spec.name, shape});
  }
  PrintTable({"tensor", "shape"}, rows);
}

}  // namespace

Status RunInspect(const InspectOptions& options) {
  if (options.shapes && options.families) {
    return BadInput("inspect: --families and --shapes exclude each other");
  }
  if (!options.times.empty() && !options.shapes) {
    return BadInput("inspect: --times goes with --shapes");
  }
  if (options.format != "table" && !options.shapes && !options.families) {
    return BadInput("inspect: --format goes with --families and --shapes");
  }
  if (options.shapes) return ListShapes(options);
  if (options.families != options.model.model.empty()) {
    return BadInput(
        options.families
            ? "inspect --families: lists all families, expected no MODEL"
            : "inspect: expected MODEL, a checkpoint directory or a config.json; or --families, "
              "or --shapes");
  }
  if (options.families) return ListFamilies(options);
  // Asked for in vain where the model sees no pictures, but wrong there as well.
  if (const auto size = ParseImageSize(options.image_size); !size.ok()) return size.error();
  KVG_ASSIGN(const ModelFacts facts, ReadFacts(options));
  if (options.json) {
    PrintJson(FactsJson(options.model.model, facts));
  } else {
    PrintModelFacts(options.model.model, facts);
  }
  return {};
}

}  // namespace kvgauge
