// SPDX-License-Identifier: Apache-2.0
// Rope settings: rope_theta and rope_scaling (configs of transformers 4) or one object
// rope_parameters (5). Both may be there if they say the same.
#include <string>
#include <utility>

#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "src/config/common.h"

namespace kvgauge {
namespace {

constexpr double kLeastTheta = 2.0;
constexpr double kMostTheta = 1e15;
constexpr double kMostFactor = 1e6;

std::optional<RopeKind> KindFromName(std::string_view name) {
  for (const RopeKind kind : {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kDynamic,
                              RopeKind::kLlama3, RopeKind::kYarn, RopeKind::kLongrope}) {
    if (NameOf(kind) == name) return kind;
  }
  return std::nullopt;
}

RopeKind ReadKind(ConfigReader& block, const RopeRules& rules) {
  const bool both = block.Has("rope_type") && block.Has("type");
  const std::string old_name = block.Text("type", "default");
  std::string name = block.Text("rope_type", old_name);
  if (rules.sections != RopeRules::Sections::kNone) {
    // Files of transformers 4 say mrope, or default beside mrope.
    if (name == "mrope") name = "default";
    if (old_name == "mrope" && name == "default") return RopeKind::kDefault;
  }
  if (both && name != old_name) block.Fail("type", "the same as key 'rope_type'");
  if (rules.phi3) {
    if (name == "su" || name == "yarn" || name == "longrope") return RopeKind::kLongrope;
    if (name != "default") {
      block.Fail(block.Has("rope_type") ? "rope_type" : "type",
                 "default or longrope (also written su or yarn) in this family");
    }
    return RopeKind::kDefault;
  }
  if (rules.mscales && name != "default" && name != "longrope") {
    block.Fail(block.Has("rope_type") ? "rope_type" : "type", "default or longrope in this family");
  }
  if (rules.proportional && name == "proportional") return RopeKind::kProportional;
  if (const std::optional<RopeKind> kind = KindFromName(name)) return *kind;
  block.Fail(
      block.Has("rope_type") ? "rope_type" : "type",
      StrCat("one of default, linear, dynamic, llama3, yarn, longrope",
             DidYouMean(name, {"default", "linear", "dynamic", "llama3", "yarn", "longrope"})));
  return RopeKind::kDefault;
}

// Numbers that may stand at the top level or in the block: different values are a fault, since
// implementations differ in which one wins.

// The part of a head that turns.
double ReadPart(ConfigReader& top, ConfigReader& block, const RopeRules& rules) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const double outer = top.Real(rules.part_key, rules.part, 1e-6, 1.0);
  const double part = block.Real(kKey, outer, 1e-6, 1.0);
  if (top.Has(rules.part_key) && block.Has(kKey) && part != outer) {
    block.Fail(kKey,
               StrCat("the same as key '", rules.part_key, "' at the top level (", outer, ")"));
  }
  if (part != 1.0 && !rules.partial) {
    (block.Has(kKey) ? block : top).Fail(kKey, "1: this family rotates whole heads");
  }
  return part;
}

double ReadTheta(ConfigReader& top, ConfigReader& block, const RopeRules& rules) {
  constexpr std::string_view kKey = "rope_theta";
  const double outer = top.Real(rules.theta_key, rules.theta, kLeastTheta, kMostTheta);
  const double inner = block.Real(kKey, outer, kLeastTheta, kMostTheta);
  if (top.Has(rules.theta_key) && block.Has(kKey) && inner != outer) {
    block.Fail(kKey,
               StrCat("the same as key '", rules.theta_key, "' at the top level (", outer, ")"));
  }
  return inner;
}

// The trained length: at the top level (Phi-3), in the block, or the length of the model.
int64_t ReadOriginal(ConfigReader& top, ConfigReader& block, bool required, int64_t fallback) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  // The logarithm of the trained length is divided by: 1 is no length.
  const int64_t outer = top.Int(kKey, fallback, 2, kMostPosition);
  if (required && !top.Has(kKey)) return block.Int(kKey, std::nullopt, 2, kMostPosition);
  const int64_t inner = block.Int(kKey, outer, 2, kMostPosition);
  if (top.Has(kKey) && block.Has(kKey) && inner != outer) {
    block.Fail(kKey, StrCat("the same as key '", kKey, "' at the top level (", outer, ")"));
  }
  return inner;
}

std::optional<double> ReadAttentionFactor(ConfigReader& block) {
  const bool given = block.Has("attention_factor");
  const double factor = block.Real("attention_factor", 1.0, 1e-6, kMostFactor);
  return given ? std::optional<double>(factor) : std::nullopt;
}

