// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/cli.h"

namespace kvgauge {

// Part of the program alone, not of the room: only it is linked anew after a commit.
BuildInfo ThisBuild();

}  // namespace kvgauge
