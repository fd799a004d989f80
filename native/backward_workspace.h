// What all threads of a backward pass share: the queries and dO laid out by block, the softmax constant of every
// row, the visible runs of every block, and the partial gradients that are added in a fixed order at the end.
//
// With x = logit / temperature, p = softmax(x) and dP = dO · Vᵀ (dropout applied), the gradient of a row's logits is
//
//   dx = p · (dP + constant)
//   constant = d_lse − delta − d_entropy · (entropy + weight of the sink)
//   delta = Σ dO · O = Σ p · dP
//
// (plus d_entropy's own term, backward.h).
#pragma once
#include "alibi_skipping.h"

namespace regard {
namespace REGARD_ISA {

constexpr int KEY_BLOCK = 128;         // keys at a time; divides SEGMENT
constexpr int DIAGONAL_PADDING = 64;   // zeros on both sides of a row of gradients, for sums along diagonals
constexpr int KEY_GROUP = 48;          // keys of a block that share one range of query rows
constexpr int64_t MAX_KEY_CHUNKS = 4;  // bounds the partial sums of dQ: memory stays linear

template <class T, class S> struct BackwardWorkspace {
    const regard_call& c;
    Mask mask;
    QueryBlocks blocks;
    int64_t pad, heads, key_blocks, chunks,
        splits;                   // keys are summed in chunks of key blocks; `splits` threads share a batch_head
    int64_t d, dv, query_stride;  // widths of keys and values in whole vectors; from query to query
    bool shared_dense;            // several batch_heads add to one plane of the dense bias
    bool dense_rows;              // the dense bias has one column: its gradient is a sum over all keys
    T *constant, *constant_without_delta;  // per query row
    T *query, *grad_out;                   // by block
    std::vector<T> query_bounds;           // ALiBi, per query row: the largest score with a key of norm 1
    // Additive scores: per query row minus the exact sum of ds (NaN if unknown), then per chunk and row its sum.
    T* score_gradient_sums = nullptr;
    T* dq_partials;                            // per batch_head and chunk, if splits > 1
    T* dense_row_partials = nullptr;           // per chunk and query row
    std::vector<T> offset_table_partials;      // per batch_head and chunk: the offset table of its heads
    std::vector<double> temperature_partials;  // per batch_head, chunk and head of its group
    std::vector<double> v_partials;            // per batch_head, chunk, head of its group and unit
    std::vector<T> sink_gradients;             // per query row
    std::vector<Runs> visible;                 // per block

    explicit BackwardWorkspace(const regard_call& call, int64_t threads)
        : c(call), mask(call), blocks(call), pad(segment_padding(call)), heads(call.kv_heads * call.group) {
        const regard_tensor& g = c.grad_dense;
        shared_dense = g.data && ((c.batch > 1 && g.batch == 0) || (heads > 1 && g.head == 0));
        dense_rows = g.data && c.keys > 1 && g.column == 0;
        key_blocks = ceil_div(pad + c.keys, KEY_BLOCK);
        chunks = std::max<int64_t>(1, std::min(MAX_KEY_CHUNKS, key_blocks));
        const int64_t batch_heads = std::max<int64_t>(1, blocks.batch_heads);
        splits = threads == 1 ? 1 : shared_dense ? chunks : std::min(chunks, ceil_div(2 * threads, batch_heads));
        d = round_up(c.d_key, LANES<T>), dv = round_up(c.d_value, LANES<T>);
        query_stride = c.form ? round_up(query_table_width(c), 16) : d;
        if (c.grad_v) v_partials.assign(size_t(blocks.batch_heads * chunks * c.group * c.d_key), 0.0);
        if (c.grad_offset_table)
            offset_table_partials.assign(size_t(blocks.batch_heads * chunks * offset_table_size()), T(0));
        if (c.grad_temperature) temperature_partials.assign(size_t(blocks.batch_heads * chunks * c.group), 0.0);
        if (c.grad_sink || (c.grad_temperature && c.sink)) sink_gradients.assign(size_t(rows()), T(0));
        visible.resize(size_t(blocks.total));
        if (AlibiSkipping<T, S>::applies(c)) query_bounds.resize(size_t(rows()));
    }
    int64_t rows() const { return c.batch * heads * c.queries; }
    int64_t offset_table_size() const { return (c.offset_heads > 1 ? c.group : 1) * (2 * c.reach + 1); }
    int64_t dq_size() const { return c.group * c.queries * c.d_key; }
    size_t size() const {
        return size_t(2 * padded_size(rows()) + (c.form ? padded_size((chunks + 1) * rows()) : 0) +
                      padded_size(blocks.total * QUERY_BLOCK * query_stride) +
                      padded_size(blocks.total * QUERY_BLOCK * dv) +
                      (splits > 1 ? blocks.batch_heads * chunks * padded_size(dq_size()) : 0) +
                      (dense_rows ? padded_size(chunks * rows()) : 0));
    }
    void allocate_parts(T* space) {
        constant = allocate(space, rows());
        constant_without_delta = allocate(space, rows());
        query = allocate(space, blocks.total * QUERY_BLOCK * query_stride);
        grad_out = allocate(space, blocks.total * QUERY_BLOCK * dv);
        if (c.form) score_gradient_sums = zeros(space, (chunks + 1) * rows());
        if (dense_rows) dense_row_partials = zeros(space, chunks * rows());
        dq_partials = space;
    }
    T* zeros(T*& space, int64_t count) const {
        T* part = allocate(space, count);
        std::fill(part, part + count, T(0));
        return part;
    }
    T* dq_partial(int64_t batch_head, int64_t chunk) const {
        return dq_partials + (batch_head * chunks + chunk) * padded_size(dq_size());
    }
    int64_t row_index(const QueryBlock& block, int64_t r) const {
        return (block.b * heads + block.head[r]) * c.queries + block.row[r];
    }

    // Whether a row sees a key and is finite; otherwise no gradient flows through it.
    bool has_gradient(int64_t row) const {
        const T row_max = static_cast<const T*>(c.row_max)[row], row_sum = static_cast<const T*>(c.row_sum)[row];
        return row_sum > T(0) && std::isfinite(row_max) && std::isfinite(row_sum);
    }

    // delta = Σ dO · O = Σ p · dP of a row. The dP of the sweep are rounded. Where one key has much of the weight, its
    // rounding must be in delta as well, so that it cancels in dP − delta; where it has all the weight, delta is that
    // key's dP itself.
    double delta(const Logits<T, S>& logits, int64_t r, int64_t unit) const {
        const QueryBlock& block = logits.block;
        const int64_t row = row_index(block, r), peak = c.peak_at ? c.peak_at[row] : -1;
        const T *g = grad_out + (unit * QUERY_BLOCK + r) * dv, *o = static_cast<const T*>(c.out) + row * c.d_value;
        const double sum = dot_in_double(g, o, c.d_value);
        if (peak < 0 || !has_gradient(row)) return sum;
        const T row_sum = static_cast<const T*>(c.row_sum)[row];
        double factor =
            1 / double(row_sum);  // the weight of the peak: its exp is 1; a sink far above it makes a large row_sum
        if (!(factor > 0.01)) return sum;
        double dropout_factor = 1;
        if (c.drop_below) {
            const uint64_t key = row_key(c.seed, block.b, block.head[r], logits.position(r));
            dropout_factor =
                pair_number<uint32_t>(key, uint32_t(c.key_start + peak)) >= c.drop_below ? c.keep_scale : 0.0;
            factor *= dropout_factor;
        }
        const S* v = row_pointer<S>(c.value, block.b, block.kv, peak);
        const int64_t size = Chains::even(c.d_value).each;
        T chain = 0, before = 0;
        double exact = 0;
        for (int64_t n = 0; n < c.d_value; ++n) {
            const T number = widen<T>(v[n * c.value.column]);
            if (n > 0 && n % size == 0) before += chain, chain = 0;
            chain += g[n] * number;
            exact += double(g[n]) * double(number);
        }
        if (row_sum == T(1)) return double(T(T(chain + before) * T(dropout_factor)));
        return sum + factor * (double(T(chain + before)) - exact);
    }
    // The softmax weight of the sink.
    double sink_weight(const Logits<T, S>& logits, int64_t row, int64_t h) const {
        const double row_max = double(static_cast<const T*>(c.row_max)[row]),
                     row_sum = double(static_cast<const T*>(c.row_sum)[row]);
        return std::exp(double(static_cast<const T*>(c.sink)[h]) - row_max / logits.temperature(h)) / row_sum;
    }
    // Whether the sink has most of a row's weight: then the keys' share is known to fewer digits than the sink's.
    bool sink_dominates(const Logits<T, S>& logits, int64_t row, int64_t h) const {
        return c.sink && sink_weight(logits, row, h) > 0.5;
    }
    double sink_gradient(int64_t row, double sink_share, double delta) const {
        if (!c.sink) return 0.0;
        if (!has_gradient(row)) {  // a row that sees no key: its lse is the sink
            const bool empty = static_cast<const T*>(c.row_sum)[row] == T(0);
            return empty && c.grad_lse ? double(static_cast<const T*>(c.grad_lse)[row]) : 0.0;
        }
        double sum = -delta;
        if (c.grad_lse) sum += double(static_cast<const T*>(c.grad_lse)[row]);
        if (c.grad_entropy)
            sum += double(static_cast<const T*>(c.grad_entropy)[row]) *
                   (1 - sink_share - double(static_cast<const T*>(c.entropy)[row]));
        return sink_share * sum;
    }

    // The part of the temperature's gradient that Backward::row_gradient omits, for the heads of (b, kv). It uses
    // logits relative to row_max; the gradients of a row's logits, the sink included, add up to that of its lse, so the
    // omitted part is that sum times row_max. Where the sink dominates, this would cancel, and row_gradient uses the
    // logits themselves.
    void add_row_max_to_temperature(const Logits<T, S>& logits, int64_t b, int64_t kv, double* d_temperature) const {
        for (int64_t n = 0; n < c.group * c.queries; ++n) {
            const int64_t h = kv * c.group + n / c.queries, row = (b * heads + h) * c.queries + n % c.queries;
            if (!has_gradient(row) || sink_dominates(logits, row, h)) continue;
            double sum = c.grad_lse ? double(static_cast<const T*>(c.grad_lse)[row]) : 0.0;
            if (c.sink) sum -= double(sink_gradients[size_t(row)]);
            const double row_max = double(static_cast<const T*>(c.row_max)[row]), tau = logits.temperature(h);
            d_temperature[h - kv * c.group] -= sum * row_max / (tau * tau);
        }
    }

    // Rows whose keys are all in one block compute delta there (Backward::delta_from_weights).
    bool needs_delta() const { return key_blocks > 1 || !sink_gradients.empty() || c.form; }
    // Lay out the rows of one block and compute their constants.
    void load_block(int64_t batch_head, int64_t number) {
        const QueryBlock block = blocks.at(c, batch_head, number);
        const int64_t unit = batch_head * blocks.per_batch_head + number;
        visible[size_t(unit)] = visible_runs(c, mask, block);
        Logits<T, S> logits(c, mask);
        logits.set_block(block);
        logits.load_queries(block, query + unit * QUERY_BLOCK * query_stride, query_stride);
        for (int64_t r = 0; r < block.count; ++r)
            copy_row<T>(row_pointer<T>(c.grad_out, block.b, block.head[r], block.row[r]), c.grad_out.column, c.d_value,
                        grad_out + (unit * QUERY_BLOCK + r) * dv);
        for (int64_t r = 0; r < block.count; ++r) {
            T* g = grad_out + (unit * QUERY_BLOCK + r) * dv;
            const int64_t row = row_index(block, r);
            const double row_delta = needs_delta() ? delta(logits, r, unit) : 0.0;
            if (!query_bounds.empty())
                query_bounds[size_t(row)] =
                    AlibiSkipping<T, S>::query_bound(c, query + (unit * QUERY_BLOCK + r) * query_stride);
            if (!c.form)
                std::fill(query + (unit * QUERY_BLOCK + r) * query_stride + c.d_key,
                          query + (unit * QUERY_BLOCK + r + 1) * query_stride, T(0));
            std::fill(g + (has_gradient(row) ? c.d_value : 0), g + dv, T(0));
            double sum = 0, sink_share = 0;
            if (c.grad_lse) sum -= double(static_cast<const T*>(c.grad_lse)[row]);
            if (c.sink && has_gradient(row)) sink_share = sink_weight(logits, row, block.head[r]);
            if (c.grad_entropy)
                sum += double(static_cast<const T*>(c.grad_entropy)[row]) *
                       (double(static_cast<const T*>(c.entropy)[row]) + sink_share);
            if (!sink_gradients.empty()) sink_gradients[size_t(row)] = T(sink_gradient(row, sink_share, row_delta));
            constant[row] = has_gradient(row) ? T(-row_delta - sum) : T(0);
            constant_without_delta[row] = T(-sum);
            if (c.form &&
                has_gradient(row)) {  // the gradients of a row's logits, the sink included, add up to that of its lse
                const double lse = c.grad_lse ? double(static_cast<const T*>(c.grad_lse)[row]) : 0.0;
                score_gradient_sums[row] =
                    T((sink_gradient(row, sink_share, row_delta) - lse) * c.scale / logits.temperature(block.head[r]));
                // the rounding of a dominating sink is larger than the error to correct
                if (sink_share > 0.5) score_gradient_sums[row] = std::numeric_limits<T>::quiet_NaN();
            }
        }
    }

    // Add a chunk's part of dQ to those before it.
    void add_dq(int64_t batch_head, int64_t chunk, const T* from) const {
        T* to = static_cast<T*>(c.grad_query) + batch_head * dq_size();
        if (chunk == 0)
            std::copy(from, from + dq_size(), to);
        else
            for (int64_t n = 0; n < dq_size(); ++n) to[n] += from[n];
    }
    void add_partials() const {
        if (c.grad_offset_table) {
            const int64_t size = offset_table_size(), count = c.offset_heads * (2 * c.reach + 1);
            for (int64_t n = 0; n < count; ++n) {
                double sum = 0;
                for (int64_t batch_head = 0; batch_head < blocks.batch_heads; ++batch_head) {
                    const int64_t at = n - (c.offset_heads > 1 ? batch_head % c.kv_heads * size : 0);
                    for (int64_t chunk = 0; chunk < chunks && at >= 0 && at < size; ++chunk)
                        sum += double(offset_table_partials[size_t((batch_head * chunks + chunk) * size + at)]);
                }
                static_cast<T*>(c.grad_offset_table)[n] = T(sum);
            }
        }
        for (int64_t n = 0; n < (c.grad_v ? heads * c.d_key : 0); ++n) {
            const int64_t size = c.group * c.d_key;
            double sum = 0;
            for (int64_t b = 0; b < c.batch; ++b)
                for (int64_t chunk = 0; chunk < chunks; ++chunk)
                    sum += v_partials[size_t(((b * c.kv_heads + n / size) * chunks + chunk) * size + n % size)];
            static_cast<T*>(c.grad_v)[n] = T(sum);
        }
        for (int64_t h = 0; h < (c.grad_sink ? heads : 0); ++h) {
            double sum = 0;
            for (int64_t b = 0; b < c.batch; ++b)
                for (int64_t q = 0; q < c.queries; ++q)
                    sum += double(sink_gradients[size_t((b * heads + h) * c.queries + q)]);
            static_cast<T*>(c.grad_sink)[h] = T(sum);
        }
        for (int64_t h = 0; h < (c.grad_temperature ? heads : 0); ++h) {
            double sum = 0;
            for (int64_t b = 0; b < c.batch; ++b)
                for (int64_t chunk = 0; chunk < chunks; ++chunk)
                    sum += temperature_partials[size_t(((b * c.kv_heads + h / c.group) * chunks + chunk) * c.group +
                                                       h % c.group)];
            static_cast<T*>(c.grad_temperature)[h] = T(sum);
        }
        for (int64_t row = 0; row < (dense_rows ? rows() : 0); ++row) {
            const int64_t q = row % c.queries, h = row / c.queries % heads, b = row / c.queries / heads;
            T* to = static_cast<T*>(c.grad_dense.data) + b * c.grad_dense.batch + h * c.grad_dense.head +
                    q * c.grad_dense.row;
            for (int64_t chunk = 0; chunk < chunks; ++chunk) *to += dense_row_partials[chunk * rows() + row];
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
