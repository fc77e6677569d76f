// C functions that a user may have swept over the distance of their arrays.
#include <stdlib.h>

void twice(int n, const float *in, float *out) {
  for (int i = 0; i < n; i++)
    out[i] = 2 * in[i];
}

double total(const double *in, double *out, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++)
    sum += out[i] = in[i];
  return sum;
}

void breaks_down(const float *in, float *out) {
  (void)in, (void)out;
  abort();
}
