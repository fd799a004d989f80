// The sum form: scores v · φ(a + b) of rows against a panel of keys, and their gradients.
#pragma once
#include "phi.h"
#include "tables.h"

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

// Rows of one head and one way: where their tables are, and what belongs to the call.
template <class T, int R> struct SumRows {
    const T *e[R], *less[R], *a[R], *ve[R], *v;
    int64_t d;
    T g, k;  // of RATIO
    SumRows(const regard_call& c, const T* rows, int64_t width, const T* weights) : v(weights), d(c.d_key) {
        for (int r = 0; r < R; ++r) {
            e[r] = rows + r * width, less[r] = e[r] + d, a[r] = e[r] + (table_sets(c) - 1) * d, ve[r] = e[r] + 3 * d + 1;
        }
        g = c.form == REGARD_TANH ? T(-1) : T(0), k = c.form == REGARD_TANH ? T(2) : T(1);
    }
};

// Four units share one division: Σ n / u = (((n0·u1 + n1·u0)·u2u3 + (n2·u3 + n3·u2)·u0u1) / (u0u1 · u2u3)).
template <class T, int R, bool NEARLY, bool CLAMP>
REGARD_INLINE void ratio_scores(const SumRows<T, R>& rows, const T* f, Vec<T>* sums) {
    const Vec<T> k = splat(rows.k), most = splat(Limits<T>::most);
    Vec<T> found[R] = {};
    for (int64_t x = 0; x < rows.d; x += 4) {
        Vec<T> keys[4], v[4];
        REGARD_UNROLL for (int q = 0; q < 4; ++q) keys[q] = load(f + (x + q) * COLUMNS<T>), v[q] = splat(rows.v[x + q]) * splat(NEARLY ? T(1) : rows.g);
        REGARD_UNROLL for (int r = 0; r < R; ++r) {
            Vec<T> n[4], u[4];
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                if (NEARLY) {
                    Vec<T> y = splat(rows.e[r][x + q]) * keys[q] + splat(rows.less[r][x + q]);
                    if (CLAMP) y = least<T>(y, most);
                    u[q] = y + k;
                    n[q] = y * v[q];
                } else {  // g + k is 1
                    u[q] = splat(rows.e[r][x + q]) * keys[q] + splat(T(1));
                    n[q] = splat(rows.ve[r][x + q]) * keys[q] + v[q];
                    if (CLAMP) n[q] = u[q] > most ? splat(rows.v[x + q]) * most : n[q], u[q] = least<T>(u[q], most);
                }
            }
            const Vec<T> left = u[0] * u[1], right = u[2] * u[3];
            const Vec<T> top = (n[0] * u[1] + n[1] * u[0]) * right + (n[2] * u[3] + n[3] * u[2]) * left;
            found[r] += top / (left * right);
        }
    }
    for (int r = 0; r < R; ++r) sums[r] = found[r];
}
// Every fourth unit is summed apart: a shorter sum rounds less.
template <class Phi, class T, int R> REGARD_INLINE void direct_scores(const SumRows<T, R>& rows, const T* b, Vec<T>* sums) {
    Vec<T> apart[R][4] = {};
    for (int64_t x = 0; x < rows.d; x += 4)
        REGARD_UNROLL for (int q = 0; q < 4; ++q) {
            const Vec<T> key = load(b + (x + q) * COLUMNS<T>), weight = splat(rows.v[x + q]);
            REGARD_UNROLL for (int r = 0; r < R; ++r) apart[r][q] += weight * Phi::value(splat(rows.a[r][x + q]) + key);
        }
    for (int r = 0; r < R; ++r) sums[r] = (apart[r][0] + apart[r][1]) + (apart[r][2] + apart[r][3]);
}

