/* The first process of a guest: it puts the host's files, or those of a root that the host built
 * and those of a checkout, under the guest's, starts what the host wrote down as /out/run, and ends
 * the guest when that has ended.
 *
 * It is linked statically and is, beside the kernel's modules, all that the guest's first root
 * holds.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(void) {
  sync();
  reboot(RB_AUTOBOOT); // qemu is told not to: it ends
  for (;;)
    pause();
}

static void fail(const char *what) {
  printf("init: %s: %s\n", what, strerror(errno));
  end();
}

static void put(const char *source, const char *where, const char *type, unsigned long flags,
                const char *options) {
  if (mkdir(where, 0755) != 0 && errno != EEXIST && errno != EROFS)
    fail(where);
  if (mount(source, where, type, flags, options) != 0)
    fail(where);
}

// In the order of their names, which is the order of their dependencies.
static void load_modules(void) {
  struct dirent **files;
  int count = scandir("/modules", &files, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    if (files[i]->d_name[0] == '.')
      continue;
    char path[512];
    snprintf(path, sizeof path, "/modules/%s", files[i]->d_name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || (syscall(SYS_finit_module, file, "", 0) != 0 && errno != EEXIST))
      fail(path);
    close(file);
  }
}

int main(void) {
  load_modules();
  // Files that do not change under the guest may stay in its memory; its answers may not.
  put("root", "/host", "9p", MS_RDONLY, "trans=virtio,version=9p2000.L,cache=loose,msize=512000");
  put("proc", "/host/proc", "proc", 0, NULL);
  put("sysfs", "/host/sys", "sysfs", 0, NULL);
  put("cgroup2", "/host/sys/fs/cgroup", "cgroup2", 0, NULL);
  put("devtmpfs", "/host/dev", "devtmpfs", 0, NULL);
  put("devpts", "/host/dev/pts", "devpts", 0, "ptmxmode=0666"); // a job's output is a terminal's
  put("tmpfs", "/host/dev/shm", "tmpfs", 0, "mode=1777");
  // Only a guest of another processor has one: its root is not the host's.
  if (mount("checkout", "/host/mnt", "9p", MS_RDONLY,
            "trans=virtio,version=9p2000.L,cache=loose,msize=512000") != 0 &&
      errno != ENOENT)
    fail("the checkout");
  put("out", "/host/dev/shm/out", "9p", 0, "trans=virtio,version=9p2000.L,cache=none,msize=512000");
  if (chdir("/host") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0)
    fail("the root of the guest");
  pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "/dev/shm/out/run", (char *)NULL);
    fail("/bin/sh");
  }
  while (wait(NULL) != child) // orphans end here, too
    ;
  end();
}
