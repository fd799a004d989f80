// Additive scores backward: dQ, dK and the gradient of the weights v, for one block of queries and one of keys.
//
//   for row group of the block                       AdditiveBackward::row_group
//     for 4 units of d_key                           4 · 128 numbers of dK stay in L1 for all rows of the group
//       for rows that share a method, 2 or 1         AdditiveGradients::add
//         for vector of keys, low .. high            dQ and dV of 4 units in registers; dK is loaded and stored
//   dK += F · over_f + db                            block_pair: the sums of this pair of blocks
//
// Derivatives, with u = E·F + 1 (additive_tables.h): K·E·F / u² for tanh (K = 4) and sigmoid (K = 1); E comes in once
// per row, F once per pair of blocks, K at the very end. Near 0, with y: 1/(y + 2) − 1/(y + 2)², times K.
//
// Order of sums: dQ over the keys of a block in lanes of a vector, then reduce_add; dK over the rows of a block, then
// over the blocks. A row has accumulators of its own, so no sum depends on the rows it is computed with.
//
// Template parameters: R rows at once; CLAMP: u may overflow; Phi: an activation of activations.h.
#pragma once
#include "additive_scores.h"
#include "backward_workspace.h"

namespace regard {
namespace REGARD_ISA {

// Columns low .. high - 1 of a key block, and the sums of their gradients, laid out as panels of one table: the
// gradient is over_f · F + db.
template <class T> struct AdditiveColumns {
    const T* panels;
    int64_t width, d, low, high;  // width: numbers per key in its panel
    T *db, *over_f;
    const T* table(int64_t set, int64_t x, int64_t n) const {
        return panels + n / TILE_COLUMNS<T> * TILE_COLUMNS<T> * width + (set * d + x) * TILE_COLUMNS<T> +
               n % TILE_COLUMNS<T>;
    }
    int64_t position(int64_t x, int64_t n) const {
        return n / TILE_COLUMNS<T> * TILE_COLUMNS<T> * d + x * TILE_COLUMNS<T> + n % TILE_COLUMNS<T>;
    }
};
// The gradients ds of R rows' scores, and the sums of the rows' gradients, one vector per unit, to be reduced at the
// end. da and db are 1/K of the gradient.
template <class T, int R> struct AdditiveRowGradients {
    const T* ds[R];
    Vec<T>*da[R], *dw[R], ds_sum[R];  // Σ ds
};

// 1 / u of four units with two divisions; the product of two u is always in range.
template <class T> REGARD_INLINE void four_inverses(const Vec<T>* u, Vec<T>* inverse) {
    const Vec<T> left = reciprocal<T>(u[0] * u[1]), right = reciprocal<T>(u[2] * u[3]);
    inverse[0] = left * u[1], inverse[1] = left * u[0], inverse[2] = right * u[3], inverse[3] = right * u[2];
}

// Units x .. x + 3; the derivative is E·F / u².
template <class T, int R, bool CLAMP>
REGARD_INLINE void ratio_gradients(const AdditiveRows<T, R>& rows, const AdditiveColumns<T>& columns, int64_t x,
                                   const AdditiveRowGradients<T, R>& out) {
    const Vec<T> limit = splat(Limits<T>::derivative_limit), one = splat(T(1));
    const T *e[R], *v_e[R], *ds[R];  // local copies: results that are written cannot alias them
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) e[r] = rows.e[r] + x, v_e[r] = rows.v_e[r] + x, ds[r] = out.ds[r];
    Vec<T> da[R][4] = {}, dw[R][4] = {};
    for (int64_t n = columns.low, end = columns.high; n < end; n += LANES<T>) {
        const T* keys = columns.table(0, x, n);
        T* over_f = columns.over_f + columns.position(x, n);
        Vec<T> db[4];
        REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) db[q] = load(over_f + q * TILE_COLUMNS<T>);
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
            const Vec<T> ds_n = load(ds[r] + n);
            Vec<T> u[4], inverse[4];
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                u[q] = splat(e[r][q]) * load(keys + q * TILE_COLUMNS<T>) + one;
                if (CLAMP) u[q] = smaller<T>(u[q], limit);
            }
            four_inverses<T>(u, inverse);
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                if (CLAMP) inverse[q] = u[q] < limit ? inverse[q] : Vec<T>{};
                const Vec<T> scaled = ds_n * inverse[q], gradient = scaled * inverse[q];
                da[r][q] += gradient * load(keys + q * TILE_COLUMNS<T>);
                db[q] += gradient * splat(v_e[r][q]);
                dw[r][q] += scaled;
            }
        }
        REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) store(over_f + q * TILE_COLUMNS<T>, db[q]);
    }
    REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q)
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
            out.da[r][x + q] += da[r][q] * splat(e[r][q]);
            out.dw[r][x + q] += rows.is_tanh ? Vec<T>(out.ds_sum[r] - splat(rows.k) * dw[r][q]) : dw[r][q];
        }
}
// Near 0, with u = y + 2: the derivative is 1/u − 1/u².
template <class T, int R, bool CLAMP>
REGARD_INLINE void expm1_ratio_gradients(const AdditiveRows<T, R>& rows, const AdditiveColumns<T>& columns, int64_t x,
                                         const AdditiveRowGradients<T, R>& out) {
    const Vec<T> k = splat(rows.k), limit = splat(Limits<T>::value_limit);
    const T *e[R], *em1[R], *ds[R], *v = rows.v + x;
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) e[r] = rows.e[r] + x, em1[r] = rows.em1[r] + x, ds[r] = out.ds[r];
    Vec<T> da[R][4] = {}, dw[R][4] = {};
    for (int64_t n = columns.low, end = columns.high; n < end; n += LANES<T>) {
        const T* keys = columns.table(1, x, n);
        T* to = columns.db + columns.position(x, n);
        Vec<T> db[4];
        REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) db[q] = load(to + q * TILE_COLUMNS<T>);
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
            const Vec<T> ds_n = load(ds[r] + n);
            Vec<T> y[4], u[4], inverse[4];
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                y[q] = splat(e[r][q]) * load(keys + q * TILE_COLUMNS<T>) + splat(em1[r][q]);
                if (CLAMP) y[q] = smaller<T>(y[q], limit);
                u[q] = y[q] + k;
            }
            four_inverses<T>(u, inverse);
            REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) {
                const Vec<T> scaled = ds_n * inverse[q], gradient = scaled - scaled * inverse[q];
                da[r][q] += gradient;
                db[q] += gradient * splat(v[q]);
                dw[r][q] += scaled * y[q];
            }
        }
        REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q) store(to + q * TILE_COLUMNS<T>, db[q]);
    }
    REGARD_UNROLLED_FOR (int q = 0; q < 4; ++q)
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) out.da[r][x + q] += da[r][q], out.dw[r][x + q] += dw[r][q];
}
template <class Phi, class T, int R>
REGARD_INLINE void direct_gradients(const AdditiveRows<T, R>& rows, const AdditiveColumns<T>& columns, int64_t set,
                                    T inverse, int64_t x, const AdditiveRowGradients<T, R>& out) {
    for (int64_t unit = x; unit < x + 4; ++unit) {
        Vec<T> da[R] = {}, dw[R] = {};
        for (int64_t n = columns.low, end = columns.high; n < end; n += LANES<T>) {
            const Vec<T> key = load(columns.table(set, unit, n));
            T* to = columns.db + columns.position(unit, n);
            Vec<T> db = load(to);
            REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
                const Vec<T> ds_n = load(out.ds[r] + n);
                const ValueAndDerivative<T> phi = Phi::value_and_derivative(splat(rows.a[r][unit]) + key);
                const Vec<T> gradient = ds_n * (phi.derivative * inverse);
                da[r] += gradient;
                db += gradient * splat(rows.v[unit]);
                dw[r] += ds_n * phi.value;
            }
            store(to, db);
        }
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) out.da[r][unit] += da[r], out.dw[r][unit] += dw[r];
    }
}

