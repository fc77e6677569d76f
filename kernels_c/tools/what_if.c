/* what_if: a library preloaded into a job, which delays all threads but the one in the target.
 *
 * Causal profiling after C. Curtsinger and E. Berger, Coz (SOSP 2015): a function or critical
 * section seems x % faster where, for each nanosecond that a thread spends in it, all others stand
 * still for x % of a nanosecond. The job's time less those delays is the time that it would take.
 *
 * Delays are counted globally, and each thread pays what it has not paid yet: at its samples,
 * before it asks for a lock, and before it wakes another (a mutex's end, a condition's signal, a
 * barrier, its own end). A thread that waited for another one is credited with what was added
 * meanwhile: who woke it has paid. A new thread begins with what its parent has paid. Sleeps, files
 * and sockets are waited for in real time, so nothing is credited for them.
 *
 * Of a function a sample of the thread's CPU time says whether it is in the target, and stands for
 * the CPU time since the one before. Of a critical section nothing is sampled: its CPU time is
 * read at its begin and end, and who comes to its lock meanwhile adds what is due so far.
 *
 * Constant: what the job computes. Checksum: the job's own result; the sum of the delays is
 * delay_ppm of the CPU time in the target (tests/instruments/what_if/test_library.py).
 *
 * Not seen: waits that do not come by these names (C11's mtx_lock, raw futexes, spinning of the
 * job's own), programs linked statically, child processes.
 *
 * @kernel
 * flags = ["-O2", "-fexceptions", "-fasynchronous-unwind-tables", "-ftls-model=initial-exec"]
 * link = ["-Wl,-z,now", "-ldl", "-lpthread", "-lgcc_s"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "common/what_if_state.h"

// @interface
// The dynamic linker alone calls what is here.
// @end

#define WI_LEAST_NS 2000       // a debt below it waits for the next occasion
#define WI_SPUN_NS 120000      // the end of a delay: a sleep ends some 60 us late
#define WI_HIGH_FILE 500       // where a job hardly counts its descriptors
#define WI_MOST_NS 10000000000 // of one delay

// --- the functions behind ours -----------------------------------------------------------------

#define NEXT_FUNCTIONS(X)                                                                          \
  X(pthread_mutex_lock)                                                                            \
  X(pthread_mutex_trylock)                                                                         \
  X(pthread_mutex_timedlock)                                                                       \
  X(pthread_mutex_clocklock)                                                                       \
  X(pthread_mutex_unlock)                                                                          \
  X(pthread_cond_wait)                                                                             \
  X(pthread_cond_timedwait)                                                                        \
  X(pthread_cond_clockwait)                                                                        \
  X(pthread_cond_signal)                                                                           \
  X(pthread_cond_broadcast)                                                                        \
  X(pthread_rwlock_rdlock)                                                                         \
  X(pthread_rwlock_wrlock)                                                                         \
  X(pthread_rwlock_tryrdlock)                                                                      \
  X(pthread_rwlock_trywrlock)                                                                      \
  X(pthread_rwlock_timedrdlock)                                                                    \
  X(pthread_rwlock_timedwrlock)                                                                    \
  X(pthread_rwlock_unlock)                                                                         \
  X(pthread_spin_lock)                                                                             \
  X(pthread_spin_trylock)                                                                          \
  X(pthread_spin_unlock)                                                                           \
  X(sem_wait)                                                                                      \
  X(sem_trywait)                                                                                   \
  X(sem_timedwait)                                                                                 \
  X(sem_post)                                                                                      \
  X(pthread_barrier_wait)                                                                          \
  X(pthread_join)                                                                                  \
  X(pthread_timedjoin_np)                                                                          \
  X(pthread_create)                                                                                \
  X(pthread_sigmask)                                                                               \
  X(sigprocmask)                                                                                   \
  X(sigaction)                                                                                     \
  X(signal)                                                                                        \
  X(_exit)

#include "common/next_functions.h"

static wi_shared *wi;
static atomic_bool wi_on;
static int64_t wi_cpus;
static int wi_signal;
static pthread_key_t wi_key;
static struct {
  uintptr_t start, end;
} wi_targets[WI_RANGES];
static _Atomic int64_t wi_known;   // of wi_targets
static _Atomic int64_t wi_surplus; // added by those who came, and not worked by the holder
static wi_section wi_sections[WI_HELD];
static __thread wi_thread wi_me;
#define WI_ON() (wi_me.on && atomic_load_explicit(&wi_on, memory_order_relaxed))

static int64_t wi_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// CPU time of the job's own, without that of our delays.
static int64_t wi_work(void) { return wi_clock(CLOCK_THREAD_CPUTIME_ID) - wi_me.paid_cpu_ns; }

static int64_t wi_part(int64_t time_ns) {
  return (int64_t)((double)time_ns * (double)wi->delay_ppm * 1e-6);
}

// --- delays ------------------------------------------------------------------------------------

static void wi_collect_credit(void) {
  for (int i = 0; i < WI_NESTED; i++)
    if (wi_me.held[i].section != NULL)
      wi_me.local_ns += atomic_exchange(&wi_me.held[i].section->credit_ns, 0);
}

// Stand still for what this thread has not paid yet. What a sleep takes more is paid in advance.
static void wi_pay(void) {
  int64_t due = atomic_load(&wi->global_ns);
  if (due - wi_me.local_ns < WI_LEAST_NS)
    return;
  int saved = errno;
  wi_me.busy = 1;
  wi_collect_credit();
  due -= wi_me.local_ns;
  if (due >= WI_LEAST_NS) {
    due = due < WI_MOST_NS ? due : WI_MOST_NS;
    bool spins = atomic_load(&wi->live) <= wi_cpus + 1; // else another thread may use the core
    int64_t begin = wi_clock(CLOCK_MONOTONIC), cpu = wi_clock(CLOCK_THREAD_CPUTIME_ID), now = begin;
    int64_t end = begin + due, sleep = spins ? due - WI_SPUN_NS : due;
    if (sleep > 0) {
      struct timespec until = {(begin + sleep) / 1000000000, (begin + sleep) % 1000000000};
      while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0 &&
             errno == EINTR)
        ;
    }
    while ((now = wi_clock(CLOCK_MONOTONIC)) < end && spins)
      ;
    int64_t spent = wi_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
    wi_me.local_ns += now - begin;
    wi_me.paid_cpu_ns += spent;
    atomic_fetch_add(&wi->paid_ns, now - begin);
    atomic_fetch_add(&wi->paid_cpu_ns, spent);
  }
  wi_me.busy = 0;
  errno = saved;
}

// All others are to stand still.
static void wi_delay_others(int64_t delay_ns) {
  wi_me.local_ns += delay_ns;
  atomic_fetch_add(&wi->global_ns, delay_ns);
}

// After a wait that another thread has ended: that one has paid what was added meanwhile.
static void wi_credit(int64_t before) {
  wi_me.busy = 1;
  wi_me.local_ns += atomic_load(&wi->global_ns) - before;
  wi_me.busy = 0;
}

// --- critical sections -------------------------------------------------------------------------

static bool wi_within(uintptr_t address) {
  int64_t known = atomic_load_explicit(&wi_known, memory_order_acquire);
  for (int64_t i = 0; i < known; i++)
    if (address >= wi_targets[i].start && address < wi_targets[i].end)
      return true;
  return false;
}

static bool wi_is_target(uintptr_t lock, const void *caller) {
  if (wi->kind == WI_LOCK)
    return wi_within(lock);
  return wi->kind == WI_LOCK_TAKEN_IN && wi_within((uintptr_t)caller);
}

// What an open section has been worth since it was last asked, so that it is paid while it lasts.
static void wi_add_open(uintptr_t lock) {
  if (wi->kind == WI_FUNCTION || wi->delay_ppm == 0)
    return;
  for (int i = 0; i < WI_HELD; i++) {
    wi_section *section = &wi_sections[i];
    if (atomic_load_explicit(&section->lock, memory_order_acquire) != lock)
      continue;
    int64_t added = atomic_load(&section->added_ns);
    int64_t worth = wi_part(wi_clock(CLOCK_MONOTONIC) - atomic_load(&section->since_ns));
    if (worth > added && atomic_load(&section->lock) == lock &&
        atomic_compare_exchange_strong(&section->added_ns, &added, worth)) {
      int64_t due = worth - added, surplus = atomic_exchange(&wi_surplus, 0);
      if (surplus > due)
        atomic_fetch_add(&wi_surplus, surplus - due);
      due = surplus < due ? due - surplus : 0;
      atomic_fetch_add(&section->credit_ns, due); // before the holder can be asked for it
      atomic_fetch_add(&wi->global_ns, due);
    }
  }
}

static void wi_taken(const volatile void *address, const void *caller) {
  uintptr_t lock = (uintptr_t)address;
  if (wi->kind == WI_FUNCTION)
    return;
  int free = -1;
  for (int i = 0; i < WI_NESTED; i++) {
    if (wi_me.held[i].lock == lock) { // taken again, as recursive ones are
      wi_me.held[i].depth++;
      return;
    }
    free = wi_me.held[i].lock == 0 ? i : free;
  }
  if (free < 0 || !wi_is_target(lock, caller))
    return;
  wi_me.busy = 1;
  wi_section *section = NULL;
  for (int i = 0; i < WI_HELD && section == NULL; i++) {
    uintptr_t none = 0;
    if (atomic_compare_exchange_strong(&wi_sections[i].lock, &none, UINTPTR_MAX))
      section = &wi_sections[i];
  }
  wi_me.held[free].lock = lock;
  wi_me.held[free].depth = 1;
  wi_me.held[free].work_ns = wi_work();
  wi_me.held[free].section = section;
  if (section != NULL) {
    atomic_store(&section->added_ns, 0);
    atomic_store(&section->credit_ns, 0);
    atomic_store(&section->since_ns, wi_clock(CLOCK_MONOTONIC));
    atomic_store_explicit(&section->lock, lock, memory_order_release);
  }
  wi_me.busy = 0;
}

// Before a lock is given back: what its section is worth is added, then all debts are paid.
static void wi_released(const volatile void *address, bool wholly) {
  uintptr_t lock = (uintptr_t)address;
  for (int i = 0; wi->kind != WI_FUNCTION && i < WI_NESTED; i++) {
    if (wi_me.held[i].lock != lock)
      continue;
    if (--wi_me.held[i].depth > 0 && !wholly)
      break;
    wi_me.busy = 1;
    wi_section *section = wi_me.held[i].section;
    int64_t worked = wi_work() - wi_me.held[i].work_ns, worth = wi_part(worked);
    if (section != NULL) {
      atomic_store(&section->lock, UINTPTR_MAX);
      worth -= atomic_load(&section->added_ns);
      wi_me.local_ns += atomic_exchange(&section->credit_ns, 0);
      atomic_store(&section->lock, 0);
    }
    // Those who came counted time; if less than that was worked, later sections are worth less.
    worth -= atomic_exchange(&wi_surplus, 0);
    if (worth < 0)
      atomic_fetch_add(&wi_surplus, -worth);
    else
      wi_delay_others(worth);
    atomic_fetch_add(&wi->target_ns, worked);
    atomic_fetch_add(&wi->sections, 1);
    wi_me.held[i].lock = 0;
    wi_me.held[i].section = NULL;
    wi_me.busy = 0;
    break;
  }
  wi_pay();
}

// --- samples -----------------------------------------------------------------------------------

typedef struct {
  uintptr_t from;
  bool begun, found;
  int depth;
} wi_walk;

static _Unwind_Reason_Code wi_step(struct _Unwind_Context *context, void *argument) {
  wi_walk *walk = argument;
  uintptr_t frame = _Unwind_GetIP(context);
  walk->begun = walk->begun || frame == walk->from;
  walk->found = walk->begun && wi_within(frame);
  if (walk->found || frame == 0 || ++walk->depth == 2 * WI_FRAMES)
    return _URC_END_OF_STACK;
  return _URC_NO_REASON;
}

// Whether the function, or one that it called, was interrupted.
static bool wi_in_function(const ucontext_t *context) {
#if defined(__x86_64__)
  uintptr_t pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
  uintptr_t frame = (uintptr_t)context->uc_mcontext.gregs[REG_RBP];
  uintptr_t low = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
  uintptr_t pc = context->uc_mcontext.pc, frame = context->uc_mcontext.regs[29];
  uintptr_t low = context->uc_mcontext.sp;
#else
#error "where the frame pointer is saved is not known"
#endif
  if (wi_within(pc))
    return true;
  if (wi->callers == WI_UNWIND_TABLES) {
    wi_walk walk = {.from = pc};
    _Unwind_Backtrace(wi_step, &walk);
    return walk.found;
  }
  if (wi->callers != WI_FRAME_POINTERS || low < wi_me.stack_low || low >= wi_me.stack_high)
    return false;
  for (int depth = 1;
       depth < WI_FRAMES && frame >= low && frame % 8 == 0 && frame + 16 <= wi_me.stack_high;
       depth++) {
    uintptr_t back = ((const uintptr_t *)frame)[1] & 0xffffffffffffu;
    if (back < 4096)
      break;
    if (wi_within(back - 1)) // the call, not what stands behind it
      return true;
    low = frame + 16;
    frame = ((const uintptr_t *)frame)[0];
  }
  return false;
}

static void wi_on_sample(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  if (!WI_ON() || wi_me.busy)
    return; // the next one stands for its time, too
  int saved = errno;
  wi_me.busy = 1;
  int64_t work = wi_work(), worked = work - wi_me.sampled_ns;
  wi_me.sampled_ns = work;
  atomic_fetch_add(&wi->samples, 1);
  if (wi->kind == WI_FUNCTION && worked > 0 && wi_in_function(context)) {
    atomic_fetch_add(&wi->target_samples, 1);
    atomic_fetch_add(&wi->target_ns, worked);
    wi_delay_others(wi_part(worked));
  }
  for (int i = 0; i < WI_NESTED; i++)
    if (wi_me.held[i].section != NULL)
      wi_add_open(wi_me.held[i].lock);
  wi_me.busy = 0;
  wi_pay();
  errno = saved;
}

// The kernel looks at timers of CPU time at its ticks, at a clock of perf whenever it is due.
static bool wi_start_clock(void) {
  struct perf_event_attr wanted = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof wanted,
                                   .config = PERF_COUNT_SW_TASK_CLOCK,
                                   .sample_period = (uint64_t)wi->period_ns,
                                   .wakeup_events = 1,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1,
                                   .disabled = 1};
  int low = (int)syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (low < 0)
    return false;
  int file = (int)syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, WI_HIGH_FILE);
  if (file >= 0)
    syscall(SYS_close, low);
  else
    file = low;
  struct f_owner_ex owner = {F_OWNER_TID, (pid_t)syscall(SYS_gettid)};
  if (fcntl(file, F_SETOWN_EX, &owner) != 0 || fcntl(file, F_SETSIG, wi_signal) != 0 ||
      fcntl(file, F_SETFL, O_ASYNC | O_NONBLOCK) != 0 ||
      ioctl(file, PERF_EVENT_IOC_ID, &wi_me.event) != 0 ||
      ioctl(file, PERF_EVENT_IOC_ENABLE, 0) != 0) {
    syscall(SYS_close, file);
    return false;
  }
  wi_me.file = file;
  return true;
}

static void wi_start_samples(void) {
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, wi_signal);
  next.pthread_sigmask_(SIG_UNBLOCK, &ours, NULL);
  if (wi_start_clock())
    return;
  atomic_fetch_or(&wi->flags, WI_TICKS);
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = wi_signal};
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &wi_me.timer) != 0) {
    atomic_fetch_or(&wi->flags, WI_NO_SAMPLES);
    return;
  }
  wi_me.has_timer = 1;
  struct timespec period = {wi->period_ns / 1000000000, wi->period_ns % 1000000000};
  struct itimerspec often = {period, period};
  syscall(SYS_timer_settime, wi_me.timer, 0, &often, NULL);
}

static void wi_stop_samples(void) {
  uint64_t event = 0;
  if (wi_me.file > 0 && ioctl(wi_me.file, PERF_EVENT_IOC_ID, &event) == 0 && event == wi_me.event)
    syscall(SYS_close, wi_me.file); // unless the job closed it, and opened another file there
  if (wi_me.has_timer)
    syscall(SYS_timer_delete, wi_me.timer);
  wi_me.file = wi_me.has_timer = 0;
}

// --- threads -----------------------------------------------------------------------------------

static int wi_look_at(struct dl_phdr_info *info, size_t bytes, void *unused) {
  (void)bytes, (void)unused;
  char path[PATH_MAX], real[PATH_MAX];
  const char *name = info->dlpi_name;
  if (name == NULL || *name == 0) {
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    name = path;
  }
  if (realpath(name, real) == NULL)
    return 0;
  for (int64_t module = 0; module < wi->modules; module++) {
    if (wi->modules_found >> module & 1 || strcmp(real, wi->module[module]) != 0)
      continue;
    int64_t known = atomic_load(&wi_known);
    for (int64_t i = 0; i < wi->ranges && i < WI_RANGES; i++)
      if (wi->range[i].module == (uint64_t)module) {
        wi_targets[known].start = info->dlpi_addr + wi->range[i].start;
        wi_targets[known++].end = info->dlpi_addr + wi->range[i].end;
      }
    wi->modules_found |= INT64_C(1) << module;
    atomic_store_explicit(&wi_known, known, memory_order_release);
  }
  return 0;
}

// Also at each start of a thread: a library may have been loaded since.
static void wi_find_targets(void) {
  static atomic_flag looking = ATOMIC_FLAG_INIT;
  if (wi->modules_found == (INT64_C(1) << wi->modules) - 1 || atomic_flag_test_and_set(&looking))
    return;
  dl_iterate_phdr(wi_look_at, NULL);
  atomic_flag_clear(&looking);
}

static void wi_begin_thread(int64_t local_ns) {
  void *low = NULL;
  size_t bytes = 0;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
  }
  wi_me = (wi_thread){
      .local_ns = local_ns, .stack_low = (uintptr_t)low, .stack_high = (uintptr_t)low + bytes};
  int64_t live = atomic_fetch_add(&wi->live, 1) + 1, most = atomic_load(&wi->most_live);
  while (live > most && !atomic_compare_exchange_weak(&wi->most_live, &most, live))
    ;
  pthread_setspecific(wi_key, &wi_me);
  wi_me.sampled_ns = wi_work();
  wi_me.on = 1;
  if (wi_signal != 0)
    wi_start_samples();
}

// How long this thread was ready and had no core: the second number of its schedstat.
static void wi_add_run_queue_delay(void) {
  char text[128];
  int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  ssize_t length = file >= 0 ? read(file, text, sizeof text - 1) : 0;
  text[length > 0 ? length : 0] = 0;
  if (file >= 0)
    close(file);
  char *second = strchr(text, ' ');
  if (second != NULL)
    atomic_fetch_add(&wi->run_queue_ns, strtoll(second, NULL, 10));
}

static void wi_end_thread(void *unused) {
  (void)unused;
  if (!WI_ON())
    return;
  wi_pay();
  wi_me.on = 0;
  wi_add_run_queue_delay();
  wi_stop_samples();
  atomic_fetch_sub(&wi->live, 1);
}

typedef struct {
  void *(*function)(void *);
  void *argument;
  int64_t local_ns;
} wi_start;

static void *wi_thread_start(void *argument) {
  wi_start start = *(wi_start *)argument;
  free(argument);
  if (atomic_load(&wi_on))
    wi_begin_thread(start.local_ns);
  return start.function(start.argument);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*function)(void *), void *restrict argument) {
  if (!RESOLVED())
    return EAGAIN;
  wi_start *start = WI_ON() ? malloc(sizeof *start) : NULL;
  if (start == NULL)
    return next.pthread_create_(thread, attributes, function, argument);
  wi_find_targets();
  wi_pay();
  *start = (wi_start){function, argument, wi_me.local_ns};
  int result = next.pthread_create_(thread, attributes, wi_thread_start, start);
  if (result != 0)
    free(start);
  return result;
}

// --- locks -------------------------------------------------------------------------------------

#define WI_CALLER() __builtin_extract_return_addr(__builtin_return_address(0))
#define WI_HAS(result) ((result) == 0 || (result) == EOWNERDEAD)

// Whoever asks for a lock has paid: else it would be there too early.
static void wi_ask(const volatile void *lock) {
  wi_add_open((uintptr_t)lock);
  wi_pay();
}

#define WI_TAKE(lock, try, wait)                                                                   \
  wi_ask((const volatile void *)(lock));                                                           \
  int result = try;                                                                                \
  if (result == EBUSY) {                                                                           \
    int64_t before = atomic_load(&wi->global_ns);                                                  \
    result = wait;                                                                                 \
    if (WI_HAS(result))                                                                            \
      wi_credit(before);                                                                           \
  }                                                                                                \
  if (WI_HAS(result))                                                                              \
    wi_taken((const volatile void *)(lock), WI_CALLER());                                          \
  return result

#define WI_LOCKS(name, type, try)                                                                  \
  int name(type *lock) {                                                                           \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (!WI_ON())                                                                                  \
      return next.name##_(lock);                                                                   \
    WI_TAKE(lock, next.try##_(lock), next.name##_(lock));                                          \
  }

#define WI_TIMED(name, type, try)                                                                  \
  int name(type *restrict lock, const struct timespec *restrict end) {                             \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (!WI_ON() || end->tv_nsec < 0 || end->tv_nsec >= 1000000000)                                \
      return next.name##_(lock, end); /* which refuses it before it looks at the lock */           \
    WI_TAKE(lock, next.try##_(lock), next.name##_(lock, end));                                     \
  }

