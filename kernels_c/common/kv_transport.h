// How a particle moves: Runge-Kutta in the solenoid's field, distances to the cylinders,
// deflection.
#ifndef KV_TRANSPORT_H
#define KV_TRANSPORT_H

#include "common/kv_types.h"

#define KV_FAR 1e30
#define KV_SAGITTA 0.002 // cm; how far a step's end may lie off the straight line

// Field of the solenoid: B_z = B (1 - sag (z^2 - r^2/2)), B_r = B sag z r, which has neither
// divergence nor curl. sag = 0 is a uniform field.
static inline void kv_field(double field, double sag, const double x[3], double b[3]) {
  double r2 = x[0] * x[0] + x[1] * x[1];
  b[0] = field * sag * x[2] * x[0];
  b[1] = field * sag * x[2] * x[1];
  b[2] = field * (1.0 - sag * (x[2] * x[2] - 0.5 * r2));
}

// d(direction)/d(path): bend = 2.998 charge / p, times direction x B.
static inline void kv_turn(double bend, double field, double sag, const double x[3],
                           const double u[3], double out[3]) {
  double b[3];
  kv_field(field, sag, x, b);
  out[0] = bend * (u[1] * b[2] - u[2] * b[1]);
  out[1] = bend * (u[2] * b[0] - u[0] * b[2]);
  out[2] = bend * (u[0] * b[1] - u[1] * b[0]);
}

