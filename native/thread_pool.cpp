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
    const CallControl* control;
    int64_t units, helpers;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex guard;
    std::exception_ptr error;

    void drain(int64_t worker) {
        try {
            for (int64_t unit; !failed.load(std::memory_order_relaxed) && !control->stopped() &&
                               (unit = next.fetch_add(1)) < units;) {
                (*work)(unit, worker);
                control->unit_done();
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(guard);
            if (!error) error = std::current_exception();
            failed = true;
        }
    }
};

// Threads wait on a condition variable between jobs; they never spin, so they do not slow down other libraries'
// threads.
struct Pool {
    std::mutex calls;  // one job at a time
    std::mutex state;
    std::condition_variable wake, done;
    Job* job = nullptr;
    int64_t joined = 0, size = 0;
    uint64_t round = 0;

    // Threads that wake in time join the job; the caller does not wait for the others.
    void run(Job& new_job) {
        {
            const std::lock_guard<std::mutex> lock(state);
            grow(new_job.helpers);
            job = &new_job;
            ++round;
        }
        wake.notify_all();
        new_job.drain(0);
        std::unique_lock<std::mutex> lock(state);
        job = nullptr;
        done.wait(lock, [&] { return joined == 0; });
    }
    void grow(int64_t count) {
        try {
            for (; size < count; ++size)
                std::thread([this, number = size + 1, last_round = round] { serve(number, last_round); }).detach();
        } catch (const std::exception&) {  // the system has no more threads: go on with those that exist
        }
    }
    void serve(int64_t number, uint64_t last_round) {
        std::unique_lock<std::mutex> lock(state);
        for (;;) {
            wake.wait(lock, [&] { return round != last_round; });
            last_round = round;
            if (!job || number > job->helpers) continue;
            Job& current = *job;
            ++joined;
            lock.unlock();
            current.drain(number);
            lock.lock();
            if (--joined == 0) done.notify_one();
        }
    }
};

// A forked child has none of its parent's threads: it drops the pool and creates its own when needed. The pool is never
// freed, so its threads may outlive static objects at exit.
std::atomic<Pool*> shared{nullptr};

Pool& pool() {
    Pool* existing = shared.load(std::memory_order_acquire);
    if (existing) return *existing;
    auto* created = new Pool;
    if (!shared.compare_exchange_strong(existing, created)) {
        delete created;
        return *existing;
    }
    return *created;
}

// OpenMP threads spin for some milliseconds after a parallel region, and a second pool would compete with them for the
// processor. They belong to the thread that started them, and do not survive a fork.
std::atomic<Team> team{nullptr};
std::atomic<std::thread::id> owner{};

Team team_of_this_thread() {
    const Team current = team.load(std::memory_order_acquire);
    if (!current) return nullptr;
    std::thread::id expected, me = std::this_thread::get_id();
    return owner.compare_exchange_strong(expected, me) || expected == me ? current : nullptr;
}

#if !defined(_WIN32)
// Registered at load: a handler registered by the first call could be missing when another thread forks during that
// call.
const int registered = pthread_atfork(nullptr, nullptr, [] {
    shared.store(nullptr, std::memory_order_release);
    team.store(nullptr, std::memory_order_release);
});
#endif

struct TeamJob {
    Job* job;
    std::atomic<int64_t> workers{0};
};

}  // namespace

void use_team(Team gomp_parallel) { team.store(gomp_parallel, std::memory_order_release); }

void parallel(int64_t units, int64_t threads, const CallControl& control, const Work& work) {
    Job job;
    job.work = &work;
    job.control = &control;
    job.units = units;
    job.helpers = std::min(threads, units) - 1;
    control.begin_step(units);
    // A stoppable call runs in a short-lived thread of its own, which must not become the owner of the team.
    const Team others = job.helpers > 0 && !control.stoppable() ? team_of_this_thread() : nullptr;
    if (others) {
        TeamJob team_job;
        team_job.job = &job;
        others(
            [](void* data) {
                TeamJob& all = *static_cast<TeamJob*>(data);
                all.job->drain(all.workers.fetch_add(1));
            },
            &team_job, unsigned(job.helpers + 1), 0);
    } else if (job.helpers > 0) {
        Pool& all = pool();
        const std::unique_lock<std::mutex> lock(all.calls, std::try_to_lock);
        if (lock.owns_lock())
            all.run(job);
        else  // another thread is using the pool: this call runs on one thread
            job.drain(0);
    } else {
        job.drain(0);
    }
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace regard
