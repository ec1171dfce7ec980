// SPDX-License-Identifier: Apache-2.0
// Device functions: a block's queries, and their scores over one page.
//
// A block holds `tiles` times 16 rows. Warp w takes entries 16 (w % 4) and the 15 after of a page;
// with more than 4 warps, w / 4 and every (warps / 4)th after it of the tiles.
#pragma once

#include "cuda/attention_math.h"
#include "cuda/codec_number.h"
#include "cuda/page_element.h"

namespace kvgauge::cuda {

inline constexpr int kChunk = 64;      // dims of keys that are expanded at a time
inline constexpr int kLoadsAhead = 8;  // of 16 bytes
inline constexpr int kSixteenths = 4;  // of a page

struct PageSight {
  bool any;  // some row may see some entry
  bool all;  // every row sees every entry
};

// The last entry that row r of a tile sees, counted among its head's.
KVG_DEVICE_CALL int LastSeen(const RowTile& tile, int r) {
  const int i = tile.item_row(r);
  return tile.index0 + i + (tile.ahead == nullptr ? 0 : tile.ahead[i]);
}

// The same for all threads of a block. Masked pages that are not read may be absent.
KVG_DEVICE_CALL PageSight SightOf(const AttendCall& call, const SegmentView& segment,
                                  const RowTile& tile, int rows_of_block, int page) {
  const int begin = page * kPageEntries, end = Least(begin + kPageEntries, segment.length);
  const int first = segment.first + begin;
  const int least = tile.index0 + tile.item_row(0);
  const int most = tile.index0 + tile.item_row(tile.count - 1);
  PageSight sight = {begin < end && first <= LastSeen(tile, tile.count - 1),
                     begin >= segment.skip && begin + kPageEntries <= segment.length &&
                         first + kPageEntries - 1 <= least && tile.count == rows_of_block};
  if (!sight.any) return sight;
  if (call.window > 0) {
    if (segment.positions != nullptr) {
      const int token = tile.token0 + tile.item_row(0);
      sight.any = segment.positions[end - 1] > token - ReachOf(call.window, call.chunked, token);
      sight.all = false;
    } else {
      sight.any = segment.first + end - 1 > least - ReachOf(call.window, call.chunked, least);
      sight.all = sight.all && first > most - ReachOf(call.window, call.chunked, most);
    }
  }
  if (segment.read != nullptr) {
    sight.all = false;
    uint64_t words = 0;
    for (int g = 0; g < tile.group; ++g) words |= segment.read[tile.mask_head0 + g][page];
    sight.any = sight.any && words != 0;
  }
  return sight;
}

// Which of four entries of its sixteenth of a page a lane's row r sees: bits 0, 1, 8 and 9. The
// entries are 2t, 2t + 1, 2t + 8, 2t + 9.
KVG_DEVICE uint32_t SeenBits(const AttendCall& call, const SegmentView& segment,
                             const RowTile& tile, int page, int sixteenth, int r) {
  if (r >= tile.count) return 0;
  const int i = tile.item_row(r);
  const int slot = sixteenth * 16 + Lane() % 4 * 2;
  const int begin = page * kPageEntries;
  const int index = tile.index0 + i - segment.first - begin;  // the row's own, in this page
  const int last = LastSeen(tile, r) - segment.first - begin;
  // Counted in slots from this lane's first.
  const int end = Least(last + 1, segment.length - begin) - slot;
  uint32_t bits = end <= 0 ? 0u : end >= 16 ? 0xffffu : (1u << end) - 1u;
  const int skipped = segment.skip - begin - slot;
  if (skipped > 0) bits = skipped >= 16 ? 0u : bits & (~0u << skipped);
  if (call.window > 0 && segment.positions == nullptr) {
    const int reach = ReachOf(call.window, call.chunked, tile.index0 + i);
    const int gone = index - reach + 1 - slot;
    bits = gone <= 0 ? bits : gone >= 16 ? 0u : bits & (~0u << gone);
  } else if (call.window > 0) {
    const int token = tile.token0 + i;
    const int hidden = token - ReachOf(call.window, call.chunked, token);
    for (int k = 0; k < 16; ++k) {
      const int entry = begin + slot + k;
      if ((0x303 >> k & 1) == 0 || entry >= segment.length) continue;
      if (segment.positions[entry] <= hidden) bits &= ~(1u << k);
    }
  }
  if (segment.read != nullptr) {
    const int head = tile.mask_head0 + (tile.r0 + r) % tile.group;
    bits &= static_cast<uint32_t>(segment.read[head][page] >> slot);
  }
  return bits;
}

// Products become scores, or -inf where a row does not see an entry. The lane's rows are first_row
// + 16 m + g and 8 after: scores[m][8 entries][2 of g, 2 of g + 8].
template <int tiles>
KVG_DEVICE void FinishScores(const AttendCall& call, const SegmentView& segment,
                             const RowTile& tile, int first_row, bool all_seen, int page,
                             int sixteenth, float (&scores)[tiles][2][4]) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int i = 0; i < 8; ++i) scores[m][i / 4][i % 4] = scores[m][i / 4][i % 4] * call.factor;
  }
  if (segment.key_scale != nullptr || segment.bias != nullptr || call.cap > 0) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int entry = page * kPageEntries + sixteenth * 16 + c / 2 * 8 + Lane() % 4 * 2 + c % 2;
      const bool held = entry < segment.length;
      const float scale = segment.key_scale != nullptr && held ? segment.key_scale[entry] : 1.0f;
      const float bias = segment.bias != nullptr && held ? segment.bias[entry] * kLog2E : 0.0f;
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& s = scores[m][c / 2][h * 2 + c % 2];
          s = s * scale;
          if (call.cap > 0) s = Capped(call.cap, s);
          s = s + bias;
        }
      }
    }
  }
  if (segment.read_bias != nullptr) {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = first_row + m * 16 + h * 8 + Lane() / 4;
        const float* own = segment.read_bias[tile.mask_head0 + (tile.r0 + r) % tile.group];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int entry =
              page * kPageEntries + sixteenth * 16 + c / 2 * 8 + Lane() % 4 * 2 + c % 2;
          if (r >= tile.count || entry >= segment.length) continue;
          float& s = scores[m][c / 2][h * 2 + c % 2];
          s = s + own[entry] * kLog2E;
        }
      }
    }
  }
  if (all_seen) return;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t bits =
          SeenBits(call, segment, tile, page, sixteenth, first_row + m * 16 + h * 8 + Lane() / 4);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float& s = scores[m][c / 2][h * 2 + c % 2];
        s = (bits >> (c / 2 * 8 + c % 2) & 1u) != 0 ? s : kNothing;
      }
    }
  }
}

