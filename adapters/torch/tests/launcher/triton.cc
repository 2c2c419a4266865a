// Functions that Triton's driver calls, and flagos does not. Appended to the simulated driver of the core's tests.
extern "C" {

Code cuFuncGetAttribute(int* value, int attribute, Function*) {
  // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK.
  return *value = attribute == 0 ? 1024 : 0, enter_context();
}
Code cuFuncSetCacheConfig(Function*, int) {
  return enter_context();
}
Code cuCtxGetLimit(size_t* value, int) {
  return *value = 0, enter_context();
}
Code cuCtxSetLimit(int, size_t) {
  return enter_context();
}
Code cuOccupancyMaxActiveClusters(int* count, Function*, const Config*) {
  return *count = 1, enter_context();
}
Code cuTensorMapEncodeTiled() {
  return kInvalidValue;
}

} // extern "C"
