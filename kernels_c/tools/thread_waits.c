/* thread_waits: a library preloaded into a job, which stamps every wait of its threads.
 *
 * It stands between the program and the C library's pthread_mutex_lock, pthread_cond_wait and the
 * like. A lock is tried first: only if that fails does the thread wait, and only then is anything
 * written: begin and end (CLOCK_MONOTONIC), the lock and who held it, the CPU time that the thread
 * had meanwhile, and the calls that led there. Unwinding happens while the thread would wait
 * anyway. What the job sees is unchanged: results, errno, cancellation, signals. A timer of each
 * thread's CPU time samples its stack; the kernel looks at such timers at its ticks only.
 *
 * Nothing is timed for its own sake: the checksum of such a library is that the job's own account
 * of its waits agrees with what was stamped (tests/instruments/threads/preload/test_backend.py).
 *
 * Not seen: waits that do not come by these names (the C library's own, of C11's mtx_lock, raw
 * futexes), programs linked statically, children by a raw clone.
 *
 * @kernel
 * flags = ["-O2", "-fexceptions", "-fasynchronous-unwind-tables", "-ftls-model=initial-exec",
 *          "-fno-optimize-sibling-calls"]
 * link = ["-Wl,-z,now", "-ldl", "-lpthread", "-lgcc_s"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fnmatch.h>
#include <link.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unwind.h>

#include "common/thread_waits_state.h"

// @interface
// The dynamic linker alone calls what is here.
// @end

// --- the functions behind ours -----------------------------------------------------------------

#define NEXT_FUNCTIONS(X)                                                                          \
  X(pthread_mutex_lock)                                                                            \
  X(pthread_mutex_trylock)                                                                         \
  X(pthread_mutex_timedlock)                                                                       \
  X(pthread_mutex_clocklock)                                                                       \
  X(pthread_cond_wait)                                                                             \
  X(pthread_cond_timedwait)                                                                        \
  X(pthread_cond_clockwait)                                                                        \
  X(pthread_rwlock_rdlock)                                                                         \
  X(pthread_rwlock_wrlock)                                                                         \
  X(pthread_rwlock_tryrdlock)                                                                      \
  X(pthread_rwlock_trywrlock)                                                                      \
  X(pthread_rwlock_timedrdlock)                                                                    \
  X(pthread_rwlock_timedwrlock)                                                                    \
  X(pthread_rwlock_clockrdlock)                                                                    \
  X(pthread_rwlock_clockwrlock)                                                                    \
  X(pthread_spin_lock)                                                                             \
  X(pthread_spin_trylock)                                                                          \
  X(sem_wait)                                                                                      \
  X(sem_trywait)                                                                                   \
  X(sem_timedwait)                                                                                 \
  X(sem_clockwait)                                                                                 \
  X(pthread_barrier_wait)                                                                          \
  X(pthread_join)                                                                                  \
  X(pthread_tryjoin_np)                                                                            \
  X(pthread_timedjoin_np)                                                                          \
  X(pthread_clockjoin_np)                                                                          \
  X(pthread_create)                                                                                \
  X(pthread_setname_np)                                                                            \
  X(sigaction)                                                                                     \
  X(signal)                                                                                        \
  X(sigwait)                                                                                       \
  X(sigwaitinfo)                                                                                   \
  X(sigtimedwait)                                                                                  \
  X(signalfd)

#include "common/next_functions.h"

// --- stacks ------------------------------------------------------------------------------------

typedef struct {
  uintptr_t from; // the first frame wanted: those before are ours
  bool begun;
  uint32_t depth;
  uintptr_t place[TW_MOST_FRAMES], frame[TW_MOST_FRAMES];
} tw_walk;

static _Unwind_Reason_Code tw_step(struct _Unwind_Context *context, void *argument) {
  tw_walk *walk = argument;
  uintptr_t frame = _Unwind_GetIP(context);
  walk->begun = walk->begun || frame == walk->from;
  if (!walk->begun)
    return _URC_NO_REASON;
  if (frame == 0 || walk->depth == TW_MOST_FRAMES)
    return _URC_END_OF_STACK;
  walk->frame[walk->depth] = frame & 0xffffffffffffu; // without a pointer's signature
  walk->place[walk->depth++] = _Unwind_GetCFA(context);
  return _URC_NO_REASON;
}

// Whether the return addresses still stand where they stood; on x86-64 a call puts its own right
// below the caller's frame.
static bool tw_same(const tw_cached *stack, uintptr_t caller, uintptr_t place) {
#ifdef __x86_64__
  if (stack->depth == 0 || stack->frame[0] != caller || stack->place[0] != place)
    return false;
  for (uint32_t i = 1; i < stack->depth; i++)
    if (*(const uintptr_t *)(stack->place[i] - 8) != stack->frame[i])
      return false;
  return true;
#else
  (void)stack, (void)caller, (void)place;
  return false;
#endif
}

// The number of the stack of calls above `caller`, written down if it is new.
static uint32_t tw_stack(tw_thread *thread, uintptr_t caller, uintptr_t place) {
  size_t slot = (caller >> 2 ^ place >> 4 ^ place >> 10) % TW_CACHED;
  tw_cached *stack = &thread->cached[slot];
  if (tw_same(stack, caller, place))
    return stack->id;
  tw_walk walk = {.from = caller};
  _Unwind_Backtrace(tw_step, &walk);
  if (walk.depth == 0) { // there are no unwind tables
    walk.frame[0] = caller;
    walk.depth = 1;
  }
  uint64_t *record = tw_reserve(thread, 1 + walk.depth);
  stack->depth = 0;
  if (record == NULL)
    return 0;
  stack->id = ++thread->stacks;
  for (uint32_t i = 0; i < walk.depth; i++) {
    record[1 + i] = stack->frame[i] = walk.frame[i];
    stack->place[i] = walk.place[i];
    tw_know(walk.frame[i]);
  }
  stack->depth = walk.depth;
  __atomic_store_n(record, tw_head(TW_STACK, walk.depth, stack->id), __ATOMIC_RELEASE);
  tw_note_name(thread); // it may have been named anew since
  return stack->id;
}

// --- samples -----------------------------------------------------------------------------------

static uint32_t tw_frames(const tw_thread *thread, const ucontext_t *context, uintptr_t *frames) {
#if defined(__x86_64__)
  uintptr_t pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
  uintptr_t frame = (uintptr_t)context->uc_mcontext.gregs[REG_RBP];
  uintptr_t low = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
  uintptr_t pc = context->uc_mcontext.pc, frame = context->uc_mcontext.regs[29];
  uintptr_t low = context->uc_mcontext.sp;
#else
  return 0;
#endif
  frames[0] = pc;
  if (tw.shared->callers == TW_UNWIND_TABLES) {
    tw_walk walk = {.from = pc};
    _Unwind_Backtrace(tw_step, &walk);
    if (walk.depth > 0)
      memcpy(frames, walk.frame, walk.depth * sizeof *frames);
    return walk.depth > 0 ? walk.depth : 1;
  }
  uint32_t depth = 1;
  if (tw.shared->callers != TW_FRAME_POINTERS || low < thread->stack_low ||
      low >= thread->stack_high)
    return depth; // a stack of the job's own making: where it ends is not known
  while (depth < TW_MOST_FRAMES && frame >= low && frame % 8 == 0 &&
         frame + 16 <= thread->stack_high) {
    uintptr_t back = ((const uintptr_t *)frame)[1] & 0xffffffffffffu;
    if (back < TW_PAGE)
      break;
    frames[depth++] = back;
    low = frame + 16;
    frame = ((const uintptr_t *)frame)[0];
  }
  return depth;
}

static void tw_on_sample(int number, siginfo_t *info, void *context) {
  int saved = errno;
  tw_thread *thread = tw_this;
  (void)number;
  if (atomic_load(&tw.on) && thread != NULL && !tw_gone && info->si_code == SI_TIMER) {
    uint64_t now = tw_now(), cpu = tw_cpu();
    if (now < tw.shared->from_ns || now >= __atomic_load_n(&tw.shared->until_ns, __ATOMIC_RELAXED))
      thread->sampled_cpu_ns = cpu;
    else if (!atomic_load(&thread->busy)) { // else it stands in the next one's weight
      atomic_store(&thread->busy, 1);
      uintptr_t frames[TW_MOST_FRAMES];
      uint32_t depth = tw_frames(thread, context, frames);
      uint64_t *record = depth ? tw_reserve(thread, 4 + depth) : NULL;
      if (record == NULL) {
        tw_count_lost(0, 1);
      } else {
        record[1] = now;
        record[2] = cpu - thread->sampled_cpu_ns;
        record[3] = (uint64_t)sched_getcpu();
        for (uint32_t i = 0; i < depth; i++) {
          record[4 + i] = frames[i];
          tw_know(frames[i]);
        }
        __atomic_store_n(record, tw_head(TW_SAMPLE, depth, 0), __ATOMIC_RELEASE);
      }
      thread->sampled_cpu_ns = cpu;
      atomic_store(&thread->busy, 0);
    }
  }
  errno = saved;
}

static void tw_start_timer(tw_thread *thread) {
  if (tw.signal == 0)
    return;
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, tw.signal);
  pthread_sigmask(SIG_UNBLOCK, &ours, NULL); // a job that blocks all signals does not mean this one
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = tw.signal};
  event._sigev_un._tid = thread->tid;
  if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &thread->timer) != 0) {
    __atomic_or_fetch(&tw.process->flags, TW_NO_TIMER, __ATOMIC_RELAXED);
    return;
  }
  thread->has_timer = 1;
  thread->sampled_cpu_ns = tw_cpu();
  struct timespec period = {tw.shared->period_ns / 1000000000, tw.shared->period_ns % 1000000000};
  struct itimerspec often = {period, period};
  syscall(SYS_timer_settime, thread->timer, 0, &often, NULL);
}

static void tw_stop_timer(tw_thread *thread) {
  if (thread->has_timer)
    syscall(SYS_timer_delete, thread->timer);
  thread->has_timer = 0;
}

// The job wants the signal for itself.
static void tw_give_signal(void) {
  __atomic_or_fetch(&tw.process->flags, TW_SIGNAL_TAKEN, __ATOMIC_RELAXED);
  tw.signal = 0;
  for (tw_thread *thread = atomic_load(&tw.threads); thread != NULL; thread = thread->next)
    if (thread->used)
      tw_stop_timer(thread);
}

// The highest real-time signal that nobody handles.
static void tw_take_signal(void) {
  tw.signal = 0;
  for (int number = SIGRTMAX; number > SIGRTMIN && tw.signal == 0; number--) {
    struct sigaction now;
    if (next.sigaction_(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
      struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
      ours.sa_sigaction = tw_on_sample;
      sigfillset(&ours.sa_mask);
      if (next.sigaction_(number, &ours, NULL) == 0)
        tw.signal = number;
    }
  }
  tw.process->signal = (uint32_t)tw.signal;
}

// --- threads -----------------------------------------------------------------------------------

// With `bounds` it may allocate, as at a thread's start; within a lock it may not.
static tw_thread *tw_register(bool bounds) {
  if (tw_gone || !atomic_load(&tw.on))
    return NULL;
  tw_thread *thread = tw_place();
  if (thread == NULL)
    return NULL;
  thread->self = pthread_self();
  thread->tid = (int32_t)syscall(SYS_gettid);
  thread->rounds = 0;
  thread->stacks = thread->sequence = 0;
  thread->first = thread->chunk = NULL;
  thread->stack_low = thread->stack_high = 0;
  for (size_t i = 0; i < TW_CACHED; i++)
    thread->cached[i].depth = 0;
  atomic_store(&thread->busy, 1);
  if (tw_next_chunk(thread)) {
    thread->first->self = (uint64_t)thread->self;
    thread->first->start_cpu_ns = tw_cpu();
    thread->first->start_ns = tw_now();
    tw_note_name(thread);
  }
  pthread_attr_t attributes;
  if (bounds && pthread_getattr_np(thread->self, &attributes) == 0) {
    void *low = NULL;
    size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    thread->stack_low = (uintptr_t)low;
    thread->stack_high = (uintptr_t)low + bytes;
  }
  tw_this = thread;
  if (tw.has_key)
    pthread_setspecific(tw.key, thread);
  tw_start_timer(thread);
  atomic_store(&thread->busy, 0);
  return thread;
}

static void tw_end_thread(tw_thread *thread) {
  tw_gone = 1;
  tw_this = NULL;
  tw_stop_timer(thread);
  if (atomic_load(&tw.stale))
    tw_save_maps();
  if (thread->first != NULL) {
    tw_note_name(thread);
    thread->first->end_cpu_ns = tw_cpu();
    thread->first->end_ns = tw_now();
    if (thread->chunk != thread->first)
      munmap(thread->chunk, thread->chunk->bytes);
    munmap(thread->first, thread->first->bytes);
  }
  thread->first = thread->chunk = NULL;
  thread->used = 0;
}

// At the end of a thread; put off to the last round, so that other destructors' waits are seen.
static void tw_on_thread_end(void *argument) {
  tw_thread *thread = argument;
  if (thread != tw_this)
    return; // of a parent process
  if (++thread->rounds < 4)
    pthread_setspecific(tw.key, thread);
  else
    tw_end_thread(thread);
}

typedef struct {
  void *(*function)(void *);
  void *argument;
} tw_start;

static void *tw_thread_start(void *argument) {
  tw_start start = *(tw_start *)argument;
  free(argument);
  if (tw_this == NULL)
    tw_register(true);
  return start.function(start.argument);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*function)(void *), void *restrict argument) {
  if (!RESOLVED())
    return EAGAIN;
  tw_start *start = atomic_load(&tw.on) ? malloc(sizeof *start) : NULL;
  if (start == NULL)
    return next.pthread_create_(thread, attributes, function, argument);
  *start = (tw_start){function, argument};
  int result = next.pthread_create_(thread, attributes, tw_thread_start, start);
  if (result != 0)
    free(start);
  return result;
}

int pthread_setname_np(pthread_t thread, const char *name) {
  if (!RESOLVED())
    return EAGAIN;
  int result = next.pthread_setname_np_(thread, name);
  if (result == 0 && tw_this != NULL && pthread_equal(thread, pthread_self()))
    tw_note_name(tw_this);
  return result;
}

// --- waits -------------------------------------------------------------------------------------

typedef struct {
  tw_thread *thread; // NULL: it is not recorded
  uint64_t start_ns, cpu_ns;
  uintptr_t lock;
  enum tw_kind kind;
  int32_t owner;
  uint32_t stack;
  int result; // ECANCELED until the wait has come to its end
} tw_wait;

static tw_wait tw_begin(enum tw_kind kind, const volatile void *lock, int32_t owner,
                        const void *caller, const void *frame) {
  tw_wait wait = {.kind = kind, .lock = (uintptr_t)lock, .owner = owner, .result = ECANCELED};
  if (tw_gone || getpid() != tw.pid) // a child that was not forked by fork()
    return wait;
  int saved = errno;
  tw_thread *thread = tw_this != NULL ? tw_this : tw_register(false);
  uint64_t now = tw_now();
  if (thread != NULL && !atomic_load(&thread->busy) &&
      now < __atomic_load_n(&tw.shared->until_ns, __ATOMIC_RELAXED)) {
    atomic_store(&thread->busy, 1);
    wait.thread = thread;
    wait.start_ns = now;
    wait.stack = tw_stack(thread, (uintptr_t)caller, (uintptr_t)frame + 2 * sizeof(void *));
    if (thread->first != NULL) {
      tw_open_wait *open = &thread->first->open;
      open->lock = wait.lock;
      open->kind = kind;
      open->owner = owner;
      open->stack = wait.stack;
      __atomic_store_n(&open->start_ns, now, __ATOMIC_RELEASE);
    }
    wait.cpu_ns = tw_cpu();
    atomic_store(&thread->busy, 0);
  }
  errno = saved;
  return wait;
}

// A result that says that there was nothing to wait for.
static bool tw_refused(int result) {
  return result == EINVAL || result == EDEADLK || result == EPERM || result == EAGAIN;
}

// Also when the wait is cancelled: the compiler calls it wherever the scope of a wait is left.
static void tw_end(const tw_wait *wait) {
  tw_thread *thread = wait->thread;
  if (thread == NULL || thread != tw_this)
    return;
  int saved = errno;
  uint64_t now = tw_now(), cpu = tw_cpu();
  atomic_store(&thread->busy, 1);
  if (thread->first != NULL)
    __atomic_store_n(&thread->first->open.start_ns, 0, __ATOMIC_RELEASE);
  if (now > tw.shared->from_ns && !tw_refused(wait->result)) {
    uint64_t *record = tw_reserve(thread, 8);
    if (record == NULL) {
      tw_count_lost(1, 0);
    } else {
      tw_slot slot = {.start_ns = (int64_t)wait->start_ns,
                      .end_ns = (int64_t)now,
                      .lock = wait->lock,
                      .owner = wait->owner,
                      .kind = (uint8_t)wait->kind,
                      .result = (int16_t)wait->result,
                      .cpu_ns = (int64_t)(cpu - wait->cpu_ns),
                      .cpu = sched_getcpu(),
                      .cpu_end_ns = (int64_t)cpu};
      memcpy(record + 1, (const uint64_t *)&slot + 1, sizeof slot - sizeof *record);
      __atomic_store_n(record, tw_head(TW_WAIT, 0, wait->stack), __ATOMIC_RELEASE);
    }
  }
  if (atomic_load_explicit(&tw.stale, memory_order_relaxed))
    tw_save_maps();
  atomic_store(&thread->busy, 0);
  errno = saved;
}

#define TW_WAITING(kind, lock, owner)                                                              \
  __attribute__((cleanup(tw_end))) tw_wait wait =                                                  \
      tw_begin(kind, lock, owner, __builtin_extract_return_addr(__builtin_return_address(0)),      \
               __builtin_frame_address(0))
#define TW_ON() atomic_load_explicit(&tw.on, memory_order_relaxed)

static int32_t tw_mutex_owner(const pthread_mutex_t *mutex) {
  if (!(tw.process->flags & TW_OWNERS))
    return 0;
  return __atomic_load_n(&mutex->__data.__owner, __ATOMIC_RELAXED) & 0x3fffffff;
}

static int32_t tw_writer(const pthread_rwlock_t *lock) {
  if (!(tw.process->flags & TW_OWNERS))
    return 0;
  return __atomic_load_n(&lock->__data.__cur_writer, __ATOMIC_RELAXED);
}

// Where the owner stands is the C library's own affair: a lock of our own shows whether it is so.
static bool tw_owners_known(void) {
  int32_t tid = (int32_t)syscall(SYS_gettid);
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  next.pthread_mutex_lock_(&mutex);
  next.pthread_rwlock_wrlock_(&lock);
  bool known = mutex.__data.__owner == tid && lock.__data.__cur_writer == tid;
  pthread_rwlock_unlock(&lock);
  pthread_mutex_unlock(&mutex);
  return known && mutex.__data.__owner == 0 && lock.__data.__cur_writer == 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON())
    return next.pthread_mutex_lock_(mutex);
  int tried = next.pthread_mutex_trylock_(mutex);
  if (tried != EBUSY)
    return tried; // also EOWNERDEAD, which comes once, and with the lock
  TW_WAITING(TW_MUTEX, mutex, tw_mutex_owner(mutex));
  return wait.result = next.pthread_mutex_lock_(mutex);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  int tried = TW_ON() ? next.pthread_mutex_trylock_(mutex) : EBUSY;
  if (tried != EBUSY)
    return tried;
  if (!TW_ON())
    return next.pthread_mutex_timedlock_(mutex, end);
  TW_WAITING(TW_MUTEX, mutex, tw_mutex_owner(mutex));
  return wait.result = next.pthread_mutex_timedlock_(mutex, end);
}

// A clock that there is not is refused even if the lock is free.
static bool tw_valid(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC;
}

int pthread_mutex_clocklock(pthread_mutex_t *restrict mutex, clockid_t clock,
                            const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON() || !tw_valid(clock))
    return next.pthread_mutex_clocklock_(mutex, clock, end);
  int tried = next.pthread_mutex_trylock_(mutex);
  if (tried != EBUSY)
    return tried;
  TW_WAITING(TW_MUTEX, mutex, tw_mutex_owner(mutex));
  return wait.result = next.pthread_mutex_clocklock_(mutex, clock, end);
}

int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON())
    return next.pthread_cond_wait_(condition, mutex);
  TW_WAITING(TW_CONDITION, condition, 0);
  return wait.result = next.pthread_cond_wait_(condition, mutex);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON())
    return next.pthread_cond_timedwait_(condition, mutex, end);
  TW_WAITING(TW_CONDITION, condition, 0);
  return wait.result = next.pthread_cond_timedwait_(condition, mutex, end);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON())
    return next.pthread_cond_clockwait_(condition, mutex, clock, end);
  TW_WAITING(TW_CONDITION, condition, 0);
  return wait.result = next.pthread_cond_clockwait_(condition, mutex, clock, end);
}

#define TW_RWLOCK(name, try)                                                                       \
  int name(pthread_rwlock_t *lock) {                                                               \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    int tried = TW_ON() ? next.try##_(lock) : EBUSY;                                               \
    if (tried != EBUSY)                                                                            \
      return tried;                                                                                \
    if (!TW_ON())                                                                                  \
      return next.name##_(lock);                                                                   \
    TW_WAITING(TW_RWLOCK, lock, tw_writer(lock));                                                  \
    return wait.result = next.name##_(lock);                                                       \
  }

#define TW_TIMED_RWLOCK(name, try)                                                                 \
  int name(pthread_rwlock_t *restrict lock, const struct timespec *restrict end) {                 \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (!TW_ON() || end->tv_nsec < 0 || end->tv_nsec >= 1000000000)                                \
      return next.name##_(lock, end); /* which refuses it before it looks at the lock */           \
    int tried = next.try##_(lock);                                                                 \
    if (tried != EBUSY)                                                                            \
      return tried;                                                                                \
    TW_WAITING(TW_RWLOCK, lock, tw_writer(lock));                                                  \
    return wait.result = next.name##_(lock, end);                                                  \
  }

