// SPDX-License-Identifier: Apache-2.0
// The program as a Python module: its command line, and stages written in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdio>
#include <string>
#include <vector>

#include "harness/build_info.h"
#include "harness/cli.h"
#include "reports/store.h"
#include "src/python_stage.h"

namespace {

int RunCommand(const std::vector<std::string>& arguments) {
  std::vector<const char*> words = {"kvgauge"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  const pybind11::gil_scoped_release unlocked;
  const int code =
      kvgauge::RunCommandLine(static_cast<int>(words.size()), words.data(), kvgauge::ThisBuild());
  std::fflush(stdout);
  std::fflush(stderr);
  return code;
}

// A ValueError with the program's words for what no store of this version is.
void CheckStore(const std::string& path) {
  const auto store = kvgauge::ResultStore::Open(path, kvgauge::StoreMode::kReadOnly);
  if (!store.ok()) throw pybind11::value_error(store.error().message);
}

}  // namespace

PYBIND11_MODULE(_kvgauge, module) {
  module.doc() = "The program kvgauge, in this process.";
  module.attr("version") = kvgauge::ThisBuild().version;
  module.def("run_command", &RunCommand, pybind11::arg("arguments"),
             "Runs one command line without the program's name; returns its exit code.");
  module.def("check_store", &CheckStore, pybind11::arg("path"),
             "Raises a ValueError unless the file is a result store that this version reads.");
  kvgauge::python::BindStages(module);
}
