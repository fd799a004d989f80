// Sums over all heads of a layer, when row_max and row_sum of the rows are known: products of the weights of any two
// heads, and the weight of each row on kinds of keys; or the weights of some rows that need not be neighbors.
//
//   for batch row, for part of PART = 192 queries            one unit of work for a thread
//     for segment of SEGMENT = 256 keys                      keys of all heads packed once, kinds of keys indexed (L2)
//       for step of STEP = 12 queries
//         for up to 4 heads of one group                     w[head][row] = exp(logit − row_max) / row_sum (L2)
//         for kind: for row: for head                        add the weights of the row's keys: in double
//         for 4 × 4 heads                                    add products: in T over the step, then in double
//
// A unit has all keys of its queries, so sums by row are complete. Products are added unit by unit at the end
// (HeadPassPlan::join). So no bit depends on the number of threads. Weights of some rows are copied instead of added; a
// unit then has the heads of one group.
//
// Template parameters: T compute type, S storage type (simd.h).
#pragma once
#include "logits.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

constexpr int64_t STEP = ROW_GROUP, PART = 16 * STEP, HEADS_PER_BLOCK = QUERY_BLOCK / STEP;

template <class T, class S> struct HeadPassPlan {
    const regard_call& c;
    const regard_head_sums& sums;
    Mask mask;
    Packer<T, S> packer;
    int64_t heads, count, parts;   // count: of rows
    int64_t from, to;              // segments to compute
    std::vector<double> products;  // per unit, (head, head), below the diagonal
    HeadPassPlan(const regard_call& call, const regard_head_sums& wanted)
        : c(call),
          sums(wanted),
          mask(call),
          packer(call),
          heads(call.kv_heads * call.group),
          count(wanted.weights ? wanted.row_count : call.queries),
          parts(ceil_div(count, PART)) {
        from = sums.weights ? (packer.pad + sums.column) / SEGMENT : 0;
        to = sums.weights ? ceil_div(packer.pad + sums.column + sums.columns, SEGMENT) : packer.segments;
        if (sums.products) products.assign(size_t(units() * heads * heads), 0.0);
    }
    int64_t units() const { return c.batch * parts * (sums.weights ? c.kv_heads : 1); }
    int64_t row(int64_t n) const { return sums.weights ? sums.rows[n] : n; }
    // Up to 4 heads of one group in rows number first .. first + rows - 1.
    QueryBlock block(int64_t b, int64_t head0, int64_t first, int64_t rows) const {
        QueryBlock block;
        block.b = b, block.kv = head0 / c.group, block.head0 = head0;
        block.heads = std::min(HEADS_PER_BLOCK, c.group - head0 % c.group);
        block.row0 = row(first), block.row1 = row(first + rows - 1) + 1;
        block.count = block.heads * rows;
        for (int64_t r = 0; r < block.count; ++r)
            block.head[r] = head0 + r / rows, block.row[r] = row(first + r % rows);
        return block;
    }
    void join() const {
        if (!sums.products) return;
        const int64_t cells = heads * heads;
        for (int64_t b = 0; b < c.batch; ++b)
            for (int64_t h = 0; h < heads; ++h)
                for (int64_t g = 0; g <= h; ++g) {
                    double sum = 0;
                    for (int64_t part = 0; part < parts; ++part)
                        sum += products[size_t((b * parts + part) * cells + h * heads + g)];
                    sums.products[b * cells + h * heads + g] = sums.products[b * cells + g * heads + h] = sum;
                }
    }
};

