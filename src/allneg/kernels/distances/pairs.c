/* Distances of every query to some rows, and the gradients of both: see compiled.py.

   A tile of rows is copied so that it stays in the first-level cache, and compared with all
   queries. The inner loops have a fixed length over contiguous numbers, so that a compiler can
   vectorise them without changing the order of any sum. A step is the distance of two rows. */

#include <math.h>

/* At least 32: gcc unrolls a shorter loop before it looks for vectors, and then finds none. */
#define ROWS 64    /* of a tile of scores, side by side in the vectors */
#define COLUMNS 64 /* of a tile of scores; HALF as many complex ones */
#define HALF (COLUMNS / 2)
#define SPAN 32    /* coordinates of a tile of gradients, side by side in the vectors */
#define PULLED 64  /* rows of a tile of gradients */

#define TINY 1e-36f /* a square below it counts as 0: its digits are lost in float32 */

static long least(long a, long b) { return a < b ? a : b; }

/* Some coordinates of some rows, column by column, with zeros up to ROWS. */
static void turn(float out[][ROWS], const float *rows, long step, long count, long width)
{
    for (long t = 0; t < ROWS; t++)
        for (long k = 0; k < width; k++)
            out[k][t] = t < count ? rows[t * step + k] : 0;
}

/* Some coordinates of some rows, with zeros up to SPAN: equal coordinates have gradient 0. */
static void pack(float out[][SPAN], const float *rows, long step, long count, long width)
{
    for (long t = 0; t < count; t++)
        for (long k = 0; k < SPAN; k++)
            out[t][k] = k < width ? rows[t * step + k] : 0;
}

/* out[b][n] -= sum_k |query[b][k] - table[n][k]| */
void l1_scores(const float *query, long q_step, const float *table, long t_step, float *out,
               long o_step, long n_queries, long n_rows, long width)
{
    float column[COLUMNS][ROWS];
    for (long n = 0; n < n_rows; n += ROWS) {
        long count = least(ROWS, n_rows - n);
        for (long k0 = 0; k0 < width; k0 += COLUMNS) {
            long some = least(COLUMNS, width - k0);
            turn(column, table + n * t_step + k0, t_step, count, some);
            for (long b = 0; b < n_queries; b++) {
                const float *q = query + b * q_step + k0;
                float sum[ROWS] = {0}, *to = out + b * o_step + n;
                for (long k = 0; k < some; k++)
                    for (long t = 0; t < ROWS; t++)
                        sum[t] += fabsf(q[k] - column[k][t]);
                for (long t = 0; t < count; t++)
                    to[t] -= sum[t];
            }
        }
    }
}

/* The same for complex coordinates: a row holds `dim` real parts, then `dim` imaginary ones. */
void modulus_scores(const float *query, long q_step, const float *table, long t_step, float *out,
                    long o_step, long n_queries, long n_rows, long dim)
{
    float re[HALF][ROWS], im[HALF][ROWS];
    for (long n = 0; n < n_rows; n += ROWS) {
        long count = least(ROWS, n_rows - n);
        for (long k0 = 0; k0 < dim; k0 += HALF) {
            long some = least(HALF, dim - k0);
            turn(re, table + n * t_step + k0, t_step, count, some);
            turn(im, table + n * t_step + dim + k0, t_step, count, some);
            for (long b = 0; b < n_queries; b++) {
                const float *q = query + b * q_step + k0;
                float sum[ROWS] = {0}, *to = out + b * o_step + n;
                for (long k = 0; k < some; k++)
                    for (long t = 0; t < ROWS; t++) {
                        float x = q[k] - re[k][t], y = q[dim + k] - im[k][t];
                        sum[t] += sqrtf(x * x + y * y);
                    }
                for (long t = 0; t < count; t++)
                    to[t] -= sum[t];
            }
        }
    }
}

