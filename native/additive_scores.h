// Additive scores v · φ(a + b) of query rows against a panel of keys.
//
//   for panel of TILE_COLUMNS keys                  Logits::additive_scores; panel: ≤ 3 · d_key · TILE_COLUMNS, L1, L2
//     for row group of the block
//       for R = 4 rows of one head and one method   else one row; tables of a row: 6 · d_key numbers
//         for vector of keys                        AdditivePanel::scores
//           for UNIT_GROUP of units                 sums of a group in registers, then added to the row's sum
//             for 4 units (or 2, folded)            one division per 4 (2) units: Σ n/u over a common denominator
//
// A score is summed in the order of its units, in groups of UNIT_GROUP. Neither R nor the vector changes a bit; the
// method depends on the magnitudes of the pair's own query and key.
//
// Template parameters: R rows at once; CLAMP: u may overflow, so it is limited; DIVIDE: a true division instead of a
// reciprocal.
#pragma once
#include "activations.h"
#include "additive_tables.h"

namespace regard {
namespace REGARD_ISA {

enum Method { RATIO, EXPM1_RATIO, DIRECT };  // 1/u; y / (y + 2); φ(a + b) itself
struct MagnitudeRange {
    int low, high;  // of some keys
};
// The methods for one row and some columns: `first` for all, or `second` for the keys of one magnitude if `mixed`.
struct MethodChoice {
    Method first, second;
    bool mixed, clamped;
    int magnitude;  // of the keys that take the second method
    bool operator==(const MethodChoice& o) const {
        return first == o.first && second == o.second && mixed == o.mixed && clamped == o.clamped;
    }
};

template <class T> REGARD_INLINE Vec<T> smaller(Vec<T> a, Vec<T> b) { return a < b ? a : b; }
#if defined(__AVX512F__)
template <> REGARD_INLINE Vec<float> smaller<float>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm512_min_ps((__m512)a, (__m512)b);
}
#endif

// 1 / x for 1e-37 < |x| < 1e37, within one unit of the last place: an estimate and one Newton step.
template <class T> REGARD_INLINE Vec<T> reciprocal(Vec<T> x) { return splat(T(1)) / x; }
#if defined(__AVX512F__)
template <> REGARD_INLINE Vec<float> reciprocal<float>(Vec<float> x) {
    const Vec<float> estimate = (Vec<float>)_mm512_rcp14_ps((__m512)x);
    return estimate + estimate * (1.0f - x * estimate);
}
#endif

// Tables of R rows of one head.
template <class T, int R> struct AdditiveRows {
    const T *e[R], *em1[R], *a[R], *v_e[R], *e_over_v[R], *inverse, *initial, *v;
    int64_t d;
    T k;                   // tanh near 0 is y / (y + k)
    T outer;               // factor of the sums: −2 for tanh (sums of 1/u − 1/2), else 1
    bool is_tanh, folded;  // folded: v is part of u
    AdditiveRows(const regard_call& c, const T* rows, int64_t width, const T* weights) : v(weights), d(c.d_key) {
        for (int r = 0; r < R; ++r) {
            e[r] = rows + r * width, em1[r] = e[r] + d, a[r] = e[r] + (key_table_count(c) - 1) * d,
            v_e[r] = e[r] + 3 * d + 2, e_over_v[r] = v_e[r] + d;
        }
        is_tanh = c.form == REGARD_TANH, k = T(2), outer = is_tanh ? T(-2) : T(1), inverse = e_over_v[0] + d,
        initial = inverse + d;
        folded = FOLD_WEIGHTS<T> && is_ratio_form(c) && e[0][3 * d + 1] != T(0);
    }
};

// Four units with one division: Σ n / u = ((n0·u1 + n1·u0)·u2u3 + (n2·u3 + n3·u2)·u0u1) / (u0u1 · u2u3).
template <class T> REGARD_INLINE Vec<T> sum_of_four_ratios(const Vec<T>* n, const Vec<T>* u) {
    const Vec<T> left = u[0] * u[1], right = u[2] * u[3];
    const Vec<T> numerator = (n[0] * u[1] + n[1] * u[0]) * right + (n[2] * u[3] + n[3] * u[2]) * left;
    return numerator * reciprocal<T>(left * right);
}
// Two units with one reciprocal: 1 / u + 1 / w = (u + w) / (u·w). A true division takes longer but uses another
// execution unit: one in four is free.
template <class T, int R, bool CLAMP, bool DIVIDE>
REGARD_INLINE void add_two_folded(const AdditiveRows<T, R>& rows, const T* f, int64_t x, Vec<T>* total) {
    const Vec<T> keys[2] = {load(f + x * TILE_COLUMNS<T>), load(f + (x + 1) * TILE_COLUMNS<T>)};
    const Vec<T> inverse[2] = {splat(rows.inverse[x]), splat(rows.inverse[x + 1])};
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
        Vec<T> n[2], u[2];
        REGARD_UNROLLED_FOR (int q = 0; q < 2; ++q) {
            u[q] = splat(rows.e_over_v[r][x + q]) * keys[q] + inverse[q];
            if (CLAMP) {
                const Vec<T> limit = absolute<T>(inverse[q]) * splat(Limits<T>::value_limit);
                const auto fits = absolute<T>(u[q]) < limit;
                if (!rows.is_tanh) total[r] += fits ? Vec<T>{} : Vec<T>(splat(T(1)) / u[q]);
                n[q] = fits ? splat(T(1)) : Vec<T>{}, u[q] = fits ? u[q] : limit;
            }
        }
        const Vec<T> numerator = CLAMP ? Vec<T>(n[0] * u[1] + n[1] * u[0]) : Vec<T>(u[0] + u[1]),
                     denominator = u[0] * u[1];
        total[r] += DIVIDE ? Vec<T>(numerator / denominator) : Vec<T>(numerator * reciprocal<T>(denominator));
    }
}
template <class T, int R, bool CLAMP>
REGARD_INLINE void folded_scores(const AdditiveRows<T, R>& rows, const T* f, Vec<T>* sums) {
    Vec<T> total[R] = {};
    for (int64_t x = 0; x < rows.d; x += UNIT_GROUP) {
        Vec<T> partial[R];
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) partial[r] = splat(rows.initial[x / UNIT_GROUP]);
        add_two_folded<T, R, CLAMP, false>(rows, f, x, partial);
        add_two_folded<T, R, CLAMP, false>(rows, f, x + 2, partial);
        if (x + 4 < rows.d) {
            add_two_folded<T, R, CLAMP, true>(rows, f, x + 4, partial);
            add_two_folded<T, R, CLAMP, false>(rows, f, x + 6, partial);
        }
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) total[r] += partial[r];
    }
    for (int r = 0; r < R; ++r) sums[r] = splat(rows.outer) * total[r];
}
// each(x, partial) for every four units; it adds to partial[r], the sums of one UNIT_GROUP, which start at `initial` (0
// if null).
template <class T, int R, class Each>
REGARD_INLINE void for_unit_groups(int64_t d, const T* initial, Vec<T>* total, Each each) {
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) total[r] = Vec<T>{};
    for (int64_t first = 0; first < d; first += UNIT_GROUP) {
        Vec<T> partial[R];
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r)
            partial[r] = initial ? splat(initial[first / UNIT_GROUP]) : Vec<T>{};
        each(first, partial);
        if (first + 4 < d) each(first + 4, partial);
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) total[r] += partial[r];
    }
}
template <class T, int R, bool CLAMP>
REGARD_INLINE void ratio_scores(const AdditiveRows<T, R>& rows, const T* f, Vec<T>* sums) {
    const Vec<T> limit = splat(Limits<T>::value_limit), one = splat(T(1));
    Vec<T> total[R];
    for_unit_groups<T, R>(rows.d, rows.initial, total, [&](int64_t x, Vec<T>* partial) REGARD_INLINED {
        Vec<T> keys[4];
        REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) keys[q] = load(f + (x + q) * TILE_COLUMNS<T>);
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
            Vec<T> n[4], u[4];
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                n[q] = splat(rows.v[x + q]), u[q] = splat(rows.e[r][x + q]) * keys[q] + one;
                if (CLAMP) {
                    const auto fits = u[q] < limit;
                    if (!rows.is_tanh) partial[r] += fits ? Vec<T>{} : Vec<T>(n[q] / u[q]);
                    n[q] = fits ? n[q] : Vec<T>{}, u[q] = fits ? u[q] : limit;
                }
            }
            partial[r] += sum_of_four_ratios<T>(n, u);
        }
    });
    for (int r = 0; r < R; ++r) sums[r] = splat(rows.outer) * total[r];
}
template <class T, int R, bool CLAMP>
REGARD_INLINE void expm1_ratio_scores(const AdditiveRows<T, R>& rows, const T* f, Vec<T>* sums) {
    const Vec<T> k = splat(rows.k), limit = splat(Limits<T>::value_limit);
    for_unit_groups<T, R>(rows.d, nullptr, sums, [&](int64_t x, Vec<T>* partial) REGARD_INLINED {
        Vec<T> keys[4];
        REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) keys[q] = load(f + (x + q) * TILE_COLUMNS<T>);
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
            Vec<T> n[4], u[4];
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                Vec<T> y = splat(rows.e[r][x + q]) * keys[q] + splat(rows.em1[r][x + q]);
                if (CLAMP) y = smaller<T>(y, limit);
                n[q] = y * splat(rows.v[x + q]), u[q] = y + k;
            }
            partial[r] += sum_of_four_ratios<T>(n, u);
        }
    });
}
// Four interleaved sums (units 0, 4, 8 …; 1, 5, 9 …) over sixteen units at a time.
template <class Phi, class T, int R>
REGARD_INLINE void direct_scores(const AdditiveRows<T, R>& rows, const T* b, Vec<T>* sums) {
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) sums[r] = Vec<T>{};
    for (int64_t first = 0; first < rows.d; first += 16) {
        Vec<T> interleaved[R][4] = {};
        for (int64_t x = first; x < std::min(rows.d, first + 16); x += 4)
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                const Vec<T> key = load(b + (x + q) * TILE_COLUMNS<T>), weight = splat(rows.v[x + q]);
                REGARD_UNROLLED_FOR (int r = 0; r < R; ++r)
                    interleaved[r][q] += weight * Phi::value(splat(rows.a[r][x + q]) + key);
            }
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r)
            sums[r] += (interleaved[r][0] + interleaved[r][1]) + (interleaved[r][2] + interleaved[r][3]);
    }
}