#define WI_TRIES(name, type)                                                                       \
  int name(type *lock) {                                                                           \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (!WI_ON())                                                                                  \
      return next.name##_(lock);                                                                   \
    wi_ask((const volatile void *)lock);                                                           \
    int result = next.name##_(lock);                                                               \
    if (WI_HAS(result))                                                                            \
      wi_taken((const volatile void *)lock, WI_CALLER());                                          \
    return result;                                                                                 \
  }

#define WI_UNLOCKS(name, type)                                                                     \
  int name(type *lock) {                                                                           \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (WI_ON())                                                                                   \
      wi_released((const volatile void *)lock, false);                                             \
    return next.name##_(lock);                                                                     \
  }

WI_LOCKS(pthread_mutex_lock, pthread_mutex_t, pthread_mutex_trylock)
WI_TIMED(pthread_mutex_timedlock, pthread_mutex_t, pthread_mutex_trylock)
WI_TRIES(pthread_mutex_trylock, pthread_mutex_t)
WI_UNLOCKS(pthread_mutex_unlock, pthread_mutex_t)
WI_LOCKS(pthread_rwlock_rdlock, pthread_rwlock_t, pthread_rwlock_tryrdlock)
WI_LOCKS(pthread_rwlock_wrlock, pthread_rwlock_t, pthread_rwlock_trywrlock)
WI_TIMED(pthread_rwlock_timedrdlock, pthread_rwlock_t, pthread_rwlock_tryrdlock)
WI_TIMED(pthread_rwlock_timedwrlock, pthread_rwlock_t, pthread_rwlock_trywrlock)
WI_TRIES(pthread_rwlock_tryrdlock, pthread_rwlock_t)
WI_TRIES(pthread_rwlock_trywrlock, pthread_rwlock_t)
WI_UNLOCKS(pthread_rwlock_unlock, pthread_rwlock_t)
WI_LOCKS(pthread_spin_lock, pthread_spinlock_t, pthread_spin_trylock)
WI_TRIES(pthread_spin_trylock, pthread_spinlock_t)
WI_UNLOCKS(pthread_spin_unlock, pthread_spinlock_t)

