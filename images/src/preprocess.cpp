// SPDX-License-Identifier: Apache-2.0
#include "images/preprocess.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/strings.h"
#include "images/decode.h"

namespace kvgauge {
namespace {

struct Extent {
  int32_t height = 0, width = 0;
};
Extent ExtentOf(const Image& image) { return {image.height, image.width}; }

// What becomes of each byte of each channel: rescaled in double, rounded, then normalised in float.
class Levels {
 public:
  explicit Levels(const Preprocessor& p) {
    for (int c = 0; c < 3; ++c) {
      const auto channel = static_cast<size_t>(c);
      for (int level = 0; level < 256; ++level) {
        auto value = static_cast<float>(level);
        if (p.rescale) value = static_cast<float>(level * p.rescale_factor);
        if (p.normalize) value = (value - p.mean[channel]) / p.deviation[channel];
        values_[channel][static_cast<size_t>(level)] = value;
      }
    }
  }
  float Of(int channel, uint8_t level) const {
    return values_[static_cast<size_t>(channel)][level];
  }
  // Appends [3, height, width].
  void AppendPlanes(const Image& tile, std::vector<float>& out) const {
    const size_t pixels = tile.rgb.size() / 3;
    const size_t at = out.size();
    out.resize(at + 3 * pixels);
    for (int c = 0; c < 3; ++c) {
      float* to = out.data() + at + static_cast<size_t>(c) * pixels;
      const uint8_t* from = tile.rgb.data() + c;
      for (size_t i = 0; i < pixels; ++i) to[i] = Of(c, from[3 * i]);
    }
  }