#define TW_CLOCK_RWLOCK(name, try)                                                                 \
  int name(pthread_rwlock_t *restrict lock, clockid_t clock,                                       \
           const struct timespec *restrict end) {                                                  \
    if (!RESOLVED())                                                                               \
      return 0;                                                                                    \
    if (!TW_ON() || !tw_valid(clock) || end->tv_nsec < 0 || end->tv_nsec >= 1000000000)            \
      return next.name##_(lock, clock, end);                                                       \
    int tried = next.try##_(lock);                                                                 \
    if (tried != EBUSY)                                                                            \
      return tried;                                                                                \
    TW_WAITING(TW_RWLOCK, lock, tw_writer(lock));                                                  \
    return wait.result = next.name##_(lock, clock, end);                                           \
  }

TW_RWLOCK(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock)
TW_RWLOCK(pthread_rwlock_wrlock, pthread_rwlock_trywrlock)
TW_TIMED_RWLOCK(pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock)
TW_TIMED_RWLOCK(pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock)
TW_CLOCK_RWLOCK(pthread_rwlock_clockrdlock, pthread_rwlock_tryrdlock)
TW_CLOCK_RWLOCK(pthread_rwlock_clockwrlock, pthread_rwlock_trywrlock)

int pthread_spin_lock(pthread_spinlock_t *lock) {
  if (!RESOLVED())
    return 0;
  int tried = TW_ON() ? next.pthread_spin_trylock_(lock) : EBUSY;
  if (tried != EBUSY)
    return tried;
  if (!TW_ON())
    return next.pthread_spin_lock_(lock);
  TW_WAITING(TW_SPIN, lock, 0);
  return wait.result = next.pthread_spin_lock_(lock);
}