// The keys of one kind in a segment, by id.
class KindIndex {
   public:
    explicit KindIndex(const regard_kind& kind) : kind_(kind), first_(size_t(kind.ids), -1) {}
    // Index columns begin .. end - 1 of the keys; column 0 of the segment is `base`.
    void set_segment(int64_t b, int64_t begin, int64_t end, int64_t base) {
        const int64_t* ids = kind_.key_ids + b * kind_.key_batch;
        for (; begin_ < end_; ++begin_)
            if (ids[begin_] >= 0) first_[size_t(ids[begin_])] = -1;
        for (int64_t j = end - 1; j >= begin; --j) {
            if (ids[j] < 0) continue;
            next_[j - base] = first_[size_t(ids[j])];
            first_[size_t(ids[j])] = int32_t(j - base);
        }
        begin_ = begin, end_ = end;
    }
    // The columns low .. high - 1 of the segment that are of a row's kind; `i` is the segment's column at the row's
    // position. Returns their number.
    int64_t columns(int64_t b, int64_t row, int64_t i, int64_t low, int64_t high, int32_t* found) const {
        const int64_t id = kind_.query_ids[b * kind_.query_batch + row];
        int64_t count = 0;
        for (int32_t n = id < 0 ? -1 : first_[size_t(id)]; n >= 0; n = next_[n])
            if (n >= low && n < high && !(kind_.excludes && n - i == kind_.excluded)) found[count++] = n;
        return count;
    }

   private:
    const regard_kind& kind_;
    std::vector<int32_t> first_;  // per id: its first column, −1 if there is none
    int32_t next_[SEGMENT];
    int64_t begin_ = 0, end_ = 0;  // what is indexed
};

