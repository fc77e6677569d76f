/* qemu_counters: a plugin for QEMU's user-mode emulation that counts what a processor would miss.
 *
 * For a program that runs under qemu-ARCH -plugin: instructions, loads, stores, misses of an
 * instruction TLB (set-associative, least recently used out; a second level if asked for), and
 * 4K aliases: loads whose low 12 address bits overlap those of a store still in the store buffer,
 * while the addresses differ. The youngest store that overlaps in the low 12 bits decides; if it
 * overlaps in the whole address it forwards its value and is no alias.
 *
 * Kept constant: each thread has TLBs and a store buffer of its own; nothing is speculated,
 * prefetched or reordered, and the kernel's side is not seen. The counts are a function of the
 * instructions and addresses alone. What QEMU splits (a vector access, in parts of 8 bytes) is put
 * together again: an executed instruction is one load, one store and one alias at most.
 *
 * The two functions of the interface feed a recorded trace to the same models, for comparison with
 * tests/reference/tlb.py. Nothing is timed: the checksum is the count.
 *
 * @kernel
 * flags = ["-O2", "-DQEMU_API=1"]
 * link = ["-lpthread"]
 * [variants.api2]
 * flags = ["-O2", "-DQEMU_API=2"]
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// @interface
typedef struct {
  uint64_t address;
  uint64_t position; // number of the instruction, counted from the program's start
  uint64_t bytes;
  int64_t is_store;
} qemu_counters_access;

// How many of the pages touched are not in a TLB; missed[i] is 1 for those. -1: bad geometry.
int64_t qemu_counters_tlb(const uint64_t *pages, int64_t count, int64_t entries, int64_t ways,
                          uint8_t *missed);
// How many loads are 4K aliases of one of the last stores, none older than window instructions
// (0: however old); aliased[i] is 1 for those. -1: out of bounds or out of memory.
int64_t qemu_counters_aliases(const qemu_counters_access *accesses, int64_t count, int64_t stores,
                              int64_t window, uint8_t *aliased);
// @end

#include "common/qemu_plugin.h"

// --- the TLB -----------------------------------------------------------------------------------

typedef struct {
  int64_t sets, ways;
  uint64_t *pages; // page number + 1, 0 where empty; in each set the most recently used first
} qc_tlb;

static int qc_tlb_make(qc_tlb *tlb, int64_t entries, int64_t ways) {
  if (entries < 1 || ways < 1 || entries % ways || ((entries / ways) & (entries / ways - 1)))
    return 1;
  tlb->sets = entries / ways;
  tlb->ways = ways;
  tlb->pages = calloc((size_t)entries, sizeof *tlb->pages);
  return tlb->pages == NULL;
}

// 1 if the page was not there; it is now.
static int qc_tlb_miss(qc_tlb *tlb, uint64_t page) {
  uint64_t *set = tlb->pages + (page & (uint64_t)(tlb->sets - 1)) * (uint64_t)tlb->ways;
  uint64_t tag = page + 1;
  int64_t way = 0;
  while (way < tlb->ways - 1 && set[way] != tag)
    way++;
  int missed = set[way] != tag;
  memmove(set + 1, set, (size_t)way * sizeof *set);
  set[0] = tag;
  return missed;
}

// --- the store buffer --------------------------------------------------------------------------

#define QC_LOW 4095u
#define QC_GRAIN 3 // 8 bytes: the grain of the filter
#define QC_GRAINS (4096 >> QC_GRAIN)

typedef struct {
  uint64_t address, position;
  uint32_t bytes;
} qc_store;

typedef struct {
  uint64_t most, count, next, window;         // count: how many there have been, ever
  uint64_t last_store, last_load, last_alias; // positions + 1
  uint32_t waiting[QC_GRAINS]; // stores in the buffer that touch a grain: most loads meet none
  qc_store *stores;
} qc_buffer;

static int qc_buffer_make(qc_buffer *buffer, int64_t stores, int64_t window) {
  if (stores < 1 || window < 0)
    return 1;
  memset(buffer, 0, sizeof *buffer);
  buffer->most = (uint64_t)stores;
  buffer->window = (uint64_t)window;
  buffer->stores = calloc((size_t)stores, sizeof *buffer->stores);
  return buffer->stores == NULL;
}

static void qc_mark(qc_buffer *buffer, const qc_store *store, uint32_t change) {
  uint64_t first = store->address >> QC_GRAIN;
  uint64_t last = (store->address + store->bytes - 1) >> QC_GRAIN;
  for (uint64_t grain = first; grain <= last; grain++)
    buffer->waiting[grain % QC_GRAINS] += change;
}

static void qc_store_add(qc_buffer *buffer, uint64_t position, uint64_t address, uint32_t bytes) {
  if (buffer->last_store == position + 1) { // another part of one instruction's store?
    qc_store *last = &buffer->stores[(buffer->next ? buffer->next : buffer->most) - 1];
    if (address == last->address + last->bytes) {
      qc_mark(buffer, last, -1u);
      last->bytes += bytes;
      qc_mark(buffer, last, 1);
      return;
    }
  }
  qc_store *store = &buffer->stores[buffer->next];
  if (buffer->count >= buffer->most)
    qc_mark(buffer, store, -1u);
  *store = (qc_store){.address = address, .position = position, .bytes = bytes};
  qc_mark(buffer, store, 1);
  buffer->next = buffer->next + 1 == buffer->most ? 0 : buffer->next + 1;
  buffer->count++;
  buffer->last_store = position + 1;
}

// Whether [a, a + m) and [b, b + n) overlap when addresses are taken modulo 4096.
static int qc_low_overlap(uint64_t a, uint64_t m, uint64_t b, uint64_t n) {
  return ((b - a) & QC_LOW) < m || ((a - b) & QC_LOW) < n;
}

static int qc_is_alias(qc_buffer *buffer, uint64_t position, uint64_t address, uint32_t bytes) {
  uint64_t first = address >> QC_GRAIN, last = (address + bytes - 1) >> QC_GRAIN;
  uint32_t waiting = 0;
  for (uint64_t grain = first; grain <= last; grain++)
    waiting |= buffer->waiting[grain % QC_GRAINS];
  if (!waiting)
    return 0;
  uint64_t kept = buffer->count < buffer->most ? buffer->count : buffer->most;
  const qc_store *store = &buffer->stores[buffer->next];
  for (; kept > 0; kept--) { // from the youngest on
    store = store == buffer->stores ? &buffer->stores[buffer->most - 1] : store - 1;
    if (buffer->window && position - store->position > buffer->window)
      return 0;
    if (qc_low_overlap(address, bytes, store->address, store->bytes))
      return !(address < store->address + store->bytes && store->address < address + bytes);
  }
  return 0;
}

// 1 if this load makes its instruction an alias, for the first time.
static int qc_load_add(qc_buffer *buffer, uint64_t position, uint64_t address, uint32_t bytes) {
  if (buffer->last_alias == position + 1 || !qc_is_alias(buffer, position, address, bytes))
    return 0;
  buffer->last_alias = position + 1;
  return 1;
}

// --- recorded traces ---------------------------------------------------------------------------

int64_t qemu_counters_tlb(const uint64_t *pages, int64_t count, int64_t entries, int64_t ways,
                          uint8_t *missed) {
  qc_tlb tlb;
  if (qc_tlb_make(&tlb, entries, ways))
    return -1;
  int64_t misses = 0;
  for (int64_t i = 0; i < count; i++)
    misses += missed[i] = (uint8_t)qc_tlb_miss(&tlb, pages[i]);
  free(tlb.pages);
  return misses;
}

int64_t qemu_counters_aliases(const qemu_counters_access *accesses, int64_t count, int64_t stores,
                              int64_t window, uint8_t *aliased) {
  qc_buffer buffer;
  if (qc_buffer_make(&buffer, stores, window))
    return -1;
  int64_t aliases = 0;
  for (int64_t i = 0; i < count; i++) {
    const qemu_counters_access *a = &accesses[i];
    aliased[i] = 0;
    if (a->is_store)
      qc_store_add(&buffer, a->position, a->address, (uint32_t)a->bytes);
    else
      aliases += aliased[i] =
          (uint8_t)qc_load_add(&buffer, a->position, a->address, (uint32_t)a->bytes);
  }
  free(buffer.stores);
  return aliases;
}

// --- counting ----------------------------------------------------------------------------------

// A place in the program: where a block of instructions begins, where fetching enters another
// page, or an instruction with accesses to memory. A block translated twice has two.
typedef struct qc_place {
  struct qc_place *next;
  uint64_t address, page;
  uint64_t index; // in its block; of a block: how many instructions it has
  uint64_t misses, walks, aliases;
} qc_place;

typedef struct {
  qc_tlb tlb, second;
  qc_buffer buffer;
  uint64_t page; // the last one fetched from
  uint64_t before, instructions, loads, stores;
} qc_cpu;

#define QC_CPUS 4096
static qc_cpu *qc_cpus[QC_CPUS];
static qc_place *qc_places;
static pthread_mutex_t qc_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t qc_entries, qc_ways, qc_page_shift, qc_second_entries, qc_second_ways, qc_stores,
    qc_window;
static char qc_out[4096];
static uint64_t qc_guest_base;

static void qc_give_up(const char *why) { qp_give_up("qemu_counters", why); }

static void qc_cpu_starts(uint64_t id, unsigned number) {
  (void)id;
  if (number >= QC_CPUS)
    qc_give_up("more than 4096 threads at a time");
  if (qc_cpus[number] != NULL) // of a thread that has ended: the next one goes on counting
    return;
  qc_cpu *cpu = calloc(1, sizeof *cpu);
  if (cpu == NULL || (qc_entries && qc_tlb_make(&cpu->tlb, qc_entries, qc_ways)) ||
      (qc_second_entries && qc_tlb_make(&cpu->second, qc_second_entries, qc_second_ways)) ||
      (qc_stores && qc_buffer_make(&cpu->buffer, qc_stores, qc_window)))
    qc_give_up("the model's geometry is not possible, or there is no memory for it");
  cpu->page = UINT64_MAX;
  qc_cpus[number] = cpu;
}

static void qc_fetched(unsigned number, void *data) {
  qc_cpu *cpu = qc_cpus[number];
  qc_place *place = data;
  if (place->page == cpu->page) // the most recently used: nothing would change
    return;
  cpu->page = place->page;
  if (!qc_tlb_miss(&cpu->tlb, place->page))
    return;
  __atomic_fetch_add(&place->misses, 1, __ATOMIC_RELAXED);
  if (qc_second_entries && qc_tlb_miss(&cpu->second, place->page))
    __atomic_fetch_add(&place->walks, 1, __ATOMIC_RELAXED);
}

static void qc_block_starts(unsigned number, void *data) {
  qc_cpu *cpu = qc_cpus[number];
  const qc_place *place = data;
  cpu->before = cpu->instructions;
  cpu->instructions += place->index;
  if (qc_entries)
    qc_fetched(number, data);
}

static void qc_memory(unsigned number, uint32_t info, uint64_t address, void *data) {
  qc_cpu *cpu = qc_cpus[number];
  qc_place *place = data;
  uint64_t position = cpu->before + place->index;
  uint32_t bytes = 1u << qemu_plugin_mem_size_shift(info);
  if (qemu_plugin_mem_is_store(info)) { // also a locked read and write, which is no alias
    cpu->stores += cpu->buffer.last_store != position + 1;
    qc_store_add(&cpu->buffer, position, address, bytes);
    return;
  }
  cpu->loads += cpu->buffer.last_load != position + 1;
  cpu->buffer.last_load = position + 1;
  if (qc_load_add(&cpu->buffer, position, address, bytes))
    __atomic_fetch_add(&place->aliases, 1, __ATOMIC_RELAXED);
}

static qc_place *qc_new_place(struct qemu_plugin_insn *insn, uint64_t page, uint64_t index) {
  qc_place *place = calloc(1, sizeof *place);
  if (place == NULL)
    qc_give_up("no memory");
  place->address = qemu_plugin_insn_vaddr(insn);
  place->page = page;
  place->index = index;
  pthread_mutex_lock(&qc_lock);
  place->next = qc_places;
  qc_places = place;
  pthread_mutex_unlock(&qc_lock);
  return place;
}

static void qc_translated(uint64_t id, struct qemu_plugin_tb *tb) {
  (void)id;
  uint64_t count = qemu_plugin_tb_n_insns(tb), page = 0;
  for (uint64_t i = 0; i < count; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    uint64_t address = qemu_plugin_insn_vaddr(insn);
    uint64_t first = address >> qc_page_shift;
    uint64_t last = (address + qemu_plugin_insn_size(insn) - 1) >> qc_page_shift;
    if (i == 0) {
      char *host = qemu_plugin_insn_haddr(insn);
      if (host != NULL)
        qc_guest_base = (uint64_t)(uintptr_t)host - address;
      qemu_plugin_register_vcpu_tb_exec_cb(tb, qc_block_starts, QP_NO_REGISTERS,
                                           qc_new_place(insn, first, count));
      page = first;
    }
    for (uint64_t other = first; qc_entries && other <= last; other++)
      if (other != page) {
        qemu_plugin_register_vcpu_insn_exec_cb(insn, qc_fetched, QP_NO_REGISTERS,
                                               qc_new_place(insn, other, i));
        page = other;
      }
    if (qc_stores)
      qemu_plugin_register_vcpu_mem_cb(insn, qc_memory, QP_NO_REGISTERS, QP_READ_WRITE,
                                       qc_new_place(insn, first, i));
  }
}

// --- the result --------------------------------------------------------------------------------

static void qc_write(uint64_t id, void *data) {
  (void)id, (void)data;
  FILE *out = qp_open("qemu_counters", qc_out);
  uint64_t instructions = 0, loads = 0, stores = 0, threads = 0;
  for (int i = 0; i < QC_CPUS; i++)
    if (qc_cpus[i] != NULL) {
      threads++;
      instructions += qc_cpus[i]->instructions;
      loads += qc_cpus[i]->loads;
      stores += qc_cpus[i]->stores;
    }
  fprintf(out, "instructions %" PRIu64 "\nloads %" PRIu64 "\nstores %" PRIu64 "\n", instructions,
          loads, stores);
  fprintf(out, "guest_base %" PRIu64 "\n", qc_guest_base);
  qp_write_maps(out);
  for (const qc_place *place = qc_places; place != NULL; place = place->next)
    if (place->misses || place->aliases)
      fprintf(out, "place %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", place->address,
              place->misses, place->walks, place->aliases);
  fprintf(out, "threads %" PRIu64 "\n", threads); // last: without it the file is not whole
  if (fclose(out))
    qc_give_up("the file of counts cannot be written");
}

static int qc_option(const char *text) {
  static const struct {
    const char *name;
    int64_t *value;
  } options[] = {
      {"entries", &qc_entries},         {"ways", &qc_ways},
      {"page_shift", &qc_page_shift},   {"second_entries", &qc_second_entries},
      {"second_ways", &qc_second_ways}, {"stores", &qc_stores},
      {"window", &qc_window},
  };
  const char *equals = strchr(text, '=');
  size_t length = equals == NULL ? 0 : (size_t)(equals - text);
  if (length == 3 && strncmp(text, "out", 3) == 0)
    return (size_t)snprintf(qc_out, sizeof qc_out, "%s", equals + 1) >= sizeof qc_out;
  for (size_t i = 0; length && i < sizeof options / sizeof *options; i++)
    if (strlen(options[i].name) == length && strncmp(text, options[i].name, length) == 0) {
      *options[i].value = strtoll(equals + 1, NULL, 10);
      return 0;
    }
  return 1;
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++)
    if (qc_option(argv[i])) {
      fprintf(stderr, "qemu_counters: bad option '%s'\n", argv[i]);
      return 1;
    }
  qemu_plugin_register_vcpu_init_cb(id, qc_cpu_starts);
  qemu_plugin_register_vcpu_tb_trans_cb(id, qc_translated);
  qemu_plugin_register_atexit_cb(id, qc_write, NULL);
  return 0;
}