// What some rows and one vector of columns add to the gradients: of a (`da`, per unit a vector to be summed), of b (`db`,
// laid out like the panel) and of v (`dw`, like `da`). Each row has its own, so that no sum depends on who goes along. `ds` are the gradients of the scores; slopes are 1/K of φ′.
template <class T, int R> struct SumGradients {
    Vec<T>*da[R], *dw[R];
    T* db;
};
template <class T, int R, bool NEARLY, bool CLAMP>
REGARD_INLINE void ratio_gradients(const SumRows<T, R>& rows, const T* f, int64_t from, int64_t to, const T* const* ds, const SumGradients<T, R>& out) {
    const Vec<T> k = splat(rows.k), most = splat(Limits<T>::most), one = splat(T(1));
    Vec<T> total[R] = {};
    if (!NEARLY)
        for (int r = 0; r < R; ++r)
            for (int64_t n = from; n < to; n += LANES<T>) total[r] += load(ds[r] + n);
    for (int64_t x = 0; x < rows.d; x += 4) {
        Vec<T> da[R][4], dw[R][4];
        REGARD_UNROLL for (int q = 0; q < 4; ++q)
            REGARD_UNROLL for (int r = 0; r < R; ++r) da[r][q] = out.da[r][x + q], dw[r][q] = Vec<T>{};
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> db[4];
            REGARD_UNROLL for (int q = 0; q < 4; ++q) db[q] = load(out.db + (x + q) * COLUMNS<T> + n);
            REGARD_UNROLL for (int r = 0; r < R; ++r) {
                const Vec<T> change = load(ds[r] + n);
                Vec<T> y[4], u[4], inverse[4];
                REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                    y[q] = splat(rows.e[r][x + q]) * load(f + (x + q) * COLUMNS<T> + n);
                    if (NEARLY) y[q] = y[q] + splat(rows.less[r][x + q]);
                    u[q] = (CLAMP ? least<T>(y[q], most) : y[q]) + (NEARLY ? k : one);
                    if (CLAMP) y[q] = y[q] < most ? y[q] : Vec<T>{};  // flat
                }
                const Vec<T> left = u[0] * u[1], right = u[2] * u[3], all = one / (left * right);
                const Vec<T> l = all * right, m = all * left;
                inverse[0] = l * u[1], inverse[1] = l * u[0], inverse[2] = m * u[3], inverse[3] = m * u[2];
                REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                    // the slope is E·F / u², in which far numbers keep their digits; near 0, 1/u − 1/u² is as good
                    const Vec<T> first = change * inverse[q], part = NEARLY ? Vec<T>(first - first * inverse[q]) : Vec<T>(first * (y[q] * inverse[q]));
                    da[r][q] += part;
                    db[q] += part * splat(rows.v[x + q]);
                    dw[r][q] += NEARLY ? Vec<T>(first * y[q]) : first;
                }
            }
            REGARD_UNROLL for (int q = 0; q < 4; ++q) store(out.db + (x + q) * COLUMNS<T> + n, db[q]);
        }
        // φ is 1 − k / u
        REGARD_UNROLL for (int q = 0; q < 4; ++q)
            REGARD_UNROLL for (int r = 0; r < R; ++r) {
                out.da[r][x + q] = da[r][q];
                out.dw[r][x + q] += NEARLY ? dw[r][q] : Vec<T>(total[r] - k * dw[r][q]);
            }
    }
}
template <class Phi, class T, int R>
REGARD_INLINE void direct_gradients(const SumRows<T, R>& rows, T inverse, const T* b, int64_t from, int64_t to, const T* const* ds, const SumGradients<T, R>& out) {
    for (int64_t x = 0; x < rows.d; ++x) {
        Vec<T> da[R], dw[R];
        REGARD_UNROLL for (int r = 0; r < R; ++r) da[r] = out.da[r][x], dw[r] = out.dw[r][x];
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> db = load(out.db + x * COLUMNS<T> + n);
            REGARD_UNROLL for (int r = 0; r < R; ++r) {
                const Vec<T> change = load(ds[r] + n);
                const Slope<T> phi = Phi::both(splat(rows.a[r][x]) + load(b + x * COLUMNS<T> + n));
                const Vec<T> part = change * (phi.slope * inverse);
                da[r] += part;
                db += part * splat(rows.v[x]);
                dw[r] += change * phi.value;
            }
            store(out.db + x * COLUMNS<T> + n, db);
        }
        REGARD_UNROLL for (int r = 0; r < R; ++r) out.da[r][x] = da[r], out.dw[r][x] = dw[r];
    }
}