template <class T> class AdditiveGradients {
   public:
    static constexpr double factor(int64_t form) { return form == REGARD_TANH ? 4 : 1; }  // K

    explicit AdditiveGradients(const regard_call& call) : c(call) {}
    // Add the gradients of units x .. x + 3 of R rows, `width` numbers apart.
    template <int R>
    void add(const T* a, int64_t width, int64_t head, Method method, bool clamped, const AdditiveColumns<T>& columns,
             int64_t x, const AdditiveRowGradients<T, R>& out) const {
        const AdditiveRows<T, R> rows(c, a, width, head_weights<T>(c, head));
        if (method == RATIO)
            return clamped ? ratio_gradients<T, R, true>(rows, columns, x, out)
                           : ratio_gradients<T, R, false>(rows, columns, x, out);
        if (method == EXPM1_RATIO)
            return clamped ? expm1_ratio_gradients<T, R, true>(rows, columns, x, out)
                           : expm1_ratio_gradients<T, R, false>(rows, columns, x, out);
        const T inverse = T(1 / factor(c.form));
        const int64_t set = key_table_count(c) - 1;
        switch (c.form) {
            case REGARD_TANH: return direct_gradients<Tanh<T>>(rows, columns, set, inverse, x, out);
            case REGARD_SIGMOID: return direct_gradients<Sigmoid<T>>(rows, columns, set, inverse, x, out);
            case REGARD_RELU: return direct_gradients<Relu<T>>(rows, columns, set, inverse, x, out);
            default: return direct_gradients<Gelu<T>>(rows, columns, set, inverse, x, out);
        }
    }

   private:
    const regard_call& c;
};

