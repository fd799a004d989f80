// 16-bit storage types and their conversion to the compute type.
#pragma once
#include <cstdint>
#include <cstring>

namespace regard {

struct BFloat16 {
    uint16_t bits;
};
struct Float16 {
    uint16_t bits;
};

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

template <class T, class S> inline T widen(S x) { return T(x); }
template <> inline float widen<float, BFloat16>(BFloat16 x) { return float_of(uint32_t(x.bits) << 16); }
template <> inline float widen<float, Float16>(Float16 x) {
    const uint32_t sign = uint32_t(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // Float16 has the exponent bias 15, float 127: multiplying by 2^112 corrects it, for subnormal numbers too.
    const float size = float_of(rest << 13) * 0x1p112f;
    return sign ? -size : size;
}

}  // namespace regard
