// How the forward pass is shared among threads. None of the three ways changes a bit.
#pragma once
#include <atomic>

#include "forward.h"

namespace regard {
namespace REGARD_ISA {

// Workspaces, kept between the calls of a thread.
template <class T> struct Spaces {
    Space<T> shared;
    std::vector<Space<T>> workers;
    T* worker(int64_t number, size_t size) { return workers[size_t(number)].get(size); }
};

template <class T, class S> class Schedule {
   public:
    Schedule(const regard_call& c, Spaces<T>& spaces, const Stop& stop)
        : c_(c), spaces_(spaces), stop_(stop), mask_(c), blocks_(c), packer_(c) {
        if (int64_t(spaces.workers.size()) < c.threads) spaces.workers.resize(size_t(c.threads));
    }
    // False if something is not finite.
    bool run() {
        const size_t lane = packer_.size() * size_t(packer_.segments) * sizeof(T);
        if (blocks_.per_lane == 1)
            few();
        else if (lane <= (size_t(3) << 18) && (blocks_.lanes % c_.threads == 0 || blocks_.lanes >= 4 * c_.threads))
            by_lane();
        else
            by_block();
        return finite_.load();
    }

   private:
    const regard_call& c_;
    Spaces<T>& spaces_;
    const Stop& stop_;
    Mask mask_;
    Blocks blocks_;
    Packer<T, S> packer_;
    std::atomic<bool> finite_{true};

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
        parallel(blocks_.lanes, c_.threads, stop_, [&](int64_t lane, int64_t worker) {
            T* space = spaces_.worker(worker, own + size * size_t(packer_.segments));
            for (int64_t n = 0; n < packer_.segments; ++n) note(packer_.segment(lane, n, space + own + size * size_t(n)));
            for (int64_t n = 0; n < blocks_.per_lane; n += side()) some_blocks(lane, n, space, space + own);
        });
    }
    // Few heads: all are packed first, then threads take blocks of rows.
    void by_block() {
        const size_t size = packer_.size();
        T* packed = spaces_.shared.get(size * size_t(packer_.segments * blocks_.lanes));
        parallel(blocks_.lanes * packer_.segments, c_.threads, stop_, [&](int64_t unit, int64_t) {
            note(packer_.segment(unit / packer_.segments, unit % packer_.segments, packed + size * size_t(unit)));
        });
        if (!finite_.load()) return;
        parallel(blocks_.lanes * parts(blocks_.per_lane, side()), c_.threads, stop_, [&](int64_t unit, int64_t worker) {
            const int64_t lane = unit % blocks_.lanes;
            some_blocks(lane, unit / blocks_.lanes * side(), spaces_.worker(worker, Forward<T, S>::space(c_, SIDE)),
                        packed + size * size_t(lane * packer_.segments));
        });
    }
    // Some blocks side by side, so that a segment that came into the cache serves them all.
    static constexpr int64_t SIDE = 12;
    int64_t side() const { return std::min(SIDE, std::max<int64_t>(1, blocks_.total / (4 * c_.threads))); }
    void some_blocks(int64_t lane, int64_t number, T* space, const T* packed) {
        const int64_t count = std::min(side(), blocks_.per_lane - number);
        std::vector<Forward<T, S>> passes;
        std::vector<Seen> lists[SIDE];
        size_t next[SIDE] = {};
        for (int64_t n = 0; n < count; ++n) {
            passes.emplace_back(c_, mask_, space, n);
            const Block block = blocks_.at(c_, lane, number + n);
            note(passes.back().begin(block));
            lists[n] = seen(block);
        }
        for (int64_t segment = 0; segment < packer_.segments; ++segment)
            for (int64_t n = 0; n < count; ++n)
                if (next[n] < lists[n].size() && lists[n][next[n]].segment == segment)
                    passes[size_t(n)].segment(lists[n][next[n]++].span, base(segment), packer_.source(lane, segment, packed + packer_.size() * size_t(segment)));
        for (Forward<T, S>& pass : passes) note(pass.write());
    }

    // Few queries: keys are read once, segment by segment, and nothing else is packed. With fewer heads than threads the
    // segments are computed apart and merged in order.
    void few() {
        if (blocks_.lanes >= c_.threads || packer_.segments == 1) {
            parallel(blocks_.lanes, c_.threads, stop_, [&](int64_t lane, int64_t worker) {
                T* space = spaces_.worker(worker, Forward<T, S>::space(c_, 1) + packer_.size());
                const Block block = blocks_.at(c_, lane, 0);
                Forward<T, S> pass(c_, mask_, space, 0);
                note(pass.begin(block));
                for (const Seen& s : seen(block))
                    pass.segment(s.span, base(s.segment), read(lane, s, space + Forward<T, S>::space(c_, 1)));
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
        parallel(int64_t(spans.size()), c_.threads, stop_, [&](int64_t unit, int64_t worker) {
            T* space = spaces_.worker(worker, Forward<T, S>::space(c_, 1) + packer_.size());
            const Seen& s = spans[size_t(unit)];
            Forward<T, S> pass(c_, mask_, space, 0);
            note(pass.begin(block));
            pass.apart(s.span, base(s.segment), read(lane, s, space + Forward<T, S>::space(c_, 1)), outs + part * size_t(unit), states[size_t(unit)]);
        });
        Forward<T, S> pass(c_, mask_, spaces_.worker(0, Forward<T, S>::space(c_, 1) + packer_.size()), 0);
        note(pass.begin(block));
        for (size_t n = 0; n < spans.size(); ++n) pass.add(outs + part * n, states[n]);
        note(pass.write());
    }
    // One segment, packed only where it is seen; values stay where they lie if they can be read there.
    Source<T> read(int64_t lane, const Seen& s, T* space) {
        note(packer_.keys(lane, s.segment, s.span.start, s.span.stop, space));
        if (!packer_.in_place) packer_.values(lane, s.segment, space + SEGMENT * c_.d_key);
        return packer_.source(lane, s.segment, space);
    }
};

template <class T, class S> int forward(const regard_call& c, Spaces<T>& spaces) {
    const Stop stop(c.stop);
    const bool finite = Schedule<T, S>(c, spaces, stop).run();
    return stop.now() ? REGARD_STOPPED : finite ? REGARD_DONE : REGARD_NOT_FINITE;
}

}  // namespace REGARD_ISA
}  // namespace regard
