// The logits of a block of query rows against one segment (or key block): scores, then cap, mask and biases; not yet
// divided by the temperature. Hidden pairs are -inf.
//
//   s[QUERY_BLOCK][ROW_STRIDE]          one tile of logits: 48 × 272 numbers, L2
//   row group g                         ROW_GROUP rows; computes columns column_begin[g] .. column_end[g] - 1 only
#pragma once
#include <cmath>

#include "additive_scores.h"
#include "dropout.h"
#include "packing.h"

namespace regard {
namespace REGARD_ISA {

constexpr int ROW_STRIDE =
    SEGMENT + 16;  // from one row of the tile to the next: a power of two would collide in the cache
constexpr int ROW_GROUPS = QUERY_BLOCK / ROW_GROUP;
template <class T> constexpr T MINUS_INF = -std::numeric_limits<T>::infinity();

template <class T, class S> class Logits {
   public:
    const regard_call& c;
    const Mask& mask;
    QueryBlock block;
    // exp((logit − row_max) / temperature) is exp2(logit − row_max, {factor_high, factor_low, cutoff}), per row.
    alignas(64) T factor_high[QUERY_BLOCK] = {}, factor_low[QUERY_BLOCK] = {}, cutoff[QUERY_BLOCK] = {};
    int64_t column0;                                           // the key column of column 0 of the tile
    int64_t span_begin, span_end;                              // the columns that some row sees
    int64_t column_begin[ROW_GROUPS], column_end[ROW_GROUPS];  // the columns that a row group computes, whole vectors

    Logits(const regard_call& call, const Mask& m) : c(call), mask(m) {}

    void set_block(const QueryBlock& next) {
        block = next;
        for (int64_t r = 0; r < block.count; ++r) {
            const double exact = LOG2E / temperature(block.head[r]);
            factor_high[r] = T(exact), factor_low[r] = T(exact - double(factor_high[r]));
            // ALiBi weights decay into subnormal numbers, and a product with one takes a hundred cycles
            cutoff[r] = (c.slopes && sizeof(T) == 4 ? T(-100) : FloatFormat<T>::min_exponent) / factor_high[r];
        }
    }
    // The exponent factor of row r, and of rows r .. r + LANES - 1.
    ExponentFactor<Vec<T>> exponent_factor(int64_t r) const {
        return {splat(factor_high[r]), splat(factor_low[r]), splat(cutoff[r])};
    }
    ExponentFactor<Vec<T>> exponent_factors(int64_t r) const {
        return {load(factor_high + r), load(factor_low + r), load(cutoff + r)};
    }
    int64_t row_groups() const { return ceil_div(block.count, ROW_GROUP); }
    int64_t rows(int64_t g) const { return std::min<int64_t>(ROW_GROUP, block.count - g * ROW_GROUP); }
    double temperature(int64_t h) const {
        return c.temperature ? double(static_cast<const T*>(c.temperature)[h]) : 1.0;
    }

    // Load the queries of a block, `row` numbers apart; for additive scores, make their tables. False if one is not
    // finite.
    bool load_queries(const QueryBlock& next, T* rows, int64_t row) const {
        Vec<T> check{};
        HeadWeights<T> weights;
        for (int64_t r = 0; r < next.count; ++r) {
            T* q = rows + r * row;
            copy_row<T>(row_pointer<S>(c.query, next.b, next.head[r], next.row[r]), c.query.column, c.d_key, q);
            int64_t x = 0;
            for (; x + LANES<T> <= c.d_key; x += LANES<T>) check += load(q + x) * T(0);
            for (; x < c.d_key; ++x) check[0] += q[x] * T(0);
            if (!c.form || !is_ratio_form(c)) continue;
            if (r == 0 || next.head[r] != next.head[r - 1]) weights.set(c, next.head[r]);
            query_tables<T>(c, weights, q);
        }
        return reduce_add<T>(check) == T(0);
    }

    // Select a span and the columns of it that each row group computes. `base` is the key column of column 0.
    void set_span(const Span& span, int64_t base) {
        column0 = base;
        span_begin = span.start - base;
        span_end = span.stop - base;
        for (int64_t g = 0; g < row_groups(); ++g) {
            int64_t from = span_begin, to = span_end;
            if (!span.full && mask.is_band()) {
                from = span_end, to = span_begin;
                for (int64_t r = g * ROW_GROUP; r < g * ROW_GROUP + rows(g); ++r) {
                    const Run visible = mask.interval(block.b, block.row[r]);
                    from = std::min(from, std::max(visible.start - base, span_begin));
                    to = std::max(to, std::min(visible.stop - base, span_end));
                }
            }
            column_begin[g] = from < to ? from / LANES<T> * LANES<T> : 0;
            column_end[g] = from < to ? round_up(to, LANES<T>) : 0;
        }
    }

    // s[r][column] = scale · a[r] · key over `width` features, for the columns of each row group; rows of `a` are `row`
    // apart and `panels` hold the keys from column 0. also(r, sums, count) sees the unscaled sums while they are in
    // registers.
    template <class Also>
    void dot_scores(const T* a, int64_t row, int64_t width, const T* panels, T scale, T* s, Also also) const {
        for (int64_t panel = span_begin / TILE_COLUMNS<T> * TILE_COLUMNS<T>; panel < span_end; panel += TILE_COLUMNS<T>)
            for (int64_t g = 0; g < row_groups(); ++g) {
                const int64_t from = std::max(column_begin[g], panel),
                              to = std::min<int64_t>(column_end[g], panel + TILE_COLUMNS<T>);
                if (from >= to) continue;
                T* out = s + g * ROW_GROUP * ROW_STRIDE + from;
                const Vec<T> factor = splat(scale);
                product<T>(
                    a + g * ROW_GROUP * row, row, panels + panel * width + from - panel, TILE_COLUMNS<T>, width,
                    rows(g), (to - from) / LANES<T>,
                    [&](int64_t r, const Vec<T>* sums, auto count) REGARD_INLINED {
                        also(g * ROW_GROUP + r, sums, count);
                        static_for<decltype(count)::value>([&](int n) REGARD_INLINED {
                            store(out + r * ROW_STRIDE + n * LANES<T>, sums[n] * factor);
                        });
                    },
                    Chains::even(width));
            }
    }
    void dot_scores(const T* a, int64_t row, int64_t width, const T* panels, T scale, T* s) const {
        dot_scores(a, row, width, panels, scale, s, [](int64_t, const Vec<T>*, auto) REGARD_INLINED {});
    }

    // The same for additive scores; rows of `a` and panels hold tables.
    void additive_scores(const T* a, int64_t row, const T* panels, T* s) const {
        for (int64_t panel = span_begin / TILE_COLUMNS<T> * TILE_COLUMNS<T>; panel < span_end;
             panel += TILE_COLUMNS<T>) {
            const AdditivePanel<T> additive(c, panels + panel * key_table_width(c));
            for (int64_t g = 0; g < row_groups(); ++g) {
                const int64_t from = std::max(column_begin[g], panel),
                              to = std::min<int64_t>(column_end[g], panel + TILE_COLUMNS<T>);
                if (from >= to) continue;
                const MagnitudeRange range = additive.magnitude_range(from - panel, to - panel);
                for_rows_of_one_method<4>(
                    a, row, g, additive, range, [&](auto count, int64_t r, const MethodChoice& methods) {
                        constexpr int R = decltype(count)::value;
                        T* line = s + r * ROW_STRIDE + panel;
                        const Vec<T> scale = splat(T(c.scale));
                        additive.template scores<R>(a + r * row, row, block.head[r], from - panel, to - panel, methods,
                                                    [&](int64_t n, const Vec<T>* sums) REGARD_INLINED {
                                                        REGARD_UNROLLED_FOR (int m = 0; m < R; ++m)
                                                            store(line + m * ROW_STRIDE + n, sums[m] * scale);
                                                    });
                    });
            }
        }
    }
    // each(count, r, methods) for the rows of group g: R at a time where they share head and methods, else one by one.
    template <int R, class Each>
    void for_rows_of_one_method(const T* a, int64_t row, int64_t g, const AdditivePanel<T>& panel,
                                const MagnitudeRange& range, Each each) const {
        for (int64_t r = g * ROW_GROUP, end = r + rows(g); r < end;) {
            const MethodChoice methods = panel.choose_methods(a + r * row, range);
            int64_t same = 1;
            while (same < R && r + same < end && block.head[r + same] == block.head[r] &&
                   panel.choose_methods(a + (r + same) * row, range) == methods)
                ++same;
            if (same == R) {
                each(std::integral_constant<int, R>{}, r, methods);
                r += R;
            } else {
                each(std::integral_constant<int, 1>{}, r, methods);
                ++r;
            }
        }
    }

    // Whether scores already are the logits: no cap, no bias, every column visible.
    bool scores_are_logits(const Span& span) const { return !c.form && !c.cap && !has_bias() && fully_visible(span); }
    bool has_bias() const { return c.slopes || c.offset_table || c.dense_bias.data; }
    bool fully_visible(const Span& span) const {
        return span.full && span_begin % LANES<T> == 0 && span_end % LANES<T> == 0;
    }

    // Turn the scores x of row r into logits: cap, mask, biases. With ALiBi, logits below `floor` count as hidden.
    // Returns the largest logit.
    T to_logits(int64_t r, const Span& span, T* x, T floor = MINUS_INF<T>) {
        const int64_t from = column_begin[r / ROW_GROUP], to = column_end[r / ROW_GROUP];
        if (c.cap > 0)
            for (int64_t n = from; n < to; n += LANES<T>)
                store(x + n, tanh<T>(load(x + n) * splat(T(1 / c.cap))) * splat(T(c.cap)));
        if (!fully_visible(span)) apply_mask(r, span, x, from, to);
        const int kinds = (c.slopes != nullptr) + (c.offset_table != nullptr) + (c.dense_bias.data != nullptr);
        if (kinds == 0) return row_maximum(x, from, to);
        if (kinds == 1) return reduce_max<T>(add_biases(r, x, from, to, floor));
        alignas(64) T biases[ROW_STRIDE];  // summed first, so that a score is rounded once more only
        std::fill(biases + from, biases + to, T(0));
        add_biases(r, biases, from, to, MINUS_INF<T>);
        Vec<T> best = splat(MINUS_INF<T>);
        for (int64_t n = from; n < to; n += LANES<T>) {
            const Vec<T> sum = add_bias(load(x + n), load(biases + n));
            best = max<T>(best, sum);
            store(x + n, sum);
        }
        return reduce_max<T>(best);
    }

    int64_t position(int64_t r) const { return c.query_start[block.b] + block.row[r]; }
    // j − i of column 0 in row r.
    int64_t offset(int64_t r) const { return c.key_start + column0 - position(r); }

   private:
    std::vector<uint8_t> visible_, mask_stack_;

    static T row_maximum(const T* x, int64_t from, int64_t to) {
        Vec<T> best = splat(MINUS_INF<T>);
        for (int64_t n = from; n < to; n += LANES<T>) best = max<T>(best, load(x + n));
        return reduce_max<T>(best);
    }

    // A hidden pair stays hidden, even if +inf is added.
    REGARD_INLINE static Vec<T> add_bias(Vec<T> x, Vec<T> bias) {
        return ((x == splat(MINUS_INF<T>)) | (bias == splat(MINUS_INF<T>))) ? splat(MINUS_INF<T>) : Vec<T>(x + bias);
    }

    Vec<T> add_biases(int64_t r, T* x, int64_t from, int64_t to, T floor) const {
        Vec<T> best;
        if (c.slopes) best = add_alibi(r, x, from, to, floor);
        if (c.offset_table) best = add_offset_table(r, x, from, to);
        if (c.dense_bias.data) best = add_dense_bias(r, x, std::max(from, span_begin), std::min(to, span_end));
        return best;
    }
    // Each adds one bias to x and returns the largest sum per lane of the vector.
    Vec<T> add_alibi(int64_t r, T* x, int64_t from, int64_t to, T floor) const {
        const Vec<T> slope = splat(static_cast<const T*>(c.slopes)[block.head[r]]);
        Vec<T> offsets = splat(T(offset(r) + from)) + iota<T>(), best = splat(MINUS_INF<T>);
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> sum = load(x + n) - slope * absolute<T>(offsets);
            sum = sum < splat(floor) ? splat(MINUS_INF<T>) : sum;
            best = max<T>(best, sum);
            store(x + n, sum);
            offsets += T(LANES<T>);
        }
        return best;
    }

