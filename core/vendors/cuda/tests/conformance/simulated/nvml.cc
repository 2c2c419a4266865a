// NVML: the same devices, whatever is visible.
extern "C" {

Code nvmlInit_v2() {
  return 0;
}
Code nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(Code) {
  return "simulated";
}
Code nvmlDeviceGetCount_v2(unsigned* count) {
  return *count = kDevices, 0;
}
Code nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return *version = 12080, 0;
}
Code nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return *device = reinterpret_cast<void*>(uintptr_t{index}), 0;
}
Code nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return std::snprintf(text, size, "GPU-%zu-simulated", reinterpret_cast<uintptr_t>(device)), 0;
}

} // extern "C"
