// The C interface: chooses the instruction set once and calls its kernels.
#include <cstdlib>
#include <cstring>
#include <new>

#include "regard.h"
#include "thread_pool.h"

namespace regard {

#define REGARD_DECLARE(isa)                                                  \
    namespace isa {                                                          \
    int run_forward(const regard_call& call);                                \
    int run_backward(const regard_call& call);                               \
    int run_visit(const regard_call& call);                                  \
    int run_multiply(const regard_product& product);                         \
    void run_plan(const regard_call& call, int64_t* pairs, int64_t* bytes);  \
    int64_t run_workspace();                                                 \
    int64_t run_asked();                                                     \
    double fma_peak(int64_t threads, double seconds);                        \
    double read_bandwidth(const void* data, int64_t bytes, int64_t threads); \
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
    int (*visit)(const regard_call&);
    int (*multiply)(const regard_product&);
    void (*plan)(const regard_call&, int64_t*, int64_t*);
    int64_t (*workspace)();
    int64_t (*asked)();
    double (*fma_peak)(int64_t, double);
    double (*read_bandwidth)(const void*, int64_t, int64_t);
};
#define REGARD_KERNELS(isa)                                                                                              \
    Kernels {                                                                                                            \
        #isa, isa::run_forward, isa::run_backward, isa::run_visit, isa::run_multiply, isa::run_plan, isa::run_workspace, isa::run_asked, isa::fma_peak, isa::read_bandwidth \
    }

// The widest set that the processor has, or the one that REGARD_ISA names if the processor has it.
Kernels choose() {
    const char* asked = std::getenv("REGARD_ISA");
    const auto wanted = [&](const char* name) { return !asked || !*asked || std::strcmp(asked, name) == 0; };
    (void)wanted;
#if defined(REGARD_X86)
    __builtin_cpu_init();
    if (wanted("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return REGARD_KERNELS(avx512);
    if (wanted("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))  // and with them F16C
        return REGARD_KERNELS(avx2);
#endif
    return REGARD_KERNELS(portable);
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
int regard_visit(const regard_call* call) {
    return regard::guarded([&] { return regard::kernels().visit(*call); });
}
int regard_multiply(const regard_product* product) {
    return regard::guarded([&] { return regard::kernels().multiply(*product); });
}
int regard_plan(const regard_call* call, int64_t* pairs, int64_t* bytes) {
    return regard::guarded([&] {
        regard::kernels().plan(*call, pairs, bytes);
        return int(REGARD_DONE);
    });
}
int64_t regard_workspace(void) { return regard::kernels().workspace(); }
int64_t regard_asked(void) { return regard::kernels().asked(); }
void regard_use_team(void* gomp_parallel) { regard::use_team(reinterpret_cast<regard::Team>(gomp_parallel)); }
const char* regard_isa(void) { return regard::kernels().name; }
double regard_fma_peak(int64_t threads, double seconds) { return regard::kernels().fma_peak(threads, seconds); }
double regard_read_bandwidth(const void* data, int64_t bytes, int64_t threads) {
    return regard::kernels().read_bandwidth(data, bytes, threads);
}
