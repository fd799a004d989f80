// The forward pass. Every segment has a softmax of its own; segments are merged left to right, row by row, so a row's
// bits depend on its keys alone: not on the block, the thread, the batch or the number of queries.
#pragma once
#include "logits.h"
#include "pool.h"

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

// The state of the rows of a block, or what one segment adds to it: sums are relative to 2^top.
template <class T> struct RowState {
    alignas(64) T top[BLOCK], total[BLOCK], moment[BLOCK], reach[BLOCK];
    int64_t at[BLOCK];

    void clear() {
        for (int64_t r = 0; r < BLOCK; ++r) top[r] = NONE<T>, total[r] = moment[r] = reach[r] = T(0), at[r] = -1;
    }
    // Take in the segment to the right. `keep` and `take` are the factors of the two sides.
    void absorb(const RowState& next, int64_t count, T* keep, T* take) {
        for (int64_t r = 0; r < count; r += LANES<T>) {
            const Vec<T> old = load(top + r), peak = load(next.top + r), best = max<T>(old, peak);
            const auto none = best == splat(NONE<T>);
            const Vec<T> left = none ? splat(T(1)) : exp2(Vec<T>(old - best)), right = none ? Vec<T>{} : exp2(Vec<T>(peak - best));
            const Vec<T> sums = load(total + r), more = load(next.total + r);
            // a moment is the sum of p * log2 p over sums relative to the top, so it moves with the top
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

template <class T, class S> class Forward {
   public:
    // Passes that share a space are told apart by their number.
    Forward(const regard_call& c, const Mask& mask, T* space, int64_t number) : c_(c), logits_(c, mask), tiles_(c.d_value) {
        s_ = space;
        q_ = s_ + BLOCK * LINE + number * BLOCK * (up(c.d_key, 16) + tiles_.padded);
        out_ = q_ + BLOCK * up(c.d_key, 16);
    }
    static size_t space(const regard_call& c, int64_t passes) {
        return size_t(BLOCK * LINE + passes * BLOCK * (up(c.d_key, 16) + Tiles<T>(c.d_value).padded));
    }
    static size_t part(const regard_call& c) { return size_t(BLOCK * Tiles<T>(c.d_value).padded); }

    // False if a query is not finite.
    bool begin(const Block& block) {
        logits_.set_block(block);
        std::fill(out_, out_ + BLOCK * tiles_.padded, T(0));
        rows_.clear();
        return logits_.scaled(block, q_);
    }
    void segment(const Span& span, int64_t base, const Source<T>& source) {
        soften(span, base, source);
        rows_.absorb(here_, logits_.block.count, keep_, take_);
        weigh(source, [&](int64_t r, T* o, const Vec<T>* sums, auto count) {
            const Vec<T> keep = splat(keep_[r]), take = splat(take_[r]);
            each<decltype(count)::value>([&](int n) { store(o + n * LANES<T>, merged<T>(load(o + n * LANES<T>), keep, sums[n], take)); });
        });
    }
    // The same in two steps, for segments that are computed apart: first what one adds, then adding it.
    void apart(const Span& span, int64_t base, const Source<T>& source, T* out, RowState<T>& state) {
        soften(span, base, source);
        state = here_;
        std::fill(out, out + BLOCK * tiles_.padded, T(0));
        weigh(source, [&](int64_t r, T* o, const Vec<T>* sums, auto count) {
            (void)r;
            T* to = out + (o - out_);
            each<decltype(count)::value>([&](int n) { store(to + n * LANES<T>, sums[n]); });
        });
    }
    void add(const T* out, const RowState<T>& state) {
        rows_.absorb(state, logits_.block.count, keep_, take_);
        for (int64_t r = 0; r < logits_.block.count; ++r) {
            const Vec<T> keep = splat(keep_[r]), take = splat(take_[r]);
            for (int64_t x = r * tiles_.padded; x < (r + 1) * tiles_.padded; x += LANES<T>)
                store(out_ + x, merged<T>(load(out_ + x), keep, load(out + x), take));
        }
    }
    // False if a result is not finite.
    bool write() {
        Vec<T> check{};
        for (int64_t r = 0; r < logits_.block.count; ++r) write(r, check);
        return sum<T>(check) == T(0);
    }

   private:
    const regard_call& c_;
    Logits<T, S> logits_;
    Tiles<T> tiles_;
    T *q_, *s_, *out_;
    RowState<T> rows_, here_;
    alignas(64) T keep_[BLOCK], take_[BLOCK];

    // s_ becomes 2^(logit - top) of this segment; here_ its sums.
    void soften(const Span& span, int64_t base, const Source<T>& source) {
        logits_.set_span(span, base);
        logits_.scores(q_, c_.d_key, c_.d_key, source.panels, s_);
        const bool plain = !c_.cap && !c_.slopes && !c_.offset_table && !c_.dense_bias.data && span.full &&
                           logits_.first % LANES<T> == 0 && logits_.last % LANES<T> == 0;
        const int64_t count = logits_.block.count;
        here_.clear();
        for (int64_t r = 0; r < count; ++r) {
            T* x = s_ + r * LINE;
            if (!plain) logits_.finish(r, span, x);
            Vec<T> best = splat(NONE<T>);
            for (int64_t n = low(r); n < high(r); n += LANES<T>) best = max<T>(best, load(x + n));
            here_.top[r] = max_of<T>(best);
        }
        if (c_.peak_at || c_.max_logit)
            for (int64_t r = 0; r < count; ++r)
                if (here_.top[r] > rows_.top[r]) here_.at[r] = find(r, here_.top[r]);
        const auto all = [&](auto moment, auto reach, auto fades) {
            for (int64_t r = 0; r < count; ++r) powers<decltype(moment)::value, decltype(reach)::value, decltype(fades)::value>(r);
        };
        const std::true_type yes;
        const std::false_type no;
        // slopes make weights fade through the subnormal numbers, with which a product takes a hundred cycles
        const bool fades = c_.slopes && sizeof(T) == 4;
        if (!c_.entropy && !c_.distance)
            fades ? all(no, no, yes) : all(no, no, no);
        else if (!c_.distance)
            all(yes, no, yes);
        else
            all(yes, yes, yes);
        if (c_.drop_below)
            for (int64_t r = 0; r < count; ++r) {
                T* x = s_ + r * LINE;
                const uint64_t key = row_key(c_.seed, logits_.block.b, logits_.block.head[r], logits_.position(r));
                dropped<T>(c_, key, c_.key_start + base, low(r), high(r),
                           [&](int64_t n, MaskVec<T> stays) { store(x + n, stays ? load(x + n) : Vec<T>{}); });
            }
    }
    int64_t low(int64_t r) const { return logits_.low[r / GROUP]; }
    int64_t high(int64_t r) const { return logits_.high[r / GROUP]; }

    template <bool MOMENT, bool REACH, bool FADES> void powers(int64_t r) {
        T* x = s_ + r * LINE;
        const Vec<T> shift = splat(here_.top[r] == NONE<T> ? T(0) : here_.top[r]), floor = splat(T(-2000));
        Vec<T> total{}, moment{}, reach{}, away = splat(T(REACH ? logits_.offset(r) + low(r) : 0)) + iota<T>();
        const Vec<T> least = splat(FADES && c_.slopes && sizeof(T) == 4 ? T(-100) : NONE<T>);  // below it a weight counts as 0
        for (int64_t n = low(r); n < high(r); n += LANES<T>) {
            Vec<T> z = load(x + n) - shift;
            if (FADES) z = z < least ? splat(NONE<T>) : z;
            const Vec<T> p = exp2(z);
            total += p;
            if (MOMENT) moment += p * max<T>(floor, z);
            if (REACH) {
                reach += p * absolute<T>(away);
                away += T(LANES<T>);
            }
            store(x + n, p);
        }
        here_.total[r] = sum<T>(total);
        if (MOMENT) here_.moment[r] = sum<T>(moment);
        if (REACH) here_.reach[r] = sum<T>(reach);
    }

    // The first column of the peak; of a row that is not finite, the first that it sees.
    int64_t find(int64_t r, T peak) const {
        const T* x = s_ + r * LINE;
        for (int64_t n = low(r); n < high(r); n += LANES<T>) {
            const Vec<T> differs = load(x + n) == splat(peak) ? Vec<T>{} : splat(T(1));
            if (sum<T>(differs) == T(LANES<T>)) continue;
            for (int64_t m = n;; ++m)
                if (x[m] == peak) return logits_.column0 + m;
        }
        return logits_.column0 + logits_.first;
    }

    // done(r, place in out_, sums) of powers times values.
    template <class Done> void weigh(const Source<T>& source, Done done) {
        for (int64_t t = 0; t < tiles_.count; ++t)
            for (int64_t g = 0; g < logits_.groups(); ++g) {
                const int64_t from = std::max(logits_.low[g], logits_.first), to = std::min(logits_.high[g], logits_.last);
                T* o = out_ + g * GROUP * tiles_.padded + t * COLUMNS<T>;
                const int64_t step = source.step(tiles_, t);
                product<T>(s_ + g * GROUP * LINE + from, LINE, source.tile(t) + from * step, step, std::max<int64_t>(0, to - from),
                           logits_.rows(g), tiles_.vectors(t), [&](int64_t r, const Vec<T>* sums, auto count) {
                               done(g * GROUP + r, o + r * tiles_.padded, sums, count);
                           });
            }
    }

    void write(int64_t r, Vec<T>& check) {
        const Block& block = logits_.block;
        const int64_t heads = c_.kv_heads * c_.group, place = (block.b * heads + block.head[r]) * c_.queries + block.row[r];
        T top = rows_.top[r], total = rows_.total[r];
        const bool none = total == T(0);
        const double seen = double(total);
        double moment = double(rows_.moment[r]), shrunk = 1;
        if (c_.sink) {  // one more key, without a value
            const T sink = T(double(static_cast<const T*>(c_.sink)[block.head[r]]) * LOG2E), best = std::max(top, sink);
            shrunk = none ? 0.0 : std::exp2(double(top) - double(best));
            moment = none ? 0.0 : shrunk * (moment + (double(top) - double(best)) * seen);
            total = T(seen * shrunk + std::exp2(double(sink) - double(best)));
            top = best;
        }
        const T scale = none ? T(0) : T(c_.keep_scale * shrunk / double(total));
        T* from = out_ + r * tiles_.padded;
        for (int64_t x = 0; x < tiles_.padded; x += LANES<T>) {
            const Vec<T> out = load(from + x) * scale;
            check += out * T(0);
            store(from + x, out);
        }
        std::memcpy(static_cast<T*>(c_.out) + place * c_.d_value, from, size_t(c_.d_value) * sizeof(T));
        if (c_.top) static_cast<T*>(c_.top)[place] = none ? NONE<T> : top, static_cast<T*>(c_.total)[place] = none ? T(0) : total;
        if (!none) check[0] += (top + total) * T(0);
        const double log = (none && !c_.sink) || !(c_.lse || c_.entropy) ? 0.0 : std::log2(double(total));
        const T nothing = c_.sink ? static_cast<const T*>(c_.sink)[block.head[r]] : NONE<T>;
        if (c_.lse) static_cast<T*>(c_.lse)[place] = none ? nothing : T((double(top) + log) * LN2);
        if (c_.entropy)
            static_cast<T*>(c_.entropy)[place] = none ? T(0) : T((log * seen * shrunk - moment) / double(total) * LN2);
        if (c_.peak) static_cast<T*>(c_.peak)[place] = none ? T(0) : T(shrunk / double(total));
        if (c_.peak_at) c_.peak_at[place] = none ? -1 : rows_.at[r];
        if (c_.distance) static_cast<T*>(c_.distance)[place] = none ? T(0) : T(double(rows_.reach[r]) * shrunk / double(total));
        if (c_.max_logit) static_cast<T*>(c_.max_logit)[place] = none ? NONE<T> : rows_.at[r] < 0 ? rows_.top[r] : logits_.natural(r, rows_.at[r]);
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
