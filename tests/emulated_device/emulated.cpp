// See __init__.py. Tested with torch 2.6 to 2.14, whose interfaces differ: what not all of them declare has no `override`.
#include <torch/library.h>

#include <ATen/CPUGeneratorImpl.h>
#if __has_include(<ATen/core/GeneratorForPrivateuseone.h>)
#include <ATen/core/GeneratorForPrivateuseone.h>
#endif
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void release(void* data) { c10::GetAllocator(c10::kCPU)->raw_deallocate(data); }

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? c10::GetAllocator(c10::kCPU)->raw_allocate(bytes) : nullptr;
    return {data, data, &release, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};
Allocator allocator;

// A generator of the device: its numbers are those of a CPU generator that nobody else draws from.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl(c10::Device(kDevice, 0), kKeys), own(at::make_generator<at::CPUGeneratorImpl>(seed)) {}
  void set_current_seed(uint64_t seed) override { own.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { own.set_offset(offset); }
  uint64_t get_offset() const override { return own.get_offset(); }
  uint64_t current_seed() const override { return own.current_seed(); }
  uint64_t seed() override { return own.seed(); }
  void set_state(const c10::TensorImpl& state) override { own.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return own.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override {
    auto* copy = new Generator();
    copy->own = own.clone();
    return copy;
  }
  at::Generator own;
};

at::Generator& default_generator() {
  static at::Generator generator = at::make_generator<Generator>();
  return generator;
}

#if __has_include(<ATen/core/GeneratorForPrivateuseone.h>)  // where older versions of torch ask for a new generator
at::Generator new_generator(c10::DeviceIndex) { return at::make_generator<Generator>(); }
REGISTER_GENERATOR_PRIVATEUSE1(new_generator)
#endif

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex = -1) const override { return at::make_generator<Generator>(); }
};

// One device, one stream; what is launched is done at once, so no event has to be waited for.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::Device only{kDevice, 0};
  c10::Stream stream{c10::Stream::DEFAULT, only};
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return only; }
  c10::Device getDevice() const override { return only; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(dtype));
}

// The same memory, seen as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(self));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  at::native::resize_(to, self.sizes(), std::nullopt);
  return copy_from(self, to, false);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto bytes = c10::multiply_integers(sizes) * self.itemsize() + self.storage_offset() * self.itemsize();
  auto& storage = self.storage();
  if (static_cast<size_t>(bytes) > storage.nbytes()) {
    auto grown = allocator.allocate(bytes);
    if (storage.nbytes()) std::memcpy(grown.get(), storage.data(), storage.nbytes());
    const_cast<c10::Storage&>(storage).set_data_ptr(std::move(grown));
    const_cast<c10::Storage&>(storage).set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) impl->set_sizes_contiguous(size);
  else impl->set_sizes_and_strides(size, stride);
  return self;
}

// Everything else is computed on copies in the CPU's memory. As on CUDA, tensors of two devices do not mix (a CPU
// tensor without dimensions is a number), and draws come from the device's own generator.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& name = schema.name();
  const bool indexes = name.rfind("aten::index", 0) == 0 || name.rfind("aten::_index_put", 0) == 0;
  const auto first = stack->size() - schema.arguments().size();
  at::Generator* generator = nullptr;
  at::Generator given;
  for (auto i = first; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    auto check = [&](const at::Tensor& tensor) {
      TORCH_CHECK(!tensor.defined() || tensor.dim() == 0 || !tensor.is_cpu() || indexes,
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  c10::Device(kDevice, 0), " and cpu! (in ", name, ")");
    };
    if (value.isTensor()) check(value.toTensor());
    else if (value.isTensorList()) for (const auto& tensor : value.toTensorVector()) check(tensor);
    else if (value.isGenerator()) {
      given = value.toGenerator();
      TORCH_CHECK(given.device().type() == kDevice, "Expected a '", c10::Device(kDevice),
                  "' device type for generator but found '", given.device().type(), "'");
      generator = &given;
      value = c10::IValue();
    }
  }
  if (name == "aten::native_batch_norm") {  // it writes to its statistics, which its schema does not say
    for (auto i = first + 3; i < first + 5; ++i)
      if ((*stack)[i].isTensor() && (*stack)[i].toTensor().defined()) (*stack)[i] = on_cpu((*stack)[i].toTensor());
  }
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) {
    at::native::cpu_fallback(op, stack);
    return;
  }
  if (!generator) generator = &default_generator();
  auto* own = c10::static_intrusive_pointer_cast<Generator>(generator->getIntrusivePtr()).get();
  auto cpu = at::detail::getDefaultCPUGenerator();
  auto before = cpu.get_state();
  cpu.set_state(own->own.get_state());
  try {
    at::native::cpu_fallback(op, stack);
  } catch (...) {
    cpu.set_state(before);
    throw;
  }
  own->own.set_state(cpu.get_state());
  cpu.set_state(before);
}

// torch asks a backend for a convolution of its own: these are the CPU's, with arguments in the same order.
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  at::native::cpu_fallback(op, stack);
}

void convolution_backward(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  auto begin = stack->end() - 10;  // gradient, input, weight: then come the sizes of the bias
  const auto channels = (begin + 2)->toTensor().size(0);
  stack->insert(begin + 3, c10::IValue(std::vector<int64_t>{channels}));
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", [](const at::Tensor& self, c10::SymIntArrayRef size) {
    return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
  });
  m.impl("_reshape_alias", [](const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  });
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

TORCH_LIBRARY(emulated, m) {
  m.def("get_rng_state", [] { return default_generator().get_state(); });
  m.def("set_rng_state", [](const at::Tensor& state) { default_generator().set_state(state); });
  m.def("manual_seed", [](int64_t seed) { default_generator().set_current_seed(seed); });
}

const bool registered = [] {
  c10::SetAllocator(kDevice, &allocator);
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

}  // namespace
