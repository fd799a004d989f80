// Loads, folds and transposes, compared with one number at a time.
#include "check.h"
#include "simd.h"

using namespace regard;
using namespace regard::REGARD_ISA;

namespace {

// By the definition of the formats: sign, exponent, fraction.
double value_of(uint16_t bits, int exponent_bits, int fraction_bits) {
    const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1),
              fraction = bits & ((1 << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    double size;
    if (exponent == (1 << exponent_bits) - 1)
        size = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    else
        size = std::ldexp(fraction + (exponent ? 1 << fraction_bits : 0),
                          (exponent ? exponent : 1) - bias - fraction_bits);
    return bits >> 15 ? -size : size;
}

template <class S> void halves(int exponent_bits, int fraction_bits) {
    constexpr int lanes = LANES<float>;
    S stored[lanes];
    for (int first = 0; first < 65536; first += lanes) {
        for (int n = 0; n < lanes; ++n) stored[n].bits = uint16_t(first + n);
        const Vec<float> wide = load_widened<float>(stored);
        for (int n = 0; n < lanes; ++n) {
            const double want = value_of(stored[n].bits, exponent_bits, fraction_bits), got = wide[n];
            const float alone = widen<float>(stored[n]);
            CHECK(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want),
                  "bits %04x: %g, want %g", stored[n].bits, got, want);
            CHECK(std::isnan(want) ? std::isnan(alone) : alone == float(want), "bits %04x alone: %g, want %g",
                  stored[n].bits, alone, want);
        }
    }
}

template <class T> void vectors() {
    constexpr int lanes = LANES<T>;
    Random random(1);
    for (int round = 0; round < 200; ++round) {
        T numbers[lanes * lanes + 1];
        for (T& x : numbers) x = T(random.below(2000) - 1000);
        Vec<T> rows[lanes];
        for (int r = 0; r < lanes; ++r) rows[r] = load(numbers + 1 + r * lanes);
        transpose<T>(rows);
        for (int r = 0; r < lanes; ++r) {
            T total = 0, best = numbers[1 + r];
            for (int n = 0; n < lanes; ++n) {
                const T want = numbers[1 + n * lanes + r];
                CHECK(rows[r][n] == want, "transpose [%d][%d] of %d: %g, want %g", r, n, lanes, double(rows[r][n]),
                      double(want));
                total += want, best = want > best ? want : best;
            }
            CHECK(reduce_add<T>(rows[r]) == total, "sum %g, want %g", double(reduce_add<T>(rows[r])), double(total));
            CHECK(reduce_max<T>(rows[r]) == best, "largest %g, want %g", double(reduce_max<T>(rows[r])), double(best));
        }
        T back[lanes + 2];
        back[0] = back[lanes + 1] = T(7);
        store(back + 1, max<T>(rows[0], rows[1]));
        const Vec<T> size = absolute<T>(rows[0]);
        for (int n = 0; n < lanes; ++n) {
            CHECK(back[n + 1] == (rows[0][n] > rows[1][n] ? rows[0][n] : rows[1][n]), "lane %d of max", n);
            CHECK(size[n] == std::fabs(rows[0][n]), "lane %d of absolute", n);
            CHECK(iota<T>()[n] == T(n) && splat(T(-3))[n] == T(-3), "lane %d of iota and splat", n);
        }
        CHECK(back[0] == T(7) && back[lanes + 1] == T(7), "store wrote beside its vector");
    }
}

}  // namespace

void run() {
    halves<BFloat16>(8, 7);
    halves<Float16>(5, 10);
    vectors<float>();
    vectors<double>();
}
