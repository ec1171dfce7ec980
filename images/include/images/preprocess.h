// SPDX-License-Identifier: Apache-2.0
// Pictures to the numbers that a vision tower reads, as preprocessor_config.json says: resized,
// cropped, padded, cut into tiles or patches, rescaled and normalised. Bit for bit what the Pillow
// ("slow") image processors of transformers give. The torchvision ("fast") ones differ in rounding.
//
// A Preprocessor is a value; its functions may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/image.h"
#include "core/json_fwd.h"
#include "core/result.h"
#include "images/resize.h"

namespace kvgauge {

// How a picture becomes tiles or patches.
enum class PreprocessKind {
  kWhole,   // CLIP, SigLIP, LLaVA-1.5, Gemma-3: one tile
  kAnyRes,  // LLaVA-NeXT, LLaVA-OneVision: the whole picture, then tiles of the best-fitting canvas
  kPatches,  // Qwen2-VL and kin: patches of a picture of any size
  kCanvas,   // InternVL (GOT-OCR2): tiles of the canvas of the nearest aspect, then a thumbnail
  kSplit,    // Idefics3, SmolVLM: tiles, then the whole picture
};

struct Preprocessor {
  PreprocessKind kind = PreprocessKind::kWhole;

  bool resize = true;
  ResizeFilter filter = ResizeFilter::kBicubic;
  PassOrder pass_order = PassOrder::kHorizontalFirst;
  // kWhole: the shortest edge, or height x width where that is 0. Other kinds: a tile is height x
  // width. kSplit: the longest edge of the picture, before it is split into tiles.
  int32_t shortest_edge = 0, longest_edge = 0;
  int32_t height = 0, width = 0;
  bool centre_crop = false;
  int32_t crop_height = 0, crop_width = 0;
  bool pad_to_square = false;  // before anything else, with the mean colour

  bool rescale = true;
  double rescale_factor = 1.0 / 255;
  bool normalize = true;
  std::array<float, 3> mean = {}, deviation = {1, 1, 1};

  std::vector<std::pair<int32_t, int32_t>> canvases;  // kAnyRes: (height, width)
  bool many_as_squares = false;  // kAnyRes: several pictures of one prompt are padded, not tiled
  bool split = true;             // kCanvas, kSplit: whether there are tiles at all
  int32_t least_tiles = 1, most_tiles = 12;   // kCanvas
  int32_t patch = 14, merge = 2, frames = 2;  // kPatches
  // kPatches: a larger picture is shrunk until it fits into height x width, and its sides are
  // rounded up to whole patches (Pixtral). Else the pixels below are its bounds.
  bool fit_within = false;
  int64_t least_pixels = 3136, most_pixels = 1003520;  // kPatches; of a picture or a frame
  // kPatches, of videos. The limits are those of all frames together (Qwen3-VL).
  bool frames_together = false;
  // Where set, frames share the pixels of a video, as qwen-vl-utils has it: of `video_tokens` for
  // each frame where limits are together, else of 0.9 `video_tokens` for all.
  bool cap_frames = false;
  int64_t video_tokens = 0;
};

// `origin` names the file in messages. A key that would change pixels and is not known is refused.
Result<Preprocessor> ReadPreprocessor(const Json& config, std::string_view origin);

// The same for the frames of a video, from video_preprocessor_config.json, or
// preprocessor_config.json where that does not exist. `video_class` is the class of a file that
// names none. Which frames are shown is no business of this: keys that choose frames are passed
// over.
Result<Preprocessor> ReadVideoPreprocessor(const Json& config, std::string_view video_class,
                                           std::string_view origin);

struct PixelValues {
  // [tiles, 3, height, width], or [patches, 3 * frames * patch * patch] where `grid` is set.
  std::vector<float> values;
  int32_t tiles = 0, height = 0, width = 0;
  std::array<int32_t, 3> grid = {};  // kPatches: time, rows, columns of patches
  int32_t rows = 0, columns = 0;     // of tiles beside the whole picture; 0: not cut
  int32_t original_height = 0, original_width = 0;
};

// The part of a picture that becomes pixels, in its own pixels: a crop of it, or all of it with
// borders, which lie outside of the picture. Where it is cut into tiles they cover the same part.
struct SeenPart {
  int32_t left = 0, top = 0, width = 0, height = 0;
};
SeenPart PartSeen(const Preprocessor& preprocessor, int32_t height, int32_t width,
                  int64_t pictures_in_prompt = 1);

// `pictures_in_prompt`: how many the prompt holds, this one included.
Result<PixelValues> Preprocess(const Preprocessor& preprocessor, const Image& image,
                               int64_t pictures_in_prompt = 1);
// What Preprocess gives for a picture of that size, without the values: to count before anything is
// decoded.
Result<PixelValues> ShapeOfPixels(const Preprocessor& preprocessor, int32_t height, int32_t width,
                                  int64_t pictures_in_prompt = 1);
// Frames of one size as one video. Precondition: kPatches, and at least one frame.
Result<PixelValues> PreprocessVideo(const Preprocessor& preprocessor,
                                    std::span<const Image> frames);

// The size of each frame of a video for kPatches.
Result<std::pair<int32_t, int32_t>> PatchedVideoSize(const Preprocessor& preprocessor,
                                                     int64_t frames, int32_t height, int32_t width);

// The size a picture gets for kPatches. Refuses sides that differ by more than 200 times, and with
// `fit_within` a picture so thin that a side vanishes.
Result<std::pair<int32_t, int32_t>> PatchedSize(const Preprocessor& preprocessor, int32_t height,
                                                int32_t width);

}  // namespace kvgauge
