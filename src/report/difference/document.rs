//! The JSON of a comparison.

use attnscope_checks::stats::{STATISTICS, Values};
use attnscope_compare::{
    HeadDifference, HookDifference, KnobDifference, KnobValue, PromptDifference, TensorDifference,
};
use attnscope_spec::Stack;
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::Difference;
use crate::number::Number;

/// Version of the JSON.
const VERSION: u32 = 3;

/// What a comparison found.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Document {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    a: String,
    b: String,
    /// Whether nothing differs but what rounding explains.
    same: bool,
    /// The least relative difference that counts; infinite where weights are quantised, whose differences are reported and not judged.
    tolerance: Number,
    /// The first hook in order of execution beyond its tolerance; null where there is none.
    first: Option<First>,
    /// In the order of execution; empty where the two could not be run side by side.
    hooks: Vec<HookRow>,
    /// Layers of B that differ when they run on A's input.
    isolated: Vec<IsolatedRow>,
    weights: Weights,
    /// Knobs that differ, those that change what is computed first.
    knobs: Vec<KnobRow>,
    prompts: Vec<PromptRow>,
    /// What else is to be known: what-ifs, what was matched, dropout in a recording. A recording with dropout is not judged: the
    /// program ends with 2.
    notes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct First {
    hook: &'static str,
    #[schemars(schema_with = "crate::schema_parts::stack")]
    stack: Option<&'static str>,
    /// Index of the layer of A, from 0; null for what follows the last layer.
    layer: Option<usize>,
    /// The head that differs most, a kv head for keys and values; null where the values belong to no heads.
    head: Option<usize>,
    query: Option<usize>,
    key: Option<usize>,
    relative: Number,
    max_abs: Number,
    tolerance: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HookRow {
    hook: &'static str,
    #[schemars(schema_with = "crate::schema_parts::stack")]
    stack: Option<&'static str>,
    layer: Option<usize>,
    /// ‖a − b‖/‖a‖ over the tensor; infinite where one side holds a NaN or an infinity and the other does not.
    relative: Number,
    max_abs: Number,
    tolerance: Number,
    same: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct IsolatedRow {
    #[schemars(schema_with = "crate::schema_parts::stack")]
    stack: Option<&'static str>,
    layer: usize,
    /// The largest relative difference of what the layer adds to the residual, or of its other hooks where it adds the same.
    relative: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Weights {
    only_a: Vec<String>,
    only_b: Vec<String>,
    differ: Vec<TensorRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TensorRow {
    name: String,
    /// ‖a − b‖/‖a‖; infinite where the shapes differ.
    relative: Number,
    max_abs: Number,
    /// How the two relate; null where nothing simple relates them.
    #[schemars(schema_with = "crate::schema_parts::relation")]
    relation: Option<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct KnobRow {
    /// The knob, with the place where only a part of the model differs: `window@L3`.
    knob: String,
    a: KnobCell,
    b: KnobCell,
}

/// The value of a knob.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum KnobCell {
    Whole(i64),
    Number(Number),
    Word(String),
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PromptRow {
    id: String,
    /// Mean next-token loss of A and of B, in nats.
    loss: [Option<Number>; 2],
    /// Mean Kullback–Leibler divergence of B's predictions from A's, in nats; null without predictions.
    kl: Option<Number>,
    /// Share of positions at which both predict the same token.
    same_top1: Option<Number>,
    heads: Vec<HeadRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HeadRow {
    #[schemars(schema_with = "crate::schema_parts::stack")]
    stack: Option<&'static str>,
    layer: usize,
    head: usize,
    /// Mean Jensen–Shannon divergence of the two patterns, in nats.
    js: Number,
    /// Statistics of A and of B by their ids; empty where they were not computed.
    #[schemars(schema_with = "crate::schema_parts::pairs_of_statistics")]
    stats: Pairs,
}

/// Statistics of both sides.
#[derive(Debug)]
struct Pairs(Option<[Values; 2]>);

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if let Some([a, b]) = &self.0 {
            let per_head = STATISTICS.iter().enumerate();
            for (idx, statistic) in per_head.filter(|(_, s)| s.is_per_head()) {
                map.serialize_entry(statistic.id, &[a, b].map(|of| of.measured(idx).map(Number)))?;
            }
        }
        map.end()
    }
}

impl Document {
    /// The document of a comparison.
    pub fn of(difference: &Difference<'_>) -> Self {
        let found = difference.comparison;
        Self {
            version: VERSION,
            a: difference.a.to_owned(),
            b: difference.b.to_owned(),
            same: found.is_same() && difference.refused.is_none(),
            tolerance: Number(found.floors.base),
            first: found.first().map(first),
            hooks: found.hooks.iter().map(hook).collect(),
            isolated: found
                .isolated
                .iter()
                .map(|layer| IsolatedRow {
                    stack: layer.stack.label(),
                    layer: layer.layer_idx,
                    relative: Number(layer.relative),
                })
                .collect(),
            weights: Weights {
                only_a: found.weights.only_a.clone(),
                only_b: found.weights.only_b.clone(),
                differ: found.weights.differ.iter().map(tensor).collect(),
            },
            knobs: found.knobs.iter().map(knob).collect(),
            prompts: found.prompts.iter().map(prompt).collect(),
            notes: difference.all_notes(),
        }
    }
}

fn label(stack: Option<Stack>) -> Option<&'static str> {
    stack.and_then(Stack::label)
}

fn first(found: &HookDifference) -> First {
    First {
        hook: found.name(),
        stack: label(found.stack),
        layer: found.layer_idx,
        head: found.head_idx,
        query: found.query_idx,
        key: found.key_idx,
        relative: Number(found.relative),
        max_abs: Number(found.max_abs),
        tolerance: Number(found.tolerance),
    }
}

fn hook(found: &HookDifference) -> HookRow {
    HookRow {
        hook: found.name(),
        stack: label(found.stack),
        layer: found.layer_idx,
        relative: Number(found.relative),
        max_abs: Number(found.max_abs),
        tolerance: Number(found.tolerance),
        same: found.is_same,
    }
}

fn tensor(found: &TensorDifference) -> TensorRow {
    TensorRow {
        name: found.name.clone(),
        relative: Number(found.relative),
        max_abs: Number(found.max_abs),
        relation: found.relation.map(|relation| relation.label()),
    }
}

fn knob(found: &KnobDifference) -> KnobRow {
    let cell = |value: &KnobValue| match value {
        KnobValue::Number(n) if n.fract() == 0.0 && n.abs() < 1e15 => KnobCell::Whole(*n as i64),
        KnobValue::Number(n) => KnobCell::Number(Number(*n)),
        KnobValue::Word(word) => KnobCell::Word(word.clone()),
    };
    KnobRow {
        knob: found.knob.clone(),
        a: cell(&found.a),
        b: cell(&found.b),
    }
}

fn prompt(found: &PromptDifference) -> PromptRow {
    let predictions = found.predictions.as_ref();
    let loss = |side: usize| found.loss[side].map(Number);
    PromptRow {
        id: found.id.clone(),
        loss: [loss(0), loss(1)],
        kl: predictions.map(|p| Number(p.kl)),
        same_top1: predictions.map(|p| Number(p.same_top1)),
        heads: found.heads.iter().map(head).collect(),
    }
}

fn head(found: &HeadDifference) -> HeadRow {
    HeadRow {
        stack: found.stack.label(),
        layer: found.layer_idx,
        head: found.head_idx,
        js: Number(found.divergence),
        stats: Pairs(found.stats.clone()),
    }
}
