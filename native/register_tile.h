// The register tile: a few rows times a few vectors of columns, summed over the depth in order, one multiply-add each.
// A pair's bits depend on its own row and column only, whatever the tile around it.
#pragma once
#include <vector>

#include "simd.h"

namespace regard {
namespace REGARD_ISA {

// Vectors in a tile's row: with 32 registers 6 × 4 accumulators, with 16 registers 6 × 2.
#if REGARD_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int WIDE = 4;
#else
constexpr int WIDE = 2;
#endif
template <class T> constexpr int COLUMNS = WIDE * LANES<T>;

// Memory that will be read soon, asked for line by line, in order. It goes to the second-level cache: the first has no room
// for what is not needed at once.
struct Ahead {
    static constexpr int LINE_BYTES = 64;
    struct Piece {  // rows of bytes, `stride` apart
        const char* row;
        int64_t stride, bytes, rows;
    };
    Ahead() = default;
    explicit Ahead(const Piece& piece) : now_(piece) {}
    explicit Ahead(const std::vector<Piece>& pieces) : next_(pieces.data()), past_(next_ + pieces.size()) { turn(); }
    template <class S> static Piece piece(const S* first, int64_t row, int64_t width, int64_t rows) {
        return {reinterpret_cast<const char*>(first), row * int64_t(sizeof(S)), width * int64_t(sizeof(S)), rows};
    }
    REGARD_INLINE void operator()() {
        if (now_.rows <= 0) return;
        __builtin_prefetch(now_.row + x_, 0, 2);
        x_ += LINE_BYTES;
        if (x_ < now_.bytes) return;
        x_ = 0, now_.row += now_.stride, --now_.rows;
        turn();
    }
    // Once for every line of numbers read, of which a vector is the n-th.
    template <class V, class S> REGARD_INLINE void line(int n) {
        constexpr int VECTORS = std::max<int>(1, LINE_BYTES / (sizeof(V) / sizeof(V{}[0]) * sizeof(S)));
        if (n % VECTORS == 0) (*this)();
    }
    void all() {
        while (now_.rows > 0) (*this)();
    }