int pthread_mutex_clocklock(pthread_mutex_t *restrict lock, clockid_t clock,
                            const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON() || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME) || end->tv_nsec < 0 ||
      end->tv_nsec >= 1000000000)
    return next.pthread_mutex_clocklock_(lock, clock, end);
  WI_TAKE(lock, next.pthread_mutex_trylock_(lock), next.pthread_mutex_clocklock_(lock, clock, end));
}

// --- other waits -------------------------------------------------------------------------------

// A wait that ends by itself is one in real time: nothing is credited.
#define WI_CONDITION(call)                                                                         \
  wi_released(mutex, true);                                                                        \
  int64_t before = atomic_load(&wi->global_ns);                                                    \
  int result = call;                                                                               \
  if (result == 0)                                                                                 \
    wi_credit(before);                                                                             \
  wi_taken(mutex, WI_CALLER());                                                                    \
  return result

int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON())
    return next.pthread_cond_wait_(condition, mutex);
  WI_CONDITION(next.pthread_cond_wait_(condition, mutex));
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON())
    return next.pthread_cond_timedwait_(condition, mutex, end);
  WI_CONDITION(next.pthread_cond_timedwait_(condition, mutex, end));
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON())
    return next.pthread_cond_clockwait_(condition, mutex, clock, end);
  WI_CONDITION(next.pthread_cond_clockwait_(condition, mutex, clock, end));
}

