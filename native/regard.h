/* The plain C interface of the native core. It knows neither torch nor Python.
 *
 * Strides count elements. Heads are numbered over all query heads; query head h reads key head h / group.
 * The arithmetic's precision is float for 16- and 32-bit inputs and double for 64-bit ones; tables, lse and
 * statistics are in that precision. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define REGARD_API __declspec(dllexport)
#else
#define REGARD_API __attribute__((visibility("default")))
#endif

enum regard_dtype { REGARD_F32 = 0, REGARD_F64 = 1, REGARD_BF16 = 2, REGARD_F16 = 3 };

/* Score of a query and a key: the dot product q.k, or the additive score v.phi(q + k) with one weight v per unit and
 * query head, phi being one of the activations. For additive scores d_key is a multiple of 4, weights are at most 1 in
 * size (scale has the rest) and inputs are not 16-bit. */
enum regard_form { REGARD_PRODUCT = 0, REGARD_TANH = 1, REGARD_SIGMOID = 2, REGARD_RELU = 3, REGARD_GELU = 4 };

enum regard_status {
    REGARD_DONE = 0,
    REGARD_NO_MEMORY = 2,
    REGARD_NOT_FINITE =
        3,             /* forward: a query or key is not finite, or a result is not; what was written is not valid */
    REGARD_STOPPED = 4 /* `stop` was set; what was written is not valid */
};

typedef struct {
    void* data;
    int64_t batch, head, row, column;
} regard_tensor;

enum regard_mask_code {
    REGARD_WINDOW = 1,    /* i - a <= j <= i + b */
    REGARD_DILATED = 2,   /* |i - j| <= a and (i - j) % b == 0 */
    REGARD_BELOW = 3,     /* j < data[batch] */
    REGARD_GLOBAL = 4,    /* i or j among the sorted positions data[0 .. a) */
    REGARD_DOCUMENTS = 5, /* key_ids (data) equal query_ids (data2); spans (data3): first, past, solid per query row */
    REGARD_BLOCKS = 6,    /* layout (data, bytes) at [i / a, j / a] */
    REGARD_DENSE = 7,     /* bytes (data) at [row, column] */
    REGARD_AND = 10,
    REGARD_OR = 11,
    REGARD_NOT = 12
};

/* One step of a mask in postfix order. */
typedef struct {
    int64_t code, a, b;
    const void *data, *data2, *data3;
    int64_t batch, head, row, column; /* strides of data (DOCUMENTS: batch strides of data, data2 and data3) */
} regard_mask_op;

typedef struct {
    int64_t dtype, batch, kv_heads, group, queries, keys, d_key, d_value, threads;
    const volatile int32_t* stop; /* set by another thread to end the call early; may be null */
    int64_t* progress; /* units done of the current step, and all its units, for another thread to read; may be null */
    regard_tensor query, key, value;
    int64_t form;
    const void* v;           /* (head, d_key), for additive scores */
    double scale, cap;       /* score = scale * q.k, then cap * tanh(score / cap) unless cap is 0; scale is above 0 */
    const void* temperature; /* one per query head, or null for 1 */
    const void* sink;        /* a logit without a key, one per query head, not divided by the temperature; or null */
    const int64_t* query_start; /* one per batch row */
    int64_t key_start;
    const regard_mask_op* mask;
    int64_t mask_ops;
    const void* slopes;       /* ALiBi: -slope * |i - j|, one per query head, or null */
    const void* offset_table; /* (heads or 1, 2 * reach + 1) over clip(j - i, -reach, reach) + reach, or null */
    int64_t reach, offset_heads;
    regard_tensor dense_bias; /* in the arithmetic's precision; data null if none */
    uint64_t seed;
    uint32_t drop_below; /* dropped if the pair's number is below; 0 = no dropout */
    double keep_scale;
    /* Results, contiguous, in the arithmetic's precision, written unless null: out (batch, head, query, d_value), the
     * others without d_value. row_max is the row's largest logit, before the temperature, and row_sum = sum of
     * exp((logit - row_max) / temperature). peak is the largest weight and peak_at its key column, distance the mean
     * |i - j|. Backward reads out, row_max and row_sum, peak_at if given and, with grad_entropy, entropy. */
    void *out, *lse, *row_max, *row_sum, *entropy, *peak, *distance, *max_logit;
    int64_t* peak_at;
    /* Backward: incoming gradients, in the arithmetic's precision, and results. grad_query, grad_key and grad_value are
     * contiguous and shaped like their inputs, the tables like theirs; grad_dense has its own strides, 0 along an axis
     * that is summed, and starts at 0. Null if not wanted, except for the first three. */
    regard_tensor grad_out;
    const void *grad_lse, *grad_entropy;
    void *grad_query, *grad_key, *grad_value, *grad_temperature, *grad_sink, *grad_offset_table, *grad_v;
    regard_tensor grad_dense;
    /* Second pass: reads row_max and row_sum of the rows (and distance, for spread) and sums the weights.
     *   received (batch, head, key)      sum of weights over queries
     *   spread (batch, head, query)      sum over keys of weight * (|i - j| - distance)^2
     *   weight_sum (batch, head, query)  sum of weights over keys; written with spread
     *   pool_* (batch, head, pool_rows, pool_columns), if pool_rows is above 0: sum, largest weight and number of
     *     visible pairs in each cell of a grid; they start at 0, and a cell starts at row (or column)
     *     cell * count / cells
     *   tile (batch, head, tile_rows, tile_columns): the weights of some rows and columns, and nothing else; hidden
     *     pairs are left as they are */
    void* tile;
    int64_t tile_row, tile_rows, tile_column, tile_columns;
    void *received, *spread, *weight_sum;
    int64_t pool_rows, pool_columns;
    double *pool_sum, *pool_max;
    int64_t* pool_pairs;
} regard_call;

