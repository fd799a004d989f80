// A whole call with random inputs: misaligned, strided, NaN between the rows.
#pragma once
#include <memory>

#include "check.h"
#include "float16.h"
#include "regard.h"

template <class S> S random_stored(Random& random) {
    if constexpr (std::is_same<S, regard::BFloat16>::value)
        return {uint16_t((random.bits() & 0x8000) | (0x3e00 + random.bits() % 0x180))};  // ±1/8 … 1
    else if constexpr (std::is_same<S, regard::Float16>::value)
        return {uint16_t((random.bits() & 0x8000) | (0x3000 + random.bits() % 0xc00))};
    else
        return S(random.number());
}
template <class S> S not_a_number() {
    if constexpr (std::is_floating_point<S>::value)
        return std::numeric_limits<S>::quiet_NaN();
    else
        return {0x7fff};
}

// A (batch, head, row, column) tensor, one element off alignment and exactly as large as needed, so that a sanitizer
// finds every read beyond it. An axis of size 1 where the call has more is broadcast.
template <class S> class Input {
   public:
    Input() = default;
    Input(Random& random, std::vector<int64_t> full, std::vector<int64_t> sizes, int64_t column, int64_t gap) {
        const int64_t row = sizes[3] * column + gap, head = sizes[2] * row, batch = sizes[1] * head;
        const int64_t strides[4] = {batch, head, row, column};
        int64_t count = 1;
        for (int axis = 0; axis < 4; ++axis)
            count = sizes[size_t(axis)] ? count + (sizes[size_t(axis)] - 1) * strides[axis] : 0;
        for (int64_t size : sizes) count = size ? count : 0;
        memory_.assign(size_t(count ? count + 1 : 0), not_a_number<S>());
        tensor = {count ? memory_.data() + 1 : nullptr, batch, head, row, column};
        for (int64_t b = 0; b < (count ? sizes[0] : 0); ++b)
            for (int64_t h = 0; h < sizes[1]; ++h)
                for (int64_t r = 0; r < sizes[2]; ++r)
                    for (int64_t c = 0; c < sizes[3]; ++c)
                        memory_[size_t(1 + b * batch + h * head + r * row + c * column)] = random_stored<S>(random);
        int64_t* steps[4] = {&tensor.batch, &tensor.head, &tensor.row, &tensor.column};
        for (size_t axis = 0; axis < 4; ++axis)
            if (sizes[axis] == 1 && full[axis] != 1) *steps[axis] = 0;
    }
    size_t place(int64_t b, int64_t h, int64_t r, int64_t c) const {
        return size_t(1 + b * tensor.batch + h * tensor.head + r * tensor.row + c * tensor.column);
    }
    S& at(int64_t b, int64_t h, int64_t r, int64_t c) { return memory_[place(b, h, r, c)]; }
    template <class T> T get(int64_t b, int64_t h, int64_t r, int64_t c) const {
        const S x = memory_[place(b, h, r, c)];
        if constexpr (std::is_floating_point<S>::value)
            return T(x);
        else
            return T(regard::widen<float>(x));
    }
    size_t size() const { return memory_.empty() ? 0 : memory_.size() - 1; }
    regard_tensor tensor{};

   private:
    std::vector<S> memory_;
};

enum MaskChoice { NO_MASK, CAUSAL, WINDOW, DILATED, BELOW, HOLES, MASK_CHOICES };

struct Shape {
    int64_t batch, kv_heads, group, queries, keys, d_key, d_value;
};

