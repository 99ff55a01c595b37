/* The program of a test that has no main of its own: runs its tests. */
#include "qs_test.h"

int main(int argc, char **argv)
{
    (void)qs_test_seed(argc, argv);
    qs_test_run_all();
    return 0;
}
