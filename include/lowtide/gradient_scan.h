// One pass over a gradient: sum of squares, largest magnitude, zeros, NaN and infinities. Needs nothing but the
// compiler (g++ or clang): no PyTorch, no library of lowtide's. `torch.h` and the Python binding share it.
//
// Accuracy: squares are summed in 32 float lanes and flushed into double every 4096 elements, so the relative error
// does not grow with the size (about 3e-8 where a float sum over two million elements has 7e-5). A block whose float
// sum overflows (values beyond 1e19) or that holds a NaN is read again in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lowtide {

struct GradientScan {
  double sum_squares = 0;   // over finite elements
  double largest = 0;       // magnitude, over finite elements
  uint64_t count = 0;       // elements
  uint64_t zeros = 0;
  uint64_t nans = 0, infinities = 0;

  double norm() const { return std::sqrt(sum_squares); }
  bool finite() const { return nans + infinities == 0; }
  void Add(const GradientScan& other) {
    sum_squares += other.sum_squares;
    if (other.largest > largest) largest = other.largest;
    count += other.count;
    zeros += other.zeros;
    nans += other.nans;
    infinities += other.infinities;
  }
};

enum class ScanType : int { kFloat32 = 0, kFloat64 = 1, kBfloat16 = 2, kFloat16 = 3 };

inline size_t ScanTypeBytes(ScanType type) { return type == ScanType::kFloat64 ? 8 : type == ScanType::kFloat32 ? 4 : 2; }

namespace scan_internal {

constexpr int kLanes = 16;
constexpr size_t kBlock = 4096;  // elements between flushes into double
typedef float FloatLanes __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntLanes __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfLanes __attribute__((vector_size(kLanes * 2)));
typedef double DoubleLanes __attribute__((vector_size(64)));
typedef int64_t LongLanes __attribute__((vector_size(64)));

#define LOWTIDE_INLINE inline __attribute__((always_inline))

// Vectors travel by reference: by value their passing would depend on the processor that is compiled for.
LOWTIDE_INLINE void FromBits(const IntLanes& bits, FloatLanes& out) { std::memcpy(&out, &bits, sizeof out); }

struct Float32 {
  typedef float Element;
  static LOWTIDE_INLINE void Load(const Element* data, FloatLanes& out) { std::memcpy(&out, data, sizeof out); }
  static LOWTIDE_INLINE double One(Element value) { return value; }
};

struct Bfloat16 {
  typedef uint16_t Element;
  static LOWTIDE_INLINE void Load(const Element* data, FloatLanes& out) {
    HalfLanes half;
    std::memcpy(&half, data, sizeof half);
    const IntLanes bits = __builtin_convertvector(half, IntLanes) << 16;
    FromBits(bits, out);
  }
  static LOWTIDE_INLINE double One(Element value) {
    const uint32_t bits = static_cast<uint32_t>(value) << 16;
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }
};

struct Float16 {
  typedef uint16_t Element;
  // Exponent and mantissa moved into place and rescaled by 2^112, which also puts subnormals right; what then reaches
  // 65536 was an infinity or a NaN. Signs are dropped: magnitudes are all that is asked for.
  static LOWTIDE_INLINE void Load(const Element* data, FloatLanes& out) {
    HalfLanes half;
    std::memcpy(&half, data, sizeof half);
    const IntLanes wide = __builtin_convertvector(half, IntLanes) & 0x7fff;
    FromBits(wide << 13, out);
    out *= 0x1p112f;
    IntLanes bits;
    std::memcpy(&bits, &out, sizeof bits);
    FromBits(bits | ((wide >= 0x7c00) & 0x7f800000), out);
  }
  static LOWTIDE_INLINE double One(Element value) {
    const int exponent = (value >> 10) & 31, mantissa = value & 1023;
    if (exponent == 31) return mantissa ? NAN : INFINITY;
    return exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  }
};

struct Float64 {
  typedef double Element;
  static LOWTIDE_INLINE double One(Element value) { return value; }
};

// Element by element in double: tails, and blocks that the lanes could not hold.
template <typename Type>
LOWTIDE_INLINE void ScanSlowly(const typename Type::Element* data, size_t count, GradientScan& out) {
  for (size_t i = 0; i < count; ++i) {
    const double value = std::fabs(Type::One(data[i]));
    if (value != value) {
      ++out.nans;
    } else if (value > 1.7976931348623157e308) {
      ++out.infinities;
    } else {
      out.sum_squares += value * value;
      if (value > out.largest) out.largest = value;
      out.zeros += value == 0;
    }
  }
}

template <typename Type>
LOWTIDE_INLINE void ScanBlock(const typename Type::Element* data, size_t count, GradientScan& out) {
  FloatLanes sum0 = {}, sum1 = {}, most0 = {}, most1 = {};
  IntLanes zero0 = {}, zero1 = {};
  for (size_t i = 0; i < count; i += 2 * kLanes) {
    FloatLanes a, b;
    Type::Load(data + i, a);
    Type::Load(data + i + kLanes, b);
    const FloatLanes square_a = a * a, square_b = b * b;
    sum0 += square_a;
    sum1 += square_b;
    const FloatLanes abs_a = a < 0 ? -a : a, abs_b = b < 0 ? -b : b;
    most0 = abs_a > most0 ? abs_a : most0;
    most1 = abs_b > most1 ? abs_b : most1;
    zero0 -= (a == 0);
    zero1 -= (b == 0);
  }
  const FloatLanes sum = sum0 + sum1;
  double total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  float most = 0;
  uint64_t zeros = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    most = most0[lane] > most ? most0[lane] : most;
    most = most1[lane] > most ? most1[lane] : most;
    zeros += static_cast<uint64_t>(zero0[lane]) + static_cast<uint64_t>(zero1[lane]);
  }
  // Squares of magnitudes below 1e-19 underflow in float, and an infinite sum means overflow, infinity or NaN.
  if (!(total < 3.0e38) || (most < 1e-15f && zeros < count)) return ScanSlowly<Type>(data, count, out);
  out.sum_squares += total;
  out.zeros += zeros;
  if (most > out.largest) out.largest = most;
}

