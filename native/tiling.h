// How a call is cut: blocks of query rows, key segments, and the spans of segments that a block sees.
#pragma once
#include "mask.h"

namespace regard {

constexpr int BLOCK = 48;     // query rows at a time
constexpr int GROUP = 12;     // rows of a block that share one range of columns
constexpr int SEGMENT = 256;  // keys are cut at absolute multiples of this; the order of sums depends on it

inline int64_t up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
inline int64_t parts(int64_t x, int64_t step) { return (x + step - 1) / step; }

template <class S> inline const S* at(const regard_tensor& t, int64_t b, int64_t h, int64_t row) {
    return static_cast<const S*>(t.data) + b * t.batch + h * t.head + row * t.row;
}

// Threads that are worth waking: each should have a few hundred thousand operations.
inline int64_t useful_threads(const regard_call& c) {
    const double work = 2.0 * double(c.batch * c.kv_heads * c.group * c.queries) * double(c.keys) * double((c.form ? 8 : 1) * c.d_key + c.d_value);
    return std::max<int64_t>(1, std::min(c.threads, int64_t(work / 5e5)));
}

// How far the first key stands behind the start of its segment.
inline int64_t pad_of(const regard_call& c) { return ((c.key_start % SEGMENT) + SEGMENT) % SEGMENT; }

// Query rows that are computed together: some rows of one head, or all rows of several heads of a group.
struct Block {
    int64_t b, kv, count, row0, row1, head0, heads;
    int64_t head[BLOCK], row[BLOCK];
};

struct Blocks {
    int64_t lanes, per_head, heads_per_block, per_lane, total;
    explicit Blocks(const regard_call& c) {
        lanes = c.batch * c.kv_heads;
        heads_per_block = std::min<int64_t>(c.group, std::max<int64_t>(1, BLOCK / std::max<int64_t>(1, c.queries)));
        per_head = parts(c.queries, BLOCK);
        per_lane = parts(c.group, heads_per_block) * per_head;
        total = lanes * per_lane;
    }
    // Late rows first: under a causal mask they are the long ones.
    Block at(const regard_call& c, int64_t lane, int64_t number) const {
        const int64_t within = per_lane - 1 - number, group = within / per_head * heads_per_block;
        Block block;
        block.b = lane / c.kv_heads;
        block.kv = lane % c.kv_heads;
        block.head0 = block.kv * c.group + group;
        block.heads = std::min(heads_per_block, c.group - group);
        block.row0 = within % per_head * BLOCK;
        block.row1 = std::min(c.queries, block.row0 + BLOCK);
        const int64_t rows = block.row1 - block.row0;
        block.count = block.heads * rows;
        for (int64_t r = 0; r < block.count; ++r) {
            block.head[r] = block.head0 + r / rows;
            block.row[r] = block.row0 + r % rows;
        }
        return block;
    }
};

// What a block sees: runs that are empty for all its rows and heads, full for all, or mixed.
inline Runs runs_of(const regard_call& c, const Mask& mask, const Block& block) {
    Runs all = mask.runs(block.b, block.head0, block.row0, block.row1);
    if (!mask.by_head()) return all;
    for (int64_t h = 1; h < block.heads; ++h) {
        const Runs more = mask.runs(block.b, block.head0 + h, block.row0, block.row1);
        const Runs any = Mask::join(all, more, false), every = Mask::join(all, more, true);
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

// Part of a range of columns that some row of a block sees: [start, stop), and whether all its pairs are visible.
struct Span {
    int64_t start, stop;
    bool full;
};
// The span of runs within columns from .. to - 1; empty if start = stop.
inline Span span_of(const Runs& runs, int64_t from, int64_t to) {
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
