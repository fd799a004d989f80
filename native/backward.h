// The backward pass, in one sweep: key blocks outside, query blocks inside, five products for each pair of blocks.
// Keys are cut into chunks by their number alone; the chunks' shares of dQ, and of tables, are added in order. So no bit
// depends on the number of threads, and none of dQ on the other queries, heads and batch rows of the call.
#pragma once
#include <optional>

#include "additive_backward.h"
#include "online_softmax.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

template <class T, class S> class Backward {
   public:
    Backward(BackwardPlan<T, S>& plan, const Stop& stop, T* space)
        : p_(plan), c_(plan.c), logits_(plan.c, plan.mask), stop_(stop) {
        k_panels_ = take(space, KEYS * table_width(c_));
        v_panels_ = take(space, KEYS * c_.d_value);
        k_rows_ = take(space, KEYS * p_.d);
        dk_ = take(space, KEYS * p_.d);
        dv_ = take(space, KEYS * p_.dv);
        s_ = take(space, BLOCK * LINE);
        g_ = take(space, BLOCK * LINE) + MARGIN;
        if (c_.form) sums_.emplace(c_, space);
        if (c_.grad_offset_table) std::fill(g_ - MARGIN, g_ - MARGIN + BLOCK * LINE, T(0));
    }
    static size_t space(const BackwardPlan<T, S>& p) {
        int64_t size = 2 * room(BLOCK * LINE) + (p.c.form ? SumBackward<T, S>::space(p.c) : 0);
        for (int64_t width : {table_width(p.c), p.c.d_value, p.d, p.d, p.dv}) size += room(KEYS * width);
        return size_t(size);
    }

    // `dq` takes this chunk's share.
    void run(int64_t lane, int64_t chunk, T* dq) {
        const int64_t unit = lane * p_.chunks + chunk;
        lane_ = lane, chunk_ = chunk, b_ = lane / c_.kv_heads, kv_ = lane % c_.kv_heads, dq_ = dq;
        d_table_ = c_.grad_offset_table ? p_.tables.data() + unit * p_.table() : nullptr;
        d_tau_ = c_.grad_temperature ? p_.taus.data() + unit * c_.group : nullptr;
        d_weights_ = c_.grad_v ? p_.weights.data() + unit * c_.group * c_.d_key : nullptr;
        std::fill(dq_, dq_ + p_.share(), T(0));
        if (d_tau_ && chunk == 0 && (c_.grad_lse || c_.sink)) shift_temperature();
        const int64_t from = p_.key_blocks * chunk / p_.chunks, to = p_.key_blocks * (chunk + 1) / p_.chunks;
        for (int64_t kb = from; kb < to && !stop_.now(); ++kb) key_block(kb * KEYS - p_.pad);
    }

   private:
    BackwardPlan<T, S>& p_;
    const regard_call& c_;
    Logits<T, S> logits_;
    const Stop& stop_;
    T *k_panels_, *v_panels_, *k_rows_, *dk_, *dv_, *s_, *g_, *dq_, *d_table_;
    std::optional<SumBackward<T, S>> sums_;
    double *d_tau_, *d_weights_;
    T norm_ = 0;  // under slopes: the largest of the loaded keys
    int64_t lane_, chunk_, b_, kv_, low_, high_;

    // What row_gradient leaves out of the temperature's gradient: it takes logits relative to the row's largest, and the
    // gradients of a row of logits, its sink among them, add up to that of its lse. Where the sink has most of the weight,
    // that difference would cancel, and row_gradient takes the logits themselves.
    void shift_temperature() {
        for (int64_t h = kv_ * c_.group; h < (kv_ + 1) * c_.group; ++h)
            for (int64_t place = (b_ * p_.heads + h) * c_.queries; place < (b_ * p_.heads + h + 1) * c_.queries; ++place) {
                if (!p_.sound(place) || p_.below_sink(logits_, place, h)) continue;
                double sum = c_.grad_lse ? double(static_cast<const T*>(c_.grad_lse)[place]) : 0.0;
                if (c_.sink) sum -= double(p_.sinks[size_t(place)]);
                d_tau_[h - kv_ * c_.group] -= sum * double(static_cast<const T*>(c_.top)[place]) / (logits_.tau(h) * logits_.tau(h));
            }
    }

    void key_block(int64_t column0) {
        const int64_t begin = std::max<int64_t>(0, column0), end = std::min(c_.keys, column0 + KEYS);
        bool loaded = false;
        const int64_t used = std::min<int64_t>(KEYS, up(end - column0, COLUMNS<T>));
        std::fill(dk_, dk_ + used * p_.d, T(0));
        std::fill(dv_, dv_ + used * p_.dv, T(0));
        for (int64_t number = p_.blocks.per_lane - 1; number >= 0; --number) {
            const int64_t unit = lane_ * p_.blocks.per_lane + number;
            const Span span = span_of(p_.seen[size_t(unit)], begin, end);
            if (span.start == span.stop) continue;
            if (!loaded) load_keys(column0, begin, end);
            loaded = true;
            logits_.set_block(p_.blocks.at(c_, lane_, number));
            if (!p_.reaches.empty() && faint(span)) continue;
            logits_.set_span(span, column0);
            pair(unit, span);
        }
        for (int64_t column = begin; column < end; ++column) {
            const int64_t row = lane_ * c_.keys + column, n = column - column0;
            if (c_.form)
                sums_->key_gradient(dk_, n, static_cast<T*>(c_.grad_key) + row * c_.d_key);
            else
                std::copy(dk_ + n * p_.d, dk_ + n * p_.d + c_.d_key, static_cast<T*>(c_.grad_key) + row * c_.d_key);
            std::copy(dv_ + n * p_.dv, dv_ + n * p_.dv + c_.d_value, static_cast<T*>(c_.grad_value) + row * c_.d_value);
        }
    }

    // Whether all weights of a block and a span are 0: as in the forward pass, but the rows' largest logits are known.
    bool faint(const Span& span) const {
        for (int64_t r = 0; r < logits_.block.count; ++r) {
            const int64_t place = p_.index(logits_.block, r);
            const T least = static_cast<const T*>(c_.top)[place] + logits_.least[r];
            if (!Faint<T, S>::nothing(logits_, r, span.start, span.stop, p_.reaches[size_t(place)] * norm_, least)) return false;
        }
        return true;
    }

    void load_keys(int64_t column0, int64_t begin, int64_t end) {
        const int64_t skip = begin - column0;
        for (int64_t n = 0; n < end - column0; n += COLUMNS<T>) {
            const int64_t jump = std::max<int64_t>(0, skip - n), row = std::min(column0 + n + jump, c_.keys - 1);
            const KeyPanel<T> panel(c_, k_panels_ + n * table_width(c_));
            pack_panel<T>(at<S>(c_.key, b_, kv_, row), c_.key.row, c_.key.column, jump, end - column0 - n, c_.d_key, panel.raw());
            panel.make(c_);
            pack_panel<T>(at<S>(c_.value, b_, kv_, row), c_.value.row, c_.value.column, jump, end - column0 - n, c_.d_value, v_panels_ + n * c_.d_value);
        }
        if (c_.form) return;
        if (!p_.reaches.empty()) norm_ = largest_norm(k_panels_, end - column0, c_.d_key);
        std::fill(k_rows_, k_rows_ + std::min<int64_t>(KEYS, up(end - column0, COLUMNS<T>)) * p_.d, T(0));
        for (int64_t column = begin; column < end; ++column)
            copy_row<T>(at<S>(c_.key, b_, kv_, column), c_.key.column, c_.d_key, k_rows_ + (column - column0) * p_.d);
    }

    // One block of queries against one block of keys.
    void pair(int64_t unit, const Span& span) {
        const Block& block = logits_.block;
        const T *q = p_.query + unit * BLOCK * p_.step, *d_out = p_.grad + unit * BLOCK * p_.dv;
        if (c_.form)
            logits_.sums(q, p_.step, k_panels_, s_);
        else
            logits_.scores(q, p_.d, c_.d_key, k_panels_, T(c_.scale), s_);
        logits_.scores(d_out, p_.dv, c_.d_value, v_panels_, T(1), g_);
        low_ = KEYS, high_ = 0;
        for (int64_t g = 0; g < logits_.groups(); ++g)
            if (logits_.low[g] < logits_.high[g]) low_ = std::min(low_, logits_.low[g]), high_ = std::max(high_, logits_.high[g]);
        if (d_table_) low_ = 0, high_ = KEYS;  // diagonals cross all columns: those that nobody sees must be 0
        for (int64_t r = 0; r < block.count; ++r) row_gradient(r, span);
        if (d_table_ && !(c_.cap > 0)) table_gradients();
        const int64_t strip = span.full ? KEYS : STRIP;
        for (int64_t from = low_; from < high_; from += strip) {
            const int64_t to = std::min<int64_t>(from + strip, high_);
            int64_t row0 = block.count, row1 = 0;  // the rows that see any of these keys
            for (int64_t g = 0; g < logits_.groups(); ++g)
                if (logits_.low[g] < to && logits_.high[g] > from)
                    row0 = std::min<int64_t>(row0, g * GROUP), row1 = std::min<int64_t>(block.count, (g + 1) * GROUP);
            columns(s_ + row0 * LINE + from, d_out + row0 * p_.dv, p_.dv, row1 - row0, to - from, dv_ + from * p_.dv);
            if (!c_.form) columns(g_ + row0 * LINE + from, q + row0 * p_.d, p_.d, row1 - row0, to - from, dk_ + from * p_.d);
        }
        if (c_.form)
            return sums_->pair(logits_, q, p_.step, k_panels_, g_, low_, high_, dk_, d_weights_, p_.totals + (chunk_ + 1) * p_.rows(), [&](int64_t r) { return dq_line(r); });
        for (int64_t g = 0; g < logits_.groups(); ++g) queries(g);
    }

    // to[key] += sum over rows of a[row][key] * b[row], for `keys` keys.
    static void columns(const T* a, const T* b, int64_t width, int64_t rows, int64_t keys, T* to) {
        if (rows <= 0) return;
        for (int64_t x = 0; x < width; x += COLUMNS<T>)
            product<T, BY_COLUMNS>(a, LINE, b + x, width, rows, keys, std::min<int64_t>(COLUMNS<T>, width - x) / LANES<T>,
                       [&](int64_t k, const Vec<T>* sums, auto count) REGARD_INLINED {
                           T* line = to + k * width + x;
                           each<decltype(count)::value>([&](int n) REGARD_INLINED { store(line + n * LANES<T>, load(line + n * LANES<T>) + sums[n]); });
                       });
    }

    T* dq_line(int64_t r) const {
        const Block& block = logits_.block;
        return dq_ + ((block.head[r] - kv_ * c_.group) * c_.queries + block.row[r]) * c_.d_key;
    }

    // dQ of a group of rows. Where keys are narrow little else rounds, and short chains cost little.
    int64_t chain() const { return c_.d_key <= 16 ? KEYS / 4 : KEYS / 2; }
    void queries(int64_t g) {
        const int64_t from = logits_.low[g], to = logits_.high[g];
        if (from >= to) return;
        for (int64_t x = 0; x < p_.d; x += COLUMNS<T>)
            product<T>(g_ + g * GROUP * LINE + from, LINE, k_rows_ + from * p_.d + x, p_.d, to - from, logits_.rows(g),
                       std::min<int64_t>(COLUMNS<T>, p_.d - x) / LANES<T>, [&](int64_t n, const Vec<T>* sums, auto count) REGARD_INLINED {
                           const int64_t r = g * GROUP + n;
                           T* line = dq_line(r) + x;
                           each<decltype(count)::value>([&](int v) REGARD_INLINED {
                               T* to_ = line + v * LANES<T>;
                               if (x + (v + 1) * LANES<T> <= c_.d_key)
                                   store(to_, load(to_) + sums[v]);
                               else
                                   for (int64_t m = 0; m < c_.d_key - x - v * LANES<T>; ++m) to_[m] += sums[v][m];
                           });
                       }, Chains{chain() - from % chain(), chain()});
    }

    // Row r: s_ holds q.k and becomes the (dropped) weights; g_ holds dO.v and becomes the gradient of the score.
    void row_gradient(int64_t r, const Span& span) {
        const bool special = c_.grad_entropy || d_tau_ || c_.grad_dense.data || c_.cap > 0;
        if (c_.drop_below)
            special ? row_gradient<true, true>(r, span) : row_gradient<true, false>(r, span);
        else
            special ? row_gradient<false, true>(r, span) : row_gradient<false, false>(r, span);
    }
    // Whether all keys that a row sees are of this block.
    bool alone(int64_t r) const {
        if (p_.key_blocks == 1) return true;
        if (!p_.mask.band()) return false;
        const Run seen = p_.mask.interval(b_, logits_.block.row[r]);
        return seen.start >= logits_.column0 && seen.stop <= logits_.column0 + KEYS;
    }
    // Σ p · dP of such a row. As a sum over the weights themselves it errs as its parts do, and less is left of that in dP − Σ p · dP.
    template <bool DROPS> T met(int64_t r, Vec<T> shift, Vec<T> inverse, const T* factors) const {
        const T *x = s_ + r * LINE, *g = g_ + r * LINE;
        const Factor<Vec<T>> factor = logits_.factor(r);
        Vec<T> sums{};
        for (int64_t n = logits_.low[r / GROUP]; n < logits_.high[r / GROUP]; n += LANES<T>) {
            const Vec<T> z = load(x + n) - shift, p = exp2(z, factor) * inverse;
            const Vec<T> dw = DROPS ? Vec<T>(load(g + n) * load(factors + n)) : load(g + n);
            sums += z == splat(NONE<T>) ? Vec<T>{} : Vec<T>(p * dw);
        }
        return sum<T>(sums);
    }
    template <bool DROPS, bool SPECIAL> void row_gradient(int64_t r, const Span& span) {
        const Block& block = logits_.block;
        const int64_t low = logits_.low[r / GROUP], high = logits_.high[r / GROUP], h = block.head[r], place = p_.index(block, r);
        T *x = s_ + r * LINE, *g = g_ + r * LINE;
        const T top = static_cast<const T*>(c_.top)[place], total = static_cast<const T*>(c_.total)[place];
        if (!p_.sound(place)) {
            std::fill(x + low_, x + high_, T(0));
            std::fill(g + low_, g + high_, T(0));
            return;
        }
        alignas(64) T capped[KEYS], factors[KEYS], changes[KEYS];
        if (SPECIAL && c_.cap > 0)
            for (int64_t n = low; n < high; n += LANES<T>) store(capped + n, tanh<T>(load(x + n) * splat(T(1 / c_.cap))));
        logits_.finish(r, span, x);
        if (DROPS)
            dropped<T>(c_, row_key(c_.seed, b_, h, logits_.position(r)), c_.key_start + logits_.column0, low, high,
                       [&](int64_t n, MaskVec<T> stays) { store(factors + n, stays ? splat(T(c_.keep_scale)) : Vec<T>{}); });
        const Factor<Vec<T>> factor = logits_.factor(r);
        const Vec<T> inverse = splat(T(1) / total), shift = splat(top);
        const Vec<T> constant = splat(alone(r) ? p_.rest[place] - met<DROPS>(r, shift, inverse, factors) : p_.constant[place]), outer = splat(T(c_.scale / logits_.tau(h)));
        const bool mixed = SPECIAL && c_.grad_entropy;
        const Vec<T> d_entropy = splat(mixed ? static_cast<const T*>(c_.grad_entropy)[place] : T(0));
        const Vec<T> log_total = splat(mixed ? T(std::log(double(total))) : T(0)), unit = splat(T(1 / logits_.tau(h)));
        const Vec<T> base = splat(SPECIAL && d_tau_ && p_.below_sink(logits_, place, h) ? top : T(0));
        Vec<T> d_tau{};
        for (int64_t n = low; n < high; n += LANES<T>) {
            const Vec<T> z = load(x + n) - shift, p = exp2(z, factor) * inverse;
            const auto hidden = z == splat(NONE<T>);
            Vec<T> dw = load(g + n);
            if (DROPS) dw = rounded<Vec<T>>(dw * load(factors + n));  // as in the sum that is subtracted
            dw = dw + constant;
            if (mixed) dw = dw - d_entropy * (hidden ? Vec<T>{} : Vec<T>(max<T>(factor.least, z) * unit - log_total));
            const Vec<T> dx = hidden ? Vec<T>{} : Vec<T>(p * dw);
            store(x + n, DROPS ? Vec<T>(p * load(factors + n)) : p);
            Vec<T> ds = dx * outer;
            if (SPECIAL) {
                if (d_tau_) d_tau += hidden ? Vec<T>{} : Vec<T>(dx * (z + base));
                if (c_.cap > 0) ds = ds * (splat(T(1)) - load(capped + n) * load(capped + n));
                store(changes + n, dx);
            }
            store(g + n, ds);
        }
        for (T* line : {x, g}) {
            std::fill(line + low_, line + std::max(low_, std::min(low, high_)), T(0));
            std::fill(line + std::min(high_, std::max(high, low_)), line + high_, T(0));
        }
        if (SPECIAL && d_tau_) d_tau_[h - kv_ * c_.group] -= double(sum<T>(d_tau)) / (logits_.tau(h) * logits_.tau(h));
        if (SPECIAL && d_table_ && c_.cap > 0) table_gradient(r, changes);
        if (SPECIAL && c_.grad_dense.data) dense_gradient(r, place, changes);
    }

    // Sums of g_ along its diagonals, where j − i is the same, head by head; g_ is `scale` times the table's gradient.
    void table_gradients() {
        static_assert(MARGIN >= BLOCK && KEYS + 2 * MARGIN <= LINE, "a diagonal must end in zeros");
        const Block& block = logits_.block;
        const int64_t past = 2 * c_.reach, each = block.row1 - block.row0;
        const T inverse = T(1 / c_.scale);
        for (int64_t first = 0; first < block.count; first += each) {
            T* table = d_table_ + (c_.offset_heads > 1 ? block.head[first] - kv_ * c_.group : 0) * (past + 1);
            const int64_t start = logits_.offset(first) + c_.reach;  // the table's index of (first, column 0)
            const T* rows = g_ + first * LINE;
            if (start + low_ - each + 1 >= past || start + high_ - 1 <= 0) {  // all of it beyond the reach
                Vec<T> sums{};
                for (int64_t r = 0; r < each; ++r)
                    for (int64_t n = low_; n < high_; n += LANES<T>) sums += load(rows + r * LINE + n);
                table[start + low_ > 0 ? past : 0] += sum<T>(sums) * inverse;
                continue;
            }
            for (int64_t n = low_ - up(each - 1, LANES<T>); n < high_; n += LANES<T>) {
                Vec<T> sums{};
                for (int64_t r = 0; r < each; ++r) sums += load(rows + r * LINE + n + r);
                if (start + n >= 0 && start + n + LANES<T> - 1 <= past) {
                    store(table + start + n, load(table + start + n) + sums * inverse);
                } else {
                    for (int64_t m = 0; m < LANES<T>; ++m) table[std::min(std::max<int64_t>(start + n + m, 0), past)] += sums[m] * inverse;
                }
            }
        }
    }

    void table_gradient(int64_t r, const T* changes) {
        const int64_t h = logits_.block.head[r], start = logits_.offset(r) + c_.reach, past = 2 * c_.reach;
        T* table = d_table_ + (c_.offset_heads > 1 ? h - kv_ * c_.group : 0) * (past + 1);
        const T inverse = T(1 / logits_.tau(h));
        const int64_t from = std::max(logits_.first, logits_.low[r / GROUP]), to = std::min(logits_.last, logits_.high[r / GROUP]);
        for (int64_t n = from; n < to;) {
            if (n + LANES<T> <= to && start + n >= 0 && start + n + LANES<T> - 1 <= past) {
                store(table + start + n, load(table + start + n) + load(changes + n) * inverse);
                n += LANES<T>;
            } else {
                table[std::min(std::max<int64_t>(start + n, 0), past)] += changes[n] * inverse;
                ++n;
            }
        }
    }

    void dense_gradient(int64_t r, int64_t place, const T* changes) {
        const int64_t h = logits_.block.head[r];
        const regard_tensor& to = c_.grad_dense;
        const T inverse = T(1 / logits_.tau(h));
        const int64_t from = std::max(logits_.first, logits_.low[r / GROUP]), past = std::min(logits_.last, logits_.high[r / GROUP]);
        if (p_.dense_rows) {
            for (int64_t n = from; n < past; ++n) p_.row_shares[chunk_ * p_.rows() + place] += changes[n] * inverse;
            return;
        }
        T* line = static_cast<T*>(to.data) + b_ * to.batch + h * to.head + logits_.block.row[r] * to.row + logits_.column0 * to.column;
        for (int64_t n = from; n < past; ++n) line[n * to.column] += changes[n] * inverse;
    }
};

