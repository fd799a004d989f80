// The logits of a block of rows against one segment, in base 2: log2(e) / tau times (score + bias); hidden pairs at -inf.
#pragma once
#include <cmath>

#include "functions.h"
#include "packed.h"

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
    T unit[BLOCK], rest[BLOCK];       // log2(e) / tau of each row, and what rounding took from it
    int64_t column0, first, last;     // the key column of column 0; the columns that some row sees
    int64_t low[GROUPS], high[GROUPS];  // the columns that a group of rows computes, whole vectors

    Logits(const regard_call& call, const Mask& m) : c(call), mask(m) {}

    void set_block(const Block& next) {
        block = next;
        for (int64_t r = 0; r < block.count; ++r) {
            const double exact = LOG2E / tau(block.head[r]);
            unit[r] = T(exact), rest[r] = T(exact - double(unit[r]));
        }
    }
    int64_t groups() const { return parts(block.count, GROUP); }
    int64_t rows(int64_t g) const { return std::min<int64_t>(GROUP, block.count - g * GROUP); }
    double tau(int64_t h) const { return c.temperature ? double(static_cast<const T*>(c.temperature)[h]) : 1.0; }

    // The queries of a block, times what makes q . k a logit (or, under a cap, the argument of tanh). Whether all are finite.
    bool scaled(const Block& next, T* rows) const {
        Vec<T> check{};
        for (int64_t r = 0; r < next.count; ++r) {
            // in two parts, because a rounded factor would shift all logits alike
            const double factor = c.cap > 0 ? c.scale / c.cap : c.scale * LOG2E / tau(next.head[r]);
            const T most = T(factor), rest = T(factor - double(most));
            T* row = rows + r * c.d_key;
            copy_row<T>(at<S>(c.query, next.b, next.head[r], next.row[r]), c.query.column, c.d_key, row);
            int64_t x = 0;
            for (; x + LANES<T> <= c.d_key; x += LANES<T>) {
                const Vec<T> q = load(row + x);
                check += q * T(0);
                store(row + x, q * most + q * rest);
            }
            T tail = 0;
            for (; x < c.d_key; ++x) {
                tail += row[x] * T(0);
                row[x] = row[x] * most + row[x] * rest;
            }
            check += splat(tail);
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

    // s[r][column] = a[r * row ...] . key over `width`, for the columns of each group; panels hold the keys from column 0.
    void scores(const T* a, int64_t row, int64_t width, const T* panels, T* s) const {
        for (int64_t panel = first / COLUMNS<T> * COLUMNS<T>; panel < last; panel += COLUMNS<T>)
            for (int64_t g = 0; g < groups(); ++g) {
                const int64_t from = std::max(low[g], panel), to = std::min<int64_t>(high[g], panel + COLUMNS<T>);
                if (from >= to) continue;
                T* out = s + g * GROUP * LINE + from;
                product<T>(a + g * GROUP * row, row, panels + panel * width + from - panel, COLUMNS<T>, width, rows(g),
                           (to - from) / LANES<T>, [&](int64_t r, const Vec<T>* sums, auto count) {
                               each<decltype(count)::value>([&](int n) { store(out + r * LINE + n * LANES<T>, sums[n]); });
                           });
            }
    }

    // Cap, bias and mask of row r, over columns low .. high - 1 of its group.
    void finish(int64_t r, const Span& span, T* x) {
        const int64_t from = low[r / GROUP], to = high[r / GROUP];
        if (c.cap > 0)
            for (int64_t n = from; n < to; n += LANES<T>) store(x + n, tanh<T>(load(x + n)) * splat<T>(T(c.cap) * unit[r]));
        if (c.slopes) add_slope(r, x, from, to);
        if (c.offset_table) add_offsets(r, x, from, to);
        if (c.dense_bias.data) add_dense(r, x);
        hide(r, span, x, from, to);
    }

    int64_t position(int64_t r) const { return c.query_start[block.b] + block.row[r]; }
    // j - i of column 0 in row r
    int64_t offset(int64_t r) const { return c.key_start + column0 - position(r); }

    // One logit as the tiles make it, from a row of `scaled`.
    T single(int64_t r, const T* row, int64_t column) const {
        const int64_t h = block.head[r], away = c.key_start + column - position(r);
        const S* k = at<S>(c.key, block.b, block.kv, column);
        T x = 0;
        for (int64_t n = 0; n < c.d_key; ++n) x += row[n] * widen<T>(k[n * c.key.column]);
        if (c.cap > 0) x = tanh<T>(splat(x))[0] * (T(c.cap) * unit[r]);
        if (c.slopes) x += T(-double(static_cast<const T*>(c.slopes)[h]) * LOG2E / tau(h) * double(away < 0 ? -away : away));
        if (c.offset_table) x = plus(x, tabled(h, away), r);
        if (c.dense_bias.data) x = plus(x, at<T>(c.dense_bias, block.b, h, block.row[r])[column * c.dense_bias.column], r);
        return x;
    }

    // The finished logit of row r and a key in natural units, before tau.
    T natural(int64_t r, int64_t column) const {
        const int64_t h = block.head[r], away = c.key_start + column - position(r);
        const S *q = at<S>(c.query, block.b, h, block.row[r]), *k = at<S>(c.key, block.b, block.kv, column);
        double x = 0;
        for (int64_t n = 0; n < c.d_key; ++n) x += double(widen<T>(q[n * c.query.column])) * double(widen<T>(k[n * c.key.column]));
        x *= c.scale;
        if (c.cap > 0) x = c.cap * std::tanh(x / c.cap);
        if (c.slopes) x -= double(static_cast<const T*>(c.slopes)[h]) * double(away < 0 ? -away : away);
        if (c.offset_table) x += double(tabled(h, away));
        if (c.dense_bias.data) x += double(at<T>(c.dense_bias, block.b, h, block.row[r])[column * c.dense_bias.column]);
        return T(x);
    }

   private:
    std::vector<uint8_t> bytes_, space_;

    T tabled(int64_t h, int64_t away) const {
        const T* table = static_cast<const T*>(c.offset_table) + (c.offset_heads > 1 ? h : 0) * (2 * c.reach + 1);
        return table[std::min(std::max(away, -c.reach), c.reach) + c.reach];
    }

    // A finite bias never hides, however low: base 2 must not carry it past the lowest number.
    REGARD_INLINE Vec<T> plus(Vec<T> x, Vec<T> bias, int64_t r) const {
        const Vec<T> lowest = splat(std::numeric_limits<T>::lowest()), sum = (x + bias * rest[r]) + bias * unit[r];
        return ((bias == splat(NONE<T>)) | (x == splat(NONE<T>))) ? splat(NONE<T>) : max<T>(lowest, sum);
    }
    T plus(T x, T bias, int64_t r) const { return plus(splat(x), splat(bias), r)[0]; }

    void add_slope(int64_t r, T* x, int64_t from, int64_t to) const {
        const double exact = -double(static_cast<const T*>(c.slopes)[block.head[r]]) * LOG2E / tau(block.head[r]);
        const T most = T(exact);
        const Vec<T> slope = splat(most), left = splat(T(exact - double(most)));
        Vec<T> away = splat(T(offset(r) + from)) + iota<T>();
        for (int64_t n = from; n < to; n += LANES<T>) {
            const Vec<T> size = absolute<T>(away);
            store(x + n, (load(x + n) + left * size) + slope * size);
            away += T(LANES<T>);
        }
    }

    void add_offsets(int64_t r, T* x, int64_t from, int64_t to) const {
        const T* table = static_cast<const T*>(c.offset_table) + (c.offset_heads > 1 ? block.head[r] : 0) * (2 * c.reach + 1);
        const int64_t start = offset(r) + c.reach, past = 2 * c.reach;  // the table's index of column n is start + n, clipped
        for (int64_t n = from; n < to; n += LANES<T>) {
            if (start + n >= 0 && start + n + LANES<T> - 1 <= past) {
                store(x + n, plus(load(x + n), load(table + start + n), r));
            } else {
                for (int64_t m = n; m < n + LANES<T>; ++m) x[m] = plus(x[m], table[std::min(std::max<int64_t>(start + m, 0), past)], r);
            }
        }
    }

    void add_dense(int64_t r, T* x) const {
        const int64_t step = c.dense_bias.column;
        const T* from = at<T>(c.dense_bias, block.b, block.head[r], block.row[r]) + column0 * step;
        int64_t n = first;
        if (step == 1)
            for (; n + LANES<T> <= last; n += LANES<T>) store(x + n, plus(load(x + n), load(from + n), r));
        for (; n < last; ++n) x[n] = plus(x[n], from[n * step], r);
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
