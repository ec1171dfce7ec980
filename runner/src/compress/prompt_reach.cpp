// SPDX-License-Identifier: Apache-2.0
#include "src/compress/prompt_reach.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int64_t kPage = kKvPageEntries;
constexpr uint64_t kAllBits = ~uint64_t{0};
// What windows take for the position of an entry that every row sees.
constexpr int32_t kNear = std::numeric_limits<int32_t>::max() / 2;

// Bits [begin, end) of a page whose first entry is `first`.
uint64_t BitsOf(int64_t first, int64_t begin, int64_t end) {
  const int64_t from = std::clamp<int64_t>(begin - first, 0, kPage);
  const int64_t to = std::clamp<int64_t>(end - first, 0, kPage);
  if (from >= to) return 0;
  const uint64_t below = to == kPage ? kAllBits : (uint64_t{1} << to) - 1;
  return below & (kAllBits << from);
}

bool Ascend(const std::vector<int32_t>& numbers, int64_t end) {
  int64_t before = -1;
  for (const int32_t number : numbers) {
    if (number <= before || number >= end) return false;
    before = number;
  }
  return true;
}

// Head `h` of a plain layer.
const KvSegment& OnlySegment(const KvHead& head) {
  KVG_CHECK(head.count == 1, "a prompt in several segments");
  const KvSegment& segment = head.segments[0];
  KVG_CHECK(segment.skip == 0 && segment.keys.entries == 0 && segment.values.entries == 0 &&
                segment.rotation == nullptr && segment.positions == nullptr &&
                segment.bias == nullptr && segment.read_bias == nullptr &&
                !segment.values_in_keys && segment.key_basis.empty(),
            "a prompt that is not held plainly");
  return segment;
}

}  // namespace

Result<PromptReach> PromptReach::Of(PromptSight sight, int64_t rows, int64_t query_heads) {
  PromptReach reach(std::move(sight), rows);
  KVG_TRY(reach.Check(query_heads));
  reach.Measure();
  return reach;
}

Status PromptReach::Check(int64_t query_heads) const {
  if (std::ssize(sight_.heads) != query_heads) {
    return BadInput(StrCat("sights of ", sight_.heads.size(), " heads of ", query_heads));
  }
  if (sight_.block < kPage || sight_.block % kPage != 0) {
    return BadInput(StrCat("blocks of ", sight_.block, " entries; expected a multiple of ", kPage));
  }
  if (!sight_.among.empty()) {
    const bool plain =
        std::all_of(sight_.heads.begin(), sight_.heads.end(),
                    [](const HeadSight& head) { return head.kind == HeadSight::Kind::kWhole; });
    if (!Ascend(sight_.among, rows_) || !plain || sight_.whole_from < rows_) {
      return BadInput(
          "rows that attend alone ascend and are of the prompt, and heads say nothing besides");
    }
  }
  const int64_t blocks = (rows_ + sight_.block - 1) / sight_.block;
  const int64_t words = SightWords(rows_, sight_.block);
  for (int64_t h = 0; h < query_heads; ++h) {
    const HeadSight& head = sight_.heads[static_cast<size_t>(h)];
    const auto bad = [&](std::string_view what) {
      return BadInput(StrCat("the sight of query head ", h, ": ", what));
    };
    switch (head.kind) {
      case HeadSight::Kind::kWhole:
        break;
      case HeadSight::Kind::kBand:
        if (head.window < 1 || head.sinks < 0) {
          return bad(StrCat("a window of ", head.window, " behind ", head.sinks,
                            " first entries; expected 1 or more behind 0 or more"));
        }
        break;
      case HeadSight::Kind::kLines:
        if (!Ascend(head.columns, rows_)) return bad("columns ascend and are of the prompt");
        if (head.distances.empty() || head.distances[0] != 0 || !Ascend(head.distances, rows_)) {
          return bad("distances ascend from 0 on and are of the prompt");
        }
        break;
      case HeadSight::Kind::kBlocks:
        if (std::ssize(head.blocks) != blocks * words) {
          return bad(StrCat(head.blocks.size(), " words for ", blocks, " blocks of rows; expected ",
                            blocks * words));
        }
        break;
    }
  }
  return {};
}

