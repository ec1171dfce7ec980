// SPDX-License-Identifier: Apache-2.0
#include "src/cache/saved_pictures.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"
#include "methods/state_fields.h"

namespace kvgauge {
namespace {

// No picture or video has more of anything; places in a grid of these are no overflow.
constexpr int64_t kMostShown = int64_t{1} << 20;

template <class Number>
Status FieldAs(StateFields& fields, std::string_view what, int64_t least, int64_t most,
               Number* number) {
  auto wide = static_cast<int64_t>(*number);
  KVG_TRY(fields.Number(what, least, most, &wide));
  *number = static_cast<Number>(wide);
  return {};
}

// A piece stands in [begin, end).
Status FieldsOfPiece(StateFields& fields, const std::string& name, int64_t begin, int64_t end,
                     VisualSpan& span) {
  KVG_TRY(FieldAs(fields, "its modality (1 image, 2 video, 3 audio)", 1, kModalities - 1,
                  &span.modality));
  KVG_TRY(FieldAs(fields, "its kind", 0, static_cast<int64_t>(VisualSpan::Piece::kNewline),
                  &span.piece));
  KVG_TRY(FieldAs(fields, "the number of its picture", 0, kMostShown, &span.index));
  KVG_TRY(FieldAs(fields, "its first frame", 0, kMostShown, &span.frame));
  const char* const sides[] = {"its number of times", "its number of rows",
                               "its number of columns"};
  for (size_t i = 0; i < span.grid.size(); ++i) {
    KVG_TRY(FieldAs(fields, sides[i], 1, kMostShown, &span.grid[i]));
  }
  KVG_TRY(fields.Flag("whether its rows have ends", &span.newlines));
  KVG_TRY(FieldAs(fields, "the row of its tile", -1, kMostShown, &span.tile_row));
  KVG_TRY(FieldAs(fields, "the column of its tile", -1, kMostShown, &span.tile_column));
  const int64_t all =
      int64_t{span.grid[0]} * span.grid[1] * (span.grid[2] + (span.newlines ? 1 : 0));
  bool some = !span.places.empty();
  KVG_TRY(fields.Flag("whether it shows some places of its grid", &some));
  KVG_TRY(fields.Number("its number of positions", some ? 1 : all, some ? kMostShown : all,
                        &span.count));
  if (span.count > end - begin) {
    return BadInput(StrCat(name, ": its number of positions is ", span.count, "; of the ", end,
                           " tokens that were read, ", end - begin, " are left for it"));
  }
  KVG_TRY(fields.Number("its first position", begin, end - span.count, &span.first));
  if (!some) return {};
  std::vector<int64_t> places(span.places.begin(), span.places.end());
  KVG_TRY(fields.Numbers("one of its places", span.count, -1, std::min<int64_t>(all - 1, INT32_MAX),
                         &places));
  span.places.clear();
  for (const int64_t place : places) span.places.push_back(static_cast<int32_t>(place));
  return {};
}

// `Bytes`: a string to write behind, or a view to take from.
template <class Bytes>
Status PictureFields(Bytes* bytes, int64_t tokens, std::vector<VisualSpan>* spans) {
  StateFields all(bytes, "pictures of the prompt");
  int64_t count = std::ssize(*spans), begin = 0;
  KVG_TRY(all.Number("their number of pieces", 1, tokens, &count));
  spans->resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    VisualSpan& span = (*spans)[static_cast<size_t>(i)];
    const std::string name = StrCat("pictures of the prompt: piece ", i);
    StateFields fields(bytes, name);
    KVG_TRY(FieldsOfPiece(fields, name, begin, tokens, span));
    begin = span.first + span.count;
  }
  return {};
}

}  // namespace

void PutPictures(const std::vector<VisualSpan>& spans, std::string& out) {
  std::vector<VisualSpan> written = spans;
  const int64_t tokens = spans.back().first + spans.back().count;
  KVG_CHECK(PictureFields(&out, tokens, &written).ok(), "writing refuses nothing");
}

Status TakePictures(std::string_view& in, int64_t tokens, std::vector<VisualSpan>* spans) {
  return PictureFields(&in, tokens, spans);
}

}  // namespace kvgauge
