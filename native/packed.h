// Keys and values laid out for the register tiles.
#pragma once
#include "blocks.h"
#include "product.h"
#include "workspace.h"

namespace regard {
namespace REGARD_ISA {

// Rows of numbers, widened; `column` is the distance of two neighbors.
template <class T, class S> inline void copy_row(const S* from, int64_t column, int64_t count, T* to) {
    int64_t x = 0;
    if (column == 1)
        for (; x + LANES<T> <= count; x += LANES<T>) store(to + x, load_wide<T>(from + x));
    for (; x < count; ++x) to[x] = widen<T>(from[x * column]);
}

// Rows skip .. count - 1 of a panel to[x][COLUMNS], x over `width`; zeros for the others. `from` is row `skip`.
// Returns 0, or NaN if a number is not finite. `ahead` is called once per vector read, to ask for what will be read soon.
template <class T, class S>
inline Vec<T> pack_panel(const S* from, int64_t row, int64_t column, int64_t skip, int64_t count, int64_t width, T* to,
                         Ahead& ahead) {
    Vec<T> check{};
    for (int64_t r = 0; r < COLUMNS<T>; r += LANES<T>) {
        int64_t x = 0;
        if (column == 1 && r >= skip && r + LANES<T> <= count)
            for (; x + LANES<T> <= width; x += LANES<T>) {
                Vec<T> rows[LANES<T>];
                REGARD_UNROLL for (int n = 0; n < LANES<T>; ++n) {
                    rows[n] = load_wide<T>(from + (r - skip + n) * row + x);
                    ahead.template line<Vec<T>, S>(n);
                    check += rows[n] * T(0);
                }
                transpose<T>(rows);
                REGARD_UNROLL for (int n = 0; n < LANES<T>; ++n) store(to + (x + n) * COLUMNS<T> + r, rows[n]);
            }
        for (; x < width; ++x) {
            Vec<T> line{};
            for (int64_t n = std::max(r, skip); n < std::min(r + LANES<T>, count); ++n)
                line[n - r] = widen<T>(from[(n - skip) * row + x * column]);
            check += line * T(0);
            store(to + x * COLUMNS<T> + r, line);
        }
    }
    return check;
}
template <class T, class S>
inline Vec<T> pack_panel(const S* from, int64_t row, int64_t column, int64_t skip, int64_t count, int64_t width, T* to) {
    Ahead nothing;
    return pack_panel<T>(from, row, column, skip, count, width, to, nothing);
}

// Rows as tiles [tile][row][width], each COLUMNS wide but for the last, which ends at a whole vector; `height` rows apart.
template <class T> struct Tiles {
    int64_t width, count, padded;
    explicit Tiles(int64_t d) : width(d), count(parts(d, COLUMNS<T>)), padded(up(d, LANES<T>)) {}
    int64_t wide(int64_t t) const { return std::min<int64_t>(COLUMNS<T>, padded - t * COLUMNS<T>); }
    int64_t vectors(int64_t t) const { return wide(t) / LANES<T>; }

    // `rows` rows, the first of which becomes row `skip`.
    template <class S>
    void pack(const S* from, int64_t row, int64_t column, int64_t skip, int64_t rows, int64_t height, T* to) const {
        for (int64_t t = 0; t < count; ++t) {
            const int64_t here = std::min(width - t * COLUMNS<T>, wide(t));
            T* tile = to + t * COLUMNS<T> * height + skip * wide(t);
            for (int64_t r = 0; r < rows; ++r) {
                copy_row<T>(from + r * row + t * COLUMNS<T> * column, column, here, tile + r * wide(t));
                for (int64_t x = here; x < wide(t); ++x) tile[r * wide(t) + x] = T(0);
            }
        }
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
