// The second pass over the pairs, once the state of the rows is known: weights, summed by key, by cell of a grid and by row.
// Threads take segments of keys and go through all queries, so sums by key need no joining and no bit depends on threads.
#pragma once
#include "logits.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

// A grid over all pairs of a head: cell a of `cells` holds numbers a · count / cells up to the next cell's first.
struct Axis {
    int64_t count, cells;
    int64_t first(int64_t cell) const { return int64_t(__int128(cell) * count / cells); }
    int64_t cell(int64_t number) const { return int64_t((__int128(number + 1) * cells - 1) / count); }
};
struct Cell {
    double sum = 0, largest = 0;
    int64_t pairs = 0;
    void add(const Cell& o) { sum += o.sum, largest = std::max(largest, o.largest), pairs += o.pairs; }
};

template <class T, class S> struct VisitPlan {
    const regard_call& c;
    Mask mask;
    Blocks blocks;
    Packer<T, S> packer;
    Axis rows, columns;
    std::vector<Runs> seen;
    std::vector<Cell> borders;      // per lane, segment and head of its group: cells of its first and its last column
    std::vector<T> spreads;         // per lane, chunk and row of its group: spread and sum of weights
    int64_t chunks;                 // of segments, a thread's work: their number is bounded, or memory would grow as n²
    int64_t from, to;               // segments to go through
    explicit VisitPlan(const regard_call& call)
        : c(call), mask(call), blocks(call), packer(call), rows{call.queries, call.pool_rows}, columns{call.keys, call.pool_columns} {
        seen.resize(size_t(blocks.total));
        from = c.tile ? (packer.pad + c.tile_column) / SEGMENT : 0;
        to = c.tile ? (packer.pad + c.tile_column + c.tile_columns - 1) / SEGMENT + 1 : packer.segments;
        chunks = std::min<int64_t>(to - from, 64);
        if (pools()) borders.resize(size_t(blocks.lanes * packer.segments * c.group * rows.cells * 2));
        if (c.spread) spreads.assign(size_t(2 * blocks.lanes * chunks * c.group * c.queries), T(0));
    }
    bool pools() const { return c.pool_rows > 0; }
    // Whether block `number` of a lane has rows of the tile, or there is none.
    bool wanted(int64_t number) const {
        const int64_t row = (blocks.per_lane - 1 - number) % blocks.per_head * BLOCK;
        return !c.tile || (row < c.tile_row + c.tile_rows && row + BLOCK > c.tile_row);
    }
    int64_t threads() const {
        const int64_t rows = c.tile ? c.tile_rows : c.queries, keys = (to - from) * SEGMENT;
        const double work = 2.0 * double(blocks.lanes * c.group * rows) * double(keys) * double((c.form ? 8 : 1) * c.d_key);
        return std::max<int64_t>(1, std::min(c.threads, int64_t(work / (c.tile ? 2e7 : 5e5))));  // a tile is soon done
    }
    Cell* border(int64_t unit, int64_t head, int64_t row) { return borders.data() + ((unit * c.group + head) * rows.cells + row) * 2; }
    // Cells that lie in one segment are written there; the others are joined here, in order.
    void join() {
        const int64_t heads = c.kv_heads * c.group;
        for (int64_t unit = 0; pools() && unit < blocks.lanes * packer.segments; ++unit) {
            const int64_t lane = unit / packer.segments, begin = unit % packer.segments * SEGMENT - packer.pad;
            const int64_t edge[2] = {columns.cell(std::max<int64_t>(0, begin)), columns.cell(std::min(c.keys, begin + SEGMENT) - 1)};
            for (int64_t h = 0; h < c.group; ++h)
                for (int64_t row = 0; row < rows.cells; ++row)
                    for (int side = 0; side < 2; ++side) {
                        const Cell& cell = border(unit, h, row)[side];
                        const int64_t at = (((lane / c.kv_heads * heads + lane % c.kv_heads * c.group + h) * rows.cells) + row) * columns.cells + edge[side];
                        c.pool_sum[at] += cell.sum, c.pool_max[at] = std::max(c.pool_max[at], cell.largest), c.pool_pairs[at] += cell.pairs;
                    }
        }
        for (int64_t lane = 0; c.spread && lane < blocks.lanes; ++lane)
            for (int64_t n = 0, own = c.group * c.queries; n < own; ++n) {
                double spread = 0, sum = 0;
                for (int64_t chunk = 0; chunk < chunks; ++chunk) {
                    const T* part = spreads.data() + 2 * ((lane * chunks + chunk) * own + n);
                    spread += double(part[0]), sum += double(part[1]);
                }
                static_cast<T*>(c.spread)[lane * own + n] = T(spread), static_cast<T*>(c.rowsum)[lane * own + n] = T(sum);
            }
    }
};