// One block of rows against one panel of keys.
template <class T> class Sums {
   public:
    Sums(const regard_call& call, const T* panel) : c(call), f(panel), near_f(panel + c.d_key * COLUMNS<T>), b(panel + (table_sets(c) - 1) * c.d_key * COLUMNS<T>), sizes(panel + 3 * c.d_key * COLUMNS<T>) {}

    const T* weights(int64_t head) const { return static_cast<const T*>(c.v) + head * c.d_key; }
    static constexpr double slope_factor(int64_t form) { return form == REGARD_TANH ? 4 : 1; }  // K

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

    // sums[r] for R rows, `width` numbers apart, and the columns n … of the panel.
    template <int R> void scores(const T* rows, int64_t width, int64_t head, int64_t n, const Ways& ways, Vec<T>* sums) const {
        const SumRows<T, R> these(c, rows, width, weights(head));
        one_way<R>(these, ways.first, ways.clamped, n, sums);
        if (!ways.mixed) return;
        Vec<T> others[R] = {};
        one_way<R>(these, ways.second, true, n, others);
        const auto second = load(sizes + n) == splat(T(ways.size));
        for (int r = 0; r < R; ++r) sums[r] = second ? others[r] : sums[r];
    }

    template <int R>
    void gradients(const T* rows, int64_t width, int64_t head, int64_t from, int64_t to, const Ways& ways, const T* const* ds, const SumGradients<T, R>& out) const {
        const SumRows<T, R> these(c, rows, width, weights(head));
        if (!ways.mixed) return one_way<R>(these, ways.first, ways.clamped, from, to, ds, out);
        alignas(64) T parts[2][R][COLUMNS<T>];
        const T *first[R], *second[R];
        for (int r = 0; r < R; ++r) {
            first[r] = parts[0][r], second[r] = parts[1][r];
            for (int64_t n = from; n < to; n += LANES<T>) {
                const auto other = load(sizes + n) == splat(T(ways.size));
                store(parts[0][r] + n, other ? Vec<T>{} : load(ds[r] + n));
                store(parts[1][r] + n, other ? load(ds[r] + n) : Vec<T>{});
            }
        }
        one_way<R>(these, ways.first, ways.clamped, from, to, first, out);
        one_way<R>(these, ways.second, true, from, to, second, out);
    }

   private:
    const regard_call& c;
    const T *f, *near_f, *b, *sizes;

    template <int R> void one_way(const SumRows<T, R>& rows, Way way, bool clamped, int64_t n, Vec<T>* sums) const {
        if (way == NEAR_RATIO)
            return clamped ? ratio_scores<T, R, true, true>(rows, near_f + n, sums) : ratio_scores<T, R, true, false>(rows, near_f + n, sums);
        if (way == RATIO) return clamped ? ratio_scores<T, R, false, true>(rows, f + n, sums) : ratio_scores<T, R, false, false>(rows, f + n, sums);
        switch (c.form) {
            case REGARD_TANH: return direct_scores<Tanh<T>>(rows, b + n, sums);
            case REGARD_SIGMOID: return direct_scores<Sigmoid<T>>(rows, b + n, sums);
            case REGARD_RELU: return direct_scores<Relu<T>>(rows, b + n, sums);
            default: return direct_scores<Gelu<T>>(rows, b + n, sums);
        }
    }
    template <int R>
    void one_way(const SumRows<T, R>& rows, Way way, bool clamped, int64_t from, int64_t to, const T* const* ds, const SumGradients<T, R>& out) const {
        if (way == NEAR_RATIO)
            return clamped ? ratio_gradients<T, R, true, true>(rows, near_f, from, to, ds, out) : ratio_gradients<T, R, true, false>(rows, near_f, from, to, ds, out);
        if (way == RATIO)
            return clamped ? ratio_gradients<T, R, false, true>(rows, f, from, to, ds, out) : ratio_gradients<T, R, false, false>(rows, f, from, to, ds, out);
        const T inverse = T(1 / slope_factor(c.form));
        switch (c.form) {
            case REGARD_TANH: return direct_gradients<Tanh<T>>(rows, inverse, b, from, to, ds, out);
            case REGARD_SIGMOID: return direct_gradients<Sigmoid<T>>(rows, inverse, b, from, to, ds, out);
            case REGARD_RELU: return direct_gradients<Relu<T>>(rows, inverse, b, from, to, ds, out);
            default: return direct_gradients<Gelu<T>>(rows, inverse, b, from, to, ds, out);
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
