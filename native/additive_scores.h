// The sum form: scores v · φ(a + b) of rows against a panel of keys.
#pragma once
#include "activations.h"
#include "additive_tables.h"

namespace regard {
namespace REGARD_ISA {

enum Way { RATIO, NEAR_RATIO, DIRECT };
struct Range {
    int low, high;  // sizes of some keys
};
// How the pairs of one row and some columns are computed: all one way, or those of one size another way.
struct Ways {
    Way first, second;
    bool mixed, clamped;
    int size;  // of the keys that go the second way
    bool operator==(const Ways& o) const { return first == o.first && second == o.second && mixed == o.mixed && clamped == o.clamped; }
};

template <class T> REGARD_INLINE Vec<T> least(Vec<T> a, Vec<T> b) { return a < b ? a : b; }
#if defined(__AVX512F__)
template <> REGARD_INLINE Vec<float> least<float>(Vec<float> a, Vec<float> b) { return (Vec<float>)_mm512_min_ps((__m512)a, (__m512)b); }
#endif

// 1 / x for 1e-37 < |x| < 1e37, within one unit of the last place.
template <class T> REGARD_INLINE Vec<T> reciprocal(Vec<T> x) { return splat(T(1)) / x; }
#if defined(__AVX512F__)
template <> REGARD_INLINE Vec<float> reciprocal<float>(Vec<float> x) {
    const Vec<float> guess = (Vec<float>)_mm512_rcp14_ps((__m512)x);
    return guess + guess * (1.0f - x * guess);
}
#endif

// Rows of one head and one way: where their tables are, and what belongs to the call.
template <class T, int R> struct SumRows {
    const T *e[R], *less[R], *a[R], *ve[R], *over[R], *inverse, *begin, *v;
    int64_t d;
    T k, outer;    // tanh near 0 is y / (y + k); its sums are of 1/u − 1/2, and −2 stands outside
    bool whole, folded;  // φ is 1 − k / u, and not 1 / u; v is folded into u
    SumRows(const regard_call& c, const T* rows, int64_t width, const T* weights) : v(weights), d(c.d_key) {
        for (int r = 0; r < R; ++r) {
            e[r] = rows + r * width, less[r] = e[r] + d, a[r] = e[r] + (table_sets(c) - 1) * d, ve[r] = e[r] + 3 * d + 2, over[r] = ve[r] + d;
        }
        whole = c.form == REGARD_TANH, k = T(2), outer = whole ? T(-2) : T(1), inverse = over[0] + d, begin = inverse + d;
        folded = FOLDS<T> && ratio_form(c) && e[0][3 * d + 1] != T(0);
    }
};

// Four units share one division: Σ n / u = ((n0·u1 + n1·u0)·u2u3 + (n2·u3 + n3·u2)·u0u1) / (u0u1 · u2u3).
template <class T> REGARD_INLINE Vec<T> four(const Vec<T>* n, const Vec<T>* u) {
    const Vec<T> left = u[0] * u[1], right = u[2] * u[3];
    const Vec<T> top = (n[0] * u[1] + n[1] * u[0]) * right + (n[2] * u[3] + n[3] * u[2]) * left;
    return top * reciprocal<T>(left * right);
}
// Two units share one reciprocal: 1 / u + 1 / w = (u + w) / (u·w). A true division takes longer, but keeps other parts of the
// processor busy: one in four costs nothing.
template <class T, int R, bool CLAMP, bool DIVIDE> REGARD_INLINE void two_folded(const SumRows<T, R>& rows, const T* f, int64_t x, Vec<T>* found) {
    const Vec<T> keys[2] = {load(f + x * COLUMNS<T>), load(f + (x + 1) * COLUMNS<T>)};
    const Vec<T> inverse[2] = {splat(rows.inverse[x]), splat(rows.inverse[x + 1])};
    REGARD_UNROLL for (int r = 0; r < R; ++r) {
        Vec<T> n[2], u[2];
        REGARD_UNROLL for (int q = 0; q < 2; ++q) {
            u[q] = splat(rows.over[r][x + q]) * keys[q] + inverse[q];
            if (CLAMP) {
                const Vec<T> most = absolute<T>(inverse[q]) * splat(Limits<T>::most);
                const auto fits = absolute<T>(u[q]) < most;
                if (!rows.whole) found[r] += fits ? Vec<T>{} : Vec<T>(splat(T(1)) / u[q]);
                n[q] = fits ? splat(T(1)) : Vec<T>{}, u[q] = fits ? u[q] : most;
            }
        }
        const Vec<T> top = CLAMP ? Vec<T>(n[0] * u[1] + n[1] * u[0]) : Vec<T>(u[0] + u[1]), below = u[0] * u[1];
        found[r] += DIVIDE ? Vec<T>(top / below) : Vec<T>(top * reciprocal<T>(below));
    }
}
// Eight units at a time are summed apart, here and below: a shorter sum rounds less.
template <class T, int R, bool CLAMP> REGARD_INLINE void folded_scores(const SumRows<T, R>& rows, const T* f, Vec<T>* sums) {
    Vec<T> found[R] = {};
    for (int64_t x = 0; x < rows.d; x += EIGHT) {
        Vec<T> some[R];
        REGARD_UNROLL for (int r = 0; r < R; ++r) some[r] = splat(rows.begin[x / EIGHT]);
        two_folded<T, R, CLAMP, false>(rows, f, x, some);
        two_folded<T, R, CLAMP, false>(rows, f, x + 2, some);
        if (x + 4 < rows.d) {
            two_folded<T, R, CLAMP, true>(rows, f, x + 4, some);
            two_folded<T, R, CLAMP, false>(rows, f, x + 6, some);
        }
        REGARD_UNROLL for (int r = 0; r < R; ++r) found[r] += some[r];
    }
    for (int r = 0; r < R; ++r) sums[r] = splat(rows.outer) * found[r];
}
// each(x, some) for fours of units, whose sums go to some[r], which begin as told.
template <class T, int R, class Each> REGARD_INLINE void by_eight(int64_t d, const T* begin, Vec<T>* found, Each each) {
    REGARD_UNROLL for (int r = 0; r < R; ++r) found[r] = Vec<T>{};
    for (int64_t first = 0; first < d; first += EIGHT) {
        Vec<T> some[R];
        REGARD_UNROLL for (int r = 0; r < R; ++r) some[r] = begin ? splat(begin[first / EIGHT]) : Vec<T>{};
        each(first, some);
        if (first + 4 < d) each(first + 4, some);
        REGARD_UNROLL for (int r = 0; r < R; ++r) found[r] += some[r];
    }
}
template <class T, int R, bool CLAMP> REGARD_INLINE void ratio_scores(const SumRows<T, R>& rows, const T* f, Vec<T>* sums) {
    const Vec<T> most = splat(Limits<T>::most), one = splat(T(1));
    Vec<T> found[R];
    by_eight<T, R>(rows.d, rows.begin, found, [&](int64_t x, Vec<T>* some) REGARD_INLINED {
        Vec<T> keys[4];
        REGARD_UNROLL for (int q = 0; q < 4; ++q) keys[q] = load(f + (x + q) * COLUMNS<T>);
        REGARD_UNROLL for (int r = 0; r < R; ++r) {
            Vec<T> n[4], u[4];
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                n[q] = splat(rows.v[x + q]), u[q] = splat(rows.e[r][x + q]) * keys[q] + one;
                if (CLAMP) {
                    const auto fits = u[q] < most;
                    if (!rows.whole) some[r] += fits ? Vec<T>{} : Vec<T>(n[q] / u[q]);
                    n[q] = fits ? n[q] : Vec<T>{}, u[q] = fits ? u[q] : most;
                }
            }
            some[r] += four<T>(n, u);
        }
    });
    for (int r = 0; r < R; ++r) sums[r] = splat(rows.outer) * found[r];
}
template <class T, int R, bool CLAMP> REGARD_INLINE void near_scores(const SumRows<T, R>& rows, const T* f, Vec<T>* sums) {
    const Vec<T> k = splat(rows.k), most = splat(Limits<T>::most);
    by_eight<T, R>(rows.d, nullptr, sums, [&](int64_t x, Vec<T>* some) REGARD_INLINED {
        Vec<T> keys[4];
        REGARD_UNROLL for (int q = 0; q < 4; ++q) keys[q] = load(f + (x + q) * COLUMNS<T>);
        REGARD_UNROLL for (int r = 0; r < R; ++r) {
            Vec<T> n[4], u[4];
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                Vec<T> y = splat(rows.e[r][x + q]) * keys[q] + splat(rows.less[r][x + q]);
                if (CLAMP) y = least<T>(y, most);
                n[q] = y * splat(rows.v[x + q]), u[q] = y + k;
            }
            some[r] += four<T>(n, u);
        }
    });
}
// Every fourth unit is summed apart, sixteen units at a time.
template <class Phi, class T, int R> REGARD_INLINE void direct_scores(const SumRows<T, R>& rows, const T* b, Vec<T>* sums) {
    REGARD_UNROLL for (int r = 0; r < R; ++r) sums[r] = Vec<T>{};
    for (int64_t first = 0; first < rows.d; first += 16) {
        Vec<T> apart[R][4] = {};
        for (int64_t x = first; x < std::min(rows.d, first + 16); x += 4)
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                const Vec<T> key = load(b + (x + q) * COLUMNS<T>), weight = splat(rows.v[x + q]);
                REGARD_UNROLL for (int r = 0; r < R; ++r) apart[r][q] += weight * Phi::value(splat(rows.a[r][x + q]) + key);
            }
        REGARD_UNROLL for (int r = 0; r < R; ++r) sums[r] += (apart[r][0] + apart[r][1]) + (apart[r][2] + apart[r][3]);
    }
}

