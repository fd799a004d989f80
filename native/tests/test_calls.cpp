// Whole calls against the reference: odd widths, empty and single lengths, misaligned and strided data, all dtypes.
#include "outputs.h"
#include "reference.h"

using regard::BFloat16;
using regard::Float16;

namespace {

// At most twice the error of the reference in the same precision, and a few roundings of the terms.
template <class T>
void compare(const char* name, const Guarded<T>& got, const ReferenceSums<long double>& want,
             const ReferenceSums<T>& plain, uint64_t seed) {
    long double error = 0, size = 0, worst = 0;
    bool same = got.size() == int64_t(want.value.size());
    for (size_t n = 0; same && n < want.value.size(); ++n) {
        const T mine = got[int64_t(n)];
        if (std::isfinite(want.value[n])) {
            size = std::max(size, want.size[n]),
            error = std::max(error, std::fabs((long double)plain.value[n] - want.value[n]));
            same &= std::isfinite(mine);
            worst = std::max(worst, std::fabs((long double)mine - want.value[n]));
        } else {
            same &= (long double)mine == want.value[n];
        }
    }
    const long double allowed = 2 * error + 8 * std::numeric_limits<T>::epsilon() * size;
    CHECK(same && worst <= allowed, "%s of call %d: off by %Lg, allowed %Lg, size %Lg", name, int(seed), worst, allowed,
          size);
}

template <class T> bool equal(const Guarded<T>& a, const Guarded<T>& b) {
    bool same = a.size() == b.size();
    for (int64_t n = 0; same && n < a.size(); ++n) same = a[n] == b[n] || (a[n] != a[n] && b[n] != b[n]);
    return same;
}

template <class T> bool finite(const Guarded<T>& numbers) {
    bool all = true;
    for (int64_t n = 0; n < numbers.size(); ++n) all &= std::isfinite(numbers[n]);
    return all;
}

// The second pass, on three threads and then on one.
template <class S, class T> void check_second_pass(const RandomCall<S, T>& s, Outputs<T>& first, uint64_t seed) {
    CHECK(first.second_pass(s, 3) == REGARD_DONE, "second_pass of call %d", int(seed));
    Outputs<T> again(s);
    CHECK(again.forward(s, 1, true) == REGARD_DONE && again.second_pass(s, 1) == REGARD_DONE,
          "second_pass of call %d on one thread", int(seed));
    CHECK(equal(first.received, again.received) && equal(first.spread, again.spread) &&
              equal(first.pool_sum, again.pool_sum) && equal(first.pool_max, again.pool_max),
          "bits of the second pass of call %d on three threads", int(seed));
    CHECK(finite(first.received) && finite(first.spread), "second_pass of call %d", int(seed));
    CHECK(again.guards_intact(), "second_pass of call %d wrote outside of its results", int(seed));
}

// All results against the reference.
template <class S, class T>
void compare_all(const RandomCall<S, T>& s, const Outputs<T>& one, const Outputs<T>& three, bool has_pairs,
                 uint64_t seed) {
    const Reference<long double> want(s);
    const Reference<T> plain(s);
    compare("out", one.out, want.out, plain.out, seed);
    compare("lse", three.lse, want.lse, plain.lse, seed);
    compare("entropy", three.entropy, want.entropy, plain.entropy, seed);
    compare("peak", three.peak, want.peak, plain.peak, seed);
    compare("distance", three.distance, want.distance, plain.distance, seed);
    compare("max_logit", three.max_logit, want.max_logit, plain.max_logit, seed);
    for (size_t n = 0; n < want.peak_at.size(); ++n)
        CHECK(three.peak_at[int64_t(n)] == want.peak_at[n] || want.peak_at[n] >= 0, "peak_at %d of call %d", int(n),
              int(seed));
    compare("grad_query", one.grad_query, want.grad_query, plain.grad_query, seed);
    compare("grad_key", one.grad_key, want.grad_key, plain.grad_key, seed);
    compare("grad_value", one.grad_value, want.grad_value, plain.grad_value, seed);
    if (s.call.temperature)
        compare("grad_temperature", one.grad_temperature, want.grad_temperature, plain.grad_temperature, seed);
    if (s.call.offset_table)
        compare("grad_offset_table", one.grad_offsets, want.grad_offsets, plain.grad_offsets, seed);
    if (s.call.form) compare("grad_v", one.grad_v, want.grad_v, plain.grad_v, seed);
    if (s.call.dense_bias.data) compare("grad_dense", one.grad_bias, want.grad_bias, plain.grad_bias, seed);
    if (!has_pairs) return;
    compare("received", three.received, want.received, plain.received, seed);
    compare("spread", three.spread, want.spread, plain.spread, seed);
    for (int64_t n = 0; n < three.pool_sum.size(); ++n) {
        const long double slack = 1e3L * std::numeric_limits<T>::epsilon() * (1 + want.pool_sum.value[size_t(n)]);
        CHECK(std::fabs(three.pool_sum[n] - want.pool_sum.value[size_t(n)]) <= slack, "sum of cell %d of call %d",
              int(n), int(seed));
        CHECK(std::fabs(three.pool_max[n] - want.pool_max.value[size_t(n)]) <= slack, "max of cell %d of call %d",
              int(n), int(seed));
        CHECK(three.pool_pairs[n] == want.pool_pairs[size_t(n)], "pairs of cell %d of call %d", int(n), int(seed));
    }
}

// Under a sanitizer every call runs, but only a fifth are compared: the reference takes most of the time.
#if defined(REGARD_SANITIZED)
bool compared(uint64_t seed) { return seed % 5 == 0; }
#else
bool compared(uint64_t) { return true; }
#endif

template <class S, class T>
void check_call(int64_t dtype, const Shape& shape, MaskChoice mask, bool extras, uint64_t seed,
                int64_t form = REGARD_PRODUCT) {
    const RandomCall<S, T> s(shape, dtype, mask, extras, seed, form);
    Outputs<T> one(s), three(s);
    const bool statistics = seed % 2 || form, has_pairs = shape.queries && shape.keys && shape.batch;
    CHECK(one.forward(s, 1, statistics) == REGARD_DONE, "forward of call %d", int(seed));
    CHECK(three.forward(s, 3, true) == REGARD_DONE, "forward of call %d on three threads", int(seed));
    CHECK(equal(one.out, three.out) && equal(one.row_max, three.row_max) && equal(one.row_sum, three.row_sum),
          "forward bits of call %d on three threads", int(seed));
    CHECK(one.backward(s, 1) == REGARD_DONE && three.backward(s, 3) == REGARD_DONE, "backward of call %d", int(seed));
    CHECK(finite(one.out) && finite(one.grad_query) && finite(one.grad_key) && finite(one.grad_value) &&
              finite(one.grad_bias),
          "call %d", int(seed));
    CHECK(equal(one.grad_query, three.grad_query) && equal(one.grad_key, three.grad_key) &&
              equal(one.grad_value, three.grad_value) && equal(one.grad_temperature, three.grad_temperature) &&
              equal(one.grad_offsets, three.grad_offsets) && equal(one.grad_bias, three.grad_bias) &&
              equal(one.grad_v, three.grad_v),
          "backward bits of call %d on three threads", int(seed));
    if (has_pairs) check_second_pass(s, three, seed);
    if (compared(seed)) compare_all(s, one, three, has_pairs, seed);
    CHECK(one.guards_intact() && three.guards_intact(), "call %d wrote outside of its results", int(seed));
}

}  // namespace

