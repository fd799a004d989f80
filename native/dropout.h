// The counter-based random numbers of dropout (docs/dropout.md), the same as `numbers` of spec/dropout.py: a pair's number
// depends on seed, batch row, head, i and j only.
#pragma once
#include <cstdint>

namespace regard {

// A 64-bit key per query row, then three 32-bit multiplications per pair.
inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
inline uint64_t row_key(uint64_t seed, int64_t b, int64_t h, int64_t i) {
    return mix64(mix64(mix64(mix64(seed) + uint64_t(b)) + uint64_t(h)) + uint64_t(i));
}
// The number of pair (row, j). U is uint32_t or a vector of them.
template <class U> inline U pair_number(uint64_t key, U j) {
    U x = j + uint32_t(key);
    x = (x ^ (x >> 17)) * 0xed5ad4bbu;
    x = (x ^ (x >> 11)) ^ uint32_t(key >> 32);
    x = x * 0xac4c1b51u;
    x = (x ^ (x >> 15)) * 0x31848babu;
    return x ^ (x >> 14);
}

}  // namespace regard
