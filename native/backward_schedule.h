// How the backward pass is divided among threads.
//
//   thread = block          lay out queries and dO, constants of the softmax          BackwardWorkspace::load_block
//   thread = split          of the chunks of a batch_head: dK, dV, partial dQ         Backward::run
//   thread = batch_head     add the partial dQ, chunk by chunk
//   thread = batch_head     additive scores: remove the rounding of delta             correct_score_gradient_sums
//   caller                  add the partial gradients of tables, sink and temperature
#pragma once
#include "backward.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

template <class T, class S> int backward(const regard_call& c, Workspaces<T>& workspaces) {
    const CallControl control(c.stop, c.progress);
    const int64_t threads = useful_threads(c);
    BackwardWorkspace<T, S> shared(c, threads);
    shared.allocate_parts(workspaces.shared.get(shared.size()));
    const QueryBlocks& blocks = shared.blocks;
    workspaces.add_workers(threads);
    parallel(blocks.total, threads, control, [&](int64_t unit, int64_t) {
        shared.load_block(unit / blocks.per_batch_head, unit % blocks.per_batch_head);
    });

    const size_t pass_size = Backward<T, S>::workspace_size(shared);
    const auto run_chunks = [&](int64_t batch_head, int64_t split, int64_t worker) {
        T* space =
            workspaces.worker(worker, pass_size + (shared.splits > 1 ? 0 : size_t(padded_size(shared.dq_size()))));
        Backward<T, S> pass(shared, control, space);
        for (int64_t chunk = shared.chunks * split / shared.splits; chunk < shared.chunks * (split + 1) / shared.splits;
             ++chunk) {
            T* dq = shared.splits > 1 ? shared.dq_partial(batch_head, chunk) : space + pass_size;
            pass.run(batch_head, chunk, open(dq, shared.dq_size()));
            if (shared.splits == 1) shared.add_dq(batch_head, chunk, dq);
        }
    };
    if (shared.shared_dense)  // all batch_heads add to one dense bias gradient: a thread owns a range of its columns
        parallel(shared.splits, threads, control, [&](int64_t split, int64_t worker) {
            for (int64_t batch_head = 0; batch_head < blocks.batch_heads; ++batch_head)
                run_chunks(batch_head, split, worker);
        });
    else
        parallel(blocks.batch_heads * shared.splits, threads, control,
                 [&](int64_t unit, int64_t worker) { run_chunks(unit / shared.splits, unit % shared.splits, worker); });
    if (shared.splits > 1)
        parallel(blocks.batch_heads, threads, control, [&](int64_t batch_head, int64_t) {
            for (int64_t chunk = 0; chunk < shared.chunks; ++chunk)
                shared.add_dq(batch_head, chunk, shared.dq_partial(batch_head, chunk));
        });
    if (c.form && !(c.cap > 0))
        parallel(blocks.batch_heads, threads, control,
                 [&](int64_t batch_head, int64_t) { correct_score_gradient_sums(shared, batch_head); });
    shared.add_partials();
    return control.stopped() ? REGARD_STOPPED : REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