template <class T, class S> int backward(const regard_call& c, Spaces<T>& spaces) {
    const Stop stop(c.stop, c.progress);
    const int64_t threads = useful_threads(c);
    BackwardPlan<T, S> plan(c, threads);
    plan.place(spaces.shared.get(plan.size()));
    const Blocks& blocks = plan.blocks;
    if (int64_t(spaces.workers.size()) < threads) spaces.workers.resize(size_t(threads));
    parallel(blocks.total, threads, stop, [&](int64_t unit, int64_t) { plan.load_block(unit / blocks.per_lane, unit % blocks.per_lane); });

    const size_t own = Backward<T, S>::space(plan);
    const auto some_chunks = [&](int64_t lane, int64_t split, int64_t worker) {
        T* space = spaces.worker(worker, own + (plan.splits > 1 ? 0 : size_t(room(plan.share()))));
        Backward<T, S> pass(plan, stop, space);
        for (int64_t chunk = plan.chunks * split / plan.splits; chunk < plan.chunks * (split + 1) / plan.splits; ++chunk) {
            T* dq = plan.splits > 1 ? plan.share_of(lane, chunk) : space + own;
            pass.run(lane, chunk, open(dq, plan.share()));
            if (plan.splits == 1) plan.add_queries(lane, chunk, dq);
        }
    };
    if (plan.shared_dense)  // one thread adds to a part of the dense bias, one lane after another
        parallel(plan.splits, threads, stop, [&](int64_t split, int64_t worker) {
            for (int64_t lane = 0; lane < blocks.lanes; ++lane) some_chunks(lane, split, worker);
        });
    else
        parallel(blocks.lanes * plan.splits, threads, stop,
                 [&](int64_t unit, int64_t worker) { some_chunks(unit / plan.splits, unit % plan.splits, worker); });
    if (plan.splits > 1)
        parallel(blocks.lanes, threads, stop, [&](int64_t lane, int64_t) {
            for (int64_t chunk = 0; chunk < plan.chunks; ++chunk)
                plan.add_queries(lane, chunk, plan.share_of(lane, chunk));
        });
    if (c.form && !(c.cap > 0)) parallel(blocks.lanes, threads, stop, [&](int64_t lane, int64_t) { settle(plan, lane); });
    plan.add_tables();
    return stop.now() ? REGARD_STOPPED : REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
