// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>

#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "helpers.h"
#include "simulated_ascend.h"

namespace simulated_ascend {

namespace {

constexpr int kDeviceFailure = 507015;
// Results of larger arguments are compared when the work has run, not in phase 1.
constexpr int64_t kTrial = int64_t{1} << 16;

using c10::IValue;

// ------------------------------------------------------------------------------------------ the language

enum class Form { kName, kConstant, kOperator, kHelper, kItem, kList, kBinary, kNegative, kChoice };

struct Node {
  Form form;
  std::string text; // name, or sign of a binary operation
  IValue constant;
  std::vector<std::unique_ptr<Node>> parts;
  std::vector<std::string> keywords; // of the parts, empty for positions
  std::once_flag once;
  std::optional<c10::OperatorHandle> op;
};
using NodePtr = std::unique_ptr<Node>;

struct Statement {
  std::vector<std::string> names;
  NodePtr value;
};

using Program = std::vector<Statement>;

class Parser {
 public:
  explicit Parser(const char* text) : at_(text), begin_(text) {}

  Program program() {
    Program all;
    do {
      Statement statement;
      do
        statement.names.push_back(name());
      while (skip(","));
      need("=");
      statement.value = expression();
      all.push_back(std::move(statement));
    } while (skip(";"));
    space();
    if (*at_)
      fail();
    return all;
  }

 private:
  [[noreturn]] void fail() {
    TORCH_CHECK(false, "a program cannot be read: ", begin_, " at ", at_);
  }
  void space() {
    while (std::isspace(static_cast<unsigned char>(*at_)))
      ++at_;
  }
  bool skip(const char* token) {
    space();
    const size_t size = std::strlen(token);
    if (std::strncmp(at_, token, size) != 0)
      return false;
    const bool is_word = std::isalpha(static_cast<unsigned char>(token[0]));
    if (is_word && (std::isalnum(static_cast<unsigned char>(at_[size])) || at_[size] == '_'))
      return false;
    at_ += size;
    return true;
  }
  void need(const char* token) {
    if (!skip(token))
      fail();
  }
  std::string name() {
    space();
    const char* begin = at_;
    while (std::isalnum(static_cast<unsigned char>(*at_)) || *at_ == '_')
      ++at_;
    if (begin == at_)
      fail();
    return {begin, at_};
  }
  static NodePtr node(Form form, std::string text = "") {
    auto made = std::make_unique<Node>();
    made->form = form;
    made->text = std::move(text);
    return made;
  }
  static NodePtr constant(IValue value) {
    auto made = node(Form::kConstant);
    made->constant = std::move(value);
    return made;
  }
  static NodePtr binary(const char* sign, NodePtr left, NodePtr right) {
    auto made = node(Form::kBinary, sign);
    made->parts.push_back(std::move(left));
    made->parts.push_back(std::move(right));
    return made;
  }

