// Reference: attention as the formula says, one number at a time, in any precision.
#pragma once
#include "dropout.h"
#include "random_call.h"

// Numbers, and the sums of the sizes of their terms: the scale of the rounding errors.
template <class R> struct ReferenceSums {
    std::vector<R> value, size;
    void assign(size_t count) { value.assign(count, R(0)), size.assign(count, R(0)); }
    void push(R x) { value.push_back(x), size.push_back(std::isfinite(x) ? std::fabs(x) : R(0)); }
    void add(int64_t at, R x, R bulk) { value[size_t(at)] += x, size[size_t(at)] += std::fabs(bulk); }
};

// An activation of the additive score and its derivative.
template <class R> std::pair<R, R> phi(int64_t form, R z) {
    if (form == REGARD_TANH) return {std::tanh(z), 1 - std::tanh(z) * std::tanh(z)};
    if (form == REGARD_RELU) return {std::max(z, R(0)), R(z > 0)};
    if (form == REGARD_GELU) {
        const R below = std::erfc(-z / std::sqrt(R(2))) / 2,
                density = std::exp(-z * z / 2) / std::sqrt(R(2 * std::acos(R(-1))));
        return {z * below, below + z * density};
    }
    const R s = 1 / (1 + std::exp(-z));
    return {s, s * (1 - s)};
}

constexpr int64_t GRID = 5;  // most cells of a grid, down and across

