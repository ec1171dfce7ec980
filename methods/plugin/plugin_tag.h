// SPDX-License-Identifier: Apache-2.0
// What program and plugin must agree on, as text. A plugin carries it as a constant, so that the
// program can read it from the file before any code of the plugin runs.
#pragma once

#include <version>

// KVG_INTERFACE_VERSION, and KVG_INTERFACE_HASH of all public headers of core, kernels and methods:
// written by the build.
#include "interface_hash.h"

#define KVG_TAG_TEXT_INNER_(x) #x
#define KVG_TAG_TEXT_(x) KVG_TAG_TEXT_INNER_(x)

#ifdef _LIBCPP_VERSION
#define KVG_LIBRARY_TAG_ "libc++ " KVG_TAG_TEXT_(_LIBCPP_VERSION)
#else
#define KVG_LIBRARY_TAG_ \
  "libstdc++ " KVG_TAG_TEXT_(_GLIBCXX_RELEASE) ", strings " KVG_TAG_TEXT_(_GLIBCXX_USE_CXX11_ABI)
#endif

// "kvgauge-plugin|0.1.0|1a2b3c4d5e6f7081|C++ ABI 1017, libstdc++ 12, strings 1|"
#define KVG_PLUGIN_MARK "kvgauge-plugin|"
#define KVG_PLUGIN_TAG                                                                          \
  KVG_PLUGIN_MARK KVG_INTERFACE_VERSION                                                         \
      "|" KVG_INTERFACE_HASH "|C++ ABI " KVG_TAG_TEXT_(__GXX_ABI_VERSION) ", " KVG_LIBRARY_TAG_ \
                                                                          "|"
