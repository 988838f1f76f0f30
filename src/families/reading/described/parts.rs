//! Parts of a described model: the tensors of each, the meaning of their axes, and names with a placeholder for the layer.

use serde_json::{Map, Value};

/// The placeholder for the layer number: `{layer}`, `{layer+1}`, `{2*layer}`, `{2*layer+1}`.
const LAYER: &str = "layer";

/// The placeholder for the head number, if each head has its own tensor.
pub const HEAD: &str = "{head}";

/// The name of the tensor that joins the tensors of single heads.
pub fn name_of_all_heads(name: &str) -> String {
    name.replace(HEAD, "*")
}

/// The name of a tensor in one layer.
pub fn name_in_layer(template: &str, layer_idx: usize) -> String {
    match hole(template) {
        Some((before, (step, first), after)) => {
            format!("{before}{}{after}", step * layer_idx + first)
        }
        None => template.to_owned(),
    }
}

/// Splits a template around its layer number; returns the factor and offset that make the number from the layer index.
fn hole(template: &str) -> Option<(&str, (usize, usize), &str)> {
    let mut from = 0;
    while let Some(open) = template[from..].find('{').map(|at| from + at) {
        let close = open + template[open..].find('}')?;
        if let Some(rule) = rule(&template[open + 1..close]) {
            return Some((&template[..open], rule, &template[close + 1..]));
        }
        from = open + 1;
    }
    None
}

fn rule(inside: &str) -> Option<(usize, usize)> {
    let (before, after) = inside.split_once(LAYER)?;
    let step = match before {
        "" => 1,
        factor => factor.strip_suffix('*')?.parse().ok()?,
    };
    let first = match after {
        "" => 0,
        sum => sum.strip_prefix('+')?.parse().ok()?,
    };
    Some((step, first))
}

/// The placeholder for the layer number, as written in a template.
pub fn written_hole(step: usize, first: usize) -> String {
    let factor = if step == 1 {
        String::new()
    } else {
        format!("{step}*")
    };
    let sum = if first == 0 {
        String::new()
    } else {
        format!("+{first}")
    };
    format!("{{{factor}{LAYER}{sum}}}")
}

/// Layers by a rule, STEP*i+FIRST: every so many, from one on.
pub fn every_nth(rule: &str) -> Option<(usize, usize)> {
    let (step, first) = rule.split_once("*i+")?;
    let (step, first) = (step.parse().ok()?, first.parse().ok()?);
    (step > 0).then_some((step, first))
}

/// The meaning of an axis of a stored matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    Out,
    In,
    Head,
    /// Query, key and value, or gate and up.
    Part,
    /// The experts of a layer.
    Expert,
}

const AXES: [(&str, Axis); 5] = [
    ("out", Axis::Out),
    ("in", Axis::In),
    ("head", Axis::Head),
    ("part", Axis::Part),
    ("expert", Axis::Expert),
];

/// A linear map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapPart {
    pub weight: String,
    pub bias: Option<String>,
    /// The meaning of each axis; by default outputs, then inputs.
    pub axes: Vec<Axis>,
}

/// How the parts of a fused map are interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Per {
    /// All of one part, then all of the next.
    All,
    /// The parts of each key head are adjacent.
    Head,
    /// The parts of each single output are adjacent.
    Unit,
}

/// Several maps in one tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FusedPart {
    pub map: MapPart,
    /// Names of the maps, in stored order.
    pub order: Vec<&'static str>,
    pub per: Per,
}

/// Names of maps that can be fused.
pub(super) const FUSED: [&str; 7] = ["q", "k", "v", "gate", "up", "kv", "shared_key"];

/// The kind of a norm in whose place a tanh stands.
pub(super) const TANH: &str = "tanh";

