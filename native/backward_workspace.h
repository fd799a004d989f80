// What all threads of a backward pass share: rows laid out by block, the constants of the softmax, and the sums to be joined.
#pragma once
#include "alibi_skipping.h"

namespace regard {
namespace REGARD_ISA {

constexpr int KEYS = 128;      // keys at a time; divides SEGMENT
constexpr int MARGIN = 64;     // zeros on both sides of a row of gradients, for sums along diagonals
constexpr int STRIP = 48;      // keys of a block that share one range of query rows
constexpr int64_t CHUNKS = 4;  // most chunks of the keys: memory stays linear

// Everything about a call that all units share.
template <class T, class S> struct BackwardPlan {
    const regard_call& c;
    Mask mask;
    Blocks blocks;
    int64_t pad, heads, key_blocks, chunks, splits, d, dv, step;  // d and dv: widths in whole vectors; step: from query to query
    bool shared_dense, dense_rows;  // lanes add to one plane of the dense bias; its rows are sums over all keys
    T *constant, *rest, *query, *grad;    // per query row: constant of the softmax, and without Σ dO · O; queries and dO, by block
    std::vector<T> reaches;               // per query row, under slopes: the most that it makes of a key of norm 1
    T* totals = nullptr;                  // of the sum form, per query row: minus what its ds should add up to, NaN if that is not known well; per chunk and row: what they do
    T *shares, *row_shares = nullptr;     // per lane and chunk: dQ if lanes are split; per chunk: dense rows
    std::vector<T> tables;                // per lane and chunk: offset table of its heads
    std::vector<double> taus;             // per lane, chunk and head of its group
    std::vector<double> weights;          // per lane, chunk, head of its group and unit
    std::vector<T> sinks;                 // per query row
    std::vector<Runs> seen;

    explicit BackwardPlan(const regard_call& call, int64_t threads)
        : c(call), mask(call), blocks(call), pad(pad_of(call)), heads(call.kv_heads * call.group) {
        const regard_tensor& g = c.grad_dense;
        shared_dense = g.data && ((c.batch > 1 && g.batch == 0) || (heads > 1 && g.head == 0));
        dense_rows = g.data && c.keys > 1 && g.column == 0;
        key_blocks = parts(pad + c.keys, KEYS);
        chunks = std::max<int64_t>(1, std::min(CHUNKS, key_blocks));
        const int64_t lanes = std::max<int64_t>(1, blocks.lanes);
        splits = threads == 1 ? 1 : shared_dense ? chunks : std::min(chunks, parts(2 * threads, lanes));
        d = up(c.d_key, LANES<T>), dv = up(c.d_value, LANES<T>), step = c.form ? up(query_width(c), 16) : d;
        if (c.grad_v) weights.assign(size_t(blocks.lanes * chunks * c.group * c.d_key), 0.0);
        if (c.grad_offset_table) tables.assign(size_t(blocks.lanes * chunks * table()), T(0));
        if (c.grad_temperature) taus.assign(size_t(blocks.lanes * chunks * c.group), 0.0);
        if (c.grad_sink || (c.grad_temperature && c.sink)) sinks.assign(size_t(rows()), T(0));
        seen.resize(size_t(blocks.total));
        if (Faint<T, S>::applies(c)) reaches.resize(size_t(rows()));
    }
    int64_t rows() const { return c.batch * heads * c.queries; }
    int64_t table() const { return (c.offset_heads > 1 ? c.group : 1) * (2 * c.reach + 1); }
    int64_t share() const { return c.group * c.queries * c.d_key; }
    size_t size() const {
        return size_t(2 * room(rows()) + (c.form ? room((chunks + 1) * rows()) : 0) + room(blocks.total * BLOCK * step) + room(blocks.total * BLOCK * dv) +
                      (splits > 1 ? blocks.lanes * chunks * room(share()) : 0) + (dense_rows ? room(chunks * rows()) : 0));
    }
    void place(T* space) {
        constant = take(space, rows());
        rest = take(space, rows());
        query = take(space, blocks.total * BLOCK * step);
        grad = take(space, blocks.total * BLOCK * dv);
        if (c.form) totals = zeros(space, (chunks + 1) * rows());
        if (dense_rows) row_shares = zeros(space, chunks * rows());
        shares = space;
    }
    T* zeros(T*& space, int64_t count) const {
        T* part = take(space, count);
        std::fill(part, part + count, T(0));
        return part;
    }
    T* share_of(int64_t lane, int64_t chunk) const { return shares + (lane * chunks + chunk) * room(share()); }
    int64_t index(const Block& block, int64_t r) const { return (block.b * heads + block.head[r]) * c.queries + block.row[r]; }

    // Whether a row sees anything and is finite; if not, no gradient flows through it.
    bool sound(int64_t row) const {
        const T top = static_cast<const T*>(c.top)[row], total = static_cast<const T*>(c.total)[row];
        return total > T(0) && std::isfinite(top) && std::isfinite(total);
    }

    // Σ dO · O of a row, which is Σ p · dP. The sweep's dP are rounded; where one key has much of the weight, its rounding
    // must be in the sum as well, so that it cancels in dP − Σ p · dP. Where it has all of it, the sum is that key's dP itself.
    double delta(const Logits<T, S>& logits, int64_t r, int64_t unit) const {
        const Block& block = logits.block;
        const int64_t row = index(block, r), peak = c.peak_at ? c.peak_at[row] : -1;
        const T *g = grad + (unit * BLOCK + r) * dv, *o = static_cast<const T*>(c.out) + row * c.d_value;
        const double sum = wide_product(g, o, c.d_value);
        if (peak < 0 || !sound(row)) return sum;
        const T total = static_cast<const T*>(c.total)[row];
        double factor = 1 / double(total);  // the peak's own power is 1; a sink far above it makes a large total
        if (!(factor > 0.01)) return sum;
        double kept = 1;
        if (c.drop_below) {
            const uint64_t key = row_key(c.seed, block.b, block.head[r], logits.position(r));
            kept = pair_number<uint32_t>(key, uint32_t(c.key_start + peak)) >= c.drop_below ? c.keep_scale : 0.0;
            factor *= kept;
        }
        const S* v = at<S>(c.value, block.b, block.kv, peak);
        const int64_t size = Chains::even(c.d_value).each;
        T chain = 0, before = 0;
        double exact = 0;
        for (int64_t n = 0; n < c.d_value; ++n) {
            const T number = widen<T>(v[n * c.value.column]);
            if (n > 0 && n % size == 0) before += chain, chain = 0;
            chain += g[n] * number;
            exact += double(g[n]) * double(number);
        }
        if (total == T(1)) return double(T(T(chain + before) * T(kept)));
        return sum + factor * (double(T(chain + before)) - exact);
    }
    double sink_share(const Logits<T, S>& logits, int64_t row, int64_t h) const {
        const double top = double(static_cast<const T*>(c.top)[row]), total = double(static_cast<const T*>(c.total)[row]);
        return std::exp(double(static_cast<const T*>(c.sink)[h]) - top / logits.tau(h)) / total;
    }
    // Whether the sink has most of a row's weight: then what is left for the keys is known to fewer digits than the sink's.
    bool below_sink(const Logits<T, S>& logits, int64_t row, int64_t h) const { return c.sink && sink_share(logits, row, h) > 0.5; }
    double sink_gradient(int64_t row, double share, double met) const {
        if (!c.sink) return 0.0;
        if (!sound(row)) {  // a row that sees no key: its lse is the sink
            const bool empty = static_cast<const T*>(c.total)[row] == T(0);
            return empty && c.grad_lse ? double(static_cast<const T*>(c.grad_lse)[row]) : 0.0;
        }
        double sum = -met;
        if (c.grad_lse) sum += double(static_cast<const T*>(c.grad_lse)[row]);
        if (c.grad_entropy)
            sum += double(static_cast<const T*>(c.grad_entropy)[row]) * (1 - share - double(static_cast<const T*>(c.entropy)[row]));
        return share * sum;
    }

    // Rows whose keys are all in one block take their own sum instead.
    bool needs_delta() const { return key_blocks > 1 || !sinks.empty() || c.form; }
    // Lay out one block's rows, and the constant of each: d_lse − Σ dO · O − d_entropy · entropy.
    void load_block(int64_t lane, int64_t number) {
        const Block block = blocks.at(c, lane, number);
        const int64_t unit = lane * blocks.per_lane + number;
        seen[size_t(unit)] = runs_of(c, mask, block);
        Logits<T, S> logits(c, mask);
        logits.set_block(block);
        logits.queries(block, query + unit * BLOCK * step, step);
        for (int64_t r = 0; r < block.count; ++r)
            copy_row<T>(at<T>(c.grad_out, block.b, block.head[r], block.row[r]), c.grad_out.column, c.d_value,
                        grad + (unit * BLOCK + r) * dv);
        for (int64_t r = 0; r < block.count; ++r) {
            T* g = grad + (unit * BLOCK + r) * dv;
            const int64_t row = index(block, r);
            const double met = needs_delta() ? delta(logits, r, unit) : 0.0;
            if (!reaches.empty()) reaches[size_t(row)] = Faint<T, S>::reach_of(c, query + (unit * BLOCK + r) * step);
            if (!c.form) std::fill(query + (unit * BLOCK + r) * step + c.d_key, query + (unit * BLOCK + r + 1) * step, T(0));
            std::fill(g + (sound(row) ? c.d_value : 0), g + dv, T(0));
            double sum = 0, share = 0;
            if (c.grad_lse) sum -= double(static_cast<const T*>(c.grad_lse)[row]);
            if (c.sink && sound(row)) share = sink_share(logits, row, block.head[r]);
            if (c.grad_entropy)
                sum += double(static_cast<const T*>(c.grad_entropy)[row]) * (double(static_cast<const T*>(c.entropy)[row]) + share);
            if (!sinks.empty()) sinks[size_t(row)] = T(sink_gradient(row, share, met));
            constant[row] = sound(row) ? T(-met - sum) : T(0);
            rest[row] = T(-sum);
            if (c.form && sound(row)) {  // the gradients of a row of logits, its sink among them, add up to that of its lse
                const double lse = c.grad_lse ? double(static_cast<const T*>(c.grad_lse)[row]) : 0.0;
                totals[row] = T((sink_gradient(row, share, met) - lse) * c.scale / logits.tau(block.head[r]));
                // the rounding of a sink with most of the weight is larger than what the keys' gradients miss
                if (share > 0.5) totals[row] = std::numeric_limits<T>::quiet_NaN();
            }
        }
    }

    // A chunk's share of dQ joins those before it.
    void add_queries(int64_t lane, int64_t chunk, const T* from) const {
        T* to = static_cast<T*>(c.grad_query) + lane * share();
        if (chunk == 0)
            std::copy(from, from + share(), to);
        else
            for (int64_t n = 0; n < share(); ++n) to[n] += from[n];
    }
    void add_tables() const {
        if (c.grad_offset_table) {
            const int64_t own = table(), count = c.offset_heads * (2 * c.reach + 1);
            for (int64_t n = 0; n < count; ++n) {
                double sum = 0;
                for (int64_t lane = 0; lane < blocks.lanes; ++lane) {
                    const int64_t at = n - (c.offset_heads > 1 ? lane % c.kv_heads * own : 0);
                    for (int64_t chunk = 0; chunk < chunks && at >= 0 && at < own; ++chunk)
                        sum += double(tables[size_t((lane * chunks + chunk) * own + at)]);
                }
                static_cast<T*>(c.grad_offset_table)[n] = T(sum);
            }
        }
        for (int64_t n = 0; n < (c.grad_v ? heads * c.d_key : 0); ++n) {
            const int64_t own = c.group * c.d_key;
            double sum = 0;
            for (int64_t b = 0; b < c.batch; ++b)
                for (int64_t chunk = 0; chunk < chunks; ++chunk)
                    sum += weights[size_t(((b * c.kv_heads + n / own) * chunks + chunk) * own + n % own)];
            static_cast<T*>(c.grad_v)[n] = T(sum);
        }
        for (int64_t h = 0; h < (c.grad_sink ? heads : 0); ++h) {
            double sum = 0;
            for (int64_t b = 0; b < c.batch; ++b)
                for (int64_t q = 0; q < c.queries; ++q) sum += double(sinks[size_t((b * heads + h) * c.queries + q)]);
            static_cast<T*>(c.grad_sink)[h] = T(sum);
        }
        for (int64_t h = 0; h < (c.grad_temperature ? heads : 0); ++h) {
            double sum = 0;
            for (int64_t b = 0; b < c.batch; ++b)
                for (int64_t chunk = 0; chunk < chunks; ++chunk)
                    sum += taus[size_t(((b * c.kv_heads + h / c.group) * chunks + chunk) * c.group + h % c.group)];
            static_cast<T*>(c.grad_temperature)[h] = T(sum);
        }
        for (int64_t row = 0; row < (dense_rows ? rows() : 0); ++row) {
            const int64_t q = row % c.queries, h = row / c.queries % heads, b = row / c.queries / heads;
            T* to = static_cast<T*>(c.grad_dense.data) + b * c.grad_dense.batch + h * c.grad_dense.head + q * c.grad_dense.row;
            for (int64_t chunk = 0; chunk < chunks; ++chunk) *to += row_shares[chunk * rows() + row];
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
