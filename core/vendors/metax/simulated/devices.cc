// SPDX-License-Identifier: Apache-2.0
// Devices: the current one of a thread, attributes, peers.
#include "simulated.h"

using namespace simulated;

EXPORT Code mcGetDeviceCount(int* count) {
  if (Code code = begin("mcGetDeviceCount")) {
    return code;
  }
  if (count == nullptr) {
    return refuse("mcGetDeviceCount", kInvalidValue, "the output is NULL");
  }
  *count = device_count();
  return *count == 0 ? end(kNoDevice) : kSuccess;
}

EXPORT Code mcGetDevice(int* device) {
  if (Code code = begin("mcGetDevice")) {
    return code;
  }
  if (device == nullptr) {
    return refuse("mcGetDevice", kInvalidValue, "the output is NULL");
  }
  return *device = current, kSuccess;
}

EXPORT Code mcSetDevice(int device) {
  if (Code code = begin("mcSetDevice")) {
    return code;
  }
  if (device < 0 || device >= device_count()) {
    return refuse("mcSetDevice", kInvalidDevice, "there is no device " + std::to_string(device));
  }
  return current = device, kSuccess;
}

EXPORT Code mcDeviceSynchronize() {
  if (Code code = begin_on_device("mcDeviceSynchronize")) {
    return code;
  }
  std::unique_lock<std::mutex> lock(mutex);
  if (invalidate_captures()) {
    return refuse("mcDeviceSynchronize", kCaptureUnsupported, "a stream of the device is captured");
  }
  machine::drain(lock, state.devices[current]);
  return end(state.lost);
}

EXPORT Code mcDeviceGetName(char* name, int size, int device) {
  if (Code code = begin("mcDeviceGetName")) {
    return code;
  }
  if (name == nullptr || size <= 0 || device < 0 || device >= device_count()) {
    return refuse("mcDeviceGetName", kInvalidValue, "no output, no room, or no such device");
  }
  std::snprintf(name, static_cast<size_t>(size), "Simulated MXC500");
  return kSuccess;
}

EXPORT Code mcDeviceGetAttribute(int* value, int attribute, int device) {
  if (Code code = begin("mcDeviceGetAttribute")) {
    return code;
  }
  if (device < 0 || device >= device_count()) {
    return refuse("mcDeviceGetAttribute", kInvalidDevice, "there is no device " + std::to_string(device));
  }
  // MACA's own numbering.
  static const std::map<int, int> known = {
      {0, 1024},
      {7, 64 << 10},
      {9, 64},
      {10, 64},
      {16, 104},
      {18, 8 << 20},
      {19, 2048},
      {21, 10},
      {22, 0},
      {26, 64 << 10}};
  const auto found = known.find(attribute);
  if (value == nullptr || found == known.end()) {
    return refuse(
        "mcDeviceGetAttribute", kInvalidValue, "no output, or no attribute " + std::to_string(attribute) + " here");
  }
  return *value = found->second, kSuccess;
}

EXPORT Code mcDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (Code code = begin_on_device("mcDeviceGetStreamPriorityRange")) {
    return code;
  }
  if (least == nullptr || greatest == nullptr) {
    return refuse("mcDeviceGetStreamPriorityRange", kInvalidValue, "an output is NULL");
  }
  return *least = 0, *greatest = -2, kSuccess;
}

EXPORT Code mcDeviceCanAccessPeer(int* can, int device, int peer) {
  if (Code code = begin("mcDeviceCanAccessPeer")) {
    return code;
  }
  const int count = device_count();
  if (can == nullptr || device < 0 || device >= count || peer < 0 || peer >= count) {
    return refuse("mcDeviceCanAccessPeer", kInvalidDevice, "no output, or no such device");
  }
  return *can = device != peer && std::getenv("SIMULATED_METAX_NO_PEERS") == nullptr, kSuccess;
}

EXPORT Code mcDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (Code code = begin_on_device("mcDeviceEnablePeerAccess")) {
    return code;
  }
  if (flags != 0 || peer < 0 || peer >= device_count() || peer == current) {
    return refuse("mcDeviceEnablePeerAccess", kInvalidValue, "flags, no such device, or the device itself");
  }
  std::lock_guard<std::mutex> lock(mutex);
  bool& enabled = state.peers[current][peer];
  if (enabled) {
    return end(kPeerAlready);
  }
  return enabled = true, kSuccess;
}
