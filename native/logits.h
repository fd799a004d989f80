// The logits of a block of rows against one segment: score + bias, before tau; hidden pairs at -inf.
#pragma once
#include <cmath>

#include "additive_scores.h"
#include "dropout.h"
#include "packing.h"

namespace regard {
namespace REGARD_ISA {

constexpr int LINE = SEGMENT + 16;  // numbers from one row of a tile to the next: a power of two would collide in the cache
constexpr int GROUPS = BLOCK / GROUP;
template <class T> constexpr T NONE = -std::numeric_limits<T>::infinity();

template <class T, class S> class Logits {
   public:
    const regard_call& c;
    const Mask& mask;
    Block block;
    alignas(64) T power[BLOCK] = {}, rest[BLOCK] = {}, least[BLOCK] = {};  // log2(e) / tau of the row's head, and what that was rounded by; differences below count as -inf
    int64_t column0, first, last;     // the key column of column 0; the columns that some row sees
    int64_t low[GROUPS], high[GROUPS];  // the columns that a group of rows computes, whole vectors

    Logits(const regard_call& call, const Mask& m) : c(call), mask(m) {}

    void set_block(const Block& next) {
        block = next;
        for (int64_t r = 0; r < block.count; ++r) {
            const double exact = LOG2E / tau(block.head[r]);
            power[r] = T(exact), rest[r] = T(exact - double(power[r]));
            // slopes make weights fade through the subnormal numbers, with which a product takes a hundred cycles
            least[r] = (c.slopes && sizeof(T) == 4 ? T(-100) : Exponent<T>::low) / power[r];
        }
    }
    // What compares two logits of row r, and those of as many rows as a vector has lanes.
    Factor<Vec<T>> factor(int64_t r) const { return {splat(power[r]), splat(rest[r]), splat(least[r])}; }
    Factor<Vec<T>> factors(int64_t r) const { return {load(power + r), load(rest + r), load(least + r)}; }
    int64_t groups() const { return parts(block.count, GROUP); }
    int64_t rows(int64_t g) const { return std::min<int64_t>(GROUP, block.count - g * GROUP); }
    double tau(int64_t h) const { return c.temperature ? double(static_cast<const T*>(c.temperature)[h]) : 1.0; }

    // The queries of a block, `row` numbers apart. Whether all are finite.
    bool queries(const Block& next, T* rows, int64_t row) const {
        Vec<T> check{};
        Weights<T> weights;
        for (int64_t r = 0; r < next.count; ++r) {
            T* q = rows + r * row;
            copy_row<T>(at<S>(c.query, next.b, next.head[r], next.row[r]), c.query.column, c.d_key, q);
            int64_t x = 0;
            for (; x + LANES<T> <= c.d_key; x += LANES<T>) check += load(q + x) * T(0);
            for (; x < c.d_key; ++x) check[0] += q[x] * T(0);
            if (!c.form || !ratio_form(c)) continue;
            if (r == 0 || next.head[r] != next.head[r - 1]) weights.set(c, next.head[r]);
            query_tables<T>(c, weights, q);
        }
        return sum<T>(check) == T(0);
    }

    // Which columns of a span each group computes. `base` is the key column of column 0.
    void set_span(const Span& span, int64_t base) {
        column0 = base;
        first = span.start - base;
        last = span.stop - base;
        for (int64_t g = 0; g < groups(); ++g) {
            int64_t from = first, to = last;
            if (!span.full && mask.band()) {
                from = last, to = first;
                for (int64_t r = g * GROUP; r < g * GROUP + rows(g); ++r) {
                    const Run seen = mask.interval(block.b, block.row[r]);
                    from = std::min(from, std::max(seen.start - base, first));
                    to = std::max(to, std::min(seen.stop - base, last));
                }
            }
            low[g] = from < to ? from / LANES<T> * LANES<T> : 0;
            high[g] = from < to ? up(to, LANES<T>) : 0;
        }
    }

    // s[r][column] = scale * a[r * row ...] . key over `width`, for the columns of each group; panels hold the keys from
    // column 0. also(r, numbers, vectors) sees them while they are in registers.
    template <class Also>
    void scores(const T* a, int64_t row, int64_t width, const T* panels, T scale, T* s, Also also) const {
        for (int64_t panel = first / COLUMNS<T> * COLUMNS<T>; panel < last; panel += COLUMNS<T>)
            for (int64_t g = 0; g < groups(); ++g) {
                const int64_t from = std::max(low[g], panel), to = std::min<int64_t>(high[g], panel + COLUMNS<T>);
                if (from >= to) continue;
                T* out = s + g * GROUP * LINE + from;
                const Vec<T> factor = splat(scale);
                product<T>(a + g * GROUP * row, row, panels + panel * width + from - panel, COLUMNS<T>, width, rows(g),
                           (to - from) / LANES<T>, [&](int64_t r, const Vec<T>* sums, auto count) REGARD_INLINED {
                               also(g * GROUP + r, sums, count);
                               each<decltype(count)::value>([&](int n) REGARD_INLINED { store(out + r * LINE + n * LANES<T>, sums[n] * factor); });
                           }, Chains::even(width));
            }
    }
    void scores(const T* a, int64_t row, int64_t width, const T* panels, T scale, T* s) const {
        scores(a, row, width, panels, scale, s, [](int64_t, const Vec<T>*, auto) REGARD_INLINED {});
    }

    // The same for the sum form: rows are tables, and so are panels.
    void sums(const T* a, int64_t row, const T* panels, T* s) const {
        for (int64_t panel = first / COLUMNS<T> * COLUMNS<T>; panel < last; panel += COLUMNS<T>) {
            const Sums<T> sums(c, panels + panel * table_width(c));
            for (int64_t g = 0; g < groups(); ++g) {
                const int64_t from = std::max(low[g], panel), to = std::min<int64_t>(high[g], panel + COLUMNS<T>);
                if (from >= to) continue;
                const Range range = sums.range(from - panel, to - panel);
                alike<4>(a, row, g, sums, range, [&](auto count, int64_t r, const Ways& ways) {
                    constexpr int R = decltype(count)::value;
                    T* to_ = s + r * LINE + panel;
                    const Vec<T> scale = splat(T(c.scale));
                    sums.template scores<R>(a + r * row, row, block.head[r], from - panel, to - panel, ways, [&](int64_t n, const Vec<T>* found) REGARD_INLINED {
                        REGARD_UNROLL for (int m = 0; m < R; ++m) store(to_ + m * LINE + n, found[m] * scale);
                    });
                });
            }
        }
    }
    // each(count, r, ways) for rows of group g: R at a time where they are of one head and go one way, else one by one.
    template <int R, class Each> void alike(const T* a, int64_t row, int64_t g, const Sums<T>& sums, const Range& range, Each each) const {
        for (int64_t r = g * GROUP, end = r + rows(g); r < end;) {
            const Ways ways = sums.ways(a + r * row, range);
            int64_t same = 1;
            while (same < R && r + same < end && block.head[r + same] == block.head[r] && sums.ways(a + (r + same) * row, range) == ways) ++same;
            if (same == R) {
                each(std::integral_constant<int, R>{}, r, ways);
                r += R;
            } else {
                each(std::integral_constant<int, 1>{}, r, ways);
                ++r;
            }
        }
    }

    // Whether scores are logits as they are: all of a span's columns are seen, and nothing is added.
    bool finished(const Span& span) const { return !c.form && !c.cap && !biased() && solid(span); }
    bool biased() const { return c.slopes || c.offset_table || c.dense_bias.data; }
    bool solid(const Span& span) const { return span.full && first % LANES<T> == 0 && last % LANES<T> == 0; }

    // Cap, mask and bias of row r, over columns low .. high - 1 of its group. Under slopes logits below `floor` count as hidden.
    // Returns the largest logit.
    T finish(int64_t r, const Span& span, T* x, T floor = NONE<T>) {
        const int64_t from = low[r / GROUP], to = high[r / GROUP];
        if (c.cap > 0)
            for (int64_t n = from; n < to; n += LANES<T>) store(x + n, tanh<T>(load(x + n) * splat(T(1 / c.cap))) * splat(T(c.cap)));
        if (!solid(span)) hide(r, span, x, from, to);
        const int kinds = (c.slopes != nullptr) + (c.offset_table != nullptr) + (c.dense_bias.data != nullptr);
        if (kinds == 0) return largest(x, from, to);
        if (kinds == 1) return max_of<T>(add_biases(r, x, from, to, floor));
        alignas(64) T biases[LINE];  // joined first: a score is rounded once more, however many there are
        std::fill(biases + from, biases + to, T(0));
        add_biases(r, biases, from, to, NONE<T>);
        Vec<T> best = splat(NONE<T>);
        for (int64_t n = from; n < to; n += LANES<T>) {
            const Vec<T> sum = plus(load(x + n), load(biases + n));
            best = max<T>(best, sum);
            store(x + n, sum);
        }
        return max_of<T>(best);
    }

    int64_t position(int64_t r) const { return c.query_start[block.b] + block.row[r]; }
    // j - i of column 0 in row r
    int64_t offset(int64_t r) const { return c.key_start + column0 - position(r); }

   private:
    std::vector<uint8_t> bytes_, space_;

    static T largest(const T* x, int64_t from, int64_t to) {
        Vec<T> best = splat(NONE<T>);
        for (int64_t n = from; n < to; n += LANES<T>) best = max<T>(best, load(x + n));
        return max_of<T>(best);
    }

    // A hidden pair stays hidden, whatever is added.
    REGARD_INLINE static Vec<T> plus(Vec<T> x, Vec<T> bias) {
        return ((x == splat(NONE<T>)) | (bias == splat(NONE<T>))) ? splat(NONE<T>) : Vec<T>(x + bias);
    }

    Vec<T> add_biases(int64_t r, T* x, int64_t from, int64_t to, T floor) const {
        Vec<T> best;
        if (c.slopes) best = add_slope(r, x, from, to, floor);
        if (c.offset_table) best = add_offsets(r, x, from, to);
        if (c.dense_bias.data) best = add_dense(r, x, std::max(from, first), std::min(to, last));
        return best;
    }
    // Each adds its bias to x, and returns the largest sum of every lane.
    Vec<T> add_slope(int64_t r, T* x, int64_t from, int64_t to, T floor) const {
        const Vec<T> slope = splat(static_cast<const T*>(c.slopes)[block.head[r]]);
        Vec<T> away = splat(T(offset(r) + from)) + iota<T>(), best = splat(NONE<T>);
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> sum = load(x + n) - slope * absolute<T>(away);
            sum = sum < splat(floor) ? splat(NONE<T>) : sum;
            best = max<T>(best, sum);
            store(x + n, sum);
            away += T(LANES<T>);
        }
        return best;
    }

