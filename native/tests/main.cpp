// Compiled for any processor; exits with 77 (skipped) if the processor lacks the instruction set of the test.
#include "check.h"

int checks = 0, failures = 0;

namespace {

bool processor_has(const char* isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (std::strcmp(isa, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (std::strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#endif
    return std::strcmp(isa, "portable") == 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count > 1 && !processor_has(arguments[1])) return 77;
    run();
    std::printf("%d checks, %d failures\n", checks, failures);
    return failures || !checks;
}
