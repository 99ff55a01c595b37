/* Names of Arrow's types: the format strings of the C data interface in words. */
#include "arrow_words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A format, or its begin if parameters or children follow.  The first match is used. */
struct words {
    const char *format;
    bool begins;
    const char *words;
};

static const struct words words[] = {
    {"n", false, "null"},
    {"b", false, "bool"},
    {"c", false, "int8"},
    {"C", false, "uint8"},
    {"s", false, "int16"},
    {"S", false, "uint16"},
    {"i", false, "int32"},
    {"I", false, "uint32"},
    {"l", false, "int64"},
    {"L", false, "uint64"},
    {"e", false, "float16"},
    {"f", false, "float32"},
    {"g", false, "float64"},
    {"z", false, "binary"},
    {"Z", false, "large_binary"},
    {"vz", false, "binary_view"},
    {"u", false, "string"},
    {"U", false, "large_string"},
    {"vu", false, "string_view"},
    {"w:", true, "fixed_size_binary"},
    {"d:", true, "decimal"},
    {"tdD", false, "date32"},
    {"tdm", false, "date64"},
    {"tts", false, "time32 in s"},
    {"ttm", false, "time32 in ms"},
    {"ttu", false, "time64 in us"},
    {"ttn", false, "time64 in ns"},
    {"ts", true, "timestamp"},
    {"tD", true, "duration"},
    {"ti", true, "interval"},
    {"+l", false, "list"},
    {"+L", false, "large_list"},
    {"+vl", false, "list_view"},
    {"+vL", false, "large_list_view"},
    {"+w:", true, "fixed_size_list"},
    {"+s", false, "struct"},
    {"+m", false, "map"},
    {"+u", true, "union"},
    {"+r", false, "run_end_encoded"},
};

static const char *find(const char *format)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].begins ? strncmp(format, words[i].format, strlen(words[i].format)) == 0
                            : strcmp(format, words[i].format) == 0) {
            return words[i].words;
        }
    }
    return NULL;
}

void qsi_arrow_type_words(const struct ArrowSchema *schema, char *text, size_t bytes)
{
    const struct ArrowSchema *type = schema->dictionary != NULL ? schema->dictionary : schema;
    const char *prefix = schema->dictionary != NULL ? "dictionary of " : "";
    const char *format = type->format != NULL ? type->format : "";
    const char *found = find(format);

    if (found != NULL) {
        (void)snprintf(text, bytes, "%s%s", prefix, found);
    } else {
        (void)snprintf(text, bytes, "%stype \"%s\", which is not known,", prefix, format);
    }
}