#define WI_WAKES(name, type)                                                                       \
  int name(type *what) {                                                                           \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (WI_ON())                                                                                   \
      wi_pay();                                                                                    \
    return next.name##_(what);                                                                     \
  }

WI_WAKES(pthread_cond_signal, pthread_cond_t)
WI_WAKES(pthread_cond_broadcast, pthread_cond_t)
WI_WAKES(sem_post, sem_t)

#define WI_WAIT(call, ended)                                                                       \
  wi_pay();                                                                                        \
  int64_t before = atomic_load(&wi->global_ns);                                                    \
  int result = call;                                                                               \
  if (ended)                                                                                       \
    wi_credit(before);                                                                             \
  return result

int sem_wait(sem_t *semaphore) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON())
    return next.sem_wait_(semaphore);
  WI_WAIT(next.sem_wait_(semaphore), result == 0);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON())
    return next.sem_timedwait_(semaphore, end);
  WI_WAIT(next.sem_timedwait_(semaphore, end), result == 0);
}

int pthread_barrier_wait(pthread_barrier_t *barrier) {
  if (!RESOLVED())
    return 0;
  if (!WI_ON())
    return next.pthread_barrier_wait_(barrier);
  WI_WAIT(next.pthread_barrier_wait_(barrier), true);
}

