// SPDX-License-Identifier: Apache-2.0
// Says to callgrind where what it counts begins and ends. Nothing happens in a process that it does not watch.
#include <valgrind/callgrind.h>

int bench_is_watched(void) {
  return RUNNING_ON_VALGRIND != 0;
}

void bench_begin(void) {
  CALLGRIND_START_INSTRUMENTATION;
}

void bench_end(void) {
  CALLGRIND_STOP_INSTRUMENTATION;
}