template <class T, class S> class HeadPass {
   public:
    HeadPass(HeadPassPlan<T, S>& plan, const CallControl& control, T* space)
        : plan_(plan), c_(plan.c), logits_(plan.c, plan.mask), control_(control) {
        w_ = allocate(space, plan.heads * STEP * ROW_STRIDE);
        q_ = allocate(space, QUERY_BLOCK * round_up(query_table_width(c_), 16));
        for (int64_t kv = 0; kv < c_.kv_heads; ++kv) panels_.push_back(allocate(space, SEGMENT * plan.packer.width));
        for (int64_t k = 0; k < plan.sums.kind_count; ++k) kinds_.emplace_back(plan.sums.kinds[k]);
    }
    static size_t workspace_size(const HeadPassPlan<T, S>& plan) {
        return size_t(padded_size(plan.heads * STEP * ROW_STRIDE) +
                      padded_size(QUERY_BLOCK * round_up(query_table_width(plan.c), 16)) +
                      plan.c.kv_heads * padded_size(SEGMENT * plan.packer.width));
    }

    void run(int64_t unit) {
        unit_ = unit;
        const int64_t part = unit % plan_.parts, groups = plan_.sums.weights ? c_.kv_heads : 1;
        b_ = unit / plan_.parts / groups;
        head_begin_ = unit / plan_.parts % groups * c_.group;
        head_end_ = groups > 1 ? head_begin_ + c_.group : plan_.heads;
        const int64_t first = part * PART, past = std::min(plan_.count, first + PART);
        std::vector<std::vector<Runs>> visible;  // per step and block of heads; a mask for all heads has one
        for (int64_t n = first; n < past; n += STEP) {
            visible.emplace_back();
            for_blocks(n, std::min(STEP, past - n), [&](const QueryBlock& block) {
                if (visible.back().empty() || plan_.mask.varies_by_head())
                    visible.back().push_back(visible_runs(c_, plan_.mask, block));
            });
        }
        for (int64_t segment = plan_.from; segment < plan_.to; ++segment) {
            base_ = plan_.packer.segment_start(segment);
            const int64_t begin = std::max<int64_t>(0, base_), end = std::min(c_.keys, base_ + SEGMENT);
            bool packed = false;
            for (int64_t n = first; n < past && !control_.stopped(); n += STEP) {
                const int64_t rows = std::min(STEP, past - n);
                set_columns(visible[size_t((n - first) / STEP)], begin, end);
                if (low_ < high_) {
                    if (!packed) set_segment(segment, begin, end);
                    packed = true;
                    write_step(n, rows);
                    add_shares(n, rows);
                    if (plan_.sums.products) add_products(rows);
                }
                if (plan_.sums.weights) copy_weights(n, rows);
            }
        }
    }

   private:
    HeadPassPlan<T, S>& plan_;
    const regard_call& c_;
    Logits<T, S> logits_;
    const CallControl& control_;
    T *w_, *q_;  // weights (head, row, ROW_STRIDE) of a step, queries of a block
    std::vector<T*> panels_;
    std::vector<KindIndex> kinds_;
    int64_t unit_, b_, head_begin_, head_end_;
    int64_t base_, low_, high_;  // base: key column of column 0; low .. high: columns that some row sees
    std::vector<Span> spans_;    // of each block of heads, or one for all

    template <class Each> void for_blocks(int64_t first, int64_t rows, Each each) const {
        for (int64_t head = head_begin_; head < head_end_;) {
            const QueryBlock block = plan_.block(b_, head, first, rows);
            each(block);
            head += block.heads;
        }
    }
    // The columns of keys begin .. end - 1 that each block of heads sees.
    void set_columns(const std::vector<Runs>& visible, int64_t begin, int64_t end) {
        spans_.clear();
        low_ = SEGMENT, high_ = 0;
        for (const Runs& runs : visible) {
            spans_.push_back(visible_span(runs, begin, end));
            if (spans_.back().start == spans_.back().stop) continue;
            low_ = std::min(low_, (spans_.back().start - base_) / LANES<T> * LANES<T>);
            high_ = std::max(high_, round_up(spans_.back().stop - base_, LANES<T>));
        }
    }
    void set_segment(int64_t segment, int64_t begin, int64_t end) {
        Prefetcher no_prefetch;
        for (int64_t kv = head_begin_ / c_.group; kv < head_end_ / c_.group; ++kv)
            plan_.packer.pack_keys(b_ * c_.kv_heads + kv, segment, begin, end, panels_[size_t(kv)], no_prefetch);
        for (KindIndex& kind : kinds_) kind.set_segment(b_, begin, end, base_);
    }
    void write_step(int64_t first, int64_t rows) {
        size_t number = 0;
        for_blocks(first, rows, [&](const QueryBlock& block) {
            write_weights(block, spans_[std::min(number++, spans_.size() - 1)], w_ + block.head0 * rows * ROW_STRIDE);
        });
    }
    void copy_weights(int64_t first, int64_t rows) const {
        const regard_head_sums& to = plan_.sums;
        const int64_t begin = std::max(to.column - base_, std::max<int64_t>(0, -base_)),
                      end = std::min({to.column + to.columns - base_, c_.keys - base_, int64_t(SEGMENT)}),
                      low = std::min(end, std::max(begin, std::min(low_, high_))),
                      high = std::max(low, std::min(end, high_));
        for (int64_t h = head_begin_; h < head_end_; ++h)
            for (int64_t r = 0; r < rows; ++r) {
                const T* x = w_ + (h * rows + r) * ROW_STRIDE;
                T* line = static_cast<T*>(to.weights) + b_ * to.weights_batch +
                          (h * to.row_count + first + r) * to.columns + base_ - to.column;
                std::fill(line + begin, line + low, T(0));
                std::copy(x + low, x + high, line + low);
                std::fill(line + high, line + end, T(0));
            }
    }
    void add_products(int64_t rows) {
        for (int64_t h = 0; h < plan_.heads;) {
            const int64_t more = plan_.heads - h >= 4 ? 4 : 1;
            for (int64_t g = 0; g < h + more;) {
                const int64_t across = plan_.heads - g >= 4 ? 4 : 1;
                if (more == 4 && across == 4) add_products<4, 4>(h, g, rows);
                if (more == 4 && across == 1) add_products<4, 1>(h, g, rows);
                if (more == 1 && across == 4) add_products<1, 4>(h, g, rows);
                if (more == 1 && across == 1) add_products<1, 1>(h, g, rows);
                g += across;
            }
            h += more;
        }
    }
    // The weights of a block in columns low .. high - 1; 0 where a pair is hidden.
    void write_weights(const QueryBlock& block, const Span& span, T* w) {
        const bool none = span.start == span.stop;
        if (!none) {
            logits_.set_block(block);
            logits_.load_queries(block, q_, query_table_width(c_));
            logits_.set_span(span, base_);
            if (c_.form)
                logits_.additive_scores(q_, query_table_width(c_), panels_[size_t(block.kv)], w);
            else
                logits_.dot_scores(q_, c_.d_key, c_.d_key, panels_[size_t(block.kv)], T(c_.scale), w);
        }
        for (int64_t r = 0; r < block.count; ++r) {
            T* x = w + r * ROW_STRIDE;
            const int64_t place = (b_ * plan_.heads + block.head[r]) * c_.queries + block.row[r];
            const T row_sum = static_cast<const T*>(c_.row_sum)[place],
                    row_max = static_cast<const T*>(c_.row_max)[place];
            int64_t from = low_, to = low_;  // what the row computes: nothing if it sees nothing or is not finite
            if (!none && row_sum > T(0) && std::isfinite(row_max)) {
                if (!logits_.scores_are_logits(span)) logits_.to_logits(r, span, x);
                from = logits_.column_begin[r / ROW_GROUP], to = logits_.column_end[r / ROW_GROUP];
                const T inverse = T(1) / row_sum;
                for (int64_t n = from; n < to; n += LANES<T>)
                    store(x + n, exp2(Vec<T>(load(x + n) - row_max), logits_.exponent_factor(r)) * inverse);
                if (from >= to) from = to = low_;
            }
            std::fill(x + low_, x + from, T(0));
            std::fill(x + to, x + high_, T(0));
        }
    }
    void add_shares(int64_t row, int64_t rows) {
        int32_t columns[SEGMENT];
        for (size_t k = 0; k < kinds_.size(); ++k)
            for (int64_t r = 0; r < rows; ++r) {
                const int64_t i = c_.query_start[b_] + row + r - c_.key_start - base_;
                const int64_t count = kinds_[k].columns(b_, row + r, i, low_, high_, columns);
                for (int64_t h = 0; count && h < plan_.heads; ++h) {
                    const T* x = w_ + (h * rows + r) * ROW_STRIDE;
                    double sum = 0;
                    for (int64_t n = 0; n < count; ++n) sum += double(x[columns[n]]);
                    plan_.sums.shares[((int64_t(k) * c_.batch + b_) * plan_.heads + h) * c_.queries + row + r] += sum;
                }
            }
    }
    // The products of heads h .. h + R - 1 with heads g .. g + C - 1.
    template <int R, int C> void add_products(int64_t h, int64_t g, int64_t rows) {
        Vec<T> sums[R][C] = {};
        const int64_t head = rows * ROW_STRIDE;
        for (int64_t row = 0; row < rows; ++row) {
            const T *a = w_ + h * head + row * ROW_STRIDE, *b = w_ + g * head + row * ROW_STRIDE;
            for (int64_t n = low_; n < high_; n += LANES<T>) {
                Vec<T> others[C];
                REGARD_UNROLLED_FOR (int x = 0; x < C; ++x) others[x] = load(b + x * head + n);
                REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
                    const Vec<T> own = load(a + r * head + n);
                    REGARD_UNROLLED_FOR (int x = 0; x < C; ++x) sums[r][x] += own * others[x];
                }
            }
        }
        double* to = plan_.products.data() + (unit_ * plan_.heads + h) * plan_.heads + g;
        for (int64_t r = 0; r < R; ++r)
            for (int64_t x = 0; x < C; ++x) to[r * plan_.heads + x] += double(reduce_add<T>(sums[r][x]));
    }
};

template <class T, class S> int head_pass(const regard_call& c, const regard_head_sums& sums) {
    const CallControl control(c.stop, c.progress);
    HeadPassPlan<T, S> plan(c, sums);
    const int64_t threads = useful_threads(c);
    Workspaces<T> workspaces;
    workspaces.add_workers(threads);
    parallel(plan.units(), threads, control, [&](int64_t unit, int64_t worker) {
        HeadPass<T, S>(plan, control, workspaces.worker(worker, HeadPass<T, S>::workspace_size(plan))).run(unit);
    });
    plan.join();
    return control.stopped() ? REGARD_STOPPED : REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
