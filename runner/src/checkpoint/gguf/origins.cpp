// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/origins.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostStackedInGguf = 1 << 16;

std::string NameOfTensor(const GgufFile& file, const GgufTensor& tensor) {
  return StrCat(file.PartOf(tensor)->path(), ": tensor ", Quoted(tensor.name, 120));
}

Error WrongShape(const GgufFile& file, const GgufTensor& tensor, std::string_view expected) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
  return BadInput(StrCat(NameOfTensor(file, tensor), " has shape [", Join(sizes, ", "),
                         "], expected ", expected));
}

// Where a key has one number for each layer, the largest: layers without it have 0. 0 too for what
// is past all models.
int64_t LargestOf(const GgufFile& file, std::string_view key) {
  constexpr int64_t kMost = 1 << 20;
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return 0;
  const auto all = value->Ints();
  const int64_t number =
      all && !all->empty() ? *std::ranges::max_element(*all) : value->Int().value_or(0);
  return number > kMost ? 0 : number;
}

int64_t QueryHeads(const GgufFile& file) { return LargestOf(file, "attention.head_count"); }
int64_t KvHeads(const GgufFile& file) {
  const int64_t heads = LargestOf(file, "attention.head_count_kv");
  return heads > 0 ? heads : QueryHeads(file);
}

int64_t ColumnsOf(const GgufTensor& tensor) {
  return tensor.shape.size() < 2 ? 1 : tensor.shape.back();
}
// [rows, columns], or [rows] of a vector.
std::vector<int64_t> ShapeLike(const GgufTensor& tensor, int64_t rows) {
  if (tensor.shape.size() < 2) return {rows};
  return {rows, tensor.shape.back()};
}

// Heads of queries or of keys, of a tensor whose rows are paired.
Result<RowOrder> PairedOrder(const GgufFile& file, const GgufTensor& tensor) {
  const bool keys = tensor.name.find("attn_k.") != std::string::npos;
  const int64_t heads = keys ? KvHeads(file) : QueryHeads(file);
  if (heads >= 1 && tensor.shape[0] % heads == 0 && tensor.shape[0] / heads % 2 == 0) {
    return PairedRows(tensor.shape[0], heads);
  }
  return BadInput(StrCat(NameOfTensor(file, tensor), " has ", tensor.shape[0], " rows, expected ",
                         heads, " heads of an even number of rows each"));
}

// How queries, keys and values share the rows of the one tensor that has them all.
struct HeadRows {
  int64_t queries = 0, keys = 0, rows = 0;  // heads of each kind, and rows of a head
};
Result<HeadRows> FusedHeads(const GgufFile& file, const GgufTensor& tensor) {
  const HeadRows heads = {.queries = QueryHeads(file), .keys = KvHeads(file)};
  const int64_t all = heads.queries + 2 * heads.keys;
  if (heads.keys < 1 || heads.queries % heads.keys != 0 || tensor.shape.size() > 2 ||
      tensor.shape[0] % all != 0) {
    return WrongShape(file, tensor,
                      StrCat("rows of ", heads.queries, " heads of queries and of ", heads.keys,
                             " each of keys and values"));
  }
  return HeadRows{heads.queries, heads.keys, tensor.shape[0] / all};
}

class OriginFinder {
 public:
  explicit OriginFinder(const GgufFile& file) : file_(file) {}

  Status Add(const GgufTensor& tensor) {
    const std::optional<GgufPlace> place = PlaceOfGgufTensor(*file_.architecture, tensor.name);
    if (!place) {
      return BadInput(StrCat(NameOfTensor(file_, tensor), " is none that ",
                             file_.architecture->name,
                             " is known to have; a model that ignores weights gives wrong logits"));
    }
    if (place->made != nullptr) return AddMade(tensor, *place);
    if (place->fused) return AddFused(tensor, *place);
    if (place->stacked) return AddStacked(tensor, *place);
    GgufOrigin origin{.parts = {&tensor},
                      .shape = FormedShape(tensor, place->form),
                      .plus_one = place->plus_one,
                      .logarithm = place->form == GgufForm::kLogarithm,
                      .unrounded = place->unrounded};
    if (place->paired) {
      KVG_ASSIGN(origin.order, PairedOrder(file_, tensor));
    }
    return Put(place->name, std::move(origin));
  }