// Semaphores and joins are cancellation points even where there is nothing to wait for.
int sem_wait(sem_t *semaphore) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON())
    return next.sem_wait_(semaphore);
  pthread_testcancel();
  int saved = errno;
  if (next.sem_trywait_(semaphore) == 0)
    return 0;
  errno = saved;
  TW_WAITING(TW_SEMAPHORE, semaphore, 0);
  int result = next.sem_wait_(semaphore);
  wait.result = result ? errno : 0;
  return result;
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON() || end->tv_nsec < 0 || end->tv_nsec >= 1000000000)
    return next.sem_timedwait_(semaphore, end);
  pthread_testcancel();
  int saved = errno;
  if (next.sem_trywait_(semaphore) == 0)
    return 0;
  errno = saved;
  TW_WAITING(TW_SEMAPHORE, semaphore, 0);
  int result = next.sem_timedwait_(semaphore, end);
  wait.result = result ? errno : 0;
  return result;
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict end) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON() || !tw_valid(clock) || end->tv_nsec < 0 || end->tv_nsec >= 1000000000)
    return next.sem_clockwait_(semaphore, clock, end);
  pthread_testcancel();
  int saved = errno;
  if (next.sem_trywait_(semaphore) == 0)
    return 0;
  errno = saved;
  TW_WAITING(TW_SEMAPHORE, semaphore, 0);
  int result = next.sem_clockwait_(semaphore, clock, end);
  wait.result = result ? errno : 0;
  return result;
}

