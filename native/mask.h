// Mask bytecode: a mask is a postfix program of regard_mask_op. It is evaluated for a block of query rows as runs of
// keys (hidden, mixed, visible), and pair by pair where a run is mixed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "regard.h"

namespace regard {

enum Kind : int { EMPTY = 0, MIXED = 1, FULL = 2 };
struct Run {
    int64_t start, stop;  // key columns
    int kind;
};
using Runs = std::vector<Run>;  // sorted, disjoint, covering all key columns

class Mask {
   public:
    explicit Mask(const regard_call& call) : call_(call) {
        for (int64_t at = 0; at < call.mask_ops; ++at) {
            const regard_mask_op& op = call.mask[at];
            varies_by_head_ |= (op.code == REGARD_BLOCKS || op.code == REGARD_DENSE) && op.head != 0;
            varies_by_batch_head_ |=
                op.code == REGARD_DOCUMENTS ? (op.batch | op.head | op.row) != 0 : (op.batch | op.head) != 0;
            is_band_ &= op.code == REGARD_WINDOW || op.code == REGARD_BELOW || op.code == REGARD_AND;
        }
    }
    bool empty_program() const { return call_.mask_ops == 0; }
    bool varies_by_head() const { return varies_by_head_; }
    // Whether batch rows or key heads may see different keys.
    bool varies_by_batch_head() const {
        bool moved = false;
        for (int64_t b = 1; b < call_.batch; ++b) moved |= call_.query_start[b] != call_.query_start[0];
        return varies_by_batch_head_ || moved;
    }
    bool is_band() const { return is_band_; }  // every row sees one interval of columns

    Run interval(int64_t b, int64_t row) const {
        const int64_t i = call_.query_start[b] + row;
        int64_t start = 0, stop = call_.keys;
        for (int64_t at = 0; at < call_.mask_ops; ++at) {
            const regard_mask_op& op = call_.mask[at];
            if (op.code == REGARD_WINDOW) {
                start = std::max(start, i - op.a - call_.key_start);
                stop = std::min(stop, i + op.b + 1 - call_.key_start);
            } else if (op.code == REGARD_BELOW) {
                stop = std::min(stop, static_cast<const int64_t*>(op.data)[b * op.batch] - call_.key_start);
            }
        }
        return {start, stop, FULL};
    }

    Runs runs(int64_t b, int64_t h, int64_t row0, int64_t row1) const {
        if (empty_program()) return {{0, call_.keys, FULL}};
        std::vector<Runs> stack;
        for (int64_t at = 0; at < call_.mask_ops; ++at) {
            const regard_mask_op& op = call_.mask[at];
            if (op.code == REGARD_NOT) {
                for (Run& run : stack.back()) run.kind = FULL - run.kind;
            } else if (op.code == REGARD_AND || op.code == REGARD_OR) {
                const Runs right = std::move(stack.back());
                stack.pop_back();
                stack.back() = combine(stack.back(), right, op.code == REGARD_AND);
            } else {
                stack.push_back(leaf_runs(op, b, h, row0, row1));
            }
        }
        return stack.back();
    }

    // Visibility of columns c0 .. c1 - 1 for one row, one byte per column.
    void visible_columns(int64_t b, int64_t h, int64_t row, int64_t c0, int64_t c1, uint8_t* out,
                         std::vector<uint8_t>& stack) const {
        const int64_t width = c1 - c0;
        if (empty_program()) {
            std::fill(out, out + width, uint8_t(1));
            return;
        }
        stack.resize(size_t(call_.mask_ops + 1) * width);
        int depth = 0;
        for (int64_t at = 0; at < call_.mask_ops; ++at) {
            const regard_mask_op& op = call_.mask[at];
            uint8_t* top = stack.data() + depth * width;
            if (op.code == REGARD_NOT) {
                uint8_t* last = top - width;
                for (int64_t c = 0; c < width; ++c) last[c] ^= 1;
            } else if (op.code == REGARD_AND || op.code == REGARD_OR) {
                uint8_t *left = top - 2 * width, *right = top - width;
                if (op.code == REGARD_AND)
                    for (int64_t c = 0; c < width; ++c) left[c] &= right[c];
                else
                    for (int64_t c = 0; c < width; ++c) left[c] |= right[c];
                --depth;
            } else {
                leaf_columns(op, b, h, row, c0, c1, top);
                ++depth;
            }
        }
        std::copy(stack.data(), stack.data() + width, out);
    }

