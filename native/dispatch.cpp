// The C interface: chooses the instruction set once and calls its kernels.
#include <cstdlib>
#include <cstring>
#include <new>

#include "regard.h"

namespace regard {

#define REGARD_DECLARE(isa)                    \
    namespace isa {                            \
    int run_forward(const regard_call& call);  \
    int run_backward(const regard_call& call); \
    }
REGARD_DECLARE(portable)
#if defined(REGARD_X86)
REGARD_DECLARE(avx2)
REGARD_DECLARE(avx512)
#endif

namespace {

struct Kernels {
    const char* name;
    int (*forward)(const regard_call&);
    int (*backward)(const regard_call&);
};

// The widest set that the processor has, or the one that REGARD_ISA names if the processor has it.
Kernels choose() {
    const char* asked = std::getenv("REGARD_ISA");
    const auto wanted = [&](const char* name) { return !asked || !*asked || std::strcmp(asked, name) == 0; };
    (void)wanted;
#if defined(REGARD_X86)
    __builtin_cpu_init();
    if (wanted("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return {"avx512", avx512::run_forward, avx512::run_backward};
    if (wanted("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        return {"avx2", avx2::run_forward, avx2::run_backward};
#endif
    return {"portable", portable::run_forward, portable::run_backward};
}

const Kernels& kernels() {
    static const Kernels chosen = choose();
    return chosen;
}

template <class Call> int guarded(Call call) {
    try {
        return call();
    } catch (const std::bad_alloc&) {
        return REGARD_NO_MEMORY;
    } catch (...) {
        return 1;
    }
}

}  // namespace
}  // namespace regard

int regard_forward(const regard_call* call) {
    return regard::guarded([&] { return regard::kernels().forward(*call); });
}
int regard_backward(const regard_call* call) {
    return regard::guarded([&] { return regard::kernels().backward(*call); });
}
const char* regard_isa(void) { return regard::kernels().name; }
