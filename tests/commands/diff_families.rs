//! The same changes made to checkpoints of many families: where `diff` says that they part, which layers differ given A's input, and why.

use serde_json::json;
use testing::effort::some_of;
use testing::pairs::{Found, Matrix, Pair, alternating, swapped};

/// How the outputs of a query projection stand in its tensor.
#[derive(Clone, Copy, PartialEq)]
enum Laid {
    /// Queries alone, or before keys and values.
    Rows,
    /// As `Rows`, stored as [inputs, outputs].
    Columns,
    /// Queries, keys and values of each head together.
    PerHead,
}

/// A family, and where its second layer keeps what is changed.
struct Family {
    name: &'static str,
    /// The layer as places name it.
    place: &'static str,
    q: &'static str,
    o: &'static str,
    laid: Laid,
    n_heads: usize,
    d_head: usize,
    /// Gate and up-projection: two tensors, or one that holds both.
    gate_up: &'static [&'static str],
    normalises_q: bool,
    /// The hook at which another epsilon shows first.
    eps: (&'static str, &'static str),
    has_theta: bool,
}

const PLAIN: Family = Family {
    name: "",
    place: "L1",
    q: "model.layers.1.self_attn.q_proj.weight",
    o: "model.layers.1.self_attn.o_proj.weight",
    laid: Laid::Rows,
    n_heads: 4,
    d_head: 8,
    gate_up: &[
        "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
    ],
    normalises_q: false,
    eps: ("rms_norm_eps", "q L0"),
    has_theta: true,
};

const FAMILIES: [Family; 12] = [
    Family {
        name: "llama",
        d_head: 16,
        ..PLAIN
    },
    Family {
        name: "qwen3_b",
        d_head: 20,
        normalises_q: true,
        ..PLAIN
    },
    Family {
        name: "gemma2_b",
        d_head: 12,
        ..PLAIN
    },
    Family {
        name: "olmo2_b",
        normalises_q: true,
        ..PLAIN
    },
    Family {
        name: "mixtral_b",
        gate_up: &[
            "model.layers.1.block_sparse_moe.experts.0.w1.weight",
            "model.layers.1.block_sparse_moe.experts.0.w3.weight",
        ],
        ..PLAIN
    },
    Family {
        name: "phi3_short",
        q: "model.layers.1.self_attn.qkv_proj.weight",
        gate_up: &["model.layers.1.mlp.gate_up_proj.weight"],
        ..PLAIN
    },
    Family {
        name: "gpt2",
        q: "transformer.h.1.attn.c_attn.weight",
        o: "transformer.h.1.attn.c_proj.weight",
        laid: Laid::Columns,
        d_head: 16,
        gate_up: &[],
        eps: ("layer_norm_epsilon", "q L0"),
        has_theta: false,
        ..PLAIN
    },
    Family {
        name: "gpt_neox_b",
        q: "gpt_neox.layers.1.attention.query_key_value.weight",
        o: "gpt_neox.layers.1.attention.dense.weight",
        laid: Laid::PerHead,
        gate_up: &[],
        eps: ("layer_norm_eps", "q L0"),
        ..PLAIN
    },
    Family {
        name: "modernbert_b",
        q: "model.layers.1.attn.Wqkv.weight",
        o: "model.layers.1.attn.Wo.weight",
        gate_up: &["model.layers.1.mlp.Wi.weight"],
        eps: ("norm_eps", "resid_pre L0"),
        ..PLAIN
    },
    Family {
        name: "bert_b",
        q: "bert.encoder.layer.1.attention.self.query.weight",
        o: "bert.encoder.layer.1.attention.output.dense.weight",
        gate_up: &[],
        eps: ("layer_norm_eps", "resid_pre L0"),
        has_theta: false,
        ..PLAIN
    },
    Family {
        name: "gptj_b",
        q: "transformer.h.1.attn.q_proj.weight",
        o: "transformer.h.1.attn.out_proj.weight",
        n_heads: 3,
        d_head: 12,
        gate_up: &[],
        eps: ("layer_norm_epsilon", "q L0"),
        has_theta: false,
        ..PLAIN
    },
    Family {
        name: "t5_v11",
        place: "encoder.L1",
        q: "encoder.block.1.layer.0.SelfAttention.q.weight",
        o: "encoder.block.1.layer.0.SelfAttention.o.weight",
        d_head: 10,
        gate_up: &[
            "encoder.block.1.layer.1.DenseReluDense.wi_0.weight",
            "encoder.block.1.layer.1.DenseReluDense.wi_1.weight",
        ],
        eps: ("layer_norm_epsilon", "q encoder L0"),
        has_theta: false,
        ..PLAIN
    },
];