  NodePtr expression() {
    NodePtr value = either();
    if (!skip("if"))
      return value;
    auto choice = node(Form::kChoice);
    choice->parts.push_back(either());
    need("else");
    choice->parts.push_back(std::move(value));
    choice->parts.push_back(expression());
    return choice;
  }
  NodePtr either() {
    NodePtr value = comparison();
    for (;;) {
      if (skip("or"))
        value = binary("or", std::move(value), comparison());
      else if (skip("and"))
        value = binary("and", std::move(value), comparison());
      else
        return value;
    }
  }
  NodePtr comparison() {
    NodePtr value = sum();
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (skip(sign))
        return binary(sign, std::move(value), sum());
    }
    return value;
  }
  NodePtr sum() {
    NodePtr value = product();
    for (;;) {
      if (skip("+"))
        value = binary("+", std::move(value), product());
      else if (skip("-"))
        value = binary("-", std::move(value), product());
      else
        return value;
    }
  }
  NodePtr product() {
    NodePtr value = factor();
    for (;;) {
      if (skip("*"))
        value = binary("*", std::move(value), factor());
      else if (skip("/"))
        value = binary("/", std::move(value), factor());
      else if (skip("%"))
        value = binary("%", std::move(value), factor());
      else
        return value;
    }
  }
  NodePtr factor() {
    if (skip("-")) {
      auto negative = node(Form::kNegative);
      negative->parts.push_back(factor());
      return negative;
    }
    NodePtr value = atom();
    while (skip("[")) {
      auto item = node(Form::kItem);
      item->parts.push_back(std::move(value));
      item->parts.push_back(expression());
      need("]");
      value = std::move(item);
    }
    return value;
  }
  NodePtr atom() {
    space();
    if (skip("(")) {
      NodePtr value = expression();
      need(")");
      return value;
    }
    if (skip("[")) {
      auto list = node(Form::kList);
      while (!skip("]")) {
        list->parts.push_back(expression());
        skip(",");
      }
      return list;
    }
    if (skip("'")) {
      const char* begin = at_;
      while (*at_ && *at_ != '\'')
        ++at_;
      const std::string text(begin, at_);
      need("'");
      return constant(text);
    }
    if (std::isdigit(static_cast<unsigned char>(*at_))) {
      char* end = nullptr;
      const long long integer = std::strtoll(at_, &end, 10);
      if (*end == '.' || *end == 'e') {
        const double real = std::strtod(at_, &end);
        at_ = end;
        return constant(real);
      }
      at_ = end;
      return constant(static_cast<int64_t>(integer));
    }
    const bool is_helper = skip("@");
    std::string text = name();
    if (!is_helper && text == "None")
      return constant(IValue());
    if (!is_helper && (text == "True" || text == "False"))
      return constant(text == "True");
    if (*at_ == '.' && !is_helper) {
      ++at_;
      text += "." + name();
    }
    if (!skip("("))
      return node(Form::kName, text);
    auto call = node(is_helper ? Form::kHelper : Form::kOperator, text);
    while (!skip(")")) {
      space();
      std::string keyword;
      const char* before = at_;
      if (std::isalpha(static_cast<unsigned char>(*at_)) || *at_ == '_') {
        keyword = name();
        space();
        if (*at_ == '=' && at_[1] != '=') {
          ++at_;
        } else {
          keyword.clear();
          at_ = before;
        }
      }
      call->keywords.push_back(keyword);
      call->parts.push_back(expression());
      skip(",");
    }
    return call;
  }

  const char* at_;
  const char* const begin_;
};

const Program& program_of(const Function& function) {
  static std::mutex mutex;
  static auto& all = *new std::map<const Function*, Program>;
  std::lock_guard<std::mutex> lock(mutex);
  auto [found, is_new] = all.try_emplace(&function);
  if (is_new)
    found->second = Parser(function.program).program();
  return found->second;
}

// ---------------------------------------------------------------------------------------------- calling

void find_operator(Node& node) {
  const size_t dot = node.text.find('.');
  const std::string name = "aten::" + node.text.substr(0, dot);
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dot != std::string::npos) {
    node.op = dispatcher.findSchema({name, node.text.substr(dot + 1)});
  } else {
    for (const char* overload : {"", "Tensor", "self", "Scalar", "default"}) {
      node.op = dispatcher.findSchema({name, overload});
      if (node.op)
        break;
    }
  }
  TORCH_CHECK(node.op, "ATen has no operator ", node.text);
}

IValue invoke(const c10::OperatorHandle& op, std::vector<IValue> stack) {
  op.callBoxed(stack);
  if (stack.size() == 1)
    return stack[0];
  if (stack.empty())
    return {};
  return c10::ivalue::Tuple::create(std::move(stack));
}

// ------------------------------------------------------------------------------------------- evaluation

bool has_mask(const std::vector<IValue>& values) {
  for (const IValue& value : values) {
    if (!value.isList())
      continue;
    for (const IValue& each : value.toListRef()) {
      if (each.isTensor() && each.toTensor().defined() && each.toTensor().scalar_type() == at::kBool)
        return true;
    }
  }
  return false;
}

class Evaluation {
 public:
  explicit Evaluation(bool is_trial) : is_trial_(is_trial) {}

  void set(const std::string& name, IValue value) {
    names_[name] = std::move(value);
  }
  IValue named(const std::string& name) {
    const auto found = names_.find(name);
    if (found == names_.end()) {
      static const std::map<std::string, at::ScalarType> types{
          {"byte", at::kByte},
          {"int", at::kInt},
          {"long", at::kLong},
          {"float", at::kFloat},
          {"double", at::kDouble},
          {"bool", at::kBool}};
      const auto type = types.find(name);
      if (type != types.end())
        return static_cast<int64_t>(type->second);
    }
    TORCH_CHECK(found != names_.end(), "a program uses an unknown name: ", name);
    return found->second;
  }

