/*
 * Work in four functions that a profile tells apart: tracks are propagated, lose energy, make
 * pulses and are fitted. Where it is special, shape_pulse computes half as many pulses again, which
 * makes the event about 12 % longer; nothing else differs.
 */
#include <math.h>

#include "job.h"

#define APART __attribute__((noinline, noclone))
#define STEPS 60
#define SAMPLES 32
#define PULSES 16

// A charged particle in a field that weakens outwards, by the midpoint rule.
APART double propagate_track(double state[6], double curvature) {
  const double step = 0.02;
  for (int i = 0; i < STEPS; i++) {
    double field = curvature / (1.0 + 0.1 * (state[0] * state[0] + state[1] * state[1]));
    double mid_x = state[3] + 0.5 * step * field * state[4];
    double mid_y = state[4] - 0.5 * step * field * state[3];
    double norm = 1.0 / sqrt(mid_x * mid_x + mid_y * mid_y + state[5] * state[5]);
    state[3] = mid_x * norm;
    state[4] = mid_y * norm;
    state[5] *= norm;
    for (int axis = 0; axis < 3; axis++)
      state[axis] += step * state[3 + axis];
  }
  return state[0] + state[1] + state[2];
}

// Energy that is left behind a few layers, by a formula like Bethe's.
APART double lose_energy(double energy, uint64_t *chance) {
  for (int layer = 0; layer < 24; layer++) {
    double gamma2 = 1.0 + energy * energy;
    double beta2 = 1.0 - 1.0 / gamma2;
    energy -= 1e-3 / beta2 * (log(1e4 * gamma2 * beta2) - beta2) * next_uniform(chance);
    energy = fmax(energy, 0.1);
  }
  return energy;
}

// A pulse's samples, through a filter of second order.
APART double shape_pulse(double amplitude, double phase, int pulses) {
  double sum = 0.0;
  for (int pulse = 0; pulse < pulses; pulse++) {
    double before = 0.0, last = 0.0;
    for (int i = 0; i < SAMPLES; i++) {
      double sample = 1.6 * last - 0.64 * before + amplitude * (i == 2) + 1e-3 * phase;
      before = last;
      last = sample;
    }
    sum += last;
    phase += 0.1;
  }
  return sum / pulses;
}

// A straight line through smeared points, by weights that are made anew a few times.
APART double fit_line(double offset, double slope, uint64_t *chance) {
  double a = 0.0, b = 0.0, y[24];
  for (int i = 0; i < 24; i++)
    y[i] = offset + slope * i + next_uniform(chance);
  for (int round = 0; round < 4; round++) {
    double w = 0.0, wx = 0.0, wy = 0.0, wxx = 0.0, wxy = 0.0;
    for (int i = 0; i < 24; i++) {
      double residual = y[i] - a - b * i, weight = 1.0 / (1.0 + residual * residual);
      w += weight;
      wx += weight * i;
      wy += weight * y[i];
      wxx += weight * i * i;
      wxy += weight * i * y[i];
    }
    b = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    a = (wy - b * wx) / w;
  }
  return a + b;
}

double work(uint64_t number, int special) {
  uint64_t chance = number;
  int tracks = 3400 + (int)(next_random(&chance) % 800);
  int pulses = special ? PULSES + PULSES / 2 : PULSES;
  double sum = 0.0;
  for (int track = 0; track < tracks; track++) {
    double state[6] = {0, 0, 0, next_uniform(&chance), next_uniform(&chance), 0.5};
    sum += propagate_track(state, 0.3);
    double energy = lose_energy(1.0 + next_uniform(&chance), &chance);
    sum += shape_pulse(energy, state[0], pulses);
    sum += fit_line(state[1], state[4], &chance);
  }
  return sum;
}