    static Runs combine(const Runs& left, const Runs& right, bool both) {
        Runs runs;
        size_t l = 0, r = 0;
        for (int64_t at = 0; l < left.size() && r < right.size();) {
            const int64_t stop = std::min(left[l].stop, right[r].stop);
            const int kind = both ? std::min(left[l].kind, right[r].kind) : std::max(left[l].kind, right[r].kind);
            add(runs, at, stop, kind);
            at = stop;
            if (left[l].stop == stop) ++l;
            if (right[r].stop == stop) ++r;
        }
        return runs;
    }
    static void add(Runs& runs, int64_t start, int64_t stop, int kind) {
        if (start >= stop) return;
        if (!runs.empty() && runs.back().kind == kind)
            runs.back().stop = stop;
        else
            runs.push_back({start, stop, kind});
    }

   private:
    const regard_call& call_;
    bool varies_by_head_ = false, varies_by_batch_head_ = false, is_band_ = true;

    // Runs between the given positions (absolute, ascending): one kind before, between and after them each.
    Runs runs_between(std::initializer_list<int64_t> edges, std::initializer_list<int> kinds) const {
        Runs runs;
        int64_t at = 0;
        auto kind = kinds.begin();
        for (int64_t edge : edges) {
            const int64_t column = std::min(std::max(edge - call_.key_start, at), call_.keys);
            add(runs, at, column, *kind++);
            at = std::max(at, column);
        }
        add(runs, at, call_.keys, *kind);
        return runs;
    }

    Runs leaf_runs(const regard_mask_op& op, int64_t b, int64_t h, int64_t row0, int64_t row1) const {
        const int64_t first = call_.query_start[b] + row0, last = call_.query_start[b] + row1 - 1;
        switch (op.code) {
            case REGARD_WINDOW: return band_runs(first, last, op.a, op.b, FULL);
            case REGARD_DILATED: return band_runs(first, last, op.a, op.a, op.b == 1 || op.a == 0 ? FULL : MIXED);
            case REGARD_BELOW: return runs_between({static_cast<const int64_t*>(op.data)[b * op.batch]}, {FULL, EMPTY});
            case REGARD_GLOBAL: return global_runs(op, first, last);
            case REGARD_DOCUMENTS: return document_runs(op, b, row0, row1);
            case REGARD_BLOCKS: return block_runs(op, b, h, first, last);
            default: return dense_runs(op, b, h, row0, row1);
        }
    }

    Runs band_runs(int64_t first, int64_t last, int64_t before, int64_t after, int core) const {
        const int64_t end = last + after + 1;
        int64_t low = last - before, high = first + after + 1;
        if (low >= high) low = high = end;
        return runs_between({first - before, low, high, end}, {EMPTY, MIXED, core, MIXED, EMPTY});
    }

    Runs global_runs(const regard_mask_op& op, int64_t first, int64_t last) const {
        const int64_t *begin = static_cast<const int64_t*>(op.data), *end = begin + op.a;
        const int64_t rows = std::upper_bound(begin, end, last) - std::lower_bound(begin, end, first);
        const int others = rows == last - first + 1 ? FULL : rows ? MIXED : EMPTY;
        Runs runs;
        int64_t at = 0;
        for (const int64_t* p = std::lower_bound(begin, end, call_.key_start); p < end; ++p) {
            const int64_t column = *p - call_.key_start;
            if (column >= call_.keys) break;
            add(runs, at, column, others);
            add(runs, column, column + 1, FULL);
            at = column + 1;
        }
        add(runs, at, call_.keys, others);
        return runs;
    }

    Runs document_runs(const regard_mask_op& op, int64_t b, int64_t row0, int64_t row1) const {
        const int64_t* span = static_cast<const int64_t*>(op.data3) + b * op.row;
        const int64_t* ids = static_cast<const int64_t*>(op.data2) + b * op.head;
        int64_t start = call_.keys, stop = 0;
        bool full = true;
        for (int64_t row = row0; row < row1; ++row) {
            start = std::min(start, span[3 * row]);
            stop = std::max(stop, span[3 * row + 1]);
            full &= span[3 * row + 2] != 0 && ids[row] == ids[row0];
        }
        stop = std::max(start, stop);
        return runs_between({start + call_.key_start, stop + call_.key_start}, {EMPTY, full ? FULL : MIXED, EMPTY});
    }