template <>
LOWTIDE_INLINE void ScanBlock<Float64>(const double* data, size_t count, GradientScan& out) {
  DoubleLanes sum0 = {}, sum1 = {}, most = {};
  LongLanes zero = {};
  for (size_t i = 0; i < count; i += 16) {
    DoubleLanes a, b;
    std::memcpy(&a, data + i, sizeof a);
    std::memcpy(&b, data + i + 8, sizeof b);
    sum0 += a * a;
    sum1 += b * b;
    const DoubleLanes abs_a = a < 0 ? -a : a, abs_b = b < 0 ? -b : b;
    const DoubleLanes both = abs_a > abs_b ? abs_a : abs_b;
    most = both > most ? both : most;
    zero -= (a == 0);
    zero -= (b == 0);
  }
  double total = 0, top = 0;
  uint64_t zeros = 0;
  for (int lane = 0; lane < 8; ++lane) {
    total += sum0[lane] + sum1[lane];
    top = most[lane] > top ? most[lane] : top;
    zeros += static_cast<uint64_t>(zero[lane]);
  }
  if (!(total <= 1.7976931348623157e308)) return ScanSlowly<Float64>(data, count, out);
  out.sum_squares += total;
  out.zeros += zeros;
  if (top > out.largest) out.largest = top;
}

template <typename Type>
LOWTIDE_INLINE GradientScan ScanAll(const void* memory, size_t count) {
  const auto* data = static_cast<const typename Type::Element*>(memory);
  GradientScan out;
  out.count = count;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) ScanBlock<Type>(data + i, kBlock, out);
  const size_t even = (count - i) & ~size_t{31};
  if (even) ScanBlock<Type>(data + i, even, out);
  ScanSlowly<Type>(data + i + even, count - i - even, out);
  return out;
}

LOWTIDE_INLINE GradientScan ScanAny(const void* data, size_t count, ScanType type) {
  switch (type) {
    case ScanType::kFloat32:
      return ScanAll<Float32>(data, count);
    case ScanType::kFloat64:
      return ScanAll<Float64>(data, count);
    case ScanType::kBfloat16:
      return ScanAll<Bfloat16>(data, count);
    case ScanType::kFloat16:
      return ScanAll<Float16>(data, count);
  }
  return {};
}

LOWTIDE_INLINE void ScaleAny(float* data, size_t count, float factor) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    FloatLanes scaled;
    Float32::Load(data + i, scaled);
    scaled *= factor;
    std::memcpy(data + i, &scaled, sizeof scaled);
  }
  for (; i < count; ++i) data[i] *= factor;
}

#if defined(__x86_64__)
// One translation unit, several processors: the same code compiled three times, chosen when it runs.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))) inline GradientScan Scan512(
    const void* d, size_t n, ScanType t) { return ScanAny(d, n, t); }
__attribute__((target("avx2,fma"))) inline GradientScan Scan256(
    const void* d, size_t n, ScanType t) { return ScanAny(d, n, t); }
__attribute__((target("avx2"))) inline void Scale256(float* d, size_t n, float f) { ScaleAny(d, n, f); }
#endif

}  // namespace scan_internal

// `data` is dense and readable for `count` elements of `type`; any alignment.
inline GradientScan ScanGradient(const void* data, size_t count, ScanType type) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return scan_internal::Scan512(data, count, type);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return scan_internal::Scan256(data, count, type);
#endif
  return scan_internal::ScanAny(data, count, type);
}

// data[i] *= factor: the second half of a clip.
inline void ScaleGradient(float* data, size_t count, float factor) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return scan_internal::Scale256(data, count, factor);
#endif
  scan_internal::ScaleAny(data, count, factor);
}

#undef LOWTIDE_INLINE

}  // namespace lowtide
