// The thread pool: `work(unit, worker)` for every unit, on up to `threads` threads, the caller among them.
#pragma once
#include <cstdint>
#include <functional>

namespace regard {

// What another thread may see and do while a call runs: end it early, and how many units of a step are done, of how many.
class Stop {
   public:
    explicit Stop(const volatile int32_t* flag, int64_t* progress = nullptr) : flag_(flag), progress_(progress) {}
    bool possible() const { return flag_ != nullptr; }
    bool now() const { return flag_ && __atomic_load_n(flag_, __ATOMIC_RELAXED) != 0; }
    void begin(int64_t units) const {
        if (!progress_) return;
        __atomic_store_n(progress_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(progress_ + 1, units, __ATOMIC_RELAXED);
    }
    void done() const {
        if (progress_) __atomic_fetch_add(progress_, 1, __ATOMIC_RELAXED);
    }

   private:
    const volatile int32_t* flag_;
    int64_t* progress_;
};

using Work = std::function<void(int64_t unit, int64_t worker)>;

// An exception of any unit is thrown again here once all threads are done. Units that have not begun when `stop` says
// so are left out.
void parallel(int64_t units, int64_t threads, const Stop& stop, const Work& work);

// Another library's threads, as OpenMP's GOMP_parallel(fn, data, threads, flags) runs them, the caller among them. The
// first thread that asks uses them from then on; others, and children of fork, use the pool.
using Team = void (*)(void (*)(void*), void*, unsigned, unsigned);
void use_team(Team team);

}  // namespace regard
