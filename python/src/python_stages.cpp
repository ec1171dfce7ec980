// SPDX-License-Identifier: Apache-2.0
// The kinds of stages that can be written in Python, and their registration.
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/strings.h"
#include "src/dlpack.h"
#include "src/lent_array.h"
#include "src/python_stage.h"

namespace kvgauge::python {
namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Indices = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

std::string NameOfType(const py::array& array) {
  return py::str(array.dtype()).cast<std::string>();
}

// Whole numbers only: 3.7 is no entry.
py::array ToWhole(Ops& ops, const py::object& value, const std::string& what) {
  py::array array = AnyArray(ops, value, what);
  if (!array) throw py::type_error(StrCat(what, " is no array of numbers"));
  const char kind = array.dtype().kind();
  if (array.size() > 0 && kind != 'i' && kind != 'u') {
    throw py::type_error(
        StrCat(what, " is an array of ", NameOfType(array), "; expected whole numbers"));
  }
  return array;
}

Indices ToIndices(Ops& ops, const py::object& value, const std::string& what) {
  Indices indices = Indices::ensure(ToWhole(ops, value, what));
  if (!indices || indices.ndim() != 1) {
    PyErr_Clear();
    throw py::value_error(StrCat(what, " has not one axis"));
  }
  return indices;
}

Floats ToFloats(Ops& ops, const py::object& value, const std::string& what) {
  const py::array array = AnyArray(ops, value, what);
  if (!array) throw py::type_error(StrCat(what, " is no array of numbers"));
  if (std::string_view("fiub").find(array.dtype().kind()) == std::string_view::npos) {
    throw py::type_error(
        StrCat(what, " is an array of ", NameOfType(array), "; expected real numbers"));
  }
  Floats floats = Floats::ensure(array);
  if (!floats) {
    PyErr_Clear();
    throw py::type_error(StrCat(what, " is no array of numbers"));
  }
  return floats;
}

// What a function returned for each head or layer: an array with an outermost axis, or a sequence.
py::object ToRows(Ops& ops, const py::object& result, const std::string& what) {
  if (result.is_none()) throw py::type_error(StrCat(what, ": the function returned None"));
  if (py::hasattr(result, "__dlpack__")) return AnyArray(ops, result, what);
  if (!py::isinstance<py::sequence>(result) || py::isinstance<py::dict>(result)) {
    throw py::type_error(StrCat(what, ": the function returned a ",
                                py::str(py::type::of(result).attr("__name__")).cast<std::string>(),
                                "; expected an array or a sequence of arrays"));
  }
  return result;
}

std::string ShapeOf(const py::array& array) {
  std::vector<std::string> dims;
  for (py::ssize_t axis = 0; axis < array.ndim(); ++axis) {
    dims.push_back(std::to_string(array.shape(axis)));
  }
  return StrCat("[", Join(dims, ", "), "]");
}

void CheckFinite(const Floats& from, const std::string& what) {
  for (py::ssize_t i = 0; i < from.size(); ++i) {
    if (std::isfinite(from.data()[i])) continue;
    throw py::value_error(StrCat(what, ": number ", i, " is ", from.data()[i], ", not finite"));
  }
}

// The scores of one head, which must be finite.
std::vector<float> CopyScores(const Floats& from, int64_t length, int64_t head,
                              const std::string& what) {
  if (from.ndim() != 1 || from.shape(0) != length) {
    throw py::value_error(StrCat(what, " of head ", head, " have the shape ", ShapeOf(from),
                                 "; expected [", length, "], one for each entry"));
  }
  std::vector<float> scores(from.data(), from.data() + length);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isfinite(scores[i])) continue;
    throw py::value_error(
        StrCat(what, " of head ", head, " are not finite: entry ", i, " has ", scores[i]));
  }
  return scores;
}

