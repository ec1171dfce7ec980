// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/guarded.h"
#include "core/strings.h"
#include "images/preprocess.h"
#include "runner/vision.h"
#include "src/model/weight_loader.h"
#include "src/vision/assemble.h"
#include "src/vision/pass.h"
#include "src/vision/tensors.h"
#include "src/vision/weights.h"

namespace kvgauge {
namespace {

Status LoadMerger(const MergerTensors& spec, WeightLoader& loader, MergerWeights& out) {
  KVG_TRY(loader.Load(spec.norm, out.norm));
  KVG_TRY(loader.Load(spec.first, out.first));
  return loader.Load(spec.second, out.second);
}

Status LoadBlock(const VisionBlockTensors& spec, WeightLoader& loader, VisionBlock& out) {
  KVG_TRY(loader.Load(spec.attention_norm, out.attention_norm));
  KVG_TRY(loader.Load(spec.mlp_norm, out.mlp_norm));
  KVG_TRY(loader.Load(spec.q_norm, out.q_norm));
  KVG_TRY(loader.Load(spec.k_norm, out.k_norm));
  KVG_TRY(loader.Load(spec.attention_scale, out.attention_scale));
  KVG_TRY(loader.Load(spec.mlp_scale, out.mlp_scale));
  KVG_TRY(loader.Load(spec.qkv, out.qkv));
  KVG_TRY(loader.Load(spec.output, out.output));
  KVG_TRY(loader.Load(spec.up, out.up));
  return loader.Load(spec.down, out.down);
}

Status LoadNumbersIf(const TensorSpec& spec, WeightLoader& loader, std::vector<float>& out) {
  return spec.name.empty() ? Status() : loader.LoadNumbers(spec, out);
}

// What each row of a tile is added before the first block, [rows, width]. A class token's row is
// its token and its place.
std::vector<float> TileRows(const TowerSpec& tower, const std::vector<float>& class_token,
                            const std::vector<float>& places, const std::vector<float>& bias) {
  std::vector<float> rows = places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t column = i % static_cast<size_t>(tower.width);
    const bool of_class = tower.class_token && i < static_cast<size_t>(tower.width);
    if (of_class) {
      rows[i] += class_token[column];
    } else if (!bias.empty()) {
      rows[i] += bias[column];
    }
  }
  return rows;
}

Status LoadEyes(const VisionSpec& spec, const VisionTensors& tensors, WeightLoader& loader,
                Ops& ops, VisionWeights& out) {
  const TowerSpec& tower = spec.tower;
  KVG_TRY(loader.Load(tensors.patch, out.patch));
  std::vector<float> class_token, places, bias;
  KVG_TRY(LoadNumbersIf(tensors.class_token, loader, class_token));
  KVG_TRY(LoadNumbersIf(tensors.places, loader, places));
  KVG_TRY(LoadNumbersIf(tensors.patch_bias, loader, bias));
  if (tower.places == PatchPlaces::kLearned) {
    const std::vector<float> rows = TileRows(tower, class_token, places, bias);
    const int64_t count = std::ssize(rows) / tower.width;
    out.tile_memory = ops.memory->Allocate(std::ssize(rows) * SizeOf(DType::kF32));
    out.tile_rows = out.tile_memory.As(DType::kF32, {count, tower.width});
    ops.memory->Copy(View(rows, {count, tower.width}), out.tile_rows);
  } else {
    out.places = std::move(places);
    out.patch_bias = std::move(bias);
  }
  KVG_TRY(loader.Load(tensors.pre_norm, out.pre_norm));
  KVG_TRY(loader.Load(tensors.post_norm, out.post_norm));
  out.blocks.resize(tensors.blocks.size());
  for (size_t i = 0; i < tensors.blocks.size(); ++i) {
    KVG_TRY(LoadBlock(tensors.blocks[i], loader, out.blocks[i]));
  }
  if (spec.projector == ProjectorKind::kPooledOne) {
    KVG_TRY(loader.Load(tensors.projector.norm, out.projector.norm));
    KVG_TRY(loader.LoadTransposed(tensors.projector.first, out.projector.first));
  } else {
    KVG_TRY(LoadMerger(tensors.projector, loader, out.projector));
  }
  out.deepstack.resize(tensors.deepstack.size());
  for (size_t i = 0; i < tensors.deepstack.size(); ++i) {
    KVG_TRY(LoadMerger(tensors.deepstack[i], loader, out.deepstack[i]));
  }
  std::vector<float> newline;
  KVG_TRY(LoadNumbersIf(tensors.newline, loader, newline));
  if (!newline.empty()) {
    out.newline_memory = ops.memory->Allocate(std::ssize(newline) * SizeOf(DType::kF32));
    out.newline = out.newline_memory.As(DType::kF32, {std::ssize(newline)});
    ops.memory->Copy(View(newline, {std::ssize(newline)}), out.newline);
  }
  return {};
}

// How many numbers the pixels of a picture are.
int64_t ValueCount(const TowerSpec& tower, const PixelValues& pixels) {
  if (tower.tiled()) return int64_t{3} * pixels.tiles * pixels.height * pixels.width;
  return RowsOf(tower, pixels) * 3 * tower.frames * tower.patch * tower.patch;
}

Status CheckValues(const VisionSpec& spec, const PixelValues& pixels) {
  const int64_t needed = ValueCount(spec.tower, pixels);
  if (std::ssize(pixels.values) == needed) return {};
  return BadInput(StrCat(spec.path, ": a picture comes as ", pixels.values.size(),
                         " numbers, but the tower reads ", needed,
                         "; patch_size and temporal_patch_size of preprocessor_config.json and of "
                         "vision_config must agree"));
}

// Rows that a stage keeps of a picture whose rows are not those of the tower; ends of lines stay.
// `order`: as ShownRows has it, of all rows and then of those that are kept.
void ReduceRows(const See& see, uint64_t seed, VisualFeatures& picture,
                std::vector<int32_t>& order) {
  std::vector<int32_t> patches, ends;  // places in the layout
  for (const VisualBlock& block : picture.layout.blocks) {
    const int64_t line = block.grid[2] + (block.newlines ? 1 : 0);
    for (int64_t i = 0; i < block.rows; ++i) {
      const bool end = block.kind == VisualBlock::Kind::kNewline || i % line == block.grid[2];
      (end ? ends : patches).push_back(static_cast<int32_t>(block.first + i));
    }
  }
  TileView view;
  view.patches = std::ssize(patches);
  view.seed = seed;
  const std::vector<SeenRow> shown = see.Reduce(view);
  picture.places = ends;
  for (const SeenRow& row : shown) {
    KVG_CHECK(row.mix.size() == 1 && row.mix[0].first == row.place && row.mix[0].second == 1.0f,
              "a stage that does not look at the tower mixes rows");
    picture.places.push_back(patches[static_cast<size_t>(row.place)]);
  }
  std::ranges::sort(picture.places);
  std::vector<int32_t> kept;
  for (const int32_t place : picture.places) kept.push_back(order[static_cast<size_t>(place)]);
  order = std::move(kept);
}

// What a picture shows of the rows of its batch, in memory of its own.
void TakeRows(const VisionSpec& spec, const PixelValues& pixels, const ProjectedRows& projected,
              size_t number, const See* see, uint64_t seed, Ops& ops, VisionPass& pass,
              VisualFeatures& out) {
  const auto [first, count] = projected.pictures[number];
  Tensor rows = projected.rows.Slice(first, first + count);
  Buffer between;
  std::vector<int32_t> order;
  if (!projected.places.empty()) {
    SeenOrder seen = ArrangeSeen(spec, pixels, out.layout, projected.places[number]);
    order = std::move(seen.from);
    out.places = std::move(seen.places);
  } else {
    if (ShowsBetween(spec, pixels, out.layout)) {
      std::vector<float> copied;
      const std::vector<float> made =
          RowsBetween(spec, pixels, out.layout, HostNumbers(*ops.memory, rows, copied));
      const int64_t made_count = std::ssize(made) / spec.hidden_size;
      between = ops.memory->Allocate(std::ssize(made) * SizeOf(DType::kF32));
      rows = between.As(DType::kF32, {made_count, spec.hidden_size});
      ops.memory->Copy(View(made, {made_count, spec.hidden_size}), rows);
    }
    order = ShownRows(spec, pixels, out.layout, rows.shape[0]);
    KVG_CHECK(std::ssize(order) == out.layout.rows,
              "a picture became other rows than its layout says");
    if (see != nullptr) ReduceRows(*see, seed, out, order);
  }
  out.rows =
      VisualRows(*ops.memory, std::ssize(order), spec.hidden_size, std::ssize(projected.deepstack));
  pass.PutInOrder(rows, order, out.rows.tables()[0]);
  for (size_t i = 0; i < projected.deepstack.size(); ++i) {
    pass.PutInOrder(projected.deepstack[i].Slice(first, first + count), order,
                    out.rows.tables()[i + 1]);
  }
}

}  // namespace

