// All kernels of one instruction set; compiled once for each.
#include "backward.h"
#include "schedule.h"

namespace regard {
namespace REGARD_ISA {
namespace {

template <class T> Spaces<T>& spaces() {
    static thread_local Spaces<T> kept;
    return kept;
}

}  // namespace

#define REGARD_BY_DTYPE(what)                                                  \
    switch (c.dtype) {                                                         \
        case REGARD_F32: return what<float, float>(c, spaces<float>());        \
        case REGARD_F64: return what<double, double>(c, spaces<double>());     \
        case REGARD_BF16: return what<float, BFloat16>(c, spaces<float>());    \
        default: return what<float, Float16>(c, spaces<float>());              \
    }

int run_forward(const regard_call& c) { REGARD_BY_DTYPE(forward) }
int run_backward(const regard_call& c) { REGARD_BY_DTYPE(backward) }

}  // namespace REGARD_ISA
}  // namespace regard