// Null: the tile has no row r.
KVG_DEVICE const float* QueryRow(const AttendCall& call, const RowTile& tile, int r) {
  if (r >= tile.count) return nullptr;
  const int64_t row = tile.first_row + tile.item_row(r);
  return call.q + row * call.q_stride + tile.head(r) * call.q_head_stride;
}
KVG_DEVICE float QueryAt(const AttendCall& call, const RowTile& tile, int r, int dim) {
  const float* const row = QueryRow(call, tile, r);
  return row == nullptr || dim >= call.key_dim ? 0.0f : row[dim];
}

// Queries as left operands: [tile][16 dims][lane].
template <DType type, int tiles>
KVG_DEVICE void PackQueries(const AttendCall& call, const RowTile& tile, Uint4* packed) {
  const int chunks = (call.key_dim + 15) / 16, warps = BlockThreads() / kWarp;
  for (int m = 0; m < tiles; ++m) {
    const int r = m * 16 + Lane() / 4;
    const float *const near = QueryRow(call, tile, r), *const far = QueryRow(call, tile, r + 8);
    for (int chunk = WarpIndex(); chunk < chunks; chunk += warps) {
      const int d = chunk * 16 + Lane() % 4 * 2;
      const auto at = [&](const float* row, int dim) {
        return row == nullptr || dim >= call.key_dim ? 0.0f : row[dim];
      };
      const auto pair = [&](const float* row, int dim) {
        return Pack<type>(at(row, dim), at(row, dim + 1));
      };
      packed[(m * chunks + chunk) * kWarp + Lane()] = {pair(near, d), pair(far, d),
                                                       pair(near, d + 8), pair(far, d + 8)};
    }
  }
}

