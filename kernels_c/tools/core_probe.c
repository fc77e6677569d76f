/*
 * How much of each core does one have? A thread goes round the cores and does nothing but probe
 * them: samples that end as soon as a slice of time is over, each between two probes (bracket.h).
 * In a slice it reads the clock, so that only the kernel, another task, the hypervisor or a busy
 * sibling can make anything of it longer.
 *
 * The probes run by turns, one core after the other: on two cores at a time they would be each
 * other's sibling. The thread is its own, so that the caller's stays where it is.
 *
 * Returns the number of samples taken, those beyond most not among them, or -1 for bad arguments or
 * where no thread could be started. A core where the thread may not run has no sample.
 *
 * @kernel
 * flags = ["-O2"]
 * link = ["-lpthread"]
 */
#include "common/bracket.h"
#include "common/pinned.h"
#include <pthread.h>

// @interface
typedef struct {
  bracket sample;
  int64_t cpu;
} core_probe;

int64_t core_probe_run(const int64_t *cpus, int64_t count, int64_t duration_ns, int64_t turn_ns,
                       int64_t slice_ns, core_probe *out, int64_t most);
// @end

typedef struct {
  const int64_t *cpus;
  int64_t count, duration_ns, turn_ns, slice_ns, most, taken;
  core_probe *out;
} probing;

static void spin_until(int64_t end_ns) {
  while (clock_ns() < end_ns)
    ;
}

static void probe_core(probing *all, int64_t cpu, int64_t end_ns) {
  for (int64_t first = all->taken; all->taken < all->most && clock_ns() < end_ns; all->taken++) {
    core_probe *now = &all->out[all->taken];
    now->cpu = cpu;
    if (all->taken == first)
      bracket_begin(&now->sample);
    else
      bracket_next(&now[-1].sample, &now->sample);
    spin_until(now->sample.start_ns + all->slice_ns);
    bracket_end(&now->sample);
  }
}

static void *probe_all(void *argument) {
  probing *all = argument;
  int64_t begin_ns = clock_ns(), end_ns = begin_ns + all->duration_ns;
  for (int64_t turn = 0; clock_ns() < end_ns && all->taken < all->most; turn++) {
    pinned_thread thread;
    int64_t cpu = all->cpus[turn % all->count];
    if (pin_thread(&thread, (int)cpu) == 0) {
      int64_t turn_ends_ns = clock_ns() + all->turn_ns;
      probe_core(all, cpu, turn_ends_ns < end_ns ? turn_ends_ns : end_ns);
      unpin_thread(&thread);
    }
  }
  return NULL;
}

int64_t core_probe_run(const int64_t *cpus, int64_t count, int64_t duration_ns, int64_t turn_ns,
                       int64_t slice_ns, core_probe *out, int64_t most) {
  if (cpus == NULL || count < 1 || duration_ns < 0 || turn_ns < 1 || slice_ns < 0 || most < 0 ||
      (most > 0 && out == NULL))
    return -1;
  probing all = {.cpus = cpus,
                 .count = count,
                 .duration_ns = duration_ns,
                 .turn_ns = turn_ns,
                 .slice_ns = slice_ns,
                 .most = most,
                 .out = out};
  pthread_t thread;
  if (pthread_create(&thread, NULL, probe_all, &all) != 0)
    return -1;
  pthread_join(thread, NULL);
  return all.taken;
}
