// Run the units of a call in parallel, on a thread pool or on the threads of an OpenMP runtime.
#pragma once
#include <cstdint>
#include <functional>

namespace regard {

// Link to the thread that watches a call: its stop flag, and the progress of the current step.
class CallControl {
   public:
    explicit CallControl(const volatile int32_t* flag, int64_t* progress = nullptr)
        : flag_(flag), progress_(progress) {}
    bool stoppable() const { return flag_ != nullptr; }
    bool stopped() const { return flag_ && __atomic_load_n(flag_, __ATOMIC_RELAXED) != 0; }
    void begin_step(int64_t units) const {
        if (!progress_) return;
        __atomic_store_n(progress_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(progress_ + 1, units, __ATOMIC_RELAXED);
    }
    void unit_done() const {
        if (progress_) __atomic_fetch_add(progress_, 1, __ATOMIC_RELAXED);
    }

   private:
    const volatile int32_t* flag_;
    int64_t* progress_;
};

using Work = std::function<void(int64_t unit, int64_t worker)>;

// work(unit, worker) for every unit, on up to `threads` threads including the caller. An exception of a unit is
// rethrown after all threads have finished. Units that have not begun when the call is stopped are skipped.
void parallel(int64_t units, int64_t threads, const CallControl& control, const Work& work);

// Use the threads of an OpenMP runtime: `team` is its GOMP_parallel(fn, data, threads, flags). Only the first thread
// that calls `parallel` from then on uses them; other threads, and child processes, use the pool.
using Team = void (*)(void (*)(void*), void*, unsigned, unsigned);
void use_team(Team team);

}  // namespace regard
