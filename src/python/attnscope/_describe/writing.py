"""Writes what was read of a model: attnscope.toml beside the weights in model.safetensors."""

from __future__ import annotations

import json
import os

import torch

from .._capture.shared import _save
from . import added, fitting
from .around import SAID, sines
from .distances import relative
from .experts import Experts
from .experts_written import experts_parts
from .kept import first_values_part
from .latents import latent_parts
from .naming import Stored, heads_apart, in_layers, single
from .places import places_parts
from .rotary import rotary
from .tracing import Unnamed

HEADER = "# Written by attnscope.describe: what each tensor of model.safetensors is for.\n"


class Written:
    """A description in the making: settings, the tensors of each part, copies, and remarks."""

    def __init__(self, reading, leaves, within=""):
        self.reading, self.stored, self.within = reading, Stored(leaves), within  # `within` stands before the names of copies
        self.encoder_settings = self.padding = None
        self.hidden = None  # by layer, which keys each query sees, where no setting says it
        self.settings, self.parts, self.tensors, self.notes = {}, {}, {}, list(reading.notes)
        self.layers, self.n = reading.layers, len(reading.layers)
        self.attending = [idx for idx, layer in enumerate(self.layers) if layer.attention is not None]
        self.feeding = [idx for idx, layer in enumerate(self.layers) if layer.mlp is not None]
        self.at = self.attending  # the layers that are being named
        self._attention()
        for key, own in (("attention_layers", self.attending), ("feed_forward_layers", self.feeding)):
            if 0 < len(own) < self.n:
                self.settings[key] = " ".join(map(str, own))
        self._norms()
        self._residuals()
        self._mlp()
        self._usual_norms()
        self._embedding()
        if reading.has_no_residual:
            self.settings["residual"] = "none"
        if within:
            return
        self._head()
        if reading.encoder is not None:
            self._encoder(Written(reading.encoder, leaves, "encoder."))
        elif ("bias" in self.parts or "relative" in self.parts) and self.settings.get("positions") == "none":
            del self.settings["positions"]  # "none" takes away what is added to scores too

    # Tensors.

    def keep(self, template, n_parts=1):
        for name in in_layers(template, self.at, n_parts):
            self.tensors[name] = self.stored.by_name[name]
        return template

    def copy(self, name, by_layer, why):
        """Copies under a plain name, for what no stored tensor holds as it is."""
        name = self.within + name
        for idx, values in zip(self.at, by_layer):
            self.tensors[name.replace("{layer}", str(idx))] = values.to(torch.float32).contiguous()
        self.notes.append(f"{name}: {why}")
        return name

    def vector(self, key, by_layer):
        """The name of vectors; None where all of them are zero."""
        if all(float(v.abs().max()) == 0 for v in by_layer):
            return None
        found = self.stored.one_name(by_layer, self.at[:len(by_layer)])
        return self.keep(found) if found else self.copy(key, by_layer, "no stored tensor holds these values as they are: a copy")

    def linear(self, key, place, by_layer):
        """The table of a map whose weights are [out, in], or [head, d, in] where heads may lie apart."""
        weights, biases = [w for w, _ in by_layer], [b for _, b in by_layer]
        part = {}
        flat = [w.reshape(-1, w.shape[-1]) for w in weights]
        for axes, values in self._arrangements(weights, flat):
            found = self.stored.one_name(values, self.at[:len(values)])
            axes = self._axes_of(found, axes, values[0]) if found else None
            if axes is not None:
                part = {"weight": self.keep(found), **({"axes": axes} if axes else {})}
                break
        if not part and weights[0].dim() == 3 and key != "o":
            found = heads_apart(self.stored, weights)
            if found:
                part = {"weight": self.keep(found, weights[0].shape[0])}
        if not part:
            part = {"weight": self.copy(place + ".weight", flat, "no stored tensor holds these values as they are: a copy")}
        if any(float(b.abs().max()) > 0 for b in biases):
            apart = heads_apart(self.stored, biases) if "{head}" in part["weight"] and biases[0].dim() == 2 else None
            part["bias"] = self.keep(apart, biases[0].shape[0]) if apart else \
                self.vector(place + ".bias", [b.reshape(-1) for b in biases])
        return part

    def _axes_of(self, template, axes, values):
        """What the axes of a stored tensor count, "" for the usual ones; None where a description cannot say them."""
        shape = [n for n in self.stored.by_name[in_layers(template, self.at)[0]].shape if n > 1]
        if shape == [n for n in values.shape if n > 1]:
            return axes or ""
        n_heads = [self.settings["n_heads"], self.settings["n_kv_heads"]]
        if len(shape) == 3 and axes is None and shape[0] in n_heads and shape[0] * shape[1] == values.shape[0]:
            return "head out in"
        if len(shape) == 3 and axes == "in out" and shape[1] in n_heads and shape[1] * shape[2] == values.shape[1]:
            return "in head out"
        return None

    @staticmethod
    def _arrangements(weights, flat):
        yield None, flat
        yield "in out", [w.T for w in flat]
        if weights[0].dim() == 3:
            yield "head in out", [w.permute(0, 2, 1) for w in weights]
            yield "in head out", [w.permute(2, 0, 1) for w in weights]

    # Attention.

    def _attention(self):
        own = [self.layers[idx].attention for idx in self.attending]
        first = own[0]
        n_heads, d_head, _ = first.q.weight.shape
        maps = {name: [getattr(a, name) for a in own] for name in "qkv"}
        self._settings_of_attention(n_heads, d_head, maps)
        crosses = [layer.cross for layer in self.layers if layer.cross is not None]
        self._settings_of_crosses(crosses)
        sharing = _sharing([m for a in own + crosses for m in (a.k, a.v)])
        self.settings["n_kv_heads"] = n_heads // sharing
        self.parts.update(self._maps(own, "blocks.{layer}.", sharing))
        if any(a.is_mixed for a in own + crosses):
            self.notes.append("heads read each other's scores or patterns: each holds the queries, keys and values of all heads side by "
                              "side, which gives the same numbers; patterns are those of the softmax")
        self._norms_of_heads(own, crosses)
        first_values_part(self, own, crosses)
        places_parts(self, own)
        if any(a.gate is not None for a in own):
            self.parts["out_gate"] = self._gate(own)
        if any(cross.gate is not None for cross in crosses):
            raise Unnamed("a gate multiplies what the heads read of the encoder", [crosses[0].node])
        if crosses:
            self.parts["cross"] = self._maps(crosses, "blocks.{layer}.cross.", sharing)

    def _maps(self, attentions, place, sharing):
        """The parts of attentions, one of each layer, whose keys and values serve `sharing` heads."""
        first, parts = attentions[0], {}
        n_heads, d_head, _ = first.q.weight.shape
        maps = {name: [getattr(a, name) for a in attentions] for name in "qkv"}
        d_value = maps["v"][0].weight.shape[1]
        latent, n_shared = latent_parts(self, attentions, place)
        if latent:
            parts["latent"] = latent
        if any(m.weight.shape[1] != d_head - n_shared for m in maps["k"]) or any(m.weight.shape[1] != d_value for m in maps["v"]) \
                or d_value != self.settings.get("d_value", d_head):
            raise Unnamed("attentions differ in the width of their keys or values", [first.node])
        for m in maps["v"]:
            if m.turns is not None or m.norm is not None:
                raise Unnamed("values are normed or turned", [m.node])
            if m.factor != 1:
                m.weight, m.bias = m.weight * m.factor, m.bias * m.factor
        of = {name: [(single(m.weight[::sharing if name != "q" else 1]), single(m.bias[::sharing if name != "q" else 1]))
                     for m in own] for name, own in maps.items()}
        n_kv = n_heads // sharing
        for name, kinds in (("kv", "kv"),) if latent else (("qkv", "qkv"), ("kv", "kv")):
            fused = self._fused(of, kinds, place + name, n_heads, n_kv)
            if fused:
                parts[name] = fused
                break
        for name in "qkv":
            if not any(name in fused for fused in parts):
                parts[name] = self.linear(name, place + name, of[name])
        o = [(single(a.o), single(a.o_bias)) for a in attentions]
        if not all(_is_identity(w.reshape(w.shape[0], -1)) and float(b.abs().max()) == 0 for w, b in o):
            parts["o"] = self._out(o, place + "o")
        for name in "qk":
            norms = [m.norm for m in maps[name]]
            if any(norm is not None for norm in norms):
                if not all(norm is not None for norm in norms):
                    raise Unnamed("some layers norm their queries or keys and others do not", [first.node])
                if name == "k" and norms[0].is_per_head and sharing > 1:
                    for norm in norms:
                        of_groups = norm.gain.reshape(n_kv, sharing, -1)
                        if bool((of_groups != of_groups[:, :1]).any()):
                            raise Unnamed("heads that share their keys norm them with gains of their own", [first.node])
                        norm.gain = of_groups[:, 0].reshape(-1)
                parts[f"{name}_norm"] = self.norm(f"{place}{name}_norm", norms)
        return parts

    def _norms_of_heads(self, own, crosses):
        """Writes the norm of what the heads give."""
        if any(cross.z_norm is not None for cross in crosses):
            raise Unnamed("what the heads read of the encoder is normed before its map", [crosses[0].node])
        norms = [a.z_norm for a in own]
        if all(norm is None for norm in norms):
            return
        if len({None if norm is None else norm.width for norm in norms}) > 1:
            raise Unnamed("layers differ in the norm of what their heads give", [own[0].node])
        self.parts["z_norm"] = self.norm("blocks.{layer}.z_norm", norms)
        if norms[0].width < own[0].o.shape[1] * own[0].o.shape[2]:
            self.parts["z_norm"]["per"] = "head"

    def _gate(self, attentions):
        shapes = {a.gate.weight.shape if a.gate is not None else None for a in attentions}
        if len(shapes) > 1:
            raise Unnamed("layers differ in what multiplies the outputs of their heads", [attentions[0].node])
        return self.linear("out_gate", "blocks.{layer}.out_gate", [(single(a.gate.weight), single(a.gate.bias)) for a in attentions])

    def _settings_of_crosses(self, crosses):
        """Checks that attention to the encoder differs from that of the decoder in its maps alone."""
        for idx, cross in zip(self.attending, crosses):
            own = self.layers[idx].attention
            n_heads, d_head = own.q.weight.shape[:2]
            if cross.q.weight.shape[:2] != (n_heads, d_head):
                found = f"{cross.q.weight.shape[0]} heads by {cross.q.weight.shape[1]}"
                raise Unnamed(f"attention to the encoder has {found}, that of the decoder {n_heads} by {d_head}", [cross.node])
            if cross.q.turns is not None or cross.k.turns is not None:
                raise Unnamed("queries or keys are turned by their position in the attention to the encoder", [cross.node])
            if not bool(cross.rows.visible.all()):
                raise Unnamed("a mask hides tokens of the encoder from the decoder, such as that of padding: give an example without "
                              "padding", [cross.node])
            if cross.rows.top_keys is not None:
                raise Unnamed("queries see some keys of the encoder alone, those of the largest scores", [cross.node])
            if cross.rows.sinks is not None:
                raise Unnamed("heads have sinks in the attention to the encoder", [cross.node])
            if float(cross.rows.bias.abs().max()) >= 1e-6:
                raise Unnamed("something is added to the scores of the attention to the encoder", [cross.node])
            for what, a, b in (("axis of its softmax", cross.rows.axis, own.rows.axis),
                               ("cap of its scores", cross.rows.softcap, own.rows.softcap)):
                if a != b:
                    raise Unnamed(f"attention to the encoder has another {what} than the decoder's own", [cross.node])
            scale = cross.rows.scale and cross.rows.scale * cross.q.factor * cross.k.factor
            if scale is not None and abs(scale / self.scale - 1) > 1e-6:
                if cross.q.norm is not None:
                    raise Unnamed("attention to the encoder has another scale than the decoder's own, after a norm of queries",
                                  [cross.node])
                cross.q.weight, cross.q.bias = (x * (scale / self.scale) for x in (cross.q.weight, cross.q.bias))
                self.notes.append("attention to the encoder has another scale: its maps of queries hold the difference")

    def _out(self, o, place):
        """[d_model, head, d]"""
        flat = [(w.reshape(w.shape[0], -1), b) for w, b in o]
        for axes, order in (("head in out", (1, 2, 0)), ("out head in", (0, 1, 2))):
            if o[0][0].shape[1] == 1:
                break
            values = [w.permute(*order) for w, _ in o]
            found = self.stored.one_name(values, self.at[:len(values)])
            if found and self.stored.by_name[in_layers(found, self.at)[0]].dim() == 3:
                part = {"weight": self.keep(found), "axes": axes}
                bias = self.vector(place + ".bias", [b for _, b in o])
                return {**part, **({"bias": bias} if bias else {})}
        return self.linear("o", place, flat)

    def _fused(self, of, kinds, place, n_heads, n_kv):
        """The part of one stored tensor that holds the maps of `kinds`; None where there is none."""
        d_of = {name: own[0][0].shape[1] for name, own in of.items()}
        flat = {name: [(w.reshape(-1, w.shape[-1]), b.reshape(-1)) for w, b in own] for name, own in of.items()}
        group = n_heads // n_kv

        def by_head(i, at):
            pieces = []
            for head in range(n_kv):
                for name in kinds:
                    width = (group if name == "q" else 1) * d_of[name]
                    rows = slice(head * width, (head + 1) * width)
                    pieces.append(flat[name][i][at][rows])
            return torch.cat(pieces)

        def whole(i, at):
            return torch.cat([flat[name][i][at] for name in kinds])

        for per, joined in (("all", whole), ("head", by_head)):
            weights = [joined(i, 0) for i in range(len(of["q"]))]
            for axes, values in ((None, weights), ("in out", [w.T for w in weights])):
                found = self.stored.one_name(values, self.at[:len(values)])
                if not found:
                    continue
                shape = self.stored.by_name[in_layers(found, self.at)[0]].shape
                if len(shape) != 2:
                    continue
                part = {"weight": self.keep(found), "order": " ".join(kinds), "per": per}
                biases = [joined(i, 1) for i in range(len(of["q"]))]
                bias = self.vector(place + ".bias", biases)
                return {**part, **({"axes": axes} if axes else {}), **({"bias": bias} if bias else {})}
        return None

    def _settings_of_attention(self, n_heads, d_head, maps):
        layers = [self.layers[idx].attention for idx in self.attending]
        self.settings.update(family="described", n_layers=self.n, n_heads=n_heads, n_kv_heads=n_heads, d_head=d_head)
        d_value = layers[0].v.weight.shape[1]
        if d_value != d_head:
            self.settings["d_value"] = d_value
        if any(a.rows.scale is None for a in layers):
            raise Unnamed("every query of the example sees one key alone, which shows no scores: give a longer example",
                          [layers[0].node])
        scales = [a.rows.scale * a.q.factor * a.k.factor for a in layers]
        if max(scales) - min(scales) > 1e-6 * abs(scales[0]):
            for attention, scale in zip(layers, scales):
                if attention.q.norm is not None:
                    raise Unnamed("layers differ in their scale, after a norm of queries", [attention.node])
                attention.q.weight, attention.q.bias = (x * (scale / scales[0]) for x in (attention.q.weight, attention.q.bias))
            self.notes.append("layers differ in the scale of their scores: the maps of queries hold the difference")
        scale = self.scale = scales[0]
        word = next((word for word, value in (("inv_sqrt_d", d_head ** -0.5), ("inv_d", 1 / d_head), ("none", 1.0))
                     if abs(scale / value - 1) < 1e-6), None)
        self.settings["scale"] = word or float(f"{scale:.9g}")
        axes = {a.rows.axis for a in layers}
        if len(axes) > 1:
            raise Unnamed("layers differ in the axis of their softmax", [layers[0].node])
        if axes != {"keys"}:
            self.settings["softmax_axis"] = axes.pop()
        caps = {a.rows.softcap for a in layers}
        if len(caps) > 1:
            raise Unnamed("layers differ in the cap of their scores", [layers[0].node])
        if caps != {None}:
            self.settings["softcap"] = caps.pop()
        if any(a.rows.sinks is not None for a in layers):
            self._sinks(layers)
        kept = {a.rows.top_keys for a in layers}
        if len(kept) > 1:
            raise Unnamed("layers differ in how many keys a query sees", [layers[0].node])
        if kept != {None}:
            self.settings["top_keys"] = kept.pop()
        self._mask(layers)
        self._positions_of_heads(layers, maps)

    def _sinks(self, layers):
        if any(a.rows.sinks is None for a in layers):
            raise Unnamed("some layers have sinks and others do not", [layers[0].node])
        sinks = [single(a.rows.sinks) for a in layers]
        sinks = [torch.where(s.abs() < 1e-12, torch.zeros_like(s), s) for s in sinks]
        name = self.vector("blocks.{layer}.sinks", sinks)
        self.parts["sinks"] = name or self.copy("blocks.{layer}.sinks", sinks, "a score of 0 beside the keys of each row")

    def _mask(self, layers):
        n = self.reading.n
        back = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        found = []
        for a in layers:
            masks = a.rows.visible
            if bool((masks != masks[:1]).any()):
                raise Unnamed("heads of one layer have different masks", [a.node])
            mask = masks[0]
            if bool(mask.all()):
                found.append((False, None))
            elif torch.equal(mask, back >= 0):
                found.append((True, None))
            else:
                causal = not bool(mask[back < 0].any())
                reach = int(back[mask].max()) if bool(mask.any()) else 0
                expected = (back >= 0) & (back <= reach) if causal else back.abs() <= reach
                if not torch.equal(mask, expected):
                    self.hidden = [a.rows.visible for a in layers]
                    self.settings["mask"] = "bidirectional" if any(bool(m[:, back < 0].any()) for m in self.hidden) else "causal"
                    self.notes.append(f"a mask that is neither causal, nor a window, nor open: it is held for the first {n} positions")
                    return
                found.append((causal, reach + 1 if causal else reach))
        if len({causal for causal, _ in found if n > 1}) > 1:
            raise Unnamed("some layers are causal and others are not", [layers[0].node])
        self.settings["mask"] = "causal" if found[0][0] else "bidirectional"
        widths = [width for _, width in found]
        if any(widths):
            narrow = {width for width in widths if width}
            if len(narrow) > 1:
                raise Unnamed(f"layers have windows of {sorted(narrow)}", [layers[0].node])
            which = [idx for idx, width in zip(self.attending, widths) if width]
            self.settings["window"] = narrow.pop()
            if len(which) < len(widths):
                rule = next(((step, which[0]) for step in range(which[0] + 1, self.n + 1)
                             if which == [idx for idx in self.attending if idx % step == which[0]]), None)
                if rule is None:
                    raise Unnamed(f"layers {which} have a window and the others none, which is no rule", [layers[0].node])
                self.settings["window_layers"] = f"{rule[0]}*i+{rule[1]}"

    def _positions_of_heads(self, layers, maps):
        self._first_turned(maps)
        of_head = self.settings["d_head"]
        n_own = maps["k"][0].weight.shape[1] if maps["k"][0].own is not None and maps["k"][0].own.shared is not None else 0
        turns = [m.turns for name in "qk" for m in maps[name]]
        if n_own and any(t is not None for t in turns):
            still = torch.eye(of_head, dtype=torch.float64)[:n_own]
            for t, m in zip(turns, [m for name in "qk" for m in maps[name]]):
                if t is None or not fitting.close(t[:, :n_own], still.expand_as(t[:, :n_own]), 1e-9):
                    raise Unnamed("queries or keys are changed by their position in dimensions of the latent", [m.node])
            turns = [t[:, n_own:, n_own:] for t in turns]
        elif any(t is not None and m.own is not None for t, m in zip(turns, [m for name in "qk" for m in maps[name]])):
            raise Unnamed("queries or keys are changed by their position in dimensions of the latent", [layers[0].node])
        if any(t is not None for t in turns):
            keys, tables = set(), []
            for t, m in zip(turns, [m for name in "qk" for m in maps[name]]):
                found, why = rotary(t) if t is not None else (None, "some are turned and others are not")
                if found is None:
                    raise Unnamed(f"queries or keys are changed by their position: {why}", [m.node])
                keys.add(found.key())
                tables += [found.angles] * (found.angles is not None)
            if len(keys) > 1 or any(not fitting.close(table, tables[0], 1e-6) for table in tables) or len(tables) % len(turns):
                raise Unnamed("queries, keys or layers differ in their rotary embedding", [layers[0].node])
            theta, interleaved, d_rotary, direction, divisors, precision = keys.pop()
            if divisors:
                self.settings["rope_divisors"] = " ".join(f"{d:g}" if float(f"{d:g}") == d else repr(d) for d in divisors)
            self.settings.update(positions="rotary", rope_theta=theta, rope_interleaved=interleaved)
            if d_rotary != self.settings["d_head"]:
                self.settings["d_rotary"] = d_rotary
            if tables:
                self.parts["angles"] = self._angles(tables[0])
            if direction == "backward":
                self.settings["rope_direction"] = "backward"
            if precision:
                self.settings["rope_precision"] = precision
            # A turn that is not rounded changes no length: of a norm by lengths alone, gains that are equal do not tell which comes first.
            def tells_order(norm):
                has_gains = norm.gain is not None and not fitting.close(norm.gain, norm.gain[:1].expand_as(norm.gain), 1e-9)
                return bool(precision) or norm.kind != "rms" or norm.bias is not None or has_gains

            normed = [m for name in "qk" for m in maps[name] if m.norm is not None]
            order = {m.is_turned_first for m in normed if tells_order(m.norm)}
            if len(order) > 1:
                raise Unnamed("queries, keys or layers differ in whether they are turned before their norm", [layers[0].node])
            if True in order:
                self.settings["norms_after_rope"] = True
        biases = [a.rows.bias for a in layers]
        if any(a.distances is not None for a in layers):
            if self.hidden is not None or any(float(b.abs().max()) >= 1e-6 for b in biases):
                raise Unnamed("a product of queries and vectors of distances is added to the scores, and something else is too",
                              [layers[0].node])
            self.parts["relative"] = relative(self, layers)
            return
        if self.hidden is not None:
            alike = all(torch.equal(m, m[:1].expand_as(m)) and float((b - b[:1]).abs().max()) < 1e-9 for m, b in zip(self.hidden, biases))
            self.parts["bias"] = added.of_mask([(m[:1], b[:1]) if alike else (m, b) for m, b in zip(self.hidden, biases)], self)
            return
        if all(float(b.abs().max()) < 1e-6 for b in biases):
            return
        usual, found = _slopes(self.settings["n_heads"]), [added.slopes(added.Added(a.rows, a.sides)) for a in layers]
        if self.settings.get("positions") != "rotary" and all(s is not None and fitting.close(s, usual, 1e-5) for s in found):
            self.settings["positions"] = "alibi"
        else:
            self.parts["bias"] = added.part(self, layers)

    def _first_turned(self, maps):
        """Puts the dimensions of a head that turn before those that do not: scores are the same in any order of both."""
        both = [m for name in "qk" for m in maps[name]]
        if any(m.own is not None for m in both) or any(m.turns is None or m.norm is not None and m.norm.gain is not None for m in both):
            return
        d = both[0].turns.shape[1]
        moves = sum((m.turns - torch.eye(d, dtype=torch.float64)).abs().amax((0, 2)) + (
            m.turns - torch.eye(d, dtype=torch.float64)).abs().amax((0, 1)) for m in both) > 1e-12
        first = int(torch.nonzero(moves).min())
        if not first:
            return
        order = torch.cat([torch.arange(first, d), torch.arange(first)])
        for m in both:
            m.weight, m.bias, m.turns = m.weight[:, order], m.bias[:, order], m.turns[:, order][:, :, order]
        self.notes.append(f"positions turn dimensions {first} to {d - 1} of each head: the maps of queries and keys hold these first")

    def _angles(self, table):
        name = self.stored.one_name([table])
        why = f"the angles by which the heads turn at the first {len(table)} positions: a copy"
        return self.keep(name) if name else self.copy("angles", [table], why)

    # Norms.

    def norm(self, place, norms):
        """The table of a norm; `norms` has one of each layer."""
        part = {}
        gains = [norm.gain if norm.gain is not None else None for norm in norms]
        if any(g is not None for g in gains):
            width = next(g.numel() for g in gains if g is not None)
            gains = [g if g is not None else torch.ones(width) for g in gains]
            found = self.stored.one_name(gains, self.at[:len(gains)])
            part["weight"] = self.keep(found) if found else self._as_vector(place + ".weight", gains)
        biases = [norm.bias for norm in norms]
        if any(b is not None for b in biases):
            width = next(b.numel() for b in biases if b is not None)
            bias = self.vector(place + ".bias", [b if b is not None else torch.zeros(width) for b in biases])
            if bias:
                part["bias"] = bias
        kinds = {norm.kind for norm in norms}
        if len(kinds) > 1 or len({norm.is_per_head for norm in norms}) > 1:
            raise Unnamed(f"norms at {place} are of two kinds")
        if norms[0].is_per_head:
            part["per"] = "head"
        if kinds == {"tanh"}:
            alphas = [torch.tensor([norm.alpha]) for norm in norms]
            found = self.stored.one_name(alphas, self.at[:len(alphas)])
            name = self.keep(found) if found else self.copy(place + ".alpha", alphas, "no stored tensor holds this value as it is: a copy")
            part.update(kind="tanh", alpha=name)
            return part
        self._kinds = getattr(self, "_kinds", [])
        self._kinds.append((part, kinds.pop(), max(norms, key=lambda x: x.eps).eps, norms))
        self.notes += [norm.note for norm in norms[:1] if norm.note]
        return part

    def _as_vector(self, name, values):
        plain = [v - 1 for v in values]
        found = self.stored.one_name(plain, self.at[:len(plain)])
        return self.copy(name, values, f"1 plus {found}" if found else "no stored tensor holds these values as they are: a copy")

    def _norms(self):
        for place in ("attn_pre", "attn_out", "attn_post", "mlp_pre", "mlp_out", "mlp_post"):
            self.at = self.feeding if place.startswith("mlp") else self.attending
            if self.at and place in self.layers[self.at[0]].norms:
                self.parts[place] = self.norm(f"blocks.{{layer}}.{place}", [self.layers[idx].norms[place] for idx in self.at])
        self.at = self.attending
        for place in ("pre", "out", "post"):
            if f"cross_{place}" in self.layers[self.attending[0]].norms:
                norms = [layer.norms[f"cross_{place}"] for layer in self.layers]
                self.parts["cross"][place] = self.norm(f"blocks.{{layer}}.cross.{place}", norms)
        if self.reading.final_norm is not None:
            self.parts["final_norm"] = self.norm("final_norm", [self.reading.final_norm])
        if self.reading.embedding.norm is not None:
            self.parts["embed_norm"] = self.norm("embed_norm", [self.reading.embedding.norm])
        if self.reading.head is not None and self.reading.head.norm is not None:
            self.parts["head_norm"] = self.norm("head_norm", [self.reading.head.norm])
        if self.reading.head is not None and self.reading.head.pooled_norm is not None:
            self.parts["pooled_norm"] = self.norm("pooled_norm", [self.reading.head.pooled_norm])

    def _residuals(self):
        """Writes what multiplies the residual before a branch is added: one number where all of its values have the same."""
        for branch, layers in (("attn", self.attending), ("mlp", self.feeding)):
            own = [self.layers[idx].residuals.get(branch) for idx in layers]
            if all(times is None for times in own):
                continue
            width = next(times.numel() for times in own if times is not None)
            own = [torch.ones(width, dtype=torch.float64) if times is None else times for times in own]
            if all(fitting.close(times, times[:1].expand_as(times), 1e-9) for times in own):
                own = [times[:1] for times in own]
            self.at = layers
            self.parts[f"{branch}_residual"] = self.vector(f"blocks.{{layer}}.{branch}_residual", [single(times) for times in own])
        self.at = self.attending

    def _usual_norms(self):
        """The kind and epsilon that most norms have become settings; the others keep their own."""
        all_norms = getattr(self, "_kinds", [])
        if not all_norms:
            return
        kinds = [kind for _, kind, *_ in all_norms]
        usual = max(sorted(set(kinds)), key=kinds.count)
        self.settings["norm"] = usual
        for part, kind, *_ in all_norms:
            if kind != usual:
                part["kind"] = kind
        eps = [float(f"{norm.eps:.6g}") for *_, norms in all_norms for norm in norms]
        usual = max(sorted(set(eps)), key=eps.count)
        self.settings["norm_eps"] = usual
        for part, _, _, norms in all_norms:
            own = {float(f"{norm.eps:.6g}") for norm in norms}
            if own != {usual}:
                part["eps"] = max(own)

    # The rest.

    def _mlp(self):
        self.settings["block"] = "parallel" if self.reading.is_parallel else "serial"
        if not self.feeding:
            return
        self.settings["activation"] = self.layers[self.feeding[0]].mlp.activation
        every = self.feeding
        with_experts = [idx for idx in every if isinstance(self.layers[idx].mlp, Experts)]
        self.at = [idx for idx in every if idx not in with_experts]
        if self.at:
            self._dense([self.layers[idx].mlp for idx in self.at])
        self.at = with_experts
        if self.at:
            self.parts["experts"] = experts_parts(self, [self.layers[idx].mlp for idx in self.at])
        self.at = every

    def _dense(self, layers):
        if layers[0].gate is not None and not self._fused_gate(layers):
            self.parts["gate"] = self.linear("gate", "blocks.{layer}.gate", [m.gate for m in layers])
        if "gate_up" not in self.parts:
            self.parts["up"] = self.linear("up", "blocks.{layer}.up", [m.up for m in layers])
        if layers[0].hidden_norm is not None:
            self.parts["hidden_norm"] = self.norm("blocks.{layer}.hidden_norm", [m.hidden_norm for m in layers])
        if layers[0].after is not None:
            if len(self.at) < len(self.feeding):
                raise Unnamed("an activation follows the second map of some layers, and others have experts")
            self.settings["out_activation"] = layers[0].after
        if any(m.down is not None for m in layers):
            self.parts["down"] = self.linear("down", "blocks.{layer}.down", [m.down for m in layers])

    def _fused_gate(self, layers):
        for order in (("gate", "up"), ("up", "gate")):
            for per in ("all", "unit"):
                def joined(m, at, order=order, per=per):
                    halves = [getattr(m, name)[at] for name in order]
                    return torch.cat(halves) if per == "all" else torch.stack(halves, 1).flatten(0, 1)

                weights = [joined(m, 0) for m in layers]
                for axes, values in ((None, weights), ("in out", [w.T for w in weights])):
                    found = self.stored.one_name(values, self.at[:len(values)])
                    if found:
                        bias = self.vector("blocks.{layer}.gate_up.bias", [joined(m, 1) for m in layers])
                        self.parts["gate_up"] = {"weight": self.keep(found), "order": " ".join(order), "per": per,
                                                 **({"axes": axes} if axes else {}), **({"bias": bias} if bias else {})}
                        return True
        return False

    def _embedding(self):
        e = self.reading.embedding
        if e.values is not None:
            self._values(e)
            return
        found = self.stored.one_name([e.tokens])
        if found and self.stored.by_name[found].shape[-1] == e.tokens.shape[1]:
            self.parts["tokens"] = self.keep(found)
        else:
            across = self.stored.one_name([e.tokens.T])
            self.parts["tokens"] = {"weight": self.keep(across), "axes": "column row"} if across else \
                self.copy("tokens", [e.tokens], "no stored tensor holds these rows as they are: a copy")
        d_model = e.tokens.shape[1]
        if e.scale != 1:
            self.settings["embed_scale"] = "sqrt_d" if abs(e.scale / d_model ** 0.5 - 1) < 1e-9 else float(f"{e.scale:.9g}")
        if e.positions is None:
            self.settings.setdefault("positions", "none")
            return
        if not self._positions(e.positions):
            self._copied_positions(e.positions)

    def _values(self, e):
        """A map of rows of numbers. What is added at each position is its bias and the positions: a stored bias tells them apart."""
        d_model = e.values.shape[0]
        biases = [torch.zeros(d_model, dtype=torch.float64),
                  *(value.reshape(-1).double() for value in self.stored.by_name.values() if value.numel() == d_model)]
        if bool((e.positions - e.positions[:1]).abs().max() <= 1e-9 * e.positions.abs().max()):
            bias = e.positions[0]
            self.settings.setdefault("positions", "none")
        else:
            bias = next((b for b in biases if self._positions(e.positions - b)), None)
            if bias is None:
                bias = biases[0]
                self._copied_positions(e.positions)
        self.parts["values"] = self.linear("values", "values", [(single(e.values), single(bias))])

    def _copied_positions(self, values):
        if "positions" in self.settings:
            self.notes.append("positions are added to the tokens as well as used by the heads")
        self.parts["positions"] = self.copy("positions", [values.to(torch.float32)],
                                            f"what the model adds at its first {len(values)} positions: a copy")

    def _positions(self, values):
        """Whether what is added at each position is computed or stored; it is then a part or a setting."""
        kind = sines(values)
        if kind and "positions" not in self.settings:
            self.settings["positions"] = kind
            return True
        (n, d_model), rows = values.shape, values.to(torch.float32)
        for name, value in self.stored.by_name.items():
            if value.numel() < rows.numel() or value.numel() % d_model:
                continue
            for turned in (False, True):
                table = value.squeeze()
                if table.dim() != 2:
                    continue
                table = table.T if turned else table
                if table.shape[1] != d_model:
                    continue
                start = next((s for s in range(0, min(8, table.shape[0] - n + 1))
                              if float((table[s:s + n] - rows).abs().max()) <= 1e-6 * float(rows.abs().max())), None)
                if start is None:
                    continue
                if "positions" in self.settings:
                    self.notes.append("positions are added to the tokens as well as used by the heads")
                if start == 0:
                    self.parts["positions"] = {"weight": self.keep(name), "axes": "column row"} if turned else self.keep(name)
                else:
                    how = [f"from row {start} on"] * bool(start) + ["transposed"] * turned
                    self.parts["positions"] = self.copy("positions", [table[start:]], f"{name}, {', '.join(how)}")
                return True
        return False

    def _encoder(self, encoder):
        """Joins what was made of the encoder: its parts, and the settings in which it differs from the decoder."""
        if encoder.reading.d_model != self.reading.d_model:
            raise Unnamed(f"the encoder's residual has {encoder.reading.d_model} values and the decoder's {self.reading.d_model}")
        own, of_decoder = encoder.settings, self.settings
        if not (_rotates(own) and _rotates(of_decoder)):
            of_decoder.update({key: own[key] for key in _ROTARY if key in own})
            own.update({key: of_decoder[key] for key in _ROTARY if key in of_decoder})
        for key in (*_SHARED, *_ROTARY):
            if own.get(key) != of_decoder.get(key):
                raise Unnamed(f"encoder and decoder differ in {key}: {own.get(key)} and {of_decoder.get(key)}")
        if _rotates(own) and "rope_divisors" in of_decoder and "rope_divisors" not in own:
            raise Unnamed("encoder and decoder differ in the frequencies of their rotary embedding")
        usual = {"embed_scale": 1.0, "residual": "added", "d_rotary": own["d_head"]}
        own = {**{key: value for key, value in usual.items() if key in of_decoder}, **own}
        before = {**of_decoder, "mask": "bidirectional"}
        differs = {key: value for key, value in own.items() if key not in (*_SHARED, *_ROTARY) and before.get(key) != value}
        if "positions" in encoder.parts and "positions" in own:
            differs["positions"] = own["positions"]  # a table alone would say that there is nothing else
        self.parts["encoder"] = {**encoder.parts, "set": differs}
        self.tensors.update(encoder.tensors)
        self.notes += encoder.notes
        self.encoder_settings = encoder.settings
        self.settings["start_token"] = 0 if self.reading.text is None else int(self.reading.text.value.reshape(-1)[0])
        self.notes.append(f"start_token: the first target token of the example, {self.settings['start_token']}")

    def _head(self):
        head = self.reading.head
        if head.unembed is None:
            self.settings["head"] = "none"
            return
        weight, bias = head.unembed
        tokens = self.reading.embedding.tokens
        if tokens is None or not (weight.shape == tokens.shape and torch.equal(weight.float(), tokens.float())):
            self.parts["unembed"] = self.linear("unembed", "unembed", [(weight, bias)])
        elif float(bias.abs().max()) > 0:
            self.parts["logit_bias"] = self.vector("logit_bias", [bias])
        if head.dense is not None:
            self.parts["head_dense"] = self.linear("head_dense", "head_dense", [head.dense])
            if head.activation != self.settings.setdefault("activation", head.activation):
                self.settings["head_activation"] = head.activation
        tied = "unembed" not in self.parts
        is_of_tokens = tokens is not None and weight.shape[0] == len(tokens)
        if not tied and (head.pooled or head.picked is not None and len(head.picked) == 1 and not is_of_tokens):
            at = head.picked[0]
            word = head.pooled or ("last" if at == self.reading.n - 1 else "first" if at == 0 else None)
            if word is not None:
                self.settings["pooled"] = word
        if head.order is not None:
            self._ordered(head.order)
        if head.softcap is not None:
            self.settings["logit_softcap"] = head.softcap
        if head.then is not None:
            self.notes.append(f"the model gives {SAID[head.then]}; attnscope gives the logits")

    def _ordered(self, order):
        """Says in which order the rows of the example stand, where the head reads the mean of some that are not the last."""
        places = "rotary" in (self.settings.get("positions"),) or "bias" in self.parts or self.settings.get("window")
        if places or self.settings["mask"] == "causal" or self.reading.is_values or self.reading.encoder is not None:
            raise Unnamed("the head reads the mean of some positions that are not the last ones, and positions are told in attention")
        self.notes.append("the head reads the mean of some rows: give the tokens in the order " + " ".join(map(str, order)))

    def write(self, path):
        os.makedirs(path, exist_ok=True)
        lines = [HEADER]
        lines += [f"# {note}\n" for note in dict.fromkeys(self.notes)]
        lines.append("\n[set]\n")
        lines += [f"{key} = {_toml(value)}\n" for key, value in self.settings.items()]
        sections = {"tensors": self.parts, "tensors.cross": self.parts.get("cross"),
                    "tensors.latent": self.parts.get("latent"), "tensors.experts": self.parts.get("experts"),
                    "tensors.encoder": self.parts.get("encoder"), "tensors.encoder.set": self.parts.get("encoder", {}).get("set")}
        for name, parts in sections.items():
            lines += [f"\n[{name}]\n", *_lines(parts)] if parts else []
        save(path, self.tensors)
        to = os.path.join(path, "attnscope.toml")
        with open(to + ".part", "w", encoding="utf-8") as file:
            file.write("".join(lines))
        os.replace(to + ".part", to)


