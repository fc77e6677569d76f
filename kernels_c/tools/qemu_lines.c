/* qemu_lines: a plugin for QEMU's user-mode emulation that finds the cache lines that threads
 * share.
 *
 * For a program that runs under qemu-ARCH -plugin: which lines of 64 bytes more than one thread
 * uses, who wrote and touched which of their bytes and where in the program, and how often a
 * thread had to fetch a line because another had written to it (a transfer). A transfer is false
 * sharing if no other thread wrote the 4-byte words that were accessed last: the line alone moved.
 *
 * Model: each thread has a core with an infinite cache, and threads that want a line at the same
 * time take turns at it, access by access. No core gives a line away so soon: the transfers are the
 * most that the program can have, and they hardly depend on what else the machine does.
 *
 * Kept constant: all accesses are seen, an access as QEMU makes it (a vector in parts of 8 bytes).
 * Of a line's time with its first thread nothing is kept. What was written to a line is the
 * checksum: a program whose threads do the same has the same accesses.
 *
 * @kernel
 * flags = ["-O2", "-DQEMU_API=1"]
 * link = ["-lpthread"]
 * [variants.api2]
 * flags = ["-O2", "-DQEMU_API=2"]
 */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// @interface
typedef struct {
  uint64_t address, bytes;
  int64_t thread, is_store;
} qemu_lines_access;

typedef struct {
  uint64_t line, transfers, false_transfers;
} qemu_lines_line;

// Feeds recorded accesses to the same model: the lines that threads share, most transfers first, at
// most so many; their number. -1: out of bounds or out of memory.
int64_t qemu_lines_shared(const qemu_lines_access *accesses, int64_t count, qemu_lines_line *lines,
                          int64_t most);
// @end

#include "common/qemu_plugin.h"

enum {
  QL_SHIFT = 6,
  QL_BYTES = 1 << QL_SHIFT,
  QL_WORDS = QL_BYTES / 4,
  QL_THREADS = 4096,
  QL_SHARDS = 4096
};

// --- the model ---------------------------------------------------------------------------------

// What one thread did to a line.
typedef struct {
  uint32_t thread;
  uint64_t accesses, writes;
  uint64_t touched, written; // bytes, a bit each
  uint64_t place, votes;     // the instruction of most accesses, if one has most
} ql_share;

typedef struct {
  uint64_t line, transfers, false_transfers;
  uint64_t holders; // threads (modulo 64) that have the line as it is
  int written;
  uint16_t writer[QL_WORDS]; // of each word: the thread that wrote it last + 1; 0: none
  uint32_t count, room;
  ql_share *shares;
} ql_line;

typedef struct {
  uint64_t line; // + 1; 0: empty
  uint32_t thread;
  ql_line *shared; // NULL as long as one thread uses it
} ql_slot;

// Lines by address, in parts that are locked each by itself.
typedef struct {
  uint32_t next, served; // tickets
  uint64_t count, room;  // room: a power of two
  ql_slot *slots;
} ql_shard;

static ql_shard ql_shards[QL_SHARDS];

static uint64_t ql_hash(uint64_t line) { return line * 0x9e3779b97f4a7c15; }

static ql_slot *ql_place_of(ql_slot *slots, uint64_t room, uint64_t line) {
  uint64_t at = (ql_hash(line) >> 16) & (room - 1);
  while (slots[at].line != 0 && slots[at].line != line + 1)
    at = (at + 1) & (room - 1);
  return &slots[at];
}

// The slot of a line, made if there is none; NULL: no memory.
static ql_slot *ql_find(ql_shard *shard, uint64_t line, uint32_t thread) {
  if (shard->count * 4 >= shard->room * 3) {
    uint64_t room = shard->room ? 2 * shard->room : 64;
    ql_slot *slots = calloc(room, sizeof *slots);
    if (slots == NULL)
      return NULL;
    for (uint64_t i = 0; i < shard->room; i++)
      if (shard->slots[i].line != 0)
        *ql_place_of(slots, room, shard->slots[i].line - 1) = shard->slots[i];
    free(shard->slots);
    shard->slots = slots;
    shard->room = room;
  }
  ql_slot *slot = ql_place_of(shard->slots, shard->room, line);
  if (slot->line == 0) {
    *slot = (ql_slot){.line = line + 1, .thread = thread};
    shard->count++;
  }
  return slot;
}

static ql_share *ql_share_of(ql_line *line, uint32_t thread) {
  for (uint32_t i = 0; i < line->count; i++)
    if (line->shares[i].thread == thread)
      return &line->shares[i];
  if (line->count == line->room) {
    uint32_t room = line->room ? 2 * line->room : 2;
    ql_share *shares = realloc(line->shares, room * sizeof *shares);
    if (shares == NULL)
      return NULL;
    line->shares = shares;
    line->room = room;
  }
  line->shares[line->count] = (ql_share){.thread = thread};
  return &line->shares[line->count++];
}

