// The status of a call: numbers that are not finite are reported, and `stop` ends it.
#include "outputs.h"
#include "reference.h"

namespace {

constexpr Shape SMALL{1, 2, 1, 5, 37, 8, 8}, LARGE{1, 2, 1, 101, 300, 8, 8};

template <class T> int status_of(RandomCall<T, T>& s) {
    Outputs<T> results(s);
    const int status = results.forward(s, 2, true);
    CHECK(results.guards_intact(), "wrote outside of the results");
    return status;
}

template <class T> void not_finite(int64_t dtype) {
    const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    for (const Shape& shape : {SMALL, LARGE})
        for (int64_t place : {0, 3, 36}) {
            const int64_t row = place % 5, column = place, head = place != 0;  // row 0 of head 0: no memory before it
            for (T bad : {inf, -inf, nan}) {
                RandomCall<T, T> q(shape, dtype, NO_MASK, false, 1), k(shape, dtype, NO_MASK, false, 2),
                    v(shape, dtype, NO_MASK, false, 3);
                q.query.at(0, head, row, 7) = bad, k.key.at(0, head, column, 7) = bad,
                                         v.value.at(0, head, column, 7) = bad;
                CHECK(status_of(q) == REGARD_NOT_FINITE, "query %g", double(bad));
                CHECK(status_of(k) == REGARD_NOT_FINITE, "key %g", double(bad));
                CHECK(status_of(v) == REGARD_NOT_FINITE, "value %g", double(bad));
            }
            // finite inputs whose product is not
            const T large = std::sqrt(std::numeric_limits<T>::max());
            for (T sign : {T(1), T(-1)}) {
                RandomCall<T, T> s(shape, dtype, NO_MASK, false, 4);
                s.call.scale = 1;
                for (int64_t d = 0; d < 8; ++d)
                    s.query.at(0, head, row, d) = large, s.key.at(0, head, column, d) = sign * large;
                const int status = status_of(s);
                if (sign > 0) CHECK(status == REGARD_NOT_FINITE, "a score of +inf: %d", status);
            }
            for (T bad : {inf, nan}) {
                RandomCall<T, T> s(shape, dtype, NO_MASK, false, 5);
                Random random(6);
                const std::vector<int64_t> sizes{1, 2, shape.queries, shape.keys};
                s.bias = Input<T>(random, sizes, sizes, 1, 0);
                s.bias.at(0, head, row, column) = bad;
                s.call.dense_bias = s.bias.tensor;
                CHECK(status_of(s) == REGARD_NOT_FINITE, "bias %g at row %d, column %d of %d keys", double(bad),
                      int(row), int(column), int(shape.keys));
            }
        }
}

void stops() {
    int32_t flag = 1;
    RandomCall<float, float> s(LARGE, REGARD_F32, NO_MASK, false, 7);
    s.call.stop = &flag;
    Outputs<float> results(s);
    CHECK(results.forward(s, 2, true) == REGARD_STOPPED && results.backward(s, 2) == REGARD_STOPPED,
          "a call that was stopped before it began");
    flag = 0;
    CHECK(results.forward(s, 2, true) == REGARD_DONE && results.backward(s, 2) == REGARD_DONE,
          "a call that is not stopped");
    CHECK(results.guards_intact(), "wrote outside of the results");
}

}  // namespace

void run() {
    not_finite<float>(REGARD_F32);
    not_finite<double>(REGARD_F64);
    stops();
}
