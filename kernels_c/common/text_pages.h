// Puts a range of running text on pages of a chosen kind, again and again, and never unmaps it.
//
// A copy is built beside the text, on the pages that are wanted, and then takes the text's place by
// one mremap(). The kernel replaces the old pages by the new ones while it holds the lock of the
// address space: a thread that runs there, or a signal handler that returns there, waits for that
// lock and goes on in the same bytes. (Tools that unmap first and map again crash in between.)
// What is here must lie outside of the range, or its own pages would be part of what is measured.
#ifndef TEXT_PAGES_H
#define TEXT_PAGES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mremap
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_HUGE ((size_t)2 << 20)
#define TEXT_GIGANTIC ((size_t)1 << 30)
#define TEXT_PAGE ((size_t)4096)

// Newer than the headers of some systems that can do it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

// The last one is for data only: no code here is as large.
enum {
  TEXT_LOADED,
  TEXT_4K,
  TEXT_THP,
  TEXT_COLLAPSE,
  TEXT_HUGETLB,
  TEXT_HUGETLB_1G,
  TEXT_BACKINGS
};
enum { TEXT_ARGUMENT = 1, TEXT_MAP, TEXT_ADVISE, TEXT_COLLAPSING, TEXT_PROTECT, TEXT_MOVE };

// Writes all of the copy; no page may stay zero (it could be the one that all processes share).
typedef void text_fill(unsigned char *copy, size_t bytes, const void *context);

static inline int64_t text_failed(int stage, int error) { return stage * 65536 + error; }

static inline size_t text_round_up(size_t bytes) { return (bytes + TEXT_HUGE - 1) & -TEXT_HUGE; }

// What a mapping of so many bytes takes on pages of a backing.
static inline size_t text_room(size_t bytes, int backing) {
  size_t page = backing == TEXT_HUGETLB_1G ? TEXT_GIGANTIC : TEXT_HUGE;
  return (bytes + page - 1) & -page;
}

// splitmix64: any seed will do, also 0.
static inline uint64_t text_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

static inline uint32_t text_random_below(uint64_t *state, uint32_t n) {
  return (uint32_t)((text_random(state) >> 32) * n >> 32);
}

static inline void text_shuffle(uint32_t *numbers, uint32_t n, uint64_t *state) {
  for (uint32_t i = 0; i < n; i++)
    numbers[i] = i;
  for (uint32_t i = n; i > 1; i--) {
    uint32_t j = text_random_below(state, i), kept = numbers[i - 1];
    numbers[i - 1] = numbers[j];
    numbers[j] = kept;
  }
}

// Anonymous memory aligned to 2 MiB; NULL, and errno, if there is none.
static inline unsigned char *text_map(size_t bytes, int protection) {
  unsigned char *all =
      mmap(NULL, bytes + TEXT_HUGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED)
    return NULL;
  size_t before = -(uintptr_t)all & (TEXT_HUGE - 1);
  if (before > 0)
    munmap(all, before);
  munmap(all + before + bytes, TEXT_HUGE - before);
  return all + before;
}

// Room for so many bytes that can be written to; NULL, and errno, if there is none.
static inline unsigned char *text_map_for(size_t bytes, int backing) {
  size_t room = text_room(bytes, backing);
  if (backing != TEXT_HUGETLB && backing != TEXT_HUGETLB_1G)
    return text_map(room, PROT_READ | PROT_WRITE);
  int size = backing == TEXT_HUGETLB ? 21 : 30; // log2 of the page's bytes
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | size << MAP_HUGE_SHIFT;
  unsigned char *all = mmap(NULL, room, PROT_READ | PROT_WRITE, flags, -1, 0);
  return all == MAP_FAILED ? NULL : all;
}

// Touches each page for the first time, in random order. The kernel hands out pages in runs, and a
// core may hold physically neighbouring 4 KiB pages in one entry of its TLB (AMD since Zen does):
// pages touched in order would reach further or less far by chance.
static inline int text_touch_shuffled(unsigned char *copy, size_t bytes, uint64_t seed) {
  uint32_t pages = (uint32_t)(bytes / TEXT_PAGE);
  uint32_t *order = malloc(pages * sizeof *order);
  if (order == NULL)
    return ENOMEM;
  text_shuffle(order, pages, &seed);
  for (uint32_t i = 0; i < pages; i++)
    *(volatile unsigned char *)(copy + order[i] * TEXT_PAGE) = 0xcc;
  free(order);
  return 0;
}

// Gathers what was copied to 4 KiB pages in huge ones; works also where THP is "never".
static inline int text_collapse(unsigned char *copy, size_t bytes) {
  for (int tries = 0; madvise(copy, bytes, MADV_COLLAPSE) != 0; tries++) {
    if (errno != EAGAIN || tries == 9) // a page was held for a moment
      return errno;
    sched_yield();
  }
  return 0;
}