impl Family {
    /// Changes the rows of B's queries: `from` says which old row a new one is.
    fn queries(&self, from: impl Fn(usize) -> usize) -> Found {
        let n = self.n_heads * self.d_head;
        let d = self.d_head;
        // The row of queries that an output is, and the way back.
        let of_queries = |at: usize| match self.laid {
            Laid::PerHead => (at / d)
                .is_multiple_of(3)
                .then(|| at / (3 * d) * d + at % d),
            _ => (at < n).then_some(at),
        };
        let output = |row: usize| match self.laid {
            Laid::PerHead => row / d * 3 * d + row % d,
            _ => row,
        };
        let moved = |at: usize| of_queries(at).map_or(at, |row| output(from(row)));
        let laid = self.laid;
        self.change(self.q, |matrix| match laid {
            Laid::Columns => matrix.columns(moved),
            _ => matrix.rows(moved),
        })
    }

    fn change(&self, tensor: &str, change: impl FnOnce(&mut Matrix)) -> Found {
        Pair::of(self.name).tensor(tensor, change).diff(&[])
    }

    /// The hook `hook` of the changed layer, as a first difference names it.
    fn at(&self, hook: &str) -> String {
        match self.place.split_once('.') {
            Some((stack, layer)) => format!("{hook} {stack} {layer}"),
            None => format!("{hook} {}", self.place),
        }
    }

    /// A change of the second layer's weights is found there, is the layer's own, and has this name.
    fn assert_named(&self, found: &Found, hook: &str, relation: &str) {
        let first = found.first();
        let at = self.at(hook);
        let is_there = first == at || first.starts_with(&format!("{at} H"));
        assert!(is_there, "{}: {first}, not {at}; {}", self.name, found.said);
        assert_eq!(found.isolated(), self.place, "{}", self.name);
        assert_eq!(found.relations(), relation, "{} {hook}", self.name);
        assert_eq!((found.code, found.knobs().as_str()), (Some(1), ""));
    }
}

#[test]
fn changed_weights_are_placed_and_named_in_every_family() {
    for family in some_of(&FAMILIES, 2) {
        let d = family.d_head;
        let head = |row: usize| {
            if row / d == 1 {
                // Dimensions of one head turned round: no relation that has a name.
                d + (d - 1 - row % d)
            } else {
                row
            }
        };
        let found = family.queries(head);
        family.assert_named(&found, "q", "-");
        assert!(
            found.first().ends_with("H1"),
            "{}: {}",
            family.name,
            found.first()
        );
        let found = family.queries(swapped(d, [0, 2]));
        family.assert_named(&found, "q", "heads-permuted");
        let found = family.queries(alternating(d));
        family.assert_named(&found, "q", "rotary-interleaved");
        if !family.normalises_q && family.laid == Laid::Rows && family.gate_up.len() != 1 {
            let found = family.change(family.q, |q| q.scale(1.5));
            family.assert_named(&found, "q", "scaled");
        }
        let mut is_coarser = false;
        let found = family.change(family.o, |o| {
            let before = o.values.clone();
            o.round();
            is_coarser = o.values != before;
        });
        if is_coarser {
            family.assert_named(&found, "attn_out", "rounded");
        } else {
            assert_eq!(found.code, Some(0), "{}: stored as bf16", family.name);
        }
        let mut is_square = true;
        let found = family.change(family.o, |o| {
            is_square = o.n_rows == o.width;
            if is_square {
                o.transpose();
            }
        });
        if is_square {
            family.assert_named(&found, "attn_out", "transposed");
        }
    }
}