    Vec<T> add_offsets(int64_t r, T* x, int64_t from, int64_t to) const {
        const T* table = static_cast<const T*>(c.offset_table) + (c.offset_heads > 1 ? block.head[r] : 0) * (2 * c.reach + 1);
        const int64_t start = offset(r) + c.reach, past = 2 * c.reach;  // the table's index of column n is start + n, clipped
        Vec<T> best = splat(NONE<T>);
        for (int64_t n = from; n < to; n += LANES<T>) {
            Vec<T> bias;
            if (start + n >= 0 && start + n + LANES<T> - 1 <= past)
                bias = load(table + start + n);
            else
                for (int64_t m = 0; m < LANES<T>; ++m) bias[m] = table[std::min(std::max<int64_t>(start + n + m, 0), past)];
            const Vec<T> sum = plus(load(x + n), bias);
            best = max<T>(best, sum);
            store(x + n, sum);
        }
        return best;
    }

    Vec<T> add_dense(int64_t r, T* x, int64_t from, int64_t to) const {
        const int64_t step = c.dense_bias.column;
        const T* bias = at<T>(c.dense_bias, block.b, block.head[r], block.row[r]) + column0 * step;
        Vec<T> best = splat(NONE<T>);
        int64_t n = from;
        if (step == 1)
            for (; n + LANES<T> <= to; n += LANES<T>) {
                const Vec<T> sum = plus(load(x + n), load(bias + n));
                best = max<T>(best, sum);
                store(x + n, sum);
            }
        for (; n < to; ++n) {
            x[n] = plus(splat(x[n]), splat(bias[n * step]))[0];
            best[0] = std::max(best[0], x[n]);
        }
        return best;
    }

