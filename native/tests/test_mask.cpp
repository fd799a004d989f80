// Random mask programs: rows against the definition, pair by pair, and runs against rows.
#include "check.h"
#include "mask.h"

using namespace regard;

namespace {

struct RandomMask {
    static constexpr int64_t BATCH = 2, HEADS = 3;
    int64_t queries, keys;
    std::vector<int64_t> query_start, lengths, positions, key_ids, query_ids, spans;
    std::vector<uint8_t> layout, table;
    int64_t block, blocks;
    std::vector<regard_mask_op> program;
    regard_call call{};
};

bool visible(const RandomMask& s, const regard_mask_op& op, int64_t b, int64_t h, int64_t row, int64_t column) {
    const int64_t i = s.query_start[size_t(b)] + row, j = s.call.key_start + column;
    switch (op.code) {
        case REGARD_WINDOW: return i - op.a <= j && j <= i + op.b;
        case REGARD_DILATED: return std::abs(i - j) <= op.a && std::abs(i - j) % op.b == 0;
        case REGARD_BELOW: return j < s.lengths[size_t(b * op.batch)];
        case REGARD_GLOBAL:
            for (int64_t n = 0; n < op.a; ++n)
                if (s.positions[size_t(n)] == i || s.positions[size_t(n)] == j) return true;
            return false;
        case REGARD_DOCUMENTS:
            return s.key_ids[size_t(b * s.keys + column)] == s.query_ids[size_t(b * s.queries + row)];
        case REGARD_BLOCKS:
            return s.layout[size_t(b * op.batch + h * op.head + i / s.block * op.row + j / s.block * op.column)] != 0;
        default: return s.table[size_t(b * op.batch + h * op.head + row * op.row + column * op.column)] != 0;
    }
}

bool visible(const RandomMask& s, int64_t b, int64_t h, int64_t row, int64_t column) {
    std::vector<bool> stack;
    for (const regard_mask_op& op : s.program) {
        if (op.code == REGARD_NOT) {
            stack.back() = !stack.back();
        } else if (op.code == REGARD_AND || op.code == REGARD_OR) {
            const bool right = stack.back();
            stack.pop_back();
            stack.back() = op.code == REGARD_AND ? stack.back() && right : stack.back() || right;
        } else {
            stack.push_back(visible(s, op, b, h, row, column));
        }
    }
    return stack.empty() || stack.back();
}

void documents(RandomMask& s, Random& random) {
    const int64_t names = 1 + random.below(4);
    const bool sorted = random.below(2);
    for (int64_t b = 0; b < RandomMask::BATCH; ++b) {
        for (int64_t c = 0; c < s.keys; ++c) s.key_ids.push_back(sorted ? c * names / s.keys : random.below(names));
        for (int64_t r = 0; r < s.queries; ++r) {
            const int64_t mine = sorted ? r * names / s.queries : random.below(names);
            int64_t first = 0, past = 0, same = 0;
            for (int64_t c = 0; c < s.keys; ++c)
                if (s.key_ids[size_t(b * s.keys + c)] == mine) {
                    if (!same++) first = c;
                    past = c + 1;
                }
            s.query_ids.push_back(mine);
            for (int64_t x : {first, past, int64_t(same == past - first)}) s.spans.push_back(x);
        }
    }
}

regard_mask_op leaf(RandomMask& s, Random& random, int64_t code) {
    regard_mask_op op{};
    op.code = code;
    const int64_t density = random.below(4);
    switch (code) {
        case REGARD_WINDOW:
            op.a = random.below(3) ? random.below(90) : int64_t(1) << 40, op.b = random.below(2) ? 0 : random.below(60);
            break;
        case REGARD_DILATED: op.a = random.below(80), op.b = 1 + random.below(5); break;
        case REGARD_BELOW: op.data = s.lengths.data(), op.batch = random.below(2); break;
        case REGARD_GLOBAL: op.data = s.positions.data(), op.a = random.below(int64_t(s.positions.size()) + 1); break;
        case REGARD_DOCUMENTS:
            op.data = s.key_ids.data(), op.data2 = s.query_ids.data(), op.data3 = s.spans.data();
            op.batch = s.keys, op.head = s.queries, op.row = 3 * s.queries;
            break;
        case REGARD_BLOCKS:
            for (uint8_t& x : s.layout) x = random.below(4) <= density;
            op.data = s.layout.data(), op.a = s.block;
            op.column = 1, op.row = s.blocks, op.head = random.below(2) ? s.blocks * s.blocks : 0,
            op.batch = RandomMask::HEADS * s.blocks * s.blocks;
            break;
        default:
            for (uint8_t& x : s.table) x = density == 3 || random.below(40) <= density;
            op.data = s.table.data(), op.column = 1, op.row = random.below(3) ? s.keys : 0;
            op.head = random.below(2) ? s.queries * s.keys : 0, op.batch = RandomMask::HEADS * s.queries * s.keys;
    }
    return op;
}

void compare(const RandomMask& s, const Mask& mask, int64_t b, int64_t h, int64_t row0, int64_t row1) {
    const Runs runs = mask.runs(b, h, row0, row1);
    int64_t at = 0;
    for (const Run& run : runs) {
        CHECK(run.start == at && run.stop > at, "runs are not in order");
        at = run.stop;
    }
    CHECK(at == s.keys, "runs end at %d of %d", int(at), int(s.keys));
    std::vector<uint8_t> stack;
    for (int64_t row = row0; row < row1; ++row) {
        const int64_t from = row % s.keys, to = from + (s.keys - from) - row % 2 * (s.keys - from) / 2;
        Guarded<uint8_t> part(to - from, 9);
        mask.visible_columns(b, h, row, from, to, part.data(), stack);
        CHECK(part.guards_intact(), "a row wrote outside of itself");
        for (int64_t c = from; c < to; ++c)
            CHECK(part[c - from] == visible(s, b, h, row, c), "row %d, column %d", int(row), int(c));
        const Run interval = mask.interval(b, row);
        for (const Run& run : runs)
            for (int64_t c = run.start; c < run.stop; ++c) {
                const bool is = visible(s, b, h, row, c);
                CHECK(run.kind == MIXED || is == (run.kind == FULL), "row %d, column %d is in a run of kind %d",
                      int(row), int(c), run.kind);
                if (mask.is_band())
                    CHECK(is == (interval.start <= c && c < interval.stop), "row %d, column %d and its interval",
                          int(row), int(c));
            }
    }
}

void check_mask(uint64_t seed) {
    Random random(seed);
    RandomMask s;
    s.queries = 1 + random.below(60), s.keys = 1 + random.below(150);
    s.block = 1 + random.below(20);
    s.call.queries = s.queries, s.call.keys = s.keys, s.call.key_start = random.below(3) ? 0 : random.below(300);
    for (int64_t b = 0; b < RandomMask::BATCH; ++b) s.query_start.push_back(random.below(2) ? 0 : random.below(400));
    for (int64_t b = 0; b < RandomMask::BATCH; ++b)
        s.lengths.push_back(s.call.key_start + random.below(s.keys + 20) - 10);
    for (int64_t n = 0, at = 0; n < 12; ++n) s.positions.push_back(at += 1 + random.below(30));
    s.blocks = (s.queries + s.keys + 700) / s.block + 1;
    s.layout.resize(size_t(RandomMask::BATCH * RandomMask::HEADS * s.blocks * s.blocks));
    s.table.resize(size_t(RandomMask::BATCH * RandomMask::HEADS * s.queries * s.keys));
    documents(s, random);
    // One kind of leaf in a third of the scenes, all kinds in the others; blocks and dense tables are filled once.
    const int64_t only = random.below(3) ? 0 : 1 + random.below(7);
    int depth = 0;
    for (int64_t left = random.below(5); left > 0 || depth > 1;) {
        if (depth > 1 && (left == 0 || random.below(2))) {
            regard_mask_op op{};
            op.code = random.below(2) ? REGARD_AND : REGARD_OR;
            if (only == REGARD_WINDOW) op.code = REGARD_AND;
            s.program.push_back(op), --depth;
        } else {
            s.program.push_back(leaf(s, random, only ? only : 1 + random.below(7))), ++depth, --left;
        }
        if (only != REGARD_WINDOW && random.below(5) == 0) {
            regard_mask_op op{};
            op.code = REGARD_NOT;
            s.program.push_back(op);
        }
    }
    s.call.query_start = s.query_start.data();
    s.call.mask = s.program.data(), s.call.mask_ops = int64_t(s.program.size());
    const Mask mask(s.call);
    for (int64_t b = 0; b < RandomMask::BATCH; ++b)
        for (int64_t h = 0; h < RandomMask::HEADS; ++h)
            for (int64_t row0 = 0; row0 < s.queries; row0 += 1 + random.below(48))
                compare(s, mask, b, h, row0, std::min(s.queries, row0 + 1 + random.below(48)));
}

}  // namespace

void run() {
    for (uint64_t seed = 0; seed < uint64_t(some(400)); ++seed) check_mask(seed);
}
