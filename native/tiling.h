// How a call is tiled: blocks of query rows, segments of keys, and the visible span of a segment for a block.
//
//   batch_head   a batch row and one of its key heads, with the `group` query heads that read it: b * kv_heads + kv
#pragma once
#include "mask.h"

namespace regard {

constexpr int QUERY_BLOCK = 48;  // query rows computed together
constexpr int ROW_GROUP = 12;  // rows of a block that share one range of columns; a multiple of a register tile's rows
constexpr int SEGMENT = 256;   // keys are split at absolute multiples of this; fixes the order of sums

inline int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
inline int64_t ceil_div(int64_t x, int64_t step) { return (x + step - 1) / step; }

template <class S> inline const S* row_pointer(const regard_tensor& t, int64_t b, int64_t h, int64_t row) {
    return static_cast<const S*>(t.data) + b * t.batch + h * t.head + row * t.row;
}

// Threads worth using: each should have a few hundred thousand operations.
inline int64_t useful_threads(const regard_call& c) {
    const double work = 2.0 * double(c.batch * c.kv_heads * c.group * c.queries) * double(c.keys) *
                        double((c.form ? 8 : 1) * c.d_key + c.d_value);
    return std::max<int64_t>(1, std::min(c.threads, int64_t(work / 5e5)));
}

// Columns between the start of the first segment and the first key: key_start modulo SEGMENT.
inline int64_t segment_padding(const regard_call& c) { return ((c.key_start % SEGMENT) + SEGMENT) % SEGMENT; }

// Query rows that are computed together: up to QUERY_BLOCK rows of one head, or all rows of several heads of one group.
struct QueryBlock {
    int64_t b, kv, count, row0, row1, head0, heads;
    int64_t head[QUERY_BLOCK], row[QUERY_BLOCK];
};

struct QueryBlocks {
    int64_t batch_heads, per_head, heads_per_block, per_batch_head, total;
    explicit QueryBlocks(const regard_call& c) {
        batch_heads = c.batch * c.kv_heads;
        heads_per_block =
            std::min<int64_t>(c.group, std::max<int64_t>(1, QUERY_BLOCK / std::max<int64_t>(1, c.queries)));
        per_head = ceil_div(c.queries, QUERY_BLOCK);
        per_batch_head = ceil_div(c.group, heads_per_block) * per_head;
        total = batch_heads * per_batch_head;
    }
    // Last rows first: under a causal mask they take longest.
    QueryBlock at(const regard_call& c, int64_t batch_head, int64_t number) const {
        const int64_t within = per_batch_head - 1 - number, group = within / per_head * heads_per_block;
        QueryBlock block;
        block.b = batch_head / c.kv_heads;
        block.kv = batch_head % c.kv_heads;
        block.head0 = block.kv * c.group + group;
        block.heads = std::min(heads_per_block, c.group - group);
        block.row0 = within % per_head * QUERY_BLOCK;
        block.row1 = std::min(c.queries, block.row0 + QUERY_BLOCK);
        const int64_t rows = block.row1 - block.row0;
        block.count = block.heads * rows;
        for (int64_t r = 0; r < block.count; ++r) {
            block.head[r] = block.head0 + r / rows;
            block.row[r] = block.row0 + r % rows;
        }
        return block;
    }
};

// Runs of keys that are hidden from all rows and heads of a block, visible to all, or mixed.
inline Runs visible_runs(const regard_call& c, const Mask& mask, const QueryBlock& block) {
    Runs all = mask.runs(block.b, block.head0, block.row0, block.row1);
    if (!mask.varies_by_head()) return all;
    for (int64_t h = 1; h < block.heads; ++h) {
        const Runs more = mask.runs(block.b, block.head0 + h, block.row0, block.row1);
        const Runs any = Mask::combine(all, more, false), every = Mask::combine(all, more, true);
        Runs joined;
        size_t l = 0, r = 0;
        for (int64_t at = 0; at < c.keys;) {
            const int64_t stop = std::min(any[l].stop, every[r].stop);
            Mask::add(joined, at, stop, any[l].kind == EMPTY ? EMPTY : every[r].kind == FULL ? FULL : MIXED);
            if (any[l].stop == stop) ++l;
            if (every[r].stop == stop) ++r;
            at = stop;
        }
        all = joined;
    }
    return all;
}

// The visible part of a range of columns: [start, stop) covers every column that some row of a block sees; `full` if
// all its pairs are visible.
struct Span {
    int64_t start, stop;
    bool full;
};
// The visible span within columns from .. to - 1; empty if start == stop.
inline Span visible_span(const Runs& runs, int64_t from, int64_t to) {
    auto run = std::upper_bound(runs.begin(), runs.end(), from, [](int64_t x, const Run& r) { return x < r.stop; });
    Span span{to, to, true};
    for (; run != runs.end() && run->start < to; ++run) {
        if (run->kind == EMPTY) continue;
        const int64_t start = std::max(run->start, from);
        span.full &= run->kind == FULL && (span.start == to || span.stop == start);
        if (span.start == to) span.start = start;
        span.stop = std::min(run->stop, to);
    }
    return span;
}

}  // namespace regard