int pthread_join(pthread_t thread, void **value) {
  if (!RESOLVED())
    return EINVAL;
  if (!WI_ON())
    return next.pthread_join_(thread, value);
  WI_WAIT(next.pthread_join_(thread, value), result == 0);
}

int pthread_timedjoin_np(pthread_t thread, void **value, const struct timespec *end) {
  if (!RESOLVED())
    return EINVAL;
  if (!WI_ON())
    return next.pthread_timedjoin_np_(thread, value, end);
  WI_WAIT(next.pthread_timedjoin_np_(thread, value, end), result == 0);
}

// --- the signal of the samples -----------------------------------------------------------------

// Who blocks all signals does not mean ours.
#define WI_MASKS(name)                                                                             \
  int name(int how, const sigset_t *restrict wanted, sigset_t *restrict before) {                  \
    if (!RESOLVED())                                                                               \
      return -1;                                                                                   \
    sigset_t others;                                                                               \
    if (wanted != NULL && wi_signal != 0 && WI_ON() && how != SIG_UNBLOCK) {                       \
      others = *wanted;                                                                            \
      sigdelset(&others, wi_signal);                                                               \
      wanted = &others;                                                                            \
    }                                                                                              \
    return next.name##_(how, wanted, before);                                                      \
  }

WI_MASKS(pthread_sigmask)
WI_MASKS(sigprocmask)

