// Kernels of PTX, which are interpreted: as much of the language as the kernels of the tests are written in.
#include <array>
#include <cmath>
#include <iterator>
#include <sstream>

namespace {

// The numbers that a thread reads as %tid, %ntid, %ctaid and %nctaid, of three axes each, and as %dynamic_smem_size.
using Place = std::array<unsigned, 13>;

enum class Kind { kRegister, kNumber, kSpecial, kParameter, kMemory };

struct Value {
  Kind kind;
  size_t index;    // of the register, also of the address; of the parameter; of the special register
  uint64_t number; // and what is added to an address
};

// The operation on the bits of its arguments, after its result; those that it has no work for do something else.
using Operation = uint64_t (*)(uint64_t, uint64_t, uint64_t);
enum class Flow { kNone, kLoad, kStore, kBranch, kReturn, kTrap };

struct Instruction {
  Flow flow = Flow::kNone;
  Operation operation = nullptr;
  size_t bytes = 8; // of the type
  std::string target;
  size_t next = 0; // of a branch
  long guard = -1; // the register that decides whether it is done
  std::vector<Value> values;
};

struct Ptx {
  std::vector<std::string> parameters;
  std::vector<size_t> sizes;
  std::vector<Instruction> code;
  size_t registers = 0;
};

template <class T>
T as(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
uint64_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
uint64_t low(uint64_t bits) {
  return static_cast<uint32_t>(bits);
}

const std::map<std::string, Operation>& operations() {
  static const auto& all = *new std::map<std::string, Operation>{
      {"mov", [](uint64_t a, uint64_t, uint64_t) { return a; }},
      {"cvta.to.global", [](uint64_t a, uint64_t, uint64_t) { return a; }},
      {"cvt.u64", [](uint64_t a, uint64_t, uint64_t) { return a; }},
      {"add", [](uint64_t a, uint64_t b, uint64_t) { return a + b; }},
      {"sub", [](uint64_t a, uint64_t b, uint64_t) { return a - b; }},
      {"mul.lo", [](uint64_t a, uint64_t b, uint64_t) { return a * b; }},
      {"mad.lo", [](uint64_t a, uint64_t b, uint64_t c) { return a * b + c; }},
      {"div", [](uint64_t a, uint64_t b, uint64_t) { return b ? a / b : ~uint64_t{0}; }},
      {"rem", [](uint64_t a, uint64_t b, uint64_t) { return b ? a % b : a; }},
      {"shl", [](uint64_t a, uint64_t b, uint64_t) { return a << b; }},
      {"setp.ge", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{a >= b}; }},
      {"setp.eq", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{a == b}; }},
      {"setp.le.f32", [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{as<float>(a) <= as<float>(b)}; }},
      {"selp", [](uint64_t a, uint64_t b, uint64_t p) { return p ? a : b; }},
      {"mul.rn", [](uint64_t a, uint64_t b, uint64_t) { return bits_of(as<float>(a) * as<float>(b)); }},
      {"fma.rn",
       [](uint64_t a, uint64_t b, uint64_t c) { return bits_of(std::fma(as<float>(a), as<float>(b), as<float>(c))); }},
  };
  return all;
}

size_t bytes_of(const std::string& type) {
  const size_t digits = type.find_first_of("0123456789");
  return digits == std::string::npos ? 0 : std::atoi(type.c_str() + digits) / 8;
}

