/* Stands before the C library: from when it is armed, some calls of one function fail. A failing
 * mremap() of mode 1 has unmapped its target first, as kernels before 5.16 do for pages of the
 * pool. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
static const char *armed = "";
static int passing, failing, error, mode;
void arm(const char *name, int pass, int fail, int number, int how) {
  armed = name;
  passing = pass;
  failing = fail;
  error = number;
  mode = how;
}
int left(void) { return failing; }
static int fails(const char *name) {
  if (strcmp(name, armed) != 0 || passing-- > 0 || failing <= 0)
    return 0;
  failing--;
  errno = error;
  return 1;
}
int madvise(void *at, size_t bytes, int advice) {
  if (fails(advice == 25 ? "collapse" : "madvise"))
    return -1;
  return ((int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise"))(at, bytes, advice);
}
int mprotect(void *at, size_t bytes, int rights) {
  if (fails("mprotect"))
    return -1;
  return ((int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "mprotect"))(at, bytes, rights);
}
void *mremap(void *from, size_t old, size_t bytes, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void *to = va_arg(rest, void *);
  va_end(rest);
  if (fails("mremap")) {
    if (mode == 1) {
      munmap(to, bytes);
      errno = error;
    }
    return MAP_FAILED;
  }
  return ((void *(*)(void *, size_t, size_t, int, ...))dlsym(RTLD_NEXT, "mremap"))(from, old, bytes,
                                                                                   flags, to);
}