int64_t PromptReach::RunEnd(int64_t row) const {
  int64_t end = std::min(rows_, (row / kPage + 1) * kPage);
  if (row < sight_.whole_from) end = std::min(end, sight_.whole_from);
  // The first entries of a band are a list without an order. Rows among them come alone, where a
  // run would reach beyond what the band shows whole.
  for (const HeadSight& head : sight_.heads) {
    if (head.kind != HeadSight::Kind::kBand || row >= head.sinks) continue;
    if (end - head.window > head.sinks) end = std::min(end, head.sinks);
  }
  return end;
}

std::vector<int64_t> PromptReach::Windows() const {
  std::vector<int64_t> windows;
  for (const HeadSight& head : sight_.heads) {
    if (head.kind == HeadSight::Kind::kBand) windows.push_back(std::min(head.window, rows_));
  }
  std::sort(windows.begin(), windows.end());
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  return windows;
}

// The runs along diagonals that rows of one page see, from the farthest on, and the columns that no
// run covers.
void PromptReach::LookAlongLines(const HeadSight& head, int64_t begin, int64_t end,
                                 Look& look) const {
  const int64_t own = begin / kPage, page_end = (own + 1) * kPage;
  look.free.clear();
  const auto add = [&](int64_t from, int64_t to) {
    to = std::min(to, end);
    for (int64_t page = from / kPage; page * kPage < to; ++page) {
      const uint64_t bits = BitsOf(page * kPage, from, to);
      if (!look.free.empty() && look.free.back().page == page) {
        look.free.back().bits |= bits;
      } else {
        look.free.push_back({page, bits});
      }
    }
  };
  int64_t run_begin = -1, run_end = -1;
  for (auto at = head.distances.rbegin(); at != head.distances.rend(); ++at) {
    if (*at >= page_end) continue;
    const int64_t stop = std::max<int64_t>(page_end - *at, kSightRun);
    if (run_begin < 0 || stop > run_end + kSightRun) {
      if (run_begin >= 0) add(run_begin, run_end);
      run_begin = stop - kSightRun;
      run_end = stop;
    } else if (stop > run_end) {
      run_end += kSightRun;
    }
  }
  add(run_begin, run_end);

  const auto columns = std::lower_bound(head.columns.begin(), head.columns.end(), end);
  size_t page = 0;
  for (auto column = head.columns.begin(); column != columns; ++column) {
    const int64_t of = *column / kPage;
    while (page < look.free.size() && look.free[page].page < of) ++page;
    const uint64_t bit = uint64_t{1} << (*column % kPage);
    // In a page that is read anyway, a column takes its place.
    if (page < look.free.size() && look.free[page].page == of) {
      look.free[page].bits |= bit;
      continue;
    }
    const int64_t i = column - head.columns.begin();
    look.column_bits.resize(static_cast<size_t>(i / 64 + 1));
    look.column_bits[static_cast<size_t>(i / 64)] |= uint64_t{1} << (i % 64);
    look.columns = i + 1;
  }
}

PromptReach::Look PromptReach::LookOf(int64_t h, int64_t begin, int64_t end) const {
  const HeadSight& head = sight_.heads[static_cast<size_t>(h)];
  const int64_t own = (end - 1) / kPage;
  Look look;
  const auto all = [&] {
    look.free.clear();
    for (int64_t page = 0; page <= own; ++page) look.free.push_back({page, kAllBits});
  };
  if (!sight_.among.empty()) {
    for (const int32_t entry : sight_.among) {
      if (entry >= end) break;
      const int64_t page = entry / kPage;
      if (look.free.empty() || look.free.back().page != page) look.free.push_back({page, 0});
      look.free.back().bits |= uint64_t{1} << (entry % kPage);
    }
    if (look.free.empty() || look.free.back().page != own) look.free.push_back({own, 0});
    return look;
  }
  if (begin >= sight_.whole_from) {
    all();
    return look;
  }
  switch (head.kind) {
    case HeadSight::Kind::kWhole:
      all();
      break;
    case HeadSight::Kind::kBand: {
      // The last row sees the least.
      if (end - head.window <= head.sinks) {
        all();
        break;
      }
      for (int64_t page = 0; page * kPage < head.sinks; ++page) {
        look.free.push_back({page, BitsOf(page * kPage, 0, head.sinks)});
      }
      const int64_t first = std::max(head.sinks, begin - head.window + 1);
      for (int64_t page = first / kPage; page <= own; ++page) {
        look.windowed.push_back({page, BitsOf(page * kPage, head.sinks, rows_ + kPage)});
      }
      break;
    }
    case HeadSight::Kind::kLines:
      LookAlongLines(head, begin, end, look);
      break;
    case HeadSight::Kind::kBlocks: {
      const int64_t words = SightWords(rows_, sight_.block), pages = sight_.block / kPage;
      const uint64_t* row = head.blocks.data() + begin / sight_.block * words;
      for (int64_t page = 0; page <= own; ++page) {
        const int64_t block = page / pages;
        if (((row[block / 64] >> (block % 64)) & 1) != 0) look.free.push_back({page, kAllBits});
      }
      break;
    }
  }
  std::vector<PageBits>& last = look.windowed.empty() ? look.free : look.windowed;
  if (last.empty() || last.back().page != own) last.push_back({own, 0});
  return look;
}