// Whether another thread wrote one of the words last.
static int ql_is_true(const ql_line *line, uint64_t first, uint64_t last, uint32_t thread) {
  for (uint64_t word = first / 4; word <= last / 4; word++)
    if (line->writer[word] != 0 && line->writer[word] != (uint16_t)(thread + 1))
      return 1;
  return 0;
}

static void ql_use(ql_line *line, ql_share *share, uint64_t first, uint64_t last, int is_store,
                   uint64_t place) {
  uint32_t thread = share->thread;
  uint64_t mine = (uint64_t)1 << (thread % 64);
  if (line->written && !(line->holders & mine)) {
    line->transfers++;
    line->false_transfers += !ql_is_true(line, first, last, thread);
  }
  line->holders |= mine;
  uint64_t bytes = (~(uint64_t)0 >> (63 - (last - first))) << first;
  share->accesses++;
  share->touched |= bytes;
  if (is_store) {
    line->written = 1;
    line->holders = mine;
    share->writes++;
    share->written |= bytes;
    for (uint64_t word = first / 4; word <= last / 4; word++)
      line->writer[word] = (uint16_t)(thread + 1);
  }
  if (share->votes == 0)
    share->place = place;
  share->votes += share->place == place ? 1 : (uint64_t)-1;
}

// In the order of arrival, so that threads that run at the same time take turns: whoever had a
// line last would get a simpler lock again and again, and the other thread none of its accesses in.
static void ql_lock(ql_shard *shard) {
  uint32_t mine = __atomic_fetch_add(&shard->next, 1, __ATOMIC_RELAXED);
  for (uint32_t waits = 1; __atomic_load_n(&shard->served, __ATOMIC_ACQUIRE) != mine; waits++)
    if (waits % 128 == 0)
      sched_yield(); // whose turn it is may not have a core
}

// A part of an access that lies in one line; 1: no memory.
static int ql_add(uint64_t address, uint64_t bytes, int is_store, uint32_t thread, uint64_t place) {
  uint64_t line = address >> QL_SHIFT, first = address & (QL_BYTES - 1);
  ql_shard *shard = &ql_shards[(ql_hash(line) >> 56) % QL_SHARDS];
  ql_lock(shard);
  int failed = 0;
  ql_slot *slot = ql_find(shard, line, thread);
  if (slot != NULL && slot->shared == NULL && slot->thread != thread) {
    slot->shared = calloc(1, sizeof *slot->shared);
    if (slot->shared != NULL)
      slot->shared->line = line;
  }
  if (slot == NULL || (slot->shared == NULL && slot->thread != thread)) {
    failed = 1;
  } else if (slot->shared != NULL) {
    ql_share *share = ql_share_of(slot->shared, thread);
    failed = share == NULL;
    if (!failed)
      ql_use(slot->shared, share, first, first + bytes - 1, is_store, place);
  }
  __atomic_store_n(&shard->served, shard->served + 1, __ATOMIC_RELEASE);
  return failed;
}

static int ql_access(uint64_t address, uint64_t bytes, int is_store, uint32_t thread,
                     uint64_t place) {
  int failed = 0;
  while (bytes > 0) {
    uint64_t here = QL_BYTES - (address & (QL_BYTES - 1));
    here = here < bytes ? here : bytes;
    failed |= ql_add(address, here, is_store, thread, place);
    address += here;
    bytes -= here;
  }
  return failed;
}

static int ql_by_transfers(const void *one, const void *other) {
  const ql_line *a = *(ql_line *const *)one, *b = *(ql_line *const *)other;
  if (a->transfers != b->transfers)
    return a->transfers < b->transfers ? 1 : -1;
  return a->line < b->line ? -1 : a->line > b->line;
}

// All shared lines, those with most transfers first; *lines is NULL if there is no memory.
static int64_t ql_shared(ql_line ***lines) {
  int64_t count = 0;
  for (int i = 0; i < QL_SHARDS; i++)
    for (uint64_t at = 0; at < ql_shards[i].room; at++)
      count += ql_shards[i].slots[at].shared != NULL;
  *lines = malloc(((size_t)count + 1) * sizeof **lines);
  if (*lines == NULL)
    return 0;
  int64_t found = 0;
  for (int i = 0; i < QL_SHARDS; i++)
    for (uint64_t at = 0; at < ql_shards[i].room; at++) {
      ql_line *line = ql_shards[i].slots[at].shared;
      if (line != NULL)
        (*lines)[found++] = line;
    }
  qsort(*lines, (size_t)found, sizeof **lines, ql_by_transfers);
  return found;
}

static void ql_forget(void) {
  for (int i = 0; i < QL_SHARDS; i++) {
    for (uint64_t at = 0; at < ql_shards[i].room; at++)
      if (ql_shards[i].slots[at].shared != NULL) {
        free(ql_shards[i].slots[at].shared->shares);
        free(ql_shards[i].slots[at].shared);
      }
    free(ql_shards[i].slots);
    ql_shards[i] = (ql_shard){0};
  }
}

