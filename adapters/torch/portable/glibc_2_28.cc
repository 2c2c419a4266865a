// SPDX-License-Identifier: Apache-2.0
// What code calls that was compiled with the headers of GCC 12 and of a newer glibc, and what systems of manylinux_2_28
// do not have: they have glibc 2.28 and the libstdc++ of GCC 8. Linked into portable shims alone, which use these
// definitions in the place of the system's, also where it is newer.
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <exception>
#include <ios>
#include <mutex>
#include <new>
#include <string>

extern "C" {

// Of libstdc++, in every version: the constructor of std::ostringstream with a mode, std::stringbuf::str() const, and
// the copy constructor and the destructor of std::exception_ptr.
void _ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode(void*, std::ios_base::openmode);
std::string _ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv(const void* buffer);
void _ZNSt15__exception_ptr13exception_ptrC1ERKS0_(void* copy, const void* from);
void _ZNSt15__exception_ptr13exception_ptrD1Ev(void* pointer);

#pragma GCC visibility push(hidden)

// glibc 2.32. libstdc++ counts references without atomics in processes that have one thread.
char __libc_single_threaded = 0;

// glibc 2.30. Without it libstdc++ waits until a time of the real clock.
int pthread_cond_clockwait(
    pthread_cond_t* condition,
    pthread_mutex_t* mutex,
    clockid_t clock,
    const struct timespec* until) {
  constexpr long kSecond = 1000000000;
  struct timespec now;
  struct timespec real;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) {
    return EINVAL;
  }
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) {
    real.tv_nsec += kSecond;
    --real.tv_sec;
  } else if (real.tv_nsec >= kSecond) {
    real.tv_nsec -= kSecond;
    ++real.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &real);
}

// libstdc++ 12 has another version of std::condition_variable::wait, that does the same.
void _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition,
    std::unique_lock<std::mutex>* lock) {
  pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}

// libstdc++ 11: std::__throw_bad_array_new_length().
[[noreturn]] void _ZSt28__throw_bad_array_new_lengthv() {
  throw std::bad_array_new_length();
}

// libstdc++ 9: the constructor of std::ostringstream without arguments.
void _ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev(void* stream) {
  _ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode(stream, std::ios_base::out);
}

// libstdc++ 11: std::stringbuf::str() const&, as C++20 declares it.
std::string _ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv(const void* buffer) {
  return _ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv(buffer);
}

// libstdc++ 11: std::exception_ptr counts its references by these. It is a pointer alone.
void _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void* pointer) {
  void* copy = nullptr; // never destroyed: its reference is the new one
  _ZNSt15__exception_ptr13exception_ptrC1ERKS0_(&copy, pointer);
}
void _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void* pointer) {
  _ZNSt15__exception_ptr13exception_ptrD1Ev(pointer);
  *static_cast<void**>(pointer) = nullptr;
}

#pragma GCC visibility pop

} // extern "C"
