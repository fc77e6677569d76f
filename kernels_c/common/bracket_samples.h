// BSD 3-Clause License
//
// Copyright (c) 2026, the perflib developers
//
// Redistribution and use in source and binary forms, with or without
// modification, are permitted provided that the following conditions are met:
//
// 1. Redistributions of source code must retain the above copyright notice, this
//    list of conditions and the following disclaimer.
//
// 2. Redistributions in binary form must reproduce the above copyright notice,
//    this list of conditions and the following disclaimer in the documentation
//    and/or other materials provided with the distribution.
//
// 3. Neither the name of the copyright holder nor the names of its
//    contributors may be used to endorse or promote products derived from
//    this software without specific prior written permission.
//
// THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"
// AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
// IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
// DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE
// FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
// DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
// SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
// CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY,
// OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
// OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.

// Samples of any program in C99 or C++11 on Linux, for perflib's experiment "bracketed":
//
//   #include <perflib_bracket.h> // 'perflib header' makes it
//
//   for (int i = 0; i < 1000; i++) {
//     PERFLIB_SAMPLE("old") { old_way(); }
//     PERFLIB_SAMPLE("new") { new_way(); }
//   }
//
//   PERFLIB_SAMPLES=samples.csv ./program && perflib analyse bracketed --samples samples.csv
//   perflib run bracketed -p job=command -p job_command=./program
//
// A piece should take 20 microseconds to a millisecond: repeat a shorter one in its braces. Take
// the pieces in turns. break, return, goto and exceptions out of the braces lose the sample. Where
// PERFLIB_SAMPLES is not set nothing is measured, at the cost of a branch.
#ifndef BRACKET_SAMPLES_H
#define BRACKET_SAMPLES_H

#include "bracket.h"

#include <sched.h>

#ifndef CLOCK_THREAD_CPUTIME_ID
#error "include perflib_bracket.h before all other headers, or compile with -D_GNU_SOURCE"
#endif

enum { PERFLIB_LINE_BYTES = 2048, PERFLIB_BUFFER_BYTES = 1 << 18 };

// Weak: all files of a program share one.
typedef struct {
  int state; // 0: not known yet, 1: off, 2: on
  int file, process;
  char lock;
  size_t used;
  char text[PERFLIB_BUFFER_BYTES];
} perflib_samples;
__attribute__((weak)) perflib_samples perflib_all_samples;

typedef struct {
  const char *name;
  int open, on;
  bracket taken;
} perflib_sample;

static inline void perflib_lock(void) {
  while (__atomic_test_and_set(&perflib_all_samples.lock, __ATOMIC_ACQUIRE))
    sched_yield();
}

static inline void perflib_unlock(void) {
  __atomic_clear(&perflib_all_samples.lock, __ATOMIC_RELEASE);
}

static inline void perflib_write_text(const char *text, size_t bytes) {
  while (bytes > 0) {
    ssize_t wrote = write(perflib_all_samples.file, text, bytes);
    if (wrote < 0) {
      perror("PERFLIB_SAMPLES");
      return;
    }
    text += wrote;
    bytes -= (size_t)wrote;
  }
}

static inline void perflib_flush(void) {
  static const char head[] = "process,name,cpu,start_ns,time_ns,cpu_time_ns,run_delay_ns,"
                             "throttled_ns,probe_before_ns,probe_after_ns,chain_before_ns,"
                             "chain_after_ns\n";
  if (lseek(perflib_all_samples.file, 0, SEEK_END) == 0)
    perflib_write_text(head, sizeof head - 1);
  perflib_write_text(perflib_all_samples.text, perflib_all_samples.used);
  perflib_all_samples.used = 0;
}

static inline void perflib_at_exit(void) {
  perflib_lock();
  if (perflib_all_samples.process == (int)getpid()) // a forked child has its parent's samples, too
    perflib_flush();
  perflib_unlock();
}

static inline int perflib_samples_begin(void) {
  perflib_samples *all = &perflib_all_samples;
  perflib_lock();
  if (all->state == 0) {
    const char *path = getenv("PERFLIB_SAMPLES");
    int state = 1;
    if (path != NULL && *path != '\0') {
      all->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (all->file < 0)
        perror(path);
      else
        state = 2;
    }
    if (state == 2) {
      all->process = (int)getpid();
      atexit(perflib_at_exit);
    }
    __atomic_store_n(&all->state, state, __ATOMIC_RELEASE);
  }
  perflib_unlock();
  return all->state;
}

static inline perflib_sample perflib_sample_begin(const char *name) {
  perflib_sample sample;
  int state = __atomic_load_n(&perflib_all_samples.state, __ATOMIC_ACQUIRE);
  sample.name = name;
  sample.open = 1;
  sample.on = (state == 0 ? perflib_samples_begin() : state) == 2;
  if (sample.on)
    bracket_begin(&sample.taken);
  return sample;
}

// Of a name that no line can hold, the end is cut off.
static inline void perflib_write(const perflib_sample *sample, int cpu) {
  perflib_samples *all = &perflib_all_samples;
  const bracket *b = &sample->taken;
  char name[PERFLIB_LINE_BYTES / 2];
  size_t length = 0;
  for (const char *from = sample->name; *from != '\0' && length + 2 < sizeof name; from++) {
    name[length++] = *from < ' ' && *from >= 0 ? ' ' : *from;
    if (*from == '"') // written twice within a quoted field
      name[length++] = '"';
  }
  name[length] = '\0';
  perflib_lock();
  int process = (int)getpid();
  if (process != all->process) {
    all->process = process;
    all->used = 0;
    atexit(perflib_at_exit);
  }
  if (all->used + PERFLIB_LINE_BYTES > sizeof all->text)
    perflib_flush();
  all->used += (size_t)snprintf(
      all->text + all->used, PERFLIB_LINE_BYTES,
      "%d,\"%s\",%d,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld\n", process, name, cpu,
      (long long)b->start_ns, (long long)b->time_ns, (long long)b->cpu_time_ns,
      (long long)b->run_delay_ns, (long long)b->throttled_ns, (long long)b->probe_before_ns,
      (long long)b->probe_after_ns, (long long)b->chain_before_ns, (long long)b->chain_after_ns);
  perflib_unlock();
}

static inline void perflib_sample_end(perflib_sample *sample) {
  if (sample->on) {
    bracket_end(&sample->taken);
    perflib_write(sample, sched_getcpu());
  }
  sample->open = 0;
}

#define PERFLIB_SAMPLE(name)                                                                       \
  for (perflib_sample perflib_now = perflib_sample_begin(name); perflib_now.open;                  \
       perflib_sample_end(&perflib_now))

#endif