// One for short sequences and one for long ones; no file has two numbers.
double ReadMscales(ConfigReader& block) {
  const double factor = block.Real("short_mscale", std::nullopt, 1e-6, kMostFactor);
  if (block.Real("long_mscale", std::nullopt, 1e-6, kMostFactor) != factor) {
    block.Fail("long_mscale", StrCat("the same as key 'short_mscale' (", factor, ")"));
  }
  return factor;
}

std::vector<double> ReadFactorList(ConfigReader& block, std::string_view key, int64_t rotary_dim) {
  std::vector<double> factors = block.Reals(key, 1e-6, kMostFactor);
  if (static_cast<int64_t>(factors.size()) != rotary_dim / 2) {
    block.Fail(key, StrCat("a list of ", rotary_dim / 2, " numbers, one per rotated pair, not ",
                           factors.size()));
    factors.assign(static_cast<size_t>(rotary_dim / 2), 1.0);
  }
  return factors;
}

void ReadYarn(ConfigReader& top, ConfigReader& block, RopeConfig& rope) {
  rope.original_max_position = ReadOriginal(top, block, false, rope.max_position);
  const double ratio =
      static_cast<double>(rope.max_position) / static_cast<double>(rope.original_max_position);
  // null asks for the ratio; a missing key is a mistake.
  if (block.PresenceOf("factor") == ConfigReader::Presence::kNull) {
    block.Ignore({"factor"});
    rope.factor = ratio;
  } else {
    rope.factor = block.Real("factor", std::nullopt, 1.0, kMostFactor);
  }
  rope.attention_factor = ReadAttentionFactor(block);
  rope.beta_fast = block.Real("beta_fast", 32.0, 1e-6, kMostFactor);
  rope.beta_slow = block.Real("beta_slow", 1.0, 1e-6, kMostFactor);
  if (rope.beta_fast < rope.beta_slow) {
    block.Fail("beta_fast", StrCat("at least beta_slow (", rope.beta_slow, ")"));
  }
  rope.mscale = block.Real("mscale", 0.0, 0.0, kMostFactor);
  rope.mscale_all_dim = block.Real("mscale_all_dim", 0.0, 0.0, kMostFactor);
  rope.truncate = block.Bool("truncate", true);
}

void ReadLongrope(ConfigReader& top, ConfigReader& block, const RopeRules& rules,
                  RopeConfig& rope) {
  // Phi-3's class says 4096 where the file says nothing.
  const int64_t unsaid = rules.phi3 ? 4096 : rope.max_position;
  rope.original_max_position = ReadOriginal(top, block, false, unsaid);
  const double ratio =
      static_cast<double>(rope.max_position) / static_cast<double>(rope.original_max_position);
  rope.attention_factor = rules.mscales ? ReadMscales(block) : ReadAttentionFactor(block);
  rope.factor = block.Real("factor", ratio, 1e-6, kMostFactor);
  if (rope.factor != ratio && !rope.attention_factor) {
    LogWarning(StrCat(top.origin(), ": key '", block.NameOfKey("factor"), "': ", rope.factor,
                      " differs from max_position_embeddings / original_max_position_embeddings (",
                      ratio,
                      "); it is used, as transformers 5 does, where version 4 used the "
                      "quotient"));
  }
  rope.short_factor = ReadFactorList(block, "short_factor", rope.rotary_dim);
  rope.long_factor = ReadFactorList(block, "long_factor", rope.rotary_dim);
}

// Frequencies of each axis of a position.
void ReadSections(ConfigReader& block, const RopeRules& rules, RopeConfig& rope) {
  if (rules.sections == RopeRules::Sections::kNone) return;
  const bool interleaved = rules.sections == RopeRules::Sections::kInterleaved;
  block.Neutral("mrope_interleaved", interleaved);
  if (!block.Has("mrope_section")) return;
  rope.sections = block.IntOrInts("mrope_section", 0, kMostHeadDim);
  rope.interleaved = interleaved;
  int64_t sum = 0;
  for (const int64_t section : rope.sections) sum += section;
  if (rope.sections.size() == 3 && sum == rope.rotary_dim / 2) return;
  block.Fail("mrope_section", StrCat("three numbers (time, height, width) whose sum is ",
                                     rope.rotary_dim / 2, ", the number of rotated pairs"));
  rope.sections.clear();
}