// By head. The result is [kv_heads, width], or a sequence with one array a head. Rows of heads that
// hold less than `width` may be as long as the head or as `width`.
std::vector<std::vector<float>> TakeScores(const py::object& result, const StageView& view,
                                           const std::string& what) {
  const auto lengths = view.view().lengths();
  Ops& ops = view.view().ops();
  const py::object rows = ToRows(ops, result, what);
  if (py::len(rows) != lengths.size()) {
    throw py::value_error(
        StrCat(what, ": ", py::len(rows), " rows for ", lengths.size(), " KV heads"));
  }
  std::vector<std::vector<float>> taken;
  for (const int64_t length : lengths) {
    const auto head = static_cast<int64_t>(taken.size());
    Floats scores = ToFloats(ops, rows[py::int_(head)], what);
    if (scores.ndim() == 1 && scores.shape(0) == view.view().width() && scores.shape(0) > length) {
      scores = scores[py::slice(0, length, 1)].cast<Floats>();
    }
    taken.push_back(CopyScores(scores, length, head, what));
  }
  return taken;
}

void PutScores(Ops& ops, const std::vector<std::vector<float>>& scores, const Tensor& out) {
  for (size_t head = 0; head < scores.size(); ++head) {
    const auto length = static_cast<int64_t>(scores[head].size());
    if (length == 0) continue;
    ops.memory->Copy(View(scores[head], {length}),
                     out[static_cast<int64_t>(head)].Slice(0, length));
  }
}

class PythonScorer final : public Scorer {
 public:
  PythonScorer(const Definition& definition, const Params& params) : bound_(definition, params) {}

  Needs needs() const override { return bound_.needs(); }
  int64_t protects() const override { return bound_.definition().protects; }
  bool any_time() const override { return bound_.definition().any_time; }
  bool ages() const override { return bound_.has("age"); }

  void Score(LayerView& view, Tensor out) const override {
    WithPython(bound_.definition(), [&] {
      const auto seen = bound_.Look(view);
      const auto taken = TakeScores(bound_.Call(view.ops(), "score", py::make_tuple(seen.object())),
                                    *seen, "scores");
      bound_.Close(*seen);
      PutScores(view.ops(), taken, out);
    });
  }

  void Age(LayerView& view, Tensor scores) const override {
    WithPython(bound_.definition(), [&] {
      const auto seen = bound_.Look(view);
      const auto taken = TakeScores(
          bound_.Call(view.ops(), "age", py::make_tuple(seen.object(), seen->Borrow(scores))),
          *seen, "aged scores");
      // Those that were lent may change from here on.
      bound_.Close(*seen);
      PutScores(view.ops(), taken, scores);
    });
  }

 private:
  BoundDefinition bound_;
};

class PythonAllocator final : public Allocator {
 public:
  PythonAllocator(const Definition& definition, const Params& params)
      : bound_(definition, params) {}

  Needs needs() const override { return bound_.needs(); }
  bool needs_scores() const override { return bound_.definition().needs_scores; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    return WithPython(bound_.definition(), [&] {
      py::list views, scores;
      std::vector<LentView> seen;
      for (LayerView* view : input.views) {
        seen.push_back(bound_.Look(*view));
        views.append(seen.back().object());
      }
      for (size_t layer = 0; layer < input.scores.size(); ++layer) {
        scores.append(seen[layer]->Borrow(input.scores[layer]));
      }
      py::object request =
          py::module_::import("kvgauge._stages")
              .attr("AllocationRequest")(
                  py::arg("layers") = input.shape->layers,
                  py::arg("kv_heads") = input.shape->kv_heads, py::arg("length") = input.length,
                  py::arg("per_head") = input.per_head,
                  py::arg("protected") = input.protected_entries, py::arg("window") = input.window,
                  py::arg("views") = views, py::arg("scores") = scores);
      scores = py::list();
      Allocation allocation;
      {
        const py::object result =
            bound_.Call(input.views[0]->ops(), "allocate", py::make_tuple(request));
        allocation = Take(result, input);
      }
      request = py::none();
      views = py::list();
      for (const LentView& view : seen) bound_.Close(*view);
      return Result<Allocation>(std::move(allocation));
    });
  }