// One block of rows against one panel of keys.
template <class T> class Sums {
   public:
    Sums(const regard_call& call, const T* panel) : c(call), f(panel), near_f(panel + c.d_key * COLUMNS<T>), b(panel + (table_sets(c) - 1) * c.d_key * COLUMNS<T>), sizes(panel + 3 * c.d_key * COLUMNS<T>) {}

    Range range(int64_t from, int64_t to) const {
        if (!ratio_form(c)) return {FAR, FAR};
        Vec<T> low = splat(T(FAR)), high{};
        for (int64_t n = from; n < to; n += LANES<T>) high = max<T>(high, load(sizes + n)), low = least<T>(low, load(sizes + n));
        return {int(-max_of<T>(-low)), int(max_of<T>(high))};
    }
    Ways ways(const T* row, const Range& keys) const {
        if (!ratio_form(c)) return {DIRECT, DIRECT, false, false, FAR};
        const int size = int(row[3 * c.d_key]);
        const bool clamped = size > BOUNDED || keys.high > BOUNDED;
        if (size == NEAR && c.form == REGARD_TANH) {
            if (keys.high == NEAR) return {NEAR_RATIO, NEAR_RATIO, false, false, NEAR};
            return {RATIO, NEAR_RATIO, keys.low == NEAR, clamped, NEAR};
        }
        if (size == FAR) {
            if (keys.low == FAR) return {DIRECT, DIRECT, false, false, FAR};
            return {RATIO, DIRECT, keys.high == FAR, clamped, FAR};
        }
        return {RATIO, RATIO, false, clamped, FAR};
    }

    // done(n, sums) for R rows, `width` numbers apart, and each vector of the columns from .. to - 1 of the panel.
    template <int R, class Done> void scores(const T* rows, int64_t width, int64_t head, int64_t from, int64_t to, const Ways& ways, Done done) const {
        const SumRows<T, R> these(c, rows, width, weights_of<T>(c, head));
        if (ways.mixed) return mixed<R>(these, from, to, ways, done);
        one_way<R>(these, ways.first, ways.clamped, [&](auto some) REGARD_INLINED {
            for (int64_t n = from; n < to; n += LANES<T>) {
                Vec<T> sums[R];
                some(n, sums);
                done(n, sums);
            }
        });
    }

   private:
    const regard_call& c;
    const T *f, *near_f, *b, *sizes;

    template <int R, class Done> void mixed(const SumRows<T, R>& rows, int64_t from, int64_t to, const Ways& ways, Done done) const {
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> sums[R], others[R];
            one_way<R>(rows, ways.first, ways.clamped, [&](auto some) { some(n, sums); });
            one_way<R>(rows, ways.second, true, [&](auto some) { some(n, others); });
            const auto second = load(sizes + n) == splat(T(ways.size));
            for (int r = 0; r < R; ++r) sums[r] = second ? others[r] : sums[r];
            done(n, sums);
        }
    }
    // with(some), where some(n, sums) computes one vector of columns.
    template <int R, class With> void one_way(const SumRows<T, R>& rows, Way way, bool clamped, With with) const {
        const auto direct = [&](auto phi) { with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { direct_scores<decltype(phi)>(rows, b + n, sums); }); };
        if (way == NEAR_RATIO) {
            if (clamped) return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { near_scores<T, R, true>(rows, near_f + n, sums); });
            return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { near_scores<T, R, false>(rows, near_f + n, sums); });
        }
        if (way == RATIO && FOLDS<T> && rows.folded) {
            if (clamped) return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { folded_scores<T, R, true>(rows, f + n, sums); });
            return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { folded_scores<T, R, false>(rows, f + n, sums); });
        }
        if (way == RATIO) {
            if (clamped) return with([&](int64_t n, Vec<T>* sums) REGARD_INLINED { ratio_scores<T, R, true>(rows, f + n, sums); });
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
