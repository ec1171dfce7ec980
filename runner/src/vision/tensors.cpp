// SPDX-License-Identifier: Apache-2.0
#include "src/vision/tensors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/strings.h"
#include "src/model/weight_loader.h"

namespace kvgauge {
namespace {

// A name under a prefix, with the number of its block.
std::string Named(const std::string& prefix, std::string_view name, int64_t number) {
  std::string full = prefix;
  for (const char c : name) full += c == '#' ? std::to_string(number) : std::string(1, c);
  return full;
}
// A name that ends in a dot is the tensor's own.
std::string Whole(std::string name, const char* suffix) {
  if (!name.ends_with('.')) return name + suffix;
  name.pop_back();
  return name;
}

// Tensors under one prefix.
class VisionScope {
 public:
  explicit VisionScope(std::string prefix, int64_t number = 0)
      : prefix_(std::move(prefix)), number_(number) {}

  TensorSpec Weight(std::string_view name, std::vector<int64_t> shape, TensorSpec::Init init,
                    float deviation = 0) const {
    return {Whole(Named(prefix_, name, number_), ".weight"), std::move(shape), init, deviation};
  }
  TensorSpec Bias(std::string_view name, int64_t size) const {
    return {Whole(Named(prefix_, name, number_), ".bias"), {size}, TensorSpec::Init::kZeros, 0};
  }
  TensorSpec Matrix(std::string_view name, std::vector<int64_t> shape) const {
    int64_t columns = 1;
    for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
    return Weight(name, std::move(shape), TensorSpec::Init::kNormal,
                  1.0f / std::sqrt(static_cast<float>(columns)));
  }
  LinearSpec Linear(const std::vector<std::string_view>& names, int64_t rows, int64_t columns,
                    bool bias) const {
    LinearSpec spec;
    for (const std::string_view name : names) {
      spec.parts.push_back(Matrix(name, {rows, columns}));
      if (bias) spec.biases.push_back(Bias(name, rows));
    }
    return spec;
  }
  NormSpec Norm(std::string_view name, int64_t size, bool bias,
                TensorSpec::Init init = TensorSpec::Init::kOnes) const {
    NormSpec spec;
    spec.weight = Weight(name, {size}, init);
    if (bias) spec.bias = Bias(name, size);
    return spec;
  }

