//! A described mixture of experts: the table `[tensors.experts]`, with the router's rule beside the names of its tensors.

use attnscope_spec::{
    ChoiceBias, ExpertsSpec, FeedForward, GateRule, LinearSource, MlpSpec, RouterRule, RouterScores,
};
use serde_json::{Map, Value};

use super::parts::{MapPart, Part, every_nth, name_in_layer};
use super::spec::Reads;
use super::tables::Tables;
use super::{Axis, EXPERTS, Mlp};

/// The placeholder for the number of an expert, if each has its own tensors.
const EXPERT: &str = "{expert}";

const TENSORS: [&str; 11] = [
    "router",
    "choice_bias",
    "up",
    "gate",
    "gate_up",
    "down",
    "shared_up",
    "shared_gate",
    "shared_gate_up",
    "shared_down",
    "shared_weight",
];
const SHARED: [&str; 3] = ["shared_up", "shared_gate", "shared_gate_up"];
const RULE: [&str; 5] = ["n_used", "scores", "normalises", "scale", "layers"];

const SCORES: [(&str, RouterScores); 4] = [
    ("softmax", RouterScores::Softmax),
    ("softmax_of_chosen", RouterScores::SoftmaxOfChosen),
    ("sigmoid", RouterScores::Sigmoid),
    ("sigmoid_of_chosen", RouterScores::SigmoidOfChosen),
];

/// The maps of the experts, or of the one that every token uses.
#[derive(Debug, Clone, PartialEq)]
struct Maps {
    mlp: Mlp,
    down: MapPart,
}

/// The experts of a described model, and how the router weighs them.
#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    router: MapPart,
    choice_bias: Option<String>,
    each: Maps,
    shared: Option<(Maps, Option<MapPart>)>,
    rule: RouterRule,
    /// Which layers have experts: all, or every n-th from a first one on.
    layers: Option<(usize, usize)>,
}

impl Experts {
    /// Reads `[tensors.experts]` among the values of `[tensors]`; `None` if there is none.
    pub(super) fn read(values: &Map<String, Value>) -> Result<Option<Self>, String> {
        let values = match values.get(EXPERTS) {
            None => return Ok(None),
            Some(Value::Object(values)) => values,
            Some(other) => return Err(format!("{EXPERTS}: expected a table, found {other}")),
        };
        let known = [&TENSORS[..], &RULE].concat();
        if let Some(other) = values.keys().find(|key| !known.contains(&key.as_str())) {
            let known = known.join(", ");
            return Err(format!("{EXPERTS}.{other}: is not known; known: {known}"));
        }
        let tables = Tables {
            values,
            within: "experts.",
        };
        let missing = |what: &str| format!("{EXPERTS}: expected {what}");
        let each = maps(&tables, ["up", "gate", "gate_up"], "down")?;
        let shared = maps(&tables, SHARED, "shared_down")?;
        let shared_weight = tables.map("shared_weight")?;
        if shared.is_none() && shared_weight.is_some() {
            return Err(missing("shared_up and shared_down beside shared_weight"));
        }
        Ok(Some(Self {
            router: tables.map("router")?.ok_or_else(|| missing("router"))?,
            choice_bias: tables.table("choice_bias")?,
            each: each.ok_or_else(|| missing("up, or gate and up, or gate_up, and down"))?,
            shared: shared.map(|shared| (shared, shared_weight)),
            rule: rule(values)?,
            layers: layers(values)?,
        }))
    }

    /// Whether a layer has experts.
    pub(super) fn are_in(&self, layer_idx: usize) -> bool {
        self.layers.is_none_or(|(step, first)| {
            layer_idx >= first && (layer_idx - first).is_multiple_of(step)
        })
    }

    /// Every part that the layers have once, with its key; the maps of single experts are used as they are stored.
    pub(super) fn parts(&self) -> Vec<(&'static str, Part)> {
        let mut parts = vec![("router", Part::Map(self.router.clone()))];
        parts.extend(
            self.choice_bias
                .iter()
                .map(|name| ("choice_bias", Part::Table(name.clone()))),
        );
        if let Some((maps, weight)) = &self.shared {
            parts.extend(maps.mlp.parts(SHARED));
            parts.push(("shared_down", Part::Map(maps.down.clone())));
            parts.extend(
                weight
                    .iter()
                    .map(|map| ("shared_weight", Part::Map(map.clone()))),
            );
        }
        parts
    }
}

