// All kernels of one instruction set; compiled once for each.
#include "backward.h"
#include "forward_schedule.h"
#include "gemm.h"
#include "machine_peak.h"
#include "second_pass.h"

namespace regard {
namespace REGARD_ISA {
namespace {

template <class T> Spaces<T>& spaces() {
    static thread_local Spaces<T> kept;
    return kept;
}

template <class T> struct Trimmed {
    ~Trimmed() { spaces<T>().trim(); }
};
template <class T, class S> int forward(const regard_call& c) {
    const Trimmed<T> after;
    return forward<T, S>(c, spaces<T>());
}
template <class T, class S> int backward(const regard_call& c) {
    const Trimmed<T> after;
    return backward<T, S>(c, spaces<T>());
}
template <class T, class S> int visit(const regard_call& c) {
    const Trimmed<T> after;
    return visit<T, S>(c, spaces<T>());
}

template <class T, class S> void plan(const regard_call& c, int64_t* pairs, int64_t* bytes) {
    plan<T, S>(c, spaces<T>(), pairs, bytes);
}
template <class T> int multiply(const regard_product& p) {
    const Trimmed<T> after;
    return multiply<T>(p, spaces<T>());
}

}  // namespace

#define REGARD_BY_DTYPE(what, ...)                                    \
    switch (c.dtype) {                                                \
        case REGARD_F32: return what<float, float>(__VA_ARGS__);      \
        case REGARD_F64: return what<double, double>(__VA_ARGS__);    \
        case REGARD_BF16: return what<float, BFloat16>(__VA_ARGS__);  \
        default: return what<float, Float16>(__VA_ARGS__);            \
    }

int run_forward(const regard_call& c) { REGARD_BY_DTYPE(forward, c) }
int run_backward(const regard_call& c) { REGARD_BY_DTYPE(backward, c) }
int run_visit(const regard_call& c) { REGARD_BY_DTYPE(visit, c) }
int run_multiply(const regard_product& p) { return p.dtype == REGARD_F64 ? multiply<double>(p) : multiply<float>(p); }
void run_plan(const regard_call& c, int64_t* pairs, int64_t* bytes) { REGARD_BY_DTYPE(plan, c, pairs, bytes) }
int64_t run_workspace() { return int64_t(spaces<float>().bytes() + spaces<double>().bytes()); }
int64_t run_asked() {
    const int64_t found = int64_t(spaces<float>().asked_bytes() + spaces<double>().asked_bytes());
    spaces<float>().forget();
    spaces<double>().forget();
    return found;
}

}  // namespace REGARD_ISA
}  // namespace regard
