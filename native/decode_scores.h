// Scores of a few query rows against keys where they lie: a square of keys is turned in registers, and used at once. The sums are
// those of the register tile, bit for bit.
#pragma once
#include "logits.h"

namespace regard {
namespace REGARD_ISA {

constexpr int FEW = 8;  // query rows

// sums[r] of R queries against as many keys as a vector has lanes; those before `from` and behind `to` are not there.
template <class T, int R, bool EDGE, class S>
REGARD_INLINE void few_sums(const T* q, int64_t step, const S* k, int64_t row, int64_t from, int64_t to, int64_t depth, Vec<T>* sums, Ahead& given) {
    Ahead ahead = given;
    Vec<T> before[R];
    REGARD_UNROLL for (int r = 0; r < R; ++r) sums[r] = before[r] = Vec<T>{};
    const int64_t chain = Chains::even(depth).each;
    for (int64_t x = 0, edge = chain; x < depth; x += LANES<T>) {
        if (x == edge) {
            edge += chain;
            REGARD_UNROLL for (int r = 0; r < R; ++r) before[r] += sums[r], sums[r] = Vec<T>{};
        }
        Vec<T> rows[LANES<T>];
        REGARD_UNROLL for (int n = 0; n < LANES<T>; ++n) {
            rows[n] = EDGE && (n < from || n >= to) ? Vec<T>{} : load_wide<T>(k + n * row + x);
            ahead.template line<Vec<T>, S>(n);
        }
        transpose<T>(rows);
        REGARD_UNROLL for (int n = 0; n < LANES<T>; ++n)
            REGARD_UNROLL for (int r = 0; r < R; ++r) sums[r] += splat(q[r * step + x + n]) * rows[n];
    }
    REGARD_UNROLL for (int r = 0; r < R; ++r) sums[r] += before[r];
    given = ahead;
}

// s[r][column] of all rows of a block, at most FEW. `keys` is column 0. False if a score is not finite.
template <class T, class S>
bool few_scores(const Logits<T, S>& logits, const T* q, int64_t step, const S* keys, T* s, Ahead& ahead) {
    const regard_call& c = logits.c;
    const Vec<T> scale = splat(T(c.scale));
    Vec<T> check{};
    const auto all = [&](auto count) {
        constexpr int R = decltype(count)::value;
        for (int64_t n = logits.first / LANES<T> * LANES<T>; n < logits.last; n += LANES<T>) {
            const int64_t from = std::max<int64_t>(0, -logits.column0 - n), to = std::min<int64_t>(LANES<T>, c.keys - logits.column0 - n);
            Vec<T> sums[R];
            if (to - from == LANES<T>)
                few_sums<T, R, false>(q, step, keys + n * c.key.row, c.key.row, from, to, c.d_key, sums, ahead);
            else
                few_sums<T, R, true>(q, step, keys + n * c.key.row, c.key.row, from, to, c.d_key, sums, ahead);
            check += sums[0] * T(0);
            REGARD_UNROLL for (int r = 0; r < R; ++r) store(s + r * LINE + n, sums[r] * scale);
        }
    };
    const int64_t rows = logits.block.count;
    rows > 4 ? all(std::integral_constant<int, 8>{}) : rows > 2 ? all(std::integral_constant<int, 4>{}) : all(std::integral_constant<int, 2>{});
    return sum<T>(check) == T(0);
}

}  // namespace REGARD_ISA
}  // namespace regard
