// Scores of decoding: a few query rows against keys that are read in place, without packing.
//
//   for vector of LANES keys                    keys are read from memory once, prefetched
//     for LANES features of d_key               LANES × LANES numbers are transposed in registers
//       sums[R] += q[r][x] · keys               R accumulators, R = 2, 4 or 8
//
// The sums are those of the register tile, bit for bit: over d_key in order, in the chains of Chains::even.
#pragma once
#include "logits.h"

namespace regard {
namespace REGARD_ISA {

constexpr int DECODE_ROWS = 8;  // most query rows of a block

// sums[r] of R queries against the LANES keys at k. EDGE: only keys from .. to - 1 exist, the others count as zero.
template <class T, int R, bool EDGE, class S>
REGARD_INLINE void decode_sums(const T* q, int64_t step, const S* k, int64_t row, int64_t from, int64_t to,
                               int64_t depth, Vec<T>* sums, Prefetcher& caller_prefetcher) {
    Prefetcher prefetcher = caller_prefetcher;
    Vec<T> chain_sums[R];
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) sums[r] = chain_sums[r] = Vec<T>{};
    const int64_t chain = Chains::even(depth).each;
    for (int64_t x = 0, chain_end = chain; x < depth; x += LANES<T>) {
        if (x == chain_end) {
            chain_end += chain;
            REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) chain_sums[r] += sums[r], sums[r] = Vec<T>{};
        }
        Vec<T> rows[LANES<T>];
        REGARD_UNROLLED_FOR (int n = 0; n < LANES<T>; ++n) {
            rows[n] = EDGE && (n < from || n >= to) ? Vec<T>{} : load_widened<T>(k + n * row + x);
            prefetcher.template per_line<Vec<T>, S>(n);
        }
        transpose<T>(rows);
        REGARD_UNROLLED_FOR (int n = 0; n < LANES<T>; ++n)
            REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) sums[r] += splat(q[r * step + x + n]) * rows[n];
    }
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) sums[r] += chain_sums[r];
    caller_prefetcher = prefetcher;
}

// s[r][column] = scale · q · k of all rows of a block, at most DECODE_ROWS; `keys` is column 0. False if a score is not
// finite.
template <class T, class S>
bool decode_scores(const Logits<T, S>& logits, const T* q, int64_t step, const S* keys, T* s, Prefetcher& prefetcher) {
    const regard_call& c = logits.c;
    const Vec<T> scale = splat(T(c.scale));
    Vec<T> check{};
    const auto with_rows = [&](auto count) {
        constexpr int R = decltype(count)::value;
        for (int64_t n = logits.span_begin / LANES<T> * LANES<T>; n < logits.span_end; n += LANES<T>) {
            const int64_t from = std::max<int64_t>(0, -logits.column0 - n),
                          to = std::min<int64_t>(LANES<T>, c.keys - logits.column0 - n);
            Vec<T> sums[R];
            if (to - from == LANES<T>)
                decode_sums<T, R, false>(q, step, keys + n * c.key.row, c.key.row, from, to, c.d_key, sums, prefetcher);
            else
                decode_sums<T, R, true>(q, step, keys + n * c.key.row, c.key.row, from, to, c.d_key, sums, prefetcher);
            check += sums[0] * T(0);
            REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) store(s + r * ROW_STRIDE + n, sums[r] * scale);
        }
    };
    const int64_t rows = logits.block.count;
    rows > 4   ? with_rows(std::integral_constant<int, 8>{})
    : rows > 2 ? with_rows(std::integral_constant<int, 4>{})
               : with_rows(std::integral_constant<int, 2>{});
    return reduce_add<T>(check) == T(0);
}

}  // namespace REGARD_ISA
}  // namespace regard