// The job wants the signal for itself: then there are no samples, and that is reported.
static bool wi_keeps(int number, bool handled) {
  if (number == 0 || number != wi_signal || !WI_ON())
    return false;
  if (handled) {
    atomic_fetch_or(&wi->flags, WI_SIGNAL_TAKEN);
    atomic_store(&wi_on, false);
  }
  return !handled;
}

int sigaction(int number, const struct sigaction *restrict action,
              struct sigaction *restrict before) {
  if (!RESOLVED())
    return -1;
  if (wi_keeps(number,
               action != NULL && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN)) {
    if (before != NULL)
      *before = (struct sigaction){.sa_handler = SIG_DFL};
    return 0;
  }
  return next.sigaction_(number, action, before);
}

__sighandler_t signal(int number, __sighandler_t handler) {
  if (!RESOLVED())
    return SIG_ERR;
  if (wi_keeps(number, handler != SIG_DFL && handler != SIG_IGN))
    return SIG_DFL;
  return next.signal_(number, handler);
}

// The highest real-time signal that nobody handles.
static void wi_take_signal(void) {
  for (int number = SIGRTMAX; number > SIGRTMIN && wi_signal == 0; number--) {
    struct sigaction now;
    if (next.sigaction_(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
      struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
      ours.sa_sigaction = wi_on_sample;
      sigfillset(&ours.sa_mask);
      if (next.sigaction_(number, &ours, NULL) == 0)
        wi_signal = number;
    }
  }
  if (wi_signal == 0)
    atomic_fetch_or(&wi->flags, WI_NO_SAMPLES);
}

// --- the process -------------------------------------------------------------------------------

static int wi_write_name(struct dl_phdr_info *info, size_t bytes, void *out) {
  (void)bytes;
  fprintf(out, "%s%c", info->dlpi_name == NULL ? "" : info->dlpi_name, 0);
  return 0;
}

// The files whose functions can be targets, beside the file that we share.
static void wi_write_modules(void) {
  char path[PATH_MAX], exe[PATH_MAX];
  const char *shared = getenv("PERFLIB_WHAT_IF");
  if (shared == NULL || snprintf(path, sizeof path, "%s.modules", shared) >= (int)sizeof path)
    return;
  FILE *out = fopen(path, "we");
  if (out == NULL)
    return;
  ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
  exe[length > 0 ? length : 0] = 0;
  fprintf(out, "%s%c", exe, 0);
  dl_iterate_phdr(wi_write_name, out);
  fclose(out);
}

// A child has the parent's memory, and none of its threads and timers.
static void wi_after_fork(void) {
  atomic_store(&wi_on, false);
  wi_me.on = 0;
}

static void wi_end_process(void) {
  if (wi == NULL || !atomic_load(&wi_on) || wi->root != (int64_t)syscall(SYS_getpid))
    return;
  if (wi_me.on) {
    wi_pay();
    wi_add_run_queue_delay();
  }
  wi->cpu_ns = wi_clock(CLOCK_PROCESS_CPUTIME_ID);
  wi->end_ns = wi_clock(CLOCK_MONOTONIC);
  atomic_fetch_or(&wi->flags, WI_ENDED);
  atomic_store(&wi_on, false);
  if (wi->modules == 0)
    wi_write_modules();
}

void _exit(int status) {
  if (RESOLVED())
    wi_end_process();
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

void _Exit(int status) { _exit(status); }

static wi_shared *wi_open(void) {
  const char *path = getenv("PERFLIB_WHAT_IF");
  int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0)
    return NULL;
  void *mapped = MAP_FAILED;
  if (lseek(file, 0, SEEK_END) >= (off_t)sizeof(wi_shared))
    mapped = mmap(NULL, sizeof(wi_shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  wi_shared *found = mapped == MAP_FAILED ? NULL : mapped;
  return found != NULL && found->magic == WI_MAGIC ? found : NULL;
}

static void __attribute__((constructor)) wi_on_load(void) {
  if (!RESOLVED() || (wi = wi_open()) == NULL)
    return;
  int64_t nobody = 0, own = getpid();
  if (!__atomic_compare_exchange_n(&wi->root, &nobody, own, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE) &&
      nobody != own)
    return; // a child of the job
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  pthread_atfork(NULL, NULL, wi_after_fork);
  pthread_key_create(&wi_key, wi_end_thread);
  wi_cpus = CPU_COUNT(&cpus) > 1 ? CPU_COUNT(&cpus) : -1;
  atomic_store(&wi->live, 0);
  wi->modules_found = 0;
  wi_find_targets();
  wi_take_signal();
  wi->start_ns = wi->start_ns ? wi->start_ns : wi_clock(CLOCK_MONOTONIC);
  atomic_store(&wi_on, true);
  wi_begin_thread(atomic_load(&wi->global_ns));
}

static void __attribute__((destructor)) wi_on_exit(void) { wi_end_process(); }