/* c = a . b, matrices (batch, head, rows, depth), (…, depth, columns) and (…, rows, columns), float or double. A stride
 * of 0 along the batch or the heads of c sums over them; its rows are contiguous. */
typedef struct {
    int64_t dtype, batch, heads, rows, depth, columns, threads;
    regard_tensor a, b, c;
} regard_product;

/* A kind of keys: those whose id is the query's. Ids are below `ids`; a negative one equals no other. */
typedef struct {
    const int64_t *key_ids, *query_ids; /* (batch, key) and (batch, query) */
    int64_t key_batch, query_batch;     /* their strides along the batch, 0 if all batch rows share them */
    int64_t ids;
    int64_t excludes, excluded; /* if `excludes` is not 0, the key at j = i + excluded is left out */
} regard_kind;

/* What the head pass gives, from row_max and row_sum of the rows: sums over the weights of all heads,
 *   products (batch, head, head)        sum over all pairs of the product of two heads' weights; or null
 *   shares (kind, batch, head, query)   sum over the keys of a kind of the row's weights; they start at 0
 * or, if `weights` is not null, the weights of some rows in ascending order and of some columns, and no sums:
 *   weights (batch, head, row_count, columns)   in the arithmetic's precision, weights_batch apart along the batch; 0
 *     where a pair is hidden */
typedef struct {
    double* products;
    const regard_kind* kinds;
    int64_t kind_count;
    double* shares;
    void* weights;
    int64_t weights_batch;
    const int64_t* rows;
    int64_t row_count, column, columns;
} regard_head_sums;

REGARD_API int regard_forward(const regard_call* call);
REGARD_API int regard_backward(const regard_call* call);
REGARD_API int regard_second_pass(const regard_call* call);
REGARD_API int regard_head_pass(const regard_call* call, const regard_head_sums* sums);
REGARD_API int regard_multiply(const regard_product* product);
/* Number of pairs whose logit the forward pass computes, and bytes of workspace that it needs. */
REGARD_API int regard_plan(const regard_call* call, int64_t* pairs, int64_t* bytes);
REGARD_API int64_t regard_workspace(void); /* bytes that the calling thread keeps for its next calls */
/* Most bytes of workspace that calls and plans of the calling thread have needed since the last call of this. */
REGARD_API int64_t regard_workspace_peak(void);
/* Run on the threads of an OpenMP runtime, given its GOMP_parallel; only for the first thread that calls from now on.
 * Null turns it off. */
REGARD_API void regard_use_team(void* gomp_parallel);
REGARD_API const char* regard_isa(void); /* the instruction set in use */

/* Machine limits for benchmarks: float operations per second of multiply-adds in registers, and bytes per second of
 * reading `data` once; both on `threads` threads at once. */
REGARD_API double regard_fma_peak(int64_t threads, double seconds);
REGARD_API double regard_read_bandwidth(const void* data, int64_t bytes, int64_t threads);

#ifdef __cplusplus
}
#endif