/// A norm; without names it has neither gain nor bias.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NormPart {
    pub gain: Option<String>,
    pub bias: Option<String>,
    /// `rms` or `layer`, if it differs from the other norms; `tanh` if a tanh stands in its place.
    pub kind: Option<&'static str>,
    /// What multiplies values before the tanh.
    pub alpha: Option<String>,
    /// Its epsilon as written, if it differs from that of the other norms.
    pub eps: Option<String>,
    /// Of queries or keys: each head is normed by itself, with gains of its own.
    pub is_per_head: bool,
}

/// How a stored tensor becomes a matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arranged {
    /// Stored as [out, in].
    AsItLies,
    /// Stored as [in, out].
    InputMajor,
    /// More axes, or another order: the permutation, and whether inputs come first afterwards.
    RotationOverride {
        order: Vec<usize>,
        is_input_major: bool,
    },
}

impl MapPart {
    /// A map stored as [out, in].
    pub fn plain(weight: String, bias: Option<String>) -> Self {
        Self {
            weight,
            bias,
            axes: vec![Axis::Out, Axis::In],
        }
    }

    /// How its weight becomes a matrix. A head axis counts as outputs, or as inputs for the output map of attention.
    pub fn arranged(&self, heads_are_inputs: bool, must_be_output_major: bool) -> Arranged {
        let is_input = |axis: &Axis| *axis == Axis::In || (*axis == Axis::Head && heads_are_inputs);
        let at = |wanted: bool| {
            let axes = self.axes.iter().enumerate();
            let chosen = axes.filter(move |(_, axis)| is_input(axis) == wanted);
            chosen.map(|(idx, _)| idx).collect::<Vec<usize>>()
        };
        let (ins, outs) = (at(true), at(false));
        let as_it_lies = |order: &[usize]| order.iter().copied().eq(0..order.len());
        let (out_in, in_out) = ([&outs[..], &ins].concat(), [&ins[..], &outs].concat());
        let is_matrix = self.axes.len() == 2;
        if is_matrix && as_it_lies(&out_in) {
            Arranged::AsItLies
        } else if is_matrix && !must_be_output_major && as_it_lies(&in_out) {
            Arranged::InputMajor
        } else if as_it_lies(&in_out) && !must_be_output_major {
            Arranged::RotationOverride {
                order: in_out,
                is_input_major: true,
            }
        } else {
            Arranged::RotationOverride {
                order: out_in,
                is_input_major: false,
            }
        }
    }

    /// The name of the rearranged tensor.
    pub fn arranged_name(&self, weight: &str) -> String {
        format!("{weight} ({})", words(&self.axes))
    }

    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let Some(table) = value.as_object() else {
            return match value.as_str() {
                Some(weight) => Ok(Self::plain(weight.to_owned(), None)),
                None => Err(format!(
                    "expected a tensor's name or a table, found {value}"
                )),
            };
        };
        let weight = word(table, "weight")?.ok_or("expected weight in the table, found none")?;
        let axes = match word(table, "axes")? {
            None => vec![Axis::Out, Axis::In],
            Some(text) => axes(&text)?,
        };
        Ok(Self {
            weight,
            bias: word(table, "bias")?,
            axes,
        })
    }

    fn entries(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![("weight", self.weight.clone())];
        entries.extend(self.bias.iter().map(|bias| ("bias", bias.clone())));
        if self.axes != [Axis::Out, Axis::In] {
            entries.push(("axes", words(&self.axes)));
        }
        entries
    }
}

