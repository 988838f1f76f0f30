"""Watches one forward pass and keeps it as a graph of values that can be computed again.

Every node is one ATen operation with its inputs, the module in which it ran and the line of source that called it. Fused
operations of PyTorch are taken apart first, so that a model reads alike however it was written.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re

import torch
from torch._decomp import get_decompositions
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.dirname(__file__)


class Node:
    """One operation, or a leaf: a parameter, a buffer, another constant, or an argument of the call."""

    __slots__ = ("idx", "kind", "op", "target", "args", "kwargs", "value", "path", "line", "name", "users", "rounds_to", "_inputs")

    def __init__(self, idx, kind, op, target=None, args=(), kwargs=None, name=None, path="", line=""):
        self.idx, self.kind, self.op, self.target, self.args = idx, kind, op, target, args
        self.kwargs, self.name, self.path, self.line = kwargs or {}, name, path, line
        self.value, self.users, self._inputs = None, [], None
        self.rounds_to = None  # a type of fewer bits that it rounds a constant to

    @property
    def inputs(self):
        if self._inputs is None:
            self._inputs = list(_nodes_in((self.args, self.kwargs)))
        return self._inputs

    def becomes(self, target):
        """Makes this an operation that reads no other node."""
        self.target, self.args, self.kwargs, self._inputs = target, (), {}, None

    def reads(self, node, other):
        """Makes this operation read another node in the place of one that it reads."""
        def put(arg):
            if isinstance(arg, (list, tuple)):
                return type(arg)(put(one) for one in arg)
            return other if arg is node else arg

        self.args, self.kwargs = put(self.args), {name: put(arg) for name, arg in self.kwargs.items()}
        self._inputs = None

    def said(self):
        """The operation and its place, for messages: `aten.cumsum in blocks.0.attn (model.py:31)`."""
        place = f" in {self.path}" if self.path else ""
        return f"{self.op}{place}" + (f" ({self.line})" if self.line else "")

    def __repr__(self):
        return f"%{self.idx} {self.op} {list(getattr(self.value, 'shape', []))}"


class Watched:
    """One forward pass: its nodes in order, the node of its logits, and the node of its token ids."""

    def __init__(self, nodes, ids, logits, own_logits):
        self.nodes, self.ids, self.logits, self.own_logits = nodes, ids, logits, own_logits
        self.leaves = [node for node in nodes if node.kind in ("parameter", "buffer")]


def watch(model, args, kwargs):
    """Runs `model(*args, **kwargs)` once and returns what it did; the model is in evaluation mode while it runs."""
    with _quiet(model), torch.no_grad():
        own = _logits_of(model(*args, **kwargs))[0].detach().clone()
        again = _logits_of(model(*args, **kwargs))[0]
        if not torch.equal(torch.nan_to_num(own), torch.nan_to_num(again)):
            raise ValueError("two calls of the model on the same example gave different logits: it draws random numbers or keeps "
                             "state between calls; turn that off and describe it again")
        graph, paths, where = _traced(model, args, kwargs)
    nodes, ids, logits = _as_nodes(model, graph, paths, args, kwargs, where)
    return Watched(nodes, ids, logits, own)


@contextlib.contextmanager
def _quiet(model):
    """Evaluation mode, and none of the fused paths that leave nothing to see."""
    modes = [(module, module.training) for module in model.modules()]
    fast = torch.backends.mha.get_fastpath_enabled()
    model.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, was in modes:
            module.training = was


def _logits_of(output):
    """The logits among what a model gives, and where they stand."""
    if isinstance(output, torch.Tensor):
        return output, ()
    if isinstance(output, dict) or hasattr(output, "logits"):
        logits = output["logits"] if isinstance(output, dict) and "logits" in output else getattr(output, "logits", None)
        if isinstance(logits, torch.Tensor):
            return logits, ("logits",)
        if isinstance(output, dict):
            output = tuple(output.values())
    if isinstance(output, (tuple, list)):
        for value in output:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() >= 2:
                return value, ()
    raise ValueError(f"expected the model to return its logits (a tensor, a tuple that begins with it, or an object with .logits), "
                     f"found {type(output).__name__}")


def _traced(model, args, kwargs):
    """The pass as an FX graph of ATen operations without changes in place, and the module of each node by name."""
    held = {**{f"p:{n}": p for n, p in model.named_parameters()}, **{f"b:{n}": b for n, b in model.named_buffers()}}
    places = _places(model, held)
    plain = _plain_tensors(model)
    held.update({name: value.clone() for name, (_, _, value) in plain.items()})
    tensors, rebuild = _flat(args, kwargs)
    tensors = [x.clone() if any(x is y for y in tensors[:i]) else x for i, x in enumerate(tensors)]  # each argument is a leaf
    paths, stack, last = {}, [""], [None]

    def note():
        mode = get_proxy_mode()
        if mode is None:
            return
        node = mode.tracer.graph._root.prev
        while node is not last[0] and node.op != "root":
            paths.setdefault(node.name, stack[-1])
            node = node.prev
        last[0] = mode.tracer.graph._root.prev

    def enter(path):
        def hook(module, *_):
            note()
            stack.append(path)
        return hook

    def leave(module, *_):
        note()
        if len(stack) > 1:
            stack.pop()

    def run(held, tensors):
        own = {name: held[of] for name, of in places.items()}
        args, kwargs = rebuild(tensors)
        try:
            for name, (module, key, _) in plain.items():
                module.__dict__[key] = held[name]
            logits, _ = _logits_of(torch.func.functional_call(model, own, args, kwargs, tie_weights=False))
        finally:
            for module, key, value in plain.values():
                module.__dict__[key] = value
        note()
        return logits

    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(path)))
        handles.append(module.register_forward_hook(leave))
    wanted = {"record_stack_traces": True, "_error_on_data_dependent_ops": False}  # choices of this text are what is described
    kept = torch.Tensor.requires_grad_  # changes no value, and cannot be followed
    # A model may ask for fused attention itself.
    fused = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    wanted["decomposition_table"] = get_decompositions([] if fused is None else [fused.default])
    options = {name: value for name, value in wanted.items() if name in inspect.signature(make_fx).parameters}
    try:
        torch.Tensor.requires_grad_ = lambda own, *_, **__: own
        try:
            graph = make_fx(torch.func.functionalize(run), **options)(held, tensors)
        except Exception:
            # Functions with a backward of their own cannot be freed of changes in place; most have none.
            paths.clear()
            stack[1:], last[0] = [], None
            graph = make_fx(run, **options)(held, tensors)
            changes = [str(n.target) for n in graph.graph.nodes if n.op == "call_function" and _changes_in_place(n.target)]
            if changes:
                raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise ValueError(f"the forward pass cannot be followed: {type(error).__name__}: {lines[0][:300]}") from error
    finally:
        torch.Tensor.requires_grad_ = kept
        for handle in handles:
            handle.remove()
    return graph, paths, [*held, *(f"a:{i}" for i in range(len(tensors)))]


def _plain_tensors(model):
    """Tensors that modules hold as plain attributes, such as a cache of keys: name → (module, attribute, tensor)."""
    return {f"t:{path}.{key}": (module, key, value) for path, module in model.named_modules()
            for key, value in vars(module).items() if type(value) is torch.Tensor}


def _places(model, held):
    """Every place of a value in the model: its name → the name under which it is held. Each place once, for functional_call puts
    back what it finds, and would find the values of the trace at a place that it has changed before."""
    names, places = {id(value): name for name, value in held.items()}, {}
    for path, module in model.named_modules():
        for name, value in (*module._parameters.items(), *module._buffers.items()):
            if value is not None:
                places[f"{path}.{name}" if path else name] = names[id(value)]
    return places


def _changes_in_place(target):
    schema = getattr(target, "_schema", None)
    return schema is not None and schema.is_mutable


def _flat(args, kwargs):
    """The tensors among the arguments, and a function that puts others in their place."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def rebuild(tensors):
        filled = list(leaves)
        for i, tensor in zip(at, tensors):
            filled[i] = tensor
        return torch.utils._pytree.tree_unflatten(filled, spec)

    return [leaves[i] for i in at], rebuild