// One step of the classical fourth-order Runge-Kutta method; the direction keeps its length.
KV_PART void kv_runge_kutta(double x[3], double u[3], double bend, double field, double sag,
                            double step) {
  double half = 0.5 * step, x2[3], u2[3], u3[3], u4[3], k1[3], k2[3], k3[3], k4[3];
  kv_turn(bend, field, sag, x, u, k1);
  for (int i = 0; i < 3; i++) {
    x2[i] = x[i] + half * u[i];
    u2[i] = u[i] + half * k1[i];
  }
  kv_turn(bend, field, sag, x2, u2, k2);
  for (int i = 0; i < 3; i++) {
    x2[i] = x[i] + half * u2[i];
    u3[i] = u[i] + half * k2[i];
  }
  kv_turn(bend, field, sag, x2, u3, k3);
  for (int i = 0; i < 3; i++) {
    x2[i] = x[i] + step * u3[i];
    u4[i] = u[i] + step * k3[i];
  }
  kv_turn(bend, field, sag, x2, u4, k4);
  double sixth = step / 6.0;
  for (int i = 0; i < 3; i++) {
    x[i] = x[i] + sixth * (u[i] + 2.0 * (u2[i] + u3[i]) + u4[i]);
    u[i] = u[i] + sixth * (k1[i] + 2.0 * (k2[i] + k3[i]) + k4[i]);
  }
  double norm = 1.0 / sqrt(u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
#ifdef KV_COSTLIER // so many multiplications by one more, each waiting for the one before
  double one = 1.0;
  int more = KV_COSTLIER; // not 0, and hidden: other builds are the same but for this number
  __asm__("" : "+r"(more));
  for (int i = 0; i < more; i++) {
    __asm__ volatile("" : "+m"(one)); // what it is, the compiler cannot know
    norm *= one;
  }
#endif
  for (int i = 0; i < 3; i++)
    u[i] = u[i] * norm;
}

// Along a straight line from inside a closed cylinder: distance to its wall or its ends.
KV_PART double kv_distance_out(const kv_volume *v, const double x[3], const double u[3]) {
  double a = u[0] * u[0] + u[1] * u[1];
  double b = x[0] * u[0] + x[1] * u[1];
  double c = x[0] * x[0] + x[1] * x[1] - v->radius * v->radius;
  double distance = KV_FAR;
  if (a > 1e-20) {
    double root = b * b - a * c;
    distance = root > 0.0 ? (sqrt(root) - b) / a : 0.0;
  }
  if (fabs(u[2]) > 1e-10) {
    double end = u[2] > 0.0 ? v->half_length : -v->half_length;
    double to_end = (end - x[2]) / u[2];
    distance = to_end < distance ? to_end : distance;
  }
  return distance > 0.0 ? distance : 0.0;
}

// Along a straight line from outside a closed cylinder: distance to its surface, or KV_FAR.
KV_PART double kv_distance_in(const kv_volume *v, const double x[3], const double u[3]) {
  double a = u[0] * u[0] + u[1] * u[1];
  double b = x[0] * u[0] + x[1] * u[1];
  double c = x[0] * x[0] + x[1] * x[1] - v->radius * v->radius;
  double enter = -KV_FAR, leave = KV_FAR;
  if (a > 1e-20) {
    double root = b * b - a * c;
    if (root <= 0.0)
      return KV_FAR;
    root = sqrt(root);
    enter = (-b - root) / a;
    leave = (root - b) / a;
  } else if (c > 0.0) {
    return KV_FAR;
  }
  if (fabs(u[2]) > 1e-10) {
    double near = u[2] > 0.0 ? -v->half_length : v->half_length;
    double first = (near - x[2]) / u[2], last = (-near - x[2]) / u[2];
    enter = first > enter ? first : enter;
    leave = last < leave ? last : leave;
  } else if (fabs(x[2]) > v->half_length) {
    return KV_FAR;
  }
  if (enter >= leave || leave <= 0.0)
    return KV_FAR;
  return enter > 0.0 ? enter : 0.0;
}

// Energy loss and cross sections of a material: linear in log E between the nodes.
KV_PART void kv_look_up(const kv_medium *m, int kind, double energy, double out[4]) {
  double place = log(energy / KV_TABLE_LOW) * (KV_PER_DECADE / KV_LN10);
  int node = place > 0.0 ? (int)place : 0;
  node = node < KV_NODES - 2 ? node : KV_NODES - 2;
  double f = place - node;
  const double *low = m->table[kind][node], *high = m->table[kind][node + 1];
  for (int i = 0; i < 4; i++)
    out[i] = low[i] + f * (high[i] - low[i]);
}

static inline int kv_inside(const kv_volume *v, const double x[3]) {
  return x[0] * x[0] + x[1] * x[1] < v->radius * v->radius && fabs(x[2]) < v->half_length;
}

// Turn the direction by a polar angle (its sine and cosine) at an azimuth; also the unit vector
// across, towards which it was turned. Basis: Duff et al., JCGT 6 (2017) 1.
KV_PART void kv_deflect(double u[3], double cosine, double sine, double azimuth, double across[3]) {
  double sign = copysign(1.0, u[2]);
  double a = -1.0 / (sign + u[2]);
  double b = u[0] * u[1] * a;
  double e1[3] = {1.0 + sign * u[0] * u[0] * a, sign * b, -sign * u[0]};
  double e2[3] = {b, sign + u[1] * u[1] * a, -u[1]};
  double c = cos(azimuth), d = sin(azimuth);
  double length = 0.0;
  for (int i = 0; i < 3; i++) {
    across[i] = c * e1[i] + d * e2[i];
    u[i] = cosine * u[i] + sine * across[i];
    length += u[i] * u[i];
  }
  length = 1.0 / sqrt(length);
  for (int i = 0; i < 3; i++)
    u[i] = u[i] * length;
}

// Highland's formula squared, times p^2/(13.6 MeV)^2, as a function of t = x/(X0 beta^2) (PDG 2022,
// eq. 34.16). The logarithm belongs to the whole path, so the formula is not additive; its
// increments are: a path of t cut into any steps scatters by highland(t) in all. The bracket is
// held at 0.2 and above (t < 1e-9), where the formula is far out of its range.
static inline double kv_highland(double t) {
  double bracket = 1.0 + 0.038 * log(t);
  bracket = bracket > 0.2 ? bracket : 0.2;
  return t * bracket * bracket;
}

// Multiple scattering over a step: Gaussian in both planes, and the mean displacement that belongs
// to the angle (half the step times the angle; PDG 2022, eqs. 34.19 and 34.20).
KV_PART void kv_scatter(const kv_state *s, kv_particle *p, double momentum2, double beta2,
                        double radiation_length_cm, double step) {
  double before = p->scattered > 0.0 ? kv_highland(p->scattered) : 0.0;
  p->scattered += step / (radiation_length_cm * beta2);
  double more = kv_highland(p->scattered) - before;
  double variance = 13.6 * 13.6 / momentum2 * (more > 0.0 ? more : 0.0); // against rounding
  double angle = sqrt(-2.0 * variance * log(kv_uniform(s, p)));
  double azimuth = 2.0 * KV_PI * kv_uniform(s, p);
  double across[3], sine = sin(angle);
  kv_deflect(p->direction, cos(angle), sine, azimuth, across);
  double shift = 0.5 * step * sine;
  for (int i = 0; i < 3; i++)
    p->position[i] += shift * across[i];
}

#endif
