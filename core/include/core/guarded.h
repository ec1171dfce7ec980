// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace kvgauge {

// The boundary of a cell or of a model: what a stage or an allocation throws becomes its error.
template <class Body>
Status Guarded(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc& error) {
    // A device says how much it has; the host only that it has no more.
    const std::string_view what = error.what();
    return ResourceError(what.starts_with("out of") ? std::string(what) : "out of memory");
  } catch (const std::exception& error) {
    return Unsupported(error.what());
  }
}

}  // namespace kvgauge