VisionTower::VisionTower(VisionSpec spec, DType dtype, Ops& ops)
    : spec_(std::move(spec)),
      dtype_(dtype),
      ops_(&ops),
      weights_(std::make_unique<VisionWeights>()) {}

VisionTower::~VisionTower() = default;

int64_t VisionTower::scratch_bytes() const {
  int64_t bytes = 0;
  for (const Buffer& buffer : weights_->scratch) bytes += buffer.size_bytes();
  return bytes;
}

void VisionTower::DropScratch() {
  for (Buffer& buffer : weights_->scratch) buffer = Buffer();
}

Result<std::unique_ptr<VisionTower>> VisionTower::Load(VisionSpec spec, const WeightSource& source,
                                                       DType dtype, Ops& ops, bool behind,
                                                       ProductRows rows) {
  KVG_TRY(CheckVisionWeights(spec, source));
  KVG_ASSIGN(const VisionSpelling spelling, SpellingOf(spec, source));
  const int64_t one_more = behind && spec.tower.run_layers < spec.tower.layers ? 1 : 0;
  const VisionTensors tensors = DescribeVision(spec, spelling, spec.tower.run_layers + one_more);
  std::unique_ptr<VisionTower> tower(new VisionTower(std::move(spec), dtype, ops));
  const Status loaded = Guarded([&]() -> Status {
    WeightLoader loader(source, dtype, ops, false, rows);
    KVG_TRY(LoadEyes(tower->spec_, tensors, loader, ops, *tower->weights_));
    tower->weight_bytes_ = loader.bytes() + tower->weights_->tile_memory.size_bytes() +
                           tower->weights_->newline_memory.size_bytes();
    return {};
  });
  if (!loaded.ok()) return loaded.error();
  return tower;
}