template <class T, class S> class AdditiveBackward {
   public:
    // The workspace holds the sums of one pair of blocks, which are then added to the gradients.
    static int64_t workspace_size(const regard_call& c) {
        return 2 * padded_size(KEY_BLOCK * c.d_key) + padded_size(ROW_GROUP * c.d_key * LANES<T>) +
               padded_size(c.group * c.d_key * LANES<T>) + padded_size(2 * ROW_GROUP * KEY_BLOCK);
    }
    AdditiveBackward(const regard_call& call, T* space) : c(call), d(call.d_key), gradients(call) {
        db = allocate(space, KEY_BLOCK * d), over_f = allocate(space, KEY_BLOCK * d);
        da = reinterpret_cast<Vec<T>*>(allocate(space, ROW_GROUP * d * LANES<T>));
        dw = reinterpret_cast<Vec<T>*>(allocate(space, c.group * d * LANES<T>));
        split_ds = allocate(space, 2 * ROW_GROUP * KEY_BLOCK);
    }

    // `ds` are the gradients of the scores, rows ROW_STRIDE apart; low .. high - 1 the columns that some row computes;
    // dq_row(r) is where row r's dQ is, and row_sums[row] receives the sum of its ds.
    template <class DqRow>
    void block_pair(const Logits<T, S>& logits, const T* q, int64_t stride, const T* panels, const T* ds, int64_t low,
                    int64_t high, T* dk, double* d_v, T* row_sums, DqRow dq_row) {
        row_sums_ = row_sums;
        for (T* sums : {db, over_f}) std::fill(sums, sums + KEY_BLOCK * d, T(0));
        std::fill(da, da + ROW_GROUP * d, Vec<T>{}), std::fill(dw, dw + c.group * d, Vec<T>{});
        AdditiveColumns<T> columns{panels, key_table_width(c), d, 0, 0, db, over_f};
        for (int64_t g = 0; g < logits.row_groups(); ++g) {
            columns.low = logits.column_begin[g], columns.high = logits.column_end[g];
            if (columns.low < columns.high) row_group(logits, g, q, stride, ds, columns, dq_row);
        }
        for (int64_t panel = low / TILE_COLUMNS<T> * TILE_COLUMNS<T>; panel < high; panel += TILE_COLUMNS<T>) {
            const T* f = columns.table(0, 0, panel);
            for (int64_t n = 0, at = panel * d; n < TILE_COLUMNS<T> * d; n += LANES<T>, at += LANES<T>)
                store(dk + at,
                      load(dk + at) +
                          (is_ratio_form(c) ? Vec<T>(load(over_f + at) * load(f + n) + load(db + at)) : load(db + at)));
        }
        if (d_v)
            for (int64_t n = 0; n < c.group * d; ++n) d_v[n] += double(reduce_add<T>(dw[n]));
    }
    // Copy dK of column n out of the panel layout.
    void key_gradient(const T* dk, int64_t n, T* to) const {
        const T* from = dk + n / TILE_COLUMNS<T> * TILE_COLUMNS<T> * d + n % TILE_COLUMNS<T>;
        const T outer = T(AdditiveGradients<T>::factor(c.form));
        for (int64_t x = 0; x < d; ++x) to[x] = from[x * TILE_COLUMNS<T>] * outer;
    }

   private:
    const regard_call& c;
    int64_t d;
    AdditiveGradients<T> gradients;
    T *db, *over_f, *split_ds, *row_sums_ = nullptr;
    Vec<T>*da, *dw;

    // One or two rows that are computed together, by one method.
    struct RowPair {
        int64_t row;
        int count;
        Method method;
        bool clamped;
        const T* ds;
        Vec<T> ds_sum[2];
    };

    template <class DqRow>
    void row_group(const Logits<T, S>& logits, int64_t g, const T* q, int64_t stride, const T* ds,
                   const AdditiveColumns<T>& columns, DqRow dq_row) {
        RowPair pairs[2 * ROW_GROUP];
        const int64_t first = g * ROW_GROUP, rows = logits.rows(g),
                      count = find_row_pairs(logits, g, q, stride, ds, columns, pairs);
        for (int64_t x = 0; x < d; x += 4)
            for (int64_t n = 0; n < count; ++n)
                if (pairs[n].count == 2)
                    add_units<2>(logits, pairs[n], q, stride, first, columns, x);
                else
                    add_units<1>(logits, pairs[n], q, stride, first, columns, x);
        const T outer = T(AdditiveGradients<T>::factor(c.form));
        for (int64_t r = 0; r < rows; ++r) {
            const T* v = head_weights<T>(c, logits.block.head[first + r]);
            Vec<T>* row_da = da + r * d;
            T* line = dq_row(first + r);
            int64_t x = 0;
            for (; x + LANES<T> <= d; x += LANES<T>)
                store(line + x, load(line + x) + reduce_add_each<T>(row_da + x) * (load(v + x) * outer));
            for (; x < d; ++x) line[x] += reduce_add<T>(row_da[x]) * (v[x] * outer);
        }
        std::fill(da, da + rows * d, Vec<T>{});
    }
    int64_t find_row_pairs(const Logits<T, S>& logits, int64_t g, const T* q, int64_t stride, const T* ds,
                           const AdditiveColumns<T>& columns, RowPair* pairs) {
        int64_t count = 0;
        MagnitudeRange range{EXTREME, SMALL};
        for (int64_t panel = columns.low / TILE_COLUMNS<T> * TILE_COLUMNS<T>; panel < columns.high;
             panel += TILE_COLUMNS<T>) {
            const MagnitudeRange here = AdditivePanel<T>(c, columns.table(0, 0, panel))
                                            .magnitude_range(std::max(columns.low, panel) - panel,
                                                             std::min<int64_t>(columns.high - panel, TILE_COLUMNS<T>));
            range = {std::min(range.low, here.low), std::max(range.high, here.high)};
        }
        const AdditivePanel<T> panel(c, columns.panels);
        logits.template for_rows_of_one_method<2>(
            q, stride, g, panel, range, [&](auto together, int64_t r, const MethodChoice& methods) {
                constexpr int R = decltype(together)::value;
                if (!methods.mixed) {
                    pairs[count++] = with_ds_sum(RowPair{r, R, methods.first, methods.clamped, ds + r * ROW_STRIDE, {}},
                                                 ROW_STRIDE, logits, columns);
                    return;
                }
                T *one = split_ds + (r - g * ROW_GROUP) * KEY_BLOCK, *other = one + ROW_GROUP * KEY_BLOCK;
                for (int m = 0; m < R; ++m)
                    for (int64_t n = columns.low; n < columns.high; n += LANES<T>) {
                        const auto second = load(columns.table(3, 0, n)) == splat(T(methods.magnitude));
                        const Vec<T> ds_n = load(ds + (r + m) * ROW_STRIDE + n);
                        store(one + m * KEY_BLOCK + n, second ? Vec<T>{} : ds_n);
                        store(other + m * KEY_BLOCK + n, second ? ds_n : Vec<T>{});
                    }
                for (int m = 0; m < R; ++m) {
                    pairs[count++] =
                        with_ds_sum(RowPair{r + m, 1, methods.first, methods.clamped, one + m * KEY_BLOCK, {}},
                                    KEY_BLOCK, logits, columns);
                    pairs[count++] = with_ds_sum(RowPair{r + m, 1, methods.second, true, other + m * KEY_BLOCK, {}},
                                                 KEY_BLOCK, logits, columns);
                }
            });
        return count;
    }
    RowPair with_ds_sum(RowPair pair, int64_t line, const Logits<T, S>& logits,
                        const AdditiveColumns<T>& columns) const {
        for (int m = 0; m < pair.count; ++m) {
            for (int64_t n = columns.low; n < columns.high; n += LANES<T>)
                pair.ds_sum[m] += load(pair.ds + m * line + n);
            const QueryBlock& block = logits.block;
            row_sums_[(block.b * c.kv_heads * c.group + block.head[pair.row + m]) * c.queries +
                      block.row[pair.row + m]] += reduce_add<T>(pair.ds_sum[m]);
        }
        return pair;
    }
    template <int R>
    void add_units(const Logits<T, S>& logits, const RowPair& pair, const T* q, int64_t stride, int64_t first,
                   const AdditiveColumns<T>& columns, int64_t x) {
        const int64_t head = logits.block.head[pair.row];
        AdditiveRowGradients<T, R> out;
        for (int m = 0; m < R; ++m) {
            out.ds[m] = pair.ds + m * ROW_STRIDE, out.ds_sum[m] = pair.ds_sum[m];
            out.da[m] = da + (pair.row + m - first) * d, out.dw[m] = dw + head % c.group * d;
        }
        gradients.template add<R>(q + pair.row * stride, stride, head, pair.method, pair.clamped, columns, x, out);
    }
};

