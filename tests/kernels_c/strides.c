/* Two functions with known accesses, for the simulators: loads of one line after the other, TURNS
   times over, and as many loads of one line. */

static volatile char array[LINES * 64] __attribute__((aligned(4096)));

__attribute__((noinline)) void every_line(void) {
  for (int turn = 0; turn < TURNS; ++turn) {
    for (int line = 0; line < LINES; ++line) {
      (void)array[line * 64];
    }
  }
}

__attribute__((noinline)) void one_line(void) {
  for (int turn = 0; turn < TURNS * LINES; ++turn) {
    (void)array[turn % 64];
  }
}

int main(void) {
  every_line();
  one_line();
  return 0;
}
