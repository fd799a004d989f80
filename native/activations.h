// The nonlinearities of the sum form on one vector of sums z = a + b: value, and value with slope.
#pragma once
#include "regard.h"
#include "vector_math.h"

namespace regard {
namespace REGARD_ISA {

template <class T> struct Slope {
    Vec<T> value, slope;
};

template <class T> struct Tanh {
    static REGARD_INLINE Vec<T> value(Vec<T> z) { return tanh<T>(z); }
    static REGARD_INLINE Slope<T> both(Vec<T> z) {
        const Vec<T> t = tanh<T>(z);
        return {t, splat(T(1)) - t * t};
    }
};

template <class T> struct Sigmoid {
    static REGARD_INLINE Vec<T> value(Vec<T> z) {
        const Vec<T> far = exp2(Vec<T>(-absolute<T>(z)), Factor<Vec<T>>::of(LOG2E, Exponent<T>::low / LOG2E));
        return (z < Vec<T>{} ? far : splat(T(1))) / (far + T(1));
    }
    static REGARD_INLINE Slope<T> both(Vec<T> z) {
        const Vec<T> s = value(z);
        return {s, s - s * s};
    }
};

template <class T> struct Relu {
    static REGARD_INLINE Vec<T> value(Vec<T> z) { return max<T>(z, Vec<T>{}); }
    static REGARD_INLINE Slope<T> both(Vec<T> z) { return {value(z), z > Vec<T>{} ? splat(T(1)) : Vec<T>{}}; }
};

// z · Φ(z). The normal tail is its density times h((z − 3) / (z + 3)) / (z + 3), h a polynomial: it is
// within 6e-9 of the truth for float, 4e-17 for double.
template <class T> struct Gelu {
    static REGARD_INLINE Vec<T> value(Vec<T> z) { return both(z).value; }
    static REGARD_INLINE Slope<T> both(Vec<T> z) {
        const Vec<T> size = absolute<T>(z), most = splat(T(sizeof(T) == 4 ? 13 : 37)), x = size < most ? size : most;
        const Vec<T> inverse = splat(T(1)) / (x + T(3)), t = (x - T(3)) * inverse;
        Vec<T> h;
        if constexpr (sizeof(T) == 4) {
            h = splat(T(-0.00079339065));
            for (T next : {T(-0.00248522811), T(0.00266392614), T(0.017459349), T(-0.0262408407), T(-0.11846934), T(0.576569684), T(-1.27670601), T(1.82754179)}) h = h * t + next;
        } else {
            h = splat(T(-2.5427489993059614197e-9));
            for (T next : {T(-1.585468335046102912e-8), T(-2.2405319973760779417e-8), T(5.8692130816643785476e-8), T(2.1902208128270277963e-7),
                           T(1.0916009875404916264e-7), T(-6.6607550925422884696e-7), T(-1.485639363565717047e-6), T(9.273541221945632779e-9),
                           T(5.6534042820464807766e-6), T(9.1280700750475687439e-6), T(-8.8154257791838157056e-6), T(-5.186086658278460223e-5),
                           T(-3.3203760615528903861e-5), T(1.9755420926100937872e-4), T(3.870097295801130858e-4), T(-6.4313903225659349271e-4),
                           T(-2.6215036214444582777e-3), T(2.5757918125223584356e-3), T(1.747776955133672052e-2), T(-2.622651831438165925e-2),
                           T(-1.1847083516801919683e-1), T(5.765689205544983792e-1), T(-1.2767059470482241378), T(1.8275417922606197547)})
                h = h * t + next;
        }
        const Factor<Vec<T>> factor = Factor<Vec<T>>::of(-LOG2E / 2, -std::numeric_limits<T>::infinity());
        const Vec<T> density = exp2(Vec<T>(x * x), factor) * T(0.39894228040143267794), tail = density * h * inverse;
        const Vec<T> below = z < Vec<T>{} ? tail : splat(T(1)) - tail;
        return {z * below, below + z * density};
    }
};

template <class T> inline Slope<T> slope_of(int64_t form, Vec<T> z) {
    switch (form) {
        case REGARD_TANH: return Tanh<T>::both(z);
        case REGARD_SIGMOID: return Sigmoid<T>::both(z);
        case REGARD_RELU: return Relu<T>::both(z);
        default: return Gelu<T>::both(z);
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
