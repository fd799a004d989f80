// Workspaces: parts are aligned and separate, memory is kept and grows; under the address sanitizer nothing else is
// open.
#include "check.h"
#include "workspace.h"

using namespace regard::REGARD_ISA;

namespace {

bool closed(const void* at) {
#if defined(REGARD_RED_ZONES)
    return __asan_address_is_poisoned(at) != 0;
#else
    (void)at;
    return true;
#endif
}

template <class T> void parts() {
    Workspace<T> space;
    T *memory = space.get(1000), *at = memory;
    for (int64_t count : {1, 16, 17, 0, 100}) {
        T *place = at, *part = allocate(at, count);
        CHECK(part == place && at == part + padded_size(count) && padded_size(count) >= count, "a part of %d",
              int(count));
        CHECK(reinterpret_cast<uintptr_t>(part) % 64 == 0, "a part of %d is not aligned", int(count));
        CHECK(closed(part + count) && closed(at - 1), "behind a part of %d", int(count));
        for (int64_t n = 0; n < count; ++n) {
#if defined(REGARD_RED_ZONES)
            CHECK(part[n] != part[n], "number %d of a part of %d is %g, want NaN", int(n), int(count), double(part[n]));
#endif
            part[n] = T(n);
        }
    }
    CHECK(int64_t(at - memory) <= 1000, "parts of %d numbers", int(at - memory));
    CHECK(space.get(10) == memory && space.size == 1000, "memory is kept");
    CHECK(closed(memory) && closed(memory + 999), "a workspace that was asked for anew");
    open(memory, 10);
    CHECK(closed(memory + 10), "behind what was asked for");
    memory[9] = 1;
    open(space.get(5000), 5000)[4999] = 1;
    CHECK(space.size == 5000, "memory grows");
}

}  // namespace

void run() {
    parts<float>();
    parts<double>();
}