template <class R> struct Reference {
    ReferenceSums<R> out, lse, entropy, peak, distance, max_logit, grad_query, grad_key, grad_value, grad_temperature,
        grad_offsets, grad_bias, grad_v;
    ReferenceSums<R> received, spread, pool_sum, pool_max;
    std::vector<int64_t> peak_at, pool_pairs;
    int64_t down, across;

    template <class S, class T> explicit Reference(const RandomCall<S, T>& s) {
        const Shape& n = s.shape;
        const int64_t rows = n.batch * s.heads * n.queries;
        out.assign(size_t(rows * n.d_value));
        grad_query.assign(size_t(rows * n.d_key));
        grad_key.assign(size_t(n.batch * n.kv_heads * n.keys * n.d_key));
        grad_value.assign(size_t(n.batch * n.kv_heads * n.keys * n.d_value));
        grad_temperature.assign(size_t(s.heads));
        grad_offsets.assign(s.offsets.size());
        grad_bias.assign(s.bias.size());
        grad_v.assign(s.weights.size());
        down = std::min(GRID, n.queries), across = std::min(GRID, n.keys);
        received.assign(size_t(n.batch * s.heads * n.keys));
        pool_sum.assign(size_t(n.batch * s.heads * down * across));
        pool_max = pool_sum;
        pool_pairs.assign(pool_sum.value.size(), 0);
        for (int64_t b = 0; b < n.batch; ++b)
            for (int64_t h = 0; h < s.heads; ++h)
                for (int64_t r = 0; r < n.queries; ++r) row(s, b, h, r);
    }

   private:
    template <class S, class T> void row(const RandomCall<S, T>& s, int64_t b, int64_t h, int64_t r) {
        const Shape& n = s.shape;
        const regard_call& c = s.call;
        const int64_t kv = h / n.group, i = s.query_start[size_t(b)] + r, place = (b * s.heads + h) * n.queries + r;
        const R none = -std::numeric_limits<R>::infinity(), tau = c.temperature ? R(s.temperature[size_t(h)]) : R(1);
        const size_t keys = size_t(n.keys);
        std::vector<R> x(keys, none), slope(keys, R(1)), w(keys, R(0)), dropout(keys, R(1)), dx(keys, R(0));
        R row_max = none, best = none, row_sum = 0;
        int64_t at = -1;
        for (int64_t j = 0; j < n.keys; ++j) {
            if (!s.visible(b, r, j)) continue;
            R score = 0;
            for (int64_t d = 0; d < n.d_key; ++d) {
                const R q = s.query.template get<R>(b, h, r, d), k = s.key.template get<R>(b, kv, j, d);
                score += c.form ? R(s.weights[size_t(h * n.d_key + d)]) * phi(c.form, q + k).first : q * k;
            }
            score *= R(c.scale);
            if (c.cap > 0) {
                const R bent = std::tanh(score / R(c.cap));
                score = R(c.cap) * bent, slope[size_t(j)] = 1 - bent * bent;
            }
            if (c.slopes) score -= R(s.slopes[size_t(h)]) * R(std::abs(i - c.key_start - j));
            if (c.offset_table) score += R(s.offsets[offset(s, h, i, j)]);
            if (c.dense_bias.data) score += s.bias.template get<R>(b, h, r, j);
            x[size_t(j)] = score / tau;
            if (x[size_t(j)] > row_max) row_max = x[size_t(j)], best = score, at = j;
            if (c.drop_below)
                dropout[size_t(j)] = regard::pair_number<uint32_t>(regard::row_key(c.seed, b, h, i),
                                                                   uint32_t(c.key_start + j)) >= c.drop_below
                                         ? R(c.keep_scale)
                                         : R(0);
        }
        for (size_t j = 0; j < keys; ++j) row_sum += w[j] = at < 0 ? R(0) : std::exp(x[j] - row_max);
        R entropy_sum = 0, mean_distance = 0;
        for (size_t j = 0; j < keys; ++j) {
            w[j] = at < 0 ? R(0) : w[j] / row_sum;
            if (w[j] > 0) entropy_sum -= w[j] * std::log(w[j]);
            mean_distance += w[j] * R(std::abs(i - c.key_start - int64_t(j)));
            for (int64_t d = 0; d < n.d_value; ++d) {
                const R term = w[j] * dropout[j] * s.value.template get<R>(b, kv, int64_t(j), d);
                out.add(place * n.d_value + d, term, term);
            }
        }
        lse.push(at < 0 ? none : row_max + std::log(row_sum));
        second_pass(s, b, h, r, w, mean_distance);
        entropy.push(entropy_sum), peak.push(at < 0 ? R(0) : 1 / row_sum), distance.push(mean_distance),
            max_logit.push(best), peak_at.push_back(at);

        R mean = 0, rough_mean = 0;
        std::vector<R> rough(keys, R(0));
        for (size_t j = 0; j < keys; ++j) {
            for (int64_t d = 0; d < n.d_value; ++d) {
                const R term =
                    dropout[j] * s.grad_out.template get<R>(b, h, r, d) * s.value.template get<R>(b, kv, int64_t(j), d);
                dx[j] += term, rough[j] += std::fabs(term);
            }
            mean += w[j] * dx[j], rough_mean += w[j] * rough[j];
        }
        for (size_t j = 0; j < keys; ++j) {
            const R lse_part = c.grad_lse ? R(s.grad_lse[size_t(place)]) : R(0);
            const R entropy_part =
                c.grad_entropy && w[j] > 0 ? R(s.grad_entropy[size_t(place)]) * (std::log(w[j]) + entropy_sum) : R(0);
            const R change = w[j] * (dx[j] - mean + lse_part - entropy_part);
            const R bulk = w[j] * (rough[j] + rough_mean + std::fabs(lse_part) + std::fabs(entropy_part));
            if (w[j] > 0) grad_temperature.add(h, -change * x[j] / tau, bulk * x[j] / tau);
            if (c.offset_table) grad_offsets.add(int64_t(offset(s, h, i, int64_t(j))), change / tau, bulk / tau);
            if (c.dense_bias.data)
                grad_bias.add(int64_t(s.bias.place(b, h, r, int64_t(j))) - 1, change / tau, bulk / tau);
            const R factor = slope[j] * R(c.scale) / tau;
            const int64_t row = (b * n.kv_heads + kv) * n.keys + int64_t(j);
            for (int64_t d = 0; d < n.d_key; ++d) {
                R k = factor * s.key.template get<R>(b, kv, int64_t(j), d),
                  q = factor * s.query.template get<R>(b, h, r, d);
                if (c.form) {
                    const auto activation =
                        phi(c.form, s.query.template get<R>(b, h, r, d) + s.key.template get<R>(b, kv, int64_t(j), d));
                    k = q = factor * R(s.weights[size_t(h * n.d_key + d)]) * activation.second;
                    grad_v.add(h * n.d_key + d, change * factor * activation.first, bulk * factor * activation.first);
                }
                grad_query.add(place * n.d_key + d, change * k, bulk * k);
                grad_key.add(row * n.d_key + d, change * q, bulk * q);
            }
            for (int64_t d = 0; d < n.d_value; ++d) {
                const R term = w[j] * dropout[j] * s.grad_out.template get<R>(b, h, r, d);
                grad_value.add(row * n.d_value + d, term, term);
            }
        }
    }
    // The sums of the second pass.
    template <class S, class T>
    void second_pass(const RandomCall<S, T>& s, int64_t b, int64_t h, int64_t r, const std::vector<R>& w,
                     R mean_distance) {
        const Shape& n = s.shape;
        R sum = 0, bulk = 0;
        for (int64_t j = 0; j < n.keys; ++j) {
            if (!s.visible(b, r, j)) continue;
            const R weight = w[size_t(j)],
                    distance_of_pair = R(std::abs(s.query_start[size_t(b)] + r - s.call.key_start - j));
            sum += weight * (distance_of_pair - mean_distance) * (distance_of_pair - mean_distance),
                bulk += weight * distance_of_pair * distance_of_pair;
            received.add((b * s.heads + h) * n.keys + j, weight, weight);
            const int64_t cell =
                ((b * s.heads + h) * down + cell_of(r, n.queries, down)) * across + cell_of(j, n.keys, across);
            pool_sum.add(cell, weight, weight);
            pool_max.value[size_t(cell)] = std::max(pool_max.value[size_t(cell)], weight),
            pool_max.size[size_t(cell)] = 1;
            ++pool_pairs[size_t(cell)];
        }
        spread.push(sum);
        spread.size.back() = bulk;
    }
    static int64_t cell_of(int64_t number, int64_t count, int64_t cells) {
        int64_t cell = 0;
        while ((cell + 1) * count / cells <= number) ++cell;
        return cell;
    }
    template <class S, class T> static size_t offset(const RandomCall<S, T>& s, int64_t h, int64_t i, int64_t column) {
        const regard_call& c = s.call;
        const int64_t clipped = std::min(std::max(c.key_start + column - i, -c.reach), c.reach);
        return size_t((c.offset_heads > 1 ? h : 0) * (2 * c.reach + 1) + clipped + c.reach);
    }
};