  IValue value(Node& node) {
    switch (node.form) {
      case Form::kName:
        return named(node.text);
      case Form::kConstant:
        return node.constant;
      case Form::kItem:
        return item(value(*node.parts[0]), value(*node.parts[1]).toInt());
      case Form::kList:
        return list(node);
      case Form::kNegative: {
        const IValue of = value(*node.parts[0]);
        if (of.isInt())
          return -of.toInt();
        if (of.isDouble())
          return -of.toDouble();
        return call("neg", {of});
      }
      case Form::kChoice:
        return is_true(value(*node.parts[0])) ? value(*node.parts[1]) : value(*node.parts[2]);
      case Form::kBinary:
        return binary(node);
      case Form::kHelper: {
        std::vector<IValue> all;
        for (auto& part : node.parts)
          all.push_back(value(*part));
        const Helper* helper = helper_of(node.text);
        TORCH_CHECK(helper, "there is no helper ", node.text);
        if (is_trial_ && (!helper->infers || (!helper->infers_from_masks && has_mask(all))))
          throw Unknown();
        return helper->call(all);
      }
      case Form::kOperator:
        return operation(node);
    }
    return {};
  }

 private:
  static bool is_true(const IValue& of) {
    return !of.isNone() &&
        (of.isBool()         ? of.toBool()
             : of.isInt()    ? of.toInt() != 0
             : of.isDouble() ? of.toDouble() != 0
                             : true);
  }

  static IValue item(const IValue& of, int64_t index) {
    if (of.isTuple())
      return of.toTupleRef().elements()[static_cast<size_t>(index)];
    TORCH_CHECK(of.isList(), "a program takes an item of what has none");
    const auto all = of.toListRef();
    return all[static_cast<size_t>(index < 0 ? index + static_cast<int64_t>(all.size()) : index)];
  }

  IValue list(Node& node) {
    std::vector<IValue> all;
    bool tensors = false;
    for (auto& part : node.parts) {
      all.push_back(value(*part));
      tensors = tensors || all.back().isTensor();
    }
    if (tensors) {
      c10::List<at::Tensor> made;
      for (const IValue& each : all)
        made.push_back(each.toTensor());
      return made;
    }
    bool reals = false;
    bool bools = !all.empty();
    for (const IValue& each : all) {
      reals = reals || each.isDouble();
      bools = bools && each.isBool();
    }
    if (reals) {
      c10::List<double> made;
      for (const IValue& each : all)
        made.push_back(each.toScalar().toDouble());
      return made;
    }
    if (bools) {
      c10::List<bool> made;
      for (const IValue& each : all)
        made.push_back(each.toBool());
      return made;
    }
    c10::List<int64_t> made;
    for (const IValue& each : all)
      made.push_back(each.toScalar().toLong());
    return made;
  }

  IValue binary(Node& node) {
    const std::string& sign = node.text;
    const IValue left = value(*node.parts[0]);
    if (sign == "and")
      return is_true(left) ? value(*node.parts[1]) : left;
    if (sign == "or")
      return is_true(left) ? left : value(*node.parts[1]);
    const IValue right = value(*node.parts[1]);
    if (sign == "==" || sign == "!=") {
      bool equal = false;
      if (left.isNone() || right.isNone())
        equal = left.isNone() && right.isNone();
      else if (left.isString())
        equal = left.toStringRef() == right.toStringRef();
      else
        equal = left.toScalar().toDouble() == right.toScalar().toDouble();
      return equal == (sign == "==");
    }
    if (left.isScalar() && right.isScalar()) {
      const bool whole = (left.isInt() || left.isBool()) && (right.isInt() || right.isBool());
      const double a = left.toScalar().toDouble();
      const double b = right.toScalar().toDouble();
      if (sign == "<")
        return a < b;
      if (sign == ">")
        return a > b;
      if (sign == "<=")
        return a <= b;
      if (sign == ">=")
        return a >= b;
      const int64_t i = whole ? left.toScalar().toLong() : 0;
      const int64_t j = whole ? right.toScalar().toLong() : 0;
      if (sign == "+")
        return whole ? IValue(i + j) : IValue(a + b);
      if (sign == "-")
        return whole ? IValue(i - j) : IValue(a - b);
      if (sign == "*")
        return whole ? IValue(i * j) : IValue(a * b);
      if (sign == "%")
        return IValue(i % j);
      return whole && i % j == 0 ? IValue(i / j) : IValue(a / b);
    }
    static const std::map<std::string, const char*> operators{
        {"+", "add.Tensor"},
        {"-", "sub.Tensor"},
        {"*", "mul.Tensor"},
        {"/", "div.Tensor"},
        {"<", "lt.Tensor"},
        {">", "gt.Tensor"},
        {"<=", "le.Tensor"},
        {">=", "ge.Tensor"}};
    return call(operators.at(sign), {left, right});
  }