 private:
  static Allocation Take(const py::object& returned, const AllocationInput& input) {
    Allocation allocation;
    Ops& ops = input.views[0]->ops();
    const py::object result = ToRows(ops, returned, "allotments");
    if (static_cast<int64_t>(py::len(result)) != input.shape->layers) {
      throw py::value_error(StrCat("allotments for ", py::len(result), " layers; the model has ",
                                   input.shape->layers));
    }
    for (int64_t layer = 0; layer < input.shape->layers; ++layer) {
      const py::object row = result[py::int_(layer)];
      const std::string what = StrCat("the allotment of layer ", layer);
      std::vector<int64_t> heads;
      if (const py::array all = ToWhole(ops, row, what); all.ndim() == 0) {
        const Indices one = Indices::ensure(all);
        heads.assign(static_cast<size_t>(input.shape->kv_heads), *one.data());
      } else {
        const Indices counts = ToIndices(ops, all, what);
        heads.assign(counts.data(), counts.data() + counts.size());
      }
      if (static_cast<int64_t>(heads.size()) != input.shape->kv_heads) {
        throw py::value_error(StrCat("layer ", layer, " has allotments for ", heads.size(),
                                     " heads; the model has ", input.shape->kv_heads));
      }
      for (size_t head = 0; head < heads.size(); ++head) {
        if (heads[head] >= input.protected_entries && heads[head] <= input.length) continue;
        throw py::value_error(StrCat("layer ", layer, ", head ", head, " is given ", heads[head],
                                     " entries; expected ", input.protected_entries,
                                     " (protected) to ", input.length, " (all)"));
      }
      allocation.push_back(std::move(heads));
    }
    return allocation;
  }

  BoundDefinition bound_;
};

class PythonReducer final : public Reducer {
 public:
  PythonReducer(const Definition& definition, const Params& params) : bound_(definition, params) {}

