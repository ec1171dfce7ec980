// SPDX-License-Identifier: Apache-2.0
#include "images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/check.h"
#include "core/strings.h"

// Loops over pixels in the widest integers the processor has, chosen when the program starts: sums
// of integers are exact, so every form gives the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define KVG_PIXEL_LOOP __attribute__((target_clones("avx2", "default")))
#else
#define KVG_PIXEL_LOOP
#endif

namespace kvgauge {
namespace {

// Weights are fixed-point numbers with this many bits behind the point: 8 bits of a pixel and two
// for sums that overshoot leave 22 of 32.
constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double BoxAt(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
double BilinearAt(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}
double HammingAt(double x) {
  x = std::fabs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}
double BicubicAt(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}
double LanczosAt(double x) { return -3.0 <= x && x < 3.0 ? Sinc(x) * Sinc(x / 3) : 0.0; }

struct Kernel {
  double (*at)(double);
  double support;  // in pixels of the coarser of the two grids
};
Kernel KernelOf(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBox:
      return {BoxAt, 0.5};
    case ResizeFilter::kBilinear:
      return {BilinearAt, 1.0};
    case ResizeFilter::kHamming:
      return {HammingAt, 1.0};
    case ResizeFilter::kBicubic:
      return {BicubicAt, 2.0};
    case ResizeFilter::kLanczos:
    case ResizeFilter::kNearest:
      break;
  }
  return {LanczosAt, 3.0};
}

// What each output pixel of an axis is made of: `count` pixels of the input from `first` on.
struct AxisWeights {
  struct Span {
    int32_t first = 0, count = 0;
  };
  std::vector<Span> spans;       // one an output pixel
  std::vector<int32_t> weights;  // `most` an output pixel, fixed point
  int32_t most = 0;

  const int32_t* Of(int32_t i) const {
    return weights.data() + static_cast<size_t>(i) * static_cast<size_t>(most);
  }
};

AxisWeights WeightsOf(int32_t in, int32_t out, ResizeFilter filter) {
  const Kernel kernel = KernelOf(filter);
  const double scale = static_cast<double>(in) / out, stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch, shrink = 1.0 / stretch;
  AxisWeights axis;
  axis.most = static_cast<int32_t>(std::ceil(support)) * 2 + 1;
  axis.spans.resize(static_cast<size_t>(out));
  axis.weights.resize(static_cast<size_t>(out) * static_cast<size_t>(axis.most));
  std::vector<double> exact(static_cast<size_t>(axis.most));
  for (int32_t i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    // Towards zero, as Pillow does.
    const double before = centre - support + 0.5, behind = centre + support + 0.5;
    const int32_t first = std::max(static_cast<int32_t>(before), 0);
    const int32_t end = std::min(static_cast<int32_t>(behind), in);
    const int32_t count = end - first;
    double sum = 0;
    for (int32_t k = 0; k < count; ++k) {
      const double weight = kernel.at((k + first - centre + 0.5) * shrink);
      exact[static_cast<size_t>(k)] = weight;
      sum += weight;
    }
    int32_t* to = axis.weights.data() + static_cast<size_t>(i) * static_cast<size_t>(axis.most);
    for (int32_t k = 0; k < count; ++k) {
      double weight = exact[static_cast<size_t>(k)];
      if (sum != 0.0) weight /= sum;
      weight *= 1 << kWeightBits;
      to[k] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    axis.spans[static_cast<size_t>(i)] = {first, count};
  }
  return axis;
}

uint8_t ToByte(int32_t fixed) {
  return static_cast<uint8_t>(std::clamp(fixed >> kWeightBits, 0, 255));
}

// Four bytes a pixel, so that a pixel's channels move as one.
KVG_PIXEL_LOOP void WidenRow(const uint8_t* rgb, int32_t width, int32_t* lanes) {
  for (int32_t i = 0; i < width; ++i) {
    for (int c = 0; c < 3; ++c) lanes[4 * i + c] = rgb[3 * i + c];
    lanes[4 * i + 3] = 0;
  }
}

KVG_PIXEL_LOOP void SumPixels(const int32_t* pixels, const int32_t* weights, int32_t count,
                              int32_t* sums) {
  int32_t lanes[4] = {kHalf, kHalf, kHalf, 0};
  for (int32_t k = 0; k < count; ++k) {
    for (int c = 0; c < 4; ++c) lanes[c] += pixels[4 * k + c] * weights[k];
  }
  for (int c = 0; c < 4; ++c) sums[c] = lanes[c];
}

KVG_PIXEL_LOOP void AddRow(const uint8_t* row, int32_t weight, size_t bytes, int32_t* sums) {
  for (size_t j = 0; j < bytes; ++j) sums[j] += row[j] * weight;
}
KVG_PIXEL_LOOP void StoreRow(const int32_t* sums, size_t bytes, uint8_t* row) {
  for (size_t j = 0; j < bytes; ++j) row[j] = ToByte(sums[j]);
}

// Rows [first, end) alone are needed of the result; they come first in it.
Image ResizeWidth(const Image& image, const AxisWeights& axis, int32_t first, int32_t end) {
  const auto width = static_cast<int32_t>(axis.spans.size());
  Image out = Image::OfSize(width, end - first);
  std::vector<int32_t> lanes(static_cast<size_t>(image.width) * 4);
  for (int32_t y = first; y < end; ++y) {
    WidenRow(image.Row(y), image.width, lanes.data());
    uint8_t* row = out.Row(y - first);
    for (int32_t i = 0; i < width; ++i) {
      const AxisWeights::Span span = axis.spans[static_cast<size_t>(i)];
      int32_t sums[4];
      SumPixels(lanes.data() + 4 * static_cast<size_t>(span.first), axis.Of(i), span.count, sums);
      for (int c = 0; c < 3; ++c) row[3 * i + c] = ToByte(sums[c]);
    }
  }
  return out;
}

// Row y of the input lies at row y - offset of `image`.
Image ResizeHeight(const Image& image, const AxisWeights& axis, int32_t offset) {
  const auto height = static_cast<int32_t>(axis.spans.size());
  Image out = Image::OfSize(image.width, height);
  const size_t bytes = image.RowBytes();
  std::vector<int32_t> sums(bytes);
  for (int32_t i = 0; i < height; ++i) {
    const AxisWeights::Span span = axis.spans[static_cast<size_t>(i)];
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int32_t k = 0; k < span.count; ++k) {
      AddRow(image.Row(span.first + k - offset), axis.Of(i)[k], bytes, sums.data());
    }
    StoreRow(sums.data(), bytes, out.Row(i));
  }
  return out;
}

// The middle of each output pixel, found by repeated addition as the reference does.
std::vector<int32_t> NearestOf(int32_t in, int32_t out) {
  const double step = static_cast<double>(in) / out;
  std::vector<int32_t> from(static_cast<size_t>(out));
  double at = step * 0.5;
  for (int32_t& pixel : from) {
    pixel = std::min(static_cast<int32_t>(at), in - 1);
    at += step;
  }
  return from;
}

Image ResizeNearest(const Image& image, int32_t width, int32_t height) {
  Image out = Image::OfSize(width, height);
  const std::vector<int32_t> columns = NearestOf(image.width, width);
  const std::vector<int32_t> rows = NearestOf(image.height, height);
  for (int32_t y = 0; y < height; ++y) {
    const uint8_t* from = image.Row(rows[static_cast<size_t>(y)]);
    uint8_t* to = out.Row(y);
    for (const int32_t column : columns) {
      std::memcpy(to, from + 3 * static_cast<size_t>(column), 3);
      to += 3;
    }
  }
  return out;
}

}  // namespace

std::string_view NameOf(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kNearest:
      return "nearest";
    case ResizeFilter::kBilinear:
      return "bilinear";
    case ResizeFilter::kBicubic:
      return "bicubic";
    case ResizeFilter::kLanczos:
      return "lanczos";
    case ResizeFilter::kBox:
      return "box";
    case ResizeFilter::kHamming:
      return "hamming";
  }
  return "?";
}