bool PromptReach::SeesAll(const Look& look, int64_t end) {
  if (!look.windowed.empty() || look.columns > 0) return false;
  const int64_t own = (end - 1) / kPage;
  if (std::ssize(look.free) != own + 1) return false;
  return std::all_of(look.free.begin(), look.free.end(), [&](const PageBits& page) {
    const uint64_t needed = BitsOf(page.page * kPage, 0, end);
    return (page.bits & needed) == needed;
  });
}

void PromptReach::Measure() {
  if (!sight_.among.empty()) {
    const auto tiles = [](int64_t rows) {
      const int64_t whole = (rows + kPage - 1) / kPage;
      const auto pages = static_cast<double>(whole);
      return pages * (pages + 1) / 2;
    };
    whole_ = std::ssize(sight_.among) == rows_;
    density_ = tiles(std::ssize(sight_.among)) / tiles(rows_);
    return;
  }
  double computed = 0, all = 0;
  whole_ = true;
  for (int64_t begin = 0; begin < rows_; begin = RunEnd(begin)) {
    const int64_t end = RunEnd(begin);
    for (int64_t h = 0; h < std::ssize(sight_.heads); ++h) {
      const Look look = LookOf(h, begin, end);
      whole_ = whole_ && SeesAll(look, end);
      int64_t tiles = 0, columns = 0;
      for (const auto* pages : {&look.free, &look.windowed}) {
        tiles += std::count_if(pages->begin(), pages->end(),
                               [](const PageBits& page) { return page.bits != 0; });
      }
      for (const uint64_t word : look.column_bits) columns += std::popcount(word);
      tiles += (columns + kPage - 1) / kPage;
      computed += static_cast<double>(tiles);
      const int64_t whole_tiles = (end - 1) / kPage + 1;
      all += static_cast<double>(whole_tiles);
    }
  }
  density_ = all > 0 ? computed / all : 1;
}

void PromptReach::GatherAmong(Ops& ops, const AttentionShape& shape,
                              std::span<const KvHead> heads) {
  const int64_t key_bytes = ops.attention->KeyPageBytes(shape.format);
  const int64_t value_bytes = ops.attention->ValuePageBytes(shape.format);
  const int64_t count = std::ssize(sight_.among), pages = (count + kPage - 1) / kPage;
  gathered_ = ops.memory->Allocate(std::ssize(heads) * pages * (key_bytes + value_bytes));
  column_keys_.assign(heads.size(), {});
  column_values_.assign(heads.size(), {});
  const Buffer memory = ops.memory->Allocate(count * 4);
  const Tensor chosen = memory.As(DType::kI32, {count});
  ops.memory->Copy(View(sight_.among, {count}), chosen);
  auto* at = static_cast<char*>(gathered_.data());
  for (size_t h = 0; h < heads.size(); ++h) {
    for (int64_t page = 0; page < pages; ++page) {
      column_keys_[h].push_back(std::exchange(at, at + key_bytes));
      column_values_[h].push_back(std::exchange(at, at + value_bytes));
    }
    ops.attention->CopyKv(shape.format, OnlySegment(heads[h]), chosen,
                          {.key_pages = column_keys_[h].data(),
                           .value_pages = column_values_[h].data(),
                           .first_entry = 0});
  }
  ops.memory->Synchronize();  // `memory` is read until then
}

