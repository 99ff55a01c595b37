/* The key of the process: the test starts itself again and compares what its children hash. */
#include "qstore/env.h"

#include "hash.h"
#include "qs_test.h"

#define CHILD_COUNT 8

static uint64_t hash_name(void)
{
    return qsi_hash("name", 4);
}

static uint64_t hash_in_a_child(const char *program)
{
    char command[512];
    uint64_t hash;
    FILE *child;

    snprintf(command, sizeof command, "'%s' child", program);
    child = popen(command, "r");
    QS_CHECK(child != NULL);
    QS_CHECK(fscanf(child, "%" SCNx64, &hash) == 1);
    QS_CHECK(pclose(child) == 0);
    return hash;
}

static void test_each_process_hashes_names_with_a_key_of_its_own(const char *program)
{
    uint64_t hashes[CHILD_COUNT + 1] = {hash_name()};

    for (int i = 1; i <= CHILD_COUNT; i++) {
        hashes[i] = hash_in_a_child(program);
        for (int k = 0; k < i; k++) {
            QS_CHECK(hashes[i] != hashes[k]);
        }
    }
    QS_CHECK(hash_name() == hashes[0]);
}

int main(int argc, char **argv)
{
    QS_CHECK(qs_env_posix() != NULL); /* whose part the key is */
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        printf("%" PRIx64 "\n", hash_name());
        return 0;
    }
    test_each_process_hashes_names_with_a_key_of_its_own(argv[0]);
    return 0;
}
