// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "acl.h"

namespace simulated_ascend {

namespace {

std::string text_of(const char* name, const char* otherwise) {
  const char* value = std::getenv((std::string("SIMULATED_ASCEND_") + name).c_str());
  return value ? value : otherwise;
}

// A setting that cannot be read ends the process: a test must not go on with another chip than it asked for.
[[noreturn]] void unreadable(const std::string& name, const std::string& text) {
  std::fprintf(stderr, "SIMULATED_ASCEND_%s cannot be read: %s\n", name.c_str(), text.c_str());
  std::abort();
}

uint64_t number_of(const char* name, const char* otherwise) {
  const std::string text = text_of(name, otherwise);
  char* end = nullptr;
  uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str())
    unreadable(name, text);
  for (const char unit : {'K', 'M', 'G'}) {
    value <<= 10;
    if (*end == unit) {
      if (end[1])
        unreadable(name, text);
      return value;
    }
  }
  if (*end)
    unreadable(name, text);
  return value >> 30;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    if (!item.empty())
      all.push_back(item);
  }
  return all;
}

// The devices before the first item that is no number of one, or all without the variable. A number that is not greater
// than the one before it is an error for the whole list, as is a list of no device.
std::vector<int> visible(int count, std::string* error) {
  std::vector<int> all;
  const char* variable = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!variable) {
    for (int device = 0; device < count; ++device)
      all.push_back(device);
    return all;
  }
  const auto wrong = [&](const std::string& expected) {
    *error = std::string("Value ") + variable + " for environment variable ASCEND_RT_VISIBLE_DEVICES is invalid. " +
        "Expected value: " + expected + ".";
    return std::vector<int>();
  };
  std::istringstream stream(variable);
  for (std::string item; std::getline(stream, item, ',') && all.size() < static_cast<size_t>(count);) {
    if (item.empty() || item.find_first_not_of("0123456789") != std::string::npos)
      break;
    const long device = std::strtol(item.c_str(), nullptr, 10);
    if (device >= count)
      break;
    if (!all.empty() && device < all.back())
      return wrong("configured in ascending order");
    if (!all.empty() && device == all.back())
      return wrong("cannot be duplicated");
    all.push_back(static_cast<int>(device));
  }
  return all.empty() ? wrong("[0, " + std::to_string(count) + ")") : all;
}

// function=n or function=n:code, for example aclrtMemcpyAsync=3:507015.
std::vector<Fault> faults() {
  std::vector<Fault> all;
  for (const std::string& item : list_of(text_of("FAULT", ""))) {
    const size_t equals = item.find('=');
    const size_t colon = item.find(':');
    if (equals == std::string::npos)
      unreadable("FAULT", item);
    const uint64_t nth = std::strtoull(item.c_str() + equals + 1, nullptr, 10);
    if (nth == 0)
      unreadable("FAULT", item);
    const int code = colon == std::string::npos ? kAicoreException : std::atoi(item.c_str() + colon + 1);
    all.push_back({item.substr(0, equals), nth, code});
  }
  return all;
}

Settings read() {
  Settings all{};
  all.devices = visible(static_cast<int>(number_of("DEVICES", "2")), &all.invisible);
  all.memory = number_of("MEMORY", "1G");
  all.alignment = number_of("ALIGNMENT", "64");
  all.soc = text_of("SOC", "Ascend910B3");
  const std::string version = text_of("VERSION", "9.0");
  if (std::sscanf(version.c_str(), "%d.%d.%d", &all.version[0], &all.version[1], &all.version[2]) < 2)
    unreadable("VERSION", version);
  all.old_version = all.version[0] < 9;
  all.delay_us = static_cast<unsigned>(number_of("DELAY_US", "0"));
  all.streams = number_of("STREAMS", "1984");
  all.events = number_of("EVENTS", "65536");
  all.peers = number_of("PEERS", "1") != 0;
  all.leaks_at_exit = text_of("LEAKS", "") == "exit";
  all.faults = faults();
  all.hidden = list_of(text_of("HIDE", ""));
  all.report = text_of("REPORT", "");
  return all;
}

} // namespace

const Settings& settings() {
  static const Settings& all = *new Settings(read());
  return all;
}

} // namespace simulated_ascend
