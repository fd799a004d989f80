// A product of matrices whose bits depend on neither threads nor the other rows: every number is summed in steps of SEGMENT
// over the depth, and where the result has planes that are summed, plane after plane.
#pragma once
#include "packing.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

constexpr int64_t LUMP = 2048;  // terms of a sum that one thread takes at a time, or a whole plane's if these are more

template <class T> class Multiply {
   public:
    Multiply(const regard_product& product, Spaces<T>& spaces) : p(product), spaces_(spaces), tiles_(p.columns) {
        const int64_t planes = p.batch * p.heads;
        summed_ = (p.c.batch == 0 ? p.batch : 1) * (p.c.head == 0 ? p.heads : 1);
        targets_ = planes / std::max<int64_t>(1, summed_);
        steps_ = std::max<int64_t>(1, parts(p.depth, SEGMENT));
        lump_ = std::max<int64_t>(1, LUMP / SEGMENT / steps_);                        // planes at a time, or
        lumps_ = summed_ > 1 ? parts(summed_, lump_) : parts(steps_, LUMP / SEGMENT);  // parts of the one plane there is
        in_place_ = p.b.column == 1 && p.columns % LANES<T> == 0;
    }
    void run(const Stop& stop) {
        const int64_t bands = parts(p.rows, BAND), units = targets_ * lumps_ * bands;
        const double work = 2.0 * double(p.batch * p.heads * p.rows) * double(p.depth * p.columns);
        const int64_t threads = std::max<int64_t>(1, std::min(p.threads, int64_t(work / 5e5)));
        if (int64_t(spaces_.workers.size()) < threads) spaces_.workers.resize(size_t(threads));
        const int64_t size = p.rows * p.columns;
        T* shares = lumps_ > 1 ? open(spaces_.shared.get(size_t(targets_ * lumps_ * size)), targets_ * lumps_ * size) : nullptr;
        parallel(units, threads, stop, [&](int64_t unit, int64_t worker) {
            const int64_t lump = unit / bands % lumps_, target = unit / bands / lumps_;
            T* to = shares ? shares + (target * lumps_ + lump) * size : result(target);
            band(target, lump, unit % bands * BAND, to, spaces_.worker(worker, size_t(room(LEFT) + room(BAND * tiles_.padded) + room(right_size()))));
        });
        if (!shares) return;
        parallel(targets_, threads, stop, [&](int64_t target, int64_t) {
            T *to = result(target), *from = shares + target * lumps_ * size;
            std::copy(from, from + size, to);
            for (int64_t lump = 1; lump < lumps_; ++lump)
                for (int64_t n = 0; n < size; ++n) to[n] += from[lump * size + n];
        });
    }

   private:
    static constexpr int64_t BAND = 4 * BLOCK, LEFT = BLOCK * SEGMENT;
    const regard_product& p;
    Spaces<T>& spaces_;
    Tiles<T> tiles_;
    int64_t summed_, targets_, steps_, lump_, lumps_;
    bool in_place_;

    int64_t right_size() const { return SEGMENT * tiles_.count * COLUMNS<T>; }
    // The batch row and head of one of a target's planes.
    std::pair<int64_t, int64_t> plane(int64_t target, int64_t number) const {
        if (p.c.batch == 0 && p.c.head == 0) return {number / p.heads, number % p.heads};
        if (p.c.batch == 0) return {number, target};
        if (p.c.head == 0) return {target, number};
        return {target / p.heads, target % p.heads};
    }
    T* result(int64_t target) const {
        const auto [b, h] = plane(target, 0);
        return static_cast<T*>(p.c.data) + b * p.c.batch + h * p.c.head;
    }

    // Rows row0 … of one target, over one lump of its planes or steps.
    void band(int64_t target, int64_t lump, int64_t row0, T* to, T* space) const {
        T *left = take(space, LEFT), *sums = take(space, BAND * tiles_.padded), *right = take(space, right_size());
        const int64_t rows = std::min(BAND, p.rows - row0);
        const bool many = summed_ > 1;
        const int64_t first = many ? lump * lump_ : 0, last = many ? std::min(summed_, first + lump_) : 1;
        const int64_t step0 = many ? 0 : lump * (LUMP / SEGMENT), step1 = many ? steps_ : std::min(steps_, step0 + LUMP / SEGMENT);
        std::fill(sums, sums + rows * tiles_.padded, T(0));
        for (int64_t number = first; number < last; ++number) {
            const auto [b, h] = plane(target, number);
            for (int64_t step = step0; step < step1; ++step) add(b, h, row0, rows, step * SEGMENT, left, right, sums);
        }
        for (int64_t r = 0; r < rows; ++r) std::copy(sums + r * tiles_.padded, sums + r * tiles_.padded + p.columns, to + (row0 + r) * p.columns);
    }

    void add(int64_t b, int64_t h, int64_t row0, int64_t rows, int64_t x0, T* left, T* right, T* sums) const {
        const int64_t depth = std::min<int64_t>(SEGMENT, p.depth - x0);
        if (depth <= 0) return;
        const T* b0 = at<T>(p.b, b, h, x0);
        if (!in_place_) pack(b0, depth, right);
        for (int64_t r = 0; r < rows; r += BLOCK) {
            const int64_t here = std::min<int64_t>(BLOCK, rows - r);
            const T* a0 = at<T>(p.a, b, h, row0 + r) + x0 * p.a.column;
            const bool by_columns = p.a.row == 1 && p.a.column != 1;
            if (by_columns)
                for (int64_t x = 0; x < depth; ++x) copy_row<T>(a0 + x * p.a.column, 1, here, left + x * BLOCK);
            else
                for (int64_t n = 0; n < here; ++n) copy_row<T>(a0 + n * p.a.row, p.a.column, depth, left + n * SEGMENT);
            for (int64_t t = 0; t < tiles_.count; ++t) {
                const T* columns = in_place_ ? b0 + t * COLUMNS<T> : right + t * COLUMNS<T> * SEGMENT;
                const int64_t wide = in_place_ ? p.b.row : COLUMNS<T>;
                T* line = sums + r * tiles_.padded + t * COLUMNS<T>;
                const auto done = [&](int64_t n, const Vec<T>* found, auto count) REGARD_INLINED {
                    T* to = line + n * tiles_.padded;
                    each<decltype(count)::value>([&](int v) REGARD_INLINED { store(to + v * LANES<T>, load(to + v * LANES<T>) + found[v]); });
                };
                if (by_columns)
                    product<T, BY_COLUMNS>(left, BLOCK, columns, wide, depth, here, tiles_.vectors(t), done, Chains::even(depth));
                else
                    product<T>(left, SEGMENT, columns, wide, depth, here, tiles_.vectors(t), done, Chains::even(depth));
            }
        }
    }
    // Tiles [tile][depth][COLUMNS].
    void pack(const T* from, int64_t depth, T* to) const {
        for (int64_t t = 0; t < tiles_.count; ++t)
            pack_panel<T>(from + t * COLUMNS<T> * p.b.column, p.b.column, p.b.row, 0, p.columns - t * COLUMNS<T>, depth, to + t * COLUMNS<T> * SEGMENT);
    }
};

template <class T> int multiply(const regard_product& p, Spaces<T>& spaces) {
    const Stop stop(nullptr);
    if (p.rows > 0 && p.columns > 0 && p.batch * p.heads > 0) Multiply<T>(p, spaces).run(stop);
    return REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
