// The backward pass (FlashAttention-2's loops: key blocks outside, query blocks inside), in one sweep.
//
//   for batch_head, for chunk of key blocks                   run; backward_schedule.h: threads
//     for block of KEY_BLOCK = 128 keys                       key_block: packs K and V into panels; dK = dV = 0
//       for block of QUERY_BLOCK = 48 rows, first to last     block_pair; skipped if it has no visible pair
//         s  = scale · Q Kᵀ                                   1  register tiles over d_key,   by row group
//         dP = dO Vᵀ                                          2  register tiles over d_value, by row group
//         row by row:  p = exp(logit − row_max) / row_sum     row_gradient: s becomes p (dropout applied),
//                      ds = p · (dP + constant) · scale / τ   dP becomes ds; gradients of biases and τ
//         for KEY_GROUP of keys (all of them if no mask)      only rows that see a key of the group
//           dV += pᵀ dO                                       3  register tiles over the rows
//           dK += dsᵀ Q                                       4  register tiles over the rows
//         dQ += ds K                                          5  register tiles over the keys, by row group
//
//   registers   accumulators of one register tile
//   L1          one panel, the rows of one row group
//   L2          s and dP (48 × 272 each), Q and dO of the block, panels and rows of K, panels of V, dK, dV
//   memory      queries and dO by block (backward_workspace.h), dQ of the chunk
//
// Order of sums: dK and dV over the query blocks, first to last. dQ over the key blocks of a chunk, then the chunks in
// order; the chunks follow from the number of keys alone. So no bit depends on the number of threads, and none of dQ on
// the other queries, heads and batch rows of the call. Additive scores replace 1, 4 and 5 by additive_scores.h and
// additive_backward.h.
//
// Template parameters: T compute type, S storage type (simd.h); DROPS: dropout is on; SPECIAL: entropy gradient,
// temperature gradient, dense bias gradient or cap.
#pragma once
#include <optional>

#include "additive_backward.h"
#include "online_softmax.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

