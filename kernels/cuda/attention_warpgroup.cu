// SPDX-License-Identifier: Apache-2.0
// Attention of many rows over 16-bit float pages, as in attention_prefill.cu, on the instructions
// of sm_90a. A block of two warpgroups owns a tile of 128 rows, 64 to a group.
//
// A page is one product of 64 columns: its entries for scores, and 64 dims at a time for values.
// Steps of 16 come in the order of the portable kernel, and everything between the products is its
// code (attention_prefill.h), so that rows have the same bits.
//
// Pages lie as mma.h takes them and come to shared memory as slabs: a warp reads 512 bytes of a
// page, which are four matrices of 8 x 8, and StoreMatrix4 puts each where it belongs. While the
// scores of a page become weights, the values of the page before are multiplied, and what the next
// pages bring is on its way in registers. Nothing waits but for products that were begun and for
// the block's barrier, once a page.
#define KVG_DEVICE_CALL KVG_DEVICE  // products of kernels that call functions wait one by one
#include "cuda/attention_prefill.h"
#include "cuda/device/warpgroup.h"

namespace kvgauge::cuda {
namespace {

constexpr int kGroups = 2;
constexpr int kThreads = kGroups * kWarpgroup, kWarps = kThreads / kWarp;
constexpr int kRows = kGroups * kWarpgroupSide;
constexpr int kStages = 2;
constexpr int kBlocksOfGroup = 8;  // of 8 dims: what one product takes of values
constexpr int kUnitsAhead = 8;     // of 512 bytes: most that a warp holds of a page of keys
constexpr int kAnyChunks = 0;      // as many as the keys have; queries stay in shared memory
static_assert(kWarpgroupSide == kPageEntries);

// Units of a page that a warp has read and not yet written: those from `first` + WarpIndex() on,
// kWarps apart.
template <int most>
struct Units {
  Uint4 own[most];

  KVG_MEMBER void Read(const void* page, int first, int count) {
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const int unit = first + WarpIndex() + i * kWarps;
      if (unit < count) own[i] = static_cast<const Uint4*>(page)[unit * kWarp + Lane()];
    }
  }
  // place(unit): where this lane's row of its matrix goes.
  template <class Place>
  KVG_MEMBER void Write(int first, int count, const Place& place) const {
#pragma unroll
    for (int i = 0; i < most; ++i) {
      const int unit = first + WarpIndex() + i * kWarps;
      if (unit < count) StoreMatrix4(place(unit), own[i]);
    }
  }
};

// Where lane l's row of a unit goes: row l % 8 of matrix l / 8. The matrices of 16 entries and 16
// dims of keys: entries 0 to 7, first dims 0 to 7, then 8 to 15; entries 8 to 15 likewise.
KVG_DEVICE unsigned char* PlaceOfKeys(unsigned char* slabs, int chunks, int unit) {
  const int matrix = Lane() / 8, entry = unit / chunks * 16 + matrix / 2 * 8 + Lane() % 8;
  return slabs + unit % chunks * kSlabBytes + matrix % 2 * kHalfSlabBytes + entry * 16;
}
// Those of 8 dims and 32 entries of values: 8 entries each.
KVG_DEVICE unsigned char* PlaceOfValues(unsigned char* slabs, int unit) {
  const int matrix = Lane() / 8, block = unit / 2, step = unit % 2 * 2 + matrix / 2;
  const int slab = block / kBlocksOfGroup * kSixteenths + step;
  return slabs + slab * kSlabBytes + matrix % 2 * kHalfSlabBytes +
         (block % kBlocksOfGroup * 8 + Lane() % 8) * 16;
}

// All queries of a block: [group][16 dims] slabs.
template <DType type>
KVG_DEVICE void PackSlabs(const AttendCall& call, const RowTile& tile, int chunks,
                          unsigned char* slabs) {
  auto* const words = reinterpret_cast<uint32_t*>(slabs);
  for (int i = Thread(); i < kGroups * chunks * kSlabBytes / 4; i += kThreads) {
    const int word = i % 4, row = i / 4 % kWarpgroupSide, half = i / 256 % 2, slab = i / 512;
    const int r = slab / chunks * kWarpgroupSide + row;
    const int d = slab % chunks * 16 + half * 8 + word * 2;
    words[i] = Pack<type>(QueryAt(call, tile, r, d), QueryAt(call, tile, r, d + 1));
  }
}
// The warp's 16 rows of a slab as registers.
KVG_DEVICE Uint4 RowsOfSlab(const unsigned char* slab) {
  const auto* const words = reinterpret_cast<const uint32_t*>(slab) + WarpIndex() % 4 * 64 + Lane();
  return {words[0], words[32], words[kHalfSlabBytes / 4], words[kHalfSlabBytes / 4 + 32]};
}

// Begins scores = queries * keys.
template <DType type, int query_chunks>
KVG_DEVICE void BeginScores(const unsigned char* queries, const Uint4* own, int chunks,
                            const unsigned char* keys, float (&scores)[32]) {
  if constexpr (query_chunks != kAnyChunks) {
#pragma unroll
    for (int c = 0; c < query_chunks; ++c) {
      WarpgroupMultiply<type>(scores, own[c], keys + c * kSlabBytes);
    }
  } else {
    for (int c = 0; c < chunks; ++c) {
      WarpgroupBegin();  // ptxas wants to know in every turn
      WarpgroupMultiply<type>(scores, queries + c * kSlabBytes, keys + c * kSlabBytes);
    }
    WarpgroupBegin();
  }
}

// Begins sums += weights * values.
template <DType type, int value_groups>
KVG_DEVICE void BeginValues(const Uint4 (&weights)[kSixteenths][kWeightParts<type>],
                            const unsigned char* values, float (&sums)[value_groups][32]) {
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
#pragma unroll
    for (int part = 0; part < kWeightParts<type>; ++part) {
#pragma unroll
      for (int g = 0; g < value_groups; ++g) {
        WarpgroupMultiply<type>(sums[g], weights[s][part],
                                values + (g * kSixteenths + s) * kSlabBytes);
      }
    }
  }
}

