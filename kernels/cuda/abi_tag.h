// SPDX-License-Identifier: Apache-2.0
// Program and plugin share C++ types, so both must come from the same headers and the same
// compiler. KVG_INTERFACE_HASH is of all headers the types are made of; the build sets it.
#pragma once

namespace kvgauge {

inline constexpr const char* kAbiTag = KVG_INTERFACE_HASH " " __VERSION__;

}  // namespace kvgauge