void PromptReach::AttendAmong(Ops& ops, const AttentionShape& shape, int64_t begin, int64_t end,
                              const Tensor& q, Tensor out, Tensor log_sum_exp) const {
  const int64_t rows = end - begin, query_heads = q.shape[1], dim = q.shape[2];
  const int64_t value_dim = out.shape[2];
  const Tensor all = out.Reshape({rows, query_heads * value_dim});
  ops.rows->Fill(0.0f, all);
  ops.rows->Fill(std::numeric_limits<float>::infinity(), log_sum_exp);
  const auto first = std::lower_bound(sight_.among.begin(), sight_.among.end(), begin);
  const auto last = std::lower_bound(first, sight_.among.end(), end);
  const int64_t count = last - first;
  if (count == 0) return;
  std::vector<int32_t> places(first, last);
  for (int32_t& place : places) place -= static_cast<int32_t>(begin);
  const Buffer memory =
      ops.memory->Allocate(count * 4 + 4 * count * query_heads * (dim + value_dim + 1));
  auto* numbers = static_cast<float*>(memory.data());
  const auto take = [&](std::initializer_list<int64_t> shape_of) {
    const Tensor taken(numbers, DType::kF32, shape_of, ops.device);
    numbers += taken.Numel();
    return taken;
  };
  const Tensor queries = take({count, query_heads, dim});
  const Tensor given = take({count, query_heads, value_dim}), sums = take({query_heads, count});
  const Tensor index(numbers, DType::kI32, {count}, ops.device);
  ops.memory->Copy(View(places, {count}), index);
  ops.select->Gather(q.Reshape({rows, query_heads * dim}), index,
                     queries.Reshape({count, query_heads * dim}));
  std::vector<KvSegment> segments(column_keys_.size());
  std::vector<KvHead> heads;
  for (size_t h = 0; h < segments.size(); ++h) {
    segments[h].key_pages = column_keys_[h].data();
    segments[h].value_pages = column_values_[h].data();
    segments[h].length = last - sight_.among.begin();
    heads.push_back({&segments[h], 1});
  }
  const AttentionItem item = {
      .first_row = 0, .rows = count, .token_position = begin, .heads = heads};
  ops.attention->Attend(shape, {&item, 1}, queries, given, {.log_sum_exp = sums, .entropy = {}});
  ops.select->Scatter(given.Reshape({count, query_heads * value_dim}), index, all);
  for (int64_t h = 0; h < query_heads; ++h) {
    ops.select->Scatter(AsColumn(sums[h]), index, AsColumn(log_sum_exp[h]));
  }
  ops.memory->Synchronize();  // `memory` is read until then
}