  Needs needs() const override { return bound_.needs(); }
  bool merges_keys() const override { return bound_.definition().merges_keys; }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    return WithPython(bound_.definition(), [&] {
      std::vector<HeadPlan> plans;
      const auto seen = bound_.Look(view);
      {
        const std::vector<int64_t> allotted(input.allocated.begin(), input.allocated.end());
        const py::object result =
            ToRows(view.ops(),
                   bound_.Call(view.ops(), "reduce",
                               py::make_tuple(seen.object(), seen->Borrow(input.scores), allotted)),
                   "plans");
        if (py::len(result) != allotted.size()) {
          throw py::value_error(
              StrCat("plans for ", py::len(result), " heads; the model has ", allotted.size()));
        }
        for (size_t head = 0; head < allotted.size(); ++head) {
          plans.push_back(
              PlanOf(view, result[py::int_(head)], static_cast<int64_t>(head), allotted[head]));
        }
      }
      bound_.Close(*seen);
      return plans;
    });
  }

 private:
  template <class T>
  static Tensor Keep(LayerView& view, DType dtype, const std::vector<T>& values) {
    const auto n = static_cast<int64_t>(values.size());
    Tensor tensor = view.Scratch(dtype, {std::max<int64_t>(n, 1)}).Slice(0, n);
    if (n > 0) view.ops().memory->Copy(View(std::span<const T>(values), {n}), tensor);
    return tensor;
  }

  static std::vector<int32_t> Entries(Ops& ops, const py::object& value, int64_t least,
                                      int64_t length, const std::string& what) {
    const Indices indices = ToIndices(ops, value, what);
    std::vector<int32_t> entries;
    for (py::ssize_t i = 0; i < indices.size(); ++i) {
      const int64_t entry = indices.at(i);
      if (entry < least || entry >= length) {
        throw py::index_error(StrCat(what, ": entry ", entry, "; the head holds ", length));
      }
      entries.push_back(static_cast<int32_t>(entry));
    }
    return entries;
  }

  // Indices to keep, or a dict with "keep" and what is merged into them.
  HeadPlan PlanOf(LayerView& view, const py::object& described, int64_t head,
                  int64_t allotted) const {
    const int64_t length = view.lengths()[static_cast<size_t>(head)];
    const std::string of_head = StrCat(" of head ", head);
    const bool merges = py::isinstance<py::dict>(described);
    const py::dict plan = merges ? described.cast<py::dict>() : py::dict();
    const py::object kept = merges ? plan.attr("get")("keep").cast<py::object>() : described;
    if (kept.is_none()) throw py::value_error(StrCat("the plan", of_head, " has no \"keep\""));
    std::vector<int32_t> keep = Entries(view.ops(), kept, 0, length, StrCat("keep", of_head));
    std::sort(keep.begin(), keep.end());
    if (std::adjacent_find(keep.begin(), keep.end()) != keep.end()) {
      throw py::value_error(StrCat("keep", of_head, " names an entry twice"));
    }
    if (static_cast<int64_t>(keep.size()) > std::min(allotted, length)) {
      throw py::value_error(
          StrCat("keep", of_head, " has ", keep.size(), " entries; it was given ", allotted));
    }
    HeadPlan out;
    out.keep = Keep(view, DType::kI32, keep);
    for (const auto& [key, value] : plan) {
      const auto name = key.cast<std::string>();
      if (name == "keep") continue;
      const auto object = py::reinterpret_borrow<py::object>(value);
      if (name == "merge_keys") {
        if (!merges_keys()) {
          throw py::value_error("keys are merged by reducers with merges_keys=True alone");
        }
        out.keys = MergeOf(view, object, keep, length, name + of_head);
      } else if (name == "merge_values") {
        out.values = MergeOf(view, object, keep, length, name + of_head);
      } else if (name == "log_weight") {
        const Floats weights = ToFloats(view.ops(), object, name + of_head);
        if (weights.ndim() != 1 || weights.shape(0) != static_cast<py::ssize_t>(keep.size())) {
          throw py::value_error(StrCat(name, of_head, " has the shape ", ShapeOf(weights),
                                       "; expected [", keep.size(), "]"));
        }
        CheckFinite(weights, name + of_head);
        out.log_weight = Keep(view, DType::kF32,
                              std::vector<float>(weights.data(), weights.data() + weights.size()));
      } else {
        throw py::value_error(StrCat("a plan has no ", Quoted(name),
                                     "; it has keep, merge_keys, merge_values and log_weight"));
      }
    }
    return out;
  }

  // (from, to, weight) or (from, to, weight, self)
  static MergeList MergeOf(LayerView& view, const py::object& described,
                           const std::vector<int32_t>& keep, int64_t length,
                           const std::string& what) {
    Ops& ops = view.ops();
    const auto parts = described.cast<py::sequence>();
    if (parts.size() != 3 && parts.size() != 4) {
      throw py::value_error(StrCat(what, " is (from, to, weight) or (from, to, weight, self)"));
    }
    const std::vector<int32_t> from = Entries(ops, parts[0], 0, length, what + ": from");
    const std::vector<int32_t> to = Entries(ops, parts[1], -1, length, what + ": to");
    const Floats weight = ToFloats(ops, parts[2], what + ": weight");
    if (from.size() != to.size() || weight.ndim() != 1 ||
        weight.shape(0) != static_cast<py::ssize_t>(from.size())) {
      throw py::value_error(StrCat(what, ": from, to and weight have ", from.size(), ", ",
                                   to.size(), " and ", weight.size(), " numbers"));
    }
    CheckFinite(weight, what + ": weight");
    for (const int32_t entry : to) {
      if (entry >= 0 && !std::binary_search(keep.begin(), keep.end(), entry)) {
        throw py::value_error(StrCat(what, ": to ", entry, ", which is not kept"));
      }
    }
    MergeList list;
    if (from.empty()) return list;
    list.from = Keep(view, DType::kI32, from);
    list.to = Keep(view, DType::kI32, to);
    list.weight =
        Keep(view, DType::kF32, std::vector<float>(weight.data(), weight.data() + weight.size()));
    if (parts.size() == 4) {
      const Floats self = ToFloats(ops, parts[3], what + ": self");
      if (self.ndim() != 1 || self.shape(0) != length) {
        throw py::value_error(
            StrCat(what, ": self has the shape ", ShapeOf(self), "; expected [", length, "]"));
      }
      CheckFinite(self, what + ": self");
      list.self =
          Keep(view, DType::kF32, std::vector<float>(self.data(), self.data() + self.size()));
    }
    return list;
  }

  BoundDefinition bound_;
};