void run() {
    const Shape shapes[] = {
        {1, 1, 1, 1, 1, 1, 1},       {2, 2, 1, 5, 7, 3, 3},       {1, 2, 3, 1, 300, 59, 111},
        {2, 1, 1, 49, 130, 111, 59}, {1, 1, 2, 100, 100, 64, 64}, {1, 3, 1, 61, 300, 16, 32},
        {2, 2, 2, 13, 13, 8, 1},     {1, 1, 1, 130, 270, 1, 3},   {1, 2, 1, 97, 1, 3, 59},
        {3, 1, 1, 1, 1, 111, 111},   {1, 1, 4, 30, 520, 3, 16},   {1, 1, 1, 0, 5, 3, 3},
        {1, 1, 1, 5, 0, 3, 3},       {0, 1, 1, 5, 5, 3, 3},       {2, 2, 2, 0, 0, 1, 1},
        {1, 1, 1, 50, 600, 32, 20},  {2, 2, 1, 200, 40, 24, 8},   {1, 1, 1, 49, 257, 59, 1},
        {1, 2, 1, 5, 7, 3, 0},       {1, 1, 2, 60, 300, 0, 5},    {2, 1, 1, 3, 5, 0, 0},
        {1, 1, 1, 60, 300, 7, 0},
    };
    uint64_t seed = 0;
    for (const Shape& shape : shapes)
        for (int mask = 0; mask < MASK_CHOICES; ++mask) {
            ++seed;
            check_call<float, float>(REGARD_F32, shape, MaskChoice(mask), seed % 3, seed);
            check_call<double, double>(REGARD_F64, shape, MaskChoice(mask), seed % 3 != 1, seed);
            check_call<BFloat16, float>(REGARD_BF16, shape, MaskChoice(mask), seed % 3 != 2, seed);
            check_call<Float16, float>(REGARD_F16, shape, MaskChoice(mask), seed % 2, seed);
            if (shape.d_key % 4) continue;
            const int64_t form = REGARD_TANH + int64_t(seed % 4);
            check_call<float, float>(REGARD_F32, shape, MaskChoice(mask), seed % 3, seed, form);
            check_call<double, double>(REGARD_F64, shape, MaskChoice(mask), seed % 3 != 1, seed, form);
        }
}
