// The files of thread_waits.c: what stands where. Everything is mapped and written in place, so
// that a process that is killed has lost nothing. Their reader takes the records from here:
// perflib/instruments/threads/preload/files.py.
//
//   shared       one for the job: settings, and what all processes count together
//   waits.PID.N  one a program that a process runs (N counts them): its header, then chunks
//   maps.PID.N   its /proc/self/maps, saved at the start and whenever a new library is met
//
// A chunk belongs to one thread. It is a header of 256 bytes and then slots of 64 bytes; a record
// is one slot or several. The first word of a record is its head; that of a slot that continues a
// record is an address of a program or 0, which never has the head's high bits set.
#ifndef PERFLIB_THREAD_WAITS_FILE_H
#define PERFLIB_THREAD_WAITS_FILE_H

#include <stdint.h>

#define TW_MAGIC 0x7741697453746d61u // of "shared" and of each file
#define TW_CHUNK_MAGIC 0xc4754b7741697453u
#define TW_GRAIN 16384u // sizes of chunks are multiples
#define TW_SLOT 64u
#define TW_HEADER 256u
#define TW_PAGE 4096u

enum tw_kind { TW_MUTEX, TW_CONDITION, TW_RWLOCK, TW_SEMAPHORE, TW_BARRIER, TW_JOIN, TW_SPIN };

enum tw_record { TW_WAIT = 0xe101, TW_STACK = 0xe102, TW_SAMPLE = 0xe103 };

enum tw_callers { TW_NO_CALLERS, TW_FRAME_POINTERS, TW_UNWIND_TABLES };

enum tw_flag {
  TW_OWNERS = 1,        // owners of mutexes could be read
  TW_SIGNAL_TAKEN = 2,  // the job uses the signal of the samples itself: there are none from then
  TW_NO_TIMER = 4,      // a thread got no timer
  TW_ENDED = 8,         // it came to its exit; otherwise it was killed, or became another program
  TW_NOT_EXTENDED = 16, // the file could not be made longer
};

// @interface
#define TW_PATTERNS 4096u

typedef struct {
  uint64_t magic;
  int64_t skip_ns, duration_ns, period_ns; // duration 0: to the end; period 0: no samples
  uint64_t most_bytes;
  uint32_t follow, callers;                         // how those of samples are found: tw_callers
  uint64_t start_ns, from_ns, until_ns, used_bytes; // by the first process that starts
  uint32_t root, unused;                            // which this is
  char patterns[TW_PATTERNS]; // of programs left alone; each ends with a 0, an empty one is last
} tw_shared;

typedef struct {
  uint64_t magic, start_ns, end_ns, length;
  int32_t pid, parent;
  uint32_t flags, signal;
  uint64_t lost_waits, lost_samples, first_lost_ns, last_lost_ns;
  char program[256];
} tw_process;

// The wait that a thread is in: what is known of it if it never ends.
typedef struct {
  uint64_t start_ns, lock;
  uint32_t kind, stack;
  int32_t owner, unused;
} tw_open_wait;

// Only a thread's first chunk (sequence 0) says the rest.
typedef struct {
  uint64_t magic, bytes;
  int32_t tid;
  uint32_t thread, sequence, named;
  uint64_t start_ns, end_ns, start_cpu_ns, end_cpu_ns; // CPU time then
  uint64_t self;                                       // its pthread_t, by which it is joined
  char name[32];
  tw_open_wait open;
} tw_chunk;

// A record that says of a wait all there is. Others are alike up to `record`, which has the kind of
// record (tw_record), with `depth` addresses in the end.
typedef struct {
  int32_t stack;
  uint16_t depth, record;
  int64_t start_ns, end_ns;
  uint64_t lock; // its address; of a join that of the thread
  int32_t owner;
  uint8_t kind, unused;
  int16_t result;
  int64_t cpu_ns, cpu, cpu_end_ns; // CPU time in it, and of the thread at its end
} tw_slot;
// @end

_Static_assert(sizeof(tw_chunk) <= TW_HEADER, "a chunk's header is too long");
_Static_assert(sizeof(tw_slot) == TW_SLOT, "a wait is one slot");
_Static_assert(sizeof(tw_process) <= TW_PAGE, "a file's header is too long");

static inline uint64_t tw_head(enum tw_record record, uint32_t depth, uint32_t stack) {
  return (uint64_t)record << 48 | (uint64_t)depth << 32 | stack;
}

#endif