// The thread that comes last is the one that all others waited for.
int pthread_barrier_wait(pthread_barrier_t *barrier) {
  if (!RESOLVED())
    return 0;
  if (!TW_ON())
    return next.pthread_barrier_wait_(barrier);
  TW_WAITING(TW_BARRIER, barrier, 0);
  int result = next.pthread_barrier_wait_(barrier);
  wait.result = result == PTHREAD_BARRIER_SERIAL_THREAD ? EPERM : result;
  return result;
}

int pthread_join(pthread_t thread, void **value) {
  if (!RESOLVED())
    return EINVAL;
  if (!TW_ON())
    return next.pthread_join_(thread, value);
  pthread_testcancel();
  int tried = next.pthread_tryjoin_np_(thread, value);
  if (tried != EBUSY)
    return tried;
  TW_WAITING(TW_JOIN, (const void *)thread, 0);
  return wait.result = next.pthread_join_(thread, value);
}

int pthread_timedjoin_np(pthread_t thread, void **value, const struct timespec *end) {
  if (!RESOLVED())
    return EINVAL;
  if (!TW_ON())
    return next.pthread_timedjoin_np_(thread, value, end);
  TW_WAITING(TW_JOIN, (const void *)thread, 0);
  return wait.result = next.pthread_timedjoin_np_(thread, value, end);
}

