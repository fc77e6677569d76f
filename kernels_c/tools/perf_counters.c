/*
 * The kernel's counters (perf_event_open): open, switch, read, and follow a program with them.
 *
 * Python decides which counters stand together and what their numbers mean; here is what Python
 * cannot do well: struct perf_event_attr with its bit fields, and a loop that wakes up every few
 * milliseconds. While the loop runs, cffi has released Python's lock, so a busy notebook does not
 * delay it and it takes no time from the notebook.
 *
 * Each counter is read by itself (no PERF_FORMAT_GROUP): kernels before 4.14 refuse that format for
 * inherited counters. The counters of a group are on the processor together all the same. A group
 * is switched through its leader alone: while a leader is off its members are, too, and their
 * clocks stand. So one call switches a group, however large it is.
 *
 * Nothing is timed here and nothing can be optimised away: every step is a system call.
 *
 * @kernel
 * flags = ["-O2"]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // ppoll
#endif
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// @interface
typedef struct {
  uint64_t value;
  uint64_t enabled_ns; // while it was to count (and its program ran)
  uint64_t running_ns; // while it did count; less where counters are shared in turns
  uint64_t id;
  int64_t lost; // lost samples; -1 where the kernel does not say (before 6.0)
} counter_reading;

typedef struct {
  int64_t due_ns;  // CLOCK_MONOTONIC, when the reading was due; 0 for the last, which was not due
  int64_t time_ns; // when it was made
  int64_t missed;  // ticks since the reading before that went by unread
  int64_t set;     // which set was on since the reading before
} counter_tick;

typedef struct {
  int64_t period_ns;
  int64_t start_ns;  // the first tick is due one period later
  int64_t ticks_due; // so far, the missed ones among them; moved on
  int64_t set;       // which set is on; moved on
  int64_t turn;      // how far in the order of sets; moved on
  int64_t sets;      // with one set nothing is switched
  const int32_t
      *first_counter; // counters[first_counter[s] .. first_counter[s + 1] - 1] are set s's
  const int32_t *counters;
  const int32_t *first_leader; // the same for the leaders that switch a set
  const int32_t *leaders;
  int64_t clocks; // counters that are always on and read with every set: clock[0 .. clocks - 1]
  const int32_t *clock;
  const int32_t *order; // sets in the order of their turns, over and over
  int64_t order_length;
  int32_t stop;    // ends when this descriptor is readable
  int32_t process; // ends when this one is: a pidfd; -1 for none
} counter_plan;

// A descriptor, or minus the error number. Options: 1 without user, 2 without kernel, 4 inherited
// by threads and children to come, 8 off until it is switched on, 16 the pid is the descriptor of a
// control group's folder.
int64_t counter_open(uint32_t type, uint64_t config, uint64_t config1, uint64_t config2,
                     int64_t pid, int64_t cpu, int64_t leader, int64_t options);
// 0, or minus the error number of the first that failed. A counter in the kernel's error state
// reads as all zero.
int64_t counter_read(const int32_t *counters, int64_t count, counter_reading *out);
int64_t counter_switch(const int32_t *leaders, int64_t count, int64_t on);

// Follow until the stop (1), the end of the process (2), or the buffers are full (0); minus an
// error number. Tick t has its readings in readings[t * stride ..]: the clocks, then the set's.
int64_t counter_follow(counter_plan *plan, counter_tick *ticks, counter_reading *readings,
                       int64_t stride, int64_t capacity, int64_t *written);
// Which tick is due next, and how many were missed, for ticks_due behind us at a time.
int64_t counter_next_tick(int64_t elapsed_ns, int64_t period_ns, int64_t ticks_due,
                          int64_t *missed);
// @end

enum { WITHOUT_USER = 1, WITHOUT_KERNEL = 2, INHERIT = 4, OFF = 8, CGROUP = 16 };
enum { FULL = 0, STOPPED = 1, PROCESS_ENDED = 2 };

int64_t counter_open(uint32_t type, uint64_t config, uint64_t config1, uint64_t config2,
                     int64_t pid, int64_t cpu, int64_t leader, int64_t options) {
  struct perf_event_attr attr = {
      .type = type,
      .size = sizeof attr,
      .config = config,
      .config1 = config1,
      .config2 = config2,
      .read_format =
          PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_ID,
      .disabled = !!(options & OFF),
      .inherit = !!(options & INHERIT),
      .exclude_user = !!(options & WITHOUT_USER),
      .exclude_kernel = !!(options & WITHOUT_KERNEL),
      .exclude_hv = !!(options & WITHOUT_KERNEL),
  };
#ifdef PERF_ATTR_SIZE_VER7 // headers of 5.13; PERF_FORMAT_LOST came with 6.0
  const uint64_t lost = 1u << 4;
#else
  const uint64_t lost = 0;
#endif
  attr.read_format |= lost;
  const unsigned long flags = PERF_FLAG_FD_CLOEXEC | (options & CGROUP ? PERF_FLAG_PID_CGROUP : 0);
  long fd = syscall(SYS_perf_event_open, &attr, (pid_t)pid, (int)cpu, (int)leader, flags);
  if (fd < 0 && errno == EINVAL && lost) { // a kernel that does not know it, or another reason
    attr.read_format &= ~lost;
    fd = syscall(SYS_perf_event_open, &attr, (pid_t)pid, (int)cpu, (int)leader, flags);
  }
  return fd < 0 ? -errno : fd;
}

int64_t counter_read(const int32_t *counters, int64_t count, counter_reading *out) {
  for (int64_t i = 0; i < count; i++) {
    counter_reading one = {0};
    ssize_t size = read(counters[i], &one, sizeof one);
    if (size < 0)
      return -errno;
    if (size < (ssize_t)sizeof one)
      one.lost = -1;
    out[i] = one;
  }
  return 0;
}

int64_t counter_switch(const int32_t *leaders, int64_t count, int64_t on) {
  for (int64_t i = 0; i < count; i++)
    if (ioctl(leaders[i], on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) < 0)
      return -errno;
  return 0;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t counter_next_tick(int64_t elapsed_ns, int64_t period_ns, int64_t ticks_due,
                          int64_t *missed) {
  int64_t passed = elapsed_ns / period_ns; // the last tick that is due by now
  if (passed <= ticks_due) {               // the next one is still to come
    *missed = 0;
    return ticks_due + 1;
  }
  *missed = passed - ticks_due - 1;
  return passed;
}

static int64_t switch_set(const counter_plan *plan, int64_t set, int64_t on) {
  const int32_t *first = plan->first_leader;
  return counter_switch(plan->leaders + first[set], first[set + 1] - first[set], on);
}

static int64_t read_set(const counter_plan *plan, counter_reading *out) {
  const int32_t *first = plan->first_counter;
  int64_t failed = counter_read(plan->clock, plan->clocks, out);
  if (failed)
    return failed;
  return counter_read(plan->counters + first[plan->set], first[plan->set + 1] - first[plan->set],
                      out + plan->clocks);
}

/* Sleep until then, or until a descriptor says that this is the end. */
static int64_t wait_until(const counter_plan *plan, int64_t due_ns) {
  struct pollfd ends[] = {{plan->stop, POLLIN, 0}, {plan->process, POLLIN, 0}};
  for (;;) {
    int64_t left_ns = due_ns - now_ns();
    if (left_ns < 0)
      left_ns = 0; // the descriptors are looked at all the same
    struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
    int ready = ppoll(ends, 2, &left, NULL);
    if (ready == 0)
      return 0;
    if (ready < 0) {
      if (errno != EINTR)
        return -errno;
      continue;
    }
    return ends[0].revents ? STOPPED : PROCESS_ENDED;
  }
}

