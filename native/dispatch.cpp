// The C interface: choose the instruction set once, then call its kernels.
#include <cstdlib>
#include <cstring>
#include <new>

#include "regard.h"
#include "thread_pool.h"

namespace regard {

#define REGARD_DECLARE(isa)                                                   \
    namespace isa {                                                           \
    int run_forward(const regard_call& call);                                 \
    int run_backward(const regard_call& call);                                \
    int run_second_pass(const regard_call& call);                             \
    int run_head_pass(const regard_call& call, const regard_head_sums& sums); \
    int run_multiply(const regard_product& product);                          \
    void run_plan(const regard_call& call, int64_t* pairs, int64_t* bytes);   \
    int64_t run_workspace();                                                  \
    int64_t run_workspace_peak();                                             \
    double fma_peak(int64_t threads, double seconds);                         \
    double read_bandwidth(const void* data, int64_t bytes, int64_t threads);  \
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
    int (*head_pass)(const regard_call&, const regard_head_sums&);
    int (*multiply)(const regard_product&);
    void (*plan)(const regard_call&, int64_t*, int64_t*);
    int64_t (*workspace)();
    int64_t (*workspace_peak)();
    double (*fma_peak)(int64_t, double);
    double (*read_bandwidth)(const void*, int64_t, int64_t);
};
#define REGARD_KERNELS(isa)                                                                                     \
    Kernels {                                                                                                   \
        #isa, isa::run_forward, isa::run_backward, isa::run_second_pass, isa::run_head_pass, isa::run_multiply, \
            isa::run_plan, isa::run_workspace, isa::run_workspace_peak, isa::fma_peak, isa::read_bandwidth      \
    }

#if defined(REGARD_X86)
// What the processor and the operating system support. Not __builtin_cpu_supports: its table belongs to a library that
// clang-cl does not link and zig does not have.
struct Registers {
    uint32_t a, b, c, d;
};
Registers cpuid(uint32_t leaf) {
    Registers found;
    __asm__ volatile("cpuid" : "=a"(found.a), "=b"(found.b), "=c"(found.c), "=d"(found.d) : "a"(leaf), "c"(0));
    return found;
}
// The registers that the operating system saves for a thread: XCR0.
uint32_t saved_registers() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
bool all(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }
bool supports(uint32_t basic, uint32_t extended, uint32_t saved) {
    constexpr uint32_t OSXSAVE = 1u << 27;
    if (cpuid(0).a < 7 || !all(cpuid(1).c, basic | OSXSAVE)) return false;
    return all(cpuid(7).b, extended) && all(saved_registers(), saved);
}
constexpr uint32_t FMA = 1u << 12, AVX = 1u << 28, F16C = 1u << 29;                                   // leaf 1, ECX
constexpr uint32_t AVX2 = 1u << 5, F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, VL = 1u << 31;         // leaf 7, EBX
constexpr uint32_t XMM = 1u << 1, YMM = 1u << 2, MASKS = 1u << 5, ZMM = 1u << 6, HIGH_ZMM = 1u << 7;  // XCR0
bool has_avx2() { return supports(FMA | AVX | F16C, AVX2, XMM | YMM); }
bool has_avx512() { return supports(FMA | AVX | F16C, AVX2 | F | DQ | BW | VL, XMM | YMM | MASKS | ZMM | HIGH_ZMM); }
#endif

// The widest instruction set of the processor, or the one that the environment variable REGARD_ISA names if the
// processor has it.
Kernels choose() {
    const char* requested = std::getenv("REGARD_ISA");
    const auto allowed = [&](const char* name) {
        return !requested || !*requested || std::strcmp(requested, name) == 0;
    };
    (void)allowed;
#if defined(REGARD_X86)
    if (allowed("avx512") && has_avx512()) return REGARD_KERNELS(avx512);
    if (allowed("avx2") && has_avx2()) return REGARD_KERNELS(avx2);
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
int regard_head_pass(const regard_call* call, const regard_head_sums* sums) {
    return regard::with_status([&] { return regard::kernels().head_pass(*call, *sums); });
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
