// A BLAS that uses a thread of its own whatever it is told: to be found out.
#include <pthread.h>
#include <stdint.h>

typedef struct {
  int order;
  int64_t n;
  const double *a, *x;
  double *y;
} product;

static void *multiply(void *context) {
  const product *p = context;
  for (int64_t row = 0; row < p->n; row++) {
    p->y[row] = 0;
    for (int64_t column = 0; column < p->n; column++)
      p->y[row] += p->a[p->order == 102 ? column * p->n + row : row * p->n + column] * p->x[column];
  }
  return NULL;
}

void cblas_dgemv(int order, int transposition, int rows, int columns, double alpha, const double *a,
                 int lda, const double *x, int x_step, double beta, double *y, int y_step) {
  (void)transposition, (void)columns, (void)alpha, (void)lda, (void)x_step, (void)beta,
      (void)y_step;
  product wanted = {order, rows, a, x, y};
  pthread_t other;
  if (pthread_create(&other, NULL, multiply, &wanted) == 0)
    pthread_join(other, NULL);
}
