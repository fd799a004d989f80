// The additive score backward.
#pragma once
#include "additive_scores.h"
#include "backward_workspace.h"

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

template <class T, class S> class SumBackward {
   public:
    // `space` holds what the rows and keys of a pair of blocks add; it is made apart, and then added to what was before.
    static int64_t space(const regard_call& c) {
        return 2 * room(KEYS * c.d_key) + room(GROUP * c.d_key * LANES<T>) + room(c.group * c.d_key * LANES<T>) + room(2 * GROUP * KEYS);
    }
    SumBackward(const regard_call& call, T* space) : c(call), d(call.d_key), slopes(call) {
        db = take(space, KEYS * d), over_f = take(space, KEYS * d);
        da = reinterpret_cast<Vec<T>*>(take(space, GROUP * d * LANES<T>)), dw = reinterpret_cast<Vec<T>*>(take(space, c.group * d * LANES<T>));
        split = take(space, 2 * GROUP * KEYS);
    }

    // `ds` are the gradients of the scores, LINE apart, and columns low .. high - 1 those that any row sees; lines(r) is where
    // row r's dQ goes, and totals[place] takes the sum of its ds.
    template <class Lines>
    void pair(const Logits<T, S>& logits, const T* q, int64_t step, const T* panels, const T* ds, int64_t low, int64_t high, T* dk, double* d_weights, T* totals, Lines lines) {
        totals_ = totals;
        for (T* sums : {db, over_f}) std::fill(sums, sums + KEYS * d, T(0));
        std::fill(da, da + GROUP * d, Vec<T>{}), std::fill(dw, dw + c.group * d, Vec<T>{});
        SumColumns<T> columns{panels, table_width(c), d, 0, 0, db, over_f};
        for (int64_t g = 0; g < logits.groups(); ++g) {
            columns.low = logits.low[g], columns.high = logits.high[g];
            if (columns.low < columns.high) group(logits, g, q, step, ds, columns, lines);
        }
        for (int64_t panel = low / COLUMNS<T> * COLUMNS<T>; panel < high; panel += COLUMNS<T>) {
            const T* f = columns.table(0, 0, panel);
            for (int64_t n = 0, at = panel * d; n < COLUMNS<T> * d; n += LANES<T>, at += LANES<T>)
                store(dk + at, load(dk + at) + (ratio_form(c) ? Vec<T>(load(over_f + at) * load(f + n) + load(db + at)) : load(db + at)));
        }
        if (d_weights)
            for (int64_t n = 0; n < c.group * d; ++n) d_weights[n] += double(sum<T>(dw[n]));
    }
    // dK of column n, out of the panel's layout.
    void key_gradient(const T* dk, int64_t n, T* to) const {
        const T* from = dk + n / COLUMNS<T> * COLUMNS<T> * d + n % COLUMNS<T>;
        const T outer = T(Slopes<T>::factor(c.form));
        for (int64_t x = 0; x < d; ++x) to[x] = from[x * COLUMNS<T>] * outer;
    }

   private:
    const regard_call& c;
    int64_t d;
    Slopes<T> slopes;
    T *db, *over_f, *split, *totals_ = nullptr;
    Vec<T>*da, *dw;

    // Rows that go together, one way.
    struct Run {
        int64_t row;
        int count;
        Way way;
        bool clamped;
        const T* ds;
        Vec<T> total[2];
    };

    template <class Lines>
    void group(const Logits<T, S>& logits, int64_t g, const T* q, int64_t step, const T* ds, const SumColumns<T>& columns, Lines lines) {
        Run runs[2 * GROUP];
        const int64_t first = g * GROUP, rows = logits.rows(g), count = find_runs(logits, g, q, step, ds, columns, runs);
        for (int64_t x = 0; x < d; x += 4)
            for (int64_t n = 0; n < count; ++n)
                if (runs[n].count == 2)
                    share<2>(logits, runs[n], q, step, first, columns, x);
                else
                    share<1>(logits, runs[n], q, step, first, columns, x);
        const T outer = T(Slopes<T>::factor(c.form));
        for (int64_t r = 0; r < rows; ++r) {
            const T* v = weights_of<T>(c, logits.block.head[first + r]);
            Vec<T>* own = da + r * d;
            T* line = lines(first + r);
            int64_t x = 0;
            for (; x + LANES<T> <= d; x += LANES<T>) store(line + x, load(line + x) + sums_of<T>(own + x) * (load(v + x) * outer));
            for (; x < d; ++x) line[x] += sum<T>(own[x]) * (v[x] * outer);
        }
        std::fill(da, da + rows * d, Vec<T>{});
    }
    int64_t find_runs(const Logits<T, S>& logits, int64_t g, const T* q, int64_t step, const T* ds, const SumColumns<T>& columns, Run* runs) {
        int64_t count = 0;
        Range range{FAR, NEAR};
        for (int64_t panel = columns.low / COLUMNS<T> * COLUMNS<T>; panel < columns.high; panel += COLUMNS<T>) {
            const Range here = Sums<T>(c, columns.table(0, 0, panel)).range(std::max(columns.low, panel) - panel, std::min<int64_t>(columns.high - panel, COLUMNS<T>));
            range = {std::min(range.low, here.low), std::max(range.high, here.high)};
        }
        const Sums<T> sums(c, columns.panels);
        logits.template alike<2>(q, step, g, sums, range, [&](auto together, int64_t r, const Ways& ways) {
            constexpr int R = decltype(together)::value;
            if (!ways.mixed) {
                runs[count++] = totalled(Run{r, R, ways.first, ways.clamped, ds + r * LINE, {}}, LINE, logits, columns);
                return;
            }
            T *one = split + (r - g * GROUP) * KEYS, *other = one + GROUP * KEYS;
            for (int m = 0; m < R; ++m)
                for (int64_t n = columns.low; n < columns.high; n += LANES<T>) {
                    const auto second = load(columns.table(3, 0, n)) == splat(T(ways.size));
                    const Vec<T> change = load(ds + (r + m) * LINE + n);
                    store(one + m * KEYS + n, second ? Vec<T>{} : change);
                    store(other + m * KEYS + n, second ? change : Vec<T>{});
                }
            for (int m = 0; m < R; ++m) {
                runs[count++] = totalled(Run{r + m, 1, ways.first, ways.clamped, one + m * KEYS, {}}, KEYS, logits, columns);
                runs[count++] = totalled(Run{r + m, 1, ways.second, true, other + m * KEYS, {}}, KEYS, logits, columns);
            }
        });
        return count;
    }
    Run totalled(Run run, int64_t line, const Logits<T, S>& logits, const SumColumns<T>& columns) const {
        for (int m = 0; m < run.count; ++m) {
            for (int64_t n = columns.low; n < columns.high; n += LANES<T>) run.total[m] += load(run.ds + m * line + n);
            const Block& block = logits.block;
            totals_[(block.b * c.kv_heads * c.group + block.head[run.row + m]) * c.queries + block.row[run.row + m]] += sum<T>(run.total[m]);
        }
        return run;
    }
    template <int R>
    void share(const Logits<T, S>& logits, const Run& run, const T* q, int64_t step, int64_t first, const SumColumns<T>& columns, int64_t x) {
        const int64_t head = logits.block.head[run.row];
        SumShares<T, R> out;
        for (int m = 0; m < R; ++m) {
            out.ds[m] = run.ds + m * LINE, out.total[m] = run.total[m];
            out.da[m] = da + (run.row + m - first) * d, out.dw[m] = dw + head % c.group * d;
        }
        slopes.template one_way<R>(q + run.row * step, step, head, run.way, run.clamped, columns, x, out);
    }
};

