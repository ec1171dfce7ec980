// SPDX-License-Identifier: Apache-2.0
// SQLite's file layer with a fuse: after a given number of writes, part of one more is written and
// the process is killed. For a child process that nothing else shares.
#pragma once

#include <signal.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdint>

namespace kvgauge {

// Makes the killing layer the default of this process. The write number `writes` (from 0) stops
// after `percent` of its bytes.
void InstallKillingVfs(int64_t writes, int percent);

}  // namespace kvgauge
