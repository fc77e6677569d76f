/*
 * What the processor says about itself: the CPUID instruction, one leaf a call.
 *
 * It answers for the core that the call happens to run on (hybrid processors differ by core), and
 * in a virtual machine it traps to the hypervisor, which decides what to say. There is nothing to
 * time and nothing for the compiler to remove: the instruction is volatile assembly.
 *
 * Besides it XGETBV, which reads what the system has switched on of the registers that CPUID
 * offers; where the system has not (leaf 1, ecx, bit 27) the instruction is invalid and is not run.
 *
 * Checksum: the sum of the four registers; -1 on a processor without CPUID.
 *
 * @kernel
 * flags = ["-O1"]
 */
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

// @interface
/* registers: eax, ebx, ecx, edx. A leaf above the highest one answers what the processor likes. */
int64_t cpuid_leaf(uint32_t leaf, uint32_t subleaf, uint32_t *registers);
/* XCR0: the register states that the system saves; -1 where it has not enabled XSAVE. */
int64_t cpuid_xcr0(void);
// @end

int64_t cpuid_leaf(uint32_t leaf, uint32_t subleaf, uint32_t *registers) {
#if defined(__x86_64__) || defined(__i386__)
  __cpuid_count(leaf, subleaf, registers[0], registers[1], registers[2], registers[3]);
  return (int64_t)registers[0] + registers[1] + registers[2] + registers[3];
#else
  (void)leaf, (void)subleaf, (void)registers;
  return -1;
#endif
}

int64_t cpuid_xcr0(void) {
#if defined(__x86_64__) || defined(__i386__)
  uint32_t eax, ebx, ecx, edx;
  __cpuid_count(1, 0, eax, ebx, ecx, edx);
  if (!(ecx & bit_OSXSAVE))
    return -1;
  __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (int64_t)((uint64_t)edx << 32 | eax);
#else
  return -1;
#endif
}
