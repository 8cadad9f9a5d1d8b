#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace lowtide::walk {

// Classes of PyTorch's C++ side, told by their run-time type information: no header, no symbol and no offset
// of PyTorch is compiled in, so that one binary serves all its versions.
enum class NativeClass : uint8_t {
  kNone,  // not an object with a virtual table
  kOther,
  kTensor,    // c10::TensorImpl and what derives from it
  kStorage,   // c10::StorageImpl
  kAutograd,  // torch::autograd::Node
  kMeta,      // torch::autograd::AutogradMeta
  kPyHolder,  // a hook: holds Python objects
};

struct NativeType {
  NativeClass kind = NativeClass::kNone;
  bool accumulate_grad = false, view = false, copy_slices = false, python_node = false;
  std::string name;  // demangled
};

// Reads memory behind pointers that may be no pointers. What is not mapped reads as "no", never as a fault.
class NativeReader {
 public:
  // Takes the process's mappings as they are now; call again before each walk.
  bool Refresh();

  // May `address` be an object on the heap?
  bool Plausible(uint64_t address) const;

  // Is it memory that is mapped from /dev/shm?
  bool Shared(uint64_t address) const { return Within(shared_, address); }

  bool Read(uint64_t address, void* to, size_t bytes) const;

  // The class whose virtual table this is; the result stays valid.
  const NativeType& TypeOf(uint64_t vtable);

  // Bytes of the heap block that begins at (or 16 bytes before) a live object; 0: cannot tell.
  size_t BlockBytes(uint64_t address) const;

 private:
  struct Range {
    uint64_t begin, end;
  };
  static bool Within(const std::vector<Range>& ranges, uint64_t address);

  std::vector<Range> heap_, images_, shared_;
  std::unordered_map<uint64_t, NativeType> types_;
};

}  // namespace lowtide::walk
