#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records losses.txt: an MLP trained by TensorFlow, step by step, from weights that a formula gives.

test-train builds the same net and must come to the same losses. Needs TensorFlow (2.21 was used):

    python tests/golden/losses.py > tests/golden/losses.txt
"""
import math
import sys

import numpy as np
import tensorflow as tf

BATCH, STEPS = 32, 30
WIDTHS = [16, 24, 24, 5]
OPTIMIZERS = {
    "sgd": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.2),
    "momentum": lambda: tf.compat.v1.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda: tf.compat.v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adam": lambda: tf.compat.v1.train.AdamOptimizer(0.01),
}


def numbers(n, seed, scale):
    return np.array([math.sin(1.3 * i + seed) * scale for i in range(n)], dtype=np.float32)


def losses(optimizer):
    x = tf.constant(numbers(BATCH * WIDTHS[0], 0.5, 1).reshape(BATCH, WIDTHS[0]))
    labels = tf.constant([i * i % WIDTHS[-1] for i in range(BATCH)], dtype=tf.int64)
    variables = []
    for layer, (rows, columns) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        weights = numbers(rows * columns, layer + 1, math.sqrt(2 / rows)).reshape(rows, columns)
        variables += [tf.Variable(weights), tf.Variable(np.zeros(columns, dtype=np.float32))]
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            h = x
            for layer in range(len(WIDTHS) - 1):
                h = tf.nn.bias_add(tf.matmul(h, variables[2 * layer]), variables[2 * layer + 1])
                if layer < len(WIDTHS) - 2:
                    h = tf.nn.relu(h)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, h))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        yield float(loss)


def main():
    for name, make in OPTIMIZERS.items():
        print(name, *(f"{loss:.9g}" for loss in losses(make())))
    print(f"TensorFlow {tf.__version__}", file=sys.stderr)


main()
