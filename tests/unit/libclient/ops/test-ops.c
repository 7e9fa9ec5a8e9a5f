/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "libclient/ops/ops.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/suite.h"

/* Shapes of all outputs, with "; " between, or a part of the error. */
static const struct {
    const char *op, *inputs, *attrs, *shapes;
} cases[] = {
    { "Placeholder", "", "T=f32 shape=[?,3]", "[?, 3]" },
    { "Placeholder", "", "T=f32", "<unknown>" },
    { "Fill", "i64=[2,3] f32[]", "", "[2, 3]" },
    { "Fill", "i64[2] f32[]", "", "[?, ?]" },
    { "Fill", "i64? f32[]", "", "<unknown>" },
    { "Fill", "i64=[2,-1] f32[]", "", "!Fill: [2, ?]: no dimension can be open here" },
    { "Fill", "i64=[2,-2] f32[]", "", "!a dimension of the input shape is below -1" },
    { "Fill", "i64[2,2] f32[]", "", "!Fill: [2, 2]: input 0 must have 1 dimension, not 2" },
    { "Fill", "i64=[2] f32[1]", "", "!Fill: [1]: input 1 must be a single number" },
    { "Fill", "i64[9] f32[]", "", "!a shape has at most 8 dimensions" },
    { "Range", "i64=0 i64=10 i64=3", "", "[4]" },
    { "Range", "i32=5 i32=0 i32=-2", "", "[3]" },
    { "Range", "i32=5 i32=0 i32=2", "", "[0]" },
    { "Range", "f32=0 f32=1 f32=0.25", "", "[4]" },
    { "Range", "i32[] i32=0 i32=2", "", "[?]" },
    { "Range", "i64=0 i64=1 i64=0", "", "!Range: the step must not be 0" },
    { "Range", "f64=0 f64=1 f64=0", "", "!Range: the step must not be 0" },
    { "Range", "f64=0 f64=1e300 f64=1", "", "!more numbers than can be counted" },
    { "OneHot", "i32[2,3] f32[] f32[]", "depth=5", "[2, 3, 5]" },
    { "OneHot", "i32[2,3] f32[] f32[]", "depth=5 axis=0", "[5, 2, 3]" },
    { "OneHot", "i32[2,3] f32[] f32[]", "depth=5 axis=3", "!there is no axis 3" },
    { "OneHot", "i32[2] f32[] f32[]", "depth=-1", "!depth is -1" },
    { "RandomUniform", "i64=[4,4]", "T=f32", "[4, 4]" },
    { "RandomNormal", "i64[3]", "T=f16", "[?, ?, ?]" },
    { "TruncatedNormal", "i64=[]", "T=f64", "[]" },
    { "ReadVariable", "var:f32[2,3]", "", "[2, 3]" },
    { "Assign", "var:f32[2] f32[2]", "", "" },
    { "Assign", "var:f32[2] f32[3]", "",
      "!Assign: [2] and [3]: the variable and the value must have the same shape" },
    { "AssignAdd", "var:i32[] i32[?]", "", "![] and [?]" },
    { "ApplyGradientDescent", "var:f32[2] f32[] f32[2]", "", "" },
    { "ApplyGradientDescent", "var:f32[2] f32[2] f32[2]", "", "!input 1 must be a single number" },
    { "ApplyMomentum", "var:f32[2] var:f32[2] f32[] f32[2] f32[]", "", "" },
    { "ApplyMomentum", "var:f32[2] var:f32[3] f32[] f32[2] f32[]", "", "![2] and [3]" },
    { "ApplyAdam", "var:f32[2] var:f32[2] var:f32[2] f32[] f32[] f32[] f32[] f32[] f32[] f32[2]",
      "", "" },
    { "ApplyAdam", "var:f32[2] var:f32[2] var:f32[2] f32[] f32[] f32[] f32[] f32[] f32[] f32[3]",
      "", "![2] and [3]" },
    { "ApplyMomentum", "var:bf16[2] var:f32[2] f32[] bf16[2] f32[]", "", "" },
    { "ApplyMomentum", "var:f64[2] var:f32[2] f32[] f64[2] f32[]", "",
      "!op ApplyMomentum on a variable of type f64 must keep its state in the same type (or in f32 "
      "for 16-bit types), not in f32" },
    { "ApplyMomentum", "var:f16[2] var:f32[2] f16[] f16[2] f16[]", "",
      "!input rate is of type f32" },
    { "ApplyAdam", "var:f16[2] var:f32[2] var:f32[2] f32[] f32[] f32[] f32[] f32[] f32[] f16[2]",
      "", "" },
    { "Identity", "bool[2]", "", "[2]" },
    { "Assert", "bool[2] f32[]", "", "!Assert: [2]: input 0 must be a single number" },
    { "Shape", "f32[2,?]", "", "[2]" },
    { "Shape", "f32?", "", "[?]" },
    { "Size", "f32?", "", "[]" },
    { "Rank", "f32[2]", "", "[]" },
    { "Relu", "f32[2,?]", "", "[2, ?]" },
    { "ReluGrad", "f32[2,?] f32[?,3]", "", "[2, 3]" },
    { "TanhGrad", "f32[2] f32[3]", "",
      "!TanhGrad: [2] and [3]: the inputs must have the same shape" },
    { "Add", "f32[2,3] f32[3]", "", "[2, 3]" },
    { "Add", "f32[2,1] f32[1,3]", "", "[2, 3]" },
    { "Add", "f32[?,3] f32[2,1]", "", "[2, 3]" },
    { "Add", "f32? f32[2]", "", "<unknown>" },
    { "Add", "f32[2,3] f32[4]", "",
      "!node 'Add': Add: [2, 3] and [4]: the shapes do not broadcast to one" },
    { "Equal", "bool[2] bool[]", "", "[2]" },
    { "Select", "bool[2,1] f32[3] f32[]", "", "[2, 3]" },
    { "Select", "bool[2] f32[3] f32[]", "", "!Select: [2] and [3]" },
    { "AddN", "f32[?,3] f32[2,?]", "", "[2, 3]" },
    { "AddN", "f32[2] f32[3]", "", "!AddN: [2] and [3]: the inputs must have the same shape" },
    { "AddN", "", "T=f32", "!there is nothing to add" },
    { "BiasAdd", "f32[5,?] f32[3]", "", "[5, 3]" },
    { "BiasAdd", "f32[5,2] f32[3]", "", "!BiasAdd: [5, 2] and [3]: the bias must be as long" },
    { "BiasAdd", "f32[] f32[3]", "", "!has no last dimension" },
    { "BiasAddGrad", "f32[5,2]", "", "[2]" },
    { "BiasAddGrad", "f32?", "", "[?]" },
    { "MatMul", "f32[2,3] f32[3,2]", "", "[2, 2]" },
    { "MatMul", "f32[2,3] f32[4,5]", "",
      "!node 'MatMul': MatMul: [2, 3] and [4, 5]: the inner dimensions 3 and 4 differ" },
    { "MatMul", "f32[3,2] f32[3,4]", "transpose_a=true", "[2, 4]" },
    { "MatMul", "f32[2,3] f32[4,3]", "transpose_b=true", "[2, 4]" },
    { "MatMul", "f32[2,3] f32[2,3]", "transpose_a=true transpose_b=true",
      "!3 differ (transposed: both)" },
    { "MatMul", "f32[?,3] f32?", "", "[?, ?]" },
    { "MatMul", "f32[3] f32[3,1]", "", "!MatMul: [3] and [3, 1]: both must be matrices" },
    { "BatchMatMul", "f32[5,1,2,3] f32[4,3,6]", "", "[5, 4, 2, 6]" },
    { "BatchMatMul", "f32[5,3,2] f32[6,3]", "adj_x=true adj_y=true", "[5, 2, 6]" },
    { "BatchMatMul", "f32[5,2,3] f32[4,3,6]", "",
      "!BatchMatMul: [5, 2, 3] and [4, 3, 6]: the dim" },
    { "BatchMatMul", "f32[3] f32[3,6]", "", "!both must have two dimensions at least" },
    { "Sum", "f32[2,3,4]", "", "[]" },
    { "Sum", "f32[2,3,4]", "axes=[1]", "[2, 4]" },
    { "Sum", "f32[2,3,4]", "axes=[-1,0] keep_dims=true", "[1, 3, 1]" },
    { "Mean", "f32?", "", "[]" },
    { "Mean", "f32?", "axes=[0]", "<unknown>" },
    { "Max", "f32[2,3]", "axes=[2]", "!Max: [2, 3]: there is no axis 2" },
    { "Max", "f32[2,3]", "axes=[1,-1]", "!axis 1 is named twice" },
    { "All", "bool[2,?]", "axes=[0]", "[?]" },
    { "ProdGrad", "f32[3] f32[2,3]", "axes=[0]", "[2, 3]" },
    { "ProdGrad", "f32[2] f32[2,3]", "axes=[0]", "!ProdGrad: [3] and [2]" },
    { "ProdGrad", "f32[3] f32[2,3] f32[2,3]", "axes=[0]", "[2, 3]" },
    { "ProdGrad", "f32[3] f32[2,3] f32[3]", "axes=[0]", "!ProdGrad: [2, 3] and [3]" },
    { "ArgMax", "f32[2,3]", "axis=1", "[2]" },
    { "ArgMin", "f32[2,0]", "axis=1", "!axis 1 is empty" },
    { "Softmax", "f32[2,3]", "", "[2, 3]" },
    { "LogSoftmax", "f32[]", "", "!has no last dimension" },
    { "SoftmaxCrossEntropy", "f32[?,10] f32[32,10]", "", "[32]; [32, 10]" },
    { "SoftmaxCrossEntropy", "f32[2,10] f32[2,9]", "", "![2, 10] and [2, 9]" },
    { "SparseSoftmaxCrossEntropy", "f32[?,10] i64[32]", "", "[32]; [32, 10]" },
    { "SparseSoftmaxCrossEntropy", "f32[4,10] i64[5]", "", "![4, 10] and [5]: the labels must" },
    { "SparseSoftmaxCrossEntropy", "f32? i64[5]", "", "[5]; [5, ?]" },
    { "Reshape", "f32[2,6] i64=[3,-1]", "", "[3, 4]" },
    { "Reshape", "f32[?,6] i64=[3,-1]", "", "[3, ?]" },
    { "Reshape", "f32[2,6] i64[2]", "", "[?, ?]" },
    { "Reshape", "f32[2,6] i64=[5,-1]", "",
      "!Reshape: [2, 6] and [5, ?]: the shapes do not hold the same number" },
    { "Reshape", "f32[2,6] i64=[-1,-1]", "", "!only one dimension can be left open" },
    { "Reshape", "f32[2,6] i64=[13]", "", "!Reshape: [2, 6] and [13]" },
    { "Reshape", "f32[0,6] i64=[-1,0]", "", "!do not hold the same number" },
    { "BroadcastTo", "f32[3,1] i64=[2,3,4]", "", "[2, 3, 4]" },
    { "BroadcastTo", "f32[3] i64=[2]", "", "!BroadcastTo: [3] and [2]: only dimensions of 1" },
    { "BroadcastTo", "f32[3] i64=[1]", "", "!BroadcastTo: [3] and [1]: only dimensions of 1" },
    { "BroadcastTo", "f32[3,1] i64=[3]", "", "!broadcasting cannot remove dimensions" },
    { "Transpose", "f32[2,3,4]", "", "[4, 3, 2]" },
    { "Transpose", "f32[2,3,4]", "perm=[1,0,2]", "[3, 2, 4]" },
    { "Transpose", "f32?", "perm=[1,0]", "[?, ?]" },
    { "Transpose", "f32?", "perm=[1,1]", "!perm must name each dimension once" },
    { "Transpose", "f32?", "perm=[0,2]", "!perm must name each dimension once" },
    { "Transpose", "f32?", "", "<unknown>" },
    { "Transpose", "f32[2,3]", "perm=[0,0]", "!perm must name each dimension once" },
    { "Transpose", "f32[2,3]", "perm=[0,5]", "!perm must name each dimension once" },
    { "Transpose", "f32[2,3]", "perm=[0]", "!perm has 1 entries for 2 dimensions" },
    { "ExpandDims", "f32[2,3]", "axis=-1", "[2, 3, 1]" },
    { "ExpandDims", "f32[2,3]", "axis=0", "[1, 2, 3]" },
    { "ExpandDims", "f32[2,3]", "axis=3", "!there is no position 3" },
    { "Squeeze", "f32[1,2,1]", "", "[2]" },
    { "Squeeze", "f32[1,2,1]", "axes=[0]", "[2, 1]" },
    { "Squeeze", "f32[1,?]", "", "<unknown>" },
    { "Squeeze", "f32[1,2]", "axes=[1]", "!axis 1 is 2 long, not 1" },
    { "Cast", "f32[2]", "U=i32", "[2]" },
    { "Concat", "f32[2,3] f32[4,3]", "", "[6, 3]" },
    { "Concat", "f32[2,3] f32[2,?]", "axis=-1", "[2, ?]" },
    { "Concat", "f32[2,3] f32[4,4]", "",
      "!Concat: [2, 3] and [4, 4]: their shapes must be the same except" },
    { "Concat", "f32[2,3] f32[2]", "", "!Concat: [2, 3] and [2]" },
    { "Concat", "f32[]", "", "!there is no axis 0" },
    { "Split", "f32[4,3]", "N=2", "[2, 3]; [2, 3]" },
    { "Split", "f32[4,3]", "N=3", "!axis 0 cannot be cut into 3 parts of one size" },
    { "Split", "f32[4,3]", "N=0", "!there must be at least one part" },
    { "Pack", "f32[2] f32[2]", "axis=1", "[2, 2]" },
    { "Pack", "f32[2] f32[3]", "", "!Pack: [2] and [3]" },
    { "Unpack", "f32[2,3]", "N=2", "[3]; [3]" },
    { "Unpack", "f32[2,3]", "N=3", "!axis 0 holds 2, not 3 parts" },
    { "Where", "bool[2,3]", "", "[?, 2]" },
    { "Slice", "f32[4,6]", "begin=[1,2] size=[2,-1]", "[2, 4]" },
    { "Slice", "f32[4,6]", "begin=[1,2] size=[4,1]", "!4 from 1 on are not within dimension 0" },
    { "Slice", "f32[4,6]", "begin=[1] size=[1]", "!begin has 1 entries for 2 dimensions" },
    { "Slice", "f32[?]", "begin=[1] size=[2]", "[2]" },
    { "Pad", "f32[2,?]", "before=[1,1] after=[2,0]", "[5, ?]" },
    { "Pad", "f32[2]", "before=[-1] after=[2]", "!padded by less than 0" },
    { "StridedSlice", "f32[10]", "begin=[1] end=[8] strides=[3]", "[3]" },
    { "StridedSlice", "f32[10]", "begin=[-1] end=[0] strides=[-1] end_mask=1", "[10]" },
    { "StridedSlice", "f32[10]", "begin=[-1] end=[0] strides=[-1]", "[9]" },
    { "StridedSlice", "f32[10,3]", "begin=[5] end=[9] strides=[1] begin_mask=1", "[9, 3]" },
    { "StridedSlice", "f32[10,3]", "begin=[-2] end=[0] strides=[1] shrink_axis_mask=1", "[3]" },
    { "StridedSlice", "f32[10]", "begin=[20] end=[30] strides=[1]", "[0]" },
    { "StridedSlice", "f32[10]", "begin=[10] end=[0] strides=[1] shrink_axis_mask=1",
      "!StridedSlice: entry 10 is not within the 10 of dimension 0" },
    { "StridedSlice", "f32[10]",
      "begin=[10] end=[0] strides=[1] shrink_axis_mask=1 begin_mask=1 end_mask=1",
      "!StridedSlice: entry 10 is not within the 10 of dimension 0" },
    { "StridedSlice", "f32[10]", "begin=[5] end=[0] strides=[-1] shrink_axis_mask=1",
      "!a single entry of dimension 0 is taken with a stride of 1, not -1" },
    { "StridedSlice", "f32[10]", "begin=[0] end=[1] strides=[0]", "!the stride of dimension 0" },
    { "StridedSlice", "f32[10]", "begin=[0,0] end=[1,1] strides=[1,1]", "!no more than the 1 dim" },
    { "StridedSlice", "f32[?,3]", "begin=[1] end=[5] strides=[1]", "[?, 3]" },
    { "StridedSliceGrad", "f32[3] f32[10]", "begin=[1] end=[8] strides=[3]", "[10]" },
    { "StridedSliceGrad", "f32[4] f32[10]", "begin=[1] end=[8] strides=[3]",
      "!StridedSliceGrad: [4] and [3]" },
    { "Gather", "f32[5,3] i32[2,2]", "", "[2, 2, 3]" },
    { "Gather", "f32[5,3] i64[]", "axis=1", "[5]" },
    { "Gather", "f32[5,3] i64[]", "axis=2", "!there is no axis 2" },
    { "GatherGrad", "f32[2,2,3] i32[2,2] f32[5,3]", "", "[5, 3]" },
    { "GatherGrad", "f32[2,2,4] i32[2,2] f32[5,3]", "", "!GatherGrad: [2, 2, 4] and [2, 2, 3]" },
    { "Tile", "f32[2,?]", "multiples=[3,2]", "[6, ?]" },
    { "Tile", "f32[2]", "multiples=[-1]", "!negative multiple" },
    { "TileGrad", "f32[6] f32[2]", "multiples=[3]", "[2]" },
    { "TileGrad", "f32[5] f32[2]", "multiples=[3]", "!TileGrad: [5] and [6]" },
    { "SumLike", "f32[4,2,3] f64[2,1]", "", "[2, 1]" },
    { "SumLike", "f32[2,3] f64[4]", "", "!SumLike: [4] and [2, 3]: the first does not broadcast" },
    { "SumLike", "f32[2] f32[2,1]", "", "!SumLike: [2, 1] and [2]" },
    { "BroadcastLike", "f32[3] f32[2,3]", "", "[2, 3]" },
    { "BroadcastLike", "f32[2] f32[2,3]", "axes=[1]", "[2, 3]" },
    { "BroadcastLike", "f32[2] f32[2,3]", "axes=[0]", "!BroadcastLike: [1, 2] and [2, 3]" },
    { "BroadcastLike", "f32[2,1] f32[2,3]", "axes=[0]", "!without the axes" },
    { "ReshapeLike", "f32[6] f32[2,3]", "", "[2, 3]" },
    { "ReshapeLike", "f32[6] f32[2,4]", "", "!ReshapeLike: [6] and [2, 4]" },
    { "SliceLike", "f32[4,6] f32[2,3]", "begin=[2,3]", "[2, 3]" },
    { "SliceLike", "f32[4,6] f32[2,3]", "begin=[3,3]", "!the piece is not within the whole" },
    { "SliceGrad", "f32[2] f32[4]", "begin=[1]", "[4]" },
    { "SliceGrad", "f32[2] f32[4]", "begin=[3]", "!SliceGrad: [4] and [2]" },
    { "SplitLike", "f32[6,2] f32[4,2] f32[2,2]", "", "[4, 2]; [2, 2]" },
    { "SplitLike", "f32[7,2] f32[4,2] f32[2,2]", "", "!the parts are 6 long together" },
    { "SplitLike", "f32[6,2] f32[4,2] f32[2,3]", "", "!SplitLike: [6, 2] and [2, 3]" },
    { "Shard", "f32[7,2]", "index=0 count=3", "[2, 2]" },
    { "Shard", "f32[7,2]", "index=2 count=3", "[3, 2]" },
    { "Shard", "f32[2,?]", "index=0 count=3", "[0, ?]" },
    { "Shard", "f32[?,2]", "index=0 count=3", "[?, 2]" },
    { "Shard", "f32[7]", "index=3 count=3", "!there is no shard 3 of 3" },
    { "Shard", "f32[]", "index=0 count=1", "!a single number has no rows" },
    { "ShardGrad", "f32[2,2] f32[7,2]", "index=1 count=3", "[7, 2]" },
    { "ShardGrad", "f32[3,2] f32[7,2]", "index=1 count=3", "!the shape of the shard" },
    { "ShardWeight", "i64[7,2]", "T=f32 index=1 count=3", "[]" },
    { "AllReduce", "f32[2] f32[?] f32[2] f32[3]", "replicas=2", "[2]; [3]; [2]; [3]" },
    { "AllReduce", "f32[2] f32[3]", "replicas=2", "!the same shape in all replicas" },
    { "AllReduce", "f32[2] f32[2] f32[2]", "replicas=2", "!3 inputs cannot be the tensors of 2" },
};

