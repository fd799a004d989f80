// exp2 and tanh of vectors.
#pragma once
#include "simd.h"

namespace regard {
namespace REGARD_ISA {

constexpr double LOG2E = 1.4426950408889634074;

// 2^f for f in [-1/2, 1/2], by a polynomial.
REGARD_INLINE Vec<float> exp2_polynomial(Vec<float> f) {
    Vec<float> p = splat<float>(1.5461444698569129e-4f);
    p = p * f + 1.3400428177615838e-3f;
    p = p * f + 9.6180566785246381e-3f;
    p = p * f + 5.5503272266703021e-2f;
    p = p * f + 2.4022650922288758e-1f;
    p = p * f + 6.9314720670283260e-1f;
    return p * f + 1.0f;
}
REGARD_INLINE Vec<double> exp2_polynomial(Vec<double> f) {
    Vec<double> p = splat<double>(4.455817908336064493e-10);
    p = p * f + 7.0741942972885210056e-9;
    p = p * f + 1.0178057087733941105e-7;
    p = p * f + 1.3215432535912376166e-6;
    p = p * f + 1.5252733841556772589e-5;
    p = p * f + 1.5403530463724354209e-4;
    p = p * f + 1.3333558146406470697e-3;
    p = p * f + 9.6181291075872566681e-3;
    p = p * f + 5.5504108664821627039e-2;
    p = p * f + 2.4022650695910159567e-1;
    p = p * f + 6.9314718055994530925e-1;
    return p * f + 1.0;
}
template <class T> struct FloatFormat;
template <> struct FloatFormat<float> {
    static constexpr float min_exponent = -126;
    static constexpr float round_to_integer = 12582912;  // 1.5 · 2^23: adding it rounds to the nearest integer
    static constexpr int mantissa_bits = 23;
};
template <> struct FloatFormat<double> {
    static constexpr double min_exponent = -1022, round_to_integer = 6755399441055744;
    static constexpr int mantissa_bits = 52;
};
// exp2 multiplies its argument by `factor`, held as high + low: two numbers of type T. Arguments below `cutoff` give 0.
// The cutoff is never below the smallest normal result: multiplying with a subnormal number takes a hundred cycles.
template <class V> struct ExponentFactor {
    V high, low, cutoff;
    static ExponentFactor of(double factor, double cutoff) {
        typedef typename std::remove_reference<decltype(V{}[0])>::type T;
        return {splat(T(factor)), splat(T(factor - double(T(factor)))), splat(T(cutoff))};
    }
};
// 2^(x · factor), x finite or -inf; NaN gives NaN. Within 1.25 units of the last place where multiply-adds are fused:
// the product is then not rounded.
#if defined(__AVX512DQ__)
REGARD_INLINE Vec<float> exp2(Vec<float> x, const ExponentFactor<Vec<float>>& factor) {
    const __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, (__m512)factor.cutoff, _CMP_NLT_UQ);
    const Vec<float> integer =
        (Vec<float>)_mm512_roundscale_ps((__m512)(x * factor.high), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Vec<float> f = x * factor.low + (Vec<float>)_mm512_fmsub_ps((__m512)x, (__m512)factor.high, (__m512)integer);
    return (Vec<float>)_mm512_maskz_scalef_ps(normal, (__m512)exp2_polynomial(f), (__m512)integer);
}
REGARD_INLINE Vec<double> exp2(Vec<double> x, const ExponentFactor<Vec<double>>& factor) {
    const __mmask8 normal = _mm512_cmp_pd_mask((__m512d)x, (__m512d)factor.cutoff, _CMP_NLT_UQ);
    const Vec<double> integer =
        (Vec<double>)_mm512_roundscale_pd((__m512d)(x * factor.high), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Vec<double> f =
        x * factor.low + (Vec<double>)_mm512_fmsub_pd((__m512d)x, (__m512d)factor.high, (__m512d)integer);
    return (Vec<double>)_mm512_maskz_scalef_pd(normal, (__m512d)exp2_polynomial(f), (__m512d)integer);
}
#else
template <class V> REGARD_INLINE V exp2(V x, const ExponentFactor<V>& factor) {
    typedef typename std::remove_reference<decltype(x[0])>::type T;
    const V magic = splat<T>(FloatFormat<T>::round_to_integer), shifted = x * factor.high + magic;
    typedef typename VectorOf<T>::unsigned_type Bits;  // unsigned: results that the cutoff discards may overflow
    const V f = x * factor.low + (x * factor.high - (shifted - magic));
    const Bits bits = (Bits)exp2_polynomial(f) + ((Bits)shifted << FloatFormat<T>::mantissa_bits);
    return x < factor.cutoff ? V{} : (V)bits;
}
#endif
template <class V> REGARD_INLINE V exp2(V x) {
    typedef typename std::remove_reference<decltype(x[0])>::type T;
    return exp2(x, ExponentFactor<V>::of(1, FloatFormat<T>::min_exponent));
}

// A polynomial near 0, and 1 − 2 / (e^2x + 1) elsewhere; within 2 units of the last place.
template <class T> REGARD_INLINE Vec<T> tanh(Vec<T> x) {
    const Vec<T> size = absolute<T>(x), t = x * x;
    Vec<T> p;
    if constexpr (sizeof(T) == 4) {
        p = splat<T>(T(-0.0062336334879549586841));
        p = p * t + T(0.021038214806276562727);
        p = p * t + T(-0.053842319246817240555);
        p = p * t + T(0.13332456536433137297);
        p = p * t + T(-0.33333310797748948189);
        p = p * t + T(0.99999999905480190554);
    } else {
        p = splat<T>(T(7.4256644575218062662e-6));
        p = p * t + T(-0.000032922805392457958772);
        p = p * t + T(0.00009393182361286202874);
        p = p * t + T(-0.00023819725675641452111);
        p = p * t + T(0.00058982789709771213067);
        p = p * t + T(-0.0014558047961475027273);
        p = p * t + T(0.0035921250169695031207);
        p = p * t + T(-0.0088632353226876809116);
        p = p * t + T(0.02186948852700452607);
        p = p * t + T(-0.053968253968013007894);
        p = p * t + T(0.13333333333333003131);
        p = p * t + T(-0.33333333333333331553);
        p = p * t + T(0.99999999999999999998);
    }
    const Vec<T> capped = size < splat<T>(T(40)) ? size : splat<T>(T(40));
    const Vec<T> far =
        splat<T>(T(1)) - splat<T>(T(2)) / (exp2(capped, ExponentFactor<Vec<T>>::of(2 * LOG2E, 0)) + T(1));
    return size < splat<T>(T(0.55)) ? Vec<T>(x * p) : (x < Vec<T>{} ? -far : far);
}

}  // namespace REGARD_ISA
}  // namespace regard