void PromptReach::Gather(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads) {
  if (!sight_.among.empty()) return GatherAmong(ops, shape, heads);
  const int64_t key_bytes = ops.attention->KeyPageBytes(shape.format);
  const int64_t value_bytes = ops.attention->ValuePageBytes(shape.format);
  const auto query_heads = std::ssize(sight_.heads);
  int64_t pages = 0, most = 0;
  for (const HeadSight& head : sight_.heads) {
    pages += (std::ssize(head.columns) + kPage - 1) / kPage;
    most = std::max(most, std::ssize(head.columns));
  }
  const std::vector<int64_t> windows = Windows();
  if (!windows.empty()) {
    const int64_t lists = std::ssize(windows) + 1, length = (rows_ + kPage - 1) / kPage * kPage;
    std::vector<int32_t> places(static_cast<size_t>(lists * length), kNear);
    for (int64_t w = 0; w < std::ssize(windows); ++w) {
      const auto first = places.begin() + (w + 1) * length;
      // One window for all: entries of narrower ones stand so much further back.
      const int64_t back = windows[static_cast<size_t>(w)] - windows.back();
      std::iota(first, first + length, static_cast<int32_t>(back));
    }
    places_ = ops.memory->Allocate(std::ssize(places) * 4);
    ops.memory->Copy(View(places, {std::ssize(places)}),
                     places_.As(DType::kI32, {std::ssize(places)}));
  }
  column_keys_.assign(static_cast<size_t>(query_heads), {});
  column_values_.assign(static_cast<size_t>(query_heads), {});
  if (pages == 0) return;
  gathered_ = ops.memory->Allocate(pages * (key_bytes + value_bytes));
  const Buffer memory = ops.memory->Allocate(most * 4);
  auto* at = static_cast<char*>(gathered_.data());
  const int64_t group = query_heads / std::ssize(heads);
  for (int64_t h = 0; h < query_heads; ++h) {
    const auto index = static_cast<size_t>(h);
    const std::vector<int32_t>& columns = sight_.heads[index].columns;
    if (columns.empty()) continue;
    for (int64_t page = 0; page * kPage < std::ssize(columns); ++page) {
      column_keys_[index].push_back(std::exchange(at, at + key_bytes));
      column_values_[index].push_back(std::exchange(at, at + value_bytes));
    }
    const Tensor chosen = memory.As(DType::kI32, {std::ssize(columns)});
    ops.memory->Copy(View(columns, {std::ssize(columns)}), chosen);
    ops.attention->CopyKv(shape.format, OnlySegment(heads[h / group]), chosen,
                          {.key_pages = column_keys_[index].data(),
                           .value_pages = column_values_[index].data(),
                           .first_entry = 0});
  }
}

// `bits` grows by the words of lists that do not let everything be read, and `at` says which of
// them begin where.
void PromptReach::Fill(const Look& look, const HeadSight& head, const KvHead& of,
                       int64_t query_head, int64_t end, std::vector<uint64_t>& bits,
                       std::vector<std::pair<int64_t, int64_t>>& at, Lists& lists) const {
  const KvSegment& plain = OnlySegment(of);
  const std::vector<int64_t> windows = Windows();
  const int64_t length = (rows_ + kPage - 1) / kPage * kPage;
  const auto* places = static_cast<const int32_t*>(places_.data());
  const auto index = static_cast<size_t>(query_head);
  const size_t columns = static_cast<size_t>((look.columns + kPage - 1) / kPage);
  lists.keys.reserve(columns + look.free.size() + look.windowed.size());
  lists.values.reserve(lists.keys.capacity());
  const auto add = [&](size_t first, int64_t entries, const int32_t* positions, bool all) {
    KvSegment& segment = lists.segments[lists.count];
    segment = {};
    segment.key_pages = lists.keys.data() + first;
    segment.value_pages = lists.values.data() + first;
    segment.length = entries;
    if (!windows.empty()) segment.positions = positions;
    const auto words = static_cast<int64_t>(lists.keys.size() - first);
    if (all) {
      bits.resize(bits.size() - static_cast<size_t>(words));
    } else {
      at.push_back({lists.count, std::ssize(bits) - words});
    }
    ++lists.count;
  };
  if (columns > 0) {
    for (size_t page = 0; page < columns; ++page) {
      lists.keys.push_back(column_keys_[index][page]);
      lists.values.push_back(column_values_[index][page]);
      bits.push_back(look.column_bits[page]);
    }
    add(0, look.columns, places, false);
  }
  for (const auto* pages : {&look.free, &look.windowed}) {
    if (pages->empty()) continue;
    const size_t first = lists.keys.size();
    const bool last = pages == &look.windowed || look.windowed.empty();
    bool all = true;
    for (const PageBits& page : *pages) {
      lists.keys.push_back(plain.key_pages[page.page]);
      lists.values.push_back(plain.value_pages[page.page]);
      bits.push_back(page.bits);
      const uint64_t needed = BitsOf(page.page * kPage, 0, last ? end : rows_ + kPage);
      all = all && (page.bits & needed) == needed;
    }
    int64_t entries = std::ssize(*pages) * kPage;
    if (last) entries += end - (pages->back().page + 1) * kPage;
    const int32_t* positions = places;
    if (pages == &look.windowed) {
      const auto found =
          std::lower_bound(windows.begin(), windows.end(), std::min(head.window, rows_));
      // Its pages follow each other.
      positions = places + (found - windows.begin() + 1) * length + pages->front().page * kPage;
    }
    add(first, entries, positions, all);
  }
}