template <class T, class S> class Visit {
   public:
    Visit(VisitPlan<T, S>& plan, const Stop& stop, T* space) : p_(plan), c_(plan.c), logits_(plan.c, plan.mask), stop_(stop) {
        s_ = take(space, BLOCK * LINE);
        q_ = take(space, BLOCK * up(query_width(c_), 16));
        panels_ = take(space, SEGMENT * plan.packer.width);
    }
    static size_t space(const VisitPlan<T, S>& p) {
        return size_t(room(BLOCK * LINE) + room(BLOCK * up(query_width(p.c), 16)) + room(SEGMENT * p.packer.width));
    }

    // Some segments of one lane against all its queries.
    void run(int64_t work) {
        work_ = work;
        const int64_t lane = work / p_.chunks, chunk = work % p_.chunks, count = p_.to - p_.from;
        for (int64_t n = count * chunk / p_.chunks; n < count * (chunk + 1) / p_.chunks; ++n) run(lane, p_.from + n);
    }

   private:
    void run(int64_t lane, int64_t segment) {
        unit_ = lane * p_.packer.segments + segment;
        base_ = segment * SEGMENT - p_.packer.pad, begin_ = std::max<int64_t>(0, base_), end_ = std::min(c_.keys, base_ + SEGMENT);
        received_.assign(c_.received ? size_t(c_.group * SEGMENT) : 0, 0.0);
        bool packed = false;
        for (int64_t number = p_.blocks.per_lane - 1; number >= 0 && !stop_.now(); --number) {
            if (!p_.wanted(number)) continue;
            const Span span = span_of(p_.seen[size_t(lane * p_.blocks.per_lane + number)], begin_, end_);
            if (span.start == span.stop) continue;
            Ahead nothing;
            if (!packed) p_.packer.keys(lane, segment, begin_, end_, panels_, nothing);
            packed = true;
            block(p_.blocks.at(c_, lane, number), span);
        }
        if (!c_.received) return;
        const int64_t heads = c_.kv_heads * c_.group, first = lane / c_.kv_heads * heads + lane % c_.kv_heads * c_.group;
        for (int64_t h = 0; h < c_.group; ++h)
            for (int64_t j = begin_; j < end_; ++j)
                static_cast<T*>(c_.received)[(first + h) * c_.keys + j] = T(received_[size_t(h * SEGMENT + j - base_)]);
    }

    VisitPlan<T, S>& p_;
    const regard_call& c_;
    Logits<T, S> logits_;
    const Stop& stop_;
    T *s_, *q_, *panels_;
    int64_t work_, unit_, base_, begin_, end_;
    std::vector<double> received_;
    alignas(64) T sums_[SEGMENT], largest_[SEGMENT], pairs_[SEGMENT];

    void block(const Block& next, const Span& span) {
        logits_.set_block(next);
        logits_.queries(next, q_, query_width(c_));
        logits_.set_span(span, base_);
        if (c_.form)
            logits_.sums(q_, query_width(c_), panels_, s_);
        else
            logits_.scores(q_, c_.d_key, c_.d_key, panels_, T(c_.scale), s_);
        if (c_.tile) return tile(span);
        const bool counts = p_.pools() && (!span.full || logits_.biased());
        for (int64_t r = 0; r < next.count;) {  // rows of one head, in one row of the grid
            const int64_t head = next.head[r], cell = p_.pools() ? p_.rows.cell(next.row[r]) : 0, from = r;
            for (T* line : {sums_, largest_, pairs_}) std::fill(line, line + SEGMENT, T(0));
            for (; r < next.count && next.head[r] == head && (!p_.pools() || p_.rows.cell(next.row[r]) == cell); ++r) {
                if (!logits_.finished(span)) logits_.finish(r, span, s_ + r * LINE);
                if (counts) count(r);
            }
            for (int64_t first = from; first < r;) {  // rows of one group share their columns
                const int64_t past = std::min(r, (first / GROUP + 1) * GROUP);
                c_.spread ? weights<true>(first, past) : weights<false>(first, past);
                first = past;
            }
            flush(head % c_.group, cell, counts ? 0 : r - from);
        }
    }
    // The weights of rows and columns that belong to the tile.
    void tile(const Span& span) {
        const Block& block = logits_.block;
        for (int64_t r = 0; r < block.count; ++r) {
            const int64_t row = block.row[r] - c_.tile_row, lane = block.b * c_.kv_heads * c_.group + block.head[r];
            const T total = static_cast<const T*>(c_.total)[lane * c_.queries + block.row[r]];
            if (row < 0 || row >= c_.tile_rows || !(total > T(0))) continue;
            T *x = s_ + r * LINE, top = static_cast<const T*>(c_.top)[lane * c_.queries + block.row[r]];
            if (!logits_.finished(span)) logits_.finish(r, span, x);
            const int64_t low = logits_.low[r / GROUP], high = logits_.high[r / GROUP];
            for (int64_t n = low; n < high; n += LANES<T>) {
                const Vec<T> logit = load(x + n);
                store(sums_ + n, logit == splat(NONE<T>) ? splat(T(-1)) : Vec<T>(exp2(Vec<T>(logit - top), logits_.factor(r)) * (T(1) / total)));
            }
            T* line = static_cast<T*>(c_.tile) + (lane * c_.tile_rows + row) * c_.tile_columns - c_.tile_column;
            const int64_t first = std::max({low, logits_.first, c_.tile_column - base_});
            const int64_t past = std::min({high, logits_.last, c_.tile_column + c_.tile_columns - base_});
            for (int64_t n = first; n < past; ++n)
                if (sums_[n] >= T(0)) line[base_ + n] = sums_[n];
        }
    }
    void count(int64_t r) {
        const T* x = s_ + r * LINE;
        for (int64_t n = logits_.low[r / GROUP]; n < logits_.high[r / GROUP]; n += LANES<T>)
            store(pairs_ + n, load(pairs_ + n) + (load(x + n) == splat(NONE<T>) ? Vec<T>{} : splat(T(1))));
    }
    template <bool SPREAD> void weights(int64_t from, int64_t past) {
        const Block& block = logits_.block;
        const int64_t low = logits_.low[from / GROUP], high = logits_.high[from / GROUP];
        T top[GROUP], inverse[GROUP], mean[GROUP], offset[GROUP];
        int64_t place[GROUP];
        Vec<T> spread[GROUP] = {}, all[GROUP] = {};
        for (int64_t r = from; r < past; ++r) {
            const int64_t m = r - from;
            place[m] = (block.b * c_.kv_heads * c_.group + block.head[r]) * c_.queries + block.row[r];
            const T total = static_cast<const T*>(c_.total)[place[m]];
            top[m] = static_cast<const T*>(c_.top)[place[m]];
            inverse[m] = total > T(0) && std::isfinite(top[m]) ? T(1) / total : T(0);  // or it sees nothing, or is not finite
            if (SPREAD) mean[m] = static_cast<const T*>(c_.distance)[place[m]], offset[m] = T(logits_.offset(r));
        }
        for (int64_t n = low; n < high; n += LANES<T>) {
            Vec<T> sums = load(sums_ + n), largest = load(largest_ + n);
            const Vec<T> here = splat(T(n)) + iota<T>();
            for (int64_t r = from; r < past; ++r) {
                const int64_t m = r - from;
                if (inverse[m] == T(0)) continue;
                const Vec<T> p = exp2(Vec<T>(load(s_ + r * LINE + n) - top[m]), logits_.factor(r)) * inverse[m];
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
                T* to = p_.spreads.data() + 2 * ((work_ * c_.group + block.head[r] % c_.group) * c_.queries + block.row[r]);
                to[0] += sum<T>(spread[r - from]), to[1] += sum<T>(all[r - from]);
            }
    }

    // What some rows give, to their keys and cells. `solid` is the number of rows if they see all columns of the span.
    void flush(int64_t head, int64_t row, int64_t solid) {
        const int64_t from = logits_.first, to = logits_.last;
        if (c_.received)
            for (int64_t n = from; n < to; ++n) received_[size_t(head * SEGMENT + n)] += double(sums_[n]);
        if (!p_.pools()) return;
        const int64_t lane = unit_ / p_.packer.segments, first = p_.columns.cell(begin_), last = p_.columns.cell(end_ - 1);
        const int64_t h = lane / c_.kv_heads * c_.kv_heads * c_.group + lane % c_.kv_heads * c_.group + head;
        for (int64_t n = from; n < to;) {
            const int64_t cell = p_.columns.cell(base_ + n), stop = std::min(to, p_.columns.first(cell + 1) - base_);
            Cell found;
            for (; n < stop; ++n) {
                found.sum += double(sums_[n]), found.largest = std::max(found.largest, double(largest_[n]));
                found.pairs += solid ? solid : int64_t(pairs_[n]);
            }
            if (cell == first || cell == last) {
                p_.border(unit_, head, row)[cell == first ? 0 : 1].add(found);
            } else {
                const int64_t at = (h * p_.rows.cells + row) * p_.columns.cells + cell;
                c_.pool_sum[at] += found.sum, c_.pool_max[at] = std::max(c_.pool_max[at], found.largest), c_.pool_pairs[at] += found.pairs;
            }
        }
    }
};

template <class T, class S> int visit(const regard_call& c, Spaces<T>& spaces) {
    const Stop stop(c.stop, c.progress);
    VisitPlan<T, S> plan(c);
    const int64_t threads = plan.threads();
    if (int64_t(spaces.workers.size()) < threads) spaces.workers.resize(size_t(threads));
    parallel(plan.blocks.total, threads, stop, [&](int64_t unit, int64_t) {
        if (plan.wanted(unit % plan.blocks.per_lane)) plan.seen[size_t(unit)] = runs_of(c, plan.mask, plan.blocks.at(c, unit / plan.blocks.per_lane, unit % plan.blocks.per_lane));
    });
    parallel(plan.blocks.lanes * plan.chunks, threads, stop, [&](int64_t work, int64_t worker) {
        Visit<T, S>(plan, stop, spaces.worker(worker, Visit<T, S>::space(plan))).run(work);
    });
    plan.join();
    return stop.now() ? REGARD_STOPPED : REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
