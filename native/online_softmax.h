// Online softmax: the running state of the rows of a block, and the rescaling that merges another segment into it.
//
//   row_max' = max(row_max, segment.row_max)
//   row_sum' = row_sum · exp((row_max − row_max') / τ) + segment.row_sum · exp((segment.row_max − row_max') / τ)
//
// and the same factors rescale the output rows. Every segment has a softmax of its own; segments are merged from left
// to right, so the bits of a row depend on its own keys only.
#pragma once
#include "logits.h"

namespace regard {
namespace REGARD_ISA {

// Keep x from being contracted into a multiply-add, so that every place that merges rounds alike.
template <class V> REGARD_INLINE V uncontracted(V x) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__("" : "+x"(x));
#elif defined(__aarch64__)
    __asm__("" : "+w"(x));
#endif
    return x;
}
template <class T>
REGARD_INLINE Vec<T> rescale_and_add(Vec<T> old, Vec<T> rescale_old, Vec<T> added, Vec<T> rescale_added) {
    return old * rescale_old + uncontracted<Vec<T>>(added * rescale_added);
}

// Per row of a block, for all keys so far or for one segment; p = exp((logit − row_max) / temperature).
template <class T> struct RowState {
    alignas(64) T row_max[QUERY_BLOCK];         // largest logit, before the temperature
    alignas(64) T row_sum[QUERY_BLOCK];         // Σ p
    alignas(64) T entropy_moment[QUERY_BLOCK];  // Σ p · (logit − row_max)
    alignas(64) T distance_sum[QUERY_BLOCK];    // Σ p · |i − j|
    int64_t argmax[QUERY_BLOCK];                // key column of row_max; -1 if none

    void clear() {
        for (int64_t r = 0; r < QUERY_BLOCK; r += LANES<T>) {
            store(row_max + r, splat(MINUS_INF<T>));
            for (T* sums : {row_sum, entropy_moment, distance_sum}) store(sums + r, Vec<T>{});
        }
        std::fill(argmax, argmax + QUERY_BLOCK, -1);
    }
    // Merge the segment to the right. rescale_old and rescale_added receive the factors for the two sides' output rows.
    template <class S> void merge(const RowState& added, const Logits<T, S>& logits, T* rescale_old, T* rescale_added) {
        for (int64_t r = 0; r < logits.block.count; r += LANES<T>) {
            const Vec<T> old_max = load(row_max + r), added_max = load(added.row_max + r),
                         new_max = max<T>(old_max, added_max);
            const auto none = new_max == splat(MINUS_INF<T>);
            const ExponentFactor<Vec<T>> factor = logits.exponent_factors(r);
            const Vec<T> left = none ? splat(T(1)) : exp2(Vec<T>(old_max - new_max), factor);
            const Vec<T> right = none ? Vec<T>{} : exp2(Vec<T>(added_max - new_max), factor);
            const Vec<T> old_sum = load(row_sum + r), added_sum = load(added.row_sum + r);
            // the moment is relative to row_max, so it shifts with it
            const Vec<T> old_moment = old_max == splat(MINUS_INF<T>)
                                          ? Vec<T>{}
                                          : Vec<T>(load(entropy_moment + r) + (old_max - new_max) * old_sum);
            const Vec<T> added_moment =
                added_max == splat(MINUS_INF<T>)
                    ? Vec<T>{}
                    : Vec<T>(load(added.entropy_moment + r) + (added_max - new_max) * added_sum);
            store(entropy_moment + r, rescale_and_add<T>(old_moment, left, added_moment, right));
            store(row_sum + r, rescale_and_add<T>(old_sum, left, added_sum, right));
            store(distance_sum + r,
                  rescale_and_add<T>(load(distance_sum + r), left, load(added.distance_sum + r), right));
            for (int64_t n = r; n < r + LANES<T>; ++n)
                argmax[n] = added.row_max[n] > row_max[n] ? added.argmax[n] : argmax[n];
            store(row_max + r, new_max);
            store(rescale_old + r, left);
            store(rescale_added + r, right);
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
