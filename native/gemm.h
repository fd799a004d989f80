// Matrix product c = a · b (regard_multiply) with reproducible bits.
//
//   for target matrix of c, for chunk of its sum, for band of BAND = 192 rows        one unit of work for a thread
//     for plane (batch, head) that is summed into the target
//       for step of SEGMENT = 256 terms of the depth        b: packed into tiles [tile][256][TILE_COLUMNS], or in place
//         for QUERY_BLOCK = 48 rows                         a: copied, 48 × 256
//           for tile of TILE_COLUMNS columns                register tile; sums += product of this step
//   add the chunks in order
//
// Every number is summed step by step over the depth, then plane by plane, then chunk by chunk: its bits depend neither
// on the number of threads nor on the other rows.
#pragma once
#include "packing.h"
#include "thread_pool.h"

namespace regard {
namespace REGARD_ISA {

constexpr int64_t CHUNK_TERMS = 2048;  // terms of a sum in one chunk; at least one plane's if planes are summed

template <class T> class Gemm {
   public:
    Gemm(const regard_product& product, Workspaces<T>& workspaces)
        : p(product), workspaces_(workspaces), tiles_(p.columns) {
        const int64_t planes = p.batch * p.heads;
        summed_ = (p.c.batch == 0 ? p.batch : 1) * (p.c.head == 0 ? p.heads : 1);
        targets_ = planes / std::max<int64_t>(1, summed_);
        steps_ = std::max<int64_t>(1, ceil_div(p.depth, SEGMENT));
        planes_per_chunk_ = std::max<int64_t>(1, CHUNK_TERMS / SEGMENT / steps_);  // planes per chunk, or
        chunks_ = summed_ > 1 ? ceil_div(summed_, planes_per_chunk_)
                              : ceil_div(steps_, CHUNK_TERMS / SEGMENT);  // steps of the only plane
        in_place_ = p.b.column == 1 && p.columns % LANES<T> == 0;
    }
    void run(const CallControl& control) {
        const int64_t bands = ceil_div(p.rows, BAND), units = targets_ * chunks_ * bands;
        const double work = 2.0 * double(p.batch * p.heads * p.rows) * double(p.depth * p.columns);
        const int64_t threads = std::max<int64_t>(1, std::min(p.threads, int64_t(work / 5e5)));
        workspaces_.add_workers(threads);
        const int64_t size = p.rows * p.columns;
        T* chunk_sums = chunks_ > 1
                            ? open(workspaces_.shared.get(size_t(targets_ * chunks_ * size)), targets_ * chunks_ * size)
                            : nullptr;
        parallel(units, threads, control, [&](int64_t unit, int64_t worker) {
            const int64_t chunk = unit / bands % chunks_, target = unit / bands / chunks_;
            T* to = chunk_sums ? chunk_sums + (target * chunks_ + chunk) * size : result(target);
            band(target, chunk, unit % bands * BAND, to,
                 workspaces_.worker(worker, size_t(padded_size(LEFT_SIZE) + padded_size(BAND * tiles_.padded) +
                                                   padded_size(right_size()))));
        });
        if (!chunk_sums) return;
        parallel(targets_, threads, control, [&](int64_t target, int64_t) {
            T *to = result(target), *from = chunk_sums + target * chunks_ * size;
            std::copy(from, from + size, to);
            for (int64_t chunk = 1; chunk < chunks_; ++chunk)
                for (int64_t n = 0; n < size; ++n) to[n] += from[chunk * size + n];
        });
    }

   private:
    static constexpr int64_t BAND = 4 * QUERY_BLOCK, LEFT_SIZE = QUERY_BLOCK * SEGMENT;
    const regard_product& p;
    Workspaces<T>& workspaces_;
    Tiles<T> tiles_;
    int64_t summed_, targets_, steps_, planes_per_chunk_, chunks_;
    bool in_place_;

    int64_t right_size() const { return SEGMENT * tiles_.count * TILE_COLUMNS<T>; }
    // Batch row and head of plane `number` of a target.
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

    // BAND rows from row0 of one target, over one chunk of its planes or steps.
    void band(int64_t target, int64_t chunk, int64_t row0, T* to, T* space) const {
        T *left = allocate(space, LEFT_SIZE), *sums = allocate(space, BAND * tiles_.padded),
          *right = allocate(space, right_size());
        const int64_t rows = std::min(BAND, p.rows - row0);
        const bool sums_planes = summed_ > 1;
        const int64_t first = sums_planes ? chunk * planes_per_chunk_ : 0,
                      last = sums_planes ? std::min(summed_, first + planes_per_chunk_) : 1;
        const int64_t step0 = sums_planes ? 0 : chunk * (CHUNK_TERMS / SEGMENT),
                      step1 = sums_planes ? steps_ : std::min(steps_, step0 + CHUNK_TERMS / SEGMENT);
        std::fill(sums, sums + rows * tiles_.padded, T(0));
        for (int64_t number = first; number < last; ++number) {
            const auto [b, h] = plane(target, number);
            for (int64_t step = step0; step < step1; ++step)
                add_step(b, h, row0, rows, step * SEGMENT, left, right, sums);
        }
        for (int64_t r = 0; r < rows; ++r)
            std::copy(sums + r * tiles_.padded, sums + r * tiles_.padded + p.columns, to + (row0 + r) * p.columns);
    }

    void add_step(int64_t b, int64_t h, int64_t row0, int64_t rows, int64_t x0, T* left, T* right, T* sums) const {
        const int64_t depth = std::min<int64_t>(SEGMENT, p.depth - x0);
        if (depth <= 0) return;
        const T* b0 = row_pointer<T>(p.b, b, h, x0);
        if (!in_place_) pack_b(b0, depth, right);
        for (int64_t r = 0; r < rows; r += QUERY_BLOCK) {
            const int64_t count = std::min<int64_t>(QUERY_BLOCK, rows - r);
            const T* a0 = row_pointer<T>(p.a, b, h, row0 + r) + x0 * p.a.column;
            const bool by_columns = p.a.row == 1 && p.a.column != 1;
            if (by_columns)
                for (int64_t x = 0; x < depth; ++x) copy_row<T>(a0 + x * p.a.column, 1, count, left + x * QUERY_BLOCK);
            else
                for (int64_t n = 0; n < count; ++n)
                    copy_row<T>(a0 + n * p.a.row, p.a.column, depth, left + n * SEGMENT);
            for (int64_t t = 0; t < tiles_.count; ++t) {
                const T* columns = in_place_ ? b0 + t * TILE_COLUMNS<T> : right + t * TILE_COLUMNS<T> * SEGMENT;
                const int64_t b_stride = in_place_ ? p.b.row : TILE_COLUMNS<T>;
                T* line = sums + r * tiles_.padded + t * TILE_COLUMNS<T>;
                const auto done = [&](int64_t n, const Vec<T>* products, auto vectors) REGARD_INLINED {
                    T* to = line + n * tiles_.padded;
                    static_for<decltype(vectors)::value>(
                        [&](int v) REGARD_INLINED { store(to + v * LANES<T>, load(to + v * LANES<T>) + products[v]); });
                };
                if (by_columns)
                    product<T, BY_COLUMNS>(left, QUERY_BLOCK, columns, b_stride, depth, count, tiles_.vectors(t), done,
                                           Chains::even(depth));
                else
                    product<T>(left, SEGMENT, columns, b_stride, depth, count, tiles_.vectors(t), done,
                               Chains::even(depth));
            }
        }
    }
    // Pack rows of b into tiles [tile][SEGMENT][TILE_COLUMNS].
    void pack_b(const T* from, int64_t depth, T* to) const {
        for (int64_t t = 0; t < tiles_.count; ++t)
            pack_panel<T>(from + t * TILE_COLUMNS<T> * p.b.column, p.b.column, p.b.row, 0,
                          p.columns - t * TILE_COLUMNS<T>, depth, to + t * TILE_COLUMNS<T> * SEGMENT);
    }
};

template <class T> int multiply(const regard_product& p, Workspaces<T>& workspaces) {
    const CallControl control(nullptr);
    if (p.rows > 0 && p.columns > 0 && p.batch * p.heads > 0) Gemm<T>(p, workspaces).run(control);
    return REGARD_DONE;
}

}  // namespace REGARD_ISA
}  // namespace regard
