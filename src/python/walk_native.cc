#include "python/walk_native.h"

#include <cxxabi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <typeinfo>

namespace lowtide::walk {

bool NativeReader::Refresh() {
  heap_.clear();
  images_.clear();
  shared_.clear();
  FILE* file = std::fopen("/proc/self/maps", "re");
  if (!file) return false;
  char* line = nullptr;
  size_t room = 0;
  while (getline(&line, &room, file) > 0) {
    unsigned long begin = 0, end = 0;
    char rights[5] = {};
    int name_at = 0;
    if (std::sscanf(line, "%lx-%lx %4s %*s %*s %*s %n", &begin, &end, rights, &name_at) < 3) continue;
    const char* name = name_at ? line + name_at : "";
    if (rights[0] != 'r') continue;
    if (std::strncmp(name, "/dev/shm/", 9) == 0 || std::strstr(name, "/torch_"))
      shared_.push_back({begin, end});
    if (std::strstr(name, ".so") || std::strstr(name, "python")) images_.push_back({begin, end});
    const bool anonymous = *name == '\n' || *name == '\0' || std::strncmp(name, "[heap]", 6) == 0;
    if (!anonymous || rights[1] != 'w') continue;
    if (!heap_.empty() && heap_.back().end == begin)
      heap_.back().end = end;
    else
      heap_.push_back({begin, end});
  }
  std::free(line);
  std::fclose(file);
  return true;
}

bool NativeReader::Within(const std::vector<Range>& ranges, uint64_t address) {
  auto above = std::upper_bound(ranges.begin(), ranges.end(), address,
                                [](uint64_t a, const Range& range) { return a < range.begin; });
  return above != ranges.begin() && address < std::prev(above)->end;
}

bool NativeReader::Plausible(uint64_t address) const { return !(address & 15) && Within(heap_, address); }

bool NativeReader::Read(uint64_t address, void* to, size_t bytes) const {
  iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

namespace {

// The names of the classes from `type` up its first bases.
bool DerivesFrom(const std::type_info* type, const char* mangled) {
  for (int depth = 0; type && depth < 12; ++depth) {
    if (std::strcmp(type->name(), mangled) == 0) return true;
    if (const auto* single = dynamic_cast<const abi::__si_class_type_info*>(type)) {
      type = single->__base_type;
    } else if (const auto* several = dynamic_cast<const abi::__vmi_class_type_info*>(type)) {
      type = several->__base_count ? several->__base_info[0].__base_type : nullptr;
    } else {
      type = nullptr;
    }
  }
  return false;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? text : name;
  std::free(text);
  return result;
}

// The virtual tables of the C++ runtime's own classes of type_info that classes have: none, one, several
// bases.
bool IsClassTypeInfo(uint64_t table) {
  struct Plain {
    virtual ~Plain() = default;
  };
  struct Other {
    virtual ~Other() = default;
  };
  struct Single : Plain {};
  struct Several : Plain, Other {};
  static const std::type_info* const kKnown[] = {&typeid(Plain), &typeid(Single), &typeid(Several)};
  for (const std::type_info* type : kKnown) {
    uint64_t known = 0;
    std::memcpy(&known, static_cast<const void*>(type), sizeof known);
    if (known == table) return true;
  }
  return false;
}

NativeType Classify(const std::type_info* type) {
  NativeType native;
  native.name = Demangled(type->name());
  native.kind = NativeClass::kOther;
  if (DerivesFrom(type, "N3c1010TensorImplE"))
    native.kind = NativeClass::kTensor;
  else if (DerivesFrom(type, "N3c1011StorageImplE"))
    native.kind = NativeClass::kStorage;
  else if (DerivesFrom(type, "N5torch8autograd4NodeE"))
    native.kind = NativeClass::kAutograd;
  else if (DerivesFrom(type, "N5torch8autograd12AutogradMetaE"))
    native.kind = NativeClass::kMeta;
  else if (native.name.starts_with("torch::autograd::Py"))
    native.kind = NativeClass::kPyHolder;
  native.view = native.name == "torch::autograd::DifferentiableViewMeta";
  native.copy_slices = native.name == "torch::autograd::CopySlices";
  native.python_node = native.name == "torch::autograd::PyNode";
  native.accumulate_grad = native.name == "torch::autograd::AccumulateGrad";
  return native;
}

}  // namespace

const NativeType& NativeReader::TypeOf(uint64_t vtable) {
  const auto found = types_.find(vtable);
  if (found != types_.end()) return found->second;
  static const NativeType kNothing;
  if (vtable & 7 || !Within(images_, vtable) || !Within(images_, vtable - 16)) return kNothing;
  uint64_t before[2] = {};  // offset to top, type_info
  if (!Read(vtable - 16, before, sizeof before) || before[0] != 0) return kNothing;
  if (before[1] & 7 || !Within(images_, before[1])) return kNothing;
  uint64_t info[2] = {};  // type_info: virtual table, name
  if (!Read(before[1], info, sizeof info) || !Within(images_, info[0]) || !Within(images_, info[1]))
    return kNothing;
  if (!IsClassTypeInfo(info[0])) return kNothing;
  return types_.emplace(vtable, Classify(reinterpret_cast<const std::type_info*>(before[1]))).first->second;
}

size_t NativeReader::BlockBytes(uint64_t address) const {
  // glibc: the word before a block is its size and three flags. An object made by make_shared stands 16 bytes
  // into its block, where that word is a pair of counters, too large for a size.
  for (uint64_t start : {address, address - 16}) {
    uint64_t word = 0;
    if (!Read(start - 8, &word, 8)) return 0;
    const uint64_t bytes = word & ~7ull;
    if (bytes >= 32 && bytes <= 1 << 20 && bytes % 16 == 0) return bytes - 8 - (address - start);
  }
  return 0;
}

}  // namespace lowtide::walk
