#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's and ONNX Runtime's side of ./run bench graph: graph-peers.py tf|tf-single|ort

Reads and answers lines as graph-allot.c does, and builds the graphs of graph-shapes.c.

tf         a session with its usual executor
tf-single  the same with TensorFlow's executor for one thread
ort        ONNX Runtime, sequential with one thread, parallel with two

Rewriting is off where kernel calls are counted: every op is one call, as in liballot. For the network
and the product both libraries may do to the graph what they like.
"""
import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))
import formula

CHAIN, LAYERS, WIDTH, NUMBERS, INPUTS, BATCH, SIDE = 10000, 100, 200, 16, 8, 128, 1024
MLP = (784, 512, 512, 10)


def layered():
    """Per node: op 0 to 4, first and second input, as positions: the inputs first, then the nodes."""
    drawn = formula.bits(99, 2 * LAYERS * WIDTH)
    n, nodes = INPUTS, []
    for layer in range(LAYERS):
        first = INPUTS + (layer - 3) * WIDTH if layer > 3 else 0
        end, before = n, WIDTH if layer > 0 else INPUTS
        for i in range(WIDTH):
            at = 2 * (layer * WIDTH + i)
            nodes.append((int(drawn[at + 1]) % 5, end - before + (i * 7 + layer) % before,
                          first + int(drawn[at]) % (end - first)))
            n += 1
    return nodes


def layered_feeds():
    return [formula.floats(i, (NUMBERS,), 1) for i in range(INPUTS)]


class TensorFlow:
    def __init__(self, single):
        import tensorflow.compat.v1 as tf
        tf.disable_eager_execution()
        self.tf, self.single = tf, single

    def config(self, threads, rewrite):
        tf = self.tf
        config = tf.ConfigProto(inter_op_parallelism_threads=threads, intra_op_parallelism_threads=threads,
                                use_per_session_threads=True)
        if self.single:
            config.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
        if not rewrite:
            config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        return config

    def chain(self, tf):
        x = y = tf.placeholder(tf.float32, ())
        one = tf.constant(1.0)
        for _ in range(CHAIN):
            y = tf.raw_ops.AddV2(x=y, y=one)
        return [x], [np.float32(0)], y, None, None

    def wide(self, tf):
        x = tf.placeholder(tf.float32, ())
        one = tf.constant(1.0)
        made = [tf.raw_ops.AddV2(x=x, y=one) for _ in range(CHAIN)]
        return [x], [np.float32(0)], made[-1], tf.group(*[y.op for y in made]), None

    def layered(self, tf):
        raw = tf.raw_ops
        ops = [lambda a, b: raw.AddV2(x=a, y=b), lambda a, b: raw.Sub(x=a, y=b),
               lambda a, b: raw.Maximum(x=a, y=b), lambda a, b: raw.Minimum(x=a, y=b),
               lambda a, b: raw.Tanh(x=a)]
        feeds = [tf.placeholder(tf.float32, (NUMBERS,)) for _ in range(INPUTS)]
        made = list(feeds)
        for op, a, b in layered():
            made.append(ops[op](made[a], made[b]))
        return feeds, layered_feeds(), raw.AddN(inputs=made[-WIDTH:]), None, None

    def mlp(self, tf):
        x = out = tf.placeholder(tf.float32, (BATCH, MLP[0]))
        labels = tf.placeholder(tf.int32, (BATCH,))
        for i in range(3):
            scale = np.sqrt(np.float32(6) / np.float32(MLP[i] + MLP[i + 1]))
            w = tf.Variable(formula.floats(10 + i, (MLP[i], MLP[i + 1]), scale), use_resource=True)
            b = tf.Variable(np.zeros(MLP[i + 1], np.float32), use_resource=True)
            out = tf.nn.bias_add(tf.matmul(out, w), b)
            if i < 2:
                out = tf.nn.relu(out)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=out))
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        return ([x, labels], [formula.floats(1, (BATCH, MLP[0]), 1), (formula.bits(2, BATCH) % 10).astype(np.int32)],
                loss, train, tf.global_variables_initializer())

    def matmul(self, tf):
        a, b = (tf.placeholder(tf.float32, (SIDE, SIDE)) for _ in range(2))
        return [a, b], [formula.floats(1, (SIDE, SIDE), 1), formula.floats(2, (SIDE, SIDE), 1)], tf.matmul(a, b), \
            None, None

    def open(self, row, threads):
        tf = self.tf
        graph = tf.Graph()
        with graph.as_default():
            feeds, values, fetch, target, initializer = getattr(self, row)(tf)
            session = tf.Session(graph=graph, config=self.config(threads, row in ("mlp", "matmul")))
            if initializer is not None:
                session.run(initializer)
            # What is fetched from a product stays inside: a copy of it is not the product.
            if row == "matmul":
                fetch, target = tf.reshape(fetch, (-1,))[0], fetch.op
            call = session.make_callable([fetch] + ([target] if target is not None else []), feeds)
        return lambda: float(np.ravel(call(*values)[0])[0])

    def from_scratch(self, row, threads):
        """From the bytes of a finished GraphDef to the first value; making those is not counted."""
        tf = self.tf
        graph = tf.Graph()
        with graph.as_default():
            feeds, values, fetch, target, _ = getattr(self, row)(tf)
            text = graph.as_graph_def().SerializeToString()
            names = [f.name for f in feeds], fetch.name, target and target.name

        def run():
            graph = tf.Graph()
            with graph.as_default():
                definition = tf.GraphDef()
                definition.ParseFromString(text)
                tf.graph_util.import_graph_def(definition, name="")
                session = tf.Session(graph=graph, config=self.config(threads, False))
                fetches = [names[1]] + ([graph.get_operation_by_name(names[2])] if names[2] else [])
                value = session.run(fetches, dict(zip(names[0], values)))
            return float(np.ravel(value[0])[0])
        return run


class OnnxRuntime:
    OPS = ("Add", "Sub", "Max", "Min", "Tanh")

    def __init__(self):
        import onnx
        import onnxruntime
        self.onnx, self.ort = onnx, onnxruntime
        self.helper, self.numpy = onnx.helper, onnx.numpy_helper

    def node(self, op, inputs, output):
        return self.helper.make_node(op, inputs, [output])

    def model(self, nodes, inputs, outputs, constants=()):
        info = self.helper.make_tensor_value_info
        graph = self.helper.make_graph(
            nodes, "bench", [info(n, self.onnx.TensorProto.FLOAT, s) for n, s in inputs],
            [info(n, self.onnx.TensorProto.FLOAT, s) for n, s in outputs],
            [self.numpy.from_array(a, n) for n, a in constants])
        return self.helper.make_model(graph, opset_imports=[self.helper.make_opsetid("", 17)], ir_version=8) \
            .SerializeToString()

    def chain(self):
        nodes = [self.node("Add", ["y%d" % i if i else "x", "one"], "y%d" % (i + 1)) for i in range(CHAIN)]
        return self.model(nodes, [("x", ())], [("y%d" % CHAIN, ())], [("one", np.float32(1).reshape(()))]), \
            {"x": np.zeros((), np.float32)}

    def wide(self):
        nodes = [self.node("Add", ["x", "one"], "y%d" % i) for i in range(CHAIN)]
        return self.model(nodes, [("x", ())], [("y%d" % (CHAIN - 1), ())], [("one", np.float32(1).reshape(()))]), \
            {"x": np.zeros((), np.float32)}

    def layered(self):
        names = ["x%d" % i for i in range(INPUTS)]
        nodes = []
        for n, (op, a, b) in enumerate(layered()):
            inputs = [names[a]] if op == 4 else [names[a], names[b]]
            names.append("y%d" % n)
            nodes.append(self.node(self.OPS[op], inputs, names[-1]))
        nodes.append(self.node("Sum", names[-WIDTH:], "end"))
        return self.model(nodes, [(names[i], (NUMBERS,)) for i in range(INPUTS)], [("end", (NUMBERS,))]), \
            dict(zip(names, layered_feeds()))

    def matmul(self):
        return self.model([self.node("MatMul", ["a", "b"], "c")], [("a", (SIDE, SIDE)), ("b", (SIDE, SIDE))],
                          [("c", (SIDE, SIDE))]), \
            {"a": formula.floats(1, (SIDE, SIDE), 1), "b": formula.floats(2, (SIDE, SIDE), 1)}

    def session(self, model, threads, rewrite):
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 4
        options.execution_mode = self.ort.ExecutionMode.ORT_SEQUENTIAL if threads == 1 \
            else self.ort.ExecutionMode.ORT_PARALLEL
        if not rewrite:
            options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return self.ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def open(self, row, threads):
        model, feeds = getattr(self, row)()
        session = self.session(model, threads, row == "matmul")
        return lambda: float(np.ravel(session.run(None, feeds)[0])[0])

    def from_scratch(self, row, threads):
        model, feeds = getattr(self, row)()
        return lambda: float(np.ravel(self.session(model, threads, False).run(None, feeds)[0])[0])


def main():
    library = OnnxRuntime() if sys.argv[1] == "ort" else TensorFlow(sys.argv[1] == "tf-single")
    rows = {}
    for line in sys.stdin:
        row, threads, steps = line.split()
        name, _, shape = row.rpartition("-")
        if not hasattr(library, shape):
            print(json.dumps({"error": "no row " + row}), flush=True)
            continue
        run = rows.get((row, threads))
        if not run:
            make = library.from_scratch if name == "build" else library.open
            run = rows[row, threads] = make(shape, int(threads))
        if name != "build":     # the caches are the others'
            run()
        wall, cpu = [], []
        for _ in range(int(steps)):
            began = time.process_time_ns(), time.perf_counter_ns()
            value = run()
            wall.append(time.perf_counter_ns() - began[1])
            cpu.append(time.process_time_ns() - began[0])
        print(json.dumps({"wall": wall, "cpu": cpu, "value": value}), flush=True)


main()
