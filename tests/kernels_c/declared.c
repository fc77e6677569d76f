/*
 * Says how it was compiled: for the tests of flags, variants and programs.
 *
 * @kernel
 * flags = ["-O2", "-DLEVEL=2"]
 * link = ["-lm"]
 * [variants.slow]
 * flags = ["-O0", "-DLEVEL=0"]
 * [variants.static]
 * link = ["-lm", "-Wl,-z,now"]
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

// @interface
int64_t declared_level(void);
int64_t declared_optimised(void);
double declared_root(double value);
// @end

int64_t declared_level(void) { return LEVEL; }

int64_t declared_optimised(void) {
#ifdef __OPTIMIZE__
  return 1;
#else
  return 0;
#endif
}

double declared_root(double value) { return sqrt(value); }

#ifdef PERFLIB_MAIN
int main(int count, char **words) {
  printf("level %d of %s\n", LEVEL, count > 1 ? words[1] : "nothing");
  return 3;
}
#endif
