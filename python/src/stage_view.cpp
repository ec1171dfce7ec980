// SPDX-License-Identifier: Apache-2.0
#include "src/stage_view.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/strings.h"
#include "src/lent_array.h"

namespace kvgauge::python {
namespace {

template <class T, size_t N>
T Named(const std::string& name, const std::array<std::pair<const char*, T>, N>& all,
        const char* what) {
  std::vector<std::string> names;
  for (const auto& [known, value] : all) {
    if (name == known) return value;
    names.push_back(Quoted(known));
  }
  throw py::value_error(
      StrCat("unknown ", what, " ", Quoted(name), "; one of ", Join(names, ", ")));
}

}  // namespace

LayerView& StageView::view() const {
  if (view_ == nullptr) {
    throw std::runtime_error(StrCat(stage_,
                                    " uses a view after its call; a view lives as long as the call "
                                    "it was given to"));
  }
  view_->ops().memory->TakeBack();
  return *view_;
}

void StageView::Detach() {
  if (view_ == nullptr) return;
  view_->ops().memory->Synchronize();
  view_ = nullptr;
  std::for_each(owners_.begin(), owners_.end(), EndLoan);
  owners_.clear();
}

StageView::Fault StageView::Close() {
  view().ops().memory->Synchronize();
  const auto any = [this](auto is) { return std::any_of(owners_.begin(), owners_.end(), is); };
  const auto kept = [](const py::object& owner) { return owner.ref_count() > 1; };
  Fault fault = any(WasWritten) ? Fault::kWritten : Fault::kNone;
  if (fault == Fault::kNone && any(kept)) {
    // Arrays in reference cycles, such as those of a graph of gradients, go with the next
    // collection.
    py::module_::import("gc").attr("collect")();
    if (any(kept)) fault = Fault::kKept;
  }
  Detach();
  return fault;
}

py::object StageView::Borrow(const Tensor& tensor) {
  Ops& ops = view().ops();
  // What comes after this may be on any stream.
  if (tensor.device != Device::kHost) ops.memory->Synchronize();
  owners_.emplace_back();
  return LendArray(tensor, ops, owners_.back());
}

void StageView::CheckEntries(int64_t head, int64_t first) const {
  const auto lengths = view().lengths();
  if (head < 0 || head >= static_cast<int64_t>(lengths.size())) {
    throw py::index_error(
        StrCat(stage_, ": KV head ", head, "; the model has heads 0 to ", lengths.size() - 1));
  }
  const int64_t length = lengths[static_cast<size_t>(head)];
  if (first < 0 || first > length) {
    throw py::index_error(StrCat(stage_, ": first entry ", first, "; head ", head, " of layer ",
                                 view().layer(), " holds ", length));
  }
}

void StageView::CheckDeclared(bool declared, const char* need) const {
  if (declared) return;
  throw std::runtime_error(StrCat(stage_, " asks for what it did not declare; its decorator needs ",
                                  "needs={\"", need, "\": ...}"));
}

void StageView::CheckPrefill(const char* signal) const {
  if (!view().decoding()) return;
  throw std::runtime_error(StrCat(stage_, ": ", signal,
                                  " belongs to the prompt and is gone while decoding; look at "
                                  "view.decoding first"));
}

void StageView::CheckStep(const char* signal) const {
  if (view().decoding()) return;
  throw std::runtime_error(
      StrCat(stage_, ": ", signal, " is there while decoding only; look at view.decoding first"));
}

py::object StageView::Keys(int64_t head, int64_t first) {
  CheckEntries(head, first);
  return Borrow(view().Keys(head, first));
}

py::object StageView::RawKeys(int64_t head, int64_t first) {
  CheckEntries(head, first);
  CheckDeclared(needs_.raw_keys, "raw_keys");
  return Borrow(view().RawKeys(head, first));
}

py::object StageView::Values(int64_t head, int64_t first) {
  CheckEntries(head, first);
  return Borrow(view().Values(head, first));
}

py::object StageView::Positions(int64_t head, int64_t first) {
  CheckEntries(head, first);
  return Borrow(view().Positions(head, first));
}

py::object StageView::OfClass(const std::string& name, int64_t head, int64_t first) {
  static constexpr std::array<std::pair<const char*, TokenClass>, 3> kClasses = {
      {{"special", TokenClass::kSpecial},
       {"punctuation", TokenClass::kPunctuation},
       {"separator", TokenClass::kSeparator}}};
  CheckEntries(head, first);
  CheckDeclared(needs_.token_classes, "token_classes");
  return Borrow(view().OfClass(Named(name, kClasses, "class of tokens"), head, first));
}

py::object StageView::OfModality(const std::string& name, int64_t head, int64_t first) {
  static constexpr std::array<std::pair<const char*, Modality>, 3> kKinds = {
      {{"text", Modality::kText}, {"image", Modality::kImage}, {"video", Modality::kVideo}}};
  CheckEntries(head, first);
  CheckDeclared(needs_.modality, "modality");
  return Borrow(view().OfModality(Named(name, kKinds, "modality"), head, first));
}

py::object StageView::VisualPlaces(const std::string& axis, int64_t head, int64_t first) {
  static constexpr std::array<std::pair<const char*, VisualAxis>, 4> kAxes = {
      {{"item", VisualAxis::kItem},
       {"frame", VisualAxis::kFrame},
       {"row", VisualAxis::kRow},
       {"column", VisualAxis::kColumn}}};
  CheckEntries(head, first);
  CheckDeclared(needs_.modality, "modality");
  return Borrow(view().VisualPlaces(Named(axis, kAxes, "axis"), head, first));
}

py::object StageView::WindowAttention(int64_t rows) {
  CheckPrefill("window_attention");
  CheckDeclared(needs_.most_window() > 0, "window");
  if (rows < 1 || rows > needs_.most_window()) {
    throw py::value_error(
        StrCat(stage_, ": a window of ", rows, " rows; it declared ", needs_.most_window()));
  }
  return Borrow(view().WindowAttention(rows));
}

py::object StageView::WindowQueries(int64_t rows) {
  CheckPrefill("window_queries");
  CheckDeclared(needs_.most_window() > 0, "window");
  if (rows < 1 || rows > needs_.most_window()) {
    throw py::value_error(
        StrCat(stage_, ": a window of ", rows, " rows; it declared ", needs_.most_window()));
  }
  return Borrow(view().WindowQueries(rows));
}

int64_t StageView::QuestionRows(int64_t most) {
  CheckPrefill("question_rows");
  CheckDeclared(needs_.question_rows > 0 && most >= 1 && most <= needs_.question_rows,
                "question_rows");
  return view().QuestionRows(most);
}

py::object StageView::LastRow(int64_t of_layer) {
  CheckPrefill("last_row");
  const auto& layers = needs_.last_row_of;
  CheckDeclared(std::find(layers.begin(), layers.end(), of_layer) != layers.end(), "last_row_of");
  return Borrow(view().LastRow(of_layer));
}

py::object StageView::ColumnSums() {
  CheckPrefill("column_sums");
  CheckDeclared(needs_.column_sums, "column_sums");
  return Borrow(view().ColumnSums());
}

py::object StageView::ColumnSquares() {
  CheckPrefill("column_squares");
  CheckDeclared(needs_.column_squares, "column_squares");
  return Borrow(view().ColumnSquares());
}

py::object StageView::QueryMean(int64_t from) {
  CheckPrefill("query_mean");
  const auto& moments = needs_.query_moments;
  CheckDeclared(std::find(moments.begin(), moments.end(), from) != moments.end(), "query_moments");
  return Borrow(view().QueryMean(from));
}

py::object StageView::QueryCovariance(int64_t from) {
  CheckPrefill("query_covariance");
  const auto& moments = needs_.query_moments;
  CheckDeclared(std::find(moments.begin(), moments.end(), from) != moments.end(), "query_moments");
  return Borrow(view().QueryCovariance(from));
}

py::object StageView::Rotations(int64_t first, int64_t count) {
  if (first < 0 || count < 1) throw py::value_error(StrCat(stage_, ": rotations of no positions"));
  return Borrow(view().Rotations(first, count));
}

py::object StageView::OutputWeights(int64_t query_head) {
  CheckDeclared(needs_.output_weights, "output_weights");
  if (query_head < 0 || query_head >= shape().query_heads) {
    throw py::index_error(StrCat(stage_, ": query head ", query_head, "; the model has heads 0 to ",
                                 shape().query_heads - 1));
  }
  return Borrow(view().OutputWeights(query_head));
}

py::object StageView::StepAttention() {
  CheckStep("step_attention");
  CheckDeclared(needs_.step_attention, "step_attention");
  return Borrow(view().StepAttention());
}

py::object StageView::StepQueries() {
  CheckStep("step_queries");
  CheckDeclared(needs_.step_queries, "step_queries");
  return Borrow(view().StepQueries());
}

void BindStageView(py::module_& module) {
  using py::arg;
  py::class_<StageView, std::shared_ptr<StageView>>(
      module, "View", "One layer of one sequence as a stage sees it; it lives as long as the call.")
      .def_property_readonly("layer", [](const StageView& v) { return v.view().layer(); })
      .def_property_readonly("layers", [](const StageView& v) { return v.shape().layers; })
      .def_property_readonly("kv_heads", [](const StageView& v) { return v.shape().kv_heads; })
      .def_property_readonly("query_heads",
                             [](const StageView& v) { return v.shape().query_heads; })
      .def_property_readonly("key_dim", [](const StageView& v) { return v.shape().key_dim; })
      .def_property_readonly("value_dim", [](const StageView& v) { return v.shape().value_dim; })
      .def_property_readonly("hidden_size",
                             [](const StageView& v) { return v.shape().hidden_size; })
      .def_property_readonly("tokens", [](const StageView& v) { return v.view().tokens(); })
      .def_property_readonly("width", [](const StageView& v) { return v.view().width(); })
      .def_property_readonly("lengths",
                             [](const StageView& v) {
                               const auto lengths = v.view().lengths();
                               return std::vector<int64_t>(lengths.begin(), lengths.end());
                             })
      .def_property_readonly("decoding", [](const StageView& v) { return v.view().decoding(); })
      .def_property_readonly("seed", [](const StageView& v) { return v.view().seed(); })
      .def("keys", &StageView::Keys, arg("head"), arg("first") = 0)
      .def("raw_keys", &StageView::RawKeys, arg("head"), arg("first") = 0)
      .def("values", &StageView::Values, arg("head"), arg("first") = 0)
      .def("positions", &StageView::Positions, arg("head"), arg("first") = 0)
      .def("of_class", &StageView::OfClass, arg("name"), arg("head"), arg("first") = 0)
      .def("of_modality", &StageView::OfModality, arg("name"), arg("head"), arg("first") = 0)
      .def("visual_places", &StageView::VisualPlaces, arg("axis"), arg("head"), arg("first") = 0)
      .def("window_attention", &StageView::WindowAttention, arg("rows"))
      .def("window_queries", &StageView::WindowQueries, arg("rows"))
      .def("question_rows", &StageView::QuestionRows, arg("most"))
      .def("last_row", &StageView::LastRow, arg("of_layer"))
      .def("column_sums", &StageView::ColumnSums)
      .def("column_squares", &StageView::ColumnSquares)
      .def("query_mean", &StageView::QueryMean, arg("from_token"))
      .def("query_covariance", &StageView::QueryCovariance, arg("from_token"))
      .def("rotations", &StageView::Rotations, arg("first"), arg("count"))
      .def("output_weights", &StageView::OutputWeights, arg("query_head"))
      .def("step_attention", &StageView::StepAttention)
      .def("step_queries", &StageView::StepQueries);
}

}  // namespace kvgauge::python