/* From d/d scores: d/d query is added to `to_query`, d/d table written to `to_table`. */
void l1_gradients(const float *grad, long g_step, const float *query, long q_step,
                  const float *table, long t_step, float *to_query, float *to_table,
                  long n_queries, long n_rows, long width)
{
    float row[PULLED][SPAN], pulled[PULLED][SPAN], q[1][SPAN];
    for (long n = 0; n < n_rows; n += PULLED) {
        long count = least(PULLED, n_rows - n);
        for (long k0 = 0; k0 < width; k0 += SPAN) {
            long some = least(SPAN, width - k0);
            pack(row, table + n * t_step + k0, t_step, count, some);
            for (long t = 0; t < count; t++)
                for (long k = 0; k < SPAN; k++)
                    pulled[t][k] = 0;
            for (long b = 0; b < n_queries; b++) {
                const float *g = grad + b * g_step + n;
                float sum[SPAN] = {0};
                pack(q, query + b * q_step + k0, 0, 1, some);
                for (long t = 0; t < count; t++) {
                    float slope = g[t];
                    for (long k = 0; k < SPAN; k++) {
                        float apart = q[0][k] - row[t][k];
                        float pull = (apart > 0 ? slope : 0) - (apart < 0 ? slope : 0);
                        sum[k] += pull;
                        pulled[t][k] += pull;
                    }
                }
                for (long k = 0; k < some; k++)
                    to_query[b * width + k0 + k] -= sum[k];
            }
            for (long t = 0; t < count; t++)
                for (long k = 0; k < some; k++)
                    to_table[(n + t) * width + k0 + k] = pulled[t][k];
        }
    }
}

/* The same for complex coordinates. */
void modulus_gradients(const float *grad, long g_step, const float *query, long q_step,
                       const float *table, long t_step, float *to_query, float *to_table,
                       long n_queries, long n_rows, long dim)
{
    float re[PULLED][SPAN], im[PULLED][SPAN], to_re[PULLED][SPAN], to_im[PULLED][SPAN];
    float q_re[1][SPAN], q_im[1][SPAN];
    for (long n = 0; n < n_rows; n += PULLED) {
        long count = least(PULLED, n_rows - n);
        for (long k0 = 0; k0 < dim; k0 += SPAN) {
            long some = least(SPAN, dim - k0);
            pack(re, table + n * t_step + k0, t_step, count, some);
            pack(im, table + n * t_step + dim + k0, t_step, count, some);
            for (long t = 0; t < count; t++)
                for (long k = 0; k < SPAN; k++)
                    to_re[t][k] = to_im[t][k] = 0;
            for (long b = 0; b < n_queries; b++) {
                const float *g = grad + b * g_step + n;
                float sum_re[SPAN] = {0}, sum_im[SPAN] = {0};
                pack(q_re, query + b * q_step + k0, 0, 1, some);
                pack(q_im, query + b * q_step + dim + k0, 0, 1, some);
                for (long t = 0; t < count; t++) {
                    float slope = g[t];
                    for (long k = 0; k < SPAN; k++) {
                        float x = q_re[0][k] - re[t][k], y = q_im[0][k] - im[t][k];
                        float square = x * x + y * y, share = slope / sqrtf(square);
                        share = square < TINY ? 0 : share;
                        sum_re[k] += x * share;
                        sum_im[k] += y * share;
                        to_re[t][k] += x * share;
                        to_im[t][k] += y * share;
                    }
                }
                for (long k = 0; k < some; k++) {
                    to_query[b * 2 * dim + k0 + k] -= sum_re[k];
                    to_query[b * 2 * dim + dim + k0 + k] -= sum_im[k];
                }
            }
            for (long t = 0; t < count; t++)
                for (long k = 0; k < some; k++) {
                    to_table[(n + t) * 2 * dim + k0 + k] = to_re[t][k];
                    to_table[(n + t) * 2 * dim + dim + k0 + k] = to_im[t][k];
                }
        }
    }
}
