// The register tile, micro-kernel of for_all_sums matrix product here:
//
//   for tile of R rows (6, 8 or 12; 4 or 2 at the end)       tile_rows
//     for chain of the depth                                 register_tile: chain sums are added in order
//       for x in chain                                       one step: C loads, R broadcasts, R·C multiply-adds
//         sums[R][C] += a[r][x] * b[x][C vectors]            R × C accumulators in registers, C ≤ TILE_VECTORS
//
// Each element is summed over x in order, one multiply-accumulate per term and the chains left to right. Its bits
// depend on its own row and column only, not on R, C or its place in the tile.
#pragma once
#include <vector>

#include "simd.h"

namespace regard {
namespace REGARD_ISA {

// Vectors in a row of the tile: 6 × 4 accumulators with 32 registers, 6 × 2 with 16.
#if REGARD_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int TILE_VECTORS = 4;
#else
constexpr int TILE_VECTORS = 2;
#endif
template <class T> constexpr int TILE_COLUMNS = TILE_VECTORS * LANES<T>;

// Software prefetch of regions of memory, one cache line per call, in order, into the second-level cache: the first has
// no room for data that is not needed at once.
struct Prefetcher {
    static constexpr int LINE_BYTES = 64;
    struct Region {  // rows of bytes, `stride` bytes apart
        const char* row;
        int64_t stride, bytes, rows;
    };
    Prefetcher() = default;
    explicit Prefetcher(const Region& region) : current_(region) {}
    explicit Prefetcher(const std::vector<Region>& regions) : next_(regions.data()), end_(next_ + regions.size()) {
        next_region();
    }
    template <class S> static Region region(const S* first, int64_t row, int64_t width, int64_t rows) {
        return {reinterpret_cast<const char*>(first), row * int64_t(sizeof(S)), width * int64_t(sizeof(S)), rows};
    }
    REGARD_INLINE void operator()() {
        if (current_.rows <= 0) return;
        __builtin_prefetch(current_.row + offset_, 0, 2);
        offset_ += LINE_BYTES;
        if (offset_ < current_.bytes) return;
        offset_ = 0, current_.row += current_.stride, --current_.rows;
        next_region();
    }
    // Prefetch one line for every cache line that is read; call it for each vector, the n-th of its row.
    template <class V, class S> REGARD_INLINE void per_line(int n) {
        constexpr int VECTORS = std::max<int>(1, LINE_BYTES / (sizeof(V) / sizeof(V{}[0]) * sizeof(S)));
        if (n % VECTORS == 0) (*this)();
    }
    void issue_all() {
        while (current_.rows > 0) (*this)();
    }