// S storage type, T compute type.
template <class S, class T> struct RandomCall {
    Shape shape;
    int64_t heads, dtype;
    Input<S> query, key, value;
    Input<T> grad_out, bias;
    std::vector<int64_t> query_start, lengths;
    std::vector<uint8_t> table;
    std::vector<T> weights, temperature, slopes, offsets, grad_lse, grad_entropy;
    std::vector<regard_mask_op> mask;
    regard_call call{};

    RandomCall(const Shape& s, int64_t type, MaskChoice choice, bool extras, uint64_t seed,
               int64_t form = REGARD_PRODUCT)
        : shape(s), heads(s.kv_heads * s.group), dtype(type) {
        Random random(seed);
        const auto fill = [&](auto& input, int64_t count, int64_t rows, int64_t width) {
            const std::vector<int64_t> sizes{s.batch, count, rows, width};
            input = {random, sizes, sizes, random.below(4) ? 1 : 2, random.below(4)};
        };
        fill(query, heads, s.queries, s.d_key), fill(key, s.kv_heads, s.keys, s.d_key);
        fill(value, s.kv_heads, s.keys, s.d_value), fill(grad_out, heads, s.queries, s.d_value);
        call.dtype = dtype, call.batch = s.batch, call.kv_heads = s.kv_heads, call.group = s.group,
        call.queries = s.queries;
        call.keys = s.keys, call.d_key = s.d_key, call.d_value = s.d_value, call.threads = 1;
        call.query = query.tensor, call.key = key.tensor, call.value = value.tensor, call.grad_out = grad_out.tensor;
        call.scale = 2 / std::sqrt(double(s.d_key ? s.d_key : 1)), call.keep_scale = 1;
        call.key_start = random.below(3) ? 0 : random.below(600);
        for (int64_t b = 0; b < s.batch; ++b)
            query_start.push_back(call.key_start + std::max<int64_t>(0, s.keys - s.queries - random.below(3)));
        call.query_start = query_start.data();
        set_mask(choice, random);
        if (extras) add(random);
        call.form = form;
        if (!form) return;
        for (int64_t n = 0; n < heads * s.d_key; ++n) weights.push_back(T(random.number()));
        call.v = weights.data();
    }
    RandomCall(const RandomCall&) = delete;

    bool visible(int64_t b, int64_t row, int64_t column) const {
        const int64_t i = query_start[size_t(b)] + row, j = call.key_start + column;
        if (mask.empty()) return true;
        const regard_mask_op& op = mask[0];
        if (op.code == REGARD_WINDOW) return i - op.a <= j && j <= i + op.b;
        if (op.code == REGARD_DILATED) return std::abs(i - j) <= op.a && std::abs(i - j) % op.b == 0;
        if (op.code == REGARD_BELOW) return j < lengths[size_t(b)];
        return table[size_t((b * shape.queries + row) * shape.keys + column)] != 0;
    }

   private:
    void set_mask(MaskChoice choice, Random& random) {
        regard_mask_op op{};
        for (int64_t b = 0; b < shape.batch; ++b) lengths.push_back(call.key_start + random.below(shape.keys + 1));
        if (choice == CAUSAL) op.code = REGARD_WINDOW, op.a = int64_t(1) << 40;
        if (choice == WINDOW) op.code = REGARD_WINDOW, op.a = random.below(70), op.b = random.below(9);
        if (choice == DILATED) op.code = REGARD_DILATED, op.a = random.below(200), op.b = 1 + random.below(4);
        if (choice == BELOW) op.code = REGARD_BELOW, op.data = lengths.data(), op.batch = 1;
        if (choice == HOLES) {
            table.resize(size_t(shape.batch * shape.queries * shape.keys));
            for (uint8_t& x : table) x = random.below(3) == 0;
            op.code = REGARD_DENSE, op.data = table.data(), op.column = 1, op.row = shape.keys,
            op.batch = shape.queries * shape.keys;
        }
        if (choice != NO_MASK) mask.push_back(op);
        call.mask = mask.data(), call.mask_ops = int64_t(mask.size());
    }
    void add(Random& random) {
        const auto numbers = [&](std::vector<T>& to, int64_t count, double least) {
            for (int64_t n = 0; n < count; ++n) to.push_back(T(least + (random.number() + 1) / 2));
            return to.data();
        };
        if (random.below(2)) call.cap = 1.5;
        if (random.below(2)) call.temperature = numbers(temperature, heads, 0.5);
        if (random.below(2)) call.slopes = numbers(slopes, heads, 0.01);
        if (random.below(2)) {
            call.reach = random.below(40), call.offset_heads = random.below(2) ? heads : 1;
            call.offset_table = numbers(offsets, call.offset_heads * (2 * call.reach + 1), -0.5);
        }
        if (random.below(2)) {
            const std::vector<int64_t> full{shape.batch, heads, shape.queries, shape.keys};
            std::vector<int64_t> sizes = full;
            for (int64_t& size : sizes) size = size && random.below(3) == 0 ? 1 : size;
            bias = Input<T>(random, full, sizes, 1, random.below(2));
            call.dense_bias = bias.tensor;
        }
        if (random.below(2)) call.seed = random.bits(), call.drop_below = uint32_t(1) << 30, call.keep_scale = 1 / 0.75;
        const int64_t rows = shape.batch * heads * shape.queries;
        if (random.below(2)) call.grad_lse = numbers(grad_lse, rows, -0.5);
        if (random.below(2)) call.grad_entropy = numbers(grad_entropy, rows, -0.5);
    }
};
