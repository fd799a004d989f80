// Matrix products through the library: sizes around the vectors, any strides, sums over planes, any number of threads.
#include "check.h"
#include "regard.h"

namespace {

struct Sizes {
    int64_t batch, heads, rows, depth, columns;
};

template <class T> class Problem {
   public:
    Problem(Sizes sizes, int how, Random& random)
        : n(sizes), a_(n.batch * n.heads * n.rows * n.depth), b_(n.heads * n.depth * n.columns) {
        for (int64_t x = 0; x < count_a(); ++x) a_.set(size_t(x), T(random.number()));
        for (int64_t x = 0; x < n.heads * n.depth * n.columns; ++x) b_.set(size_t(x), T(random.number()));
        p = {sizeof(T) == 4 ? REGARD_F32 : REGARD_F64, n.batch, n.heads, n.rows, n.depth, n.columns, 1, {}, {}, {}};
        const int64_t plane = n.rows * n.depth, matrix = n.depth * n.columns;
        p.a = {a_.data(), n.heads * plane, plane, how & 1 ? 1 : n.depth, how & 1 ? n.rows : 1};
        p.b = {b_.data(), 0, matrix, how & 2 ? 1 : n.columns, how & 2 ? n.depth : 1};
        const bool by_batch = how & 4, varies_by_head = how & 8;
        targets_ = (by_batch ? 1 : n.batch) * (varies_by_head ? 1 : n.heads);
        p.c = {nullptr, by_batch ? 0 : n.rows * n.columns * (varies_by_head ? 1 : n.heads),
               varies_by_head ? 0 : n.rows * n.columns, n.columns, 1};
    }
    Guarded<T> result(int64_t threads) {
        Guarded<T> c(targets_ * n.rows * n.columns);
        p.threads = threads, p.c.data = c.data();
        CHECK(regard_multiply(&p) == REGARD_DONE, "a product");
        CHECK(c.guards_intact(), "written outside of the result");
        return c;
    }
    void check() {
        const Guarded<T> one = result(1), three = result(3);
        const int64_t size = n.rows * n.columns;
        std::vector<double> want(size_t(targets_ * size)), most(want.size());
        for (int64_t b = 0; b < n.batch; ++b)
            for (int64_t h = 0; h < n.heads; ++h)
                for (int64_t r = 0; r < n.rows; ++r)
                    for (int64_t c = 0; c < n.columns; ++c)
                        for (int64_t x = 0; x < n.depth; ++x) {
                            const double term =
                                double(a_[b * p.a.batch + h * p.a.head + r * p.a.row + x * p.a.column]) *
                                double(b_[h * p.b.head + x * p.b.row + c * p.b.column]);
                            const size_t to = size_t(b * p.c.batch + h * p.c.head + r * n.columns + c);
                            want[to] += term, most[to] += std::fabs(term);
                        }
        const double terms = double(n.depth * n.batch * n.heads + 1);
        for (int64_t x = 0; x < targets_ * size; ++x) {
            const double bound = terms * most[size_t(x)] * std::numeric_limits<T>::epsilon();
            CHECK(std::fabs(double(one[x]) - want[size_t(x)]) <= bound, "%d x %d x %d at %d: %g, want %g", int(n.rows),
                  int(n.depth), int(n.columns), int(x), double(one[x]), want[size_t(x)]);
            CHECK(one[x] == three[x], "%d x %d x %d at %d: other bits with three threads", int(n.rows), int(n.depth),
                  int(n.columns), int(x));
        }
    }

   private:
    Sizes n;
    Guarded<T> a_, b_;
    int64_t targets_;
    regard_product p;
    int64_t count_a() const { return n.batch * n.heads * n.rows * n.depth; }
};

template <class T> void problems() {
    Random random(11);
    const Sizes all[] = {{1, 1, 1, 1, 1},     {2, 3, 5, 33, 17},  {1, 2, 49, 64, 64}, {3, 2, 13, 257, 65},
                         {2, 1, 200, 3, 130}, {1, 1, 7, 4500, 9}, {9, 2, 20, 300, 31}};
    for (const Sizes& sizes : all)
        for (int how = 0; how < 16; ++how) Problem<T>(sizes, how, random).check();
}

}  // namespace

void run() {
    problems<float>();
    problems<double>();
}
