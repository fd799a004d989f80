// Panels and tiles, number by number, for odd widths, strides and positions.
#include "check.h"
#include "packing.h"

using namespace regard;
using namespace regard::REGARD_ISA;

namespace {

template <class S> S stored(int n) {
    if constexpr (std::is_floating_point<S>::value)
        return S(n);
    else if constexpr (std::is_same<S, BFloat16>::value)
        return {uint16_t(0x3f80 + n % 2000)};
    else
        return {uint16_t(0x3c00 + n % 2000)};
}

template <class T, class S> void panels() {
    Random random(4);
    for (int round = 0; round < some(600); ++round) {
        const int64_t width = 1 + random.below(70), column = 1 + (random.below(2) ? 0 : random.below(3));
        const int64_t row = width * column + random.below(5), count = random.below(TILE_COLUMNS<T> + 20);
        const int64_t skip = random.below(2) ? 0 : random.below(TILE_COLUMNS<T>);
        const int64_t end = std::min<int64_t>(count, TILE_COLUMNS<T>), rows = std::max<int64_t>(0, end - skip);
        // exactly as large as needed: a sanitizer sees every read beyond it
        std::vector<S> from(size_t(rows ? (rows - 1) * row + (width - 1) * column + 1 : 0));
        for (size_t n = 0; n < from.size(); ++n) from[n] = stored<S>(int(n));
        Guarded<T> to(width * TILE_COLUMNS<T>);
        const Vec<T> check = pack_panel<T>(from.data(), row, column, skip, count, width, to.data());
        CHECK(reduce_add<T>(check) == 0, "finite numbers called otherwise");
        for (int64_t x = 0; x < width; ++x)
            for (int64_t n = 0; n < TILE_COLUMNS<T>; ++n) {
                const T want = n >= skip && n < end ? widen<T>(from[size_t((n - skip) * row + x * column)]) : T(0);
                CHECK(to[x * TILE_COLUMNS<T> + n] == want, "panel [%d][%d], skip %d, count %d", int(x), int(n),
                      int(skip), int(count));
            }
        CHECK(to.guards_intact(), "a panel of width %d wrote outside of itself", int(width));
    }
}

template <class T> void not_finite() {
    for (T bad :
         {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()})
        for (int64_t place = 0; place < TILE_COLUMNS<T> * 19; ++place) {
            std::vector<T> from(size_t(TILE_COLUMNS<T> * 19), T(1)), to(from.size());
            from[size_t(place)] = bad;
            const Vec<T> check = pack_panel<T>(from.data(), 19, 1, 0, TILE_COLUMNS<T>, 19, to.data());
            CHECK(!(reduce_add<T>(check) == 0), "%g at %d was not noticed", double(bad), int(place));
        }
}

template <class T, class S> void tiles() {
    Random random(5);
    for (int64_t width : {1, 3, 7, 16, 59, 64, 111, 128, 131})
        for (int64_t column : {1, 2}) {
            const int64_t height = 9, skip = random.below(4), rows = 5, row = width * column + random.below(3);
            std::vector<S> from(size_t((rows - 1) * row + (width - 1) * column + 1));
            for (size_t n = 0; n < from.size(); ++n) from[n] = stored<S>(int(n));
            const Tiles<T> tiles(width);
            Guarded<T> to(height * tiles.padded, -1);
            tiles.pack(from.data(), row, column, skip, rows, height, to.data());
            for (int64_t t = 0; t < tiles.count; ++t)
                for (int64_t r = 0; r < height; ++r)
                    for (int64_t x = 0; x < tiles.tile_width(t); ++x) {
                        const int64_t at = t * TILE_COLUMNS<T> + x;
                        const bool packed = r >= skip && r < skip + rows;
                        const T want = !packed      ? T(-1)
                                       : at < width ? widen<T>(from[size_t((r - skip) * row + at * column)])
                                                    : T(0);
                        CHECK(to[t * TILE_COLUMNS<T> * height + r * tiles.tile_width(t) + x] == want,
                              "width %d: tile %d [%d][%d]", int(width), int(t), int(r), int(x));
                    }
            CHECK(to.guards_intact(), "tiles of width %d wrote outside of themselves", int(width));
        }
}

template <class T, class S> void all() {
    panels<T, S>();
    tiles<T, S>();
}

}  // namespace

void run() {
    all<float, float>();
    all<double, double>();
    all<float, BFloat16>();
    all<float, Float16>();
    not_finite<float>();
    not_finite<double>();
}
