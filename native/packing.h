// Keys and values packed for the register tile.
//
//   panel of keys     [d_key][TILE_COLUMNS]        transposed: a step of q · k reads TILE_COLUMNS keys side by side
//   tile of values    [SEGMENT][≤ TILE_COLUMNS]    a step of weights · v reads TILE_COLUMNS features of one key
//   packed segment    SEGMENT / TILE_COLUMNS panels, then ⌈d_value / TILE_COLUMNS⌉ tiles
//
// Columns without a key are zero. Values of type T with short rows are not packed but read in place.
#pragma once
#include "additive_tables.h"
#include "register_tile.h"
#include "tiling.h"
#include "workspace.h"

namespace regard {
namespace REGARD_ISA {

// Convert one row of `count` numbers, `column` apart.
template <class T, class S> inline void copy_row(const S* from, int64_t column, int64_t count, T* to) {
    int64_t x = 0;
    if (column == 1)
        for (; x + LANES<T> <= count; x += LANES<T>) store(to + x, load_widened<T>(from + x));
    for (; x < count; ++x) to[x] = widen<T>(from[x * column]);
}

// Pack rows skip .. count - 1 into columns of a panel to[width][TILE_COLUMNS]; the other columns become zero. `from` is
// row `skip`. Returns a vector whose sum is 0, or NaN if a number is not finite.
template <class T, class S>
inline Vec<T> pack_panel(const S* from, int64_t row, int64_t column, int64_t skip, int64_t count, int64_t width, T* to,
                         Prefetcher& prefetcher) {
    Vec<T> check{};
    for (int64_t r = 0; r < TILE_COLUMNS<T>; r += LANES<T>) {
        int64_t x = 0;
        if (column == 1 && r >= skip && r + LANES<T> <= count)
            for (; x + LANES<T> <= width; x += LANES<T>) {
                Vec<T> rows[LANES<T>];
                REGARD_UNROLLED_FOR (int n = 0; n < LANES<T>; ++n) {
                    rows[n] = load_widened<T>(from + (r - skip + n) * row + x);
                    prefetcher.template per_line<Vec<T>, S>(n);
                    check += rows[n] * T(0);
                }
                transpose<T>(rows);
                REGARD_UNROLLED_FOR (int n = 0; n < LANES<T>; ++n) store(to + (x + n) * TILE_COLUMNS<T> + r, rows[n]);
            }
        for (; x < width; ++x) {
            Vec<T> line{};
            for (int64_t n = std::max(r, skip); n < std::min(r + LANES<T>, count); ++n)
                line[n - r] = widen<T>(from[(n - skip) * row + x * column]);
            check += line * T(0);
            store(to + x * TILE_COLUMNS<T> + r, line);
        }
    }
    return check;
}
template <class T, class S>
inline Vec<T> pack_panel(const S* from, int64_t row, int64_t column, int64_t skip, int64_t count, int64_t width,
                         T* to) {
    Prefetcher no_prefetch;
    return pack_panel<T>(from, row, column, skip, count, width, to, no_prefetch);
}

// Rows of `width` numbers divided into tiles [tile][row][TILE_COLUMNS]; the last tile is narrower, a multiple of a
// vector. Tiles are `height` rows apart.
template <class T> struct Tiles {
    int64_t width, count, padded;
    explicit Tiles(int64_t d) : width(d), count(ceil_div(d, TILE_COLUMNS<T>)), padded(round_up(d, LANES<T>)) {}
    int64_t tile_width(int64_t t) const { return std::min<int64_t>(TILE_COLUMNS<T>, padded - t * TILE_COLUMNS<T>); }
    int64_t vectors(int64_t t) const { return tile_width(t) / LANES<T>; }

    // Pack `rows` rows; the first becomes row `skip` of the tiles.
    template <class S>
    void pack(const S* from, int64_t row, int64_t column, int64_t skip, int64_t rows, int64_t height, T* to) const {
        for (int64_t t = 0; t < count; ++t) {
            const int64_t used = std::min(width - t * TILE_COLUMNS<T>, tile_width(t));
            T* tile = to + t * TILE_COLUMNS<T> * height + skip * tile_width(t);
            for (int64_t r = 0; r < rows; ++r) {
                copy_row<T>(from + r * row + t * TILE_COLUMNS<T> * column, column, used, tile + r * tile_width(t));
                for (int64_t x = used; x < tile_width(t); ++x) tile[r * tile_width(t) + x] = T(0);
            }
        }
    }
};

// Where the register tile reads one segment: panels of keys (or keys in place), tiles of values (or values in place).
template <class T> struct SegmentView {
    const T *panels, *values;
    int64_t row;                 // stride of values that are read in place; 0 for packed tiles
    const void* keys = nullptr;  // column 0 of keys that are read in place (decode_scores.h); then there are no panels
    const T* value_tile(int64_t t) const { return values + t * TILE_COLUMNS<T> * (row ? 1 : SEGMENT); }
    int64_t value_stride(const Tiles<T>& tiles, int64_t t) const { return row ? row : tiles.tile_width(t); }
};

constexpr int64_t PREFETCH_BYTES = 32768;  // bytes of keys between a prefetch and its use

// Packs the segments of one call. Segment 0 holds the first key; it starts `pad` columns before it.
template <class T, class S> struct Packer {
    const regard_call& c;
    int64_t pad, segments;
    Tiles<T> tiles;
    int64_t width;         // numbers per key in its panel
    bool keys_in_place;    // decoding may read keys without packing them; keys of width 0 have no memory
    bool values_in_place;  // values are read without packing; rows far apart would collide in the cache
    explicit Packer(const regard_call& call)
        : c(call),
          pad(segment_padding(call)),
          segments(ceil_div(pad + call.keys, SEGMENT)),
          tiles(call.d_value),
          width(key_table_width(call)) {
        keys_in_place = !c.form && c.key.column == 1 && c.d_key > 0 && c.d_key % LANES<T> == 0 &&
                        Chains::even(c.d_key).each % LANES<T> == 0;
        values_in_place = std::is_same<S, T>::value && c.value.column == 1 && c.d_value > 0 &&
                          c.d_value % LANES<T> == 0 && c.value.row >= c.d_value && c.value.row <= 2 * c.d_value;
    }

    // The key column of a segment's column 0; negative if the segment starts before the first key.
    int64_t segment_start(int64_t segment) const { return segment * SEGMENT - pad; }
    // Numbers of a packed segment.
    size_t size() const {
        return size_t(padded_size(SEGMENT * width) + (values_in_place ? 0 : padded_size(SEGMENT * tiles.padded)));
    }
    T* panels(T* space) const { return open(space, SEGMENT * width); }
    T* value_tiles(T* space) const { return open(space + padded_size(SEGMENT * width), SEGMENT * tiles.padded); }

    // Rows start .. stop - 1 of the keys, and columns from .. to - 1 of the values, for prefetching.
    Prefetcher::Region key_region(int64_t batch_head, int64_t start, int64_t stop) const {
        return Prefetcher::region(row_pointer<S>(c.key, batch_head / c.kv_heads, batch_head % c.kv_heads, start),
                                  c.key.row, c.d_key, stop - start);
    }
    Prefetcher::Region value_region(int64_t batch_head, int64_t start, int64_t stop, int64_t from, int64_t to) const {
        return Prefetcher::region(
            row_pointer<S>(c.value, batch_head / c.kv_heads, batch_head % c.kv_heads, start) + from * c.value.column,
            c.value.row, to - from, stop - start);
    }
    // Keys that are prefetched before their segment begins.
    int64_t keys_ahead() const {
        return std::max<int64_t>(1, PREFETCH_BYTES / std::max<int64_t>(1, c.d_key * int64_t(sizeof(S))));
    }
    // What to prefetch while span `here` is read, in the order of reading; ends with the first keys of span `next`.
    std::vector<Prefetcher::Region> prefetch_regions(int64_t batch_head, const Span& here, const Span* next) const {
        std::vector<Prefetcher::Region> all{key_region(batch_head, here.start + keys_ahead(), here.stop)};
        for (int64_t t = 0; values_in_place && t < tiles.count; ++t)
            all.push_back(value_region(batch_head, here.start, here.stop, t * TILE_COLUMNS<T>,
                                       t * TILE_COLUMNS<T> + tiles.tile_width(t)));
        if (!next) return all;
        if (!values_in_place) all.push_back(value_region(batch_head, next->start, next->stop, 0, c.d_value));
        all.push_back(key_region(batch_head, next->start, std::min(next->stop, next->start + keys_ahead())));
        return all;
    }
    // Pack the panels of keys start .. stop - 1, all within the segment. False if one is not finite.
    bool pack_keys(int64_t batch_head, int64_t segment, int64_t start, int64_t stop, T* to,
                   Prefetcher& prefetcher) const {
        Vec<T> check{};
        const int64_t base = segment_start(segment);
        for (int64_t first = (start - base) / TILE_COLUMNS<T> * TILE_COLUMNS<T>; first < stop - base;
             first += TILE_COLUMNS<T>) {
            const int64_t column = base + first, skip = std::max<int64_t>(0, -column);
            const S* from = row_pointer<S>(c.key, batch_head / c.kv_heads, batch_head % c.kv_heads, column + skip);
            const KeyPanel<T> panel(c, to + first * width);
            check +=
                pack_panel<T>(from, c.key.row, c.key.column, skip, c.keys - column, c.d_key, panel.keys(), prefetcher);
            panel.make_tables(c);
        }
        return reduce_add<T>(check) == T(0);
    }
    // Pack the values of a whole segment.
    void pack_values(int64_t batch_head, int64_t segment, T* to) const {
        const int64_t base = segment_start(segment), begin = std::max<int64_t>(0, base),
                      end = std::min(c.keys, base + SEGMENT);
        if (end - begin < SEGMENT) std::fill(to, to + SEGMENT * tiles.padded, T(0));
        const S* from = row_pointer<S>(c.value, batch_head / c.kv_heads, batch_head % c.kv_heads, begin);
        tiles.pack(from, c.value.row, c.value.column, begin - base, end - begin, SEGMENT, to);
    }
    // Pack a whole segment. False if a key is not finite.
    bool pack_segment(int64_t batch_head, int64_t number, T* to) const {
        const int64_t base = segment_start(number);
        if (!values_in_place) pack_values(batch_head, number, value_tiles(to));
        const int64_t start = std::max<int64_t>(0, base), stop = std::min(c.keys, base + SEGMENT);
        Prefetcher prefetcher(key_region(batch_head, start + 2 * TILE_COLUMNS<T>, stop));
        return pack_keys(batch_head, number, start, stop, panels(to), prefetcher);
    }
    // Whether all values of a segment are finite.
    bool finite_values(int64_t batch_head, int64_t number) const {
        const int64_t base = segment_start(number), begin = std::max<int64_t>(0, base),
                      end = std::min(c.keys, base + SEGMENT);
        std::vector<T> row(size_t(tiles.padded));
        Vec<T> check{};
        for (int64_t n = begin; n < end; ++n) {
            copy_row<T>(row_pointer<S>(c.value, batch_head / c.kv_heads, batch_head % c.kv_heads, n), c.value.column,
                        c.d_value, row.data());
            for (int64_t x = 0; x < tiles.padded; x += LANES<T>) check += load(row.data() + x) * T(0);
        }
        return reduce_add<T>(check) == T(0);
    }
    SegmentView<T> view(int64_t batch_head, int64_t segment, const T* space) const {
        if (!values_in_place) return {space, space + padded_size(SEGMENT * width), 0};
        const S* first = row_pointer<S>(c.value, batch_head / c.kv_heads, batch_head % c.kv_heads, 0) +
                         segment_start(segment) * c.value.row;
        return {space, reinterpret_cast<const T*>(first), c.value.row};
    }
    const void* keys_at(int64_t batch_head, int64_t segment) const {
        return row_pointer<S>(c.key, batch_head / c.kv_heads, batch_head % c.kv_heads, 0) +
               segment_start(segment) * c.key.row;
    }
};

}  // namespace REGARD_ISA
}  // namespace regard