int pthread_clockjoin_np(pthread_t thread, void **value, clockid_t clock,
                         const struct timespec *end) {
  if (!RESOLVED())
    return EINVAL;
  if (!TW_ON())
    return next.pthread_clockjoin_np_(thread, value, clock, end);
  TW_WAITING(TW_JOIN, (const void *)thread, 0);
  return wait.result = next.pthread_clockjoin_np_(thread, value, clock, end);
}

// --- the signal of the samples -----------------------------------------------------------------

// The job may set it back to what it was, and believe so; a handler of its own ends the samples.
static bool tw_keeps(int number, bool handled) {
  if (number == 0 || number != tw.signal || !TW_ON())
    return false;
  if (handled)
    tw_give_signal();
  return !handled;
}

int sigaction(int number, const struct sigaction *restrict action,
              struct sigaction *restrict before) {
  if (!RESOLVED())
    return -1;
  bool handled = action != NULL && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
  bool ours = number != 0 && number == tw.signal && TW_ON();
  if (tw_keeps(number, handled)) {
    if (before != NULL)
      *before = (struct sigaction){.sa_handler = SIG_DFL};
    return 0;
  }
  int result = next.sigaction_(number, action, before);
  if (ours && before != NULL && result == 0)
    *before = (struct sigaction){.sa_handler = SIG_DFL};
  return result;
}

