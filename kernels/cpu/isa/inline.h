// SPDX-License-Identifier: Apache-2.0
// Kernels are built from small functions that must become part of their caller: what is left as a
// call would be compiled once for several instruction sets, and the linker would keep any of them.
#pragma once

// In front of a function.
#define KVG_INLINE inline __attribute__((always_inline))
// Between a lambda's parameters and its body, where `inline` may not stand.
#define KVG_INLINE_LAMBDA __attribute__((always_inline))
