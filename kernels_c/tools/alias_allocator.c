/*
 * An allocator for numpy's hook (NEP 49): large arrays that are alive together begin at different
 * places of a page, so that a load from one is not taken for an earlier store to another.
 *
 * It has no memory of its own. It asks the handler that it stands before (numpy's, or another) for
 * a page more and begins the array within it, so what that handler does for large arrays (huge
 * pages, a node's memory, counting) stays as it is. A page has 64 places, one in each cache line. A
 * new array gets the place that fewest have, the farthest from those taken: counting those that are
 * alive, not those that were made, keeps its promise whatever temporary arrays come and go.
 *
 * Arrays below a page are left where they come to lie: a page more would double them and worse.
 *
 * Sixteen bytes before each array say what has to be known when it is freed; numpy's own idea of an
 * array's size is not relied on, because a program may change it. Counters are atomic and nothing
 * is locked: two threads that choose at once may choose the same place, and no worse.
 *
 * Nothing is timed here. The library is never unloaded: numpy frees an array by the handler that
 * made it, which may be when Python ends.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-Wl,-z,nodelete"]
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// @interface
/* A handler that stands before another; both are a PyDataMem_Handler. NULL without memory. */
void *alias_handler(const void *inner);
/* What numpy wants the capsule of a handler to be called, for as long as the process lives. */
const char *alias_capsule_name(void);
/* How many arrays begin at each of the 64 places now. */
void alias_alive(uint32_t *counts);
// @end

enum { PAGE = 4096, LINE = 64, PLACES = PAGE / LINE, NO_PLACE = PLACES };

// As numpy's ndarraytypes.h declares them; NEP 49 lets later versions add fields behind only.
typedef struct {
  void *context;
  void *(*allocate)(void *context, size_t bytes);
  void *(*allocate_zeroed)(void *context, size_t count, size_t each);
  void *(*resize)(void *context, void *block, size_t bytes);
  void (*release)(void *context, void *block, size_t bytes);
} data_allocator;

typedef struct {
  char name[127];
  uint8_t version;
  data_allocator allocator;
} data_handler;

// What stands before an array.
typedef struct {
  uint64_t bytes; // that were asked for
  uint32_t shift; // how far the array begins from the inner handler's block
  uint32_t place;
} array_head;

_Static_assert(sizeof(array_head) == 16, "an array keeps malloc's alignment");
_Static_assert(sizeof(((data_handler *)0)->name) + 1 == 128, "as numpy lays it");

static _Atomic uint32_t alive[PLACES];

static array_head *head_of(void *array) { return (array_head *)array - 1; }

// Of the places that fewest arrays have, the farthest from those that more have.
static unsigned choose_place(void) {
  uint32_t count[PLACES], least = UINT32_MAX;
  for (unsigned i = 0; i < PLACES; i++) {
    count[i] = atomic_load_explicit(&alive[i], memory_order_relaxed);
    least = count[i] < least ? count[i] : least;
  }
  uint64_t taken = 0;
  for (unsigned i = 0; i < PLACES; i++)
    taken |= (uint64_t)(count[i] > least) << i;
  unsigned best = 0, farthest = 0;
  for (unsigned i = 0; i < PLACES && taken; i++) {
    // Seen from place i, which is bit 0 then: the nearest taken one on either side of the circle.
    uint64_t seen = taken >> i | taken << (-i & (PLACES - 1));
    unsigned above = (unsigned)__builtin_ctzll(seen), below = (unsigned)__builtin_clzll(seen) + 1;
    unsigned nearest = above < below ? above : below;
    if (nearest > farthest)
      best = i, farthest = nearest;
  }
  return best;
}

static size_t more_bytes(size_t bytes) { return bytes < PAGE ? sizeof(array_head) : PAGE; }

// Where in a block of `bytes` and more_bytes the array begins; its place counts from now on.
static void *begin_array(unsigned char *block, size_t bytes) {
  uint32_t shift = sizeof(array_head), place = NO_PLACE;
  if (block == NULL)
    return NULL;
  if (bytes >= PAGE) {
    place = choose_place();
    shift += (uint32_t)((place * LINE - (uintptr_t)(block + shift)) & (PAGE - 1));
    if (shift > PAGE) // a block that is not aligned to 16 bytes, as malloc's are
      shift -= LINE;
    atomic_fetch_add_explicit(&alive[place], 1, memory_order_relaxed);
  }
  *head_of(block + shift) = (array_head){.bytes = bytes, .shift = shift, .place = place};
  return block + shift;
}

static void *allocate(void *context, size_t bytes) {
  const data_allocator *inner = context;
  if (bytes > SIZE_MAX - PAGE)
    return NULL;
  return begin_array(inner->allocate(inner->context, bytes + more_bytes(bytes)), bytes);
}

static void *allocate_zeroed(void *context, size_t count, size_t each) {
  const data_allocator *inner = context;
  size_t bytes;
  if (__builtin_mul_overflow(count, each, &bytes) || bytes > SIZE_MAX - PAGE)
    return NULL;
  return begin_array(inner->allocate_zeroed(inner->context, 1, bytes + more_bytes(bytes)), bytes);
}

static void release(void *context, void *array, size_t numpys_bytes) {
  (void)numpys_bytes;
  const data_allocator *inner = context;
  if (array == NULL)
    return;
  array_head head = *head_of(array);
  if (head.place != NO_PLACE)
    atomic_fetch_sub_explicit(&alive[head.place], 1, memory_order_relaxed);
  inner->release(inner->context, (unsigned char *)array - head.shift,
                 head.bytes + more_bytes(head.bytes));
}

// A copy, because the inner handler may move its block to another place of a page.
static void *resize(void *context, void *array, size_t bytes) {
  void *moved = allocate(context, bytes);
  if (moved == NULL || array == NULL)
    return moved;
  size_t before = head_of(array)->bytes;
  memcpy(moved, array, before < bytes ? before : bytes);
  release(context, array, before);
  return moved;
}

void *alias_handler(const void *inner) {
  data_handler *handler = calloc(1, sizeof *handler);
  if (handler == NULL)
    return NULL;
  strcpy(handler->name, "perflib_alias_free");
  handler->version = 1;
  handler->allocator = (data_allocator){
      .context = (void *)&((const data_handler *)inner)->allocator,
      .allocate = allocate,
      .allocate_zeroed = allocate_zeroed,
      .resize = resize,
      .release = release,
  };
  return handler;
}

const char *alias_capsule_name(void) { return "mem_handler"; }

void alias_alive(uint32_t *counts) {
  for (unsigned i = 0; i < PLACES; i++)
    counts[i] = atomic_load_explicit(&alive[i], memory_order_relaxed);
}
