// The vector operations the kernels use, written once with the compiler's vector types (GCC and Clang).
// Compiled once per instruction set: REGARD_ISA names it and REGARD_VECTOR_BYTES is its register size.
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

#define REGARD_UNROLL _Pragma("GCC unroll 32")
#define REGARD_INLINE inline __attribute__((always_inline))
#define REGARD_INLINED __attribute__((always_inline))  // for lambdas: what stays in registers must not be passed by memory

namespace regard {
namespace REGARD_ISA {

template <class T> struct VectorOf {
    typedef T type __attribute__((vector_size(REGARD_VECTOR_BYTES)));
    typedef typename std::conditional<sizeof(T) == 4, int32_t, int64_t>::type whole;
    typedef whole mask __attribute__((vector_size(REGARD_VECTOR_BYTES)));
    typedef typename std::make_unsigned<whole>::type bits __attribute__((vector_size(REGARD_VECTOR_BYTES)));
    static constexpr int lanes = REGARD_VECTOR_BYTES / sizeof(T);
    typedef uint32_t counts __attribute__((vector_size(4 * lanes)));
    typedef uint16_t halves __attribute__((vector_size(2 * lanes)));
    typedef uint8_t bytes __attribute__((vector_size(lanes)));
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
    return (Vec<T>)((MaskVec<T>)x & std::numeric_limits<typename VectorOf<T>::whole>::max());
}

// f(0), f(1), … f(N - 1), unrolled.
template <class F, int... N> REGARD_INLINE void each(F f, std::integer_sequence<int, N...>) { (f(N), ...); }
template <int N, class F> REGARD_INLINE void each(F f) { each(f, std::make_integer_sequence<int, N>{}); }

template <class T, int... N> REGARD_INLINE Vec<T> iota(std::integer_sequence<int, N...>) { return Vec<T>{T(N)...}; }
template <class T> REGARD_INLINE Vec<T> iota() { return iota<T>(std::make_integer_sequence<int, LANES<T>>{}); }  // 0, 1, 2, …

// Folds a vector onto its lower half until one number is left: a fixed tree, the same for every compiler.
template <int FROM, class V, int... N> REGARD_INLINE auto lanes_of(V v, std::integer_sequence<int, N...>) {
    return __builtin_shufflevector(v, v, (FROM + N)...);
}
template <class T, int BYTES, class Join> struct Fold {
    typedef T whole __attribute__((vector_size(BYTES)));
    static REGARD_INLINE T of(whole v, Join join) {
        constexpr int half = BYTES / 2 / int(sizeof(T));
        constexpr auto lanes = std::make_integer_sequence<int, half>{};
        return Fold<T, BYTES / 2, Join>::of(join(lanes_of<0>(v, lanes), lanes_of<half>(v, lanes)), join);
    }
};
template <class Join> struct Fold<float, 8, Join> {
    typedef float whole __attribute__((vector_size(8)));
    static REGARD_INLINE float of(whole v, Join join) { return join(v[0], v[1]); }
};
template <class Join> struct Fold<double, 16, Join> {
    typedef double whole __attribute__((vector_size(16)));
    static REGARD_INLINE double of(whole v, Join join) { return join(v[0], v[1]); }
};
struct Add {
    template <class V> V operator()(V a, V b) const { return a + b; }
};
struct Larger {
    template <class V> V operator()(V a, V b) const { return a > b ? a : b; }
};
template <class T> REGARD_INLINE T sum(Vec<T> v) { return Fold<T, REGARD_VECTOR_BYTES, Add>::of(v, Add{}); }
template <class T> REGARD_INLINE T max_of(Vec<T> v) { return Fold<T, REGARD_VECTOR_BYTES, Larger>::of(v, Larger{}); }

// LANES numbers as they are stored, widened.
template <class T, class S> REGARD_INLINE Vec<T> load_wide(const S* p) {
    if constexpr (std::is_same<T, S>::value) {
        return load(p);
    } else {
        typename VectorOf<T>::halves bits;
        std::memcpy(&bits, p, sizeof bits);
#if defined(__AVX512F__)
        if constexpr (std::is_same<S, Float16>::value) return (Vec<T>)_mm512_cvtph_ps((__m256i)bits);
#elif defined(__AVX2__) && defined(__F16C__)
        if constexpr (std::is_same<S, Float16>::value) return (Vec<T>)_mm256_cvtph_ps((__m128i)bits);
#endif
        if constexpr (std::is_same<S, BFloat16>::value) {
            return (Vec<T>)(__builtin_convertvector(bits, typename VectorOf<T>::counts) << 16);
        } else {
            Vec<T> wide;
            for (int n = 0; n < LANES<T>; ++n) wide[n] = widen<T>(p[n]);
            return wide;
        }
    }
}

// In place: row r of `rows` becomes column r. Each step swaps the off-diagonal blocks of one size.
template <class T, int SIZE, bool HIGH, int... N>
REGARD_INLINE Vec<T> blocks_of(Vec<T> a, Vec<T> b, std::integer_sequence<int, N...>) {
    if (HIGH) return __builtin_shufflevector(a, b, (N / SIZE % 2 ? LANES<T> + N : N + SIZE)...);
    return __builtin_shufflevector(a, b, (N / SIZE % 2 ? LANES<T> + N - SIZE : N)...);
}
template <class T, int SIZE> REGARD_INLINE void swap_blocks(Vec<T>* rows) {
    constexpr auto all = std::make_integer_sequence<int, LANES<T>>{};
    REGARD_UNROLL for (int r = 0; r < LANES<T>; ++r)
        if (r / SIZE % 2 == 0) {
            const Vec<T> a = rows[r], b = rows[r + SIZE];
            rows[r] = blocks_of<T, SIZE, false>(a, b, all);
            rows[r + SIZE] = blocks_of<T, SIZE, true>(a, b, all);
        }
}
template <class T> REGARD_INLINE void transpose(Vec<T>* rows) {
    if constexpr (LANES<T> > 8) swap_blocks<T, 8>(rows);
    if constexpr (LANES<T> > 4) swap_blocks<T, 4>(rows);
    if constexpr (LANES<T> > 2) swap_blocks<T, 2>(rows);
    swap_blocks<T, 1>(rows);
}

// Lane n is the sum of vector n's lanes.
template <class T> REGARD_INLINE Vec<T> sums_of(const Vec<T>* vectors) {
    Vec<T> rows[LANES<T>];
    REGARD_UNROLL for (int n = 0; n < LANES<T>; ++n) rows[n] = vectors[n];
    transpose<T>(rows);
    REGARD_UNROLL for (int half = LANES<T> / 2; half; half /= 2)
        REGARD_UNROLL for (int n = 0; n < half; ++n) rows[n] += rows[n + half];
    return rows[0];
}

}  // namespace REGARD_ISA
}  // namespace regard
