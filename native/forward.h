// The forward pass. Every segment has a softmax of its own; segments are merged left to right, row by row, so a row's
// bits depend on its keys alone: not on the block, the thread, the batch or the number of queries.
#pragma once
#include "alibi_skipping.h"
#include "decode_scores.h"
#include "online_softmax.h"

namespace regard {
namespace REGARD_ISA {

constexpr int64_t QUARTER = SEGMENT / 4;
constexpr double SINK_ABOVE = 44;  // how far above the largest logit a sink may be before the row's top moves

template <class T, class S> class Forward {
   public:
    // Passes that share a space are told apart by their number.
    Forward(const regard_call& c, const Mask& mask, T* space, int64_t number) : c_(c), logits_(c, mask), tiles_(c.d_value) {
        const int64_t queries = BLOCK * up(query_width(c), 16), outs = BLOCK * tiles_.padded;
        s_ = take(space, BLOCK * LINE);
        space += number * (room(queries) + room(outs));
        q_ = take(space, queries);
        out_ = take(space, outs);
    }
    static size_t space(const regard_call& c, int64_t passes) {
        return size_t(room(BLOCK * LINE) + passes * (room(BLOCK * up(query_width(c), 16)) + room(BLOCK * Tiles<T>(c.d_value).padded)));
    }
    static size_t part(const regard_call& c) { return size_t(room(BLOCK * Tiles<T>(c.d_value).padded)); }

    // False if a query is not finite.
    bool begin(const Block& block) {
        logits_.set_block(block);
        std::fill(out_, out_ + BLOCK * tiles_.padded, T(0));
        rows_.clear();
        const bool finite = logits_.queries(block, q_, query_width(c_));
        if (Faint<T, S>::applies(c_)) faint_.set(logits_, q_, query_width(c_));
        return finite;
    }
    // Whether a segment adds nothing to any row; `norm` is the largest of its keys.
    bool faint(const Span& span, T norm) const { return faint_.all(logits_, span.start, span.stop, norm); }
    // `norm` is the largest of its keys', if that is known.
    void segment(const Span& span, int64_t base, const Source<T>& source, Ahead& ahead, T norm = std::numeric_limits<T>::infinity()) {
        soften(span, base, source, ahead, norm);
        rows_.absorb(here_, logits_, keep_, take_);
        weigh(source, [&](int64_t r, T* o, const Vec<T>* sums, auto count) REGARD_INLINED {
            const Vec<T> keep = splat(keep_[r]), take = splat(take_[r]);
            each<decltype(count)::value>([&](int n) REGARD_INLINED { store(o + n * LANES<T>, merged<T>(load(o + n * LANES<T>), keep, sums[n], take)); });
        }, ahead);
    }
    // The same in two steps, for segments that are computed apart: first what one adds, then adding it.
    void apart(const Span& span, int64_t base, const Source<T>& source, T* out, RowState<T>& state, Ahead& ahead) {
        soften(span, base, source, ahead, std::numeric_limits<T>::infinity());
        state = here_;
        open(out, BLOCK * tiles_.padded);
        std::fill(out, out + BLOCK * tiles_.padded, T(0));
        weigh(source, [&](int64_t r, T* o, const Vec<T>* sums, auto count) REGARD_INLINED {
            (void)r;
            T* to = out + (o - out_);
            each<decltype(count)::value>([&](int n) REGARD_INLINED { store(to + n * LANES<T>, sums[n]); });
        }, ahead);
    }
    void add(const T* out, const RowState<T>& state) {
        rows_.absorb(state, logits_, keep_, take_);
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
        return finite_ && sum<T>(check) == T(0);
    }

   private:
    const regard_call& c_;
    Logits<T, S> logits_;
    bool finite_ = true;
    Tiles<T> tiles_;
    T *q_, *s_, *out_;
    RowState<T> rows_, here_;
    Faint<T, S> faint_;
    alignas(64) T keep_[BLOCK], take_[BLOCK];

    // s_ becomes the powers of logit - top of this segment; here_ their sums.
    void soften(const Span& span, int64_t base, const Source<T>& source, Ahead& ahead, T norm) {
        logits_.set_span(span, base);
        const bool fades = Faint<T, S>::applies(c_);
        if (fades && std::isfinite(norm)) faint_.narrow(logits_, norm);
        const int64_t count = logits_.block.count;
        here_.clear();
        if (source.keys) {
            finite_ &= few_scores<T>(logits_, q_, c_.d_key, static_cast<const S*>(source.keys), s_, ahead);
            for (int64_t r = 0; r < count; ++r) here_.top[r] = logits_.finish(r, span, s_ + r * LINE, fades ? faint_.floor[r] : NONE<T>);
        } else if (logits_.finished(span)) {
            alignas(64) T best[BLOCK * LANES<T>];
            for (int64_t r = 0; r < count; ++r) store(best + r * LANES<T>, splat(NONE<T>));
            logits_.scores(q_, c_.d_key, c_.d_key, source.panels, T(c_.scale), s_, [&](int64_t r, const Vec<T>* sums, auto count) REGARD_INLINED {
                Vec<T> most = load(best + r * LANES<T>);
                each<decltype(count)::value>([&](int n) REGARD_INLINED { most = max<T>(most, sums[n]); });
                store(best + r * LANES<T>, most);
            });
            for (int64_t r = 0; r < count; ++r) here_.top[r] = max_of<T>(load(best + r * LANES<T>)) * T(c_.scale);
        } else {
            if (c_.form)
                logits_.sums(q_, query_width(c_), source.panels, s_);
            else
                logits_.scores(q_, c_.d_key, c_.d_key, source.panels, T(c_.scale), s_);
            for (int64_t r = 0; r < count; ++r) here_.top[r] = logits_.finish(r, span, s_ + r * LINE, fades ? faint_.floor[r] : NONE<T>);
        }
        if (c_.peak_at)
            for (int64_t r = 0; r < count; ++r)
                if (here_.top[r] > rows_.top[r]) here_.at[r] = find(r, here_.top[r]);
        c_.distance ? powers<true, true>() : c_.entropy ? powers<true, false>() : powers<false, false>();
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

    template <bool MOMENT, bool REACH> void powers() {
        for (int64_t r = 0; r < logits_.block.count; ++r) powers<MOMENT, REACH>(r);
    }
    template <bool MOMENT, bool REACH> REGARD_INLINE void powers(int64_t r) {
        T* x = s_ + r * LINE;
        const Factor<Vec<T>> factor = logits_.factor(r);
        const Vec<T> shift = splat(here_.top[r] == NONE<T> ? T(0) : here_.top[r]);
        Vec<T> total{}, moment{}, reach{}, away = splat(T(REACH ? logits_.offset(r) + low(r) : 0)) + iota<T>();
        for (int64_t n = low(r), end = high(r); n < end; n += LANES<T>) {
            const Vec<T> z = load(x + n) - shift, p = exp2(z, factor);
            total += p;
            if (MOMENT) moment += p * max<T>(factor.least, z);
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

    // done(r, place in out_, sums) of powers times values; the quarters of a segment are summed apart.
    template <class Done> void weigh(const Source<T>& source, Done done, Ahead& ahead) {
        for (int64_t t = 0; t < tiles_.count; ++t)
            for (int64_t g = 0; g < logits_.groups(); ++g) {
                const int64_t from = std::max(logits_.low[g], logits_.first), to = std::max(from, std::min(logits_.high[g], logits_.last));
                const int64_t step = source.step(tiles_, t);
                const Chains chains{QUARTER - from % QUARTER, QUARTER};
                T* o = out_ + g * GROUP * tiles_.padded + t * COLUMNS<T>;
                const auto finish = [&](int64_t r, const Vec<T>* sums, auto count) REGARD_INLINED { done(g * GROUP + r, o + r * tiles_.padded, sums, count); };
                product<T>(s_ + g * GROUP * LINE + from, LINE, source.tile(t) + from * step, step, to - from, logits_.rows(g), tiles_.vectors(t), finish, chains, ahead);
            }
    }

    void write(int64_t r, Vec<T>& check) {
        const Block& block = logits_.block;
        const int64_t heads = c_.kv_heads * c_.group, place = (block.b * heads + block.head[r]) * c_.queries + block.row[r];
        T top = rows_.top[r], total = rows_.total[r];
        const bool none = total == T(0);
        const double seen = double(total), unit = 1 / logits_.tau(block.head[r]);
        double moment = double(rows_.moment[r]) * unit, shrunk = 1, lse = 0;
        if (c_.sink && !none) {  // one more key, without a value; far above all others, it moves the top
            const double sink = double(static_cast<const T*>(c_.sink)[block.head[r]]), old = double(top);
            if (c_.lse) {  // the larger and what the smaller adds: top + log(total) would cancel under a large sink
                const double keys = old * unit + std::log(seen), most = std::max(keys, sink);
                lse = most + std::log1p(std::exp(std::min(keys, sink) - most));
            }
            top = std::max(top, T((sink - SINK_ABOVE) / unit));
            shrunk = std::exp((old - double(top)) * unit);
            moment = shrunk == 0 ? 0.0 : shrunk * (moment + (old - double(top)) * unit * seen);
            total = T(seen * shrunk + std::exp(sink - double(top) * unit));
        }
        const double exact = none ? 0.0 : c_.keep_scale * shrunk / double(total);
        const T scale = T(exact), rest = T(exact - double(scale));
        T* from = out_ + r * tiles_.padded;
        for (int64_t x = 0; x < tiles_.padded; x += LANES<T>) {
            const Vec<T> sums = load(from + x), out = sums * scale + sums * rest;
            check += out * T(0);
            store(from + x, out);
        }
        std::copy(from, from + c_.d_value, static_cast<T*>(c_.out) + place * c_.d_value);  // of no width, to no memory
        if (!none && !std::isfinite(T(double(top) * unit))) top = std::numeric_limits<T>::quiet_NaN();  // past the largest number
        if (c_.top) static_cast<T*>(c_.top)[place] = none ? NONE<T> : top, static_cast<T*>(c_.total)[place] = none ? T(0) : total;
        if (!none) check[0] += (top + total) * T(0);
        const double log = none || !(c_.lse || c_.entropy) ? 0.0 : std::log(double(total));
        const T nothing = c_.sink ? static_cast<const T*>(c_.sink)[block.head[r]] : NONE<T>;
        if (!c_.sink) lse = double(top) * unit + log;
        if (c_.lse) static_cast<T*>(c_.lse)[place] = none ? nothing : T(lse);
        if (c_.entropy) static_cast<T*>(c_.entropy)[place] = none ? T(0) : T((log * seen * shrunk - moment) / double(total));
        if (c_.peak) static_cast<T*>(c_.peak)[place] = none ? T(0) : T(shrunk / double(total));
        if (c_.peak_at) c_.peak_at[place] = none ? -1 : rows_.at[r];
        if (c_.distance) static_cast<T*>(c_.distance)[place] = none ? T(0) : T(double(rows_.reach[r]) * shrunk / double(total));
        if (c_.max_logit) static_cast<T*>(c_.max_logit)[place] = rows_.top[r];
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
