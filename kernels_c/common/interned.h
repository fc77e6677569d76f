// Different keys, each kept once under a number, and arrays that grow.
#ifndef INTERNED_H
#define INTERNED_H

#include "words.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Different keys, numbered from 0 in the order of their first sight; open addressing. */
typedef struct {
  char *bytes;
  size_t used, bytes_room;
  size_t *ends;
  uint64_t *hashes;
  size_t n, n_room;
  int32_t *slots; /* number + 1; 0: free */
  size_t n_slots;
} table;

/* Room for `needed` elements; what is there stays. */
static int grow(int *no_memory, void *array, size_t *room, size_t needed, size_t size) {
  if (needed <= *room)
    return 1;
  size_t more = *room + *room / 2 < needed ? needed + 64 : *room + *room / 2;
  void *old, *bigger;
  memcpy(&old, array, sizeof old);
  bigger = realloc(old, more * size);
  if (bigger == NULL) {
    *no_memory = 1;
    return 0;
  }
  memcpy(array, &bigger, sizeof bigger);
  *room = more;
  return 1;
}

static uint64_t hash_of(const char *at, size_t n) {
  uint64_t hash = n * 0x9e3779b97f4a7c15u, word;
  for (; n >= 8; at += 8, n -= 8) {
    memcpy(&word, at, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  word = 0;
  if (n > 0)
    memcpy(&word, at, n);
  hash = (hash ^ word) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 29);
}

static int rehash(int *no_memory, table *t) {
  size_t n_slots = t->n_slots ? 2 * t->n_slots : 64;
  int32_t *slots = calloc(n_slots, sizeof *slots);
  if (slots == NULL) {
    *no_memory = 1;
    return 0;
  }
  for (size_t i = 0; i < t->n; i++) {
    size_t slot = t->hashes[i] & (n_slots - 1);
    while (slots[slot])
      slot = (slot + 1) & (n_slots - 1);
    slots[slot] = (int32_t)i + 1;
  }
  free(t->slots);
  t->slots = slots;
  t->n_slots = n_slots;
  return 1;
}

static span key_of(const table *t, size_t i) {
  return (span){t->bytes + (i ? t->ends[i - 1] : 0), t->bytes + t->ends[i]};
}

/* The number of a key; 0 where there is no memory (then nothing is read any more). */
static int32_t intern(int *no_memory, table *t, const void *key, size_t n) {
  if (2 * t->n >= t->n_slots && !rehash(no_memory, t))
    return 0;
  uint64_t hash = hash_of(key, n);
  size_t slot = hash & (t->n_slots - 1);
  for (; t->slots[slot]; slot = (slot + 1) & (t->n_slots - 1)) {
    size_t i = (size_t)t->slots[slot] - 1;
    if (t->hashes[i] != hash)
      continue;
    span known = key_of(t, i);
    if ((size_t)(known.end - known.at) == n && (n == 0 || memcmp(known.at, key, n) == 0))
      return (int32_t)i;
  }
  size_t hashes_room = t->n_room;
  /* A byte more than is used: an empty first key has a place, too. */
  if (t->n >= INT32_MAX - 1 || !grow(no_memory, &t->bytes, &t->bytes_room, t->used + n + 1, 1) ||
      !grow(no_memory, &t->hashes, &hashes_room, t->n + 1, sizeof *t->hashes) ||
      !grow(no_memory, &t->ends, &t->n_room, t->n + 1, sizeof *t->ends)) {
    *no_memory = 1;
    return 0;
  }
  if (n > 0)
    memcpy(t->bytes + t->used, key, n);
  t->used += n;
  t->ends[t->n] = t->used;
  t->hashes[t->n] = hash;
  t->slots[slot] = (int32_t)++t->n;
  return (int32_t)t->n - 1;
}

static void discard(table *t) {
  free(t->bytes);
  free(t->ends);
  free(t->hashes);
  free(t->slots);
}

#endif
