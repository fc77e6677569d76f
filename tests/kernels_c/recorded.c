/* A kernel that fills records.
 *
 * @kernel
 * flags = ["-O1"]
 */
#include <stdint.h>
#include <string.h>
// @interface
typedef enum { GREEN, BLUE } colour;
typedef enum { BELOW = -1, ABOVE } level;
typedef struct {
  float x, y;
  uint8_t tag;
} point;
typedef struct {
  int8_t small;
  double wide;
  char name[6];
  uint16_t counts[2][3];
  _Bool good;
  point points[2];
  colour shade;
  level place;
  long last;
} mixed;
struct tagged {
  int32_t a;
};
typedef struct {
  int32_t a;
  int64_t *to;
} pointing;
typedef struct {
  int32_t a : 3;
} bits;
typedef union {
  int32_t a;
  float b;
} either;
typedef struct {
  either both;
} nested;
typedef struct {
  long double much;
} wide;
typedef struct {
  int32_t n;
  int32_t rest[];
} open_end;
typedef struct hidden hidden;
void fill(mixed *out);
// @end
void fill(mixed *out) {
  memset(out, 0, 2 * sizeof *out);
  mixed second = {-7,   2.5,   "five", {{1, 2, 3}, {4, 5, 65535}}, 1, {{1, 2, 3}, {4, 5, 255}},
                  BLUE, BELOW, -9};
  out[1] = second;
}