def _as_nodes(model, graph, paths, args, kwargs, where):
    tensors, _ = _flat(args, kwargs)
    by_name = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    plain = {name.partition(":")[2]: value for name, (_, _, value) in _plain_tensors(model).items()}
    nodes, of, ids = [], {}, None
    holders = iter(where)

    def add(kind, op, target=None, args=(), kwargs=None, name=None, like=None):
        path = paths.get(like.name, "") if like is not None else ""
        line = _line(like) if like is not None else ""
        node = Node(len(nodes), kind, op, target, args, kwargs, name, path, line)
        nodes.append(node)
        return node

    for fx in graph.graph.nodes:
        if fx.op == "placeholder":
            kind, _, name = next(holders).partition(":")
            if kind == "a":
                node = add("argument", "argument", name=name)
                node.value = tensors[int(name)]
                if ids is None and not node.value.is_floating_point() and node.value.dtype != torch.bool:
                    ids = node
            elif kind == "t":
                node = add("constant", "constant", name=name)
                node.value = plain[name].detach()
            else:
                node = add("parameter" if kind == "p" else "buffer", "parameter", name=name)
                node.value = by_name[name].detach()
        elif fx.op == "get_attr":
            value = graph
            for part in fx.target.split("."):
                value = getattr(value, part)
            node = add("constant", "constant", name=fx.target)
            node.value = value.detach() if isinstance(value, torch.Tensor) else value
        elif fx.op == "output":
            node = of[next(iter(_fx_nodes(fx.args)))]
            return nodes, ids, node
        else:
            got = torch.fx.map_arg((fx.args, fx.kwargs), lambda n: of[n])
            node = _taken_apart(add, fx, *got)
        of[fx] = node
    raise ValueError("the forward pass gave nothing")