   private:
    Piece now_{};
    const Piece *next_ = nullptr, *past_ = nullptr;
    int64_t x_ = 0;
    REGARD_INLINE void turn() {
        while (now_.rows <= 0 && next_ != past_) now_ = *next_++;
    }
};

// Where a factor stands: rows lie `stride` apart, numbers side by side; or the other way round.
enum Order { BY_ROWS, BY_COLUMNS };

// How a sum over the depth is cut: the terms of the first chain and of each after it. Short chains round less.
struct Chains {
    int64_t first, each;
    static Chains whole(int64_t depth) { return {depth, depth}; }
    static Chains even(int64_t depth) {
        const int64_t count = std::max<int64_t>(1, (depth + 191) / 192), each = (depth + count - 1) / count;
        return {each, each};
    }
};

// done(r, sums) for R rows of a · b[x * wide ...], C vectors each.
template <class T, Order ORDER, int R, int C, class Done>
REGARD_INLINE void tile(const T* a, int64_t stride, const T* b, int64_t wide, Chains chains, int64_t depth, Done done, Ahead& given) {
    Ahead ahead;  // a copy, which needs no memory in the loop
    if (R <= 4) ahead = given;
    Vec<T> sums[R][C];
    const auto clear = [&]() REGARD_INLINED { REGARD_UNROLL for (int r = 0; r < R; ++r) REGARD_UNROLL for (int c = 0; c < C; ++c) sums[r][c] = Vec<T>{}; };
    const auto add = [&](int64_t count) REGARD_INLINED {
        for (int64_t x = 0; x < count; ++x) {
            Vec<T> columns[C];
            REGARD_UNROLL for (int c = 0; c < C; ++c) {
                columns[c] = load(b + c * LANES<T>);
                if (R <= 4) ahead.template line<Vec<T>, T>(c);  // few rows: memory is what is waited for
            }
            REGARD_UNROLL for (int r = 0; r < R; ++r) {
                const Vec<T> factor = splat(ORDER == BY_ROWS ? a[r * stride] : a[r]);
                REGARD_UNROLL for (int c = 0; c < C; ++c) sums[r][c] += factor * columns[c];
            }
            a += ORDER == BY_ROWS ? 1 : stride;
            b += wide;
        }
    };
    clear();
    add(std::min(chains.first, depth));
    if (chains.first < depth) {
        alignas(64) T before[R * C * LANES<T>];
        const auto every = [&](auto visit) REGARD_INLINED {
            REGARD_UNROLL for (int r = 0; r < R; ++r) REGARD_UNROLL for (int c = 0; c < C; ++c) visit(sums[r][c], before + (r * C + c) * LANES<T>);
        };
        every([](Vec<T>& sum, T* place) REGARD_INLINED { store(place, sum); });
        for (int64_t x = chains.first; x < depth;) {
            const int64_t here = std::min(chains.each, depth - x);
            clear();
            add(here);
            x += here;
            every([](Vec<T>& sum, T* place) REGARD_INLINED { sum += load(place); });
            if (x < depth) every([](Vec<T>& sum, T* place) REGARD_INLINED { store(place, sum); });
        }
    }
    REGARD_UNROLL for (int r = 0; r < R; ++r) done(r, sums[r]);
    if (R <= 4) given = ahead;
}

// The same for any number of rows, with r counted over all of them. Rows past the last, up to a multiple of 12, may be
// read, but are not done.
template <class T, Order ORDER, int C, class Done>
inline void rows_of(const T* a, int64_t stride, const T* b, int64_t wide, Chains chains, int64_t depth, int64_t rows, Done done, Ahead& ahead) {
    constexpr int R = C == 4 ? 6 : C == 3 ? 8 : C == WIDE ? 6 : 12;
    const int64_t row = ORDER == BY_ROWS ? stride : 1;
    int64_t r = 0;
    for (; r + R <= rows; r += R)
        tile<T, ORDER, R, C>(a + r * row, stride, b, wide, chains, depth, [&](int n, const Vec<T>* sums) REGARD_INLINED { done(r + n, sums); }, ahead);
    const auto rest = [&](auto count) {
        tile<T, ORDER, decltype(count)::value, C>(a + r * row, stride, b, wide, chains, depth, [&](int n, const Vec<T>* sums) REGARD_INLINED {
            if (r + n < rows) done(r + n, sums);
        }, ahead);
        r += decltype(count)::value;
    };
    if (rows - r > 8) rest(std::integral_constant<int, (R > 8 ? R : 1)>{});
    if (rows - r > 4) rest(std::integral_constant<int, (R > 8 ? 8 : R)>{});
    if (rows - r > 2) rest(std::integral_constant<int, 4>{});
    if (rows - r > 0) rest(std::integral_constant<int, 2>{});
}

// done(r, sums, vectors) for `vectors` (at most WIDE) vectors of columns.
template <class T, Order ORDER = BY_ROWS, class Done>
inline void product(const T* a, int64_t stride, const T* b, int64_t wide, int64_t depth, int64_t rows, int64_t vectors, Done done, Chains chains, Ahead& ahead) {
    const auto with = [&](auto count) {
        constexpr int C = decltype(count)::value;
        rows_of<T, ORDER, C>(a, stride, b, wide, chains, depth, rows, [&](int64_t r, const Vec<T>* sums) REGARD_INLINED { done(r, sums, count); }, ahead);
    };
    if constexpr (WIDE == 4) {
        if (vectors == 4) return with(std::integral_constant<int, 4>{});
        if (vectors == 3) return with(std::integral_constant<int, 3>{});
    }
    if (vectors == 2) return with(std::integral_constant<int, 2>{});
    with(std::integral_constant<int, 1>{});
}
template <class T, Order ORDER = BY_ROWS, class Done>
inline void product(const T* a, int64_t stride, const T* b, int64_t wide, int64_t depth, int64_t rows, int64_t vectors, Done done, Chains chains) {
    Ahead nothing;
    product<T, ORDER>(a, stride, b, wide, depth, rows, vectors, done, chains, nothing);
}
template <class T, Order ORDER = BY_ROWS, class Done>
inline void product(const T* a, int64_t stride, const T* b, int64_t wide, int64_t depth, int64_t rows, int64_t vectors, Done done) {
    product<T, ORDER>(a, stride, b, wide, depth, rows, vectors, done, Chains::whole(depth));
}

}  // namespace REGARD_ISA
}  // namespace regard