RopeConfig ReadBlock(ConfigReader& top, std::string_view key, const Json& object,
                     const RopeRules& rules, const ModelConfig& config) {
  ConfigReader block(object, top.origin(),
                     key.empty() ? top.NameOfKey("") : StrCat(top.NameOfKey(key), "."));
  RopeConfig rope;
  rope.layout = rules.layout;
  rope.max_position = config.max_position;
  rope.theta = ReadTheta(top, block, rules);
  for (const std::string_view own : rules.own_keys) block.Ignore({own});

  const double part = ReadPart(top, block, rules);
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(rules.head_dim) * part);
  if (rules.proportional) {
    rope.turned_dim = rope.rotary_dim / 2 * 2;
    rope.rotary_dim = rules.head_dim;
  }
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    top.Fail(BadInput(StrCat(top.origin(), ": key 'head_dim': ", rules.head_dim,
                             " with partial_rotary_factor ", part, " rotates ", rope.rotary_dim,
                             " dimensions, expected an even number above 0")));
    rope.rotary_dim = 2;
  }

  ReadSections(block, rules, rope);
  rope.kind = ReadKind(block, rules);
  switch (rope.kind) {
    case RopeKind::kDefault:
    case RopeKind::kNone:  // no file says so
      break;
    case RopeKind::kProportional:
      rope.factor = block.Real("factor", 1.0, 1e-6, kMostFactor);
      break;
    case RopeKind::kLinear:
      rope.factor = block.Real("factor", std::nullopt, 1.0, kMostFactor);
      break;
    case RopeKind::kDynamic:
      rope.factor = block.Real("factor", std::nullopt, 1.0, kMostFactor);
      // Written by some files, looked at by no implementation.
      block.Ignore({"original_max_position_embeddings"});
      if (rope.rotary_dim < 4) {
        block.Fail(BadInput(StrCat(top.origin(),
                                   ": key 'head_dim': dynamic rope needs at least 4 "
                                   "rotated dimensions, not ",
                                   rope.rotary_dim)));
      }
      break;
    case RopeKind::kLlama3:
      rope.original_max_position = ReadOriginal(top, block, true, rope.max_position);
      rope.factor = block.Real("factor", std::nullopt, 1.0, kMostFactor);
      rope.low_freq_factor = block.Real("low_freq_factor", std::nullopt, 1e-6, kMostFactor);
      rope.high_freq_factor = block.Real("high_freq_factor", std::nullopt, 1e-6, kMostFactor);
      // The same number twice (Llama 4): nothing is between.
      if (!(rope.low_freq_factor <= rope.high_freq_factor)) {
        block.Fail("high_freq_factor",
                   StrCat("at least low_freq_factor (", rope.low_freq_factor, ")"));
      }
      break;
    case RopeKind::kYarn:
      ReadYarn(top, block, rope);
      break;
    case RopeKind::kLongrope:
      ReadLongrope(top, block, rules, rope);
      break;
  }
  if (rules.proportional && rope.kind != RopeKind::kProportional) {
    if (part != 1.0) block.Fail("partial_rotary_factor", "1: only kind proportional turns a part");
    rope.turned_dim = 0;
  }
  if (Status status = block.Finish(); !status.ok()) top.Fail(status.error());
  return rope;
}

// The object under `key`; none when absent, null or empty.
const Json* TakeBlock(ConfigReader& top, std::string_view key) {
  const Json* value = top.Take(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    top.Fail(key, "an object");
    return nullptr;
  }
  if (value->contains("full_attention") || value->contains("sliding_attention")) {
    top.Fail(Unsupported(StrCat(top.origin(), ": key '", key,
                                "': one rope per kind of layer is not supported, expected one "
                                "object with rope_type and rope_theta")));
    return nullptr;
  }
  return value->empty() ? nullptr : value;
}

bool ByLayerKind(const Json* block) {
  return block != nullptr && block->is_object() &&
         (block->contains("full_attention") || block->contains("sliding_attention"));
}

}  // namespace