    Runs block_runs(const regard_mask_op& op, int64_t b, int64_t h, int64_t first, int64_t last) const {
        const uint8_t* layout = static_cast<const uint8_t*>(op.data) + b * op.batch + h * op.head;
        Runs runs;
        for (int64_t at = 0; at < call_.keys;) {
            const int64_t block = (at + call_.key_start) / op.a;
            const int64_t stop = std::min((block + 1) * op.a - call_.key_start, call_.keys);
            bool some = false, all = true;
            for (int64_t row = first / op.a; row <= last / op.a; ++row) {
                const bool visible = layout[row * op.row + block * op.column] != 0;
                some |= visible;
                all &= visible;
            }
            add(runs, at, stop, all ? FULL : some ? MIXED : EMPTY);
            at = stop;
        }
        return runs;
    }

    Runs dense_runs(const regard_mask_op& op, int64_t b, int64_t h, int64_t row0, int64_t row1) const {
        const uint8_t* table = static_cast<const uint8_t*>(op.data) + b * op.batch + h * op.head;
        const int64_t rows = op.row == 0 ? std::min<int64_t>(row1, row0 + 1) : row1;
        Runs runs;
        for (int64_t at = 0; at < call_.keys; at += 64) {
            const int64_t stop = std::min<int64_t>(at + 64, call_.keys);
            bool some = false, all = true;
            for (int64_t row = row0; row < rows; ++row)
                for (int64_t c = at; c < stop; ++c) {
                    const bool visible = table[row * op.row + c * op.column] != 0;
                    some |= visible;
                    all &= visible;
                }
            add(runs, at, stop, all ? FULL : some ? MIXED : EMPTY);
        }
        return runs;
    }

    void leaf_columns(const regard_mask_op& op, int64_t b, int64_t h, int64_t row, int64_t c0, int64_t c1,
                      uint8_t* out) const {
        const int64_t i = call_.query_start[b] + row, base = call_.key_start + c0, width = c1 - c0;
        switch (op.code) {
            case REGARD_WINDOW: {
                const int64_t from = std::min(std::max<int64_t>(i - op.a - base, 0), width);
                const int64_t to = std::max(std::min(i + op.b + 1 - base, width), from);
                std::fill(out, out + from, uint8_t(0));
                std::fill(out + from, out + to, uint8_t(1));
                std::fill(out + to, out + width, uint8_t(0));
                break;
            }
            case REGARD_DILATED:
                for (int64_t c = 0; c < width; ++c) {
                    const int64_t offset = i - (base + c), size = offset < 0 ? -offset : offset;
                    out[c] = size <= op.a && size % op.b == 0;
                }
                break;
            case REGARD_BELOW: {
                const int64_t limit = static_cast<const int64_t*>(op.data)[b * op.batch];
                for (int64_t c = 0; c < width; ++c) out[c] = base + c < limit;
                break;
            }
            case REGARD_GLOBAL: {
                const int64_t *begin = static_cast<const int64_t*>(op.data), *end = begin + op.a;
                std::fill(out, out + width, uint8_t(std::binary_search(begin, end, i)));
                for (const int64_t* p = std::lower_bound(begin, end, base); p < end && *p < base + width; ++p)
                    out[*p - base] = 1;
                break;
            }
            case REGARD_DOCUMENTS: {
                const int64_t* keys = static_cast<const int64_t*>(op.data) + b * op.batch + c0;
                const int64_t query_id = static_cast<const int64_t*>(op.data2)[b * op.head + row];
                for (int64_t c = 0; c < width; ++c) out[c] = keys[c] == query_id;
                break;
            }
            case REGARD_BLOCKS: {
                const uint8_t* layout =
                    static_cast<const uint8_t*>(op.data) + b * op.batch + h * op.head + i / op.a * op.row;
                for (int64_t c = 0; c < width; ++c) out[c] = layout[(base + c) / op.a * op.column] != 0;
                break;
            }
            default: {
                const uint8_t* table = static_cast<const uint8_t*>(op.data) + b * op.batch + h * op.head + row * op.row;
                for (int64_t c = 0; c < width; ++c) out[c] = table[(c0 + c) * op.column] != 0;
            }
        }
    }
};

}  // namespace regard
