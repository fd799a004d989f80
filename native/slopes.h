// The sum form backward: what a group of rows and a block of keys add to the gradients of a, b and v.
#pragma once
#include "sums.h"

namespace regard {
namespace REGARD_ISA {

// Columns low .. high - 1 of a block of keys, and where their shares go: `db` is laid out like the panels, without their
// other tables; `over_f` has yet to be multiplied with F.
template <class T> struct SumColumns {
    const T* panels;
    int64_t width, d, low, high;  // width: numbers of a column in its panel
    T *db, *over_f;
    const T* table(int64_t set, int64_t x, int64_t n) const { return panels + n / COLUMNS<T> * COLUMNS<T> * width + (set * d + x) * COLUMNS<T> + n % COLUMNS<T>; }
    int64_t place(int64_t x, int64_t n) const { return n / COLUMNS<T> * COLUMNS<T> * d + x * COLUMNS<T> + n % COLUMNS<T>; }
};
// Some rows' gradients of their scores, and where their shares go: per unit a vector to be summed. Each row has its own, so
// that no sum depends on who goes along. `da` is 1/K of the truth, and so is db.
template <class T, int R> struct SumShares {
    const T* ds[R];
    Vec<T>*da[R], *dw[R], total[R];  // the sum of ds
};

// Four times 1 / u with two divisions: of two u, however far, the product is in range.
template <class T> REGARD_INLINE void inverses(const Vec<T>* u, Vec<T>* inverse) {
    const Vec<T> left = reciprocal<T>(u[0] * u[1]), right = reciprocal<T>(u[2] * u[3]);
    inverse[0] = left * u[1], inverse[1] = left * u[0], inverse[2] = right * u[3], inverse[3] = right * u[2];
}

// Units x .. x + 3. The slope is E·F / u², in which far numbers keep their digits; E and F come in when the sum is made.
template <class T, int R, bool CLAMP>
REGARD_INLINE void ratio_slopes(const SumRows<T, R>& rows, const SumColumns<T>& columns, int64_t x, const SumShares<T, R>& out) {
    const Vec<T> most = splat(Limits<T>::flat), one = splat(T(1));
    const T *e[R], *ve[R], *ds[R];  // known not to move while results are written
    REGARD_UNROLL for (int r = 0; r < R; ++r) e[r] = rows.e[r] + x, ve[r] = rows.ve[r] + x, ds[r] = out.ds[r];
    Vec<T> da[R][4] = {}, dw[R][4] = {};
    for (int64_t n = columns.low, end = columns.high; n < end; n += LANES<T>) {
        const T* keys = columns.table(0, x, n);
        T* over_f = columns.over_f + columns.place(x, n);
        Vec<T> db[4];
        REGARD_UNROLL for (int q = 0; q < 4; ++q) db[q] = load(over_f + q * COLUMNS<T>);
        REGARD_UNROLL for (int r = 0; r < R; ++r) {
            const Vec<T> change = load(ds[r] + n);
            Vec<T> u[4], inverse[4];
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                u[q] = splat(e[r][q]) * load(keys + q * COLUMNS<T>) + one;
                if (CLAMP) u[q] = least<T>(u[q], most);
            }
            inverses<T>(u, inverse);
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                if (CLAMP) inverse[q] = u[q] < most ? inverse[q] : Vec<T>{};
                const Vec<T> first = change * inverse[q], part = first * inverse[q];
                da[r][q] += part * load(keys + q * COLUMNS<T>);
                db[q] += part * splat(ve[r][q]);
                dw[r][q] += first;
            }
        }
        REGARD_UNROLL for (int q = 0; q < 4; ++q) store(over_f + q * COLUMNS<T>, db[q]);
    }
    REGARD_UNROLL for (int q = 0; q < 4; ++q)
        REGARD_UNROLL for (int r = 0; r < R; ++r) {
            out.da[r][x + q] += da[r][q] * splat(e[r][q]);
            out.dw[r][x + q] += rows.whole ? Vec<T>(out.total[r] - splat(rows.k) * dw[r][q]) : dw[r][q];
        }
}
// Near 0 the slope is 1/u − 1/u².
template <class T, int R, bool CLAMP>
REGARD_INLINE void near_slopes(const SumRows<T, R>& rows, const SumColumns<T>& columns, int64_t x, const SumShares<T, R>& out) {
    const Vec<T> k = splat(rows.k), most = splat(Limits<T>::most);
    const T *e[R], *less[R], *ds[R], *v = rows.v + x;
    REGARD_UNROLL for (int r = 0; r < R; ++r) e[r] = rows.e[r] + x, less[r] = rows.less[r] + x, ds[r] = out.ds[r];
    Vec<T> da[R][4] = {}, dw[R][4] = {};
    for (int64_t n = columns.low, end = columns.high; n < end; n += LANES<T>) {
        const T* keys = columns.table(1, x, n);
        T* to = columns.db + columns.place(x, n);
        Vec<T> db[4];
        REGARD_UNROLL for (int q = 0; q < 4; ++q) db[q] = load(to + q * COLUMNS<T>);
        REGARD_UNROLL for (int r = 0; r < R; ++r) {
            const Vec<T> change = load(ds[r] + n);
            Vec<T> y[4], u[4], inverse[4];
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                y[q] = splat(e[r][q]) * load(keys + q * COLUMNS<T>) + splat(less[r][q]);
                if (CLAMP) y[q] = least<T>(y[q], most);
                u[q] = y[q] + k;
            }
            inverses<T>(u, inverse);
            REGARD_UNROLL for (int q = 0; q < 4; ++q) {
                const Vec<T> first = change * inverse[q], part = first - first * inverse[q];
                da[r][q] += part;
                db[q] += part * splat(v[q]);
                dw[r][q] += first * y[q];
            }
        }
        REGARD_UNROLL for (int q = 0; q < 4; ++q) store(to + q * COLUMNS<T>, db[q]);
    }
    REGARD_UNROLL for (int q = 0; q < 4; ++q)
        REGARD_UNROLL for (int r = 0; r < R; ++r) out.da[r][x + q] += da[r][q], out.dw[r][x + q] += dw[r][q];
}
template <class Phi, class T, int R>
REGARD_INLINE void direct_slopes(const SumRows<T, R>& rows, const SumColumns<T>& columns, int64_t set, T inverse, int64_t x, const SumShares<T, R>& out) {
    for (int64_t unit = x; unit < x + 4; ++unit) {
        Vec<T> da[R] = {}, dw[R] = {};
        for (int64_t n = columns.low, end = columns.high; n < end; n += LANES<T>) {
            const Vec<T> key = load(columns.table(set, unit, n));
            T* to = columns.db + columns.place(unit, n);
            Vec<T> db = load(to);
            REGARD_UNROLL for (int r = 0; r < R; ++r) {
                const Vec<T> change = load(out.ds[r] + n);
                const Slope<T> phi = Phi::both(splat(rows.a[r][unit]) + key);
                const Vec<T> part = change * (phi.slope * inverse);
                da[r] += part;
                db += part * splat(rows.v[unit]);
                dw[r] += change * phi.value;
            }
            store(to, db);
        }
        REGARD_UNROLL for (int r = 0; r < R; ++r) out.da[r][unit] += da[r], out.dw[r][unit] += dw[r];
    }
}

