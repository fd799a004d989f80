// The pool: every unit once, exceptions, nested and concurrent callers, fork, stop.
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "check.h"
#include "thread_pool.h"

using namespace regard;

namespace {

bool all_once(int64_t units, int64_t threads) {
    CallControl control(nullptr);
    std::unique_ptr<std::atomic<int>[]> times(new std::atomic<int>[size_t(units) + 1]());
    std::atomic<bool> known{true};
    parallel(units, threads, control, [&](int64_t unit, int64_t worker) {
        times[size_t(unit)]++;
        if (worker < 0 || worker >= threads) known = false;
    });
    bool good = known;
    for (int64_t n = 0; n < units; ++n) good &= times[size_t(n)] == 1;
    return good;
}

void units() {
    for (int64_t threads : {1, 2, 3, 8, 2, 1})
        for (int64_t count : {0, 1, 2, 7, 100})
            CHECK(all_once(count, threads), "%d units on %d threads", int(count), int(threads));
}

void exceptions() {
    for (int64_t bad : {0, 17, 99})
        for (int64_t threads : {1, 4}) {
            std::string caught;
            CallControl control(nullptr);
            try {
                parallel(100, threads, control, [&](int64_t unit, int64_t) {
                    if (unit == bad) throw std::runtime_error("unit " + std::to_string(unit));
                });
            } catch (const std::runtime_error& error) {
                caught = error.what();
            }
            CHECK(caught == "unit " + std::to_string(bad), "caught '%s'", caught.c_str());
            CHECK(all_once(50, threads), "after an exception");
        }
}

void nested() {
    CallControl control(nullptr);
    std::atomic<int> good{0};
    parallel(20, 4, control, [&](int64_t, int64_t) { good += all_once(10, 3); });
    CHECK(good == 20, "%d of 20 nested calls", good.load());
}

void concurrent() {
    std::atomic<int> good{0};
    std::vector<std::thread> callers;
    for (int n = 0; n < 4; ++n)
        callers.emplace_back([&, n] {
            for (int round = 0; round < 200; ++round) good += all_once(round % 20, 1 + (n + round) % 5);
        });
    for (std::thread& caller : callers) caller.join();
    CHECK(good == 800, "%d of 800 concurrent calls", good.load());
}

void stops() {
    int32_t flag = 0;
    const CallControl control(&flag);
    std::atomic<int> done{0};
    std::thread other([&] {
        while (done < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        __atomic_store_n(&flag, 1, __ATOMIC_RELAXED);
    });
    parallel(100000, 3, control, [&](int64_t, int64_t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++done;
    });
    other.join();
    CHECK(control.stopped(), "did not stop");
    CHECK(done >= 10 && done < 100000, "%d units were done", done.load());
    CHECK(all_once(30, 3), "after a stop");
}

// Not under the thread sanitizer, which does not follow threads into a child.
#if !defined(_WIN32) && !defined(__SANITIZE_THREAD__)
bool child_finishes() {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);  // ends a child that hangs
        _exit(all_once(100, 4) && all_once(100, 2) ? 0 : 1);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void forks() {
    CHECK(all_once(100, 4), "before the fork");
    for (int n = 0; n < 5; ++n) CHECK(child_finishes(), "a child of an idle pool");
    // the pool is at work, and its locks are taken, while another thread forks
    std::atomic<bool> over{false}, began{false};
    std::thread worker([&] {
        CallControl control(nullptr);
        parallel(4, 4, control, [&](int64_t, int64_t) {
            began = true;
            while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    });
    while (!began) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int n = 0; n < 5; ++n) CHECK(child_finishes(), "a child of a busy pool");
    over = true;
    worker.join();
    CHECK(all_once(100, 4), "after the fork");
}
#else
void forks() {}
#endif

}  // namespace

void run() {
    units();
    exceptions();
    nested();
    concurrent();
    stops();
    forks();
}
