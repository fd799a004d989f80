// Workspaces: memory that is kept between calls and cut into parts. Under the address sanitizer no byte outside of the
// parts in use may be touched, parts lie apart, and what was not written reads as NaN.
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

// What a part of `count` numbers takes of its workspace: the next one is aligned as it is.
inline int64_t room(int64_t count) { return (count + 15) / 16 * 16 + RED_ZONE; }

// The numbers of a part may be used from here on.
template <class T> inline T* open(T* part, int64_t count) {
#if defined(REGARD_RED_ZONES)
    ASAN_UNPOISON_MEMORY_REGION(part, size_t(count) * sizeof(T));
    std::fill(part, part + count, std::numeric_limits<T>::quiet_NaN());
#else
    (void)count;
#endif
    return part;
}
// The same for the part at the front of `space`, which then begins behind it.
template <class T> inline T* take(T*& space, int64_t count) {
    T* part = open(space, count);
    space += room(count);
    return part;
}

inline void* aligned(size_t bytes) {
#if defined(_WIN32)
    return _aligned_malloc(bytes, 64);
#else
    return std::aligned_alloc(64, bytes);
#endif
}
inline void release(void* data) {
#if defined(_WIN32)
    _aligned_free(data);
#else
    std::free(data);
#endif
}

// Memory that is kept between calls and grows when it must. None of its parts is open.
template <class T> struct Space {
    std::unique_ptr<T[], void (*)(T*)> data{nullptr, [](T* p) { release(p); }};
    size_t size = 0;
    size_t asked = 0;  // the most since `forget`, whether it is kept or not
    T* get(size_t count) {
        asked = std::max(asked, count);
        if (count > size) {
            data.reset();
            size = 0;
            data.reset(static_cast<T*>(aligned((count * sizeof(T) + 63) / 64 * 64)));
            if (!data) throw std::bad_alloc();
            size = count;
        }
#if defined(REGARD_RED_ZONES)
        ASAN_POISON_MEMORY_REGION(data.get(), size * sizeof(T));
#endif
        return data.get();
    }
};

// Workspaces, kept between the calls of a thread.
template <class T> struct Spaces {
    Space<T> shared;
    std::vector<Space<T>> workers;
    T* worker(int64_t number, size_t size) { return workers[size_t(number)].get(size); }
    size_t bytes() const {
        size_t total = shared.size;
        for (const Space<T>& space : workers) total += space.size;
        return total * sizeof(T);
    }
    // What a large call took goes back to the system.
    void trim() {
        if (bytes() > (size_t(64) << 20)) each([](Space<T>& space) { space.data.reset(), space.size = 0; });
    }
    // The same as if a call had taken these.
    void ask(size_t for_all, size_t per_worker, int64_t threads) {
        if (int64_t(workers.size()) < threads) workers.resize(size_t(threads));
        shared.asked = std::max(shared.asked, for_all);
        for (int64_t n = 0; n < threads; ++n) workers[size_t(n)].asked = std::max(workers[size_t(n)].asked, per_worker);
    }
    size_t asked_bytes() {
        size_t total = 0;
        each([&](Space<T>& space) { total += space.asked; });
        return total * sizeof(T);
    }
    void forget() {
        each([](Space<T>& space) { space.asked = 0; });
    }

   private:
    template <class Work> void each(Work work) {
        work(shared);
        for (Space<T>& space : workers) work(space);
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
