// A library of another processor, for tests on this one: under an emulator it answers requests of
// the standard input on the standard output. A request is a letter, two words, and what follows:
//   W address bytes, the bytes: write memory
//   R address bytes: read it
//   C bytes real, the function's name, 8 integers, 8 doubles, and 8 integers for the stack: call
//   it;
//     it returns an integer or (real) a double
// On aarch64 the first 8 integers and the first 8 doubles are in registers, in whatever order they
// are declared. The first answer is the address of free memory, for arguments.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define INTEGERS uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define DOUBLES double, double, double, double, double, double, double, double
#define EIGHT(x) x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]

static void take(void *to, size_t bytes) {
  if (fread(to, 1, bytes, stdin) != bytes)
    exit(0); // the tests are over
}

static void give(const void *from, size_t bytes) {
  if (fwrite(from, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
    exit(1);
}

static void call(void *library, uint64_t bytes, uint64_t real) {
  char name[256] = {0};
  struct {
    uint64_t whole[8];
    double real[8];
    uint64_t stack[8];
  } given;
  take(name, bytes);
  take(&given, sizeof given);
  void *function = dlsym(library, name);
  union {
    uint64_t whole;
    double real;
  } answer;
  if (real)
    answer.real = ((double (*)(INTEGERS, DOUBLES, INTEGERS))function)(
        EIGHT(given.whole), EIGHT(given.real), EIGHT(given.stack));
  else
    answer.whole = ((uint64_t (*)(INTEGERS, DOUBLES, INTEGERS))function)(
        EIGHT(given.whole), EIGHT(given.real), EIGHT(given.stack));
  give(&answer, sizeof answer);
}

int main(int count, char **words) {
  void *library = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void *room = aligned_alloc(4096, 64 << 20);
  give(&room, sizeof room);
  for (;;) {
    char what;
    uint64_t of[2];
    take(&what, 1);
    take(of, sizeof of);
    if (what == 'W')
      take((void *)of[0], of[1]);
    else if (what == 'R')
      give((void *)of[0], of[1]);
    else
      call(library, of[0], of[1]);
  }
}