Result<ResizeFilter> ResizeFilterOf(int pillow_number) {
  constexpr ResizeFilter kFilters[] = {ResizeFilter::kNearest,  ResizeFilter::kLanczos,
                                       ResizeFilter::kBilinear, ResizeFilter::kBicubic,
                                       ResizeFilter::kBox,      ResizeFilter::kHamming};
  if (pillow_number < 0 || pillow_number > 5) {
    return BadInput(StrCat("resample is ", pillow_number,
                           "; 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming"));
  }
  return kFilters[pillow_number];
}

Image Resize(const Image& image, int32_t width, int32_t height, ResizeFilter filter,
             PassOrder order) {
  KVG_CHECK(image.width > 0 && image.height > 0 && width > 0 && height > 0, "Resize: empty");
  if (width == image.width && height == image.height) return image;
  if (filter == ResizeFilter::kNearest) return ResizeNearest(image, width, height);
  const AxisWeights across = WeightsOf(image.width, width, filter);
  const AxisWeights down = WeightsOf(image.height, height, filter);
  if (height == image.height) return ResizeWidth(image, across, 0, height);
  if (width == image.width) return ResizeHeight(image, down, 0);
  const int64_t height_lost = int64_t{image.height} - height;
  const int64_t width_lost = int64_t{image.width} - width;
  if (order == PassOrder::kPillow13 && height_lost > 0 && height_lost > 2 * width_lost) {
    return ResizeWidth(ResizeHeight(image, down, 0), across, 0, height);
  }
  const int32_t first = down.spans.front().first;
  const int32_t end = down.spans.back().first + down.spans.back().count;
  return ResizeHeight(ResizeWidth(image, across, first, end), down, first);
}

Image Crop(const Image& image, int32_t left, int32_t top, int32_t width, int32_t height) {
  Image out = Image::OfSize(width, height);
  const int32_t first = std::max(left, 0);
  const int32_t end = static_cast<int32_t>(std::min(int64_t{left} + width, int64_t{image.width}));
  if (end <= first) return out;
  for (int32_t y = 0; y < height; ++y) {
    const int64_t from = int64_t{top} + y;
    if (from < 0 || from >= image.height) continue;
    std::memcpy(out.Row(y) + 3 * static_cast<size_t>(first - left),
                image.Row(static_cast<int32_t>(from)) + 3 * static_cast<size_t>(first),
                3 * static_cast<size_t>(end - first));
  }
  return out;
}

Image Pad(const Image& image, int32_t left, int32_t top, int32_t width, int32_t height,
          std::array<uint8_t, 3> colour) {
  KVG_CHECK(left >= 0 && top >= 0 && left + image.width <= width && top + image.height <= height,
            "Pad: the image does not fit");
  Image out = Image::OfSize(width, height);
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = colour[i % 3];
  for (int32_t y = 0; y < image.height; ++y) {
    std::memcpy(out.Row(top + y) + 3 * static_cast<size_t>(left), image.Row(y), image.RowBytes());
  }
  return out;
}

}  // namespace kvgauge
