// Additive scores v · φ(a + b), a = a query's projection, b = a key's (d_key units each): tables that are made once per
// query and once per key, so that a pair needs no exponential. For tanh and sigmoid, with E = e^κa, F = e^κb, u = E·F +
// 1:
//
//   tanh      κ = 2     φ = 1 − 2 / u
//   sigmoid   κ = −1    φ = 1 / u
//
// Near 0 this form of tanh loses digits; there φ = y / (y + 2) with y = E·(F − 1) + (E − 1).
// ReLU and GELU have no such form: their tables are the numbers themselves.
//
// Weights v are at most 1 in size (the caller moves a power of two into `scale`), so products stay in range. The
// choice between the forms depends only on the magnitudes of the pair's own query and key.
#pragma once
#include <cmath>
#include <vector>

#include "register_tile.h"
#include "tiling.h"
#include "vector_math.h"

namespace regard {
namespace REGARD_ISA {

// The largest |κx| over the units of a query or key: SMALL (≤ 1), BOUNDED (four u multiply without overflow), LARGE
// (E·F must be clamped), or EXTREME: an extreme query and an extreme key may cancel, so a + b is added first and φ
// computed directly.
enum Magnitude { SMALL = 0, BOUNDED = 1, LARGE = 2, EXTREME = 3 };
// bounded, large: limits of the magnitudes. clip: limit of |κx| in the tables. Where u is above
// value_limit, 1/u is 0 for tanh and divided on its own for sigmoid; above derivative_limit the derivative is 0.
template <class T> struct Limits;
template <> struct Limits<float> {
    static constexpr float bounded = 10.6f, large = 42, clip = 62, value_limit = 2147483648.0f,
                           derivative_limit = 2305843009213693952.0f;  // 2^31, 2^61
};
template <> struct Limits<double> {
    static constexpr double bounded = 85, large = 300, clip = 350, value_limit = 1.8092513943330656e75,
                            derivative_limit = 3.2733906078961419e150;  // 2^250, 2^500
};

inline bool is_ratio_form(const regard_call& c) { return c.form == REGARD_TANH || c.form == REGARD_SIGMOID; }
template <class T> T kappa(const regard_call& c) { return c.form == REGARD_TANH ? T(2) : T(-1); }
inline int64_t key_table_count(const regard_call& c) { return is_ratio_form(c) ? 3 : 1; }
constexpr int64_t UNIT_GROUP = 8;  // units whose sum starts afresh: a shorter sum rounds less
// Layout of a query row for tanh and sigmoid: E[d], E − 1[d], a[d], magnitude, whether v is folded, v·E[d], E/v[d],
// 1/v[d], initial sums[d / UNIT_GROUP]; of a column of a key panel: F[d], F − 1[d], b[d], magnitude. For ReLU and GELU:
// a[d] and b[d] alone.
inline int64_t query_table_width(const regard_call& c) {
    return is_ratio_form(c) ? 6 * c.d_key + 2 + ceil_div(c.d_key, UNIT_GROUP) : c.d_key;
}
inline int64_t key_table_width(const regard_call& c) { return is_ratio_form(c) ? 3 * c.d_key + 1 : c.d_key; }

// Where reciprocals are cheap, v is folded into u: v / u = 1 / (E/v · F + 1/v) has no numerator. Two such u multiply
// without overflow if every weight is at least 2^−24 in size, or 0; for v = 0, 1/v is replaced by 2^60.
#if defined(__AVX512F__)
template <class T> constexpr bool FOLD_WEIGHTS = sizeof(T) == 4;
#else
template <class T> constexpr bool FOLD_WEIGHTS = false;
#endif

// e = e^κx and em1 = e^κx − 1 of `count` numbers.
template <class T> inline void exp_tables(const T* x, int64_t count, T kappa, T* e, T* em1) {
    const T clip = Limits<T>::clip;
    if constexpr (sizeof(T) == 8) {
        for (int64_t n = 0; n < count; ++n) {
            const T power = std::min(std::max(kappa * x[n], -clip), clip);
            e[n] = std::exp(power), em1[n] = std::expm1(power);
        }
    } else {
        constexpr int W = LANES<double>;
        typedef T Narrow __attribute__((vector_size(W * sizeof(T))));
        for (int64_t n = 0; n < count; n += W) {
            const size_t bytes = size_t(std::min<int64_t>(W, count - n)) * sizeof(T);
            Narrow numbers{};
            std::memcpy(&numbers, x + n, bytes);
            Vec<double> power = __builtin_convertvector(numbers, Vec<double>) * double(kappa);
            power = power < splat(double(clip)) ? power : splat(double(clip));
            power = max<double>(power, splat(-double(clip)));
            const Vec<double> exact = exp2(power, ExponentFactor<Vec<double>>::of(LOG2E, -1000.0));
            const Narrow rounded = __builtin_convertvector(exact, Narrow),
                         rounded_em1 = __builtin_convertvector(exact - 1.0, Narrow);
            std::memcpy(e + n, &rounded, bytes);
            std::memcpy(em1 + n, &rounded_em1, bytes);
        }
    }
}

template <class T> REGARD_INLINE Vec<T> magnitude_of(Vec<T> largest) {
    const Vec<T> one = splat(T(1)), zero{};
    return (largest > one ? one : zero) + (largest > splat(Limits<T>::bounded) ? one : zero) +
           (largest > splat(Limits<T>::large) ? one : zero);
}

// The weights v of head h.
template <class T> inline const T* head_weights(const regard_call& c, int64_t h) {
    return static_cast<const T*>(c.v) + h * c.d_key;
}
// What the queries of one head share.
template <class T> struct HeadWeights {
    const T* v = nullptr;
    bool folded = false;
    std::vector<T> factor, inverse;  // 1/v; for v = 0: 0 and 2^60
    std::vector<T>
        initial;  // tanh is −2 (1/u − 1/2): minus half the sum of each UNIT_GROUP of weights keeps the sums small
    void set(const regard_call& c, int64_t h) {
        const int64_t d = c.d_key;
        v = head_weights<T>(c, h), folded = FOLD_WEIGHTS<T>;
        factor.resize(size_t(d)), inverse.resize(size_t(d)), initial.assign(size_t(ceil_div(d, UNIT_GROUP)), T(0));
        std::vector<double> half_sums(initial.size(), 0.0);
        for (int64_t x = 0; x < d; ++x) {
            const bool zero = v[x] == T(0);
            half_sums[size_t(x / UNIT_GROUP)] += double(v[x]) / 2;
            folded &= zero || std::abs(v[x]) >= T(1.0 / (1 << 24));
            factor[size_t(x)] = zero ? T(0) : T(1) / v[x], inverse[size_t(x)] = zero ? T(1ll << 60) : factor[size_t(x)];
        }
        for (size_t n = 0; c.form == REGARD_TANH && n < initial.size(); ++n) initial[n] = T(-half_sums[n]);
    }
};

// Make the tables of one query in place; on entry row[0 .. d - 1] holds the query.
template <class T> inline void query_tables(const regard_call& c, const HeadWeights<T>& weights, T* row) {
    const int64_t d = c.d_key;
    const T k = kappa<T>(c);
    T *e = row, *em1 = row + d, *a = row + 2 * d;
    std::copy(row, row + d, a);
    Vec<T> largest{};
    int64_t x = 0;
    for (; x + LANES<T> <= d; x += LANES<T>) largest = max<T>(largest, absolute<T>(load(a + x)));
    for (; x < d; ++x) largest[0] = std::max(largest[0], std::abs(a[x]));
    exp_tables<T>(a, d, k, e, em1);
    row[3 * d] = magnitude_of<T>(splat(std::abs(k) * reduce_max<T>(largest)))[0];
    row[3 * d + 1] = T(weights.folded);
    T *v_e = row + 3 * d + 2, *e_over_v = v_e + d;
    for (x = 0; x + LANES<T> <= d; x += LANES<T>) {
        store(v_e + x, load(weights.v + x) * load(e + x));
        store(e_over_v + x, load(weights.factor.data() + x) * load(e + x));
    }
    for (; x < d; ++x) v_e[x] = weights.v[x] * e[x], e_over_v[x] = weights.factor[size_t(x)] * e[x];
    std::copy(weights.inverse.begin(), weights.inverse.end(), e_over_v + d);
    std::copy(weights.initial.begin(), weights.initial.end(), e_over_v + 2 * d);
}

// A panel of keys: where the keys themselves are packed, and the tables made of them.
template <class T> struct KeyPanel {
    T* at;
    int64_t d, sets;
    KeyPanel(const regard_call& c, T* panel) : at(panel), d(c.d_key), sets(c.form ? key_table_count(c) : 1) {}
    T* keys() const { return at + (sets - 1) * d * TILE_COLUMNS<T>; }
    void make_tables(const regard_call& c) const {
        if (!c.form || !is_ratio_form(c)) return;
        const T k = kappa<T>(c);
        exp_tables<T>(keys(), d * TILE_COLUMNS<T>, k, at, at + d * TILE_COLUMNS<T>);
        for (int64_t n = 0; n < TILE_COLUMNS<T>; n += LANES<T>) {
            Vec<T> largest{};
            for (int64_t x = 0; x < d; ++x)
                largest = max<T>(largest, absolute<T>(load(keys() + x * TILE_COLUMNS<T> + n) * k));
            store(at + 3 * d * TILE_COLUMNS<T> + n, magnitude_of<T>(largest));
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
