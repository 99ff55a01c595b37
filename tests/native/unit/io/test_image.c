/* File images against plain arrays: random writes, resizes and copies, with memory running out. */
#include "image.h"
#include "qs_test_alloc.h"
#include "splitmix.h"

#define IMAGE_COUNT 4
#define BYTES_MAX 40000
#define STEP_COUNT 20000

struct model {
    uint8_t data[BYTES_MAX]; /* zeros behind the end */
    size_t bytes;
};

static struct qsi_image images[IMAGE_COUNT];
static struct model models[IMAGE_COUNT];

static void check_equal(const struct qsi_image *image, const struct model *model)
{
    static uint8_t data[BYTES_MAX + 1];

    QS_CHECK(image->bytes == model->bytes);
    QS_CHECK(qsi_image_read(image, data, sizeof data, 0) == model->bytes);
    QS_CHECK(memcmp(data, model->data, model->bytes) == 0);
}

static void write_some(uint64_t *seed, struct qsi_image *image, struct model *model)
{
    static uint8_t data[BYTES_MAX];
    size_t offset = (size_t)qsi_splitmix_below(seed, BYTES_MAX);
    size_t bytes = (size_t)qsi_splitmix_below(seed, BYTES_MAX - offset + 1);
    bool is_zero = qsi_splitmix_below(seed, 4) == 0;

    memset(data, is_zero ? 0 : (int)(1 + qsi_splitmix_below(seed, 255)), bytes);
    if (is_zero && qsi_splitmix_below(seed, 2) == 0) {
        QS_CHECK_OK(qsi_image_write(image, NULL, bytes, offset));
    } else {
        QS_CHECK_OK(qsi_image_write(image, data, bytes, offset));
    }
    memcpy(model->data + offset, data, bytes);
    if (bytes > 0 && offset + bytes > model->bytes) {
        model->bytes = offset + bytes;
    }
}

static void resize_some(uint64_t *seed, struct qsi_image *image, struct model *model)
{
    size_t bytes = (size_t)qsi_splitmix_below(seed, BYTES_MAX);

    QS_CHECK_OK(qsi_image_resize(image, bytes));
    memset(model->data + bytes, 0, BYTES_MAX - bytes);
    model->bytes = bytes;
}

QS_SEED_TEST(test_image_agrees_with_an_array_through_copies)
{
    for (int step = 0; step < STEP_COUNT; step++) {
        size_t i = (size_t)qsi_splitmix_below(&seed, IMAGE_COUNT);
        size_t other = (size_t)qsi_splitmix_below(&seed, IMAGE_COUNT);
        uint64_t what = qsi_splitmix_below(&seed, 8);

        if (what == 0) {
            qsi_image_assign(&images[i], &images[other]);
            models[i] = models[other];
        } else if (what < 3) {
            resize_some(&seed, &images[i], &models[i]);
        } else {
            write_some(&seed, &images[i], &models[i]);
        }
        check_equal(&images[i], &models[i]);
        check_equal(&images[other], &models[other]);
    }
    for (size_t i = 0; i < IMAGE_COUNT; i++) {
        qsi_image_fini(&images[i]);
    }
}

QS_TEST(test_copies_and_zeros_take_no_memory)
{
    struct qs_test_alloc state;
    struct qsi_image image = {0};
    struct qsi_image copy = {0};

    qs_test_alloc_install(&state);
    QS_CHECK_OK(qsi_image_resize(&image, UINT64_C(1) << 40));
    QS_CHECK_OK(qsi_image_write(&image, NULL, 1 << 20, UINT64_C(1) << 39));
    QS_CHECK(state.calls == 0);
    QS_CHECK_OK(qsi_image_write(&image, "x", 1, 100000));
    QS_CHECK(state.calls == 2);
    qsi_image_assign(&copy, &image);
    qsi_image_assign(&copy, &copy);
    QS_CHECK(state.calls == 2);
    qsi_image_fini(&image);
    qsi_image_fini(&copy);
    qs_test_alloc_end(&state);
}

QS_TEST(test_failed_change_of_a_copy_leaves_the_original_whole)
{
    struct qs_test_alloc state;
    struct qsi_image image = {0};
    struct qsi_image copy = {0};
    char text[3];

    qs_test_alloc_install(&state);
    QS_CHECK_OK(qsi_image_write(&image, "abc", 3, 4094)); /* over the edge of a page */
    for (uint64_t n = 1; n <= 3; n++) {
        qsi_image_assign(&copy, &image);
        qs_test_alloc_arm(&state, n, false);
        QS_CHECK_STATUS(QS_ENOMEM, qsi_image_write(&copy, "xyz", 3, 4094));
        QS_CHECK(qsi_image_read(&image, text, 3, 4094) == 3 && memcmp(text, "abc", 3) == 0);
    }
    qsi_image_assign(&copy, &image);
    qs_test_alloc_arm(&state, 2, false);
    QS_CHECK_STATUS(QS_ENOMEM, qsi_image_resize(&copy, 4095));
    QS_CHECK(copy.bytes == 4097);
    QS_CHECK(qsi_image_read(&copy, text, 3, 4094) == 3 && memcmp(text, "abc", 3) == 0);
    qsi_image_fini(&image);
    qsi_image_fini(&copy);
    qs_test_alloc_end(&state);
}
