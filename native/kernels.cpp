// The kernels of one instruction set, for each dtype. Compiled once per set; README.md is a map of the headers.
#include "backward_schedule.h"
#include "forward_schedule.h"
#include "gemm.h"
#include "machine_peak.h"
#include "second_pass.h"

namespace regard {
namespace REGARD_ISA {
namespace {

template <class T> Workspaces<T>& workspaces() {
    static thread_local Workspaces<T> of_this_thread;
    return of_this_thread;
}

// Frees large workspaces at the end of a call.
template <class T> struct TrimAfterCall {
    ~TrimAfterCall() { workspaces<T>().trim(); }
};
template <class T, class S> int forward(const regard_call& c) {
    const TrimAfterCall<T> trim;
    return forward<T, S>(c, workspaces<T>());
}
template <class T, class S> int backward(const regard_call& c) {
    const TrimAfterCall<T> trim;
    return backward<T, S>(c, workspaces<T>());
}
template <class T, class S> int second_pass(const regard_call& c) {
    const TrimAfterCall<T> trim;
    return second_pass<T, S>(c, workspaces<T>());
}

template <class T, class S> void plan(const regard_call& c, int64_t* pairs, int64_t* bytes) {
    plan<T, S>(c, workspaces<T>(), pairs, bytes);
}
template <class T> int multiply(const regard_product& p) {
    const TrimAfterCall<T> trim;
    return multiply<T>(p, workspaces<T>());
}

}  // namespace

#define REGARD_BY_DTYPE(what, ...)                                   \
    switch (c.dtype) {                                               \
        case REGARD_F32: return what<float, float>(__VA_ARGS__);     \
        case REGARD_F64: return what<double, double>(__VA_ARGS__);   \
        case REGARD_BF16: return what<float, BFloat16>(__VA_ARGS__); \
        default: return what<float, Float16>(__VA_ARGS__);           \
    }

int run_forward(const regard_call& c) { REGARD_BY_DTYPE(forward, c) }
int run_backward(const regard_call& c) { REGARD_BY_DTYPE(backward, c) }
int run_second_pass(const regard_call& c) { REGARD_BY_DTYPE(second_pass, c) }
int run_multiply(const regard_product& p) { return p.dtype == REGARD_F64 ? multiply<double>(p) : multiply<float>(p); }
void run_plan(const regard_call& c, int64_t* pairs, int64_t* bytes){REGARD_BY_DTYPE(plan, c, pairs, bytes)} int64_t
    run_workspace() {
    return int64_t(workspaces<float>().bytes() + workspaces<double>().bytes());
}
int64_t run_workspace_peak() {
    const int64_t bytes = int64_t(workspaces<float>().peak_bytes() + workspaces<double>().peak_bytes());
    workspaces<float>().reset_peak();
    workspaces<double>().reset_peak();
    return bytes;
}

}  // namespace REGARD_ISA
}  // namespace regard
