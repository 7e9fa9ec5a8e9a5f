#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the losses of a network that TensorFlow trains, step by step: record-mlp.py > mlp.txt

Needs the wheels of scripts/requirements/graph-peers.txt. Weights, inputs and labels are those of
tests/support/formula.h; tests/unit/libclient/api/test-train-golden.c trains the same by liballot. Once in 32 bits, as
people do, and once in 64, where two libraries may hardly differ.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow.compat.v1 as tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import formula

WIDTHS, BATCH, STEPS = (64, 48, 32, 10), 32, 50
SCALES = (0.25, 0.25, 0.5)
OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adam": lambda: tf.train.AdamOptimizer(0.002),
}


def losses(optimizer, dtype):
    with tf.Graph().as_default():
        out = tf.constant(formula.floats(1, (BATCH, WIDTHS[0]), 1).astype(dtype))
        labels = tf.constant((formula.bits(2, BATCH) % 10).astype(np.int32))
        for i in range(3):
            w = tf.Variable(formula.floats(10 + i, (WIDTHS[i], WIDTHS[i + 1]), SCALES[i]).astype(dtype))
            b = tf.Variable(formula.floats(20 + i, (WIDTHS[i + 1],), 0.125).astype(dtype))
            out = tf.nn.bias_add(tf.matmul(out, w), b)
            if i < 2:
                out = tf.nn.relu(out)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=out))
        gradients = tf.gradients(loss, tf.trainable_variables())
        train = optimizer().apply_gradients(zip(gradients, tf.trainable_variables()))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            # The loss before each step: the step waits for it in a run of its own.
            for _ in range(STEPS):
                yield session.run(loss)
                session.run(train)


def main():
    tf.disable_eager_execution()
    print("# Losses before each of %d steps, by TensorFlow %s: optimizer, type, losses. See record-mlp.py."
          % (STEPS, tf.version.VERSION))
    for name, optimizer in OPTIMIZERS.items():
        for dtype, short, digits in ((np.float32, "f32", 9), (np.float64, "f64", 17)):
            print(name, short, *("%.*g" % (digits, loss) for loss in losses(optimizer, dtype)))


main()
