// Keys and values laid out for the register tiles, and what workspaces are made of.
#pragma once
#include <cstdlib>
#include <memory>
#include <new>
#if defined(_WIN32)
#include <malloc.h>
#endif

#include "blocks.h"
#include "product.h"

namespace regard {
namespace REGARD_ISA {

inline void* aligned(size_t bytes) {
#if defined(_WIN32)
    return _aligned_malloc(bytes, 64);
#else
    return std::aligned_alloc(64, bytes);
#endif
}
inline void release(void* data) {
#if defined(_WIN32)
    _aligned_free(data);
#else
    std::free(data);
#endif
}

// Memory that is kept between calls and grows when it must.
template <class T> struct Space {
    std::unique_ptr<T[], void (*)(T*)> data{nullptr, [](T* p) { release(p); }};
    size_t size = 0;
    T* get(size_t count) {
        if (count > size) {
            data.reset();
            size = 0;
            data.reset(static_cast<T*>(aligned(size_t(up(int64_t(count * sizeof(T)), 64)))));
            if (!data) throw std::bad_alloc();
            size = count;
        }
        return data.get();
    }
};

// Rows of numbers, widened; `column` is the distance of two neighbors.
template <class T, class S> inline void copy_row(const S* from, int64_t column, int64_t count, T* to) {
    int64_t x = 0;
    if (column == 1)
        for (; x + LANES<T> <= count; x += LANES<T>) store(to + x, load_wide<T>(from + x));
    for (; x < count; ++x) to[x] = widen<T>(from[x * column]);
}

// Rows skip .. count - 1 of a panel to[x][COLUMNS], x over `width`; zeros for the others. `from` is row `skip`.
// Returns 0, or NaN if a number is not finite. `ahead` is called once per vector read, to ask for what will be read soon.
struct NothingAhead {
    void operator()() const {}
};
template <class T, class S, class Ahead = NothingAhead>
inline Vec<T> pack_panel(const S* from, int64_t row, int64_t column, int64_t skip, int64_t count, int64_t width, T* to,
                         Ahead ahead = {}) {
    Vec<T> check{};
    for (int64_t r = 0; r < COLUMNS<T>; r += LANES<T>) {
        int64_t x = 0;
        if (column == 1 && r >= skip && r + LANES<T> <= count)
            for (; x + LANES<T> <= width; x += LANES<T>) {
                Vec<T> rows[LANES<T>];
                REGARD_UNROLL for (int n = 0; n < LANES<T>; ++n) {
                    rows[n] = load_wide<T>(from + (r - skip + n) * row + x);
                    ahead();
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

// One segment of keys and values as the tiles want it: panels of keys, tiles of values, or values where they lie.
template <class T> struct Source {
    const T *panels, *values;
    int64_t row;  // distance of two rows of values where they lie; 0 for packed tiles
    const T* tile(int64_t t) const { return values + t * COLUMNS<T> * (row ? 1 : SEGMENT); }
    int64_t step(const Tiles<T>& tiles, int64_t t) const { return row ? row : tiles.wide(t); }
};

// Packs segments of one call. Places count from the start of the first key's segment.
template <class T, class S> struct Packer {
    const regard_call& c;
    int64_t pad, segments;
    Tiles<T> tiles;
    bool in_place;  // values are read where they lie; rows far apart would collide in the cache
    explicit Packer(const regard_call& call) : c(call), pad(pad_of(call)), segments(parts(pad + call.keys, SEGMENT)), tiles(call.d_value) {
        in_place = std::is_same<S, T>::value && c.value.column == 1 && c.d_value % LANES<T> == 0 && c.value.row >= c.d_value &&
                   c.value.row <= 2 * c.d_value;
    }

    size_t size() const { return size_t(SEGMENT * (c.d_key + (in_place ? 0 : tiles.padded))); }  // of one segment

    // Panels of columns start .. stop - 1 (relative to the first key), all within the segment. False if not all finite.
    bool keys(int64_t lane, int64_t segment, int64_t start, int64_t stop, T* to) const {
        Vec<T> check{};
        const int64_t base = segment * SEGMENT - pad;  // the column of the segment's start
        for (int64_t first = (start - base) / COLUMNS<T> * COLUMNS<T>; first < stop - base; first += COLUMNS<T>) {
            const int64_t column = base + first, skip = std::max<int64_t>(0, -column);
            const S* from = at<S>(c.key, lane / c.kv_heads, lane % c.kv_heads, column + skip);
            const S* ahead = from + 2 * COLUMNS<T> * c.key.row;  // asked for row by row: memory likes lines in order
            int64_t x = 0;
            check += pack_panel<T>(from, c.key.row, c.key.column, skip, c.keys - column, c.d_key, to + first * c.d_key, [&]() REGARD_INLINED {
                __builtin_prefetch(ahead + x);
                x += LANES<T>;
                if (x >= c.d_key) x = 0, ahead += c.key.row;
            });
        }
        return sum<T>(check) == T(0);
    }
    // Tiles of the values of a whole segment; zeros where there is no key.
    void values(int64_t lane, int64_t segment, T* to) const {
        const int64_t base = segment * SEGMENT - pad, begin = std::max<int64_t>(0, base), end = std::min(c.keys, base + SEGMENT);
        if (end - begin < SEGMENT) std::fill(to, to + SEGMENT * tiles.padded, T(0));
        const S* from = at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, begin);
        tiles.pack(from, c.value.row, c.value.column, begin - base, end - begin, SEGMENT, to);
    }
    bool segment(int64_t lane, int64_t number, T* to) const {
        const int64_t base = number * SEGMENT - pad;
        if (!in_place) values(lane, number, to + SEGMENT * c.d_key);
        return keys(lane, number, std::max<int64_t>(0, base), std::min(c.keys, base + SEGMENT), to);
    }
    Source<T> source(int64_t lane, int64_t segment, const T* space) const {
        if (!in_place) return {space, space + SEGMENT * c.d_key, 0};
        const S* first = at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, 0) + (segment * SEGMENT - pad) * c.value.row;
        return {space, reinterpret_cast<const T*>(first), c.value.row};
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
