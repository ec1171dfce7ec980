// SPDX-License-Identifier: Apache-2.0
// bench vision: a tower of random weights against the rate of a large product of the same machine,
// measured in turns; and what a JPEG costs before the tower sees it.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/clock.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "images/decode.h"
#include "images/encode.h"
#include "images/preprocess.h"
#include "runner/vision.h"
#include "src/bench/median.h"
#include "src/cli/commands.h"
#include "src/cli/print.h"
#include "src/model/shipped_files.h"

namespace kvgauge {
namespace {

// Pixels of `count` pictures as the tower takes them, each one tile or a grid of a megapixel.
std::vector<PixelValues> RandomPixels(const VisionSpec& spec, int64_t count) {
  const TowerSpec& tower = spec.tower;
  std::vector<PixelValues> all;
  for (int64_t i = 0; i < count; ++i) {
    Rng rng(3, static_cast<uint64_t>(i));
    PixelValues pixels;
    int64_t numbers = 0;
    if (tower.tiled()) {
      pixels.tiles = 1;
      pixels.height = static_cast<int32_t>(tower.image_height);
      pixels.width = static_cast<int32_t>(tower.image_width);
      pixels.original_height = pixels.height;
      pixels.original_width = pixels.width;
      numbers = int64_t{3} * pixels.height * pixels.width;
    } else {
      const auto side = static_cast<int32_t>(1024 / tower.patch / spec.merge * spec.merge);
      pixels.grid = {1, side, side};
      numbers = int64_t{side} * side * 3 * tower.frames * tower.patch * tower.patch;
    }
    pixels.values.resize(static_cast<size_t>(numbers));
    for (float& v : pixels.values) v = static_cast<float>(rng.NextGaussian());
    all.push_back(std::move(pixels));
  }
  return all;
}

struct Work {
  double products = 0, attention = 0;  // floating-point operations
};

// The work for one picture; each multiplication and each addition counts.
Work WorkOf(const VisionSpec& spec, const PixelValues& pixels, int64_t out_rows) {
  const TowerSpec& t = spec.tower;
  const double width = static_cast<double>(t.width), ffn = static_cast<double>(t.ffn);
  const double layers = static_cast<double>(t.run_layers);
  const int64_t patches = t.tiled() ? pixels.tiles * t.grid_rows() * t.grid_columns()
                                    : int64_t{pixels.grid[1]} * pixels.grid[2];
  const double rows = static_cast<double>(patches + (t.class_token ? pixels.tiles : 0));
  const double patch = static_cast<double>(3 * t.frames * t.patch * t.patch);
  Work work;
  work.products =
      2 * rows * (patch * width + layers * (4 * width * width + (t.gated ? 3 : 2) * width * ffn));
  const double merged = width * static_cast<double>(spec.merge * spec.merge);
  const double hidden = static_cast<double>(spec.hidden_size);
  const bool merger = spec.projector == ProjectorKind::kMerger;
  work.products += 2 * static_cast<double>(out_rows) *
                   (merger ? merged * merged + merged * hidden : merged * hidden + hidden * hidden);
  // With windows most blocks do less; their share is not worth a formula.
  const double seen = t.window > 0
                          ? static_cast<double>(t.window * t.window * spec.merge * spec.merge)
                          : rows / (t.tiled() ? static_cast<double>(pixels.tiles) : 1.0);
  const double whole = static_cast<double>(t.window > 0 ? t.full_layers.size() : 0);
  work.attention = 4 * rows * width * ((layers - whole) * seen + whole * rows);
  return work;
}

// A product that is large for any machine, in TFLOP/s.
class LargeProduct {
 public:
  LargeProduct(Ops& ops, DType dtype) : ops_(ops) {
    std::vector<float> weights(static_cast<size_t>(kSide * kSide));
    Rng rng(5, 5);
    for (float& w : weights) w = static_cast<float>(rng.NextGaussian());
    const Tensor view = View(weights, {kSide, kSide});
    matrix_ = ops_.linear->Pack({&view, 1}, dtype);
    x_ = ops_.memory->Allocate(kSide * kSide * 4);
    out_ = ops_.memory->Allocate(kSide * kSide * 4);
    ops_.memory->Copy(view, x_.As(DType::kF32, {kSide, kSide}));
  }
  double Tflops() {
    ops_.memory->Synchronize();
    const double start_s = NowSeconds();
    ops_.linear->MatMul(x_.As(DType::kF32, {kSide, kSide}), *matrix_, {}, MatMulMode::kSet,
                        out_.As(DType::kF32, {kSide, kSide}));
    ops_.memory->Synchronize();
    const double side = static_cast<double>(kSide);
    return 2 * side * side * side / (NowSeconds() - start_s) / 1e12;
  }