static void show(const struct node *node, char *text, size_t size) {
    char shape[SHAPE_TEXT_SIZE];
    size_t n = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < node->n_outputs && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "; " : "",
                              shape_format(&node->outputs[i].shape, shape));
}

START_TEST(shapes_are_inferred_and_misfits_named) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
        struct allot_error err = { 0 };
        char text[512];
        uint32_t id;
        int r = graph_fixture_add(graph, cases[i].op, cases[i].inputs, cases[i].attrs, &id, &err);

        if (cases[i].shapes[0] == '!') {
            ck_assert_msg(r == -EINVAL, "%s %s %s", cases[i].op, cases[i].inputs, cases[i].attrs);
            ck_assert_msg(strstr(err.text, cases[i].shapes + 1), "%s instead of %s", err.text,
                          cases[i].shapes + 1);
            continue;
        }
        ck_assert_msg(r == 0, "%s %s %s: %s", cases[i].op, cases[i].inputs, cases[i].attrs,
                      err.text);
        show(graph_node(graph, id), text, sizeof(text));
        ck_assert_msg(strcmp(text, cases[i].shapes) == 0, "%s %s %s: %s instead of %s", cases[i].op,
                      cases[i].inputs, cases[i].attrs, text, cases[i].shapes);
    }
}
END_TEST