  IValue operation(Node& node) {
    std::call_once(node.once, find_operator, node);
    const auto& schema = node.op->schema();
    std::vector<IValue> stack;
    size_t position = 0;
    size_t used = 0;
    for (const auto& argument : schema.arguments()) {
      Node* given = nullptr;
      if (!argument.kwarg_only() && position < node.parts.size() && node.keywords[position].empty())
        given = node.parts[position++].get();
      for (size_t index = 0; !given && index < node.parts.size(); ++index) {
        if (node.keywords[index] == argument.name())
          given = node.parts[index].get();
      }
      if (given) {
        ++used;
        stack.push_back(coerce(value(*given), argument.type()));
      } else {
        TORCH_CHECK(argument.default_value(), node.text, " lacks ", argument.name());
        stack.push_back(*argument.default_value());
      }
    }
    TORCH_CHECK(used == node.parts.size(), node.text, " has arguments that its schema lacks");
    return invoke(*node.op, std::move(stack));
  }

  const bool is_trial_;
  std::map<std::string, IValue> names_;
};

// How a program is run: on what there is, or on something else of the same shapes, made here, for shapes' sake.
enum class Run { kReal, kTrialOfZeros, kTrialOfOnes };

at::Tensor tensor_of(const View& view, Run run) {
  const at::IntArrayRef sizes(view.sizes, static_cast<size_t>(view.rank));
  const at::IntArrayRef strides(view.strides, static_cast<size_t>(view.rank));
  if (run != Run::kReal)
    return make_trial(sizes, type_of(view.dtype), run == Run::kTrialOfOnes);
  void* memory = nullptr;
  const size_t bytes = extent(view);
  if (bytes) {
    const auto* first = static_cast<const char*>(view.data) + static_cast<size_t>(view.offset) * itemsize(view.dtype);
    memory = simulated_ascend_address(first, bytes);
    TORCH_CHECK(memory, "memory is not there any more");
  }
  return make_view(memory, sizes, strides, type_of(view.dtype));
}

at::Scalar scalar_of(const Scalar& scalar) {
  if (scalar.dtype == 12)
    return at::Scalar(scalar.integer != 0);
  if (scalar.dtype == 16 || scalar.dtype == 17)
    return at::Scalar(c10::complex<double>(scalar.real, scalar.imaginary));
  if (scalar.dtype == 0 || scalar.dtype == 1 || scalar.dtype == 11 || scalar.dtype == 27)
    return at::Scalar(scalar.real);
  return at::Scalar(scalar.integer);
}

IValue argument_value(const Parameter& parameter, const Argument& argument, Run run) {
  if (!argument.given)
    return {};
  switch (parameter.type) {
    case Type::kTensor:
      return tensor_of(argument.views[0], run);
    case Type::kTensorList: {
      if (parameter.flags & kOptional) {
        c10::List<std::optional<at::Tensor>> all;
        for (size_t index = 0; index < argument.views.size(); ++index) {
          if (argument.present[index])
            all.push_back(tensor_of(argument.views[index], run));
          else
            all.push_back(std::optional<at::Tensor>());
        }
        return all;
      }
      c10::List<at::Tensor> all;
      for (const View& view : argument.views)
        all.push_back(tensor_of(view, run));
      return all;
    }
    case Type::kScalar:
      return scalar_of(argument.scalars[0]);
    case Type::kScalarList: {
      c10::List<at::Scalar> all;
      for (const Scalar& each : argument.scalars)
        all.push_back(scalar_of(each));
      return all;
    }
    case Type::kIntArray:
      return argument.integers;
    case Type::kFloatArray:
      return argument.reals;
    case Type::kBoolArray: {
      c10::List<bool> all;
      for (const int64_t each : argument.integers)
        all.push_back(each != 0);
      return all;
    }
    case Type::kInteger:
      return argument.integers[0];
    case Type::kBool:
      return argument.integers[0] != 0;
    case Type::kReal:
      return argument.reals[0];
    case Type::kDtype:
      return static_cast<int64_t>(type_of(static_cast<int>(argument.integers[0])));
    case Type::kText:
      return argument.text;
  }
  return {};
}

