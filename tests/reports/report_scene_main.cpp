// SPDX-License-Identifier: Apache-2.0
// Writes the store of reports/report_scene.h to a file, for the browser tests and for timing:
//   report_scene OUT.db [name=value ...]
//     methods tasks repeats layers kv_heads pictures hostile damage
#include <cstdio>
#include <cstdlib>
#include <string>

#include "reports/report_scene.h"
#include "reports/store.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: report_scene OUT.db [name=value ...]\n");
    return 2;
  }
  kvgauge::SceneOptions options;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const double value = equals == std::string::npos ? 1 : std::atof(argument.c_str() + equals + 1);
    const auto whole = static_cast<int64_t>(value);
    if (name == "methods") {
      options.methods = whole;
    } else if (name == "tasks") {
      options.tasks = whole;
    } else if (name == "repeats") {
      options.repeats = whole;
    } else if (name == "layers") {
      options.layers = whole;
    } else if (name == "kv_heads") {
      options.kv_heads = whole;
    } else if (name == "pictures") {
      options.pictures = whole;
    } else if (name == "hostile") {
      options.hostile = whole != 0;
    } else if (name == "damage") {
      options.damage = value;
    } else {
      std::fprintf(stderr, "report_scene: no option %s\n", name.c_str());
      return 2;
    }
  }
  auto store = kvgauge::ResultStore::Open(argv[1], kvgauge::StoreMode::kCreate);
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    return 2;
  }
  const kvgauge::Status written = kvgauge::WriteScene(**store, options);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.error().message.c_str());
  return written.ok() ? 0 : 2;
}
