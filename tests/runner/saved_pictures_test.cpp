// SPDX-License-Identifier: Apache-2.0
// Where the pictures of a saved prompt stand: all comes back, and what cannot be is refused.
#include <gmock/gmock.h>

#include "runner/saved_cache.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// 3 tokens, a picture of 2 lines of 4 with their ends, a tile of which two places are left and one
// row that is of none, two times of a video, 2 tokens.
SavedCache Pictures() {
  SavedCache saved;
  saved.ids.assign(28, 7);
  saved.bytes = "a cache";
  saved.state = "a state";
  VisualSpan whole;
  whole.first = 3;
  whole.count = 10;
  whole.grid = {1, 2, 4};
  whole.newlines = true;
  VisualSpan tile;
  tile.first = 13;
  tile.count = 3;
  tile.piece = VisualSpan::Piece::kTile;
  tile.index = 1;
  tile.grid = {1, 3, 3};
  tile.tile_row = 0;
  tile.tile_column = 2;
  tile.places = {4, -1, 8};
  VisualSpan frames;
  frames.first = 17;
  frames.count = 8;
  frames.modality = Modality::kVideo;
  frames.piece = VisualSpan::Piece::kFrames;
  frames.frame = 6;
  frames.grid = {2, 2, 2};
  saved.spans = {whole, tile, frames};
  return saved;
}

TEST(SavedPictures, ComeBack) {
  const SavedCache saved = Pictures();
  const Result<SavedCache> read = UnpackSaved(PackSaved(saved), "a.kvc");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->ids, saved.ids);
  EXPECT_EQ(read->spans, saved.spans);
  EXPECT_EQ(read->bytes, saved.bytes);
  EXPECT_EQ(read->state, saved.state);
}

// A program that does not know of pictures in files would read where they stand as the cache.
TEST(SavedPictures, AreSaidByTheFirstBytes) {
  SavedCache saved = Pictures();
  EXPECT_EQ(PackSaved(saved).substr(0, 8), "kvgsave3");
  saved.spans.clear();
  EXPECT_EQ(PackSaved(saved).substr(0, 8), "kvgsave2");
}

TEST(SavedPictures, OthersAreRefused) {
  struct Damage {
    void (*make)(SavedCache&);
    const char* message;
  };
  const Damage damages[] = {
      {[](SavedCache& s) { s.ids.resize(2); },
       "pictures of the prompt: their number of pieces is 3; expected 1 .. 1"},
      {[](SavedCache& s) { s.ids.resize(25); },
       "piece 2: its first position is 17; expected 16 .. 16"},
      {[](SavedCache& s) { s.ids.resize(6); },
       "piece 0: its number of positions is 10; of the 5 tokens that were read, 5 are left for it"},
      {[](SavedCache& s) { s.ids.resize(16); },
       "piece 1: its number of positions is 3; of the 15 tokens that were read, 2 are left for it"},
      {[](SavedCache& s) { s.ids.resize(14); },
       "piece 1: its number of positions is 3; of the 13 tokens that were read, 0 are left for it"},
      {[](SavedCache& s) { s.ids.resize(1); },
       "their number of pieces is 3; no number would be right behind those before it"},
      {[](SavedCache& s) { s.ids.clear(); },
       "their number of pieces is 3; no number would be right behind those before it"},
      {[](SavedCache& s) { s.spans[1].first = 12; },
       "piece 1: its first position is 12; expected 13 .. 24"},
      {[](SavedCache& s) { s.spans[0].count = 11; },
       "piece 0: its number of positions is 11; expected 10"},
      {[](SavedCache& s) { s.spans[1].modality = Modality::kText; },
       "piece 1: its modality (1 image, 2 video, 3 audio) is 0; expected 1 .. 3"},
      {[](SavedCache& s) { s.spans[2].piece = static_cast<VisualSpan::Piece>(5); },
       "piece 2: its kind is 5; expected 0 .. 4"},
      {[](SavedCache& s) { s.spans[1].index = -1; },
       "piece 1: the number of its picture is -1; expected 0 .. 1048576"},
      {[](SavedCache& s) { s.spans[2].frame = 1 << 21; },
       "piece 2: its first frame is 2097152; expected 0 .. 1048576"},
      {[](SavedCache& s) { s.spans[1].grid[1] = 0; },
       "piece 1: its number of rows is 0; expected 1 .. 1048576"},
      {[](SavedCache& s) { s.spans[1].tile_row = -2; },
       "piece 1: the row of its tile is -2; expected -1 .. 1048576"},
      {[](SavedCache& s) { s.spans[1].places[2] = 9; },
       "piece 1: one of its places is 9; expected -1 .. 8"},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.message);
    SavedCache saved = Pictures();
    damage.make(saved);
    const Result<SavedCache> read = UnpackSaved(PackSaved(saved), "a.kvc");
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, HasSubstr("a.kvc: pictures of the prompt: "));
    EXPECT_THAT(read.error().message, HasSubstr(damage.message));
  }
}

}  // namespace
}  // namespace kvgauge
