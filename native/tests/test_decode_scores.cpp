// Decode scores have the bits of the register tile, at every edge of the keys.
#include "check.h"
#include "decode_scores.h"

using namespace regard;
using namespace regard::REGARD_ISA;

namespace {

template <class T, int R> void rows(int64_t depth) {
    constexpr int64_t lanes = LANES<T>, columns = TILE_COLUMNS<T>;
    const int64_t row = depth + 3, step = depth + 1;
    Random random(5);
    std::vector<T> q(size_t(12 * step)), k(size_t(lanes * row)), panel(size_t(depth * columns), T(0));
    for (T& x : q) x = T(random.number());
    for (T& x : k) x = T(random.number());
    for (int64_t from = 0; from < lanes; ++from)
        for (int64_t to = from; to <= lanes; ++to) {
            std::fill(panel.begin(), panel.end(), T(0));
            for (int64_t n = from; n < to; ++n)
                for (int64_t x = 0; x < depth; ++x) panel[size_t(x * columns + n)] = k[size_t(n * row + x)];
            std::vector<T> want(size_t(R * lanes)), got(size_t(R * lanes));
            product<T>(
                q.data(), step, panel.data(), columns, depth, R, 1,
                [&](int64_t r, const Vec<T>* sums, auto) { store(want.data() + r * lanes, sums[0]); },
                Chains::even(depth));
            Prefetcher no_prefetch;
            Vec<T> sums[R];
            if (to - from == lanes)
                decode_sums<T, R, false>(q.data(), step, k.data(), row, from, to, depth, sums, no_prefetch);
            else
                decode_sums<T, R, true>(q.data(), step, k.data(), row, from, to, depth, sums, no_prefetch);
            for (int r = 0; r < R; ++r) store(got.data() + r * lanes, sums[r]);
            CHECK(std::memcmp(want.data(), got.data(), want.size() * sizeof(T)) == 0,
                  "%d rows, depth %d, keys %d to %d: other bits than the tile's", R, int(depth), int(from), int(to));
        }
}
template <class T> void depths() {
    for (int64_t depth = LANES<T>; depth <= 512; depth += LANES<T>) {
        if (Chains::even(depth).each % LANES<T>) continue;
        rows<T, 2>(depth), rows<T, 4>(depth), rows<T, 8>(depth);
    }
}

}  // namespace

void run() {
    depths<float>();
    depths<double>();
}
