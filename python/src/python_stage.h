// SPDX-License-Identifier: Apache-2.0
// Stages whose functions are written in Python.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "core/params.h"
#include "methods/registry.h"
#include "src/stage_view.h"

namespace kvgauge::python {

// What a decorator of the package hands over: one for each stage, never freed, since the registry
// outlives the interpreter.
struct Definition {
  StageSpec spec;
  py::object functions;  // name -> callable: "score", "age", "allocate", "reduce", "begin", ...
  py::object needs;      // callable: parameters as a dict -> a dict of Needs, or None
  bool any_time = false;
  bool needs_scores = false;
  bool merges_keys = false;
  int64_t protects = 0;

  std::string name() const { return NameOf(spec); }
};

// A definition with parameters. It owns Python objects, so it takes the interpreter's lock when it
// is made and when it goes.
class BoundDefinition {
 public:
  BoundDefinition(const Definition& definition, const Params& params);
  ~BoundDefinition();
  BoundDefinition(const BoundDefinition&) = delete;
  BoundDefinition& operator=(const BoundDefinition&) = delete;

  const Definition& definition() const { return definition_; }
  const Needs& needs() const { return needs_; }
  bool has(const char* function) const;

  LentView Look(LayerView& view) const;
  // Calls a function of the stage with its parameters by name. The lock is held. What comes after
  // it goes to the devices of `ops`, whichever the function chose.
  py::object Call(const Ops& ops, const char* function, const py::args& args) const;
  // Ends the calls that looked at `view`. Precondition: their results were copied and let go.
  void Close(StageView& view) const;

 private:
  const Definition& definition_;
  PyObject* params_ = nullptr;  // a dict
  Needs needs_;
};

// Runs `body` with the interpreter's lock. What Python raises becomes a std::runtime_error of one
// line that names the stage, the exception and where in the user's code it came from.
template <class Body>
auto WithPython(const Definition& definition, Body&& body);

// The message for the exception that is being handled.
[[noreturn]] void Rethrow(const Definition& definition, const py::error_already_set& error);

template <class Body>
auto WithPython(const Definition& definition, Body&& body) {
  const py::gil_scoped_acquire lock;
  try {
    return body();
  } catch (const py::error_already_set& error) {
    Rethrow(definition, error);
  } catch (const py::builtin_exception& error) {
    throw std::runtime_error(definition.name() + ": " + error.what());
  }
}

// Registers a stage from what the package's decorators collected; an unknown kind or key, an id
// that is taken and parameters of unknown types are Python exceptions.
void RegisterStage(const std::string& kind, const std::string& id, const py::dict& description);

void BindStages(py::module_& module);

}  // namespace kvgauge::python
