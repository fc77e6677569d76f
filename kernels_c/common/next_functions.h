/* next_functions: the functions that stand behind a preloaded library's own of the same names.
 *
 * Before it, NEXT_FUNCTIONS(X) lists them; then next.NAME_ is each, once RESOLVED().
 */
#ifndef PERFLIB_NEXT_FUNCTIONS_H
#define PERFLIB_NEXT_FUNCTIONS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define NEXT_DECLARE(name) __typeof__(&name) name##_;
static struct {
  NEXT_FUNCTIONS(NEXT_DECLARE)
} next;
static atomic_int next_resolved;
static __thread int next_resolving;

// Condition variables have two versions, and without a version the old one may be found.
static void *next_find(const char *name) {
  void *found = NULL;
  if (strncmp(name, "pthread_cond_", 13) == 0)
    found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  return found != NULL ? found : dlsym(RTLD_NEXT, name);
}

// false: called from within itself (an allocator that dlsym() uses takes a lock). That is before
// any other thread is there, so a lock needs no taking.
static bool next_resolve(void) {
  if (next_resolving)
    return false;
  next_resolving = 1;
#define NEXT_FIND(name)                                                                            \
  {                                                                                                \
    void *found = next_find(#name);                                                                \
    memcpy(&next.name##_, &found, sizeof found);                                                   \
  }
  NEXT_FUNCTIONS(NEXT_FIND)
  atomic_store(&next_resolved, 1);
  next_resolving = 0;
  return true;
}

#define RESOLVED() (atomic_load_explicit(&next_resolved, memory_order_acquire) || next_resolve())

#endif
