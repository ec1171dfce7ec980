// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "methods/stages.h"

namespace kvgauge {

// The boundary of a cell: what a stage or an allocation throws becomes that cell's error.
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

// Whether a plan asks for anything besides uncoded entries where they are.
bool IsMoreThanPlain(const StorePlan& plan);

}  // namespace kvgauge
