/* SPDX-License-Identifier: Apache-2.0 */
/* Flow: ops that pass values on, say what shape they have, or look at them. */
#include <errno.h>

#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

static int shape_op(struct opdef_shapes *shapes, struct allot_error *err) {
    int rank = shapes->inputs[0].rank;

    shapes->outputs[0] =
        (struct shape){ .rank = 1, .dims = { rank < 0 ? SHAPE_UNKNOWN : (int64_t)rank } };
    return 0;
}

static int assert_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return shapes_rank(shapes, 0, 0, err);
}

static const struct opdef_row rows[] = {
    { "NoOp", "() -> ()", shapes_none, .flags = OPDEF_STATEFUL | OPDEF_SIDE_EFFECT },
    { "Identity", "(x: T) -> (y: T); T: type", shapes_same, gradient_pass },
    { "StopGradient", "(x: T) -> (y: T); T: type", shapes_same, .is_flat = true },
    { "Print", "(x: T) -> (y: T); T: type; message: string = \"\"; summarize: int = 3", shapes_same,
      gradient_pass, OPDEF_STATEFUL | OPDEF_SIDE_EFFECT },
    { "Assert",
      "(condition: bool, data: N * T) -> (); N: int; T: type = f32; message: string = \"\"; "
      "summarize: int = 3",
      assert_shape, .flags = OPDEF_STATEFUL | OPDEF_SIDE_EFFECT },
    { "CheckNumerics", "(x: T) -> (y: T); T: " FLOATS "; message: string = \"\"", shapes_same,
      gradient_pass, OPDEF_STATEFUL | OPDEF_SIDE_EFFECT },
    { "Shape", "(x: T) -> (shape: i64); T: type", shape_op, .flags = OPDEF_METADATA,
      .is_flat = true },
    { "Size", "(x: T) -> (size: i64); T: type", shapes_single, .flags = OPDEF_METADATA,
      .is_flat = true },
    { "Rank", "(x: T) -> (rank: i64); T: type", shapes_single, .flags = OPDEF_METADATA,
      .is_flat = true },
};

const struct ops_table ops_flow = OPS_TABLE(rows);
