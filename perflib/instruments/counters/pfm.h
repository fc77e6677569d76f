// Bit fields are one word of flags each: cffi's ABI mode then needs no guess of their layout.
typedef struct {
    const char *name, *desc;
    size_t size;
    int pmu, type, nevents, first_event, max_encoding, num_cntrs, num_fixed_cntrs;
    unsigned int flags;
} pmu_info;
typedef struct {
    const char *name, *desc, *equiv;
    size_t size;
    uint64_t code;
    int pmu, dtype, idx, nattrs, reserved;
    unsigned int flags;
} event_info;
typedef struct {
    const char *name, *desc, *equiv;
    size_t size;
    uint64_t code;
    int type, idx, ctrl;
    unsigned int flags;
    uint64_t default_value;
} attribute_info;
typedef struct {
    uint32_t type, size;
    uint64_t config, sample_period, sample_type, read_format, flags;
    uint32_t wakeup_events, bp_type;
    uint64_t config1, config2;
    uint64_t newer[24];
} perf_attributes;
typedef struct {
    perf_attributes *attributes;
    char **canonical;
    size_t size;
    int idx, cpu, flags, padding;
} encoding;
int pfm_get_version(void);
int pfm_initialize(void);
const char *pfm_strerror(int code);
int pfm_get_pmu_info(int pmu, pmu_info *output);
int pfm_get_event_next(int idx);
int pfm_get_event_info(int idx, int os, event_info *output);
int pfm_get_event_attr_info(int event, int attribute, int os, attribute_info *output);
int pfm_get_os_event_encoding(const char *name, int privilege, int os, encoding *output);
