// SPDX-License-Identifier: Apache-2.0
// Prompts of a wanted length out of a task's samples.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/check.h"
#include "runner/visual_prompt.h"
#include "src/latency/latency_phase.h"

namespace kvgauge {
namespace {

// Text that may be cut anywhere, or a picture with what stands between its pieces.
struct Piece {
  const LatencyTokens* of = nullptr;
  int64_t begin = 0, end = 0;  // of its tokens
  bool whole = false;          // a picture

  int64_t size() const { return end - begin; }
};

void AppendPieces(const LatencyTokens& sample, std::vector<Piece>& pieces) {
  int64_t at = 0;
  const auto text_to = [&](int64_t end) {
    if (end > at) pieces.push_back({&sample, at, end, false});
    at = end;
  };
  for (size_t i = 0; i < sample.spans.size();) {
    const VisualSpan& first = sample.spans[i];
    size_t last = i;
    while (last + 1 < sample.spans.size() && sample.spans[last + 1].index == first.index &&
           sample.spans[last + 1].modality == first.modality) {
      ++last;
    }
    text_to(first.first);
    const VisualSpan& end = sample.spans[last];
    pieces.push_back({&sample, at, end.first + end.count, true});
    at = end.first + end.count;
    i = last + 1;
  }
  text_to(sample.size());
}

// Takes up to `most` tokens from the front (or the back) of pieces[begin, end), whole pictures
// only, and cuts what it takes off. In reading order.
std::vector<Piece> TakeEnd(std::vector<Piece>& pieces, size_t& begin, size_t& end, bool front,
                           int64_t most) {
  std::vector<Piece> taken;
  while (begin < end && most > 0) {
    Piece& piece = front ? pieces[begin] : pieces[end - 1];
    if (piece.whole && piece.size() > most) break;
    Piece part = piece;
    const int64_t count = std::min(most, piece.size());
    if (front) {
      part.end = piece.begin = part.begin + count;
    } else {
      part.begin = piece.end = part.end - count;
    }
    most -= count;
    taken.push_back(part);
    if (piece.size() == 0) front ? ++begin : --end;
  }
  if (!front) std::reverse(taken.begin(), taken.end());
  return taken;
}

void AppendRows(const SampleVisuals& from, int64_t first, int64_t count, SampleVisuals& to) {
  to.hidden_size = from.hidden_size;
  const int64_t end = first + count;
  int64_t at = 0;
  for (const SampleVisuals::Part& part : from.parts) {
    const int64_t begin = std::max(first, at), stop = std::min(end, at + part.count);
    to.Append(part.rows, part.first + begin - at, stop - begin);
    at += part.count;
  }
}

// Which picture of a sample has that row.
const LatencyPicture* PictureAt(const LatencyTokens& sample, int64_t row) {
  for (const LatencyPicture& picture : sample.pictures) {
    if (row < picture.rows) return &picture;
    row -= picture.rows;
  }
  return nullptr;
}

// What See stage `number` leaves of a prompt that shows these pictures.
LatencyTokens LeftOf(const LatencyTokens& whole, const std::vector<const LatencyPicture*>& pictures,
                     size_t number) {
  LatencyTokens left(whole.ids);
  left.spans = whole.spans;
  auto visuals = std::make_shared<SampleVisuals>();
  visuals->hidden_size = whole.visuals->hidden_size;
  std::vector<SeenVisual> seen;
  for (const LatencyPicture* picture : pictures) {
    const LatencyPicture::Left& of = picture->left[number];
    seen.push_back({picture->rows, of.features->places, of.features->gone});
    visuals->Append({of.features, &of.features->rows}, 0, of.features->rows.count());
    left.vision_s += of.vision_s;
  }
  // All frames of a piece that begins within a video may have joined one before it.
  if (visuals->count() > 0) left.visuals = std::move(visuals);
  left.now = ShowLess(seen, left.ids, left.spans);
  return left;
}

// The tokens of the pieces, and the rows of their pictures; pictures are counted anew.
LatencyTokens Joined(const std::vector<Piece>& pieces) {
  LatencyTokens joined;
  auto visuals = std::make_shared<SampleVisuals>();
  int32_t index = -1;
  std::vector<const LatencyPicture*> pictures;
  for (const Piece& piece : pieces) {
    const LatencyTokens& of = *piece.of;
    index += piece.whole;
    bool first = true;
    for (const VisualSpan& span : of.spans) {
      if (span.first < piece.begin || span.first >= piece.end) continue;
      VisualSpan placed = span;
      placed.first += std::ssize(joined.ids) - piece.begin;
      placed.index = index;
      placed.embedding_row = visuals->count();
      AppendRows(*of.visuals, span.embedding_row, span.count, *visuals);
      if (std::exchange(first, false)) pictures.push_back(PictureAt(of, span.embedding_row));
      joined.vision_s +=
          of.vision_s * static_cast<double>(span.count) / static_cast<double>(of.visuals->count());
      joined.spans.push_back(placed);
    }
    joined.ids.insert(joined.ids.end(), of.ids.begin() + piece.begin, of.ids.begin() + piece.end);
  }
  if (joined.spans.empty()) return joined;
  joined.visuals = std::move(visuals);
  const size_t stages = pictures[0] == nullptr ? 0 : pictures[0]->left.size();
  for (size_t i = 0; i < stages; ++i) {
    joined.left.push_back(std::make_shared<LatencyTokens>(LeftOf(joined, pictures, i)));
  }
  return joined;
}

// So many tokens of the pieces' text, again and again.
std::vector<int32_t> Filler(const std::vector<Piece>& pieces, int64_t count) {
  std::vector<int32_t> text, filler;
  for (const Piece& piece : pieces) {
    if (piece.whole) continue;
    text.insert(text.end(), piece.of->ids.begin() + piece.begin, piece.of->ids.begin() + piece.end);
  }
  for (int64_t i = 0; i < count && !text.empty(); ++i) {
    filler.push_back(text[static_cast<size_t>(i) % text.size()]);
  }
  return filler;
}

}  // namespace

LatencyPrompt SamplePrompts(std::vector<LatencyTokens> samples) {
  KVG_CHECK(!samples.empty(), "prompts without samples");
  for (const LatencyTokens& sample : samples) {
    KVG_CHECK(sample.size() > 0, "a sample without tokens");
  }
  const auto shared = std::make_shared<const std::vector<LatencyTokens>>(std::move(samples));
  return [shared](int64_t wanted, int64_t round) -> Result<LatencyTokens> {
    auto at = static_cast<size_t>(round) % shared->size();
    std::vector<Piece> pieces;
    AppendPieces((*shared)[at], pieces);
    for (int64_t size = (*shared)[at].size(); size < wanted;) {
      at = (at + 1) % shared->size();
      AppendPieces((*shared)[at], pieces);
      size += (*shared)[at].size();
    }
    const std::vector<Piece> all = pieces;
    // The instruction stands at the front and the question at the end: both stay.
    size_t begin = 0, end = pieces.size();
    std::vector<Piece> chosen = TakeEnd(pieces, begin, end, true, (wanted + 1) / 2);
    int64_t left = wanted;
    for (const Piece& piece : chosen) left -= piece.size();
    const std::vector<Piece> tail = TakeEnd(pieces, begin, end, false, left);
    for (const Piece& piece : tail) left -= piece.size();
    // Where a picture did not fit.
    LatencyTokens filler(Filler(all, left));
    if (left > 0) {
      if (filler.size() < left) {
        return BadInput(
            "the prompts of the latency phase show pictures and hold no text, expected "
            "a task that asks something");
      }
      chosen.push_back({&filler, 0, left, false});
    }
    chosen.insert(chosen.end(), tail.begin(), tail.end());
    return Joined(chosen);
  };
}

}  // namespace kvgauge
