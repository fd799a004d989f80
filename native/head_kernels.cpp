// The head pass of one instruction set, for each dtype. Compiled once per set, beside kernels.cpp.
#include "head_pass.h"

namespace regard {
namespace REGARD_ISA {

int run_head_pass(const regard_call& c, const regard_head_sums& sums) {
    switch (c.dtype) {
        case REGARD_F32: return head_pass<float, float>(c, sums);
        case REGARD_F64: return head_pass<double, double>(c, sums);
        case REGARD_BF16: return head_pass<float, BFloat16>(c, sums);
        default: return head_pass<float, Float16>(c, sums);
    }
}

}  // namespace REGARD_ISA
}  // namespace regard