// The gradients of a row's scores add up to 0, or to that of its lse. delta = Σ dO · O is rounded, so they miss this by
// a little, all to the same side, which shows in sums over rows. The error is removed as if every key were the one with
// the largest weight.
template <class T, class S> void correct_score_gradient_sums(BackwardWorkspace<T, S>& shared, int64_t batch_head) {
    const regard_call& c = shared.c;
    const int64_t d = c.d_key, b = batch_head / c.kv_heads, kv = batch_head % c.kv_heads;
    std::vector<T> phi(size_t(round_up(d, LANES<T>))), derivative(phi.size()), sums(phi.size());
    for (int64_t n = 0; n < c.group * c.queries; ++n) {
        const int64_t h = kv * c.group + n / c.queries, row = (b * shared.heads + h) * c.queries + n % c.queries;
        if (!shared.has_gradient(row) || c.peak_at[row] < 0) continue;
        double error = 0;
        for (int64_t chunk = 0; chunk <= shared.chunks; ++chunk)
            error += double(shared.score_gradient_sums[chunk * shared.rows() + row]);
        if (std::isnan(error)) continue;  // the exact sum is unknown
        const S *key = row_pointer<S>(c.key, b, kv, c.peak_at[row]),
                *query = row_pointer<S>(c.query, b, h, n % c.queries);
        for (int64_t x = 0; x < d; ++x)
            sums[size_t(x)] = widen<T>(query[x * c.query.column]) + widen<T>(key[x * c.key.column]);
        for (int64_t x = 0; x < d; x += LANES<T>) {
            const ValueAndDerivative<T> activation = activation_with_derivative<T>(c.form, load(sums.data() + x));
            store(phi.data() + x, activation.value), store(derivative.data() + x, activation.derivative);
        }
        const T *v = head_weights<T>(c, h),
                weight = T(1) / static_cast<const T*>(c.row_sum)[row];  // the weight of the peak
        T *dq = static_cast<T*>(c.grad_query) + row * d,
          *dk = static_cast<T*>(c.grad_key) + (batch_head * c.keys + c.peak_at[row]) * d;
        double* dw =
            c.grad_v ? shared.v_partials.data() + (batch_head * shared.chunks * c.group + n / c.queries) * d : nullptr;
        for (int64_t x = 0; x < d; ++x) {
            const T change = T(error) * v[x] * derivative[size_t(x)];
            dq[x] -= change, dk[x] -= change * weight;
            if (dw) dw[x] -= error * double(phi[size_t(x)]);
        }
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