// The gradients of a row's scores should add up to 0, or to that of its lse; Σ dO · O is rounded, so they miss by a little, and
// all of them to one side, which sums over rows show. What they miss is taken out as if all keys were like the one with most weight.
template <class T, class S> void settle(BackwardPlan<T, S>& plan, int64_t lane) {
    const regard_call& c = plan.c;
    const int64_t d = c.d_key, b = lane / c.kv_heads, kv = lane % c.kv_heads;
    std::vector<T> phi(size_t(up(d, LANES<T>))), slope(phi.size()), sums(phi.size());
    for (int64_t n = 0; n < c.group * c.queries; ++n) {
        const int64_t h = kv * c.group + n / c.queries, row = (b * plan.heads + h) * c.queries + n % c.queries;
        if (!plan.sound(row) || c.peak_at[row] < 0) continue;
        double miss = 0;
        for (int64_t chunk = 0; chunk <= plan.chunks; ++chunk) miss += double(plan.totals[chunk * plan.rows() + row]);
        if (std::isnan(miss)) continue;  // what they should add up to is not known
        const S *key = at<S>(c.key, b, kv, c.peak_at[row]), *query = at<S>(c.query, b, h, n % c.queries);
        for (int64_t x = 0; x < d; ++x) sums[size_t(x)] = widen<T>(query[x * c.query.column]) + widen<T>(key[x * c.key.column]);
        for (int64_t x = 0; x < d; x += LANES<T>) {
            const Slope<T> found = slope_of<T>(c.form, load(sums.data() + x));
            store(phi.data() + x, found.value), store(slope.data() + x, found.slope);
        }
        const T *v = weights_of<T>(c, h), weight = T(1) / static_cast<const T*>(c.total)[row];  // the peak's power is 1
        T *dq = static_cast<T*>(c.grad_query) + row * d, *dk = static_cast<T*>(c.grad_key) + (lane * c.keys + c.peak_at[row]) * d;
        double* dw = c.grad_v ? plan.weights.data() + (lane * plan.chunks * c.group + n / c.queries) * d : nullptr;
        for (int64_t x = 0; x < d; ++x) {
            const T change = T(miss) * v[x] * slope[size_t(x)];
            dq[x] -= change, dk[x] -= change * weight;
            if (dw) dw[x] -= miss * double(phi[size_t(x)]);
        }
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
