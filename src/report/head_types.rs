//! The type of each head: as a table for people, as JSON and CSV for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use attnscope_checks::stats::Stat;
use schemars::JsonSchema;
use serde::Serialize;

use super::document::ModelRecord;
use super::number::Number;
use super::table::{Cell, CellValue, Column, Table};

/// Columns for the prompt: title and statistic.
pub const ON_PROMPT: [(&str, Stat); 5] = [
    ("previous", Stat::PreviousMass),
    ("induction", Stat::InductionMass),
    ("duplicate", Stat::DuplicateMass),
    ("first", Stat::FirstKeyMass),
    ("current", Stat::DiagonalMass),
];
/// Columns for repeated random tokens.
const ON_RANDOM: [&str; 3] = ["r‖r prev", "r‖r ind", "r‖r dup"];

/// Version of the JSON.
const VERSION: u32 = 3;

/// The types of all heads on some prompts.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HeadTypes {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    model: ModelRecord,
    /// What-ifs that were on, as they were written.
    what_if: Vec<String>,
    prompts: Vec<PromptTypes>,
    /// The columns of what heads do, in their order.
    #[serde(skip)]
    effects: Vec<&'static str>,
}

/// The types of all heads on one prompt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PromptTypes {
    /// Id of the prompt.
    pub id: String,
    pub heads: Vec<HeadRow>,
}

/// The type of a head, and the figures that it comes from.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HeadRow {
    /// Stack of the layer; null for the only stack.
    #[schemars(schema_with = "super::schema_parts::stack")]
    pub stack: Option<&'static str>,
    /// Index of the layer in its stack, from 0.
    pub layer: usize,
    /// Index of the head, from 0.
    pub head: usize,
    /// What kind of place the head looks at; null where no type fits.
    #[serde(rename = "type")]
    #[schemars(schema_with = "super::schema_parts::head_type")]
    pub kind: Option<&'static str>,
    /// What shows the type: the prompt, random tokens said twice, or both; null where no type fits.
    #[serde(rename = "type_seen_on")]
    #[schemars(schema_with = "super::schema_parts::seen_on")]
    pub seen_on: Option<&'static str>,
    /// Mean probabilities, in the order of [`ON_PROMPT`].
    #[serde(flatten)]
    pub on_prompt: OnPrompt,
    /// Figures on random tokens; null for models that those cannot be run on.
    pub random: Option<OnRandom>,
    /// What the head does, by the measures that were asked for; absent where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<EffectOfHead>,
    /// The same values by column.
    #[serde(skip)]
    effects: BTreeMap<&'static str, f64>,
}

/// What a head does; values of measures that were not asked for are absent.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct EffectOfHead {
    /// Change of the loss when the head is zeroed, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_change: Option<Number>,
    /// KL(run ‖ ablated), in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    kl: Option<Number>,
    /// What the head adds to the logit of the likeliest last token.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contribution_first: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contribution_entropy: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contribution_total: Option<Number>,
    /// Σ Re λ / Σ |λ| of the eigenvalues of W_E W_V W_O W_U.
    #[serde(skip_serializing_if = "Option::is_none")]
    copying: Option<Number>,
    /// Share of a needle's tokens that the model writes while the head looks at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    retrieval: Option<Number>,
    /// Share of a needle's tokens that the head looks at.
    #[serde(skip_serializing_if = "Option::is_none")]
    looks: Option<Number>,
    /// Share of the attention on the first tokens and the nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<Number>,
}

impl HeadRow {
    /// Adds the head's effects, by the columns of `heads --effect`.
    pub fn with_effects(mut self, effects: BTreeMap<&'static str, f64>) -> Self {
        let of = |id: &str| effects.get(id).copied().map(Number);
        self.effect = (!effects.is_empty()).then(|| EffectOfHead {
            loss_change: of("loss_change"),
            kl: of("kl"),
            share: of("share"),
            contribution_first: of("contribution_first"),
            contribution_entropy: of("contribution_entropy"),
            contribution_total: of("contribution_total"),
            copying: of("copying"),
            retrieval: of("retrieval"),
            looks: of("looks"),
            streaming: of("streaming"),
        });
        self.effects = effects;
        self
    }

    fn cells(&self, prompt: &str, effects: &[&'static str]) -> Vec<Cell> {
        let mut cells = vec![
            prompt.cell(),
            self.stack.cell(),
            self.layer.cell(),
            self.head.cell(),
            self.kind.cell(),
        ];
        cells.extend(self.on_prompt.values().map(CellValue::cell));
        let random = self.random.as_ref().map(OnRandom::values);
        cells.extend((0..3).map(|at| random.map(|all| all[at]).cell()));
        cells.push(self.seen_on.cell());
        cells.extend(
            effects
                .iter()
                .map(|id| self.effects.get(id).copied().cell()),
        );
        cells
    }

    /// Makes a row without effects.
    pub fn new(
        (stack, layer, head): (Option<&'static str>, usize, usize),
        (kind, seen_on): (Option<&'static str>, Option<&'static str>),
        on_prompt: OnPrompt,
        random: Option<OnRandom>,
    ) -> Self {
        Self {
            stack,
            layer,
            head,
            kind,
            seen_on,
            on_prompt,
            random,
            effect: None,
            effects: BTreeMap::new(),
        }
    }
}

/// Mean probabilities on the prompt; a field for each of [`ON_PROMPT`]. Null where the statistic has no meaning on the prompt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OnPrompt {
    pub previous_mass: Option<Number>,
    pub induction_mass: Option<Number>,
    pub duplicate_mass: Option<Number>,
    pub first_key_mass: Option<Number>,
    pub diagonal_mass: Option<Number>,
}

/// Mean probabilities on random tokens that are said twice.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OnRandom {
    pub previous: Number,
    pub induction: Number,
    pub duplicate: Number,
}

