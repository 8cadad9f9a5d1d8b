// One pass over a gradient: sum of squares, largest magnitude, zeros, NaN and infinities. Needs nothing but the
// compiler (g++ or clang): no PyTorch, no library of lowtide's. `torch.h` and the Python binding share it.
//
// Accuracy: squares are summed in 16 to 64 float lanes and flushed into double every 4096 elements, so the relative error
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

constexpr size_t kBlock = 4096;  // elements between flushes into double: four pages of float32

#define LOWTIDE_INLINE inline __attribute__((always_inline))

// Vectors of `lanes` floats: 16 with AVX-512, 8 elsewhere. (Vectors wider than the registers compile to code that is ten
// times slower.) They travel by reference: by value their passing would depend on the processor that is compiled for.
template <int lanes>
struct Vectors {
  typedef float Float __attribute__((vector_size(lanes * 4)));
  typedef int32_t Int __attribute__((vector_size(lanes * 4)));
  typedef uint16_t Half __attribute__((vector_size(lanes * 2)));
  typedef double Double __attribute__((vector_size(lanes * 4)));
  typedef int64_t Long __attribute__((vector_size(lanes * 4)));

  static LOWTIDE_INLINE void FromBits(const Int& bits, Float& out) { std::memcpy(&out, &bits, sizeof out); }
  static LOWTIDE_INLINE void ToBits(const Float& value, Int& out) { std::memcpy(&out, &value, sizeof out); }
};

struct Float32 {
  typedef float Element;
  template <int lanes>
  static LOWTIDE_INLINE void Load(const Element* data, typename Vectors<lanes>::Float& out) {
    std::memcpy(&out, data, sizeof out);
  }
  static LOWTIDE_INLINE double One(Element value) { return value; }
};

