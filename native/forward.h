// The forward pass of one block of query rows (FlashAttention's loop over key blocks).
//
//   for batch_head, for block of QUERY_BLOCK = 48 rows     forward_schedule.h: threads, packing, order of the loops
//     for segment of SEGMENT = 256 keys, left to right     add_segment; skipped if it has no visible pair
//       s = scale · Q Kᵀ                                   Logits::dot_scores: for panel of TILE_COLUMNS keys,
//                                                            for row group: register tiles over d_key
//       s = logits(s): cap, mask, biases; row_max          Logits::to_logits, by row; not needed for plain scores
//       s = exp(s − row_max), row_sum = Σ s                exponentiate, by row; then dropout
//       state = merge(state, segment)                      RowState::merge: new row_max, rescale factors
//       out = out · rescale_old + (s V) · rescale_added    accumulate_values: for tile of TILE_COLUMNS features,
//                                                            for row group: register tiles over the keys
//     out = out / row_sum, statistics                      write_results
//
//   registers   accumulators of one register tile: 6 rows × 4 vectors with 32 registers, 6 × 2 with 16
//   L1          one panel of keys or tile of values (d_key or 256 × TILE_COLUMNS), the rows of one row group
//   L2          s (48 × 272), Q and out of the block, the packed segment
//   memory      K and V as packed by packing.h, results
//
// Order of sums: a score over d_key in the chains of Chains::even; an output over the keys of a segment in chains that
// end at multiples of VALUE_CHAIN; row sums in lanes of a vector, then reduce_add; segments left to right. Nothing else
// enters, so the bits of a row depend on its own query and keys: not on the block, the thread, the batch or the number
// of queries.
//
// Template parameters: T compute type, S storage type (simd.h).
#pragma once
#include "alibi_skipping.h"
#include "decode_scores.h"
#include "online_softmax.h"