    Vec<T> add_offset_table(int64_t r, T* x, int64_t from, int64_t to) const {
        const T* table =
            static_cast<const T*>(c.offset_table) + (c.offset_heads > 1 ? block.head[r] : 0) * (2 * c.reach + 1);
        const int64_t start = offset(r) + c.reach,
                      past = 2 * c.reach;  // the table's index of column n is start + n, clipped
        Vec<T> best = splat(MINUS_INF<T>);
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> bias;
            if (start + n >= 0 && start + n + LANES<T> - 1 <= past)
                bias = load(table + start + n);
            else
                for (int64_t m = 0; m < LANES<T>; ++m)
                    bias[m] = table[std::min(std::max<int64_t>(start + n + m, 0), past)];
            const Vec<T> sum = add_bias(load(x + n), bias);
            best = max<T>(best, sum);
            store(x + n, sum);
        }
        return best;
    }

    Vec<T> add_dense_bias(int64_t r, T* x, int64_t from, int64_t to) const {
        const int64_t step = c.dense_bias.column;
        const T* bias = row_pointer<T>(c.dense_bias, block.b, block.head[r], block.row[r]) + column0 * step;
        Vec<T> best = splat(MINUS_INF<T>);
        int64_t n = from;
        if (step == 1)
            for (; n + LANES<T> <= to; n += LANES<T>) {
                const Vec<T> sum = add_bias(load(x + n), load(bias + n));
                best = max<T>(best, sum);
                store(x + n, sum);
            }
        for (; n < to; ++n) {
            x[n] = add_bias(splat(x[n]), splat(bias[n * step]))[0];
            best[0] = std::max(best[0], x[n]);
        }
        return best;
    }