# Settings that hold for encoder and decoder alike.
_SHARED = ("scale", "softcap", "softmax_axis", "window", "window_layers")
_ROTARY = ("rope_theta", "rope_interleaved", "rope_direction")


def _rotates(settings):
    return settings.get("positions") == "rotary"


def _lines(parts):
    """The lines of a section; the sections inside it come after it."""
    lines = []
    for key, part in parts.items():
        if key in ("cross", "encoder", "set", "experts", "latent"):
            continue
        if isinstance(part, dict):
            part = part["weight"] if list(part) == ["weight"] else part
        if isinstance(part, dict):
            lines.append(f"{key} = {{ {', '.join(f'{k} = {_toml(v)}' for k, v in part.items())} }}\n" if part
                         else f"{key} = {{}}\n")
        else:
            lines.append(f"{key} = {_toml(part)}\n")
    return lines


def save(path, tensors):
    """Writes the weights of a description, in single precision."""
    single = {name: value.to("cpu", torch.float32) for name, value in tensors.items()}
    _save(os.path.join(path, "model.safetensors"), single, {"format": "pt"})


def _toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" in text or "inf" in text else text + ".0"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _is_identity(weight):
    return weight.shape[0] == weight.shape[1] and torch.equal(weight.float(), torch.eye(weight.shape[0]))


def _sharing(maps):
    """How many heads that follow each other have the same keys and values."""
    n_heads = maps[0].weight.shape[0]
    for size in range(n_heads, 0, -1):
        if n_heads % size:
            continue
        if all(torch.equal(single(x).reshape(n_heads // size, size, -1),
                           single(x).reshape(n_heads // size, size, -1)[:, :1].expand(-1, size, -1))
               for m in maps for x in (m.weight, m.bias)):
            return size
    return 1


def _slopes(n_heads):
    p = 1 << (n_heads.bit_length() - 1)
    first = [2.0 ** (-8.0 * i / p) for i in range(1, p + 1)]
    rest = [2.0 ** (-8.0 * (2 * i + 1) / (2 * p)) for i in range(n_heads - p)]
    return torch.tensor(first + rest, dtype=torch.float64)