template <int groups>
KVG_DEVICE void HoldAll(float (&sums)[groups][32]) {
#pragma unroll
  for (int g = 0; g < groups; ++g) Hold(sums[g]);
}
template <int parts>
KVG_DEVICE void HoldAll(Uint4 (&weights)[kSixteenths][parts]) {
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
#pragma unroll
    for (int part = 0; part < parts; ++part) Hold(weights[s][part]);
  }
}

// query_chunks: of 16 dims, held in registers; or kAnyChunks. value_groups: of 64 dims.
template <DType type, int query_chunks, int value_groups>
KVG_KERNEL(kThreads)
WarpgroupKernel(AttendCall call, AttendTables tables, const PrefillJob* jobs, RowResults results) {
  if constexpr (kHasWarpgroups) {
    KVG_DYNAMIC_SHARED(unsigned char, shared);
    constexpr int kBlocks = value_groups * kBlocksOfGroup, kParts = kWeightParts<type>;
    constexpr int kHeld = query_chunks == kAnyChunks ? 1 : query_chunks;
    constexpr int kKeyUnits = query_chunks == kAnyChunks ? kUnitsAhead : CeilDiv(query_chunks, 2);
    constexpr int kValueUnits = 2 * value_groups;
    using Scores = float[32];
    using Sums = float[value_groups][32];
    const PrefillJob job = jobs[BlockX()];
    const RowTile tile = tables.tiles[job.tile];
    const int end_segment = job.first_segment + job.segments;
    const int chunks = query_chunks == kAnyChunks ? (call.key_dim + 15) / 16 : query_chunks;
    const int key_units = kSixteenths * chunks, value_units = 2 * ((call.value_dim + 7) / 8);
    unsigned char* const keys = shared + kGroups * chunks * kSlabBytes;
    const int key_bytes = chunks * kSlabBytes;
    unsigned char* const values = keys + kStages * key_bytes;
    constexpr int kValueBytes = value_groups * kSixteenths * kSlabBytes;
    const unsigned char* const queries = shared + WarpIndex() / 4 * chunks * kSlabBytes;
    const int first_row = WarpIndex() * 16;

    Units<kKeyUnits> key_ahead;
    Units<kValueUnits> value_ahead;
    const auto read_keys = [&](const Cursor& at) {
      key_ahead.Read(tables.segments[at.segment].keys.pages[at.page], 0, key_units);
    };
    const auto write_keys = [&](const Cursor& at, int stage) {
      const auto place = [&](int unit) {
        return PlaceOfKeys(keys + stage * key_bytes, chunks, unit);
      };
      key_ahead.Write(0, key_units, place);
      // What registers had no room for.
      for (int first = kKeyUnits * kWarps; first < key_units; first += kKeyUnits * kWarps) {
        key_ahead.Read(tables.segments[at.segment].keys.pages[at.page], first, key_units);
        key_ahead.Write(first, key_units, place);
      }
    };
    const auto read_values = [&](const Cursor& at) {
      value_ahead.Read(tables.segments[at.segment].values.pages[at.page], 0, value_units);
    };
    // Columns behind the last dim hold anything: no other column meets them, and none is written.
    const auto write_values = [&](int stage) {
      value_ahead.Write(0, value_units, [&](int unit) {
        return PlaceOfValues(values + stage * kValueBytes, unit);
      });
    };

    SpanSums<1, kBlocks> span;
    EarlierSums<1, kBlocks> earlier;
    Begin<1, kBlocks>(span, earlier);
    Sums& sums = reinterpret_cast<Sums&>(span.sums);
    float scores[kSixteenths][1][2][4];
    Scores& flat_scores = reinterpret_cast<Scores&>(scores);
    Uint4 weights[kSixteenths][kParts];
    float scale[2];
    const auto weigh = [&](const Cursor& at) {
      const SegmentView& segment = tables.segments[at.segment];
      const PageSight sight = SightOf(call, segment, tile, tile.count, at.page);
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) {
        FinishScores(call, segment, tile, first_row, sight.all, at.page, s, scores[s]);
      }
      WeighTile<1, kBlocks>(0, scores, span, scale);
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) ScaleByValues(segment, at.page, s, scores[s][0]);
    };
    const auto pack = [&] {
      ScaleDown<1, kBlocks>(0, scale, span);
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) PackWeights<type>(scores[s][0], weights[s]);
    };
    const auto clear_scores = [&] {
#pragma unroll
      for (int i = 0; i < 32; ++i) flat_scores[i] = 0.0f;
    };

    PackSlabs<type>(call, tile, chunks, shared);
    Cursor at = NextSeen(call, tables, tile, {job.first_segment, 0}, end_segment);
    if (at.segment < end_segment) {
      Cursor next = NextSeen(call, tables, tile, {at.segment, at.page + 1}, end_segment);
      read_keys(at);
      read_values(at);
      write_keys(at, 0);
      write_values(0);
      if (next.segment < end_segment) {
        read_keys(next);
        write_keys(next, 1);
      }
      FenceSlabs();
      SyncBlock();
      Uint4 own[kHeld];
      if constexpr (query_chunks != kAnyChunks) {
#pragma unroll
        for (int c = 0; c < kHeld; ++c) own[c] = RowsOfSlab(queries + c * kSlabBytes);
      }

      clear_scores();
      Hold(flat_scores);
      WarpgroupBegin();
      BeginScores<type, query_chunks>(queries, own, chunks, keys, flat_scores);
      WarpgroupCommit();
      WarpgroupWait<0>();
      Hold(flat_scores);
      SyncBlock();  // the keys of `at` are free
      weigh(at);
      pack();

      // The weights of `at` are packed, its values lie in values[stage], and the keys of `next` in
      // the other half of keys.
      int stage = 0;
      while (next.segment < end_segment) {
        const Cursor after =
            NextSeen(call, tables, tile, {next.segment, next.page + 1}, end_segment);
        const bool more = after.segment < end_segment;
        if (more) read_keys(after);
        clear_scores();
        Hold(flat_scores);
        HoldAll(sums);
        HoldAll(weights);
        WarpgroupBegin();
        BeginScores<type, query_chunks>(queries, own, chunks, keys + (stage ^ 1) * key_bytes,
                                        flat_scores);
        WarpgroupCommit();
        BeginValues<type>(weights, values + stage * kValueBytes, sums);
        WarpgroupCommit();
        if (more) write_keys(after, stage);
        read_values(next);
        WarpgroupWait<1>();
        Hold(flat_scores);
        if (next.segment != at.segment || next.page / kSpanPages != at.page / kSpanPages) {
          WarpgroupWait<0>();
          HoldAll(sums);
          EndSpan<1, kBlocks>(span, earlier);
        }
        weigh(next);
        write_values(stage ^ 1);
        WarpgroupWait<0>();
        HoldAll(sums);
        pack();
        FenceSlabs();
        SyncBlock();
        at = next;
        next = after;
        stage ^= 1;
      }
      HoldAll(sums);
      HoldAll(weights);
      WarpgroupBegin();
      BeginValues<type>(weights, values + stage * kValueBytes, sums);
      WarpgroupCommit();
      WarpgroupWait<0>();
      HoldAll(sums);
      EndSpan<1, kBlocks>(span, earlier);
    }
    WriteRows<1, kBlocks>(call, tile, first_row, earlier, results);
  }
}

