// SPDX-License-Identifier: Apache-2.0
// Stages that are compiled outside the tree, in a shared object that the program loads.
//
// The sources of a plugin register stages with KVG_REGISTER_STAGE, as those of the program do. They
// are compiled with KVG_PLUGIN defined, together with plugin/plugin_entry.cpp; the CMake function
// kvgauge_add_plugin does both. Program and plugin share C++ types, so a plugin is loaded only when
// it was compiled against the same headers with the same C++ ABI.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct StageSpec;

struct LoadedPlugin {
  std::string path;                 // absolute
  std::string digest;               // SHA-256 of the file
  std::vector<std::string> stages;  // "score.mine", sorted
};

// Registers the stages of a shared object, all or none of them. Every reason to refuse it is bad
// input that names the file: missing, no shared object, no plugin, compiled against other headers
// or with another compiler, an id that is taken, an exception. A file that was loaded before
// changes nothing. Not thread-safe: call it before the first method is read. A plugin is never
// unloaded.
Status LoadPlugin(const std::string& path);

// In the order in which they were loaded.
const std::vector<LoadedPlugin>& LoadedPlugins();

// What KVG_REGISTER_STAGE makes inside a plugin: an element of the plugin's own list. Constructing
// it runs nothing of the stage, so that the program can look at the plugin's tag first.
struct PluginStage {
  explicit PluginStage(StageSpec (*make_spec)());

  StageSpec (*spec)();
  const PluginStage* next;
};

// What a plugin exports: the first of its stages; null: it has none.
inline constexpr const char* kPluginEntry = "kvgauge_plugin_stages";
using PluginEntry = const PluginStage* (*)();

}  // namespace kvgauge