void PromptReach::Attend(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads,
                         int64_t begin, int64_t end, const Tensor& q, Tensor out,
                         Tensor log_sum_exp) {
  if (!sight_.among.empty()) return AttendAmong(ops, shape, begin, end, q, out, log_sum_exp);
  const auto query_heads = std::ssize(sight_.heads);
  const int64_t group = query_heads / std::ssize(heads);
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t row = begin; row < end; row = RunEnd(row)) runs.push_back({row, RunEnd(row)});
  const int64_t count = std::ssize(runs) * query_heads;
  std::vector<Lists> lists(static_cast<size_t>(count));
  std::vector<std::vector<uint64_t>> bits(static_cast<size_t>(count));
  std::vector<std::vector<std::pair<int64_t, int64_t>>> masked(static_cast<size_t>(count));
  constexpr double kLook_ns = 20000;
  ops.tasks->ForEach(count, kLook_ns, [&](int64_t i) {
    const auto index = static_cast<size_t>(i);
    const auto& [first, last] = runs[index / static_cast<size_t>(query_heads)];
    const int64_t h = i % query_heads;
    Fill(LookOf(h, first, last), sight_.heads[static_cast<size_t>(h)], heads[h / group], h, last,
         bits[index], masked[index], lists[index]);
  });
  std::vector<uint64_t> words;
  std::vector<int64_t> first_word;
  for (const std::vector<uint64_t>& of_list : bits) {
    first_word.push_back(std::ssize(words));
    words.insert(words.end(), of_list.begin(), of_list.end());
  }
  const int64_t numbers = std::max<int64_t>(std::ssize(words), 1);
  words.resize(static_cast<size_t>(numbers));
  const Buffer memory = ops.memory->Allocate(numbers * 8);
  ops.memory->Copy(Tensor(words.data(), DType::kI64, {numbers}), memory.As(DType::kI64, {numbers}));
  std::vector<KvHead> seen(static_cast<size_t>(count));
  for (size_t i = 0; i < seen.size(); ++i) {
    for (const auto& [segment, at] : masked[i]) {
      lists[i].read[segment] = static_cast<const uint64_t*>(memory.data()) + first_word[i] + at;
      lists[i].segments[segment].read = &lists[i].read[segment];
    }
    seen[i] = {lists[i].segments, lists[i].count};
  }
  // Each query head has lists of its own.
  AttentionShape alone = shape;
  alone.kv_heads = query_heads;
  const std::vector<int64_t> windows = Windows();
  if (!windows.empty()) alone.window = windows.back();
  std::vector<AttentionItem> items;
  for (size_t run = 0; run < runs.size(); ++run) {
    items.push_back({.first_row = runs[run].first - begin,
                     .rows = runs[run].second - runs[run].first,
                     .token_position = runs[run].first,
                     .heads = std::span(seen).subspan(run * static_cast<size_t>(query_heads),
                                                      static_cast<size_t>(query_heads))});
  }
  ops.attention->Attend(alone, items, q, out, {.log_sum_exp = log_sum_exp, .entropy = {}});
  ops.memory->Synchronize();  // `memory` is read until then
}