    void apply_mask(int64_t r, const Span& span, T* x, int64_t low_column, int64_t high_column) {
        int64_t from = span_begin, to = span_end;
        if (!span.full && mask.is_band()) {
            const Run visible = mask.interval(block.b, block.row[r]);
            from = std::min(std::max(visible.start - column0, from), to);
            to = std::max(std::min(visible.stop - column0, to), from);
        } else if (!span.full) {
            visible_.resize(SEGMENT + 64);
            mask.visible_columns(block.b, block.head[r], block.row[r], column0 + span_begin, column0 + span_end,
                                 visible_.data() + span_begin, mask_stack_);
            int64_t n = span_begin;
            for (; n + LANES<T> <= span_end; n += LANES<T>) {
                typename VectorOf<T>::uint8s visible;
                std::memcpy(&visible, visible_.data() + n, sizeof visible);
                store(x + n, __builtin_convertvector(visible, MaskVec<T>) != 0 ? load(x + n) : splat(MINUS_INF<T>));
            }
            for (; n < span_end; ++n) x[n] = visible_[n] ? x[n] : MINUS_INF<T>;
        }
        if (from >= to) from = to = low_column;
        std::fill(x + low_column, x + std::max(low_column, from), MINUS_INF<T>);
        std::fill(x + std::max(to, low_column), x + std::max(high_column, std::max(to, low_column)), MINUS_INF<T>);
    }
};

// apply(n, keep) for each vector of columns from .. to - 1 of a row; keep is the dropout mask, all ones where a weight
// is kept.
template <class T, class Apply>
REGARD_INLINE void for_dropout_masks(const regard_call& c, uint64_t key, int64_t j0, int64_t from, int64_t to,
                                     Apply apply) {
    typedef typename VectorOf<T>::uint32s U;
    U lanes;
    for (int n = 0; n < LANES<T>; ++n) lanes[n] = uint32_t(n);
    const U threshold = c.drop_below - U{};
    for (int64_t n = from; n < to; n += LANES<T>) {
        const U number = pair_number<U>(key, uint32_t(j0 + n) + lanes);
        const auto keep = number >= threshold;
        apply(n, MaskVec<T>(__builtin_convertvector(keep, MaskVec<T>)));
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
