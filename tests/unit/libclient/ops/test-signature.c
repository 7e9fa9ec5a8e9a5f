/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <locale.h>
#include <string.h>

#include "base/error.h"
#include "libclient/graph/opdef.h"
#include "tests/support/suite.h"

static void forget(struct opdef *op) {
    for (size_t i = 0; i < op->n_attrs; i++)
        attr_done(&op->attrs[i].value);
}

START_TEST(a_signature_is_read_with_all_that_it_says) {
    struct allot_error err = { 0 };
    struct opdef op;
    int r;

    r = signature_parse(&op, "Much",
                        "(v: var T, values: N * U, at: i64) -> (y: T, rest: N * U); T: {f16, f32}; "
                        "U: type = i8; N: int; flag: bool = true; text: string = \"a; b\"; "
                        "list: ints = [1, -2]; shape: shape = [2, ?]; any: shape = ?; "
                        "f: float = -0.25; t: tensor",
                        &err);
    ck_assert_msg(r == 0, "%s", err.text);
    ck_assert_uint_eq(op.n_inputs, 3);
    ck_assert_uint_eq(op.n_outputs, 2);
    ck_assert_uint_eq(op.n_attrs, 10);
    ck_assert(op.inputs[0].is_variable && op.inputs[0].type_attr == 0);
    ck_assert_int_eq(op.inputs[0].length_attr, -1);
    ck_assert_int_eq(op.inputs[1].length_attr, 2);
    ck_assert_int_eq(op.inputs[1].type_attr, 1);
    ck_assert_int_eq(op.inputs[2].dtype, DTYPE_I64);
    ck_assert_int_eq(op.inputs[2].type_attr, -1);
    ck_assert_uint_eq(op.attrs[0].dtypes, 1u << DTYPE_F16 | 1u << DTYPE_F32);
    ck_assert(!op.attrs[0].has_default && op.attrs[1].has_default);
    ck_assert_int_eq(op.attrs[1].value.dtype, DTYPE_I8);
    ck_assert(op.attrs[3].value.b);
    ck_assert_str_eq(op.attrs[4].value.string, "a; b");
    ck_assert_uint_eq(op.attrs[5].value.ints.n, 2);
    ck_assert_int_eq(op.attrs[5].value.ints.values[1], -2);
    ck_assert_int_eq(op.attrs[6].value.shape.dims[1], SHAPE_UNKNOWN);
    ck_assert_int_eq(op.attrs[7].value.shape.rank, SHAPE_UNKNOWN);
    ck_assert_double_eq(op.attrs[8].value.f, -0.25);
    forget(&op);
}
END_TEST

