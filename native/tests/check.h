// Shared by all tests: a check that counts, random numbers, and memory between guards.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

// The test program; main.cpp calls it if the processor has the instruction set that it was compiled for.
void run();

extern int checks, failures;

// Number of random cases: a tenth under a sanitizer.
#if defined(REGARD_SANITIZED)
constexpr int some(int count) { return (count + 9) / 10; }
#else
constexpr int some(int count) { return count; }
#endif

#define CHECK(what, ...)                                               \
    do {                                                               \
        ++checks;                                                      \
        if (!(what) && ++failures <= 20) {                             \
            std::printf("%s:%d: not %s: ", __FILE__, __LINE__, #what); \
            std::printf(__VA_ARGS__);                                  \
            std::printf("\n");                                         \
        }                                                              \
    } while (0)

class Random {
   public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t bits() {
        uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    }
    int64_t below(int64_t limit) { return int64_t(bits() % uint64_t(limit)); }
    double number() { return double(int64_t(bits() >> 11)) * 0x1p-52 - 1; }  // in [-1, 1)

   private:
    uint64_t state_;
};

// `count` elements that start one element behind an aligned address, between guards that must stay unchanged.
template <class T> class Guarded {
   public:
    explicit Guarded(int64_t count, double fill = std::numeric_limits<double>::quiet_NaN())
        : count_(size_t(count)), memory_(2 * GUARD + sizeof(T) * (count_ + 1), MARK) {
        const size_t past = reinterpret_cast<uintptr_t>(memory_.data()) % 64;
        start_ = GUARD - past + sizeof(T);
        for (size_t n = 0; n < count_; ++n) set(n, T(fill));
    }
    T* data() {
        return count_ ? reinterpret_cast<T*>(memory_.data() + start_) : nullptr;
    }  // null if empty, as in torch
    T operator[](int64_t n) const {
        T x;
        std::memcpy(&x, memory_.data() + start_ + size_t(n) * sizeof(T), sizeof(T));
        return x;
    }
    void set(size_t n, T x) { std::memcpy(memory_.data() + start_ + n * sizeof(T), &x, sizeof(T)); }
    int64_t size() const { return int64_t(count_); }
    bool guards_intact() const {
        for (size_t n = 0; n < memory_.size(); ++n)
            if ((n < start_ || n >= start_ + count_ * sizeof(T)) && memory_[n] != MARK) return false;
        return true;
    }

   private:
    static constexpr size_t GUARD = 256;
    static constexpr uint8_t MARK = 0xa5;
    size_t count_, start_;
    std::vector<uint8_t> memory_;
};