def _taken_apart(add, fx, args, kwargs):
    """Adds the nodes of one operation; a product that adds or scales as well becomes its steps."""
    aten = torch.ops.aten
    name = str(fx.target).replace(".default", "") if not callable(fx.target) or hasattr(fx.target, "overloadpacket") else "getitem"

    def call(target, *args, **kwargs):
        op = str(target)
        return add("call", re.sub(r"\.(default|Tensor|Scalar|int|dim|self)$", "", op), target, args, kwargs, like=fx)

    if fx.target in (aten.addmm.default, aten.baddbmm.default):
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        product = call(aten.mm.default if fx.target is aten.addmm.default else aten.bmm.default, args[1], args[2])
        if alpha != 1:
            product = call(aten.mul.Tensor, product, alpha)
        added = args[0] if beta == 1 else call(aten.mul.Tensor, args[0], beta)
        return product if beta == 0 else call(aten.add.Tensor, product, added)
    if fx.target is aten.convolution.default and _is_map(fx, args):
        return _mapped(call, add, fx, args)
    if name == "getitem":
        return add("call", "getitem", fx.target, tuple(args), kwargs, like=fx)
    return call(fx.target, *args, **kwargs)


def _is_map(fx, args):
    """Whether a convolution reads one position at a time: a linear map of channels."""
    weight, stride, padding, transposed, groups = fx.args[1], args[3], args[4], args[6], args[8]
    shape = weight.meta["val"].shape if "val" in weight.meta else ()
    return len(shape) > 2 and all(size == 1 for size in shape[2:]) and all(one == 1 for one in stride) \
        and not any(padding) and not transposed and groups == 1 and "val" in fx.meta


def _mapped(call, add, fx, args):
    """A convolution over single positions, as a product and moves."""
    aten, (batch, width, *sides) = torch.ops.aten, fx.meta["val"].shape
    last = len(sides) + 1
    rows = call(aten.permute.default, args[0], [0, *range(2, last + 1), 1])
    rows = call(aten.reshape.default, rows, [-1, int(fx.args[1].meta["val"].shape[1])])
    weight = call(aten.reshape.default, args[1], [int(width), -1])
    product = call(aten.mm.default, rows, call(aten.t.default, weight))
    if args[2] is not None:
        product = call(aten.add.Tensor, product, args[2])
    product = call(aten.reshape.default, product, [int(batch), *map(int, sides), int(width)])
    return call(aten.permute.default, product, [0, last, *range(1, last)])


def _fx_nodes(args):
    for arg in args:
        if isinstance(arg, torch.fx.Node):
            yield arg
        elif isinstance(arg, (tuple, list)):
            yield from _fx_nodes(arg)


def _nodes_in(value):
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _nodes_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _nodes_in(one)


def _line(fx):
    """file:line of the person's code that made a node."""
    found = re.findall(r'File "([^"]+)", line (\d+)', fx.meta.get("stack_trace") or "")
    own = [(file, line) for file, line in found if not file.startswith((_TORCH, _HERE)) and not file.startswith("<")]
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""
