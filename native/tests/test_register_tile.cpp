// The register tile: every number of rows, vectors and terms, against a plain sum.
#include "check.h"
#include "register_tile.h"

using namespace regard::REGARD_ISA;

namespace {

constexpr int ROWS = 25, DEPTH = 70;

template <class T, Order ORDER> void products() {
    constexpr int64_t columns = TILE_COLUMNS<T>, b_stride = columns + 5,
                      high = 36;  // rows up to a multiple of 12 may be read
    const int64_t stride = ORDER == BY_ROWS ? DEPTH + 3 : high + 3;
    Random random(3);
    std::vector<T> a(size_t((ORDER == BY_ROWS ? high : DEPTH) * stride)), b(size_t(DEPTH * b_stride));
    for (T& x : a) x = T(random.number());
    for (T& x : b) x = T(random.number());
    for (int64_t depth = 0; depth <= DEPTH; ++depth) {
        const Chains chains = depth % 3 == 0   ? Chains::one(depth)
                              : depth % 3 == 1 ? Chains{depth / 2 + 1, 7}
                                               : Chains{5, 16};
        std::vector<T> alone(
            size_t(ROWS * columns));  // each row and vector by itself: the bits must be the same in any tile
        for (int64_t r = 0; r < ROWS; ++r)
            for (int64_t v = 0; v < TILE_VECTORS; ++v)
                product<T, ORDER>(
                    a.data() + r * (ORDER == BY_ROWS ? stride : 1), stride, b.data() + v * LANES<T>, b_stride, depth, 1,
                    1,
                    [&](int64_t, const Vec<T>* sums, auto) {
                        store(alone.data() + r * columns + v * LANES<T>, sums[0]);
                    },
                    chains);
        for (int64_t r = 0; r < ROWS; ++r)
            for (int64_t c = 0; c < columns; ++c) {
                double want = 0, size = 0;
                for (int64_t x = 0; x < depth; ++x) {
                    const double term = double(a[size_t(ORDER == BY_ROWS ? r * stride + x : x * stride + r)]) *
                                        double(b[size_t(x * b_stride + c)]);
                    want += term, size += std::fabs(term);
                }
                const double got = double(alone[size_t(r * columns + c)]),
                             bound = double(depth + 1) * size * std::numeric_limits<T>::epsilon();
                CHECK(std::fabs(got - want) <= bound, "row %d, column %d, depth %d: %g, want %g", int(r), int(c),
                      int(depth), got, want);
            }
        for (int64_t rows = 1; rows <= ROWS; ++rows)
            for (int64_t vectors = 1; vectors <= TILE_VECTORS; ++vectors) {
                std::vector<int> done(size_t(rows), 0);
                bool same = true;
                product<T, ORDER>(
                    a.data(), stride, b.data(), b_stride, depth, rows, vectors,
                    [&](int64_t r, const Vec<T>* sums, auto count) {
                        same &= r < rows && decltype(count)::value == vectors;
                        if (r >= rows) return;
                        ++done[size_t(r)];
                        same &= std::memcmp(sums, alone.data() + r * columns, size_t(vectors) * sizeof(Vec<T>)) == 0;
                    },
                    chains);
                CHECK(same, "%d rows, %d vectors, depth %d: other bits than alone", int(rows), int(vectors),
                      int(depth));
                for (int64_t r = 0; r < rows; ++r)
                    CHECK(done[size_t(r)] == 1, "%d rows: row %d done %d times", int(rows), int(r), done[size_t(r)]);
            }
    }
}

// Parts are even, and none is longer than 192.
void even_chains() {
    for (int64_t depth = 0; depth < 2000; ++depth) {
        const Chains chains = Chains::even(depth);
        CHECK(chains.first == chains.each && chains.each <= 192 && (chains.each > 0 || depth == 0), "depth %d",
              int(depth));
        CHECK(depth > 192 || chains.each == depth, "depth %d is one chain", int(depth));
        CHECK(depth == 0 || (depth + chains.each - 1) / chains.each == (depth + 191) / 192, "depth %d: too many chains",
              int(depth));
    }
}

}  // namespace

void run() {
    even_chains();
    products<float, BY_ROWS>();
    products<float, BY_COLUMNS>();
    products<double, BY_ROWS>();
    products<double, BY_COLUMNS>();
}