   private:
    Region current_{};
    const Region *next_ = nullptr, *end_ = nullptr;
    int64_t offset_ = 0;
    REGARD_INLINE void next_region() {
        while (current_.rows <= 0 && next_ != end_) current_ = *next_++;
    }
};

// Layout of the left matrix: BY_ROWS is a[r * stride + x], BY_COLUMNS is a[x * stride + r].
enum Order { BY_ROWS, BY_COLUMNS };

// Lengths of the chains that a sum over the depth is split into: the first one, and each after it. Short chains round
// less.
struct Chains {
    int64_t first, each;
    static Chains one(int64_t depth) { return {depth, depth}; }
    static Chains even(int64_t depth) {
        const int64_t count = std::max<int64_t>(1, (depth + 191) / 192), each = (depth + count - 1) / count;
        return {each, each};
    }
};

// One tile of R rows and C vectors: done(r, sums) for each row of a · b, where row x of b starts at b[x * b_stride].
template <class T, Order ORDER, int R, int C, class Done>
REGARD_INLINE void register_tile(const T* a, int64_t stride, const T* b, int64_t b_stride, Chains chains, int64_t depth,
                                 Done done, Prefetcher& caller_prefetcher) {
    Prefetcher prefetcher;  // a copy that stays in registers
    if (R <= 4) prefetcher = caller_prefetcher;
    Vec<T> sums[R][C];
    const auto clear = [&]() REGARD_INLINED {
        REGARD_UNROLLED_FOR (int r = 0; r < R; ++r)
            REGARD_UNROLLED_FOR (int c = 0; c < C; ++c) sums[r][c] = Vec<T>{};
    };
    const auto accumulate = [&](int64_t count) REGARD_INLINED {
        for (int64_t x = 0; x < count; ++x) {
            Vec<T> columns[C];
            REGARD_UNROLLED_FOR (int c = 0; c < C; ++c) {
                columns[c] = load(b + c * LANES<T>);
                if (R <= 4) prefetcher.template per_line<Vec<T>, T>(c);  // few rows: the loop is bound by memory
            }
            REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) {
                const Vec<T> factor = splat(ORDER == BY_ROWS ? a[r * stride] : a[r]);
                REGARD_UNROLLED_FOR (int c = 0; c < C; ++c) sums[r][c] += factor * columns[c];
            }
            a += ORDER == BY_ROWS ? 1 : stride;
            b += b_stride;
        }
    };
    clear();
    accumulate(std::min(chains.first, depth));
    if (chains.first < depth) {
        alignas(64) T chain_sums[R * C * LANES<T>];
        const auto for_all_sums = [&](auto f) REGARD_INLINED {
            REGARD_UNROLLED_FOR (int r = 0; r < R; ++r)
                REGARD_UNROLLED_FOR (int c = 0; c < C; ++c) f(sums[r][c], chain_sums + (r * C + c) * LANES<T>);
        };
        for_all_sums([](Vec<T>& sum, T* place) REGARD_INLINED { store(place, sum); });
        for (int64_t x = chains.first; x < depth;) {
            const int64_t here = std::min(chains.each, depth - x);
            clear();
            accumulate(here);
            x += here;
            for_all_sums([](Vec<T>& sum, T* place) REGARD_INLINED { sum += load(place); });
            if (x < depth) for_all_sums([](Vec<T>& sum, T* place) REGARD_INLINED { store(place, sum); });
        }
    }
    REGARD_UNROLLED_FOR (int r = 0; r < R; ++r) done(r, sums[r]);
    if (R <= 4) caller_prefetcher = prefetcher;
}

// Any number of rows. Rows past the last may be read, up to a multiple of 12, but `done` is not called for them.
template <class T, Order ORDER, int C, class Done>
inline void tile_rows(const T* a, int64_t stride, const T* b, int64_t b_stride, Chains chains, int64_t depth,
                      int64_t rows, Done done, Prefetcher& prefetcher) {
    constexpr int R = C == 4 ? 6 : C == 3 ? 8 : C == TILE_VECTORS ? 6 : 12;
    const int64_t row = ORDER == BY_ROWS ? stride : 1;
    int64_t r = 0;
    for (; r + R <= rows; r += R)
        register_tile<T, ORDER, R, C>(
            a + r * row, stride, b, b_stride, chains, depth,
            [&](int n, const Vec<T>* sums) REGARD_INLINED { done(r + n, sums); }, prefetcher);
    const auto rest = [&](auto count) {
        register_tile<T, ORDER, decltype(count)::value, C>(
            a + r * row, stride, b, b_stride, chains, depth,
            [&](int n, const Vec<T>* sums) REGARD_INLINED {
                if (r + n < rows) done(r + n, sums);
            },
            prefetcher);
        r += decltype(count)::value;
    };
    if (rows - r > 8) rest(std::integral_constant<int, (R > 8 ? R : 1)>{});
    if (rows - r > 4) rest(std::integral_constant<int, (R > 8 ? 8 : R)>{});
    if (rows - r > 2) rest(std::integral_constant<int, 4>{});
    if (rows - r > 0) rest(std::integral_constant<int, 2>{});
}

// done(r, sums, count) for each row of the product of a (rows × depth) and `vectors` (at most TILE_VECTORS) vectors of
// columns of b; `count` is `vectors` as a constant.
template <class T, Order ORDER = BY_ROWS, class Done>
inline void product(const T* a, int64_t stride, const T* b, int64_t b_stride, int64_t depth, int64_t rows,
                    int64_t vectors, Done done, Chains chains, Prefetcher& prefetcher) {
    const auto with = [&](auto count) {
        constexpr int C = decltype(count)::value;
        tile_rows<T, ORDER, C>(
            a, stride, b, b_stride, chains, depth, rows,
            [&](int64_t r, const Vec<T>* sums) REGARD_INLINED { done(r, sums, count); }, prefetcher);
    };
    if constexpr (TILE_VECTORS == 4) {
        if (vectors == 4) return with(std::integral_constant<int, 4>{});
        if (vectors == 3) return with(std::integral_constant<int, 3>{});
    }
    if (vectors == 2) return with(std::integral_constant<int, 2>{});
    with(std::integral_constant<int, 1>{});
}
template <class T, Order ORDER = BY_ROWS, class Done>
inline void product(const T* a, int64_t stride, const T* b, int64_t b_stride, int64_t depth, int64_t rows,
                    int64_t vectors, Done done, Chains chains) {
    Prefetcher no_prefetch;
    product<T, ORDER>(a, stride, b, b_stride, depth, rows, vectors, done, chains, no_prefetch);
}
template <class T, Order ORDER = BY_ROWS, class Done>
inline void product(const T* a, int64_t stride, const T* b, int64_t b_stride, int64_t depth, int64_t rows,
                    int64_t vectors, Done done) {
    product<T, ORDER>(a, stride, b, b_stride, depth, rows, vectors, done, Chains::one(depth));
}

}  // namespace REGARD_ISA
}  // namespace regard
