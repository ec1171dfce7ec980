// SPDX-License-Identifier: Apache-2.0
// A LayerView as Python sees it: arrays over the view's own memory, on the device that it is on, as
// long as the call lasts.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "methods/layer_view.h"

namespace kvgauge::python {

namespace py = pybind11;

// Every function holds the interpreter's lock. Asking for what the stage did not declare, for what
// there is not at this time, or for anything after the call is a Python exception.
class StageView {
 public:
  // `view` outlives Close(); Python may hold the object for longer.
  StageView(LayerView& view, Needs needs, std::string stage)
      : view_(&view), needs_(std::move(needs)), stage_(std::move(stage)) {}
  StageView(const StageView&) = delete;
  StageView& operator=(const StageView&) = delete;

  // Ends the call and says what it did that no call may: an array over the view's memory is still
  // held, in whatever library, or the memory was written through one that ignores that it is
  // read-only.
  enum class Fault { kNone, kKept, kWritten };
  Fault Close();
  // Ends the call without a look at what it left. On a device, what other libraries still compute
  // with its arrays is done then.
  void Detach();

  LayerView& view() const;
  const ModelShape& shape() const { return view().shape(); }

  py::object Keys(int64_t head, int64_t first);
  py::object RawKeys(int64_t head, int64_t first);
  py::object Values(int64_t head, int64_t first);
  py::object Positions(int64_t head, int64_t first);
  py::object OfClass(const std::string& name, int64_t head, int64_t first);
  py::object OfModality(const std::string& name, int64_t head, int64_t first);
  py::object VisualPlaces(const std::string& axis, int64_t head, int64_t first);
  py::object WindowAttention(int64_t rows);
  py::object WindowQueries(int64_t rows);
  int64_t QuestionRows(int64_t most);
  py::object LastRow(int64_t of_layer);
  py::object ColumnSums();
  py::object ColumnSquares();
  py::object QueryMean(int64_t from);
  py::object QueryCovariance(int64_t from);
  py::object Rotations(int64_t first, int64_t count);
  py::object OutputWeights(int64_t query_head);
  py::object StepAttention();
  py::object StepQueries();

  // An array over memory that lives as long as the call.
  py::object Borrow(const Tensor& tensor);

 private:
  void CheckEntries(int64_t head, int64_t first) const;
  void CheckDeclared(bool declared, const char* need) const;
  void CheckPrefill(const char* signal) const;
  void CheckStep(const char* signal) const;

  LayerView* view_;
  Needs needs_;
  std::string stage_;
  std::vector<py::object> owners_;  // of the arrays that were handed out
};

// A view for as long as a call, however the call ends.
class LentView {
 public:
  explicit LentView(std::shared_ptr<StageView> view) : view_(std::move(view)) {}
  LentView(LentView&& other) noexcept = default;
  LentView& operator=(LentView&& other) = delete;
  ~LentView() {
    if (view_ != nullptr) view_->Detach();
  }

  StageView& operator*() const { return *view_; }
  StageView* operator->() const { return view_.get(); }
  const std::shared_ptr<StageView>& object() const { return view_; }  // for Python

 private:
  std::shared_ptr<StageView> view_;
};

void BindStageView(py::module_& module);

}  // namespace kvgauge::python