// ------------------------------------------------------------------------------------------- results

Verdict mismatch(const Parameter& parameter, const View& view, const at::Tensor& result) {
  const std::string label = parameter.name;
  const at::IntArrayRef sizes(view.sizes, static_cast<size_t>(view.rank));
  const std::string is = label + " is " + text_of(view.sizes, sizes.size()) + ", the result ";
  const std::string as = text_of(result.sizes().data(), result.sizes().size());
  if (parameter.flags & kDynamic) {
    if (result.numel() > view.numel())
      return {kBadParameter, is + as};
  } else if (parameter.flags & kShape ? result.numel() != view.numel() : result.sizes() != sizes) {
    return {kBadParameter, is + as};
  }
  const at::ScalarType out = type_of(view.dtype);
  if (result.scalar_type() == out)
    return {};
  if (!(parameter.flags & kConvertible) || !c10::canCast(result.scalar_type(), out))
    return {
        kBadParameter, label + " is " + dtype_name(view.dtype) + ", the result " + c10::toString(result.scalar_type())};
  return {};
}

void store(const Parameter& parameter, const Argument& argument, size_t index, const at::Tensor& result, Run run) {
  if (run != Run::kReal)
    return;
  View view = argument.views[index];
  if (parameter.flags & kDynamic) {
    // What there is lies at the beginning.
    view.rank = static_cast<int>(result.dim());
    int64_t step = 1;
    for (int dim = view.rank; dim-- > 0;) {
      view.sizes[dim] = result.size(dim);
      view.strides[dim] = step;
      step *= view.sizes[dim];
    }
    copy_into(tensor_of(view, Run::kReal), result);
    set_shape(argument.handle, view.sizes, view.rank);
    return;
  }
  const at::Tensor out = tensor_of(view, Run::kReal);
  copy_into(out, parameter.flags & kShape ? result.reshape(out.sizes()) : result);
}

Verdict
finish(const Function& function, const Arguments& arguments, const std::string& name, const IValue& value, Run run) {
  for (int index = 0; index < function.count; ++index) {
    const Parameter& parameter = function.parameters[index];
    if (name != parameter.name)
      continue;
    const Argument& argument = arguments[static_cast<size_t>(index)];
    // Results that were not asked for.
    if (!argument.given || value.isNone() || (value.isTensor() && !value.toTensor().defined()))
      return {};
    std::vector<at::Tensor> results;
    if (value.isTensor())
      results.push_back(value.toTensor());
    else if (value.isScalar())
      results.push_back(coerce(value, c10::TensorType::get()).toTensor());
    else
      results = value.toTensorVector();
    if (results.size() != argument.views.size())
      return {
          kBadParameter,
          name + " has " + std::to_string(argument.views.size()) + " tensors, the result " +
              std::to_string(results.size())};
    for (size_t each = 0; each < results.size(); ++each) {
      const Verdict verdict = mismatch(parameter, argument.views[each], results[each]);
      if (verdict.code)
        return verdict;
      store(parameter, argument, each, results[each], run);
    }
    return {};
  }
  return {};
}

bool is_parameter(const Function& function, const std::string& name) {
  for (int index = 0; index < function.count; ++index) {
    if (name == function.parameters[index].name)
      return true;
  }
  return false;
}