class PythonReader final : public Reader {
 public:
  PythonReader(const Definition& definition, const Params& params) : bound_(definition, params) {}

  Needs needs() const override { return bound_.needs(); }

  // What the stage's begin() returned, and what its arrays take.
  struct Index final : State {
    ~Index() override {
      const py::gil_scoped_acquire lock;
      Py_XDECREF(object);
    }
    int64_t bytes() const override { return counted; }
    PyObject* object = nullptr;
    int64_t counted = 0;
  };

  std::unique_ptr<State> Begin(LayerView& view) const override {
    return WithPython(bound_.definition(), [&] {
      auto index = std::make_unique<Index>();
      const auto seen = bound_.Look(view);
      index->object =
          bound_.Call(view.ops(), "begin", py::make_tuple(seen.object())).release().ptr();
      bound_.Close(*seen);
      Count(*index);
      return std::unique_ptr<State>(std::move(index));
    });
  }

  void Append(LayerView& view, std::span<const int64_t> first, State& state) const override {
    WithPython(bound_.definition(), [&] {
      auto& index = static_cast<Index&>(state);
      const auto seen = bound_.Look(view);
      {
        const std::vector<int64_t> from(first.begin(), first.end());
        const py::object next = bound_.Call(
            view.ops(), "append", py::make_tuple(seen.object(), py::handle(index.object), from));
        if (!next.is_none()) {
          Py_XDECREF(index.object);
          index.object = py::object(next).release().ptr();
        }
      }
      bound_.Close(*seen);
      Count(index);
    });
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    return WithPython(bound_.definition(), [&] {
      const auto& index = static_cast<const Index&>(state);
      const auto seen = bound_.Look(view);
      bool chose = true;
      {
        const py::object result =
            bound_.Call(view.ops(), "select",
                        py::make_tuple(seen.object(), py::handle(index.object), seen->Borrow(q)));
        chose = !result.is_none();
        if (chose) Mark(view, result, words);
      }
      bound_.Close(*seen);
      return chose;
    });
  }

 private:
  static void Count(Index& index) {
    index.counted = py::module_::import("kvgauge._stages")
                        .attr("nbytes_of")(py::handle(index.object))
                        .cast<int64_t>();
  }

  static void Mark(const LayerView& view, const py::object& returned, const Tensor& words) {
    Ops& ops = view.ops();
    const py::object result = ToRows(ops, returned, "choices");
    const int64_t heads = view.shape().query_heads, group = view.shape().group();
    const auto rows = static_cast<int64_t>(py::len(result));
    if (rows != heads && rows != view.shape().kv_heads) {
      throw py::value_error(StrCat("choices for ", rows, " heads; expected ", heads,
                                   " (query heads) or ", view.shape().kv_heads, " (KV heads)"));
    }
    const int64_t readers = heads / rows, row_words = words.shape[1];
    std::vector<int64_t> bits(static_cast<size_t>(words.Numel()));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t head = row * readers;
      const int64_t length = view.lengths()[static_cast<size_t>(head / group)];
      const Indices chosen =
          ToIndices(ops, result[py::int_(row)], StrCat("the choice of head ", head));
      int64_t* const of_head = bits.data() + head * row_words;
      for (py::ssize_t i = 0; i < chosen.size(); ++i) {
        const int64_t entry = chosen.at(i);
        if (entry < 0 || entry >= length) {
          throw py::index_error(
              StrCat("the choice of head ", head, ": entry ", entry, "; the head holds ", length));
        }
        of_head[entry / 64] |= static_cast<int64_t>(uint64_t{1} << (entry % 64));
      }
      for (int64_t other = 1; other < readers; ++other) {
        std::copy_n(of_head, row_words, of_head + other * row_words);
      }
    }
    ops.memory->Copy(Tensor(bits.data(), DType::kI64, {heads, row_words}), words);
  }

  BoundDefinition bound_;
};

