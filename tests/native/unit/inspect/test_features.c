/* A store of a later version: what its features let this one do. */
#include "qstore/codec.h"

#include "../engine/engine_fixture.h"
#include "alloc.h"
#include "file.h"
#include "le.h"
#include "qs_test_dirs.h"

static void set_feature(struct engine *engine, uint64_t place)
{
    uint8_t *data;
    size_t bytes;
    qs_dir *root = qs_test_open_dir(engine->env, engine->path, "");

    QS_CHECK_OK(qsi_file_load(engine->env, root, "MANIFEST", 1u << 20, &data, &bytes, QS_ERROR));
    qsi_put_u32(data + place, UINT32_C(1) << 31);
    qsi_put_u32(data + bytes - 4, qs_crc32c(0, data, bytes - 4));
    QS_CHECK_OK(qsi_file_replace(engine->env, root, "MANIFEST", data, bytes, QS_ERROR));
    qsi_free(data);
    engine->env->dir_close(engine->env, root);
}

QS_TEST(test_store_with_features_for_readers_to_ignore_is_read_and_not_written)
{
    struct engine engine;
    qs_queue_status status;
    qs_verified verified;
    qs_error error = {0};

    engine_start(&engine, IN_MEMORY);
    declare(&engine, "q", QS_DURABLE);
    publish(&engine, "q", "there");
    engine_close(&engine);
    set_feature(&engine, 16);
    QS_CHECK_STATUS(QS_EVERSION,
                    qs_store_open(&engine.store, engine.path, &engine.options, engine.env, &error));
    QS_CHECK(strstr(error.text, "open the store read-only") != NULL);
    engine.options.read_only = true;
    QS_CHECK_OK(qs_store_open(&engine.store, engine.path, &engine.options, engine.env, QS_ERROR));
    QS_CHECK_OK(qs_store_queue_status(engine.store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.messages_ready == 1);
    QS_CHECK(qs_store_accept_clock(engine.store, NULL) == QS_ESTORE_READ_ONLY);
    QS_CHECK_OK(qs_store_close(engine.store, QS_ERROR));
    QS_CHECK_OK(qs_store_verify(engine.path, engine.env, NULL, &verified, QS_ERROR));
    set_feature(&engine, 12);
    QS_CHECK_STATUS(QS_EVERSION, qs_store_open(&engine.store, engine.path, &engine.options,
                                               engine.env, QS_ERROR));
    engine_fini(&engine);
}
