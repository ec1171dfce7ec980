// SPDX-License-Identifier: Apache-2.0
// A LayerView as Python sees it: arrays over the view's own memory, as long as the call lasts.
#pragma once

#include <pybind11/numpy.h>
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
  // Ends the call without a look at what it left.
  void Detach();

  LayerView& view() const;
  const ModelShape& shape() const { return view().shape(); }

  py::array Keys(int64_t head, int64_t first);
  py::array RawKeys(int64_t head, int64_t first);
  py::array Values(int64_t head, int64_t first);
  py::array Positions(int64_t head, int64_t first);
  py::array OfClass(const std::string& name, int64_t head, int64_t first);
  py::array OfModality(const std::string& name, int64_t head, int64_t first);
  py::array VisualPlaces(const std::string& axis, int64_t head, int64_t first);
  py::array WindowAttention(int64_t rows);
  py::array WindowQueries(int64_t rows);
  int64_t QuestionRows(int64_t most);
  py::array LastRow(int64_t of_layer);
  py::array ColumnSums();
  py::array ColumnSquares();
  py::array QueryMean(int64_t from);
  py::array QueryCovariance(int64_t from);
  py::array Rotations(int64_t first, int64_t count);
  py::array OutputWeights(int64_t query_head);
  py::array StepAttention();
  py::array StepQueries();

  // An array over memory that lives as long as the call.
  py::array Borrow(const Tensor& tensor, bool writeable);

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