void ReadLayerRopes(ConfigReader& reader, const RopeRules& rules, double local_theta,
                    ModelConfig& config) {
  static const Json kNothing = Json::object();
  RopeRules local = rules;
  local.theta = local_theta;
  local.theta_key = "rope_local_base_freq";
  const Json* v5 = reader.Take("rope_parameters");
  if (!ByLayerKind(v5)) {
    if (v5 != nullptr && !(v5->is_object() && v5->empty())) {
      reader.Fail("rope_parameters",
                  "one object for full_attention and one for sliding_attention: the base differs");
      return;
    }
    ReadRope(reader, rules, config);
    config.local_rope = ReadBlock(reader, "", kNothing, local, config);
    return;
  }
  for (const auto& [kind, value] : v5->items()) {
    if (kind != "full_attention" && kind != "sliding_attention") {
      return reader.Fail("rope_parameters",
                         StrCat("only full_attention and sliding_attention, not ", Quoted(kind)));
    }
    if (!value.is_object() && !value.is_null()) {
      return reader.Fail(StrCat("rope_parameters.", kind), "an object");
    }
  }
  const auto of = [&](const char* kind) -> const Json& {
    const auto found = v5->find(kind);
    return found == v5->end() || found->is_null() ? kNothing : *found;
  };
  config.rope =
      ReadBlock(reader, "rope_parameters.full_attention", of("full_attention"), rules, config);
  config.local_rope = ReadBlock(reader, "rope_parameters.sliding_attention",
                                of("sliding_attention"), local, config);
  const Json* v4 = TakeBlock(reader, "rope_scaling");
  if (v4 != nullptr && !(ReadBlock(reader, "rope_scaling", *v4, rules, config) == *config.rope)) {
    reader.Fail("rope_scaling", "the same settings as in key 'rope_parameters.full_attention'");
  }
}

void ReadRopesByKind(ConfigReader& reader, const RopeRules& full, const RopeRules& sliding,
                     const Json& defaults, ModelConfig& config) {
  const Json* given = reader.Take("rope_parameters");
  const Json& ropes = given == nullptr ? defaults : *given;
  const auto read = [&](const char* kind, const RopeRules& rules) {
    const auto found = ropes.find(kind);
    if (found == ropes.end() || !found->is_object()) {
      reader.Fail("rope_parameters", StrCat("an object for ", kind));
      return RopeConfig{.rotary_dim = rules.head_dim};
    }
    return ReadBlock(reader, StrCat("rope_parameters.", kind), *found, rules, config);
  };
  if (!ropes.is_object()) return reader.Fail("rope_parameters", "an object");
  config.rope = read("full_attention", full);
  config.local_rope = read("sliding_attention", sliding);
  for (const auto& [key, value] : ropes.items()) {
    // Writers add what a block of one rope would have.
    if (key == "full_attention" || key == "sliding_attention" || value.is_null()) continue;
    if (key == "rope_type" && value == "default") continue;
    reader.Fail("rope_parameters",
                StrCat("only full_attention and sliding_attention, not ", Quoted(key)));
  }
}

void ReadRopeOfFullLayers(ConfigReader& reader, const RopeRules& rules, ModelConfig& config) {
  if (ByLayerKind(reader.Take("rope_parameters"))) {
    ReadLayerRopes(reader, rules, rules.theta, config);
  } else {
    ReadRope(reader, rules, config);
    const RopeConfig& full = *config.rope;
    if (full.kind == RopeKind::kDefault) return;
    config.local_rope = RopeConfig{.layout = full.layout,
                                   .rotary_dim = full.rotary_dim,
                                   .theta = full.theta,
                                   .max_position = full.max_position};
  }
  for (LayerConfig& layer : config.layers) layer.local_rope = layer.window > 0;
}

void StopRopeIn(const std::vector<bool>& flags, ModelConfig& config) {
  for (size_t i = 0; i < config.layers.size(); ++i) config.layers[i].local_rope = flags[i];
  config.local_rope = RopeConfig{.kind = RopeKind::kNone,
                                 .layout = config.rope->layout,
                                 .rotary_dim = config.rope->rotary_dim,
                                 .max_position = config.rope->max_position};
}

void ReadRope(ConfigReader& reader, const RopeRules& rules, ModelConfig& config) {
  const Json* v5 = TakeBlock(reader, "rope_parameters");
  const Json* v4 = TakeBlock(reader, "rope_scaling");
  // Only some kinds look at it; at the top level it is legal with every kind.
  reader.Ignore({"original_max_position_embeddings"});
  static const Json kNothing = Json::object();
  if (v5 == nullptr && v4 == nullptr) {
    config.rope = ReadBlock(reader, "", kNothing, rules, config);
    return;
  }
  config.rope = v5 != nullptr ? ReadBlock(reader, "rope_parameters", *v5, rules, config)
                              : ReadBlock(reader, "rope_scaling", *v4, rules, config);
  if (v5 != nullptr && v4 != nullptr &&
      !(ReadBlock(reader, "rope_scaling", *v4, rules, config) == *config.rope)) {
    reader.Fail("rope_scaling",
                "the same settings as in key 'rope_parameters'; implementations differ in which "
                "one wins");
  }
}

}  // namespace kvgauge