template <class Pass>
void PromptReach::ForPasses(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads,
                            int64_t begin, int64_t end, int64_t first_row, const Pass& pass) const {
  const auto query_heads = std::ssize(sight_.heads);
  const int64_t group = query_heads / std::ssize(heads), words = (rows_ + kPage - 1) / kPage;
  std::vector<int64_t> windows = Windows();
  windows.insert(windows.begin(), 0);
  std::vector<Look> looks;
  for (int64_t h = 0; h < query_heads; ++h) looks.push_back(LookOf(h, begin, end));
  const Buffer memory = ops.memory->Allocate(query_heads * words * 8);
  for (const int64_t window : windows) {
    std::vector<uint64_t> bits(static_cast<size_t>(query_heads * words));
    bool some = false;
    for (int64_t h = 0; h < query_heads; ++h) {
      const Look& look = looks[static_cast<size_t>(h)];
      const HeadSight& head = sight_.heads[static_cast<size_t>(h)];
      uint64_t* row = bits.data() + h * words;
      const bool own = window == 0 || std::min(head.window, rows_) == window;
      if (own) {
        for (const PageBits& page : window == 0 ? look.free : look.windowed) {
          row[page.page] |= page.bits;
        }
      }
      for (int64_t i = 0; window == 0 && i < look.columns; ++i) {
        if (((look.column_bits[static_cast<size_t>(i / 64)] >> (i % 64)) & 1) == 0) continue;
        const int32_t column = head.columns[static_cast<size_t>(i)];
        row[column / kPage] |= uint64_t{1} << (column % kPage);
      }
      some = some || std::any_of(row, row + words, [](uint64_t word) { return word != 0; });
    }
    if (!some) continue;
    ops.memory->Copy(Tensor(bits.data(), DType::kI64, {query_heads * words}),
                     memory.As(DType::kI64, {query_heads * words}));
    std::vector<const uint64_t*> read(static_cast<size_t>(query_heads));
    for (int64_t h = 0; h < query_heads; ++h) {
      read[static_cast<size_t>(h)] = static_cast<const uint64_t*>(memory.data()) + h * words;
    }
    std::vector<KvSegment> segments;
    std::vector<KvHead> masked;
    for (const KvHead& head : heads) segments.push_back(OnlySegment(head));
    for (size_t h = 0; h < segments.size(); ++h) {
      segments[h].read = read.data() + static_cast<int64_t>(h) * group;
      masked.push_back({&segments[h], 1});
    }
    AttentionShape of_window = shape;
    of_window.window = window;
    const AttentionItem item = {.first_row = first_row,
                                .rows = end - begin,
                                .first_position = begin,
                                .token_position = begin,
                                .heads = masked};
    pass(of_window, item);
    ops.memory->Synchronize();  // `memory` is written anew
  }
}

void PromptReach::Probabilities(Ops& ops, const AttentionShape& shape,
                                std::span<const KvHead> heads, int64_t begin, const Tensor& q,
                                const Tensor& log_sum_exp, Tensor out) const {
  const int64_t rows = q.shape[0], end = begin + rows, columns = out.shape[2];
  for (int64_t first = begin; first < end;) {
    const int64_t last = std::min(end, RunEnd(first)), count = last - first;
    Tensor part = out;
    part.data = out.f32() + (first - begin) * out.stride[1];
    part.shape[1] = count;
    Buffer memory;
    bool none = true;
    ForPasses(ops, shape, heads, first, last, first - begin,
              [&](const AttentionShape& of_window, const AttentionItem& item) {
                if (none) {
                  ops.attention->WindowProbabilities(of_window, item, q, log_sum_exp, part);
                  none = false;
                  return;
                }
                memory = ops.memory->Allocate(out.shape[0] * count * columns * 4);
                const Tensor more = memory.As(DType::kF32, {out.shape[0], count, columns});
                ops.attention->WindowProbabilities(of_window, item, q, log_sum_exp, more);
                for (int64_t h = 0; h < out.shape[0]; ++h) {
                  ops.rows->Combine(part[h], more[h], Binary::kAdd, part[h]);
                }
                ops.memory->Synchronize();
              });
    for (int64_t h = 0; none && h < out.shape[0]; ++h) ops.rows->Fill(0.0f, part[h]);
    first = last;
  }
}

void PromptReach::SumColumns(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads,
                             ColumnReduction kind, const Tensor& q, const Tensor& log_sum_exp,
                             Tensor out) const {
  const int64_t query_heads = out.shape[0], columns = out.shape[1];
  ops.rows->Fill(0.0f, out);
  const Buffer memory = ops.memory->Allocate(query_heads * columns * 4);
  const Tensor part = memory.As(DType::kF32, {query_heads, columns});
  for (int64_t begin = 0; begin < rows_; begin = RunEnd(begin)) {
    ForPasses(ops, shape, heads, begin, RunEnd(begin), begin,
              [&](const AttentionShape& of_window, const AttentionItem& item) {
                ColumnRequest request;
                request.kind = kind;
                request.rows = item.rows;
                ops.attention->ReduceColumns(of_window, item, q, log_sum_exp, request, part);
                ops.rows->Combine(out, part, Binary::kAdd, out);
              });
  }
}

}  // namespace kvgauge
