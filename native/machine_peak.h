// Limits of the machine, for benchmarks: multiply-adds in registers, and reading memory once.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "simd.h"

namespace regard {
namespace REGARD_ISA {
namespace {

// Independent accumulators: enough to hide the latency, few enough for the registers.
constexpr int CHAINS = REGARD_VECTOR_BYTES == 64 ? 24 : 12;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// work(thread) on every thread at once: none begins before all have started.
template <class Work> void on_all_threads(int64_t threads, Work work) {
    std::atomic<int64_t> not_started{threads};
    const auto begin = [&](int64_t thread) {
        --not_started;
        while (not_started.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
        work(thread);
    };
    std::vector<std::thread> others;
    for (int64_t n = 1; n < threads; ++n) others.emplace_back(begin, n);
    begin(0);
    for (auto& other : others) other.join();
}

double fma_rate(double seconds) {
    constexpr int TURNS = 4096;
    const Vec<float> factor = splat(0.9999999f), term = splat(1e-7f);
    Vec<float> sums[CHAINS];
    for (int n = 0; n < CHAINS; ++n) sums[n] = splat(float(n));
    int64_t turns = 0;
    const auto start = std::chrono::steady_clock::now();
    double elapsed = 0;
    do {
        for (int turn = 0; turn < TURNS; ++turn)
            REGARD_UNROLLED_FOR (int n = 0; n < CHAINS; ++n) sums[n] = sums[n] * factor + term;
        turns += TURNS;
        elapsed = seconds_since(start);
    } while (elapsed < seconds);
    Vec<float> total = sums[0];
    for (int n = 1; n < CHAINS; ++n) total += sums[n];
    volatile float sink = reduce_add<float>(total);
    (void)sink;
    return 2.0 * LANES<float> * CHAINS * double(turns) / elapsed;
}

// Sum the floats from `first` to `end`, a multiple of 256 bytes apart; the sum is returned so that the reads are not
// optimized away.
float read_all(const char* first, const char* end) {
    constexpr int STEP = 256, VECTORS = STEP / REGARD_VECTOR_BYTES, AHEAD = 2048;
    Vec<float> sums[VECTORS] = {};
    for (const char* at = first; at < end; at += STEP) {
        for (int line = 0; line < STEP; line += 64) __builtin_prefetch(at + AHEAD + line);
        REGARD_UNROLLED_FOR (int n = 0; n < VECTORS; ++n)
            sums[n] += load(reinterpret_cast<const float*>(at + n * REGARD_VECTOR_BYTES));
    }
    for (int n = 1; n < VECTORS; ++n) sums[0] += sums[n];
    return reduce_add<float>(sums[0]);
}

}  // namespace

double fma_peak(int64_t threads, double seconds) {
    std::vector<double> rates(size_t(threads), 0.0);
    on_all_threads(threads, [&](int64_t thread) { rates[size_t(thread)] = fma_rate(seconds); });
    double total = 0;
    for (const double rate : rates) total += rate;
    return total;
}

double read_bandwidth(const void* data, int64_t bytes, int64_t threads) {
    const int64_t share = bytes / threads / 256 * 256;
    std::vector<double> elapsed(size_t(threads), 0.0);
    on_all_threads(threads, [&](int64_t thread) {
        const char* first = static_cast<const char*>(data) + thread * share;
        const auto start = std::chrono::steady_clock::now();
        volatile float sink = read_all(first, first + share);
        (void)sink;
        elapsed[size_t(thread)] = seconds_since(start);
    });
    return double(share * threads) / *std::max_element(elapsed.begin(), elapsed.end());
}

}  // namespace REGARD_ISA
}  // namespace regard