// The kernels that there are: dims that models have, with queries in registers, and all others.
struct Instance {
  int chunks, value_groups;
};
Instance InstanceOf(int key_dim, int value_dim) {
  const int chunks = (key_dim + 15) / 16, groups = (value_dim + 63) / 64;
  if (chunks == 4 && groups == 1) return {4, 1};
  if (chunks == 8 && groups <= 2) return {8, 2};
  return {kAnyChunks, groups <= 2 ? 2 : 4};
}

int64_t SharedBytes(int key_dim, int value_dim) {
  const int64_t chunks = (key_dim + 15) / 16;
  const int64_t value_slabs = InstanceOf(key_dim, value_dim).value_groups * kSixteenths;
  return (kGroups * chunks + kStages * (chunks + value_slabs)) * kSlabBytes;
}

int RowsOfBlock(DType dtype, int key_dim, int value_dim) {
  constexpr int kMostValueDims = 256;
  const bool taken = dtype != DType::kF32 && value_dim <= kMostValueDims &&
                     SharedBytes(key_dim, value_dim) <= kMostWarpgroupSharedBytes;
  return taken ? kRows : 0;
}

template <DType type>
void AttendAs(const AttendCall& call, const AttendTables& tables, const PrefillJob* jobs,
              int64_t count, const RowResults& results, Stream stream) {
  const LaunchShape launch = {.grid_x = count,
                              .threads = kThreads,
                              .shared_bytes = SharedBytes(call.key_dim, call.value_dim),
                              .warpgroups = true};
  const Instance instance = InstanceOf(call.key_dim, call.value_dim);
  if (instance.chunks == 4) {
    KVG_LAUNCH((WarpgroupKernel<type, 4, 1>), launch, stream, call, tables, jobs, results);
  } else if (instance.chunks == 8) {
    KVG_LAUNCH((WarpgroupKernel<type, 8, 2>), launch, stream, call, tables, jobs, results);
  } else if (instance.value_groups == 2) {
    KVG_LAUNCH((WarpgroupKernel<type, kAnyChunks, 2>), launch, stream, call, tables, jobs, results);
  } else {
    KVG_LAUNCH((WarpgroupKernel<type, kAnyChunks, 4>), launch, stream, call, tables, jobs, results);
  }
}

void Attend(const AttendCall& call, const AttendTables& tables, DType dtype, const PrefillJob* jobs,
            int64_t count, const RowResults& results, Stream stream) {
  if (dtype == DType::kBF16) {
    AttendAs<DType::kBF16>(call, tables, jobs, count, results, stream);
  } else {
    AttendAs<DType::kF16>(call, tables, jobs, count, results, stream);
  }
}

}  // namespace

const PrefillWay kWarpgroupPrefill = {RowsOfBlock, Attend};

}  // namespace kvgauge::cuda
