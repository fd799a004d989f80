// Vector operations, written once with the vector types of GCC and Clang.
//
// Every header with `namespace REGARD_ISA` is compiled once per instruction set: REGARD_ISA is the set's name and
// REGARD_VECTOR_BYTES the size of its registers (16 portable, 32 avx2, 64 avx512).
//
// Template parameters throughout the folder:
//   T   compute type: float or double. Sums, logits, softmax states and gradients are of this type.
//   S   storage type of query, key and value: T itself, or BFloat16 or Float16 (then T is float).
//   R, C  rows and vectors of a register tile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "float16.h"

#define REGARD_UNROLLED_FOR _Pragma("GCC unroll 32") for
#define REGARD_INLINE inline __attribute__((always_inline))
#define REGARD_INLINED __attribute__((always_inline))  // for lambdas: their vector arguments must stay in registers

namespace regard {
namespace REGARD_ISA {

template <class T> struct VectorOf {
    typedef T type __attribute__((vector_size(REGARD_VECTOR_BYTES)));
    typedef typename std::conditional<sizeof(T) == 4, int32_t, int64_t>::type integer;
    typedef integer mask __attribute__((vector_size(REGARD_VECTOR_BYTES)));
    typedef typename std::make_unsigned<integer>::type unsigned_type __attribute__((vector_size(REGARD_VECTOR_BYTES)));
    static constexpr int lanes = REGARD_VECTOR_BYTES / sizeof(T);
    typedef uint32_t uint32s __attribute__((vector_size(4 * lanes)));
    typedef uint16_t uint16s __attribute__((vector_size(2 * lanes)));
    typedef uint8_t uint8s __attribute__((vector_size(lanes)));
};
template <class T> using Vec = typename VectorOf<T>::type;
template <class T> using MaskVec = typename VectorOf<T>::mask;
template <class T> constexpr int LANES = VectorOf<T>::lanes;

template <class T> REGARD_INLINE Vec<T> load(const T* p) {
    Vec<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class T> REGARD_INLINE void store(T* p, Vec<T> v) { std::memcpy(p, &v, sizeof v); }
template <class T> REGARD_INLINE Vec<T> splat(T x) { return x - Vec<T>{}; }  // x − 0 is x, and folds to a broadcast
template <class T> REGARD_INLINE Vec<T> max(Vec<T> a, Vec<T> b) { return a > b ? a : b; }
#if defined(__AVX512F__)
template <> REGARD_INLINE Vec<float> max<float>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm512_max_ps((__m512)a, (__m512)b);
}
template <> REGARD_INLINE Vec<double> max<double>(Vec<double> a, Vec<double> b) {
    return (Vec<double>)_mm512_max_pd((__m512d)a, (__m512d)b);
}
#endif
template <class T> REGARD_INLINE Vec<T> absolute(Vec<T> x) {
    return (Vec<T>)((MaskVec<T>)x & std::numeric_limits<typename VectorOf<T>::integer>::max());
}

// f(0), f(1), … f(N - 1), unrolled.
template <class F, int... N> REGARD_INLINE void static_for(F f, std::integer_sequence<int, N...>) { (f(N), ...); }
template <int N, class F> REGARD_INLINE void static_for(F f) { static_for(f, std::make_integer_sequence<int, N>{}); }

template <class T, int... N> REGARD_INLINE Vec<T> iota(std::integer_sequence<int, N...>) { return Vec<T>{T(N)...}; }
template <class T> REGARD_INLINE Vec<T> iota() {
    return iota<T>(std::make_integer_sequence<int, LANES<T>>{});
}  // 0, 1, 2, …

// Horizontal reduction: add (or max) the upper half onto the lower half until one number is left. The tree is fixed, so
// every compiler gives the same bits.
template <int FROM, class V, int... N> REGARD_INLINE auto select_lanes(V v, std::integer_sequence<int, N...>) {
    return __builtin_shufflevector(v, v, (FROM + N)...);
}
template <class T, int BYTES, class Join> struct Reduction {
    typedef T vector __attribute__((vector_size(BYTES)));
    static REGARD_INLINE T of(vector v, Join join) {
        constexpr int half = BYTES / 2 / int(sizeof(T));
        constexpr auto lanes = std::make_integer_sequence<int, half>{};
        return Reduction<T, BYTES / 2, Join>::of(join(select_lanes<0>(v, lanes), select_lanes<half>(v, lanes)), join);
    }
};
template <class Join> struct Reduction<float, 8, Join> {
    typedef float vector __attribute__((vector_size(8)));
    static REGARD_INLINE float of(vector v, Join join) { return join(v[0], v[1]); }
};
template <class Join> struct Reduction<double, 16, Join> {
    typedef double vector __attribute__((vector_size(16)));
    static REGARD_INLINE double of(vector v, Join join) { return join(v[0], v[1]); }
};
struct Add {
    template <class V> V operator()(V a, V b) const { return a + b; }
};
struct Larger {
    template <class V> V operator()(V a, V b) const { return a > b ? a : b; }
};
template <class T> REGARD_INLINE T reduce_add(Vec<T> v) { return Reduction<T, REGARD_VECTOR_BYTES, Add>::of(v, Add{}); }
template <class T> REGARD_INLINE T reduce_max(Vec<T> v) {
    return Reduction<T, REGARD_VECTOR_BYTES, Larger>::of(v, Larger{});
}

// Load LANES stored numbers and convert them to T.
template <class T, class S> REGARD_INLINE Vec<T> load_widened(const S* p) {
    if constexpr (std::is_same<T, S>::value) {
        return load(p);
    } else {
        typename VectorOf<T>::uint16s stored;
        std::memcpy(&stored, p, sizeof stored);
#if defined(__AVX512F__)
        if constexpr (std::is_same<S, Float16>::value) return (Vec<T>)_mm512_cvtph_ps((__m256i)stored);
#elif defined(__AVX2__) && defined(__F16C__)
        if constexpr (std::is_same<S, Float16>::value) return (Vec<T>)_mm256_cvtph_ps((__m128i)stored);
#endif
        if constexpr (std::is_same<S, BFloat16>::value) {
            return (Vec<T>)(__builtin_convertvector(stored, typename VectorOf<T>::uint32s) << 16);
        } else {
            Vec<T> wide;
            for (int n = 0; n < LANES<T>; ++n) wide[n] = widen<T>(p[n]);
            return wide;
        }
    }
}

// Transpose LANES × LANES numbers in registers. Each step swaps the off-diagonal blocks of one size.
template <class T, int SIZE, bool HIGH, int... N>
REGARD_INLINE Vec<T> interleave_blocks(Vec<T> a, Vec<T> b, std::integer_sequence<int, N...>) {
    if (HIGH) return __builtin_shufflevector(a, b, (N / SIZE % 2 ? LANES<T> + N : N + SIZE)...);
    return __builtin_shufflevector(a, b, (N / SIZE % 2 ? LANES<T> + N - SIZE : N)...);
}
template <class T, int SIZE> REGARD_INLINE void swap_blocks(Vec<T>* rows) {
    constexpr auto all = std::make_integer_sequence<int, LANES<T>>{};
    REGARD_UNROLLED_FOR (int r = 0; r < LANES<T>; ++r)
        if (r / SIZE % 2 == 0) {
            const Vec<T> a = rows[r], b = rows[r + SIZE];
            rows[r] = interleave_blocks<T, SIZE, false>(a, b, all);
            rows[r + SIZE] = interleave_blocks<T, SIZE, true>(a, b, all);
        }
}
template <class T> REGARD_INLINE void transpose(Vec<T>* rows) {
    if constexpr (LANES<T> > 8) swap_blocks<T, 8>(rows);
    if constexpr (LANES<T> > 4) swap_blocks<T, 4>(rows);
    if constexpr (LANES<T> > 2) swap_blocks<T, 2>(rows);
    swap_blocks<T, 1>(rows);
}

// Lane n of the result is reduce_add(vectors[n]), with the same tree.
template <class T> REGARD_INLINE Vec<T> reduce_add_each(const Vec<T>* vectors) {
    Vec<T> rows[LANES<T>];
    REGARD_UNROLLED_FOR (int n = 0; n < LANES<T>; ++n) rows[n] = vectors[n];
    transpose<T>(rows);
    REGARD_UNROLLED_FOR (int half = LANES<T> / 2; half; half /= 2)
        REGARD_UNROLLED_FOR (int n = 0; n < half; ++n) rows[n] += rows[n + half];
    return rows[0];
}

}  // namespace REGARD_ISA
}  // namespace regard
