/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/pretty.h"

#include <errno.h>

static void print_indented(const char *text, size_t n, FILE *out) {
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < n; i++) {
        const char c = text[i];

        if (in_string) {
            fputc(c, out);
            if (c == '\\' && i + 1 < n)
                fputc(text[++i], out);
            else if (c == '"')
                in_string = false;
            continue;
        }
        if ((c == '}' || c == ']') && text[i - 1] != c - 2)
            fprintf(out, "\n%*s", --depth * 2, "");
        fputc(c, out);
        if (c == '"')
            in_string = true;
        else if (c == ':')
            fputc(' ', out);
        else if (c == ',')
            fprintf(out, "\n%*s", depth * 2, "");
        else if ((c == '{' || c == '[') && i + 1 < n && text[i + 1] != c + 2)
            fprintf(out, "\n%*s", ++depth * 2, "");
    }
}

static int print(struct json_writer *w, FILE *out, bool indented) {
    const bool failed = w->failed;

    if (!failed && indented)
        print_indented(w->data, w->len, out);
    else if (!failed)
        fwrite(w->data, 1, w->len, out);
    if (!failed)
        fputc('\n', out);
    json_writer_done(w);
    return failed ? -ENOMEM : 0;
}

int pretty_print(struct json_writer *w, FILE *out) {
    return print(w, out, true);
}

int pretty_print_line(struct json_writer *w, FILE *out) {
    return print(w, out, false);
}
