// SPDX-License-Identifier: Apache-2.0
// On x86-64 a switch saves what the calling convention says a callee keeps, 20 times cheaper than
// swapcontext, which asks the kernel for signal masks; other processors take swapcontext.
#include "cuda/emulated/fiber.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>

#include <map>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define KVG_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVG_FIBER_ASAN 1
#endif
#endif
#ifdef KVG_FIBER_ASAN
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include <cstdlib>

#include "core/check.h"

#if defined(__x86_64__)
// void kvg_switch_stack(void** save, void* load)
asm(R"(
.text
.type kvg_switch_stack, @function
kvg_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kvg_switch_stack, .-kvg_switch_stack
)");
extern "C" void kvg_switch_stack(void** save, void* load);
#endif

namespace kvgauge::cuda::emulated {
namespace {

constexpr int kMostFibers = 1024;
constexpr size_t kStackBytes = size_t{256} * 1024;
// Stacks a power of two apart would all compete for the same few lines of every cache.
constexpr size_t kStackStride = kStackBytes + size_t{33} * 64;

// Stacks of one OS thread; pages are taken when touched.
class Stacks {
 public:
  Stacks() {
    base_ = mmap(nullptr, kMostFibers * kStackStride, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    KVG_CHECK(base_ != MAP_FAILED, "cannot reserve stacks");
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() { munmap(base_, kMostFibers * kStackStride); }
  char* operator[](int slot) const { return static_cast<char*>(base_) + slot * kStackStride; }

 private:
  void* base_;
};

#ifdef KVG_FIBER_ASAN
// The scheduler runs on the stack its OS thread was born with.
void FindOwnStack(Fiber& fiber) {
  if (fiber.stack != nullptr) return;
  pthread_attr_t attributes;
  KVG_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0, "no stack");
  void* stack = nullptr;
  KVG_CHECK(pthread_attr_getstack(&attributes, &stack, &fiber.stack_bytes) == 0, "no stack");
  pthread_attr_destroy(&attributes);
  fiber.stack = stack;
}
void BeforeSwitch(void** fake_stack, Fiber& to) {
  FindOwnStack(to);
  __sanitizer_start_switch_fiber(fake_stack, to.stack, to.stack_bytes);
}
void AfterSwitch(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}
#else
void BeforeSwitch(void**, Fiber&) {}
void AfterSwitch(void*) {}
#endif

thread_local void (*starting)() = nullptr;

void Enter() {
  AfterSwitch(nullptr);
  starting();
  std::abort();
}

}  // namespace

void StartFiber(Fiber& fiber, int slot, void (*entry)()) {
  static thread_local const Stacks stacks;
  KVG_CHECK(slot >= 0 && slot < kMostFibers, "too many fibers");
  starting = entry;
  fiber.fake_stack = nullptr;
  fiber.stack = stacks[slot];
  fiber.stack_bytes = kStackBytes;
#if defined(__x86_64__)
  constexpr int kSavedRegisters = 6;
  // A function starts with its stack 8 past a multiple of 16.
  auto** top = reinterpret_cast<void**>(stacks[slot] + kStackBytes - 64);
  *top = reinterpret_cast<void*>(&Enter);
  for (int i = 1; i <= kSavedRegisters; ++i) top[-i] = nullptr;
  fiber.context = top - kSavedRegisters;
#else
  static thread_local std::map<const void*, ucontext_t> contexts;
  ucontext_t& context = contexts[&fiber];
  KVG_CHECK(getcontext(&context) == 0, "no context");
  context.uc_stack.ss_sp = stacks[slot];
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, Enter, 0);
  fiber.context = &context;
#endif
}

void SwitchFiber(Fiber& from, Fiber& to) {
  BeforeSwitch(&from.fake_stack, to);
#if defined(__x86_64__)
  kvg_switch_stack(&from.context, to.context);
#else
  static thread_local ucontext_t own;
  if (from.context == nullptr) from.context = &own;
  swapcontext(static_cast<ucontext_t*>(from.context), static_cast<ucontext_t*>(to.context));
#endif
  AfterSwitch(from.fake_stack);
}

void LeaveFiber(Fiber& from, Fiber& to) {
  // The fiber's fake stack is given back.
  BeforeSwitch(nullptr, to);
#if defined(__x86_64__)
  kvg_switch_stack(&from.context, to.context);
#else
  swapcontext(static_cast<ucontext_t*>(from.context), static_cast<ucontext_t*>(to.context));
#endif
  std::abort();
}

}  // namespace kvgauge::cuda::emulated
