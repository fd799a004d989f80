// The second pass over all pairs, when row_max and row_sum of the rows are known: weights, summed by key, by cell of a
// grid and by row, or written for a tile of rows and columns.
//
//   for batch_head, for chunk of segments                    one unit of work for a thread (at most 64 chunks)
//     for segment of SEGMENT = 256 keys                      keys packed into panels once
//       for block of QUERY_BLOCK = 48 rows, first to last    s = logits, as in the forward pass (L2)
//         for rows of one head and one row of the grid
//           for row group: for vector of keys: for row       add_weights: w = exp(logit − row_max) / row_sum
//           add the sums to keys and cells                   flush: in double
//
// A thread has all queries of its keys, so sums by key are complete. Sums by row, and cells that cross segments, are
// added in order at the end (SecondPassPlan::join). So no bit depends on the number of threads.
//
// Template parameters: T compute type, S storage type (simd.h); SPREAD: also sum w · (|i − j| − distance)² by row.
#pragma once
#include "logits.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

// One axis of the grid: cell a starts at a · count / cells. The products fit: both are lengths of arrays in memory.
struct Axis {
    int64_t count, cells;
    int64_t first(int64_t cell) const { return cell * count / cells; }
    int64_t cell(int64_t number) const { return ((number + 1) * cells - 1) / count; }
};
struct Cell {
    double sum = 0, largest = 0;
    int64_t pairs = 0;
    void add(const Cell& o) { sum += o.sum, largest = std::max(largest, o.largest), pairs += o.pairs; }
};

template <class T, class S> struct SecondPassPlan {
    const regard_call& c;
    Mask mask;
    QueryBlocks blocks;
    Packer<T, S> packer;
    Axis rows, columns;
    std::vector<Runs> visible;  // per block
    // Per batch_head, segment, head of its group and row of the grid: the cells of its first and last column.
    std::vector<Cell> borders;
    std::vector<T> spreads;  // per batch_head, chunk and row of its group: spread and sum of weights
    int64_t chunks;          // of segments; bounded, so that `spreads` stays linear in memory
    int64_t from, to;        // segments to compute
    explicit SecondPassPlan(const regard_call& call)
        : c(call),
          mask(call),
          blocks(call),
          packer(call),
          rows{call.queries, call.pool_rows},
          columns{call.keys, call.pool_columns} {
        visible.resize(size_t(blocks.total));
        from = c.tile ? (packer.pad + c.tile_column) / SEGMENT : 0;
        to = c.tile ? (packer.pad + c.tile_column + c.tile_columns - 1) / SEGMENT + 1 : packer.segments;
        chunks = std::min<int64_t>(to - from, 64);
        if (has_grid()) borders.resize(size_t(blocks.batch_heads * packer.segments * c.group * rows.cells * 2));
        if (c.spread) spreads.assign(size_t(2 * blocks.batch_heads * chunks * c.group * c.queries), T(0));
    }
    bool has_grid() const { return c.pool_rows > 0; }
    // Whether block `number` of a batch_head is computed: all of them, or those with rows of the tile.
    bool includes(int64_t number) const {
        const int64_t row = (blocks.per_batch_head - 1 - number) % blocks.per_head * QUERY_BLOCK;
        return !c.tile || (row < c.tile_row + c.tile_rows && row + QUERY_BLOCK > c.tile_row);
    }
    int64_t threads() const {
        const int64_t rows = c.tile ? c.tile_rows : c.queries, keys = (to - from) * SEGMENT;
        const double work =
            2.0 * double(blocks.batch_heads * c.group * rows) * double(keys) * double((c.form ? 8 : 1) * c.d_key);
        return std::max<int64_t>(
            1, std::min(c.threads, int64_t(work / (c.tile ? 2e7 : 5e5))));  // a tile takes little time
    }
    Cell* border(int64_t unit, int64_t head, int64_t row) {
        return borders.data() + ((unit * c.group + head) * rows.cells + row) * 2;
    }
    // Add the cells at the borders of segments, and the sums by row, in order. Other cells are complete.
    void join() {
        const int64_t heads = c.kv_heads * c.group;
        for (int64_t unit = 0; has_grid() && unit < blocks.batch_heads * packer.segments; ++unit) {
            const int64_t batch_head = unit / packer.segments, begin = unit % packer.segments * SEGMENT - packer.pad;
            const int64_t edge[2] = {columns.cell(std::max<int64_t>(0, begin)),
                                     columns.cell(std::min(c.keys, begin + SEGMENT) - 1)};
            for (int64_t h = 0; h < c.group; ++h)
                for (int64_t row = 0; row < rows.cells; ++row)
                    for (int side = 0; side < 2; ++side) {
                        const Cell& cell = border(unit, h, row)[side];
                        const int64_t at =
                            (((batch_head / c.kv_heads * heads + batch_head % c.kv_heads * c.group + h) * rows.cells) +
                             row) *
                                columns.cells +
                            edge[side];
                        c.pool_sum[at] += cell.sum;
                        c.pool_max[at] = std::max(c.pool_max[at], cell.largest);
                        c.pool_pairs[at] += cell.pairs;
                    }
        }
        for (int64_t batch_head = 0; c.spread && batch_head < blocks.batch_heads; ++batch_head)
            for (int64_t n = 0, own = c.group * c.queries; n < own; ++n) {
                double spread = 0, sum = 0;
                for (int64_t chunk = 0; chunk < chunks; ++chunk) {
                    const T* part = spreads.data() + 2 * ((batch_head * chunks + chunk) * own + n);
                    spread += double(part[0]), sum += double(part[1]);
                }
                static_cast<T*>(c.spread)[batch_head * own + n] = T(spread);
                static_cast<T*>(c.weight_sum)[batch_head * own + n] = T(sum);
            }
    }
};

