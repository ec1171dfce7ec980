// SPDX-License-Identifier: Apache-2.0
// Parts that the config readers of several families share. Each reads its keys into `config` and
// leaves faults in the reader.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "runner/config.h"
#include "src/config/config_reader.h"

namespace kvgauge {

// Bounds that no published model comes near; past them a config is damaged or hostile.
inline constexpr int64_t kMostVocab = int64_t{1} << 24;
inline constexpr int64_t kMostHidden = int64_t{1} << 17;
inline constexpr int64_t kMostFfn = int64_t{1} << 20;
inline constexpr int64_t kMostLayers = int64_t{1} << 12;
inline constexpr int64_t kMostHeads = int64_t{1} << 12;
inline constexpr int64_t kMostHeadDim = int64_t{1} << 14;
inline constexpr int64_t kMostExperts = int64_t{1} << 16;
inline constexpr int64_t kMostExpertsOfAllLayers = int64_t{1} << 17;
inline constexpr int64_t kMostPosition = int64_t{1} << 30;

// Keys every Hugging Face config may carry: dtype, names, and those without effect on logits.
void ReadGeneralKeys(ConfigReader& reader, ModelConfig& config);
// Those of them that name neither a type nor a head: what a part of a config may carry too.
void IgnoreGeneralKeys(ConfigReader& reader);

// vocab_size, hidden_size, num_hidden_layers, max_position_embeddings and, where `ffn_key` says,
// the width of the MLP. Layers start as full attention.
void ReadSizes(ConfigReader& reader, std::string_view ffn_key, int64_t default_max_position,
               ModelConfig& config);
// The same without the width of the MLP, under the names that a family has for them.
struct SizeKeys {
  std::string_view hidden = "hidden_size";
  std::string_view layers = "num_hidden_layers";
  std::string_view max_position = "max_position_embeddings";
  std::optional<int64_t> default_layers = std::nullopt;  // where another key says how many
};
void ReadSizes(ConfigReader& reader, const SizeKeys& keys, int64_t default_max_position,
               ModelConfig& config);

// num_attention_heads, num_key_value_heads, head_dim, and the scale 1 / sqrt(head_dim).
struct HeadDefaults {
  std::optional<int64_t> kv_heads = std::nullopt;  // absent: as many as query heads
  std::optional<int64_t> head_dim = std::nullopt;  // absent: hidden_size / num_attention_heads
};
void ReadHeads(ConfigReader& reader, const HeadDefaults& defaults, ModelConfig& config);
// Heads that share hidden_size evenly, their number under `key`; `kv_heads` of keys and values.
void ReadEvenHeads(ConfigReader& reader, std::string_view key, ModelConfig& config);
// Sets the number of KV heads that was read under `key`; a fault unless it divides the number of
// query heads. Precondition: the query heads are read.
void SetKvHeads(ConfigReader& reader, std::string_view key, int64_t kv_heads, ModelConfig& config);

// What the family's configuration class sets when the key is absent; null always means none.
struct TokenDefaults {
  int64_t bos = -1;
  std::vector<int64_t> eos = {};
  int64_t pad = -1;
};
void ReadTokenIds(ConfigReader& reader, const TokenDefaults& defaults, ModelConfig& config);

void ReadNormEps(ConfigReader& reader, double fallback, ModelConfig& config,
                 std::string_view key = "rms_norm_eps");
// A factor of the forward pass.
float ReadMultiplier(ConfigReader& reader, std::string_view key, double fallback);
void ReadActivation(ConfigReader& reader, std::string_view key, std::string_view fallback,
                    ModelConfig& config);

// Sizes, heads, norms, activation, special tokens, tie, biases and rope as Llama's files have them.
void ReadLlamaParts(ConfigReader& reader, ModelConfig& config);
// The names of GPT-NeoX; heads, norms, activation, special tokens, biases, tie and rope as its
// files have them. Precondition: sizes are read.
TensorNames GptNeoxNames();
void ReadGptNeoxParts(ConfigReader& reader, ModelConfig& config);
// The names of BLOOM and Falcon, without norms that only one of them has.
TensorNames BloomNames();

// The activation a Hugging Face name stands for; none when it is not implemented.
std::optional<Activation> ActivationFromName(std::string_view name);

// Head i of h has slope 2^(-most * (i + 1) / h) where h is a power of two; otherwise every second
// of the next power's slopes, from the second on, and then the others (ALiBi, arXiv:2108.12409).
std::vector<float> DistanceSlopes(int64_t heads, double most);

// A positive window, 0 when null; `fallback` when absent.
int64_t ReadWindow(ConfigReader& reader, std::string_view key, int64_t fallback);

// `layer_types` as one flag per layer, true for sliding attention; none when absent.
std::optional<std::vector<bool>> ReadLayerTypes(ConfigReader& reader, const ModelConfig& config);

// For families whose implementation does not look at layer_types: it must say what the windows
// already are.
void CheckLayerTypes(ConfigReader& reader, const ModelConfig& config);

// Window per layer in the way of Qwen2 and Qwen3.
void ReadQwenWindows(ConfigReader& reader, ModelConfig& config);

// How many experts of which width, and how many a token has.
struct ExpertKeys {
  std::string_view experts = "num_experts";
  std::string_view experts_later = "";  // what later files call it
  int64_t default_experts = 0;
  std::optional<int64_t> default_per_token = std::nullopt;  // of num_experts_per_tok
  std::string_view ffn = "moe_intermediate_size";
  int64_t default_ffn = 0;
};
MoeConfig ReadExpertSizes(ConfigReader& reader, const ExpertKeys& keys, const ModelConfig& config);
// n_group and topk_group, of which experts are chosen.
void ReadExpertGroups(ConfigReader& reader, std::string_view experts_key, MoeConfig& moe);
// The weights of a token's experts sum to 1, and one has no weight of its own: a fault.
void RenormalizeExperts(ConfigReader& reader, MoeConfig& moe,
                        std::string_view per_token_key = "num_experts_per_tok");
// norm_topk_prob, where it divides whatever the number of experts a token has.
void ReadRenormalize(ConfigReader& reader, MoeConfig& moe);
// Qwen's way to say which layers are mixtures: decoder_sparse_step, mlp_only_layers.
void ReadSparseLayers(ConfigReader& reader, ModelConfig& config);
// no_rope_layers, or every no_rope_layer_interval-th: a flag for each layer, true for those that do
// not turn. An empty list may stand for none.
std::vector<bool> ReadStillLayers(ConfigReader& reader, const ModelConfig& config,
                                  bool may_be_empty = false);
// Qwen's windows where implementations disagree on whose they are: there may be none.
void RefuseQwenWindows(ConfigReader& reader, ModelConfig& config);
// Layers behind the last that predict further tokens: their tensors are left alone.
void ReadDraftLayers(ConfigReader& reader, ModelConfig& config);

struct RopeRules {
  int64_t head_dim = 0;  // what partial_rotary_factor is a part of
  RopeLayout layout = RopeLayout::kHalf;
  bool partial = false;  // the family honours partial_rotary_factor
  double part = 1.0;     // where no file gives it
  // The key at the top level that may give it.
  std::string_view part_key = "partial_rotary_factor";
  bool proportional = false;  // the part may be one of all frequencies: kind proportional
  bool phi3 = false;          // default and longrope only; "su" and "yarn" are names for longrope
  // default and longrope only, whose attention factor is short_mscale and long_mscale, which must
  // be the same.
  bool mscales = false;
  // What mrope_section means where a file gives it: nothing (then it is a fault), one stretch of
  // frequencies an axis, or axes that take turns.
  enum class Sections { kNone, kContiguous, kInterleaved };
  Sections sections = Sections::kNone;
  // The base where a file gives none, and the key at the top level that may give it.
  double theta = 10000.0;
  std::string_view theta_key = "rope_theta";
  // Keys of the block that the family reads itself.
  std::vector<std::string_view> own_keys = {};
};
// rope_theta with rope_scaling, or rope_parameters. Precondition: max_position is read.
void ReadRope(ConfigReader& reader, const RopeRules& rules, ModelConfig& config);
// The same for full layers, and a rope of their own for sliding ones, whose base is `local_theta`
// where the file does not say: rope_local_base_freq, or one block of rope_parameters for each kind
// of layer.
void ReadLayerRopes(ConfigReader& reader, const RopeRules& rules, double local_theta,
                    ModelConfig& config);
// One block of rope_parameters for each kind of layer, whose heads may have several sizes; those of
// `defaults` where there is none.
void ReadRopesByKind(ConfigReader& reader, const RopeRules& full, const RopeRules& sliding,
                     const Json& defaults, ModelConfig& config);
// ReadRope, for families whose scaling is that of full layers alone: sliding ones turn unscaled.
// Precondition: windows are read.
void ReadRopeOfFullLayers(ConfigReader& reader, const RopeRules& rules, ModelConfig& config);
// Layers for which `flags` says so turn no more. Precondition: the rope is read.
void StopRopeIn(const std::vector<bool>& flags, ModelConfig& config);

}  // namespace kvgauge
