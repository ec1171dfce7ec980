// SPDX-License-Identifier: Apache-2.0
// VisionSpec: one point in the space of vision towers and projectors, read from a Hugging Face
// config.json; and the layout of the rows that a picture or a video becomes.
//
// Families differ in these fields and in their tensor names, not in code paths.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/json_fwd.h"
#include "core/result.h"
#include "kernels/rows.h"
#include "runner/prompt.h"

namespace kvgauge {

struct PixelValues;  // images/preprocess.h

// What a patch learns about its place before the first block.
enum class PatchPlaces {
  kNone,          // only rotation, in every block
  kLearned,       // one row of a table each; pictures have one size
  kInterpolated,  // the table is a square that is stretched over the picture
};

enum class TowerNorm { kLayer, kRms };

// The encoder: patches of pixels to hidden states. Blocks are pre-norm, attention is full inside
// a tile, a time slice or a window.
struct TowerSpec {
  int64_t width = 0;
  int64_t layers = 0;      // in the checkpoint
  int64_t run_layers = 0;  // up to the last one that anything reads
  int64_t heads = 0;
  int64_t ffn = 0;
  int64_t patch = 0;   // its sides, in pixels
  int64_t frames = 1;  // that a patch spans
  // Sides of a tile, in pixels; 0: pictures come as patches of a grid of any size.
  int64_t image_height = 0, image_width = 0;

  TowerNorm norm = TowerNorm::kLayer;
  float norm_eps = 1e-5f;
  Activation activation = Activation::kGelu;
  bool gated = false;
  bool patch_bias = false;
  bool class_token = false;
  bool pre_norm = false;   // after the embeddings
  bool post_norm = false;  // on what the projector reads
  bool qkv_fused = false;  // in one matrix
  bool qkv_bias = true;
  bool branch_bias = true;  // of what attention and the MLP write
  bool qk_norm = false;     // RMSNorm over all heads of q and of k together, eps 1e-6
  bool layer_scale = false;

  PatchPlaces places = PatchPlaces::kLearned;
  int64_t place_side = 0;  // kInterpolated
  bool rotary = false;     // half of a head's angles turn by the row, half by the column
  double rotary_base = 10000;
  // Columns turn by the frequencies between those of the rows; else by the same ones.
  bool rotary_between = false;
  // Blocks attend within windows of that many merged rows and columns, except full_layers; 0: none.
  int64_t window = 0;
  std::vector<int64_t> full_layers;

  bool tiled() const { return image_height > 0; }
  int64_t grid_rows() const { return image_height / patch; }  // of a tile
  int64_t grid_columns() const { return image_width / patch; }
};

// From hidden states to rows of the text model's width.
enum class ProjectorKind {
  kTwoLayers,    // linear, activation, linear (LLaVA)
  kShuffledTwo,  // merge x merge rows side by side, LayerNorm, linear, activation, linear
                 // (InternVL)
  kShuffledOne,  // merge x merge rows side by side, linear (Idefics3)
  kPooledOne,    // mean of merge x merge rows, RMSNorm, linear (Gemma-3)
  kMerger,       // norm, merge x merge rows side by side, linear, GELU, linear (Qwen)
};

// How rows of tiles are put together.
enum class Packing {
  kPlain,   // tile after tile, or a grid
  kAnyRes,  // the whole picture, then the canvas of tiles without its padding, a newline after
            // each row (LLaVA-NeXT)
};

enum class VideoPooling { kNone, kMean, kMax, kBilinear };

struct VisionSpec {
  std::string family;  // the config's model_type
  std::string path;    // the config file, for messages
  TowerSpec tower;

  // Hidden states that are read, side by side: 0 is what enters the first block, i the output of
  // block i.
  std::vector<int64_t> feature_layers;
  bool drop_class = false;  // the class token's row is not passed on

  ProjectorKind projector = ProjectorKind::kTwoLayers;
  Activation projector_activation = Activation::kGelu;
  bool projector_bias = true;
  int64_t merge = 1;        // side of the square of rows that becomes one
  int64_t hidden_size = 0;  // of the rows, as the text model's
  // Blocks of the tower behind which hidden states are merged too: rows to add to the hidden states
  // of the first text layers, one after the other (Qwen3-VL).
  std::vector<int64_t> deepstack;

  Packing packing = Packing::kPlain;
  std::vector<std::pair<int32_t, int32_t>> canvases;  // kAnyRes: (height, width)
  int64_t most_canvas_tiles = 0;  // kAnyRes: a larger canvas is shrunk to so many tiles; 0: never
  bool lines_apart = false;       // text stands behind each row of a picture (Pixtral)
  VideoPooling video_pooling = VideoPooling::kNone;
  int64_t video_stride = 2;    // kMean, kMax
  bool video_newline = false;  // one behind a video's last frame

  DType stored_dtype = DType::kF32;
};

// A family whose checkpoints can be read.
struct VisionFamilyInfo {
  std::string_view model_type;
  std::string_view title;
};
// Sorted by model_type.
std::vector<VisionFamilyInfo> VisionFamilies();

// None where the model_type is not one that sees. `origin` begins every message. Keys of
// vision_config that change the result and are not understood are errors that name the key; keys
// of the top level that are not in VisionConfigKeys() are left to the reader of the text model.
Result<std::optional<VisionSpec>> ReadVision(const Json& config, const std::string& origin);
// config.json of a model's directory, or the file itself.
Result<std::optional<VisionSpec>> ReadVisionConfig(const std::string& path);
// Keys beside text_config that ReadVision accounts for.
std::vector<std::string_view> VisionConfigKeys();

// A run of rows that belong together; blocks follow each other without gaps.
struct VisualBlock {
  enum class Kind {
    kWhole,    // all of the picture
    kTile,     // the tile in row tile_row and column tile_column
    kCanvas,   // all tiles as one picture
    kVideo,    // a grid of each of grid[0] times
    kNewline,  // one row that stands for the end of a line
  };
  Kind kind = Kind::kWhole;
  int64_t first = 0, rows = 0;
  std::array<int32_t, 3> grid = {1, 1, 1};  // times, rows, columns; row-major
  bool newlines = false;                    // a newline behind each row of the grid
  bool lines_apart = false;                 // tokens of text stand behind each row of the grid
  int32_t tile_row = -1, tile_column = -1;
};

// The rows of one picture or video in prompt order.
struct VisualLayout {
  int64_t rows = 0;  // so many placeholders a prompt holds for it
  std::vector<VisualBlock> blocks;
};

// Without running anything: `values` of the pixels are not read. Pixels that the tower cannot take
// are an error. `modality` is kImage or kVideo; a video of a model that sees tiles comes as one
// tile a frame.
Result<VisualLayout> LayOutVisual(const VisionSpec& spec, const PixelValues& pixels,
                                  Modality modality);

}  // namespace kvgauge