template <class T, class S> class SecondPass {
   public:
    SecondPass(SecondPassPlan<T, S>& plan, const CallControl& control, T* space)
        : plan_(plan), c_(plan.c), logits_(plan.c, plan.mask), control_(control) {
        s_ = allocate(space, QUERY_BLOCK * ROW_STRIDE);
        q_ = allocate(space, QUERY_BLOCK * round_up(query_table_width(c_), 16));
        panels_ = allocate(space, SEGMENT * plan.packer.width);
    }
    static size_t workspace_size(const SecondPassPlan<T, S>& plan) {
        return size_t(padded_size(QUERY_BLOCK * ROW_STRIDE) +
                      padded_size(QUERY_BLOCK * round_up(query_table_width(plan.c), 16)) +
                      padded_size(SEGMENT * plan.packer.width));
    }

    // One chunk of the segments of a batch_head against all its queries.
    void run(int64_t work) {
        work_ = work;
        const int64_t batch_head = work / plan_.chunks, chunk = work % plan_.chunks, count = plan_.to - plan_.from;
        for (int64_t n = count * chunk / plan_.chunks; n < count * (chunk + 1) / plan_.chunks; ++n)
            run_segment(batch_head, plan_.from + n);
    }

   private:
    void run_segment(int64_t batch_head, int64_t segment) {
        unit_ = batch_head * plan_.packer.segments + segment;
        base_ = plan_.packer.segment_start(segment);
        begin_ = std::max<int64_t>(0, base_), end_ = std::min(c_.keys, base_ + SEGMENT);
        received_.assign(c_.received ? size_t(c_.group * SEGMENT) : 0, 0.0);
        bool packed = false;
        for (int64_t number = plan_.blocks.per_batch_head - 1; number >= 0 && !control_.stopped(); --number) {
            if (!plan_.includes(number)) continue;
            const Span span =
                visible_span(plan_.visible[size_t(batch_head * plan_.blocks.per_batch_head + number)], begin_, end_);
            if (span.start == span.stop) continue;
            Prefetcher no_prefetch;
            if (!packed) plan_.packer.pack_keys(batch_head, segment, begin_, end_, panels_, no_prefetch);
            packed = true;
            add_block(plan_.blocks.at(c_, batch_head, number), span);
        }
        if (!c_.received) return;
        const int64_t heads = c_.kv_heads * c_.group,
                      first = batch_head / c_.kv_heads * heads + batch_head % c_.kv_heads * c_.group;
        for (int64_t h = 0; h < c_.group; ++h)
            for (int64_t j = begin_; j < end_; ++j)
                static_cast<T*>(c_.received)[(first + h) * c_.keys + j] = T(received_[size_t(h * SEGMENT + j - base_)]);
    }

    SecondPassPlan<T, S>& plan_;
    const regard_call& c_;
    Logits<T, S> logits_;
    const CallControl& control_;
    T *s_, *q_, *panels_;
    int64_t work_, unit_;         // batch_head and chunk; batch_head and segment
    int64_t base_, begin_, end_;  // of the segment: column 0, its keys
    std::vector<double> received_;
    alignas(64) T sums_[SEGMENT], largest_[SEGMENT], pairs_[SEGMENT];  // by key, over some rows

    void add_block(const QueryBlock& next, const Span& span) {
        logits_.set_block(next);
        logits_.load_queries(next, q_, query_table_width(c_));
        logits_.set_span(span, base_);
        if (c_.form)
            logits_.additive_scores(q_, query_table_width(c_), panels_, s_);
        else
            logits_.dot_scores(q_, c_.d_key, c_.d_key, panels_, T(c_.scale), s_);
        if (c_.tile) return write_tile(span);
        const bool counts = plan_.has_grid() && (!span.full || logits_.has_bias());
        for (int64_t r = 0; r < next.count;) {  // rows of one head and one row of the grid
            const int64_t head = next.head[r], cell = plan_.has_grid() ? plan_.rows.cell(next.row[r]) : 0, from = r;
            for (T* line : {sums_, largest_, pairs_}) std::fill(line, line + SEGMENT, T(0));
            for (;
                 r < next.count && next.head[r] == head && (!plan_.has_grid() || plan_.rows.cell(next.row[r]) == cell);
                 ++r) {
                if (!logits_.scores_are_logits(span)) logits_.to_logits(r, span, s_ + r * ROW_STRIDE);
                if (counts) count_pairs(r);
            }
            for (int64_t first = from; first < r;) {  // rows of one row group share their columns
                const int64_t past = std::min(r, (first / ROW_GROUP + 1) * ROW_GROUP);
                c_.spread ? add_weights<true>(first, past) : add_weights<false>(first, past);
                first = past;
            }
            flush(head % c_.group, cell, counts ? 0 : r - from);
        }
    }
    // Write the weights of rows and columns that belong to the tile.
    void write_tile(const Span& span) {
        const QueryBlock& block = logits_.block;
        for (int64_t r = 0; r < block.count; ++r) {
            const int64_t row = block.row[r] - c_.tile_row, head = block.b * c_.kv_heads * c_.group + block.head[r];
            const T row_sum = static_cast<const T*>(c_.row_sum)[head * c_.queries + block.row[r]];
            if (row < 0 || row >= c_.tile_rows || !(row_sum > T(0))) continue;
            const T inverse = T(1) / row_sum;
            T *x = s_ + r * ROW_STRIDE, row_max = static_cast<const T*>(c_.row_max)[head * c_.queries + block.row[r]];
            if (!logits_.scores_are_logits(span)) logits_.to_logits(r, span, x);
            const int64_t low = logits_.column_begin[r / ROW_GROUP], high = logits_.column_end[r / ROW_GROUP];
            for (int64_t n = low; n < high; n += LANES<T>) {
                const Vec<T> logit = load(x + n);
                const Vec<T> weight = exp2(Vec<T>(logit - row_max), logits_.exponent_factor(r)) * inverse;
                store(sums_ + n, logit == splat(MINUS_INF<T>) ? splat(T(-1)) : weight);
            }
            T* line = static_cast<T*>(c_.tile) + (head * c_.tile_rows + row) * c_.tile_columns - c_.tile_column;
            const int64_t first = std::max({low, logits_.span_begin, c_.tile_column - base_});
            const int64_t past = std::min({high, logits_.span_end, c_.tile_column + c_.tile_columns - base_});
            if (first < past) std::copy(sums_ + first, sums_ + past, line + base_ + first);
        }
    }
    void count_pairs(int64_t r) {
        const T* x = s_ + r * ROW_STRIDE;
        for (int64_t n = logits_.column_begin[r / ROW_GROUP]; n < logits_.column_end[r / ROW_GROUP]; n += LANES<T>)
            store(pairs_ + n, load(pairs_ + n) + (load(x + n) == splat(MINUS_INF<T>) ? Vec<T>{} : splat(T(1))));
    }
    template <bool SPREAD> void add_weights(int64_t from, int64_t past) {
        const QueryBlock& block = logits_.block;
        const int64_t low = logits_.column_begin[from / ROW_GROUP], high = logits_.column_end[from / ROW_GROUP];
        T row_max[ROW_GROUP], inverse[ROW_GROUP], mean[ROW_GROUP], offset[ROW_GROUP];
        int64_t place[ROW_GROUP];
        Vec<T> spread[ROW_GROUP] = {}, all[ROW_GROUP] = {};
        for (int64_t r = from; r < past; ++r) {
            const int64_t m = r - from;
            place[m] = (block.b * c_.kv_heads * c_.group + block.head[r]) * c_.queries + block.row[r];
            const T row_sum = static_cast<const T*>(c_.row_sum)[place[m]];
            row_max[m] = static_cast<const T*>(c_.row_max)[place[m]];
            // 0 if the row sees nothing or is not finite
            inverse[m] = row_sum > T(0) && std::isfinite(row_max[m]) ? T(1) / row_sum : T(0);
            if (SPREAD) mean[m] = static_cast<const T*>(c_.distance)[place[m]], offset[m] = T(logits_.offset(r));
        }
        for (int64_t n = low; n < high; n += LANES<T>) {
            Vec<T> sums = load(sums_ + n), largest = load(largest_ + n);
            const Vec<T> here = splat(T(n)) + iota<T>();
            for (int64_t r = from; r < past; ++r) {
                const int64_t m = r - from;
                if (inverse[m] == T(0)) continue;
                const Vec<T> p =
                    exp2(Vec<T>(load(s_ + r * ROW_STRIDE + n) - row_max[m]), logits_.exponent_factor(r)) * inverse[m];
                sums += p;
                largest = max<T>(largest, p);
                if (SPREAD) {
                    const Vec<T> off = absolute<T>(here + offset[m]) - mean[m];
                    spread[m] += p * off * off, all[m] += p;
                }
            }
            store(sums_ + n, sums), store(largest_ + n, largest);
        }
        if (SPREAD)
            for (int64_t r = from; r < past; ++r) {
                T* to = plan_.spreads.data() +
                        2 * ((work_ * c_.group + block.head[r] % c_.group) * c_.queries + block.row[r]);
                to[0] += reduce_add<T>(spread[r - from]), to[1] += reduce_add<T>(all[r - from]);
            }
    }

    // Add the sums of some rows to their keys and cells. `full_rows` is the number of rows if they see all columns of
    // the span, else 0.
    void flush(int64_t head, int64_t row, int64_t full_rows) {
        const int64_t from = logits_.span_begin, to = logits_.span_end;
        if (c_.received)
            for (int64_t n = from; n < to; ++n) received_[size_t(head * SEGMENT + n)] += double(sums_[n]);
        if (!plan_.has_grid()) return;
        const int64_t batch_head = unit_ / plan_.packer.segments, first = plan_.columns.cell(begin_),
                      last = plan_.columns.cell(end_ - 1);
        const int64_t h =
            batch_head / c_.kv_heads * c_.kv_heads * c_.group + batch_head % c_.kv_heads * c_.group + head;
        for (int64_t n = from; n < to;) {
            const int64_t cell = plan_.columns.cell(base_ + n),
                          stop = std::min(to, plan_.columns.first(cell + 1) - base_);
            Cell part;
            for (; n < stop; ++n) {
                part.sum += double(sums_[n]);
                part.largest = std::max(part.largest, double(largest_[n]));
                part.pairs += full_rows ? full_rows : int64_t(pairs_[n]);
            }
            if (cell == first || cell == last) {
                plan_.border(unit_, head, row)[cell == first ? 0 : 1].add(part);
            } else {
                const int64_t at = (h * plan_.rows.cells + row) * plan_.columns.cells + cell;
                c_.pool_sum[at] += part.sum;
                c_.pool_max[at] = std::max(c_.pool_max[at], part.largest);
                c_.pool_pairs[at] += part.pairs;
            }
        }
    }
};

template <class T, class S> int second_pass(const regard_call& c, Workspaces<T>& workspaces) {
    const CallControl control(c.stop, c.progress);
    SecondPassPlan<T, S> plan(c);
    const int64_t threads = plan.threads();
    workspaces.add_workers(threads);
    parallel(plan.blocks.total, threads, control, [&](int64_t unit, int64_t) {
        if (plan.includes(unit % plan.blocks.per_batch_head))
            plan.visible[size_t(unit)] = visible_runs(
                c, plan.mask, plan.blocks.at(c, unit / plan.blocks.per_batch_head, unit % plan.blocks.per_batch_head));
    });
    parallel(plan.blocks.batch_heads * plan.chunks, threads, control, [&](int64_t work, int64_t worker) {
        SecondPass<T, S>(plan, control, workspaces.worker(worker, SecondPass<T, S>::workspace_size(plan))).run(work);
    });
    plan.join();
    return control.stopped() ? REGARD_STOPPED : REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
