/*
 * Calls each copy of a repeated function: for the tests of perflib.copies.
 *
 * @kernel
 * flags = ["-O2"]
 * copied = "copied_part.inc"
 */
#include <stdint.h>

// @interface
int64_t copied_count_of_copies(void);
int64_t copied_bytes(void);
double copied_step_of(int64_t copy, int32_t which, double value);
int64_t copied_address(int64_t copy);
const char *copied_name_of(int64_t copy);
// @end

typedef double step(int32_t which, double value, const char **name);
extern step *const copied_step_copies[];
extern const int64_t copied_step_count;
extern const char copied_step_begin[], copied_step_end[];

int64_t copied_count_of_copies(void) { return copied_step_count; }

int64_t copied_bytes(void) { return copied_step_end - copied_step_begin; }

double copied_step_of(int64_t copy, int32_t which, double value) {
  return copied_step_copies[copy](which, value, 0);
}

int64_t copied_address(int64_t copy) { return (int64_t)copied_step_copies[copy]; }

const char *copied_name_of(int64_t copy) {
  const char *name = 0;
  copied_step_copies[copy](0, 0, &name);
  return name;
}
