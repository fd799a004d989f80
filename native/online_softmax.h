// Online softmax.
#pragma once
#include "logits.h"

namespace regard {
namespace REGARD_ISA {

// Kept out of contraction, so that every place that merges rounds alike.
template <class V> REGARD_INLINE V rounded(V x) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__("" : "+x"(x));
#elif defined(__aarch64__)
    __asm__("" : "+w"(x));
#endif
    return x;
}
template <class T> REGARD_INLINE Vec<T> merged(Vec<T> left, Vec<T> keep, Vec<T> right, Vec<T> take) {
    return left * keep + rounded<Vec<T>>(right * take);
}

// The state of the rows of a block, or what one segment adds to it: sums are relative to the power of the top, which is a
// logit before tau; the moment is in its units.
template <class T> struct RowState {
    alignas(64) T top[BLOCK], total[BLOCK], moment[BLOCK], reach[BLOCK];
    int64_t at[BLOCK];

    void clear() {
        for (int64_t r = 0; r < BLOCK; r += LANES<T>) {
            store(top + r, splat(NONE<T>));
            for (T* sums : {total, moment, reach}) store(sums + r, Vec<T>{});
        }
        std::fill(at, at + BLOCK, -1);
    }
    // Take in the segment to the right. `keep` and `take` are the factors of the two sides.
    template <class S> void absorb(const RowState& next, const Logits<T, S>& logits, T* keep, T* take) {
        for (int64_t r = 0; r < logits.block.count; r += LANES<T>) {
            const Vec<T> old = load(top + r), peak = load(next.top + r), best = max<T>(old, peak);
            const auto none = best == splat(NONE<T>);
            const Factor<Vec<T>> factor = logits.factors(r);
            const Vec<T> left = none ? splat(T(1)) : exp2(Vec<T>(old - best), factor), right = none ? Vec<T>{} : exp2(Vec<T>(peak - best), factor);
            const Vec<T> sums = load(total + r), more = load(next.total + r);
            // a moment is the sum of p * (x - top), so it moves with the top
            const Vec<T> before = old == splat(NONE<T>) ? Vec<T>{} : Vec<T>(load(moment + r) + (old - best) * sums);
            const Vec<T> after = peak == splat(NONE<T>) ? Vec<T>{} : Vec<T>(load(next.moment + r) + (peak - best) * more);
            store(moment + r, merged<T>(before, left, after, right));
            store(total + r, merged<T>(sums, left, more, right));
            store(reach + r, merged<T>(load(reach + r), left, load(next.reach + r), right));
            for (int64_t n = r; n < r + LANES<T>; ++n) at[n] = next.top[n] > top[n] ? next.at[n] : at[n];
            store(top + r, best);
            store(keep + r, left);
            store(take + r, right);
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
