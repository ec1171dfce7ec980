// SPDX-License-Identifier: Apache-2.0
#include "harness/cli.h"

int main(int argc, char** argv) { return kvgauge::RunCommandLine(argc, argv); }