impl OnPrompt {
    /// Reads the figures from statistics.
    pub fn of(value: impl Fn(Stat) -> Option<f64>) -> Self {
        let [
            previous_mass,
            induction_mass,
            duplicate_mass,
            first_key_mass,
            diagonal_mass,
        ] = ON_PROMPT.map(|(_, stat)| value(stat).map(Number));
        Self {
            previous_mass,
            induction_mass,
            duplicate_mass,
            first_key_mass,
            diagonal_mass,
        }
    }

    fn values(&self) -> [Option<f64>; 5] {
        [
            self.previous_mass,
            self.induction_mass,
            self.duplicate_mass,
            self.first_key_mass,
            self.diagonal_mass,
        ]
        .map(|value| value.map(|value| value.0))
    }
}

impl OnRandom {
    fn values(&self) -> [f64; 3] {
        [self.previous, self.induction, self.duplicate].map(|value| value.0)
    }
}

impl HeadTypes {
    pub fn new(model: ModelRecord, what_if: Vec<String>, prompts: Vec<PromptTypes>) -> Self {
        Self {
            version: VERSION,
            model,
            what_if,
            prompts,
            effects: Vec::new(),
        }
    }

    /// Adds columns of effects.
    pub fn with_effects(self, effects: Vec<&'static str>) -> Self {
        Self { effects, ..self }
    }

    /// Whether no head is listed.
    pub fn is_empty(&self) -> bool {
        self.all_rows().next().is_none()
    }

    /// Writes the document.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        super::json::write_pretty(self, to)
    }

    /// Returns one row per prompt and head.
    pub fn rows(&self) -> Table {
        let mut columns = vec![
            Column::text("prompt", "id of the prompt").required(true),
            Column::text("stack", "stack of the layer; empty for the only stack"),
            Column::integer("layer", "layer, counted from 0").required(true),
            Column::integer("head", "head, counted from 0").required(true),
            Column::text(
                "type",
                "kind of place the head looks at; empty where no type fits",
            ),
        ];
        let of_stat = |(_, stat): (&str, Stat)| Column::number(stat.id(), "mean probability");
        columns.extend(ON_PROMPT.map(of_stat));
        let on_random = ["random_previous", "random_induction", "random_duplicate"];
        let on_random =
            on_random.map(|id| Column::number(id, "mean probability on repeated random tokens"));
        columns.extend(on_random);
        columns.push(Column::text("type_seen_on", "what shows the type"));
        let effects = self.effects.iter();
        columns.extend(effects.map(|id| Column::number(id, "effect of the head")));
        let rows = self.prompts.iter().flat_map(|prompt| {
            let row = |row: &HeadRow| row.cells(&prompt.id, &self.effects);
            prompt.heads.iter().map(row)
        });
        Table {
            rows: rows.collect(),
            columns,
        }
    }

    /// Returns the table as text; with several prompts, one table below the other, each under its id.
    pub fn text(&self) -> String {
        let has_random = self.all_rows().any(|row| row.random.is_some());
        let mut text = String::new();
        for (idx, prompt) in self.prompts.iter().enumerate() {
            if self.prompts.len() > 1 {
                let gap = if idx == 0 { "" } else { "\n" };
                let _ = writeln!(text, "{gap}{}", super::plain::one_line(&prompt.id));
            }
            let _ = write!(text, "{:<9}{:>4} {:>5}  {:<16}", "stack", "L", "H", "type");
            if has_random {
                let _ = write!(text, "{:<14}", "seen on");
            }
            for (title, _) in ON_PROMPT {
                let _ = write!(text, "{title:>10}");
            }
            for title in ON_RANDOM.iter().filter(|_| has_random) {
                let _ = write!(text, "{title:>10}");
            }
            for id in &self.effects {
                let _ = write!(text, "{:>width$}", id, width = effect_width(id));
            }
            text.push('\n');
            for row in &prompt.heads {
                line(row, has_random, &self.effects, &mut text);
            }
        }
        text
    }

    fn all_rows(&self) -> impl Iterator<Item = &HeadRow> {
        self.prompts.iter().flat_map(|prompt| &prompt.heads)
    }
}

/// Appends one head; `has_random` adds the column that says where the type was seen.
fn line(row: &HeadRow, has_random: bool, effects: &[&str], text: &mut String) {
    let (stack, kind) = (row.stack.unwrap_or("-"), row.kind.unwrap_or("-"));
    let _ = write!(
        text,
        "{stack:<9}{:>4} {:>5}  {kind:<16}",
        row.layer, row.head
    );
    if has_random {
        let _ = write!(text, "{:<14}", row.seen_on.unwrap_or("-"));
    }
    for value in row.on_prompt.values() {
        let _ = write!(text, "{:>10}", share(value));
    }
    for value in row.random.iter().flat_map(OnRandom::values) {
        let _ = write!(text, "{:>10}", share(Some(value)));
    }
    for id in effects {
        let value = row.effects.get(id).copied();
        let _ = write!(text, "{:>width$}", share(value), width = effect_width(id));
    }
    text.push('\n');
}

/// Returns the width of an effect column: its title and a gap.
fn effect_width(id: &str) -> usize {
    id.len().max(7) + 3
}

/// Formats a share; a dash if it is absent.
fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}