// Dims of expanded keys in the order they are summed in: those of a pair that turns together follow
// each other.
KVG_DEVICE int DimAt(const AttendCall& call, const SegmentView& segment, int position) {
  const bool pairs = segment.rotation != nullptr && call.rope_half;
  if (!pairs || position >= 2 * call.rope_pairs) return position;
  return position / 2 + position % 2 * call.rope_pairs;
}
// How many dims expanded keys have: latents that are not rotated are met as they are, by queries
// that were projected.
KVG_DEVICE int ExpandedDims(const AttendCall& call, const SegmentView& segment) {
  return segment.keys.basis.data != nullptr && segment.rotation == nullptr ? segment.keys.dim
                                                                           : call.key_dim;
}

// Queries as f32, as expanded keys meet them: [position][row].
template <DType type, int tiles>
KVG_DEVICE_CALL void ExpandQueries(const AttendCall& call, const SegmentView& segment,
                                   const RowTile& tile, float* expanded) {
  constexpr int kRows = tiles * 16;
  const int dims = ExpandedDims(call, segment);
  const MatrixView& basis = segment.keys.basis;
  const bool projected = basis.data != nullptr && segment.rotation == nullptr;
  for (int i = Thread(); i < dims * kRows; i += BlockThreads()) {
    const int r = i % kRows, position = i / kRows;
    if (!projected) {
      expanded[i] = RoundTo(type, QueryAt(call, tile, r, DimAt(call, segment, position)));
      continue;
    }
    float sum = 0.0f;
    for (int d = 0; d < call.key_dim && r < tile.count; ++d) {
      sum = Fma(RoundTo(type, QueryAt(call, tile, r, d)), basis.data[d * basis.stride + position],
                sum);
    }
    expanded[i] = sum;
  }
}

// A number of an entry as stored, coded or not.
KVG_DEVICE float StoredNumber(const SideView& side, const PageLayout& layout, bool keys, int page,
                              int slot, int dim) {
  if (page * kPageEntries + slot < side.coded_entries) {
    return DecodedNumber(*side.codec, side.coded[page], slot, dim);
  }
  return PageElement(layout.dtype, side.pages[page],
                     keys ? layout.KeyIndex(slot, dim) : layout.ValueIndex(slot, dim));
}

// Entries that nobody stored are 0.
KVG_DEVICE_CALL float NumberOf(const SegmentView& segment, bool keys, int page, int slot, int dim) {
  if (page * kPageEntries + slot >= segment.length) return 0.0f;
  return StoredNumber(keys ? segment.keys : segment.values, segment.stored, keys, page, slot, dim);
}

// Positions [begin, begin + count) of expanded keys of a page, as f32 [position][64]. `latents` has
// the same size. Reached by all threads.
KVG_DEVICE_CALL void ExpandKeys(const AttendCall& call, const SegmentView& segment, int page,
                                int begin, int count, float* keys, float* latents) {
  const MatrixView& basis = segment.keys.basis;
  if (basis.data == nullptr || segment.rotation == nullptr) {
    for (int i = Thread(); i < count * kPageEntries; i += BlockThreads()) {
      keys[i] = NumberOf(segment, true, page, i % kPageEntries,
                         DimAt(call, segment, begin + i / kPageEntries));
    }
  } else {
    constexpr int kMost = kChunk * kPageEntries / 128;  // of a thread
    float sums[kMost] = {};
    for (int l0 = 0; l0 < segment.keys.dim; l0 += kChunk) {
      const int some = Least(kChunk, segment.keys.dim - l0);
      SyncBlock();
      for (int i = Thread(); i < some * kPageEntries; i += BlockThreads()) {
        latents[i] = NumberOf(segment, true, page, i % kPageEntries, l0 + i / kPageEntries);
      }
      SyncBlock();
      for (int k = 0; k < kMost; ++k) {
        const int i = Thread() + k * BlockThreads();
        if (i >= count * kPageEntries) break;
        const float* row =
            basis.data + DimAt(call, segment, begin + i / kPageEntries) * basis.stride + l0;
        for (int l = 0; l < some; ++l) {
          sums[k] = Fma(row[l], latents[l * kPageEntries + i % kPageEntries], sums[k]);
        }
      }
    }
    for (int k = 0; k < kMost; ++k) {
      const int i = Thread() + k * BlockThreads();
      if (i < count * kPageEntries) keys[i] = sums[k];
    }
  }
  if (segment.rotation == nullptr) return;
  SyncBlock();
  const int pairs = (Least(begin + count, 2 * call.rope_pairs) - begin) / 2;
  for (int i = Thread(); i < pairs * kPageEntries; i += BlockThreads()) {
    const int entry = page * kPageEntries + i % kPageEntries, pair = begin / 2 + i / kPageEntries;
    if (entry >= segment.length) continue;
    const int at = segment.rotation[entry];
    const float cos = call.cos.data[pair * call.cos.stride + at];
    const float sin = call.sin.data[pair * call.sin.stride + at];
    float& x = keys[i / kPageEntries * 2 * kPageEntries + i % kPageEntries];
    float& y = (&x)[kPageEntries];
    const float turned = x * cos - y * sin;
    y = y * cos + x * sin;
    x = turned;
  }
}