__sighandler_t signal(int number, __sighandler_t handler) {
  if (!RESOLVED())
    return SIG_ERR;
  bool ours = number != 0 && number == tw.signal && TW_ON();
  if (tw_keeps(number, handler != SIG_DFL && handler != SIG_IGN))
    return SIG_DFL;
  __sighandler_t before = next.signal_(number, handler);
  return ours && before != SIG_ERR ? SIG_DFL : before;
}

// Who waits for all signals does not mean ours.
static sigset_t tw_without_ours(const sigset_t *signals) {
  sigset_t others = *signals;
  if (tw.signal != 0 && TW_ON())
    sigdelset(&others, tw.signal);
  return others;
}

int sigwait(const sigset_t *restrict signals, int *restrict number) {
  sigset_t others = tw_without_ours(signals);
  return RESOLVED() ? next.sigwait_(&others, number) : EINVAL;
}

int sigwaitinfo(const sigset_t *restrict signals, siginfo_t *restrict info) {
  sigset_t others = tw_without_ours(signals);
  return RESOLVED() ? next.sigwaitinfo_(&others, info) : -1;
}

int sigtimedwait(const sigset_t *restrict signals, siginfo_t *restrict info,
                 const struct timespec *restrict timeout) {
  sigset_t others = tw_without_ours(signals);
  return RESOLVED() ? next.sigtimedwait_(&others, info, timeout) : -1;
}