 private:
  std::string prefix_;
  int64_t number_;
};

VisionBlockTensors DescribeBlock(const TowerSpec& t, const TowerNames& names,
                                 const VisionScope& scope) {
  const bool layer_norm = t.norm == TowerNorm::kLayer;
  VisionBlockTensors block;
  block.attention_norm = scope.Norm(names.attention_norm, t.width, layer_norm);
  block.mlp_norm = scope.Norm(names.mlp_norm, t.width, layer_norm);
  block.qkv = scope.Linear(names.qkv, t.qkv_fused ? 3 * t.width : t.width, t.width, t.qkv_bias);
  block.output = scope.Linear({names.output}, t.width, t.width, t.branch_bias);
  block.up = scope.Linear(names.up, t.ffn, t.width, t.branch_bias);
  block.down = scope.Linear({names.down}, t.width, t.ffn, t.branch_bias);
  if (t.qk_norm) {
    block.q_norm = scope.Norm(names.q_norm, t.width, false);
    block.k_norm = scope.Norm(names.k_norm, t.width, false);
  }
  if (t.layer_scale) {
    block.attention_scale = scope.Norm(names.attention_scale, t.width, false);
    block.mlp_scale = scope.Norm(names.mlp_scale, t.width, false);
  }
  return block;
}

MergerTensors DescribeProjector(const VisionSpec& spec, const ProjectorNames& names,
                                const VisionScope& scope) {
  const TowerSpec& t = spec.tower;
  const int64_t out = spec.hidden_size, merged = t.width * spec.merge * spec.merge;
  MergerTensors projector;
  switch (spec.projector) {
    case ProjectorKind::kTwoLayers: {
      const int64_t in = t.width * std::ssize(spec.feature_layers);
      projector.first = scope.Linear({names.first}, out, in, spec.projector_bias);
      projector.second = scope.Linear({names.second}, out, out, spec.projector_bias);
      break;
    }
    case ProjectorKind::kShuffledTwo:
      projector.norm = scope.Norm(names.norm, merged, true);
      projector.first = scope.Linear({names.first}, out, merged, true);
      projector.second = scope.Linear({names.second}, out, out, true);
      break;
    case ProjectorKind::kShuffledOne:
      projector.first = scope.Linear({names.first}, out, merged, spec.projector_bias);
      break;
    case ProjectorKind::kPooledOne:
      projector.norm = scope.Norm(names.norm, t.width, false, TensorSpec::Init::kZeros);
      projector.first = scope.Linear({names.first}, t.width, out, false);
      break;
    case ProjectorKind::kMerger:
      projector.norm = scope.Norm(names.norm, t.width, t.norm == TowerNorm::kLayer);
      projector.first = scope.Linear({names.first}, merged, merged, true);
      projector.second = scope.Linear({names.second}, out, merged, true);
      break;
  }
  return projector;
}

void AppendSpec(const TensorSpec& spec, std::vector<TensorSpec>& out) {
  if (!spec.name.empty()) out.push_back(spec);
}
void AppendSpec(const LinearSpec& linear, std::vector<TensorSpec>& out) {
  out.insert(out.end(), linear.parts.begin(), linear.parts.end());
  out.insert(out.end(), linear.biases.begin(), linear.biases.end());
}
void AppendSpec(const NormSpec& norm, std::vector<TensorSpec>& out) {
  AppendSpec(norm.weight, out);
  AppendSpec(norm.bias, out);
}
void AppendSpec(const MergerTensors& merger, std::vector<TensorSpec>& out) {
  AppendSpec(merger.norm, out);
  AppendSpec(merger.first, out);
  AppendSpec(merger.second, out);
}

const VisionNames& NamesOf(const VisionSpec& spec) {
  const VisionFamily* family = FindVisionFamily(spec.family);
  KVG_CHECK(family != nullptr, "a spec of no family");
  return family->names(spec);
}

// The longest of the prefixes that begins the name; empty: none does.
std::string_view PrefixOf(const std::vector<std::string_view>& prefixes, std::string_view name) {
  std::string_view longest;
  for (const std::string_view prefix : prefixes) {
    if (name.starts_with(prefix) && prefix.size() > longest.size()) longest = prefix;
  }
  return longest;
}

// The one prefix that names of a part have.
Result<std::string> OnePrefix(const std::vector<std::string_view>& prefixes,
                              const WeightSource& source, const std::vector<std::string>& names) {
  std::map<std::string_view, std::string> used;
  for (const std::string& name : names) {
    const std::string_view prefix = PrefixOf(prefixes, name);
    if (!prefix.empty()) used.emplace(prefix, name);
  }
  if (used.size() > 1) {
    const auto& first = *used.begin();
    const auto& second = *std::next(used.begin());
    return BadInput(StrCat(source.OriginOf(second.second),
                           ": names of one part are spelled in two ways, as '", first.second,
                           "' and as '", second.second,
                           "'; files of different versions of a checkpoint were mixed"));
  }
  if (used.empty()) return std::string(prefixes.empty() ? "" : prefixes[0]);
  return std::string(used.begin()->first);
}

// Tensors of the eyes that nothing here reads.
bool IsIgnorable(std::string_view name) {
  return name.ends_with("position_ids") || name.ends_with("rotary_pos_emb.inv_freq") ||
         name.find(".head.") != std::string_view::npos;
}

}  // namespace

VisionSpelling FirstSpelling(const VisionSpec& spec) {
  const VisionNames& names = NamesOf(spec);
  VisionSpelling spelling;
  spelling.tower = names.tower_prefixes[0];
  spelling.projector =
      names.projector_prefixes.empty() ? spelling.tower : std::string(names.projector_prefixes[0]);
  if (!names.newline.empty()) spelling.newline = names.newline[0];
  return spelling;
}

Result<VisionSpelling> SpellingOf(const VisionSpec& spec, const WeightSource& source) {
  const VisionNames& names = NamesOf(spec);
  const std::vector<std::string> stored = source.Names();
  VisionSpelling spelling;
  KVG_ASSIGN(spelling.tower, OnePrefix(names.tower_prefixes, source, stored));
  KVG_ASSIGN(spelling.projector, OnePrefix(names.projector_prefixes, source, stored));
  if (names.projector_prefixes.empty()) spelling.projector = spelling.tower;
  KVG_ASSIGN(spelling.newline, OnePrefix(names.newline, source, stored));
  return spelling;
}

VisionTensors DescribeVision(const VisionSpec& spec, const VisionSpelling& spelling,
                             int64_t blocks) {
  const VisionNames& names = NamesOf(spec);
  const TowerSpec& t = spec.tower;
  const VisionScope tower(spelling.tower), projector(spelling.projector);
  const bool layer_norm = t.norm == TowerNorm::kLayer;
  VisionTensors tensors;
  std::vector<int64_t> patch = {t.width, 3, t.patch, t.patch};
  if (t.frames > 1) patch = {t.width, 3, t.frames, t.patch * t.patch};
  tensors.patch.parts = {tower.Matrix(names.tower.patch, patch)};
  if (t.patch_bias) tensors.patch_bias = tower.Bias(names.tower.patch, t.width);
  const auto leading = [&](std::vector<int64_t> shape, size_t rank) {
    while (names.tower.leading_one && shape.size() < rank) shape.insert(shape.begin(), 1);
    return shape;
  };
  if (t.class_token) {
    tensors.class_token = tower.Weight(names.tower.class_token, leading({t.width}, 3),
                                       TensorSpec::Init::kNormal, 0.02f);
  }
  if (t.places != PatchPlaces::kNone) {
    const int64_t count = t.places == PatchPlaces::kInterpolated
                              ? t.place_side * t.place_side
                              : t.grid_rows() * t.grid_columns() + (t.class_token ? 1 : 0);
    tensors.places = tower.Weight(names.tower.places, leading({count, t.width}, 3),
                                  TensorSpec::Init::kNormal, 0.02f);
  }
  if (t.pre_norm) tensors.pre_norm = tower.Norm(names.tower.pre_norm, t.width, layer_norm);
  if (t.post_norm) tensors.post_norm = tower.Norm(names.tower.post_norm, t.width, layer_norm);
  for (int64_t i = 0; i < blocks; ++i) {
    tensors.blocks.push_back(DescribeBlock(t, names.tower, VisionScope(spelling.tower, i)));
  }
  tensors.projector = DescribeProjector(spec, names.projector, projector);
  for (int64_t i = 0; i < std::ssize(spec.deepstack); ++i) {
    const VisionScope scope(Named(spelling.projector, names.projector.deepstack, i));
    const int64_t merged = t.width * spec.merge * spec.merge;
    MergerTensors merger;
    merger.norm = scope.Norm(names.projector.deepstack_norm, merged, layer_norm);
    merger.first = scope.Linear({names.projector.deepstack_first}, merged, merged, true);
    merger.second =
        scope.Linear({names.projector.deepstack_second}, spec.hidden_size, merged, true);
    tensors.deepstack.push_back(merger);
  }
  if (!names.newline.empty()) {
    tensors.newline = {spelling.newline, {spec.hidden_size}, TensorSpec::Init::kNormal, 0.02f};
  }
  return tensors;
}

std::vector<TensorSpec> ListVisionTensors(const VisionTensors& tensors) {
  std::vector<TensorSpec> specs;
  AppendSpec(tensors.patch, specs);
  for (const TensorSpec* spec : {&tensors.patch_bias, &tensors.class_token, &tensors.places}) {
    AppendSpec(*spec, specs);
  }
  AppendSpec(tensors.pre_norm, specs);
  for (const VisionBlockTensors& block : tensors.blocks) {
    AppendSpec(block.attention_norm, specs);
    AppendSpec(block.qkv, specs);
    AppendSpec(block.q_norm, specs);
    AppendSpec(block.k_norm, specs);
    AppendSpec(block.output, specs);
    AppendSpec(block.attention_scale, specs);
    AppendSpec(block.mlp_norm, specs);
    AppendSpec(block.up, specs);
    AppendSpec(block.down, specs);
    AppendSpec(block.mlp_scale, specs);
  }
  AppendSpec(tensors.post_norm, specs);
  AppendSpec(tensors.projector, specs);
  for (const MergerTensors& merger : tensors.deepstack) AppendSpec(merger, specs);
  AppendSpec(tensors.newline, specs);
  return specs;
}

std::vector<TensorSpec> ExpectedVisionTensors(const VisionSpec& spec) {
  return ListVisionTensors(DescribeVision(spec, FirstSpelling(spec), spec.tower.run_layers));
}

Result<std::vector<TensorSpec>> ExpectedVisionTensors(const VisionSpec& spec,
                                                      const WeightSource& source) {
  KVG_ASSIGN(const VisionSpelling spelling, SpellingOf(spec, source));
  return ListVisionTensors(DescribeVision(spec, spelling, spec.tower.run_layers));
}

int64_t VisionWeightBytes(const VisionSpec& spec, DType dtype) {
  int64_t numbers = 0;
  for (const TensorSpec& tensor : ExpectedVisionTensors(spec)) {
    int64_t count = 1;
    for (const int64_t side : tensor.shape) count *= side;
    numbers += count;
  }
  return numbers * SizeOf(dtype);
}

bool IsVisionTensor(const VisionSpec& spec, std::string_view name) {
  const VisionNames& names = NamesOf(spec);
  return !PrefixOf(names.tower_prefixes, name).empty() ||
         !PrefixOf(names.projector_prefixes, name).empty() ||
         std::ranges::find(names.newline, name) != names.newline.end();
}

Status CheckVisionWeights(const VisionSpec& spec, const WeightSource& source) {
  KVG_ASSIGN(const VisionSpelling spelling, SpellingOf(spec, source));
  for (const TensorSpec& tensor :
       ListVisionTensors(DescribeVision(spec, spelling, spec.tower.run_layers))) {
    KVG_TRY(CheckStoredTensor(tensor, source));
  }
  // Blocks behind the last that is read, and a norm behind them, are there and stay unread.
  std::set<std::string> known;
  for (const TensorSpec& tensor :
       ListVisionTensors(DescribeVision(spec, spelling, spec.tower.layers))) {
    known.insert(tensor.name);
  }
  const std::string post_norm = spelling.tower + std::string(NamesOf(spec).tower.post_norm);
  for (const char* suffix : {".weight", ".bias"}) known.insert(post_norm + suffix);
  for (const std::string& name : source.Names()) {
    if (!IsVisionTensor(spec, name) || known.contains(name) || IsIgnorable(name)) continue;
    return BadInput(StrCat(source.OriginOf(name), ": tensor '", name, "' is not one that ",
                           spec.family,
                           " has; eyes that ignore weights see something else, so "
                           "check model_type and vision_config"));
  }
  return {};
}

}  // namespace kvgauge