// How the keys of a page are multiplied.
template <DType type>
KVG_DEVICE bool KeysAsTheyLie(const SegmentView& segment, int page) {
  return type != DType::kF32 && !segment.numbers &&
         page * kPageEntries >= segment.keys.coded_entries;
}

// Products of this warp's rows with its sixteenth of a 16-bit page.
template <DType type, int tiles>
KVG_DEVICE void MultiplyKeys(const void* page, int chunks, const Uint4* queries, int sixteenth,
                             int first_tile, int tile_step, float (&scores)[tiles][2][4]) {
  const Uint4* const keys = static_cast<const Uint4*>(page) + sixteenth * chunks * kWarp + Lane();
  for (int begin = 0; begin < chunks; begin += kLoadsAhead) {
    Uint4 loaded[kLoadsAhead];
#pragma unroll
    for (int k = 0; k < kLoadsAhead; ++k) {
      if (begin + k < chunks) loaded[k] = keys[(begin + k) * kWarp];
    }
#pragma unroll
    for (int k = 0; k < kLoadsAhead; ++k) {
      if (begin + k >= chunks) continue;
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        if (m % tile_step != first_tile) continue;
        const Uint4 a = queries[(m * chunks + begin + k) * kWarp + Lane()];
        MultiplyAdd<type>(scores[m][0], a, loaded[k].x, loaded[k].y);
        MultiplyAdd<type>(scores[m][1], a, loaded[k].z, loaded[k].w);
      }
    }
  }
}

// The same with expanded keys of some positions.
template <int tiles>
KVG_DEVICE void MultiplyNumbers(const float* keys, int count, const float* queries, int sixteenth,
                                int first_tile, int tile_step, float (&scores)[tiles][2][4]) {
  constexpr int kRows = tiles * 16;
  const int column = sixteenth * 16 + Lane() % 4 * 2, row = Lane() / 4;
#pragma unroll 2
  for (int k = 0; k < count; ++k) {
    const auto* const pair = reinterpret_cast<const Float2*>(keys + k * kPageEntries + column);
    const Float2 near = pair[0], far = pair[4];
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      if (m % tile_step != first_tile) continue;
      const float a = queries[k * kRows + m * 16 + row], b = queries[k * kRows + m * 16 + row + 8];
      scores[m][0][0] = Fma(a, near.x, scores[m][0][0]);
      scores[m][0][1] = Fma(a, near.y, scores[m][0][1]);
      scores[m][0][2] = Fma(b, near.x, scores[m][0][2]);
      scores[m][0][3] = Fma(b, near.y, scores[m][0][3]);
      scores[m][1][0] = Fma(a, far.x, scores[m][1][0]);
      scores[m][1][1] = Fma(a, far.y, scores[m][1][1]);
      scores[m][1][2] = Fma(b, far.x, scores[m][1][2]);
      scores[m][1][3] = Fma(b, far.y, scores[m][1][3]);
    }
  }
}

}  // namespace kvgauge::cuda
