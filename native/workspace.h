// Workspaces: scratch memory that a thread keeps between its calls, divided into aligned parts. Under the address
// sanitizer the parts are separated by red zones, memory outside of open parts must not be touched, and unwritten
// numbers read as NaN.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <vector>
#if defined(_WIN32)
#include <malloc.h>
#endif
#if defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer)
#define REGARD_RED_ZONES
#endif
#elif defined(__SANITIZE_ADDRESS__)  // GCC
#define REGARD_RED_ZONES
#endif
#if defined(REGARD_RED_ZONES)
#include <sanitizer/asan_interface.h>
#endif

namespace regard {
namespace REGARD_ISA {

#if defined(REGARD_RED_ZONES)
constexpr int64_t RED_ZONE = 64;  // numbers between two parts
#else
constexpr int64_t RED_ZONE = 0;
#endif

// Numbers that a part of `count` numbers occupies, padding and red zone included; keeps the next part aligned to 64
// bytes.
inline int64_t padded_size(int64_t count) { return (count + 15) / 16 * 16 + RED_ZONE; }

// Open a part for use (a no-op without the address sanitizer).
template <class T> inline T* open(T* part, int64_t count) {
#if defined(REGARD_RED_ZONES)
    ASAN_UNPOISON_MEMORY_REGION(part, size_t(count) * sizeof(T));
    std::fill(part, part + count, std::numeric_limits<T>::quiet_NaN());
#else
    (void)count;
#endif
    return part;
}
// Open a part at the front of `space` and move `space` behind it.
template <class T> inline T* allocate(T*& space, int64_t count) {
    T* part = open(space, count);
    space += padded_size(count);
    return part;
}

inline void* aligned_allocate(size_t bytes) {
#if defined(_WIN32)
    return _aligned_malloc(bytes, 64);
#else
    return std::aligned_alloc(64, bytes);
#endif
}
inline void aligned_free(void* data) {
#if defined(_WIN32)
    _aligned_free(data);
#else
    std::free(data);
#endif
}

// Memory that is kept between calls and grows when needed. All of it is closed until `open` or `allocate`.
template <class T> struct Workspace {
    std::unique_ptr<T[], void (*)(T*)> data{nullptr, [](T* p) { aligned_free(p); }};
    size_t size = 0;
    size_t peak = 0;  // the largest `get` since `reset_peak`
    T* get(size_t count) {
        peak = std::max(peak, count);
        if (count > size) {
            data.reset();
            size = 0;
            data.reset(static_cast<T*>(aligned_allocate((count * sizeof(T) + 63) / 64 * 64)));
            if (!data) throw std::bad_alloc();
            size = count;
        }
#if defined(REGARD_RED_ZONES)
        ASAN_POISON_MEMORY_REGION(data.get(), size * sizeof(T));
#endif
        return data.get();
    }
};

// The workspaces of one calling thread: one shared by all workers of a call, and one per worker.
template <class T> struct Workspaces {
    Workspace<T> shared;
    std::vector<Workspace<T>> workers;
    void add_workers(int64_t threads) {
        if (int64_t(workers.size()) < threads) workers.resize(size_t(threads));
    }
    T* worker(int64_t number, size_t size) { return workers[size_t(number)].get(size); }
    size_t bytes() const {
        size_t total = shared.size;
        for (const Workspace<T>& space : workers) total += space.size;
        return total * sizeof(T);
    }
    // Free the memory of a large call.
    void trim() {
        if (bytes() > (size_t(64) << 20)) for_all([](Workspace<T>& space) { space.data.reset(), space.size = 0; });
    }
    // Record peaks as a call with these sizes would, without allocating.
    void plan_peak(size_t shared_size, size_t worker_size, int64_t threads) {
        add_workers(threads);
        shared.peak = std::max(shared.peak, shared_size);
        for (int64_t n = 0; n < threads; ++n) workers[size_t(n)].peak = std::max(workers[size_t(n)].peak, worker_size);
    }
    size_t peak_bytes() {
        size_t total = 0;
        for_all([&](Workspace<T>& space) { total += space.peak; });
        return total * sizeof(T);
    }
    void reset_peak() {
        for_all([](Workspace<T>& space) { space.peak = 0; });
    }

   private:
    template <class Work> void for_all(Work work) {
        work(shared);
        for (Workspace<T>& space : workers) work(space);
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
