// SPDX-License-Identifier: Apache-2.0
// Frames of a video that are like the one before them become one frame, the mean of their rows.
//
// Paper: StreamMem, arXiv:2508.15717, its filter of frames, which comes before its cache. What is
// compared is the cosine of neighbours as they came, so a slow change joins into one run.
#include <algorithm>
#include <cmath>

#include "methods/registry.h"
#include "methods/tile_math.h"

namespace kvgauge {
namespace {

class LikeFrames final : public See {
 public:
  explicit LikeFrames(const Params& params) : above_(params.Real("above")) {}

  SeeNeeds sees() const override { return {.frames = true}; }

  std::vector<int32_t> Join(const FrameView& view) const override {
    std::vector<int32_t> first;
    double before = 0;  // the squared length of the frame before
    for (size_t i = 0; i < view.frames.size(); ++i) {
      const std::span<const float> frame = view.frames[i];
      const double own = Dot(frame, frame);
      const bool alike = i > 0 && Cosine(view.frames[i - 1], frame, before * own) > above_;
      first.push_back(alike ? first.back() : static_cast<int32_t>(i));
      before = own;
    }
    return first;
  }

 private:
  // `lengths`: the product of both squared lengths; without one there is no cosine.
  static double Cosine(std::span<const float> a, std::span<const float> b, double lengths) {
    return lengths > 0 ? std::min(1.0, Dot(a, b) / std::sqrt(lengths)) : -1;
  }

  const double above_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kSee,
    .id = "streammem",
    .paper = "arXiv:2508.15717",
    .summary = "frames of a video that are like the one before become one, by the mean",
    .departures =
        {("the paper does not say what the cosine of two frames is; here it is that of all their "
          "rows together, as the text model would be shown them"),
         ("a frame is compared with the one before it, as it came, and a run of like frames is one "
          "mean, in which each counts as much; it stands in the place of the first"),
         ("all frames of a prompt are filtered at once; the paper filters each clip as it comes, "
          "so that its runs end where a clip does"),
         ("marks and times that stand in the text for a frame that joined another stay")},
    .params = {RealParam("above", 0.95, -1, 1,
                         "frames join where their cosine is larger; 1 joins none")},
    .make = Make<LikeFrames>(),
});

}  // namespace
}  // namespace kvgauge