// One panel of keys.
template <class T> class AdditivePanel {
   public:
    AdditivePanel(const regard_call& call, const T* panel)
        : c(call),
          f(panel),
          f_minus_1(panel + c.d_key * TILE_COLUMNS<T>),
          b(panel + (key_table_count(c) - 1) * c.d_key * TILE_COLUMNS<T>),
          magnitudes(panel + 3 * c.d_key * TILE_COLUMNS<T>) {}

    MagnitudeRange magnitude_range(int64_t from, int64_t to) const {
        if (!is_ratio_form(c)) return {EXTREME, EXTREME};
        Vec<T> low = splat(T(EXTREME)), high{};
        for (int64_t n = from; n < to; n += LANES<T>)
            high = max<T>(high, load(magnitudes + n)), low = smaller<T>(low, load(magnitudes + n));
        return {int(-reduce_max<T>(-low)), int(reduce_max<T>(high))};
    }
    MethodChoice choose_methods(const T* row, const MagnitudeRange& keys) const {
        if (!is_ratio_form(c)) return {DIRECT, DIRECT, false, false, EXTREME};
        const int magnitude = int(row[3 * c.d_key]);
        const bool clamped = magnitude > BOUNDED || keys.high > BOUNDED;
        if (magnitude == SMALL && c.form == REGARD_TANH) {
            if (keys.high == SMALL) return {EXPM1_RATIO, EXPM1_RATIO, false, false, SMALL};
            return {RATIO, EXPM1_RATIO, keys.low == SMALL, clamped, SMALL};
        }
        if (magnitude == EXTREME) {
            if (keys.low == EXTREME) return {DIRECT, DIRECT, false, false, EXTREME};
            return {RATIO, DIRECT, keys.high == EXTREME, clamped, EXTREME};
        }
        return {RATIO, RATIO, false, clamped, EXTREME};
    }

    // done(n, sums) for each vector n of the columns from .. to - 1 of the panel; `rows` are R rows, `width` numbers
    // apart.
    template <int R, class Done>
    void scores(const T* rows, int64_t width, int64_t head, int64_t from, int64_t to, const MethodChoice& methods,
                Done done) const {
        const AdditiveRows<T, R> tables(c, rows, width, head_weights<T>(c, head));
        if (methods.mixed) return mixed_scores<R>(tables, from, to, methods, done);
        with_method<R>(tables, methods.first, methods.clamped, [&](auto compute) REGARD_INLINED {
            for (int64_t n = from; n < to; n += LANES<T>) {
                Vec<T> sums[R];
                compute(n, sums);
                done(n, sums);
            }
        });
    }

   private:
    const regard_call& c;
    const T *f, *f_minus_1, *b, *magnitudes;

    template <int R, class Done>
    void mixed_scores(const AdditiveRows<T, R>& rows, int64_t from, int64_t to, const MethodChoice& methods,
                      Done done) const {
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> sums[R], others[R];
            with_method<R>(rows, methods.first, methods.clamped, [&](auto compute) { compute(n, sums); });
            with_method<R>(rows, methods.second, true, [&](auto compute) { compute(n, others); });
            const auto second = load(magnitudes + n) == splat(T(methods.magnitude));
            for (int r = 0; r < R; ++r) sums[r] = second ? others[r] : sums[r];
            done(n, sums);
        }
    }
    // with(compute), where compute(n, sums) computes one vector of columns by one method.
    template <int R, class With>
    void with_method(const AdditiveRows<T, R>& rows, Method method, bool clamped, With with) const {
        const auto direct = [&](auto phi) {
            with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { direct_scores<decltype(phi)>(rows, b + n, sums); });
        };
        if (method == EXPM1_RATIO) {
            if (clamped)
                return with([&](int64_t n, Vec<T>* sums)
                                REGARD_INLINED { expm1_ratio_scores<T, R, true>(rows, f_minus_1 + n, sums); });
            return with([&](int64_t n, Vec<T>* sums)
                            REGARD_INLINED { expm1_ratio_scores<T, R, false>(rows, f_minus_1 + n, sums); });
        }
        if (method == RATIO && FOLD_WEIGHTS<T> && rows.folded) {
            if (clamped)
                return with([&](int64_t n, Vec<T>* sums)
                                REGARD_INLINED { folded_scores<T, R, true>(rows, f + n, sums); });
            return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { folded_scores<T, R, false>(rows, f + n, sums); });
        }
        if (method == RATIO) {
            if (clamped)
                return with([&](int64_t n, Vec<T>* sums)
                                REGARD_INLINED { ratio_scores<T, R, true>(rows, f + n, sums); });
            return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { ratio_scores<T, R, false>(rows, f + n, sums); });
        }
        switch (c.form) {
            case REGARD_TANH: return direct(Tanh<T>{});
            case REGARD_SIGMOID: return direct(Sigmoid<T>{});
            case REGARD_RELU: return direct(Relu<T>{});
            default: return direct(Gelu<T>{});
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
