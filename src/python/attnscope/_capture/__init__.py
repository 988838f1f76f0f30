"""Captures the attention of a PyTorch model for attnscope. Needs only torch.

Two things are offered. `capture` writes what every attention of one forward call did:

    from attnscope_capture import capture
    with capture(model, "trace.safetensors", mask="causal"):
        model(ids)

    $ attnscope trace.safetensors            # look at it
    $ attnscope check trace.safetensors      # judge it

`probe` changes the input and writes which modules noticed: later tokens, padding, other rows of the batch, other
documents, another order, a cache, a shorter prompt, a second pass. It finds any leak, also those that leave no trace in the
pattern:

    from attnscope_capture import probe
    probe(model, ids, "probe.safetensors", mask="causal")

    $ attnscope check probe.safetensors      # names the first module that leaks

`record` writes what modules gave under the names of hooks, so that a port can be compared with the checkpoint it is a port of:

    from attnscope_capture import record
    with record(model, "port.safetensors", names={"layers.{i}.attn.q_proj": "blocks.{i}.attn.q"}):
        model(ids)

    $ attnscope diff CHECKPOINT port.safetensors        # where the port parts first

Call model.eval() before. Where the model draws random numbers, as dropout does, the recording says so, and nothing is judged by it.

Without names it finds them by itself, against a trace of the checkpoint, and prints what it matched:

    $ attnscope trace CHECKPOINT --tokens 5,9,2 --hooks all --output reference.safetensors
    record(model, "port.safetensors", against="reference.safetensors")

What counts as attention
    Every call of scaled_dot_product_attention or of a kernel behind it, and of flex_attention, inside a module of the model.
    Every softmax inside a module that
    1. is over a float tensor of 3 dimensions ([batch*head, query, key]), 4 ([batch, head, query, key]) or 5
       ([batch, kv_head, group, query, key]);
    2. is known to have a product of two activations as its input, as in windows and buckets; or has as many queries (last
       dimension but one) and keys as some input of an enclosing module has positions;
    3. does not have as its input the output of a layer with weights: that is how a router or a vocabulary softmax,
       [batch, position, expert or token], is told from one head of attention.
    Every softmax over one row of keys, [batch, key], that then weighs as many values: pooling, and decoders that attend once a step.
    And everything else that is made of a product of two activations, [.., query, key], and is then multiplied by values: exp
    and sum, log_softmax and exp, sigmoid, ReLU, sparsemax, functions of your own, or nothing at all (linear attention).
    Where einsum leaves the axes in another order, queries and keys are known by what the products sum over.
    Successive calls of one query of a module, as when a decoder writes token by token, are the rows of one layer. Attention whose
    module got another sequence for its keys is cross-attention, whatever its name is.
What was passed over is listed in the metadata as `attnscope.skipped`; what may matter is also told in a warning.

What is not seen: kernels called directly (flash_attn, xformers), TorchScript, attention that never makes a matrix of
queries by keys, calls in other threads or processes (DataParallel), whatever runs inside torch.vmap, torch.func, torch.export
and torch.jit.trace, and code that is compiled while the capture is on (code that was compiled before runs uncompiled). The
forward call gives what it gives without a capture, to the bit, but for what `attnscope.changed` lists.

The scores are what goes into the softmax; the pattern is what comes out, followed through casts, dropout, masks and
gates until it is multiplied by the values. For scaled_dot_product_attention both are computed here, in float32, from
its arguments, with scores of -inf where masked; its dropout happens inside the kernel and is only named, not seen. A finite
value that hides cells as -inf does (torch.finfo.min, -1e9) is written as -inf, and told as `mask_value`.

What the metadata says of a capture
    attnscope.calls            JSON: of each attention its module, call, kind (softmax, sdpa, flex, written-out, linear), shape,
                               dtypes, dim and axis of the softmax (keys, queries, heads, batch, or null), dropout_p, training,
                               is_causal, causal_alignment, has_mask, scale, mask_value, sink_columns (their scores are the
                               array .sinks beside .scores), token_axis (the axis of tokens_shape along which queries run: 1,
                               or 0 where the first dimension is attended over), steps (torch functions
                               between the product and the values, of one that is written out), after (what happened to the
                               pattern; a matrix that was added to it is the array .added), transposed (scores were laid out as [key, query])
    attnscope.softmax_axis     where all calls have one: keys, queries, heads or batch
    attnscope.dropout_p        the largest, where any is above 0
    attnscope.training         true, false or mixed: whether the modules were in training mode
    attnscope.random           JSON: modules that drew random numbers while they ran, as dropout does
    attnscope.draws            JSON: the functions of torch that drew them
    attnscope.is_causal        true, false or mixed: of scaled_dot_product_attention
    attnscope.untrained        why the model cannot have been trained, where its weights say so
    attnscope.discarded        JSON: layers with weights that ran and whose results the calling line drops: module, class, where
    attnscope.absent_masks     arguments of the model that are masks by their names, and that the call left out or gave as None
    attnscope.sinks            1 where a column of learned sinks was cut off after the softmax
    attnscope.tokens_shape     of the token ids that the model was given, e.g. 2,17
    attnscope.attention_mask_name   the argument that the padding was read from
    attnscope.labels, attnscope.decoder_labels   JSON: the text of each token, given a tokenizer
    attnscope.skipped, attnscope.changed   JSON: what was not recorded, and what ran otherwise than without a capture
    attnscope.mask, attnscope.window, attnscope.documents   as given
"""

from .axes import (
    _argument_names, _einsum, _einsum_axes, _moved_axes, _name, _operands, _ordered, _padding_mask,
    _without_override,
)
from .following import _Frame
from .naming import _names
from .porting import record
from .probing import probe
from .recording import capture
from .shared import _address, _blind, _is_dynamo, _is_ids, _own_modes, _tensors
from .words import COMPARISONS, CROSS, FUSED, PRODUCT, REDUCTIONS, SHIFTS, SILENT, SOFTMAX, VIEWS, WEIGHTED

__all__ = ["capture", "probe", "record"]
