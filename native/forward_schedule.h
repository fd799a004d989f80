// How the forward pass is divided among threads. None of the three schedules changes a bit of the result.
//
//   decode           one block per batch_head (few queries): keys are read once, in place if possible
//     many heads       thread = batch_head: for segment: add_segment
//     few heads        for batch_head: thread = segment; partial results are merged left to right (Flash-Decoding)
//   private packing  many batch_heads whose K and V fit the L2 cache: thread = batch_head; pack it, then all its blocks
//   shared packing   thread = segment: pack all K and V; then thread = blocks_together() blocks of one batch_head
//
// The last two compute up to MAX_BLOCKS blocks side by side, so that a segment that is in the cache serves them all:
//
//   for segment, left to right
//     for block of these blocks
//       Forward::add_segment
#pragma once
#include <atomic>

#include "forward.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

template <class T, class S> class ForwardSchedule {
   public:
    ForwardSchedule(const regard_call& c, Workspaces<T>& workspaces, const CallControl& control)
        : c_(c),
          workspaces_(workspaces),
          control_(control),
          mask_(c),
          blocks_(c),
          packer_(c),
          threads_(useful_threads(c)) {
        workspaces.add_workers(threads_);
        if (AlibiSkipping<T, S>::applies(c)) max_key_norms_.resize(size_t(blocks_.batch_heads * packer_.segments));
    }
    // False if something is not finite.
    bool run() {
        if (blocks_.per_batch_head == 1)
            decode();
        else if (packs_privately())
            with_private_packing();
        else
            with_shared_packing();
        return finite_.load();
    }

    // The number of pairs whose logit is computed, and the bytes of workspace, without computing.
    void plan(int64_t* pairs, int64_t* bytes) {
        *pairs = 0;
        const int64_t distinct =
            mask_.varies_by_batch_head() ? blocks_.batch_heads : std::min<int64_t>(1, blocks_.batch_heads);
        Logits<T, S> logits(c_, mask_);
        for (int64_t batch_head = 0; batch_head < distinct; ++batch_head)
            for (int64_t n = 0; n < blocks_.per_batch_head; ++n) {
                const QueryBlock block = blocks_.at(c_, batch_head, n);
                logits.set_block(block);
                for (const VisibleSegment& s : visible_segments(block)) {
                    logits.set_span(s.span, base(s.segment));
                    for (int64_t g = 0; g < logits.row_groups(); ++g)
                        *pairs += logits.rows(g) * (logits.column_end[g] - logits.column_begin[g]);
                }
            }
        if (distinct < blocks_.batch_heads) *pairs *= blocks_.batch_heads;
        const size_t packed = packer_.size() * size_t(packer_.segments);
        size_t shared = 0, worker = Forward<T, S>::workspace_size(c_, MAX_BLOCKS);
        if (blocks_.per_batch_head == 1) {
            worker = Forward<T, S>::workspace_size(c_, 1) + packer_.size();
            if (!one_thread_per_batch_head())
                shared = Forward<T, S>::partial_size(c_) * size_t(packer_.segments) +
                         sizeof(RowState<T>) / sizeof(T) * size_t(packer_.segments);
        } else if (packs_privately()) {
            worker += packed;
        } else {
            shared = packed * size_t(blocks_.batch_heads);
        }
        *bytes = int64_t((shared + worker * size_t(threads_)) * sizeof(T));
        workspaces_.plan_peak(shared, worker, threads_);
    }

   private:
    const regard_call& c_;
    Workspaces<T>& workspaces_;
    const CallControl& control_;
    Mask mask_;
    QueryBlocks blocks_;
    Packer<T, S> packer_;
    int64_t threads_;
    std::atomic<bool> finite_{true};
    // ALiBi, per batch_head and segment; infinite if a value is not finite: such a segment is never skipped.
    std::vector<T> max_key_norms_;

    // Whether a thread packs a batch_head for itself: it fits the cache, and there are enough to keep all threads busy.
    bool packs_privately() const {
        return packer_.size() * size_t(packer_.segments) * sizeof(T) <= (size_t(3) << 18) &&
               (blocks_.batch_heads % threads_ == 0 || blocks_.batch_heads >= 4 * threads_);
    }
    bool one_thread_per_batch_head() const { return blocks_.batch_heads >= threads_ || packer_.segments == 1; }
    void note_finite(bool finite) {
        if (!finite) finite_.store(false, std::memory_order_relaxed);
    }
    int64_t base(int64_t segment) const { return packer_.segment_start(segment); }
    struct VisibleSegment {
        int64_t segment;
        Span span;
    };
    std::vector<VisibleSegment> visible_segments(const QueryBlock& block) const {
        const Runs runs = visible_runs(c_, mask_, block);
        std::vector<VisibleSegment> visible;
        for (const Run& run : runs) {
            if (run.kind == EMPTY) continue;
            int64_t segment = (run.start + packer_.pad) / SEGMENT;
            if (!visible.empty() && visible.back().segment == segment) ++segment;
            for (; base(segment) < run.stop; ++segment)
                visible.push_back({segment, visible_span(runs, std::max<int64_t>(0, base(segment)),
                                                         std::min(c_.keys, base(segment + 1)))});
        }
        return visible;
    }

    void with_private_packing() {
        const size_t pass_size = Forward<T, S>::workspace_size(c_, MAX_BLOCKS), size = packer_.size();
        parallel(blocks_.batch_heads, threads_, control_, [&](int64_t batch_head, int64_t worker) {
            T* space = workspaces_.worker(worker, pass_size + size * size_t(packer_.segments));
            for (int64_t n = 0; n < packer_.segments; ++n) pack(batch_head, n, space + pass_size + size * size_t(n));
            for (int64_t n = 0; n < blocks_.per_batch_head; n += blocks_together())
                compute_blocks(batch_head, n, space, space + pass_size);
        });
    }
    void with_shared_packing() {
        const size_t size = packer_.size();
        T* packed = workspaces_.shared.get(size * size_t(packer_.segments * blocks_.batch_heads));
        parallel(blocks_.batch_heads * packer_.segments, threads_, control_, [&](int64_t unit, int64_t) {
            pack(unit / packer_.segments, unit % packer_.segments, packed + size * size_t(unit));
        });
        if (!finite_.load()) return;
        parallel(blocks_.batch_heads * ceil_div(blocks_.per_batch_head, blocks_together()), threads_, control_,
                 [&](int64_t unit, int64_t worker) {
                     const int64_t batch_head = unit % blocks_.batch_heads;
                     compute_blocks(batch_head, unit / blocks_.batch_heads * blocks_together(),
                                    workspaces_.worker(worker, Forward<T, S>::workspace_size(c_, MAX_BLOCKS)),
                                    packed + size * size_t(batch_head * packer_.segments));
                 });
    }
    void pack(int64_t batch_head, int64_t segment, T* to) {
        note_finite(packer_.pack_segment(batch_head, segment, to));
        if (max_key_norms_.empty()) return;
        T& norm = max_key_norms_[size_t(batch_head * packer_.segments + segment)];
        const int64_t first = std::max<int64_t>(0, -base(segment)) / TILE_COLUMNS<T> * TILE_COLUMNS<T>,
                      past = std::min<int64_t>(SEGMENT, c_.keys - base(segment));
        norm = max_key_norm(to + first * c_.d_key, past - first, c_.d_key);
        if (!packer_.finite_values(batch_head, segment)) norm = std::numeric_limits<T>::infinity();
    }
    static constexpr int64_t MAX_BLOCKS = 12;
    // Blocks computed side by side. One for additive scores: they are bound by arithmetic, and their query rows are
    // large.
    int64_t blocks_together() const {
        return c_.form ? 1 : std::min(MAX_BLOCKS, std::max<int64_t>(1, blocks_.total / (4 * threads_)));
    }
    void compute_blocks(int64_t batch_head, int64_t number, T* space, const T* packed) {
        const int64_t count = std::min(blocks_together(), blocks_.per_batch_head - number);
        std::vector<Forward<T, S>> passes;
        std::vector<VisibleSegment> visible[MAX_BLOCKS];
        size_t next[MAX_BLOCKS] = {};
        Prefetcher no_prefetch;
        for (int64_t n = 0; n < count; ++n) {
            passes.emplace_back(c_, mask_, space, n);
            const QueryBlock block = blocks_.at(c_, batch_head, number + n);
            note_finite(passes.back().start(block));
            visible[n] = visible_segments(block);
        }
        for (int64_t segment = 0; segment < packer_.segments; ++segment)
            for (int64_t n = 0; n < count; ++n)
                if (next[n] < visible[n].size() && visible[n][next[n]].segment == segment) {
                    const Span& span = visible[n][next[n]++].span;
                    const T norm = max_key_norms_.empty()
                                       ? std::numeric_limits<T>::infinity()
                                       : max_key_norms_[size_t(batch_head * packer_.segments + segment)];
                    if (!max_key_norms_.empty() && passes[size_t(n)].skips(span, norm)) continue;
                    passes[size_t(n)].add_segment(
                        span, base(segment),
                        packer_.view(batch_head, segment, packed + packer_.size() * size_t(segment)), no_prefetch,
                        norm);
                }
        for (Forward<T, S>& pass : passes) note_finite(pass.write_results());
    }

    // Few queries: all rows of a batch_head are one block, and keys are read once.
    void decode() {
        if (one_thread_per_batch_head()) {
            parallel(blocks_.batch_heads, threads_, control_, [&](int64_t batch_head, int64_t worker) {
                T* space = workspaces_.worker(worker, Forward<T, S>::workspace_size(c_, 1) + packer_.size());
                const QueryBlock block = blocks_.at(c_, batch_head, 0);
                Forward<T, S> pass(c_, mask_, space, 0);
                note_finite(pass.start(block));
                const std::vector<VisibleSegment> visible = visible_segments(block);
                for (size_t n = 0; n < visible.size(); ++n) {
                    const VisibleSegment& s = visible[n];
                    if (n == 0)
                        Prefetcher(packer_.key_region(batch_head, s.span.start,
                                                      std::min(s.span.stop, s.span.start + packer_.keys_ahead())))
                            .issue_all();
                    const std::vector<Prefetcher::Region> regions = packer_.prefetch_regions(
                        batch_head, s.span, n + 1 < visible.size() ? &visible[n + 1].span : nullptr);
                    Prefetcher prefetcher(regions);
                    const SegmentView<T> view =
                        segment_view(batch_head, s, space + Forward<T, S>::workspace_size(c_, 1), prefetcher);
                    pass.add_segment(s.span, base(s.segment), view, prefetcher);
                }
                note_finite(pass.write_results());
            });
            return;
        }
        for (int64_t batch_head = 0; batch_head < blocks_.batch_heads; ++batch_head) decode_split_keys(batch_head);
    }
    void decode_split_keys(int64_t batch_head) {
        const QueryBlock block = blocks_.at(c_, batch_head, 0);
        const std::vector<VisibleSegment> visible = visible_segments(block);
        const size_t partial_size = Forward<T, S>::partial_size(c_);
        T* outs = workspaces_.shared.get(partial_size * visible.size());
        std::vector<RowState<T>> states(visible.size());
        parallel(int64_t(visible.size()), threads_, control_, [&](int64_t unit, int64_t worker) {
            T* space = workspaces_.worker(worker, Forward<T, S>::workspace_size(c_, 1) + packer_.size());
            const VisibleSegment& s = visible[size_t(unit)];
            Forward<T, S> pass(c_, mask_, space, 0);
            note_finite(pass.start(block));
            const size_t next = size_t(unit + threads_);  // probably this worker's next segment
            const std::vector<Prefetcher::Region> regions =
                packer_.prefetch_regions(batch_head, s.span, next < visible.size() ? &visible[next].span : nullptr);
            Prefetcher prefetcher(regions);
            const SegmentView<T> view =
                segment_view(batch_head, s, space + Forward<T, S>::workspace_size(c_, 1), prefetcher);
            pass.segment_partial(s.span, base(s.segment), view, outs + partial_size * size_t(unit),
                                 states[size_t(unit)], prefetcher);
        });
        if (control_.stopped()) return;  // some partial results may be missing
        Forward<T, S> pass(c_, mask_, workspaces_.worker(0, Forward<T, S>::workspace_size(c_, 1) + packer_.size()), 0);
        note_finite(pass.start(block));
        for (size_t n = 0; n < visible.size(); ++n) pass.merge_partial(outs + partial_size * n, states[n]);
        note_finite(pass.write_results());
    }
    // Pack the visible part of one segment; keys and values that can be read in place are not packed.
    SegmentView<T> segment_view(int64_t batch_head, const VisibleSegment& s, T* space, Prefetcher& prefetcher) {
        const bool keys_in_place = packer_.keys_in_place && c_.group * c_.queries <= DECODE_ROWS;
        if (!keys_in_place)
            note_finite(
                packer_.pack_keys(batch_head, s.segment, s.span.start, s.span.stop, packer_.panels(space), prefetcher));
        if (!packer_.values_in_place) packer_.pack_values(batch_head, s.segment, packer_.value_tiles(space));
        SegmentView<T> view = packer_.view(batch_head, s.segment, space);
        if (keys_in_place) view.keys = packer_.keys_at(batch_head, s.segment);
        return view;
    }
};

template <class T, class S> int forward(const regard_call& c, Workspaces<T>& workspaces) {
    const CallControl control(c.stop, c.progress);
    const bool finite = ForwardSchedule<T, S>(c, workspaces, control).run();
    return control.stopped() ? REGARD_STOPPED : finite ? REGARD_DONE : REGARD_NOT_FINITE;
}
template <class T, class S> void plan(const regard_call& c, Workspaces<T>& workspaces, int64_t* pairs, int64_t* bytes) {
    const CallControl control(nullptr);
    ForwardSchedule<T, S>(c, workspaces, control).plan(pairs, bytes);
}

}  // namespace REGARD_ISA
}  // namespace regard