    void hide(int64_t r, const Span& span, T* x, int64_t low_column, int64_t high_column) {
        int64_t from = first, to = last;
        if (!span.full && mask.band()) {
            const Run seen = mask.interval(block.b, block.row[r]);
            from = std::min(std::max(seen.start - column0, from), to);
            to = std::max(std::min(seen.stop - column0, to), from);
        } else if (!span.full) {
            bytes_.resize(SEGMENT + 64);
            mask.row(block.b, block.head[r], block.row[r], column0 + first, column0 + last, bytes_.data() + first, space_);
            int64_t n = first;
            for (; n + LANES<T> <= last; n += LANES<T>) {
                typename VectorOf<T>::bytes seen;
                std::memcpy(&seen, bytes_.data() + n, sizeof seen);
                store(x + n, __builtin_convertvector(seen, MaskVec<T>) != 0 ? load(x + n) : splat(NONE<T>));
            }
            for (; n < last; ++n) x[n] = bytes_[n] ? x[n] : NONE<T>;
        }
        if (from >= to) from = to = low_column;
        std::fill(x + low_column, x + std::max(low_column, from), NONE<T>);
        std::fill(x + std::max(to, low_column), x + std::max(high_column, std::max(to, low_column)), NONE<T>);
    }
};

// What dropout makes of columns from .. to - 1 of a row: `kept(n, mask)` for each vector, true where it stays.
template <class T, class Kept>
REGARD_INLINE void dropped(const regard_call& c, uint64_t key, int64_t j0, int64_t from, int64_t to, Kept kept) {
    typedef typename VectorOf<T>::counts U;
    U lanes;
    for (int n = 0; n < LANES<T>; ++n) lanes[n] = uint32_t(n);
    const U below = c.drop_below - U{};
    for (int64_t n = from; n < to; n += LANES<T>) {
        const U number = pair_number<U>(key, uint32_t(j0 + n) + lanes);
        const auto stays = number >= below;
        kept(n, MaskVec<T>(__builtin_convertvector(stays, MaskVec<T>)));
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
