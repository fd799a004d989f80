// The C interface: choose the instruction set once, then call its kernels.
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
    int run_second_pass(const regard_call& call);                            \
    int run_multiply(const regard_product& product);                         \
    void run_plan(const regard_call& call, int64_t* pairs, int64_t* bytes);  \
    int64_t run_workspace();                                                 \
    int64_t run_workspace_peak();                                            \
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
    int (*second_pass)(const regard_call&);
    int (*multiply)(const regard_product&);
    void (*plan)(const regard_call&, int64_t*, int64_t*);
    int64_t (*workspace)();
    int64_t (*workspace_peak)();
    double (*fma_peak)(int64_t, double);
    double (*read_bandwidth)(const void*, int64_t, int64_t);
};
#define REGARD_KERNELS(isa)                                                                                \
    Kernels {                                                                                              \
        #isa, isa::run_forward, isa::run_backward, isa::run_second_pass, isa::run_multiply, isa::run_plan, \
            isa::run_workspace, isa::run_workspace_peak, isa::fma_peak, isa::read_bandwidth                \
    }

// The widest instruction set of the processor, or the one that the environment variable REGARD_ISA names if the
// processor has it.
Kernels choose() {
    const char* requested = std::getenv("REGARD_ISA");
    const auto allowed = [&](const char* name) {
        return !requested || !*requested || std::strcmp(requested, name) == 0;
    };
    (void)allowed;
#if defined(REGARD_X86)
    __builtin_cpu_init();
    if (allowed("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return REGARD_KERNELS(avx512);
    if (allowed("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))  // implies F16C
        return REGARD_KERNELS(avx2);
#endif
    return REGARD_KERNELS(portable);
}

const Kernels& kernels() {
    static const Kernels chosen = choose();
    return chosen;
}

// Exceptions become a status.
template <class Call> int with_status(Call call) {
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
    return regard::with_status([&] { return regard::kernels().forward(*call); });
}
int regard_backward(const regard_call* call) {
    return regard::with_status([&] { return regard::kernels().backward(*call); });
}
int regard_second_pass(const regard_call* call) {
    return regard::with_status([&] { return regard::kernels().second_pass(*call); });
}
int regard_multiply(const regard_product* product) {
    return regard::with_status([&] { return regard::kernels().multiply(*product); });
}
int regard_plan(const regard_call* call, int64_t* pairs, int64_t* bytes) {
    return regard::with_status([&] {
        regard::kernels().plan(*call, pairs, bytes);
        return int(REGARD_DONE);
    });
}
int64_t regard_workspace(void) { return regard::kernels().workspace(); }
int64_t regard_workspace_peak(void) { return regard::kernels().workspace_peak(); }
void regard_use_team(void* gomp_parallel) { regard::use_team(reinterpret_cast<regard::Team>(gomp_parallel)); }
const char* regard_isa(void) { return regard::kernels().name; }
double regard_fma_peak(int64_t threads, double seconds) { return regard::kernels().fma_peak(threads, seconds); }
double regard_read_bandwidth(const void* data, int64_t bytes, int64_t threads) {
    return regard::kernels().read_bandwidth(data, bytes, threads);
}