// The words of a text, without what separates them.
std::vector<std::string> words_of(std::string text) {
  for (char& one : text)
    if (one == ',')
      one = ' ';
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

class Parser {
 public:
  // The kernel whose parameters and body these are; false for an instruction that is not known.
  bool parse(const std::string& parameters, const std::string& body, Ptx* out) {
    const auto words = words_of(parameters);
    for (size_t i = 0; i + 2 < words.size(); i += 3) {
      ptx_.sizes.push_back(bytes_of(words[i + 1]));
      ptx_.parameters.push_back(words[i + 2]);
    }
    std::map<std::string, size_t> labels;
    size_t start = 0;
    for (size_t end; (end = body.find_first_of(";:", start)) != std::string::npos; start = end + 1) {
      const auto statement = words_of(body.substr(start, end - start));
      if (body[end] == ':')
        labels[statement.at(0)] = ptx_.code.size();
      else if (statement.at(0)[0] != '.' && !instruction(statement))
        return false;
    }
    for (Instruction& one : ptx_.code) {
      if (one.flow != Flow::kBranch)
        continue;
      if (!labels.count(one.target))
        return false;
      one.next = labels[one.target];
    }
    ptx_.registers = registers_.size();
    return *out = std::move(ptx_), true;
  }

 private:
  bool instruction(std::vector<std::string> words) {
    Instruction made;
    if (words[0][0] == '@') {
      made.guard = static_cast<long>(register_of(words[0].substr(1)));
      words.erase(words.begin());
    }
    std::string name = words[0];
    const size_t dot = name.rfind('.');
    const std::string type = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (name == "ret" || name == "trap") {
      made.flow = name == "ret" ? Flow::kReturn : Flow::kTrap;
    } else if (name == "bra") {
      made.flow = Flow::kBranch;
      made.target = words.at(1);
    } else {
      made.bytes = bytes_of(type);
      const std::string base = name.substr(0, dot);
      const bool is_store = base == "st.global";
      if (is_store || base == "ld.global" || base == "ld.param") {
        made.flow = is_store ? Flow::kStore : Flow::kLoad;
      } else {
        auto found = operations().find(name);
        if (found == operations().end())
          found = operations().find(base);
        if (found == operations().end())
          return false;
        made.operation = found->second;
      }
      for (size_t i = 1; i < words.size(); ++i)
        made.values.push_back(value_of(words[i]));
      if (made.values.empty() || made.bytes == 0)
        return false;
    }
    ptx_.code.push_back(std::move(made));
    return true;
  }

  size_t register_of(const std::string& name) {
    return registers_.emplace(name, registers_.size()).first->second;
  }

  Value value_of(std::string word) {
    static const std::vector<std::string> special{
        "%tid.x",
        "%tid.y",
        "%tid.z",
        "%ntid.x",
        "%ntid.y",
        "%ntid.z",
        "%ctaid.x",
        "%ctaid.y",
        "%ctaid.z",
        "%nctaid.x",
        "%nctaid.y",
        "%nctaid.z",
        "%dynamic_smem_size"};
    for (size_t i = 0; i < special.size(); ++i)
      if (word == special[i])
        return {Kind::kSpecial, i, 0};
    if (word[0] == '%')
      return {Kind::kRegister, register_of(word), 0};
    if (word[0] != '[') {
      const bool is_float = word.compare(0, 2, "0f") == 0;
      return {Kind::kNumber, 0, std::strtoull(word.c_str() + (is_float ? 2 : 0), nullptr, is_float ? 16 : 10)};
    }
    word = word.substr(1, word.size() - 2);
    for (size_t i = 0; i < ptx_.parameters.size(); ++i)
      if (word == ptx_.parameters[i])
        return {Kind::kParameter, i, 0};
    const size_t plus = word.find('+');
    const uint64_t offset = plus == std::string::npos ? 0 : std::strtoull(word.c_str() + plus + 1, nullptr, 10);
    return {Kind::kMemory, register_of(word.substr(0, plus)), offset};
  }

  Ptx ptx_;
  std::map<std::string, size_t> registers_;
};

// Runs one thread; false when it traps.
bool run_thread(const Ptx& ptx, const Place& place, const std::vector<uint64_t>& parameters, uint64_t* registers) {
  auto read = [&](const Value& value) -> uint64_t {
    switch (value.kind) {
      case Kind::kRegister:
        return registers[value.index];
      case Kind::kNumber:
        return value.number;
      case Kind::kSpecial:
        return place[value.index];
      case Kind::kParameter:
        return parameters[value.index];
      default:
        return registers[value.index] + value.number;
    }
  };
  for (size_t at = 0; at < ptx.code.size(); ++at) {
    const Instruction& one = ptx.code[at];
    if (one.guard >= 0 && !registers[one.guard])
      continue;
    switch (one.flow) {
      case Flow::kReturn:
        return true;
      case Flow::kTrap:
        return false;
      case Flow::kBranch:
        at = one.next - 1;
        break;
      case Flow::kStore: {
        const uint64_t value = read(one.values[1]);
        std::memcpy(reinterpret_cast<void*>(read(one.values[0])), &value, one.bytes);
        break;
      }
      case Flow::kLoad: {
        const uint64_t from = read(one.values[1]);
        uint64_t value = from;
        if (one.values[1].kind == Kind::kMemory) {
          value = 0;
          std::memcpy(&value, reinterpret_cast<const void*>(from), one.bytes);
        }
        registers[one.values[0].index] = value;
        break;
      }
      case Flow::kNone: {
        uint64_t in[3] = {};
        for (size_t i = 1; i < one.values.size(); ++i)
          in[i - 1] = read(one.values[i]);
        const uint64_t out = one.operation(in[0], in[1], in[2]);
        registers[one.values[0].index] = one.bytes == 4 ? low(out) : out;
        break;
      }
    }
  }
  return true;
}

// Runs every thread of a launch; false when one traps.
bool run_threads(const Ptx& ptx, Place place, const std::vector<uint64_t>& parameters) {
  std::vector<uint64_t> registers(ptx.registers);
  auto each = [&place](size_t first, auto&& body) {
    unsigned *at = &place[first], *count = at + 3;
    for (at[2] = 0; at[2] < count[2]; ++at[2])
      for (at[1] = 0; at[1] < count[1]; ++at[1])
        for (at[0] = 0; at[0] < count[0]; ++at[0])
          if (!body())
            return false;
    return true;
  };
  return each(6, [&] { return each(0, [&] { return run_thread(ptx, place, parameters, registers.data()); }); });
}

// The kernels of a program by name; nothing when it has an instruction that is not known.
std::map<std::string, Ptx>* kernels_of(const std::string& text) {
  auto found = std::make_unique<std::map<std::string, Ptx>>();
  const std::string entry = ".entry ";
  for (size_t at = text.find(entry); at != std::string::npos; at = text.find(entry, at)) {
    at += entry.size();
    const size_t open = text.find('(', at), close = text.find(')', open);
    const size_t begin = text.find('{', close), end = text.find('}', begin);
    if (end == std::string::npos)
      return nullptr;
    Ptx ptx;
    const std::string parameters = text.substr(open + 1, close - open - 1);
    if (!Parser().parse(parameters, text.substr(begin + 1, end - begin - 1), &ptx))
      return nullptr;
    (*found)[text.substr(at, open - at)] = std::move(ptx);
    at = end;
  }
  return found.release();
}

} // namespace