  std::map<std::string, GgufOrigin> Take() { return std::move(origins_); }

 private:
  Status Put(const std::string& name, GgufOrigin origin) {
    const GgufTensor& tensor = *origin.parts[0];
    const auto in_blocks = [](const GgufTensor* part) { return part->type->elements > 1; };
    if (!origin.order.in_place() && origin.shape.size() < 2 &&
        std::ranges::any_of(origin.parts, in_blocks)) {
      return Unsupported(
          StrCat(NameOfTensor(file_, tensor), ": a bias in blocks of ", tensor.type->elements));
    }
    if (origins_.emplace(name, std::move(origin)).second) return {};
    return BadInput(
        StrCat(NameOfTensor(file_, tensor), ": another tensor is ", Quoted(name, 120), " already"));
  }

  static std::vector<int64_t> FormedShape(const GgufTensor& tensor, GgufForm form) {
    std::vector<int64_t> shape = tensor.shape;
    int64_t all = 1;
    for (const int64_t size : shape) all *= size;
    switch (form) {
      case GgufForm::kSame:
        break;
      case GgufForm::kConvolution:
        if (shape.size() == 2) shape = {shape[0], 1, shape[1]};
        break;
      case GgufForm::kFlat:
        shape = {all};
        break;
      case GgufForm::kRow:
        if (shape.size() == 1) shape = {1, shape[0]};
        break;
      case GgufForm::kLogarithm:
        if (shape.size() == 2 && shape[1] == 1) shape.pop_back();
        break;
    }
    return shape;
  }

  // One tensor for each expert, or for each head of a norm.
  Status AddStacked(const GgufTensor& tensor, const GgufPlace& place) {
    const bool norm = tensor.name.ends_with("_norm.weight");
    const size_t rank = norm || place.name.ends_with(".bias") ? 2 : 3;
    if (tensor.shape.size() != rank || tensor.shape[0] > kMostStackedInGguf) {
      return BadInput(StrCat(NameOfTensor(file_, tensor), " has ", tensor.shape.size(),
                             " dimensions, the first ", tensor.shape[0], "; expected ", rank,
                             ": at most ", kMostStackedInGguf, norm ? " heads" : " experts",
                             ", rows", rank == 3 ? " and columns" : ""));
    }
    const int64_t halves = place.second.empty() ? 1 : 2;
    if (tensor.shape[1] % halves != 0) {
      return BadInput(StrCat(NameOfTensor(file_, tensor), " has ", tensor.shape[1],
                             " rows for each expert, expected an even number: those of gates and "
                             "as many of what they open"));
    }
    GgufOrigin origin{.parts = {&tensor},
                      .slices = tensor.shape[0] * halves,
                      .shape = {tensor.shape.begin() + 1, tensor.shape.end()},
                      .unrounded = place.unrounded};
    origin.shape[0] /= halves;
    for (; origin.slice < origin.slices; ++origin.slice) {
      const std::string& name = origin.slice % halves == 0 ? place.name : place.second;
      const size_t at = name.find('#');
      KVG_TRY(Put(StrCat(name.substr(0, at), origin.slice / halves, name.substr(at + 1)), origin));
    }
    return {};
  }

