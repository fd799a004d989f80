// The results of a call, in misaligned buffers between guards.
#pragma once
#include "reference.h"

template <class T> struct Outputs {
    Guarded<T> out, lse, row_max, row_sum, entropy, peak, distance, max_logit, grad_query, grad_key, grad_value,
        grad_temperature, grad_offsets, grad_bias, grad_v, received, spread, weight_sum;
    Guarded<double> pool_sum, pool_max;
    Guarded<int64_t> peak_at, pool_pairs;

    template <class S>
    explicit Outputs(const RandomCall<S, T>& s)
        : Outputs(s, s.shape.batch * s.heads * s.shape.queries, s.shape.batch * s.shape.kv_heads * s.shape.keys) {}

    template <class S> int forward(const RandomCall<S, T>& s, int64_t threads, bool statistics) {
        regard_call c = s.call;
        c.threads = threads;
        c.out = out.data(), c.row_max = row_max.data(), c.row_sum = row_sum.data(), c.entropy = entropy.data();
        if (statistics)
            c.lse = lse.data(), c.peak = peak.data(), c.distance = distance.data(), c.max_logit = max_logit.data(),
            c.peak_at = peak_at.data();
        return regard_forward(&c);
    }
    template <class S> int backward(const RandomCall<S, T>& s, int64_t threads) {
        regard_call c = s.call;
        c.threads = threads;
        c.out = out.data(), c.row_max = row_max.data(), c.row_sum = row_sum.data(), c.entropy = entropy.data();
        c.grad_query = grad_query.data(), c.grad_key = grad_key.data(), c.grad_value = grad_value.data();
        if (c.temperature) c.grad_temperature = grad_temperature.data();
        if (c.offset_table) c.grad_offset_table = grad_offsets.data();
        if (c.dense_bias.data) c.grad_dense = c.dense_bias, c.grad_dense.data = grad_bias.data();
        if (c.form) c.grad_v = grad_v.data(), c.peak_at = peak_at.data();
        return regard_backward(&c);
    }
    // After a forward pass with statistics.
    template <class S> int second_pass(const RandomCall<S, T>& s, int64_t threads) {
        regard_call c = s.call;
        c.threads = threads;
        c.row_max = row_max.data(), c.row_sum = row_sum.data(), c.distance = distance.data(),
        c.received = received.data(), c.spread = spread.data(), c.weight_sum = weight_sum.data();
        c.pool_rows = std::min<int64_t>(GRID, c.queries), c.pool_columns = std::min<int64_t>(GRID, c.keys);
        c.pool_sum = pool_sum.data(), c.pool_max = pool_max.data(), c.pool_pairs = pool_pairs.data();
        return regard_second_pass(&c);
    }
    bool guards_intact() const {
        bool good = peak_at.guards_intact() && pool_pairs.guards_intact() && pool_sum.guards_intact() &&
                    pool_max.guards_intact();
        for (const Guarded<T>* x :
             {&out, &lse, &row_max, &row_sum, &entropy, &peak, &distance, &max_logit, &grad_query, &grad_key,
              &grad_value, &grad_temperature, &grad_offsets, &grad_bias, &grad_v, &received, &spread, &weight_sum})
            good &= x->guards_intact();
        return good;
    }

   private:
    template <class S>
    Outputs(const RandomCall<S, T>& s, int64_t rows, int64_t columns)
        : out(rows * s.shape.d_value),
          lse(rows),
          row_max(rows),
          row_sum(rows),
          entropy(rows),
          peak(rows),
          distance(rows),
          max_logit(rows),
          grad_query(rows * s.shape.d_key),
          grad_key(columns * s.shape.d_key),
          grad_value(columns * s.shape.d_value),
          grad_temperature(s.heads),
          grad_offsets(int64_t(s.offsets.size())),
          grad_bias(int64_t(s.bias.size()), 0),
          grad_v(int64_t(s.weights.size())),
          received(s.shape.batch * s.heads * s.shape.keys),
          spread(rows),
          weight_sum(rows),
          pool_sum(cells(s), 0),
          pool_max(cells(s), 0),
          peak_at(rows, -7),
          pool_pairs(cells(s), 0) {}
    template <class S> static int64_t cells(const RandomCall<S, T>& s) {
        return s.shape.batch * s.heads * std::min<int64_t>(GRID, s.shape.queries) *
               std::min<int64_t>(GRID, s.shape.keys);
    }
};