Result<std::unique_ptr<VisionTower>> VisionTower::Load(const std::string& directory,
                                                       const VisionOptions& options, Ops& ops) {
  KVG_ASSIGN(std::optional<VisionSpec> spec, ReadVisionConfig(directory));
  if (!spec) {
    std::vector<std::string> known;
    for (const VisionFamilyInfo& family : VisionFamilies()) known.emplace_back(family.model_type);
    return Unsupported(StrCat(directory,
                              "/config.json: key 'model_type' names no model that "
                              "sees; those are ",
                              Join(known, ", ")));
  }
  const DType dtype = options.dtype.value_or(spec->stored_dtype);
  std::unique_ptr<WeightSource> source;
  if (options.random_seed) {
    VisionSpec drawn = *spec;
    if (options.behind && drawn.tower.run_layers < drawn.tower.layers) ++drawn.tower.run_layers;
    source = MakeRandomWeights(ExpectedVisionTensors(drawn), *options.random_seed, dtype);
  } else {
    KVG_ASSIGN(source, OpenWeights(directory, dtype));
  }
  return Load(std::move(*spec), *source, dtype, ops, options.behind, options.product_rows);
}

Result<std::vector<VisualFeatures>> VisionTower::Encode(std::span<const PixelValues> pictures,
                                                        Modality modality, VisionTrace* trace,
                                                        const See* see,
                                                        std::span<const uint64_t> seeds) {
  const bool looks = see != nullptr && (see->sees().tower() || see->sees().rows);
  if (looks && modality == Modality::kVideo && spec_.video_pooling != VideoPooling::kNone) {
    return Unsupported(StrCat(spec_.path, ": ", spec_.family,
                              " makes each row of a frame from several rows of the tower, so a "
                              "stage that looks at those cannot reduce a video; --image shows "
                              "single frames"));
  }
  std::vector<VisualFeatures> features(pictures.size());
  for (size_t i = 0; i < pictures.size(); ++i) {
    KVG_ASSIGN(features[i].layout, LayOutVisual(spec_, pictures[i], modality));
    KVG_TRY(CheckValues(spec_, pictures[i]));
  }
  for (size_t begin = 0; begin < pictures.size();) {
    std::vector<const PixelValues*> batch;
    for (int64_t rows = 0; begin + batch.size() < pictures.size();) {
      const PixelValues& next = pictures[begin + batch.size()];
      rows += RowsOf(spec_.tower, next);
      if (!batch.empty() && rows > kBatchRows) break;
      batch.push_back(&next);
    }
    VisionTrace own;
    KVG_TRY(Guarded([&]() -> Status {
      VisionPass pass(spec_, dtype_, *ops_, *weights_, batch, modality);
      const ProjectedRows projected =
          pass.Run(trace == nullptr ? nullptr : &own, see,
                   seeds.empty() ? seeds : seeds.subspan(begin, batch.size()));
      for (size_t i = 0; i < batch.size(); ++i) {
        TakeRows(spec_, *batch[i], projected, i, see, seeds.empty() ? 0 : seeds[begin + i], *ops_,
                 pass, features[begin + i]);
      }
      return {};
    }));
    for (size_t i = 0; i < own.hidden.size(); ++i) {
      if (trace->hidden.size() <= i) trace->hidden.emplace_back();
      std::vector<float>& all = trace->hidden[i];
      all.insert(all.end(), own.hidden[i].begin(), own.hidden[i].end());
    }
    begin += batch.size();
  }
  return features;
}

}  // namespace kvgauge
