// ALiBi: skip keys that are too far away to count. A logit is at most scale·‖q‖·‖k‖ − slope·|i − j|. Where this is so
// far below a logit that the row certainly has, that of the nearest key it sees, that exp gives 0, whole segments,
// blocks and columns are skipped. Whether a pair counts is decided by its own logit (Logits::to_logits, `floor`), so no
// bit depends on what is skipped.
#pragma once
#include "logits.h"

namespace regard {
namespace REGARD_ISA {

// A dot product in double: its rounding does not matter for bounds.
template <class T> inline double dot_in_double(const T* a, const T* b, int64_t count) {
    constexpr int W = LANES<double>;
    typedef T Narrow __attribute__((vector_size(W * sizeof(T))));
    Vec<double> sums{};
    int64_t x = 0;
    for (; x + W <= count; x += W) {
        Narrow left, right;
        std::memcpy(&left, a + x, sizeof left);
        std::memcpy(&right, b + x, sizeof right);
        sums += __builtin_convertvector(left, Vec<double>) * __builtin_convertvector(right, Vec<double>);
    }
    double rest = 0;
    for (; x < count; ++x) rest += double(a[x]) * double(b[x]);
    return reduce_add<double>(sums) + rest;
}

// The largest norm of `count` keys in panels.
template <class T> inline T max_key_norm(const T* panels, int64_t count, int64_t width) {
    Vec<T> best{};
    for (int64_t panel = 0; panel < count; panel += TILE_COLUMNS<T>)
        for (int64_t n = 0; n < TILE_COLUMNS<T>; n += LANES<T>) {
            Vec<T> squares{};
            for (int64_t x = 0; x < width; ++x) {
                const Vec<T> key = load(panels + panel * width + x * TILE_COLUMNS<T> + n);
                squares += key * key;
            }
            best = max<T>(best, squares);
        }
    return std::sqrt(reduce_max<T>(best));
}

template <class T, class S> class AlibiSkipping {
   public:
    // Logits below count as hidden, per row of the block.
    alignas(64) T floor[QUERY_BLOCK];

    static bool applies(const regard_call& c) { return c.slopes && !c.form && !c.offset_table && !c.dense_bias.data; }

    // Compute the bounds for the rows of a block; `q` holds them, `width` numbers apart.
    void set_block(const Logits<T, S>& logits, const T* q, int64_t width) {
        const regard_call& c = logits.c;
        const QueryBlock& block = logits.block;
        std::vector<T> key(size_t(c.d_key));
        for (int64_t r = 0; r < QUERY_BLOCK; ++r) floor[r] = MINUS_INF<T>;
        for (int64_t r = 0; r < block.count; ++r) {
            const T* row = q + r * width;
            norm_factor[r] = query_bound(c, row);
            if (!logits.mask.is_band()) continue;
            const Run visible = logits.mask.interval(block.b, block.row[r]);
            if (visible.start >= visible.stop) continue;
            const int64_t i = logits.position(r) - c.key_start,
                          j = std::min(std::max(i, visible.start), visible.stop - 1);
            copy_row<T>(row_pointer<S>(c.key, block.b, block.kv, j), c.key.column, c.d_key, key.data());
            double logit = c.scale * dot_in_double(row, key.data(), c.d_key);
            if (c.cap > 0) logit = c.cap * std::tanh(logit / c.cap);
            logit -= double(slope(logits, r)) * double(std::abs(i - j));
            if (std::isfinite(logit)) floor[r] = T(logit + double(logits.cutoff[r]));
        }
    }
    // The largest score of a query with a key of norm 1, with a margin for rounding.
    static T query_bound(const regard_call& c, const T* row) {
        return T(1.001 * c.scale * std::sqrt(dot_in_double(row, row, c.d_key)));
    }

    // Whether keys start .. stop - 1, with norms of at most `norm`, count for no row of the block.
    bool skips_all(const Logits<T, S>& logits, int64_t start, int64_t stop, T norm) const {
        for (int64_t r = 0; r < logits.block.count; ++r)
            if (!skips(logits, r, start, stop, norm_factor[r] * norm, floor[r])) return false;
        return true;
    }
    // Shrink the column range of each row group to the columns that may count, for keys with norms of at most `norm`.
    void shrink_columns(Logits<T, S>& logits, T norm) const {
        const double cap = logits.c.cap > 0 ? logits.c.cap : std::numeric_limits<double>::infinity();
        for (int64_t g = 0; g < logits.row_groups(); ++g) {
            double from = double(logits.column_end[g]), to = double(logits.column_begin[g]);
            for (int64_t r = g * ROW_GROUP; r < g * ROW_GROUP + logits.rows(g); ++r) {
                const double slope_below = 0.9999 * double(slope(logits, r)),
                             largest = std::min(double(norm_factor[r]) * double(norm), cap);
                const double reach = (largest - double(floor[r])) / slope_below + 1,
                             column = double(-logits.offset(r));  // of the query itself
                if (!(slope_below > 0 && reach >= 0)) return;
                from = std::min(from, column - reach), to = std::max(to, column + reach);
            }
            const int64_t low = int64_t(std::max(from, 0.0)) / LANES<T> * LANES<T>,
                          high = round_up(int64_t(std::min(to, double(SEGMENT))) + 1, LANES<T>);
            logits.column_begin[g] = std::max(logits.column_begin[g], low),
            logits.column_end[g] = std::min(logits.column_end[g], high);
            if (logits.column_begin[g] >= logits.column_end[g]) logits.column_begin[g] = logits.column_end[g] = 0;
        }
    }
    // Whether keys start .. stop - 1, with scores of at most `largest`, stay below `least` in row r.
    static bool skips(const Logits<T, S>& logits, int64_t r, int64_t start, int64_t stop, T largest, T least) {
        const int64_t i = logits.position(r) - logits.c.key_start;
        const T distance = T(std::max<int64_t>(0, std::max(start - i, i - stop + 1))), alibi_slope = slope(logits, r);
        if (logits.c.cap > 0) largest = std::min(largest, T(logits.c.cap));
        return alibi_slope >= T(0) && largest - T(0.9999) * alibi_slope * distance < least;
    }

   private:
    T norm_factor[QUERY_BLOCK];  // query_bound of each row
    static T slope(const Logits<T, S>& logits, int64_t r) {
        return static_cast<const T*>(logits.c.slopes)[logits.block.head[r]];
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