fn words(axes: &[Axis]) -> String {
    let word = |axis: &Axis| {
        AXES.iter()
            .find(|(_, own)| own == axis)
            .map(|(word, _)| *word)
    };
    axes.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

fn axes(text: &str) -> Result<Vec<Axis>, String> {
    let axis = |word: &str| {
        AXES.iter()
            .find(|(own, _)| *own == word)
            .map(|(_, axis)| *axis)
    };
    let found: Option<Vec<Axis>> = text.split_whitespace().map(axis).collect();
    let wrong = || {
        format!(
            "axes: expected out, in, head, part and expert in the order of the axes, found {text:?}"
        )
    };
    let found = found.ok_or_else(wrong)?;
    let n = |wanted: Axis| found.iter().filter(|axis| **axis == wanted).count();
    let few = [Axis::Head, Axis::Part, Axis::Expert];
    if n(Axis::In) == 1 && n(Axis::Out) == 1 && few.into_iter().all(|axis| n(axis) <= 1) {
        Ok(found)
    } else {
        Err(wrong())
    }
}

impl FusedPart {
    pub(super) fn read(value: &Value, parts: &[&'static str]) -> Result<Self, String> {
        let map = MapPart::read(value)?;
        let order = value.get("order").and_then(Value::as_str);
        let order: Vec<&'static str> = match order {
            None => parts.to_vec(),
            Some(text) => {
                let known = |word: &str| parts.iter().find(|own| **own == word).copied();
                let order: Option<Vec<_>> = text.split_whitespace().map(known).collect();
                let mut sorted = order.clone().unwrap_or_default();
                sorted.sort_unstable();
                let mut expected = parts.to_vec();
                expected.sort_unstable();
                if sorted != expected {
                    let parts = parts.join(" ");
                    return Err(format!(
                        "order: expected {parts} in some order, found {text:?}"
                    ));
                }
                order.unwrap_or_default()
            }
        };
        let per = match value.get("per").and_then(Value::as_str) {
            None | Some("all") => Per::All,
            Some("head") if parts.contains(&"k") => Per::Head,
            Some("unit") => Per::Unit,
            Some(other) => return Err(format!("per: expected all, head or unit, found {other:?}")),
        };
        Ok(Self { map, order, per })
    }
}

impl NormPart {
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        if let Some(name) = value.as_str() {
            return Ok(Self {
                gain: Some(name.to_owned()),
                ..Self::default()
            });
        }
        let Some(table) = value.as_object() else {
            return Err(format!(
                "expected a tensor's name or a table, found {value}"
            ));
        };
        let kind = match word(table, "kind")?.as_deref() {
            None => None,
            Some("rms") => Some("rms"),
            Some("layer") => Some("layer"),
            Some(TANH) => Some(TANH),
            Some(other) => {
                return Err(format!(
                    "kind: expected rms, layer or tanh, found {other:?}"
                ));
            }
        };
        let alpha = word(table, "alpha")?;
        if alpha.is_some() != (kind == Some(TANH)) {
            return Err("expected kind = \"tanh\" and alpha together".to_owned());
        }
        let is_per_head = match word(table, "per")?.as_deref() {
            None => false,
            Some("head") => true,
            Some(other) => return Err(format!("per: expected head, found {other:?}")),
        };
        Ok(Self {
            is_per_head,
            gain: word(table, "weight")?,
            bias: word(table, "bias")?,
            kind,
            alpha,
            eps: number(table, "eps")?,
        })
    }
}

/// A number of a table, as written.
fn number(table: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match table.get(key) {
        None => Ok(None),
        Some(Value::Number(number)) if number.as_f64().is_some_and(|n| n >= 0.0) => {
            Ok(Some(number.to_string()))
        }
        Some(other) => Err(format!("{key}: expected a number from 0, found {other}")),
    }
}

pub(super) fn word(table: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    const KEYS: [&str; 8] = [
        "weight", "bias", "axes", "order", "per", "kind", "alpha", "eps",
    ];
    if let Some(other) = table.keys().find(|own| !KEYS.contains(&own.as_str())) {
        let known = KEYS.join(", ");
        return Err(format!("{other:?} is not known; known: {known}"));
    }
    match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!("{key}: expected a text, found {other}")),
    }
}

/// The value of one key of `[tensors]`.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Table(String),
    Map(MapPart),
    Fused(FusedPart),
    Norm(NormPart),
}