struct Bfloat16 {
  typedef uint16_t Element;
  template <int lanes>
  static LOWTIDE_INLINE void Load(const Element* data, typename Vectors<lanes>::Float& out) {
    typename Vectors<lanes>::Half half;
    std::memcpy(&half, data, sizeof half);
    const typename Vectors<lanes>::Int bits = __builtin_convertvector(half, typename Vectors<lanes>::Int) << 16;
    Vectors<lanes>::FromBits(bits, out);
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
  template <int lanes>
  static LOWTIDE_INLINE void Load(const Element* data, typename Vectors<lanes>::Float& out) {
    typename Vectors<lanes>::Half half;
    std::memcpy(&half, data, sizeof half);
    const typename Vectors<lanes>::Int wide = __builtin_convertvector(half, typename Vectors<lanes>::Int) & 0x7fff;
    Vectors<lanes>::FromBits(wide << 13, out);
    out *= 0x1p112f;
    typename Vectors<lanes>::Int bits;
    Vectors<lanes>::ToBits(out, bits);
    Vectors<lanes>::FromBits(bits | ((wide >= 0x7c00) & 0x7f800000), out);
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

// What the vectors of one block gather.
template <int lanes>
struct Gathered {
  typename Vectors<lanes>::Float sum = {}, most = {};
  typename Vectors<lanes>::Int zeros = {};

  template <typename Type>
  LOWTIDE_INLINE void Take(const typename Type::Element* data) {
    typename Vectors<lanes>::Float value, magnitude;
    Type::template Load<lanes>(data, value);
    sum += value * value;
    typename Vectors<lanes>::Int bits;
    Vectors<lanes>::ToBits(value, bits);
    Vectors<lanes>::FromBits(bits & 0x7fffffff, magnitude);
    most = magnitude > most ? magnitude : most;
    zeros -= (value == 0);
  }
  LOWTIDE_INLINE void Add(const Gathered& other) {
    sum += other.sum;
    most = other.most > most ? other.most : most;
    zeros += other.zeros;
  }
};

// `count` is a multiple of 4 * lanes. Four places are read at a time, each a quarter of the block further on: in a whole block
// these are four pages, and the processor fetches ahead in all of them. The next block is asked for meanwhile (an address past the
// end does no harm): with all the arithmetic too few loads are in flight otherwise.
template <typename Type, int lanes>
LOWTIDE_INLINE void ScanBlock(const typename Type::Element* data, size_t count, GradientScan& out) {
  Gathered<lanes> a, b, c, d;
  const size_t quarter = count / 4;
  for (size_t i = 0; i < quarter; i += lanes) {
    for (size_t k = 0; k < 4; ++k) __builtin_prefetch(data + kBlock + i + k * quarter);
    a.template Take<Type>(data + i);
    b.template Take<Type>(data + i + quarter);
    c.template Take<Type>(data + i + 2 * quarter);
    d.template Take<Type>(data + i + 3 * quarter);
  }
  a.Add(b);
  c.Add(d);
  a.Add(c);
  double total = 0;
  float most = 0;
  uint64_t zeros = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    total += a.sum[lane];
    most = a.most[lane] > most ? a.most[lane] : most;
    zeros += static_cast<uint64_t>(a.zeros[lane]);
  }
  // Squares of magnitudes below 1e-19 underflow in float, and an infinite sum means overflow, infinity or NaN.
  if (!(total < 3.0e38) || (most < 1e-15f && zeros < count)) return ScanSlowly<Type>(data, count, out);
  out.sum_squares += total;
  out.zeros += zeros;
  if (most > out.largest) out.largest = most;
}

template <int lanes>
LOWTIDE_INLINE void ScanDoubles(const double* data, size_t count, GradientScan& out) {
  constexpr int kEach = lanes / 2;
  typename Vectors<lanes>::Double sum0 = {}, sum1 = {}, most = {};
  typename Vectors<lanes>::Long zero = {};
  for (size_t i = 0; i < count; i += 2 * kEach) {
    typename Vectors<lanes>::Double a, b;
    std::memcpy(&a, data + i, sizeof a);
    std::memcpy(&b, data + i + kEach, sizeof b);
    sum0 += a * a;
    sum1 += b * b;
    const typename Vectors<lanes>::Double abs_a = a < 0 ? -a : a, abs_b = b < 0 ? -b : b;
    const typename Vectors<lanes>::Double both = abs_a > abs_b ? abs_a : abs_b;
    most = both > most ? both : most;
    zero -= (a == 0);
    zero -= (b == 0);
  }
  double total = 0, top = 0;
  uint64_t zeros = 0;
  for (int lane = 0; lane < kEach; ++lane) {
    total += sum0[lane] + sum1[lane];
    top = most[lane] > top ? most[lane] : top;
    zeros += static_cast<uint64_t>(zero[lane]);
  }
  if (!(total <= 1.7976931348623157e308)) return ScanSlowly<Float64>(data, count, out);
  out.sum_squares += total;
  out.zeros += zeros;
  if (top > out.largest) out.largest = top;
}

template <int lanes>
struct BlockOf {
  template <typename Type>
  static LOWTIDE_INLINE void Scan(const typename Type::Element* data, size_t count, GradientScan& out) {
    if constexpr (sizeof(typename Type::Element) == 8) {
      ScanDoubles<lanes>(data, count, out);
    } else {
      ScanBlock<Type, lanes>(data, count, out);
    }
  }
};

template <typename Type, int lanes>
LOWTIDE_INLINE GradientScan ScanAll(const void* memory, size_t count) {
  const auto* data = static_cast<const typename Type::Element*>(memory);
  GradientScan out;
  out.count = count;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) BlockOf<lanes>::template Scan<Type>(data + i, kBlock, out);
  const size_t even = (count - i) / (4 * lanes) * (4 * lanes);
  if (even) BlockOf<lanes>::template Scan<Type>(data + i, even, out);
  ScanSlowly<Type>(data + i + even, count - i - even, out);
  return out;
}

template <int lanes>
LOWTIDE_INLINE GradientScan ScanAny(const void* data, size_t count, ScanType type) {
  switch (type) {
    case ScanType::kFloat32:
      return ScanAll<Float32, lanes>(data, count);
    case ScanType::kFloat64:
      return ScanAll<Float64, lanes>(data, count);
    case ScanType::kBfloat16:
      return ScanAll<Bfloat16, lanes>(data, count);
    case ScanType::kFloat16:
      return ScanAll<Float16, lanes>(data, count);
  }
  return {};
}

LOWTIDE_INLINE void ScaleAny(float* data, size_t count, float factor) {
  constexpr int kLanes = 8;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vectors<kLanes>::Float scaled;
    Float32::Load<kLanes>(data + i, scaled);
    scaled *= factor;
    std::memcpy(data + i, &scaled, sizeof scaled);
  }
  for (; i < count; ++i) data[i] *= factor;
}

#if defined(__x86_64__)
// One translation unit, several processors: the same code compiled three times, chosen when it runs.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))) inline GradientScan Scan512(
    const void* d, size_t n, ScanType t) { return ScanAny<16>(d, n, t); }
__attribute__((target("avx2,fma"))) inline GradientScan Scan256(
    const void* d, size_t n, ScanType t) { return ScanAny<8>(d, n, t); }
__attribute__((target("avx2"))) inline void Scale256(float* d, size_t n, float f) { ScaleAny(d, n, f); }
#endif

}  // namespace scan_internal

// `data` is dense and readable for `count` elements of `type`; any alignment.
inline GradientScan ScanGradient(const void* data, size_t count, ScanType type) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return scan_internal::Scan512(data, count, type);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return scan_internal::Scan256(data, count, type);
#endif
  return scan_internal::ScanAny<4>(data, count, type);
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
