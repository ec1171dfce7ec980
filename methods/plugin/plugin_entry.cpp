// SPDX-License-Identifier: Apache-2.0
// Compiled into every plugin (kvgauge_add_plugin): its list of stages, and what the program asks
// for.
#include "methods/plugin.h"
#include "plugin_tag.h"

#define KVG_EXPORT __attribute__((visibility("default")))

namespace kvgauge {
namespace {

constinit const PluginStage* first_stage = nullptr;

}  // namespace

// Not exported: each plugin has a list of its own.
__attribute__((visibility("hidden"))) PluginStage::PluginStage(StageSpec (*make_spec)())
    : spec(make_spec), next(first_stage) {
  first_stage = this;
}

}  // namespace kvgauge

extern "C" {

// Declared first: a constant without a declaration is seen in this file only, and an attribute
// counts only there.
KVG_EXPORT extern const char kvgauge_plugin_tag[];
const char kvgauge_plugin_tag[] = KVG_PLUGIN_TAG;

KVG_EXPORT const kvgauge::PluginStage* kvgauge_plugin_stages() { return kvgauge::first_stage; }

}  // extern "C"