  // Queries, keys and values of a tensor that has all of them.
  Status AddFused(const GgufTensor& tensor, const GgufPlace& place) {
    KVG_ASSIGN(const HeadRows heads, FusedHeads(file_, tensor));
    const size_t at = place.name.find("attn_qkv");
    struct Part {
      std::string_view name;
      int64_t heads, first;
      bool turns;
    };
    for (const Part& part :
         {Part{"q_proj", heads.queries, 0, true}, Part{"k_proj", heads.keys, heads.queries, true},
          Part{"v_proj", heads.keys, heads.queries + heads.keys, false}}) {
      const bool paired = file_.architecture->paired && part.turns;
      const int64_t rows = part.heads * heads.rows;
      KVG_TRY(Put(StrCat(place.name.substr(0, at), part.name, place.name.substr(at + 8)),
                  {.parts = {&tensor},
                   .order = {.runs = {{.rows = rows,
                                       .first = part.first * heads.rows,
                                       .head_rows = paired ? heads.rows : 0}}},
                   .shape = ShapeLike(tensor, rows)}));
    }
    return {};
  }

  // One that is made of several, or of another order: once, when its first part comes.
  Status AddMade(const GgufTensor& tensor, const GgufPlace& place) {
    const NumberedName own = *SplitGgufLayer(tensor.name);
    const std::string_view kind = own.rest.substr(own.rest.rfind('.'));
    GgufOrigin origin;
    for (const std::string_view part : place.made->parts) {
      if (part.empty()) continue;
      const std::string name = StrCat("blk.", own.layer, ".", part, kind);
      origin.parts.push_back(file_.FindTensor(name));
      if (origin.parts.back() == nullptr) {
        return BadInput(StrCat(NameOfTensor(file_, tensor), " is a part of ",
                               Quoted(place.name, 120), ", and ", Quoted(name, 120),
                               ", which is another, is missing"));
      }
    }
    if (origin.parts[0] != &tensor) return {};
    switch (place.made->order) {
      case GgufOrder::kStacked:
        KVG_TRY(Stack(origin));
        break;
      case GgufOrder::kByGroup:
        KVG_TRY(Group(origin));
        break;
      case GgufOrder::kLatent:
        KVG_TRY(JoinLatent(origin));
        break;
      case GgufOrder::kDelta:
        KVG_TRY(JoinDelta(origin));
        break;
    }
    return Put(place.name, std::move(origin));
  }

  Status Stack(GgufOrigin& origin) const {
    const GgufTensor& first = *origin.parts[0];
    int64_t rows = 0;
    for (size_t part = 0; part < origin.parts.size(); ++part) {
      const GgufTensor& tensor = *origin.parts[part];
      if (tensor.shape.size() > 2 || tensor.shape.size() != first.shape.size() ||
          ColumnsOf(tensor) != ColumnsOf(first)) {
        return WrongShape(file_, tensor, StrCat("but for rows that of ", Quoted(first.name, 120)));
      }
      origin.order.runs.push_back({.part = part, .rows = tensor.shape[0]});
      rows += tensor.shape[0];
    }
    origin.shape = ShapeLike(first, rows);
    return {};
  }

  Status Group(GgufOrigin& origin) const {
    const GgufTensor& first = *origin.parts[0];
    if (origin.parts.size() == 1) {
      KVG_ASSIGN(const HeadRows heads, FusedHeads(file_, first));
      origin.shape = first.shape;
      origin.order = {
          .groups = heads.keys,
          .runs = {{.rows = heads.queries / heads.keys * heads.rows},
                   {.rows = heads.rows, .first = heads.queries * heads.rows},
                   {.rows = heads.rows, .first = (heads.queries + heads.keys) * heads.rows}}};
      return {};
    }
    const GgufTensor &keys = *origin.parts[1], &values = *origin.parts[2];
    const int64_t heads = QueryHeads(file_), groups = KvHeads(file_);
    const int64_t head_rows = groups > 0 ? keys.shape[0] / groups : 0;
    const bool paired = file_.architecture->paired;
    const auto fits = [&](const GgufTensor& tensor, int64_t count) {
      return tensor.shape.size() <= 2 && tensor.shape.size() == first.shape.size() &&
             tensor.shape[0] == count * head_rows && ColumnsOf(tensor) == ColumnsOf(first);
    };
    if (groups < 1 || heads % groups != 0 || head_rows < 1 || (paired && head_rows % 2 != 0) ||
        !fits(first, heads) || !fits(keys, groups) || !fits(values, groups)) {
      return WrongShape(file_, first,
                        StrCat("rows of ", heads, " heads, and of ", groups,
                               " each in the tensors of keys and values"));
    }
    const int64_t turns = paired ? head_rows : 0;
    origin.shape = ShapeLike(first, (heads + 2 * groups) * head_rows);
    origin.order = {.groups = groups,
                    .runs = {{.rows = heads / groups * head_rows, .head_rows = turns},
                             {.part = 1, .rows = head_rows, .head_rows = turns},
                             {.part = 2, .rows = head_rows}}};
    return {};
  }

