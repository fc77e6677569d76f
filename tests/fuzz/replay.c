/* Feeds files to a fuzzed reader, where there is no libFuzzer; its name as it begins each. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int n, char **names) {
  for (int i = 1; i < n; i++) {
    FILE *file = fopen(names[i], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
      return 2;
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(size);
    if ((size && data == NULL) || fread(data, 1, size, file) != size)
      return 2;
    fclose(file);
    puts(names[i]);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
  }
  return 0;
}
