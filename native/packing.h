// Keys and values packed for the register tile: panels, tiles, and the segments of one call.
#pragma once
#include "additive_tables.h"
#include "register_tile.h"
#include "tiling.h"
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

// One segment of keys and values as the tiles want it: panels of keys, tiles of values, or values where they lie.
template <class T> struct Source {
    const T *panels, *values;
    int64_t row;  // distance of two rows of values where they lie; 0 for packed tiles
    const void* keys = nullptr;  // column 0 of keys that are read where they lie; then there are no panels
    const T* tile(int64_t t) const { return values + t * COLUMNS<T> * (row ? 1 : SEGMENT); }
    int64_t step(const Tiles<T>& tiles, int64_t t) const { return row ? row : tiles.wide(t); }
};

constexpr int64_t LEAD = 32768;  // bytes of keys between asking and reading

// Packs segments of one call. Places count from the start of the first key's segment.
template <class T, class S> struct Packer {
    const regard_call& c;
    int64_t pad, segments;
    Tiles<T> tiles;
    int64_t width;  // numbers of a key's column in its panel
    bool lying;     // keys of a few queries are read where they lie; keys of no width lie nowhere, nor do such values
    bool in_place;  // values are read where they lie; rows far apart would collide in the cache
    explicit Packer(const regard_call& call) : c(call), pad(pad_of(call)), segments(parts(pad + call.keys, SEGMENT)), tiles(call.d_value), width(table_width(call)) {
        lying = !c.form && c.key.column == 1 && c.d_key > 0 && c.d_key % LANES<T> == 0 && Chains::even(c.d_key).each % LANES<T> == 0;
        in_place = std::is_same<S, T>::value && c.value.column == 1 && c.d_value > 0 && c.d_value % LANES<T> == 0 && c.value.row >= c.d_value &&
                   c.value.row <= 2 * c.d_value;
    }

    // A packed segment: panels of keys, then tiles of values.
    size_t size() const { return size_t(room(SEGMENT * width) + (in_place ? 0 : room(SEGMENT * tiles.padded))); }
    T* panels(T* space) const { return open(space, SEGMENT * width); }
    T* tiles_of(T* space) const { return open(space + room(SEGMENT * width), SEGMENT * tiles.padded); }

    // Rows start .. stop - 1 of a lane's keys, and of some columns of its values.
    Ahead::Piece keys_piece(int64_t lane, int64_t start, int64_t stop) const {
        return Ahead::piece(at<S>(c.key, lane / c.kv_heads, lane % c.kv_heads, start), c.key.row, c.d_key, stop - start);
    }
    Ahead::Piece values_piece(int64_t lane, int64_t start, int64_t stop, int64_t from, int64_t to) const {
        return Ahead::piece(at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, start) + from * c.value.column, c.value.row, to - from, stop - start);
    }
    // Keys that are asked for before their segment begins.
    int64_t lead() const { return std::max<int64_t>(1, LEAD / std::max<int64_t>(1, c.d_key * int64_t(sizeof(S)))); }
    // What to ask for while a span is read, in the order of reading, so that the next one finds its first keys.
    std::vector<Ahead::Piece> pieces(int64_t lane, const Span& here, const Span* next) const {
        std::vector<Ahead::Piece> all{keys_piece(lane, here.start + lead(), here.stop)};
        for (int64_t t = 0; in_place && t < tiles.count; ++t)
            all.push_back(values_piece(lane, here.start, here.stop, t * COLUMNS<T>, t * COLUMNS<T> + tiles.wide(t)));
        if (!next) return all;
        if (!in_place) all.push_back(values_piece(lane, next->start, next->stop, 0, c.d_value));
        all.push_back(keys_piece(lane, next->start, std::min(next->stop, next->start + lead())));
        return all;
    }
    // Panels of columns start .. stop - 1 (relative to the first key), all within the segment. False if not all finite.
    bool keys(int64_t lane, int64_t segment, int64_t start, int64_t stop, T* to, Ahead& ahead) const {
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
        if (!in_place) values(lane, number, tiles_of(to));
        const int64_t start = std::max<int64_t>(0, base), stop = std::min(c.keys, base + SEGMENT);
        Ahead ahead(keys_piece(lane, start + 2 * COLUMNS<T>, stop));
        return keys(lane, number, start, stop, panels(to), ahead);
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
        if (!in_place) return {space, space + room(SEGMENT * width), 0};
        const S* first = at<S>(c.value, lane / c.kv_heads, lane % c.kv_heads, 0) + (segment * SEGMENT - pad) * c.value.row;
        return {space, reinterpret_cast<const T*>(first), c.value.row};
    }
    const void* keys_at(int64_t lane, int64_t segment) const {
        return at<S>(c.key, lane / c.kv_heads, lane % c.kv_heads, 0) + (segment * SEGMENT - pad) * c.key.row;
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