/* Whether the word that goes on to `at` is that of a variable. */
static bool is_variable(const char *inputs, const char *at) {
    while (at > inputs && at[-1] != ' ')
        at--;
    return strncmp(at, "var:", 4) == 0;
}

/* Whatever is open in the inputs, a shape function answers and does not contradict the whole case.
 */
START_TEST(open_shapes_never_contradict_whole_ones) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
        struct allot_error err = { 0 };
        char inputs[256], *at = inputs;
        uint32_t whole, open;

        if (cases[i].shapes[0] == '!' || strstr(cases[i].inputs, "="))
            continue;
        ck_assert_int_eq(
            graph_fixture_add(graph, cases[i].op, cases[i].inputs, cases[i].attrs, &whole, NULL),
            0);
        /* "f32[2,3]" becomes "f32?", but variables stay: they are never open. */
        for (const char *c = cases[i].inputs; *c; c++)
            if (*c != '[' || is_variable(cases[i].inputs, c))
                *at++ = *c;
            else {
                *at++ = '?';
                c = strchr(c, ']');
            }
        *at = '\0';
        ck_assert_msg(graph_fixture_add(graph, cases[i].op, inputs, cases[i].attrs, &open, &err) ==
                          0,
                      "%s %s: %s", cases[i].op, inputs, err.text);
        for (uint32_t o = 0; o < graph_node(graph, whole)->n_outputs; o++)
            ck_assert_msg(shape_compatible(&graph_node(graph, whole)->outputs[o].shape,
                                           &graph_node(graph, open)->outputs[o].shape),
                          "%s %s", cases[i].op, inputs);
    }
}
END_TEST