  // attn_k_b [heads, latent, keys' part] and attn_v_b [heads, values' part, latent].
  Status JoinLatent(GgufOrigin& origin) const {
    const GgufTensor &keys = *origin.parts[0], &values = *origin.parts[1];
    const int64_t heads = QueryHeads(file_);
    if (keys.shape.size() != 3 || keys.shape[0] != heads) {
      return WrongShape(file_, keys, StrCat("three dimensions, the first ", heads, " heads"));
    }
    const int64_t latent = keys.shape[1];
    if (values.shape.size() != 3 || values.shape[0] != heads || values.shape[2] != latent) {
      return WrongShape(file_, values, StrCat("[", heads, " heads, rows, ", latent, " columns]"));
    }
    origin.shape = {heads * (keys.shape[2] + values.shape[1]), latent};
    origin.order = {
        .groups = heads,
        .runs = {{.rows = keys.shape[2], .across = true}, {.part = 1, .rows = values.shape[1]}}};
    return {};
  }

  // attn_qkv: all queries, all keys, all values; attn_gate: all gates.
  Status JoinDelta(GgufOrigin& origin) const {
    const GgufTensor &mixed = *origin.parts[0], &gates = *origin.parts[1];
    const int64_t groups = LargestOf(file_, "ssm.group_count");
    const int64_t heads = LargestOf(file_, "ssm.time_step_rank");
    const int64_t keys = LargestOf(file_, "ssm.state_size");
    const int64_t values = LargestOf(file_, "ssm.inner_size");
    if (groups < 1 || heads < 1 || keys < 1 || values < 1 || heads % groups != 0 ||
        values % heads != 0) {
      return BadInput(StrCat(NameOfTensor(file_, mixed), " has ", groups, " heads of ", keys,
                             " keys, and ", heads, " of ", values,
                             " values together; expected a multiple of the first, and that of it"));
    }
    const int64_t own = values / groups;
    if (mixed.shape.size() != 2 || mixed.shape[0] != 2 * groups * keys + values) {
      return WrongShape(file_, mixed, StrCat(2 * groups * keys + values, " rows of a matrix"));
    }
    if (gates.shape.size() != 2 || gates.shape[0] != values || gates.shape[1] != mixed.shape[1]) {
      return WrongShape(file_, gates, StrCat("[", values, ", ", mixed.shape[1], "]"));
    }
    origin.shape = {mixed.shape[0] + gates.shape[0], mixed.shape[1]};
    origin.order = {.groups = groups,
                    .runs = {{.rows = keys},
                             {.rows = keys, .first = groups * keys},
                             {.rows = own, .first = 2 * groups * keys},
                             {.part = 1, .rows = own}}};
    return {};
  }

  const GgufFile& file_;
  std::map<std::string, GgufOrigin> origins_;
};

}  // namespace

Result<std::map<std::string, GgufOrigin>> FindGgufOrigins(const GgufFile& file) {
  OriginFinder finder(file);
  const std::optional<int64_t> drafts = file.DraftLayer();
  for (const GgufTensor& tensor : file.header.tensors) {
    if (IsGgufRopeTensor(tensor.name)) continue;  // the configuration has them
    const std::optional<NumberedName> layer = SplitGgufLayer(tensor.name);
    if (layer && drafts && layer->layer >= *drafts) continue;
    KVG_TRY(finder.Add(tensor));
  }
  return finder.Take();
}

}  // namespace kvgauge