#[test]
fn gate_and_up_projection_are_told_apart_in_every_family_that_has_them() {
    let mut n = 0;
    for family in FAMILIES.iter().filter(|family| !family.gate_up.is_empty()) {
        let pair = Pair::of(family.name);
        let pair = match family.gate_up {
            [gate, up] => pair.weights(|weights| {
                let [of_gate, of_up] = [gate, up].map(|name| weights[*name].clone());
                weights.insert((*gate).to_owned(), of_up);
                weights.insert((*up).to_owned(), of_gate);
            }),
            both => pair.tensor(both[0], |both| {
                let half = both.n_rows / 2;
                both.rows(|row| (row + half) % (2 * half));
            }),
        };
        family.assert_named(&pair.diff(&[]), "mlp_out", "gate-up-swapped");
        n += 1;
    }
    assert!(n >= 8);
}

#[test]
fn knobs_are_placed_and_named_in_every_family() {
    for family in some_of(&FAMILIES, 2) {
        let name = family.name;
        let (key, first) = family.eps;
        let found = Pair::of(name)
            .config(|config| {
                config.insert(key.to_owned(), json!(0.05));
            })
            .diff(&[]);
        assert!(
            found.first().starts_with(first),
            "{name}: {}",
            found.first()
        );
        assert!(
            found.knobs().starts_with("norm_eps "),
            "{name}: {}",
            found.knobs()
        );
        assert!(found.isolated().ends_with(family.place) || found.isolated().contains("L1 "));
        assert_eq!(found.relations(), "", "{name}");
        for (what_if, knob) in [
            ("scale=x2", "scale"),
            ("mask=window:2", "window"),
            ("softcap=0.5", "softcap"),
        ] {
            let what_if = format!("{what_if}@{}", family.place);
            let found = Pair::of(name).diff(&["--what-if", &what_if]);
            let at = family.at("scores");
            assert!(
                found.first().starts_with(&at),
                "{name}: {} {what_if}",
                found.first()
            );
            assert_eq!(found.isolated(), family.place, "{name} {what_if}");
            let named = format!("{knob}@{} ", family.place);
            assert!(found.knobs().contains(&named), "{name}: {}", found.knobs());
        }
        if !family.has_theta {
            continue;
        }
        let found = Pair::of(name).config(change_theta).diff(&[]);
        assert!(
            found.first().starts_with("rot_q L0"),
            "{name}: {}",
            found.first()
        );
        assert!(
            found.knobs().starts_with("rope_theta"),
            "{name}: {}",
            found.knobs()
        );
        assert!(found.isolated().starts_with("L0 L1"), "{name}");
    }
}

/// Multiplies every base of the rotary embedding, wherever this configuration keeps it.
fn change_theta(config: &mut serde_json::Map<String, serde_json::Value>) {
    let mut is_changed = false;
    for (key, value) in config.iter_mut() {
        let is_theta = [
            "rope_theta",
            "rotary_emb_base",
            "local_rope_theta",
            "global_rope_theta",
        ]
        .contains(&key.as_str());
        if let Some(theta) = value.as_f64().filter(|_| is_theta) {
            *value = json!(7.0 * theta);
            is_changed = true;
        }
        if let Some(parts) = value.as_object_mut().filter(|_| key == "rope_parameters") {
            change_theta(parts);
            let of_kinds = parts.values_mut().filter_map(|kind| kind.as_object_mut());
            of_kinds.for_each(change_theta);
            is_changed = true;
        }
    }
    if !is_changed && !config.contains_key("rope_type") {
        config.insert("rope_theta".to_owned(), json!(70_000.0));
    }
}
