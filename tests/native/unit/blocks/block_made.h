/* A file of blocks in the making, which remembers where each block is. */
#ifndef BLOCK_MADE_H
#define BLOCK_MADE_H

#include "block_fixture.h"

#define BLOCKS_MAX 40u

/* A file as its owner knows it, and what its blocks should hold. */
struct made {
    struct qsi_block_file file;
    struct qsi_block_entry entries[BLOCKS_MAX];
    uint64_t next;
};

static inline qs_status add_blocks(struct fixture *fixture, struct made *made, uint32_t count,
                                   bool page_aligned, uint64_t *random, qs_error *error)
{
    struct qsi_block_writer *writer;
    qs_status status;

    QS_TRY(qsi_block_writer_begin(&writer, fixture->blocks, &made->file, page_aligned, error));
    for (status = QS_OK; status == QS_OK && count > 0; count--) {
        uint32_t rows = 1 + (uint32_t)qsi_splitmix_below(random, 60);
        struct qsi_built_block block;
        status = build(made->next, rows, &block, error);
        if (status == QS_OK) {
            status =
                qsi_block_writer_put(writer, &block, &made->entries[made->file.block_count], error);
            qsi_chunk_unref(block.chunk);
        }
        made->next += status == QS_OK ? rows : 0;
    }
    qsi_block_writer_close(writer);
    return status;
}

static inline qs_status seal(struct fixture *fixture, struct made *made, qs_error *error)
{
    struct qsi_block_writer *writer;
    qs_status status;

    QS_TRY(qsi_block_writer_begin(&writer, fixture->blocks, &made->file, false, error));
    status = qsi_block_writer_seal(writer, made->entries, test_time(made->next - 1), error);
    qsi_block_writer_close(writer);
    return status;
}

static inline void check_file(struct fixture *fixture, const struct made *made)
{
    struct qsi_block_reader *reader;
    struct qsi_block_entry *entries;

    QS_CHECK_OK(qsi_block_reader_open(&reader, fixture->blocks, &made->file, QS_ERROR));
    QS_CHECK_OK(qsi_block_reader_read_index(reader, &entries, QS_ERROR));
    QS_CHECK(memcmp(entries, made->entries, made->file.block_count * sizeof *entries) == 0);
    for (uint32_t i = 0; i < made->file.block_count; i++) {
        struct qsi_block_view view;
        struct qsi_block_dictionary dictionary;
        QS_CHECK_OK(qsi_block_reader_read(reader, &entries[i], NULL, &view, QS_ERROR));
        check_view(&view, entries[i].first_offset, entries[i].rows);
        QS_CHECK_OK(qsi_block_reader_read_dictionary(reader, &entries[i], &dictionary, QS_ERROR));
        QS_CHECK(dictionary.messages.route_count == view.messages.route_count);
        for (uint32_t route = 0; route < dictionary.messages.route_count; route++) {
            QS_CHECK(qsi_slice_compare(qsi_messages_route(&dictionary.messages, route).key,
                                       qsi_messages_route(&view.messages, route).key) == 0);
        }
        qsi_block_dictionary_fini(&dictionary);
        qsi_block_view_fini(&view);
    }
    qsi_free(entries);
    qsi_block_reader_close(reader);
}

#endif