Verdict evaluate(const Function& function, const Arguments& arguments, Run run) {
  static const c10::DispatchKeySet excluded = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet(
                                                  {c10::DispatchKey::Python,
                                                   c10::DispatchKey::PythonTLSSnapshot,
                                                   c10::DispatchKey::Functionalize,
                                                   c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                                   c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  const c10::impl::ExcludeDispatchKeyGuard below(excluded);
  const at::DisableRecordFunctionGuard unrecorded;
  try {
    Evaluation evaluation(run != Run::kReal);
    for (int index = 0; index < function.count; ++index)
      evaluation.set(
          function.parameters[index].name,
          argument_value(function.parameters[index], arguments[static_cast<size_t>(index)], run));
    // Results are kept until all are there, as a program may read what it writes.
    std::vector<std::pair<std::string, IValue>> results;
    for (const Statement& statement : program_of(function)) {
      const IValue value = evaluation.value(*statement.value);
      for (size_t index = 0; index < statement.names.size(); ++index) {
        const std::string& name = statement.names[index];
        const IValue each = statement.names.size() == 1 ? value : value.toTupleRef().elements()[index];
        if (is_parameter(function, name))
          results.emplace_back(name, each);
        else
          evaluation.set(name, each);
      }
    }
    for (const auto& [name, value] : results) {
      const Verdict verdict = finish(function, arguments, name, value, run);
      if (verdict.code)
        return verdict;
    }
    return {};
  } catch (const Unknown&) {
    return {};
  } catch (const c10::Error& error) {
    return {run != Run::kReal ? kBadParameter : kDeviceFailure, first_line(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {run != Run::kReal ? kBadParameter : kDeviceFailure, first_line(error.what())};
  }
}

// One thread for each operator: the caller's other threads are busy.
void use_one_thread() {
  static thread_local bool done = false;
  if (done)
    return;
  done = true;
  single_thread();
  using Set = void (*)(int);
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (const auto set = reinterpret_cast<Set>(torch ? dlsym(torch, "omp_set_num_threads") : nullptr))
    set(1);
}

// What decides shapes, as text.
std::string signature(const Function& function, const Arguments& arguments) {
  std::string key(reinterpret_cast<const char*>(&function), 0);
  const auto add = [&key](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  add(&function);
  for (const Argument& argument : arguments) {
    add(argument.given);
    add(argument.views.size());
    for (size_t index = 0; index < argument.views.size(); ++index) {
      const View& view = argument.views[index];
      add(static_cast<bool>(argument.present[index]));
      add(view.dtype);
      add(view.rank);
      for (int dim = 0; dim < view.rank; ++dim) {
        add(view.sizes[dim]);
        add(view.strides[dim]);
      }
    }
    add(argument.scalars.size());
    for (const Scalar& scalar : argument.scalars) {
      add(scalar.dtype);
      add(scalar.real);
      add(scalar.imaginary);
      add(scalar.integer);
    }
    add(argument.integers.size());
    for (const int64_t value : argument.integers)
      add(value);
    add(argument.reals.size());
    for (const double value : argument.reals)
      add(value);
    key += argument.text;
  }
  return key;
}

} // namespace

Verdict infer(const Function& function, const Arguments& arguments) {
  int64_t elements = 0;
  for (const Argument& argument : arguments) {
    for (const View& view : argument.views)
      elements += view.numel();
  }
  if (elements > kTrial)
    return {};
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<std::string, Verdict>;
  const std::string key = signature(function, arguments);
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(key);
    if (found != known.end())
      return found->second;
  }
  // Integers of 0 are indices within bounds, and of 1 divisors.
  Verdict verdict = evaluate(function, arguments, Run::kTrialOfZeros);
  if (verdict.code && !evaluate(function, arguments, Run::kTrialOfOnes).code)
    verdict = {};
  std::lock_guard<std::mutex> lock(mutex);
  if (known.size() > 20000)
    known.clear();
  known.emplace(key, verdict);
  return verdict;
}

Verdict compute(const Function& function, const Arguments& arguments) {
  use_one_thread();
  const Verdict verdict = evaluate(function, arguments, Run::kReal);
  if (verdict.code) {
    for (int index = 0; index < function.count; ++index) {
      const Argument& argument = arguments[static_cast<size_t>(index)];
      if ((function.parameters[index].flags & kDynamic) && argument.handle)
        set_shape(argument.handle, nullptr, 0);
    }
  }
  return verdict;
}

} // namespace simulated_ascend
