/* The other file of the job: it includes the header, too. */
#include "perflib_bracket.h"
void other_file(void);
void other_file(void) {
  PERFLIB_SAMPLE("other file") {}
}