START_TEST(what_is_no_signature_is_refused_with_the_place) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "character 1: '(' is missing" },
        { "(", "character 2: a name is missing" },
        { "()", "'->' is missing before 'the end'" },
        { "() -> (", "character 8: a name is missing" },
        { "(x) -> ()", "character 3: ':' is missing before ')'" },
        { "(x: T) -> ()", "character 5: neither a type nor an attribute is called 'T'" },
        { "(x: F32) -> ()", "neither a type nor an attribute is called 'F32'" },
        { "(x: none) -> ()", "neither a type nor an attribute is called 'none'" },
        { "(x: N * f32) -> (); N: bool", "character 5: a list is as long as an attribute int" },
        { "(x: N) -> (); N: int", "character 5: no type, but another attribute, is 'N'" },
        { "(x: f32, x: f32) -> ()", "character 10: a second argument is called 'x'" },
        { "() -> (); a: int; a: int", "character 19: a second attribute is called 'a'" },
        { "() -> (); a: what", "character 14: unknown kind of attribute 'what'" },
        { "() -> (); a: {f31}", "there is no type 'f31'" },
        { "() -> (); a: {}", "a name is missing" },
        { "() -> (); a: {f32", "'}' is missing" },
        { "() -> (); a: {f32} = f64", "the default is not one of the types: 'f64'" },
        { "() -> (); a: int = x", "character 20: a whole number is missing" },
        { "() -> (); a: int = 1.5", "a whole number is missing" },
        { "() -> (); a: int = 99999999999999999999", "a whole number is missing" },
        { "() -> (); a: float = .5", "a number of up to 15 digits is missing" },
        { "() -> (); a: float = 1e9", "a number of up to 15 digits is missing" },
        { "() -> (); a: bool = yes", "true or false is missing" },
        { "() -> (); a: string = \"x", "the text does not end" },
        { "() -> (); a: ints = [1, 2", "']' is missing" },
        { "() -> (); a: ints = [?]", "a whole number is missing" },
        { "() -> (); a: shape = [-2]", "a shape has up to 8 dimensions" },
        { "() -> (); a: shape = [1,1,1,1,1,1,1,1,1]", "a shape has up to 8 dimensions" },
        { "() -> (); a: tensor = 1", "a tensor has no default" },
        { "() -> () a: int", "character 10: this should be the end" },
        { "() -> (); s: string = \"kept\"; a: what", "unknown kind of attribute" },
        { "(1x: f32) -> ()", "a name is missing" },
        { "(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: f32) -> ()",
          "longer than 47 characters" },
        { "(a:f32,b:f32,c:f32,d:f32,e:f32,f:f32,g:f32,h:f32,i:f32,j:f32,k:f32,l:f32,m:f32,n:f32,"
          "o:f32,p:f32,q:f32) -> ()",
          "more than 16 arguments" },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_error err = { 0 };
        struct opdef op;

        ck_assert_msg(signature_parse(&op, "Odd", cases[i].text, &err) == -EINVAL, "%s",
                      cases[i].text);
        ck_assert_msg(strncmp(err.text, "signature of op Odd, character ", 31) == 0, "%s",
                      err.text);
        ck_assert_msg(strstr(err.text, cases[i].says), "%s: %s", cases[i].text, err.text);
    }
}
END_TEST

START_TEST(every_cut_of_a_signature_is_refused_or_read) {
    static const char whole[] = "(v: var T, x: N * T) -> (y: T); T: {f16, f32} = f32; N: int = 3; "
                                "s: string = \"x\"; l: ints = [1, 2]; h: shape = [?, 2]";
    char text[sizeof(whole)];

    for (size_t n = 0; n < sizeof(whole); n++)
        for (int with = 0; with < 128; with += 9) {
            struct opdef op;

            memcpy(text, whole, sizeof(whole));
            text[n] = (char)with;
            if (signature_parse(&op, "Cut", text, NULL) == 0)
                forget(&op);
        }
}
END_TEST

START_TEST(names_of_ops_are_checked) {
    static const char *const bad[] = {
        "", "1Op", "An Op", "_Op", "Op/x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    };
    struct opdef op;

    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        ck_assert_int_eq(signature_parse(&op, bad[i], "() -> ()", NULL), -EINVAL);
    ck_assert_int_eq(signature_parse(&op, "My.Op_2", "() -> ()", NULL), 0);
}
END_TEST

START_TEST(the_registry_keeps_ops_for_ever_and_each_once) {
    static const struct opdef_row row = { "Mine", "(x: f32) -> (y: f32)" };
    struct allot_error err = { 0 };

    ck_assert_ptr_null(opdef_find("Mine"));
    ck_assert_int_eq(opdef_register(&row, NULL), 0);
    ck_assert_ptr_nonnull(opdef_find("Mine"));
    ck_assert_ptr_eq(opdef_at(0), opdef_find("Mine"));
    ck_assert_ptr_null(opdef_at(1));
    ck_assert_int_eq(opdef_register(&row, &err), -EEXIST);
    ck_assert_str_eq(err.text, "there is an op Mine already");
}
END_TEST

START_TEST(numbers_are_read_the_same_in_every_locale) {
    struct opdef op;

    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        setlocale(LC_ALL, "");
    ck_assert_int_eq(signature_parse(&op, "Real", "() -> (); a: float = 0.2", NULL), 0);
    ck_assert(op.attrs[0].value.f == 0.2);
}
END_TEST

SUITE("signature", a_signature_is_read_with_all_that_it_says,
      what_is_no_signature_is_refused_with_the_place, every_cut_of_a_signature_is_refused_or_read,
      names_of_ops_are_checked, the_registry_keeps_ops_for_ever_and_each_once,
      numbers_are_read_the_same_in_every_locale)