int64_t counter_follow(counter_plan *plan, counter_tick *ticks, counter_reading *readings,
                       int64_t stride, int64_t capacity, int64_t *written) {
  int64_t t = *written;
  while (t < capacity) {
    counter_tick tick = {.set = plan->set};
    int64_t next = counter_next_tick(now_ns() - plan->start_ns, plan->period_ns, plan->ticks_due,
                                     &tick.missed);
    tick.due_ns = plan->start_ns + next * plan->period_ns;
    int64_t end = wait_until(plan, tick.due_ns);
    if (end < 0)
      return end;
    if (end) {
      tick.due_ns = 0;
      next -= 1; // a tick that was never reached was not due; those missed before it were
    }
    plan->ticks_due = next;
    int64_t failed = 0;
    if (plan->sets > 1)
      failed = switch_set(plan, plan->set, 0);
    if (!failed)
      failed = read_set(plan, readings + t * stride);
    if (failed)
      return failed;
    tick.time_ns = now_ns();
    if (plan->sets > 1 && !end) {
      plan->turn = (plan->turn + 1) % plan->order_length;
      plan->set = plan->order[plan->turn];
      failed = switch_set(plan, plan->set, 1);
      if (failed)
        return failed;
    }
    ticks[t] = tick;
    __atomic_store_n(written, ++t, __ATOMIC_RELEASE); // another thread may read what is there
    if (end)
      return end;
  }
  return FULL;
}
