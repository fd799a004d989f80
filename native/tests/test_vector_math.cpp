// Errors of exp2 and tanh in units of the last place, against long double, over the whole range.
#include <cfloat>

#include "check.h"
#include "vector_math.h"

using namespace regard::REGARD_ISA;

namespace {

// A quarter of a unit beyond the last place. Where long double is no wider than double, the reference itself may be
// half a unit off.
constexpr double QUARTER = 0.25;
template <class T> constexpr double SLACK = QUARTER + (sizeof(T) == 8 && LDBL_MANT_DIG == DBL_MANT_DIG ? 0.5 : 0);

template <class T> double units(T got, long double want) {
    int exponent;
    std::frexp(want, &exponent);
    const int last = std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
    return double(std::fabs((long double)got - want) / std::ldexp(1.0L, last));
}

template <class T> struct Worst {
    double units = 0;
    T at = 0, got = 0;
};

template <class T> void check_exp2(T x, Worst<T>& worst) {
    const long double want = std::exp2((long double)x);
    const T got = exp2(splat(x))[LANES<T> - 1];
    if (x < T(std::numeric_limits<T>::min_exponent - 1)) {
        CHECK(got == 0, "2^%a = %a, want 0 below the normal numbers", double(x), double(got));
        return;
    }
    const double off = units(got, want);
    if (!(off <= worst.units)) worst = {off, x, got};
}

// e^(x / tau): where multiply-adds are fused the exponent is not rounded, however far x is.
#if defined(__FMA__) || defined(__aarch64__)
constexpr double EXPONENT = 0;
#else
constexpr double EXPONENT =
    45;  // half a unit of an exponent from 64 to 128 is 2^-18; log(2) · 2^-18 are 44.4 units of 2^-24
#endif
template <class T> void check_exp(T x, double tau, Worst<T>& worst) {
    const double least = sizeof(T) == 4 ? -80 : -700;
    const long double want = std::exp((long double)x / (long double)tau);
    const double off = units(exp2(splat(x), ExponentFactor<Vec<T>>::of(LOG2E / tau, least * tau))[0], want);
    if (!(off <= worst.units)) worst = {off, x, T(want)};
}

template <class T> void check_tanh(T x, Worst<T>& worst) {
    const T got = tanh<T>(splat(x))[0];
    const double off = units(got, std::tanh((long double)x));
    if (!(off <= worst.units)) worst = {off, x, got};
    CHECK(std::fabs(got) <= 1, "tanh(%a) = %a", double(x), double(got));
}

template <class T> void accuracy() {
    constexpr T limit = T(std::numeric_limits<T>::max_exponent), inf = std::numeric_limits<T>::infinity();
    constexpr int low = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits - 3;
    Worst<T> exp2_worst, tanh_worst, exp_worst;
    Random random(2);
    for (int n = 0; n < some(400000); ++n) {
        check_exp2(T(low + (limit - low) * (random.number() + 1) / 2 * 0.999), exp2_worst);
        check_exp2(T(random.number()), exp2_worst);
        check_exp2(T(std::ldexp(random.number(), -int(random.below(-low)))), exp2_worst);
        if (sizeof(T) == 4) check_exp(T(-25 + 25 * random.number()), n % 2 ? 1.0 : 0.7, exp_worst);
        check_tanh(T(random.number()), tanh_worst);
        check_tanh(T(random.number() * 45), tanh_worst);
        check_tanh(T(std::ldexp(random.number(), -int(random.below(-low - 10)))), tanh_worst);
    }
    for (int n = low; n < int(limit); ++n)
        for (T x : {std::nextafter(T(n), -inf), T(n), std::nextafter(T(n), inf), T(n) + T(0.5)})
            check_exp2(x, exp2_worst);
    for (T x : {T(0), T(-0.0), T(0.55), std::nextafter(T(0.55), T(0)), T(40), T(1000), std::numeric_limits<T>::max(),
                inf, std::numeric_limits<T>::denorm_min()})
        check_tanh(x, tanh_worst), check_tanh(-x, tanh_worst);
    CHECK(exp2(splat(-inf))[0] == 0, "2^-inf");
    CHECK(exp2(splat(-std::numeric_limits<T>::max()))[0] == 0, "2^ the lowest number");
    CHECK(exp2(splat(T(0)))[0] == 1 && exp2(splat(T(1)))[0] == 2, "2^0 and 2^1 are exact");
    std::printf("%d bits: exp2 %.3f units at %a, tanh %.3f units at %a\n", int(8 * sizeof(T)), exp2_worst.units,
                double(exp2_worst.at), tanh_worst.units, double(tanh_worst.at));
    CHECK(exp2_worst.units <= 1 + SLACK<T>, "2^%a = %a is %g units off", double(exp2_worst.at), double(exp2_worst.got),
          exp2_worst.units);
    CHECK(exp_worst.units <= 1 + SLACK<T> + EXPONENT, "e^%a is %g units off", double(exp_worst.at), exp_worst.units);
    CHECK(tanh_worst.units <= 2 + SLACK<T>, "tanh(%a) = %a is %g units off", double(tanh_worst.at),
          double(tanh_worst.got), tanh_worst.units);
}

}  // namespace

void run() {
    accuracy<float>();
    accuracy<double>();
}