template <class T, class S> class Backward {
   public:
    Backward(BackwardWorkspace<T, S>& shared, const CallControl& control, T* space)
        : shared_(shared), c_(shared.c), logits_(shared.c, shared.mask), control_(control) {
        k_panels_ = allocate(space, KEY_BLOCK * key_table_width(c_));
        v_panels_ = allocate(space, KEY_BLOCK * c_.d_value);
        k_rows_ = allocate(space, KEY_BLOCK * shared_.d);
        dk_ = allocate(space, KEY_BLOCK * shared_.d);
        dv_ = allocate(space, KEY_BLOCK * shared_.dv);
        s_ = allocate(space, QUERY_BLOCK * ROW_STRIDE);
        ds_ = allocate(space, QUERY_BLOCK * ROW_STRIDE) + DIAGONAL_PADDING;
        if (c_.form) additive_.emplace(c_, space);
        if (c_.grad_offset_table)
            std::fill(ds_ - DIAGONAL_PADDING, ds_ - DIAGONAL_PADDING + QUERY_BLOCK * ROW_STRIDE, T(0));
    }
    static size_t workspace_size(const BackwardWorkspace<T, S>& shared) {
        int64_t size = 2 * padded_size(QUERY_BLOCK * ROW_STRIDE) +
                       (shared.c.form ? AdditiveBackward<T, S>::workspace_size(shared.c) : 0);
        for (int64_t width : {key_table_width(shared.c), shared.c.d_value, shared.d, shared.d, shared.dv})
            size += padded_size(KEY_BLOCK * width);
        return size_t(size);
    }

    // One chunk of the keys of a batch_head; `dq` receives its part of dQ.
    void run(int64_t batch_head, int64_t chunk, T* dq) {
        const int64_t unit = batch_head * shared_.chunks + chunk;
        batch_head_ = batch_head, chunk_ = chunk, dq_ = dq;
        b_ = batch_head / c_.kv_heads, kv_ = batch_head % c_.kv_heads;
        d_offset_table_ =
            c_.grad_offset_table ? shared_.offset_table_partials.data() + unit * shared_.offset_table_size() : nullptr;
        d_temperature_ = c_.grad_temperature ? shared_.temperature_partials.data() + unit * c_.group : nullptr;
        d_v_ = c_.grad_v ? shared_.v_partials.data() + unit * c_.group * c_.d_key : nullptr;
        std::fill(dq_, dq_ + shared_.dq_size(), T(0));
        if (d_temperature_ && chunk == 0 && (c_.grad_lse || c_.sink))
            shared_.add_row_max_to_temperature(logits_, b_, kv_, d_temperature_);
        const int64_t from = shared_.key_blocks * chunk / shared_.chunks,
                      to = shared_.key_blocks * (chunk + 1) / shared_.chunks;
        for (int64_t kb = from; kb < to && !control_.stopped(); ++kb) key_block(kb * KEY_BLOCK - shared_.pad);
    }

   private:
    BackwardWorkspace<T, S>& shared_;
    const regard_call& c_;
    Logits<T, S> logits_;
    const CallControl& control_;
    T *k_panels_, *v_panels_, *k_rows_, *dk_, *dv_;  // of the key block
    T *s_, *ds_;               // of the pair of blocks: scores, then weights; dP, then gradients of the scores
    T *dq_, *d_offset_table_;  // of the chunk
    std::optional<AdditiveBackward<T, S>> additive_;
    double *d_temperature_, *d_v_;
    T norm_ = 0;  // ALiBi: the largest norm of the loaded keys
    int64_t batch_head_, chunk_, b_, kv_;
    int64_t begin_, end_;  // the columns that some row of the block computes

    void key_block(int64_t column0) {
        const int64_t begin = std::max<int64_t>(0, column0), end = std::min(c_.keys, column0 + KEY_BLOCK);
        bool packed = false;
        const int64_t used = std::min<int64_t>(KEY_BLOCK, round_up(end - column0, TILE_COLUMNS<T>));
        std::fill(dk_, dk_ + used * shared_.d, T(0));
        std::fill(dv_, dv_ + used * shared_.dv, T(0));
        for (int64_t number = shared_.blocks.per_batch_head - 1; number >= 0; --number) {
            const int64_t unit = batch_head_ * shared_.blocks.per_batch_head + number;
            const Span span = visible_span(shared_.visible[size_t(unit)], begin, end);
            if (span.start == span.stop) continue;
            if (!packed) pack_keys(column0, begin, end);
            packed = true;
            logits_.set_block(shared_.blocks.at(c_, batch_head_, number));
            if (!shared_.query_bounds.empty() && alibi_skips(span)) continue;
            logits_.set_span(span, column0);
            block_pair(unit, span);
        }
        for (int64_t column = begin; column < end; ++column) {
            const int64_t row = batch_head_ * c_.keys + column, n = column - column0;
            if (c_.form)
                additive_->key_gradient(dk_, n, static_cast<T*>(c_.grad_key) + row * c_.d_key);
            else
                std::copy(dk_ + n * shared_.d, dk_ + n * shared_.d + c_.d_key,
                          static_cast<T*>(c_.grad_key) + row * c_.d_key);
            std::copy(dv_ + n * shared_.dv, dv_ + n * shared_.dv + c_.d_value,
                      static_cast<T*>(c_.grad_value) + row * c_.d_value);
        }
    }

    // ALiBi: whether all weights of the block in a span are 0. As in the forward pass, but row_max is known.
    bool alibi_skips(const Span& span) const {
        for (int64_t r = 0; r < logits_.block.count; ++r) {
            const int64_t place = shared_.row_index(logits_.block, r);
            const T least = static_cast<const T*>(c_.row_max)[place] + logits_.cutoff[r];
            if (!AlibiSkipping<T, S>::skips(logits_, r, span.start, span.stop,
                                            shared_.query_bounds[size_t(place)] * norm_, least))
                return false;
        }
        return true;
    }

    void pack_keys(int64_t column0, int64_t begin, int64_t end) {
        const int64_t skip = begin - column0;
        for (int64_t n = 0; n < end - column0; n += TILE_COLUMNS<T>) {
            const int64_t jump = std::max<int64_t>(0, skip - n), row = std::min(column0 + n + jump, c_.keys - 1);
            const KeyPanel<T> panel(c_, k_panels_ + n * key_table_width(c_));
            pack_panel<T>(row_pointer<S>(c_.key, b_, kv_, row), c_.key.row, c_.key.column, jump, end - column0 - n,
                          c_.d_key, panel.keys());
            panel.make_tables(c_);
            pack_panel<T>(row_pointer<S>(c_.value, b_, kv_, row), c_.value.row, c_.value.column, jump,
                          end - column0 - n, c_.d_value, v_panels_ + n * c_.d_value);
        }
        if (c_.form) return;
        if (!shared_.query_bounds.empty()) norm_ = max_key_norm(k_panels_, end - column0, c_.d_key);
        std::fill(k_rows_, k_rows_ + std::min<int64_t>(KEY_BLOCK, round_up(end - column0, TILE_COLUMNS<T>)) * shared_.d,
                  T(0));
        for (int64_t column = begin; column < end; ++column)
            copy_row<T>(row_pointer<S>(c_.key, b_, kv_, column), c_.key.column, c_.d_key,
                        k_rows_ + (column - column0) * shared_.d);
    }

    // One block of queries against one block of keys.
    void block_pair(int64_t unit, const Span& span) {
        const QueryBlock& block = logits_.block;
        const T *q = shared_.query + unit * QUERY_BLOCK * shared_.query_stride,
                *d_out = shared_.grad_out + unit * QUERY_BLOCK * shared_.dv;
        if (c_.form)
            logits_.additive_scores(q, shared_.query_stride, k_panels_, s_);
        else
            logits_.dot_scores(q, shared_.d, c_.d_key, k_panels_, T(c_.scale), s_);
        logits_.dot_scores(d_out, shared_.dv, c_.d_value, v_panels_, T(1), ds_);
        begin_ = KEY_BLOCK, end_ = 0;
        for (int64_t g = 0; g < logits_.row_groups(); ++g)
            if (logits_.column_begin[g] < logits_.column_end[g])
                begin_ = std::min(begin_, logits_.column_begin[g]), end_ = std::max(end_, logits_.column_end[g]);
        if (d_offset_table_) begin_ = 0, end_ = KEY_BLOCK;  // diagonals cross all columns: hidden ones must be 0
        for (int64_t r = 0; r < block.count; ++r) row_gradient(r, span);
        if (d_offset_table_ && !(c_.cap > 0)) add_diagonals_to_offset_table();
        const int64_t key_group = span.full ? KEY_BLOCK : KEY_GROUP;
        for (int64_t from = begin_; from < end_; from += key_group) {
            const int64_t to = std::min<int64_t>(from + key_group, end_);
            int64_t row0 = block.count, row1 = 0;  // the rows that see any of these keys
            for (int64_t g = 0; g < logits_.row_groups(); ++g)
                if (logits_.column_begin[g] < to && logits_.column_end[g] > from)
                    row0 = std::min<int64_t>(row0, g * ROW_GROUP),
                    row1 = std::min<int64_t>(block.count, (g + 1) * ROW_GROUP);
            add_transposed_product(s_ + row0 * ROW_STRIDE + from, d_out + row0 * shared_.dv, shared_.dv, row1 - row0,
                                   to - from, dv_ + from * shared_.dv);
            if (!c_.form)
                add_transposed_product(ds_ + row0 * ROW_STRIDE + from, q + row0 * shared_.d, shared_.d, row1 - row0,
                                       to - from, dk_ + from * shared_.d);
        }
        if (c_.form)
            return additive_->block_pair(logits_, q, shared_.query_stride, k_panels_, ds_, begin_, end_, dk_, d_v_,
                                         shared_.score_gradient_sums + (chunk_ + 1) * shared_.rows(),
                                         [&](int64_t r) { return dq_row(r); });
        for (int64_t g = 0; g < logits_.row_groups(); ++g) add_query_gradient(g);
    }

    // to += aᵀ b: to[key] += Σ over rows of a[row][key] · b[row], for `keys` keys.
    static void add_transposed_product(const T* a, const T* b, int64_t width, int64_t rows, int64_t keys, T* to) {
        if (rows <= 0) return;
        for (int64_t x = 0; x < width; x += TILE_COLUMNS<T>)
            product<T, BY_COLUMNS>(a, ROW_STRIDE, b + x, width, rows, keys,
                                   std::min<int64_t>(TILE_COLUMNS<T>, width - x) / LANES<T>,
                                   [&](int64_t k, const Vec<T>* sums, auto count) REGARD_INLINED {
                                       T* line = to + k * width + x;
                                       static_for<decltype(count)::value>([&](int n) REGARD_INLINED {
                                           store(line + n * LANES<T>, load(line + n * LANES<T>) + sums[n]);
                                       });
                                   });
    }

    // Where dQ of row r is.
    T* dq_row(int64_t r) const {
        const QueryBlock& block = logits_.block;
        return dq_ + ((block.head[r] - kv_ * c_.group) * c_.queries + block.row[r]) * c_.d_key;
    }

    // Chain length of dQ. For narrow keys little else rounds, and short chains cost little.
    int64_t chain() const { return c_.d_key <= 16 ? KEY_BLOCK / 4 : KEY_BLOCK / 2; }
    // dQ += ds K for one row group.
    void add_query_gradient(int64_t g) {
        const int64_t from = logits_.column_begin[g], to = logits_.column_end[g];
        if (from >= to) return;
        for (int64_t x = 0; x < shared_.d; x += TILE_COLUMNS<T>)
            product<T>(
                ds_ + g * ROW_GROUP * ROW_STRIDE + from, ROW_STRIDE, k_rows_ + from * shared_.d + x, shared_.d,
                to - from, logits_.rows(g), std::min<int64_t>(TILE_COLUMNS<T>, shared_.d - x) / LANES<T>,
                [&](int64_t n, const Vec<T>* sums, auto count) REGARD_INLINED {
                    T* line = dq_row(g * ROW_GROUP + n) + x;
                    static_for<decltype(count)::value>([&](int v) REGARD_INLINED {
                        T* dq = line + v * LANES<T>;
                        if (x + (v + 1) * LANES<T> <= c_.d_key)
                            store(dq, load(dq) + sums[v]);
                        else
                            for (int64_t m = 0; m < c_.d_key - x - v * LANES<T>; ++m) dq[m] += sums[v][m];
                    });
                },
                Chains{chain() - from % chain(), chain()});
    }

    // Row r: s_ holds scores and becomes the weights, dropout applied; ds_ holds dP and becomes the gradients of the
    // scores.
    void row_gradient(int64_t r, const Span& span) {
        const bool special = c_.grad_entropy || d_temperature_ || c_.grad_dense.data || c_.cap > 0;
        if (c_.drop_below)
            special ? row_gradient<true, true>(r, span) : row_gradient<true, false>(r, span);
        else
            special ? row_gradient<false, true>(r, span) : row_gradient<false, false>(r, span);
    }
    // Whether all keys that row r sees are in this key block.
    bool sees_only_this_block(int64_t r) const {
        if (shared_.key_blocks == 1) return true;
        if (!shared_.mask.is_band()) return false;
        const Run visible = shared_.mask.interval(b_, logits_.block.row[r]);
        return visible.start >= logits_.column0 && visible.stop <= logits_.column0 + KEY_BLOCK;
    }
    // delta = Σ p · dP of such a row. Summed over the rounded dP themselves, its error cancels better in dP − delta.
    template <bool DROPS> T delta_from_weights(int64_t r, Vec<T> row_max, Vec<T> inverse, const T* dropout) const {
        const T *x = s_ + r * ROW_STRIDE, *g = ds_ + r * ROW_STRIDE;
        const ExponentFactor<Vec<T>> factor = logits_.exponent_factor(r);
        Vec<T> sums{};
        for (int64_t n = logits_.column_begin[r / ROW_GROUP]; n < logits_.column_end[r / ROW_GROUP]; n += LANES<T>) {
            const Vec<T> z = load(x + n) - row_max, p = exp2(z, factor) * inverse;
            const Vec<T> dw = DROPS ? Vec<T>(load(g + n) * load(dropout + n)) : load(g + n);
            sums += z == splat(MINUS_INF<T>) ? Vec<T>{} : Vec<T>(p * dw);
        }
        return reduce_add<T>(sums);
    }
    template <bool DROPS, bool SPECIAL> void row_gradient(int64_t r, const Span& span) {
        const QueryBlock& block = logits_.block;
        const int64_t h = block.head[r], place = shared_.row_index(block, r);
        const int64_t low = logits_.column_begin[r / ROW_GROUP], high = logits_.column_end[r / ROW_GROUP];
        T *x = s_ + r * ROW_STRIDE, *g = ds_ + r * ROW_STRIDE;
        const T row_maximum = static_cast<const T*>(c_.row_max)[place],
                row_sum = static_cast<const T*>(c_.row_sum)[place];
        if (!shared_.has_gradient(place)) {
            std::fill(x + begin_, x + end_, T(0));
            std::fill(g + begin_, g + end_, T(0));
            return;
        }
        alignas(64) T capped[KEY_BLOCK];           // tanh(score / cap)
        alignas(64) T dropout[KEY_BLOCK];          // 0 or keep_scale
        alignas(64) T logit_gradients[KEY_BLOCK];  // dx
        if (SPECIAL && c_.cap > 0)
            for (int64_t n = low; n < high; n += LANES<T>)
                store(capped + n, tanh<T>(load(x + n) * splat(T(1 / c_.cap))));
        logits_.to_logits(r, span, x);
        if (DROPS)
            for_dropout_masks<T>(
                c_, row_key(c_.seed, b_, h, logits_.position(r)), c_.key_start + logits_.column0, low, high,
                [&](int64_t n, MaskVec<T> keep) { store(dropout + n, keep ? splat(T(c_.keep_scale)) : Vec<T>{}); });
        const ExponentFactor<Vec<T>> factor = logits_.exponent_factor(r);
        const Vec<T> inverse = splat(T(1) / row_sum), row_max = splat(row_maximum);
        const T row_constant = sees_only_this_block(r) ? shared_.constant_without_delta[place] -
                                                             delta_from_weights<DROPS>(r, row_max, inverse, dropout)
                                                       : shared_.constant[place];
        const Vec<T> constant = splat(row_constant), score_factor = splat(T(c_.scale / logits_.temperature(h)));
        const bool with_entropy = SPECIAL && c_.grad_entropy;
        const Vec<T> d_entropy = splat(with_entropy ? static_cast<const T*>(c_.grad_entropy)[place] : T(0));
        const Vec<T> log_row_sum = splat(with_entropy ? T(std::log(double(row_sum))) : T(0));
        const Vec<T> unit = splat(T(1 / logits_.temperature(h)));
        const Vec<T> base =
            splat(SPECIAL && d_temperature_ && shared_.sink_dominates(logits_, place, h) ? row_maximum : T(0));
        Vec<T> d_temperature{};
        for (int64_t n = low; n < high; n += LANES<T>) {
            const Vec<T> z = load(x + n) - row_max, p = exp2(z, factor) * inverse;
            const auto hidden = z == splat(MINUS_INF<T>);
            Vec<T> dw = load(g + n);
            if (DROPS) dw = uncontracted<Vec<T>>(dw * load(dropout + n));  // rounded as in delta_from_weights
            dw = dw + constant;
            if (with_entropy)
                dw = dw - d_entropy * (hidden ? Vec<T>{} : Vec<T>(max<T>(factor.cutoff, z) * unit - log_row_sum));
            const Vec<T> dx = hidden ? Vec<T>{} : Vec<T>(p * dw);
            store(x + n, DROPS ? Vec<T>(p * load(dropout + n)) : p);
            Vec<T> ds = dx * score_factor;
            if (SPECIAL) {
                if (d_temperature_) d_temperature += hidden ? Vec<T>{} : Vec<T>(dx * (z + base));
                if (c_.cap > 0) ds = ds * (splat(T(1)) - load(capped + n) * load(capped + n));
                store(logit_gradients + n, dx);
            }
            store(g + n, ds);
        }
        for (T* line : {x, g}) {
            std::fill(line + begin_, line + std::max(begin_, std::min(low, end_)), T(0));
            std::fill(line + std::min(end_, std::max(high, begin_)), line + end_, T(0));
        }
        if (SPECIAL && d_temperature_)
            d_temperature_[h - kv_ * c_.group] -=
                double(reduce_add<T>(d_temperature)) / (logits_.temperature(h) * logits_.temperature(h));
        if (SPECIAL && d_offset_table_ && c_.cap > 0) add_row_to_offset_table(r, logit_gradients);
        if (SPECIAL && c_.grad_dense.data) add_row_to_dense_bias(r, place, logit_gradients);
    }

    // Add the sums of ds_ / scale along its diagonals (equal j − i), head by head, to the table's gradient.
    void add_diagonals_to_offset_table() {
        static_assert(DIAGONAL_PADDING >= QUERY_BLOCK && KEY_BLOCK + 2 * DIAGONAL_PADDING <= ROW_STRIDE,
                      "a diagonal must end in zeros");
        const QueryBlock& block = logits_.block;
        const int64_t past = 2 * c_.reach, each = block.row1 - block.row0;
        const T inverse = T(1 / c_.scale);
        for (int64_t first = 0; first < block.count; first += each) {
            T* table = d_offset_table_ + (c_.offset_heads > 1 ? block.head[first] - kv_ * c_.group : 0) * (past + 1);
            const int64_t start = logits_.offset(first) + c_.reach;  // the table's index of (first, column 0)
            const T* rows = ds_ + first * ROW_STRIDE;
            if (start + begin_ - each + 1 >= past || start + end_ - 1 <= 0) {  // all of it beyond the table
                Vec<T> sums{};
                for (int64_t r = 0; r < each; ++r)
                    for (int64_t n = begin_; n < end_; n += LANES<T>) sums += load(rows + r * ROW_STRIDE + n);
                table[start + begin_ > 0 ? past : 0] += reduce_add<T>(sums) * inverse;
                continue;
            }
            for (int64_t n = begin_ - round_up(each - 1, LANES<T>); n < end_; n += LANES<T>) {
                Vec<T> sums{};
                for (int64_t r = 0; r < each; ++r) sums += load(rows + r * ROW_STRIDE + n + r);
                if (start + n >= 0 && start + n + LANES<T> - 1 <= past) {
                    store(table + start + n, load(table + start + n) + sums * inverse);
                } else {
                    for (int64_t m = 0; m < LANES<T>; ++m)
                        table[std::min(std::max<int64_t>(start + n + m, 0), past)] += sums[m] * inverse;
                }
            }
        }
    }

    void add_row_to_offset_table(int64_t r, const T* dx) {
        const int64_t h = logits_.block.head[r], start = logits_.offset(r) + c_.reach, past = 2 * c_.reach;
        T* table = d_offset_table_ + (c_.offset_heads > 1 ? h - kv_ * c_.group : 0) * (past + 1);
        const T inverse = T(1 / logits_.temperature(h));
        const int64_t from = std::max(logits_.span_begin, logits_.column_begin[r / ROW_GROUP]),
                      to = std::min(logits_.span_end, logits_.column_end[r / ROW_GROUP]);
        for (int64_t n = from; n < to;) {
            if (n + LANES<T> <= to && start + n >= 0 && start + n + LANES<T> - 1 <= past) {
                store(table + start + n, load(table + start + n) + load(dx + n) * inverse);
                n += LANES<T>;
            } else {
                table[std::min(std::max<int64_t>(start + n, 0), past)] += dx[n] * inverse;
                ++n;
            }
        }
    }

    void add_row_to_dense_bias(int64_t r, int64_t place, const T* dx) {
        const int64_t h = logits_.block.head[r];
        const regard_tensor& to = c_.grad_dense;
        const T inverse = T(1 / logits_.temperature(h));
        const int64_t from = std::max(logits_.span_begin, logits_.column_begin[r / ROW_GROUP]),
                      past = std::min(logits_.span_end, logits_.column_end[r / ROW_GROUP]);
        if (shared_.dense_rows) {
            for (int64_t n = from; n < past; ++n)
                shared_.dense_row_partials[chunk_ * shared_.rows() + place] += dx[n] * inverse;
            return;
        }
        T* line = static_cast<T*>(to.data) + b_ * to.batch + h * to.head + logits_.block.row[r] * to.row +
                  logits_.column0 * to.column;
        for (int64_t n = from; n < past; ++n) line[n * to.column] += dx[n] * inverse;
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