START_TEST(every_op_has_a_shape_function_and_stands_in_the_manual) {
    cleanup(fclosep) FILE *file = fopen(TEST_DOCS "/ops.md", "re");
    static char manual[65536];
    const struct opdef *op;

    ck_assert_int_eq(ops_register_all(NULL), 0);
    ck_assert_ptr_nonnull(file);
    manual[fread(manual, 1, sizeof(manual) - 1, file)] = '\0';
    for (size_t i = 0; (op = opdef_at(i)); i++) {
        size_t length = strlen(op->name);
        const char *at = manual;

        ck_assert_msg(op->shape, "%s", op->name);
        while ((at = strstr(at, op->name)) &&
               ((at[-1] != '\n' && at[-1] != ' ') || (at[length] != ' ' && at[length] != ':')))
            at++;
        ck_assert_msg(at, "%s is not in docs/ops.md", op->name);
        /* Flat, with a gradient, without outputs, or one of the few that have none. */
        ck_assert_msg(op->is_flat || op->gradient || op->n_outputs == 0 ||
                          strcmp(op->name, "Variable") == 0,
                      "%s", op->name);
    }
}
END_TEST

SUITE("ops", shapes_are_inferred_and_misfits_named, open_shapes_never_contradict_whole_ones,
      every_op_has_a_shape_function_and_stands_in_the_manual)