fn maps(
    tables: &Tables<'_>,
    keys: [&'static str; 3],
    down: &'static str,
) -> Result<Option<Maps>, String> {
    match (tables.mlp(keys)?, tables.map(down)?) {
        (Some(mlp), Some(down)) => Ok(Some(Maps { mlp, down })),
        (None, None) => Ok(None),
        _ => Err(format!(
            "{EXPERTS}: expected {} and {down} together",
            keys[0]
        )),
    }
}

fn rule(values: &Map<String, Value>) -> Result<RouterRule, String> {
    let wrong = |key: &str, expected: &str| match values.get(key) {
        Some(found) => format!("{EXPERTS}.{key}: expected {expected}, found {found}"),
        None => format!("{EXPERTS}.{key}: missing, expected {expected}"),
    };
    let n_used = values.get("n_used").and_then(Value::as_u64);
    let n_used = n_used
        .filter(|n| *n > 0)
        .ok_or_else(|| wrong("n_used", "a whole number from 1"))?;
    let words = SCORES.map(|(word, _)| word).join(", ");
    let scores = match values.get("scores") {
        None => RouterScores::Softmax,
        Some(given) => SCORES
            .iter()
            .find(|(word, _)| given.as_str() == Some(word))
            .map(|(_, scores)| *scores)
            .ok_or_else(|| wrong("scores", &format!("one of {words}")))?,
    };
    let normalises = match values.get("normalises") {
        None => false,
        Some(given) => given
            .as_bool()
            .ok_or_else(|| wrong("normalises", "true or false"))?,
    };
    let scale = match values.get("scale") {
        None => 1.0,
        Some(given) => given
            .as_f64()
            .filter(|scale| scale.is_finite())
            .ok_or_else(|| wrong("scale", "a number"))?,
    };
    Ok(RouterRule {
        normalises,
        scale: scale as f32,
        ..RouterRule::plain(n_used as usize, scores)
    })
}

fn layers(values: &Map<String, Value>) -> Result<Option<(usize, usize)>, String> {
    let Some(given) = values.get("layers") else {
        return Ok(None);
    };
    match given.as_str().and_then(every_nth) {
        Some(rule) => Ok(Some(rule)),
        _ => Err(format!(
            "{EXPERTS}.layers: expected STEP*i+FIRST, as in 1*i+3, found {given}"
        )),
    }
}

impl Reads<'_> {
    /// The experts of one layer.
    ///
    /// # Errors
    /// When a tensor is missing, or the shapes of two contradict each other, with the problem.
    pub(super) fn experts(
        &self,
        experts: &Experts,
        layer_idx: usize,
    ) -> Result<FeedForward, String> {
        let d_model = self.sizes.d_model;
        let n = self.rows_of(&experts.router, layer_idx, d_model)?;
        if experts.rule.n_used > n {
            let found = experts.rule.n_used;
            return Err(format!(
                "{EXPERTS}.n_used: expected at most the {n} experts of the router, found {found}"
            ));
        }
        let each = (0..n).map(|idx| self.maps(&experts.each, layer_idx, Some((idx, n))));
        let shared = experts.shared.as_ref().map(|(maps, weight)| {
            let weight = weight
                .as_ref()
                .map(|map| self.map(map, layer_idx, (d_model, 1), false));
            Ok::<_, String>((self.maps(maps, layer_idx, None)?, weight))
        });
        let choice_bias = experts.choice_bias.as_ref().map(|name| ChoiceBias {
            tensor: name_in_layer(name, layer_idx),
            shape: vec![n],
        });
        Ok(FeedForward::Experts(Box::new(ExpertsSpec {
            router: self.map(&experts.router, layer_idx, (d_model, n), false),
            rule: RouterRule {
                choice_bias,
                ..experts.rule.clone()
            },
            experts: each.collect::<Result<_, String>>()?,
            shared: shared.transpose()?,
            latent: None,
            norms: None,
            apart: None,
        })))
    }

    /// How many outputs a map of `n_in` inputs has.
    fn rows_of(&self, map: &MapPart, layer_idx: usize, n_in: usize) -> Result<usize, String> {
        let name = name_in_layer(&map.weight, layer_idx).replace(EXPERT, "0");
        let info = self.tensors.info(&name);
        let info = info.ok_or_else(|| format!("{name}: no tensor has this name"))?;
        let n = info.n_elements();
        if n_in == 0 || n == 0 || !n.is_multiple_of(n_in) {
            return Err(format!(
                "{name}: its {n} values are no matrix of {n_in} columns"
            ));
        }
        Ok(n / n_in)
    }

    /// The maps of one expert, or of the shared one.
    fn maps(
        &self,
        maps: &Maps,
        layer_idx: usize,
        expert: Option<(usize, usize)>,
    ) -> Result<MlpSpec, String> {
        let d_model = self.sizes.d_model;
        let is_slab = maps.down.axes.contains(&Axis::Expert);
        let n_slabs = expert.filter(|_| is_slab).map_or(1, |(_, n)| n);
        let width = self.rows_of(&maps.down, layer_idx, d_model)? / n_slabs;
        let map = |part: &MapPart, n_in, n_out| match expert {
            None => self.map(part, layer_idx, (n_in, n_out), false),
            Some(expert) => of_expert(part, layer_idx, expert, (n_in, n_out)),
        };
        let (gate, up) = self.first_maps(&maps.mlp, width, map);
        Ok(MlpSpec {
            gate,
            gate_rule: GateRule::Product,
            ..MlpSpec::plain(up, map(&maps.down, width, d_model), self.activation)
        })
    }
}

/// A map of one expert: a tensor of its own, or a slab of one that holds those of all.
fn of_expert(
    part: &MapPart,
    layer_idx: usize,
    (idx, n): (usize, usize),
    (n_in, n_out): (usize, usize),
) -> LinearSource {
    let name =
        |template: &String| name_in_layer(template, layer_idx).replace(EXPERT, &idx.to_string());
    let whole = LinearSource::whole(
        name(&part.weight),
        part.bias.as_ref().map(name),
        n_in,
        n_out,
    );
    let at = |wanted: Axis| part.axes.iter().position(|axis| *axis == wanted);
    let whole = if at(Axis::In) < at(Axis::Out) {
        whole.input_major()
    } else {
        whole
    };
    if part.axes.contains(&Axis::Expert) {
        whole.slab(idx, n)
    } else {
        whole
    }
}