int signalfd(int file, const sigset_t *signals, int flags) {
  sigset_t others = tw_without_ours(signals);
  return RESOLVED() ? next.signalfd_(file, &others, flags) : -1;
}

// --- processes ---------------------------------------------------------------------------------

static int tw_note_library(struct dl_phdr_info *info, size_t bytes, void *unused) {
  (void)bytes, (void)unused;
  tw_know((uintptr_t)info->dlpi_phdr);
  return 0;
}

static bool tw_new_file(void) {
  int file = -1;
  for (uint32_t generation = 0; file < 0 && generation < 100000; generation++) {
    tw_path(tw.waits, "/waits.", tw.pid, generation);
    tw_path(tw.maps, "/maps.", tw.pid, generation);
    file = tw_open(tw.waits, O_RDWR | O_CREAT | O_EXCL);
    if (file < 0 && errno != EEXIST)
      return false;
  }
  if (file < 0)
    return false;
  tw.process = tw_extend(file, 0, TW_PAGE) ? tw_map(file, 0, TW_PAGE) : NULL;
  tw_close(file);
  return tw.process != NULL;
}

// A process begins: by the start of a program, or by fork().
static void tw_begin_process(void) {
  tw.pid = (int32_t)getpid();
  tw.number = 0;
  tw_this = NULL;
  tw_gone = 0;
  atomic_store(&tw.threads, NULL);
  atomic_store(&tw.listing, 0);
  atomic_store(&tw.saving, 0);
  atomic_store(&tw.saves, 0);
  if (!tw_new_file())
    return;
  tw_process *process = tw.process;
  process->start_ns = tw_now();
  process->length = TW_GRAIN; // chunks begin there: their places are multiples
  process->pid = tw.pid;
  process->parent = (int32_t)getppid();
  if (readlink("/proc/self/exe", process->program, sizeof process->program - 1) < 0)
    process->program[0] = 0;
  if (tw_owners_known())
    process->flags |= TW_OWNERS;
  __atomic_store_n(&process->magic, TW_MAGIC, __ATOMIC_RELEASE);
  tw_save_maps();
  dl_iterate_phdr(tw_note_library, NULL);
  atomic_store(&tw.stale, 0);
  if (tw.shared->period_ns > 0)
    tw_take_signal();
  atomic_store(&tw.on, 1);
  tw_register(true);
}

