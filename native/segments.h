// Segments of keys and values, packed as the tiles want them.
#pragma once
#include "tables.h"

namespace regard {
namespace REGARD_ISA {

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
    int64_t width;  // numbers of a key's column in its panel
    bool in_place;  // values are read where they lie; rows far apart would collide in the cache
    explicit Packer(const regard_call& call) : c(call), pad(pad_of(call)), segments(parts(pad + call.keys, SEGMENT)), tiles(call.d_value), width(table_width(call)) {
        in_place = std::is_same<S, T>::value && c.value.column == 1 && c.d_value % LANES<T> == 0 && c.value.row >= c.d_value &&
                   c.value.row <= 2 * c.d_value;
    }

    size_t size() const { return size_t(SEGMENT * (width + (in_place ? 0 : tiles.padded))); }  // of one segment

    // What to ask for before keys or values start .. stop - 1 of a lane are read.
    Ahead keys_ahead(int64_t lane, int64_t start, int64_t stop) const {
        return Ahead::of(at<S>(c.key, lane / c.kv_heads, lane % c.kv_heads, start), c.key.row, c.d_key, stop - start);
    }
    Ahead values_ahead(int64_t lane, int64_t start, int64_t stop) const {
        return Ahead::of(at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, start), c.value.row, c.d_value, stop - start);
    }
    // Panels of columns start .. stop - 1 (relative to the first key), all within the segment. False if not all finite.
    bool keys(int64_t lane, int64_t segment, int64_t start, int64_t stop, T* to, Ahead ahead) const {
        Vec<T> check{};
        const int64_t base = segment * SEGMENT - pad;  // the column of the segment's start
        for (int64_t first = (start - base) / COLUMNS<T> * COLUMNS<T>; first < stop - base; first += COLUMNS<T>) {
            const int64_t column = base + first, skip = std::max<int64_t>(0, -column);
            const S* from = at<S>(c.key, lane / c.kv_heads, lane % c.kv_heads, column + skip);
            const KeyPanel<T> panel(c, to + first * width);
            check += pack_panel<T>(from, c.key.row, c.key.column, skip, c.keys - column, c.d_key, panel.raw(), ahead);
            panel.make(c);
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
        if (!in_place) values(lane, number, to + SEGMENT * width);
        const int64_t start = std::max<int64_t>(0, base), stop = std::min(c.keys, base + SEGMENT);
        return keys(lane, number, start, stop, to, keys_ahead(lane, start + 2 * COLUMNS<T>, stop));
    }
    // Whether all values of a segment are finite.
    bool finite_values(int64_t lane, int64_t number) const {
        const int64_t base = number * SEGMENT - pad, begin = std::max<int64_t>(0, base), end = std::min(c.keys, base + SEGMENT);
        std::vector<T> row(size_t(tiles.padded));
        Vec<T> check{};
        for (int64_t n = begin; n < end; ++n) {
            copy_row<T>(at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, n), c.value.column, c.d_value, row.data());
            for (int64_t x = 0; x < tiles.padded; x += LANES<T>) check += load(row.data() + x) * T(0);
        }
        return sum<T>(check) == T(0);
    }
    Source<T> source(int64_t lane, int64_t segment, const T* space) const {
        if (!in_place) return {space, space + SEGMENT * width, 0};
        const S* first = at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, 0) + (segment * SEGMENT - pad) * c.value.row;
        return {space, reinterpret_cast<const T*>(first), c.value.row};
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
