// The activations φ of additive scores v · φ(q + k), on one vector z = q + k: value, and value with derivative.
#pragma once
#include "regard.h"
#include "vector_math.h"

namespace regard {
namespace REGARD_ISA {

template <class T> struct ValueAndDerivative {
    Vec<T> value, derivative;
};

template <class T> struct Tanh {
    static REGARD_INLINE Vec<T> value(Vec<T> z) { return tanh<T>(z); }
    static REGARD_INLINE ValueAndDerivative<T> value_and_derivative(Vec<T> z) {
        const Vec<T> t = tanh<T>(z);
        return {t, splat(T(1)) - t * t};
    }
};

template <class T> struct Sigmoid {
    static REGARD_INLINE Vec<T> value(Vec<T> z) {
        const Vec<T> decay =
            exp2(Vec<T>(-absolute<T>(z)), ExponentFactor<Vec<T>>::of(LOG2E, FloatFormat<T>::min_exponent / LOG2E));
        return (z < Vec<T>{} ? decay : splat(T(1))) / (decay + T(1));
    }
    static REGARD_INLINE ValueAndDerivative<T> value_and_derivative(Vec<T> z) {
        const Vec<T> s = value(z);
        return {s, s - s * s};
    }
};

template <class T> struct Relu {
    static REGARD_INLINE Vec<T> value(Vec<T> z) { return max<T>(z, Vec<T>{}); }
    static REGARD_INLINE ValueAndDerivative<T> value_and_derivative(Vec<T> z) {
        return {value(z), z > Vec<T>{} ? splat(T(1)) : Vec<T>{}};
    }
};

// z · Φ(z). The tail of the normal distribution is its density times h((z − 3) / (z + 3)) / (z + 3) with a polynomial
// h; the error is at most 6e-9 for float and 4e-17 for double.
template <class T> struct Gelu {
    static REGARD_INLINE Vec<T> value(Vec<T> z) { return value_and_derivative(z).value; }
    static REGARD_INLINE ValueAndDerivative<T> value_and_derivative(Vec<T> z) {
        const Vec<T> size = absolute<T>(z), limit = splat(T(sizeof(T) == 4 ? 13 : 37)), x = size < limit ? size : limit;
        const Vec<T> inverse = splat(T(1)) / (x + T(3)), t = (x - T(3)) * inverse;
        Vec<T> h;
        if constexpr (sizeof(T) == 4) {
            h = splat(T(-0.00079339065));
            for (T coefficient : {T(-0.00248522811), T(0.00266392614), T(0.017459349), T(-0.0262408407), T(-0.11846934),
                                  T(0.576569684), T(-1.27670601), T(1.82754179)})
                h = h * t + coefficient;
        } else {
            h = splat(T(-2.5427489993059614197e-9));
            for (T coefficient :
                 {T(-1.585468335046102912e-8),  T(-2.2405319973760779417e-8), T(5.8692130816643785476e-8),
                  T(2.1902208128270277963e-7),  T(1.0916009875404916264e-7),  T(-6.6607550925422884696e-7),
                  T(-1.485639363565717047e-6),  T(9.273541221945632779e-9),   T(5.6534042820464807766e-6),
                  T(9.1280700750475687439e-6),  T(-8.8154257791838157056e-6), T(-5.186086658278460223e-5),
                  T(-3.3203760615528903861e-5), T(1.9755420926100937872e-4),  T(3.870097295801130858e-4),
                  T(-6.4313903225659349271e-4), T(-2.6215036214444582777e-3), T(2.5757918125223584356e-3),
                  T(1.747776955133672052e-2),   T(-2.622651831438165925e-2),  T(-1.1847083516801919683e-1),
                  T(5.765689205544983792e-1),   T(-1.2767059470482241378),    T(1.8275417922606197547)})
                h = h * t + coefficient;
        }
        const ExponentFactor<Vec<T>> factor =
            ExponentFactor<Vec<T>>::of(-LOG2E / 2, -std::numeric_limits<T>::infinity());
        const Vec<T> density = exp2(Vec<T>(x * x), factor) * T(0.39894228040143267794), tail = density * h * inverse;
        const Vec<T> cdf = z < Vec<T>{} ? tail : splat(T(1)) - tail;
        return {z * cdf, cdf + z * density};
    }
};

template <class T> inline ValueAndDerivative<T> activation_with_derivative(int64_t form, Vec<T> z) {
    switch (form) {
        case REGARD_TANH: return Tanh<T>::value_and_derivative(z);
        case REGARD_SIGMOID: return Sigmoid<T>::value_and_derivative(z);
        case REGARD_RELU: return Relu<T>::value_and_derivative(z);
        default: return Gelu<T>::value_and_derivative(z);
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