impl Part {
    /// Formats the part as TOML.
    pub fn written(&self) -> String {
        let (entries, is_bare) = match self {
            Self::Table(name) => return quoted(name),
            Self::Map(map) => {
                let entries = map.entries();
                let is_bare = entries.len() == 1;
                (entries, is_bare)
            }
            Self::Fused(fused) => {
                let mut entries = fused.map.entries();
                entries.push(("order", fused.order.join(" ")));
                let per = match fused.per {
                    Per::All => "all",
                    Per::Head => "head",
                    Per::Unit => "unit",
                };
                entries.push(("per", per.to_owned()));
                (entries, false)
            }
            Self::Norm(norm) => {
                let names = [
                    ("weight", &norm.gain),
                    ("bias", &norm.bias),
                    ("alpha", &norm.alpha),
                ];
                let names = names.into_iter();
                let mut entries: Vec<(&str, String)> = names
                    .filter_map(|(key, name)| Some((key, name.clone()?)))
                    .collect();
                entries.extend(norm.kind.map(|kind| ("kind", kind.to_owned())));
                entries.extend(norm.is_per_head.then(|| ("per", "head".to_owned())));
                let is_bare = matches!(entries.as_slice(), [("weight", _)]) && norm.eps.is_none();
                (entries, is_bare)
            }
        };
        if is_bare && let Some((_, name)) = entries.first() {
            return quoted(name);
        }
        let mut entries: Vec<String> = entries
            .iter()
            .map(|(key, value)| format!("{key} = {}", quoted(value)))
            .collect();
        if let Self::Norm(norm) = self {
            entries.extend(norm.eps.iter().map(|eps| format!("eps = {eps}")));
        }
        if entries.is_empty() {
            return "{}".to_owned();
        }
        format!("{{ {} }}", entries.join(", "))
    }
}

/// Quotes a string for TOML.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::super::tables::Tables;
    use super::*;

    #[test]
    fn a_name_has_a_placeholder_for_the_layer() {
        for (template, expected) in [
            ("a.{layer}.w", "a.3.w"),
            ("a.{layer+1}.w", "a.4.w"),
            ("a.{2*layer+1}", "a.7"),
            ("a{b}.{2*layer}", "a{b}.6"),
            ("plain", "plain"),
        ] {
            assert_eq!(name_in_layer(template, 3), expected);
        }
        assert_eq!(written_hole(2, 1), "{2*layer+1}");
        assert_eq!(written_hole(1, 0), "{layer}");
    }

    #[test]
    fn the_axes_decide_how_a_tensor_becomes_a_matrix() {
        let arranged = |text: &str, heads_are_inputs| {
            let axes = axes(text).expect(text);
            MapPart {
                axes,
                ..MapPart::plain("w".to_owned(), None)
            }
            .arranged(heads_are_inputs, false)
        };
        assert_eq!(arranged("out in", false), Arranged::AsItLies);
        assert_eq!(arranged("in out", false), Arranged::InputMajor);
        let turned = |order: &[usize], is_input_major| Arranged::RotationOverride {
            order: order.to_vec(),
            is_input_major,
        };
        assert_eq!(arranged("head in out", false), turned(&[0, 2, 1], false));
        assert_eq!(arranged("head in out", true), turned(&[0, 1, 2], true));
        assert_eq!(arranged("in head out", false), turned(&[0, 1, 2], true));
        assert!(axes("out out").is_err() && axes("wide in").is_err());
    }

    #[test]
    fn parts_written_as_toml_are_read_back_unchanged() {
        let part = FusedPart {
            map: MapPart {
                weight: "a \"b\"".to_owned(),
                bias: Some("c".to_owned()),
                axes: vec![Axis::In, Axis::Out],
            },
            order: vec!["k", "q", "v"],
            per: Per::Head,
        };
        let text = format!("qkv = {}", Part::Fused(part.clone()).written());
        let parsed: toml::Table = toml::from_str(&text).expect("TOML");
        let values = serde_json::to_value(parsed).expect("JSON");
        let values = values.as_object().expect("a table");
        let tables = Tables { values, within: "" };
        let read = tables.fused("qkv", &["q", "k", "v"]);
        assert_eq!(read, Ok(Some(part)));
    }
}