// --- recorded accesses -------------------------------------------------------------------------

int64_t qemu_lines_shared(const qemu_lines_access *accesses, int64_t count, qemu_lines_line *lines,
                          int64_t most) {
  int64_t found = -1;
  int failed = 0;
  for (int64_t i = 0; i < count && !failed; i++) {
    const qemu_lines_access *one = &accesses[i];
    failed = one->thread < 0 || one->thread >= QL_THREADS ||
             ql_access(one->address, one->bytes, one->is_store != 0, (uint32_t)one->thread, 0);
  }
  ql_line **shared = NULL;
  if (!failed)
    found = ql_shared(&shared);
  for (int64_t i = 0; shared != NULL && i < found && i < most; i++)
    lines[i] = (qemu_lines_line){shared[i]->line << QL_SHIFT, shared[i]->transfers,
                                 shared[i]->false_transfers};
  if (!failed && shared == NULL)
    found = -1;
  free(shared);
  ql_forget();
  return found;
}

// --- the plugin --------------------------------------------------------------------------------

enum { QL_WRITTEN = 2000 }; // lines, at most

static struct {
  uint64_t instructions;
  char apart[56]; // no false sharing of our own
} ql_threads[QL_THREADS];
static char ql_out[4096];
static uint64_t ql_guest_base;

static void ql_give_up(const char *why) { qp_give_up("qemu_lines", why); }

static void ql_thread_starts(uint64_t id, unsigned number) {
  (void)id;
  if (number >= QL_THREADS)
    ql_give_up("more than 4096 threads at a time");
}

static void ql_block_starts(unsigned number, void *data) {
  ql_threads[number].instructions += (uint64_t)(uintptr_t)data;
}

static void ql_memory(unsigned number, uint32_t info, uint64_t address, void *data) {
  uint64_t bytes = (uint64_t)1 << qemu_plugin_mem_size_shift(info);
  if (ql_access(address, bytes, qemu_plugin_mem_is_store(info), number, (uint64_t)(uintptr_t)data))
    ql_give_up("no memory");
}

static void ql_translated(uint64_t id, struct qemu_plugin_tb *tb) {
  (void)id;
  size_t count = qemu_plugin_tb_n_insns(tb);
  qemu_plugin_register_vcpu_tb_exec_cb(tb, ql_block_starts, QP_NO_REGISTERS, (void *)count);
  for (size_t i = 0; i < count; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    uint64_t address = qemu_plugin_insn_vaddr(insn);
    char *host = i == 0 ? qemu_plugin_insn_haddr(insn) : NULL;
    if (host != NULL)
      ql_guest_base = (uint64_t)(uintptr_t)host - address;
    qemu_plugin_register_vcpu_mem_cb(insn, ql_memory, QP_NO_REGISTERS, QP_READ_WRITE,
                                     (void *)(uintptr_t)address);
  }
}

static void ql_write(uint64_t id, void *data) {
  (void)id, (void)data;
  FILE *out = qp_open("qemu_lines", ql_out);
  uint64_t instructions = 0, threads = 0;
  for (int i = 0; i < QL_THREADS; i++) {
    threads += ql_threads[i].instructions > 0;
    instructions += ql_threads[i].instructions;
  }
  fprintf(out, "instructions %" PRIu64 "\nguest_base %" PRIu64 "\n", instructions, ql_guest_base);
  qp_write_maps(out);
  ql_line **lines;
  int64_t count = ql_shared(&lines);
  if (lines == NULL)
    ql_give_up("no memory");
  fprintf(out, "shared_lines %" PRId64 "\n", count);
  for (int64_t i = 0; i < count && i < QL_WRITTEN; i++) {
    const ql_line *line = lines[i];
    fprintf(out, "line %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", line->line << QL_SHIFT,
            line->transfers, line->false_transfers);
    for (uint32_t j = 0; j < line->count; j++) {
      const ql_share *share = &line->shares[j];
      fprintf(out,
              "share %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
              share->thread, share->accesses, share->writes, share->touched, share->written,
              share->place);
    }
  }
  free(lines);
  fprintf(out, "threads %" PRIu64 "\n", threads); // last: without it the file is not whole
  if (fclose(out))
    ql_give_up("the file of results cannot be written");
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++)
    if (strncmp(argv[i], "out=", 4) != 0 || strlen(argv[i] + 4) >= sizeof ql_out) {
      fprintf(stderr, "qemu_lines: bad option '%s'\n", argv[i]);
      return 1;
    } else {
      strcpy(ql_out, argv[i] + 4);
    }
  qemu_plugin_register_vcpu_init_cb(id, ql_thread_starts);
  qemu_plugin_register_vcpu_tb_trans_cb(id, ql_translated);
  qemu_plugin_register_atexit_cb(id, ql_write, NULL);
  return 0;
}
