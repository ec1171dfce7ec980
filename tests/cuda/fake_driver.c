// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that answers what a test wants to hear, so that the CUDA runtime meets drivers
// that no test machine has: KVG_FAKE_VERSION, as cuDriverGetVersion gives it, and KVG_FAKE_INIT,
// what cuInit fails with. It never has a device.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int Number(const char* name, int otherwise) {
  const char* set = getenv(name);
  return set == NULL ? otherwise : atoi(set);
}

int cuDriverGetVersion(int* version) {
  *version = Number("KVG_FAKE_VERSION", 13000);
  return 0;
}
int cuInit(unsigned flags) {
  (void)flags;
  return Number("KVG_FAKE_INIT", 100);  // CUDA_ERROR_NO_DEVICE
}
static int NotSupported(void) { return 801; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                        int* found) {
  (void)version;
  (void)flags;
  if (found != NULL) *found = 0;
  *function = (void*)NotSupported;
  if (strcmp(name, "cuDriverGetVersion") == 0) *function = (void*)cuDriverGetVersion;
  if (strcmp(name, "cuInit") == 0) *function = (void*)cuInit;
  if (strcmp(name, "cuGetProcAddress") == 0) *function = (void*)cuGetProcAddress_v2;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