namespace regard {
namespace REGARD_ISA {

constexpr int64_t VALUE_CHAIN = SEGMENT / 4;
constexpr double SINK_MARGIN = 44;  // how far a sink may be above the largest logit before row_max is raised

template <class T, class S> class Forward {
   public:
    // Several passes of one worker share a workspace and its score tile; `number` selects the pass's own queries and
    // output.
    Forward(const regard_call& c, const Mask& mask, T* space, int64_t number)
        : c_(c), logits_(c, mask), tiles_(c.d_value) {
        const int64_t queries = QUERY_BLOCK * round_up(query_table_width(c), 16), outs = QUERY_BLOCK * tiles_.padded;
        s_ = allocate(space, QUERY_BLOCK * ROW_STRIDE);
        space += number * (padded_size(queries) + padded_size(outs));
        q_ = allocate(space, queries);
        out_ = allocate(space, outs);
    }
    static size_t workspace_size(const regard_call& c, int64_t passes) {
        return size_t(padded_size(QUERY_BLOCK * ROW_STRIDE) +
                      passes * (padded_size(QUERY_BLOCK * round_up(query_table_width(c), 16)) +
                                padded_size(QUERY_BLOCK * Tiles<T>(c.d_value).padded)));
    }
    static size_t partial_size(const regard_call& c) {
        return size_t(padded_size(QUERY_BLOCK * Tiles<T>(c.d_value).padded));
    }

    // False if a query is not finite.
    bool start(const QueryBlock& block) {
        logits_.set_block(block);
        std::fill(out_, out_ + QUERY_BLOCK * tiles_.padded, T(0));
        state_.clear();
        const bool finite = logits_.load_queries(block, q_, query_table_width(c_));
        if (AlibiSkipping<T, S>::applies(c_)) alibi_skipping_.set_block(logits_, q_, query_table_width(c_));
        return finite;
    }
    // ALiBi: whether a segment whose keys have norms of at most `norm` counts for no row.
    bool skips(const Span& span, T norm) const {
        return alibi_skipping_.skips_all(logits_, span.start, span.stop, norm);
    }
    // Add one segment; `norm` is the largest of its keys' norms, if known.
    void add_segment(const Span& span, int64_t base, const SegmentView<T>& segment, Prefetcher& prefetcher,
                     T norm = std::numeric_limits<T>::infinity()) {
        segment_softmax(span, base, segment, prefetcher, norm);
        state_.merge(segment_state_, logits_, rescale_old_, rescale_added_);
        accumulate_values(
            segment,
            [&](int64_t r, T* o, const Vec<T>* sums, auto count) REGARD_INLINED {
                const Vec<T> old = splat(rescale_old_[r]), added = splat(rescale_added_[r]);
                static_for<decltype(count)::value>([&](int n) REGARD_INLINED {
                    store(o + n * LANES<T>, rescale_and_add<T>(load(o + n * LANES<T>), old, sums[n], added));
                });
            },
            prefetcher);
    }
    // Split keys (Flash-Decoding): the partial result of one segment alone, and merging it into this pass.
    void segment_partial(const Span& span, int64_t base, const SegmentView<T>& segment, T* out, RowState<T>& state,
                         Prefetcher& prefetcher) {
        segment_softmax(span, base, segment, prefetcher, std::numeric_limits<T>::infinity());
        state = segment_state_;
        open(out, QUERY_BLOCK * tiles_.padded);
        std::fill(out, out + QUERY_BLOCK * tiles_.padded, T(0));
        accumulate_values(
            segment,
            [&](int64_t r, T* o, const Vec<T>* sums, auto count) REGARD_INLINED {
                (void)r;
                T* to = out + (o - out_);
                static_for<decltype(count)::value>([&](int n) REGARD_INLINED { store(to + n * LANES<T>, sums[n]); });
            },
            prefetcher);
    }
    void merge_partial(const T* out, const RowState<T>& state) {
        state_.merge(state, logits_, rescale_old_, rescale_added_);
        for (int64_t r = 0; r < logits_.block.count; ++r) {
            const Vec<T> old = splat(rescale_old_[r]), added = splat(rescale_added_[r]);
            for (int64_t x = r * tiles_.padded; x < (r + 1) * tiles_.padded; x += LANES<T>)
                store(out_ + x, rescale_and_add<T>(load(out_ + x), old, load(out + x), added));
        }
    }
    // Write all results of the block. False if one is not finite.
    bool write_results() {
        Vec<T> check{};
        for (int64_t r = 0; r < logits_.block.count; ++r) write_row(r, check);
        return finite_ && reduce_add<T>(check) == T(0);
    }

   private:
    const regard_call& c_;
    Logits<T, S> logits_;
    bool finite_ = true;
    Tiles<T> tiles_;
    T *q_, *s_, *out_;  // queries, score tile, output rows of the block
    RowState<T> state_, segment_state_;
    AlibiSkipping<T, S> alibi_skipping_;
    alignas(64) T rescale_old_[QUERY_BLOCK], rescale_added_[QUERY_BLOCK];

    // The softmax of one segment: s_ becomes exp(logit − row_max), dropout applied; segment_state_ its maxima and sums.
    void segment_softmax(const Span& span, int64_t base, const SegmentView<T>& segment, Prefetcher& prefetcher,
                         T norm) {
        logits_.set_span(span, base);
        const bool alibi = AlibiSkipping<T, S>::applies(c_);
        if (alibi && std::isfinite(norm)) alibi_skipping_.shrink_columns(logits_, norm);
        const int64_t count = logits_.block.count;
        segment_state_.clear();
        if (segment.keys) {
            finite_ &= decode_scores<T>(logits_, q_, c_.d_key, static_cast<const S*>(segment.keys), s_, prefetcher);
            for (int64_t r = 0; r < count; ++r)
                segment_state_.row_max[r] =
                    logits_.to_logits(r, span, s_ + r * ROW_STRIDE, alibi ? alibi_skipping_.floor[r] : MINUS_INF<T>);
        } else if (logits_.scores_are_logits(span)) {
            alignas(64) T maxima[QUERY_BLOCK * LANES<T>];
            for (int64_t r = 0; r < count; ++r) store(maxima + r * LANES<T>, splat(MINUS_INF<T>));
            logits_.dot_scores(q_, c_.d_key, c_.d_key, segment.panels, T(c_.scale), s_,
                               [&](int64_t r, const Vec<T>* sums, auto count) REGARD_INLINED {
                                   Vec<T> maximum = load(maxima + r * LANES<T>);
                                   static_for<decltype(count)::value>(
                                       [&](int n) REGARD_INLINED { maximum = max<T>(maximum, sums[n]); });
                                   store(maxima + r * LANES<T>, maximum);
                               });
            for (int64_t r = 0; r < count; ++r)
                segment_state_.row_max[r] = reduce_max<T>(load(maxima + r * LANES<T>)) * T(c_.scale);
        } else {
            if (c_.form)
                logits_.additive_scores(q_, query_table_width(c_), segment.panels, s_);
            else
                logits_.dot_scores(q_, c_.d_key, c_.d_key, segment.panels, T(c_.scale), s_);
            for (int64_t r = 0; r < count; ++r)
                segment_state_.row_max[r] =
                    logits_.to_logits(r, span, s_ + r * ROW_STRIDE, alibi ? alibi_skipping_.floor[r] : MINUS_INF<T>);
        }
        if (c_.peak_at)
            for (int64_t r = 0; r < count; ++r)
                if (segment_state_.row_max[r] > state_.row_max[r])
                    segment_state_.argmax[r] = find_argmax(r, segment_state_.row_max[r]);
        c_.distance  ? exponentiate<true, true>()
        : c_.entropy ? exponentiate<true, false>()
                     : exponentiate<false, false>();
        if (c_.drop_below)
            for (int64_t r = 0; r < count; ++r) {
                T* x = s_ + r * ROW_STRIDE;
                const uint64_t key = row_key(c_.seed, logits_.block.b, logits_.block.head[r], logits_.position(r));
                for_dropout_masks<T>(c_, key, c_.key_start + base, column_begin(r), column_end(r),
                                     [&](int64_t n, MaskVec<T> keep) { store(x + n, keep ? load(x + n) : Vec<T>{}); });
            }
    }
    int64_t column_begin(int64_t r) const { return logits_.column_begin[r / ROW_GROUP]; }
    int64_t column_end(int64_t r) const { return logits_.column_end[r / ROW_GROUP]; }

    // ENTROPY, DISTANCE: also sum the entropy moment, the distances.
    template <bool ENTROPY, bool DISTANCE> void exponentiate() {
        for (int64_t r = 0; r < logits_.block.count; ++r) exponentiate<ENTROPY, DISTANCE>(r);
    }
    template <bool ENTROPY, bool DISTANCE> REGARD_INLINE void exponentiate(int64_t r) {
        T* x = s_ + r * ROW_STRIDE;
        const ExponentFactor<Vec<T>> factor = logits_.exponent_factor(r);
        const Vec<T> shift = splat(segment_state_.row_max[r] == MINUS_INF<T> ? T(0) : segment_state_.row_max[r]);
        Vec<T> row_sum{}, moment{}, distances{},
            offset = splat(T(DISTANCE ? logits_.offset(r) + column_begin(r) : 0)) + iota<T>();
        for (int64_t n = column_begin(r), end = column_end(r); n < end; n += LANES<T>) {
            const Vec<T> z = load(x + n) - shift, p = exp2(z, factor);
            row_sum += p;
            if (ENTROPY) moment += p * max<T>(factor.cutoff, z);
            if (DISTANCE) {
                distances += p * absolute<T>(offset);
                offset += T(LANES<T>);
            }
            store(x + n, p);
        }
        segment_state_.row_sum[r] = reduce_add<T>(row_sum);
        if (ENTROPY) segment_state_.entropy_moment[r] = reduce_add<T>(moment);
        if (DISTANCE) segment_state_.distance_sum[r] = reduce_add<T>(distances);
    }

    // The first key column with the largest logit; the first of the span if the row is not finite.
    int64_t find_argmax(int64_t r, T row_max) const {
        const T* x = s_ + r * ROW_STRIDE;
        for (int64_t n = column_begin(r); n < column_end(r); n += LANES<T>) {
            const Vec<T> differs = load(x + n) == splat(row_max) ? Vec<T>{} : splat(T(1));
            if (reduce_add<T>(differs) == T(LANES<T>)) continue;
            for (int64_t m = n;; ++m)
                if (x[m] == row_max) return logits_.column0 + m;
        }
        return logits_.column0 + logits_.span_begin;
    }

    // done(r, output row, sums, count) for s_ · values, one tile of features at a time.
    template <class Done> void accumulate_values(const SegmentView<T>& segment, Done done, Prefetcher& prefetcher) {
        for (int64_t t = 0; t < tiles_.count; ++t)
            for (int64_t g = 0; g < logits_.row_groups(); ++g) {
                const int64_t from = std::max(logits_.column_begin[g], logits_.span_begin),
                              to = std::max(from, std::min(logits_.column_end[g], logits_.span_end));
                const int64_t stride = segment.value_stride(tiles_, t);
                const Chains chains{VALUE_CHAIN - from % VALUE_CHAIN, VALUE_CHAIN};
                T* o = out_ + g * ROW_GROUP * tiles_.padded + t * TILE_COLUMNS<T>;
                const auto finish = [&](int64_t r, const Vec<T>* sums, auto count)
                                        REGARD_INLINED { done(g * ROW_GROUP + r, o + r * tiles_.padded, sums, count); };
                product<T>(s_ + g * ROW_GROUP * ROW_STRIDE + from, ROW_STRIDE, segment.value_tile(t) + from * stride,
                           stride, to - from, logits_.rows(g), tiles_.vectors(t), finish, chains, prefetcher);
            }
    }

    void write_row(int64_t r, Vec<T>& check) {
        const QueryBlock& block = logits_.block;
        const int64_t heads = c_.kv_heads * c_.group,
                      place = (block.b * heads + block.head[r]) * c_.queries + block.row[r];
        T row_max = state_.row_max[r], row_sum = state_.row_sum[r];
        const bool none = row_sum == T(0);  // no key is visible
        const double key_sum = double(row_sum), unit = 1 / logits_.temperature(block.head[r]);
        double moment = double(state_.entropy_moment[r]) * unit, sink_rescale = 1, lse = 0;
        if (c_.sink && !none) {  // one more key, without a value; far above all others, it raises row_max
            const double sink = double(static_cast<const T*>(c_.sink)[block.head[r]]), old = double(row_max);
            if (c_.lse) {  // log-add-exp: row_max + log(row_sum) would cancel under a large sink
                const double keys = old * unit + std::log(key_sum), larger = std::max(keys, sink);
                lse = larger + std::log1p(std::exp(std::min(keys, sink) - larger));
            }
            row_max = std::max(row_max, T((sink - SINK_MARGIN) / unit));
            sink_rescale = std::exp((old - double(row_max)) * unit);
            moment = sink_rescale == 0 ? 0.0 : sink_rescale * (moment + (old - double(row_max)) * unit * key_sum);
            row_sum = T(key_sum * sink_rescale + std::exp(sink - double(row_max) * unit));
        }
        const double exact = none ? 0.0 : c_.keep_scale * sink_rescale / double(row_sum);
        const T scale = T(exact), scale_low = T(exact - double(scale));
        T* from = out_ + r * tiles_.padded;
        for (int64_t x = 0; x < tiles_.padded; x += LANES<T>) {
            const Vec<T> sums = load(from + x), out = sums * scale + sums * scale_low;
            check += out * T(0);
            store(from + x, out);
        }
        std::copy(from, from + c_.d_value,
                  static_cast<T*>(c_.out) + place * c_.d_value);  // d_value may be 0, and out null
        if (!none && !std::isfinite(T(double(row_max) * unit)))
            row_max = std::numeric_limits<T>::quiet_NaN();  // overflow
        if (c_.row_max)
            static_cast<T*>(c_.row_max)[place] = none ? MINUS_INF<T> : row_max,
            static_cast<T*>(c_.row_sum)[place] = none ? T(0) : row_sum;
        if (!none) check[0] += (row_max + row_sum) * T(0);
        const double log = none || !(c_.lse || c_.entropy) ? 0.0 : std::log(double(row_sum));
        const T empty_lse = c_.sink ? static_cast<const T*>(c_.sink)[block.head[r]] : MINUS_INF<T>;
        if (!c_.sink) lse = double(row_max) * unit + log;
        if (c_.lse) static_cast<T*>(c_.lse)[place] = none ? empty_lse : T(lse);
        if (c_.entropy)
            static_cast<T*>(c_.entropy)[place] =
                none ? T(0) : T((log * key_sum * sink_rescale - moment) / double(row_sum));
        if (c_.peak) static_cast<T*>(c_.peak)[place] = none ? T(0) : T(sink_rescale / double(row_sum));
        if (c_.peak_at) c_.peak_at[place] = none ? -1 : state_.argmax[r];
        if (c_.distance)
            static_cast<T*>(c_.distance)[place] =
                none ? T(0) : T(double(state_.distance_sum[r]) * sink_rescale / double(row_sum));
        if (c_.max_logit) static_cast<T*>(c_.max_logit)[place] = state_.row_max[r];
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
