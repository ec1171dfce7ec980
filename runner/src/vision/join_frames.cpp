// SPDX-License-Identifier: Apache-2.0
// Frames of videos that a stage makes one of, before a prompt shows them.
#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/guarded.h"
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

// Tables of rows as the host sees them, each fetched once.
class HostTables {
 public:
  HostTables(std::span<const std::shared_ptr<const VisualFeatures>> visuals, MemoryOps& memory)
      : visuals_(visuals), memory_(memory) {}

  // Numbers of a frame in one of VisualRows::tables.
  std::span<const float> Of(const Frame& frame, size_t table) {
    const VisualRows& rows = visuals_[frame.visual]->rows;
    const auto [known, fresh] = tables_.try_emplace({frame.visual, table});
    if (fresh) {
      known->second.numbers = HostNumbers(memory_, rows.tables()[table], known->second.copied);
    }
    return known->second.numbers.subspan(static_cast<size_t>(frame.first * rows.width()),
                                         static_cast<size_t>(frame.rows * rows.width()));
  }

 private:
  struct Table {
    std::vector<float> copied;
    std::span<const float> numbers;
  };
  std::span<const std::shared_ptr<const VisualFeatures>> visuals_;
  MemoryOps& memory_;
  std::map<std::pair<size_t, size_t>, Table> tables_;  // by visual and table
};

// The mean of frames in one of their tables.
std::vector<float> MeanOf(std::span<const Frame> frames, size_t table, HostTables& tables) {
  std::vector<double> sum;
  for (const Frame& frame : frames) {
    const std::span<const float> from = tables.Of(frame, table);
    sum.resize(from.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{from[i]};
  }
  std::vector<float> mean;
  mean.reserve(sum.size());
  for (const double one : sum) {
    mean.push_back(static_cast<float>(one / static_cast<double>(frames.size())));
  }
  return mean;
}

std::shared_ptr<const VisualFeatures> Changed(const VisualFeatures& visual, const Change& change,
                                              HostTables& tables, MemoryOps& memory) {
  auto left = std::make_shared<VisualFeatures>();
  left->layout = visual.layout;
  if (!change.gone.empty() && change.gone[0].whole) {
    left->gone = true;
    return left;
  }
  std::vector<bool> goes(static_cast<size_t>(visual.layout.rows));
  for (const Frame& frame : change.gone) {
    std::fill_n(goes.begin() + frame.first, frame.rows, true);
  }
  std::vector<int64_t> place;  // of each row and the end, among those that stay
  int64_t count = 0;
  for (const bool gone : goes) place.push_back(gone ? count : count++);
  place.push_back(count);
  if (!change.gone.empty()) {
    for (size_t row = 0; row < goes.size(); ++row) {
      if (!goes[row]) left->places.push_back(static_cast<int32_t>(row));
    }
  }
  const std::vector<Tensor>& from = visual.rows.tables();
  left->rows = VisualRows(memory, count, visual.rows.width(), std::ssize(from) - 1);
  for (size_t table = 0; table < from.size(); ++table) {
    const Tensor to = left->rows.tables()[table];
    for (size_t row = 0; row < goes.size();) {
      const size_t first = row;
      while (row < goes.size() && goes[row] == goes[first]) ++row;
      if (goes[first]) continue;
      memory.Copy(from[table].Slice(static_cast<int64_t>(first), static_cast<int64_t>(row)),
                  to.Slice(place[first], place[row]));
    }
    for (const Change::Mean& mean : change.means) {
      const std::vector<float> rows = MeanOf(mean.of, table, tables);
      const int64_t begin = place[static_cast<size_t>(mean.into.first)];
      memory.Copy(View(rows, {mean.into.rows, to.shape[1]}),
                  to.Slice(begin, begin + mean.into.rows));
    }
  }
  return left;
}

}  // namespace

Result<std::vector<std::shared_ptr<const VisualFeatures>>> JoinFrames(
    const See& see, std::span<const std::shared_ptr<const VisualFeatures>> visuals,
    std::span<const int32_t> video_of, MemoryOps& memory) {
  KVG_CHECK(visuals.size() == video_of.size(), "each visual is of a video or of none");
  HostTables tables(visuals, memory);
  std::map<size_t, Change> changes;
  for (const Run& run : RunsOf(visuals, video_of)) {
    FrameView view;
    for (const Frame& frame : run) view.frames.push_back(tables.Of(frame, 0));
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
  KVG_TRY(Guarded([&]() -> Status {
    for (const auto& [visual, change] : changes) {
      left[visual] = Changed(*visuals[visual], change, tables, memory);
    }
    return {};
  }));
  return left;
}

}  // namespace kvgauge
