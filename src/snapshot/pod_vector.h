#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace lowtide::snapshot {

// A growing array of trivially copyable elements that grows by realloc. For large blocks realloc moves pages
// instead of bytes, so growing never holds two copies: std::vector would triple the peak memory of a million
// events.
template <typename T>
class PodVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PodVector() = default;
  ~PodVector() { std::free(data_); }
  PodVector(PodVector&& other) noexcept { Swap(other); }
  PodVector& operator=(PodVector&& other) noexcept {
    Swap(other);
    return *this;
  }
  PodVector(const PodVector&) = delete;
  PodVector& operator=(const PodVector&) = delete;

  void push_back(const T& item) {
    if (size_ == capacity_) Grow(size_ + 1);
    data_[size_++] = item;
  }
  // Grows or shrinks; new elements are uninitialized.
  void resize(size_t size) {
    if (size > capacity_) Grow(size);
    size_ = size;
  }
  void append(const T* items, size_t count) {
    const size_t old = size_;
    resize(old + count);
    for (size_t i = 0; i < count; ++i) data_[old + i] = items[i];
  }
  void clear() { size_ = 0; }
  // Gives the memory of the whole pages that hold elements before `count` back; those elements must not be
  // read again.
  void ForgetBefore(size_t count) {
    constexpr uintptr_t kPage = 4096;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data_) + kPage - 1) / kPage * kPage;
    const uintptr_t end = reinterpret_cast<uintptr_t>(data_ + count) / kPage * kPage;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  void release() {
    std::free(data_);
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  void Swap(PodVector& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void Grow(size_t least) {
    size_t capacity = capacity_ < 64 ? 64 : capacity_ + capacity_ / 2;
    if (capacity < least) capacity = least;
    void* data = std::realloc(data_, capacity * sizeof(T));
    if (!data) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace lowtide::snapshot
