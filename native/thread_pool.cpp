#include "thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace regard {
namespace {

struct Job {
    const Work* work;
    const Stop* stop;
    int64_t units, helpers;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex guard;
    std::exception_ptr error;

    void drain(int64_t worker) {
        try {
            for (int64_t unit; !failed.load(std::memory_order_relaxed) && !stop->now() && (unit = next.fetch_add(1)) < units;) {
                (*work)(unit, worker);
                stop->done();
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(guard);
            if (!error) error = std::current_exception();
            failed = true;
        }
    }
};

// Threads wait on a condition variable between jobs: they never spin beside other libraries' threads.
struct Pool {
    std::mutex calls;  // one job at a time
    std::mutex state;
    std::condition_variable wake, done;
    Job* job = nullptr;
    int64_t joined = 0, size = 0;
    uint64_t round = 0;

    // Whoever wakes in time joins; the caller never waits for a thread that has not begun.
    void run(Job& mine) {
        {
            const std::lock_guard<std::mutex> lock(state);
            grow(mine.helpers);
            job = &mine;
            ++round;
        }
        wake.notify_all();
        mine.drain(0);
        std::unique_lock<std::mutex> lock(state);
        job = nullptr;
        done.wait(lock, [&] { return joined == 0; });
    }
    void grow(int64_t wanted) {
        try {
            for (; size < wanted; ++size) std::thread([this, number = size + 1, seen = round] { serve(number, seen); }).detach();
        } catch (const std::exception&) {  // no more threads to be had: those that are there do the work
        }
    }
    void serve(int64_t number, uint64_t seen) {
        std::unique_lock<std::mutex> lock(state);
        for (;;) {
            wake.wait(lock, [&] { return round != seen; });
            seen = round;
            if (!job || number > job->helpers) continue;
            Job& mine = *job;
            ++joined;
            lock.unlock();
            mine.drain(number);
            lock.lock();
            if (--joined == 0) done.notify_one();
        }
    }
};

// A child of fork has none of its parent's threads: it forgets the pool, and makes its own when it needs one. The pool
// is never freed, so that threads may outlive static objects at exit.
std::atomic<Pool*> shared{nullptr};

Pool& pool() {
    Pool* found = shared.load(std::memory_order_acquire);
    if (found) return *found;
    auto* made = new Pool;
    if (!shared.compare_exchange_strong(found, made)) {
        delete made;
        return *found;
    }
    return *made;
}

// OpenMP's threads spin for some milliseconds after a parallel region of their own, and a second pool would have to share
// the processor with them. They belong to the thread that called them, and do not survive a fork.
std::atomic<Team> team{nullptr};
std::atomic<std::thread::id> owner{};

Team mine() {
    const Team found = team.load(std::memory_order_acquire);
    if (!found) return nullptr;
    std::thread::id nobody, me = std::this_thread::get_id();
    return owner.compare_exchange_strong(nobody, me) || nobody == me ? found : nullptr;
}

#if !defined(_WIN32)
// Registered when the library is loaded: a handler that the first call registers may be missing when another thread forks
// during that call.
const int registered = pthread_atfork(nullptr, nullptr, [] {
    shared.store(nullptr, std::memory_order_release);
    team.store(nullptr, std::memory_order_release);
});
#endif

struct Shift {
    Job* job;
    std::atomic<int64_t> workers{0};
};

}  // namespace

void use_team(Team found) { team.store(found, std::memory_order_release); }

void parallel(int64_t units, int64_t threads, const Stop& stop, const Work& work) {
    Job job;
    job.work = &work;
    job.stop = &stop;
    job.units = units;
    job.helpers = std::min(threads, units) - 1;
    stop.begin(units);
    // A call that can be stopped is long and runs in a thread of its own, which is gone after it: it does not become the owner.
    const Team others = job.helpers > 0 && !stop.possible() ? mine() : nullptr;
    if (others) {
        Shift shift;
        shift.job = &job;
        others([](void* data) {
            Shift& all = *static_cast<Shift*>(data);
            all.job->drain(all.workers.fetch_add(1));
        }, &shift, unsigned(job.helpers + 1), 0);
    } else if (job.helpers > 0) {
        Pool& all = pool();
        const std::unique_lock<std::mutex> lock(all.calls, std::try_to_lock);
        if (lock.owns_lock())
            all.run(job);
        else  // another thread of the program has the pool: this call runs on its own
            job.drain(0);
    } else {
        job.drain(0);
    }
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace regard
