// How the forward pass is shared among threads. None of the three ways changes a bit.
#pragma once
#include <atomic>

#include "forward.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

template <class T, class S> class Schedule {
   public:
    Schedule(const regard_call& c, Spaces<T>& spaces, const Stop& stop)
        : c_(c), spaces_(spaces), stop_(stop), mask_(c), blocks_(c), packer_(c), threads_(useful_threads(c)) {
        if (int64_t(spaces.workers.size()) < threads_) spaces.workers.resize(size_t(threads_));
        if (Faint<T, S>::applies(c)) norms_.resize(size_t(blocks_.lanes * packer_.segments));
    }
    // False if something is not finite.
    bool run() {
        if (blocks_.per_lane == 1)
            few();
        else if (private_lanes())
            by_lane();
        else
            by_block();
        return finite_.load();
    }

    // Pairs whose logit is computed, and bytes of workspace.
    void plan(int64_t* pairs, int64_t* bytes) {
        *pairs = 0;
        const int64_t distinct = mask_.by_lane() ? blocks_.lanes : std::min<int64_t>(1, blocks_.lanes);
        Logits<T, S> logits(c_, mask_);
        for (int64_t lane = 0; lane < distinct; ++lane)
            for (int64_t n = 0; n < blocks_.per_lane; ++n) {
                const Block block = blocks_.at(c_, lane, n);
                logits.set_block(block);
                for (const Seen& s : seen(block)) {
                    logits.set_span(s.span, base(s.segment));
                    for (int64_t g = 0; g < logits.groups(); ++g) *pairs += logits.rows(g) * (logits.high[g] - logits.low[g]);
                }
            }
        if (distinct < blocks_.lanes) *pairs *= blocks_.lanes;
        const size_t packed = packer_.size() * size_t(packer_.segments);
        size_t shared = 0, worker = Forward<T, S>::space(c_, SIDE);
        if (blocks_.per_lane == 1) {
            worker = Forward<T, S>::space(c_, 1) + packer_.size();
            if (!whole_lanes()) shared = Forward<T, S>::part(c_) * size_t(packer_.segments) + sizeof(RowState<T>) / sizeof(T) * size_t(packer_.segments);
        } else if (private_lanes()) {
            worker += packed;
        } else {
            shared = packed * size_t(blocks_.lanes);
        }
        *bytes = int64_t((shared + worker * size_t(threads_)) * sizeof(T));
        spaces_.ask(shared, worker, threads_);
    }

   private:
    const regard_call& c_;
    Spaces<T>& spaces_;
    const Stop& stop_;
    Mask mask_;
    Blocks blocks_;
    Packer<T, S> packer_;
    int64_t threads_;
    std::atomic<bool> finite_{true};
    std::vector<T> norms_;  // per lane and segment, under slopes: the largest of its keys'; infinite where a value is not finite

    // Whether a thread packs a lane for itself: it fits the cache, and lanes keep all threads busy.
    bool private_lanes() const {
        return packer_.size() * size_t(packer_.segments) * sizeof(T) <= (size_t(3) << 18) &&
               (blocks_.lanes % threads_ == 0 || blocks_.lanes >= 4 * threads_);
    }
    bool whole_lanes() const { return blocks_.lanes >= threads_ || packer_.segments == 1; }
    void note(bool finite) {
        if (!finite) finite_.store(false, std::memory_order_relaxed);
    }
    int64_t base(int64_t segment) const { return segment * SEGMENT - packer_.pad; }
    struct Seen {
        int64_t segment;
        Span span;
    };
    std::vector<Seen> seen(const Block& block) const {
        const Runs runs = runs_of(c_, mask_, block);
        std::vector<Seen> found;
        for (const Run& run : runs) {
            if (run.kind == EMPTY) continue;
            int64_t segment = (run.start + packer_.pad) / SEGMENT;
            if (!found.empty() && found.back().segment == segment) ++segment;
            for (; base(segment) < run.stop; ++segment)
                found.push_back({segment, span_of(runs, std::max<int64_t>(0, base(segment)), std::min(c_.keys, base(segment + 1)))});
        }
        return found;
    }

    // Many heads: each is packed and computed by one thread, in its own cache.
    void by_lane() {
        const size_t own = Forward<T, S>::space(c_, SIDE), size = packer_.size();
        parallel(blocks_.lanes, threads_, stop_, [&](int64_t lane, int64_t worker) {
            T* space = spaces_.worker(worker, own + size * size_t(packer_.segments));
            for (int64_t n = 0; n < packer_.segments; ++n) pack(lane, n, space + own + size * size_t(n));
            for (int64_t n = 0; n < blocks_.per_lane; n += side()) some_blocks(lane, n, space, space + own);
        });
    }
    // Few heads: all are packed first, then threads take blocks of rows.
    void by_block() {
        const size_t size = packer_.size();
        T* packed = spaces_.shared.get(size * size_t(packer_.segments * blocks_.lanes));
        parallel(blocks_.lanes * packer_.segments, threads_, stop_, [&](int64_t unit, int64_t) {
            pack(unit / packer_.segments, unit % packer_.segments, packed + size * size_t(unit));
        });
        if (!finite_.load()) return;
        parallel(blocks_.lanes * parts(blocks_.per_lane, side()), threads_, stop_, [&](int64_t unit, int64_t worker) {
            const int64_t lane = unit % blocks_.lanes;
            some_blocks(lane, unit / blocks_.lanes * side(), spaces_.worker(worker, Forward<T, S>::space(c_, SIDE)),
                        packed + size * size_t(lane * packer_.segments));
        });
    }
    void pack(int64_t lane, int64_t segment, T* to) {
        note(packer_.segment(lane, segment, to));
        if (norms_.empty()) return;
        T& norm = norms_[size_t(lane * packer_.segments + segment)];
        const int64_t first = std::max<int64_t>(0, -base(segment)) / COLUMNS<T> * COLUMNS<T>, past = std::min<int64_t>(SEGMENT, c_.keys - base(segment));
        norm = largest_norm(to + first * c_.d_key, past - first, c_.d_key);
        if (!packer_.finite_values(lane, segment)) norm = std::numeric_limits<T>::infinity();
    }
    // Some blocks side by side, so that a segment that came into the cache serves them all.
    static constexpr int64_t SIDE = 12;
    // The sum form has so much to do per key that it need not: its rows are large instead.
    int64_t side() const { return c_.form ? 1 : std::min(SIDE, std::max<int64_t>(1, blocks_.total / (4 * threads_))); }
    void some_blocks(int64_t lane, int64_t number, T* space, const T* packed) {
        const int64_t count = std::min(side(), blocks_.per_lane - number);
        std::vector<Forward<T, S>> passes;
        std::vector<Seen> lists[SIDE];
        size_t next[SIDE] = {};
        Ahead nothing;
        for (int64_t n = 0; n < count; ++n) {
            passes.emplace_back(c_, mask_, space, n);
            const Block block = blocks_.at(c_, lane, number + n);
            note(passes.back().begin(block));
            lists[n] = seen(block);
        }
        for (int64_t segment = 0; segment < packer_.segments; ++segment)
            for (int64_t n = 0; n < count; ++n)
                if (next[n] < lists[n].size() && lists[n][next[n]].segment == segment) {
                    const Span& span = lists[n][next[n]++].span;
                    const T norm = norms_.empty() ? std::numeric_limits<T>::infinity() : norms_[size_t(lane * packer_.segments + segment)];
                    if (!norms_.empty() && passes[size_t(n)].faint(span, norm)) continue;
                    passes[size_t(n)].segment(span, base(segment), packer_.source(lane, segment, packed + packer_.size() * size_t(segment)), nothing, norm);
                }
        for (Forward<T, S>& pass : passes) note(pass.write());
    }

    // Few queries: keys are read once, segment by segment, and nothing else is packed. With fewer heads than threads the
    // segments are computed apart and merged in order.
    void few() {
        if (whole_lanes()) {
            parallel(blocks_.lanes, threads_, stop_, [&](int64_t lane, int64_t worker) {
                T* space = spaces_.worker(worker, Forward<T, S>::space(c_, 1) + packer_.size());
                const Block block = blocks_.at(c_, lane, 0);
                Forward<T, S> pass(c_, mask_, space, 0);
                note(pass.begin(block));
                const std::vector<Seen> spans = seen(block);
                for (size_t n = 0; n < spans.size(); ++n) {
                    const Seen& s = spans[n];
                    if (n == 0) Ahead(packer_.keys_piece(lane, s.span.start, std::min(s.span.stop, s.span.start + packer_.lead()))).all();
                    const std::vector<Ahead::Piece> pieces = packer_.pieces(lane, s.span, n + 1 < spans.size() ? &spans[n + 1].span : nullptr);
                    Ahead ahead(pieces);
                    const Source<T> source = read(lane, s, space + Forward<T, S>::space(c_, 1), ahead);
                    pass.segment(s.span, base(s.segment), source, ahead);
                }
                note(pass.write());
            });
            return;
        }
        for (int64_t lane = 0; lane < blocks_.lanes; ++lane) apart(lane);
    }
    void apart(int64_t lane) {
        const Block block = blocks_.at(c_, lane, 0);
        const std::vector<Seen> spans = seen(block);
        const size_t part = Forward<T, S>::part(c_);
        T* outs = spaces_.shared.get(part * spans.size());
        std::vector<RowState<T>> states(spans.size());
        parallel(int64_t(spans.size()), threads_, stop_, [&](int64_t unit, int64_t worker) {
            T* space = spaces_.worker(worker, Forward<T, S>::space(c_, 1) + packer_.size());
            const Seen& s = spans[size_t(unit)];
            Forward<T, S> pass(c_, mask_, space, 0);
            note(pass.begin(block));
            const size_t next = size_t(unit + threads_);  // probably
            const std::vector<Ahead::Piece> pieces = packer_.pieces(lane, s.span, next < spans.size() ? &spans[next].span : nullptr);
            Ahead ahead(pieces);
            const Source<T> source = read(lane, s, space + Forward<T, S>::space(c_, 1), ahead);
            pass.apart(s.span, base(s.segment), source, outs + part * size_t(unit), states[size_t(unit)], ahead);
        });
        if (stop_.now()) return;  // some may be missing
        Forward<T, S> pass(c_, mask_, spaces_.worker(0, Forward<T, S>::space(c_, 1) + packer_.size()), 0);
        note(pass.begin(block));
        for (size_t n = 0; n < spans.size(); ++n) pass.add(outs + part * n, states[n]);
        note(pass.write());
    }
    // One segment, packed only where it is seen; values stay where they lie if they can be read there.
    Source<T> read(int64_t lane, const Seen& s, T* space, Ahead& ahead) {
        const bool lying = packer_.lying && c_.group * c_.queries <= FEW;
        if (!lying) note(packer_.keys(lane, s.segment, s.span.start, s.span.stop, packer_.panels(space), ahead));
        if (!packer_.in_place) packer_.values(lane, s.segment, packer_.tiles_of(space));
        Source<T> source = packer_.source(lane, s.segment, space);
        if (lying) source.keys = packer_.keys_at(lane, s.segment);
        return source;
    }
};

template <class T, class S> int forward(const regard_call& c, Spaces<T>& spaces) {
    const Stop stop(c.stop, c.progress);
    const bool finite = Schedule<T, S>(c, spaces, stop).run();
    return stop.now() ? REGARD_STOPPED : finite ? REGARD_DONE : REGARD_NOT_FINITE;
}
template <class T, class S> void plan(const regard_call& c, Spaces<T>& spaces, int64_t* pairs, int64_t* bytes) {
    const Stop stop(nullptr);
    Schedule<T, S>(c, spaces, stop).plan(pairs, bytes);
}

}  // namespace REGARD_ISA
}  // namespace regard
