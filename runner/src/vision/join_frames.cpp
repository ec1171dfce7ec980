// SPDX-License-Identifier: Apache-2.0
// Frames of videos that a stage makes one of, before a prompt shows them.
#include <algorithm>
#include <map>

#include "core/check.h"
#include "runner/vision.h"

namespace kvgauge {
namespace {

// Rows of a visual that are a frame.
struct Frame {
  size_t visual = 0;
  int64_t first = 0, rows = 0;  // of the visual
  bool whole = false;           // the visual is this frame
};

// Frames of one video, one behind the other and alike in shape.
using Run = std::vector<Frame>;

bool IsVideo(const VisualFeatures& visual) {
  return std::ranges::any_of(visual.layout.blocks, [](const VisualBlock& block) {
    return block.kind == VisualBlock::Kind::kVideo;
  });
}

bool SameShape(const VisualFeatures& a, const VisualFeatures& b) {
  return std::ranges::equal(
      a.layout.blocks, b.layout.blocks, [](const VisualBlock& one, const VisualBlock& other) {
        return one.kind == other.kind && one.grid == other.grid && one.newlines == other.newlines;
      });
}

std::vector<Run> RunsOf(std::span<const std::shared_ptr<const VisualFeatures>> visuals,
                        std::span<const int32_t> video_of) {
  std::vector<Run> runs;
  size_t last = 0;  // the picture that the last run ends with, if it is one of pictures
  bool of_pictures = false;
  for (size_t i = 0; i < visuals.size(); ++i) {
    const VisualFeatures& visual = *visuals[i];
    KVG_CHECK(visual.places.empty() && !visual.gone, "frames join before rows are taken out");
    if (IsVideo(visual)) {
      of_pictures = false;
      for (const VisualBlock& block : visual.layout.blocks) {
        if (block.kind != VisualBlock::Kind::kVideo) continue;
        Run& run = runs.emplace_back();
        const int64_t rows = block.rows / block.grid[0];
        for (int64_t t = 0; t < block.grid[0]; ++t)
          run.push_back({i, block.first + t * rows, rows});
      }
      continue;
    }
    if (video_of[i] < 0) {
      of_pictures = false;
      continue;
    }
    const bool goes_on =
        of_pictures && video_of[last] == video_of[i] && SameShape(*visuals[last], visual);
    if (!goes_on) runs.emplace_back();
    runs.back().push_back({i, 0, visual.layout.rows, true});
    of_pictures = true;
    last = i;
  }
  return runs;
}

// What becomes of one visual: the frames that are means, and those that go.
struct Change {
  struct Mean {
    Frame into;
    std::vector<Frame> of;
  };
  std::vector<Mean> means;
  std::vector<Frame> gone;
};

// The mean of frames in one table of rows: VisualFeatures::rows, or one of its deepstack.
template <class TableOf>
void PutMean(const Change::Mean& mean, int64_t width,
             std::span<const std::shared_ptr<const VisualFeatures>> visuals,
             const TableOf& table_of, std::vector<float>& out) {
  const auto at = [&](const Frame& frame) { return static_cast<size_t>(frame.first * width); };
  const auto numbers = static_cast<size_t>(mean.into.rows * width);
  std::vector<double> sum(numbers);
  for (const Frame& frame : mean.of) {
    const std::vector<float>& from = table_of(*visuals[frame.visual]);
    for (size_t i = 0; i < numbers; ++i) sum[i] += double{from[at(frame) + i]};
  }
  for (size_t i = 0; i < numbers; ++i) {
    out[at(mean.into) + i] = static_cast<float>(sum[i] / static_cast<double>(mean.of.size()));
  }
}

std::shared_ptr<const VisualFeatures> Changed(
    const VisualFeatures& visual, const Change& change,
    std::span<const std::shared_ptr<const VisualFeatures>> visuals) {
  auto left = std::make_shared<VisualFeatures>();
  left->layout = visual.layout;
  left->deepstack.resize(visual.deepstack.size());
  if (!change.gone.empty() && change.gone[0].whole) {
    left->gone = true;
    return left;
  }
  left->rows = visual.rows;
  left->deepstack = visual.deepstack;
  const int64_t width = std::ssize(visual.rows) / visual.layout.rows;
  for (const Change::Mean& mean : change.means) {
    PutMean(
        mean, width, visuals,
        [](const VisualFeatures& of) -> const std::vector<float>& { return of.rows; }, left->rows);
    for (size_t layer = 0; layer < left->deepstack.size(); ++layer) {
      PutMean(
          mean, width, visuals,
          [layer](const VisualFeatures& of) -> const std::vector<float>& {
            return of.deepstack[layer];
          },
          left->deepstack[layer]);
    }
  }
  if (change.gone.empty()) return left;
  std::vector<bool> goes(static_cast<size_t>(visual.layout.rows));
  for (const Frame& frame : change.gone) {
    std::fill_n(goes.begin() + frame.first, frame.rows, true);
  }
  for (size_t row = 0; row < goes.size(); ++row) {
    if (!goes[row]) left->places.push_back(static_cast<int32_t>(row));
  }
  const auto keep = [&](std::vector<float>& rows) {
    std::vector<float> kept;
    for (const int32_t place : left->places) {
      const auto from = rows.begin() + place * width;
      kept.insert(kept.end(), from, from + width);
    }
    rows = std::move(kept);
  };
  keep(left->rows);
  for (std::vector<float>& layer : left->deepstack) keep(layer);
  return left;
}

}  // namespace

std::vector<std::shared_ptr<const VisualFeatures>> JoinFrames(
    const See& see, std::span<const std::shared_ptr<const VisualFeatures>> visuals,
    std::span<const int32_t> video_of) {
  KVG_CHECK(visuals.size() == video_of.size(), "each visual is of a video or of none");
  std::map<size_t, Change> changes;
  for (const Run& run : RunsOf(visuals, video_of)) {
    FrameView view;
    for (const Frame& frame : run) {
      const VisualFeatures& visual = *visuals[frame.visual];
      const int64_t width = std::ssize(visual.rows) / visual.layout.rows;
      view.frames.push_back(std::span<const float>(visual.rows)
                                .subspan(static_cast<size_t>(frame.first * width),
                                         static_cast<size_t>(frame.rows * width)));
    }
    const std::vector<int32_t> first = see.Join(view);
    KVG_CHECK(first.size() == run.size(), "a stage must say of each frame what it joins");
    std::map<int32_t, std::vector<Frame>> of;
    for (size_t i = 0; i < run.size(); ++i) {
      const int32_t into = first[i];
      KVG_CHECK(
          into >= 0 && into <= static_cast<int32_t>(i) && first[static_cast<size_t>(into)] == into,
          "a frame joins one that is not shown before it");
      of[into].push_back(run[i]);
      if (into != static_cast<int32_t>(i)) changes[run[i].visual].gone.push_back(run[i]);
    }
    for (const auto& [into, frames] : of) {
      if (frames.size() < 2) continue;
      const Frame& to = run[static_cast<size_t>(into)];
      changes[to.visual].means.push_back({to, frames});
    }
  }
  std::vector<std::shared_ptr<const VisualFeatures>> left(visuals.begin(), visuals.end());
  for (const auto& [visual, change] : changes) {
    left[visual] = Changed(*visuals[visual], change, visuals);
  }
  return left;
}

}  // namespace kvgauge