// Fresh memory comes to lie on the pages that are wanted, with what is to be in it: 0, or what
// failed. It can still be written to.
static inline int64_t text_fill_copy(unsigned char *copy, size_t bytes, int backing, uint64_t seed,
                                     text_fill *fill, const void *context) {
  if (backing == TEXT_4K || backing == TEXT_THP) {
    if (madvise(copy, bytes, backing == TEXT_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0 &&
        (backing == TEXT_THP || errno != EINVAL)) // no THP in this kernel: none to be told off
      return text_failed(TEXT_ADVISE, errno);
  }
  // A page that the pool has, but this process may not take, would be a SIGBUS when it is touched.
  if (backing >= TEXT_HUGETLB && madvise(copy, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    return text_failed(TEXT_MAP, errno);
  int error = backing == TEXT_4K ? text_touch_shuffled(copy, bytes, seed) : 0;
  if (error != 0)
    return text_failed(TEXT_MAP, error);
  fill(copy, bytes, context);
  if (backing == TEXT_COLLAPSE && (error = text_collapse(copy, bytes)) != 0)
    return text_failed(TEXT_COLLAPSING, error);
  return 0;
}

// Fresh memory becomes the finished copy of a text: 0, or what failed.
static inline int64_t text_finish_copy(unsigned char *copy, size_t bytes, int backing,
                                       uint64_t seed, text_fill *fill, const void *context) {
  int64_t failed = text_fill_copy(copy, bytes, backing, seed, fill, context);
  if (!failed) // instructions that were written are fetched (nothing to do on x86-64)
    __builtin___clear_cache((char *)copy, (char *)copy + bytes);
  if (!failed && mprotect(copy, text_room(bytes, backing), PROT_READ | PROT_EXEC) != 0)
    failed = text_failed(TEXT_PROTECT, errno);
  return failed;
}

// Puts bytes (a multiple of 2 MiB) at target (aligned to 2 MiB, mapped) on pages of a backing other
// than TEXT_LOADED. 0, or stage * 65536 + errno: then the target is as it was.
static inline int64_t text_lay(unsigned char *target, size_t bytes, int backing, uint64_t seed,
                               text_fill *fill, const void *context) {
  unsigned char *copy = text_map_for(bytes, backing);
  if (copy == NULL)
    return text_failed(TEXT_MAP, errno);
  int64_t failed = text_finish_copy(copy, bytes, backing, seed, fill, context);
  // The move is rehearsed: kernels before 5.16 cannot move pages of the pool, but find out only
  // after they have unmapped the target.
  unsigned char *aside = failed ? NULL : text_map(bytes, PROT_NONE);
  if (!failed && aside == NULL)
    failed = text_failed(TEXT_MAP, errno);
  int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (!failed && mremap(copy, bytes, bytes, flags, aside) == MAP_FAILED)
    failed = text_failed(TEXT_MOVE, errno);
  else if (!failed)
    copy = NULL;
  if (!failed && mremap(aside, bytes, bytes, flags, target) == MAP_FAILED) {
    failed = text_failed(TEXT_MOVE, errno);
  } else if (!failed) {
    aside = NULL;
    __builtin___clear_cache((char *)target, (char *)target + bytes);
  }
  if (copy != NULL)
    munmap(copy, bytes);
  if (aside != NULL)
    munmap(aside, bytes);
  return failed;
}

// --- the file that the loader mapped there -----------------------------------------------------

typedef struct {
  int known;
  int descriptor;
  unsigned char *begin; // of the part of the file that is mapped there
  off_t offset;
} text_file;

// Finds and opens the file behind an address, to be able to return to it: 0 or errno.
static inline int text_file_find(text_file *file, const unsigned char *address) {
  if (file->known)
    return 0;
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == NULL)
    return errno;
  char *line = NULL;
  size_t size = 0;
  int error = ENOENT;
  while (getline(&line, &size, maps) > 0) {
    uintptr_t begin, end;
    uint64_t offset, inode;
    int path = 0;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %" SCNu64 " %n", &begin, &end,
               &offset, &inode, &path) < 4 ||
        (uintptr_t)address < begin || (uintptr_t)address >= end)
      continue;
    line[strcspn(line, "\n")] = '\0';
    struct stat found;
    int descriptor = line[path] == '/' ? open(line + path, O_RDONLY | O_CLOEXEC) : -1;
    if (descriptor < 0) {
      error = line[path] == '/' ? errno : ENOENT;
    } else if (fstat(descriptor, &found) != 0 || (uint64_t)found.st_ino != inode) {
      error = ESTALE; // another file has its name by now
      close(descriptor);
    } else {
      *file = (text_file){1, descriptor, (unsigned char *)begin, (off_t)offset};
      error = 0;
    }
    break;
  }
  free(line);
  fclose(maps);
  return error;
}

// The text as the loader mapped it, again: 0, or stage * 65536 + errno.
static inline int64_t text_reload(const text_file *file, unsigned char *target, size_t bytes) {
  if (!file->known)
    return text_failed(TEXT_MAP, ENOENT);
  off_t offset = file->offset + (target - file->begin);
  void *got =
      mmap(target, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file->descriptor, offset);
  return got == MAP_FAILED ? text_failed(TEXT_MAP, errno) : 0;
}

#endif