static void tw_after_fork(void) {
  if (tw.off || !atomic_load(&tw.on))
    return;
  atomic_store(&tw.on, 0);
  if (tw.signal != 0) { // the timers are the parent's alone
    struct sigaction none = {.sa_handler = SIG_DFL};
    next.sigaction_(tw.signal, &none, NULL);
    tw.signal = 0;
  }
  tw.off = !tw.shared->follow;
  tw.process = NULL;
  tw_this = NULL;
  if (!tw.off)
    tw_begin_process();
}

static bool tw_left_alone(void) {
  char program[4096];
  ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
  program[bytes > 0 ? bytes : 0] = 0;
  const char *slash = strrchr(program, '/');
  const char *name = slash != NULL ? slash + 1 : program;
  for (const char *pattern = tw.shared->patterns;
       *pattern != 0 && pattern < tw.shared->patterns + TW_PATTERNS; pattern += strlen(pattern) + 1)
    if (fnmatch(pattern, name, 0) == 0 || fnmatch(pattern, program_invocation_short_name, 0) == 0)
      return true;
  return false;
}

static bool tw_open_shared(void) {
  const char *folder = getenv("PERFLIB_THREAD_WAITS");
  if (folder == NULL || strlen(folder) >= TW_PATH - 64)
    return false;
  char path[TW_PATH];
  strcpy(tw.folder, folder);
  strcpy(path, folder);
  tw_append(path, "/shared");
  int file = tw_open(path, O_RDWR);
  if (file < 0)
    return false;
  tw.shared = tw_map(file, 0, sizeof *tw.shared);
  tw_close(file);
  return tw.shared != NULL && tw.shared->magic == TW_MAGIC;
}

static void __attribute__((constructor)) tw_on_load(void) {
  tw.off = 1;
  if (!RESOLVED() || !tw_open_shared())
    return;
  tw_shared *shared = tw.shared;
  if (tw_left_alone()) {
    unsetenv("PERFLIB_THREAD_WAITS"); // and what it starts
    return;
  }
  uint32_t nobody = 0, own = (uint32_t)getpid();
  if (__atomic_compare_exchange_n(&shared->root, &nobody, own, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE)) {
    uint64_t now = tw_now();
    shared->start_ns = now;
    shared->from_ns = now + (uint64_t)shared->skip_ns;
    if (shared->duration_ns > 0)
      shared->until_ns = shared->from_ns + (uint64_t)shared->duration_ns;
  } else if (nobody != own && !shared->follow) {
    return;
  }
  tw.off = 0;
  tw.has_key = pthread_key_create(&tw.key, tw_on_thread_end) == 0;
  pthread_atfork(NULL, NULL, tw_after_fork);
  tw_begin_process();
}

static void __attribute__((destructor)) tw_on_exit(void) {
  if (!atomic_load(&tw.on) || getpid() != tw.pid)
    return;
  if (tw_this != NULL && tw_this->first != NULL) {
    tw_note_name(tw_this);
    tw_this->first->end_cpu_ns = tw_cpu();
    tw_this->first->end_ns = tw_now();
  }
  tw_save_maps();
  tw.process->end_ns = tw_now();
  __atomic_or_fetch(&tw.process->flags, TW_ENDED, __ATOMIC_RELAXED);
}