template <class T>
std::function<std::unique_ptr<Stage>(const Params&)> Maker(const Definition& definition) {
  return [&definition](const Params& params) { return std::make_unique<T>(definition, params); };
}

ParamSpec ParamOf(const py::dict& described) {
  const auto name = described["name"].cast<std::string>();
  const py::object value = described["default"];
  const auto help = described["help"].cast<std::string>();
  const py::object least = described["least"], most = described["most"];
  if (py::isinstance<py::bool_>(value)) return BoolParam(name, value.cast<bool>(), help);
  if (py::isinstance<py::int_>(value)) {
    constexpr int64_t kMost = int64_t{1} << 53;
    return IntParam(name, value.cast<int64_t>(), least.is_none() ? -kMost : least.cast<int64_t>(),
                    most.is_none() ? kMost : most.cast<int64_t>(), help);
  }
  if (py::isinstance<py::float_>(value)) {
    constexpr double kMost = std::numeric_limits<double>::infinity();
    return RealParam(name, value.cast<double>(), least.is_none() ? -kMost : least.cast<double>(),
                     most.is_none() ? kMost : most.cast<double>(), help);
  }
  if (py::isinstance<py::str>(value)) {
    return ChoiceParam(name, value.cast<std::string>(),
                       described["choices"].cast<std::vector<std::string>>(), help);
  }
  throw py::type_error(
      StrCat("parameter ", Quoted(name), ": a default is a bool, an int, a float or a str"));
}

}  // namespace

void RegisterStage(const std::string& kind, const std::string& id, const py::dict& description) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): for the life of the process, see Definition
  auto& definition = *new Definition;
  StageSpec& spec = definition.spec;
  spec.id = id;
  spec.version = description["version"].cast<int>();
  spec.paper = description["paper"].cast<std::string>();
  spec.summary = description["summary"].cast<std::string>();
  spec.departures = description["departures"].cast<std::vector<std::string>>();
  spec.bytes = description["bytes"].cast<std::string>();
  spec.plugin = description["digest"].cast<std::string>();
  for (const py::handle& param : description["params"]) {
    spec.params.push_back(ParamOf(param.cast<py::dict>()));
  }
  definition.functions = description["functions"];
  definition.needs = description["needs"];
  definition.any_time = description["any_time"].cast<bool>();
  definition.needs_scores = description["needs_scores"].cast<bool>();
  definition.merges_keys = description["merges_keys"].cast<bool>();
  definition.protects = description["protects"].cast<int64_t>();
  if (kind == "score") {
    spec.kind = StageKind::kScore;
    spec.make = Maker<PythonScorer>(definition);
  } else if (kind == "allocate") {
    spec.kind = StageKind::kAllocate;
    spec.make = Maker<PythonAllocator>(definition);
  } else if (kind == "reduce") {
    spec.kind = StageKind::kReduce;
    spec.make = Maker<PythonReducer>(definition);
  } else if (kind == "read") {
    spec.kind = StageKind::kRead;
    spec.make = Maker<PythonReader>(definition);
  } else {
    throw py::value_error(StrCat("stages of the kind ", Quoted(kind),
                                 " cannot be written in Python; score, allocate, reduce and read "
                                 "can"));
  }
  const std::string fault = FaultOf(spec);
  if (!fault.empty()) throw py::value_error(fault);
  const StageRegistrar registered(spec);
}

void BindStages(py::module_& module) {
  BindLentArrays(module);
  BindStageView(module);
  module.def("register_stage", &RegisterStage, py::arg("kind"), py::arg("id"),
             py::arg("description"));
}

}  // namespace kvgauge::python
