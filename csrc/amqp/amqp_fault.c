/* Texts of connection.close and channel.close. */
#include "amqp_fault.h"

#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (QSI_AMQP_FAULT_TEXT_BYTES - 1) /* of a short string */

static const struct {
    uint16_t code;
    const char *name;
} names[] = {
    {311, "CONTENT_TOO_LARGE"}, {312, "NO_ROUTE"},         {313, "NO_CONSUMERS"},
    {320, "CONNECTION_FORCED"}, {402, "INVALID_PATH"},     {403, "ACCESS_REFUSED"},
    {404, "NOT_FOUND"},         {405, "RESOURCE_LOCKED"},  {406, "PRECONDITION_FAILED"},
    {501, "FRAME_ERROR"},       {502, "SYNTAX_ERROR"},     {503, "COMMAND_INVALID"},
    {504, "CHANNEL_ERROR"},     {505, "UNEXPECTED_FRAME"}, {506, "RESOURCE_ERROR"},
    {530, "NOT_ALLOWED"},       {540, "NOT_IMPLEMENTED"},  {541, "INTERNAL_ERROR"},
};

static const char *name_of(uint16_t code)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].code == code) {
            return names[i].name;
        }
    }
    return "INTERNAL_ERROR";
}

bool qsi_amqp_closes_connection(uint16_t code)
{
    return code == QSI_AMQP_CONNECTION_FORCED || code == 402 || code >= 500;
}

/* Shortens a cut text to whole characters: names are UTF-8. */
static size_t whole_characters(const char *text, size_t bytes)
{
    while (bytes > 0 && ((uint8_t)text[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    return bytes;
}

void qsi_amqp_fault_set(struct qsi_amqp_fault *fault, uint16_t code, const char *format, ...)
{
    char whole[2 * QSI_AMQP_FAULT_TEXT_BYTES + 512];
    va_list arguments;
    int bytes = snprintf(whole, sizeof whole, "%s - ", name_of(code));

    QS_ASSERT(bytes > 0);
    va_start(arguments, format);
    vsnprintf(whole + bytes, sizeof whole - (size_t)bytes, format, arguments);
    va_end(arguments);
    if (strlen(whole) > TEXT_BYTES_MAX) {
        size_t kept = whole_characters(whole, TEXT_BYTES_MAX - 3);

        memcpy(whole + kept, "...", sizeof "...");
    }
    *fault = (struct qsi_amqp_fault){.code = code};
    memcpy(fault->text, whole, strlen(whole) + 1);
}

/* Like RabbitMQ, takes the printable characters of Latin-1. */
static bool is_printable(struct qsi_slice bytes)
{
    for (uint32_t i = 0; i < bytes.bytes; i++) {
        uint8_t byte = bytes.data[i];

        if (byte < ' ' || byte > '~' || byte == '"' || byte == '\\') {
            return false;
        }
    }
    return bytes.bytes > 0;
}

void qsi_amqp_print_binary(char text_out[QSI_AMQP_FAULT_TEXT_BYTES], struct qsi_slice bytes,
                           bool may_be_text)
{
    size_t used = 2;

    if (may_be_text && is_printable(bytes)) {
        snprintf(text_out, QSI_AMQP_FAULT_TEXT_BYTES, "<<\"%.*s\">>",
                 (int)(bytes.bytes < 200 ? bytes.bytes : 200), (const char *)bytes.data);
        return;
    }
    memcpy(text_out, "<<", 3);
    for (uint32_t i = 0; i < bytes.bytes && used < QSI_AMQP_FAULT_TEXT_BYTES - 8; i++) {
        used += (size_t)snprintf(text_out + used, QSI_AMQP_FAULT_TEXT_BYTES - used, "%s%u",
                                 i > 0 ? "," : "", bytes.data[i]);
    }
    memcpy(text_out + used, ">>", 3);
}
