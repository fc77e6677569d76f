/* A kernel whose variant has pieces.
 * @kernel
 * flags = ["-O1"]
 * [variants.large]
 * flags = ["-O1", "-DLARGE"]
 * [variants.large.pieces]
 * file = "large_piece.inc"
 * count = 5
 * flags = ["-O0"]
 */
// @interface
int large_numbers(int *out);
// @end
#ifdef LARGE
extern const int __start_numbers[] __attribute__((visibility("hidden")));
extern const int __stop_numbers[] __attribute__((visibility("hidden")));
#else
static const int __start_numbers[1], *__stop_numbers = __start_numbers;
#endif
int large_numbers(int *out) {
  int count = 0;
  for (const int *number = __start_numbers; number != __stop_numbers; number++)
    out[count++] = *number;
  return count;
}
