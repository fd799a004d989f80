// What queries and keys of the sum form v · φ(a + b) become before they meet. For tanh and sigmoid a pair needs no
// exponential: with E = e^κa of the query, F = e^κb of the key and u = E·F + 1,
//
//   tanh      κ = 2     φ = 1 − 2 / u
//   sigmoid   κ = −1    φ = 1 / u
//
// Near 0 tanh would lose digits; there φ = y / (y + 2) with y = E·(F − 1) + (E − 1), whose parts keep theirs.
//
// Weights v are at most 1: a power of two is taken out of them before, so that products stay in range.
//
// Which of them is taken depends on the pair alone: how large its query's and its key's numbers are.
#pragma once
#include <cmath>
#include <vector>

#include "register_tile.h"
#include "tiling.h"
#include "vector_math.h"

namespace regard {
namespace REGARD_ISA {

// How large |κx| is over all units of a row: NEAR 0, BOUNDED so that four y + k multiply without overflow, REACHING so that the
// other side decides, or FAR: two that are far may cancel, and are added before anything else.
enum Size { NEAR = 0, BOUNDED = 1, REACHING = 2, FAR = 3 };
// A value is 0 where u is above `most`, a slope where it is above `flat`.
template <class T> struct Limits;
template <> struct Limits<float> {
    static constexpr float bounded = 10.6f, wide = 42, clip = 62, most = 2147483648.0f, flat = 2305843009213693952.0f;  // 2^31, 2^61
};
template <> struct Limits<double> {
    static constexpr double bounded = 85, wide = 300, clip = 350, most = 1.8092513943330656e75, flat = 3.2733906078961419e150;  // 2^250, 2^500
};

inline bool ratio_form(const regard_call& c) { return c.form == REGARD_TANH || c.form == REGARD_SIGMOID; }
template <class T> T kappa_of(const regard_call& c) { return c.form == REGARD_TANH ? T(2) : T(-1); }
inline int64_t table_sets(const regard_call& c) { return ratio_form(c) ? 3 : 1; }
constexpr int64_t EIGHT = 8;  // units that are summed together
// Numbers per query (E, E − 1, a, its size, whether v is folded, v·E, E/v, 1/v, what eight units begin with) and per column of a
// panel (F, F − 1, b, its size); or the number alone.
inline int64_t query_width(const regard_call& c) { return ratio_form(c) ? 6 * c.d_key + 2 + parts(c.d_key, EIGHT) : c.d_key; }
inline int64_t table_width(const regard_call& c) { return ratio_form(c) ? 3 * c.d_key + 1 : c.d_key; }

// Where reciprocals are cheap, v goes into u: v / u = 1 / (E/v · F + 1/v), and no numerator is left. Two such u multiply without
// overflow if no weight is below 2^−24 of the largest, except for 0, whose 1/v is taken as 2^60.
#if defined(__AVX512F__)
template <class T> constexpr bool FOLDS = sizeof(T) == 4;
#else
template <class T> constexpr bool FOLDS = false;
#endif

// e = e^κx and less = e^κx − 1 of `count` numbers.
template <class T> inline void power_tables(const T* x, int64_t count, T kappa, T* e, T* less) {
    const T clip = Limits<T>::clip;
    if constexpr (sizeof(T) == 8) {
        for (int64_t n = 0; n < count; ++n) {
            const T power = std::min(std::max(kappa * x[n], -clip), clip);
            e[n] = std::exp(power), less[n] = std::expm1(power);
        }
    } else {
        constexpr int W = LANES<double>;
        typedef T Narrow __attribute__((vector_size(W * sizeof(T))));
        for (int64_t n = 0; n < count; n += W) {
            const size_t here = size_t(std::min<int64_t>(W, count - n)) * sizeof(T);
            Narrow numbers{};
            std::memcpy(&numbers, x + n, here);
            Vec<double> power = __builtin_convertvector(numbers, Vec<double>) * double(kappa);
            power = power < splat(double(clip)) ? power : splat(double(clip));
            power = max<double>(power, splat(-double(clip)));
            const Vec<double> exact = exp2(power, Factor<Vec<double>>::of(LOG2E, -1000.0));
            const Narrow whole = __builtin_convertvector(exact, Narrow), rest = __builtin_convertvector(exact - 1.0, Narrow);
            std::memcpy(e + n, &whole, here);
            std::memcpy(less + n, &rest, here);
        }
    }
}

template <class T> REGARD_INLINE Vec<T> size_of(Vec<T> largest) {
    const Vec<T> one = splat(T(1)), zero{};
    return (largest > one ? one : zero) + (largest > splat(Limits<T>::bounded) ? one : zero) + (largest > splat(Limits<T>::wide) ? one : zero);
}

// The weights of head h.
template <class T> inline const T* weights_of(const regard_call& c, int64_t h) { return static_cast<const T*>(c.v) + h * c.d_key; }
// What all queries of a head have in common.
template <class T> struct Weights {
    const T* v = nullptr;
    bool folded = false;
    std::vector<T> factor, inverse;  // 1/v; of 0 they are 0 and 2^60
    std::vector<T> begin;            // tanh is −2 (1/u − 1/2): minus half the sum of eight weights, so that what is summed stays small
    void set(const regard_call& c, int64_t h) {
        const int64_t d = c.d_key;
        v = weights_of<T>(c, h), folded = FOLDS<T>;
        factor.resize(size_t(d)), inverse.resize(size_t(d)), begin.assign(size_t(parts(d, EIGHT)), T(0));
        std::vector<double> halves(begin.size(), 0.0);
        for (int64_t x = 0; x < d; ++x) {
            const bool none = v[x] == T(0);
            halves[size_t(x / EIGHT)] += double(v[x]) / 2;
            folded &= none || std::abs(v[x]) >= T(1.0 / (1 << 24));
            factor[size_t(x)] = none ? T(0) : T(1) / v[x], inverse[size_t(x)] = none ? T(1ll << 60) : factor[size_t(x)];
        }
        for (size_t n = 0; c.form == REGARD_TANH && n < begin.size(); ++n) begin[n] = T(-halves[n]);
    }
};

// The tables of one query, which stands in row[0 .. d - 1].
template <class T> inline void query_tables(const regard_call& c, const Weights<T>& weights, T* row) {
    const int64_t d = c.d_key;
    const T kappa = kappa_of<T>(c);
    T *e = row, *less = row + d, *a = row + 2 * d;
    std::copy(row, row + d, a);
    Vec<T> largest{};
    int64_t x = 0;
    for (; x + LANES<T> <= d; x += LANES<T>) largest = max<T>(largest, absolute<T>(load(a + x)));
    for (; x < d; ++x) largest[0] = std::max(largest[0], std::abs(a[x]));
    power_tables<T>(a, d, kappa, e, less);
    row[3 * d] = size_of<T>(splat(std::abs(kappa) * max_of<T>(largest)))[0];
    row[3 * d + 1] = T(weights.folded);
    T *ve = row + 3 * d + 2, *over = ve + d;
    for (x = 0; x + LANES<T> <= d; x += LANES<T>) {
        store(ve + x, load(weights.v + x) * load(e + x));
        store(over + x, load(weights.factor.data() + x) * load(e + x));
    }
    for (; x < d; ++x) ve[x] = weights.v[x] * e[x], over[x] = weights.factor[size_t(x)] * e[x];
    std::copy(weights.inverse.begin(), weights.inverse.end(), over + d);
    std::copy(weights.begin.begin(), weights.begin.end(), over + 2 * d);
}

// A panel of keys: where its raw numbers are packed, and the tables made of them.
template <class T> struct KeyPanel {
    T* at;
    int64_t d, sets;
    KeyPanel(const regard_call& c, T* panel) : at(panel), d(c.d_key), sets(c.form ? table_sets(c) : 1) {}
    T* raw() const { return at + (sets - 1) * d * COLUMNS<T>; }
    void make(const regard_call& c) const {
        if (!c.form || !ratio_form(c)) return;
        const T kappa = kappa_of<T>(c);
        power_tables<T>(raw(), d * COLUMNS<T>, kappa, at, at + d * COLUMNS<T>);
        for (int64_t n = 0; n < COLUMNS<T>; n += LANES<T>) {
            Vec<T> largest{};
            for (int64_t x = 0; x < d; ++x) largest = max<T>(largest, absolute<T>(load(raw() + x * COLUMNS<T> + n) * kappa));
            store(at + 3 * d * COLUMNS<T> + n, size_of<T>(largest));
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