template <class T> class Slopes {
   public:
    static constexpr double factor(int64_t form) { return form == REGARD_TANH ? 4 : 1; }  // K

    explicit Slopes(const regard_call& call) : c(call) {}
    // Units x .. x + 3 of R rows, `width` numbers apart, all one way.
    template <int R> void one_way(const T* a, int64_t width, int64_t head, Way way, bool clamped, const SumColumns<T>& columns, int64_t x, const SumShares<T, R>& out) const {
        const SumRows<T, R> rows(c, a, width, weights_of<T>(c, head));
        if (way == RATIO) return clamped ? ratio_slopes<T, R, true>(rows, columns, x, out) : ratio_slopes<T, R, false>(rows, columns, x, out);
        if (way == NEAR_RATIO) return clamped ? near_slopes<T, R, true>(rows, columns, x, out) : near_slopes<T, R, false>(rows, columns, x, out);
        const T inverse = T(1 / factor(c.form));
        const int64_t set = table_sets(c) - 1;
        switch (c.form) {
            case REGARD_TANH: return direct_slopes<Tanh<T>>(rows, columns, set, inverse, x, out);
            case REGARD_SIGMOID: return direct_slopes<Sigmoid<T>>(rows, columns, set, inverse, x, out);
            case REGARD_RELU: return direct_slopes<Relu<T>>(rows, columns, set, inverse, x, out);
            default: return direct_slopes<Gelu<T>>(rows, columns, set, inverse, x, out);
        }
    }

   private:
    const regard_call& c;
};

}  // namespace REGARD_ISA
}  // namespace regard