 private:
  static constexpr int64_t kSide = 2048;
  Ops& ops_;
  std::unique_ptr<PackedMatrix> matrix_;
  Buffer x_, out_;
};

// Milliseconds that one thread takes from the bytes of a JPEG of a megapixel to pixel values.
Result<double> JpegMs(const VisionSpec& spec, int repetitions) {
  constexpr int32_t kSide = 1024;
  Image image = Image::OfSize(kSide, kSide);
  for (int32_t y = 0; y < kSide; ++y) {
    for (int32_t x = 0; x < kSide; ++x) {
      uint8_t* pixel = image.Row(y) + 3 * x;
      pixel[0] = static_cast<uint8_t>(x / 4 + y % 16);
      pixel[1] = static_cast<uint8_t>(y / 4 + x % 24);
      pixel[2] = static_cast<uint8_t>((x ^ y) / 4);
    }
  }
  KVG_ASSIGN(const std::string jpeg, EncodeJpeg(image));
  Preprocessor preprocessor;
  preprocessor.height = preprocessor.width =
      spec.tower.tiled() ? static_cast<int32_t>(spec.tower.image_height) : 980;
  std::vector<double> taken_ms;
  for (int i = 0; i < repetitions; ++i) {
    const double start_s = NowSeconds();
    KVG_ASSIGN(const Image decoded, DecodeImage(jpeg, "bench"));
    KVG_TRY(Preprocess(preprocessor, decoded));
    taken_ms.push_back(1e3 * (NowSeconds() - start_s));
  }
  return Median(taken_ms);
}

struct VisionCell {
  std::string model, dtype;
  int64_t pictures = 0, rows = 0;
  double tower_ms = 0, tflops = 0, product_tflops = 0, jpeg_ms = 0;
  double share() const { return tflops / product_tflops; }
};

Result<VisionCell> MeasureTower(const std::string& path, const std::string& dtype, int64_t pictures,
                                const BenchVisionOptions& options, Ops& ops) {
  VisionOptions load;
  load.dtype = DTypeFromName(dtype);
  if (!load.dtype || !IsFloat(*load.dtype)) {
    return BadInput(StrCat("--dtype ", dtype, ": expected f32, f16 or bf16"));
  }
  load.random_seed = 1;
  KVG_ASSIGN(const std::unique_ptr<VisionTower> tower, VisionTower::Load(path, load, ops));
  const std::vector<PixelValues> pixels = RandomPixels(tower->spec(), pictures);
  LargeProduct product(ops, *load.dtype);
  product.Tflops();
  KVG_ASSIGN(const std::vector<VisualFeatures> warm, tower->Encode(pixels, Modality::kImage));
  const Work work = WorkOf(tower->spec(), pixels[0], warm[0].layout.rows);
  std::vector<double> tower_s, product_tflops;
  for (int i = 0; i < options.repetitions; ++i) {
    const double start_s = NowSeconds();
    KVG_TRY(tower->Encode(pixels, Modality::kImage));
    tower_s.push_back(NowSeconds() - start_s);
    product_tflops.push_back(product.Tflops());
  }
  VisionCell cell = {.model = std::filesystem::path(path).stem().string(), .dtype = dtype};
  cell.pictures = pictures;
  cell.rows = warm[0].layout.rows;
  cell.tower_ms = 1e3 * Median(tower_s);
  cell.tflops =
      static_cast<double>(pictures) * (work.products + work.attention) / (1e9 * cell.tower_ms);
  cell.product_tflops = Median(product_tflops);
  KVG_ASSIGN(cell.jpeg_ms, JpegMs(tower->spec(), options.repetitions));
  return cell;
}

}  // namespace

Status RunBenchVision(const BenchVisionOptions& options) {
  std::vector<std::string> models = options.models;
  if (models.empty()) models = {"smolvlm-256m"};
  for (std::string& model : models) {
    KVG_ASSIGN(model, ShapeOrPath(model));
  }
  KVG_ASSIGN(const std::unique_ptr<Ops> ops,
             MakeOps(options.backend, MakeThreadSettings(options.threads)));
  std::vector<std::vector<std::string>> table;
  Json cells = Json::array();
  for (const std::string& path : models) {
    for (const std::string& dtype : options.dtypes) {
      for (const int64_t pictures : options.pictures) {
        KVG_ASSIGN(const VisionCell cell, MeasureTower(path, dtype, pictures, options, *ops));
        table.push_back({cell.model, cell.dtype, StrCat(cell.pictures), StrCat(cell.rows),
                         Fixed(cell.tower_ms, 1), Fixed(cell.tflops, 3),
                         StrCat(Fixed(100 * cell.share(), 0), " %"), Fixed(cell.jpeg_ms, 1)});
        cells.push_back({{"model", cell.model},
                         {"dtype", cell.dtype},
                         {"pictures", cell.pictures},
                         {"rows_per_picture", cell.rows},
                         {"tower_ms", cell.tower_ms},
                         {"tflop_per_s", cell.tflops},
                         {"product_tflop_per_s", cell.product_tflops},
                         {"share", cell.share()},
                         {"jpeg_ms", cell.jpeg_ms}});
      }
    }
  }
  if (options.json) {
    PrintJson({{"backend", ops->backend}, {"variant", ops->variant}, {"cells", cells}});
  } else {
    PrintTable(
        {"model", "dtype", "pictures", "rows each", "tower ms", "TFLOP/s", "of product", "JPEG ms"},
        table);
  }
  return {};
}

}  // namespace kvgauge
