/* Where its own functions and data are, and what is mapped. */
#include <stdio.h>
#include <string.h>
char zeroed[5000];
int filled[4] = {1, 2, 3, 4};
static int hidden = 7;
static __attribute__((noinline)) int inner(int x) { return x * hidden; }
int outer(int x) { return inner(x) + 1; }
int alias(int x) __attribute__((alias("outer")));
int main(void) {
  char line[400];
  printf("%p %p %p %p %p %p %p\n", (void *)&inner, (void *)&outer, (void *)&main, (void *)zeroed,
         (void *)filled, (void *)&hidden, (void *)&strlen);
  fflush(stdout);
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps))
    fputs(line, stdout);
  return 0;
}