 private:
  std::array<std::array<float, 256>, 3> values_;
};

int32_t FloorHalf(int32_t v) { return v >= 0 ? v / 2 : -((-v + 1) / 2); }

Image CentreCrop(const Image& image, int32_t height, int32_t width) {
  return Crop(image, FloorHalf(image.width - width), FloorHalf(image.height - height), width,
              height);
}

std::array<uint8_t, 3> MeanColour(const Preprocessor& p) {
  std::array<uint8_t, 3> colour;
  for (size_t c = 0; c < 3; ++c) {
    colour[c] = static_cast<uint8_t>(std::clamp(static_cast<double>(p.mean[c]) * 255, 0.0, 255.0));
  }
  return colour;
}
Image PadToSquare(const Image& image, const Preprocessor& p) {
  const int32_t side = std::max(image.width, image.height);
  return Pad(image, (side - image.width) / 2, (side - image.height) / 2, side, side, MeanColour(p));
}

// The shortest edge becomes `edge`, the other follows and is rounded down.
Extent ByShortestEdge(const Extent& image, int32_t edge) {
  const double small = std::min(image.width, image.height);
  const double large = std::max(image.width, image.height);
  const auto other = static_cast<int32_t>(edge * large / small);
  return image.width <= image.height ? Extent{other, edge} : Extent{edge, other};
}

// One tile as CLIP's processor makes it.
Image AsTile(const Preprocessor& p, const Image& image) {
  Image tile = image;
  if (p.resize) {
    const Extent to = p.shortest_edge > 0 ? ByShortestEdge(ExtentOf(image), p.shortest_edge)
                                          : Extent{p.height, p.width};
    tile = Resize(image, to.width, to.height, p.filter, p.pass_order);
  }
  return p.centre_crop ? CentreCrop(tile, p.crop_height, p.crop_width) : tile;
}

PixelValues OfTiles(const Preprocessor& p, const std::vector<Image>& tiles) {
  PixelValues out;
  out.tiles = static_cast<int32_t>(tiles.size());
  out.height = tiles.front().height;
  out.width = tiles.front().width;
  const Levels levels(p);
  out.values.reserve(tiles.size() * tiles.front().rgb.size());
  for (const Image& tile : tiles) levels.AppendPlanes(tile, out.values);
  return out;
}

// Tiles of height x width, row by row.
void CutTiles(const Image& canvas, int32_t height, int32_t width, std::vector<Image>& tiles) {
  for (int32_t top = 0; top < canvas.height; top += height) {
    for (int32_t left = 0; left < canvas.width; left += width) {
      tiles.push_back(Crop(canvas, left, top, std::min(width, canvas.width - left),
                           std::min(height, canvas.height - top)));
    }
  }
}

// The canvas on which most of the picture's pixels survive; of equal ones that which wastes least.
Extent BestCanvas(const Extent& image, const std::vector<std::pair<int32_t, int32_t>>& canvases) {
  Extent best;
  int64_t most = -1, least_waste = 0;
  for (const auto& [height, width] : canvases) {
    const double scale = std::min(static_cast<double>(width) / image.width,
                                  static_cast<double>(height) / image.height);
    const auto scaled =
        static_cast<int64_t>(image.width * scale) * static_cast<int64_t>(image.height * scale);
    const int64_t effective = std::min(scaled, int64_t{image.width} * image.height);
    const int64_t waste = int64_t{width} * height - effective;
    if (effective > most || (effective == most && waste < least_waste)) {
      most = effective;
      least_waste = waste;
      best = {height, width};
    }
  }
  return best;
}
Extent FittedInto(const Image& image, const Extent& canvas) {
  const double across = static_cast<double>(canvas.width) / image.width;
  const double down = static_cast<double>(canvas.height) / image.height;
  if (across < down) {
    const auto height = static_cast<int32_t>(std::ceil(image.height * across));
    return {std::min(height, canvas.height), canvas.width};
  }
  const auto width = static_cast<int32_t>(std::ceil(image.width * down));
  return {canvas.height, std::min(width, canvas.width)};
}

Result<PixelValues> AnyRes(const Preprocessor& p, const Image& image, int64_t pictures) {
  std::vector<Image> tiles;
  const Extent tile =
      p.shortest_edge > 0 ? Extent{p.shortest_edge, p.shortest_edge} : Extent{p.height, p.width};
  int32_t rows = 0, columns = 0;
  if (p.many_as_squares && pictures > 1) {
    tiles.push_back(PadToSquare(image, p));
  } else {
    const Extent canvas = BestCanvas(ExtentOf(image), p.canvases);
    const Extent fitted = FittedInto(image, canvas);
    const Image resized = Resize(image, fitted.width, fitted.height, p.filter, p.pass_order);
    const Image padded = Pad(resized, (canvas.width - fitted.width) / 2,
                             (canvas.height - fitted.height) / 2, canvas.width, canvas.height, {});
    tiles.push_back(Resize(image, tile.width, tile.height, p.filter, p.pass_order));
    const int32_t side = std::min(tile.height, tile.width);
    CutTiles(padded, side, side, tiles);
    rows = canvas.height / side;
    columns = canvas.width / side;
  }
  for (Image& each : tiles) each = AsTile(p, each);
  PixelValues out = OfTiles(p, tiles);
  out.rows = rows;
  out.columns = columns;
  return out;
}

// Columns and rows of tiles whose canvas has the nearest aspect.
Extent NearestAspect(const Preprocessor& p, const Extent& image) {
  std::vector<Extent> grids;
  for (int32_t columns = 1; columns <= p.most_tiles; ++columns) {
    for (int32_t rows = 1; rows <= p.most_tiles; ++rows) {
      const int32_t count = columns * rows;
      if (count >= p.least_tiles && count <= p.most_tiles) grids.push_back({rows, columns});
    }
  }
  std::stable_sort(grids.begin(), grids.end(), [](const Extent& a, const Extent& b) {
    return a.height * a.width < b.height * b.width;
  });
  const double aspect = static_cast<double>(image.width) / image.height;
  const double area = static_cast<double>(image.width) * image.height;
  double least = std::numeric_limits<double>::infinity();
  Extent best = {1, 1};
  for (const Extent& grid : grids) {
    const double off = std::fabs(aspect - static_cast<double>(grid.width) / grid.height);
    if (off < least) {
      least = off;
      best = grid;
    } else if (off == least && area > 0.5 * p.height * p.width * grid.width * grid.height) {
      best = grid;
    }
  }
  return best;
}

PixelValues OnCanvas(const Preprocessor& p, const Image& image) {
  if (!p.split || p.most_tiles <= 1) return OfTiles(p, {AsTile(p, image)});
  const Extent grid = NearestAspect(p, ExtentOf(image));
  std::vector<Image> tiles;
  // The reference resizes the canvas and the thumbnail with its own default filter.
  const Image canvas = Resize(image, grid.width * p.width, grid.height * p.height,
                              ResizeFilter::kBicubic, p.pass_order);
  CutTiles(canvas, p.height, p.width, tiles);
  if (tiles.size() > 1) {
    tiles.push_back(Resize(image, p.width, p.height, ResizeFilter::kBicubic, p.pass_order));
  }
  PixelValues out = OfTiles(p, tiles);
  out.rows = tiles.size() > 1 ? grid.height : 0;
  out.columns = tiles.size() > 1 ? grid.width : 0;
  return out;
}

// The longest edge becomes `edge`; the other follows and is made even.
Extent ByLongestEdge(const Extent& image, int32_t edge) {
  constexpr int32_t kMostSide = 4096;
  const double aspect = static_cast<double>(image.width) / image.height;
  Extent to;
  if (image.width >= image.height) {
    to = {static_cast<int32_t>(edge / aspect), edge};
    to.height += to.height % 2;
  } else {
    to = {edge, static_cast<int32_t>(edge * aspect)};
    to.width += to.width % 2;
  }
  to = {std::max(to.height, 1), std::max(to.width, 1)};
  const double fitted = static_cast<double>(to.width) / to.height;
  if (to.width >= to.height && to.width > kMostSide) {
    to = {static_cast<int32_t>(kMostSide / fitted), kMostSide};
  } else if (to.height > to.width && to.height > kMostSide) {
    to = {kMostSide, static_cast<int32_t>(kMostSide * fitted)};
  }
  return {std::max(to.height, 1), std::max(to.width, 1)};
}
int32_t CeilTo(int32_t value, int32_t unit) { return (value + unit - 1) / unit * unit; }
// Both edges become multiples of a tile's, the longer one first.
Extent ToWholeTiles(const Extent& image, int32_t tile) {
  const double aspect = static_cast<double>(image.width) / image.height;
  if (image.width >= image.height) {
    const int32_t width = CeilTo(image.width, tile);
    return {CeilTo(static_cast<int32_t>(width / aspect), tile), width};
  }
  const int32_t height = CeilTo(image.height, tile);
  return {height, CeilTo(static_cast<int32_t>(height * aspect), tile)};
}

PixelValues Split(const Preprocessor& p, const Image& image) {
  Image whole = image;
  if (p.resize) {
    const Extent to = p.longest_edge > 0 ? ByLongestEdge(ExtentOf(image), p.longest_edge)
                                         : Extent{p.height, p.width};
    whole = Resize(image, to.width, to.height, p.filter, p.pass_order);
  }
  std::vector<Image> tiles;
  int32_t rows = 0, columns = 0;
  if (p.split) {
    const Extent to = ToWholeTiles(ExtentOf(whole), p.height);
    whole = Resize(whole, to.width, to.height, p.filter, p.pass_order);
    if (whole.height > p.height || whole.width > p.width) {
      rows = whole.height / p.height;
      columns = whole.width / p.width;
      CutTiles(whole, p.height, p.width, tiles);
    }
  }
  tiles.push_back(Resize(whole, p.width, p.height, p.filter, p.pass_order));
  PixelValues out = OfTiles(p, tiles);
  out.rows = rows;
  out.columns = columns;
  return out;
}

// Patches of [3, frames, patch, patch], in the order (time, block row, block column, row, column)
// where a block is what the tower merges into one token.
PixelValues PatchesOf(const Preprocessor& p, std::span<const Image* const> pictures) {
  const int32_t time = (static_cast<int32_t>(pictures.size()) + p.frames - 1) / p.frames;
  const int32_t rows = pictures.front()->height / p.patch;
  const int32_t columns = pictures.front()->width / p.patch;
  PixelValues out;
  out.height = pictures.front()->height;
  out.width = pictures.front()->width;
  out.grid = {time, rows, columns};
  const Levels levels(p);
  const size_t patch_values = size_t{3} * static_cast<size_t>(p.frames) *
                              static_cast<size_t>(p.patch) * static_cast<size_t>(p.patch);
  out.values.reserve(static_cast<size_t>(time) * static_cast<size_t>(rows * columns) *
                     patch_values);
  const auto append = [&](int32_t t, int32_t row, int32_t column) {
    for (int c = 0; c < 3; ++c) {
      for (int32_t f = 0; f < p.frames; ++f) {
        // The last frame stands in for those that are missing.
        const auto picture = std::min(static_cast<size_t>(t * p.frames + f), pictures.size() - 1);
        for (int32_t y = 0; y < p.patch; ++y) {
          const uint8_t* from = pictures[picture]->Row(row * p.patch + y) +
                                3 * static_cast<size_t>(column * p.patch) + c;
          for (int32_t x = 0; x < p.patch; ++x) out.values.push_back(levels.Of(c, from[3 * x]));
        }
      }
    }
  };
  for (int32_t t = 0; t < time; ++t) {
    for (int32_t block_row = 0; block_row < rows; block_row += p.merge) {
      for (int32_t block_column = 0; block_column < columns; block_column += p.merge) {
        for (int32_t y = 0; y < p.merge; ++y) {
          for (int32_t x = 0; x < p.merge; ++x) append(t, block_row + y, block_column + x);
        }
      }
    }
  }
  return out;
}

// What AsTile makes of a picture's size.
Extent TileExtent(const Preprocessor& p, Extent image) {
  if (p.resize) {
    image =
        p.shortest_edge > 0 ? ByShortestEdge(image, p.shortest_edge) : Extent{p.height, p.width};
  }
  return p.centre_crop ? Extent{p.crop_height, p.crop_width} : image;
}
int32_t CountOf(int32_t length, int32_t step) { return (length + step - 1) / step; }

// What Preprocess fills in but the numbers, for each kind of tiles.
PixelValues ShapeOfTiles(const Preprocessor& p, const Extent& image, int64_t pictures) {
  PixelValues out;
  Extent tile = TileExtent(p, image);
  int32_t rows = 0, columns = 0;
  out.tiles = 1;
  if (p.kind == PreprocessKind::kWhole && p.pad_to_square) {
    const int32_t side = std::max(image.height, image.width);
    tile = TileExtent(p, {side, side});
  } else if (p.kind == PreprocessKind::kAnyRes) {
    const Extent base =
        p.shortest_edge > 0 ? Extent{p.shortest_edge, p.shortest_edge} : Extent{p.height, p.width};
    const int32_t longest = std::max(image.height, image.width);
    const bool square = p.many_as_squares && pictures > 1;
    tile = TileExtent(p, square ? Extent{longest, longest} : base);
    if (!square) {
      const Extent canvas = BestCanvas(image, p.canvases);
      const int32_t side = std::min(base.height, base.width);
      rows = canvas.height / side;
      columns = canvas.width / side;
      out.tiles += CountOf(canvas.height, side) * CountOf(canvas.width, side);
    }
  } else if (p.kind == PreprocessKind::kCanvas && p.split && p.most_tiles > 1) {
    const Extent grid = NearestAspect(p, image);
    tile = {p.height, p.width};
    if (grid.height * grid.width > 1) {
      rows = grid.height;
      columns = grid.width;
      out.tiles += rows * columns;
    }
  } else if (p.kind == PreprocessKind::kSplit) {
    tile = {p.height, p.width};
    Extent whole = image;
    if (p.resize) {
      whole = p.longest_edge > 0 ? ByLongestEdge(image, p.longest_edge) : tile;
    }
    if (p.split) whole = ToWholeTiles(whole, p.height);
    if (p.split && (whole.height > p.height || whole.width > p.width)) {
      rows = whole.height / p.height;
      columns = whole.width / p.width;
      out.tiles += CountOf(whole.height, p.height) * CountOf(whole.width, p.width);
    }
  }
  out.height = tile.height;
  out.width = tile.width;
  out.rows = rows;
  out.columns = columns;
  return out;
}

// A line of pixels would become billions: padded to a square, or resized by its short edge.
Status CheckWork(const Preprocessor& p, const Extent& image, int64_t pictures) {
  const auto check = [&](const Extent& size) -> Status {
    const int64_t most = ImageLimits().pixels;
    if (int64_t{size.width} * size.height <= most) return {};
    return BadInput(StrCat("a picture of ", image.width, " x ", image.height,
                           " pixels would become one of ", size.width, " x ", size.height,
                           " on its way to the model, more than ", most, " pixels"));
  };
  Extent size = image;
  const bool squared = (p.kind == PreprocessKind::kWhole && p.pad_to_square) ||
                       (p.kind == PreprocessKind::kAnyRes && p.many_as_squares && pictures > 1);
  if (squared) {
    size = {std::max(image.height, image.width), std::max(image.height, image.width)};
    KVG_TRY(check(size));
  }
  const bool whole = p.kind == PreprocessKind::kWhole || squared;
  if (whole && p.resize && p.shortest_edge > 0) return check(ByShortestEdge(size, p.shortest_edge));
  return {};
}

// To the nearest whole number, halves to the even one.
int64_t RoundHalfEven(double v) { return static_cast<int64_t>(std::nearbyint(v)); }

}  // namespace

SeenPart PartSeen(const Preprocessor& p, int32_t height, int32_t width,
                  int64_t pictures_in_prompt) {
  SeenPart part = {0, 0, width, height};
  const bool squared =
      (p.kind == PreprocessKind::kWhole && p.pad_to_square) ||
      (p.kind == PreprocessKind::kAnyRes && p.many_as_squares && pictures_in_prompt > 1);
  if (squared) {
    const int32_t side = std::max(height, width);
    part = {-((side - width) / 2), -((side - height) / 2), side, side};
  }
  const bool uncut = p.kind == PreprocessKind::kWhole || squared ||
                     (p.kind == PreprocessKind::kCanvas && (!p.split || p.most_tiles <= 1));
  if (!uncut || !p.centre_crop) return part;
  Extent to = {part.height, part.width};
  if (p.resize) {
    to = p.shortest_edge > 0 ? ByShortestEdge(to, p.shortest_edge) : Extent{p.height, p.width};
  }
  const double across = static_cast<double>(part.width) / to.width;
  const double down = static_cast<double>(part.height) / to.height;
  const auto scaled = [](double length) { return static_cast<int32_t>(std::lround(length)); };
  part.left += scaled(FloorHalf(to.width - p.crop_width) * across);
  part.top += scaled(FloorHalf(to.height - p.crop_height) * down);
  part.width = std::max(1, scaled(p.crop_width * across));
  part.height = std::max(1, scaled(p.crop_height * down));
  return part;
}

// A larger picture is shrunk by its tighter side, both sides rounded down, then up to patches.
static Result<std::pair<int32_t, int32_t>> SizeWithin(const Preprocessor& p, int32_t height,
                                                      int32_t width) {
  const double ratio =
      std::max(static_cast<double>(height) / p.height, static_cast<double>(width) / p.width);
  int32_t to_height = height, to_width = width;
  if (ratio > 1) {
    to_height = static_cast<int32_t>(std::floor(height / ratio));
    to_width = static_cast<int32_t>(std::floor(width / ratio));
  }
  if (to_height == 0 || to_width == 0) {
    return BadInput(StrCat("the picture is ", width, " x ", height, " pixels; shrunk into ",
                           p.width, " x ", p.height, " nothing is left of its shorter side"));
  }
  const int32_t unit = p.patch * p.merge;
  return std::pair(CeilTo(to_height, unit), CeilTo(to_width, unit));
}

Result<std::pair<int32_t, int32_t>> PatchedSize(const Preprocessor& p, int32_t height,
                                                int32_t width) {
  if (p.fit_within) return SizeWithin(p, height, width);
  const double large = std::max(height, width), small = std::min(height, width);
  if (large / small > 200) {
    return BadInput(StrCat("the picture is ", width, " x ", height,
                           " pixels; one side may be at most 200 times the other"));
  }
  const int64_t unit = int64_t{p.patch} * p.merge;
  const double cell = static_cast<double>(unit), area = static_cast<double>(height) * width;
  int64_t to_height = RoundHalfEven(height / cell) * unit;
  int64_t to_width = RoundHalfEven(width / cell) * unit;
  if (to_height * to_width > p.most_pixels) {
    const double shrink = std::sqrt(area / static_cast<double>(p.most_pixels));
    to_height = std::max(unit, static_cast<int64_t>(std::floor(height / shrink / cell)) * unit);
    to_width = std::max(unit, static_cast<int64_t>(std::floor(width / shrink / cell)) * unit);
  } else if (to_height * to_width < p.least_pixels) {
    const double grow = std::sqrt(static_cast<double>(p.least_pixels) / area);
    to_height = static_cast<int64_t>(std::ceil(height * grow / cell)) * unit;
    to_width = static_cast<int64_t>(std::ceil(width * grow / cell)) * unit;
  }
  if (to_height == 0 || to_width == 0) {
    return BadInput(StrCat("the picture is ", width, " x ", height, " pixels; a side below ",
                           unit / 2, " leaves no patch"));
  }
  return std::pair(static_cast<int32_t>(to_height), static_cast<int32_t>(to_width));
}

// Height and width that are cut into patches.
static Result<std::pair<int32_t, int32_t>> SizeForPatches(const Preprocessor& p, int32_t height,
                                                          int32_t width) {
  if (p.resize) return PatchedSize(p, height, width);
  const int32_t unit = p.patch * p.merge;
  if (height % unit != 0 || width % unit != 0) {
    return BadInput(StrCat("the picture is ", width, " x ", height,
                           " pixels and is not resized; multiples of ", unit, " are right"));
  }
  return std::pair(height, width);
}

// Limits of all frames together.
static Result<std::pair<int32_t, int32_t>> SizeTogether(const Preprocessor& p, int64_t frames,
                                                        int32_t from_height, int32_t from_width) {
  const int64_t unit = int64_t{p.patch} * p.merge;
  const double cell = static_cast<double>(unit);
  if (frames < p.frames) {
    return BadInput(StrCat("the video shows ", frames, frames == 1 ? " frame" : " frames",
                           "; at least ", p.frames, " are right, which make one time"));
  }
  double height = from_height, width = from_width;
  if (height < cell || width < cell) {
    const double scale = std::max(cell / height, cell / width);
    height = std::floor(height * scale);
    width = std::floor(width * scale);
  }
  if (std::max(height, width) / std::min(height, width) > 200) {
    return BadInput(StrCat("a frame is ", from_width, " x ", from_height,
                           " pixels; one side may be at most 200 times the other"));
  }
  const auto n = static_cast<double>(frames);
  int64_t most = p.most_pixels;
  if (p.cap_frames) {
    const int64_t share = std::min(p.video_tokens * unit * unit, p.most_pixels / frames);
    most =
        std::max(share, static_cast<int64_t>(static_cast<double>(p.least_pixels) * 1.05)) * frames;
  }
  const int64_t times = RoundHalfEven(n / p.frames) * p.frames;
  int64_t to_height = RoundHalfEven(height / cell) * unit;
  int64_t to_width = RoundHalfEven(width / cell) * unit;
  if (times * to_height * to_width > most) {
    const double shrink = std::sqrt(n * height * width / static_cast<double>(most));
    to_height = std::max(unit, static_cast<int64_t>(std::floor(height / shrink / cell)) * unit);
    to_width = std::max(unit, static_cast<int64_t>(std::floor(width / shrink / cell)) * unit);
  } else if (times * to_height * to_width < p.least_pixels) {
    const double grow = std::sqrt(static_cast<double>(p.least_pixels) / (n * height * width));
    to_height = static_cast<int64_t>(std::ceil(height * grow / cell)) * unit;
    to_width = static_cast<int64_t>(std::ceil(width * grow / cell)) * unit;
  }
  return std::pair(static_cast<int32_t>(to_height), static_cast<int32_t>(to_width));
}

Result<std::pair<int32_t, int32_t>> PatchedVideoSize(const Preprocessor& p, int64_t frames,
                                                     int32_t height, int32_t width) {
  if (!p.resize) return SizeForPatches(p, height, width);
  if (p.frames_together) return SizeTogether(p, frames, height, width);
  Preprocessor of_frame = p;
  if (p.cap_frames) {
    const int64_t unit = int64_t{p.patch} * p.merge;
    const auto total =
        static_cast<int64_t>(static_cast<double>(p.video_tokens * unit * unit) * 0.9);
    of_frame.most_pixels =
        std::max(std::min(p.most_pixels, total * p.frames / frames),
                 static_cast<int64_t>(static_cast<double>(p.least_pixels) * 1.05));
  }
  return PatchedSize(of_frame, height, width);
}

Result<PixelValues> PreprocessVideo(const Preprocessor& p, std::span<const Image> frames) {
  KVG_CHECK(p.kind == PreprocessKind::kPatches && !frames.empty(), "PreprocessVideo: no patches");
  KVG_ASSIGN(const auto to,
             PatchedVideoSize(p, std::ssize(frames), frames.front().height, frames.front().width));
  std::vector<Image> resized;
  std::vector<const Image*> pictures;
  for (const Image& frame : frames) {
    if (frame.height != frames.front().height || frame.width != frames.front().width) {
      return BadInput(StrCat("a frame is ", frame.width, " x ", frame.height,
                             " pixels, the first is ", frames.front().width, " x ",
                             frames.front().height, "; frames of one video have one size"));
    }
    resized.push_back(Resize(frame, to.second, to.first, p.filter, p.pass_order));
  }
  for (const Image& frame : resized) pictures.push_back(&frame);
  PixelValues out = PatchesOf(p, pictures);
  out.original_height = frames.front().height;
  out.original_width = frames.front().width;
  return out;
}

Result<PixelValues> ShapeOfPixels(const Preprocessor& p, int32_t height, int32_t width,
                                  int64_t pictures_in_prompt) {
  KVG_CHECK(width > 0 && height > 0, "ShapeOfPixels: an empty picture");
  PixelValues out;
  if (p.kind == PreprocessKind::kPatches) {
    KVG_ASSIGN(const auto size, SizeForPatches(p, height, width));
    out.height = size.first;
    out.width = size.second;
    out.grid = {1, size.first / p.patch, size.second / p.patch};
  } else {
    KVG_TRY(CheckWork(p, {height, width}, pictures_in_prompt));
    out = ShapeOfTiles(p, {height, width}, pictures_in_prompt);
  }
  out.original_height = height;
  out.original_width = width;
  return out;
}

Result<PixelValues> Preprocess(const Preprocessor& p, const Image& image,
                               int64_t pictures_in_prompt) {
  KVG_CHECK(image.width > 0 && image.height > 0, "Preprocess: an empty picture");
  KVG_TRY(CheckWork(p, ExtentOf(image), pictures_in_prompt));
  Result<PixelValues> out = PixelValues();
  switch (p.kind) {
    case PreprocessKind::kWhole:
      out = OfTiles(p, {AsTile(p, p.pad_to_square ? PadToSquare(image, p) : image)});
      break;
    case PreprocessKind::kAnyRes:
      out = AnyRes(p, image, pictures_in_prompt);
      break;
    case PreprocessKind::kPatches:
      out = PreprocessVideo(p, std::span(&image, 1));
      break;
    case PreprocessKind::kCanvas:
      out = OnCanvas(p, image);
      break;
    case PreprocessKind::kSplit:
      out = Split(p, image);
      break;
  }
  if (!out.ok()) return out;
  out->original_height = image.height;
  out->original_width = image.width;
  return out;
}

}  // namespace kvgauge
