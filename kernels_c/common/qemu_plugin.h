// What plugins of QEMU's user-mode emulation share: the functions of its API, and how they end.
//
// QEMU's header (qemu-plugin.h) is not packaged everywhere; the few functions used are declared
// here from its documentation (docs/devel/tcg-plugins, API version 1, QEMU 6 to 8.2; what is used
// has not changed in version 2, QEMU 9 and later). They are weak, so that a plugin can also be
// opened without QEMU.
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define QP_API __attribute__((weak)) extern
enum { QP_NO_REGISTERS = 0, QP_READ_WRITE = 3 };
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void qp_executed(unsigned cpu, void *data);
typedef void qp_accessed(unsigned cpu, uint32_t info, uint64_t address, void *data);
QP_API void qemu_plugin_register_vcpu_init_cb(uint64_t id, void (*call)(uint64_t, unsigned));
QP_API void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
                                                  void (*call)(uint64_t, struct qemu_plugin_tb *));
QP_API void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qp_executed *call,
                                                 int registers, void *data);
QP_API void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qp_executed *call,
                                                   int registers, void *data);
QP_API void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qp_accessed *call,
                                             int registers, int accesses, void *data);
QP_API void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void *), void *data);
QP_API size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
QP_API struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
QP_API uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
QP_API void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);
QP_API size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
QP_API unsigned qemu_plugin_mem_size_shift(uint32_t info);
QP_API bool qemu_plugin_mem_is_store(uint32_t info);

extern const int qemu_plugin_version; // QEMU refuses a plugin of a version it does not know
const int qemu_plugin_version = QEMU_API;

extern int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);

static void qp_give_up(const char *plugin, const char *why) {
  fprintf(stderr, "%s: %s\n", plugin, why);
  _exit(125);
}

// The file of the results, named after the process: a forked child has its own.
static FILE *qp_open(const char *plugin, const char *out) {
  char path[4096 + 32];
  snprintf(path, sizeof path, "%s.%d", out, (int)getpid());
  FILE *file = fopen(path, "w");
  if (file == NULL)
    qp_give_up(plugin, "the file of results cannot be written");
  return file;
}

static void qp_write_maps(FILE *out) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[8192];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    fprintf(out, "map %s", line);
  if (maps != NULL)
    fclose(maps);
}

#endif
