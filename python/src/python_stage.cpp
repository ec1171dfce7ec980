// SPDX-License-Identifier: Apache-2.0
#include "src/python_stage.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge::python {
namespace {

py::dict AsDict(const Params& params) {
  py::dict dict;
  const Json json = params.ToJson();
  for (const auto& [name, value] : json.items()) {
    if (value.is_boolean()) {
      dict[py::str(name)] = value.get<bool>();
    } else if (value.is_number_integer()) {
      dict[py::str(name)] = value.get<int64_t>();
    } else if (value.is_number()) {
      dict[py::str(name)] = value.get<double>();
    } else {
      dict[py::str(name)] = value.get<std::string>();
    }
  }
  return dict;
}

std::vector<int64_t> Ascending(const py::handle& value) {
  std::vector<int64_t> numbers;
  if (py::isinstance<py::int_>(value)) {
    numbers.push_back(value.cast<int64_t>());
  } else {
    numbers = value.cast<std::vector<int64_t>>();
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

Needs NeedsOf(const py::object& described) {
  Needs needs;
  if (described.is_none()) return needs;
  for (const auto& [key, value] : described.cast<py::dict>()) {
    const auto name = key.cast<std::string>();
    if (name == "window") {
      needs.window = value.cast<int64_t>();
    } else if (name == "question_rows") {
      needs.question_rows = value.cast<int64_t>();
    } else if (name == "last_row_of") {
      needs.last_row_of = Ascending(value);
    } else if (name == "query_moments") {
      needs.query_moments = Ascending(value);
    } else if (name == "column_sums") {
      needs.column_sums = value.cast<bool>();
    } else if (name == "column_squares") {
      needs.column_squares = value.cast<bool>();
    } else if (name == "raw_keys") {
      needs.raw_keys = value.cast<bool>();
    } else if (name == "output_weights") {
      needs.output_weights = value.cast<bool>();
    } else if (name == "step_attention") {
      needs.step_attention = value.cast<bool>();
    } else if (name == "step_queries") {
      needs.step_queries = value.cast<bool>();
    } else if (name == "token_classes") {
      needs.token_classes = value.cast<bool>();
    } else if (name == "modality") {
      needs.modality = value.cast<bool>();
    } else {
      throw py::value_error(StrCat(
          "needs has no ", Quoted(name),
          "; it has window, question_rows, last_row_of, query_moments, column_sums, "
          "column_squares, raw_keys, output_weights, step_attention, step_queries, token_classes "
          "and modality"));
    }
  }
  if (needs.window < 0 || needs.question_rows < 0) {
    throw py::value_error("needs: a window has at least one row");
  }
  return needs;
}

}  // namespace

void Rethrow(const Definition& definition, const py::error_already_set& error) {
  std::string what;
  try {
    // The package writes it: "ValueError: ... (mine.py:12 in score, ...)".
    what = py::module_::import("kvgauge._stages")
               .attr("describe_error")(error.value(), error.trace() ? error.trace() : py::none())
               .cast<std::string>();
  } catch (const std::exception&) {
    what = error.what();
  }
  throw std::runtime_error(StrCat(definition.name(), ": ", what));
}

BoundDefinition::BoundDefinition(const Definition& definition, const Params& params)
    : definition_(definition) {
  WithPython(definition_, [&] {
    py::dict dict = AsDict(params);
    if (!definition_.needs.is_none()) needs_ = NeedsOf(definition_.needs(dict));
    params_ = dict.release().ptr();
  });
}

BoundDefinition::~BoundDefinition() {
  const py::gil_scoped_acquire lock;
  Py_XDECREF(params_);
}

bool BoundDefinition::has(const char* function) const {
  const py::gil_scoped_acquire lock;
  return definition_.functions.cast<py::dict>().contains(function);
}

LentView BoundDefinition::Look(LayerView& view) const {
  // A device that takes all work of a step at once cannot: it must say so before Python is called,
  // through which nothing but its own exceptions passes.
  view.ops().memory->Synchronize();
  return LentView(std::make_shared<StageView>(view, needs_, definition_.name()));
}

py::object BoundDefinition::Call(const Ops& ops, const char* function, const py::args& args) const {
  const auto functions = definition_.functions.cast<py::dict>();
  py::object result = functions[function](*args, **py::reinterpret_borrow<py::dict>(params_));
  ops.memory->TakeBack();  // torch.cuda.set_device, for one
  return result;
}

void BoundDefinition::Close(StageView& view) const {
  switch (view.Close()) {
    case StageView::Fault::kNone:
      return;
    case StageView::Fault::kKept:
      throw std::runtime_error(
          StrCat(definition_.name(),
                 " keeps an array of a view after its call, when the memory belongs to others; "
                 "keep array.copy() instead"));
    case StageView::Fault::kWritten:
      throw std::runtime_error(
          StrCat(definition_.name(),
                 " writes into an array of a view, whose memory is read-only; write into a copy, "
                 "such as tensor.clone()"));
  }
}

}  // namespace kvgauge::python
