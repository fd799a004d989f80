// Under slopes, keys far away count as nothing: a logit that is so far below one which the row has for sure, that of the nearest
// key it sees, that its power counts as 0. A logit is at most scale·‖q‖·‖k‖ − slope·|i − j|; where that is below, whole tiles and
// columns are left out. Whether a pair counts depends on its logit itself, so no bit depends on what was left out.
#pragma once
#include "logits.h"

namespace regard {
namespace REGARD_ISA {

// The sum of products in double: its rounding is not seen in what is compared here.
template <class T> inline double wide_product(const T* a, const T* b, int64_t count) {
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
    return sum<double>(sums) + rest;
}

// The largest norm of `count` keys in panels.
template <class T> inline T largest_norm(const T* panels, int64_t count, int64_t width) {
    Vec<T> best{};
    for (int64_t panel = 0; panel < count; panel += COLUMNS<T>)
        for (int64_t n = 0; n < COLUMNS<T>; n += LANES<T>) {
            Vec<T> squares{};
            for (int64_t x = 0; x < width; ++x) {
                const Vec<T> key = load(panels + panel * width + x * COLUMNS<T> + n);
                squares += key * key;
            }
            best = max<T>(best, squares);
        }
    return std::sqrt(max_of<T>(best));
}

template <class T, class S> class Faint {
   public:
    // Below which a logit counts as nothing, row by row.
    alignas(64) T floor[BLOCK];

    static bool applies(const regard_call& c) { return c.slopes && !c.form && !c.offset_table && !c.dense_bias.data; }

    // The rows of a block, which stand in `q`, `width` numbers apart.
    void set(const Logits<T, S>& logits, const T* q, int64_t width) {
        const regard_call& c = logits.c;
        const Block& block = logits.block;
        std::vector<T> key(size_t(c.d_key));
        for (int64_t r = 0; r < BLOCK; ++r) floor[r] = NONE<T>;
        for (int64_t r = 0; r < block.count; ++r) {
            const T* row = q + r * width;
            size[r] = reach_of(c, row);
            if (!logits.mask.band()) continue;
            const Run seen = logits.mask.interval(block.b, block.row[r]);
            if (seen.start >= seen.stop) continue;
            const int64_t i = logits.position(r) - c.key_start, j = std::min(std::max(i, seen.start), seen.stop - 1);
            copy_row<T>(at<S>(c.key, block.b, block.kv, j), c.key.column, c.d_key, key.data());
            double logit = c.scale * wide_product(row, key.data(), c.d_key);
            if (c.cap > 0) logit = c.cap * std::tanh(logit / c.cap);
            logit -= double(slope(logits, r)) * double(std::abs(i - j));
            if (std::isfinite(logit)) floor[r] = T(logit + double(logits.least[r]));
        }
    }
    // The most that a query makes of a key of norm 1, roundings included.
    static T reach_of(const regard_call& c, const T* row) { return T(1.001 * c.scale * std::sqrt(wide_product(row, row, c.d_key))); }

    // Whether no row of the block takes in anything of keys start .. stop - 1, whose norms are at most `norm`.
    bool all(const Logits<T, S>& logits, int64_t start, int64_t stop, T norm) const {
        for (int64_t r = 0; r < logits.block.count; ++r)
            if (!nothing(logits, r, start, stop, size[r] * norm, floor[r])) return false;
        return true;
    }
    // Leaves out the columns of each group in which no row takes in anything of keys whose norms are at most `norm`.
    void narrow(Logits<T, S>& logits, T norm) const {
        const double cap = logits.c.cap > 0 ? logits.c.cap : std::numeric_limits<double>::infinity();
        for (int64_t g = 0; g < logits.groups(); ++g) {
            double from = double(logits.high[g]), to = double(logits.low[g]);
            for (int64_t r = g * GROUP; r < g * GROUP + logits.rows(g); ++r) {
                const double steep = 0.9999 * double(slope(logits, r)), largest = std::min(double(size[r]) * double(norm), cap);
                const double away = (largest - double(floor[r])) / steep + 1, column = double(-logits.offset(r));  // of the query itself
                if (!(steep > 0 && away >= 0)) return;
                from = std::min(from, column - away), to = std::max(to, column + away);
            }
            const int64_t low = int64_t(std::max(from, 0.0)) / LANES<T> * LANES<T>, high = up(int64_t(std::min(to, double(SEGMENT))) + 1, LANES<T>);
            logits.low[g] = std::max(logits.low[g], low), logits.high[g] = std::min(logits.high[g], high);
            if (logits.low[g] >= logits.high[g]) logits.low[g] = logits.high[g] = 0;
        }
    }
    static bool nothing(const Logits<T, S>& logits, int64_t r, int64_t start, int64_t stop, T largest, T least) {
        const int64_t i = logits.position(r) - logits.c.key_start;
        const T away = T(std::max<int64_t>(0, std::max(start - i, i - stop + 1))), steep = slope(logits, r);
        if (logits.c.cap > 0) largest = std::min(largest, T(logits.c.cap));
        return steep >= T(0) && largest - T(0.9999) * steep * away < least;
    }

   private:
    T size[BLOCK];
    static T slope(const Logits<T, S>& logits, int64_t r) { return static_cast<const T*>(logits.c.slopes)[logits.block.head[r]]; }
};

}  // namespace REGARD_ISA
}  // namespace regard
